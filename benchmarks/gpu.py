"""Work on tensors on a GPU beside PyTorch there: `python benchmarks/gpu.py [--rows PATTERN]`, on a machine that has one; else it says so
and exits with 2.

A row is a program of `benchmarks/tensor/` with `--device cuda`, or a step of training (`mnist_step.py`, `gpt_step.py`); PyTorch does
the same in f32 (no TF32). Printed are the medians in ms with the least, the ratio, and how far elements of our results are from those
of NumPy in f64, by the largest of them; of the GPT the difference of the losses. Ours waits for each kernel; PyTorch is waited for once a
run.
`--device cuda-emulated` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpt_step
import mnist_step
import numpy as np
from beside import Step
from tensor_peers import inputs, shown

FOLDER = Path(__file__).parent
SAMPLES = 9
TOLERANCE = 1e-4  # of the largest element
NO_GPU = ("R0017", "R0018")  # codes of what is missing


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def layernorm(x: Any, bias: Any, scale: Any) -> Any:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + bias


@dataclass(frozen=True)
class Row:
    """A program with its flags; the same in f64 by NumPy, and by PyTorch."""

    program: str
    flags: Mapping[str, Any]
    exact: Callable[..., Any]
    torch: Callable[..., Any]

    def operands(self) -> list[Any]:
        turned = {"turn_a": False, "turn_b": False, "shape": (4096, 1024)}
        found = inputs(self.program, {**turned, **self.flags})
        return found[:-1] if self.program == "rows" else found


def rows() -> dict[str, Row]:
    def in_torch(name: str) -> Callable[..., Any]:
        def run(x: Any, *more: Any) -> Any:
            from torch.nn import functional as F

            if name == "softmax":
                return F.softmax(x, 1)
            bias, scale = more
            return F.layer_norm(x, x.shape[1:], scale, bias)

        return run

    products = {
        f"product {n}": Row("product", {"m": n, "k": n, "n": n}, lambda a, b: a @ b, lambda a, b: a @ b) for n in (512, 1024, 2048, 4096)
    }
    return products | {
        "softmax 4096 x 1024": Row("rows", {"what": "softmax"}, softmax, in_torch("softmax")),
        "layernorm 4096 x 1024": Row("rows", {"what": "layernorm"}, layernorm, in_torch("layernorm")),
    }


def ours(program: Path, device: str, flags: Mapping[str, Any]) -> str:
    """What a program prints."""
    words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "tlc", "--device", device, str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing = any(f"error[{code}]" in done.stderr for code in NO_GPU)
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(2 if missing else 1)
    return done.stdout


def samples_of(text: str) -> tuple[list[float], list[float]]:
    """Times in ms, and elements of the result."""
    lines = [line.split() for line in text.splitlines()]
    times, values = ([float(value) for kind, value in lines if kind == wanted] for wanted in ("time", "value"))
    return times[2:] or times, values  # the first ones load code


def gpu_of_torch() -> Any:
    """PyTorch, or None where there is none or no GPU that it sees."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch if torch.cuda.is_available() else None


def torch_times(work: Callable[[], object], samples: int) -> list[float]:
    """Times of a run in ms; the first ones load code."""
    torch = gpu_of_torch()
    times = []
    for _ in range(samples + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times[2:]


GPT = {"batch": 12, "parts": 1, "layers": 4, "heads": 4, "width": 128, "context": 64}
STEPS: dict[str, tuple[Callable[..., Step], int, Mapping[str, int]]] = {
    "mnist_step": (mnist_step.torch_step, mnist_step.STEPS, {}),
    "gpt_step": (gpt_step.torch_step, 2, GPT),
}


def step_row(name: str, device: str, samples: int) -> None:
    """A step of training: the programs print the median and the least time of a step, and perhaps the loss."""
    make, steps, sizes = STEPS[name]
    text = ours(FOLDER / f"{name}.tl", device, {"rounds": samples, "steps": steps, **sizes})
    median, least, *loss = map(float, text.split())
    peer, error = None, "-"
    if gpu_of_torch():
        step = make(1, device="cuda", **({"steps": steps, **sizes} if sizes else {}))
        last: list[Any] = []

        def run() -> None:
            last[:] = [step(i) for i in range(steps)]

        peer = [t / steps for t in torch_times(run, samples)]
        if loss:
            error = f"{abs(float(last[-1]) - loss[0]):.1e}"
    _print(name, [median, least], peer, error)


def main() -> None:
    parser = argparse.ArgumentParser(description="Times tensors on a GPU beside PyTorch.")
    parser.add_argument("--rows", default="*", help="a pattern of names (default: all)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"(default {SAMPLES})")
    parser.add_argument("--device", choices=("cuda", "cuda-emulated"), default="cuda", help="(default cuda)")
    args = parser.parse_args()
    chosen = {name: row for name, row in rows().items() if fnmatch.fnmatch(name, args.rows)}
    print(f"{'':24} {'tlc':>20} {'torch':>20}   torch / tlc   error")
    wrong = [name for name, row in chosen.items() if tensor_row(name, row, args.device, args.samples) > TOLERANCE]
    for name in fnmatch.filter(STEPS, args.rows):
        step_row(name, args.device, args.samples)
    if wrong:
        sys.exit(f"wrong results: {', '.join(wrong)}")


def tensor_row(name: str, row: Row, device: str, samples: int) -> float:
    """A row of its own; gives the error."""
    program = FOLDER / "tensor" / f"{row.program}.tl"
    times, values = samples_of(ours(program, device, {**row.flags, "samples": samples}))
    exact = np.array(shown([row.exact(*(a.astype(np.float64) for a in row.operands()))]))
    error = float(np.max(np.abs(np.array(values) - exact)) / np.max(np.abs(exact)))
    torch = gpu_of_torch()
    given = [torch.from_numpy(np.ascontiguousarray(a)).cuda() for a in row.operands()] if torch else []
    _print(name, times, torch_times(lambda: row.torch(*given), samples) if torch else None, f"{error:.1e}")
    return error


def _print(name: str, times: list[float], peer: list[float] | None, error: str) -> None:
    ratio = f"{statistics.median(peer) / statistics.median(times):11.2f}" if peer else f"{'-':>11}"
    print(f"{name:24} {_figures(times):>20} {_figures(peer) if peer else '-':>20}   {ratio}   {error}", flush=True)


def _figures(times: list[float]) -> str:
    return f"{statistics.median(times):.3f} ({min(times):.3f}) ms"


if __name__ == "__main__":
    main()

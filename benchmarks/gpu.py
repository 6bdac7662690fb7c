"""Work on tensors on a GPU beside PyTorch there: `python benchmarks/gpu.py [--rows PATTERN]`, on a machine that has one; else it says so
and exits with 2.

Rows: products of f32 (PyTorch without TF32: cuBLAS) and of bf16, these with `--tensor-cores` too; attention forward and with its gradients;
work on rows; steps of training (`mnist_step.py`, `cnn_step.py`, `gpt_step.py`). Printed are the medians in ms with the least, the ratio
(for products that is the share of cuBLAS), TFLOP/s or GB/s, for work on rows the share of what a copy reaches, and how far elements of
the results are from those of f64, by the largest of them; of the GPT the difference of the losses.

A sample is several runs, which nobody waits for; then it is waited for. Ours runs each row in a process of its own.
`--device cuda-emulated --tiny` tries the script without a GPU: PyTorch, if it is there, is that of the CPU then.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cnn_step
import gpt_step
import mnist_step
import numpy as np
from beside import Step
from tensor_peers import PROBES, shown, value

FOLDER = Path(__file__).parent
SAMPLES = 9
NO_GPU = ("R0017", "R0018")  # codes of what is missing
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """A program of `gpu_tensor/` with its flags, and those of `tlc`; what it prints, by f64; and PyTorch's work on the operands. `flops`
    and `bytes` are those of a run, 0 where they do not count; `repeats` runs are a sample.
    """

    program: str
    flags: Mapping[str, Any]
    operands: Callable[[], list[Array]]
    exact: Callable[..., list[float]]
    torch: Callable[..., object]
    tolerance: float = 1e-4
    flops: float = 0
    bytes: float = 0
    narrow: bool = False
    compiler: tuple[str, ...] = ()

    @property
    def repeats(self) -> int:
        """So that a sample takes some ten milliseconds."""
        return max(1, min(50, int(2e11 / (self.flops or 50 * self.bytes or 1e10))))


# ---------------------------------------------------------------- the rows


def product_row(n: int, narrow: bool = False, tensor_cores: bool = False) -> Row:
    def operands() -> list[Array]:
        found = [value(1, (n, n)), value(2, (n, n))]
        return [bf16(x) for x in found] if narrow else found

    # a sum of products of bf16 is exact to 2^-24 or so, and is rounded to 8 bits in the end; factors of tf32 have 11
    tolerance = 5e-3 if narrow else 2e-3 if tensor_cores else 1e-4
    compiler = ("--tensor-cores",) if tensor_cores else ()
    flags = {"n": n, "narrow": narrow}
    return Row("product", flags, operands, product_shown, lambda a, b: a @ b, tolerance, 2.0 * n**3, 0, narrow, compiler)


def bf16(x: Array) -> Array:
    """The nearest bf16, halves to even, as f32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def product_shown(a: Array, b: Array) -> list[float]:
    """What the program shows of a product, computed for these elements only."""
    n, m = len(a), b.shape[1]
    places = [divmod(p * 2654435761 % (n * m), m) for p in range(PROBES)]
    return [*(float(a[i] @ b[:, j]) for i, j in places), float(a.sum(0) @ b.sum(1)) / (n * m)]


def rows_row(what: str, rows: int, columns: int) -> Row:
    def operands() -> list[Array]:
        x, bias, scale = 4 * value(1, (rows, columns)), value(2, (columns,)), 1 + 0.5 * value(3, (columns,))
        return [x, bias, scale] if what == "layernorm" else [x]

    exact = {"softmax": softmax, "layernorm": layernorm, "copy": np.negative}[what]
    flags = {"what": what, "rows": rows, "columns": columns}
    return Row("rows", flags, operands, lambda *x: shown([exact(*x)]), torch_rows(what), bytes=8.0 * rows * columns)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def layernorm(x: Array, bias: Array, scale: Array) -> Array:
    centred = x - x.mean(1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + bias)


def torch_rows(what: str) -> Callable[..., object]:
    def run(x: Any, *more: Any) -> object:
        from torch.nn import functional as F

        if what == "layernorm":
            bias, scale = more
            return F.layer_norm(x, x.shape[1:], scale, bias)
        return F.softmax(x, 1) if what == "softmax" else -x

    return run


def attention_row(heads: int, length: int, size: int, backward: bool) -> Row:
    shape = (heads, length, size)

    def operands() -> list[Array]:
        return [4 * value(1, shape), value(2, shape), value(3, shape), value(4, shape)]

    def exact(q: Array, k: Array, v: Array, dy: Array) -> list[float]:
        """Head by head: the matrices are large."""
        parts = [attention(*head, backward) for head in zip(q, k, v, dy, strict=True)]
        return shown([np.concatenate(results) for results in zip(*parts, strict=True)])

    def torch(q: Any, k: Any, v: Any, dy: Any) -> object:
        from torch.nn import functional as F

        if not backward:
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)
        import torch

        given = [x[None].requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(F.scaled_dot_product_attention(*given, is_causal=True), given, dy[None])

    flags = {"heads": heads, "length": length, "size": size, "backward": backward}
    flops = 2.0 * heads * length**2 * size * (3.5 if backward else 1)  # half of each matrix; two products forward, five more backward
    return Row("attention", flags, operands, exact, torch, 1e-3 if backward else 1e-4, flops)


def attention(q: Array, k: Array, v: Array, dy: Array, backward: bool) -> list[Array]:
    scale = 1 / np.sqrt(q.shape[1])
    weights = softmax(np.where(np.tri(len(q), dtype=bool), scale * (q @ k.T), -np.inf))
    if not backward:
        return [weights @ v]
    turned = dy @ v.T
    scores = weights * (turned - (weights * turned).sum(1, keepdims=True)) * scale
    return [weights @ v, scores @ k, scores.T @ q, weights.T @ dy]


COPY = "copy"  # the row whose rate is that of a copy


def rows(tiny: bool) -> dict[str, Row]:
    out: dict[str, Row] = {}
    for n in (64, 96) if tiny else (1024, 2048, 4096, 8192):
        out[f"product f32 {n}"] = product_row(n)
        out[f"product tf32 {n}"] = product_row(n, tensor_cores=True)
        out[f"product bf16 {n}"] = product_row(n, narrow=True, tensor_cores=True)
    n, m = (24, 100) if tiny else (8192, 4096)
    out |= {f"{what} {n} x {m}": rows_row(what, n, m) for what in (COPY, "softmax", "layernorm")}
    for heads, length, size in [(2, 40, 16)] if tiny else [(96, 1024, 64), (32, 4096, 64), (16, 4096, 128)]:
        for backward in (False, True):
            out[f"attention{' + grad' * backward} {heads} x {length} x {size}"] = attention_row(heads, length, size, backward)
    return out


GPT = {"batch": 12, "parts": 1, "layers": 4, "heads": 4, "width": 128, "context": 64}
LARGE = {"batch": 16, "parts": 1, "layers": 6, "heads": 6, "width": 384, "context": 256}
LEAST = {"batch": 2, "parts": 1, "layers": 1, "heads": 2, "width": 16, "context": 8}


@dataclass(frozen=True)
class Training:
    """A program that prints the median and the least time of a step, and perhaps the last loss; and PyTorch's step."""

    program: str
    make: Callable[..., Step]
    steps: int
    sizes: Mapping[str, int] = field(default_factory=dict)


def trainings(tiny: bool) -> dict[str, Training]:
    out = {"mnist mlp step": Training("mnist_step", mnist_step.torch_step, 2 if tiny else mnist_step.STEPS)}
    out["mnist cnn step"] = Training("cnn_step", cnn_step.torch_step, 2 if tiny else cnn_step.STEPS)
    for name, sizes in ({"gpt step": LEAST} if tiny else {"gpt step": GPT, "gpt step, larger": LARGE}).items():
        out[name] = Training("gpt_step", gpt_step.torch_step, 2, sizes)
    return out


# ---------------------------------------------------------------- running


def ours(program: Path, device: str, flags: Mapping[str, Any], compiler: Sequence[str] = ()) -> str:
    """What a program prints."""
    words = [f"--{name.replace('_', '-')}={str(v).lower() if isinstance(v, bool) else v}" for name, v in flags.items()]
    command = [sys.executable, "-m", "tlc", "--device", device, *compiler, str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing = any(f"error[{code}]" in done.stderr for code in NO_GPU)
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(2 if missing else 1)
    return done.stdout


def samples_of(text: str) -> tuple[list[float], list[float]]:
    """Times in ms, and elements of the result."""
    lines = [line.split() for line in text.splitlines()]
    times, values = ([float(x) for kind, x in lines if kind == wanted] for wanted in ("time", "value"))
    return times[2:] or times, values  # the first ones load code


class Torch:
    """PyTorch on its GPU, or on the CPU where ours is emulated."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch, self.device = torch, "cuda" if device == "cuda" else "cpu"
        self.wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def given(self, row: Row) -> list[Any]:
        self.torch.backends.cuda.matmul.allow_tf32 = "--tensor-cores" in row.compiler
        found = [self.torch.from_numpy(np.ascontiguousarray(a)).to(self.device) for a in row.operands()]
        return [x.bfloat16() for x in found] if row.narrow else found

    def times(self, work: Callable[[], object], samples: int, repeats: int) -> list[float]:
        """Times of a run in ms; the first ones load code."""
        found = []
        for _ in range(samples + 2):
            self.wait()
            start = time.perf_counter()
            for _ in range(repeats):
                work()
            self.wait()
            found.append((time.perf_counter() - start) * 1e3 / repeats)
        return found[2:]


def torch_for(device: str) -> Torch | None:
    """None, with a line that says so, where there is no PyTorch, or it sees no GPU."""
    try:
        found = Torch(device)
    except ModuleNotFoundError:
        print("there is no PyTorch here: only tlc is timed (`pip install torch`)", file=sys.stderr)
        return None
    if device == "cuda" and not found.torch.cuda.is_available():
        print(f"PyTorch {found.torch.__version__} sees no GPU: only tlc is timed", file=sys.stderr)
        return None
    return found


@dataclass
class Bench:
    device: str
    samples: int
    peer: Torch | None
    copies: float = 0  # GB/s of a copy, when it is known

    def tensor_row(self, name: str, row: Row) -> bool:
        """Print a row; gives whether the results are right."""
        program = FOLDER / "gpu_tensor" / f"{row.program}.tl"
        flags = {**row.flags, "samples": self.samples + 2, "repeats": row.repeats}
        times, values = samples_of(ours(program, self.device, flags, row.compiler))
        exact = np.array(row.exact(*(a.astype(np.float64) for a in row.operands())))
        error = float(np.max(np.abs(np.array(values) - exact)) / np.max(np.abs(exact)))
        peer = None
        if self.peer is not None:
            given = self.peer.given(row)
            peer = self.peer.times(lambda: row.torch(*given), self.samples, row.repeats)
        rate, share = "", ""
        if row.flops:
            rate = f"{row.flops / statistics.median(times) / 1e9:8.2f} TFLOP/s"
        elif row.bytes:
            rate = f"{row.bytes / statistics.median(times) / 1e6:8.1f} GB/s"
            if row.flags["what"] == COPY:
                self.copies = row.bytes / statistics.median([*(peer or times)]) / 1e6
            if self.copies:
                share = f"{row.bytes / statistics.median(times) / 1e6 / self.copies:.2f}"
        _print(name, times, peer, rate, share, f"{error:.1e}")
        return error <= row.tolerance

    def step_row(self, name: str, training: Training) -> bool:
        """Print a step of training; gives whether the losses agree, where they are known."""
        flags = {"rounds": self.samples, "steps": training.steps, **training.sizes}
        median, least, *loss = map(float, ours(FOLDER / f"{training.program}.tl", self.device, flags).split())
        peer, error = None, ""
        if self.peer is not None:
            more = {"steps": training.steps, **training.sizes} if training.sizes else {}
            step = training.make(1, device=self.peer.device, **more)
            last: list[Any] = []

            def run() -> None:
                last[:] = [step(i) for i in range(training.steps)]

            if loss:  # ours began anew and went through all rounds
                run()
                for _ in range(self.samples):
                    run()
                error = f"{abs(float(last[-1]) - loss[0]):.1e}"
            peer = [t / training.steps for t in self.peer.times(run, self.samples, 1)]
        _print(name, [median, least], peer, "", "", error)
        return not error or float(error) <= 1e-2


def _print(name: str, times: list[float], peer: list[float] | None, rate: str, share: str, error: str) -> None:
    ratio = f"{statistics.median(peer) / statistics.median(times):.2f}" if peer else ""
    figures = _figures(peer) if peer else "-"
    print(f"{name:32} {_figures(times):>20} {figures:>20} {ratio:>11} {rate:>16} {share:>6} {error:>8}", flush=True)


def _figures(times: list[float]) -> str:
    return f"{statistics.median(times):.3f} ({min(times):.3f})"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Times tensors on a GPU beside PyTorch.")
    parser.add_argument("--rows", default="*", help="a pattern of names (default: all)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"(default {SAMPLES})")
    parser.add_argument("--device", choices=("cuda", "cuda-emulated"), default="cuda", help="(default cuda)")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    args = parser.parse_args(argv)
    bench = Bench(args.device, args.samples, torch_for(args.device))
    print(f"{'':32} {'tlc, ms':>20} {'torch, ms':>20} {'torch / tlc':>11} {'rate':>16} {'copy':>6} {'error':>8}")
    work: dict[str, Callable[[], bool]] = {n: lambda n=n, r=r: bench.tensor_row(n, r) for n, r in rows(args.tiny).items()}  # type: ignore[misc]
    work |= {n: lambda n=n, t=t: bench.step_row(n, t) for n, t in trainings(args.tiny).items()}  # type: ignore[misc]
    wrong = [name for name in fnmatch.filter(work, args.rows) if not work[name]()]
    if wrong:
        sys.exit(f"wrong results: {', '.join(wrong)}")


if __name__ == "__main__":
    main()

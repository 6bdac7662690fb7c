"""How long a program takes to start: `python benchmarks/startup.py [runs] [--cnn]`.

Measured from the start of the process to its end, by a program that reads MNIST and trains one step (`first_step.tl`, with `--cnn`
`first_step_cnn.tl`):

    first ever   nothing is there: neither the cache of tlc nor Python's bytecode of anything
    cold         an empty cache, so everything is compiled
    other flags  the program was compiled before, with another value of a flag
    warm         the program was compiled before

The ways take turns, so that what else the machine does meets all alike. Beside them stand what no program of Python and
NumPy can avoid, and the imports of PyTorch and JAX where they are installed: before those have done anything.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a program takes to start.")
    parser.add_argument("runs", nargs="?", type=int, default=7, help="how often each way is measured (default 7)")
    parser.add_argument("--cnn", action="store_true", help="start a convolutional network, in place of one of two layers")
    options = parser.parse_args()
    runs = options.runs
    tlc = [sys.executable, "-m", "tlc", str(FOLDER / ("first_step_cnn.tl" if options.cnn else "first_step.tl"))]
    with tempfile.TemporaryDirectory(prefix="tlc-startup-") as folder:
        rows = ways(Path(folder), tlc)
        for _, prepare_and_run in rows:  # files come into memory, and bytecode is made
            prepare_and_run()
        times: dict[str, list[float]] = {name: [] for name, _ in rows}
        for _ in range(runs):
            for name, prepare_and_run in rows:
                times[name].append(prepare_and_run())
    warm = statistics.median(times["tlc, warm"])
    print(f"{'':26} {'median':>9} {'least':>9}   median / warm")
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:26} {median * 1e3:6.0f} ms {min(found) * 1e3:6.0f} ms {median / warm:12.2f}")


def ways(folder: Path, tlc: list[str]) -> list[tuple[str, Callable[[], float]]]:
    """The rows: a name, and what measures one run of a command in seconds."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "JAX_PLATFORMS": "cpu"}
    numbers = itertools.count()

    def run(command: list[str], **more: str) -> float:
        begin = time.perf_counter()
        subprocess.run(command, env=environment | more, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
        return time.perf_counter() - begin

    def fresh() -> str:
        return str(folder / str(next(numbers)))

    def python(code: str) -> Callable[[], float]:
        return lambda: run([sys.executable, "-c", code])

    kept = fresh()
    rows: list[tuple[str, Callable[[], float]]] = [
        ("python", python("pass")),
        ("import numpy", python("import numpy")),
        ("import numpy, llvmlite", python("import numpy, llvmlite.binding")),
        ("tlc, first ever", lambda: run(tlc, XDG_CACHE_HOME=fresh(), PYTHONPYCACHEPREFIX=fresh())),
        ("tlc, cold", lambda: run(tlc, XDG_CACHE_HOME=fresh())),
        ("tlc, other flags", lambda: run([*tlc, "--seed", str(next(numbers))], XDG_CACHE_HOME=kept)),
        ("tlc, warm", lambda: run(tlc, XDG_CACHE_HOME=kept)),
    ]
    peers = (("torch", "import torch"), ("jax", "import jax.numpy as np; (np.ones(3) + 1).block_until_ready()"))
    rows += [(code.partition(" as ")[0], python(code)) for name, code in peers if find_spec(name) is not None]
    return rows


if __name__ == "__main__":
    main()

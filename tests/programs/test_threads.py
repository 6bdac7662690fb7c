"""Programs print the same with one thread and with three that claim the smallest pieces there are: results do not depend on who computes what.

Every parallel loop is cut into single iterations here, so that threads run even where there is little to do.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tlc.backends.llvm import pool
from tlc.backends.runtime.native import Native
from tlc.driver import cli
from tlc.tensor import emit

ROOT = Path(__file__).resolve().parents[2]

# Flags that keep them short; the two that train on the digits do so on the sample that comes with the project.
FLAGS = {
    "fannkuch": "--n 7", "game_of_life": "--generations 20 --soup 0.3", "heat": "--size 33 --steps 40", "kmeans": "--points 200 --steps 5",
    "layer": "", "levenshtein": "--n 60 --m 50", "linear_regression": "--points 64 --steps 30", "mandelbrot": "--width 30 --height 11",
    "lqr": "--horizon 10", "mnist_cnn": "--epochs 1", "mnist_mlp": "--epochs 1", "nbody": "--steps 100", "newton": "--n 3",
    "pca": "--examples 100 --steps 10",
    "quicksort": "--n 2000", "sieve": "--n 1000", "spectral_norm": "--n 40", "spiral": "--points 40 --steps 12",
}  # fmt: skip
SERIAL = {"fannkuch", "levenshtein", "lqr", "mandelbrot", "nbody", "newton", "quicksort", "sieve"}  # no kernels, or such as call functions

# What takes long to compile: `test_gpt.py` and `test_learning.py` run them with several threads.
ELSEWHERE = {"gpt", "char_rnn", "diffusion_2d", "neural_ode", "vae", "word2vec"}

PROGRAMS = [p for p in sorted((*ROOT.glob("programs/*.tl"), *ROOT.glob("tests/programs/**/*.tl"))) if p.stem not in ELSEWHERE]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The smallest grain; gives how often threads were called, run by run."""
    monkeypatch.setattr(emit, "GRAIN", 1)
    monkeypatch.setattr(pool, "POOL", pool.pool(1))
    calls: list[int] = []
    run = Native.run

    def counting(self: Native) -> None:
        try:
            run(self)
        finally:
            calls.append(self.context.pool_word >> 32)

    monkeypatch.setattr(Native, "run", counting)
    yield calls


def test_every_program_has_flags() -> None:
    assert {p.stem for p in ROOT.glob("programs/*.tl")} == FLAGS.keys() | ELSEWHERE


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_threads_change_nothing(
    path: Path, calls: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TLC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # of its own: what is compiled here is for tests; the second run finds it
    found = []
    for threads in "1", "3":
        status = cli.main(["--threads", threads, str(path), *FLAGS.get(path.stem, "").split()])
        found.append((status, capfd.readouterr().out))
    assert found[0] == found[1]
    assert calls[0] == 0
    if path.parent.name == "programs" and path.stem not in SERIAL:
        assert calls[1] > 0, "no work was shared"


def test_threads_have_room_for_local_buffers(tmp_path: Path) -> None:
    """A block of a product copies its operand to the stack of its thread, more than some systems give a thread by themselves."""
    path = tmp_path / "product.tl"
    path.write_text(
        "fn product(a: f64[k, m], b: f64[k, n]) -> f64[m, n] = for[i, j] sum[p] a[p, i] * b[p, j]\n"
        "fn main() {\n  let a = for[p < 1024, i < 1009] f64(i % 2)\n  let b = for[p < 1024, j < 300] f64(p % 2)\n"
        "  print(sum(product(a, b)))\n}\n"
    )
    small = partial(resource.setrlimit, resource.RLIMIT_STACK, (512 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    command = [sys.executable, "-m", "tlc", "--threads", "3", str(path)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, preexec_fn=small, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (0, f"{504.0 * 300 * 512}\n"), done.stderr  # 504 odd i, 512 odd p

"""The programs that users run, as users run them: compiled, and by the interpreter. `reference.py` worked out what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import reference
import reference_random

from tlc.driver import cli, pipeline

ROOT = Path(__file__).resolve().parents[2]


def tlc(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `tlc` in the root of the repository, with these changes of the environment."""
    command = [sys.executable, "-m", "tlc", *args]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False)


# a small one for the interpreter as well, which is slow
CASES = [
    ("nbody", {"steps": 100}, True),
    ("nbody", {"steps": 5000}, False),
    ("sieve", {"n": 10_000}, False),
    ("sieve", {"n": 200}, True),
    ("sieve", {"n": 1}, True),
    ("mandelbrot", {"width": 60, "height": 22, "limit": 50}, False),
    ("mandelbrot", {"width": 19, "height": 7, "limit": 20}, True),
    ("linear_regression", {"points": 200, "steps": 151}, False),
    ("linear_regression", {"points": 64, "steps": 30, "seed": 7}, True),
    ("spectral_norm", {"n": 100}, False),
    ("spectral_norm", {"n": 7}, True),
    ("fannkuch", {"n": 8}, False),
    ("fannkuch", {"n": 5}, True),
    ("fannkuch", {"n": 1}, True),
    ("kmeans", {"points": 300, "seed": 3}, False),
    ("kmeans", {"points": 60}, True),
    ("game_of_life", {"width": 31, "height": 20, "generations": 50, "soup": 0.3, "seed": 5}, False),
    ("game_of_life", {"width": 9, "height": 6, "generations": 17}, True),
    ("levenshtein", {"n": 200, "m": 150, "seed": 1}, False),
    ("levenshtein", {"n": 12, "m": 9}, True),
    ("levenshtein", {"n": 3, "m": 0}, True),
    ("quicksort", {"n": 30_000}, False),
    ("quicksort", {"n": 40, "seed": 9}, True),
    ("quicksort", {"n": 0}, True),
    ("heat", {"size": 65, "steps": 400}, False),
    ("heat", {"size": 8, "steps": 12}, True),
    ("pca", {"examples": 500}, False),
    ("pca", {"examples": 40, "seed": 2}, True),
    ("spiral", {"points": 100, "steps": 101}, False),
    ("spiral", {"points": 20, "steps": 3, "seed": 1}, True),
    ("newton", {}, False),
    ("lqr", {}, False),
]


@pytest.mark.parametrize(("program", "flags", "interpreted"), CASES)
def test_output(program: str, flags: dict[str, float], interpreted: bool, capfd: pytest.CaptureFixture[str]) -> None:
    expected = getattr(reference, program)(**flags)
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    hosts = [["--host", host] for host in pipeline.hosts()]
    ways = [[level, *host] for level in ("-O0", "-O2") for host in hosts]
    for compiler_flags in [*ways, ["--interp"]] if interpreted else ways:
        status = cli.main([*compiler_flags, str(ROOT / f"programs/{program}.tl"), *words])
        out, err = capfd.readouterr()
        assert (out, status) == (expected, 0), f"{compiler_flags}: {err}"


def test_the_reference_knows_published_values() -> None:
    """The generator's known answers (from its authors' test vectors), and the benchmark's energy after 1,000 steps."""
    for key, counter, words in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]:
        assert reference_random.threefry(key, counter) == words
    assert reference.nbody(1000) == "-0.169075164\n-0.169087605\n"


def test_mnist_learns_on_the_sample(tmp_path: Path) -> None:
    done = tlc("programs/mnist_mlp.tl", "--epochs", "3", TLC_DATA="", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "the sample of MNIST that comes with tlc" in done.stderr
    lines = [re.fullmatch(r"epoch (\d)  loss (\d\.\d{4})  test accuracy (\d\d\.\d\d)%", line) for line in done.stdout.splitlines()]
    assert [m and m[1] for m in lines] == ["0", "1", "2"]
    losses = [float(m[2]) for m in lines if m]
    assert losses == sorted(losses, reverse=True)
    last = lines[-1]
    assert last and float(last[3]) > 91.0


def test_convolutions_learn_on_the_sample(tmp_path: Path) -> None:
    done = tlc("programs/mnist_cnn.tl", "--epochs", "2", TLC_DATA="", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    accuracies = re.findall(r"test accuracy (\d+\.\d\d)%", done.stdout)
    assert len(accuracies) == 2
    assert float(accuracies[-1]) > 90.0


def test_flags_of_a_program() -> None:
    done = tlc("programs/mnist_mlp.tl", "--help")
    assert done.returncode == 0
    assert "usage: tlc programs/mnist_mlp.tl [flags]" in done.stdout
    assert "--lr X" in done.stdout and "(default 0.002)" in done.stdout
    done = tlc("programs/mnist_mlp.tl", "--epoch", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no flag `--epoch`; did you mean `--epochs`?" in done.stderr


def test_a_program_that_stops() -> None:
    done = tlc("programs/sieve.tl", "--n", "-5")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there are no numbers below -5 to sieve" in done.stderr
    assert "programs/sieve.tl:" in done.stderr


@pytest.mark.parametrize("mode", ["-O2", "--interp"])
def test_the_clock_goes_on(mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "clock.tl"
    path.write_text("let start = clock()\nlet end = clock()\nprint(end >= start, end - start < 100.0)\n")
    assert (cli.main([mode, str(path)]), capfd.readouterr().out) == (0, "true true\n")

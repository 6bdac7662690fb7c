"""Every program of `programs/`, natively at both ends of optimization and by the interpreter of unoptimized SSA: one meaning.

What a program prints is equal to the letter where it reduces no reals. Elsewhere the interpreter may add in another order than the
optimized program does, so numbers may differ in their last printed digit.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ssa_services import Recorder

from tlc.backends.runtime.externs import extern
from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.frontend.typed import Program

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
EXACT, ROUNDED = True, False

# fmt: off
CASES: dict[str, tuple[bool, dict[str, bool | int | float | str]]] = {
    "fannkuch":          (EXACT,   {"n": 5}),
    "game_of_life":      (EXACT,   {"width": 12, "height": 9, "generations": 12, "soup": 0.4}),
    "heat":              (ROUNDED, {"size": 9, "steps": 20}),
    "kmeans":            (ROUNDED, {"points": 60}),
    "layer":             (ROUNDED, {}),
    "levenshtein":       (EXACT,   {"n": 12, "m": 10}),
    "linear_regression": (ROUNDED, {"points": 50, "steps": 60}),
    "lqr":               (ROUNDED, {"horizon": 6}),
    "mandelbrot":        (EXACT,   {"width": 30, "height": 11, "limit": 60}),
    "mnist_cnn":         (ROUNDED, {"epochs": 1, "batch": 24}),
    "mnist_mlp":         (ROUNDED, {"epochs": 2, "batch": 16}),
    "nbody":             (ROUNDED, {"steps": 30}),
    "newton":            (ROUNDED, {"n": 2}),
    "pca":               (ROUNDED, {"examples": 50, "steps": 20}),
    "quicksort":         (EXACT,   {"n": 40}),
    "sieve":             (EXACT,   {"n": 400}),
    "spectral_norm":     (ROUNDED, {"n": 12}),
    "spiral":            (ROUNDED, {"points": 10, "steps": 3}),
}
# fmt: on

# What takes long to compile, or to interpret: `tests/programs/test_gpt.py` compares the transformer with twins, `test_learning.py` looks
# at what the others learn.
ELSEWHERE = {"gpt", "char_rnn", "diffusion_2d", "neural_ode", "vae", "word2vec"}

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?|-?\d+")


class World(Recorder):
    def extern(self, name: str, args: list[Any]) -> list[Any]:
        return list(extern(name)(*args) or ())


def small_mnist(folder: Path) -> None:
    """Idx files of a few random pictures in which the digit is written as a bright row."""
    rng = np.random.default_rng(0)
    for prefix, n in (("train", 48), ("t10k", 20)):
        labels = rng.integers(0, 10, n, dtype=np.uint8)
        images = rng.integers(0, 60, (n, 28, 28), dtype=np.uint8)
        images[np.arange(n), 2 * labels + 3, 4:20] = 250
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">HBBIII", 0, 8, 3, n, 28, 28) + images.tobytes())
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, n) + labels.tobytes())


def close(a: str, b: str) -> bool:
    """Whether two numbers, as printed, differ by no more than one in the last digit."""
    if "." not in a:
        return a == b
    digits = len(a.partition("e")[0].partition(".")[2])
    exponent = int(a.partition("e")[2] or 0)
    return abs(float(a) - float(b)) <= 1.01 * 10.0 ** (exponent - digits)


def agree(a: str, b: str) -> bool:
    return NUMBER.sub("0", a) == NUMBER.sub("0", b) and all(map(close, NUMBER.findall(a), NUMBER.findall(b)))


def natively(program: Program, options: Options) -> str:
    world = World()
    Native(pipeline.build(program, options, {}), world).run()
    return "\n".join(world.lines)


def interpreted(program: Program, options: Options) -> str:
    world = World()
    pipeline.interpret(program, options, world)
    return "\n".join(world.lines)


def flags(program: Program, given: Mapping[str, bool | int | float | str]) -> dict[str, bool | int | float | str]:
    return {**{f.name: f.default for f in program.flags if f.default is not None}, **given}


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_agrees_with_native_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(tmp_path)
    monkeypatch.setenv("TLC_DATA", str(tmp_path))
    exact, given = CASES[name]
    path = PROGRAMS / f"{name}.tl"
    program = pipeline.front(Source(str(path), path.read_text(encoding="utf-8")))
    values = flags(program, given)
    expected = interpreted(program, Options(flags=values))
    assert expected
    for level in (2, 0):
        found = {host: natively(program, Options(level=level, flags=values, host=host)) for host in pipeline.hosts()}
        assert len(set(found.values())) == 1, f"-O{level}: {found}"
        way = found["llvm"]
        assert way == expected if exact else agree(way, expected), f"-O{level}:\n{way}\n--interp:\n{expected}"


def test_every_program_has_a_case() -> None:
    assert CASES.keys() | ELSEWHERE == {path.stem for path in PROGRAMS.glob("*.tl")}, "give a new program small flags here"


def test_numbers_are_compared_by_their_digits() -> None:
    assert agree("loss 0.1234 of 7", "loss 0.1235 of 7")
    assert not agree("loss 0.1234 of 7", "loss 0.1236 of 7")
    assert not agree("loss 0.1234 of 7", "loss 0.1234 of 8")
    assert not agree("loss 0.1234 of 7", "lost 0.1234 of 7")
    assert agree("1.25e-05", "1.26e-05") and not agree("1.25e-05", "1.27e-05")

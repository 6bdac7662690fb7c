"""Calls of own code, run: many arguments and results of every kind, kernels, the C library, the tape, stops and their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.ssa.interp import Stop

pytestmark = pytest.mark.skipif("x86" not in pipeline.hosts(), reason="this machine has no own backend")

WAYS = [(level, registers) for level in (0, 2) for registers in ("all", "few")]


class Recorder:
    """Services that keep what is printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, text: str) -> None:
        self.lines.append(text)

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        raise AssertionError(name)

    def progress_begin(self, label: str, total: int) -> int:
        self.lines.append(f"begin {label} {total}")
        return 7

    def progress_tick(self, bar: int, at: int) -> None:
        assert bar == 7

    def progress_note(self, bar: int, at: int, text: str) -> None:
        pass

    def progress_end(self, bar: int) -> None:
        self.lines.append(f"end {bar}")


@pytest.fixture(params=WAYS, ids=lambda w: f"O{w[0]}-{w[1]}")
def run(request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    level, registers = request.param

    def runs(text: str) -> list[str]:
        services = Recorder()
        options = Options(level=level, verify=True, host="x86", registers=registers)
        native = Native(pipeline.build(pipeline.front(Source("program.tl", text)), options, {}), services)
        native.run()
        return services.lines

    return runs


# What a recursive function does after its call keeps the call from becoming a jump, so arguments and results really travel.
MANY = """
fn many(n: i64, a: i8, b: u8, c: i32, d: u32, e: i64, f: bool, g: f64, h: f32, i: f64, j: f64, k: f64, l: f64, m: f64, o: f64, p: f64,
        q: f32, r: i64, s: str) -> (i64, i8, u8, i32, u32, bool, f64, f32, f64, f64, f64, f64, f64, f64, f64, f32, i64, i64, i64, str) {
  if n == 0 { return (e, a, b, c, d, f, g, h, i, j, k, l, m, o, p, q, r, e + 1, e + 2, s) }
  let (e0, a0, b0, c0, d0, f0, g0, h0, i0, j0, k0, l0, m0, o0, p0, q0, r0, e1, e2, s0) =
    many(n - 1, a + 1i8, b + 1u8, c - 1i32, d + 1u32, e * 2, not f, g + 0.5, h + 0.5f32, i + 1.0, j + 1.0, k + 1.0, l + 1.0, m + 1.0,
         o + 1.0, p + 1.0, q - 1.0f32, r - 1, s)
  (e0, a0, b0, c0, d0, f0, g0, h0, i0, j0, k0, l0, m0, o0, p0, q0, r0, e1, e2 + 100, s0)
}

fn main() {
  let x = many(3, 126i8, 254u8, -5i32, 4294967295u32, 5, true, 1.25, 2.5f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5f32, 9, "end")
  print("{x}")
}
"""


def test_many_arguments_and_results(run: Callable[[str], list[str]]) -> None:
    """Six words in integer registers, eight in real ones, the rest in the frame; results alike. 126 + 3 wraps to -127, 254 + 3 to 1."""
    expected = "(40, -127, 1, -8, 2, false, 2.75, 4.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 5.5, 6, 41, 342, end)"
    assert run(MANY) == [expected]


def test_tensors_travel_as_words(run: Callable[[str], list[str]]) -> None:
    """Two matrices are six words, results are given back through the frame too."""
    text = """
fn turn(n: i64, a: i64[p, q], b: f32[q, p], c: i64[p]) -> (i64[p, q], f32[q, p], i64[p], i64) {
  if n == 0 { return (a, b, c, n) }
  var x = a
  x[0, 0] += n
  let (y, z, w, m) = turn(n - 1, x, b, c)
  (y, z, w, m + 1)
}
fn main() {
  let a = for[i < 2, j < 3] i * 10 + j
  let b = for[i < 3, j < 2] f32(i) - f32(j)
  let (y, z, w, m) = turn(4, a, b, for[i < 2] i)
  print("{y[0, 0]} {y[1, 2]} {z[2, 0]} {w[1]} {m}")
}
"""
    assert run(text) == ["10 12 2.0 1 4"]


def test_narrow_reals(run: Callable[[str], list[str]]) -> None:
    """Held as f32, 16 bits in memory, to kernels and to printing. 1 + 2^-12 rounds to 1 in f16; 1.5 ^ 3 is 3.375, which bf16 writes as 3.38."""
    text = """
fn f(n: i64, x: f16, y: bf16) -> (f16, bf16) {
  if n == 0 { return (x, y) }
  f(n - 1, x + 0.000244140625f16, y * 1.5bf16)
}
fn main() {
  let (x, y) = f(3, 1.0f16, 1.0bf16)
  print("{x} {y}")
  var a = for[i < 4] f16(i) / 3.0f16
  a[1] = x
  print("{a[1]} {a[2]} {sum(a)}")
}
"""
    assert run(text)[0] == "1.0 3.38"
    assert run(text)[1].startswith("1.0 0.6665 ")


def test_a_stop_tells_its_values(run: Callable[[str], list[str]]) -> None:
    text = """
fn f(n: i64, x: i64[m]) -> i64 { if n == 0 { x[-7 + m] } else { f(n - 1, x) } }
fn main() { print("{f(2, for[i < 3] i)}") }
"""
    with pytest.raises(Stop) as stop:
        run(text)
    assert stop.value.kind == "index" and "-4" in str(stop.value) and "3" in str(stop.value)


def test_recursion_that_is_too_deep(run: Callable[[str], list[str]]) -> None:
    with pytest.raises(Stop) as stop:
        run('fn f(n: i64) -> i64 { 1 + f(n + 1) * 2 }\nfn main() { print("{f(0)}") }')
    assert stop.value.kind == "recursion"


def test_progress(run: Callable[[str], list[str]]) -> None:
    text = """
fn main() {
  var s = 0
  for i in progress(0..5, "work") { s += i }
  print("{s}")
}
"""
    assert run(text) == ["begin work 5", "end 7", "10"]


def test_an_elementary_function_of_many_uses_is_one_function(run: Callable[[str], list[str]]) -> None:
    """More uses than are expanded in place: each calls the same function, with the same bits."""
    calls = ", ".join(f"exp(x / {k}.0)" for k in range(1, 8))
    lines = run(f"fn main() {{ for i in 0..3 {{ let x = f64(i) - 0.7; print({calls}) }} }}")
    exp = SCALAR_OPS["exp"].evaluate
    expected = [" ".join(repr(float(exp(Elem.F64, np.float64(i - 0.7) / np.float64(k)))) for k in range(1, 8)) for i in range(3)]
    assert lines == expected

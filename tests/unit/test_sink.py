"""Sinking before derivatives: what one side of a branch alone reads moves there, and gradients are those of the path taken."""

from __future__ import annotations

import math

import pytest
from whole_program import both

from tlc.opt.sink import sink
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify


def sunk(body: str) -> str:
    """The blocks of a function `f(x: f64, c: bool)` after the pass, without its head."""
    module = parse_module(f"func @f(%x: f64, %c: bool) -> f64 {{\nentry:\n{body}}}\n")
    verify(module)
    sink(module)
    verify(module)
    return print_module(module).split("entry:\n")[1].rsplit("}", 1)[0]


def test_to_the_side_that_reads_it_with_what_is_made_of_it() -> None:
    assert sunk("""\
  %two = const {value = 2.0} : f64
  %u = log %x : f64
  %v = mul %u, %two : f64
  %w = add %x, %two : f64
  branch %c, then, else
then:
  %s = add %v, %w : f64
  jump join(%s)
else:
  jump join(%x)
join(%r: f64):
  return %r
""") == """\
  %two = const {value = 2.0} : f64
  %w = add %x, %two : f64
  branch %c, then, else
then:
  %u = log %x : f64
  %v = mul %u, %two : f64
  %s = add %v, %w : f64
  jump join(%s)
else:
  jump join(%x)
join(%r: f64):
  return %r
"""


def test_an_edge_gets_a_block() -> None:
    assert sunk("""\
  %u = div %x, %x : f64
  branch %c, join(%u), join(%x)
join(%r: f64):
  return %r
""") == """\
  branch %c, side, join(%x)
join(%r: f64):
  return %r
side:
  %u = div %x, %x : f64
  jump join(%u)
"""


@pytest.mark.parametrize(
    "body",
    [
        "  %u = log %x : f64\n  branch %c, join(%u), join(%u)\njoin(%r: f64):\n  return %r\n",  # both read it
        "  %u = mul %x, %x : f64\n  branch %c, join(%u), join(%x)\njoin(%r: f64):\n  return %r\n",  # its derivative is finite
        "  %u = log %x : f64\n  branch %c, join(%u), join(%x)\njoin(%r: f64):\n  %s = add %r, %u : f64\n  return %s\n",  # read behind
        "  %u = log %x : f64\n  %d = lt %u, %x : bool\n  branch %d, join(%u), join(%x)\njoin(%r: f64):\n  return %r\n",  # it decides
    ],
)
def test_what_stays(body: str) -> None:
    assert sunk(body) == body


PROGRAM = """
fn quotient(x: f64, c: bool) -> f64 {
  var v = x * 0.5
  let kept = v
  v /= f64(min[k < 4] k)
  let w = if c { v } else { kept }
  w + kept
}
fn logarithm(x: f64, c: bool) -> f64 {
  let u = log(x)
  if c { u } else { x }
}
fn rows(x: f64[n]) -> f64 = sum(for[i] {
  let u = 2.0 * sqrt(x[i])
  if x[i] > 0.5 { u } else { x[i] }
})
fn main() {
  print(grad(quotient)(3.0f64, false), grad(logarithm)(0.0f64, false), grad(logarithm)(4.0f64, true), grad(rows)([0.0f64, 1.0, 4.0]))
}
"""


def test_a_side_that_is_not_taken_has_no_part_in_the_gradient() -> None:
    """An infinity that the path taken does not read makes no NaN: x / 2 + x / 2, x, log x, and [x, 2 sqrt x, 2 sqrt x]."""
    for level in (0, 2):
        assert both(PROGRAM, level=level) == ["1.0 1.0 0.25 [1.  1.  0.5]"]


SEVERAL = """
fn f(x: f64, c: bool, d: bool) -> f64 {
  let u = log(x)
  var y = x
  if c { y = u * x }
  if d { y = y + u * u }
  y
}
fn main() {
  print(grad(f)(0.0f64, false, false), grad(f)(2.0f64, true, false), grad(f)(2.0f64, false, true))
}
"""


def test_a_value_that_some_paths_read() -> None:
    """It cannot move to one side; on a path that does not read it, its adjoint is zero: x has the slope 1, x log x that of log x + 1, and
    x + log(x)^2 that of 1 + 2 log(x) / x.
    """
    log2 = math.log(2.0)
    for level in (0, 2):
        assert both(SEVERAL, level=level) == [f"1.0 {log2 + 1.0} {1.0 + log2}"]

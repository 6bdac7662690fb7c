"""Derivatives of derivatives, through straight-line code, branches, comprehensions, loops and recursion; how many there may be."""

from __future__ import annotations

import pytest

from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.source import Source
from tlc.ssa.tape import TAPES

CUBE = """
fn line(c: f64) -> f64 = c * c * c
fn branch(c: f64) -> f64 = if c > 1.0 { c * c * c } else { c }
fn row(c: f64) -> f64 = sum[i < 3] f64(i) * c * c * c / 3.0
fn loop(c: f64) -> f64 {
  var z = 1.0
  for i in 0..3 { z = z * c }
  z
}
fn power(c: f64, n: i64) -> f64 = if n == 0 { 1.0 } else { c * power(c, n - 1) }
fn recursion(c: f64) -> f64 = power(c, 3)
"""


class Lines(list[str]):
    """Services that keep what is printed; nothing else is asked of them."""

    def print(self, text: str) -> None:
        self.append(text)


def run(main: str) -> list[str]:
    program = pipeline.front(Source("second.tl", CUBE + f"fn main() {{ print({main}) }}\n"))
    lines = Lines()
    pipeline.interpret(program, Options(flags={}), lines)  # type: ignore[arg-type]
    return list(lines)


@pytest.mark.parametrize("f", ["line", "branch", "row", "loop", "recursion"])
def test_of_a_cube(f: str) -> None:
    # c^3 at 2: 12; differentiated twice, 6 c = 12; three times, 6
    assert run(f"grad({f})(2.0), grad(grad({f}))(2.0), jvp({f})(2.0, 1.0)") == ["12.0 12.0 (8.0, 12.0)"]
    assert run(f"grad(grad(grad({f})))(2.0), jvp(grad({f}))(2.0, 1.0), hessian({f})(2.0)") == ["6.0 (12.0, 12.0) 12.0"]


def nested(times: int) -> str:
    return "grad(" * times + "loop" + ")" * times + "(2.0)"


def test_there_are_as_many_levels_as_tapes() -> None:
    assert run(nested(4)) == ["0.0"]
    with pytest.raises(CompileError) as caught:
        run(nested(TAPES + 1))
    assert [d.code for d in caught.value.diagnostics] == ["E0960"]

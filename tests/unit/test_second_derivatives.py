"""Derivatives of derivatives: right through straight-line code, branches and comprehensions; through loops refused, never wrong."""

from __future__ import annotations

import pytest

from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.source import Source

CUBE = """
fn line(c: f64) -> f64 = c * c * c
fn branch(c: f64) -> f64 = if c > 1.0 { c * c * c } else { c }
fn row(c: f64) -> f64 = sum[i < 3] f64(i) * c * c * c / 3.0
fn loop(c: f64) -> f64 {
  var z = 1.0
  for i in 0..3 { z = z * c }
  z
}
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


@pytest.mark.parametrize("f", ["line", "branch", "row"])
def test_of_a_cube(f: str) -> None:
    # c^3 at 2: 12 and, differentiated twice, 6 c = 12
    assert run(f"grad({f})(2.0), grad(grad({f}))(2.0), jvp({f})(2.0, 1.0)") == ["12.0 12.0 (8.0, 12.0)"]


@pytest.mark.parametrize("derivative", ["grad(grad(loop))(2.0)", "jvp(loop)(2.0, 1.0)", "jvp(grad(loop))(2.0, 1.0)"])
def test_of_a_loop_is_refused(derivative: str) -> None:
    assert run("grad(loop)(2.0)") == ["12.0"]
    with pytest.raises(CompileError) as caught:
        run(derivative)
    assert [d.code for d in caught.value.diagnostics] == ["E0960"]

"""`--strict-fp`: every sum is the plain loop from left to right, whatever the schedule, to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from whole_program import both

from tlc.driver import cli

N = 83

# Each sum twice: as a reduction, and as the loop that the flag makes it mean. What is printed is the difference's bits.
TEXT = """
fn left(x: f32[n]) -> f32 {
  var s = 0.0
  for v in x { s += v }
  s
}
fn dot_left(x: f32[n], y: f32[n]) -> f32 {
  var s = 0.0
  for i in 0..n { s += x[i] * y[i] }
  s
}
fn loss(w: f32[n], x: f32[m, n]) -> f32 = sum(tanh(x @ w))
fn main(n: i64 = 83, m: i64 = 19) {
  let x = normal(key(1), n)
  let y = normal(key(2), n)
  let a = normal(key(3), m, n)
  let b = normal(key(4), n, m)
  print(sum(x) == left(x), sum[i] x[i] * y[i] == dot_left(x, y), x @ y == dot_left(x, y), mean(x) == left(x) / f32(n))
  let rows = for[i < m] left(a[i])
  let columns = for[j < m] left(b[:, j])
  print(all(sum(a, axis = 1) == rows), all(sum(b, axis = 0) == columns))
  let product = for[i < m, j < m] dot_left(a[i], b[:, j])
  print(all(a @ b == product), prod(1.0 + 0.01 * x) == prod[i] (1.0 + 0.01 * x[i]), sum[i, j] a[i, j] == left(reshape(a, m * n)))
  print(sum[i < n] if i % 3 == 0 { x[i] } else { left(x[..i]) }, grad(loss)(y, a)[..3], softmax(x)[..2])
}
"""


@pytest.mark.parametrize("level", [0, 2])
def test_sums_are_loops(level: int) -> None:
    lines = both(TEXT, level=level, strict=True)
    assert lines[:3] == ["true true true true", "true true", "true true true"]


def test_without_the_flag_they_are_not() -> None:
    """So the test above tests something."""
    assert any("false" in line for line in both(TEXT)[:3])


def test_a_product_is_rounded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """(1 + 2**-12)**2 - 1 in f32: fused it has the last bit of the square, rounded it has not."""
    path = tmp_path / "x.tl"
    body = "let x = [[-1.0, e]]\n  let y = [[1.0, e]]\n  let product = for[i, j] sum[k] x[i, k] * y[j, k]\n  print(product[0, 0])"
    path.write_text(f"fn main(e: f32 = 1.000244140625) {{\n  {body}\n}}\n")
    e = np.float32(1 + 2**-12)
    assert cli.main([str(path)]) == 0
    assert np.float32(capfd.readouterr().out) == np.float32(float(e) * float(e) - 1)
    for words in (["--strict-fp"], ["--strict-fp", "--interp"]):
        assert cli.main([*words, str(path)]) == 0
        assert np.float32(capfd.readouterr().out) == e * e - np.float32(1)

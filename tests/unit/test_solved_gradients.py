"""Gradients of loads at `c i + rest`: right by finite differences in f64, and collected without a scatter (`tensor/solve.py`)."""

from __future__ import annotations

import pytest
from test_gradient_programs import HARNESS
from whole_program import natively, options

from tlc.driver import pipeline
from tlc.frontend.source import Source
from tlc.ssa.ir import walk

PICK = "fn pick(x: f64[n], r: i64) -> f64 = if r >= 0 and r < n { x[r] } else { 0.0 }\n"
PIXEL = "fn pixel(x: f64[h, w], r: i64, c: i64) -> f64 = if r >= 0 and r < h and c >= 0 and c < w { x[r, c] } else { 0.0 }\n"

SOLVED = {
    "convolution": "fn f(x: f64[24]) -> f64 { let y = for[i < 22] sum[p < 3] x[i + p] * (f64(p) + 0.5)\n sum(y * y) }",
    "rims": PICK + "fn f(x: f64[24]) -> f64 { let y = for[i < 24] sum[p < 3] pick(x, i + p - 1) * (f64(p) + 0.5)\n sum(y * y) }",
    "stride": PICK + "fn f(x: f64[24]) -> f64 { let y = for[i < 13] sum[p < 3] pick(x, 2 * i + p - 1) * (f64(p) + 0.5)\n sum(y * y) }",
    "dilation": PICK + "fn f(x: f64[24]) -> f64 { let y = for[i < 9] sum[p < 4] pick(x, 3 * i + 2 * p - 4) * f64(p + 1)\n sum(y * y) }",
    "gaps": "fn f(x: f64[24]) -> f64 { let y = for[i < 7] sum[p < 2] x[3 * i + p + 1] * f64(p + 1)\n sum(y * y * y) }",
    "pooling by mean": "fn f(x: f64[24]) -> f64 { let y = for[i < 11] mean[p < 2] x[2 * i + p]\n sum(y * y * y) }",
    "pooling by max": "fn f(x: f64[24]) -> f64 { let y = for[i < 11] max[p < 2] x[2 * i + p]\n sum(y * y * y) }",
    "windows that overlap": "fn f(x: f64[24]) -> f64 { let y = for[i < 11] max[p < 3] x[2 * i + p]\n sum(y * y * y) }",
    "cut in two": "fn f(x: f64[24]) -> f64 { let v = reshape(x, 4, 6)\n let y = for[c < 24] v[c // 6, c % 6] * sin(f64(c))\n sum(y * y * y) }",
    "cut with a rest": "fn f(x: f64[24]) -> f64 { let v = reshape(x, 4, 6)\n let y = for[c < 17] v[c // 5, c % 5] * sin(f64(c))\n sum(y * y * y) }",
    "heads": "fn f(x: f64[24]) -> f64 { let v = reshape(x, 2, 3, 4)\n let y = for[i < 3, c < 8] v[c // 4, i, c % 4] * sin(f64(c + i))\n sum(y * y * y) }",
    "two layers": PIXEL + """
fn f(v: f64[24]) -> f64 {
  let x = reshape(v, 4, 6)
  let y = for[i < 4, j < 6] sum[p < 3, q < 3] pixel(x, i + p - 1, j + q - 1) * sin(f64(p) + 0.5 * f64(q))
  let z = for[i < 2, j < 3] max[p < 2, q < 2] relu(y[2 * i + p, 2 * j + q])
  sum(z * z)
}
""",
    "kernels": PIXEL + """
fn f(k: f64[24]) -> f64 {
  let w = reshape(k, 2, 3, 4)
  let x = for[i < 5, j < 6] cos(f64(i) + 0.7 * f64(j))
  let y = for[o, i < 5, j < 6] sum[p, q] pixel(x, i + p - 1, j + q - 2) * w[o, p, q]
  sum(y * y)
}
""",
    "no product": "fn f(x: f64[24]) -> f64 { let w = for[i < 10] f64(i) + 1.0\n let y = for[i < 10] sum[p < 3] exp(x[2 * i + p]) / w[i]\n sum(y * y) }",
    "a shift": "fn f(x: f64[24]) -> f64 { let y = for[i < 30] (if i >= 2 and i < 26 { x[i - 2] } else { 1.5 })\n sum(y * y * y) }",
    "both sides": "fn f(x: f64[24]) -> f64 { let y = for[i < 24] if i > 4 { x[i - 5] - x[i] } else { x[i + 3] }\n sum(y * y * y) }",
    "a known shift of each row": """
fn f(x: f64[24]) -> f64 {
  let (m, t) = (reshape(x, 4, 6), [0, 2, 1, 0])
  let y = for[i < 4, j < 4] m[i, j + t[i]]
  sum(y * y * y)
}
""",
}

SCATTERED = {
    "a diagonal": "fn f(x: f64[24]) -> f64 { let m = reshape(x, 4, 6)\n let y = for[i < 4] m[i, i + 1] * m[i, i]\n sum(y * y) }",
    "a gather": "fn f(x: f64[24]) -> f64 { let t = [3, 5, 1, 1]\n let y = for[i < 4] if i > 0 { x[t[i] + i] } else { 0.0 }\n sum(y * y * y) }",
    "a guarded quotient": "fn f(x: f64[24]) -> f64 { let y = for[i < 24] if i >= 2 { x[i - 2] / (x[i] + 3.0) } else { x[i] * x[i] }\n sum(y * y) }",
}


def gradient(text: str) -> tuple[float, set[str]]:
    """The greatest difference to finite differences, and the instructions of the gradient after flattening."""
    program = pipeline.front(Source("test.tl", text + HARNESS.replace("i < 6", "i < 24")))
    module = next(value for name, _, value in pipeline.middle(program, options(program, None)) if name == "opt")
    return float(natively(program)[-1]), {i.op for f in module.functions.values() for i in walk(f.body)}


@pytest.mark.parametrize("name", SOLVED)
def test_solved(name: str) -> None:
    worst, ops = gradient(SOLVED[name])
    assert worst < 1e-7
    assert "scatter" not in ops


@pytest.mark.parametrize("name", SCATTERED)
def test_scattered(name: str) -> None:
    assert gradient(SCATTERED[name])[0] < 1e-7

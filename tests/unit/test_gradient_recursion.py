"""Gradients of recursive functions, gradients of gradients of loops, and sums over ranges of their own, beside finite differences in f64."""

from __future__ import annotations

import pytest
from ssa_services import Recorder
from test_gradient_programs import HARNESS, compiled

from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import walk
from tlc.ssa.tape import tape_of

RECURSIVE = {
    "sum_of_halves": """
fn total(x: f64[n]) -> f64 = if n == 0 { 0.0 } else if n == 1 { sin(x[0]) * x[0] } else { total(x[0..n // 2]) * 1.5 + total(x[n // 2..n]) }
fn f(x: f64[6]) -> f64 = total(x)
""",
    "mutual": """
fn even(x: f64, n: i64) -> f64 = if n == 0 { x } else { sin(odd(x * x, n - 1)) + x }
fn odd(x: f64, n: i64) -> f64 = if n == 0 { x * x } else { cos(even(x, n - 1)) * x }
fn f(x: f64[6]) -> f64 = sum[i] (even(x[i], i) + odd(x[i], i))
""",
    "several_results": """
fn g(a: f64, b: f64, n: i64) -> (f64, f64) {
  if n == 0 { return (a * b, a) }
  let (p, q) = g(sin(b), a + b, n - 1)
  (p * q + a, q - b * p)
}
fn f(x: f64[6]) -> f64 {
  let (p, q) = g(x[0], x[1] * x[2], 5)
  let (r, _) = g(x[3], x[4], 2)
  p * q + r * x[5]
}
""",
    "in_a_loop": """
fn power(x: f64, n: i64) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }
fn f(x: f64[6]) -> f64 {
  var s = 0.5
  for i in 0..6 { s = s * power(x[i], i) + power(s, 2) }
  s
}
""",
    "in_a_comprehension": """
fn power(x: f64, n: i64) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }
fn f(x: f64[6]) -> f64 {
  let y = for[i < 6, j < 3] power(x[i], i + j)
  (sum[i, j < 3] y[i, j] * x[j]) + sum[i] power(x[i] * x[0], 3)
}
""",
    "tensors": """
fn smooth(x: f64[n], k: i64) -> f64[n] {
  if k == 0 { return x }
  let y = smooth(for[i < n] (x[i] + x[(i + 1) % n]) * 0.5 * x[i], k - 1)
  y * x + sin(y)
}
fn f(x: f64[6]) -> f64 = sum(smooth(x, 3))
""",
    "struct": """
struct S { a: f64, b: f64[2] }
fn step(s: S, n: i64) -> S {
  if n == 0 { return s }
  let t = step(S(a = s.a * s.b[0], b = s.b * 1.5), n - 1)
  S(a = t.a + s.a, b = for[i < 2] t.b[i] * s.a)
}
fn f(x: f64[6]) -> f64 {
  let s = step(S(a = x[0], b = x[1..3]), 3)
  s.a * x[5] + sum(s.b)
}
""",
    "update": """
fn go(x: f64[n], i: i64) -> f64[n] {
  if i == n { return x }
  var y = x
  y[i] = y[i] * y[i - 1] + sin(y[i])
  go(y, i + 1)
}
fn f(x: f64[6]) -> f64 { let y = go(x, 1)
 sum(y * y) }
""",
    "loop_in_recursion": """
fn go(x: f64, n: i64) -> f64 {
  var s = x
  for i in 0..n { s = sin(s) + x * s
    if s > 1.3 { break } }
  if n == 0 { s } else { go(s, n - 1) * x + go(x * 0.5, n - 1) }
}
fn f(x: f64[6]) -> f64 = sum[i] go(x[i], 3)
""",
    "tree": """
fn insert(x: f64[n], lo: i64, hi: i64) -> f64 {
  if hi - lo <= 1 { return x[lo] * x[lo] }
  let m = (lo + hi) // 2
  let a = insert(x, lo, m)
  let b = insert(x, m, hi)
  max(a, b) * 0.5 + a * b
}
fn f(x: f64[6]) -> f64 = insert(x, 0, 6)
""",
}

SECOND = {
    "inner_gradient": """
fn g(x: f64, n: i64) -> f64 {
  var s = x
  for i in 0..n { s = s * x + sin(s) }
  s
}
fn go(x: f64, n: i64) -> f64 = if n == 0 { x } else { grad(g)(x, n) * 0.3 + go(sin(x), n - 1) * x }
fn f(x: f64[6]) -> f64 = sum[i] go(x[i], 2)
""",
    "gradient_of_recursion_inside": """
fn go(x: f64, n: i64) -> f64 = if n == 0 { x } else { sin(go(x * x, n - 1)) * x }
fn f(x: f64[6]) -> f64 { let g = grad(go)(x[0] * x[1], 3)
 g * x[2] + sum[i] grad(go)(x[i], 2) }
""",
    "gradient_of_loop_inside": """
fn l(x: f64[n]) -> f64 {
  var s = 1.0
  var y = x
  for i in 0..n { s = s * y[i] + x[i] * x[i]
    y[(i + 1) % n] = s * 0.5 }
  s * s
}
fn f(x: f64[6]) -> f64 = sum(grad(l)(x) * x)
""",
    "second_of_tensors": """
fn smooth(x: f64[n], k: i64) -> f64[n] {
  if k == 0 { return x }
  let y = smooth(for[i < n] (x[i] + x[(i + 1) % n]) * 0.5 * x[i], k - 1)
  y * x + sin(y)
}
fn e(x: f64[n]) -> f64 = sum(smooth(x, 2))
fn f(x: f64[6]) -> f64 { let g = grad(e)(x)
 sum(g * g) }
""",
    "hessian_of_while": """
fn e(x: f64[n]) -> f64 {
  var s = x[0]
  var k = 0
  while s < 3.0 and k < 10 { s = s + x[k % n] * x[(k + 1) % n] + 0.1
    k += 1 }
  s * s
}
fn f(x: f64[6]) -> f64 { let h = hessian(e)(x)
 sum[i, j] h[i, j] * h[i, j] * x[i] }
""",
    "jvp_of_loop": """
fn e(x: f64[n]) -> f64[n] {
  var y = x
  for i in 1..n { y[i] = y[i] * y[i - 1] + sin(y[i]) }
  y
}
fn f(x: f64[6]) -> f64 { let (y, dy) = jvp(e)(x, x * x)
 sum(y * dy) }
""",
    "recurrent_second": """
fn e(x: f64[6]) -> f64 {
  let w = reshape(x[0..4], 2, 2)
  var h = x[4..6]
  for t in 0..4 { h = tanh(w @ h + x[4..6]) }
  sum(h * h)
}
fn f(x: f64[6]) -> f64 = norm(grad(e)(x))
""",
}

RAGGED = {
    "ragged_computed": "fn f(x: f64[6]) -> f64 = sum[i] (sum[k in i..6] x[k] * x[(k * k) % 6] * x[i])",
    "ragged_several": "fn f(x: f64[6]) -> f64 = sum[i] x[i] * (sum[k < i, l < i] x[k] * sin(x[l] * x[i]))",
    "ragged_matrix": """
fn f(x: f64[6]) -> f64 {
  let a = for[i < 2, j < 3] sum[k < i + j] x[k] * x[i + j - k] * x[j]
  sum(a * a)
}
""",
    "ragged_prod": "fn f(x: f64[6]) -> f64 = sum[i] (prod[k < i] (x[k] * x[5 - k] + 0.2) * x[i])",
    "ragged_by_a_load": """
fn f(x: f64[6]) -> f64 {
  let n = for[i < 6] (i * 5 + 2) % 6
  sum[i] (sum[k < n[i]] x[n[k]] * x[i])
}
""",
}

PROGRAMS = RECURSIVE | SECOND | RAGGED


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradient(name: str) -> None:
    services = Recorder()
    interpreter = Interpreter(compiled(PROGRAMS[name] + HARNESS), services)
    interpreter.call("main", [])
    assert float(services.lines[0]) < 1e-6
    assert not any(interpreter.tapes.values())


def test_each_level_has_a_tape() -> None:
    module = compiled(
        """
fn f(x: f64) -> f64 {
  var y = x
  while y < 10.0 { y = y * x }
  y
}
fn main() { print(grad(grad(grad(f)))(2.0)) }
"""
    )
    assert {tape_of(i) for f in module.functions.values() for i in walk(f.body) if i.op == "push"} == {0, 1, 2}

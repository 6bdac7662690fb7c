"""Forward mode: tangents worked out by hand, natively and interpreted; by which mode Jacobians are made; no tape.

That it agrees with reverse mode is checked by `test_gradient_programs.py`, `test_stdlib_gradients.py` and the fuzzer of gradients.
"""

from __future__ import annotations

import pytest
from whole_program import printed, stage

from tlc.frontend.diagnostics import CompileError
from tlc.ssa.ir import walk

FUNCTIONS = """
struct M(N) { w: f64[N], k: i64 }
fn power(x: f64, n: i64) -> f64 = if n == 0 { 1.0 } else { x * power(x, n - 1) }
fn loop(x: f64, n: i64) -> f64 {
  var y = 1.0
  for i in 0..n { y *= x }
  y
}
fn chain(x: f64[n]) -> f64[n] {
  var y = x
  for i in 1..n { y[i] += y[i - 1] * x[i] }
  y
}
fn bumped(x: f64[n], at: i64[k]) -> f64[n] {
  var y = x
  y[at] += 2.0 * x[at]
  y
}
fn scaled(m: M(N), s: f64) -> M(N) = M(w = m.w * s * f64(m.k), k = m.k + 1)
fn split(x: f64[n]) -> (f64, i64, f64) = (max(x), argmax(x), min(x))
fn product(x: f64[n]) -> f64 = prod(x)
fn wide(x: f64) -> f64[3] = [x, x * x, x * x * x]
fn tall(x: f64[2]) -> f64[3] = for[i < 3] x[0] * f64(i) * x[1]
fn flat(x: f64[3]) -> f64[2] = for[i < 2] x[i] * x[i + 1]
fn energy(x: f64[n], z: f64[m]) -> f64 = sum(x * x * x) * sum(z * z)
"""

# fmt: off
PRINTS: dict[str, tuple[str, list[str]]] = {
    "recursion":          ("jvp(power)((2.0, 3), (1.0, 0))",                                  ["(8.0, 12.0)"]),
    "a loop":             ("jvp(loop)((2.0, 3), (0.5, 0))",                                   ["(8.0, 6.0)"]),
    "of one of several":  ("jvp(loop)((2.0, 3), 0.5, wrt = x), jvp(loop)((2.0, 3), (0.5,), wrt = (x,))", ["(8.0, 6.0) (8.0, 6.0)"]),
    # y1 = x1 + x0 x1, y2 = x2 + y1 x2
    "parts in place":     ("jvp(chain)([1.0, 2.0, 3.0], [1.0, 0.0, 1.0])",                    ["([ 1.  4. 15.], [ 1.  2. 11.])"]),
    "gathers, scatters":  ("jvp(bumped)(([1.0, 2.0], [1, 1]), ([1.0, 10.0], [0, 0]))[1]",     ["[ 1. 50.]"]),
    "a struct":           ("jvp(scaled)((M(w = [1.0, 2.0], k = 3), 2.0), (M(w = [1.0, 0.0], k = 0), 1.0))[1]", ["M(w = [9. 6.], k = 4)"]),
    "extremes":           ("jvp(split)([1.0, 5.0, -2.0], [1.0, 2.0, 3.0])[1]",                ["(2.0, 1, 3.0)"]),
    "products with zeros": ("for[i < 3] jvp(product)([f64(i), 2.0 * f64(i), 3.0], [1.0, 1.0, 1.0])[1]", ["[ 0. 11. 26.]"]),
    "one zero":           ("jvp(product)([0.0, 2.0, 3.0], [1.0, 1.0, 1.0])[1]",               ["6.0"]),
    "a matrix product":   ("jvp(fn(a: f64[n, n]) => a @ a)([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 0.0]])[1]", ["[[2. 2.]", " [3. 0.]]"]),
    "the side taken":     ("jvp(fn(x) => if x > 0.0 { x } else { exp(x) })(0.0f64, 2.0), jvp(fn(x) => sqrt(x))(4.0f64, 1.0)", ["(1.0, 2.0) (2.0, 0.25)"]),
    "of a gradient":      ("jvp(grad(fn(x) => loop(x, 3)))(2.0, 1.0), jvp(grad(fn(x) => power(x, 3)))(2.0, 1.0)", ["(12.0, 12.0) (12.0, 12.0)"]),
    "in a gradient":      ("grad(fn(x) => jvp(loop)((x, 3), (1.0, 0))[1])(2.0)",              ["12.0"]),
    "for each":           ("for[i < 3] jvp(fn(x) => x * x * x)(f64(i), 1.0)[1]",              ["[ 0.  3. 12.]"]),
    "stop_grad":          ("jvp(fn(x) => stop_grad(x) * x)(3.0f64, 1.0)",                     ["(9.0, 3.0)"]),
    "Jacobians":          ("jacobian(wide)(2.0), jacobian(tall)([3.0, 5.0]), jacobian(flat)([1.0, 2.0, 3.0])",
                           ["[ 1.  4. 12.] [[ 0.  0.]", " [ 5.  3.]", " [10.  6.]] [[2. 1. 0.]", " [0. 3. 2.]]"]),
    "a Hessian":          ("hessian(energy)([1.0, 2.0], [3.0], wrt = (x, z))",
                           ["(([[ 54.   0.]", " [  0. 108.]], [[18.]", " [72.]]), ([[18. 72.]], [[18.]]))"]),
}
# fmt: on


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return printed(FUNCTIONS, {name: what for name, (what, _) in PRINTS.items()})


@pytest.mark.parametrize("case", PRINTS, ids=str)
def test_prints(case: str, found: dict[str, list[str]]) -> None:
    assert found[case] == PRINTS[case][1]


@pytest.mark.parametrize(
    "what", ["jvp(loop)((f64(clock()), 3), (1.0, 0))", "jvp(power)((f64(clock()), 3), (1.0, 0))", "jacobian(tall)([f64(clock()), 1.0])"]
)
def test_there_is_no_tape(what: str) -> None:
    module = stage("opt", FUNCTIONS + f"fn main() {{ print({what}) }}\n")
    assert not any(i.op in ("push", "pop") for f in module.functions.values() for i in walk(f.body))


def test_what_cannot_be_looked_into_is_an_error() -> None:
    text = "extern fn cbrt(x: f64) -> f64\nfn main() { print(jvp(fn(x) => cbrt(x) * x)(8.0, 1.0)) }\n"
    with pytest.raises(CompileError) as caught:
        stage("opt", text)
    assert caught.value.diagnostics[0].code == "E0960"
    assert caught.value.diagnostics[0].message == "the derivative of `cbrt` is not known"

"""`@vjp(g)`: a function's own derivative, wherever the function is called. The rules here are wrong on purpose, so that it shows who made a
gradient; the numbers are worked out by hand.
"""

from __future__ import annotations

import pytest
from whole_program import printed, stage

from tlc.ssa.ir import walk

RULES = """
struct P(N) { w: f32[N], k: i64 }
fn tenfold[T: float](x: T, y: T, dy: T) -> T = 10.0 * dy * x
@vjp(tenfold)
fn square[T: float](x: T) -> T = x * x

fn row_rule(x: f32[n], s: f32, y: f32[n], dy: f32[n]) -> (f32[n], f32) = (2.0 * dy, sum(dy))
@vjp(row_rule)
fn scaled(x: f32[n], s: f32) -> f32[n] = x * s

fn struct_rule(p: P(N), s: f32, k: i64, y: (f32, i64), dy: (f32, i64)) -> (P(N), f32) = (P(w = dy[0] * p.w * 100.0, k = 0), dy[0] * f32(k))
@vjp(struct_rule)
fn of_struct(p: P(N), s: f32, k: i64) -> (f32, i64) = (sum(p.w) * s, k)

fn once(n: i64, x: f32, y: f32, dy: f32) -> f32 = dy
@vjp(once)
fn tower(n: i64, x: f32) -> f32 = if n == 0 { x } else { 2.0 * tower(n - 1, x) }

extern fn cbrt(x: f64) -> f64
fn cbrt_rule(x: f64, y: f64, dy: f64) -> f64 = dy / (3.0 * y * y)
@vjp(cbrt_rule)
fn root(x: f64) -> f64 = cbrt(x)

fn lifted(x: f32[b, n], s: f32) -> f32 = sum(scaled(x, s) * x)
fn in_rows(x: f32[b, c, n], s: f32[c]) -> f32 = sum(for[i, j] scaled(x[i, j], s[j] * 2.0)[0] * f32(i))
fn in_loop(x: f32) -> f32 {
  var s = 0.0
  for i in 0..4 { if x > 0.5 { s += square(x) * f32(i) } else { s -= square(x + 1.0) } }
  s
}
fn in_branch(x: f32[n]) -> f32 = sum(for[i] if x[i] > 0.0 { square(x[i]) } else { 3.0 * x[i] })
fn with_struct(p: P(N), s: f32) -> f32 {
  let (v, k) = of_struct(p, s, 7)
  v * f32(k)
}
fn through(x: f32) -> f32 = square(square(x))
fn cube(x: f64) -> f64 = square(x) * x
"""

# fmt: off
PRINTS: dict[str, tuple[str, list[str]]] = {
    "called alone, in both element types":    ("grad(square)(2.0), grad(square)(2.0f64), square(3.0)",           ["20.0 20.0 9.0"]),
    "inside another function":                ("grad(through)(2.0)",                                             ["800.0"]),  # 10 * 4 * (10 * 2)
    "lifted over a tensor":                   ("grad(fn(x) => sum(square(x)))([1.0, 2.0])",                      ["[10. 20.]"]),
    "lifted where it takes a row":            ("grad(lifted)([[1.0, 2.0], [3.0, 4.0]], 3.0, wrt = (x, s))",
                                               ["([[ 5. 10.]", " [15. 20.]], 10.0)"]),  # 3x + 2x; the sum of dy = x
    "lifted where another argument is not":   ("grad(in_rows)([[[1.0, 2.0]], [[1.0, 3.0]]], [1.0], wrt = s)",    ["[2.]"]),
    "in a loop, on both sides of a branch":   ("grad(in_loop)(1.0), grad(in_loop)(0.25)",                        ["60.0 -50.0"]),
    "on one side of a branch of elements":    ("grad(in_branch)([1.0, -2.0, 3.0])",                              ["[10.  3. 30.]"]),
    "of a struct and a tuple":                ("grad(with_struct)(P(w = [1.0, 2.0], k = 5), 2.0, wrt = (p, s))",
                                               ["(P(w = [ 700. 1400.], k = 5), 49.0)"]),
    "of a recursive function":                ("tower(3, 1.0), grad(tower)(3, 1.0, wrt = x)",                    ["8.0 1.0"]),
    "of a function of the C library":         ("grad(fn(x) => root(x) * x)(8.0)",                                ["2.6666666666666665"]),  # 2 + 8 / (3 * 4)
    # 10 x * x + x^2; then the rule itself: (10 * 2 x) + 10 x; then 20 + 10
    "in derivatives of derivatives":          ("grad(cube)(2.0), grad(grad(cube))(2.0), grad(grad(grad(cube)))(2.0)", ["44.0 60.0 30.0"]),
    "in the other transformations":           ("vjp(cube)(2.0, 1.0), jvp(cube)(2.0, 1.0), value_and_grad(square)(3.0)",
                                               ["(8.0, 44.0) (8.0, 44.0) (9.0, 30.0)"]),
    "per example":                            ("grad(square)([1.0, 2.0])",                                       ["[10. 20.]"]),
}
# fmt: on


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return printed(RULES, {name: what for name, (what, _) in PRINTS.items()})


@pytest.mark.parametrize("case", PRINTS, ids=str)
def test_prints(case: str, found: dict[str, list[str]]) -> None:
    assert found[case] == PRINTS[case][1]


def test_a_lifted_call_is_no_loop() -> None:
    """What is lifted becomes comprehensions in the gradient too: no block jumps back, and nothing is on a tape."""
    module = stage("opt", RULES + "fn main() { print(grad(lifted)([[1.0, 2.0], [3.0, 4.0]], 3.0)) }\n")
    main = module.functions["main"]
    assert len(main.blocks) == 1
    assert not any(i.op in ("push", "pop", "call", "call_vjp") for f in module.functions.values() for i in walk(f.body))


def test_what_is_not_differentiated_is_inlined() -> None:
    module = stage("opt", RULES + "fn main() { print(square(f32(clock())) + 1.0) }\n")
    assert set(module.functions) == {"main"}
    assert not any(i.op == "call" for i in walk(module.functions["main"].body))

"""Loops that all elements of a lifted call take alike run around the elements, and everything else runs as before."""

from __future__ import annotations

import pytest
from whole_program import both, stage

from tlc.ssa.ir import walk
from tlc.ssa.loops import loops

DEEP = """
fn deep(x: f32[c], w: f32[l, c, c]) -> f32[c] {
  var h = x
  for m in w { h = tanh(h @ m) }
  h
}
"""
START = DEEP + "fn main(n: i64 = 3, l: i64 = 2, c: i64 = 4) {\n let w = for[i < l, j < c, k < c] sin(f32(i + 2 * j + 3 * k))\n"

PROGRAMS = {
    "layers": START + "let x = for[b < n, j < c] cos(f32(b + j))\n print(deep(x, w)) }",
    "no rows": START + "let x = for[b < n - 3, j < c] cos(f32(b + j))\n print(deep(x, w)) }",
    "two axes": START + "let x = for[a < 2, b < n, j < c] cos(f32(a + b + j))\n print(deep(x, w)) }",
    # 1 / 2 / 3 are added up in a scalar that is the same for all rows
    "uniform scalars": START + "print(for[b < n] { var s = 0.0\n var h = w[0, 0]\n for i in 1..4 { s += 1.0 / f32(i)\n h = h * s + f32(b) }\n h }) }",
    # the number of iterations is that of the row
    "rows of their own": START + "print(for[b < n] { var h = w[0, 0]\n for i in 0..b { h = h @ w[0] }\n h }) }",
    # each row changes its own array in place
    "updates": START + "print(for[b < n] { var h = w[0, 0]\n for i in 1..c { h[i] = h[i - 1] + f32(b) }\n h }) }",
    # many rows do that together: their arrays are one, whose row is changed
    "many updates": START + "print(for[b < n + 20] { var h = w[0, 0]\n for i in 1..c { h[i] = h[i - 1] + f32(b) }\n h }) }",
    # rows of matrices, elements of them at two indices, and a matrix that is begun anew in each round
    "updates of rows": START
    + """print(for[b < n + 20] {
      var h = w[1]
      var s = w[0]
      for i in 1..c {
        h[i] = h[i - 1] * 0.5 + f32(b)
        var t = w[0]
        for j in 0..c { if j < i { s[i, j] = s[j, i] + h[i, j] } else { t[j, i] = f32(b) } }
        h[0] = t[i]
      }
      for[i, j] h[i, j] + s[i, j]
    }) }""",
    # at an index of each row's own, in a loop and before one
    "updates of their own": START
    + """print(for[b < n + 20] {
      var h = w[0]
      h[b % c] = w[1, 0]
      for i in 1..c { h[i] = h[i - 1] + f32(b) }
      var s = w[0, 0]
      for i in 0..3 { s[(b + i) % c] = h[i, b % c] }
      sum(h) + sum(s)
    }) }""",
    # the gradient of updates in place, by what all rows share and by their own
    "gradients of updates": """
fn f(x: f32[c], v: f32[c]) -> f32 {
  var h: f32[c] = zeros(c)
  for i in 0..3 { for j in 0..c { h[j] = h[j] * 0.5 + tanh(v[j] * x[(i + j) % c] + h[0]) } }
  sum(h * h)
}
"""
    + START
    + """let x = for[b < n + 20, j < c] cos(f32(b + j))
    print(grad(f)(x, w[0, 0], wrt = (x, v))) }""",
    # a branch that all rows take alike, and one that they do not
    "branches": START
    + """print(for[b < n] {
      var h = w[0, 0]
      for i in 0..4 {
        if i % 2 == 0 { h = h @ w[0] } else { h = h + (if b > 1 { 1.0 } else { h[0] }) }
      }
      h
    }) }""",
    "early end": START + "print(for[b < n] { var h = w[0, 0]\n for i in 0..9 { if i > l { break }\n h = h @ w[0] + f32(b) }\n h }) }",
    # the gradient of a loop for each row: what rows push, all push together
    "gradients": START + "let x = for[b < n, j < c] cos(f32(b + j))\n print(grad(fn(x: f32[c]) => sum(deep(x, w) * x))(x)) }",
    # the gradient by all layers is made in place
    "gradients of weights": START
    + """let x = for[b < n, j < c] cos(f32(b + j))
    print(grad(fn(w: f32[l, c, c]) => sum(deep(x[0], w)))(for[b < n] w * f32(b))) }""",
    "gradients of scalars": """
fn it(x: f32, k: i64) -> f32 {
  var y = x
  for i in 0..k { y = sin(y) * y + x }
  y
}
fn again(x: f32) -> f32 {
  var y = x
  while y < 9.0 { y = y * y + x + 0.5 }
  y
}
fn deeper(x: f32, k: i64) -> f32 = if k == 0 { x } else { x * deeper(sin(x), k - 1) }
fn main(n: i64 = 5, k: i64 = 3) {
  let x = for[i < n] f32(i) * 0.3
  print(grad(it)(x, k), grad(fn(x: f32) => it(x, k) * deeper(x, 2))(x), grad(again)(x), grad(deeper)(x, k))
}
""",
    "a tensor of its own size": START + "print(for[b < n] { var h = w[0, 0]\n for i in 0..3 { h = for[j < c] h[c - 1 - j] + f32(b) }\n sum(h) }) }",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("level", [0, 2])
def test_interpreter(name: str, level: int) -> None:
    assert both(PROGRAMS[name], level=level)


def test_a_check_in_the_loop_stops_where_it_did() -> None:
    text = START + "print(for[b < n] { var h = w[0, 0]\n for i in 0..3 { h = h + w[0, 0, b + i] }\n h }) }"
    assert "out of range" in both(text, {"n": 4})[-1]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("layers", 1), ("two axes", 1), ("rows of their own", 2), ("updates", 2), ("many updates", 1), ("updates of rows", 2),
        ("updates of their own", 3), ("gradients", 2), ("gradients of updates", 4),
    ],
)  # fmt: skip
def test_loops(name: str, count: int) -> None:
    """One loop over the layers, where it moved out; around it, where it did not, the rows."""
    module = stage("opt", PROGRAMS[name])
    assert len(loops(module.functions["main"].body)) == count
    assert not any(loops(r) for i in walk(module.functions["main"].body) for r in i.regions)

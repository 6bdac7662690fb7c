"""What a loop keeps on the tape: the least that its reverse can do with."""

from __future__ import annotations

import pytest
from whole_program import natively, stage

from tlc.driver import pipeline
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.ssa.ir import I64, Type, walk
from tlc.tensor.kernel.ir import Buffer

LOOP = "fn f(w: f32[3, 8, 8], x: f32[5, 8]) -> f32 {{\n var h = x\n for m in w {{ {body} }}\n sum(h * h)\n}}\n"
MAIN = """
fn main() {
  let w = for[i < 3, j < 8, k < 8] sin(f32(i + 2 * j + 3 * k)) * 0.5
  let x = for[i < 5, j < 8] cos(f32(i + j))
  print(grad(f)(w, x)[1])
}
"""

ATTENTION = """
fn attention(q: f32[t, d], v: f32[t, d]) -> f32[t, d] =
  softmax(for[i, j] if j <= i { sum[c] q[i, c] * q[j, c] } else { -inf }) @ v

fn f(w: f32[3, 8, 8], x: f32[4, 2, 64, 8]) -> f32 {
  var h = x
  for m in w { h = attention(h @ m, h) }
  sum(h * h)
}

fn main() {
  let w = for[i < 3, j < 8, k < 8] sin(f32(i + 2 * j + 3 * k)) * 0.5
  let x = for[b < 4, g < 2, i < 64, j < 8] cos(f32(b + g + i + j))
  print(grad(f)(w, x)[1, 0])
}
"""


def taped(text: str) -> list[Type]:
    """The types of what a program puts on the tape."""
    module = stage("opt", text)
    return [i.operands[0].type for f in module.functions.values() for i in walk(f.body) if i.op == "push"]


def pushed(text: str) -> list[Type]:
    """The types of the tensors among it."""
    return sorted((t for t in taped(text) if t.rank), key=lambda t: t.rank)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("h = tanh(h @ m)", 2),  # h of before, and tanh(h @ m), by which its derivative is computed
        ("let a = h @ m\n h = h + a * a * 0.5", 2),  # h and a; not a * a, nor the part m of w
        ("let a = h @ m\n let mid = mean(a, axis = -1)\n h = for[i, j] (a[i, j] - mid[i]) * (a[i, j] - mid[i])", 3),  # h, a and the rows' means
        ("h = h * 0.5 + 1.0", 0),  # a derivative that needs nothing
    ],
)
def test_kept(body: str, kept: int) -> None:
    assert len(pushed(LOOP.format(body=body) + MAIN)) == kept


def test_scores_are_not_kept() -> None:
    """Nor is there a kernel that stores them."""
    types = pushed(ATTENTION)
    tensors = stage("kernels", ATTENTION)
    shapes = {str([getattr(n, "value", n) for n in b.shape]) for k in tensors.kernels.values() for b in k.outputs if isinstance(b, Buffer)}
    assert types and not any(shape.endswith("64, 64]") for shape in shapes)


def test_what_is_moved_is_kept_where_it_was() -> None:
    """Of a tensor and its parts, which take as much room: who reads the parts reads the tensor, and nobody copies them."""
    halves = "let a = h @ m\n let (p, q) = (a[:, ..4], a[:, 4..])\n h = concat(p * q * p, q * p, axis = 1)"
    assert pushed(LOOP.format(body=halves) + MAIN) == [Type(Elem.F32, 2), Type(Elem.F32, 2)]  # h of before, and a


def test_recomputed_values_are_the_same() -> None:
    """The gradient is that of the program with its loop written out, which keeps all."""
    body = "let a = h @ m\n let mid = mean(a, axis = -1)\n h = for[i, j] tanh(a[i, j] - mid[i]) * a[i, j]"
    written = f"fn step(h: f32[5, 8], m: f32[8, 8]) -> f32[5, 8] {{\n {body.replace('h = for', 'for')}\n}}\n"
    written += "fn f(w: f32[3, 8, 8], x: f32[5, 8]) -> f32 {\n let h = step(step(step(x, w[0]), w[1]), w[2])\n sum(h * h)\n}\n"
    looped, unrolled = (natively(pipeline.front(Source("test.tl", t + MAIN))) for t in (LOOP.format(body=body), written))
    assert looped == unrolled


def test_how_often_a_loop_ran_is_not_kept_where_its_limit_is_known() -> None:
    text = """
fn f(w: f32[8], n: i64) -> f32 {
  var h: f32[8] = zeros(8)
  for i in 0..3 { for j in 0..INNER { h[j] = tanh(h[j] * 0.5 + w[j]) } }
  sum(h)
}
fn main(n: i64 = 8) { print(grad(f)(for[i < 8] sin(f32(i)), n)) }
"""
    assert I64 not in taped(text.replace("INNER", "n"))
    assert I64 in taped(text.replace("INNER", "(n - i)"))

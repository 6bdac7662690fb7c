"""`checkpoint(f)`: the same bits, and nothing of what `f` computes is kept for the gradient."""

from __future__ import annotations

import pytest
from whole_program import both, natively, printed, stage

from tlc.driver import pipeline
from tlc.frontend.source import Source
from tlc.ssa.ir import Module, walk

BLOCKS = """
fn block(w: f32[n, n], x: f32[m, n]) -> f32[m, n] {
  let h = tanh(x @ w)
  x + tanh(h @ w.T)
}
fn layers(w: f32[L, n, n], x: f32[m, n]) -> f32[m, n] {
  var x = x
  for i in 0..L { x = BLOCK(w[i], x) }
  x
}
fn mean_square(w: f32[L, n, n], x: f32[m, n]) -> f32 = mean(layers(w, x) * layers(w, x))
fn of_batch(w: f32[L, n, n], x: f32[b, m, n]) -> f32 = sum(layers(w, x))
fn weights() -> f32[3, 4, 4] = for[i < 3, j < 4, k < 4] sin(f32(16 * i + 4 * j + k))
fn rows() -> f32[2, 5, 4] = for[i < 2, j < 5, k < 4] cos(f32(20 * i + 4 * j + k))
"""

CALLS = {
    "a loop over blocks": "value_and_grad(mean_square)(weights(), rows()[0], wrt = (w, x))",
    "blocks of a batch": "value_and_grad(of_batch)(weights(), rows(), wrt = (w, x))",
    "a lambda that captures": "grad(fn(v) => sum(CHECKPOINT(fn(u: f32[m, n]) => tanh(u * v))(rows()[0]) * v))(2.0)",
    "residual": "grad(fn(x: f32[m, n]) => sum(BLOCK(weights()[0], x) * x))(rows()[1])",
    "lifted": "grad(fn(x) => sum(BLOCK(weights()[0], x) * x))(rows())",
    "per example": "grad(fn(x: f32[m, n]) => sum(BLOCK(weights()[0], x)))(rows())",
    "twice": "grad(grad(fn(s) => sum(CHECKPOINT(fn(u: f32[n]) => tanh(u * s * u))(rows()[0, 0]))))(0.5)",
    "named arguments": "grad(fn(x: f32[m, n]) => sum(BLOCK(x = x, w = weights()[0])))(rows()[1])",
    "several results": "grad(fn(x: f32[n]) => sum(CHECKPOINT(fn(u: f32[n]) => (exp(u), sin(u)))(x)[1] * x))(rows()[0, 0])",
}


def filled(text: str, checkpoint: bool) -> str:
    return text.replace("BLOCK", "checkpoint(block)" if checkpoint else "block").replace(
        "CHECKPOINT(", "checkpoint(" if checkpoint else "("
    )


@pytest.fixture(scope="module")
def found() -> list[dict[str, list[str]]]:
    """What each prints without and with checkpoints."""

    def run(text: str) -> list[str]:
        return natively(pipeline.front(Source("test.tl", text)), host=pipeline.hosts()[-1])

    return [printed(filled(BLOCKS, c), {name: filled(what, c) for name, what in CALLS.items()}, run) for c in (False, True)]


@pytest.mark.parametrize("case", CALLS, ids=str)
def test_the_same_bits(case: str, found: list[dict[str, list[str]]]) -> None:
    plain, again = found
    assert plain[case] == again[case]


def test_both_ways() -> None:
    assert both("fn main() { print(grad(fn(x: f32[n]) => sum(checkpoint(fn(u: f32[n]) => u * u)(x) * x))([1.0, 2.0])) }") == ["[ 3. 12.]"]


def optimized(what: str, checkpoint: bool) -> Module:
    module: Module = stage("opt", filled(f"{BLOCKS}fn main() {{ print({what}) }}\n", checkpoint))
    return module


def kept(module: Module) -> int:
    """How many tensors of rank 2 are kept of an iteration."""
    return sum(i.op == "push" and i.operands[0].type.rank == 2 for f in module.functions.values() for i in walk(f.body))


def test_a_loop_keeps_its_arguments_alone() -> None:
    """Of each iteration the block's input, not what the block computes; its weights can be read again."""
    what = "grad(fn(w: f32[L, n, n], x: f32[m, n]) => sum(layers(w, x)))(weights(), rows()[0])"
    assert kept(optimized(what, True)) == 1
    assert kept(optimized(what, False)) > 1


def test_what_runs_again_is_not_shared_with_what_ran() -> None:
    """In straight-line code, too, the gradient has its own `tanh`."""
    what = "value_and_grad(fn(x: f32[m, n]) => sum(BLOCK(weights()[0], x)))(rows()[0])"
    count = {c: sum(i.op == "tanh" for f in optimized(what, c).functions.values() for i in walk(f.body)) for c in (True, False)}
    assert count[True] == count[False] + 2

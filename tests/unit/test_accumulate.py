"""A sum that a loop builds row by row and that is then added to another is built upon that one, to the bit, and only where it may be."""

from __future__ import annotations

import numpy as np
import pytest
from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, walk
from tlc.ssa.text import parse_module
from tlc.ssa.verify import verify
from tlc.tensor.accumulate import accumulate
from tlc.tensor.footprint import footprint
from tlc.tensor.taking import infer_consumed

# The rows are met upwards; `y` is `x[r, i] * x[r, i]`. The extents of `h` are those of the sum, as the pass has to know.
UP = """
func @f(%g: f32[_,_], %x: f32[_,_]) -> f32[_,_] {
entry:
  %n = dim %x {axis = 0} : i64
  %m = dim %x {axis = 1} : i64
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %zeros = tabulate %n, %m {
    (%a: i64, %b: i64):
      %z = const {value = 0.0} : f32
      yield %z
  } : f32[_,_]
  %h = tabulate %n, %m {
    (%v: i64, %o: i64):
      %hv = index %g, %v, %o : f32
      yield %hv
  } : f32[_,_]
  jump head(%zero, %zeros)
head(%r: i64, %d: f32[_,_]):
  %more = lt %r, %n : bool
  branch %more, body, done
body:
  %p = index %d, %r : f32[_]
  %q = tabulate %m {
    (%i: i64):
      %old = index %p, %i : f32
      %e = index %x, %r, %i : f32
      %y = mul %e, %e : f32
      %w = add %old, %y : f32
      yield %w
  } : f32[_]
  %u = update %d, %r, %q : f32[_,_]
  %next = add %r, %one : i64
  jump head(%next, %u)
done:
  %s = tabulate %n, %m {
    (%k: i64, %l: i64):
      %gs = index %h, %k, %l : f32
      %ds = index %d, %k, %l : f32
      %t = add %gs, %ds : f32
      yield %t
  } : f32[_,_]
  return %s
}
"""

DOWN = (
    UP.replace("jump head(%zero, %zeros)", "%minus = const {value = -1} : i64\n  jump head(%n, %zeros)")
    .replace("lt %r, %n", "ne %t0, %zero")
    .replace("head(%r: i64,", "head(%t0: i64,")
    .replace("%p = index", "%r = add %t0, %minus : i64\n  %p = index")
    .replace("%next = add %r, %one : i64\n", "")
    .replace("head(%next,", "head(%r,")
)

G = np.array([[-0.0, 1.0, -0.0], [3.0, -0.0, 5.0]], np.float32)
X = np.array([[0.0, 2.0, 1e-30], [-1.0, 0.5, 3.0]], np.float32)  # the square of the small one is 0


def tabulates(module: Module) -> int:
    return sum(i.op == "tabulate" for i in walk(module.functions["f"].body))


def result(module: Module) -> bytes:
    (value,) = Interpreter(module, Recorder()).call("f", [G, X])
    return bytes(np.asarray(value).tobytes())


@pytest.mark.parametrize("text", [UP, DOWN], ids=["up", "down"])
def test_the_sum_is_built_upon_what_it_is_added_to(text: str) -> None:
    module = parse_module(text)
    before, expected = tabulates(module), result(module)
    accumulate(module)
    verify(module)
    assert tabulates(module) == before - 1
    assert result(module) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%z = const {value = 0.0}", "%z = const {value = 1.0}"),  # it starts from something else
        ("%z = const {value = 0.0}", "%z = const {value = -0.0}"),
        ("add %r, %one", "add %r, %two"),  # not every row
        ("lt %r, %n", "lt %r, %one"),
        ("jump head(%zero,", "jump head(%one,"),
        ("index %p, %i", "index %p, %zero"),  # other elements of the row are read
        ("index %d, %k", "index %d, %zero"),
        ("%w = add %old, %y", "%w = sub %old, %y"),
        ("%t = add %gs, %ds", "%t = sub %gs, %ds"),
        ("return %s", "%again = tabulate %n, %m {\n (%c1: i64, %c2: i64):\n %c3 = index %d, %c1, %c2 : f32\n yield %c3\n } : f32[_,_]\n return %again"),
    ],
)  # fmt: skip
def test_it_is_left_where_bits_could_change(old: str, new: str) -> None:
    module = parse_module(UP.replace("%one = const", "%two = const {value = 2} : i64\n  %one = const").replace(old, new))
    before = tabulates(module)
    accumulate(module)
    assert tabulates(module) == before


# A gradient summed over parts of a batch. The weights of 5 layers are 5 * 40 * 40 * 4 = 32,000 bytes.
PARTS = """
fn loss(ws: f32[L, C, C], x: f32[n, C]) -> f32 {
  var y = x
  for w in ws { y = for[i, j] tanh(sum[k] y[i, k] * w[k, j]) }
  sum(y * y)
}
fn main(parts: i64 = 3) {
  let (a, b) = split(key(1))
  let ws: f32[5, 40, 40] = normal(a, 5, 40, 40)
  let x: f32[parts, 4, 40] = normal(b, parts, 4, 40)
  var g: f32[5, 40, 40] = zeros(5, 40, 40)
  for p in 0..parts { g = g + grad(loss)(ws, x[p]) }
  print(sum(g), g[4, 39, 39], g[0, 0, 0])
}
"""


def test_a_gradient_in_parts_is_summed_in_one_place() -> None:
    program = pipeline.front(Source("test.tl", PARTS))
    services = Recorder()
    options = Options(flags={"parts": 3})
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "memory")
    (peak,) = footprint(tensors.module.functions["main"], infer_consumed(tensors.module, {})).peaks
    assert peak.number is not None
    # the weights, their gradient, and no second one; the tape's piece of 1 MB, and what is small
    assert 2 * 32_000 < peak.number - (1 << 20) < 3 * 32_000
    Native(pipeline.machine_code(tensors, options, {}), services).run()
    expected = Recorder()
    pipeline.interpret(program, options, expected)
    assert services.lines == expected.lines

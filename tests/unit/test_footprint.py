"""How much memory programs hold: what the plan says of the peak is what the allocator counts, and a step of training allocates nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from ssa_services import Recorder
from test_views import KERNELS

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.ir import Module, walk
from tlc.ssa.loops import loops
from tlc.ssa.text import parse_module
from tlc.tensor.footprint import Footprint, footprint
from tlc.tensor.footprint_text import describe
from tlc.tensor.lower import Tensors
from tlc.tensor.memory import plan
from tlc.tensor.taking import infer_consumed

ROUNDS = """
func @f(%n: i64, %k: i64) -> f32[_,_] {
entry:
  %three = const {value = 3} : i64
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %x = launch %n, %three, %n {kernel = "table"} : f32[_,_]
  jump head(%zero)
head(%i: i64):
  %go = lt %i, %k : bool
  branch %go, body, back(%zero)
body:
  %y = launch %n, %three, %n {kernel = "table"} : f32[_,_]
  push %y {tape = 0}
  %j = add %i, %one : i64
  jump head(%j)
back(%p: i64):
  %more = lt %p, %k : bool
  branch %more, again, done
again:
  %y = pop {tape = 0} : f32[_,_]
  %q = add %p, %one : i64
  jump back(%q)
done:
  return %x
}
""".replace("%y = pop", "%z = pop")


def memory_of(module: Module, function: str = "main") -> Footprint:
    return footprint(module.functions[function], infer_consumed(module, {}))


def test_a_tape_grows_by_what_each_round_pushes() -> None:
    module = parse_module(ROUNDS)
    plan(module, KERNELS)
    memory = memory_of(module, "f")
    (peak,) = memory.peaks
    # %x and, of k rounds, %y: 12 n bytes each; the tape itself is a piece of 1 MB
    assert str(peak.bytes) == "12 * k * n + 12 * n + 1048576"
    (taped,) = memory.taped
    assert (str(taped.times), str(taped.size)) == ("k", "12 * n")
    assert [b.end for b in memory.buffers if b.how != "parameter"] == ["returned", "taped", "freed"]


PRODUCT = """
fn main(n: i64 = 100) {
  let k = key(1)
  let a: f32[n, 50] = normal(k, n, 50)
  let b = for[i, j] a[i, j] * 2.0
  var c = for[i < n, j < n] sum[k] a[i, k] * b[j, k]
  for i in 0..n { c[i, i] = 0.0 }
  print(sum(c))
}
"""

# The gradient of a loop: what 7 rounds need again lies on the tape. The loop of the second argument is behind it.
LOOP = """
fn f(x: f32[n], w: f32[n, n]) -> f32 {
  var y = x
  for i in 0..7 { y = for[j < n] tanh(sum[k] w[j, k] * y[k]) }
  sum(y * y)
}
fn main(n: i64 = 60) {
  let (a, b) = split(key(1))
  let x: f32[n] = normal(a, n)
  let w: f32[n, n] = normal(b, n, n)
  let (dx, dw) = grad(f)(x, w, wrt = (x, w))
  print(sum(dx), sum(dw))
}
"""


def compiled(text: str, **flags: int) -> tuple[Tensors, Native, Recorder]:
    program = pipeline.front(Source("test.tl", text))
    defaults = {f.name: f.default for f in program.flags if f.default is not None}
    options = Options(flags={**defaults, **flags})
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "memory")
    services = Recorder()
    return tensors, Native(pipeline.machine_code(tensors, options, {}), services), services


@pytest.mark.parametrize(("text", "sizes"), [(PRODUCT, (3, 100)), (LOOP, (5, 60))], ids=["product", "loop"])
def test_the_peak_is_what_the_allocator_counts(text: str, sizes: tuple[int, ...]) -> None:
    for n in sizes:
        tensors, native, _ = compiled(text, n=n)
        native.run()
        (peak,) = memory_of(tensors.module).peaks
        assert native.context.peak == peak.number


def test_the_peak_in_general_bounds_what_the_allocator_counts() -> None:
    program = pipeline.front(Source("test.tl", PRODUCT))
    general = next(value for name, _, value in pipeline.middle(program, Options()) if name == "memory")
    peaks = memory_of(general.module).peaks
    for n in (1, 64, 300):
        _, native, _ = compiled(PRODUCT, n=n)
        native.run()
        most = max((p for p in peaks), key=lambda p: _at(p.bytes, n))
        assert _at(most.bytes, n) <= native.context.peak + 128 * len(most.held)
        assert native.context.peak <= _at(most.bytes, n) + 128 * len(most.held)


def _at(size: object, n: int) -> int:
    from tlc.frontend.dims import Dim

    assert isinstance(size, Dim)
    value = size.substitute(lambda _: Dim.const(n)).value
    assert value is not None
    return value


def test_the_text_names_what_is_held_and_where() -> None:
    tensors, _, _ = compiled(PRODUCT)
    lines = describe(memory_of(tensors.module), lambda v: f"%{v.name}")
    assert lines[0].startswith("memory: at most ")
    assert lines[0].endswith(", at test.tl:6")
    assert any("40,000" in line and "test.tl:6" in line for line in lines[1:4])
    assert "buffers:" in lines


def test_a_gpt_that_learns_in_parts_keeps_what_one_part_needs() -> None:
    """Parameters, their gradient and two means of each; of every layer ten times the width for each letter of a part, and of one layer some more."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "gpt_step.tl"
    layers, width, context, batch, parts, letters = 3, 64, 32, 8, 4, 65
    program = pipeline.front(Source(str(path), path.read_text(encoding="utf-8")))
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    flags |= {"layers": layers, "heads": 2, "width": width, "context": context, "batch": batch, "parts": parts, "rounds": 1, "steps": 1}
    tensors = next(value for name, _, value in pipeline.middle(program, Options(flags=flags)) if name == "memory")
    parameters = layers * (12 * width * width + 13 * width) + (letters + context + 2) * width
    letter = 4 * width * batch // parts * context
    most = max(p.number or 0 for p in memory_of(tensors.module).peaks)
    assert most <= 4 * 4 * parameters + (10 * layers + 32) * letter + (1 << 20)


# ---------------------------------------------------------------- steps

MLP = """
use nn
use optim
struct Mlp { hidden: nn.Linear(20, 16), out: nn.Linear(16, 4) }
fn loss(m: Mlp, x: f32[B, 20], y: i64[B]) -> f32 = mean(nn.cross_entropy(nn.linear(m.out, relu(nn.linear(m.hidden, x))), y))
fn main() {
  let (a, b, c, d) = split(key(0), 4)
  var m = Mlp(hidden = nn.init_linear(a, 20, 16), out = nn.init_linear(b, 16, 4))
  let x = normal(c, 64, 20)
  let y = randint(d, 0, 4, 64)
  var opt = optim.adam(m)
  for i in 0..5 {
    let order = permutation(fold(key(1), i), 64)
    let (l, g) = value_and_grad(loss)(m, x[order[0..32]], y[order[0..32]])
    (m, opt) = optim.adamw_step(m, g, opt, 1e-3)
    print(l)
  }
}
"""

CNN = """
use nn
use optim
struct Cnn { conv: nn.Conv2d(1, 4, 3), out: nn.Linear(36, 4) }
fn logits(m: Cnn, x: f32[1, 8, 8]) -> f32[4] = nn.linear(m.out, reshape(nn.max_pool2d(relu(nn.conv2d(m.conv, x)), 2), 36))
fn loss(m: Cnn, x: f32[B, 1, 8, 8], y: i64[B]) -> f32 = mean(nn.cross_entropy(logits(m, x), y))
fn main() {
  let (a, b, c, d) = split(key(0), 4)
  var m = Cnn(conv = nn.init_conv2d(a, 1, 4, 3), out = nn.init_linear(b, 36, 4))
  let x = normal(c, 16, 1, 8, 8)
  let y = randint(d, 0, 4, 16)
  var opt = optim.adam(m)
  for i in 0..5 {
    let (l, g) = value_and_grad(loss)(m, x, y)
    (m, opt) = optim.adam_step(m, g, opt, 1e-3)
    print(l)
  }
}
"""

GPT = """
use nn
use optim
const C = 8
const H = 2
struct Block { norm: nn.Norm(C), qkv: nn.Linear(C, 3 * C), proj: nn.Linear(C, C), up: nn.Linear(C, 2 * C), down: nn.Linear(2 * C, C) }
struct Gpt { wte: f32[16, C], blocks: Block[3] }
fn attention(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32[t, d] {
  let score = for[i, j] if j <= i { sum[c] q[i, c] * k[j, c] / sqrt(f32(d)) } else { -inf }
  softmax(score) @ v
}
fn block(p: Block, x: f32[t, C]) -> f32[t, C] {
  let qkv = nn.linear(p.qkv, nn.norm(p.norm, x))
  let part = fn(o) => for[h < H, i < t, c < C // H] qkv[i, o * C + h * (C // H) + c]
  let y = attention(part(0), part(1), part(2))
  let x = x + nn.linear(p.proj, for[i < t, c < C] y[c // (C // H), i, c % (C // H)])
  x + nn.linear(p.down, gelu(nn.linear(p.up, x)))
}
fn loss(m: Gpt, token: i64[t], target: i64[t]) -> f32 {
  var x = for[i < t, c] m.wte[token[i], c]
  for b in m.blocks { x = block(b, x) }
  mean(nn.cross_entropy(x @ m.wte.T, target))
}
fn batch_loss(m: Gpt, token: i64[B, t], target: i64[B, t]) -> f32 = mean(loss(m, token, target))
fn init_block(k: key) -> Block {
  let (a, b, c, d) = split(k, 4)
  Block(norm = nn.init_norm(C), qkv = nn.init_linear(a, C, 3 * C), proj = nn.init_linear(b, C, C),
    up = nn.init_linear(c, C, 2 * C), down = nn.init_linear(d, 2 * C, C))
}
fn main() {
  let (a, b) = split(key(0))
  var m = Gpt(wte = normal(a, 16, C), blocks = init_block(split(b, 3)))
  var opt = optim.adam(m)
  for i in 0..5 {
    let x = randint(fold(key(1), i), 0, 16, 2, 8)
    let (l, g) = value_and_grad(batch_loss)(m, x, x)
    (m, opt) = optim.adamw_step(m, g, opt, 1e-3)
    print(l)
  }
}
"""


class _Counting(Recorder):
    """Notes at each line how often memory was asked for."""

    native: Native
    counts: list[int]

    def print(self, text: str) -> None:
        self.counts.append(self.native.context.mallocs)
        super().print(text)


@pytest.mark.parametrize("text", [MLP, CNN, GPT], ids=["mlp", "cnn", "gpt"])
def test_a_step_allocates_nothing_and_copies_nothing(text: str) -> None:
    tensors, native, _ = compiled(text)
    services = _Counting()
    services.counts, services.native = [], native
    native.served.services = services
    native.run()
    first, *later = services.counts
    assert len(later) == 4
    assert first > 0
    assert set(later) == {first}, "each step but the first finds the buffers of the one before"
    main = tensors.module.functions["main"]
    inside = {b for loop in loops(main.body) for b in loop.blocks}
    assert [i.op for i in walk(main.body) if i.op in ("copy", "update") and i.block in inside] == []


def test_layers_are_read_and_their_gradients_written_in_place() -> None:
    tensors, _, _ = compiled(GPT)
    found = [i.op for i in walk(tensors.module.functions["main"].body)]
    assert found.count("view") >= 5, "the weights of a block"
    assert found.count("split") == found.count("join") >= 10, "the gradients of a block's ten tensors, at least"

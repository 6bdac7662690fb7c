"""Gradients of programs: each compares itself with finite differences in f64 and with forward mode, and prints the greatest difference."""

from __future__ import annotations

import pytest
from ssa_services import Recorder

from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.opt import passes
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, walk
from tlc.ssa.lower import lower
from tlc.ssa.verify import verify
from tlc.tensor.derivative import differentiate
from tlc.tensor.flatten import flatten

HARNESS = """
fn worst(f: fn(f64[n]) -> f64, x: f64[n]) -> f64 {
  let g = grad(f)(x)
  var most = 0.0f64
  for i in 0..n {
    var a = x
    a[i] += 1e-6
    var b = x
    b[i] -= 1e-6
    let d = (f(a) - f(b)) / 2e-6
    most = max(most, abs(d - g[i]) / max(1.0, abs(d)))
  }
  let (_, along) = jvp(f)(x, for[i < n] cos(f64(i)))
  let dot = sum[i < n] g[i] * cos(f64(i))
  max(most, abs(along - dot) / max(1.0, abs(dot)))
}

fn main() { print(worst(f, for[i < 6] sin(f64(i) * 1.3 + 0.4))) }
"""

PROGRAMS = {
    "square": "fn f(x: f64[6]) -> f64 = sum(x * x)",
    "softmax": """
fn f(x: f64[6]) -> f64 {
  let p = softmax(reshape(x, 2, 3))
  sum[i, j] p[i, j] * f64(i + 2 * j)
}
""",
    "log_softmax": "fn f(x: f64[6]) -> f64 = mean(log_softmax(reshape(x, 3, 2)) * reshape(x, 3, 2))",
    "gelu": "fn f(x: f64[6]) -> f64 = sum(gelu(x) * sigmoid(x) + silu(x))",
    "norms": "fn f(x: f64[6]) -> f64 = norm(x) + norm(layernorm(x) * x) + sum(rmsnorm(x) * x)",
    "powers": "fn f(x: f64[6]) -> f64 = sum(x ** 3 + abs(x) ** 1.5 + 2.0 ** x)",
    "branch": """
fn g(x: f64) -> f64 = if x > 0.0 { log(x) } else { x * x * exp(x) }
fn f(x: f64[6]) -> f64 = sum(g(x) * x)
""",
    "data_dependent_loop": """
fn f(x: f64[6]) -> f64 {
  var s = x[0]
  var i = 0
  while s < 20.0 and i < 30 {
    s = s + x[i % 6] * x[i % 6]
    i += 1
  }
  s * s
}
""",
    "gather": """
fn f(x: f64[6]) -> f64 {
  let i = for[k < 9] (k * k + 1) % 6
  sum(x[i] * x[i] * x[i])
}
""",
    "slices": "fn f(x: f64[6]) -> f64 = sum(x[1..4] * x[3..6]) + sum(x[..2]) * x[-1]",
    "update": """
fn f(x: f64[6]) -> f64 {
  var y = x
  for i in 1..6 { y[i] = y[i] * y[i - 1] + sin(y[i]) }
  y[2..4] = y[0..2] * 2.0
  sum(y * y)
}
""",
    "scatter_add": """
fn f(x: f64[6]) -> f64 {
  var y = zeros(3)
  let i = for[k < 6] k % 3
  y[i] += x * x
  sum(y * y * y)
}
""",
    "matmul": """
fn f(x: f64[6]) -> f64 {
  let a = reshape(x, 2, 3)
  let b = a.T @ a
  sum(tanh(b @ a.T))
}
""",
    "conv": """
fn f(x: f64[6]) -> f64 {
  let k = x[0..2]
  let y = for[i < 5] sum[p < 2] x[i + p] * k[p]
  sum(y * y)
}
""",
    "extremes": "fn f(x: f64[6]) -> f64 = max(x) * min(x) + (prod[i] x[i]) + sum[i < 5] max(x[i], x[i + 1])",
    "cumsum": "fn f(x: f64[6]) -> f64 = sum(cumsum(x) * cumsum(x))",
    "where": "fn f(x: f64[6]) -> f64 = sum(where(x > 0.2, x * x, sin(x))) + sum(clip(x, -0.5, 0.5))",
    "concat": """
fn f(x: f64[6]) -> f64 {
  let y = concat(x, x * x)
  sum(y * y) + sum(flip(x) * x) + sum(stack(x, x)[1] * x)
}
""",
    "sort": """
fn f(x: f64[6]) -> f64 {
  let s = sort(x)
  sum[i] s[i] * f64(i) * s[i]
}
""",
    "ragged": "fn f(x: f64[6]) -> f64 = sum[i] (sum[k < i] x[k] * x[i])",
    "causal": """
fn f(x: f64[6]) -> f64 {
  let a = reshape(x, 3, 2)
  let s = for[i < 3, j < 3] if j <= i { sum[c] a[i, c] * a[j, c] } else { -inf }
  sum(softmax(s) @ a)
}
""",
    "lifted_gradient": """
fn g(x: f64) -> f64 = sin(x) * x
fn f(x: f64[6]) -> f64 {
  let d = grad(g)(x)
  sum(d * x)
}
""",
    "early_return": """
fn g(x: f64) -> f64 {
  if x < 0.0 { return x * x }
  var y = x
  if x > 0.5 { y = y * 3.0 }
  y * y
}
fn f(x: f64[6]) -> f64 = sum(g(x))
""",
    "struct_gradient": """
struct P { a: f64[3], b: f64[3] }
fn e(p: P) -> f64 = sum(p.a * p.b * p.b)
fn f(x: f64[6]) -> f64 {
  let g = grad(e)(P(a = x[0..3], b = x[3..6]))
  sum(g.a * g.b)
}
""",
    "recurrent": """
fn f(x: f64[6]) -> f64 {
  let w = reshape(x[0..4], 2, 2)
  var h = x[4..6]
  for t in 0..5 { h = tanh(w @ h + x[4..6]) }
  sum(h)
}
""",
    "loop_of_each_element": """
fn it(x: f64) -> f64 {
  var y = x
  for i in 0..3 { y = sin(y) * y }
  y
}
fn f(x: f64[6]) -> f64 = sum(it(x))
""",
    "one_hot_and_logsumexp": "fn f(x: f64[6]) -> f64 = sum(one_hot(2, 6) * x) + dot(x, x) + logsumexp(x)",
    "binary_cross_entropy": "fn f(x: f64[6]) -> f64 = mean(log1p(exp(-abs(x))) + max(x, 0.0) - x * 0.3)",
    "stop_grad": "fn f(x: f64[6]) -> f64 = sum(x * x) + 0.0 * sum(stop_grad(x))",
}


def compiled(text: str) -> Module:
    module = lower(check(parse(Source("test.tl", text))))
    construct(module)
    passes.run(module, passes.LEVELS[2])
    flatten(module)
    differentiate(module)
    verify(module)
    passes.run(module, passes.LEVELS[2])
    flatten(module)
    verify(module)
    return module


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradient(name: str) -> None:
    services = Recorder()
    Interpreter(compiled(PROGRAMS[name] + HARNESS), services).call("main", [])
    assert float(services.lines[0]) < 1e-6


def test_a_net_has_a_tape_only_in_loops() -> None:
    """A feed-forward loss on structs: no tape, no scatter, and as many products as one expects."""
    module = compiled(
        """
use nn

struct Net { hidden: nn.Linear(6, 5), out: nn.Linear(5, 3) }

fn loss(m: Net, x: f32[B, 6], y: i64[B]) -> f32 =
  mean(nn.cross_entropy(nn.linear(m.out, relu(nn.linear(m.hidden, x))), y))

fn main() {
  let (k1, k2, k3) = split(key(3), 3)
  let m = Net(hidden = nn.init_linear(k1, 6, 5), out = nn.init_linear(k2, 5, 3))
  let (l, g) = value_and_grad(loss)(m, normal(k3, 8, 6), for[i < 8] i % 3)
  print(l)
  print(norm(g))
}
"""
    )
    found = list(walk(module.functions["main"].body))
    assert not any(i.op in ("push", "pop", "scatter", "stop_grad") for i in found)
    products = [i for top in found if top.op == "tabulate" and len(top.operands) == 2 for i in walk(top.regions[0]) if i.op == "reduce"]
    assert [i.attrs["order"] for i in products] == ["chain"] * 5


def test_causal_attention_is_whole_array_code() -> None:
    """The sums under `if j <= i` leave it, forwards and backwards: no tape, no scatter, no region with control flow."""
    module = compiled(
        """
fn attention(q: f32[t, d], k: f32[t, d], v: f32[t, d]) -> f32[t, d] {
  let score = for[i, j] if j <= i { sum[c] q[i, c] * k[j, c] / sqrt(f32(d)) } else { -inf }
  softmax(score) @ v
}

fn loss(q: f32[b, t, d], k: f32[b, t, d], v: f32[b, t, d]) -> f32 = sum(attention(q, k, v))

fn main() {
  let (k1, k2, k3) = split(key(3), 3)
  print(grad(loss)(normal(k1, 2, 6, 4), normal(k2, 2, 6, 4), normal(k3, 2, 6, 4)))
}
"""
    )
    found = list(walk(module.functions["main"].body))
    assert not any(i.op in ("push", "pop", "scatter", "call") for i in found)
    assert all(len(r.blocks) == 1 for i in found for r in i.regions)


BODIES = ["q[i, c] * k[j, c]", "k[j, c] * q[i, c]", "q[i, c] / k[j, c]", "sqrt(k[j, c]) * q[i, c]", "k[j, c] ** q[i, c]"]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("bad", ["inf", "nan", "0.0"])
def test_a_sum_that_is_not_taken_has_no_part_in_the_gradient(body: str, bad: str) -> None:
    """Its factors may be infinite, or have infinite derivatives: with them away, the gradient is the same."""
    text = f"""
fn f(q: f64[3, 2], k: f64[3, 2]) -> f64 {{
  let s = for[i, j] if j < i {{ sum[c] {body} }} else {{ 0.5 }}
  sum(s * s)
}}
fn main() {{
  let q = for[i < 3, c < 2] f64(i + c) + 0.5
  var k = for[i < 3, c < 2] f64(2 * i + c) + 1.0
  print(grad(f)(q, k, wrt = (q, k)))
  k[2, :] = [{bad}, {bad}]
  print(grad(f)(q, k, wrt = (q, k)))
}}
"""
    module = compiled(text)
    assert not any(i.op in ("push", "pop") for i in walk(module.functions["main"].body))
    services = Recorder()
    Interpreter(module, services).call("main", [])
    half = len(services.lines) // 2
    assert services.lines[:half] == services.lines[half:]
    assert "nan" not in "".join(services.lines)

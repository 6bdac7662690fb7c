"""The order of sums of products: what is a chain of fused multiply-adds and what is not, and which factors leave it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ssa_services import Recorder
from whole_program import both

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source

SUMS = {  # the body of a sum over k for each i and j, its order, and whether what is summed is a product of two tensors, and no more
    "a[i, k] * b[k, j]": ("chain", True),
    "a[i, k] * b[k, j] / s": ("chain", True),
    "a[i, k] * b[k, j] / sqrt(s)": ("chain", True),
    "a[i, k] * b[k, j] * s": ("chain", True),
    "s * (a[i, k] * b[k, j])": ("chain", True),
    "a[i, k] * b[k, j] / s / (s + 1.0)": ("chain", True),
    "(a[i, k] - b[k, j]) * (a[i, k] - b[k, j])": ("chain", False),  # nothing is read for all i and j
    "a[i, k] * v[k]": ("chain", True),
    "a[i, k] * b[i, k] / s": ("lanes", True),
    "a[i, k] * s * b[i, k]": ("lanes", False),
    "a[i, k] * a[i, k]": ("lanes", True),
    "a[k, j] * b[k, j]": ("lanes", True),
    "v[k] * v[k]": ("lanes", True),
    "a[i, k] * b[k, j] / v[k]": ("lanes", False),
    "a[i, k] / s": ("lanes", False),
}


@pytest.mark.parametrize("body", SUMS)
@pytest.mark.parametrize("strict", [False, True])
def test_factors_that_do_not_depend_on_the_index(body: str, strict: bool) -> None:
    order, bare = SUMS[body]
    text = f"""
fn total(a: f32[9, 9], b: f32[9, 9], v: f32[9], s: f32) -> f32[9, 9] = for[i < 9, j < 9] sum[k < 9] {body}
fn main(s: f32 = 3.0) {{ print(total(for[i < 9, j < 9] f32(i), for[i < 9, j < 9] f32(j), for[i < 9] f32(i), s)) }}
"""
    program = pipeline.front(Source("test.tl", text))
    tensors = next(value for name, _, value in pipeline.middle(program, Options(level=0, strict=strict)) if name == "graph")
    ((found, terms),) = ((n.reduction.order, n.reduction.terms) for g in tensors.graphs for n in g.nodes if n.reduction)
    assert found == ("strict" if strict else order)
    if bare and not strict:
        factors = terms if order == "chain" else terms[0].args
        assert all(e.op in ("load", "convert") for e in factors)  # what is read, or made where it is read


FORMS = (
    "a[k] * b[k] / s",
    "(a[k] * 1.0) / s",
    "(a[k] / 1.0) * s",
    "-(-(a[k] * b[k])) / s",
    "(if s > 0.1 { a[k] * b[k] } else { 0.0 }) / s",
    "if k % 3 == 0 { a[k] * b[k] } else { 0.0 }",
    "where(k % 2 == 0, a[k] * b[k], 0.0)",
    "scaled(a[k] * b[k], s)",
)


@pytest.mark.parametrize("body", FORMS)
@pytest.mark.parametrize("what", ["total(a, b, s)", "sum(grad(total)(a, b, s))", "grad(total)(a, b, s, wrt = s)"])
def test_every_level_gives_the_same_bits(body: str, what: str) -> None:
    """What leaves a sum is decided on the code that all levels see, before any of them changes it."""
    text = f"""
fn scaled(x: f32, s: f32) -> f32 = if s > 0.5 {{ x / s }} else {{ x }}
fn total(a: f32[n], b: f32[n], s: f32) -> f32 = sum[k < n] {body}
fn main(s: f32 = 0.37) {{
  let (a, b) = (for[i < 777] sin(f32(i)), for[i < 777] cos(f32(i)))
  print({what})
}}
"""
    program = pipeline.front(Source("test.tl", text))
    seen = set()
    for level in (0, 1, 2):
        services = Recorder()
        Native(pipeline.build(program, Options(level, flags={"s": 0.37}), {}), services).run()
        seen.add("".join(services.lines))
    assert len(seen) == 1


SIZES = (0, 1, 7, 64, 1000, 100003)
DOTS = """
fn a(n: i64) -> {0}[n] = for[i < n] {0}(i * 7919 % 1021) / {1}
fn b(n: i64) -> {0}[n] = for[i < n] {0}(i * 104729 % 1013 - 506) / {1}
fn show(n: i64) {{
  let (x, y) = (a(n), b(n))
  print("{{dot(x, y)}} {{x @ y}} {{sum[i] x[i] * y[i]}}")
}}
fn main() {{ {2} }}
"""


def in_lanes(x: np.ndarray[Any, Any]) -> Any:
    """The sum as `docs/language.md` says it."""
    acc = [x.dtype.type(0)] * 16
    for p, v in enumerate(x):
        acc[p % 16] = acc[p % 16] + v
    for half in (8, 4, 2, 1):
        acc[:half] = [acc[k] + acc[k + half] for k in range(half)]
    return acc[0]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("elem", ["f32", "f64", "bf16", "i32", "u8"])
def test_a_dot_product_is_summed_in_lanes(elem: str, known: bool) -> None:
    """Bits of the interpreter, which `both` compares with those of machine code, and of the definition."""
    calls = "; ".join(f"show({n})" for n in SIZES) if known else f"for n in [{', '.join(map(str, SIZES))}] {{ show(n) }}"
    lines = both(DOTS.replace(" / {1}", "" if elem[0] in "iu" else f" / {elem}(1021)").format(elem, "", calls), level=2)
    assert len(lines) == len(SIZES) and all(len(set(line.split())) == 1 for line in lines)
    if elem not in ("f32", "f64"):
        return
    dtype = np.dtype(np.float32 if elem == "f32" else np.float64)
    for n, line in zip(SIZES, lines, strict=True):
        i = np.arange(n)
        a, b = ((v.astype(dtype) / dtype.type(1021)) for v in (i * 7919 % 1021, i * 104729 % 1013 - 506))
        assert dtype.type(line.split()[0]) == in_lanes(a * b)


def test_sums_inside_of_a_loop_of_each_element() -> None:
    """What runs as one scalar function an element has the same sixteen sums: in a loop, or, of few elements for sure, without one."""
    text = """
fn each(a: f32[n], s: f32) -> f32 {
  var t = s
  while t < 40.0 { t = 1.25 * t + abs(sum[k] a[k] * a[k]) + (sum[k < 5] a[k] / 3.0) + (prod[k in 1..3] a[k]) + 0.5 }
  t
}
fn main() {
  for n in [6, 21, 77] {
    let m = for[i < 4, j < n] sin(f32(i * n + j))
    print(for[i] each(m[i], f32(i)))
  }
}
"""
    assert len(both(text)) == 3


def test_the_gradient_of_a_normalized_row() -> None:
    """Beside its formula (Ba, Kiros and Hinton, 2016), in f64; its sums of products are summed in lanes."""
    text = """
fn loss(x: f32[n, m], g: f32[m], w: f32[n, m]) -> f32 = sum(w * (for[i, j] layernorm(x[i])[j] * g[j]))
fn main() {
  let x = for[i < 20, j < 70] sin(f32(i * 70 + j))
  let w = for[i < 20, j < 70] cos(f32(i * 211 + 3 * j))
  let g = for[j < 70] 1.0 + f32(j % 7)
  let (dx, dg) = grad(loss)(x, g, w, wrt = (x, g))
  for i in 0..20 { for j in 0..70 { print(dx[i, j]) } }
  for j in 0..70 { print(dg[j]) }
}
"""
    program = pipeline.front(Source("test.tl", text))
    services = Recorder()
    Native(pipeline.build(program, Options(verify=True, flags={}), {}), services).run()
    found = np.array([float(line) for line in "\n".join(services.lines).split()])
    i, j = np.arange(20.0)[:, None], np.arange(70.0)
    x, w, g = (v.astype(np.float64) for v in (np.sin(i * 70 + j), np.cos(i * 211 + 3 * j), 1 + j % 7))
    root = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    y, d = (x - x.mean(1, keepdims=True)) * root, w * g
    dx = root * (d - d.mean(1, keepdims=True) - y * (d * y).mean(1, keepdims=True))
    assert np.allclose(found[:-70].reshape(20, 70), dx, rtol=0, atol=2e-4 * np.abs(dx).max())
    assert np.allclose(found[-70:], (w * y).sum(0), rtol=0, atol=2e-4 * np.abs((w * y).sum(0)).max())

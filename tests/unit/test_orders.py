"""What leaves a sum of products, so that it is a chain of fused multiply-adds."""

from __future__ import annotations

import pytest
from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source

SUMS = {
    "a[k] * b[k] / s": True,
    "a[k] * b[k] / sqrt(s)": True,
    "a[k] * b[k] * s": True,
    "s * (a[k] * b[k])": True,
    "a[k] * b[k] / s / (s + 1.0)": True,
    "a[k] * b[k] / c[k]": False,
    "a[k] / s": False,
}


@pytest.mark.parametrize("body", SUMS)
@pytest.mark.parametrize("strict", [False, True])
def test_factors_that_do_not_depend_on_the_index(body: str, strict: bool) -> None:
    vectors = "let (a, b, c) = (for[i < 9] f32(i), for[i < 9] f32(i * i), for[i < 9] f32(i + 1))"
    program = pipeline.front(Source("test.tl", f"fn main(s: f32 = 3.0) {{ {vectors}\n print(sum[k] {body}) }}"))
    tensors = next(value for name, _, value in pipeline.middle(program, Options(level=0, strict=strict)) if name == "graph")
    ((order, terms),) = ((n.reduction.order, n.reduction.terms) for g in tensors.graphs for n in g.nodes if n.reduction)
    assert order == ("strict" if strict else "chain" if SUMS[body] else "lanes")
    if SUMS[body] and not strict:
        assert [e.op for e in terms] == ["convert", "convert"]  # the vectors, which are made where they are read


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

"""What leaves a sum of products, so that it is a chain of fused multiply-adds."""

from __future__ import annotations

import pytest

from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.tensor.graph.ir import walk

SUMS = {
    "a[k] * b[k] / s": "div",
    "a[k] * b[k] / sqrt(s)": "div",
    "a[k] * b[k] * s": "mul",
    "s * (a[k] * b[k])": "mul",
    "a[k] * b[k] / s / (s + 1.0)": "div",
    "a[k] * b[k] / c[k]": None,
    "a[k] / s": None,
    "s * a[k]": None,
}


@pytest.mark.parametrize("body", SUMS)
@pytest.mark.parametrize("strict", [False, True])
def test_factors_that_do_not_depend_on_the_index(body: str, strict: bool) -> None:
    text = f"fn main(s: f32 = 3.0) {{ let (a, b, c) = (for[i < 9] f32(i), for[i < 9] f32(i * i), for[i < 9] f32(i + 1))\n print(sum[k] {body}) }}"
    options = Options(level=0, flags=None, strict=strict)
    program = pipeline.front(Source("test.tl", text))
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "graph")
    (node,) = (n for g in tensors.graphs for n in g.nodes if n.reduction)
    after = {e.op for e in walk(node.outputs)}
    if strict or SUMS[body] is None:
        assert after == {"acc"}
    else:
        assert SUMS[body] in after and node.reduction.order == "chain" and len(node.reduction.terms) == 2


def test_every_level_gives_the_same_bits() -> None:
    from ssa_services import Recorder

    from tlc.backends.runtime.native import Native

    text = "fn main(s: f32 = 3.0) { let (a, b) = (for[i < 99] sin(f32(i)), for[i < 99] cos(f32(i)))\n print(sum[k] a[k] * b[k] / s) }"
    program = pipeline.front(Source("test.tl", text))
    seen = set()
    for level in (0, 1, 2):
        services = Recorder()
        Native(pipeline.build(program, Options(level, flags={"s": 3.0}), {}), services).run()
        seen.add("".join(services.lines))
    assert len(seen) == 1

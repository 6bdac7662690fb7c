"""Random chains of comprehensions: kernels and graphs give the bits of the interpreter of SSA."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ssa_services import Recorder
from tensor_run import F32, call, function, lowered, same_bits, tensor

from tlc.ssa.builder import Builder
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, Value
from tlc.tensor.extents import Axis, Extents
from tlc.tensor.graph.build import build
from tlc.tensor.graph.interp import run
from tlc.tensor.schedule import Target

SIZES = (0, 1, 2, 3, 7, 16, 17, 33)
REDUCERS = ("sum", "sum", "max", "min", "prod")


@st.composite
def programs(draw: st.DrawFn) -> Module:
    """From a matrix [n, m] and a vector [m]: a few comprehensions over n, m and 5, each over what there is."""
    count = draw(st.integers(1, 5))

    def body(b: Builder, x: Value, v: Value) -> list[Value]:
        n, m = b.dims(x)
        extents = {"n": n, "m": m, "5": b.i64(5)}
        known: list[tuple[Value, str]] = [(x, "nm"), (v, "m")]  # a tensor and its dimensions

        def scalar(b: Builder, at: dict[str, Value], depth: int) -> Value:
            """A scalar of loads at the indices that there are, at indices of the same range."""
            kind = draw(st.integers(0, 5)) if depth else 0
            if kind <= 1:
                usable = [(t, d) for t, d in known if set(d) <= set(at)]
                if not usable:
                    return b.convert(draw(st.sampled_from(list(at.values()))), F32) if at else b.const(0.5, F32)
                t, d = draw(st.sampled_from(usable[-4:]))
                return b.index(t, *(at[c] for c in d))
            if kind == 2:
                return b.op(draw(st.sampled_from(["exp", "tanh", "abs", "neg", "sqrt"])), scalar(b, at, depth - 1))
            if kind == 3:
                p = b.op("gt", scalar(b, at, depth - 1), b.const(0.25, F32))
                return b.op("select", p, scalar(b, at, depth - 1), scalar(b, at, depth - 1))
            return b.op(draw(st.sampled_from(["add", "sub", "mul", "max", "div"])), scalar(b, at, depth - 1), scalar(b, at, depth - 1))

        for _ in range(count):
            dims = "".join(draw(st.permutations("nm5"))[: draw(st.integers(1, 3))])
            rest = [c for c in "nm5" if c not in dims]
            reduced = "".join(draw(st.permutations(rest))[: draw(st.integers(0, 2))]) if rest else ""

            def element(b: Builder, *indices: Value, dims: str = dims, reduced: str = reduced) -> Value:
                at = dict(zip(dims, indices, strict=True))
                if not reduced:
                    return scalar(b, at, 2)
                order = draw(st.sampled_from(["chain", "lanes"]))

                def term(b: Builder, *inner: Value) -> Value:
                    here = at | dict(zip(reduced, inner, strict=True))
                    return b.op("mul", scalar(b, here, 1), scalar(b, here, 1)) if order == "chain" else scalar(b, here, 2)

                r = b.reduce(draw(st.sampled_from(REDUCERS)), [extents[c] for c in reduced], term, order)
                return b.op("add", r, scalar(b, at, 1)) if draw(st.booleans()) else r

            known.append((b.tabulate([extents[c] for c in dims], element), dims))
        kept = [t for t, _ in known[2:]]
        return [kept[-1], *(t for t in kept[:-1] if draw(st.booleans()))]

    return function([tensor(2), tensor(1)], None, body)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from(SIZES), st.sampled_from(SIZES), st.booleans())
def test_random_programs(module: Module, n: int, m: int, wide: bool) -> None:
    random = np.random.default_rng(n * 100 + m)
    args = [random.standard_normal((n, m)).astype(np.float32), random.standard_normal(m).astype(np.float32)]
    expected = Interpreter(module, Recorder()).call("f", args)
    same_bits(expected, call(lowered(module, Target(64, 32) if wide else Target()), args))
    same_bits(expected, through_graph(module, args))


def through_graph(module: Module, args: list[Any]) -> list[Any]:
    """`f` by the interpreter of the graph that is built from its only block, before fusion."""
    f = module.functions["f"]
    built = build(module, f, f.body.entry, Extents(f))
    values = dict(zip(f.params, args, strict=True))
    inputs: dict[Any, Any] = {t: values[v] for t, v in built.tensors.items()}
    for s, key in built.scalars.items():
        assert isinstance(key, Axis)
        inputs[s] = values[key.tensor].shape[key.axis]
    made = run(built.graph, inputs)
    return [made[t] for v in f.body.entry.terminator.operands for t, r in built.results.items() if r is v]

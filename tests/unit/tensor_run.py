"""Runs a module before and after the tensor stage, for tests that compare: the interpreter of SSA, that of graphs, that of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ssa_services import Recorder

from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, Type, Value
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.graph.text import parse_graph, print_graph
from tlc.tensor.graph.verify import verify as verify_graph
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.text import parse_kernels, print_kernels
from tlc.tensor.lower import Tensors, lower
from tlc.tensor.schedule import Target

F32, F64, I64 = Type(Elem.F32), Type(Elem.F64), Type(Elem.I64)


def tensor(rank: int, elem: Elem = Elem.F32) -> Type:
    return Type(elem, rank)


def function(params: Sequence[Type], results: Sequence[Type] | None, body: Callable[..., Sequence[Value]]) -> Module:
    """A module with one function `f`; the body gets a builder and the parameters, and gives the results."""
    module = Module()
    f, b = new_function("f", [(f"x{k}", t) for k, t in enumerate(params)], (), module)
    values = body(b, *f.params)
    b.ret(*values)
    f.results = tuple(v.type for v in values)
    assert results is None or f.results == tuple(results)
    verify(module)
    return module


def lowered(module: Module, target: Target = Target()) -> Tensors:  # noqa: B008 (immutable)
    """The tensor stage on a copy, with every form printed, parsed and verified."""
    tensors = lower(parse_module(print_module(module)), target)
    verify(tensors.module, "host")
    assert parse_kernels(print_kernels(tensors.kernels)) == tensors.kernels
    for graph in tensors.graphs:
        verify_graph(graph)
        assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    return tensors


def call(tensors: Tensors, args: Sequence[Any]) -> list[Any]:
    """`f` on the host interpreter, with kernels run by their interpreter."""

    def apply(name: str, values: list[Any]) -> Any:
        return Interpreter(tensors.module, Recorder(), launch).call(name, values)[0]

    def launch(name: str, outputs: list[Any], inputs: list[Any]) -> None:
        run(tensors.kernels[name], outputs, inputs, apply)

    return Interpreter(tensors.module, Recorder(), launch).call("f", args)


def same_bits(a: Sequence[Any], b: Sequence[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        x, y = np.asarray(x), np.asarray(y)  # noqa: PLW2901
        assert x.dtype == y.dtype and x.shape == y.shape
        same = x == y
        if x.dtype.kind == "f":
            same = (same & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))
        assert np.all(same), f"{x}\n{y}"


def compare(module: Module, *args: Any, target: Target = Target()) -> Tensors:  # noqa: B008 (immutable)
    """The kernels give the bits of the interpreter of SSA."""
    tensors = lowered(module, target)
    same_bits(Interpreter(module, Recorder()).call("f", args), call(tensors, args))
    return tensors


def product(b: Builder, x: Value, i: Sequence[Value], w: Value, j: Sequence[Value]) -> Value:
    return b.op("mul", b.index(x, *i), b.index(w, *j))

"""Flat SSA to fused graphs (`golden/graph`) and to kernels (`golden/kernel`), whose texts parse back."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.source import Source
from tlc.ssa.text import parse_module
from tlc.ssa.verify import verify
from tlc.tensor.graph.text import parse_graph, print_graph, print_graphs
from tlc.tensor.graph.verify import verify as verify_graph
from tlc.tensor.kernel.text import parse_kernels, print_kernels
from tlc.tensor.lower import Tensors, lower


def lowered(source: Source) -> Tensors:
    module = parse_module(source.text, source.path)
    verify(module)
    tensors = lower(module)
    verify(module, "host")
    return tensors


def graphs(source: Source) -> str:
    tensors = lowered(source)
    for g in tensors.graphs:
        verify_graph(g)
        assert print_graph(parse_graph(print_graph(g))) == print_graph(g)
    return print_graphs(tensors.graphs)


def kernels(source: Source) -> str:
    tensors = lowered(source)
    text = print_kernels(tensors.kernels)
    assert parse_kernels(text) == tensors.kernels
    return text


@pytest.mark.parametrize("case", cases("golden/graph", "*.ssa"), ids=str)
def test_graph(case: Case, bless: bool) -> None:
    case.check(graphs, bless)


@pytest.mark.parametrize("case", cases("golden/kernel", "*.ssa"), ids=str)
def test_kernel(case: Case, bless: bool) -> None:
    case.check(kernels, bless)

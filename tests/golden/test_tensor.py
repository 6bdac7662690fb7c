"""Flat SSA to fused graphs (`golden/graph`) and to kernels (`golden/kernel`, of a GPU `golden/grid`), whose texts parse back; and kernels of a
GPU as plain loops (`golden/emulate`).
"""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.source import Source
from tlc.ssa.text import parse_module
from tlc.ssa.verify import verify
from tlc.tensor.graph.text import parse_graph, print_graph, print_graphs
from tlc.tensor.graph.verify import verify as verify_graph
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.text import parse_kernel, parse_kernels, print_kernel, print_kernels
from tlc.tensor.kernel.verify import verify as verify_kernel
from tlc.tensor.lower import Tensors, lower
from tlc.tensor.schedule import Target

WORDS = Target(32, 16, dots=4, pairs=True)


def lowered(source: Source, target: Target = Target()) -> Tensors:  # noqa: B008 (immutable)
    module = parse_module(source.text, source.path)
    verify(module)
    tensors = lower(module, target)
    verify(module, "host")
    return tensors


def graphs(source: Source, target: Target = Target()) -> str:  # noqa: B008 (immutable)
    tensors = lowered(source, target)
    for g in tensors.graphs:
        verify_graph(g)
        assert print_graph(parse_graph(print_graph(g))) == print_graph(g)
    return print_graphs(tensors.graphs)


def kernels(source: Source, target: Target = Target()) -> str:  # noqa: B008 (immutable)
    tensors = lowered(source, target)
    text = print_kernels(tensors.kernels)
    assert parse_kernels(text) == tensors.kernels
    return text


@pytest.mark.parametrize("case", cases("golden/graph", "*.ssa"), ids=str)
def test_graph(case: Case, bless: bool) -> None:
    case.check(graphs, bless)


@pytest.mark.parametrize("case", cases("golden/words", "*.ssa"), ids=str)
def test_words(case: Case, bless: bool) -> None:
    """Both forms, for a processor with instructions for narrow products."""
    case.check(lambda source: f"{graphs(source, WORDS)}\n{print_kernels(lowered(source, WORDS).kernels)}", bless)


@pytest.mark.parametrize("case", cases("golden/kernel", "*.ssa"), ids=str)
def test_kernel(case: Case, bless: bool) -> None:
    case.check(kernels, bless)


@pytest.mark.parametrize("case", cases("golden/grid", "*.ssa"), ids=str)
def test_grid(case: Case, bless: bool) -> None:
    target = Target(gpu=True, tensor_cores="tensor cores" in case.pipeline)
    case.check(lambda source: kernels(source, target), bless)


@pytest.mark.parametrize("case", cases("golden/emulate", "*.tk"), ids=str)
def test_emulate(case: Case, bless: bool) -> None:
    def plain(source: Source) -> str:
        kernel = parse_kernel(source.text, source.path)
        verify_kernel(kernel)
        loops = emulated(kernel)
        verify_kernel(loops)
        return print_kernel(loops)

    case.check(plain, bless)

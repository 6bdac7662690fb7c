"""Graphs as text: `tlc graph.uir [--slot0 a.npy]` computes a graph and prints its results, `tlc emit c graph.uir` shows it as C.

Tensors that the graph reads are flags: each the path of an array in a `.npy` file. Where none is given, element k, counted in row-major
order, is k modulo 10 (of bools, whether k is odd). Scalars of a graph are flags too; 8 where they are not given. As with kernels, the
interpreter runs first and native code is compared with it.

The stages of a graph are `graph` (fused), `kernels`, `llvm`, `c`, `cuda` and `ptx`. In C nothing is tiled and nothing cut into vectors: a
C compiler does that as it likes, the results have the same bits, and the loops are those that a person would write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tlc.backends import cpu
from tlc.driver import samples
from tlc.driver.flags import Flag, UsageError, Value
from tlc.driver.options import LEAST_SM
from tlc.driver.text_faults import fault, holds
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.narrow_reals import rounded
from tlc.frontend.ops import DTYPES
from tlc.frontend.source import NOWHERE, Source
from tlc.frontend.types import Elem
from tlc.tensor import standalone
from tlc.tensor.fuse import Decision
from tlc.tensor.graph.ir import Graph, Tensor, walk
from tlc.tensor.graph.movement import parse_movement
from tlc.tensor.graph.text import parse_graph, print_graph
from tlc.tensor.graph.verify import verify
from tlc.tensor.kernel.grid import is_gpu
from tlc.tensor.kernel.interp import run as interpret
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import print_kernels
from tlc.tensor.schedule import Target

STAGES = ("graph", "kernels", "llvm", "c", "cuda", "ptx")

_C = Target(expands=False, plain=True)


def read(source: Source) -> Graph:
    """The graph of a file, by its ending. Raises `CompileError`."""
    if source.path.endswith(".uir"):
        return parse_movement(source.text, source.path)
    graph = parse_graph(source.text, source.path)
    holds(lambda: verify(graph), source)
    for node in graph.nodes:
        applied = next((e for e in walk(node.roots) if e.op == "apply"), None)
        if applied is not None:
            raise fault(f"`{node.results[0].name}` applies the function `{applied.data}`, which is not in this file", NOWHERE, source)
    return graph


def emit(source: Source, stage: str, sm: int = LEAST_SM, tensor_cores: bool = False) -> str:
    """The text of a stage; of kernels for a GPU with an architecture, and with products on tensor cores or without."""
    if stage not in STAGES:
        raise UsageError(f"a graph has no stage `{stage}`; it has {', '.join(STAGES)}")
    target = _C if stage == "c" else replace(cpu.vectors(), gpu=stage in ("cuda", "ptx"), tensor_cores=tensor_cores)
    graph = standalone.fused(read(source), target)
    if stage == "graph":
        return print_graph(graph)
    kernels = {launch.kernel.name: launch.kernel for launch in standalone.kernels(graph, target)}
    return emit_kernels(kernels, stage, source.path, sm)


def emit_kernels(kernels: Mapping[str, Kernel], stage: str, title: str, sm: int = LEAST_SM) -> str:
    """Kernels as text of a stage."""
    match stage:
        case "kernels":
            return print_kernels(dict(kernels))
        case "c":
            from tlc.backends.c.unit import emit as emit_c

            return emit_c(kernels, title=title)
        case "llvm":
            from tlc.backends.llvm.kernel import print_kernel

            return "\n".join(map(print_kernel, kernels.values()))
        case "cuda" | "ptx" if not all(map(is_gpu, kernels.values())):
            raise UsageError(f"`{stage}` is of kernels for a GPU, which have block loops; these are for a CPU")
        case "cuda" | "ptx":
            from tlc.driver.stage_texts import kernels_for_gpu

            return kernels_for_gpu(kernels, stage, sm, title)
        case _:
            raise UsageError(f"kernels have no stage `{stage}`; they have kernels, llvm, c, cuda, ptx")


# ---------------------------------------------------------------- running


def flags(graph: Graph) -> tuple[Flag, ...]:
    """The scalars and the tensors that a graph reads."""
    scalars = tuple(samples.scalar_flag(s.name, s.elem) for s in standalone.scalars(graph))
    return (*scalars, *(Flag(t.name, Elem.STR, "", "a .npy file") for t in standalone.inputs(graph)))


def run(graph: Graph, values: Mapping[str, Value], natively: bool, decisions: list[Decision] | None = None) -> list[str]:
    """Compute a graph; gives lines that say what came out. What fusion decides is added to `decisions`."""
    given: dict[Any, Any] = {s: DTYPES[s.elem].type(values[s.name]) for s in standalone.scalars(graph)}
    for t in standalone.inputs(graph):
        given[t] = _tensor(t, tuple(standalone.extent(n, given) for n in t.shape), str(values[t.name]))
    target = cpu.vectors()
    fused = standalone.fused(graph, target, decisions)
    launches = standalone.kernels(fused, target)
    results = standalone.run(fused, launches, given, _both if natively else interpret)
    return [f"{t.name} = {samples.text(a, t.elem)}" for t, a in results.items()]


def _both(kernel: Kernel, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """By the interpreter and natively."""
    from tlc.backends.runtime.kernel_run import run as run_natively

    again = [o.copy() for o in outputs]
    interpret(kernel, outputs, inputs)
    run_natively(kernel, again, inputs)
    for a, b in zip(outputs, again, strict=True):
        equal = np.array_equal(a, b, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b)
        if not equal:
            raise InternalError("native code and the interpreter give different bits", f"kernel {kernel.name}")


def _tensor(t: Tensor, shape: tuple[int, ...], path: str) -> Any:
    """The array of a file, or numbers that are always the same."""
    samples.sized(f"tensor `{t.name}`", shape)
    if not path:
        return samples.numbers(shape, t.elem)
    try:
        array = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read `{path}` for `{t.name}`: {error}") from None
    if array.size != prod(shape) or array.dtype != DTYPES[t.elem]:
        found = f"{array.dtype}{list(array.shape)}"
        raise UsageError(f"`{path}` is {found}, and `{t.name}` has {prod(shape)} elements of {DTYPES[t.elem]}")
    return (rounded(array, t.elem) if t.elem is Elem.BF16 else array).reshape(shape)

"""A graph without a program: the kernels that compute it, in the order in which they run.

`kernels(graph, target)` fuses the graph and schedules every node whose result somebody needs. A kernel is called after the graph, with a
number behind where there are several, its parameters after the tensors. `run` computes a graph by the interpreter of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.fuse import Decision, fuse
from tlc.tensor.graph.ir import Expr, Graph, Scalar, Tensor, walk
from tlc.tensor.graph.verify import verify as verify_graph
from tlc.tensor.kernel.interp import run as interpret
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.rename import renamed
from tlc.tensor.kernel.verify import verify
from tlc.tensor.lower import live_nodes
from tlc.tensor.pack import pack
from tlc.tensor.schedule import Target, schedule

Array = np.ndarray[Any, Any]
Call = Callable[[Kernel, Sequence[Array], Sequence[Any]], None]  # runs a kernel on outputs and inputs


@dataclass(frozen=True)
class Launch:
    """One kernel, the tensors that it makes (those that it only works in last), and what it is given."""

    kernel: Kernel
    results: tuple[Tensor, ...]
    operands: tuple[Tensor | Scalar, ...]


def fused(graph: Graph, target: Target, decisions: list[Decision] | None = None) -> Graph:
    """The graph with as few nodes as pays, without those that nobody needs. What fusion decides is added to `decisions`."""
    verify_graph(graph)
    better = fuse(graph, decisions)
    if not target.plain:
        better = pack(better, dots=target.dots, pairs=target.pairs)
    better = replace(better, nodes=live_nodes(better))
    verify_graph(better)
    return better


def kernels(graph: Graph, target: Target) -> list[Launch]:
    """The launches that compute a fused graph. What applies functions of a program cannot stand alone."""
    out: list[Launch] = []
    for k, node in enumerate(graph.nodes):
        if "apply" in node.ops:
            raise InternalError(f"`{node.results[0].name}` applies a function, and there is no program", f"graph {graph.name}")
        scheduled = schedule(node, graph.name if len(graph.nodes) == 1 else f"{graph.name}_{k}", target)
        results = (*node.results, *scheduled.work)
        own = zip(scheduled.kernel.parameters, (*results, *scheduled.operands), strict=True)
        kernel = renamed(scheduled.kernel, {parameter.name: value.name for parameter, value in own})
        verify(kernel, expanded=target.expands)
        out.append(Launch(kernel, results, scheduled.operands))
    return out


def inputs(graph: Graph) -> tuple[Tensor, ...]:
    """The tensors that a graph reads and does not make."""
    made = {t for node in graph.nodes for t in node.results}
    return tuple(dict.fromkeys(t for node in graph.nodes for t in node.sources if t not in made))


def scalars(graph: Graph) -> tuple[Scalar, ...]:
    """The scalars that a graph reads."""
    shapes = [n for node in graph.nodes for t in (*node.results, *node.sources) for n in t.shape]
    roots = [e for node in graph.nodes for e in (*node.roots, *node.domain)]
    return tuple(dict.fromkeys(e.data for e in walk([*roots, *shapes]) if e.op == "scalar"))


def extent(e: Expr, values: Mapping[Any, Any]) -> int:
    """The number that an extent is."""
    done: dict[Expr, Any] = {}
    for x in walk([e]):
        match x.op:
            case "const":
                done[x] = np.int64(x.data)
            case "scalar":
                done[x] = np.int64(values[x.data])
            case _:
                done[x] = SCALAR_OPS[x.op].evaluate(Elem.I64, *(done[a] for a in x.args))
    return int(done[e])


def run(graph: Graph, launches: Sequence[Launch], given: Mapping[Any, Any], call: Call = interpret) -> dict[Tensor, Array]:
    """The kept tensors of a graph, from the values of its inputs and scalars."""
    values: dict[Any, Any] = dict(given)
    for launch in launches:
        outputs = [np.zeros([extent(n, values) for n in t.shape], DTYPES[t.elem]) for t in launch.results]
        call(launch.kernel, outputs, [values[x] for x in launch.operands])
        values.update(zip(launch.results, outputs, strict=True))
    return {t: values[t] for t in graph.kept}

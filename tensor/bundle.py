"""Bundles: nodes that go through the same rows become one kernel, a row after the other.

    m[i] = max[j] x[i, j]                       for i {
    e[i, j] = exp(x[i, j] - m[i])                 m = max[j] x[i, j]
    s[i] = sum[j] e[i, j]               ->        for j { y[i, j] = exp(x[i, j] - m) }
    y[i, j] = e[i, j] / s[i]                      s = sum[j] y[i, j]
                                                  for j { y[i, j] = y[i, j] / s } }

Each node would go through all the memory that the one before it wrote; in a bundle a row stays in the cache from the first node
to the last. What only the bundle reads needs no memory of its own: one number a row is a variable, and a row may lie where
a later result of the same kind will.

A bundle is a run of neighbouring nodes of a graph: reductions whose outputs are the rows (at least one), and element-wise nodes over the
rows and more. All have the same first extents, and whatever one reads of another is of its own row. Products (a tile reuses what it
loads for many rows), calls, scatters, searches and what is reduced down columns of memory stay alone.

Requires: a fused graph. Preserves: every result to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Graph, Node, Tensor, axes_of, axis, walk
from tlc.tensor.pack import along

MOST = 8  # nodes in a bundle
MOST_INPUTS = 24


@dataclass(frozen=True)
class Bundle:
    """Nodes over the same `depth` first axes. `results` are what others read; `variables` are one number a row; `lent` tensors lie
    in the memory of a later result.
    """

    nodes: tuple[Node, ...]
    depth: int
    results: tuple[Tensor, ...]
    variables: frozenset[Tensor]
    lent: dict[Tensor, Tensor]


def bundles(graph: Graph, nodes: Sequence[Node], everything: Sequence[Node]) -> list[Bundle | Node]:
    """The nodes in their order, neighbours bundled where that pays; `everything` are all nodes that read."""
    out: list[Bundle | Node] = []
    run: list[Node] = []
    for node in nodes:
        if run and not (_depth([*run, node]) and _belongs(run, node) and _may_wait(graph, run, node)):
            out += _closed(graph, everything, run)
            run = []
        run.append(node)
    return out + _closed(graph, everything, run)


def _closed(graph: Graph, nodes: Sequence[Node], run: list[Node]) -> list[Bundle | Node]:
    depth = _depth(run) if len(run) > 1 else 0
    if not depth or not any(n.reduction for n in run):
        return list(run)
    needed = set(graph.kept).union(*(n.sources for n in nodes if n not in run))
    inner = [t for n in run for t in n.results if t not in needed]
    variables = frozenset(t for t in inner if t.rank == depth)
    lent: dict[Tensor, Tensor] = {}
    taken: set[Tensor] = set()
    for t in reversed(inner):  # a home that is lent itself lies in its own home by then
        home = None if t.rank == depth else _home(run, t)
        if home is not None and home not in taken:
            taken.add(home)
            lent[t] = lent.get(home, home)
    results = tuple(t for n in run for t in n.results if t not in variables and t not in lent)
    return [Bundle(tuple(run), depth, results, variables, lent)]


def _depth(run: Sequence[Node]) -> int:
    """How many axes the rows of these nodes have; 0 if they do not go together."""
    ranks = {n.rank for n in run if n.reduction}
    depth = ranks.pop() if ranks else min(n.rank for n in run) - 1
    if ranks or depth < 1 or len(run) > MOST or not all(map(_may_join, run)):
        return 0
    first = run[0]
    for n in run:
        if n.rank < depth or not all(equal(a, b) for a, b in zip(first.extents[:depth], n.extents[:depth], strict=True)):
            return 0
        if n.reduction is None and n.rank == depth and not _reads_variables(run, n):
            return 0
    own = {t for n in run for t in n.results}
    rows = tuple(axis(k) for k in range(depth))
    for n in run:
        for e in n.loads:
            if e.data.tensor in own and (e.args[:depth] != rows or e.guard is not None or e.data.shape != e.data.tensor.shape):
                return 0
    if len({t for n in run for t in n.sources} - own) > MOST_INPUTS:
        return 0
    return depth


def _may_join(node: Node) -> bool:
    if node.scatter or "apply" in node.ops or Elem.STR in node.elems:
        return False
    r = node.reduction
    if r is None:
        return True
    if r.op in ("argmax", "argmin") or r.order in ONE_BY_ONE or len(r.terms) != 1 or axes_of(r.extents):
        return False
    scattered = [sum(along(k, e) == "scattered" for e in walk(r.terms) if e.op == "load") for k in range(len(node.domain))]
    return scattered[-1] <= min(scattered[: node.rank], default=scattered[-1])


def _reads_variables(run: Sequence[Node], node: Node) -> bool:
    """Whether a node of one number a row has to do with others of the run."""
    return any(set(n.results) & node.sources.keys() for n in run)


def _belongs(run: Sequence[Node], node: Node) -> bool:
    """Whether a node reads what the run makes or reads."""
    known = {t for n in run for t in (*n.results, *n.sources) if t.rank}
    return bool(known & node.sources.keys())


def _may_wait(graph: Graph, run: Sequence[Node], node: Node) -> bool:
    """Whether the nodes of a run may be done only when this one is."""
    place = graph.place(node)
    return all(graph.may_run_at(n, place) for n in run)


def _home(run: Sequence[Node], tensor: Tensor) -> Tensor | None:
    """A result of the last reader that is stored, element by element, where the tensor was read."""
    readers = [n for n in run if tensor in n.sources]
    if not readers or readers[-1].reduction:
        return None
    last = readers[-1]
    here = tuple(axis(k) for k in range(last.rank))
    if any(e.args != here for e in last.loads if e.data.tensor is tensor):
        return None
    return next((t for t in last.results if t.elem is tensor.elem and t.rank == tensor.rank and _same_shape(t, tensor)), None)


def _same_shape(a: Tensor, b: Tensor) -> bool:
    return all(equal(m, n) for m, n in zip(a.shape, b.shape, strict=True))

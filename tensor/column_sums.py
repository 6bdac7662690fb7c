"""Sums down the columns of large matrices: which they are, and which are taken in one walk.

    dscale[j] = sum[i] dy[i, j] * y[i, j]          for i { for j { a[j] += dy[i, j] * y[i, j]; b[j] += dy[i, j] } }
    dshift[j] = sum[i] dy[i, j]

A matrix that the core's cache does not hold comes from memory for each sum that goes down it: sums of order `lanes` over the same rows and
columns that share a matrix, and stand beside each other, become one kernel (`stream_lanes` in `tensor/stream_nests.py`).

Requires: a fused graph. Preserves: every result to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tlc.frontend.records import dataclass
from tlc.tensor.bundle import Bundle
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Expr, Graph, Node, Tensor, axes_of, walk
from tlc.tensor.pack import along

COLUMN, ROW = 0, 1  # the axes of such a node
SHORT = 64  # rows or columns: fewer are no large matrix
USUAL = 1024  # rows or columns where that is not known
MOST = 4  # sums in one walk


@dataclass(frozen=True)
class Columns:
    """Sums that are taken in one walk."""

    nodes: tuple[Node, ...]


def matrices(node: Node) -> list[Expr]:
    """The loads of a reduction that go down the columns of a matrix as it lies in memory."""
    terms = node.reduction.terms if node.reduction else ()
    loads = [e for e in walk(terms) if e.op == "load"]
    return [e for e in loads if along(COLUMN, e) == "contiguous" and along(ROW, e) == "scattered"]


def is_long_walk(node: Node, near: int) -> bool:
    """Whether a node is a sum of order `lanes` down the columns of matrices of more than `near` bytes."""
    r = node.reduction
    if r is None or node.scatter or r.order != "lanes" or r.op not in ("sum", "prod") or not r.terms[0].elem.is_real:
        return False
    if node.rank != 1 or len(r.extents) != 1 or axes_of(r.extents) or any((n.value or USUAL) < SHORT for n in node.domain):
        return False
    rows, columns = (node.domain[k].value or USUAL for k in (ROW, COLUMN))
    calls = "apply" in node.ops
    return not calls and rows * columns * sum(e.elem.bytes for e in matrices(node)) > near


def in_one_walk(graph: Graph, works: Iterable[Bundle | Node], near: int) -> Iterator[Bundle | Node | Columns]:
    """Bundles and nodes in their order, neighbours that go down the same matrices together."""
    run: list[Node] = []
    for work in works:
        if isinstance(work, Node) and is_long_walk(work, near) and (not run or _goes_along(graph, run, work)):
            run.append(work)
            continue
        yield from _closed(run)
        run = [work] if isinstance(work, Node) and is_long_walk(work, near) else []
        if not run:
            yield work
    yield from _closed(run)


def _closed(run: Sequence[Node]) -> Iterable[Node | Columns]:
    return [Columns(tuple(run))] if len(run) > 1 else run


def _goes_along(graph: Graph, run: Sequence[Node], node: Node) -> bool:
    """Whether a sum can be taken with those of a run, which then wait for it, and reads a matrix that they read."""
    made: set[Tensor] = {t for n in run for t in n.results}
    known = {e.data.tensor for n in run for e in matrices(n)}
    place = graph.place(node)
    return (
        len(run) < MOST
        and not made & node.sources.keys()
        and any(e.data.tensor in known for e in matrices(node))
        and all(equal(a, b) for a, b in zip(run[0].domain, node.domain, strict=True))
        and all(graph.may_run_at(n, place) for n in run)
    )

"""The nest of short windows: reductions over a few elements of known number, such as pooling.

    y[i, j] = max[p < 2, q < 2] x[2 i + p, 2 j + q]

    for i { vector j { y[i, j] = max(max(x[2 i, 2 j], x[2 i, 2 j + 1]), max(x[2 i + 1, 2 j], ..)) } }

Vectors run along an output axis, and the elements of a window are written out one after the other, so there is no loop within and no
accumulator in memory. `argmax` and `argmin` keep the best and where it was.

The order of a sum is that of `lanes` (ssa/reductions.py): of at most sixteen elements each has a lane of its own, and what adds them is
the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tlc.ssa.reductions import LANES, ONE_BY_ONE
from tlc.tensor.emit import Scope
from tlc.tensor.graph.index import slope
from tlc.tensor.graph.ir import Node, axes_of, walk
from tlc.tensor.kernel.ir import Expr, Var, const, op
from tlc.tensor.nests import Nest, combine, unit

NEAR = 4  # elements from one window to the next that a vector load still bridges


def is_window(node: Node) -> bool:
    """Whether a node reduces few elements, which lie near those of its neighbours along the last axis of the output."""
    r = node.reduction
    if r is None or not node.rank or r.order in ONE_BY_ONE or len(r.terms) != 1 or (node.extents[-1].value or 0) < 4:
        return False
    count = 1
    for n in r.extents:
        count *= n.value or LANES + 1
    if not 1 < count <= LANES:
        return False
    v = node.rank - 1
    for e in walk(r.terms):
        if e.op in ("apply", "whole"):
            return False
        if e.op == "load" and v in axes_of(e.indices):
            *outer, last = (slope(i, v) for i in e.indices)
            if any(s is None or s.value != 0 for s in outer) or last is None or not 0 < (last.value or 0) <= NEAR:
                return False
    return any(e.op == "load" and v in axes_of(e.indices) for e in walk(r.terms))


def window(nest: Nest, width: int) -> None:
    """Write the nest of a node that `is_window`."""
    node = nest.node
    v = node.rank - 1

    def piece(s: Scope, first: Expr, count: Expr, lanes: int) -> None:
        def lane(x: Scope, _: Var) -> None:
            elements = [_element(nest, x, at) for at in product(*(range(n.value or 0) for n in nest.reduction.extents))]
            x.accs = tuple(_searched(nest, x, elements) if nest.reduction.op.startswith("arg") else (_reduced(nest, x, elements),))
            nest.store(x)

        nest.vector_along(s, v, first, count, lanes, lane)

    around = [k for k in nest.own if k != v]
    nest.guard_axes(nest.top, lambda g: nest.each(g, around, lambda s: nest.chunks(s, v, width, piece)))


def _element(nest: Nest, scope: Scope, at: Sequence[int]) -> Var:
    """The term at a place of the window."""
    inner = Scope(scope)
    inner.axes.update({axis: const(p) for axis, p in zip(nest.reduced, at, strict=True)})
    value = nest.emitter.emit(nest.reduction.terms[0], inner)
    scope.body.extend(inner.body)
    return nest.bound(scope, value)


def _reduced(nest: Nest, scope: Scope, elements: Sequence[Expr]) -> Expr:
    r = nest.reduction
    start = unit(r.op, r.terms[0].elem)
    lanes = [nest.bound(scope, combine(r.op, start, [e])) for e in elements] if r.op in ("sum", "prod") else list(elements)
    half = LANES // 2
    while half:
        for k in range(len(lanes) - half):
            lanes[k] = nest.bound(scope, combine(r.op, lanes[k], [lanes[k + half]]))
        lanes = lanes[: max(half, 1)]
        half //= 2
    return lanes[0]


def _searched(nest: Nest, scope: Scope, elements: Sequence[Expr]) -> list[Expr]:
    """Where the first of the best is; NaN is better than anything."""
    r = nest.reduction
    better_than = "gt" if r.op == "argmax" else "lt"
    places = list(product(*(range(n.value or 0) for n in r.extents)))
    best, where = elements[0], [const(p) for p in places[0]]
    out: list[Expr] = list(where)
    for x, at in zip(elements[1:], places[1:], strict=True):
        better: Expr = op(better_than, x, best)
        if x.elem.is_real:
            better = op("or", better, op("and", op("isnan", x), op("not", op("isnan", best))))
        held = nest.bound(scope, better)
        best = nest.bound(scope, op("select", held, x, best))
        out = [o if o == const(p) else nest.bound(scope, op("select", held, const(p), o)) for o, p in zip(out, at, strict=True)]
    return out

"""Axes that always go together become one.

    y[i, j] = x[i, j] + z[i, j]     for i < n, j < 10     becomes     y'[p] = x'[p] + z'[p]     for p < 10 n

where x' is the same memory in the shape [10 n]. Two neighbouring axes i, j of a node (both of the output, or both reduced)
are one if they occur nowhere but as neighbouring indices `.., i, j, ..` of loads whose view has the extent of j there.
Positions in row-major order stay what they were, so the order of a reduction does too. Requires nothing; the result has
the same outputs in fewer dimensions.
"""

from __future__ import annotations

from dataclasses import replace

from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Expr, Node, View, axes_of, axis, load, op, rebuild, transform, walk


def collapse(node: Node) -> Node:
    """The node with as few axes as possible."""
    k = len(node.domain) - 2
    while k >= 0:
        if _together(node, k):
            node = _merge(node, k)
        k -= 1
    return node


def _together(node: Node, k: int) -> bool:
    """Whether axes k and k + 1 may become one."""
    if k + 1 == node.rank or (node.scatter and k < node.rank):
        return False
    if node.reduction and k >= node.rank and node.reduction.op in ("argmax", "argmin"):
        return False
    if axes_of(node.domain) & {k, k + 1}:
        return False
    pair = {k, k + 1}
    first, second = axis(k), axis(k + 1)
    roots = (*node.roots, *node.domain)
    # every occurrence of the two axes is in a load at neighbouring positions
    for e in walk(roots):
        if e.op == "load":
            for at, i in enumerate(e.args):  # a guard among them is neither of the two itself
                if i is first:
                    if not (at + 1 < len(e.args) and e.args[at + 1] is second and equal(e.data.shape[at + 1], node.domain[k + 1])):
                        return False
                elif i is second:
                    if not (at and e.args[at - 1] is first):
                        return False
                elif _direct(i) & pair:
                    return False
        elif any(a is first or a is second for a in e.args):
            return False
    return not any(e is first or e is second for e in roots)


def _direct(index: Expr) -> frozenset[int]:
    """Axes of an index outside of further loads."""
    if index.op == "axis":
        return frozenset((index.data,))
    if index.op == "load":
        return frozenset()
    return frozenset().union(*(_direct(a) for a in index.args))


def _merge(node: Node, k: int) -> Node:
    first = axis(k)

    def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op == "axis":
            number: int = e.data
            return axis(number - 1) if number > k + 1 else e
        if e.op == "load" and first in e.args:
            view: View = e.data
            rank = len(view.shape)
            pairs = [at for at in range(rank) if e.args[at] is first]  # more than one where it reads a diagonal
            shape = [op("mul", n, view.shape[at + 1]) if at in pairs else n for at, n in enumerate(view.shape)]
            kept = [at for at in range(rank) if at - 1 not in pairs]
            return load(view.tensor, [first if at in pairs else args[at] for at in kept], [shape[at] for at in kept], *args[rank:])
        return rebuild(e, args) if args else e

    r = node.reduction
    roots = (*node.roots, *node.domain)
    changed = dict(zip(roots, transform(roots, change), strict=True))
    new = node.rebuilt(lambda e: changed[e])
    extents, reduction = new.extents, new.reduction
    joined = op("mul", node.domain[k], node.domain[k + 1])
    if k < node.rank:
        extents = (*extents[:k], joined, *extents[k + 2 :])
    elif r and reduction:
        at = k - node.rank
        reduction = replace(reduction, extents=(*reduction.extents[:at], joined, *reduction.extents[at + 2 :]))
    return Node(new.results, extents, new.outputs, reduction, new.scatter, new.span, new.notes)

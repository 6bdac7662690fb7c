"""Copies that make the operands of a chain contiguous.

    y[i, j] = sum[k] a[i, k] * b[j, k]          b moves along k, and no axis of the output makes vectors of it, so

    p[k, j] = b[j, k]
    y[i, j] = sum[k] a[i, k] * p[k, j]

is worth its copy, because each element of b is read once for every i. A load is packed if it is scattered along the output
axis that vectors would run along (the last), and some output axis of four elements or more does not occur in it. Where
another output axis does without a copy (`sum[k] a[k, i] * b[j, k]`: vectors along i, whose results lie apart), the last must be long.

A factor of a product that is a converted load, as of a matrix of `f16` or `i8`, is converted in a copy, if it is read often: the
tiles would convert it anew each time, one element after the other where it is the same for all lanes.

Requires: a fused graph. Preserves: every result to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.graph.index import slope
from tlc.tensor.graph.ir import Expr, Graph, Node, Tensor, axes_of, axis, load, substitute, walk
from tlc.tensor.rims import is_repeated, rimmed, with_terms_read
from tlc.tensor.words import in_words

WORTH = 4  # an axis that is repeated fewer times does not pay for a copy
OFTEN = 32  # how many times a number is read for which it is converted in a copy
STORES = 64  # elements of the last axis from which on results that are stored one by one cost more than a copy


def pack(graph: Graph, leave: Collection[Tensor] = (), dots: int = 0, pairs: bool = False) -> Graph:
    """The graph with packing nodes before the chains that want them. Those whose results are to be left stay as they are. `dots` and
    `pairs` are of the target.
    """
    nodes: list[Node] = []
    places = dict(graph.places)
    for node in graph.nodes:
        copies, better = _prepared(node, dots, pairs) if node.results[0] not in leave else ([], node)
        for c in copies:
            places[c.results[0]] = graph.place(node)
        nodes += [*copies, better]
    return replace(graph, nodes=nodes, places=places)


def _prepared(node: Node, dots: int, pairs: bool) -> tuple[list[Node], Node]:
    """A copy with a rim may be packed in its turn: what is packed then is read without a guard."""
    rims, inner = rimmed(node)
    words, dot = in_words(inner, dots, pairs)
    wide, read = widened(dot)
    copies, better = packed(read)
    return [*rims, *words, *wide, *copies], better


def widened(node: Node) -> tuple[list[Node], Node]:
    """Copies of what is converted in the factors of a product, and the node that reads them."""
    r = node.reduction
    if r is None or node.scatter or axes_of(r.extents):
        return [], node
    factors = r.terms[0].args if len(r.terms) == 1 and r.op == "sum" and r.terms[0].op == "mul" else r.terms  # of integers, or of reals
    copies: list[Node] = []
    new: dict[Expr, Expr] = {}
    for e in factors if len(factors) == 2 else ():
        if e.op != "convert" or e.args[0].op != "load" or e.args[0].guard is not None or e in new:
            continue
        narrow = e.args[0]
        order = [i.data for i in narrow.indices if i.op == "axis"]
        if len(order) < len(narrow.indices) or len(set(order)) < len(order) or not is_repeated(node, narrow, OFTEN):
            continue
        tensor: Tensor = narrow.data.tensor
        copy, new[e] = _copy(node, e, order, f"{tensor.name}.wide{len(copies)}", f"{tensor.name} is converted")
        copies.append(copy)
    return copies, with_terms_read(node, new)


def packed(node: Node) -> tuple[list[Node], Node]:
    """Copies to make first, and the node that reads them."""
    r = node.reduction
    if r is None or r.order not in ONE_BY_ONE or not node.rank or not (r.terms[0].elem.is_real or len(r.terms) == 2) or node.scatter:
        return [], node
    tied = axes_of(r.extents)
    if tied:
        return [], node
    term_loads = [e for e in walk(r.terms) if e.op == "load"]
    columns = [k for k in range(node.rank) if (node.extents[k].value or WORTH) >= WORTH]
    straight = [k for k in columns if not any(along(k, e) == "scattered" for e in term_loads)]
    last = node.rank - 1
    if not columns or last in straight or (straight and (node.extents[last].value or 0) < STORES):
        return [], node
    v = min(reversed(columns), key=lambda k: _copied(node, term_loads, k))
    copies: list[Node] = []
    new: dict[Expr, Expr] = {}
    for e in term_loads:
        own = axes_of([e])
        if along(v, e) == "scattered" and is_repeated(node, e, WORTH):
            order = [*sorted(own - {v}), v]
            tensor: Tensor = e.data.tensor
            copy, new[e] = _copy(node, e, order, f"{tensor.name}.packed{len(copies)}", f"{tensor.name} is packed")
            copies.append(copy)
    return copies, with_terms_read(node, new)


def _copy(node: Node, e: Expr, order: Sequence[int], name: str, why: str) -> tuple[Node, Expr]:
    """A node that makes a tensor of what an expression of a node is along some axes, in this order; and the load that reads it there."""
    shape = tuple(node.domain[k] for k in order)
    tensor = Tensor(name, e.elem, shape)
    moved = substitute(e, {k: axis(at) for at, k in enumerate(order)})
    copy = Node((tensor,), shape, (moved,), span=node.span, notes=(f"{why} for {node.results[0].name}",))
    return copy, load(tensor, [axis(k) for k in order])


def _copied(node: Node, term_loads: list[Expr], v: int) -> int:
    """The price of vectors along an axis: how many elements are copied. Where results are then stored one by one, twice that has to be
    saved, and each of them counts as eight; where sizes are not known, all axes are alike.
    """
    if any(n.value is None for n in node.domain):
        return 0
    sizes = [n.value or 0 for n in node.domain]
    total = 0
    for e in term_loads:
        if along(v, e) == "scattered":
            total += prod(sizes[k] for k in axes_of([e])) if is_repeated(node, e, WORTH) else prod(sizes)
    return total if v == node.rank - 1 else 2 * (total + 8 * prod(sizes[: node.rank]))


def along(k: int, e: Expr) -> str:
    """How a load moves along an axis: `fixed`, `contiguous` (by one element a step) or `scattered`."""
    steps = [slope(i, k) for i in e.indices]
    if all(s is not None and s.value == 0 for s in steps):
        return "fixed" if e.guard is None or k not in axes_of([e.guard]) else "scattered"
    if steps[-1] is not None and steps[-1].value == 1 and all(s is not None and s.value == 0 for s in steps[:-1]):
        return "contiguous"
    return "scattered"

"""Copies with a rim of zeros, for chains that read under a guard.

    y[o, i, j] = sum[c, p, q] x[c, i + p - 1, j + q - 1 if it exists] * k[o, c, p, q]

reads each element of x many times, and asks each time whether it exists. So x is copied once, with what lies outside:

    r[c, i, j] = x[c, i - 1, j - 1 if it exists]                          for i < h + 2, j < w + 2
    y[o, i, j] = sum[c, p, q] r[c, i + p, j + q] * k[o, c, p, q]

An index of the copy is an index of the load, less its least value. That can be done if each index is an axis alone, or a sum of axes of
known extents times constants, and the guard is a condition on the indices alone, once an axis of each is expressed by the index. It pays
because some axis of the output does not occur in the load.

Requires: a fused graph. Preserves: every result to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from tlc.frontend.records import dataclass
from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.graph.index import Poly, Ranges, from_poly, poly_sum, to_poly
from tlc.tensor.graph.ir import Expr, Node, Tensor, axes_of, axis, const, load, op, rebuild, substitute, transform, walk

WORTH = 8  # an axis that is repeated fewer times does not pay for a copy


@dataclass(frozen=True)
class Way:
    """How an index of a load moves: over `extent` values from `least` on. It is `sign` times the axis `by` plus the rest; a number has no
    axis.
    """

    least: int
    extent: Expr
    by: int | None = None
    sign: int = 1
    rest: Poly = field(default_factory=dict)


def rimmed(node: Node) -> tuple[list[Node], Node]:
    """Copies to make first, and the node that reads them."""
    r = node.reduction
    if r is None or r.order not in ONE_BY_ONE or len(r.terms) != 2 or not node.rank or node.scatter or axes_of(r.extents):
        return [], node
    copies: list[Node] = []
    new: dict[Expr, Expr] = {}
    for e in walk(r.terms):
        if e.op == "load" and e.guard is not None and is_repeated(node, e, WORTH):
            found = _copy(node, e, len(copies))
            if found is not None:
                copies.append(found[0])
                new[e] = found[1]
    if not copies:
        return [], node

    return copies, with_terms_read(node, new)


def with_terms_read(node: Node, new: Mapping[Expr, Expr]) -> Node:
    """The node with loads of its reduced terms replaced by others."""

    def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
        return new.get(e) or (rebuild(e, args) if args else e)

    assert node.reduction is not None
    return replace(node, reduction=replace(node.reduction, terms=transform(node.reduction.terms, change)))


def is_repeated(node: Node, e: Expr, least: int) -> bool:
    """Whether an axis of the output with `least` elements or more does not occur in a load, which is then read that often."""
    own = axes_of([e])
    return any(k not in own and (node.extents[k].value or least) >= least for k in range(node.rank))


def _copy(node: Node, e: Expr, number: int) -> tuple[Node, Expr] | None:
    """The copy, and the load of it that stands for a guarded one."""
    ways = [_way(node, i, e.indices) for i in e.indices]
    rank = len(ways)
    known = [w for w in ways if w is not None]
    solved = [w.by for w in known if w.by is not None]
    if len(known) < rank or len(set(solved)) < len(solved) or all(w.by is None or w.extent is node.domain[w.by] for w in known):
        return None
    extents = tuple(w.extent for w in known)
    ranges = Ranges((*extents, *node.domain))
    moved = {k: axis(rank + k) for k in range(len(node.domain))}
    places = [op("add", axis(k), const(w.least)) for k, w in enumerate(known)]
    for w, place in zip(known, places, strict=True):
        if w.by is None:
            continue
        rest = substitute(from_poly(w.rest), dict(moved))
        moved[w.by] = op("sub", place, rest) if w.sign > 0 else op("sub", rest, place)
    assert e.guard is not None
    guard = ranges.simplify(substitute(e.guard, moved))
    if any(k >= rank for k in axes_of([guard])):
        return None
    tensor = Tensor(f"{e.data.tensor.name}.rim{number}", e.elem, extents)
    value = load(e.data.tensor, ranges.simplify_all(places), e.data.shape, guard)
    copy = Node((tensor,), extents, (value,), span=node.span, notes=(f"{e.data.tensor.name} gets a rim for {node.results[0].name}",))
    inner = Ranges(node.domain)
    at = [inner.simplify(op("sub", i, const(w.least))) for i, w in zip(e.indices, known, strict=True)]
    return copy, load(tensor, at)


def _way(node: Node, index: Expr, others: tuple[Expr, ...]) -> Way | None:
    """How an index moves; the axis in terms of which the guard is put is an outer one of no other index, if there is one."""
    p = to_poly(index)
    if index.op == "axis":
        return Way(0, node.domain[index.data], index.data)
    if index.value is not None:
        return Way(index.value, const(1))
    least, most = p.get((), 0), p.get((), 0)
    by: tuple[int, int] | None = None
    for m, c in p.items():
        if not m:
            continue
        if len(m) > 1 or m[0].op != "axis" or node.domain[m[0].data].value is None:
            return None
        k: int = m[0].data
        reach = c * ((node.domain[k].value or 0) - 1)
        least, most = least + min(reach, 0), most + max(reach, 0)
        if abs(c) == 1 and not any(k in axes_of([o]) for o in others if o is not index) and (by is None or k < by[0]):
            by = (k, c)
    if by is None or most < least:
        return None
    k, sign = by
    rest = poly_sum(p, {(axis(k),): -sign})
    return Way(least, const(most - least + 1), k, sign, rest)

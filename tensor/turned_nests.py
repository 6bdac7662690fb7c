"""The nest of products of rows that are read once: `y[i] = sum[k] a[i, k] * x[k]`, a matrix times a vector.

The data lies along k, and each sum is one chain in k, so the lanes of a vector are rows. A square of the matrix is read at once, a line of
each row, and turned in registers: that is what a backend makes of loads that move by rows with the lane, and by elements in the unrolled
loop within.

    for blocks of i { acc = 0; for blocks of k { vector i { unroll r { acc[i] = fma(a[i, k + r], x[k + r], acc[i]) } } }; y[i] = acc }
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.tensor.emit import Scope, plus
from tlc.tensor.graph.index import slope
from tlc.tensor.graph.ir import Expr as GraphExpr
from tlc.tensor.graph.ir import Node, axes_of, walk
from tlc.tensor.kernel.ir import Expr, Load, Store, Var
from tlc.tensor.nests import Nest, unit


def is_turned(node: Node, v: int, width: int) -> bool:
    """Whether the loads of a product that move with axis v do so from row to row, and along the rows with the last reduced axis."""
    r = node.reduction
    if r is None or len(r.terms) != 2 or r.terms[0].elem.bytes != 4:
        return False
    last = len(node.domain) - 1
    if any((n.value or width) < width for n in (node.extents[v], r.extents[-1])):
        return False
    loads = [e for e in walk(r.terms) if e.op == "load" and v in axes_of([e])]
    return bool(loads) and all(_is_matrix(e, v, last) for e in loads)


def _is_matrix(e: GraphExpr, v: int, k: int) -> bool:
    """Whether a load moves by one element along axis k, by rows along axis v, and is not guarded."""
    *outer, inner = e.indices
    step = slope(inner, k)
    return (
        e.guard is None
        and step is not None
        and step.value == 1
        and v not in axes_of([inner])
        and k not in axes_of(outer)
        and v in axes_of(outer)
    )


def turned(nest: Nest, v: int, width: int) -> None:
    """Write the nest of a node that `is_turned`."""
    node, r = nest.node, nest.reduction
    around = [k for k in range(node.rank) if k != v]
    *outer, last = nest.reduced

    def block(scope: Scope, first: Expr, count: Expr, lanes: int) -> None:
        inner = Scope(scope)
        acc = nest.local(inner, r.terms[0].elem, lanes)

        def rows(s: Scope, fill: Callable[[Scope, Var], None]) -> None:
            nest.vector_along(s, v, first, count, lanes, fill)

        def square(s: Scope, k: Expr, depth: int) -> None:
            def step(x: Scope, at: Expr, l: Var) -> None:
                x.axes[last] = at
                nest.accumulate(x, acc, (l,))

            if depth == 1:
                rows(s, lambda x, l: step(x, k, l))
            else:
                rows(s, lambda x, l: nest.unroll(x, depth, lambda y, p: step(y, plus(k, p), l)))

        def finish(s: Scope, l: Var) -> None:
            s.accs = (Load(acc, (l,)),)
            nest.store(s)

        rows(inner, lambda x, l: x.body.append(Store(acc, (l,), unit(r.op, acc.elem))))
        nest.emitter.guarded(inner, r.extents, lambda g: nest.serial(g, outer, lambda s: nest.together(s, last, width, square)))
        rows(inner, finish)
        scope.body.extend(inner.body)

    nest.guard_axes(nest.top, lambda g: nest.each(g, around, lambda s: nest.chunks(s, v, width, block)))

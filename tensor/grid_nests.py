"""Nests for a GPU: grids of threads (`tensor/kernel/grid.py`).

    points    block b { thread t { let p = b * 256 + t; if p < n { y[p] = .. } } }     a thread an element, with all of its reduction
    scatter   the base is copied; then a thread goes through all that is added to its elements

What a thread does is the nest of a row in which all axes are bound, so the order of a reduction is the one that it has everywhere. Nothing
leaves the program of a thread: a value that does not vary is in a register of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlc.tensor.emit import Scope, plus, times
from tlc.tensor.graph.ir import Node, axes_of
from tlc.tensor.kernel.ir import WARP, Const, Expr, For, If, Kind, Stmt, Var, const, op
from tlc.tensor.nests import Fill, Nest

BLOCK = 256  # threads of a block, where nothing asks for another number
LONG = 128  # a last axis of so many elements is cut into blocks by itself: then threads divide nothing

Row = Callable[[Nest], str]  # writes the nest of a node whose output axes are bound; gives a note


def points(nest: Nest, row: Row) -> str:
    """A thread for each element of the output."""
    said: list[str] = []

    def one(scope: Scope) -> None:
        said.append(row(Nest(nest.node, nest.emitter, nest.outputs, 0, scope, nest.node.rank)))

    spread(nest, list(range(nest.node.rank)), one)
    return f"a thread an element, {said[0]}"


def scatter(nest: Nest, base: Node) -> str:
    """Copy the base; then a thread has those elements of the output to which the same indices of the node lead, whatever its other
    indices are, and goes through the others in their order.
    """
    copy = Nest(base, nest.emitter, nest.outputs, 0, nest.top)
    spread(copy, list(range(base.rank)), lambda s: Nest(base, nest.emitter, nest.outputs, 0, s, base.rank).elementwise(1))
    node = nest.node
    assert node.scatter is not None
    direct = {e.data for e in node.scatter.targets if e.op == "axis"}
    own = [k for k in range(node.rank) if k in direct and not axes_of([node.extents[k]])]
    rest = [k for k in range(node.rank) if k not in own]
    spread(nest, own, lambda s: nest.serial(s, rest, nest.add))
    return f"scatter, a thread for each index of {len(own)} axes"


def spread(nest: Nest, axes: Sequence[int], fill: Fill) -> None:
    """A grid with a thread for each combination of indices of some axes, whose extents depend on no axis; `fill` writes its program."""
    extents: list[Expr] = [nest.emitter.extent(nest.node.domain[k]) for k in axes]
    total: Expr
    b, t = Var(nest.emitter.fresh("b")), Var(nest.emitter.fresh("t"))
    before, thread, inner = Scope(), Scope(), Scope()
    *outer, last = extents or [const(1)]
    if outer and isinstance(last, Const) and last.value >= LONG:
        chunks = -(-int(last.value) // BLOCK)
        count = times(_product(outer), const(chunks))
        number: Expr = nest.bound(before, op("floordiv", b, const(chunks))) if chunks > 1 else b
        unravel(nest, before, number, axes[:-1], outer)
        inner.axes |= before.axes
        first = nest.bound(before, op("mod", b, const(chunks))) if chunks > 1 else const(0)
        axes, total = axes[-1:], last
    else:
        total, first = _product([*outer, last]), b
        count = rounded_up(total, BLOCK)
    threads = BLOCK if not isinstance(total, Const) or total.value >= BLOCK else max(-(-int(total.value) // WARP), 1) * WARP
    position = nest.bound(thread, plus(times(first, const(threads)), t))
    unravel(nest, inner, position, axes, extents[-len(axes) :] if axes else [])
    fill(inner)
    full = isinstance(total, Const) and total.value % threads == 0
    thread.body += inner.body if full else [If(op("lt", position, total), tuple(inner.body))]
    nest.top.body.append(grid(b, count, before.body, t, threads, thread.body))


def rounded_up(total: Expr, size: int) -> Expr:
    """How many blocks of a size cover an extent."""
    if isinstance(total, Const):
        return const(-(-int(total.value) // size))
    return op("floordiv", plus(total, const(size - 1)), const(size))


def unravel(nest: Nest, scope: Scope, position: Expr, axes: Sequence[int], extents: Sequence[Expr]) -> None:
    """Bind axes at a row-major position."""
    for n, k in enumerate(reversed(axes)):
        if n + 1 == len(axes):
            scope.axes[k] = position
            return
        extent = extents[len(axes) - 1 - n]
        scope.axes[k] = nest.bound(scope, op("mod", position, extent))
        position = nest.bound(scope, op("floordiv", position, extent))


def grid(b: Var, blocks: Expr, before: Sequence[Stmt], t: Var, threads: int, program: Sequence[Stmt]) -> For:
    thread = For(t, const(0), const(threads), tuple(program), Kind.THREAD)
    return For(b, const(0), blocks, (*before, thread), Kind.BLOCK)


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = const(1)
    for n in extents:
        total = times(total, n)
    return total

"""Nests for a GPU: grids of threads (`tensor/kernel/grid.py`).

    points    block b { thread t { let p = b * 256 + t; if p < n { y[p] = .. } } }     a thread an element, with all of its reduction
    scatter   the base is copied; then a thread goes through all that is added to its elements
    gather    a thread has one element of the output, and goes through all that might be added to it: for outputs of few elements

What a thread does is the nest of a row in which all axes are bound, so the order of a reduction is the one that it has everywhere. Nothing
leaves the program of a thread: a value that does not vary is in a register of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod

from tlc.tensor.emit import Scope, plus, times
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Node, axes_of
from tlc.tensor.kernel.ir import WARP, Const, Expr, For, If, Kind, Load, Stmt, Store, Var, const, op
from tlc.tensor.nests import Fill, Nest

BLOCK = 256  # threads of a block, where nothing asks for another number
MANY = 1 << 20  # elements of the output of a scatter: so many threads would go through all that is added in vain
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
    node = nest.node
    assert node.scatter is not None
    axes = [(k, e.data) for k, e in enumerate(node.scatter.targets) if e.op == "axis"]
    direct = {axis: k for k, axis in reversed(axes) if not axes_of([node.extents[axis]])}
    rest = [k for k in range(node.rank) if k not in direct]
    if rest and prod(n.value or MANY for n in base.extents) < MANY:
        gather(nest, base, direct, rest)
        return f"scatter, a thread an element, which goes through {len(rest)} axes"
    copy = Nest(base, nest.emitter, nest.outputs, 0, nest.top)
    spread(copy, list(range(base.rank)), lambda s: Nest(base, nest.emitter, nest.outputs, 0, s, base.rank).elementwise(1))
    spread(nest, sorted(direct), lambda s: nest.serial(s, rest, nest.add))
    return f"scatter, a thread for each index of {len(direct)} axes"


def gather(nest: Nest, base: Node, direct: Mapping[int, int], rest: Sequence[int]) -> None:
    """A thread has an element of the output in a register. `direct`: which axes of the node are indices of the output, and which of them;
    through the `rest` it goes in their order.
    """
    node, emitter = nest.node, nest.emitter
    assert node.scatter is not None
    (output,), targets = nest.outputs, node.scatter.targets
    assert output is not None
    here = (const(0),)

    def element(scope: Scope) -> None:
        at = [scope.lookup(k) for k in range(base.rank)]
        acc = nest.local(scope, output.elem, 1)
        scope.body.append(Store(acc, here, emitter.emit(base.outputs[0], scope)))
        inner = Scope(axes={k: at[place] for k, place in direct.items()})  # of the node, whose axes are others

        def add(s: Scope) -> None:
            hits = [op("eq", emitter.emit(e, s), at[place]) for place, e in enumerate(targets) if place not in direct.values()]
            value = Scope(s, guard=True)  # it is loaded where it is added
            term = emitter.emit(node.outputs[0], value)
            value.body.append(Store(acc, here, op("add", Load(acc, here), term)))
            s.body.append(_only(hits, value.body))

        nest.serial(inner, rest, add)
        short = [k for k, place in direct.items() if not equal(node.extents[k], base.extents[place])]
        inside = [op("lt", inner.axes[k], emitter.extent(node.extents[k])) for k in short]
        scope.body += [_only(inside, inner.body)] if inside else inner.body
        scope.body.append(Store(output, tuple(at), Load(acc, here)))

    spread(Nest(base, emitter, nest.outputs, 0, nest.top), list(range(base.rank)), element)


def _only(conditions: Sequence[Expr], body: Sequence[Stmt]) -> If:
    return If(reduce(lambda a, b: op("and", a, b), conditions), tuple(body))


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

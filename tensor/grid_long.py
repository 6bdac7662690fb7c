"""Reductions of few long rows on a GPU: a row has a block, or several.

    free       m[i] = max[j] x[i, j]; argmax; integers       each of 256 threads goes through every 256th element; those of a warp exchange
                                                             what they have, and so do the warps, by shared memory. Very long rows are cut
                                                             into parts, one a block, which a second grid puts together
    sixteen    s[i] = sum[j] f(x[i, j]), of order `lanes`    terms are computed by all threads, 1024 at a time, to shared memory; sixteen
                                                             threads add them up meanwhile, each those of one of the sums that the order has

The first kind is what may be done in any order: of equals the first is the place of the best, wherever it was found. The second keeps
its order, and so its sums take as long as their chains; but no load is waited for in them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod

from tlc.frontend.types import Elem
from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.emit import Scope, plus, times
from tlc.tensor.graph.ir import Expr, Node, Tensor, axes_of, walk
from tlc.tensor.graph.ir import const as number
from tlc.tensor.grid_nests import grid, unravel
from tlc.tensor.grid_threads import FEW, LONG, THREADS, are_few_and_long, exchanged, in_order, is_ordered
from tlc.tensor.kernel.ir import WARP, Barrier, Buffer, Declare, If, Load, Space, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import Nest, combine, unit
from tlc.tensor.pack import along
from tlc.tensor.search_nests import Found

_HERE = const(0)
PART = 1 << 14  # elements that are worth a block
BUSY = 96  # blocks that keep a GPU busy


def suits(node: Node) -> bool:
    """Whether rows of a reduction are few and long; or places are looked for along the data, for which there is no other nest."""
    r = node.reduction
    if r is None or node.scatter or axes_of(r.extents) or any(e.op in ("apply", "whole") or e.elem is Elem.STR for e in walk(node.roots)):
        return False
    if is_ordered(node) and r.order in ONE_BY_ONE:
        return False
    if are_few_and_long(node, node.rank):
        return True
    loads = [e for e in walk(r.terms) if e.op == "load"]
    deep, wide = (any(along(k, e) == "contiguous" for e in loads) for k in (len(node.domain) - 1, node.rank - 1))
    count = prod(n.value or LONG for n in r.extents)
    return r.op in ("argmax", "argmin") and count >= WARP and (node.rank == 0 or (deep and not wide))


def long_rows(nest: Nest) -> tuple[str, list[tuple[Tensor, Buffer]]]:
    """Write the nest; gives a note, and the buffers that it works in."""
    if is_ordered(nest.node):
        _sixteen(nest)
        return f"{THREADS} threads a result, sixteen of them add", []
    return _Free(nest).write()


def _place(nest: Nest, number: KExpr, scope: Scope) -> None:
    """Bind the axes of the output."""
    axes = list(range(nest.node.rank))
    unravel(nest, scope, number, axes, [nest.emitter.extent(nest.node.extents[k]) for k in axes])


def _rows(nest: Nest) -> KExpr:
    total: KExpr = const(1)
    for n in nest.node.extents:
        total = times(total, nest.emitter.extent(n))
    return total


def _first_stores(nest: Nest, scope: Scope, t: Var, fill: Callable[[Scope], None]) -> None:
    """The first thread alone stores, and loads what it needs for that: a result may lie over what it is computed from."""
    inner = Scope(scope, guard=True)
    fill(inner)
    scope.body.append(If(op("eq", t, const(0)), tuple(inner.body)))


# ---------------------------------------------------------------- in order


def _sixteen(nest: Nest) -> None:
    """All threads compute, and sixteen add."""
    emitter, r = nest.emitter, nest.reduction
    b, t = Var(emitter.fresh("b")), Var(emitter.fresh("t"))
    before, thread = Scope(), Scope()
    _place(nest, b, before)
    thread.axes |= before.axes
    acc = nest.local(thread, r.terms[0].elem, 1)
    thread.body.append(Store(acc, (_HERE,), unit(r.op, acc.elem)))
    pool: dict[tuple[Elem, int], Buffer] = {}
    in_order(nest, thread, t, acc, pool)
    thread.accs = (Load(acc, (_HERE,)),)
    _first_stores(nest, thread, t, nest.store)
    nest.top.body.append(grid(b, _rows(nest), [*before.body, *map(Declare, pool.values())], t, THREADS, thread.body))


# ---------------------------------------------------------------- in any order


class _State(ABC):
    """What a thread has found: some cells of one number."""

    cells: Sequence[Buffer]

    @abstractmethod
    def step(self, scope: Scope, position: KExpr) -> None:
        """Take the element at the axes of the scope, at this position of the row."""

    @abstractmethod
    def merge(self, scope: Scope, others: Sequence[KExpr]) -> None:
        """Take what another has found."""

    @abstractmethod
    def result(self, scope: Scope) -> None:
        """Make it what outputs read."""


class _Best(_State):
    """Places of the best element."""

    def __init__(self, nest: Nest, scope: Scope) -> None:
        self.nest, self.found = nest, Found(nest, scope, 1, places=1)
        self.found.clear(scope, _HERE)
        self.cells = (self.found.best, *self.found.where)

    def step(self, scope: Scope, position: KExpr) -> None:
        self.found.step(scope, _HERE, [position])

    def merge(self, scope: Scope, others: Sequence[KExpr]) -> None:
        x, at = others
        self.found.take(scope, _HERE, x, at)

    def result(self, scope: Scope) -> None:
        (where,) = self.found.where
        inner = Scope(scope)
        self.nest.bind_position(inner, self.nest.bound(inner, Load(where, (_HERE,))))
        scope.body += inner.body
        scope.accs = tuple(inner.axes[k] for k in self.nest.reduced)


class _Total(_State):
    """The greatest or least, or what wraps around or is true or false."""

    def __init__(self, nest: Nest, scope: Scope) -> None:
        r = nest.reduction
        self.nest, self.acc = nest, nest.local(scope, r.terms[0].elem, 1)
        scope.body.append(Store(self.acc, (_HERE,), unit(r.op, self.acc.elem)))
        self.cells = (self.acc,)

    def step(self, scope: Scope, position: KExpr) -> None:
        self.nest.accumulate(scope, self.acc, (_HERE,))

    def merge(self, scope: Scope, others: Sequence[KExpr]) -> None:
        value = combine(self.nest.reduction.op, Load(self.acc, (_HERE,)), others)
        scope.body.append(Store(self.acc, (_HERE,), value))

    def result(self, scope: Scope) -> None:
        scope.accs = (self.nest.bound(scope, Load(self.acc, (_HERE,))),)


class _Free:
    """One grid, or a second one for the parts of rows."""

    def __init__(self, nest: Nest) -> None:
        self.nest, self.emitter = nest, nest.emitter
        r = nest.reduction
        results = prod(n.value or FEW for n in nest.node.extents)
        count = prod(n.value or PART for n in r.extents)
        self.threads = THREADS if count >= LONG else WARP
        self.parts = max(1, min(count // PART, BUSY // results, THREADS))

    def state(self, scope: Scope) -> _State:
        return (_Best if self.nest.reduction.op in ("argmax", "argmin") else _Total)(self.nest, scope)

    def write(self) -> tuple[str, list[tuple[Tensor, Buffer]]]:
        nest, node = self.nest, self.nest.node
        rows = _rows(nest)
        if self.parts == 1:
            self.grid(rows, self.threads, self.elements, self.output)
            return f"{self.threads} threads a result", []
        cells = self.state(Scope()).cells
        shape = (*node.extents, number(self.parts))
        work = [(Tensor(f"{node.results[0].name}.part{n}", c.elem, shape), self.part(c, shape)) for n, c in enumerate(cells)]
        parts = [b for _, b in work]

        def keep(s: Scope, state: _State) -> None:
            at = (*(s.lookup(k) for k in range(node.rank)), self.part_number)
            s.body += [Store(b, at, Load(c, (_HERE,))) for b, c in zip(parts, state.cells, strict=True)]

        count = self.parts

        def take(s: Scope, state: _State, t: Var) -> None:
            def one(x: Scope, n: Var) -> None:
                at = (*(x.lookup(k) for k in range(node.rank)), n)
                state.merge(x, [nest.bound(x, Load(b, at)) for b in parts])

            self.emitter.loop(s, "p", t, const(count), one, step=WARP)

        self.grid(times(rows, const(self.parts)), self.threads, self.elements, keep)
        note, self.parts = f"{self.parts} blocks of {self.threads} threads a result", 1
        self.grid(rows, WARP, take, self.output)
        return note, work

    def output(self, scope: Scope, state: _State) -> None:
        state.result(scope)
        self.nest.store(scope)

    def part(self, cell: Buffer, shape: Sequence[Expr]) -> Buffer:
        return Buffer(self.emitter.fresh("w"), cell.elem, tuple(map(self.emitter.extent, shape)))

    def grid(
        self,
        blocks: KExpr,
        threads: int,
        collect: Callable[[Scope, _State, Var], None],
        store: Callable[[Scope, _State], None],
    ) -> None:
        """Blocks in which threads collect something, put it together, and the first one stores it."""
        nest = self.nest
        b, t = Var(self.emitter.fresh("b")), Var(self.emitter.fresh("t"))
        before, thread = Scope(), Scope()
        row: KExpr = b
        self.part_number: KExpr = const(0)
        if self.parts > 1:
            row, self.part_number = (nest.bound(before, op(name, b, const(self.parts))) for name in ("floordiv", "mod"))
        _place(nest, row, before)
        thread.axes |= before.axes
        state = self.state(thread)
        collect(thread, state, t)
        half = WARP // 2
        while half:
            state.merge(thread, [exchanged(self.emitter, thread, Load(c, (_HERE,)), half) for c in state.cells])
            half //= 2
        warps = threads // WARP
        shared = [Buffer(self.emitter.fresh("s"), c.elem, (const(warps),), Space.SHARED) for c in state.cells] if warps > 1 else []
        if shared:
            first = Scope(thread)
            place = (op("floordiv", t, const(WARP)),)
            first.body += [Store(s, place, Load(c, (_HERE,))) for s, c in zip(shared, state.cells, strict=True)]
            thread.body.append(If(op("eq", op("mod", t, const(WARP)), const(0)), tuple(first.body)))
            thread.body.append(Barrier())

        def finish(s: Scope) -> None:
            if shared:
                others: Callable[[Scope, Var], None] = lambda x, w: state.merge(x, [nest.bound(x, Load(c, (w,))) for c in shared])  # noqa: E731
                self.emitter.loop(s, "w", const(1), const(warps), others)
            store(s, state)

        _first_stores(nest, thread, t, finish)
        nest.top.body.append(grid(b, blocks, [*before.body, *map(Declare, shared)], t, threads, thread.body))

    def elements(self, scope: Scope, state: _State, t: Var) -> None:
        """The elements of a thread."""
        nest = self.nest
        total = nest.positions(scope)
        start = plus(times(self.part_number, const(self.threads)), t)

        def one(s: Scope, position: Var) -> None:
            nest.bind_position(s, position)
            state.step(s, position)

        self.emitter.guarded(
            scope,
            nest.reduction.extents,
            lambda g: self.emitter.loop(g, "p", start, total, one, step=self.threads * self.parts),
        )

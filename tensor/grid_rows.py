"""Nests of rows on a GPU: a row has sixteen threads, and they do all that is done with it (`tensor/bundle.py`).

    m[i] = max[j] x[i, j]                  block of 8 rows, 16 threads (lanes) each {
    e[i, j] = exp(x[i, j] - m[i])            acc = -inf; for j in lane..n by 16 { acc = max(acc, x[i, j]) }
    s[i] = sum[j] e[i, j]            ->      acc = max(acc, that of lane ^ 8), .. ^ 4, .. ^ 2, .. ^ 1; let m = acc
    y[i, j] = e[i, j] / s[i]                 for j in lane..n by 16 { y[i, j] = exp(x[i, j] - m) }
                                             acc = 0; ..; let s = acc
                                             for j in lane..n by 16 { y[i, j] = y[i, j] / s }
                                           }

Sixteen is the number of accumulators in the order `lanes` (ssa/reductions.py), so each is that of a thread, and what the threads of a
row exchange is the tree. All of them know the result, so it is a variable for what follows. An element is stored and read by one lane;
only where a node reads another node's row at other places, the block waits after each node.

Where rows are few and long, each has a block of 256 threads; its sums, whose order is that of sixteen, are added by sixteen of them
(`tensor/grid_threads.py`).

Exchanges and barriers want every thread: those of rows behind the last one take part, load and store nothing, and have the index of
the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tlc.frontend.types import Elem
from tlc.ssa.reductions import LANES, ONE_BY_ONE
from tlc.tensor.emit import Emitter, Scope, plus, times
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Node, Tensor, axes_of, axis, walk
from tlc.tensor.grid_nests import grid, rounded_up, unravel
from tlc.tensor.grid_threads import THREADS, are_few_and_long, exchange, in_order, is_ordered
from tlc.tensor.kernel.ir import WARP, Barrier, Buffer, Const, Declare, If, Load, Space, Stmt, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import Nest, combine, unit
from tlc.tensor.pack import along

ROWS = 8  # of a block
FEW = 1024  # results: where there are fewer, and much is reduced for each, sixteen threads each are better than one
MUCH = 256


def suits(node: Node) -> bool:
    """Whether a reduction by itself is better done by sixteen threads a result than by one."""
    r = node.reduction
    if r is None or node.scatter or r.op in ("argmax", "argmin") or r.order in ONE_BY_ONE or axes_of(r.extents):
        return False
    if any(e.op in ("apply", "whole") or e.elem is Elem.STR for e in walk(node.roots)):
        return False
    count = results = 1
    for n in r.extents:
        count *= n.value or MUCH
    for n in node.extents:
        results *= n.value or FEW
    if count < LANES:
        return False
    loads = [e for e in walk(r.terms) if e.op == "load"]
    deep, wide = (any(along(k, e) == "contiguous" for e in loads) for k in (len(node.domain) - 1, node.rank - 1))
    return node.rank == 0 or (deep and not wide) or (results < FEW and count >= MUCH)


class Rows:
    """The grid of nodes over the same first `depth` axes; `buffers` are those of the results that are stored."""

    def __init__(self, emitter: Emitter, nodes: Sequence[Node], buffers: Mapping[Tensor, Buffer], depth: int) -> None:
        self.emitter, self.nodes, self.buffers, self.depth = emitter, nodes, buffers, depth
        self.t = Var(emitter.fresh("t"))
        self.row = Scope()
        self.nest = self.nest_of(nodes[0], self.row)
        self.lanes = THREADS if any(are_few_and_long(n, depth) for n in nodes) else LANES
        self.lane: KExpr = self.t if self.lanes == THREADS else self.nest.bound(self.row, op("mod", self.t, const(LANES)))
        self.pool: dict[tuple[Elem, int], Buffer] = {}  # shared buffers of all sums of long rows,
        self.agreed: list[Buffer] = []  # and of what threads agree on
        self.inside: KExpr | None = None  # whether there is a row

    def nest_of(self, node: Node, scope: Scope) -> Nest:
        return Nest(node, self.emitter, tuple(map(self.buffers.get, node.results)), 0, scope, self.depth)

    def write(self, top: Scope) -> None:
        waits = self.reads_elsewhere()
        b = Var(self.emitter.fresh("b"))
        extents = [self.emitter.extent(n) for n in self.nodes[0].extents[: self.depth]]
        total: KExpr = const(1)
        for n in extents:
            total = times(total, n)
        place: KExpr = b
        if self.lanes == THREADS:
            rows = 1
        else:
            rows = WARP // LANES if isinstance(total, Const) and total.value <= WARP // LANES else ROWS
            place = self.nest.bound(self.row, plus(times(b, const(rows)), op("floordiv", self.t, const(LANES))))
        blocks = rounded_up(total, rows)
        if rows > 1 and not (isinstance(total, Const) and total.value % rows == 0):
            self.inside = self.nest.bound(self.row, op("lt", place, total))
            place = self.nest.bound(self.row, op("min", place, plus(total, const(-1))))
        unravel(self.nest, self.row, place, list(range(self.depth)), extents)
        for k, node in enumerate(self.nodes):
            inner = Scope(self.row)
            nest = self.nest_of(node, inner)
            if node.reduction is not None:
                self.reduce(nest, inner)
            if node.rank == self.depth:
                self.number(nest, inner)
            else:
                self.elements(nest, inner)
            self.row.body.extend(inner.body)
            if waits and k + 1 < len(self.nodes):
                self.row.body.append(Barrier())
        top.body.append(grid(b, blocks, [*map(Declare, (*self.pool.values(), *self.agreed))], self.t, rows * self.lanes, self.row.body))

    def reads_elsewhere(self) -> bool:
        """Whether a lane reads what another one stored: an element of the row that is not its own."""
        made = {t: n for n in self.nodes for t in n.results if t.rank > self.depth}
        for node in self.nodes:
            here = tuple(axis(k) for k in range(len(node.domain)))
            own = node.domain[self.depth :]
            for e in node.loads:
                home = made.get(e.data.tensor)
                if home is None:
                    continue
                alike = len(own) == 1 or all(equal(a, b) for a, b in zip(own, home.domain[self.depth :], strict=False))
                if e.args != here or not alike:
                    return True
        return False

    def reduce(self, nest: Nest, scope: Scope) -> None:
        """The result of a reduction, in every lane."""
        r = nest.reduction
        acc = nest.local(scope, r.terms[0].elem, 1)
        here = (const(0),)
        scope.body.append(Store(acc, here, unit(r.op, acc.elem)))
        if self.lanes == THREADS and is_ordered(nest.node):
            in_order(nest, scope, self.t, acc, self.pool)
            self.agree(nest, scope, acc, 1)
            return
        total = nest.positions(scope)

        def step(s: Scope, position: Var) -> None:
            nest.bind_position(s, position)
            nest.accumulate(s, acc, here)

        outer = Scope(scope)
        self.emitter.guarded(outer, r.extents, lambda g: self.emitter.loop(g, "p", self.lane, total, step, step=self.lanes))
        scope.body += self.if_inside(outer.body)
        if self.lanes == THREADS:
            exchange(self.emitter, scope, acc, here, r.op, WARP)
            self.agree(nest, scope, acc, THREADS // WARP)
            return
        exchange(self.emitter, scope, acc, here, r.op)
        scope.accs = (nest.bound(scope, Load(acc, here)),)

    def agree(self, nest: Nest, scope: Scope, acc: Buffer, warps: int) -> None:
        """What some first warps have becomes what all threads of the block have."""
        shared = Buffer(self.emitter.fresh("s"), acc.elem, (const(warps),), Space.SHARED)
        self.agreed.append(shared)
        here = (const(0),)
        warp: KExpr = op("floordiv", self.t, const(WARP))
        first: KExpr = op("eq", op("mod", self.t, const(WARP)), const(0))
        if warps == 1:
            warp, first = const(0), op("eq", self.t, const(0))
        scope.body += [If(first, (Store(shared, (warp,), Load(acc, here)),)), Barrier(), Store(acc, here, Load(shared, here))]
        reducer = nest.reduction.op

        def take(s: Scope, w: Var) -> None:
            s.body.append(Store(acc, here, combine(reducer, Load(acc, here), [Load(shared, (w,))])))

        self.emitter.loop(scope, "w", const(1), const(warps), take)
        scope.accs = (nest.bound(scope, Load(acc, here)),)

    def number(self, nest: Nest, scope: Scope) -> None:
        """One number a row, which every lane knows and the first one stores. That of a node by itself only the first one knows, for it may
        lie over what it is computed from.
        """
        part = Scope(scope, guard=True) if len(self.nodes) == 1 else scope
        stores: list[Stmt] = []
        indices = tuple(scope.lookup(k) for k in range(self.depth))
        for b, e, result in zip(nest.outputs, nest.node.outputs, nest.node.results, strict=True):
            value = self.emitter.emit(e, part)
            if not isinstance(value, Var | Const):
                value = nest.bound(part, value)
            self.emitter.variables[result] = value
            if b is not None:
                stores.append(Store(b, self.emitter.seated(result, indices), value))
        if part is not scope:
            stores = [*part.body, *stores]
        if stores:
            first: KExpr = op("eq", self.lane, const(0))
            scope.body.append(If(first if self.inside is None else op("and", first, self.inside), tuple(stores)))

    def elements(self, nest: Nest, scope: Scope) -> None:
        """The elements of a row, each by one lane."""
        outer = Scope(scope)
        own = list(nest.own)
        extents = [self.emitter.extent(nest.node.extents[k]) for k in own]
        total: KExpr = const(1)
        for n in extents:
            total = times(total, n)

        def element(s: Scope, position: Var) -> None:
            unravel(nest, s, position, own, extents)
            nest.store(s)

        known = [nest.node.extents[k] for k in own]
        self.emitter.guarded(outer, known, lambda g: self.emitter.loop(g, "p", self.lane, total, element, step=self.lanes))
        scope.body += self.if_inside(outer.body)

    def if_inside(self, body: Sequence[Stmt]) -> list[Stmt]:
        return list(body) if self.inside is None else [If(self.inside, tuple(body))]

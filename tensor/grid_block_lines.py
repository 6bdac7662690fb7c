"""The lines of a block (`tensor/grid_blocks.py`): which it has, how a thread goes through its own and those of a tile, and how they come
to shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlc.tensor.emit import Emitter, Scope, minus, plus, rounded_down, times
from tlc.tensor.graph.ir import Node, walk
from tlc.tensor.grid_block_plan import BYTES, SIDE, Plan, Staged, stride
from tlc.tensor.grid_nests import rounded_up, unravel
from tlc.tensor.kernel.ir import Buffer, CommitCopies, Const, CopyAsync, If, Load, Space, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import Nest
from tlc.tensor.pack import along
from tlc.tensor.row_blocks import Role

THREADS = SIDE * SIDE
HELD = 4  # accesses that a thread begins before it needs the first

_Access = Callable[[Scope, KExpr, KExpr, KExpr], None]


class Lines:
    """A grid whose blocks have lines of one kind and go through those of the other kind, as a plan says."""

    def __init__(self, emitter: Emitter, plan: Plan, tall: int, wide: int) -> None:
        self.emitter, self.plan, self.tall, self.wide, self.d = emitter, plan, tall, wide, plan.d
        self.b, self.t = Var(emitter.fresh("b")), Var(emitter.fresh("t"))
        self.before, self.thread = Scope(), Scope()
        self.nest = self.nest_of(plan.nodes[0], self.before)
        self.own, self.other = (emitter.extent(plan.shape[k]) for k in (plan.way.own, plan.way.along))
        self.full = is_even(self.own, tall * SIDE)
        self.r: KExpr = const(0)  # which of its own lines a thread is at,
        self.at: KExpr = const(0)  # and which is the first one of a tile that it has
        self.stages = plan.stages(tall, wide)
        self.half: KExpr = const(0)  # where there are two: in which one the tile lies
        self.shared = {s: self.room(s) for s in plan.all_staged()}

    def room(self, s: Staged) -> Buffer:
        """Shared memory for what is staged."""
        lines = const((self.tall if s.own else self.wide) * SIDE), const(stride(s))
        shape = (const(self.stages), *lines) if self.is_ahead(s) else lines
        return Buffer(self.emitter.fresh("s"), s.value.elem, shape, Space.SHARED)

    def is_ahead(self, s: Staged) -> bool:
        """Whether the lines of the next tile are on their way while those of one are read."""
        return self.stages > 1 and not s.own

    def nest_of(self, node: Node, scope: Scope) -> Nest:
        return Nest(node, self.emitter, (None,) * len(node.results), 0, scope)

    # ------------------------------------------------------------ the block

    def place(self, reach: int | None) -> None:
        """Which block it is: the longest come first. What goes for all of its threads, and which lines of a tile are its own."""
        nest, before, lines = self.nest, self.before, self.tall * SIDE
        extents = [self.emitter.extent(n) for n in self.plan.nodes[0].extents[: self.d]]
        many: KExpr = const(1)
        for n in extents:
            many = times(many, n)
        count = rounded_up(self.own, lines)
        self.total = times(count, many)
        number: KExpr = const(0)
        index: KExpr = self.b
        if many != const(1):
            number, index = (nest.bound(before, op(name, self.b, many)) for name in ("mod", "floordiv"))
        unravel(nest, before, number, list(range(self.d)), extents)
        self.thread.axes |= before.axes
        by_rows = self.plan.way.product is Role.OUT
        if reach is not None and by_rows:
            index = minus(plus(count, const(-1)), index)
        self.low = nest.bound(before, times(index, const(lines)))
        self.first: KExpr = const(0)  # where the block begins to go along, and
        self.limit = self.other  # where it ends
        tile = self.wide * SIDE
        self.inside = self.even = is_even(self.other, tile)  # whether all lines of a tile are there, and below the limit
        if reach is not None and by_rows:
            self.limit = nest.bound(before, op("min", plus(self.low, const(lines + reach)), self.other))
            self.even = self.inside and (lines + reach) % tile == 0
        elif reach is not None and (reach or lines % tile):
            self.first = nest.bound(before, rounded_down(op("max", minus(self.low, const(reach)), const(0)), tile))
        elif reach is not None:
            self.first = self.low
        self.y = nest.bound(self.thread, op("floordiv", self.t, const(SIDE)))
        self.x = nest.bound(self.thread, op("mod", self.t, const(SIDE)))
        self.line = nest.bound(self.thread, plus(self.low, times(self.y, const(self.tall))))

    # ------------------------------------------------------------ lines

    def cell(self, s: Staged, line: KExpr, across: KExpr) -> Load:
        """A number that is staged."""
        return Load(self.shared[s], (self.half, line, across) if self.is_ahead(s) else (line, across))

    def own_lines(self, scope: Scope, fill: Callable[[Scope, Var], None]) -> None:
        """`fill` for each of a thread's own lines, at which the last one stands for those behind it."""

        def one(s: Scope, r: Var) -> None:
            self.r = r
            s.axes[self.plan.way.own] = self.there(s, plus(self.line, r), self.own, self.full)
            fill(s, r)

        self.nest.unroll(scope, self.tall, one)

    def tile_lines(self, scope: Scope, fill: Callable[[Scope, Var], None]) -> None:
        """`fill` for each of a thread's lines of a tile."""

        def one(s: Scope, w: Var) -> None:
            s.axes[self.plan.way.along] = self.there(s, plus(self.at, times(w, const(SIDE))), self.other, self.inside)
            fill(s, w)

        self.nest.unroll(scope, self.wide, one)

    def there(self, scope: Scope, position: KExpr, extent: KExpr, full: bool) -> KExpr:
        """A line that there is: this one or the last. `full`: there are all."""
        return position if full else self.nest.bound(scope, op("min", position, plus(extent, const(-1))))

    def together(self, scope: Scope, count: int, fill: Callable[[Scope, KExpr], None]) -> None:
        """`fill` for what lies side by side."""
        if count == 1:
            fill(scope, const(0))
        else:
            self.nest.vector(scope, const(count), count, fill)

    def half_of(self, scope: Scope, j: KExpr) -> KExpr:
        """In which stage the tile lies that begins with a line."""
        tile = self.wide * SIDE
        if isinstance(j, Const):
            return const(int(j.value) // tile % self.stages)
        return self.nest.bound(scope, op("mod", op("floordiv", j, const(tile)), const(self.stages)))

    def begin(self, scope: Scope, staged: Sequence[Staged], j: KExpr) -> None:
        """The tile that begins with a line is on its way, if there is one."""
        inner = Scope(scope, guard=True)
        half = self.half_of(inner, j)
        for s in staged:
            self.copy(inner, s, j, half)
        sure = isinstance(j, Const) and isinstance(self.limit, Const) and j.value < self.limit.value
        scope.body += inner.body if sure else [If(op("lt", j, self.limit), tuple(inner.body))]
        scope.body.append(CommitCopies())

    def copy(self, scope: Scope, s: Staged, low: KExpr, half: KExpr) -> None:
        """Copy lines of a tile from `low` on to its stage, not waited for: neighbours by neighbouring threads."""
        together = BYTES // s.value.elem.bytes
        count, by = self.wide * SIDE * s.across // together, s.across // together

        def one(x: Scope, n: Var) -> None:
            position = self.nest.bound(x, plus(self.t, times(n, const(THREADS))))
            part = Scope(x)
            piece: KExpr = op("mod", position, const(by)) if by > 1 else const(0)
            line, across = op("floordiv", position, const(by)) if by > 1 else position, times(piece, const(together))
            part.axes[self.d], part.axes[self.d + 1] = self.there(part, plus(low, line), self.other, self.inside), across
            indices = self.emitter.seated(s.value.data.tensor, tuple(self.emitter.emit(a, part) for a in s.value.indices))
            into = Load(self.shared[s], (half, line, across))
            part.body.append(CopyAsync(into, Load(self.emitter.buffer(s.value.data), indices)))
            x.body += part.body if count % THREADS == 0 else [If(op("lt", position, const(count)), tuple(part.body))]

        self.nest.unroll(scope, -(-count // THREADS), one)

    def stage(self, scope: Scope, s: Staged, low: KExpr, extent: KExpr) -> None:
        """Bring lines from `low` on to shared memory: a thread some accesses at once, neighbours by neighbouring threads."""
        nest, d, shared = self.nest, self.d, self.shared[s]
        lines = (self.tall if s.own else self.wide) * SIDE
        loads = [e for e in walk([s.value]) if e.op == "load"]
        full = is_even(extent, lines) if s.own else self.inside
        together = BYTES // s.value.elem.bytes
        if s.value.op != "load" or s.value.guard is not None or along(d + 1, s.value) != "contiguous" or s.across % together:
            together = 1
        down = together == 1 and any(along(d, e) == "contiguous" for e in loads)
        count = lines * s.across // together
        trips = -(-count // THREADS)
        held_trips = min(trips, HELD)
        held = nest.local(scope, s.value.elem, held_trips, together)

        def bring(x: Scope, position: KExpr, at: Callable[[Scope, KExpr], KExpr], fill: _Access) -> None:
            """`fill` with what `at` makes of a line, what lies across, and a place among those that are brought together."""
            by = lines if down else s.across // together
            inner, outer = (op("mod", position, const(by)), op("floordiv", position, const(by))) if by > 1 else (const(0), position)
            line, across = (inner, outer) if down else (outer, times(inner, const(together)))
            part = Scope(x)
            line = at(part, line)
            self.together(part, together, lambda v, l: fill(v, line, plus(across, l), l))
            whole = count % THREADS == 0
            x.body += part.body if whole else [If(op("lt", position, const(count)), tuple(part.body))]

        def batch(x: Scope, begin: KExpr, count: int) -> None:
            def position(y: Scope, n: Var) -> Var:
                return nest.bound(y, plus(self.t, times(plus(begin, n), const(THREADS))))

            def load(y: Scope, n: Var) -> None:
                def one(v: Scope, line: KExpr, across: KExpr, l: KExpr) -> None:
                    v.axes[d], v.axes[d + 1] = line, across
                    v.body.append(Store(held, (n, l), self.emitter.emit(s.value, v)))

                bring(y, position(y, n), lambda p, line: self.there(p, plus(low, line), extent, full), one)

            def put(y: Scope, n: Var) -> None:
                def one(v: Scope, line: KExpr, across: KExpr, l: KExpr) -> None:
                    v.body.append(Store(shared, (line, across), Load(held, (n, l))))

                bring(y, position(y, n), lambda _, line: line, one)

            nest.unroll(x, count, load)
            nest.unroll(x, count, put)

        if trips == held_trips:
            batch(scope, const(0), trips)
        else:
            self.emitter.loop(scope, "n", const(0), const(trips // HELD * HELD), lambda x, n: batch(x, n, HELD), step=HELD)
            if trips % HELD:
                batch(scope, const(trips // HELD * HELD), trips % HELD)


def is_even(extent: KExpr, lines: int) -> bool:
    return isinstance(extent, Const) and extent.value % lines == 0

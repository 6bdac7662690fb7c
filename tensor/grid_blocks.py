"""Groups of nodes that go through blocks of rows (`tensor/row_blocks.py`), on a GPU: no matrix between products is in global memory.

    s[i, j] = sum[c] q[i, c] * k[j, c]      block of 64 rows {                              16 x 16 threads, 4 rows of each
    m[i] = max[j] s[i, j]                     q of these rows to shared memory
    e[i, j] = exp(s[i, j] - m[i])      ->     for tiles of 64 columns { k to shared memory; s; m = max(m, s) }
    t[i] = sum[j] e[i, j]                     for tiles { k; s; e; t += e }
    y[i, c] = sum[j] e[i, j] * v[j, c]        for tiles { k, v; s; e to shared memory; y += e * v }
                                            }

The numbers of rows divide the work into passes: what needs a number of a row waits for it. Each pass goes through the matrices anew, tile
by tile, in registers: a product costs less than the memory of a matrix. Only where the scores of all columns fit the shared memory are they
kept from pass to pass. (Nothing is rescaled as numbers become known: that rounds otherwise than the sums that the nodes are.) Sums over
rows are made by a second grid, whose blocks are of columns and go through the rows, so that nobody adds to what another adds to.

A block has lines of one kind, and goes through those of the other kind, tile by tile:

    thread     has `tall` own lines side by side, by `wide` lines sixteen apart: so a thread has one of the sixteen sums of the order
               `lanes`, and what those of a row exchange in the end is its tree (as in `tensor/grid_rows.py`)
    operands   lie in shared memory line by line, at an odd number of 16 bytes from each other: threads side by side load without
               conflicts. What several nodes read is there once
    product    its matrix goes by shared memory, since a thread needs what others have; a thread adds up `tall` lines by some columns, each
               one chain over the lines that the block goes through

Tiles that a mask makes constant are skipped. Lines behind the last one are the last one again; they are neither added nor stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from math import prod

from tlc.frontend.records import dataclass
from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Emitter, Scope, minus, plus, rounded_down, times
from tlc.tensor.graph.expand import expand
from tlc.tensor.graph.ir import Expr, Node, Tensor, axes_of, axis, substitute, walk
from tlc.tensor.grid_nests import grid, rounded_up, unravel
from tlc.tensor.grid_threads import exchange
from tlc.tensor.kernel.ir import SHARED, Barrier, Buffer, Const, Declare, If, Load, Space, Stmt, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import Nest, combine, unit
from tlc.tensor.pack import along
from tlc.tensor.row_blocks import Blocks, Role

SIDE = LANES  # threads of a block: so many rows of so many columns
THREADS = SIDE * SIDE
BYTES = 16  # of the widest access
BUSY = 96  # blocks that keep a GPU busy; where there are fewer, smaller ones make more
TALL = (8, 4, 2)  # own lines of a thread, and
WIDE = (4, 2, 1)  # lines of a tile
LIVE = 128  # numbers that a thread has in registers, at most
UNKNOWN = 1024  # lines, where that is known only at run time
HELD = 4  # accesses that a thread begins before it needs the first


def suits(nodes: Sequence[Node], roles: Sequence[Role], d: int) -> bool:
    """Whether a group has a grid: what is multiplied is of known width and fits, and no function is called."""
    for node, role in zip(nodes, roles, strict=True):
        if role in (Role.OUT, Role.DOWN) and any(e.op in ("apply", "whole") for e in walk(node.roots)):
            return False
        if role in _PRODUCTS and not _across(node, role):
            return False
    return all(_fitting(_Plan(nodes, roles, d, way, False)) for way in _ways(d))


_PRODUCTS = (Role.SCORES, Role.OUT, Role.DOWN)


def _across(node: Node, role: Role) -> int | None:
    """How wide what a product multiplies with is."""
    extents = node.reduction.extents if role is Role.SCORES and node.reduction else node.extents
    value = extents[-1].value
    return value if value is None else int(value)


@dataclass(frozen=True)
class _Way:
    """The axes of a matrix along which a block has its own lines, and along which it goes; and which products it makes."""

    own: int
    along: int
    product: Role


def _ways(d: int) -> tuple[_Way, _Way]:
    return _Way(d, d + 1, Role.OUT), _Way(d + 1, d, Role.DOWN)


@dataclass(frozen=True)
class _Staged:
    """Lines of an operand that are in shared memory: the number at line `axis(d)`, `axis(d + 1)` across."""

    value: Expr
    own: bool
    across: int


class _Plan:
    """What one grid of a group computes, in passes. `keeps`: what a pass has multiplied is kept for the next ones."""

    def __init__(self, nodes: Sequence[Node], roles: Sequence[Role], d: int, way: _Way, keeps: bool) -> None:
        self.nodes, self.way, self.d, self.keeps = nodes, way, d, keeps
        self.roles = dict(zip(nodes, roles, strict=True))
        self.matrices = {t: n for n in nodes if self.roles[n] in (Role.SCORES, Role.MAP) and n.rank == d + 2 for t in n.results}
        self.products = [n for n in nodes if self.roles[n] is way.product]
        self.numbers = [n for n in nodes if n.rank == d + 1]
        known: dict[Tensor, int] = {}  # the pass in which a matrix can be had, and before which a number of a row is
        self.turn: dict[Node, int] = {}
        for n in nodes:
            self.turn[n] = max((known[t] for t in n.sources if t in known), default=0)
            known |= dict.fromkeys(n.results, self.turn[n] + (self.roles[n] is Role.ROW))
        if way.product is Role.DOWN:  # all numbers are known
            self.numbers, self.turn = [], dict.fromkeys(nodes, 0)
        last = [self.turn[n] for n in (*self.products, *self.numbers)]
        self.passes = range(max(last, default=-1) + 1)

    def reduced(self, turn: int) -> list[Node]:
        return [n for n in self.numbers if self.roles[n] is Role.ROW and self.turn[n] == turn]

    def multiplied(self, turn: int) -> list[Node]:
        return [n for n in self.products if self.turn[n] == turn]

    def elements(self, turn: int) -> list[Node]:
        """The matrices that a pass goes through, in order."""
        wanted = {t for n in (*self.reduced(turn), *self.multiplied(turn)) for t in n.sources}
        out: list[Node] = []
        for n in reversed(self.nodes):
            if any(t in wanted and t in self.matrices for t in n.results):
                out.append(n)
                wanted |= set(n.sources)
        return out[::-1]

    def scores(self, turn: int) -> list[Node]:
        return [n for n in self.elements(turn) if self.roles[n] is Role.SCORES]

    def kept(self) -> list[Node]:
        """The scores that several passes want."""
        return [n for n in self.nodes if sum(n in self.scores(turn) for turn in self.passes) > 1] if self.keeps else []

    def made(self, turn: int) -> list[Node]:
        """The scores that a pass has to multiply."""
        before = [n for t in range(turn) for n in self.scores(t)]
        return [n for n in self.scores(turn) if not (self.keeps and n in before)]

    def factors(self, node: Node) -> tuple[Tensor, _Staged]:
        """The matrix of a product, and what it is multiplied with."""
        r, d = node.reduction, self.d
        assert r is not None
        for term, other in (r.terms, r.terms[::-1]):
            if term.op == "load" and term.data.tensor in self.matrices:
                value = substitute(other, {d + 2: axis(d)})
                return term.data.tensor, _Staged(value, False, _across(node, Role.OUT) or 0)
        raise AssertionError("a product of no matrix")

    def operands(self, node: Node) -> tuple[_Staged, _Staged]:
        """The factors of scores, in order."""
        r, d = node.reduction, self.d
        assert r is not None
        out = []
        for e in r.terms:
            own = self.way.own in axes_of([e])
            line = self.way.own if own else self.way.along
            value = substitute(e, {line: axis(d), d + 2: axis(d + 1)})
            out.append(_Staged(value, own, _across(node, Role.SCORES) or 0))
        return out[0], out[1]

    def staged(self, turn: int) -> dict[_Staged, None]:
        """What a pass has in shared memory."""
        operands = [s for n in self.made(turn) for s in self.operands(n)]
        return dict.fromkeys([*operands, *(self.factors(n)[1] for n in self.multiplied(turn))])

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Of the matrices."""
        return next(n for n in self.nodes if self.roles[n] is Role.SCORES).extents

    def bytes(self, tall: int, wide: int) -> int:
        """The shared memory of a block."""
        staged = {s for turn in self.passes for s in self.staged(turn)}
        size = sum((tall if s.own else wide) * SIDE * stride(s) * s.value.elem.bytes for s in staged)
        matrices = [self.factors(n)[0].elem.bytes for n in self.products]
        size += max((wide * SIDE * odd(tall * SIDE, b) * b for b in matrices), default=0)
        lines = self.kept_lines(wide)
        return size + sum(lines * odd(tall * SIDE, b) * b for b in (n.results[0].elem.bytes for n in self.kept()))

    def kept_lines(self, wide: int) -> int:
        """Those of all tiles."""
        count = int(self.shape[self.way.along].value or 0)
        return -(-count // (wide * SIDE)) * wide * SIDE

    def live(self, tall: int, wide: int) -> int:
        """How many numbers a thread has at once, about."""
        words = [n.results[0].elem.bytes // 4 for n in self.nodes]
        most = 0
        for turn in self.passes:
            sums = sum(each(self.factors(n)[1].across) for n in self.multiplied(turn))
            most = max(most, tall * (wide * len(self.scores(turn)) + sums + len(self.numbers)))
        return most * max(words)


def _fitting(plan: _Plan) -> list[tuple[int, int]]:
    """Tiles, by lines of a thread: for each number of own lines the widest that fits."""
    out = []
    for tall in TALL:
        wide = next((w for w in (WIDE[:-1] if plan.keeps else WIDE) if plan.bytes(tall, w) <= SHARED and plan.live(tall, w) <= LIVE), None)
        if wide is not None:
            out.append((tall, wide))
    return out


def _choice(nodes: Sequence[Node], roles: Sequence[Role], d: int, way: _Way) -> tuple[_Plan, tuple[int, int]]:
    """A plan and its tiles: the largest of which there are enough, of those that let scores be kept, if there are some."""
    plan = _Plan(nodes, roles, d, way, True)
    tiles = _fitting(plan) if plan.kept() and plan.shape[way.along].value is not None else []
    if not tiles:
        plan = _Plan(nodes, roles, d, way, False)
        tiles = _fitting(plan)
    *outer, own = (int(n.value or UNKNOWN) for n in (*plan.shape[:d], plan.shape[way.own]))
    large = (t for t in tiles if own > t[0] * SIDE // 2 and -(-own // (t[0] * SIDE)) * prod(outer) >= BUSY)
    return plan, next(large, tiles[-1])


def odd(count: int, size: int) -> int:
    """At least so many elements, an odd number of wide accesses."""
    together = BYTES // size
    return together * (-(-count // together) | 1)


def each(across: int) -> int:
    """How many columns of a product a thread has."""
    return -(-across // SIDE)


def stride(s: _Staged) -> int:
    """From one line in shared memory to the next. A thread may load columns behind the last one, and does nothing with them."""
    return odd(each(s.across) * SIDE, s.value.elem.bytes)


# ---------------------------------------------------------------- the kernel

_Access = Callable[[Scope, KExpr, KExpr, KExpr], None]


@dataclass(eq=False)
class BlockGrids:
    """The nodes of a group, with elementary functions expanded, and where what they give lies."""

    group: Blocks
    nodes: Sequence[Node]
    emitter: Emitter
    stored: dict[Tensor, Buffer] = field(default_factory=dict)  # in global memory: results, and numbers that both grids need
    work: list[tuple[Tensor, Buffer]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, top: Scope) -> None:
        choices = [_choice(self.nodes, self.group.roles, self.group.depth, way) for way in _ways(self.group.depth)]
        down = choices[1][0]
        second = {t for turn in down.passes for n in (*down.elements(turn), *down.products) for t in n.sources}
        for node, role in zip(self.nodes, self.group.roles, strict=True):
            for t in node.results:
                result = role in (Role.OUT, Role.DOWN) or (t in self.group.results and node.rank == self.group.depth + 1)
                if not result and not (node.rank == self.group.depth + 1 and t in second):
                    continue
                b = Buffer(self.emitter.fresh("y"), t.elem, tuple(map(self.emitter.extent, node.extents)))
                self.stored[t] = b
                if t not in self.group.results:
                    self.work.append((Tensor(f"{t.name}.block", t.elem, node.extents), b))
        for (plan, (tall, wide)), what in zip(choices, ("rows", "columns"), strict=True):
            if plan.passes:
                _Grid(self, plan, tall, wide).write(top)
                kept = ", whose scores are kept" if plan.kept() else ""
                self.notes.append(f"blocks of {tall * SIDE} {what} by tiles of {wide * SIDE}{kept}")
            self.emitter.seats.clear()
            self.emitter.made = dict(self.stored)


def block_grids(group: Blocks, expands: bool) -> BlockGrids:
    """The grids of a group, before they are written."""
    nodes = [expand(n) if expands else n for n in group.nodes]
    return BlockGrids(group, nodes, Emitter([e for n in nodes for e in (*n.roots, *n.domain)]))


class _Grid:
    """The blocks of one kind of lines."""

    def __init__(self, blocks: BlockGrids, plan: _Plan, tall: int, wide: int) -> None:
        self.blocks, self.plan, self.tall, self.wide = blocks, plan, tall, wide
        self.emitter, self.d = blocks.emitter, plan.d
        self.b, self.t = Var(self.emitter.fresh("b")), Var(self.emitter.fresh("t"))
        self.before, self.thread = Scope(), Scope()
        self.nest = self.nest_of(plan.nodes[0], self.before)
        self.own, self.other = (self.emitter.extent(plan.shape[k]) for k in (plan.way.own, plan.way.along))
        self.full = _is_even(self.own, tall * SIDE)
        self.guards = [plan.shape[plan.way.along]]
        self.r: KExpr = const(0)  # which of its own lines a thread is at
        self.numbers: dict[Tensor, Buffer] = {}
        self.shared: dict[_Staged, Buffer] = {}
        self.kept: dict[Node, Buffer] = {}  # scores, in shared memory too, where each thread has its own
        self.pool: Buffer | None = None  # the matrix of a product

    def nest_of(self, node: Node, scope: Scope) -> Nest:
        return Nest(node, self.emitter, (None,) * len(node.results), 0, scope)

    # ------------------------------------------------------------ the block

    def write(self, top: Scope) -> None:
        plan, nest, body = self.plan, self.nest, self.thread.body
        self.place()
        self.y = nest.bound(self.thread, op("floordiv", self.t, const(SIDE)))
        self.x = nest.bound(self.thread, op("mod", self.t, const(SIDE)))
        self.line = nest.bound(self.thread, plus(self.low, times(self.y, const(self.tall))))
        for node in plan.numbers:
            for t in node.results:
                b = self.numbers[t] = nest.local(self.thread, t.elem, self.tall)
                self.emitter.made[t] = b
                self.emitter.seats[t] = lambda at: (self.r,)
        staged = dict.fromkeys(s for turn in plan.passes for s in plan.staged(turn))
        for s in staged:
            lines = (self.tall if s.own else self.wide) * SIDE
            self.shared[s] = Buffer(self.emitter.fresh("s"), s.value.elem, (const(lines), const(stride(s))), Space.SHARED)
        if plan.products:
            elem = plan.factors(plan.products[0])[0].elem
            shape = (const(self.wide * SIDE), const(odd(self.tall * SIDE, elem.bytes)))
            self.pool = Buffer(self.emitter.fresh("s"), elem, shape, Space.SHARED)
        for n in plan.kept():
            elem = n.results[0].elem
            shape = (const(plan.kept_lines(self.wide)), const(odd(self.tall * SIDE, elem.bytes)))
            self.kept[n] = Buffer(self.emitter.fresh("s"), elem, shape, Space.SHARED)
        for s in staged:
            if s.own:
                self.stage(self.thread, s, self.low, self.own)
        self.tell(0)
        for turn in plan.passes:
            if plan.reduced(turn) or plan.multiplied(turn):
                self.turn(turn)
            self.tell(turn + 1)
        shared = (*self.shared.values(), *self.kept.values(), *([self.pool] if self.pool else []))
        top.body.append(grid(self.b, self.total, [*self.before.body, *map(Declare, shared)], self.t, THREADS, body))

    def place(self) -> None:
        """Which block it is: the longest come first. What goes for all of its threads."""
        nest, before, reach, lines = self.nest, self.before, self.blocks.group.reach, self.tall * SIDE
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
        self.inside = self.even = _is_even(self.other, tile)  # whether all lines of a tile are there, and below the limit
        if reach is not None and by_rows:
            self.limit = nest.bound(before, op("min", plus(self.low, const(lines + reach)), self.other))
            self.even = self.inside and (lines + reach) % tile == 0
        elif reach is not None and (reach or lines % tile):
            self.first = nest.bound(before, rounded_down(op("max", minus(self.low, const(reach)), const(0)), tile))
        elif reach is not None:
            self.first = self.low

    # ------------------------------------------------------------ lines

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

    def stage(self, scope: Scope, s: _Staged, low: KExpr, extent: KExpr) -> None:
        """Bring lines from `low` on to shared memory: a thread some accesses at once, neighbours by neighbouring threads."""
        nest, d, shared = self.nest, self.d, self.shared[s]
        lines = (self.tall if s.own else self.wide) * SIDE
        loads = [e for e in walk([s.value]) if e.op == "load"]
        full = _is_even(extent, lines) if s.own else self.inside
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

    # ------------------------------------------------------------ a pass

    def turn(self, turn: int) -> None:
        """Go through all tiles."""
        plan, nest = self.plan, self.nest
        reduced, multiplied = plan.reduced(turn), plan.multiplied(turn)
        accs: dict[Node, Buffer] = {}
        for n in reduced:
            accs[n] = self.cleared(n, self.tall)
        for n in multiplied:
            accs[n] = self.cleared(n, self.tall, each(plan.factors(n)[1].across))

        def tile(s: Scope, j: Var) -> None:
            staged = [x for x in plan.staged(turn) if not x.own]
            for x in staged:
                self.stage(s, x, j, self.other)
            if plan.made(turn):
                s.body.append(Barrier())
            self.at = nest.bound(s, plus(j, self.x))
            sums = {n: self.score(s, n) if n in plan.made(turn) else self.again(s, n) for n in plan.scores(turn)}
            for n in plan.made(turn):
                if n in self.kept:
                    self.keep(s, n, sums[n])
            values = {t: nest.local(s, t.elem, self.wide, self.tall) for t in dict.fromkeys(plan.factors(n)[0] for n in multiplied)}
            self.element(s, plan.elements(turn), sums, reduced, accs, values)
            count: KExpr = const(self.wide * SIDE)
            if not self.even:
                count = nest.bound(s, op("min", count, minus(self.limit, j)))
            for k, n in enumerate(multiplied):
                tensor, other = plan.factors(n)
                if k or plan.way.product is Role.OUT:  # else it is there already
                    nest.unroll(s, self.wide, lambda x, w, tensor=tensor: self.put(x, values[tensor], w))  # type: ignore[misc]
                s.body.append(Barrier())
                self.multiply(s, n, other, accs[n], count)
                s.body.append(Barrier())
            if staged and not multiplied:
                s.body.append(Barrier())

        start, stop = self.first, self.limit
        self.emitter.guarded(
            self.thread, self.guards, lambda g: self.emitter.loop(g, "j", start, stop, tile, step=self.wide * SIDE)
        )
        for n in reduced:
            self.row(n, accs[n])
        for n in multiplied:
            self.finish(n, accs[n])

    def cleared(self, node: Node, *shape: int) -> Buffer:
        """Accumulators at their start."""
        r = node.reduction
        assert r is not None
        acc = self.nest.local(self.thread, r.terms[0].elem, *shape)
        self.clear(self.thread, acc, unit(r.op, acc.elem))
        return acc

    def clear(self, scope: Scope, acc: Buffer, value: Const) -> None:
        def level(s: Scope, at: tuple[KExpr, ...]) -> None:
            if len(at) == len(acc.shape):
                s.body.append(Store(acc, at, value))
            else:
                n = acc.shape[len(at)]
                assert isinstance(n, Const)
                self.nest.unroll(s, int(n.value), lambda x, k: level(x, (*at, k)))

        level(scope, ())

    def score(self, scope: Scope, node: Node) -> Buffer:
        """The tile of a product that makes a matrix: a thread loads some positions of the sum at once."""
        nest, r = self.nest, node.reduction
        assert r is not None
        operands = self.plan.operands(node)
        acc = nest.local(scope, r.terms[0].elem, self.tall, self.wide)
        self.clear(scope, acc, unit(r.op, acc.elem))
        across, together = operands[0].across, BYTES // acc.elem.bytes

        def steps(s: Scope, k: KExpr, count: int) -> None:
            parts: list[Buffer] = []
            for o in operands:
                part = nest.local(s, acc.elem, self.tall if o.own else self.wide, count)
                shared = self.shared[o]

                def line(x: Scope, n: Var, o: _Staged = o, part: Buffer = part, shared: Buffer = shared) -> None:
                    at = plus(times(self.y, const(self.tall)), n) if o.own else plus(self.x, times(n, const(SIDE)))
                    self.together(x, count, lambda y, c: y.body.append(Store(part, (n, c), Load(shared, (at, plus(k, c))))))

                nest.unroll(s, self.tall if o.own else self.wide, line)
                parts.append(part)

            def step(x: Scope, c: Var) -> None:
                def cell(y: Scope, r: Var, w: Var) -> None:
                    terms = [Load(p, (r if o.own else w, c)) for o, p in zip(operands, parts, strict=True)]
                    y.body.append(Store(acc, (r, w), combine("sum", Load(acc, (r, w)), terms, nest_step)))

                nest.unroll(x, self.tall, lambda y, r: nest.unroll(y, self.wide, lambda z, w: cell(z, r, w)))

            nest.unroll(s, count, step)

        nest_step = r.step
        whole = across // together  # counted one by one, so that a compiler sees what the places of the accesses are multiples of
        self.emitter.loop(scope, "k", const(0), const(whole), lambda s, k: steps(s, times(k, const(together)), together))
        if across % together:
            steps(scope, const(whole * together), across % together)
        return acc

    def keep(self, scope: Scope, node: Node, sums: Buffer) -> None:
        """Keep scores for the next passes."""
        self.cells(scope, lambda s, r, w, at: s.body.append(Store(self.kept[node], at, Load(sums, (r, w)))))

    def again(self, scope: Scope, node: Node) -> Buffer:
        """Scores that were kept."""
        kept = self.kept[node]
        sums = self.nest.local(scope, kept.elem, self.tall, self.wide)
        self.cells(scope, lambda s, r, w, at: s.body.append(Store(sums, (r, w), Load(kept, at))))
        return sums

    def cells(self, scope: Scope, fill: Callable[[Scope, KExpr, KExpr, tuple[KExpr, ...]], None]) -> None:
        """`fill` for each element of a thread, with the place where it is kept."""
        first = times(self.y, const(self.tall))

        def line(s: Scope, w: Var) -> None:
            at = plus(self.at, times(w, const(SIDE)))
            self.together(s, self.tall, lambda x, r: fill(x, r, w, (at, plus(first, r))))

        self.nest.unroll(scope, self.wide, line)

    def element(
        self,
        scope: Scope,
        nodes: Sequence[Node],
        sums: dict[Node, Buffer],
        reduced: Sequence[Node],
        accs: dict[Node, Buffer],
        values: dict[Tensor, Buffer],
    ) -> None:
        """What is done with each element of a thread: its matrices, the sums of its row, and what products will need."""

        def one(s: Scope, r: Var, w: Var) -> None:
            for n in nodes:
                inner = Scope(s)
                if n in sums:
                    inner.accs = (Load(sums[n], (r, w)),)
                self.nest_of(n, inner).store(inner)
                s.body += inner.body
            for n in reduced:
                inner = Scope(s)
                Nest(n, self.emitter, (), 0, inner).accumulate(inner, accs[n], (r,))
                behind = [] if self.inside else [op("lt", plus(self.at, times(w, const(SIDE))), self.other)]
                s.body += [If(behind[0], tuple(inner.body))] if behind else inner.body
            for t, b in values.items():
                s.body.append(Store(b, (w, r), self.emitter.variables[t]))
            for n in nodes:
                for t in n.results:
                    del self.emitter.variables[t]

        if self.plan.way.product is Role.OUT:  # numbers of rows are found once for all elements of a row
            self.own_lines(scope, lambda s, r: self.tile_lines(s, lambda x, w: one(x, r, w)))
            return
        first = next(iter(values.values()))

        def line(s: Scope, w: Var) -> None:
            self.own_lines(s, lambda x, r: one(x, r, w))
            self.put(s, first, w)  # line by line, so that few registers are held for it

        self.tile_lines(scope, line)

    def put(self, scope: Scope, values: Buffer, w: Var) -> None:
        """A thread's part of a line of a matrix to shared memory."""
        pool = self.pool
        assert pool is not None
        at, first = plus(self.x, times(w, const(SIDE))), times(self.y, const(self.tall))
        self.together(scope, self.tall, lambda s, r: s.body.append(Store(pool, (at, plus(first, r)), Load(values, (w, r)))))

    def multiply(self, scope: Scope, node: Node, other: _Staged, acc: Buffer, count: KExpr) -> None:
        """A tile of a matrix times the lines that it went along."""
        nest, r, pool, shared = self.nest, node.reduction, self.pool, self.shared[other]
        assert r is not None and pool is not None
        first = self.plan.factors(node)[0] in [e.data.tensor for e in r.terms[:1] if e.op == "load"]

        def step(s: Scope, j: Var) -> None:
            mine = nest.local(s, acc.elem, self.tall)
            theirs = nest.local(s, acc.elem, each(other.across))
            at = times(self.y, const(self.tall))
            self.together(s, self.tall, lambda x, r: x.body.append(Store(mine, (r,), Load(pool, (j, plus(at, r))))))
            self.columns(s, other.across, lambda x, c, at: x.body.append(Store(theirs, (c,), Load(shared, (j, at)))))

            def cell(x: Scope, r: Var, c: Var) -> None:
                terms = [Load(mine, (r,)), Load(theirs, (c,))]
                x.body.append(Store(acc, (r, c), combine("sum", Load(acc, (r, c)), terms if first else terms[::-1], node_step)))

            nest.unroll(s, self.tall, lambda x, r: nest.unroll(x, each(other.across), lambda y, c: cell(y, r, c)))

        node_step = r.step
        self.emitter.loop(scope, "k", const(0), count, step)

    def columns(self, scope: Scope, across: int, fill: Callable[[Scope, KExpr, KExpr], None], stored: bool = False) -> None:
        """`fill` with the number and the place of each column of a product that a thread has, some side by side; where they are `stored`,
        only for those that there are.
        """
        count = each(across)
        together = next(n for n in (4, 2, 1) if count % n == 0 and across % n == 0)

        def group(s: Scope, g: KExpr) -> None:
            number = times(g, const(together))
            at = plus(times(g, const(SIDE * together)), times(self.x, const(together)))
            inner = Scope(s)
            self.together(inner, together, lambda x, l: fill(x, plus(number, l), plus(at, l)))
            whole = not stored or count * SIDE == across
            s.body += inner.body if whole else [If(op("lt", at, const(across)), tuple(inner.body))]

        if count == together:
            group(scope, const(0))
        else:
            self.nest.unroll(scope, count // together, group)

    # ------------------------------------------------------------ results

    def row(self, node: Node, acc: Buffer) -> None:
        """Numbers of rows, in every thread of a row."""
        r = node.reduction
        assert r is not None
        reducer = r.op
        self.nest.unroll(self.thread, self.tall, lambda s, r: exchange(self.emitter, s, acc, (r,), reducer))
        self.own_lines(self.thread, lambda s, r: self.number(s, node, (Load(acc, (r,)),)))

    def tell(self, turn: int) -> None:
        """What can be computed from numbers that are known before a pass."""
        for n in self.plan.numbers:
            if self.plan.roles[n] is Role.MAP and self.plan.turn[n] == turn:
                self.own_lines(self.thread, lambda s, r, n=n: self.number(s, n, ()))  # type: ignore[misc]

    def number(self, scope: Scope, node: Node, accs: tuple[KExpr, ...]) -> None:
        """Keep a number of a row, and store what others read."""
        scope.accs = accs
        stores: list[Stmt] = []
        for t, e in zip(node.results, node.outputs, strict=True):
            value = self.nest.bound(scope, self.emitter.emit(e, scope))
            scope.body.append(Store(self.numbers[t], (self.r,), value))
            if t in self.blocks.stored:
                stores.append(Store(self.blocks.stored[t], tuple(scope.lookup(k) for k in range(self.d + 1)), value))
        if stores:
            mine: KExpr = op("eq", self.x, const(0))
            if not self.full:
                mine = op("and", mine, op("lt", plus(self.line, self.r), self.own))
            scope.body.append(If(mine, tuple(stores)))

    def finish(self, node: Node, acc: Buffer) -> None:
        """The outputs of a product."""
        d, across = self.d, _across(node, Role.OUT) or 0
        outputs = tuple(self.blocks.stored[t] for t in node.results)

        def line(s: Scope, r: Var) -> None:
            inner = Scope(s)
            inner.axes[d] = plus(self.line, r)

            def column(x: Scope, c: KExpr, at: KExpr) -> None:
                x.axes[d + 1] = at
                x.accs = (Load(acc, (r, c)),)
                Nest(node, self.emitter, outputs, 0, x).store(x)

            self.columns(inner, across, column, stored=True)
            s.body += inner.body if self.full else [If(op("lt", plus(self.line, r), self.own), tuple(inner.body))]

        self.nest.unroll(self.thread, self.tall, line)


def _is_even(extent: KExpr, lines: int) -> bool:
    return isinstance(extent, Const) and extent.value % lines == 0

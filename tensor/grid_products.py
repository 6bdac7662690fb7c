"""The nest of products on a GPU: a tile of the output a block, its operands passing through shared memory.

    y[i, j] = sum[k] a[i, k] * b[k, j]

    block of 128 x 128 elements {                       thread: 8 x 8 of them, in registers
      shared a[2, 8, 132], b[2, 8, 132]
      the first eight k to a[0], b[0]; barrier
      for s in 0..k / 8 {
        the next eight k to registers                   while they come, the threads compute
        for k in 0..8 { acc[r, c] = fma(a[s % 2, k, row r], b[s % 2, k, column c], acc[r, c]) }
        from registers to a[(s + 1) % 2], b[(s + 1) % 2]; barrier
      }
      the k that are left; y[i, j] = ..
    }

Rows are all axes of the output along which the first factor varies and the second does not, columns those of the second; the others
are of a batch. Reduced axes are one, in row-major order. So a convolution is a product too: its rows are the places of images. What
is staged is the value of a factor, whatever it is computed from.

Each element is one chain over k, as everywhere. What is beyond the last row or column is computed and not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.emit import Scope, minus, plus, times
from tlc.tensor.fuse import cost
from tlc.tensor.graph.ir import Expr, Node, axes_of, walk
from tlc.tensor.grid_nests import grid, rounded_up, unravel
from tlc.tensor.kernel.ir import Barrier, Buffer, Const, Declare, For, If, Kind, Load, Space, Stmt, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import LIGHT, Nest, combine, unit
from tlc.tensor.pack import along

SIDE = 16  # threads of a block: so many rows of so many columns
THREADS = SIDE * SIDE
DEPTH = 8  # positions of the reduced axes that are in shared memory at once
PAD = 4  # elements behind each of them there, so that threads that store one column do not wait for each other
SIDES = (128, 64, 32)  # of a tile: rows and columns alike
BUSY = 96  # blocks that keep a GPU busy; where there are fewer, smaller tiles make more


@dataclass(frozen=True)
class Product:
    """Which axes of the output are rows (the first factor varies along them alone), columns (the second does), and neither; which factor is
    that of the rows; and the side of a tile.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    batch: tuple[int, ...]
    factors: tuple[Expr, Expr]
    side: int


def as_product(node: Node) -> Product | None:
    """A node as a product that is worth tiles, if it is one."""
    r = node.reduction
    if r is None or node.scatter or len(r.terms) != 2 or r.order not in ONE_BY_ONE or axes_of(r.extents):
        return None
    a, b = r.terms
    of_a, of_b = ([k for k in range(node.rank) if k in axes_of([x]) and k not in axes_of([y])] for x, y in ((a, b), (b, a)))
    if of_a and (not of_b or max(of_a) > max(of_b)):
        a, b, of_a, of_b = b, a, of_b, of_a  # the last axis, along which elements are stored, is a column
    if any(e.op == "apply" for e in walk(node.roots)):
        return None
    batch = [k for k in range(node.rank) if k not in of_a and k not in of_b]
    height, width, many = (prod(node.extents[k].value or 1024 for k in axes) for axes in (of_a, of_b, batch))
    if min(height, width) < SIDE // 2:
        return None
    sides = [s for s in SIDES if min(height, width) > s // 2 and a.elem.bytes * s <= 512] or [SIDES[-1]]
    side = next((s for s in sides if -(-height // s) * -(-width // s) * many >= BUSY), sides[-1])
    return Product(tuple(of_a), tuple(of_b), tuple(batch), (a, b), side)


def product(nest: Nest, p: Product) -> str:
    _Tiles(nest, p).write()
    return f"tiles: {p.side} by {p.side}, {p.side // SIDE} by {p.side // SIDE} a thread, {DEPTH} deep"


@dataclass(frozen=True)
class _Bringing:
    """What a thread brings of a stage at once: `width` elements from a row and a depth of the tile on, along the rows or along the
    depth. The axes of its row are bound in `place`; `inside` is whether there is such a row (None: always).
    """

    row: KExpr
    depth: KExpr
    place: Scope
    inside: KExpr | None


class _Operand:
    """One factor on its way: what a thread brings of each stage, by its registers, to shared memory.

    Neighbours in memory are brought by neighbouring threads, and where `width` of them lie together at multiples of `width`, a
    thread brings them by one access.
    """

    def __init__(self, tiles: _Tiles, factor: Expr, axes: Sequence[int], low: KExpr, extent: KExpr) -> None:
        self.tiles, self.factor, self.axes, self.extent = tiles, factor, axes, extent
        nest, side, t = tiles.nest, tiles.p.side, tiles.t
        last = len(nest.node.domain) - 1
        loads = [e for e in walk([factor]) if e.op == "load"]
        self.deep = any(along(last, e) == "contiguous" for e in loads)  # neighbours along the reduction lie together
        self.axis = last if self.deep else axes[-1]
        count = side * DEPTH // THREADS
        self.width = count if self.is_wide(count) else 1
        self.shared = Buffer(nest.emitter.fresh("s"), factor.elem, (const(2), const(DEPTH), const(side + PAD)), Space.SHARED)
        self.held = Buffer(nest.emitter.fresh("held"), factor.elem, (const(count),), Space.LOCAL)
        across = (DEPTH if self.deep else side) // self.width  # threads that go along the memory
        step = THREADS // across
        first = nest.bound(tiles.thread, times(op("mod", t, const(across)), const(self.width)))
        other = nest.bound(tiles.thread, op("floordiv", t, const(across)))
        self.parts: list[_Bringing] = []
        for n in range(count // self.width):
            at = plus(other, const(n * step))
            if self.deep or not self.parts:
                row = at if self.deep else first
                position = named(nest, tiles.thread, plus(low, row))
                place = Scope()
                unravel(nest, place, position, axes, [nest.emitter.extent(nest.node.extents[k]) for k in axes])
                tiles.thread.body += place.body
                full = isinstance(extent, Const) and extent.value % side == 0
                inside = None if full else op("lt", position, extent)
            self.parts.append(_Bringing(row, first if self.deep else at, place, inside))

    def is_wide(self, width: int) -> bool:
        """Whether so many neighbours are all there or all not, and lie together in memory, in 16 bytes at most."""
        e = self.factor
        if e.op != "load" or e.guard is not None or width * e.elem.bytes > 16 or along(self.axis, e) != "contiguous":
            return False
        length = self.tiles.nest.node.domain[self.axis].value
        return length is not None and length % width == 0

    def fetch(self, first: KExpr) -> list[Stmt]:
        """The values at the depths from `first` on to registers."""
        nest, out = self.tiles.nest, list[Stmt]()
        for n, part in enumerate(self.parts):
            cell = Scope(axes=self.tiles.batch | part.place.axes)
            k = named(nest, cell, plus(first, part.depth))
            inside = part.inside
            if not self.tiles.even:
                short = op("lt", k, self.tiles.depth)
                inside = short if inside is None else op("and", inside, short)
            value, nothing = Scope(axes=dict(cell.axes)), Scope()
            nest.bind_position(value, k)
            start = value.lookup(self.axis)

            def bring(s: Scope, l: KExpr, start: KExpr = start, n: int = n) -> None:
                s.axes[self.axis] = plus(start, l)
                s.body.append(Store(self.held, (plus(const(n), l),), nest.emitter.emit(self.factor, s)))

            def clear(s: Scope, l: KExpr, n: int = n) -> None:
                s.body.append(Store(self.held, (plus(const(n), l),), unit("sum", self.factor.elem)))

            self.together(value, bring)
            self.together(nothing, clear)
            out += [*cell.body, *(value.body if inside is None else [If(inside, tuple(value.body), tuple(nothing.body))])]
        return out

    def together(self, scope: Scope, fill: Callable[[Scope, KExpr], None]) -> None:
        """`fill` for each of the neighbours that are brought at once."""
        if self.width == 1:
            fill(scope, const(0))
        else:
            self.tiles.nest.vector(scope, const(self.width), self.width, fill)

    def put(self, half: KExpr) -> list[Stmt]:
        """From registers to one half of the shared buffer."""
        scope = Scope()
        for n, part in enumerate(self.parts):

            def store(s: Scope, l: KExpr, n: int = n, part: _Bringing = part) -> None:
                row, depth = (part.row, plus(part.depth, l)) if self.deep else (plus(part.row, l), part.depth)
                s.body.append(Store(self.shared, (half, depth, row), Load(self.held, (plus(const(n), l),))))

            if self.deep and self.width > 1:
                nest = self.tiles.nest
                nest.unroll(scope, self.width, store)  # each at another depth
            else:
                self.together(scope, store)
        return scope.body


def named(nest: Nest, scope: Scope, value: KExpr) -> KExpr:
    """A value under a name, if it has none and is more than a number."""
    return value if isinstance(value, Var | Const) else nest.bound(scope, value)


class _Tiles:
    """The grid of one product."""

    def __init__(self, nest: Nest, p: Product) -> None:
        self.nest, self.p = nest, p
        self.before, self.thread = Scope(), Scope()
        self.b, self.t = Var(nest.emitter.fresh("b")), Var(nest.emitter.fresh("t"))
        self.height, self.width, many = (self.extent(axes) for axes in (p.rows, p.columns, p.batch))
        self.depth: KExpr = const(1)
        for n in nest.reduction.extents:
            self.depth = times(self.depth, nest.emitter.extent(n))
        self.even = isinstance(self.depth, Const) and self.depth.value % DEPTH == 0
        down, across = (rounded_up(n, p.side) for n in (self.height, self.width))
        self.blocks = times(times(many, down), across)
        rest, column = self.divided(self.b, across)
        number, row = self.divided(rest, down)
        self.low = [named(nest, self.before, times(n, const(p.side))) for n in (row, column)]
        place = Scope()
        unravel(nest, place, number, p.batch, [nest.emitter.extent(nest.node.extents[k]) for k in p.batch])
        self.before.body += place.body
        self.batch = place.axes
        self.y = nest.bound(self.thread, op("floordiv", self.t, const(SIDE)))
        self.x = nest.bound(self.thread, op("mod", self.t, const(SIDE)))
        each = p.side // SIDE
        self.each = each
        self.together = min(each, 4)  # elements of a thread that lie together, so that it loads them at once
        self.acc = nest.local(self.thread, nest.reduction.terms[0].elem, each, each)

    def divided(self, number: KExpr, by: KExpr) -> tuple[KExpr, KExpr]:
        """What a number of a block is, divided, and what is left of it."""
        if by == const(1):
            return number, const(0)
        whole, rest = (self.nest.bound(self.before, op(name, number, by)) for name in ("floordiv", "mod"))
        return whole, rest

    def extent(self, axes: Sequence[int]) -> KExpr:
        total: KExpr = const(1)
        for k in axes:
            total = times(total, self.nest.emitter.extent(self.nest.node.extents[k]))
        return total

    def unroll(self, count: int, fill: Callable[[Var], Sequence[Stmt]], kind: Kind = Kind.UNROLL) -> For:
        r = Var(self.nest.emitter.fresh("r"))
        return For(r, const(0), const(count), tuple(fill(r)), kind)

    def write(self) -> None:
        nest, p, body = self.nest, self.p, self.thread.body
        zero = unit("sum", self.acc.elem)
        body.append(self.unroll(self.each, lambda r: [self.unroll(self.each, lambda c: [Store(self.acc, (r, c), zero)])]))
        extents = (self.height, self.width)
        parts = zip(p.factors, (p.rows, p.columns), self.low, extents, strict=True)
        operands = [_Operand(self, factor, axes, low, extent) for factor, axes, low, extent in parts]
        body += [Declare(o.held) for o in operands]
        stages, whole = self.stages(DEPTH - 1), self.stages(0)
        for o in operands:
            body += [*o.fetch(const(0)), *o.put(const(0))]
        body.append(Barrier())
        s = Var(nest.emitter.fresh("k"))
        stage = Scope()
        there = nest.bound(stage, plus(s, const(1)))
        more = op("lt", there, stages)
        fetch = [x for o in operands for x in o.fetch(times(there, const(DEPTH)))]
        put = [x for o in operands for x in o.put(op("mod", there, const(2)))]
        compute = self.steps(operands, s, const(DEPTH), Kind.UNROLL)
        stage.body += [If(more, tuple(fetch)), *compute, If(more, tuple(put)), Barrier()]
        body.append(For(s, const(0), whole, tuple(stage.body)))
        if not self.even:
            left = minus(self.depth, times(whole, const(DEPTH)))
            body += self.steps(operands, whole, left, Kind.SERIAL)
        self.finish()
        shared = [Declare(o.shared) for o in operands]
        nest.top.body.append(grid(self.b, self.blocks, [*self.before.body, *shared], self.t, THREADS, body))

    def stages(self, more: int) -> KExpr:
        """How many stages the depth and so much more have."""
        if isinstance(self.depth, Const):
            return const((int(self.depth.value) + more) // DEPTH)
        return self.nest.bound(self.thread, op("floordiv", plus(self.depth, const(more)), const(DEPTH)))

    def steps(self, operands: Sequence[_Operand], stage: KExpr, count: KExpr, kind: Kind) -> list[Stmt]:
        """The fused multiply-adds of a stage, which lies in one half of the shared buffers."""
        k = Var(self.nest.emitter.fresh("k"))
        outer, inner = Scope(), Scope()
        half = const(int(stage.value) % 2) if isinstance(stage, Const) else self.nest.bound(outer, op("mod", stage, const(2)))
        parts = [self.nest.local(inner, o.shared.elem, self.each) for o in operands]
        def load(o: _Operand, part: Buffer, n: KExpr, at: KExpr) -> list[Stmt]:
            return [Store(part, (n,), Load(o.shared, (half, k, at)))]

        for o, part, mine in zip(operands, parts, (self.y, self.x), strict=True):
            inner.body += self.elements(partial(load, o, part), mine)

        def step(r: Var, c: Var) -> Store:
            return Store(self.acc, (r, c), combine("sum", Load(self.acc, (r, c)), [Load(parts[0], (r,)), Load(parts[1], (c,))]))

        inner.body.append(self.unroll(self.each, lambda r: [self.unroll(self.each, lambda c: [step(r, c)])]))
        return [*outer.body, For(k, const(0), count, tuple(inner.body), kind)]

    def groups(self, fill: Callable[[KExpr, KExpr], Sequence[Stmt]], mine: Var, kind: Kind = Kind.UNROLL) -> list[Stmt]:
        """`fill` for each group of elements of a thread that lie together along a side of the tile: the first one's number and place."""
        count = self.each // self.together

        def group(g: KExpr) -> Sequence[Stmt]:
            at = plus(times(g, const(self.p.side // count)), times(mine, const(self.together)))
            return fill(times(g, const(self.together)), at)

        return list(group(const(0))) if count == 1 else [self.unroll(count, group, kind)]

    def elements(self, fill: Callable[[KExpr, KExpr], Sequence[Stmt]], mine: Var, kind: Kind = Kind.UNROLL) -> list[Stmt]:
        """`fill` for each element of a thread along one side of the tile: its number, and its place."""

        def group(first: KExpr, at: KExpr) -> Sequence[Stmt]:
            return [self.unroll(self.together, lambda r: fill(plus(first, r), plus(at, r)), kind)]

        return self.groups(group, mine, kind)

    def finish(self) -> None:
        """The outputs of the thread's elements that there are."""
        nest, body = self.nest, self.thread.body
        acc, kind = self.acc, Kind.UNROLL
        last = self.p.columns[-1]
        length = nest.node.extents[last].value
        # neighbours that are all there or all not are stored at once
        wide = self.together > 1 and last == nest.node.rank - 1 and length is not None and length % self.together == 0
        if cost(nest.node.outputs) > LIGHT:
            # much code for an element is written once, in loops; the accumulators stay in registers until then
            acc, kind = nest.local(self.thread, acc.elem, self.each, self.each), Kind.SERIAL
            copy = self.unroll(self.each, lambda r: [self.unroll(self.each, lambda c: [Store(acc, (r, c), Load(self.acc, (r, c)))])])
            body.append(copy)

        def row(r: KExpr, i: KExpr) -> list[Stmt]:
            head, scope = Scope(), Scope(axes=dict(self.batch))
            position = nest.bound(head, plus(self.low[0], i))
            unravel(nest, scope, position, self.p.rows, [nest.emitter.extent(nest.node.extents[k]) for k in self.p.rows])

            def columns(c: KExpr, j: KExpr) -> list[Stmt]:
                head, inner = Scope(), Scope(scope)
                position = nest.bound(head, plus(self.low[1], j))
                unravel(nest, inner, position, self.p.columns, [nest.emitter.extent(nest.node.extents[k]) for k in self.p.columns])
                start = inner.lookup(self.p.columns[-1])

                def store(s: Scope, l: KExpr) -> None:
                    s.axes[self.p.columns[-1]] = plus(start, l)
                    s.accs = (Load(acc, (r, plus(c, l))),)
                    nest.store(s)

                if wide:
                    nest.vector(inner, const(self.together), self.together, store)
                else:
                    store(inner, const(0))
                return [*head.body, *self.within(position, self.width, inner.body)]

            loop = self.groups(columns, self.x, kind) if wide else self.elements(columns, self.x, kind)
            return [*head.body, *self.within(position, self.height, [*scope.body, *loop])]

        body += self.elements(row, self.y, kind)

    def within(self, position: KExpr, extent: KExpr, body: Sequence[Stmt]) -> list[Stmt]:
        if isinstance(extent, Const) and extent.value % self.p.side == 0:
            return list(body)
        return [If(op("lt", position, extent), tuple(body))]

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

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from tlc.frontend.records import dataclass
from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.emit import Scope, minus, plus, times
from tlc.tensor.fuse import cost
from tlc.tensor.graph.ir import Expr, Node, axes_of, axis, walk
from tlc.tensor.grid_nests import grid, rounded_up, unravel
from tlc.tensor.kernel.ir import Barrier, Buffer, Const, CopyAsync, Declare, For, If, Kind, Load, Space, Stmt, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import LIGHT, Nest, combine, unit
from tlc.tensor.pack import along

SIDE = 16  # threads of a block: so many rows of so many columns
THREADS = SIDE * SIDE
DEPTH = 8  # positions of the reduced axes that are in shared memory at once
BYTES = 16  # of the widest access
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
    _Squares(nest, p).write()
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


def near_axis(nest: Nest, factor: Expr, axes: Sequence[int]) -> int:
    """Along which axis neighbours of a factor lie together: the reduction's, or else the last of its own."""
    last = len(nest.node.domain) - 1
    return last if any(along(last, e) == "contiguous" for e in walk([factor]) if e.op == "load") else axes[-1]


def is_wide(nest: Nest, e: Expr, near: int, width: int) -> bool:
    """Whether so many neighbours of a factor are all there or all not, and lie together in memory."""
    if e.op != "load" or e.guard is not None or along(near, e) != "contiguous":
        return False
    length = nest.node.domain[near].value
    return length is not None and length % width == 0


def can_copy(nest: Nest, e: Expr, axes: Sequence[int]) -> bool:
    """Whether a factor lies in pieces of 16 bytes, at positions that are surely multiples of those and need no look at memory."""
    near, width = near_axis(nest, e, axes), BYTES // e.elem.bytes
    if not is_wide(nest, e, near, width) or any(x.op in ("load", "apply") for x in walk(e.indices)):
        return False
    return e.indices[-1] == axis(near) and (e.data.shape[-1].value or 1) % width == 0


class Operand:
    """One factor on its way: what a thread brings of each stage, by its registers, to shared memory.

    Neighbours in memory are brought by neighbouring threads, and where `width` of them lie together at multiples of `width`, a
    thread brings them by one access. `by_rows`: in shared memory neighbours are those along the reduction, else those of the tile.
    """

    def __init__(self, tiles: Tiles, factor: Expr, axes: Sequence[int], low: KExpr, extent: KExpr) -> None:
        self.tiles, self.factor, self.axes, self.extent = tiles, factor, axes, extent
        nest, side, deep, t = tiles.nest, tiles.p.side, tiles.deep, tiles.t
        self.axis = near_axis(nest, factor, axes)
        self.deep = self.axis == len(nest.node.domain) - 1
        self.by_rows = self.deep and tiles.keeps_rows
        count = side * deep // tiles.threads
        together = min(count, BYTES // factor.elem.bytes)
        self.width = together if is_wide(nest, factor, self.axis, together) else 1
        apart, near = (side, deep) if self.by_rows else (deep, side)
        shape = (const(tiles.buffers), const(apart), const(near + tiles.pad(self)))
        self.shared = Buffer(nest.emitter.fresh("s"), factor.elem, shape, Space.SHARED)
        self.held = Buffer(nest.emitter.fresh("held"), factor.elem, (const(count),), Space.LOCAL)
        across = (deep if self.deep else side) // self.width  # threads that go along the memory
        step = tiles.threads // across
        first = nest.bound(tiles.thread, times(op("mod", t, const(across)), const(self.width)))
        other = nest.bound(tiles.thread, tiles.spread(op("floordiv", t, const(across)), across if self.width > 1 else 0))
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

    def fetch(self, first: KExpr) -> list[Stmt]:
        """The values at the depths from `first` on to registers."""
        nest, out = self.tiles.nest, list[Stmt]()
        for n, part in enumerate(self.parts):
            cell, k, inside = self.cell(part, first)
            value, nothing = Scope(axes=dict(cell.axes)), Scope()
            nest.bind_position(value, k)
            start = value.lookup(self.axis)

            def bring(s: Scope, l: KExpr, start: KExpr = start, n: int = n) -> None:
                s.axes[self.axis] = plus(start, l)
                s.body.append(Store(self.held, (plus(const(n * self.width), l),), nest.emitter.emit(self.factor, s)))

            def clear(s: Scope, l: KExpr, n: int = n) -> None:
                s.body.append(Store(self.held, (plus(const(n * self.width), l),), unit("sum", self.factor.elem)))

            self.together(value, bring)
            self.together(nothing, clear)
            out += [*cell.body, *(value.body if inside is None else [If(inside, tuple(value.body), tuple(nothing.body))])]
        return out

    def cell(self, part: _Bringing, first: KExpr) -> tuple[Scope, KExpr, KExpr | None]:
        """A scope with the axes of the output bound, the position along the reduction, and whether there is such an element."""
        cell = Scope(axes=self.tiles.batch | part.place.axes)
        k = named(self.tiles.nest, cell, plus(first, part.depth))
        inside = part.inside
        if not self.tiles.even:
            short = op("lt", k, self.tiles.depth)
            inside = short if inside is None else op("and", inside, short)
        return cell, k, inside

    def copy(self, first: KExpr, buffer: KExpr) -> list[Stmt]:
        """The values at the depths from `first` on to shared memory, not waited for: of a factor of which one `can_copy`."""
        nest, out = self.tiles.nest, list[Stmt]()
        emitter, view = nest.emitter, self.factor.data
        for part in self.parts:
            cell, k, inside = self.cell(part, first)
            nest.bind_position(cell, k)
            indices = emitter.seated(view.tensor, tuple(emitter.emit(a, cell) for a in self.factor.indices))
            place = (buffer, part.row, part.depth) if self.by_rows else (buffer, part.depth, part.row)
            out += [*cell.body, CopyAsync(Load(self.shared, place), Load(emitter.buffer(view), indices, inside))]
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
                value = self.tiles.staged(Load(self.held, (plus(const(n * self.width), l),)))
                s.body.append(Store(self.shared, (half, row, depth) if self.by_rows else (half, depth, row), value))

            if self.deep and not self.by_rows and self.width > 1:
                nest = self.tiles.nest
                nest.unroll(scope, self.width, store)  # each at another depth
            else:
                self.together(scope, store)
        return scope.body


def named(nest: Nest, scope: Scope, value: KExpr) -> KExpr:
    """A value under a name, if it has none and is more than a number."""
    return value if isinstance(value, Var | Const) else nest.bound(scope, value)


Cell = tuple[KExpr, ...]  # numbers of a row or a column among those of a thread
Group = Callable[[Cell, KExpr], Sequence[Stmt]]  # what is done for one: its numbers, and its place in the tile


class Tiles(ABC):
    """The grid of one product: tiles, and the factors on their way. How a thread multiplies what lies in shared memory, and which elements
    of the tile it has, is said by those who inherit.

    `deep` positions of the reduced axes are in shared memory at once. `keeps_rows`: what lies together along the reduction stays so
    there. `cuts`: positions that do not fill a stage are multiplied one by one; else they are 0 up to its end.
    """

    keeps_rows = False
    cuts = True
    buffers = 2  # of a factor in shared memory, for so many stages

    def __init__(self, nest: Nest, p: Product, threads: int, deep: int) -> None:
        self.nest, self.p, self.threads, self.deep = nest, p, threads, deep
        self.before, self.thread = Scope(), Scope()
        self.b, self.t = Var(nest.emitter.fresh("b")), Var(nest.emitter.fresh("t"))
        self.height, self.width, many = (self.extent(axes) for axes in (p.rows, p.columns, p.batch))
        self.depth: KExpr = const(1)
        for n in nest.reduction.extents:
            self.depth = times(self.depth, nest.emitter.extent(n))
        self.even = isinstance(self.depth, Const) and self.depth.value % deep == 0
        down, across = (rounded_up(n, p.side) for n in (self.height, self.width))
        self.blocks = times(times(many, down), across)
        rest, column = self.divided(self.b, across)
        number, row = self.divided(rest, down)
        self.low = [named(nest, self.before, times(n, const(p.side))) for n in (row, column)]
        place = Scope()
        unravel(nest, place, number, p.batch, [nest.emitter.extent(nest.node.extents[k]) for k in p.batch])
        self.before.body += place.body
        self.batch = place.axes
        self.acc = self.accumulators()

    # ------------------------------------------------------------ what those who inherit say

    @abstractmethod
    def accumulators(self) -> Buffer:
        """Declare those of a thread."""

    @property
    @abstractmethod
    def together(self) -> int:
        """How many neighbours in a row a thread has."""

    @abstractmethod
    def pad(self, o: Operand) -> int:
        """Elements behind each row in shared memory."""

    @abstractmethod
    def steps(self, operands: Sequence[Operand], stage: KExpr, count: KExpr, kind: Kind) -> list[Stmt]:
        """The sums of `count` products for a stage, which lies in one half of the shared buffers."""

    @abstractmethod
    def rows(self, fill: Group, kind: Kind) -> list[Stmt]:
        """`fill` for each row of a thread."""

    @abstractmethod
    def columns(self, fill: Group, kind: Kind) -> list[Stmt]:
        """`fill` for the first column of each group of neighbours of a thread."""

    @abstractmethod
    def cell(self, row: Cell, column: Cell, neighbour: KExpr) -> Cell:
        """The indices of an accumulator."""

    def factors(self) -> tuple[Expr, Expr]:
        """What is staged."""
        return self.p.factors

    def staged(self, value: KExpr) -> KExpr:
        """What is stored to shared memory of a value of a factor."""
        return value

    def spread(self, number: KExpr, across: int) -> KExpr:
        """Which row a thread brings that has such a number among those of its column; `across` threads bring one, by wide accesses."""
        return number

    # ------------------------------------------------------------ the grid

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
        body.append(self.each_accumulator(lambda cell: Store(self.acc, cell, zero)))
        extents = (self.height, self.width)
        parts = zip(self.factors(), (p.rows, p.columns), self.low, extents, strict=True)
        operands = [Operand(self, factor, axes, low, extent) for factor, axes, low, extent in parts]
        self.go_through(operands)
        self.finish()
        shared = [Declare(o.shared) for o in operands]
        nest.top.body.append(grid(self.b, self.blocks, [*self.before.body, *shared], self.t, self.threads, body))

    def go_through(self, operands: Sequence[Operand]) -> None:
        """All stages: while one is computed, the next is on its way to registers."""
        nest, body = self.nest, self.thread.body
        body += [Declare(o.held) for o in operands]
        stages = self.stages(self.deep - 1)
        whole = self.stages(0) if self.cuts else stages
        for o in operands:
            body += [*o.fetch(const(0)), *o.put(const(0))]
        body.append(Barrier())
        s = Var(nest.emitter.fresh("k"))
        stage = Scope()
        there = nest.bound(stage, plus(s, const(1)))
        more = op("lt", there, stages)
        fetch = [x for o in operands for x in o.fetch(times(there, const(self.deep)))]
        put = [x for o in operands for x in o.put(op("mod", there, const(2)))]
        compute = self.steps(operands, s, const(self.deep), Kind.UNROLL)
        stage.body += [If(more, tuple(fetch)), *compute, If(more, tuple(put)), Barrier()]
        body.append(For(s, const(0), whole, tuple(stage.body)))
        if self.cuts and not self.even:
            left = minus(self.depth, times(whole, const(self.deep)))
            body += self.steps(operands, whole, left, Kind.SERIAL)

    def stages(self, more: int) -> KExpr:
        """How many stages the depth and so much more have."""
        if isinstance(self.depth, Const):
            return const((int(self.depth.value) + more) // self.deep)
        return self.nest.bound(self.thread, op("floordiv", plus(self.depth, const(more)), const(self.deep)))

    def half(self, scope: Scope, stage: KExpr) -> KExpr:
        """Which of the shared buffers a stage lies in."""
        count = self.buffers
        return const(int(stage.value) % count) if isinstance(stage, Const) else self.nest.bound(scope, op("mod", stage, const(count)))

    def each_accumulator(self, fill: Callable[[Cell], Stmt]) -> Stmt:
        def level(extents: Sequence[KExpr], cell: Cell) -> Stmt:
            if not extents:
                return fill(cell)
            assert isinstance(extents[0], Const)
            return self.unroll(int(extents[0].value), lambda r: [level(extents[1:], (*cell, r))])

        return level(self.acc.shape, ())

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
            acc, kind = nest.local(self.thread, acc.elem, *(int(n.value) for n in acc.shape if isinstance(n, Const))), Kind.SERIAL
            body.append(self.each_accumulator(lambda cell: Store(acc, cell, Load(self.acc, cell))))

        def row(r: Cell, i: KExpr) -> list[Stmt]:
            head, scope = Scope(), Scope(axes=dict(self.batch))
            position = nest.bound(head, plus(self.low[0], i))
            unravel(nest, scope, position, self.p.rows, [nest.emitter.extent(nest.node.extents[k]) for k in self.p.rows])

            def column(c: Cell, j: KExpr, neighbour: KExpr) -> list[Stmt]:
                """From a column on: it alone, or with its neighbours."""
                head, inner = Scope(), Scope(scope)
                position = nest.bound(head, plus(self.low[1], plus(j, neighbour)))
                unravel(nest, inner, position, self.p.columns, [nest.emitter.extent(nest.node.extents[k]) for k in self.p.columns])
                start = inner.lookup(self.p.columns[-1])

                def store(s: Scope, l: KExpr) -> None:
                    s.axes[self.p.columns[-1]] = plus(start, l)
                    s.accs = (Load(acc, self.cell(r, c, plus(neighbour, l))),)
                    nest.store(s)

                if wide:
                    nest.vector(inner, const(self.together), self.together, store)
                else:
                    store(inner, const(0))
                return [*head.body, *self.within(position, self.width, inner.body)]

            def columns(c: Cell, j: KExpr) -> list[Stmt]:
                return column(c, j, const(0)) if wide else [self.unroll(self.together, lambda l: column(c, j, l), kind)]

            loop = self.columns(columns, kind)  # what does not vary along a row is moved out of it, to `scope`
            return [*head.body, *self.within(position, self.height, [*scope.body, *loop])]

        body += self.rows(row, kind)

    def within(self, position: KExpr, extent: KExpr, body: Sequence[Stmt]) -> list[Stmt]:
        if isinstance(extent, Const) and extent.value % self.p.side == 0:
            return list(body)
        return [If(op("lt", position, extent), tuple(body))]


class _Squares(Tiles):
    """A thread has a square of the tile and multiplies by fused multiply-adds, one position of the reduction after the other."""

    def __init__(self, nest: Nest, p: Product) -> None:
        self.each = p.side // SIDE
        super().__init__(nest, p, THREADS, DEPTH)

    @property
    def together(self) -> int:
        return min(self.each, 4)  # so that a thread loads them at once

    def pad(self, o: Operand) -> int:
        return PAD

    def accumulators(self) -> Buffer:
        nest = self.nest
        self.y = nest.bound(self.thread, op("floordiv", self.t, const(SIDE)))
        self.x = nest.bound(self.thread, op("mod", self.t, const(SIDE)))
        return nest.local(self.thread, nest.reduction.terms[0].elem, self.each, self.each)

    def steps(self, operands: Sequence[Operand], stage: KExpr, count: KExpr, kind: Kind) -> list[Stmt]:
        k = Var(self.nest.emitter.fresh("k"))
        outer, inner = Scope(), Scope()
        half = self.half(outer, stage)
        parts = [self.nest.local(inner, o.shared.elem, self.each) for o in operands]

        def load(o: Operand, part: Buffer, n: Cell, at: KExpr) -> list[Stmt]:
            return [Store(part, n, Load(o.shared, (half, k, at)))]

        for o, part, mine in zip(operands, parts, (self.y, self.x), strict=True):
            inner.body += self.elements(partial(load, o, part), mine, Kind.UNROLL)

        def step(cell: Cell) -> Store:
            factors = [Load(part, (n,)) for part, n in zip(parts, cell, strict=True)]
            return Store(self.acc, cell, combine("sum", Load(self.acc, cell), factors))

        inner.body.append(self.each_accumulator(step))
        return [*outer.body, For(k, const(0), count, tuple(inner.body), kind)]

    def rows(self, fill: Group, kind: Kind) -> list[Stmt]:
        return self.elements(fill, self.y, kind)

    def columns(self, fill: Group, kind: Kind) -> list[Stmt]:
        return self.groups(fill, self.x, kind)

    def cell(self, row: Cell, column: Cell, neighbour: KExpr) -> Cell:
        return (*row, plus(column[0], neighbour))

    def groups(self, fill: Group, mine: Var, kind: Kind) -> list[Stmt]:
        """`fill` for each group of elements of a thread that lie together along a side of the tile: the first one's number and place."""
        count = self.each // self.together

        def group(g: KExpr) -> Sequence[Stmt]:
            at = plus(times(g, const(self.p.side // count)), times(mine, const(self.together)))
            return fill((times(g, const(self.together)),), at)

        return list(group(const(0))) if count == 1 else [self.unroll(count, group, kind)]

    def elements(self, fill: Group, mine: Var, kind: Kind) -> list[Stmt]:
        """`fill` for each element of a thread along one side of the tile: its number, and its place."""

        def group(first: Cell, at: KExpr) -> Sequence[Stmt]:
            return [self.unroll(self.together, lambda r: fill((plus(first[0], r),), plus(at, r)), kind)]

        return self.groups(group, mine, kind)

"""Products whose reduction goes down both operands, as for the gradient of a layer's weights: `y[i, j] = sum[k] a[k, i] * b[k, j]`.

Nothing is read along its length: the next k is a row away. A tile of accumulators would walk down strips of few columns, which caches
hold badly (rows often lie a power of two apart) and the processor does not fetch ahead. So both operands are copied into strips that are
read from one end to the other. The longer side of y is cut into blocks, which threads share, and a block copies its own part just before
it reads it; the operand of the shorter side, which every block reads, is copied before. A long reduction is done in pieces:

    packed = b                                             W columns together, by all threads
    for blocks of i {                                      (or of j, where that side is longer)
      sums = 0
      for pieces of k {
        own = a                                            this block's rows in this piece, R together
        for W columns j { for R rows i { acc = sums; for k in the piece { acc += own * packed }; sums = acc } }
      }
      y = sums
    }

Where one piece is enough, the accumulators start at 0 and become y. An element is one chain in k, as in a tile.

Requires: one reduced axis, all extents known. Method: Goto and van de Geijn 2008, with the block of one operand private to a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tlc.frontend.records import dataclass
from tlc.tensor.emit import Scope, minus, plus, times
from tlc.tensor.graph.ir import Expr, Node
from tlc.tensor.kernel.ir import Buffer, Declare, If, Load, Space, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import COPY, Cells, Fill, Nest, power, unit

OFTEN = 64  # rows, columns and positions from which on copies pay
ABOUT = 96  # rows or columns of a block
FEWEST = 4  # blocks
WHOLE = 1024  # positions of the reduced axis up to which there is one piece,
PIECE = 512  # and how many a piece has otherwise
GAP = 4  # positions by which a copy is longer, so that its strips do not lie a power of two apart

Strip = tuple[KExpr, KExpr, int, int]  # equal tiles along one side: where they start and stop, how many indices each has, and room for
Tile = Callable[[Scope, Var, int, int], None]  # fills for the tile that begins at an index, has so many, and room for so many


@dataclass(frozen=True)
class Side:
    """One side of the output: its axis, the operand that moves along it, and how many indices a register tile has; `vector`: in lanes."""

    axis: int
    load: Expr
    tile: int
    vector: bool

    def extent(self, node: Node) -> int:
        return int(node.extents[self.axis].value or 0)

    def strips(self, nest: Nest, low: KExpr, count: int) -> list[Strip]:
        """The indices from `low` on in tiles."""
        high = plus(low, const(count))
        if not self.vector:
            return [(start, stop, n, n) for start, stop, n in nest.row_segments(nest.top, low, high, self.tile)]
        full = plus(low, const(count // self.tile * self.tile))
        rest = count % self.tile
        return [(low, full, self.tile, self.tile), *([(full, high, rest, power(rest))] if rest else [])]

    def room(self, count: int, depth: int) -> int:
        """How many elements a copy takes of so many indices."""
        return -(-count // self.tile) * self.tile * (depth + GAP) if self.vector else count * (depth + GAP)

    def each(self, nest: Nest, scope: Scope, low: KExpr, count: int, fill: Tile) -> None:
        """Loops over the tiles of the indices from `low` on."""
        for start, stop, size, together in self.strips(nest, low, count):
            one = partial(_tile, fill=fill, size=size, together=together)
            nest.emitter.loop(scope, "j" if self.vector else "i", start, stop, one, step=size)


def _tile(scope: Scope, first: Var, fill: Tile, size: int, together: int) -> None:
    fill(scope, first, size, together)


@dataclass(frozen=True)
class Copy:
    """A copy of what an operand has of its side from `low` on, and of the reduced axis from `start` on, for `depth` positions at most."""

    nest: Nest
    side: Side
    buffer: Buffer
    depth: int
    low: KExpr
    start: KExpr

    def at(self, scope: Scope, first: KExpr, together: int, lane: KExpr) -> tuple[KExpr, ...]:
        """Where an element lies, at the current position: of the tile that begins at `first` and has room for `together`."""
        position = minus(scope.lookup(self.nest.node.rank), self.start)
        return (plus(plus(times(minus(first, self.low), const(self.depth + GAP)), times(position, const(together))), lane),)

    def fill(self, scope: Scope, count: int, stop: KExpr, shared: bool) -> None:
        """Copy `count` indices, one position after the other, as the operand lies. `shared`: threads may share the positions."""
        nest = self.nest

        def tile(s: Scope, first: Var, size: int, together: int) -> None:
            def lane(x: Scope, l: Var) -> None:
                value = nest.emitter.emit(self.side.load, x)
                x.body.append(Store(self.buffer, self.at(x, first, together, l), value))

            nest.vector_along(s, self.side.axis, first, const(size), power(size), lane)

        def position(s: Scope, k: Var) -> None:
            s.axes[nest.node.rank] = k
            self.side.each(nest, s, self.low, count, tile)

        work = (lambda: const(count * COPY)) if shared and nest.unit else None
        nest.emitter.loop(scope, "k", self.start, stop, position, work=work)

    def read(self, scope: Scope, first: KExpr, lane: KExpr, together: int) -> None:
        """In this scope the operand is read from its copy."""
        scope.memo[self.side.load] = Load(self.buffer, self.at(scope, first, together, lane))


@dataclass(frozen=True)
class Blocked:
    """A product: the sides of its rows and columns, the buffer for the copy of the operand that all blocks read, and one like the output
    for the sums, if there are pieces.
    """

    nest: Nest
    rows: Side
    columns: Side
    packed: Buffer
    sums: Buffer | None

    @property
    def depth(self) -> int:
        return int(self.nest.reduction.extents[0].value or 0)

    @property
    def sides(self) -> tuple[Side, Side]:
        """The longer side and the other."""
        return longer(self.nest.node, self.rows, self.columns)

    def write(self) -> None:
        nest = self.nest
        long, short = self.sides
        extent, other = (side.extent(nest.node) for side in (long, short))
        size = block(extent, long.tile if long.vector else 1)
        full, rest = extent // size * size, extent % size
        whole = Copy(nest, short, self.packed, self.depth, const(0), const(0))
        whole.fill(nest.top, other, const(self.depth), shared=True)

        def one(scope: Scope, low: Var) -> None:
            room = Buffer(nest.emitter.fresh("p"), long.load.elem, (const(long.room(size, piece(self.depth))),), Space.LOCAL)
            scope.body.append(Declare(room))
            if not rest:
                self.block(scope, whole, room, low, size)
                return
            many, few = Scope(scope), Scope(scope)
            self.block(many, whole, room, low, size)
            self.block(few, whole, room, low, rest)
            scope.body.append(If(op("lt", low, const(full)), tuple(many.body), tuple(few.body)))

        work = (lambda: const(nest.unit * size * other * self.depth)) if nest.unit else None
        nest.emitter.loop(nest.top, "b", const(0), const(extent), one, step=size, work=work)

    def block(self, scope: Scope, whole: Copy, room: Buffer, low: KExpr, count: int) -> None:
        """What lies within `count` indices of the longer side; `room` is for the block's own copy."""
        nest, (long, short) = self.nest, self.sides
        length = piece(self.depth)
        span = {long: (low, count), short: (const(0), short.extent(nest.node))}

        def some(s: Scope, start: KExpr) -> None:
            """A piece of the reduced axis."""
            stop: KExpr = plus(start, const(length))
            if self.depth % length:
                stop = nest.bound(s, op("min", stop, const(self.depth)))
            own = Copy(nest, long, room, length, low, start)
            own.fill(s, count, stop, shared=False)
            copies = {long: own, short: whole}

            def columns(x: Scope, first: Var, size: int, together: int) -> None:
                def rows(y: Scope, i: Var, tall: int, _: int) -> None:
                    cells = Cells(
                        nest, (self.rows.axis, i, tall), (self.columns.axis, first, const(size), together),
                        partial(copies[self.rows].read, together=tall), partial(copies[self.columns].read, together=together),
                    )  # fmt: skip
                    self.tile(y, cells, start, stop)

                self.rows.each(nest, x, *span[self.rows], rows)

            self.columns.each(nest, s, *span[self.columns], columns)

        if self.sums is None:
            some(scope, const(0))
            return
        self.sweep(scope, span, self.clear)
        nest.emitter.loop(scope, "q", const(0), const(self.depth), some, step=length)
        self.sweep(scope, span, self.finish)

    def tile(self, scope: Scope, cells: Cells, start: KExpr, stop: KExpr) -> None:
        """A register tile: the positions from start to stop."""
        nest, r, sums = self.nest, self.nest.reduction, self.sums
        inner = Scope(scope)
        acc = nest.local(inner, r.terms[0].elem, cells.rows[2], cells.columns[3])
        if sums is None:
            cells.each(inner, lambda s, at: s.body.append(Store(acc, at, unit(r.op, acc.elem))), full=True)
        else:
            cells.each(inner, lambda s, at: s.body.append(Store(acc, at, Load(sums, nest.here(s)))))

        def step(s: Scope, k: Var) -> None:
            s.axes[nest.node.rank] = k
            cells.each(s, lambda x, at: nest.accumulate(x, acc, at), packed=True)

        nest.emitter.loop(inner, "k", start, stop, step)
        if sums is None:
            nest.finish_tile(inner, acc, cells)
        else:
            cells.each(inner, lambda s, at: s.body.append(Store(sums, nest.here(s), Load(acc, at))))
        scope.body.extend(inner.body)

    # ------------------------------------------------------------ the sums of several pieces

    def clear(self, scope: Scope) -> None:
        assert self.sums is not None
        scope.body.append(Store(self.sums, self.nest.here(scope), unit(self.nest.reduction.op, self.sums.elem)))

    def finish(self, scope: Scope) -> None:
        assert self.sums is not None
        scope.accs = (Load(self.sums, self.nest.here(scope)),)
        self.nest.store(scope)

    def sweep(self, scope: Scope, span: Mapping[Side, tuple[KExpr, int]], fill: Fill) -> None:
        """Element by element over a block."""
        nest, (low, count) = self.nest, span[self.rows]

        def row(s: Scope, i: Var) -> None:
            s.axes[self.rows.axis] = i

            def columns(x: Scope, first: Var, size: int, together: int) -> None:
                nest.vector_along(x, self.columns.axis, first, const(size), together, lambda y, _: fill(y))

            self.columns.each(nest, s, *span[self.columns], columns)

        nest.emitter.loop(scope, "i", low, plus(low, const(count)), row)


def is_worth_blocks(node: Node, rows: Side, columns: Side, cache_bytes: int) -> bool:
    """Whether the operands do not fit a core's cache, and each of their numbers is read often."""
    m, n = rows.extent(node), columns.extent(node)
    depth = int(node.domain[-1].value or 0)
    return min(m, n, depth) >= OFTEN and depth * (m + n) * rows.load.elem.bytes > cache_bytes


def longer(node: Node, rows: Side, columns: Side) -> tuple[Side, Side]:
    """The side that is cut into blocks, and the other."""
    return (rows, columns) if rows.extent(node) >= columns.extent(node) else (columns, rows)


def block(extent: int, multiple: int) -> int:
    """How many indices a block has, a multiple."""
    return even(extent, max(FEWEST, -(-extent // ABOUT)), multiple)


def even(extent: int, count: int, multiple: int) -> int:
    """How many indices, a multiple, each of so many blocks has, or of some more if they then have all as many."""
    sizes = (extent // n for n in range(count, 2 * count) if extent % (n * multiple) == 0)
    return next(sizes, -(-extent // (count * multiple)) * multiple)


def piece(depth: int) -> int:
    """How many positions of the reduced axis are done at once."""
    return depth if depth <= WHOLE else -(-depth // -(-depth // PIECE))

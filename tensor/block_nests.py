"""The kernel of a group of nodes that go through blocks of rows (`tensor/row_blocks.py`).

    for outer axes {
      down = 0
      for blocks of B rows {
        pack      q[c, l] = q[low + l, c]
        scores    for tiles of R columns { acc[R, B]; for c { vector l { acc[r, l] += k[j + r, c] * q[c, l] } }; s[j + r, l] = .. }
        row       sixteen accumulators for each of the rows; a map before it that makes what it reduces is done in its loop
        map       what is the same for a row; for j { vector l { s[j, l] = .. } }
        out       for pieces of the columns { for tiles of R rows by W of c { acc = y; for j { .. }; y = acc } }
        down      for tiles of R columns by W of c { acc = down; for i in the block { .. }; down = acc }
      }
    }

A matrix lies turned in the work, B rows side by side: [m, B]. So every nest has vectors along the rows or along c and reads what it
spreads from neighbouring cells; no operand but the block of q is copied, and reductions over columns need no sum across a vector.

Where a mask hides what is right of the diagonal, it is asked in the columns of the block's own rows alone: those before let every row
through, and those behind are left out. Products of the matrix leave out what the mask hides for all rows or columns of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from math import prod

from tlc.frontend.records import dataclass
from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Emitter, Scope, minus, plus, rounded_down, times
from tlc.tensor.fuse import cost
from tlc.tensor.graph.expand import expand
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Expr, Node, Tensor, axes_of, axis, const, op
from tlc.tensor.kernel.ir import Buffer, Const, Declare, Load, Space, Store, Var
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.kernel.ir import const as kconst
from tlc.tensor.kernel.ir import op as kop
from tlc.tensor.knobs import Knobs
from tlc.tensor.nests import Cells, Making, Nest, outer_loops, unit
from tlc.tensor.pack import along
from tlc.tensor.row_blocks import Blocks, Role, unmasked_inside

ROWS = 32  # of a block
STACK = 256 << 10  # bytes of the buffers that lie on the stack
PIECE = 512  # columns after which accumulators go back to memory, so that what other rows will read again is still near
_ZERO = kconst(0)
LIMIT = 1 << 20  # stands for an axis: how many columns the rows of the block have


@dataclass(eq=False)
class BlockNest:
    """The nodes of a group, with elementary functions expanded, and where their results lie."""

    group: Blocks
    nodes: Sequence[Node]
    emitter: Emitter
    lanes: int  # reals in a vector register
    knobs: Knobs
    work: list[tuple[Tensor, Buffer]] = field(default_factory=list)
    low: KExpr = _ZERO  # the first row of the block,
    count: KExpr = _ZERO  # how many there are,
    limit: KExpr = _ZERO  # and how many columns they have,
    inside: KExpr = _ZERO  # of which the mask lets so many through for every row
    panels: dict[Node, dict[Expr, Buffer]] = field(default_factory=dict)
    own: list[Buffer] = field(default_factory=list)  # buffers on the stack of who does the work, and
    left: int = STACK  # how many bytes more may lie there

    @property
    def depth(self) -> int:
        return self.group.depth

    @property
    def tall(self) -> int:
        """Rows of a register tile of two vectors."""
        return self.knobs.ask("tall", 8 if self.lanes >= 16 else 4)

    # ------------------------------------------------------------ where things lie

    def place(self) -> None:
        """Give every result a buffer. A matrix takes over the buffer of one that nobody reads any more."""
        results = set(self.group.results)
        free: list[Buffer] = []
        for k, node in enumerate(self.nodes):
            role = self.group.roles[k]
            dying = [t for t in node.sources if t in self.emitter.seats and t.rank == self.depth + 2 and not self.is_read_after(t, k)]
            if role is Role.MAP:
                free += [self.emitter.made[t] for t in dying]
            for t in node.results:
                if role in (Role.OUT, Role.DOWN) or (t in results and t.rank <= self.depth + 1):
                    shape = tuple(map(self.emitter.extent, node.extents))
                    self.emitter.made[t] = Buffer(self.emitter.fresh("y"), t.elem, shape)
                    if t not in results:  # only another product of the matrix reads it
                        self.work.append((Tensor(f"{t.name}.block", t.elem, node.extents), self.emitter.made[t]))
                elif t.rank == self.depth + 1:
                    b = self.emitter.made[t] = self.buffer(t, (const(ROWS),))
                    self.emitter.seats[t] = partial(self.row_seat, b)
                else:
                    home = next((b for b in free if b.elem is t.elem), None)
                    if home:
                        free.remove(home)
                    b = self.emitter.made[t] = home or self.buffer(t, (self.group.columns, const(ROWS)))
                    self.emitter.seats[t] = partial(self.matrix_seat, b)
            if role is not Role.MAP:
                free += [self.emitter.made[t] for t in dying]
            if role is Role.SCORES and node.reduction:
                depth = op("mul", node.reduction.extents[0], const(ROWS))
                turned = [e for e in node.reduction.terms if self.depth in axes_of([e]) and along(self.depth, e) != "contiguous"]
                self.panels[node] = {e: self.buffer(e.data.tensor, (depth,)) for e in dict.fromkeys(turned)}

    def is_read_after(self, t: Tensor, k: int) -> bool:
        return any(t in n.sources for n in self.nodes[k + 1 :])

    def buffer(self, like: Tensor, shape: tuple[Expr, ...]) -> Buffer:
        """A buffer of this shape to work in: on the stack where it is small enough, else one for all of the outer indices."""
        size = like.elem.bytes * prod(n.value or STACK for n in shape)
        if size <= self.left:
            self.left -= size
            self.own.append(Buffer(self.emitter.fresh("w"), like.elem, tuple(map(self.emitter.extent, shape)), Space.LOCAL))
            return self.own[-1]
        whole = (*self.nodes[0].extents[: self.depth], *shape)
        tensor = Tensor(f"{like.name}.block", like.elem, whole)
        b = Buffer(self.emitter.fresh("w"), like.elem, tuple(map(self.emitter.extent, whole)))
        self.work.append((tensor, b))
        return b

    def seat(self, b: Buffer, outer: Sequence[KExpr], *at: KExpr) -> tuple[KExpr, ...]:
        """Where an element lies in a buffer that was made by `buffer`."""
        return at if b.space is Space.LOCAL else (*outer, *at)

    def row_seat(self, b: Buffer, at: tuple[KExpr, ...]) -> tuple[KExpr, ...]:
        """Where the number of a row of the block lies."""
        *outer, row = at
        return self.seat(b, outer, minus(row, self.low))

    def matrix_seat(self, b: Buffer, at: tuple[KExpr, ...]) -> tuple[KExpr, ...]:
        """Where an element of a matrix lies: turned."""
        *outer, row, column = at
        return self.seat(b, outer, column, minus(row, self.low))

    # ------------------------------------------------------------ the loops

    def run(self, top: Scope) -> None:
        factor = self.knobs.ask("cost", 1)
        units = [factor * (1 if n.reduction and len(n.reduction.terms) == 2 else cost(n.roots) + 8) for n in self.nodes]
        outer_loops(self.emitter, top, self.nodes, self.depth, units, self.all_blocks)

    def all_blocks(self, scope: Scope) -> None:
        scope.body.extend(map(Declare, self.own))
        for node, role in zip(self.nodes, self.group.roles, strict=True):
            if role is Role.DOWN:
                self.clear(scope, node)
        rows = self.emitter.extent(self.rows())
        if isinstance(rows, Const):
            full = int(rows.value) // ROWS * ROWS
            self.emitter.loop(scope, "b", kconst(0), kconst(full), lambda s, b: self.block(s, b, kconst(ROWS)), step=ROWS)
            if full < rows.value:
                self.block(scope, kconst(full), kconst(int(rows.value) - full))
        else:
            full_rows = self.nest(self.nodes[0], scope).bound(scope, rounded_down(rows, ROWS))
            self.emitter.loop(scope, "b", kconst(0), full_rows, lambda s, b: self.block(s, b, kconst(ROWS)), step=ROWS)
            self.emitter.loop(scope, "b", full_rows, rows, lambda s, b: self.block(s, b, minus(rows, b)), step=ROWS)
        for node, role in zip(self.nodes, self.group.roles, strict=True):
            if role is Role.DOWN:
                self.finish(scope, node, kconst(0), self.emitter.emit(node.extents[self.depth], scope))

    def rows(self) -> Expr:
        return next(n for n, r in zip(self.nodes, self.group.roles, strict=True) if r is Role.SCORES).extents[self.depth]

    def block(self, scope: Scope, low: KExpr, count: KExpr) -> None:
        """The rows from low on."""
        inner = Scope(scope)
        helper = self.nest(self.nodes[0], inner)
        if not isinstance(count, Const | Var):
            count = helper.bound(inner, count)
        columns = self.emitter.extent(self.group.columns)
        self.low, self.count, self.limit, self.inside = low, count, columns, _ZERO
        if isinstance(low, Var):
            self.emitter.multiples[low] = ROWS
        if self.group.reach is not None:
            limit = plus(plus(low, count), kconst(self.group.reach))
            square = self.group.reach == 0 and equal(self.rows(), self.group.columns)
            if not square:
                limit = kop("min", limit, columns)
            self.limit = limit if isinstance(limit, Const) else helper.bound(inner, limit)
            if square:
                self.inside = low
                if isinstance(self.limit, Var) and isinstance(count, Const):
                    self.emitter.multiples[self.limit] = int(count.value)
        inner.axes[LIMIT] = self.limit
        made: Node | None = None
        for node, role, behind in zip(self.nodes, self.group.roles, (*self.nodes[1:], None), strict=True):
            one = Scope(inner)
            match role:
                case Role.SCORES:
                    self.scores(one, node)
                case Role.MAP if self.is_reduced_by(node, behind):
                    made = node
                case Role.ROW:
                    self.row(one, node, made)
                    made = None
                case Role.MAP:
                    self.map(one, node)
                case Role.OUT:
                    self.out(one, node)
                case Role.DOWN:
                    self.down(one, node)
            inner.body.extend(one.body)
        scope.body.extend(inner.body)

    # ------------------------------------------------------------ pieces

    def nest(self, node: Node, scope: Scope) -> Nest:
        return Nest(node, self.emitter, tuple(map(self.emitter.made.get, node.results)), 0, scope)

    def strips(self, scope: Scope, width: int, fill: Callable[[Scope, KExpr, KExpr, int], None]) -> None:
        """The rows of the block in strips of a vector's width: the first row, how many there are, and the width."""
        nest = self.nest(self.nodes[0], scope)

        def strip(s: Scope, first: KExpr, count: KExpr, lanes: int) -> None:
            fill(s, plus(self.low, first), count, lanes)

        nest.pieces(scope, "l", self.count, width, strip)

    def parts(self, node: Node) -> list[tuple[KExpr, KExpr, Node]]:
        """The columns of the block, from where to where, with the node there: without its mask where that lets through every row."""
        plain = unmasked_inside(node, self.depth)
        if self.inside == _ZERO or plain is node:
            return [(_ZERO, self.limit, node)]
        return [(_ZERO, self.inside, plain), (self.inside, self.limit, node)]

    def upto(self, scope: Scope, limit: KExpr, tall: int, fill: Callable[[Scope, KExpr, int], None], first: KExpr = _ZERO) -> None:
        """Tiles of `tall` from the first to a limit, and of what is left. The first is 0 or that of a block."""
        if self.emitter.is_multiple(limit, tall) and ROWS % tall == 0:
            self.emitter.loop(scope, "j", first, limit, lambda s, j: fill(s, j, tall), step=tall)
            return
        for start, stop, rows in self.nest(self.nodes[0], scope).row_segments(scope, first, limit, tall):

            def tile(s: Scope, j: Var, rows: int = rows) -> None:
                fill(s, j, rows)

            self.emitter.loop(scope, "j", start, stop, tile, step=rows)

    def tile(
        self,
        scope: Scope,
        node: Node,
        rows: tuple[int, KExpr, int],
        columns: tuple[int, KExpr, KExpr, int],
        reduced: tuple[KExpr, KExpr],
        memory: bool,
    ) -> None:
        """A register tile. `rows`: an axis, its first index and how many; `columns`: an axis, its first index, how many and the width;
        `reduced`: where the reduced axis starts and stops. With `memory` the accumulators are those of the result; otherwise they start
        anew, and the outputs are stored.
        """
        r = node.reduction
        assert r is not None
        nest = self.nest(node, scope)
        inner = Scope(scope)
        acc = nest.local(inner, r.terms[0].elem, rows[2], columns[3])

        def of_column(s: Scope, first: KExpr, l: KExpr) -> None:
            panels = self.panels.get(node, {})
            s.memo.update({e: Load(b, self.packed_at(s, node, b, minus(plus(first, l), self.low))) for e, b in panels.items()})

        cells = Cells(nest, rows, columns, of_column=of_column)
        target = self.emitter.made[self.home(node)]

        if memory:
            cells.each(inner, lambda s, at: s.body.append(Store(acc, at, Load(target, nest.here(s)))))
        else:
            cells.each(inner, lambda s, at: s.body.append(Store(acc, at, unit(r.op, acc.elem))), full=True)

        def step(s: Scope, k: Var) -> None:
            s.axes[node.rank] = k
            cells.each(s, lambda x, at: nest.accumulate(x, acc, at), packed=True)

        self.emitter.guarded(inner, [axis(LIMIT)], lambda g: self.emitter.loop(g, "k", *reduced, step))

        if memory:
            cells.each(inner, lambda s, at: s.body.append(Store(target, nest.here(s), Load(acc, at))))
        else:
            nest.finish_tile(inner, acc, cells)
        scope.body.extend(inner.body)

    # ------------------------------------------------------------ the roles

    def scores(self, scope: Scope, node: Node) -> None:
        d = self.depth
        r = node.reduction
        assert r is not None
        self.pack(scope, node)
        depth = self.emitter.emit(r.extents[0], scope)
        for start, stop, part in self.parts(node):
            self.panels[part] = self.panels[node]

            def tiles(s: Scope, j: KExpr, tall: int, part: Node = part) -> None:
                def strip(x: Scope, first: KExpr, count: KExpr, width: int) -> None:
                    self.tile(x, part, (d + 1, j, tall), (d, first, count, width), (kconst(0), depth), memory=False)

                self.strips(s, 2 * self.lanes, strip)

            self.upto(scope, stop, self.tall, tiles, start)

    def pack(self, scope: Scope, node: Node) -> None:
        """Copy the rows of the operand that moves with the rows, turned: squares of as many as a vector has lanes, where there are."""
        r = node.reduction
        assert r is not None
        nest, lanes, depth = self.nest(node, scope), self.lanes, self.emitter.emit(r.extents[0], scope)
        squares = all(isinstance(n, Const) and n.value % lanes == 0 for n in (self.count, depth))
        for e, b in self.panels[node].items():

            def one(s: Scope, l: KExpr, c: KExpr, e: Expr = e, b: Buffer = b) -> None:
                s.axes[self.depth], s.axes[node.rank] = plus(self.low, l), c
                s.body.append(Store(b, self.packed_at(s, node, b, l), self.emitter.emit(e, s)))

            def square(s: Scope, first: KExpr, c: KExpr, one: Callable[[Scope, KExpr, KExpr], None] = one) -> None:
                def lane(x: Scope, l: Var) -> None:
                    nest.unroll(x, lanes, lambda y, k: one(y, plus(first, l), plus(c, k)))

                nest.vector(s, kconst(lanes), lanes, lane)

            fill, step = (square, lanes) if squares else (one, 1)

            def row(s: Scope, l: Var, fill: Callable[[Scope, KExpr, KExpr], None] = fill, step: int = step) -> None:
                self.emitter.loop(s, "c", kconst(0), depth, lambda x, c: fill(x, l, c), step=step)

            inner = Scope(scope)
            self.emitter.loop(inner, "l", kconst(0), self.count, row, step=step)
            scope.body.extend(inner.body)

    def packed_at(self, scope: Scope, node: Node, b: Buffer, l: KExpr) -> tuple[KExpr, ...]:
        outer = tuple(scope.lookup(k) for k in range(self.depth))
        return self.seat(b, outer, plus(times(scope.lookup(node.rank), kconst(ROWS)), l))

    def is_reduced_by(self, node: Node, behind: Node | None) -> bool:
        """Whether a matrix is made element by element, and the next node reduces its rows: then one loop does both."""
        if behind is None or self.group.roles[self.nodes.index(behind)] is not Role.ROW or node.rank != self.depth + 2:
            return False
        fits = self.emitter.is_multiple(self.limit, LANES) and unmasked_inside(node, self.depth) is node
        return fits and bool(node.results) and any(t in behind.sources for t in node.results)

    def row(self, scope: Scope, node: Node, made: Node | None = None) -> None:
        """A number for each row. The matrix that it reduces may be made in its loop."""
        r = node.reduction
        assert r is not None
        short = replace(node, reduction=replace(r, extents=(axis(LIMIT),)))
        nest = self.nest(short, scope)

        def strip(s: Scope, first: KExpr, count: KExpr, width: int) -> None:
            nest.columns(s, self.depth, first, count, width, self.making(s, made, first, count, width) if made else None)

        self.strips(scope, self.lanes, strip)

    def making(self, scope: Scope, node: Node, first: KExpr, count: KExpr, width: int) -> Making:
        """Makes an element of a matrix for each row of a strip, for who reads it there."""
        held = self.held(scope, node, first, count, width)

        @contextmanager
        def make(s: Scope, l: Var) -> Iterator[None]:
            s.memo.update({e: Load(b, (l,)) for e, b in held.items()})
            with self.nest(node, s).stored(s):
                yield

        return make

    def held(self, scope: Scope, node: Node, first: KExpr, count: KExpr, width: int) -> dict[Expr, Buffer]:
        """What is the same for all of a row, computed: in buffers of a strip."""
        nest = self.nest(node, scope)
        held = {e: nest.local(scope, e.elem, width) for e in _of_rows(node, self.depth)}

        def hold(x: Scope, l: Var) -> None:
            x.body.extend([Store(b, (l,), self.emitter.emit(e, x)) for e, b in held.items()])

        if held:
            nest.vector_along(scope, self.depth, first, count, width, hold)
        return held

    def map(self, scope: Scope, node: Node) -> None:
        """Column by column; what is the same for all of a row is computed before."""
        nest = self.nest(node, scope)

        def strip(s: Scope, first: KExpr, count: KExpr, width: int) -> None:
            along_rows = partial(nest.vector_along, k=self.depth, first=first, count=count, width=width)
            if node.rank == self.depth + 1:
                along_rows(s, fill=lambda x, _: nest.store(x))
                return
            held = self.held(s, node, first, count, width)

            def column(x: Scope, j: Var, part: Node) -> None:
                def row(y: Scope, l: Var) -> None:
                    y.memo.update({e: Load(b, (l,)) for e, b in held.items()})
                    self.nest(part, y).store(y)

                x.axes[self.depth + 1] = j
                along_rows(x, fill=row)

            for start, stop, part in self.parts(node):
                self.emitter.loop(s, "j", start, stop, partial(column, part=part))

        self.emitter.guarded(scope, [axis(LIMIT)], lambda g: self.strips(g, 2 * self.lanes, strip))

    def out(self, scope: Scope, node: Node) -> None:
        """The columns in pieces; the result holds the sums from one to the next."""
        d = self.depth
        nest = self.nest(node, scope)
        high = plus(self.low, self.count)
        piece_columns = self.knobs.ask("piece", PIECE)

        def pieces(s: Scope, start: KExpr, stop: KExpr, memory: bool) -> None:
            def strip(x: Scope, first: KExpr, count: KExpr, width: int) -> None:
                def tiles(y: Scope, i: KExpr, tall: int) -> None:
                    row = plus(self.low, i)
                    self.tile(y, node, (d, row, tall), (d + 1, first, count, width), (start, last_column(y, row, tall)), memory)

                def last_column(y: Scope, row: KExpr, tall: int) -> KExpr:
                    """Where the columns end that matter for these rows."""
                    if self.group.reach is None:
                        return stop
                    return nest.bound(y, kop("min", plus(row, kconst(tall + self.group.reach)), stop))

                self.upto(x, self.count, self.tall, tiles)

            nest.chunks(s, d + 1, 2 * self.lanes, strip)

        if (self.group.columns.value or LIMIT) <= piece_columns:
            pieces(scope, kconst(0), self.limit, memory=False)
            return
        self.clear(scope, node, self.low, high)

        def piece(s: Scope, p: Var) -> None:
            pieces(s, p, nest.bound(s, kop("min", plus(p, kconst(piece_columns)), self.limit)), memory=True)

        self.emitter.loop(scope, "p", kconst(0), self.limit, piece, step=piece_columns)
        self.finish(scope, node, self.low, high)

    def down(self, scope: Scope, node: Node) -> None:
        d = self.depth
        nest = self.nest(node, scope)
        high = plus(self.low, self.count)

        def tiles(s: Scope, j: KExpr, tall: int) -> None:
            low = self.low
            if self.group.reach is not None:
                low = nest.bound(s, kop("max", low, minus(j, kconst(self.group.reach))))  # the first row for which they matter

            def strip(x: Scope, first: KExpr, count: KExpr, width: int) -> None:
                self.tile(x, node, (d, j, tall), (d + 1, first, count, width), (low, high), memory=True)

            nest.chunks(s, d + 1, 2 * self.lanes, strip)

        self.upto(scope, self.limit, self.tall, tiles)

    # ------------------------------------------------------------ results that are sums in memory

    def home(self, node: Node) -> Tensor:
        """The result that holds the sums until they are complete: one that is the sum, or else one of its type."""
        assert node.reduction is not None
        elem = node.reduction.terms[0].elem
        fitting = [(e.op != "acc", k) for k, e in enumerate(node.outputs) if e.elem is elem]
        return node.results[min(fitting)[1]]

    def clear(self, scope: Scope, node: Node, low: KExpr = _ZERO, high: KExpr | None = None) -> None:
        """Set rows of a result to where its reduction starts."""
        r = node.reduction
        assert r is not None
        start = unit(r.op, r.terms[0].elem)
        target = self.emitter.made[self.home(node)]
        self.sweep(scope, node, low, high, lambda s, at: s.body.append(Store(target, at, start)))

    def finish(self, scope: Scope, node: Node, low: KExpr, high: KExpr) -> None:
        """Compute the output from the reduction's result, where there is more to do."""
        if all(e.op == "acc" for e in node.outputs):
            return
        target = self.emitter.made[self.home(node)]

        def one(s: Scope, at: tuple[KExpr, ...]) -> None:
            s.accs = (Load(target, at),)
            self.nest(node, s).store(s)

        self.sweep(scope, node, low, high, one)

    def sweep(self, scope: Scope, node: Node, low: KExpr, high: KExpr | None, fill: Callable[[Scope, tuple[KExpr, ...]], None]) -> None:
        """Rows of a result, element by element."""
        d = self.depth
        nest = self.nest(node, scope)
        stop = high if high is not None else self.emitter.emit(node.extents[d], scope)

        def row(s: Scope, i: Var) -> None:
            s.axes[d] = i

            def chunk(x: Scope, first: KExpr, count: KExpr, width: int) -> None:
                nest.vector_along(x, d + 1, first, count, width, lambda y, _: fill(y, nest.here(y)))

            nest.chunks(s, d + 1, 2 * self.lanes, chunk)

        self.emitter.loop(scope, "i", low, stop, row)


def _of_rows(node: Node, row: int) -> list[Expr]:
    """What an element-wise node computes of real numbers of a row alone, the largest expressions."""
    found: list[Expr] = []
    todo, seen = list(node.outputs), set(node.outputs)
    for e in todo:
        axes = axes_of([e])
        if e.elem.is_real and row in axes and row + 1 not in axes:
            found.append(e)
        else:
            more = [a for a in dict.fromkeys(e.args) if a not in seen]
            todo += more
            seen |= set(more)
    return found


def block_nest(group: Blocks, lanes: int, expands: bool, knobs: Knobs) -> BlockNest:
    """The nest of a group, before its loops are written. `lanes`: reals in a vector register."""
    nodes = [expand(n) if expands else n for n in group.nodes]
    emitter = Emitter([e for n in nodes for e in (*n.roots, *n.domain)])
    nest = BlockNest(group, nodes, emitter, lanes, knobs)
    nest.place()
    return nest

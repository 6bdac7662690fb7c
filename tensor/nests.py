"""Loop nests: the ways in which a node becomes loops. `tensor/schedule.py` chooses among them.

    elementwise   for i.. { vector j { y[i, j] = .. } }                                               in parts of j, where guards turn
    transposed    for blocks of i { for blocks of j { for i { vector j { y[i, j] = x[j, i] } } } }
    rows          for i.. { acc[W] over lanes of the last reduced axis; a tree; y[i] = .. }           the data lies along the reduction
                  and an element-wise node that is to be reduced in the same loop, if there is one: { z[i, k] = .. z; acc += .. z }
    tile          for blocks of i { for j0 { for i0 { acc[R, W]; for k { vector l { unroll r { acc[r, l] += .. } } } } } }
                                                                                                      it lies along an output axis
    panels        a tile whose operands are first copied so that it reads them from one end to the other
    lanes         the same with sixteen accumulators a column, for sums of order `lanes`
    scatter       the base is copied, then elements are added one after the other

`acc` is meant for registers. A tile reads each operand once for R rows or W columns; its k loop is one chain an element,
so its order is that of `chain` whatever R and W are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from functools import partial

from tlc.frontend.ops import DTYPES
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Emitter, Scope, minus, plus, rounded_down, times
from tlc.tensor.fuse import cost
from tlc.tensor.graph.ir import Expr, Node, Reduction, axes_of, rebuild, transform, walk
from tlc.tensor.graph.ir import const as const_of
from tlc.tensor.kernel.ir import Buffer, Const, Declare, If, Kind, Let, Load, Space, Store, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr

Fill = Callable[[Scope], None]
Making = Callable[[Scope, Var], AbstractContextManager[None]]
Cell = tuple[KExpr, ...]  # where an accumulator of a tile lies

FEW = 4  # blocks of rows; where there are fewer, all rows pass each panel, and threads share the panels
LIGHT = 20  # additions for an element that is finished while all of its tile are in registers; more are done one row after the other
COPY = 16  # what it costs to copy an element, in fused multiply-adds
SEGMENTS = 8  # parts of an axis that have code of their own, at most
GAP = 16  # elements between copied rows: no two of a tile are in one set of the first cache
ALL_ROWS = 1 << 20  # more than there are
BLOCK = 16  # elements of a column that are read together in a transposition: a line of the cache


@dataclass(frozen=True)
class Tile:
    """Rows of axis `u` (None: one row) by lanes of axis `v` (None: scalars). `block` rows, a multiple of `rows`, pass every column
    before the next ones do, so that what they read stays in the cache.
    """

    u: int | None
    rows: int
    v: int | None
    width: int
    block: int = ALL_ROWS


@dataclass(frozen=True)
class Panels:
    """Where the operands of a tile are copied to: each load that moves with u and the reduced axes only, or with v and those only,
    has a buffer of one dimension. Rows lie as the tiles read them, `rows` of one position of the reduced axes together, columns likewise.

        rows i .. i + R         at i * K + position * R + r
        columns j .. j + W      at j * K + position * W + l

    `apart` are loads of rows that are read along their length already, but lie a power of two of bytes from each other: in the first cache
    all rows of a tile would have the same few places. They are copied as they are, with a gap after each row.

        row i                   at i * (K + GAP) + position
    """

    rows: Mapping[Expr, Buffer]
    columns: Mapping[Expr, Buffer]
    apart: Mapping[Expr, Buffer]


@dataclass(eq=False)
class Nest:
    """What every nest needs: the node, the emitter, the output buffers, and what a point of the node's domain costs, in fused
    multiply-adds (0: its points may not run at once). The first `depth` axes are bound by loops around; an output without a buffer is
    a variable there.
    """

    node: Node
    emitter: Emitter
    outputs: tuple[Buffer | None, ...]
    unit: int
    top: Scope = field(default_factory=Scope)
    depth: int = 0
    panels: Panels | None = None

    # ------------------------------------------------------------ pieces

    def serial(self, scope: Scope, axes: Sequence[int], fill: Fill) -> None:
        """Serial loops over whole axes."""
        if not axes:
            fill(scope)
            return
        k, *rest = axes

        def body(inner: Scope, var: Var) -> None:
            inner.axes[k] = var
            self.serial(inner, rest, fill)

        self.emitter.loop(scope, "i", const(0), self.emitter.emit(self.node.domain[k], scope), body, work=self.work(scope, k, 1))

    def work(self, scope: Scope, k: int, count: int) -> Callable[[], KExpr] | None:
        """What `count` steps along axis k cost; None if they may not run at once."""
        if k >= self.node.rank or not self.unit or self.node.scatter:
            return None

        def cost() -> KExpr:
            total: KExpr = const(self.unit * count)
            for j, n in enumerate(self.node.domain):
                if j != k and not axes_of([n]):
                    total = times(self.emitter.emit(n, scope), total)
            return total

        return cost

    def chunks(self, scope: Scope, k: int, width: int, fill: Callable[[Scope, KExpr, KExpr, int], None]) -> None:
        """Cut axis k into pieces of `width`; `fill` gets the first index, how many there are and a width for vectors."""
        self.pieces(scope, "j", self.emitter.emit(self.node.domain[k], scope), width, fill, self.work(scope, k, width))

    def pieces(
        self,
        scope: Scope,
        base: str,
        extent: KExpr,
        width: int,
        fill: Callable[[Scope, KExpr, KExpr, int], None],
        work: Callable[[], KExpr] | None = None,
    ) -> None:
        """Cut an extent into pieces. Of a known one, full pieces and then the rest; otherwise each piece has its own length."""
        if not isinstance(extent, Const):

            def some(s: Scope, j: Var) -> None:
                fill(s, j, self.bound(s, op("min", op("sub", extent, j), const(width))), width)

            self.emitter.loop(scope, base, const(0), extent, some, step=width, work=work)
            return
        full = int(extent.value) // width * width
        rest = int(extent.value) - full
        if full == width:
            fill(scope, const(0), const(width), width)
        else:
            self.emitter.loop(scope, base, const(0), const(full), lambda s, j: fill(s, j, const(width), width), step=width, work=work)
        if rest:
            fill(scope, const(full), const(rest), power(rest))

    def blocks(
        self,
        scope: Scope,
        extent: KExpr,
        block: int,
        whole: Callable[[Scope, KExpr], None],
        width: int,
        piece: Callable[[Scope, KExpr, KExpr, int], None],
    ) -> None:
        """Cut an extent into whole blocks as far as they go, then into pieces of `width`."""
        end = rounded_down(extent, block)
        if not isinstance(end, Const):
            end = self.bound(scope, end)
        self.emitter.loop(scope, "j", const(0), end, whole, step=block)
        if isinstance(end, Const) and isinstance(extent, Const):
            for first in range(int(end.value), int(extent.value), width):
                count = min(width, int(extent.value) - first)
                piece(scope, const(first), const(count), power(count))
            return

        def some(s: Scope, j: Var) -> None:
            piece(s, j, self.bound(s, op("min", op("sub", extent, j), const(width))), width)

        self.emitter.loop(scope, "j", end, extent, some, step=width)

    def vector(self, scope: Scope, count: KExpr, width: int, fill: Callable[[Scope, Var], None]) -> None:
        self.emitter.loop(scope, "l", const(0), count, fill, kind=Kind.VECTOR, width=width)

    def vector_along(self, scope: Scope, k: int, first: KExpr, count: KExpr, width: int, fill: Callable[[Scope, Var], None]) -> None:
        """A vector loop over `count` indices of axis k, from the first on."""

        def lane(s: Scope, l: Var) -> None:
            s.axes[k] = plus(first, l)
            fill(s, l)

        self.vector(scope, count, width, lane)

    def together(self, scope: Scope, k: int, count: int, fill: Callable[[Scope, Var, int], None]) -> None:
        """Serial loops over axis k: `count` indices at once as far as they go, then one after the other."""
        extent = self.emitter.emit(self.node.domain[k], scope)
        whole = rounded_down(extent, count)
        if not isinstance(whole, Const):
            whole = self.bound(scope, whole)
        self.emitter.loop(scope, "k", const(0), whole, lambda s, i: fill(s, i, count), step=count)
        self.emitter.loop(scope, "k", whole, extent, lambda s, i: fill(s, i, 1))

    def unroll(self, scope: Scope, count: int, fill: Callable[[Scope, Var], None]) -> None:
        self.emitter.loop(scope, "r", const(0), const(count), fill, kind=Kind.UNROLL)

    def store(self, scope: Scope, at: Sequence[KExpr] | None = None) -> None:
        """The outputs at the current axes. All are computed before one is stored, since an output may overwrite an input."""
        values = [self.emitter.emit(e, scope) for e in self.node.outputs]
        if len(values) > 1:
            for k, value in enumerate(values):
                if not isinstance(value, Var | Const):
                    values[k] = self.bound(scope, value)
        indices = tuple(at if at is not None else (scope.lookup(k) for k in range(self.node.rank)))
        for b, value, result in zip(self.outputs, values, self.node.results, strict=True):
            if b is None:
                self.emitter.variables[result] = value if isinstance(value, Var | Const) else self.bound(scope, value)
            else:
                scope.body.append(Store(b, self.emitter.seated(result, indices), value))

    @contextmanager
    def stored(self, scope: Scope) -> Iterator[None]:
        """Store the outputs at the current axes; who reads them there, inside, has them in variables."""
        results = self.node.results
        values = [self.bound(scope, self.emitter.emit(e, scope)) for e in self.node.outputs]
        indices = tuple(scope.lookup(k) for k in range(self.node.rank))
        for b, value, result in zip(self.outputs, values, results, strict=True):
            assert b is not None
            scope.body.append(Store(b, self.emitter.seated(result, indices), value))
        self.emitter.variables |= dict(zip(results, values, strict=True))
        yield
        for result in results:
            del self.emitter.variables[result]

    def here(self, scope: Scope) -> Cell:
        """The current axes of the output."""
        return tuple(scope.lookup(k) for k in range(self.node.rank))

    @property
    def own(self) -> range:
        """The axes of the output for which the nest makes loops."""
        return range(self.depth, self.node.rank)

    def local(self, scope: Scope, elem: Elem, *shape: int) -> Buffer:
        b = Buffer(self.emitter.fresh("acc"), elem, tuple(const(n) for n in shape), Space.LOCAL)
        scope.body.append(Declare(b))
        return b

    @property
    def reduction(self) -> Reduction:
        assert self.node.reduction is not None
        return self.node.reduction

    @property
    def reduced(self) -> range:
        return range(self.node.rank, len(self.node.domain))

    def accumulate(self, scope: Scope, b: Buffer, at: Sequence[KExpr], step: str = "") -> None:
        """One step of the reduction into an accumulator, by an op of that name if one is given."""
        terms = [self.emitter.emit(e, scope) for e in self.reduction.terms]
        scope.body.append(Store(b, tuple(at), combine(self.reduction.op, Load(b, tuple(at)), terms, step or self.reduction.step)))

    # ------------------------------------------------------------ nests

    def elementwise(self, width: int) -> None:
        """Serial loops over all axes but the last, which is cut into vectors (width 1: serial too)."""
        *outer, last = self.own or (None,)
        if last is None:
            self.store(self.top)
            return

        def inner(scope: Scope) -> None:
            if width == 1:
                self.serial(scope, [last], self.store)
                return

            for start, extent, node in by_guards(self.node, last, width):
                nest = replace(self, node=node)

                def piece(s: Scope, first: KExpr, count: KExpr, lanes: int, start: int = start, nest: Nest = nest) -> None:
                    nest.vector_along(s, last, plus(const(start), first), count, lanes, lambda v, _: nest.store(v))

                self.pieces(scope, "j", self.emitter.emit(extent, scope), width, piece, self.work(scope, last, width))

        self.guard_axes(self.top, lambda g: self.serial(g, outer, inner))

    def transposed(self, a: int, width: int, rows: int = BLOCK) -> None:
        """Loads are contiguous along axis a, stores along the last. Blocks of both, `rows` of axis a, so that each line that a vector
        gathers from is used up at once. (Stores that scatter would read whole lines, and are slower on every CPU that was measured.)
        """
        last = self.node.rank - 1

        def inner(scope: Scope) -> None:
            def block(s: Scope, low: KExpr, rows: KExpr, _: int) -> None:
                def piece(p: Scope, first: KExpr, count: KExpr, lanes: int) -> None:
                    def row(x: Scope, i: Var) -> None:
                        x.axes[a] = i
                        self.vector_along(x, last, first, count, lanes, lambda v, _: self.store(v))

                    def square(x: Scope, i: KExpr) -> None:
                        def element(v: Scope, r: Var) -> None:
                            v.axes[a] = plus(i, r)
                            self.store(v)

                        self.vector_along(x, last, first, count, lanes, lambda v, _: self.unroll(v, lanes, element))

                    if isinstance(rows, Const) and rows.value % lanes == 0 and count == const(lanes):
                        self.emitter.loop(p, "i", low, plus(low, rows), square, step=lanes)
                    else:
                        self.emitter.loop(p, "i", low, plus(low, rows), row)

                self.chunks(s, last, width, piece)

            self.chunks(scope, a, rows, block)

        around = [k for k in range(last) if k != a]
        self.guard_axes(self.top, lambda g: self.serial(g, around, inner))

    def guard_axes(self, scope: Scope, fill: Fill) -> None:
        if self.own:
            self.emitter.guarded(scope, self.node.extents[self.depth :], fill)
        else:
            fill(scope)

    def rows(self, width: int, before: Nest | None = None, many: int = 1) -> None:
        """The last reduced axis in lanes; each output element has its own accumulators and tree. What `before` computes, an element-wise
        node over the rows that are reduced, is computed and stored in the same loop. Terms are computed for `many` vectors at once, which
        are then added one after the other: a long chain of operations is waited for less.
        """
        r = self.reduction
        ordered = r.order == "lanes" and r.op in ("sum", "prod") and r.terms[0].elem.is_real
        live = width
        linear = ordered and len(r.extents) > 1
        total = r.extents[-1].value
        if total is not None and len(r.extents) == 1:
            live = max(1, min(width, total))

        def one(scope: Scope) -> None:
            acc = self.local(scope, r.terms[0].elem, width)
            self.vector(scope, const(width), width, lambda s, l: s.body.append(Store(acc, (l,), unit(r.op, acc.elem))))

            def piece(s: Scope, first: KExpr, count: KExpr, lanes: int, into: Callable[[Scope, Var], None] | None = None) -> None:
                def body(v: Scope, l: Var) -> None:
                    if linear:
                        self.bind_position(v, plus(first, l))
                    else:
                        v.axes[self.reduced[-1]] = plus(first, l)
                    with before.stored(v) if before else nullcontext():
                        if into is None:
                            self.accumulate(v, acc, (l,))
                        else:
                            into(v, l)

                self.vector(s, count, lanes, body)

            def at_once(s: Scope, first: KExpr) -> None:
                held = self.local(s, acc.elem, many * width)
                (term,) = r.terms
                hold: Callable[[Scope, Var], None] = lambda v, l: v.body.append(Store(held, (l,), self.emitter.emit(term, v)))  # noqa: E731
                piece(s, first, const(many * width), many * width, hold)
                for k in range(many):

                    def add(v: Scope, l: Var, k: int = k) -> None:
                        v.body.append(Store(acc, (l,), combine(r.op, Load(acc, (l,)), [Load(held, (plus(l, const(k * width)),))])))

                    self.vector(s, const(width), width, add)

            def row(s: Scope) -> None:
                extent = self.emitter.emit(self.node.domain[self.reduced[-1]], s)
                if many > 1:
                    self.blocks(s, extent, many * width, at_once, width, piece)
                else:
                    self.pieces(s, "j", extent, width, piece)

            if linear:
                self.emitter.guarded(scope, r.extents, lambda g: self.pieces(g, "p", self.positions(g), width, piece))
            else:
                self.emitter.guarded(scope, r.extents, lambda s: self.serial(s, list(self.reduced)[:-1], row))
            self.tree(scope, acc, (), live)
            scope.accs = (Load(acc, (const(0),)),)
            self.store(scope)

        self.guard_axes(self.top, lambda g: self.each(g, list(self.own), one))

    def each(self, scope: Scope, axes: Sequence[int], fill: Fill) -> None:
        """Serial loops, around a scope of its own where there are none."""
        if axes:
            self.serial(scope, axes, fill)
        else:
            inner = Scope(scope)
            fill(inner)
            scope.body.extend(inner.body)

    def positions(self, scope: Scope) -> KExpr:
        """How many row-major positions the reduced axes have."""
        total: KExpr = const(1)
        for e in self.reduction.extents:
            total = times(total, self.emitter.emit(e, scope))
        return total if isinstance(total, Const | Var) else self.bound(scope, total)

    def bind_position(self, scope: Scope, position: KExpr) -> None:
        """The reduced axes at a row-major position."""
        for k in reversed(self.reduced):
            n = self.emitter.emit(self.node.domain[k], scope)
            if k == self.reduced[0]:
                scope.axes[k] = position
                return
            scope.axes[k] = self.bound(scope, op("mod", position, n))
            position = self.bound(scope, op("floordiv", position, n))

    def bound(self, scope: Scope, value: KExpr) -> Var:
        """A value under a name."""
        var = Var(self.emitter.fresh("q"), value.elem)
        scope.body.append(Let(var, value))
        return var

    def tree(self, scope: Scope, acc: Buffer, rest: tuple[KExpr, ...], live: int) -> None:
        """acc[l] += acc[l + half] for half = 8, 4, 2, 1, where the upper half was used at all."""
        half = int(_extent(acc, 0)) // 2
        while half:
            if live > half:
                count = live - half

                def body(s: Scope, l: Var, half: int = half) -> None:
                    pair = [Load(acc, (plus(l, const(at)), *rest)) for at in (0, half)]
                    s.body.append(Store(acc, (l, *rest), combine(self.reduction.op, pair[0], [pair[1]])))

                if rest:
                    self.unroll(scope, count, body)
                else:
                    self.vector(scope, const(count), power(count), body)
            live = min(live, half)
            half //= 2

    def tile(self, t: Tile, panels: Panels | None = None) -> None:
        """A register tile of accumulators; see the module's text."""
        around = [k for k in self.own if k not in (t.u, t.v)]
        self.panels = panels

        def columns(scope: Scope, low: KExpr, high: KExpr) -> None:
            """Every column of the rows from low to high."""
            if panels and panels.rows:
                self.pack_rows(scope, t, panels, low, high)
            if panels and panels.apart:
                self.copy_rows(scope, t, panels, low, high)
            if t.v is None:
                self.row_tiles(scope, t, low, high, None, const(1), 1)
            else:
                self.chunks(scope, t.v, t.width, lambda s, first, count, lanes: self.row_tiles(s, t, low, high, first, count, lanes))

        def blocks(scope: Scope) -> None:
            if panels and panels.columns:
                self.pack_columns(scope, t, panels)
            if t.u is None:
                columns(scope, const(0), const(1))
                return
            rows, work = self.emitter.emit(self.node.domain[t.u], scope), self.work(scope, t.u, t.block)
            if not isinstance(rows, Const):

                def block(s: Scope, i: Var) -> None:
                    columns(s, i, self.bound(s, op("min", plus(i, const(t.block)), rows)))

                self.emitter.loop(scope, "b", const(0), rows, block, step=t.block, work=work)
                return
            full = int(rows.value) // t.block * t.block
            if 0 < int(rows.value) - full < t.block // 2:
                full -= t.block  # the few rows that are left go with the last block
            if full < FEW * t.block:
                columns(scope, const(0), rows)
                return
            whole: Callable[[Scope, Var], None] = lambda s, i: columns(s, i, plus(i, const(t.block)))  # noqa: E731
            self.emitter.loop(scope, "b", const(0), const(full), whole, step=t.block, work=work)
            if full < rows.value:
                columns(scope, const(full), rows)

        self.guard_axes(self.top, lambda g: self.each(g, around, blocks))

    def pack_columns(self, scope: Scope, t: Tile, panels: Panels) -> None:
        """Copy the loads of columns, a panel of `width` after the other."""
        assert t.v is not None
        v = t.v

        def panel(s: Scope, first: KExpr, count: KExpr, lanes: int) -> None:
            def position(x: Scope) -> None:
                def lane(y: Scope, l: Var) -> None:
                    for e, buffer in panels.columns.items():
                        y.body.append(Store(buffer, (self.packed_at(y, first, lanes, l),), self.emitter.emit(e, y)))

                self.vector_along(x, v, first, count, lanes, lane)

            self.serial(s, list(self.reduced), position)

        self.emitter.guarded(scope, self.reduction.extents, lambda g: self.chunks(g, v, t.width, panel))

    def pack_rows(self, scope: Scope, t: Tile, panels: Panels, low: KExpr, high: KExpr) -> None:
        """Copy the loads of the rows from low to high, which are contiguous along u: one position of the reduced axes after the other."""
        u = t.u
        assert u is not None

        def position(x: Scope) -> None:
            for start, stop, rows in segments:

                def body(s: Scope, i: Var, rows: int = rows) -> None:
                    def row(y: Scope, r: Var) -> None:
                        y.axes[u] = plus(i, r)
                        for e, buffer in panels.rows.items():
                            y.body.append(Store(buffer, (self.packed_at(y, i, rows, r),), self.emitter.emit(e, y)))

                    self.vector(s, const(rows), power(rows), row)

                self.emitter.loop(x, "i", start, stop, body, step=rows)

        segments = self.row_segments(scope, low, high, t.rows)
        self.emitter.guarded(scope, self.reduction.extents, lambda g: self.serial(g, list(self.reduced), position))

    def copy_rows(self, scope: Scope, t: Tile, panels: Panels, low: KExpr, high: KExpr) -> None:
        """Copy the loads of the rows from low to high that are to be apart."""
        u = t.u
        assert u is not None
        *outer, last = self.reduced

        def row(s: Scope, i: Var) -> None:
            def piece(x: Scope, first: KExpr, count: KExpr, lanes: int) -> None:
                def lane(y: Scope, _: Var) -> None:
                    for e, buffer in panels.apart.items():
                        y.body.append(Store(buffer, (self.apart_at(y, i),), self.emitter.emit(e, y)))

                self.vector_along(x, last, first, count, lanes, lane)

            s.axes[u] = i
            self.serial(s, outer, lambda x: self.chunks(x, last, 2 * t.width, piece))

        def all_rows(g: Scope) -> None:
            self.emitter.loop(g, "i", low, high, row, work=(lambda: times(self.positions(g), const(COPY))) if self.unit else None)

        self.emitter.guarded(scope, self.reduction.extents, all_rows)

    def apart_at(self, scope: Scope, row: KExpr) -> KExpr:
        """Where an element of a copied row lies, at the position of the reduced axes."""
        position, total = self.position(scope)
        return plus(times(row, plus(total, const(GAP))), position)

    def position(self, scope: Scope) -> tuple[KExpr, KExpr]:
        """The row-major position of the reduced axes, and how many there are."""
        position: KExpr = const(0)
        total: KExpr = const(1)
        for number in self.reduced:
            n = self.emitter.emit(self.node.domain[number], scope)
            position, total = plus(times(position, n), scope.lookup(number)), times(total, n)
        return position, total

    def packed_at(self, scope: Scope, first: KExpr, together: int, k: KExpr) -> KExpr:
        """Where an element of a copied operand lies: the k-th of `together` from `first` on, at the position of the reduced axes."""
        position, total = self.position(scope)
        return plus(plus(times(first, total), times(position, const(together))), k)

    def row_tiles(self, scope: Scope, t: Tile, low: KExpr, high: KExpr, first: KExpr | None, count: KExpr, lanes: int) -> None:
        """One panel of columns of the rows from low to high."""
        if t.u is None:
            self.one_tile(scope, t, 1, None, first, count, lanes)
            return
        for start, stop, rows in self.row_segments(scope, low, high, t.rows):

            def body(s: Scope, i: Var, rows: int = rows) -> None:
                self.one_tile(s, t, rows, i, first, count, lanes)

            self.emitter.loop(scope, "i", start, stop, body, step=rows, work=self.work(scope, t.u, rows))

    def row_segments(self, scope: Scope, low: KExpr, high: KExpr, rows: int) -> list[tuple[KExpr, KExpr, int]]:
        """Cut rows into tiles of nearly equal size: (start, stop, rows of a tile). A tile of one row would waste the machine, so
        m = a R + b (R - 1) where m is large enough, and only what is smaller is cut into single rows.
        """
        m = minus(high, low)
        if isinstance(m, Const):
            tiles = -(-int(m.value) // rows)
            if not tiles:
                return []
            size, more = divmod(int(m.value), tiles)
            middle = plus(low, const(more * (size + 1)))
            segments: list[tuple[KExpr, KExpr, int]] = [(low, middle, size + 1), (middle, high, size)]
            return [s for s, n in zip(segments, (more, tiles - more), strict=True) if n]
        m = self.bound(scope, m)
        short = self.bound(scope, op("mod", minus(const(0), m), const(rows)))  # b: tiles of R - 1 rows
        fits = op("ge", m, op("mul", short, const(rows - 1)))
        many = op("sub", m, op("mul", short, const(rows - 1)))
        first = self.bound(scope, plus(low, op("select", fits, many, rounded_down(m, rows))))
        second = self.bound(scope, op("select", fits, high, first))
        return [(low, first, rows), (first, second, rows - 1), (second, high, 1)]

    def one_tile(self, scope: Scope, t: Tile, rows: int, i: Var | None, first: KExpr | None, count: KExpr, lanes: int) -> None:
        r = self.reduction
        inner = Scope(scope)
        acc = self.local(inner, r.terms[0].elem, rows, lanes)
        panels = self.panels

        def of_row(s: Scope, i: KExpr, k: KExpr) -> None:
            if panels:
                s.memo.update({e: Load(b, (self.packed_at(s, i, rows, k),)) for e, b in panels.rows.items()})
                s.memo.update({e: Load(b, (self.apart_at(s, plus(i, k)),)) for e, b in panels.apart.items()})

        def of_column(s: Scope, first: KExpr, l: KExpr) -> None:
            if panels:
                s.memo.update({e: Load(b, (self.packed_at(s, first, lanes, l),)) for e, b in panels.columns.items()})

        cells = Cells(self, (t.u, i, rows), (t.v, first, count, lanes), of_row, of_column)
        cells.each(inner, lambda s, at: s.body.append(Store(acc, at, unit(r.op, acc.elem))), full=True)

        def steps(s: Scope, by: str) -> None:
            one: Fill = lambda x: cells.each(x, lambda y, at: self.accumulate(y, acc, at, by), packed=True)  # noqa: E731
            self.serial(s, list(self.reduced), one)

        def chosen(s: Scope) -> None:
            if r.quick is None:
                steps(s, r.step)
                return
            cond = self.emitter.emit(r.quick[1], s)
            quick, plain = Scope(s), Scope(s)
            steps(quick, r.quick[0])
            steps(plain, r.step)
            s.body.append(If(cond, tuple(quick.body), tuple(plain.body)))

        self.emitter.guarded(inner, r.extents, chosen)

        self.finish_tile(inner, acc, cells)
        scope.body.extend(inner.body)

    def finish_tile(self, scope: Scope, acc: Buffer, cells: Cells) -> None:
        """Store the outputs of a tile of accumulators."""
        rows, lanes = _extent(acc, 0), _extent(acc, 1)

        def store(s: Scope, at: Cell, of: Buffer) -> None:
            s.accs = (Load(of, at),)
            self.store(s)

        if rows == 1 or cost(self.node.outputs) <= LIGHT:
            cells.each(scope, partial(store, of=acc))
            return
        held = self.local(scope, acc.elem, rows, lanes)
        cells.each(scope, lambda s, at: s.body.append(Store(held, at, Load(acc, at))))
        self.emitter.loop(scope, "r", const(0), const(rows), lambda s, k: cells.each(s, partial(store, of=held), row=k))

    def lanes(self, v: int, width: int) -> None:
        """Sums of order `lanes` down columns: sixteen accumulators for each of `width` columns of axis v."""
        around = [k for k in range(self.node.rank) if k != v]

        def panels(scope: Scope) -> None:
            self.chunks(scope, v, width, lambda s, first, count, lanes: self.columns(s, v, first, count, lanes))

        self.guard_axes(self.top, lambda g: self.each(g, around, panels))

    def columns(self, scope: Scope, v: int, first: KExpr, count: KExpr, width: int, making: Making | None = None) -> None:
        """The reductions of `count` columns of axis v, in vectors of `width`, each with sixteen accumulators and their tree. What `making`
        makes in a lane, as `stored` does, is reduced as soon as it is there.
        """
        r = self.reduction
        inner = Scope(scope)
        acc = self.local(inner, r.terms[0].elem, LANES, width)

        def columns(s: Scope, fill: Callable[[Scope, Var], None]) -> None:
            self.vector_along(s, v, first, count, width, fill)

        def clear(s: Scope, l: Var) -> None:
            self.unroll(s, LANES, lambda x, k: x.body.append(Store(acc, (k, l), unit(r.op, acc.elem))))

        columns(inner, clear)

        def step(s: Scope, position: KExpr, k: KExpr) -> None:
            self.bind_position(s, position)
            columns(s, lambda x, l: add(x, l, k))

        def add(s: Scope, l: Var, k: KExpr) -> None:
            with making(s, l) if making else nullcontext():
                self.accumulate(s, acc, (k, l))

        def sixteen(s: Scope, p: KExpr) -> None:
            self.unroll(s, LANES, lambda x, k: step(x, plus(p, k), k))

        def rest(s: Scope, p: KExpr, n: KExpr) -> None:
            """Fewer than sixteen, each under a condition if their number is not known."""
            if isinstance(n, Const):
                self.unroll(s, int(n.value), lambda x, k: step(x, plus(p, k), k))
                return

            def some(x: Scope, k: Var) -> None:
                one = Scope(x, optional=True)
                step(one, plus(p, k), k)
                x.body.append(If(op("gt", n, k), tuple(one.body)))

            self.unroll(s, LANES - 1, some)

        def all_positions(g: Scope) -> None:
            total = self.positions(g)
            if self.emitter.is_multiple(total, LANES):
                self.emitter.loop(g, "p", const(0), total, sixteen, step=LANES)
                return
            full = rounded_down(total, LANES)
            if not isinstance(full, Const):
                full = self.bound(g, full)
            self.emitter.loop(g, "p", const(0), full, sixteen, step=LANES)
            rest(g, full, minus(total, full))

        self.emitter.guarded(inner, r.extents, all_positions)

        def finish(s: Scope, l: Var) -> None:
            self.tree(s, acc, (l,), LANES)
            s.accs = (Load(acc, (const(0), l)),)
            self.store(s)

        columns(inner, finish)
        scope.body.extend(inner.body)

    def scatter(self, base: Node, width: int) -> None:
        """Copy the base (by the loops of an element-wise node), then add one element after the other."""
        copy = Nest(base, self.emitter, self.outputs, self.unit, self.top)
        copy.elementwise(width)
        self.guard_axes(self.top, lambda g: self.serial(g, list(range(self.node.rank)), self.add))

    def add(self, scope: Scope) -> None:
        """What a scatter adds at the current axes."""
        node, (output,) = self.node, self.outputs
        assert node.scatter is not None and output is not None
        at = tuple(self.bound(scope, self.emitter.emit(e, scope)) for e in node.scatter.targets)
        (value,) = (self.emitter.emit(e, scope) for e in node.outputs)
        scope.body.append(Store(output, at, op("add", Load(output, at), value)))


def by_guards(node: Node, k: int, width: int) -> list[tuple[int, Expr, Node]]:
    """An element-wise node cut along axis k where guards of its loads begin or cease to hold, at multiples of `width`: where each part
    starts, its extent, and the node there. So what was put together from parts reads each where it is. (A vector that is masked out as a
    whole is slow where its address is nobody's.)
    """
    extent = node.extents[k].value
    guards = [e.guard for e in walk(node.outputs) if e.op == "load" and e.guard is not None]
    turns = sorted({c for e in walk(guards) if (c := _turn(e, k)) is not None and c % width == 0 and 0 < c < (extent or 0)})
    if extent is None or not 0 < len(turns) < SEGMENTS:
        return [(0, node.extents[k], node)]
    found = []
    for start, stop in zip((0, *turns), (*turns, extent), strict=True):

        def there(e: Expr, args: tuple[Expr, ...], start: int = start) -> Expr:
            if _turn(e, k) in turns:
                args = tuple(const_of(start) if a.op == "axis" else a for a in args)
            return rebuild(e, args) if args else e

        found.append((start, const_of(stop - start), replace(node, outputs=transform(node.outputs, there))))
    return found


def _turn(e: Expr, k: int) -> int | None:
    """The index along axis k from which on a comparison with a constant is what it was not before."""
    if e.op not in ("lt", "le", "gt", "ge"):
        return None
    here = [a.op == "axis" and a.data == k for a in e.args]
    end = next((a.value for a in e.args if a.value is not None), None)
    if not any(here) or end is None:
        return None
    return end + ((e.op in ("le", "gt")) == here[0])


def _as_it_is(scope: Scope, first: KExpr, at: KExpr) -> None:
    """An operand that is read where it lies."""


@dataclass(frozen=True)
class Cells:
    """The accumulators of a register tile. `rows`: an axis (None: there is one row), its first index and how many; `columns`: an axis
    (None: one column), its first index, how many and the width of the vector. Where operands were copied, `of_row` and `of_column` say in
    a scope where a row or column of them, given its tile's first index and its place in the tile, is read.
    """

    nest: Nest
    rows: tuple[int | None, KExpr | None, int]
    columns: tuple[int | None, KExpr | None, KExpr, int]
    of_row: Callable[[Scope, KExpr, KExpr], None] = _as_it_is
    of_column: Callable[[Scope, KExpr, KExpr], None] = _as_it_is

    def each(
        self, scope: Scope, fill: Callable[[Scope, Cell], None], *, full: bool = False, packed: bool = False, row: Var | None = None
    ) -> None:
        """Every cell (of one row, if that is given), with its axes bound. `full`: those of all lanes, even if no column is there;
        `packed`: what was copied is read from there.
        """
        (u, i, tall), (v, first, count, width) = self.rows, self.columns

        def column(s: Scope, l: KExpr) -> None:
            def one(x: Scope, k: Var) -> None:
                if u is not None and i is not None:
                    x.axes[u] = plus(i, k)
                    if packed:
                        self.of_row(x, i, k)
                fill(x, (k, l))

            if row is None:
                self.nest.unroll(s, tall, one)
            else:
                one(s, row)

        def lane(s: Scope, l: Var) -> None:
            assert v is not None and first is not None
            s.axes[v] = plus(first, l)
            if packed:
                self.of_column(s, first, l)
            column(s, l)

        if v is None:
            column(scope, const(0))
        else:
            self.nest.vector(scope, const(width) if full else count, width, lane)


def outer_loops(emitter: Emitter, scope: Scope, nodes: Sequence[Node], depth: int, units: Sequence[int], fill: Fill) -> None:
    """Loops over the first `depth` axes, which all nodes have; one of extent 1 is none. The outermost may be parallel; `units` are what a
    point of each node costs.
    """

    def price(k: int) -> KExpr:
        """What an iteration over axis k costs."""
        total: KExpr = const(0)
        for node, unit in zip(nodes, units, strict=True):
            one: KExpr = const(unit)
            for n in node.domain[k + 1 :]:
                one = times(emitter.extent(n), one)
            total = plus(total, one)
        return total

    def level(s: Scope, k: int) -> None:
        if k == depth:
            fill(s)
            return

        def body(inner: Scope, i: Var) -> None:
            inner.axes[k] = i
            level(inner, k + 1)

        extent = emitter.extent(nodes[0].extents[k])
        if isinstance(extent, Const) and extent.value == 1:
            s.axes[k] = const(0)
            level(s, k + 1)
        else:
            emitter.loop(s, "i", const(0), extent, body, work=partial(price, k))

    level(scope, 0)


# ---------------------------------------------------------------- reducers


def unit(reducer: str, elem: Elem) -> Const:
    """Where an accumulation starts."""
    match reducer:
        case "any" | "all":
            return Const(reducer == "all", Elem.BOOL)
        case "sum" | "prod":
            value = int(reducer == "prod")
            return Const(float(value) if elem.is_real else value, elem)
        case _:
            return Const(_worst(reducer, elem), elem)


def _worst(reducer: str, elem: Elem) -> float | int:
    import numpy as np

    if elem.is_real:
        return float("-inf") if reducer == "max" else float("inf")
    info = np.iinfo(DTYPES[elem])
    return int(info.min if reducer == "max" else info.max)


_STEP = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def combine(reducer: str, acc: KExpr, terms: Sequence[KExpr], step: str = "fma") -> KExpr:
    """The accumulator after one more term, or after the product of two terms, which is not rounded."""
    if len(terms) == 2:
        return op(step, terms[0], terms[1], acc)
    return op(_STEP[reducer], acc, terms[0])


def dependent(extents: Sequence[Expr]) -> frozenset[int]:
    """The axes on which extents depend."""
    return axes_of(extents)


def power(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << (n - 1).bit_length()


def _extent(b: Buffer, k: int) -> int:
    e = b.shape[k]
    assert isinstance(e, Const)
    return int(e.value)

"""The nest of one row times a matrix that is read once: `y[j] = sum[k] x[k] * w[k, j]`, as every layer of a network is for a batch of one.

Memory bounds it, so what counts is the order in which `w` is read. A tile of accumulators would walk down a strip of few columns, each
row of it in a page of its own. Here a panel of columns has its sums in a buffer, and a few rows at once pass over it:

    for panels of j {
      for j in panel { vector { sums[j] = 0 } }
      for blocks of k { for j in panel { vector { acc = sums[j]; unroll r { acc = fma(x[k + r], w[k + r, j], acc) }; sums[j] = acc } } }
      for j in panel { vector { y[j] = sums[j] } }
    }

The sums of a panel stay in the first cache, and each row is read in runs of a kilobyte or more, which the processor fetches ahead. An
element is one chain in k, as in a tile; panels are cut by the size alone, and threads share them.

`stream_lanes` is the same for sums of order `lanes` down the columns of a large matrix, `y[j] = sum[i] w[i, j]`: each column has sixteen
sums, so panels are narrower, and lie together in the buffer.

    for panels of j {
      sums[16, j] = 0
      for blocks of i { for j in panel { vector { unroll r { sums[r, j] += w[i + r, j] + .. } } } }
      for j in panel { vector { a tree; y[j] = sums[0, j] } }
    }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Scope, plus, times
from tlc.tensor.kernel.ir import Buffer, Expr, Load, Store, Var, const, op
from tlc.tensor.nests import Fill, Nest, combine, unit

Piece = Callable[[Scope, Expr, Expr, int], None]  # some columns: the first, how many, and a width for vectors
Columns = Callable[[Scope, Piece], None]

PANEL = 1024  # columns, about: their sums take up four kilobytes
LINE = 32  # columns of which panels are multiples
READ = 8  # what an element of the matrix costs, in fused multiply-adds: it is read from memory and used once


@dataclass(frozen=True)
class Stream:
    """Vectors of `width` along axis v of the output, `rows` positions of the last reduced axis at once, in panels of `columns`, sums in the
    buffer `sums`.
    """

    v: int
    width: int
    rows: int
    columns: int
    sums: Buffer


def panel(extent: int | None, about: int = PANEL) -> int:
    """How many columns a panel has: at least two panels, an even number of them, so that two threads have as much to do."""
    if extent is None:
        return about
    pieces = 2 * max(1, round(extent / (2 * about)))
    return max(LINE, -(-extent // pieces // LINE) * LINE)


def stream(nest: Nest, s: Stream) -> None:
    """Write the nest of a sum of products in the order `chain`."""
    node, r = nest.node, nest.reduction
    around = [k for k in range(node.rank) if k != s.v]

    def panels(scope: Scope) -> None:
        width = s.columns
        extent = nest.emitter.emit(node.domain[s.v], scope)

        def one(inner: Scope, first: Expr, count: Expr, _: int) -> None:
            def columns(x: Scope, fill: Piece) -> None:
                nest.pieces(x, "c", count, s.width, lambda y, j, some, lanes: fill(y, plus(first, j), some, lanes))

            _panel(nest, s, inner, columns)

        nest.pieces(scope, "j", extent, width, one, nest.work(scope, s.v, width))

    assert len(r.terms) == 2
    nest.guard_axes(nest.top, lambda g: nest.each(g, around, panels))


def _panel(nest: Nest, s: Stream, scope: Scope, columns: Columns) -> None:
    r = nest.reduction
    *outer, last = nest.reduced

    def at(x: Scope) -> tuple[Expr, ...]:
        return tuple(x.lookup(k) for k in range(nest.node.rank))

    def each(x: Scope, first: Expr, count: Expr, lanes: int, fill: Fill) -> None:
        nest.vector_along(x, s.v, first, count, lanes, lambda y, _: fill(y))

    def clear(x: Scope) -> None:
        x.body.append(Store(s.sums, at(x), unit(r.op, s.sums.elem)))

    def finish(x: Scope) -> None:
        x.accs = (Load(s.sums, at(x)),)
        nest.store(x)

    def rows(x: Scope, k: Expr, count: int) -> None:
        """Some rows, from k on, pass over the panel. What does not move along it is read before."""
        heads = [Scope(x, axes={last: plus(k, const(r))}) for r in range(count)]

        def add(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
            acc = nest.local(y, s.sums.elem, lanes)

            def lane(z: Scope, l: Var) -> None:
                z.body.append(Store(acc, (l,), Load(s.sums, at(z))))
                for head in heads:
                    one = Scope(head, axes=dict(z.axes))
                    nest.accumulate(one, acc, (l,))
                    z.body.extend(one.body)
                z.body.append(Store(s.sums, at(z), Load(acc, (l,))))

            nest.vector_along(y, s.v, first, some, lanes, lane)

        passes = Scope(x)
        columns(passes, add)
        for head in heads:
            x.body.extend(head.body)
        x.body.extend(passes.body)

    columns(scope, partial(each, fill=clear))
    nest.emitter.guarded(scope, r.extents, lambda g: nest.serial(g, outer, lambda x: nest.together(x, last, s.rows, rows)))
    columns(scope, partial(each, fill=finish))


def stream_lanes(nest: Nest, s: Stream) -> None:
    """Write the nest of a sum in the order `lanes` over one axis; `rows` divides the number of lanes, and `sums` has as many elements as
    the columns, rounded up to whole panels, have lanes.
    """
    node, r = nest.node, nest.reduction
    around = [k for k in range(node.rank) if k != s.v]
    (last,) = nest.reduced
    elem = s.sums.elem

    def one(scope: Scope, low: Expr, count: Expr, _: int) -> None:
        def seat(lane: Expr, column: Expr) -> tuple[Expr, ...]:
            """Where a sum lies: of a lane, of a column of the panel."""
            return (plus(times(low, const(LANES)), plus(times(lane, const(s.columns)), column)),)

        def columns(x: Scope, fill: Callable[[Scope, Expr], None]) -> None:
            def piece(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
                nest.vector_along(y, s.v, plus(low, first), some, lanes, lambda z, l: fill(z, plus(first, l)))

            nest.pieces(x, "c", count, s.width, piece)

        def clear(x: Scope, column: Expr) -> None:
            nest.unroll(x, LANES, lambda y, l: y.body.append(Store(s.sums, seat(l, column), unit(r.op, elem))))

        def rows(x: Scope, k: Expr, together: int) -> None:
            """Some rows, from k on, whose lanes are neighbours."""
            lane = nest.bound(x, op("mod", k, const(LANES)))

            def add(y: Scope, column: Expr, more: Expr) -> None:
                y.axes[last] = plus(k, more)
                nest.accumulate(y, s.sums, seat(plus(lane, more), column))

            if together == 1:
                columns(x, partial(add, more=const(0)))
            else:
                columns(x, lambda y, column: nest.unroll(y, together, lambda z, l: add(z, column, l)))

        def finish(x: Scope, column: Expr) -> None:
            half = LANES // 2
            while half:
                nest.unroll(x, half, partial(fold, column=column, half=half))
                half //= 2
            x.accs = (Load(s.sums, seat(const(0), column)),)
            nest.store(x)

        def fold(x: Scope, l: Var, column: Expr, half: int) -> None:
            here, there = seat(l, column), seat(plus(l, const(half)), column)
            x.body.append(Store(s.sums, here, combine(r.op, Load(s.sums, here), [Load(s.sums, there)])))

        columns(scope, clear)
        nest.emitter.guarded(scope, r.extents, lambda g: nest.together(g, last, s.rows, rows))
        columns(scope, finish)

    def panels(scope: Scope) -> None:
        extent = nest.emitter.emit(node.domain[s.v], scope)
        nest.pieces(scope, "j", extent, s.columns, one, nest.work(scope, s.v, s.columns))

    nest.guard_axes(nest.top, lambda g: nest.each(g, around, panels))

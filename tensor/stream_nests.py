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

`stream_lanes` is the same for sums of order `lanes` down the columns of large matrices, `y[j] = sum[i] w[i, j]`: each column has sixteen
sums, so panels are narrower, and lie together in the buffer. Of a block of rows, those of one of the sixteen go together, which reads and
writes its sums once for them. What one matrix is read for, several sums may be.

    for panels of j {
      sums[16, j] = 0
      for blocks of i {
        for l in 0..16 { for j in panel { vector { acc = sums[l, j]; unroll r { acc += w[i + l + 16 r, j] }; sums[l, j] = acc } } }
      }
      for j in panel { vector { a tree; y[j] = sums[0, j] } }
    }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Scope, plus, rounded_down, times
from tlc.tensor.kernel.ir import Buffer, Const, Expr, Load, Store, Var, const, op
from tlc.tensor.nests import Fill, Nest, combine, unit

Piece = Callable[[Scope, Expr, Expr, int], None]  # some columns: the first, how many, and a width for vectors
Columns = Callable[[Scope, Piece], None]

PANEL = 1024  # columns, about: their sums take up four kilobytes
LINE = 32  # columns of which panels are multiples
READ = 8  # what an element of the matrix costs, in fused multiply-adds: it is read from memory and used once


@dataclass(frozen=True)
class Stream:
    """Vectors of `width` along axis v of the output, `rows` positions of the last reduced axis at once, in panels of `columns`."""

    v: int
    width: int
    rows: int
    columns: int


def panel(extent: int | None, about: int = PANEL) -> int:
    """How many columns a panel has: at least two panels, an even number of them, so that two threads have as much to do."""
    if extent is None:
        return about
    pieces = 2 * max(1, round(extent / (2 * about)))
    return max(LINE, -(-extent // pieces // LINE) * LINE)


def stream(nest: Nest, s: Stream, sums: Buffer) -> None:
    """Write the nest of a sum of products in the order `chain`; the sums lie in a buffer as large as the output."""
    node, r = nest.node, nest.reduction
    around = [k for k in range(node.rank) if k != s.v]

    def panels(scope: Scope) -> None:
        width = s.columns
        extent = nest.emitter.emit(node.domain[s.v], scope)

        def one(inner: Scope, first: Expr, count: Expr, _: int) -> None:
            def columns(x: Scope, fill: Piece) -> None:
                nest.pieces(x, "c", count, s.width, lambda y, j, some, lanes: fill(y, plus(first, j), some, lanes))

            _panel(nest, s, sums, inner, columns)

        nest.pieces(scope, "j", extent, width, one, nest.work(scope, s.v, width))

    assert len(r.terms) == 2
    nest.guard_axes(nest.top, lambda g: nest.each(g, around, panels))


def _panel(nest: Nest, s: Stream, sums: Buffer, scope: Scope, columns: Columns) -> None:
    r = nest.reduction
    *outer, last = nest.reduced

    def at(x: Scope) -> tuple[Expr, ...]:
        return tuple(x.lookup(k) for k in range(nest.node.rank))

    def each(x: Scope, first: Expr, count: Expr, lanes: int, fill: Fill) -> None:
        nest.vector_along(x, s.v, first, count, lanes, lambda y, _: fill(y))

    def clear(x: Scope) -> None:
        x.body.append(Store(sums, at(x), unit(r.op, sums.elem)))

    def finish(x: Scope) -> None:
        x.accs = (Load(sums, at(x)),)
        nest.store(x)

    def rows(x: Scope, k: Expr, count: int) -> None:
        """Some rows, from k on, pass over the panel. What does not move along it is read before."""
        heads = [Scope(x, axes={last: plus(k, const(r))}) for r in range(count)]

        def add(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
            acc = nest.local(y, sums.elem, lanes)

            def lane(z: Scope, l: Var) -> None:
                z.body.append(Store(acc, (l,), Load(sums, at(z))))
                for head in heads:
                    one = Scope(head, axes=dict(z.axes))
                    nest.accumulate(one, acc, (l,))
                    z.body.extend(one.body)
                z.body.append(Store(sums, at(z), Load(acc, (l,))))

            nest.vector_along(y, s.v, first, some, lanes, lane)

        passes = Scope(x)
        columns(passes, add)
        for head in heads:
            x.body.extend(head.body)
        x.body.extend(passes.body)

    columns(scope, partial(each, fill=clear))
    nest.emitter.guarded(scope, r.extents, lambda g: nest.serial(g, outer, lambda x: nest.together(x, last, s.rows, rows)))
    columns(scope, partial(each, fill=finish))


def stream_lanes(nests: Sequence[Nest], s: Stream, sums: Sequence[Buffer]) -> None:
    """Write the nest of sums in the order `lanes` over one axis of the same two. Each has a buffer for sixteen times as many elements as
    there are columns, rounded up to whole panels.
    """
    nest, emitter = nests[0], nests[0].emitter
    (last,) = nest.reduced
    block = LANES * s.rows

    def one(scope: Scope, low: Expr, count: Expr, _: int) -> None:
        def seat(lane: Expr, column: Expr) -> tuple[Expr, ...]:
            """Where a sum lies: of a lane, of a column of the panel."""
            return (plus(times(low, const(LANES)), plus(times(lane, const(s.columns)), column)),)

        def columns(x: Scope, fill: Callable[[Scope, Expr], None]) -> None:
            def piece(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
                nest.vector_along(y, s.v, plus(low, first), some, lanes, lambda z, l: fill(z, plus(first, l)))

            nest.pieces(x, "c", count, s.width, piece)

        def clear(x: Scope, column: Expr) -> None:
            for n, b in zip(nests, sums, strict=True):
                zero = unit(n.reduction.op, b.elem)
                nest.unroll(x, LANES, lambda y, l, b=b, zero=zero: y.body.append(Store(b, seat(l, column), zero)))  # type: ignore[misc]

        def add(x: Scope, rows: Sequence[Expr], lane: Expr) -> None:
            """Some rows to the sums of their lane. What does not move along a row is read before."""
            heads = [Scope(x, axes={last: i}) for i in rows]

            def piece(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
                accs = [nest.local(y, b.elem, lanes) for b in sums]

                def column(z: Scope, l: Var) -> None:
                    at = seat(lane, plus(first, l))
                    z.body.extend(Store(acc, (l,), Load(b, at)) for acc, b in zip(accs, sums, strict=True))
                    for head in heads:
                        row = Scope(head, axes=dict(z.axes))
                        for n, acc in zip(nests, accs, strict=True):
                            n.accumulate(row, acc, (l,))
                        z.body.extend(row.body)
                    z.body.extend(Store(b, at, Load(acc, (l,))) for acc, b in zip(accs, sums, strict=True))

                nest.vector_along(y, s.v, plus(low, first), some, lanes, column)

            passes = Scope(x)
            nest.pieces(passes, "c", count, s.width, piece)
            for head in heads:
                x.body.extend(head.body)
            x.body.extend(passes.body)

        def rows(x: Scope) -> None:
            def lanes(y: Scope, k: Var) -> None:
                some = lambda z, l: add(z, [plus(plus(k, l), const(LANES * r)) for r in range(s.rows)], l)  # noqa: E731
                emitter.loop(y, "r", const(0), const(LANES), some)

            extent = emitter.emit(nest.node.domain[last], x)
            whole = rounded_down(extent, block)
            whole = whole if isinstance(whole, Const) else nest.bound(x, whole)
            emitter.loop(x, "k", const(0), whole, lanes, step=block)
            emitter.loop(x, "k", whole, extent, lambda y, k: add(y, [k], nest.bound(y, op("mod", k, const(LANES)))))

        def finish(x: Scope, column: Expr) -> None:
            for n, b in zip(nests, sums, strict=True):
                half = LANES // 2
                while half:
                    nest.unroll(x, half, partial(fold, n=n, b=b, column=column, half=half))
                    half //= 2
                end = Scope(x, accs=(Load(b, seat(const(0), column)),))
                n.store(end)
                x.body.extend(end.body)

        def fold(x: Scope, l: Var, n: Nest, b: Buffer, column: Expr, half: int) -> None:
            here, there = seat(l, column), seat(plus(l, const(half)), column)
            x.body.append(Store(b, here, combine(n.reduction.op, Load(b, here), [Load(b, there)])))

        columns(scope, clear)
        emitter.guarded(scope, nest.reduction.extents, rows)
        columns(scope, finish)

    def work(scope: Scope) -> Callable[[], Expr] | None:
        prices = [price for n in nests if (price := n.work(scope, s.v, s.columns))]
        return (lambda: reduce(plus, [price() for price in prices])) if len(prices) == len(nests) else None

    def panels(scope: Scope) -> None:
        extent = emitter.emit(nest.node.domain[s.v], scope)
        nest.pieces(scope, "j", extent, s.columns, one, work(scope))

    nest.guard_axes(nest.top, panels)

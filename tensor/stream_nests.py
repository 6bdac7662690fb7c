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

`stream_lanes` is for sums of order `lanes` down the columns of large matrices, `y[j] = sum[i] w[i, j]`. Each column has sixteen sums, of
every sixteenth row each; threads share these sixteen, so that each reads whole rows. Of a block of rows, those of one of the sixteen go
together, which reads and writes its sums once for them. What one matrix is read for, several sums may be.

    for l0 in 0..16 by 2 {
      for panels of j {
        sums[l0.., j] = 0
        for blocks of i {
          for l in l0..l0 + 2 { for j in panel { vector { acc = sums[l, j]; unroll r { acc += w[i + l + 16 r, j] }; sums[l, j] = acc } } }
        }
      }
    }
    for j { vector { a tree; y[j] = sums[0, j] } }
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from tlc.frontend.records import dataclass
from tlc.ssa.reductions import LANES
from tlc.tensor.emit import Scope, plus, rounded_down, times
from tlc.tensor.kernel.ir import Buffer, Const, Expr, Load, Store, Var, const, op
from tlc.tensor.nests import Fill, Nest, combine, unit

Piece = Callable[[Scope, Expr, Expr, int], None]  # some columns: the first, how many, and a width for vectors
Columns = Callable[[Scope, Piece], None]

PANEL = 1024  # columns, about: their sums take up four kilobytes
TOGETHER = 2  # of the sixteen sums of a column, those that one thread makes in one walk
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
    there are columns.
    """
    nest, emitter = nests[0], nests[0].emitter
    (last,) = nest.reduced
    block = LANES * s.rows

    def columns(x: Scope, low: Expr, count: Expr, fill: Fill) -> None:
        """Some columns, by vectors."""

        def piece(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
            nest.vector_along(y, s.v, plus(low, first), some, lanes, lambda z, _: fill(z))

        nest.pieces(x, "c", count, s.width, piece)

    def seat(x: Scope, lane: Expr) -> tuple[Expr, ...]:
        """Where a sum lies: of a lane, of the column that a scope is at."""
        return (plus(times(lane, emitter.emit(nest.node.domain[s.v], x)), x.lookup(s.v)),)

    def add(x: Scope, low: Expr, count: Expr, rows: Sequence[Expr], lane: Expr) -> None:
        """Some rows to the sums of their lane. What does not move along a row is read before."""
        heads = [Scope(x, axes={last: i}) for i in rows]

        def piece(y: Scope, first: Expr, some: Expr, lanes: int) -> None:
            accs = [nest.local(y, b.elem, lanes) for b in sums]

            def column(z: Scope, l: Var) -> None:
                at = seat(z, lane)
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

    def some_lanes(scope: Scope, first: Var) -> None:
        """The sums of `TOGETHER` lanes, a panel of columns after the other."""

        def panel(x: Scope, low: Expr, count: Expr, _: int) -> None:
            def clear(y: Scope) -> None:
                for n, b in zip(nests, sums, strict=True):
                    zero = unit(n.reduction.op, b.elem)
                    nest.unroll(y, TOGETHER, lambda z, l, b=b, zero=zero: z.body.append(Store(b, seat(z, plus(first, l)), zero)))  # type: ignore[misc]

            def rows(y: Scope) -> None:
                extent = emitter.emit(nest.node.domain[last], y)
                whole = rounded_down(extent, block)
                whole = whole if isinstance(whole, Const) else nest.bound(y, whole)

                def each(z: Scope, fill: Callable[[Scope, Expr], None]) -> None:
                    emitter.loop(z, "l", const(0), const(TOGETHER), lambda q, l: fill(q, plus(first, l)))

                def full(z: Scope, k: Var) -> None:
                    each(z, lambda q, l: add(q, low, count, [plus(plus(k, l), const(LANES * r)) for r in range(s.rows)], l))

                def rest(z: Scope, l: Expr) -> None:
                    emitter.loop(z, "k", plus(whole, l), extent, lambda q, k: add(q, low, count, [k], l), step=LANES)

                emitter.loop(y, "k", const(0), whole, full, step=block)
                each(y, rest)

            columns(x, low, count, clear)
            emitter.guarded(x, nest.reduction.extents, rows)

        nest.pieces(scope, "j", emitter.emit(nest.node.domain[s.v], scope), s.columns, panel)

    def finish(x: Scope) -> None:
        for n, b in zip(nests, sums, strict=True):
            half = LANES // 2
            while half:
                nest.unroll(x, half, partial(fold, n=n, b=b, half=half))
                half //= 2
            end = Scope(x, accs=(Load(b, seat(x, const(0))),))
            n.store(end)
            x.body.extend(end.body)

    def fold(x: Scope, l: Var, n: Nest, b: Buffer, half: int) -> None:
        here, there = seat(x, l), seat(x, plus(l, const(half)))
        x.body.append(Store(b, here, combine(n.reduction.op, Load(b, here), [Load(b, there)])))

    def all_lanes(scope: Scope) -> None:
        emitter.loop(scope, "l", const(0), const(LANES), some_lanes, step=TOGETHER, work=work(scope))
        columns(scope, const(0), emitter.emit(nest.node.domain[s.v], scope), finish)

    def work(scope: Scope) -> Callable[[], Expr] | None:
        """What the rows of some lanes cost."""
        prices = [price for n in nests if (price := n.work(scope, s.v, TOGETHER))]
        count = emitter.emit(nest.node.domain[s.v], scope)
        whole = lambda: op("floordiv", times(count, reduce(plus, [price() for price in prices])), const(LANES))  # noqa: E731
        return whole if len(prices) == len(nests) else None

    nest.guard_axes(nest.top, all_lanes)

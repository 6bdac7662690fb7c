"""The nests of `argmax` and `argmin`: the place of the first of the best elements, where NaN is better than anything.

    lanes      best[W], where[W]; for blocks of k { vector l { .. x[i, k + l] .. } }; a tree    the data lies along the reduction
    columns    for blocks of j { best[W], where[W]; for k { vector l { .. x[k, j + l] .. } } }   it lies along an output axis

A lane goes through its elements in order and keeps the first of the best. In the end the best of all lanes is found, and of the lanes
that have it the earliest place: so the result does not depend on how elements are dealt out to lanes. Lanes along the reduction keep the
place of the block, the same number for all of them; only at the end each adds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tlc.frontend.types import Elem
from tlc.tensor.emit import Scope, plus
from tlc.tensor.graph.ir import Expr as GraphExpr
from tlc.tensor.kernel.ir import Buffer, Const, Expr, Load, Store, Var, const, op
from tlc.tensor.nests import Nest, unit


def serial_search(nest: Nest) -> None:
    """One element after the other."""

    def one(scope: Scope) -> None:
        found = Found(nest, scope, 1)
        zero = const(0)
        found.clear(scope, zero)
        nest.emitter.guarded(scope, nest.reduction.extents, lambda g: nest.serial(g, list(nest.reduced), lambda s: found.step(s, zero)))
        found.finish(scope, zero)

    nest.guard_axes(nest.top, lambda g: nest.each(g, list(nest.own), one))


def lanes_search(nest: Nest, width: int) -> None:
    """The one reduced axis in lanes."""
    (k,) = nest.reduced
    extent = nest.reduction.extents[0].value
    number = Elem.I64 if extent is None or extent + width > 1 << 31 else Elem.I32

    def one(scope: Scope) -> None:
        found = Found(nest, scope, width, number)
        nest.vector(scope, const(width), width, found.clear)

        def piece(s: Scope, first: Expr, count: Expr, lanes: int) -> None:
            place = nest.bound(s, op("convert", first, elem=number)) if number is Elem.I32 else first
            nest.vector_along(s, k, first, count, lanes, partial(found.step, at=[place]))

        nest.emitter.guarded(scope, nest.reduction.extents, lambda g: nest.chunks(g, k, width, piece))
        found.first(scope, width)
        found.finish(scope, const(0))

    nest.guard_axes(nest.top, lambda g: nest.each(g, list(nest.own), one))


def columns_search(nest: Nest, v: int, width: int) -> None:
    """Output axis v in lanes."""
    around = [k for k in range(nest.node.rank) if k != v]

    def block(scope: Scope, first: Expr, count: Expr, lanes: int) -> None:
        inner = Scope(scope)
        found = Found(nest, inner, lanes)

        def columns(s: Scope, fill: Callable[[Scope, Expr], None]) -> None:
            nest.vector_along(s, v, first, count, lanes, fill)

        nest.vector(inner, const(lanes), lanes, found.clear)
        loops: Callable[[Scope], None] = lambda g: nest.serial(g, list(nest.reduced), lambda s: columns(s, found.step))  # noqa: E731
        nest.emitter.guarded(inner, nest.reduction.extents, loops)
        columns(inner, found.finish)
        scope.body.extend(inner.body)

    nest.guard_axes(nest.top, lambda g: nest.each(g, around, lambda s: nest.chunks(s, v, width, block)))


class Found:
    """The best element so far, and where it was: an index for each reduced axis, or so many numbers as are given."""

    def __init__(self, nest: Nest, scope: Scope, lanes: int, number: Elem = Elem.I64, places: int | None = None) -> None:
        r = nest.reduction
        self.nest, self.op = nest, "gt" if r.op == "argmax" else "lt"
        self.term: GraphExpr = r.terms[0]
        self.start = unit("max" if r.op == "argmax" else "min", self.term.elem)
        self.best = nest.local(scope, self.term.elem, lanes)
        self.where = [nest.local(scope, number, lanes) for _ in range(len(r.extents) if places is None else places)]

    def clear(self, scope: Scope, l: Expr) -> None:
        scope.body.append(Store(self.best, (l,), self.start))
        scope.body.extend(Store(b, (l,), Const(0, b.elem)) for b in self.where)

    def better(self, scope: Scope, x: Expr, old: Expr) -> Expr:
        """Whether it is better than the old one; NaN is, unless that is NaN too."""
        if not x.elem.is_real:
            return self.nest.bound(scope, op(self.op, x, old))
        no_worse = op("not", op("le" if self.op == "gt" else "ge", x, old))
        return self.nest.bound(scope, op("and", no_worse, op("not", op("isnan", old))))

    def keep(self, scope: Scope, l: Expr, better: Expr, x: Expr, at: list[Expr]) -> None:
        """The new one in place of the old one, where it is better."""
        for b, new in zip((self.best, *self.where), (x, *at), strict=True):
            scope.body.append(Store(b, (l,), op("select", better, new, Load(b, (l,)))))

    def step(self, scope: Scope, l: Expr, at: list[Expr] | None = None) -> None:
        """The element at the axes of the scope, whose place is kept as that, or as given."""
        x, old = self.nest.bound(scope, self.nest.emitter.emit(self.term, scope)), Load(self.best, (l,))
        self.keep(scope, l, self.better(scope, x, old), x, [scope.lookup(k) for k in self.nest.reduced] if at is None else at)

    def first(self, scope: Scope, lanes: int) -> None:
        """In lane 0, the earliest place of all lanes whose best is the best of all. So far they have the place of the block."""
        nest, (where,) = self.nest, self.where
        name = "max" if self.op == "gt" else "min"
        top = nest.local(scope, self.best.elem, lanes)
        nest.vector(scope, const(lanes), lanes, lambda s, l: s.body.append(Store(top, (l,), Load(self.best, (l,)))))
        self.halved(scope, top, lanes, name)
        best = nest.bound(scope, Load(top, (const(0),)))

        def place(s: Scope, l: Var) -> None:
            own = nest.bound(s, Load(self.best, (l,)))
            chosen: Expr = op("eq", own, best)
            if own.elem.is_real:
                chosen = op("or", chosen, op("isnan", own))
            lane = l if where.elem is l.elem else op("convert", l, elem=where.elem)
            at = op("add", Load(where, (l,)), lane)
            s.body.append(Store(where, (l,), op("select", chosen, at, unit("min", where.elem))))

        nest.vector(scope, const(lanes), lanes, place)
        self.halved(scope, where, lanes, "min")

    def halved(self, scope: Scope, b: Buffer, lanes: int, name: str) -> None:
        """The least or greatest of all lanes, in lane 0."""
        half = lanes // 2
        while half:

            def better(s: Scope, l: Var, half: int = half) -> None:
                s.body.append(Store(b, (l,), op(name, Load(b, (l,)), Load(b, (plus(l, const(half)),)))))

            self.nest.vector(scope, const(half), half, better)
            half //= 2

    def take(self, scope: Scope, l: Expr, x: Expr, at: Expr) -> None:
        """What was found elsewhere, and where, if that is better, or as good and earlier."""
        (where,) = self.where
        old, here = (self.nest.bound(scope, Load(b, (l,))) for b in (self.best, where))
        equal: Expr = op("eq", x, old)
        if x.elem.is_real:
            equal = op("or", equal, op("and", op("isnan", x), op("isnan", old)))
        earlier = op("and", equal, op("lt", at, here))
        self.keep(scope, l, self.nest.bound(scope, op("or", self.better(scope, x, old), earlier)), x, [at])

    def finish(self, scope: Scope, l: Expr) -> None:
        places = [Load(b, (l,)) for b in self.where]
        scope.accs = tuple(p if p.elem is Elem.I64 else op("convert", p, elem=Elem.I64) for p in places)
        self.nest.store(scope)

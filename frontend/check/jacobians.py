"""`jacobian(f)`: the dimensions of the result, then those of the argument. `hessian(f)` is that of the gradient.

by rows       for each element of the result its gradient                                    for[i] grad(x => f(x)[i])(x)
by columns    for each element of the argument the tangent where it alone moves by 1         T = for[u] jvp(f)(x, e_u);  for[i, u] T[u, i]

It is made by columns if there are surely fewer of them. A Hessian always is: the gradient gives a row as soon as it gives anything,
so a tangent of it costs as much as a row, and keeps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tlc.frontend import typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, comp, extent_range, index, op, over, part, read
from tlc.frontend.check.cells import Element, elem_of, is_real, tensor
from tlc.frontend.check.derivatives import ByParameters, Derivative, gradient, locals_inside, pushed, tupled, value_params
from tlc.frontend.check.functions import FunctionValue, Site
from tlc.frontend.check.pending import Outline, PendingConst
from tlc.frontend.check.report import fail
from tlc.frontend.check.signature import Signature
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import Local
from tlc.frontend.types import BOOL, TensorType, TupleType, Type


def jacobian(of: FunctionValue) -> FunctionValue:
    return Jacobian(of)


def hessian(of: FunctionValue) -> FunctionValue:
    return Jacobian(Derivative(of), of_gradient=True)


@dataclass(frozen=True)
class Jacobian(ByParameters):
    """A result that is a tuple has a Jacobian for each item. `of_gradient`: `of` is the gradient by the same parameters."""

    of_gradient: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        if isinstance(self.of, Derivative) and self.of_gradient:
            return f"hessian({self.of.of.name})"
        return f"jacobian({self.of.name})"

    def by(self, wrt: tuple[str, ...], many: bool) -> ByParameters:
        of = self.of.by(wrt, many) if isinstance(self.of, Derivative) and self.of_gradient else self.of
        return replace(self, of=of, wrt=wrt, many=many)

    def signature(self, body: Body) -> Signature:
        return replace(self.of.signature(body), result=None)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        positions = self.positions(value_params(self.of, body), site.args, site.span)
        binds = Bindings()
        args = binds.keep_all(site.args, [p.name for p in value_params(self.of, body)])
        return binds.wrap(_Work(self, body, site, args, positions, binds).run())


@dataclass(frozen=True)
class _Work:
    """One call: `args` cost nothing to read, `positions` are of those that it is by."""

    of: Jacobian
    body: Body
    site: Site
    args: list[typed.Expr]
    positions: tuple[int, ...]
    binds: Bindings

    @property
    def span(self) -> Span:
        return self.site.span

    def value(self, args: list[typed.Expr]) -> typed.Expr:
        return self.of.of.emit(self.body, Site(self.site.binds, args, self.site.functions, self.span))

    def run(self) -> typed.Expr:
        result = self.value(self.args).type
        items = result.items if isinstance(result, TupleType) else (result,)
        made = self.columns(items) if self.is_by_columns(items) else [self.rows(t, self.item(result, k)) for k, t in enumerate(items)]
        return tupled(made, self.span) if isinstance(result, TupleType) else made[0]

    def item(self, result: Type, k: int) -> Callable[[typed.Expr], typed.Expr]:
        """From a result to its k-th item, if it is a tuple."""
        return lambda y: part(y, k) if isinstance(result, TupleType) else y

    def by_each(self, parts: Sequence[typed.Expr]) -> typed.Expr:
        """What is by each of the parameters, as it was asked for."""
        return tupled(parts, self.span) if self.of.many else parts[0]

    def indices(self, names: str, dims: tuple[Dim, ...]) -> list[Local]:
        return [self.body.index(names[k % len(names)], self.span, Dim.const(0), d) for k, d in enumerate(dims)]

    def each(self, locals: Sequence[Local], dims: tuple[Dim, ...], value: typed.Expr) -> typed.Expr:
        ranges = [extent_range(i, d, self.span) for i, d in zip(locals, dims, strict=True)]
        return comp(ranges, dims, value, self.span) if ranges else value

    # ------------------------------------------------------------ by rows

    def rows(self, result: Type, item: Callable[[typed.Expr], typed.Expr]) -> typed.Expr:
        if not isinstance(result, TensorType) or not is_real(result):
            what = "a gradient by it is no tensor" if self.of.of_gradient else f"`{self.of.of.name}` gives `{result}`"
            raise fail("E0601", f"`{self.of.name}` is of tensors of reals: {what}", self.span)
        locals = self.indices("ijklmn", result.dims)
        at = tuple(read(i, self.span) for i in locals)
        inner = Bindings()
        parts = gradient(lambda xs: index(item(self.value(xs)), at), self.args, self.span, inner, self.positions)
        return self.each(locals, result.dims, inner.wrap(self.by_each(parts)))

    # ------------------------------------------------------------ by columns

    def is_by_columns(self, results: Sequence[Type]) -> bool:
        args = [self.args[k].type for k in self.positions]
        if not all(isinstance(t, TensorType) and is_real(t) for t in (*results, *args)):
            return False
        columns, rows = _elements(args), _elements(results)
        fewer = columns is not None and (columns == len(args) or (rows is not None and columns < rows))
        return self.of.of_gradient or fewer

    def columns(self, results: Sequence[Type]) -> list[typed.Expr]:
        locals = locals_inside(self.body, value_params(self.of.of, self.body), self.args)
        outline = Outline(locals, self.value([read(i, self.span) for i in locals]), "objective")
        found = [self.column(outline, k) for k in self.positions]
        return [
            self.by_each([self.turned(self.item(outline.body.type, k)(every), t, dims) for dims, every in found])
            for k, t in enumerate(results)
        ]

    def column(self, of: Outline, position: int) -> tuple[tuple[Dim, ...], typed.Expr]:
        """The dimensions of an argument, and with those in front, the tangents of the result as it moves."""
        type = self.args[position].type
        assert isinstance(type, TensorType)
        locals = self.indices("uvwxyz", type.dims)
        tangent = over(type.dims, self.span, lambda at: _one_hot(at, locals, elem_of(type), self.span))
        column = part(pushed(of, self.args, [tangent], (position,), self.span), 1)
        return type.dims, self.binds.keep(self.each(locals, type.dims, column), "columns")

    def turned(self, columns: typed.Expr, result: Type, dims: tuple[Dim, ...]) -> typed.Expr:
        """The same with the dimensions of the result in front."""
        assert isinstance(result, TensorType)
        first = len(result.dims)
        return over((*result.dims, *dims), self.span, lambda at: index(columns, (*at[first:], *at[:first])))


def _elements(types: Sequence[Type]) -> int | None:
    """How many numbers there are in tensors, if that is known."""
    sizes = [[d.value for d in t.dims] for t in types if isinstance(t, TensorType)]
    if any(n is None for dims in sizes for n in dims):
        return None
    return sum(math.prod(n for n in dims if n is not None) for dims in sizes)


def _one_hot(at: Sequence[typed.Expr], to: Sequence[Local], elem: Element, span: Span) -> typed.Expr:
    """1 at an index, else 0."""
    scalar = tensor(elem)
    one, zero = (PendingConst(v, type=scalar, span=span) for v in (1, 0))
    here: typed.Expr | None = None
    for a, i in zip(at, to, strict=True):
        same = op("eq", (a, read(i, span)), BOOL, span)
        here = same if here is None else op("and", (here, same), BOOL, span)
    return one if here is None else op("select", (here, one, zero), scalar, span)

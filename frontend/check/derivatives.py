"""Derivatives as function values. All are made of `grad` of a scalar: nothing behind the checker knows the others.

grad(f)(x)          value_and_grad(f)(x)
vjp(f)(x, dy)       (y, dx): y = f(x), dx = the gradient of <f(x), dy> by x
jvp(f)(x, dx)       (y, dy): dy = the gradient of <vjp(f)(x, u), dx> by u, which is linear in u
jacobian(f)(x)      for each element of y the gradient of that element
hessian(f)(x)       jacobian(grad(f))(x)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tlc.frontend import typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, comp, extent_range, index, op, over, part, read
from tlc.frontend.check.cells import Mismatch, elem_of, is_real, tensor, unify
from tlc.frontend.check.dimension import dims_of_value, is_i64
from tlc.frontend.check.functions import FunctionValue, Site
from tlc.frontend.check.pending import Outline, PendingConst, PendingGrad
from tlc.frontend.check.report import fail
from tlc.frontend.check.scope import FunctionDecl
from tlc.frontend.check.signature import Parameter, Signature
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import Local, leaf_types
from tlc.frontend.types import FunctionType, StructType, TensorType, TupleType, Type


@dataclass(frozen=True)
class Derivative(FunctionValue):
    """`wrt` are names of parameters of `of` (None: the first), `many` whether they were given as a tuple."""

    of: FunctionValue
    value: bool
    wrt: tuple[str, ...] | None = None
    many: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{'value_and_grad' if self.value else 'grad'}({self.of.name})"

    def signature(self, body: Body) -> Signature:
        return replace(self.of.signature(body), result=None)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        span = site.span
        params = [p for p in self.of.signature(body).params if not isinstance(p.type, FunctionType)]
        locals = [_param_local(body, p, a) for p, a in zip(params, site.args, strict=True)]
        inner = self.of.emit(body, Site(site.binds, [read(i, span) for i in locals], site.functions, span))
        if not isinstance(inner.type, TensorType) or inner.type.dims or not is_real(inner.type):
            message = f"`{self.of.name}` gives `{inner.type}`; only a scalar real has a gradient"
            raise fail("E0602", message, span, help="reduce the result, as with `sum(...)` or `mean(...)`")
        positions = self._positions(params, span)
        types = []
        for k in positions:
            type = site.args[k].type
            if not any(is_real(leaf) for leaf in leaf_types(type)):
                raise fail("E0601", f"`{params[k].name}` is `{type}`: there is no derivative by it", site.args[k].span)
            types.append(type)
        gradient = TupleType(tuple(types)) if self.many else types[0]
        result = TupleType((inner.type, gradient)) if self.value else gradient
        outline = Outline(tuple(locals), inner, "objective")
        return PendingGrad(outline, tuple(site.args), positions, self.many, self.value, type=result, span=span)

    def _positions(self, params: list[Parameter], span: Span) -> tuple[int, ...]:
        if self.wrt is None:
            if not params:
                raise fail("E0601", f"`{self.of.name}` takes nothing to differentiate by", span)
            return (0,)
        names = [p.name for p in params]
        for w in self.wrt:
            if w not in names:
                raise fail(
                    "E0601",
                    f"`{self.of.name}` has no parameter `{w}`",
                    span,
                    help="its parameters are " + ", ".join(f"`{n}`" for n in names),
                )
        return tuple(names.index(w) for w in self.wrt)

    def captured(self, body: Body) -> tuple[FunctionValue, list[typed.Stmt]]:
        of, stmts = self.of.captured(body)
        return replace(self, of=of), stmts

    def default_scope(self, body: Body) -> FunctionDecl | None:
        return self.of.default_scope(body)


def _param_local(body: Body, p: Parameter, arg: typed.Expr) -> Local:
    """A parameter of the function that is differentiated, with the dimensions of its argument."""
    dim = Dim.var(DimVar(p.name, p.span)) if is_i64(arg.type) else None
    return body.local(p.name, arg.type, p.span, dim=dim)


@dataclass(frozen=True)
class Transformed(FunctionValue):
    """`vjp(f)`, `jvp(f)`, `jacobian(f)`, `hessian(f)`: `what` makes the expression. Several arguments of `f` come as a tuple."""

    of: FunctionValue
    word: str
    takes: tuple[str, ...]
    what: Callable[[Transformed, Body, list[typed.Expr], Span], typed.Expr]

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.word}({self.of.name})"

    def signature(self, body: Body) -> Signature:
        return Signature((), tuple(Parameter(n, None) for n in self.takes), None)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        binds = Bindings()
        args = [binds.keep(a, n) for a, n in zip(site.args, self.takes, strict=True)]
        return binds.wrap(self.what(self, body, args, site.span))

    def captured(self, body: Body) -> tuple[FunctionValue, list[typed.Stmt]]:
        of, stmts = self.of.captured(body)
        return replace(self, of=of), stmts

    def inputs(self, body: Body, x: typed.Expr) -> list[typed.Expr]:
        """The arguments of `f`: the items of a tuple where it takes several."""
        count = sum(p.default is None for p in self.of.signature(body).params)
        if count == 1:
            return [x]
        if not isinstance(x.type, TupleType) or len(x.type.items) != count:
            raise fail("E0603", f"`{self.word}` of a function of {count} arguments takes them as a tuple", x.span)
        return [part(x, k) for k in range(count)]

    def call(self, body: Body, args: list[typed.Expr], span: Span) -> typed.Expr:
        """`f(args)`"""
        from tlc.frontend.check.apply import apply, default  # which imports this file, to know what functions are

        params = self.of.signature(body).params
        values = args + [default(body, self.of, p) for p in params[len(args) :]]
        return apply(body, self.of, values, {}, span)


Objective = Callable[[list[typed.Expr]], typed.Expr]


def gradient(objective: Objective, args: list[typed.Expr], span: Span, binds: Bindings) -> list[typed.Expr]:
    """The gradients of a scalar by all arguments."""
    locals = [_local(f"x{k}", a) for k, a in enumerate(args)]
    outline = Outline(tuple(locals), objective([read(i, span) for i in locals]), "objective")
    type = TupleType(tuple(a.type for a in args))
    result = binds.keep(PendingGrad(outline, tuple(args), tuple(range(len(args))), True, False, type=type, span=span), "gradient")
    return [part(result, k) for k in range(len(args))]


def _local(name: str, arg: typed.Expr) -> Local:
    return Local(name, arg.type, dim=Dim.var(DimVar(name, arg.span)) if is_i64(arg.type) else None, span=arg.span)


def leaves(e: typed.Expr) -> list[typed.Expr]:
    """The tensors of a value that costs nothing to read."""
    count = len(e.type.items) if isinstance(e.type, TupleType) else len(e.type.decl.fields) if isinstance(e.type, StructType) else 0
    return [leaf for k in range(count) for leaf in leaves(part(e, k))] if not isinstance(e.type, TensorType) else [e]


def inner_product(body: Body, a: typed.Expr, b: typed.Expr, span: Span) -> typed.Expr:
    """The sum of the products of all real leaves."""
    binds = Bindings()
    a, b = binds.keep(a, "y"), binds.keep(b, "dy")
    total: typed.Expr | None = None
    for x, y in zip(leaves(a), leaves(b), strict=True):
        if not is_real(x.type) or not isinstance(x.type, TensorType):
            continue
        scalar = tensor(elem_of(x.type))
        locals = [body.index("pqrstu"[k % 6], span, Dim.const(0), d) for k, d in enumerate(dims_of_value(x))]
        at = tuple(read(i, span) for i in locals)
        product = op("mul", (index(x, at), index(y, at)), scalar, span)
        ranges = tuple(extent_range(i, d, span) for i, d in zip(locals, dims_of_value(x), strict=True))
        summed = typed.Reduce("sum", ranges, product, "chain", type=scalar, span=span) if ranges else product
        total = summed if total is None else op("add", (total, summed), scalar, span)
    if total is None:
        raise fail("E0601", f"`{a.type}` has no real leaf", span)
    return binds.wrap(total)


def _same(found: typed.Expr, wanted: Type, what: str) -> None:
    try:
        unify(wanted, found.type)
    except Mismatch as m:
        raise fail("E0402", f"{what} must be `{wanted}`, found `{found.type}`", found.span, help=m.help) from None


def _vjp(f: Transformed, body: Body, args: list[typed.Expr], span: Span) -> typed.Expr:
    x, dy = args
    inputs = f.inputs(body, x)
    y = f.call(body, inputs, span)
    _same(dy, y.type, "the cotangent `dy`")
    binds = Bindings()
    y = binds.keep(y, "y")
    parts = gradient(lambda xs: inner_product(body, f.call(body, xs, span), dy, span), inputs, span, binds)
    dx = parts[0] if len(parts) == 1 else typed.Tuple(tuple(parts), type=x.type, span=span)
    return binds.wrap(typed.Tuple((y, dx), type=TupleType((y.type, dx.type)), span=span))


def _jvp(f: Transformed, body: Body, args: list[typed.Expr], span: Span) -> typed.Expr:
    x, dx = args
    _same(dx, x.type, "the tangent `dx`")
    inputs, tangents = f.inputs(body, x), f.inputs(body, dx)
    y = f.call(body, inputs, span)

    def pulled(us: list[typed.Expr]) -> typed.Expr:
        """<vjp(f)(x, u), dx>"""
        binds = Bindings()
        parts = gradient(lambda xs: inner_product(body, f.call(body, xs, span), us[0], span), inputs, span, binds)
        total: typed.Expr | None = None
        for p, t in zip(parts, tangents, strict=True):
            product = inner_product(body, p, t, span)
            total = product if total is None else op("add", (total, product), product.type, span)
        assert total is not None
        return binds.wrap(total)

    binds = Bindings()
    y = binds.keep(y, "y")
    (dy,) = gradient(pulled, [binds.keep(_zero(y.type, span), "zero")], span, binds)
    return binds.wrap(typed.Tuple((y, dy), type=TupleType((y.type, dy.type)), span=span))


def _zero(type: Type, span: Span) -> typed.Expr:
    """A value of the type, all of whose numbers are 0."""
    match type:
        case TupleType():
            return typed.Tuple(tuple(_zero(i, span) for i in type.items), type=type, span=span)
        case StructType():
            return typed.Struct(tuple(_zero(i, span) for i in typed.field_types(type)), type=type, span=span)
        case TensorType():
            return over(type.dims, span, lambda _: PendingConst(0, type=tensor(elem_of(type)), span=span))
        case FunctionType():
            raise AssertionError("no function is a value")


def _jacobian(f: Transformed, body: Body, args: list[typed.Expr], span: Span) -> typed.Expr:
    (x,) = args
    y = f.call(body, [x], span)
    for what, e in (("argument", x), ("result", y)):
        if not isinstance(e.type, TensorType) or not is_real(e.type):
            raise fail("E0601", f"the {what} of `{f.name}` must be a tensor of reals, found `{e.type}`", span)
    dims = dims_of_value(y)
    locals = [body.index("ijklmn"[k % 6], span, Dim.const(0), d) for k, d in enumerate(dims)]
    at = tuple(read(i, span) for i in locals)
    binds = Bindings()
    (row,) = gradient(lambda xs: index(f.call(body, xs, span), at), [x], span, binds)
    return comp([extent_range(i, d, span) for i, d in zip(locals, dims, strict=True)], dims, binds.wrap(row), span)


def vjp(of: FunctionValue) -> FunctionValue:
    return Transformed(of, "vjp", ("x", "dy"), _vjp)


def jvp(of: FunctionValue) -> FunctionValue:
    return Transformed(of, "jvp", ("x", "dx"), _jvp)


def jacobian(of: FunctionValue) -> FunctionValue:
    return Transformed(of, "jacobian", ("x",), _jacobian)


def hessian(of: FunctionValue) -> FunctionValue:
    return Transformed(Derivative(of, value=False), "hessian", ("x",), _jacobian)

"""Derivatives as function values. All are made of the gradient of a scalar and of `jvp`: nothing behind the checker knows the others.

grad(f)(x)          value_and_grad(f)(x)
vjp(f)(x, dy)       (y, dx): y = f(x), dx = the gradient of <f(x), dy> by x
jvp(f)(x, dx)       (y, dy): dy = the tangent of y, where x has the tangent dx
jacobian(f)(x)      the derivatives of every element: `jacobians.py`
hessian(f)(x)       jacobian(grad(f))(x)
checkpoint(f)(x)    f(x), which a derivative runs again instead of keeping what it computed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tlc.frontend import typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, extent_range, index, op, part, read
from tlc.frontend.check.cells import Mismatch, elem_of, has_real, is_real, tensor, unify
from tlc.frontend.check.dimension import dim_of, dims_of_value, is_i64
from tlc.frontend.check.functions import FunctionValue, Site
from tlc.frontend.check.pending import Outline, PendingCheckpoint, PendingGrad, PendingJvp
from tlc.frontend.check.report import fail
from tlc.frontend.check.scope import FunctionDecl
from tlc.frontend.check.signature import Parameter, Signature
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import Local
from tlc.frontend.types import FunctionType, StructType, TensorType, TupleType, Type


@dataclass(frozen=True)
class OfFunction(FunctionValue):
    """What is made of the function `of`."""

    of: FunctionValue

    def captured(self, body: Body) -> tuple[FunctionValue, list[typed.Stmt]]:
        of, stmts = self.of.captured(body)
        return replace(self, of=of), stmts

    def default_scope(self, body: Body) -> FunctionDecl | None:
        return self.of.default_scope(body)


@dataclass(frozen=True)
class ByParameters(OfFunction):
    """A derivative of `of` by some of its parameters: those named in `wrt` (None: a choice of the transformation), `many` whether they
    were given as a tuple.
    """

    wrt: tuple[str, ...] | None = None
    many: bool = False

    def by(self, wrt: tuple[str, ...], many: bool) -> ByParameters:
        return replace(self, wrt=wrt, many=many)

    def positions(self, params: Sequence[Parameter], args: Sequence[typed.Expr], span: Span) -> tuple[int, ...]:
        """Those of the parameters, each of which has a real leaf; the first if none was named."""
        if self.wrt is None and not params:
            raise fail("E0601", f"`{self.of.name}` takes nothing to differentiate by", span)
        names = [p.name for p in params]
        for w in self.wrt or ():
            if w not in names:
                help = "its parameters are " + ", ".join(f"`{n}`" for n in names)
                raise fail("E0601", f"`{self.of.name}` has no parameter `{w}`", span, help=help)
        found = (0,) if self.wrt is None else tuple(names.index(w) for w in self.wrt)
        for k in found:
            if not has_real(args[k].type):
                raise fail("E0601", f"`{params[k].name}` is `{args[k].type}`: there is no derivative by it", args[k].span)
        return found


@dataclass(frozen=True)
class Derivative(ByParameters):
    """`grad(f)`, or with `value`, `value_and_grad(f)`."""

    value: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{'value_and_grad' if self.value else 'grad'}({self.of.name})"

    def signature(self, body: Body) -> Signature:
        return replace(self.of.signature(body), result=None)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        span = site.span
        params = value_params(self.of, body)
        locals = [_param_local(body, p, a) for p, a in zip(params, site.args, strict=True)]
        inner = self.of.emit(body, Site(site.binds, [read(i, span) for i in locals], site.functions, span))
        if not isinstance(inner.type, TensorType) or inner.type.dims or not is_real(inner.type):
            message = f"`{self.of.name}` gives `{inner.type}`; only a scalar real has a gradient"
            raise fail("E0602", message, span, help="reduce the result, as with `sum(...)` or `mean(...)`")
        positions = self.positions(params, site.args, span)
        types = [site.args[k].type for k in positions]
        gradient = TupleType(tuple(types)) if self.many else types[0]
        result = TupleType((inner.type, gradient)) if self.value else gradient
        outline = Outline(tuple(locals), inner, "objective")
        return PendingGrad(outline, tuple(site.args), positions, self.many, self.value, type=result, span=span)


def value_params(of: FunctionValue, body: Body) -> list[Parameter]:
    return [p for p in of.signature(body).params if not isinstance(p.type, FunctionType)]


def _param_local(body: Body, p: Parameter, arg: typed.Expr) -> Local:
    """A parameter of the function that is differentiated, with the dimensions of its argument."""
    dim = Dim.var(DimVar(p.name, p.span)) if is_i64(arg.type) else None
    return body.local(p.name, arg.type, p.span, dim=dim)


# How these take several arguments, and one of them by name.
DIRECTIONAL = {
    "vjp": ("vjp(f)((x, z), dy)", "vjp(f)((x, z), dy, wrt = z)"),
    "jvp": ("jvp(f)((x, z), (dx, dz))", "jvp(f)((x, z), dz, wrt = z)"),
}


@dataclass(frozen=True)
class Transformed(ByParameters):
    """`vjp(f)`, `jvp(f)`: `what` makes the expression. Several arguments of `f` come as a tuple; it is by all of them if none is named."""

    word: str = ""
    takes: tuple[str, ...] = ()
    what: Callable[[Transformed, Body, list[typed.Expr], Span], typed.Expr] | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.word}({self.of.name})"

    @property
    def usage(self) -> str:
        return f"several arguments of the function come as a tuple: `{DIRECTIONAL[self.word][0]}`"

    def signature(self, body: Body) -> Signature:
        return Signature((), tuple(Parameter(n, None) for n in self.takes), None)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        binds = Bindings()
        args = [binds.keep(a, n) for a, n in zip(site.args, self.takes, strict=True)]
        assert self.what is not None
        return binds.wrap(self.what(self, body, args, site.span))

    def inputs(self, body: Body, x: typed.Expr) -> list[typed.Expr]:
        """The arguments of `f`: the items of a tuple where it takes several."""
        count = sum(p.default is None for p in self.of.signature(body).params)
        if count == 1:
            return [x]
        if not isinstance(x.type, TupleType) or len(x.type.items) != count:
            raise fail("E0603", f"`{self.word}` of a function of {count} arguments takes them as a tuple", x.span)
        return [part(x, k) for k in range(count)]

    def chosen(self, body: Body, inputs: list[typed.Expr], span: Span) -> tuple[int, ...]:
        """The positions of the arguments that it is by. Without names all, of which one is real."""
        params = self.of.signature(body).params
        if self.wrt is None and any(has_real(i.type) for i in inputs):
            return tuple(range(len(inputs)))
        return self.positions(params[: len(inputs)], inputs, span)

    def call(self, body: Body, args: list[typed.Expr], span: Span) -> typed.Expr:
        """`f(args)`"""
        from tlc.frontend.check.apply import apply, default  # which imports this file, to know what functions are

        params = self.of.signature(body).params
        values = args + [default(body, self.of, p) for p in params[len(args) :]]
        return apply(body, self.of, values, {}, span)


@dataclass(frozen=True)
class Checkpoint(OfFunction):
    """`checkpoint(f)`, which is `f` of all its arguments as they come: what lifting makes of the call is run again too."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"checkpoint({self.of.name})"

    def signature(self, body: Body) -> Signature:
        return Signature((), tuple(replace(p, type=None, dim=None) for p in self.of.signature(body).params), None)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        from tlc.frontend.check.apply import apply  # which imports this file, to know what functions are

        locals = locals_inside(body, self.of.signature(body).params, site.args)
        result = apply(body, self.of, [read(i, site.span) for i in locals], {}, site.span)
        return PendingCheckpoint(Outline(locals, result, "checkpoint"), tuple(site.args), type=result.type, span=site.span)


def locals_inside(body: Body, params: Sequence[Parameter], args: Sequence[typed.Expr]) -> tuple[Local, ...]:
    """The parameters of a function that is passed on, with the types of these arguments."""
    return tuple(body.local(p.name, a.type, p.span, dim=_dim_inside(a, p)) for p, a in zip(params, args, strict=True))


def _dim_inside(arg: typed.Expr, p: Parameter) -> Dim | None:
    """What an `i64` is in dimensions: the term that it is outside, so that the result's type means something there."""
    if not is_i64(arg.type):
        return None
    dim = dim_of(arg)
    return dim if dim is not None else Dim.var(DimVar(p.name, p.span))


Objective = Callable[[list[typed.Expr]], typed.Expr]


def gradient(
    objective: Objective, args: Sequence[typed.Expr], span: Span, binds: Bindings, wrt: tuple[int, ...] | None = None
) -> list[typed.Expr]:
    """The gradients of a scalar by the arguments at these positions (None: all)."""
    wrt = tuple(range(len(args))) if wrt is None else wrt
    locals = [_local(f"x{k}", a) for k, a in enumerate(args)]
    outline = Outline(tuple(locals), objective([read(i, span) for i in locals]), "objective")
    type = TupleType(tuple(args[k].type for k in wrt))
    result = binds.keep(PendingGrad(outline, tuple(args), wrt, True, False, type=type, span=span), "gradient")
    return [part(result, k) for k in range(len(wrt))]


def tupled(items: Sequence[typed.Expr], span: Span) -> typed.Expr:
    return typed.Tuple(tuple(items), type=TupleType(tuple(i.type for i in items)), span=span)


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
    positions = f.chosen(body, inputs, span)
    y = f.call(body, inputs, span)
    _same(dy, y.type, "the cotangent `dy`")
    binds = Bindings()
    y = binds.keep(y, "y")
    parts = gradient(lambda xs: inner_product(body, f.call(body, xs, span), dy, span), inputs, span, binds, positions)
    many = f.many if f.wrt is not None else len(parts) > 1
    return binds.wrap(tupled((y, tupled(parts, span) if many else parts[0]), span))


def _jvp(f: Transformed, body: Body, args: list[typed.Expr], span: Span) -> typed.Expr:
    x, dx = args
    inputs = f.inputs(body, x)
    positions = f.chosen(body, inputs, span)
    if f.wrt is None:
        _same(dx, x.type, "the tangent `dx`")
        tangents = f.inputs(body, dx)
    else:
        wanted = TupleType(tuple(inputs[k].type for k in positions)) if f.many else inputs[positions[0]].type
        _same(dx, wanted, "the tangent `dx`")
        tangents = [part(dx, k) for k in range(len(positions))] if f.many else [dx]
    locals = locals_inside(body, f.of.signature(body).params[: len(inputs)], inputs)
    value = f.call(body, [read(i, span) for i in locals], span)
    return pushed(Outline(locals, value, "objective"), inputs, tangents, positions, span)


def pushed(of: Outline, args: Sequence[typed.Expr], tangents: Sequence[typed.Expr], wrt: tuple[int, ...], span: Span) -> typed.Expr:
    """The value and its tangent."""
    if not has_real(of.body.type):
        raise fail("E0601", f"`{of.body.type}` has no real leaf, so it has no derivative", span)
    type = TupleType((of.body.type, of.body.type))
    return PendingJvp(of, tuple(args), tuple(tangents), wrt, type=type, span=span)


def vjp(of: FunctionValue) -> FunctionValue:
    return Transformed(of, word="vjp", takes=("x", "dy"), what=_vjp)


def jvp(of: FunctionValue) -> FunctionValue:
    return Transformed(of, word="jvp", takes=("x", "dx"), what=_jvp)

"""Dimension terms of expressions, and what is known of their size.

`dim_of` reads an `i64` expression as a term; `in_range` proves that an index stays inside a dimension, from the ranges
of the loop variables and indices in it, so that the access needs no check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tlc.frontend import ast, typed
from tlc.frontend.check.build import Bindings, dim_value
from tlc.frontend.check.cells import Mismatch, elem_of, unify_elem
from tlc.frontend.check.limits import has_many_terms
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import DimensionName, Poisoned, TypeName, Variable
from tlc.frontend.check.type_nodes import TypeContext
from tlc.frontend.dims import Dim, DimQuotient, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import TypeParam
from tlc.frontend.types import Elem, StructType, TensorType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.body import Body
    from tlc.frontend.check.cells import Pattern


ONE = Dim.const(1)
MAX_DEPTH = 8  # ranges that depend on variables with ranges


def dim_of(e: typed.Expr) -> Dim | None:
    """The dimension term that a scalar integer expression is, or None. (Whether it is an `i64` is not asked.)"""
    match e:
        case typed.Const(value=bool()):
            return None
        case typed.Const(value=int()) | PendingConst(value=int()):
            return Dim.const(int(e.value))
        case typed.DimValue():
            return e.dim
        case typed.Read():
            return e.local.dim
        case typed.Op(op="neg"):
            a = dim_of(e.args[0])
            return -a if a is not None else None
        case typed.Op(op="add" | "sub" | "mul" | "floordiv"):
            a, b = dim_of(e.args[0]), dim_of(e.args[1])
            if a is None or b is None or (e.op == "floordiv" and b.value == 0) or (e.op == "mul" and has_many_terms(a, b)):
                return None
            return a + b if e.op == "add" else a - b if e.op == "sub" else a * b if e.op == "mul" else a // b
        case _:
            return None


def need_i64(e: typed.Expr, what: str) -> typed.Expr:
    """Say that an expression is a scalar `i64`."""
    if isinstance(e.type, TensorType) and not e.type.dims:
        try:
            unify_elem(Elem.I64, elem_of(e.type))
            return e
        except Mismatch as m:
            raise fail("E0303", f"{what} must be an `i64`, found `{e.type}`", e.span, help=m.help) from None
    raise fail("E0303", f"{what} must be a scalar `i64`, found `{e.type}`", e.span)


def extent_of(body: Body, e: typed.Expr, binds: Bindings, name: str) -> tuple[typed.Expr, Dim]:
    """An expression as a dimension: itself if it is a term, else bound to a name that types can speak of."""
    e = need_i64(e, "a dimension")
    dim = dim_of(e)
    return (e, dim) if dim is not None else binds.let_dim(e, name)


# ---------------------------------------------------------------- types inside a body


class BodyContext(TypeContext):
    """Types inside a body: names in scope are claims to prove, other names and `?` take the dimension that is found.

    A dimension that needs a value of its own (a `var`) is bound by a statement in `stmts`.
    """

    def __init__(self, body: Body) -> None:
        super().__init__(body.session, body.module)
        self.body = body
        self.introduced: dict[str, DimVar] = {}
        self.wilds: list[DimVar] = []
        self.binds = Bindings()

    @property
    def bindable(self) -> set[DimVar]:
        return {*self.introduced.values(), *self.wilds}

    def type_variable(self, name: str) -> Pattern | None:
        found = self.body.scope.lookup(name)
        return found.type if isinstance(found, TypeName) else None

    def known_dim(self, name: str, span: Span) -> Dim | None:
        if name in self.introduced:
            return Dim.var(self.introduced[name])
        found = self.body.scope.lookup(name)
        match found:
            case DimensionName():
                return found.dim
            case Variable():
                return self.other_dim(ast.Name(name, span=span))
            case Poisoned():
                raise Failed
            case _:
                return None

    def unknown_dim(self, name: str, span: Span) -> Dim:
        atom = self.introduced[name] = DimVar(name, span)
        return Dim.var(atom)

    def wild(self, name: str, span: Span, hint: str = "?") -> Dim:
        if name:
            return self.known_dim(name, span) if name in self.introduced else self.unknown_dim(name, span)  # type: ignore[return-value]
        atom = DimVar(hint, span)
        self.wilds.append(atom)
        return Dim.var(atom)

    def anonymous_type(self, parameter: TypeParam, span: Span) -> Type:
        return super().anonymous_type(parameter, span)

    def other_dim(self, node: ast.Expr) -> Dim:
        return extent_of(self.body, self.body.expr(node), self.binds, "d")[1]


# ---------------------------------------------------------------- size


def in_range(body: Body, index: typed.Expr, extent: Dim) -> bool:
    """Whether `0 <= index < extent` is certain."""
    low, high = bounds(body, index)
    return low is not None and high is not None and not_negative(body, low) and not_negative(body, extent - ONE - high)


def bounds(body: Body, e: typed.Expr) -> tuple[Dim | None, Dim | None]:
    """The least and the greatest value of an `i64` expression, as terms without ranged variables, where they can be told."""
    term = dim_of(e)
    if term is not None:
        return _bound(body, term, upper=False), _bound(body, term, upper=True)
    if not isinstance(e, typed.Op) or len(e.args) != 2:
        return None, None
    if e.op == "mod":
        divisor = dim_of(e.args[1])
        return (Dim.const(0), divisor - ONE) if divisor is not None and not_negative(body, divisor - ONE) else (None, None)
    (a, b), (c, d) = bounds(body, e.args[0]), bounds(body, e.args[1])
    match e.op:
        case "add":
            return _plus(a, c), _plus(b, d)
        case "sub":
            return _plus(a, d and -d), _plus(b, c and -c)
        case "mul" if c is not None and c == d and not_negative(body, c):
            return a and a * c, b and b * c
        case _:
            return None, None


def _plus(a: Dim | None, b: Dim | None) -> Dim | None:
    return a + b if a is not None and b is not None else None


def not_negative(body: Body, term: Dim) -> bool:
    """Whether the term is certainly at least 0: every coefficient is, of atoms that are."""
    low = _bound(body, term, upper=False)
    low = low and _without_quotients(body, low)
    return low is not None and all(c >= 0 and all(_natural(body, a) for a, _ in m) for m, c in low.terms)


def _without_quotients(body: Body, term: Dim) -> Dim:
    """A lower bound of the term: `-(num // den) * den >= -num` for a positive `den`."""
    for monomial, coefficient in term.terms:
        for atom, power in monomial:
            if isinstance(atom, DimQuotient) and power == 1 and coefficient < 0:
                rest = Dim.of({tuple((a, p) for a, p in monomial if a != atom): -coefficient})
                factor = rest // atom.den
                if factor.value is not None and factor * atom.den == rest and all(_natural(body, a) for m, _ in rest.terms for a, _ in m):
                    return _without_quotients(body, term - Dim.of({monomial: coefficient}) - factor * atom.num)
    return term


def check_natural(body: Body, extent: Dim, binds: Bindings, span: Span) -> None:
    """Stop where an extent is negative, unless it cannot be."""
    if not not_negative(body, extent):
        binds.stmts.append(typed.CheckExtent(dim_value(extent, span), span=span))


def _natural(body: Body, atom: DimVar | DimQuotient) -> bool:
    if isinstance(atom, DimVar):
        return atom in body.natural
    positive = atom.den.value is not None and atom.den.value > 0
    return positive and all(c >= 0 and all(_natural(body, a) for a, _ in m) for m, c in atom.num.terms)


def _bound(body: Body, term: Dim, upper: bool, depth: int = 0) -> Dim | None:
    """The term with each variable that has a range put at the end that makes the term largest (or smallest)."""
    for monomial, coefficient in term.terms:
        for atom, power in monomial:
            end = _end(body, atom, (coefficient > 0) == upper, depth)
            if end is None:
                continue
            if power != 1 or depth > MAX_DEPTH or not all(a == atom or _natural(body, a) for a, _ in monomial):
                return None
            rest = Dim.of({tuple((a, p) for a, p in monomial if a != atom): coefficient})
            others = term - Dim.of({monomial: coefficient})
            return _bound(body, others + rest * end, upper, depth + 1)
    return term


def _end(body: Body, atom: DimVar | DimQuotient, upper: bool, depth: int) -> Dim | None:
    """The greatest (least) value of an atom: a variable with a range, or a quotient by a positive constant."""
    if isinstance(atom, DimVar):
        if atom not in body.ranges:
            return None
        lo, hi = body.ranges[atom]
        return hi - ONE if upper else lo
    if atom.den.value is None or atom.den.value <= 0 or depth > MAX_DEPTH or not any(a in body.ranges for a in atom.num.atoms()):
        return None
    num = _bound(body, atom.num, upper, depth + 1)
    return num // atom.den if num is not None else None


def dims_of_value(e: typed.Expr) -> tuple[Dim, ...]:
    """The leading dimensions of a tensor or struct array."""
    return e.type.dims if isinstance(e.type, TensorType | StructType) else ()


def is_i64(type: Type) -> bool:
    """Whether this is a scalar `i64`, or one that may become it."""
    return isinstance(type, TensorType) and not type.dims and _may_be_i64(type)


def _may_be_i64(type: TensorType) -> bool:
    elem = elem_of(type)
    return elem is Elem.I64 or (not isinstance(elem, Elem | TypeParam) and Elem.I64 in elem.allowed)

"""Small constructors of typed nodes, and the binding of values that are used more than once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlc.frontend import typed
from tlc.frontend.check.cells import elem_of, tensor
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.signature import strip
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import Local, with_dims
from tlc.frontend.types import BOOL, I64, STR, Elem, StructType, TensorType, TupleType, Type


def int_const(value: int, span: Span) -> typed.Const:
    return typed.Const(value, type=I64, span=span)


def bool_const(value: bool, span: Span) -> typed.Const:
    return typed.Const(value, type=BOOL, span=span)


def str_const(value: str, span: Span) -> typed.Const:
    return typed.Const(value, type=STR, span=span)


def read(local: Local, span: Span) -> typed.Read:
    return typed.Read(local, type=local.type, span=span)


def dim_value(dim: Dim, span: Span) -> typed.Expr:
    """The value of a dimension term, as a constant where it is one."""
    return int_const(dim.value, span) if dim.value is not None else typed.DimValue(dim, type=I64, span=span)


def op(name: str, args: tuple[typed.Expr, ...], type: Type, span: Span, checked: bool = False) -> typed.Op:
    return typed.Op(name, args, checked, type=type, span=span)


def add(a: typed.Expr, b: typed.Expr, span: Span) -> typed.Expr:
    """`a + b` of two `i64`s, without the addition of a literal zero."""
    if isinstance(a, typed.Const) and a.value == 0:
        return b
    if isinstance(b, typed.Const) and b.value == 0:
        return a
    return op("add", (a, b), I64, span)


def subtract(a: typed.Expr, b: typed.Expr, span: Span) -> typed.Expr:
    """`a - b` of two `i64`s, without the subtraction of a literal zero."""
    return a if isinstance(b, typed.Const) and b.value == 0 else op("sub", (a, b), I64, span)


def part(base: typed.Expr, index: int) -> typed.Expr:
    """A field or item; of a node that builds a tuple, the item itself where the others cost nothing."""
    if isinstance(base, typed.Tuple) and all(is_free(i) for i in base.items):
        return base.items[index]
    type = base.type
    if isinstance(type, TupleType):
        return typed.Part(base, index, type=type.items[index], span=base.span)
    assert isinstance(type, StructType)
    return typed.Part(base, index, type=typed.field_type(type, index), span=base.span)


def index(base: typed.Expr, indices: tuple[typed.Expr, ...], checked: tuple[bool, ...] | None = None) -> typed.Expr:
    """`base[indices]`; without `checked` the indices are known to be in range."""
    if not indices:
        return base
    type = strip(base.type, len(indices))
    checked = checked or (False,) * len(indices)
    if isinstance(base, typed.Index):
        return typed.Index(base.base, base.indices + indices, base.checked + checked, type=type, span=base.span)
    return typed.Index(base, indices, checked, type=type, span=base.span)


def convert(value: typed.Expr, to: Elem, span: Span) -> typed.Expr:
    """A scalar conversion; none where the type is that already."""
    assert isinstance(value.type, TensorType) and not value.type.dims
    return value if elem_of(value.type) is to else op("convert", (value,), tensor(to), span)


def if_(cond: typed.Expr, then: typed.Expr, other: typed.Expr, span: Span) -> typed.Expr:
    return typed.If(cond, then, other, type=then.type, span=span)


def do(stmts: Sequence[typed.Stmt], value: typed.Expr) -> typed.Expr:
    """Statements before a value; the value alone if there are none."""
    return typed.Do(tuple(stmts), value, type=value.type, span=value.span) if stmts else value


def unit(stmts: Sequence[typed.Stmt], span: Span, type: Type) -> typed.Expr:
    return typed.Do(tuple(stmts), None, type=type, span=span)


def is_free(e: typed.Expr) -> bool:
    """Whether evaluating this again, or later, costs nothing and gives the same: what need not be bound."""
    match e:
        case typed.Const() | typed.DimValue() | PendingConst():
            return True
        case typed.Read():
            return not e.local.mutable
        case typed.Part():
            return is_free(e.base)
        case typed.Tuple():
            return all(is_free(i) for i in e.items)
        case _:
            return False


def _reads_only(e: typed.Expr) -> bool:
    """Whether no statement runs when this is evaluated, as far as can be seen at a glance."""
    match e:
        case typed.Const() | typed.DimValue() | typed.Read() | PendingConst():
            return True
        case typed.Part():
            return _reads_only(e.base)
        case _:
            return False


class Bindings:
    """Statements that go before an expression: the values that it uses more than once."""

    def __init__(self) -> None:
        self.stmts: list[typed.Stmt] = []

    def keep(self, e: typed.Expr, name: str = "t") -> typed.Expr:
        """The value of `e`, for any number of uses."""
        if is_free(e):
            return e
        return self.let(e, name)

    def keep_all(self, values: list[typed.Expr], names: Sequence[str]) -> list[typed.Expr]:
        """The same for several, evaluated in order. A `var` is read late where nothing between could assign it."""
        out: list[typed.Expr] = []
        for k, (e, name) in enumerate(zip(values, names, strict=True)):
            late = isinstance(e, typed.Read | typed.Part) and _reads_only(e) and all(_reads_only(v) for v in values[k + 1 :])
            out.append(e if late else self.keep(e, name))
        return out

    def let(self, e: typed.Expr, name: str) -> typed.Expr:
        local = Local(name, e.type, span=e.span)
        self.stmts.append(typed.Let(local, e, span=e.span))
        return read(local, e.span)

    def let_dim(self, e: typed.Expr, name: str) -> tuple[typed.Expr, Dim]:
        """Bind an `i64` so that types may speak of it."""
        dim = Dim.var(DimVar(name, e.span))
        local = Local(name, I64, dim=dim, span=e.span)
        self.stmts.append(typed.Let(local, e, span=e.span))
        return read(local, e.span), dim

    def wrap(self, e: typed.Expr) -> typed.Expr:
        return do(self.stmts, e)


def after(base: typed.Expr, e: typed.Expr, dims: Sequence[Dim]) -> typed.Expr:
    """`e`, which is made of dimensions of `base`. Where a call inside of `base` makes one of them known, that is done first."""
    inside = (a.span.source is base.span.source and base.span.start <= a.span.start < base.span.end for d in dims for a in d.atoms())
    return e if is_free(base) or not any(inside) else do([typed.Eval(base, span=base.span)], e)


def extent_range(local: Local, dim: Dim, span: Span) -> typed.Range:
    """An index over a whole dimension."""
    return typed.Range(local, int_const(0, span), dim_value(dim, span))


def comp(ranges: Sequence[typed.Range], dims: tuple[Dim, ...], body: typed.Expr, span: Span) -> typed.Expr:
    """A comprehension with the extents `dims`; the body alone if there are no ranges."""
    if not ranges:
        return body
    return typed.Comp(tuple(ranges), body, type=with_dims(dims, body.type), span=span)


INDEX_NAMES = "ijklmnpqrs"


def over(dims: tuple[Dim, ...], span: Span, body: Callable[[tuple[typed.Expr, ...]], typed.Expr]) -> typed.Expr:
    """`for[i < d0, j < d1, ...] body(i, j, ...)`"""
    locals = [
        Local(INDEX_NAMES[k % len(INDEX_NAMES)], I64, dim=Dim.var(DimVar(INDEX_NAMES[k % len(INDEX_NAMES)], span)), span=span)
        for k in range(len(dims))
    ]
    ranges = [extent_range(i, d, span) for i, d in zip(locals, dims, strict=True)]
    return comp(ranges, dims, body(tuple(read(i, span) for i in locals)), span)

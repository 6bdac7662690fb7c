"""The typed AST: monomorphic, and nothing in it is implicit.

Every broadcast, lifting and whole-array operation is a comprehension here; every operand of a scalar op is a scalar;
every argument fits its parameter exactly; general subscripts (slices, gathers) are comprehensions over `Index`;
compound assignment, destructuring and `for x in xs` are spelled out. What remains is small enough for
`ssa/lower.py` to be a page of cases.

Evaluation is left to right, and a value that is used more than once is bound by a `Let` in a `Do`.

Dimension variables. A `DimVar` stands for an `i64` that exists at run time: a `Local` whose `dim` is that atom, or a
fresh atom that first appears as a bare dimension in the type of a parameter or of an expression: that tensor's
extent is its value (so lowering can read every `Dim` from values in scope).

All classes are frozen; identity of a variable is its `Local`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import count

from tlc.frontend.diagnostics import Diagnostic
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Source, Span
from tlc.frontend.types import FunctionType, StructType, TensorType, TupleType, Type

_uids = count(1)


@dataclass(frozen=True)
class Local:
    """A variable of a function. `dim` is the term that an immutable `i64` stands for in types."""

    name: str = field(compare=False)
    type: Type = field(compare=False)
    mutable: bool = field(default=False, compare=False)
    dim: Dim | None = field(default=None, compare=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    uid: int = field(default_factory=lambda: next(_uids))


# ---------------------------------------------------------------- declarations


@dataclass(frozen=True, eq=False)
class StructField:
    """`hidden`: not the user's. A dimension that no field determines is kept by a field of type `bool[n, 0]`, which has no elements and
    knows its extents; all that is done with fields works on it.
    """

    name: str
    type: Type
    span: Span
    doc: str = ""
    hidden: bool = False


@dataclass(frozen=True, eq=False)
class StructDecl:
    """A struct as declared. `params` are `DimVar`s and `TypeParam`s; field types speak of them. Compared by identity.

    `fields` is filled once, after every declaration of its file is known.
    """

    name: str  # as people write it: `nn.Linear`, `Mlp`
    params: tuple[DimVar | TypeParam, ...]
    span: Span
    doc: str = ""
    fields: list[StructField] = field(default_factory=list)

    @property
    def visible(self) -> list[StructField]:
        """The fields as declared."""
        return [f for f in self.fields if not f.hidden]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class TypeParam:
    """A type parameter of a struct or function and its bound: `float int num any tree`."""

    name: str
    bound: str
    span: Span

    def __str__(self) -> str:
        return self.name


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, kw_only=True)
class Expr:
    type: Type
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Const(Expr):
    """A scalar literal: bool, int, float or str, already of `type`."""

    value: bool | int | float | str


@dataclass(frozen=True)
class Read(Expr):
    """The present value of a variable."""

    local: Local


@dataclass(frozen=True)
class DimValue(Expr):
    """The `i64` value of a dimension term (`x.shape[0]`, `layer.I`, a dimension variable read in a body)."""

    dim: Dim


@dataclass(frozen=True)
class Op(Expr):
    """A scalar op of `frontend/ops.py`. `convert` and `bitcast` go to the element type of `type`.

    Integer `floordiv` and `mod` need a zero check of the divisor where `checked`.
    """

    op: str
    args: tuple[Expr, ...]
    checked: bool = False


@dataclass(frozen=True)
class Call(Expr):
    """A call of an instance; each argument has the parameter's type up to dimensions. If `again`, a derivative runs it again."""

    callee: FunctionRef
    args: tuple[Expr, ...]
    again: bool = False


@dataclass(frozen=True)
class Grad(Expr):
    """`grad(f)(args)` or, with `value`, `value_and_grad(f)(args)`, by the parameters at the positions `wrt`.

    The gradient has the type of the argument (of a tuple of them if `many`), leaves that are not real carry the primal's value.
    """

    callee: FunctionRef
    args: tuple[Expr, ...]
    wrt: tuple[int, ...]
    many: bool
    value: bool


@dataclass(frozen=True)
class Jvp(Expr):
    """`jvp(f)(args, tangents)`: the value and its tangent, which has the value's type; leaves that are not real are the value's. There is a
    tangent for each of the positions `wrt`.
    """

    callee: FunctionRef
    args: tuple[Expr, ...]
    tangents: tuple[Expr, ...]
    wrt: tuple[int, ...]


@dataclass(frozen=True)
class StopGrad(Expr):
    arg: Expr


@dataclass(frozen=True)
class Extern(Expr):
    """A call of a service of the run time. Bare fresh dimensions of `type` are known from the result."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Foreign(Expr):
    """A call of a function of the C library: scalars in, a scalar or nothing out, by the C ABI."""

    symbol: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Range:
    """An index of a comprehension with its half-open range; `local.type` is `i64`."""

    local: Local
    lo: Expr
    hi: Expr


@dataclass(frozen=True)
class Comp(Expr):
    """`for[ranges] body`: one new leading dimension a range (extent `max(hi - lo, 0)`) before the body's own.

    A struct body gives a struct array, a tuple body a tuple.
    """

    ranges: tuple[Range, ...]
    body: Expr


@dataclass(frozen=True)
class Reduce(Expr):
    """`op[ranges] body` with a scalar body. `op`: sum prod max min mean any all argmax argmin.

    Ranges may use earlier indices. `argmax`/`argmin` give `i64` (a tuple of them for several ranges).
    `order` fixes the order of real sums (see `ssa/ir.py`): `chain` when the body as written is a product, else `lanes`.
    """

    op: str
    ranges: tuple[Range, ...]
    body: Expr
    order: str


@dataclass(frozen=True)
class Index(Expr):
    """`base[indices]` by scalar `i64`s, one a leading dimension; the rest of the dimensions remain.

    `checked[k]`: whether index k needs a run-time check against its extent.
    """

    base: Expr
    indices: tuple[Expr, ...]
    checked: tuple[bool, ...]


@dataclass(frozen=True)
class Reshape(Expr):
    """Row-major reinterpretation; the product of dimensions is equal (checked at run time where `checked`). `found` is the place of the
    dimension that is written as -1.
    """

    base: Expr
    checked: bool
    found: int | None = None


@dataclass(frozen=True)
class Rows(Expr):
    """A tensor literal: items of one type, stacked along a new first dimension."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Struct(Expr):
    """Construction; `fields` in the order of the declaration."""

    fields: tuple[Expr, ...]


@dataclass(frozen=True)
class Tuple(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Part(Expr):
    """Field `index` of a struct (of a struct array: the whole array of that field), or item of a tuple."""

    base: Expr
    index: int


@dataclass(frozen=True)
class If(Expr):
    """Both sides have `type` (unit for a statement). `and` and `or` on scalars are `If`s too."""

    cond: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True)
class Do(Expr):
    """Statements, then the value (None for unit)."""

    stmts: tuple[Stmt, ...]
    value: Expr | None


@dataclass(frozen=True)
class Cast(Expr):
    """`arg as type`: dimensions are checked at run time against the terms of `type`."""

    arg: Expr


@dataclass(frozen=True)
class Hole:
    """A formatted value of an interpolation, with its Python format specification."""

    value: Expr
    spec: str


@dataclass(frozen=True)
class Format(Expr):
    """An interpolated string: literal pieces and holes."""

    pieces: tuple[str | Hole, ...]


# ---------------------------------------------------------------- statements


@dataclass(frozen=True, kw_only=True)
class Stmt:
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Let(Stmt):
    """Binds (or first assigns) a variable."""

    local: Local
    value: Expr


@dataclass(frozen=True)
class PartStep:
    index: int


@dataclass(frozen=True)
class IndexStep:
    """Leading scalar indices, as in `Index`."""

    indices: tuple[Expr, ...]
    checked: tuple[bool, ...]


@dataclass(frozen=True)
class Assign(Stmt):
    """`local.path = value`; an empty path replaces the whole."""

    local: Local
    path: tuple[PartStep | IndexStep, ...]
    value: Expr


@dataclass(frozen=True)
class Eval(Stmt):
    """An expression for its effect; its value, if any, is dropped."""

    expr: Expr


@dataclass(frozen=True)
class While(Stmt):
    cond: Expr
    body: Expr


@dataclass(frozen=True)
class For(Stmt):
    """`for local in lo..hi by step`; `step` is not zero. `label` (a `str`) asks for a progress bar; `note` is a `str` that is computed
    behind an iteration where the bar is about to be shown.
    """

    local: Local
    lo: Expr
    hi: Expr
    step: Expr
    body: Expr
    label: Expr | None = None
    note: Expr | None = None


@dataclass(frozen=True)
class Break(Stmt):
    pass


@dataclass(frozen=True)
class Continue(Stmt):
    pass


@dataclass(frozen=True)
class Return(Stmt):
    value: Expr | None


@dataclass(frozen=True)
class Fail(Stmt):
    """Stops the program with a message; `kind` is `assert` or `fail`. `assert c, m` is `if not c { Fail(m) }`."""

    kind: str
    message: Expr


@dataclass(frozen=True)
class CheckRange(Stmt):
    """Stops unless `0 <= lo <= hi <= extent`: the ends of a slice."""

    lo: Expr
    hi: Expr
    extent: Expr


@dataclass(frozen=True)
class CheckExtent(Stmt):
    """Stops unless `extent >= 0`: a dimension that the run decides."""

    extent: Expr


@dataclass(frozen=True)
class Print(Stmt):
    """Writes a `str` and a newline."""

    text: Expr


# ---------------------------------------------------------------- functions and programs


@dataclass(frozen=True)
class FunctionRef:
    """Names an instance: `name` is unique in the program and readable (`nn.linear`, `softmax[f64]`)."""

    name: str


@dataclass(frozen=True, eq=False)
class Function:
    """One monomorphic instance. `rule`, of `@vjp(g)`, takes its leaves, those of its result `y` and those of `dy`, and gives a gradient
    for each real leaf of its parameters.
    """

    ref: FunctionRef
    params: tuple[Local, ...]
    result: Type
    body: Expr
    span: Span
    doc: str = ""
    rule: FunctionRef | None = None


@dataclass(frozen=True, eq=False)
class Flag:
    """A parameter of `main` as a command-line flag. `default` is None where it is required."""

    name: str
    type: TensorType
    default: bool | int | float | str | None
    doc: str


@dataclass(frozen=True, eq=False)
class Program:
    """Instances that `main` reaches, callees before callers where there is no recursion. `main` is None for a library.

    `sources` are the program's own files, that of `main` first. `warnings` are what is allowed and looks like a mistake.
    """

    functions: dict[str, Function]
    main: str | None
    flags: tuple[Flag, ...]
    doc: str = ""
    sources: tuple[Source, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()


# ---------------------------------------------------------------- leaves


def leaf_types(type: Type) -> Iterator[TensorType]:
    """The tensors that a value of this type consists of, in order: what SSA sees of it."""
    match type:
        case TensorType():
            yield type
        case TupleType():
            for item in type.items:
                yield from leaf_types(item)
        case StructType():
            for t in field_types(type):
                yield from leaf_types(t)
        case FunctionType():
            raise AssertionError("a function value has no leaves")


def field_types(type: StructType) -> list[Type]:
    """The types of the fields of this instance, leading dimensions of a struct array included."""
    return [field_type(type, k) for k in range(len(type.decl.fields))]


def field_type(type: StructType, index: int) -> Type:
    """The type of one field of this instance."""
    return with_dims(type.dims, instantiate(type.decl.fields[index].type, type))


def with_dims(dims: tuple[Dim, ...], type: Type) -> Type:
    """The type of a stack of values: every leaf gets the dimensions in front."""
    if not dims:
        return type
    match type:
        case TensorType():
            return TensorType(type.elem, dims + type.dims)
        case StructType():
            return StructType(type.decl, type.args, dims + type.dims)
        case TupleType():
            return TupleType(tuple(with_dims(dims, t) for t in type.items))
        case FunctionType():
            raise AssertionError("functions cannot be stacked")


def instantiate(type: Type | TypeParam, instance: StructType) -> Type:
    """Put the arguments of a struct instance for the parameters of its declaration."""
    table = dict(zip(instance.decl.params, instance.args, strict=True))

    def lookup(v: DimVar) -> Dim | None:
        arg = table.get(v)
        return arg if isinstance(arg, Dim) else None

    def go(t: Type | TypeParam) -> Type:
        match t:
            case TypeParam():
                arg = table[t]
                assert not isinstance(arg, Dim)
                return arg
            case TensorType():
                dims = tuple(d.substitute(lookup) for d in t.dims)
                if isinstance(t.elem, TypeParam):  # `T[n]` of a struct with a parameter `T: float`
                    arg = table[t.elem]
                    assert not isinstance(arg, Dim)
                    return with_dims(dims, arg)
                return TensorType(t.elem, dims)
            case StructType():
                args = tuple(a.substitute(lookup) if isinstance(a, Dim) else go(a) for a in t.args)
                return StructType(t.decl, args, tuple(d.substitute(lookup) for d in t.dims))
            case TupleType():
                return TupleType(tuple(go(i) for i in t.items))
            case FunctionType():
                return FunctionType(tuple(go(p) for p in t.params), go(t.result))

    return go(type)

"""Expressions without a file of their own: literals, names, fields, tuples, tensor literals, casts."""

from __future__ import annotations

from dataclasses import replace

from tlc.frontend import ast, typed
from tlc.frontend.check import habits
from tlc.frontend.check.apply import call
from tlc.frontend.check.body import Body, expression
from tlc.frontend.check.build import after, bool_const, dim_value, part
from tlc.frontend.check.callee import TRANSFORMS, open_function, path_of
from tlc.frontend.check.cells import NUMS, Cell, Mismatch, elem_of, tensor, unify, unify_elem
from tlc.frontend.check.constants import constant_expression
from tlc.frontend.check.dimension import BodyContext
from tlc.frontend.check.flexible import read
from tlc.frontend.check.limits import check_size
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.printing import text
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import (
    ConstEntity,
    DimensionName,
    FunctionDecl,
    FunctionName,
    Namespace,
    Poisoned,
    StructEntity,
    TypeName,
    Variable,
    field_help,
)
from tlc.frontend.check.signature import Bindings as Bound
from tlc.frontend.check.signature import as_type, substitute
from tlc.frontend.check.subscripts import transpose
from tlc.frontend.check.type_nodes import ELEMS
from tlc.frontend.check.unknown import unknown_name
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import with_dims
from tlc.frontend.types import I64, REALS, UNIT, StructType, TensorType, TupleType, Type


@expression(ast.Number)
def number(body: Body, node: ast.Number) -> typed.Expr:
    if node.suffix:
        elem = ELEMS[node.suffix]
        return PendingConst(node.value, type=tensor(elem), span=node.span)
    return PendingConst(node.value, type=tensor(Cell(NUMS if isinstance(node.value, int) else REALS)), span=node.span)


@expression(ast.Bool)
def boolean(body: Body, node: ast.Bool) -> typed.Expr:
    return bool_const(node.value, node.span)


@expression(ast.Str)
def string(body: Body, node: ast.Str) -> typed.Expr:
    return text(body, node)


# ---------------------------------------------------------------- names


@expression(ast.Name)
def name(body: Body, node: ast.Name) -> typed.Expr:
    found = body.scope.lookup(node.name)
    match found:
        case Variable():
            return read(body, found.local, node.span)
        case DimensionName():
            return dim_value(found.dim, node.span)
        case Poisoned():
            raise Failed
        case FunctionName():
            raise fail("E0407", f"`{node.name}` is a function, not a value", node.span, help="functions are called, or passed to functions")
        case TypeName():
            raise fail("E0207", f"`{node.name}` is a type, not a value", node.span)
        case None:
            return entity_value(body, [node.name], node.span)


def entity_value(body: Body, path: list[str], span: Span) -> typed.Expr:
    """A constant; anything else at the top of a module is no value."""
    entity = body.session.entity(body.module, path, span)
    shown = ".".join(path)
    match entity:
        case ConstEntity():
            return constant_expression(body, entity, span)
        case Poisoned():
            raise Failed
        case FunctionDecl():
            raise fail("E0407", f"`{shown}` is a function, not a value", span, help=f"call it: `{shown}(...)`")
        case StructEntity():
            raise fail("E0207", f"`{shown}` is a struct, not a value", span, help=f"make one: `{shown}(...)`")
        case Namespace():
            raise fail("E0207", f"`{shown}` is a module, not a value", span)
        case None:
            if shown in ELEMS or shown in TRANSFORMS:
                raise fail("E0207", f"`{shown}` is no value", span, help=f"call it: `{shown}(...)`")
            raise unknown_name(body, path[0], span)


@expression(ast.Field)
def field(body: Body, node: ast.Field) -> typed.Expr:
    path = path_of(body, node)
    if path is not None and isinstance(body.session.entity(body.module, path[:1], node.span), Namespace):
        if len(path) == 2:
            return entity_value(body, path, node.span)
        if isinstance(body.session.entity(body.module, path[:2], node.span), ConstEntity):
            return member(body, entity_value(body, path[:2], node.base.span), node)
    return member(body, body.expr(node.base), node)


def member(body: Body, base: typed.Expr, node: ast.Field) -> typed.Expr:
    """`.w` of a struct, a dimension of one, `.T` and `.shape` of a tensor."""
    type = base.type
    if isinstance(type, StructType):
        for k, f in enumerate(type.decl.fields):
            if f.name == node.name:
                value = part(base, k)
                return typed.Part(base, k, type=value.type, span=node.span) if isinstance(value, typed.Part) else value
        for p, a in zip(type.decl.params, type.args, strict=True):
            if p.name == node.name:
                if isinstance(p, DimVar):
                    assert isinstance(a, Dim)
                    return after(base, dim_value(a, node.span), (a,))
                raise fail("E0207", f"`{node.name}` of `{type.decl.name}` is a type, not a value", node.name_span)
        if node.name != "shape":
            names = [f.name for f in type.decl.visible] + [p.name for p in type.decl.params]
            labels = (Label(type.decl.span, "declared here"),)
            raise fail("E0310", f"`{type.decl.name}` has no field `{node.name}`", node.name_span, "", labels, field_help(node.name, names))
    if isinstance(type, TensorType) and node.name == "T":
        return transpose(body, base, node.span)
    if isinstance(type, TensorType | StructType) and node.name == "shape":
        items = tuple(dim_value(d, node.span) for d in type.dims)
        shape = typed.Tuple(items, type=TupleType((I64,) * len(items)), span=node.span)
        return after(base, shape, type.dims)
    help = "the parts of a tuple are `t[0]`, `t[1]`" if isinstance(type, TupleType) else habits.FIELDS.get(node.name, "")
    raise fail("E0310", f"`{type}` has no field `{node.name}`", node.name_span, help=help)


# ---------------------------------------------------------------- tuples and tensors


@expression(ast.TupleExpr)
def tuple_(body: Body, node: ast.TupleExpr) -> typed.Expr:
    items = tuple(body.each(node.items, body.expr))
    for i in items:
        if i.type == UNIT:
            raise fail("E0503", "this has no value", i.span)
    type = TupleType(tuple(i.type for i in items))
    check_size(type, node.span)
    return typed.Tuple(items, type=type, span=node.span)


@expression(ast.ListExpr)
def list_(body: Body, node: ast.ListExpr) -> typed.Expr:
    if not node.items:
        raise fail("E0301", "an empty tensor literal has no element type", node.span, help="write `zeros(0)`")
    items = body.each(node.items, body.expr)
    first = items[0]
    if not isinstance(first.type, TensorType | StructType):
        raise fail("E0301", f"a tensor cannot hold a `{first.type}`", first.span)
    for i in items[1:]:
        try:
            unify(first.type, i.type)
        except Mismatch as m:
            labels = (Label(first.span, f"this is `{first.type}`"), *m.origins())
            raise fail("E0301", "the elements of a tensor have one type", i.span, f"this is `{i.type}`", labels, m.help, m.notes) from None
    return typed.Rows(tuple(items), type=with_dims((Dim.const(len(items)),), first.type), span=node.span)


# ---------------------------------------------------------------- as


@expression(ast.As)
def as_(body: Body, node: ast.As) -> typed.Expr:
    """`x as f32[b, 784]`: dimensions that are not provably equal are checked when the program runs."""
    context = BodyContext(body)
    open = open_function(body, node.value)
    if open is not None and isinstance(node.value, ast.Call):
        pattern = as_type(context.type(node.type))
        value = call(body, replace(open, said=pattern), node.value.args, node.value.span)
    else:
        value = body.expr(node.value)
        pattern = as_type(context.type(node.type))
    try:
        pairs = _dim_pairs(pattern, value.type)
    except Mismatch as m:
        code = "E0303" if m.help else "E0301"
        help = f"{m.help}: `as` speaks of dimensions only" if m.help else "`as` is for dimensions; `reshape(x, ...)` changes their number"
        raise fail(code, f"`{value.type}` cannot be said to be `{pattern}`", node.span, m.reason, help=help) from None
    bound = Bound()
    for wanted, found in pairs:
        atom = wanted.atom
        if isinstance(atom, DimVar) and atom in context.bindable:
            bound.dims.setdefault(atom, found)
    for label, atom in context.introduced.items():
        if atom not in bound.dims:
            raise fail("E0306", f"unknown dimension `{label}`", node.type.span)
        body.bind(label, DimensionName(bound.dims[atom]))
    target = substitute(pattern, bound)
    for wanted, found in _dim_pairs(target, value.type):
        if (found - wanted).value:
            raise fail("E0301", f"`{value.type}` can never be `{target}`", node.span, f"`{found}` is not `{wanted}`")
    return context.binds.wrap(typed.Cast(value, type=target, span=node.span))


def _dim_pairs(wanted: Type, found: Type) -> list[tuple[Dim, Dim]]:
    """The dimensions of two types that are alike but for them, in order. Raises Mismatch where they are not alike."""
    match wanted, found:
        case TensorType(), TensorType():
            unify_elem(elem_of(wanted), elem_of(found))
            return _same_rank(wanted.dims, found.dims)
        case StructType(), StructType() if wanted.decl is found.decl:
            pairs = _same_rank(wanted.dims, found.dims)
            for a, b in zip(wanted.args, found.args, strict=True):
                if isinstance(a, Dim) and isinstance(b, Dim):
                    pairs.append((a, b))
                elif not isinstance(a, Dim) and not isinstance(b, Dim):
                    pairs += _dim_pairs(a, b)
            return pairs
        case TupleType(), TupleType() if len(wanted.items) == len(found.items):
            return [pair for a, b in zip(wanted.items, found.items, strict=True) for pair in _dim_pairs(a, b)]
        case _:
            raise Mismatch()


def _same_rank(wanted: tuple[Dim, ...], found: tuple[Dim, ...]) -> list[tuple[Dim, Dim]]:
    if len(wanted) != len(found):
        raise Mismatch(f"{len(found)} dimension{'s' * (len(found) != 1)} against {len(wanted)}")
    return list(zip(wanted, found, strict=True))


@expression(ast.Lambda)
def lambda_(body: Body, node: ast.Lambda) -> typed.Expr:
    raise fail("E0407", "an anonymous function is no value", node.span, help="call it, pass it to a function, or name it with `let`")

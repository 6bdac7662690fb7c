"""Assignments: to variables and to parts of them, compound ones included.

x = e               Assign(x, (), e)
m.w[i] += e         the index is bound, then Assign(m, (w, [i]), m.w[i] + e)
x[a..b] = e         a loop over the slice, after a check of its ends
x[idx] += e         the loop in order, so duplicates accumulate
(a, b) = (b, a)     all values first, then the parts
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.body import Body, statement
from tlc.frontend.check.build import Bindings, add, dim_value, index, int_const, over, part, read, unit
from tlc.frontend.check.cells import NEVER, Mismatch, unify, unify_elem
from tlc.frontend.check.dimension import dims_of_value
from tlc.frontend.check.flexible import read as read_variable
from tlc.frontend.check.operators import BINARY, power, scalar_op
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import Failed, fail, unsupported
from tlc.frontend.check.scope import DimensionName, FunctionName, Poisoned, Variable, near
from tlc.frontend.check.signature import strip
from tlc.frontend.check.statements import items_of
from tlc.frontend.check.subscripts import At, Gather, Slice, as_i64, read_items
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim
from tlc.frontend.source import Span
from tlc.frontend.types import UNIT, StructType, TensorType, TupleType, Type


@dataclass
class Place:
    """What is assigned: a variable, a path of fields and scalar indices, and at its end perhaps slices or a gather.

    `loops` are the dimensions that the assignment runs over; `items` the last subscript, where it has such dimensions.
    """

    local: typed.Local
    path: list[typed.PartStep | typed.IndexStep]
    type: Type
    span: Span
    items: list[At | Slice | Gather] = field(default_factory=list)

    def value(self, body: Body) -> typed.Expr:
        """The present value at the path (without the last items)."""
        e: typed.Expr = read_variable(body, self.local, self.span)
        for step in self.path:
            e = part(e, step.index) if isinstance(step, typed.PartStep) else index(e, step.indices, step.checked)
        return e


@statement(ast.Assignment)
def assignment(body: Body, node: ast.Assignment) -> list[typed.Stmt]:
    if isinstance(node.target, ast.TupleExpr):
        return _tuple(body, node)
    binds = Bindings()
    place = _place(body, node.target, binds)
    value = body.expr(node.value)
    if value.type == UNIT or value.type is NEVER:
        raise fail("E0503", "this has no value to assign", node.value.span)
    return [*binds.stmts, *_store(body, place, node, value)]


def _tuple(body: Body, node: ast.Assignment) -> list[typed.Stmt]:
    """`(a, b) = e`"""
    assert isinstance(node.target, ast.TupleExpr)
    if node.op:
        raise fail("E0501", f"a tuple cannot be assigned with `{node.op}=`", node.span)
    binds = Bindings()
    places = [_place(body, t, binds) for t in node.target.items]
    value = body.expr(node.value)
    if isinstance(value, typed.Tuple) and len(value.items) == len(places):
        items = [binds.let(i, "new") for i in value.items]
    else:
        items = items_of(binds.keep(value, "new"), len(places), node.target.span)
    stmts: list[typed.Stmt] = []
    for place, item, target in zip(places, items, node.target.items, strict=True):
        one = ast.Assignment(target, "", node.value, span=node.span)
        stmts += _store(body, place, one, item)
    return [*binds.stmts, *stmts]


# ---------------------------------------------------------------- places


def _place(body: Body, node: ast.Expr, binds: Bindings) -> Place:
    match node:
        case ast.Name():
            return _variable(body, node)
        case ast.Field():
            place = _place(body, node.base, binds)
            _no_more(place, node.span)
            type = place.type
            if isinstance(type, StructType):
                for k, f in enumerate(type.decl.fields):
                    if f.name == node.name:
                        place.path.append(typed.PartStep(k))
                        place.type = typed.field_types(type)[k]
                        return place
            names = [f.name for f in type.decl.fields] if isinstance(type, StructType) else []
            raise fail("E0310", f"`{type}` has no field `{node.name}`", node.name_span, help=near(node.name, names))
        case ast.Subscript():
            return _subscript(body, node, binds)
        case ast.TupleExpr():
            raise unsupported("a tuple inside a tuple on the left of an assignment", node.span)
        case _:
            raise fail("E0501", "this cannot be assigned", node.span, help="variables and their parts can: `x`, `x[i]`, `m.w`")


def _variable(body: Body, node: ast.Name) -> Place:
    found = body.scope.lookup(node.name)
    match found:
        case Poisoned():
            raise Failed
        case Variable():
            if not found.local.mutable:
                labels = (Label(found.local.span, "bound here"),) if found.local.span.source.text else ()
                help = "make it a `var`" if _is_let(found.local) else f"copy it: `var {node.name} = {node.name}`"
                raise fail("E0501", f"`{node.name}` cannot be assigned: it is not a `var`", node.span, "", labels, help)
            kind = body.scope.barrier(node.name)
            if kind is not None:
                message = f"`{node.name}` is outside the {kind.value}, which cannot assign it"
                help = "use a `for` loop" if kind.value == "comprehension" else "return the new value"
                raise fail("E0506", message, node.span, help=help)
            return Place(found.local, [], read_variable(body, found.local, node.span).type, node.span)
        case DimensionName() | FunctionName():
            raise fail("E0501", f"`{node.name}` cannot be assigned", node.span)
        case _:
            help = near(node.name, list(body.scope.all_names())) or f"declare it: `var {node.name} = ...`"
            raise fail("E0201", f"unknown variable `{node.name}`", node.span, help=help)


def _is_let(local: typed.Local) -> bool:
    return "let" in local.span.source.text[max(0, local.span.start - 4) : local.span.start]


def _no_more(place: Place, span: Span) -> None:
    if place.items:
        raise unsupported("a slice or gather in the middle of what is assigned", span, "write the loop")


def _subscript(body: Body, node: ast.Subscript, binds: Bindings) -> Place:
    place = _place(body, node.base, binds)
    _no_more(place, node.span)
    type = place.type
    if isinstance(type, TupleType):
        item = node.items[0] if len(node.items) == 1 else None
        if not isinstance(item, ast.Number) or not isinstance(item.value, int) or not 0 <= item.value < len(type.items):
            raise fail("E0307", "the index of a tuple is one literal in range", node.span)
        place.path.append(typed.PartStep(item.value))
        place.type = type.items[item.value]
        return place
    if not isinstance(type, TensorType | StructType) or not type.dims:
        raise fail("E0307", f"`{type}` has no dimension to index", node.base.span)
    items = read_items(body, node, type, binds)
    for i in items:
        if isinstance(i, At):
            i.value = binds.keep(i.value, "at")
        elif isinstance(i, Gather):
            i.value = binds.keep(i.value, "pick")
    if all(isinstance(i, At) for i in items):
        ats = [i for i in items if isinstance(i, At)]
        if ats:
            place.path.append(typed.IndexStep(tuple(a.value for a in ats), tuple(a.checked for a in ats)))
        place.type = strip(type, len(ats))
        return place
    place.items = items
    return place


# ---------------------------------------------------------------- storing


def _store(body: Body, place: Place, node: ast.Assignment, value: typed.Expr) -> list[typed.Stmt]:
    if place.items:
        return _store_items(body, place, node, value)
    if node.op:
        value = _combine(body, place.value(body), value, node)
    _fits(body, place, value, node)
    keys.assigned(body, place.local, not place.path)
    return [typed.Assign(place.local, tuple(place.path), value, span=node.span)]


def _combine(body: Body, old: typed.Expr, value: typed.Expr, node: ast.Assignment) -> typed.Expr:
    what = f"`{node.op}=`"
    if node.op == "**":
        return power(body, old, value, ast.Binary("**", node.target, node.value, node.span, span=node.span))
    return scalar_op(body, BINARY[node.op], (old, value), node.span, node.span, what)


def _fits(body: Body, place: Place, value: typed.Expr, node: ast.Assignment) -> None:
    """The value must be of the type at the place; a variable declared with `?` takes its dimensions."""
    type = place.type
    flexible = body.flexible.get(place.local.uid) if not place.path else None
    try:
        if flexible is not None:
            type = flexible.pattern
            flexible.accept(value.type)
        else:
            unify(type, value.type)
    except Mismatch as m:
        target = node.target.span
        text = target.source.text[target.start : target.end]
        labels = (Label(place.local.span, f"`{place.local.name}` is `{place.local.type}`"),) if place.local.span.source.text else ()
        notes = (m.reason,) if m.reason else ()
        message = f"`{text}` is `{type}`, the value is `{value.type}`"
        raise fail("E0301", message, node.value.span, f"this is `{value.type}`", labels, m.help, notes) from None


def _store_items(body: Body, place: Place, node: ast.Assignment, value: typed.Expr) -> list[typed.Stmt]:
    """A loop nest over the dimensions of the slices and gathers, in order."""
    span = node.span
    type = place.type
    assert isinstance(type, TensorType | StructType)
    dims: list[Dim] = []
    for i in place.items:
        match i:
            case Slice():
                dims.append(i.last - i.first)
            case Gather():
                dims += dims_of_value(i.value)
            case At():
                pass
    rest = type.dims[len(place.items) :]
    whole = (*dims, *rest)
    extra = dims_of_value(value)
    if len(extra) > len(whole) or tuple(whole[len(whole) - len(extra) :]) != extra:
        target = node.target.span.source.text[node.target.span.start : node.target.span.end]
        wanted = TensorType(type.elem, whole) if isinstance(type, TensorType) else StructType(type.decl, type.args, whole)
        raise fail("E0301", f"`{target}` is `{wanted}`, the value is `{value.type}`", node.value.span, f"this is `{value.type}`")
    if isinstance(type, TensorType) and isinstance(value.type, TensorType):
        try:
            unify_elem(type.elem, value.type.elem)
        except Mismatch as m:
            message = f"`{place.local.name}` holds `{type.elem}`, the value is `{value.type}`"
            raise fail("E0303", message, node.value.span, help=m.help) from None
    binds = Bindings()
    # The loop overwrites the variable while it reads the value: the value is taken first.
    value = binds.let(value, "new") if extra or not _simple(value) else value
    counters = [body.index(f"k{n}", span, Dim.const(0), d) for n, d in enumerate(dims)]
    reads: list[typed.Expr] = [read(c, span) for c in counters]
    indices: list[typed.Expr] = []
    checked: list[bool] = []
    at = 0
    for i in place.items:
        match i:
            case At():
                indices.append(i.value)
                checked.append(i.checked)
            case Slice():
                indices.append(add(i.lo, reads[at], span))
                checked.append(False)
                at += 1
            case Gather():
                count = len(dims_of_value(i.value))
                indices.append(as_i64(index(i.value, tuple(reads[at : at + count]))))
                checked.append(True)
                at += count
    taken = max(0, len(extra) - len(rest))
    element = index(value, tuple(reads[len(reads) - taken :]) if taken else ())
    step = typed.IndexStep(tuple(indices), tuple(checked))
    if node.op:
        element = _combine(body, index(place.value(body), step.indices, step.checked), element, node)
    elif len(extra) < len(rest):
        element = _stretch(element, rest, span)
    inner: list[typed.Stmt] = [typed.Assign(place.local, (*place.path, step), element, span=span)]
    for counter, dim in reversed(list(zip(counters, dims, strict=True))):
        block = unit(inner, span, UNIT)
        inner = [typed.For(counter, int_const(0, span), dim_value(dim, span), int_const(1, span), block, None, span=span)]
    return [*binds.stmts, *inner]


def _simple(e: typed.Expr) -> bool:
    return isinstance(e, typed.Const | typed.DimValue | PendingConst)


def _stretch(e: typed.Expr, dims: tuple[Dim, ...], span: Span) -> typed.Expr:
    """A smaller value repeated over leading dimensions."""
    missing = dims[: len(dims) - len(dims_of_value(e))]
    return over(missing, span, lambda _: e)

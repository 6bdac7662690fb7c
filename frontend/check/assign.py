"""Assignments: to variables and to parts of them, compound ones included.

x = e               Assign(x, (), e)
m.w[i] += e         the index is bound, then Assign(m, (w, [i]), m.w[i] + e)
x[a..b] = e         a loop over the slice, after a check of its ends
x[idx] += e         the loop in order, so duplicates accumulate
x[a..b][i] = e      the same through what the slice lets see: x[a + i], with i in 0..b - a
(a, b) = (b, a)     all values first, then the parts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.body import Body, statement
from tlc.frontend.check.build import Bindings, add, dim_value, index, int_const, over, part, read, unit
from tlc.frontend.check.cells import NEVER, Mismatch, known_elem, unify
from tlc.frontend.check.dimension import dims_of_value
from tlc.frontend.check.flexible import read as read_variable
from tlc.frontend.check.operators import BINARY, power, scalar_op
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import DimensionName, FunctionName, Kind, Poisoned, Variable, field_help, near
from tlc.frontend.check.signature import strip
from tlc.frontend.check.statements import items_of
from tlc.frontend.check.subscripts import At, Gather, Item, Slice, as_i64, item_dims, read_items
from tlc.frontend.check.type_nodes import kind_of
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import UNIT, StructType, TensorType, TupleType, Type


@dataclass
class Level:
    """A subscript with slices or integer tensors: it sees `type` through its items. Of the dimensions of `type`, the first `mapped` are
    those of the level before.
    """

    items: list[Item]
    type: TensorType | StructType
    mapped: int

    @property
    def gives(self) -> int:
        """How many dimensions the assignment runs over when this level is the last."""
        return len(item_dims(self.items)) + max(0, self.mapped - len(self.items))


@dataclass
class Place:
    """What is assigned: a variable and a path of fields and scalar indices. From the first slice or integer tensor on, subscripts are
    `levels`, each of what the one before lets it see, and the path has fields only: the indices of all levels stand behind it.
    """

    local: typed.Local
    path: list[typed.PartStep | typed.IndexStep]
    type: Type
    span: Span
    levels: list[Level] = field(default_factory=list)

    def value(self, body: Body) -> typed.Expr:
        """The present value at the path (before the levels)."""
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
    places = _places(body, node.target, binds)
    value = body.expr(node.value)
    stmts = _store_items(body, places, node.target, node, value, binds)
    return [*binds.stmts, *stmts]


Places = Place | list["Places"]  # a target: a place, or a tuple of targets


def _places(body: Body, node: ast.TupleExpr, binds: Bindings) -> list[Places]:
    return [_places(body, t, binds) if isinstance(t, ast.TupleExpr) else _place(body, t, binds) for t in node.items]


def _store_items(
    body: Body, places: list[Places], target: ast.TupleExpr, node: ast.Assignment, value: typed.Expr, binds: Bindings
) -> list[typed.Stmt]:
    """All values go to `binds`; gives the stores, which come behind them."""
    if isinstance(value, typed.Tuple) and len(value.items) == len(places):
        items = [binds.let(i, "new") for i in value.items]
    else:
        items = items_of(binds.keep(value, "new"), len(places), target.span)
    stmts: list[typed.Stmt] = []
    for place, item, t in zip(places, items, target.items, strict=True):
        if isinstance(place, list):
            assert isinstance(t, ast.TupleExpr)
            stmts += _store_items(body, place, t, node, item, binds)
        else:
            stmts += _store(body, place, ast.Assignment(t, "", node.value, span=node.span), item)
    return stmts


# ---------------------------------------------------------------- places


def _place(body: Body, node: ast.Expr, binds: Bindings) -> Place:
    match node:
        case ast.Name():
            return _variable(body, node)
        case ast.Field():
            place = _place(body, node.base, binds)
            type = place.type
            if isinstance(type, StructType):
                for k, f in enumerate(type.decl.fields):
                    if f.name == node.name:
                        place.path.append(typed.PartStep(k))
                        place.type = typed.field_type(type, k)
                        return place
            names = [f.name for f in type.decl.visible] if isinstance(type, StructType) else []
            raise fail("E0310", f"`{type}` has no field `{node.name}`", node.name_span, help=field_help(node.name, names))
        case ast.Subscript():
            return _subscript(body, node, binds)
        case _:
            raise fail("E0501", "this cannot be assigned", node.span, help="variables and their parts can: `x`, `x[i]`, `m.w`")


def _variable(body: Body, node: ast.Name) -> Place:
    found = body.scope.lookup(node.name)
    match found:
        case Poisoned():
            raise Failed
        case Variable():
            kind = body.scope.barrier(node.name)
            if not found.local.mutable and kind is not Kind.LAMBDA:
                labels = (Label(found.local.span, "bound here"),) if found.local.span.source.text else ()
                help = "make it a `var`" if _is_let(found.local) else f"copy it: `var {node.name} = {node.name}`"
                raise fail("E0501", f"`{node.name}` cannot be assigned: it is not a `var`", node.span, "", labels, help)
            if kind is not None:
                message = f"`{node.name}` is outside the {kind.value}, which cannot assign it"
                help = "use a `for` loop" if kind.value == "comprehension" else "return the new value"
                raise fail("E0506", message, node.span, help=help)
            return Place(found.local, [], read_variable(body, found.local, node.span).type, node.span)
        case DimensionName() | FunctionName():
            what = "a function" if isinstance(found, FunctionName) else "a dimension"
            raise fail("E0501", f"`{node.name}` cannot be assigned: it is {what}", node.span)
        case _:
            entity = body.module.names.get(node.name)
            if isinstance(entity, Poisoned):
                raise Failed
            if entity is not None:
                raise fail("E0501", f"`{node.name}` cannot be assigned: it is {kind_of(entity)}", node.span)
            help = near(node.name, list(body.scope.all_names())) or f"declare it: `var {node.name} = ...`"
            body.bind(node.name, Poisoned())
            raise fail("E0201", f"unknown variable `{node.name}`", node.span, help=help)


def _is_let(local: typed.Local) -> bool:
    return "let" in local.span.source.text[max(0, local.span.start - 4) : local.span.start]


def _subscript(body: Body, node: ast.Subscript, binds: Bindings) -> Place:
    place = _place(body, node.base, binds)
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
    ats = [i for i in items if isinstance(i, At)]
    if place.levels or len(ats) < len(items):
        place.levels.append(Level(items, type, place.levels[-1].gives if place.levels else 0))
    elif ats:
        place.path.append(typed.IndexStep(tuple(a.value for a in ats), tuple(a.checked for a in ats)))
    place.type = typed.with_dims(item_dims(items), strip(type, len(items)))
    return place


# ---------------------------------------------------------------- storing


def _store(body: Body, place: Place, node: ast.Assignment, value: typed.Expr) -> list[typed.Stmt]:
    if place.levels:
        return _store_through(body, place, node, value)
    binds = Bindings()
    if node.op:
        value = _combine(body, place.value(body), value, node)
    elif isinstance(node.target, ast.Subscript):
        value = _stretched(value, place.type, binds, node.span)
    _fits(body, place, value, node)
    keys.assigned(body, place.local, tuple(place.path), value)
    return [*binds.stmts, typed.Assign(place.local, tuple(place.path), value, span=node.span)]


def _stretched(value: typed.Expr, type: Type, binds: Bindings, span: Span) -> typed.Expr:
    """What a subscript leads to takes a smaller value as often as it has room for it: `x[:] = 0.0`, `m[i] = 1.0`."""
    own = dims_of_value(value)
    if not isinstance(type, TensorType) or not isinstance(value.type, TensorType) or len(own) >= len(type.dims):
        return value
    if type.dims[len(type.dims) - len(own) :] != own:
        return value
    return _stretch(value if _simple(value) else binds.let(value, "new"), type.dims, span)


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


def _store_through(body: Body, place: Place, node: ast.Assignment, value: typed.Expr) -> list[typed.Stmt]:
    """A loop nest over the dimensions that the levels leave, in order."""
    span = node.span
    if isinstance(place.type, TupleType):
        return _store_tuple(body, place, place.type, node, value)
    type = place.type
    assert isinstance(type, TensorType | StructType)
    count = place.levels[-1].gives
    dims, rest = type.dims[:count], type.dims[count:]
    extra = dims_of_value(value)
    if len(extra) > len(type.dims) or type.dims[len(type.dims) - len(extra) :] != extra:
        raise _other_type(place, node, value, Mismatch())
    binds = Bindings()
    # The loop overwrites the variable while it reads the value: the value is taken first.
    value = binds.let(value, "new") if extra or not _simple(value) else value
    counters = [body.index(f"k{n}", span, Dim.const(0), d) for n, d in enumerate(dims)]
    reads = [read(c, span) for c in counters]
    step, checks = _step(body, place.levels, reads, span)
    taken = max(0, len(extra) - len(rest))
    element = index(value, tuple(reads[len(reads) - taken :]) if taken else ())
    if node.op:
        element = _combine(body, index(place.value(body), step.indices, step.checked), element, node)
    elif len(extra) < len(rest):
        element = _stretch(element, rest, span)
    try:
        unify(strip(type, count), element.type)
    except Mismatch as m:
        raise _other_type(place, node, value, m) from None
    inner: list[typed.Stmt] = [*checks, typed.Assign(place.local, (*place.path, step), element, span=span)]
    for counter, dim in reversed(list(zip(counters, dims, strict=True))):
        block = unit(inner, span, UNIT)
        inner = [typed.For(counter, int_const(0, span), dim_value(dim, span), int_const(1, span), block, None, span=span)]
    return [*binds.stmts, *inner]


def _store_tuple(body: Body, place: Place, type: TupleType, node: ast.Assignment, value: typed.Expr) -> list[typed.Stmt]:
    """Item by item."""
    if node.op or not isinstance(value.type, TupleType) or len(value.type.items) != len(type.items):
        raise _other_type(place, node, value, Mismatch())
    binds = Bindings()
    value = binds.keep(value, "new")
    stmts: list[typed.Stmt] = []
    for k, item in enumerate(type.items):
        one = replace(place, path=[*place.path, typed.PartStep(k)], type=item)
        stmts += _store_through(body, one, node, part(value, k))
    return [*binds.stmts, *stmts]


def _step(body: Body, levels: list[Level], counters: Sequence[typed.Expr], span: Span) -> tuple[typed.IndexStep, list[typed.Stmt]]:
    """The element of the variable that the counters mean, and the checks of indices into what a level lets see."""
    coordinates = [(c, False) for c in counters]
    checks: list[typed.Stmt] = []
    for level in reversed(levels):
        given = iter(coordinates)
        picked: list[typed.Expr] | None = None
        before: list[tuple[typed.Expr, bool]] = []
        for item in level.items:
            match item:
                case At():
                    before.append((item.value, item.checked))
                case Slice():
                    c = _inside(next(given), item.last - item.first, checks, span)
                    before.append((add(item.lo, c, span), False))
                case Gather():
                    if picked is None:
                        picked = [_inside(next(given), d, checks, span) for d in dims_of_value(item.value)]
                    before.append((as_i64(index(item.value, tuple(picked))), True))
        coordinates = [*before, *given]
    return typed.IndexStep(tuple(c for c, _ in coordinates), tuple(checked for _, checked in coordinates)), checks


def _inside(coordinate: tuple[typed.Expr, bool], extent: Dim, checks: list[typed.Stmt], span: Span) -> typed.Expr:
    """An index of a dimension that a slice or an integer tensor made, checked against that one where it is not known to be inside."""
    value, checked = coordinate
    if checked:
        checks.append(typed.CheckRange(value, add(value, int_const(1, span), span), dim_value(extent, span), span=span))
    return value


def _other_type(place: Place, node: ast.Assignment, value: typed.Expr, m: Mismatch) -> Failed:
    target = node.target.span.source.text[node.target.span.start : node.target.span.end]
    elems = {known_elem(t) for t in (place.type, value.type) if isinstance(t, TensorType)} - {None}
    code = "E0303" if len(elems) == 2 else "E0301"
    message = f"`{target}` is `{place.type}`, the value is `{value.type}`"
    return fail(code, message, node.value.span, f"this is `{value.type}`", (), m.help, (m.reason,) if m.reason else ())


def _simple(e: typed.Expr) -> bool:
    return isinstance(e, typed.Const | typed.DimValue | PendingConst)


def _stretch(e: typed.Expr, dims: tuple[Dim, ...], span: Span) -> typed.Expr:
    """A smaller value repeated over leading dimensions."""
    missing = dims[: len(dims) - len(dims_of_value(e))]
    return over(missing, span, lambda _: e)

"""Subscripts: `x[i, :]`, `x[a..b]`, `x[..., -1]`, gathers `x[idx]`.

x[i, j]        leading scalar indices only: `Index`
x[a..b, i]     anything else: `for[k < b - a] x[a + k, i]` behind a check of the ends
x[idx]         `for[k < m] x[idx[k]]`, each index checked
x[a, b]        `for[k < m] x[a[k], b[k]]`: integer tensors of one subscript have one shape, and it stands where the first of them stands
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.frontend import ast, typed
from tlc.frontend.check import habits
from tlc.frontend.check.body import Body, expression
from tlc.frontend.check.build import INDEX_NAMES, Bindings, add, comp, convert, dim_value, extent_range, index, int_const, over, part, read
from tlc.frontend.check.cells import Cell, Mismatch, elem_of, restrict, unify_elem
from tlc.frontend.check.dimension import dim_of, dims_of_value, extent_of, in_range, need_i64, not_negative
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import fail
from tlc.frontend.check.signature import strip
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import INTS, STR, Elem, StructType, TensorType, TupleType, Type


@dataclass
class At:
    """One scalar index."""

    value: typed.Expr
    checked: bool


@dataclass
class Slice:
    """`lo..hi`, with the terms of its ends."""

    lo: typed.Expr
    first: Dim
    last: Dim


@dataclass
class Gather:
    """An integer tensor as an index."""

    value: typed.Expr


Item = At | Slice | Gather


@expression(ast.Subscript)
def subscript(body: Body, node: ast.Subscript) -> typed.Expr:
    base = body.expr(node.base)
    if isinstance(base.type, TupleType):
        return _tuple_item(base, base.type, node)
    type = base.type
    if not isinstance(type, TensorType | StructType) or not type.dims:
        help = "`io.encode` gives the bytes of a text, `io.decode` the text of bytes" if type == STR else ""
        raise fail("E0307", f"`{type}` has no dimension to index", node.base.span, help=help)
    binds = Bindings()
    items = read_items(body, node, type, binds)
    if all(isinstance(i, At) for i in items):
        ats = [i for i in items if isinstance(i, At)]
        value = index(base, tuple(a.value for a in ats), tuple(a.checked for a in ats))
        return binds.wrap(at_span(value, node.span))
    return _general(body, base, items, binds, node.span)


def at_span(value: typed.Expr, span: Span) -> typed.Expr:
    return typed.Index(value.base, value.indices, value.checked, type=value.type, span=span) if isinstance(value, typed.Index) else value


def _tuple_item(base: typed.Expr, type: TupleType, node: ast.Subscript) -> typed.Expr:
    item = node.items[0]
    if len(node.items) != 1 or not isinstance(item, ast.Number) or not isinstance(item.value, int):
        raise fail("E0307", "the index of a tuple is one literal", node.span, help="a tuple is taken apart by `let (a, b) = t`")
    if not 0 <= item.value < len(type.items):
        raise fail("E0307", f"`{type}` has no item {item.value}", item.span)
    return part(base, item.value)


# ---------------------------------------------------------------- reading items


def read_items(body: Body, node: ast.Subscript, type: TensorType | StructType, binds: Bindings) -> list[Item]:
    """The items of a subscript, one a dimension from the left; whole dimensions at the end are left out."""
    out = [_item(body, item, type.dims[k], type, binds, k) for k, item in enumerate(_spread(node, type))]
    _one_shape([i for i in out if isinstance(i, Gather)])
    while out and isinstance(out[-1], Slice) and out[-1].first.value == 0 and out[-1].last == type.dims[len(out) - 1]:
        out.pop()
    return out


def _one_shape(gathers: list[Gather]) -> None:
    for g in gathers[1:]:
        first = gathers[0].value
        if dims_of_value(g.value) != dims_of_value(first):
            labels = (Label(first.span, f"this is `{first.type}`"),)
            help = "for every pair write the comprehension: `for[i, j] x[a[i], b[j]]`"
            message = "the integer tensors of a subscript have one shape"
            raise fail("E0302", message, g.value.span, f"this is `{g.value.type}`", labels, help)


def item_dims(items: Sequence[Item]) -> tuple[Dim, ...]:
    """The dimensions that a subscript's items leave, in order."""
    out: list[Dim] = []
    gathered = False
    for item in items:
        if isinstance(item, Slice):
            out.append(item.last - item.first)
        elif isinstance(item, Gather) and not gathered:
            gathered = True
            out += dims_of_value(item.value)
    return tuple(out)


def _spread(node: ast.Subscript, type: TensorType | StructType) -> list[ast.Expr | ast.SliceNode]:
    """The items with `...` replaced by as many `:` as it stands for."""
    rank = len(type.dims)
    dots = [k for k, i in enumerate(node.items) if isinstance(i, ast.Ellipsis)]
    if len(dots) > 1:
        raise fail("E0307", "`...` may stand once in a subscript", node.items[dots[1]].span)
    if len(node.items) - len(dots) > rank:
        count = len(node.items) - len(dots)
        new = any(isinstance(i, ast.Name | ast.Field) and i.name in ("None", "newaxis") for i in node.items)
        help = habits.VALUES["newaxis"] if new else ""
        raise fail("E0307", f"{count} indices for `{type}`, which has {rank} dimension{'s' * (rank != 1)}", node.span, help=help)
    out: list[ast.Expr | ast.SliceNode] = []
    for i in node.items:
        if isinstance(i, ast.Ellipsis):
            out += [ast.SliceNode(None, None, span=i.span)] * (rank - len(node.items) + 1)
        else:
            out.append(i)
    return out


def _item(body: Body, node: ast.Expr | ast.SliceNode, dim: Dim, type: Type, binds: Bindings, axis: int) -> Item:
    if isinstance(node, ast.SliceNode):
        return _slice(body, node, dim, type, binds)
    value = from_end(body, node, dim)
    if not isinstance(value.type, TensorType):
        raise fail("E0307", f"an index must be an integer, found `{value.type}`", node.span)
    integers(value, "an index")
    if value.type.dims:
        return Gather(value)
    value = as_i64(value)
    term = dim_of(value)
    beyond = (term - dim).value if term is not None else None
    if term is not None and ((term.value is not None and term.value < 0) or (beyond is not None and beyond >= 0)):
        literal_end = isinstance(node, ast.Unary)
        shown = str((term - dim).value) if literal_end and dim.value is not None else str(term)
        negative = term.value is not None and term.value < 0 and not literal_end
        help = "a literal `-k` counts from the end, nothing else does" if negative else ""
        label = f"the last index is {dim - Dim.const(1)}" if beyond is not None and beyond >= 0 and dim.value != 0 else ""
        raise fail("E0307", f"the index {shown} is out of range for dimension {axis} of `{type}`", node.span, label, help=help)
    return At(value, not in_range(body, value, dim))


def integers(value: typed.Expr, what: str) -> None:
    """Say that a tensor or scalar holds integers; an open one holds `i64`."""
    assert isinstance(value.type, TensorType)
    try:
        elem = elem_of(value.type)
        restrict(elem, INTS)
        if isinstance(elem, Cell):
            unify_elem(elem, Elem.I64)
    except Mismatch:
        help = "convert with `i64(...)`" if isinstance(value.type.elem, Elem) and value.type.elem.is_num else ""
        if value.type.elem is Elem.BOOL:
            help = "a mask does not select; count with `sum`, choose with `where`"
        raise fail("E0307", f"{what} must be an integer, found `{value.type}`", value.span, help=help) from None


def as_i64(value: typed.Expr) -> typed.Expr:
    return convert(value, Elem.I64, value.span)


def from_end(body: Body, node: ast.Expr, dim: Dim) -> typed.Expr:
    """An index or end of a slice; a literal `-k` counts from the end."""
    if isinstance(node, ast.Unary) and node.op == "-" and isinstance(node.operand, ast.Number) and isinstance(node.operand.value, int):
        return dim_value(dim - Dim.const(node.operand.value), node.span)
    return body.expr(node)


def _slice(body: Body, node: ast.SliceNode, dim: Dim, type: Type, binds: Bindings) -> Slice:
    if node.lo is None and node.hi is None:
        return Slice(int_const(0, node.span), Dim.const(0), dim)
    lo = need_i64(from_end(body, node.lo, dim), "the start of a slice") if node.lo is not None else int_const(0, node.span)
    hi = need_i64(from_end(body, node.hi, dim), "the end of a slice") if node.hi is not None else dim_value(dim, node.span)
    lo, first = extent_of(body, lo, binds, "lo")
    hi, last = extent_of(body, hi, binds, "hi")
    lo = binds.keep(lo, "lo")
    bad = first.value is not None and first.value < 0
    for a, b in ((first, last), (last, dim)):
        difference = (b - a).value
        bad = bad or (difference is not None and difference < 0)
    if bad:
        back = (last - first).value
        message = f"the slice {first}..{last} is out of range for a dimension of {dim} of `{type}`"
        if back is not None and back < 0:
            message = f"the slice {first}..{last} ends before it begins"
        raise fail("E0307", message, node.span)
    if not (not_negative(body, first) and not_negative(body, last - first) and not_negative(body, dim - last)):
        binds.stmts.append(typed.CheckRange(lo, hi, dim_value(dim, node.span), span=node.span))
    return Slice(lo, first, last)


# ---------------------------------------------------------------- slices and gathers


def _general(body: Body, base: typed.Expr, items: list[Item], binds: Bindings, span: Span) -> typed.Expr:
    """A comprehension over the dimensions of the slices and gathers."""
    # The base is evaluated before the items; it is bound first.
    first = Bindings()
    base = first.keep(base, "x")
    ranges: list[typed.Range] = []
    dims: list[Dim] = []
    indices: list[typed.Expr] = []
    checked: list[bool] = []

    picked: tuple[typed.Expr, ...] | None = None

    def new_index(extent: Dim) -> typed.Expr:
        local = body.index(INDEX_NAMES[len(ranges) % len(INDEX_NAMES)], span, Dim.const(0), extent)
        ranges.append(extent_range(local, extent, span))
        dims.append(extent)
        return read(local, span)

    for item in items:
        match item:
            case At():
                indices.append(binds.keep(item.value, "at"))
                checked.append(item.checked)
            case Slice():
                indices.append(add(item.lo, new_index(item.last - item.first), span))
                checked.append(False)
            case Gather():
                value = binds.keep(item.value, "pick")
                picked = picked or tuple(new_index(d) for d in dims_of_value(value))
                indices.append(as_i64(index(value, picked)))
                checked.append(True)
    element = typed.Index(base, tuple(indices), tuple(checked), type=strip(base.type, len(indices)), span=span)
    first.stmts += binds.stmts
    return first.wrap(comp(ranges, tuple(dims), element, span))


def transpose(body: Body, base: typed.Expr, span: Span) -> typed.Expr:
    """`x.T`: the last two dimensions swapped."""
    dims = dims_of_value(base)
    if len(dims) < 2:
        help = "`@` and `dot` take vectors as they are" if dims else ""
        raise fail("E0307", f"`.T` needs two dimensions, `{base.type}` has {len(dims)}", span, help=help)
    binds = Bindings()
    base = binds.keep(base, "x")
    swapped = (*dims[:-2], dims[-1], dims[-2])
    value = over(swapped, span, lambda i: index(base, (*i[:-2], i[-1], i[-2])))
    return binds.wrap(value)


def literal(e: typed.Expr) -> int | None:
    """The value of an integer literal."""
    if isinstance(e, PendingConst | typed.Const) and isinstance(e.value, int) and not isinstance(e.value, bool):
        return e.value
    return None

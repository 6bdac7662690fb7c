"""Builtins that make and reshape tensors: they take any rank, so they have no signature in TL."""

from __future__ import annotations

from collections.abc import Callable

from tlc.frontend import ast, typed
from tlc.frontend.check.apply import argument
from tlc.frontend.check.arguments import literal_int, need_tensor, split_arguments, values
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, after, convert, dim_value, if_, index, int_const, op, over, part, subtract
from tlc.frontend.check.cells import NUMS, Cell, Mismatch, elem_of, is_real, tensor, unify
from tlc.frontend.check.dimension import check_natural, dims_of_value, extent_of
from tlc.frontend.check.lifting import Operand, over_dims
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import fail
from tlc.frontend.check.signature import is_tree
from tlc.frontend.check.zonk import fits
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim
from tlc.frontend.source import Span
from tlc.frontend.typed import with_dims
from tlc.frontend.types import BOOL, STR, Elem, StructType, TensorType, TupleType


def conversion(body: Body, elem: Elem, node: ast.Call) -> typed.Expr:
    """`f32(x)`, of a scalar or tensor."""
    from tlc.frontend.check.operators import operand

    positional, _ = split_arguments(node, str(elem))
    if len(positional) != 1:
        raise fail("E0401", f"`{elem}(...)` converts one value, {len(positional)} are given", node.span)
    value = operand(body, positional[0])
    what = f"`{elem}(...)`"
    if is_tree(value.type):
        raise fail("E0304", f"{what} does not take a `{value.type}`", value.span)
    found = elem_of(need_tensor(value, what))
    if elem is Elem.STR or found in (Elem.STR, Elem.KEY):
        help = 'write it into a string: `"{x}"`' if elem is Elem.STR else ""
        raise fail("E0304", f"{what} does not take a `{value.type}`", value.span, help=help)
    if isinstance(value, PendingConst) and isinstance(found, Cell) and elem in found.allowed and fits(value.value, elem):
        return PendingConst(value.value, type=tensor(elem), span=node.span)
    return over_dims(body, [Operand(value, 0, "x")], lambda v: convert(v[0], elem, node.span), node.span, what)


# ---------------------------------------------------------------- making


def extents(body: Body, nodes: list[ast.Expr], binds: Bindings, name: str) -> tuple[Dim, ...]:
    """Arguments that are dimensions."""
    out = []
    for k, n in enumerate(nodes):
        if isinstance(n, ast.TupleExpr | ast.ListExpr):
            shown = ", ".join(i.span.source.text[i.span.start : i.span.end] for i in n.items)
            raise fail("E0303", f"each dimension is an argument of `{name}`", n.span, help=f"write `{shown}`, without the brackets")
        e, dim = extent_of(body, argument(body, n), binds, n.name if isinstance(n, ast.Name) else f"n{k}")
        if dim.value is not None and dim.value < 0:
            raise fail("E0306", f"`{name}` cannot make a dimension of {dim.value}", e.span)
        check_natural(body, dim, binds, e.span)
        out.append(dim)
    return tuple(out)


def _filled(value: int) -> Callable[[Body, ast.Call], typed.Expr]:
    def make(body: Body, node: ast.Call) -> typed.Expr:
        name = "zeros" if value == 0 else "ones"
        positional, _ = split_arguments(node, name)
        binds = Bindings()
        dims = extents(body, positional, binds, name)
        type = tensor(Cell(NUMS, Elem.F32))
        return binds.wrap(over(dims, node.span, lambda _: PendingConst(value, type=type, span=node.span)))

    return make


zeros = _filled(0)
ones = _filled(1)


def full(body: Body, node: ast.Call) -> typed.Expr:
    """`full(value, n, m)`"""
    positional, _ = split_arguments(node, "full")
    if not positional:
        raise fail("E0401", "`full` takes a value and dimensions", node.span)
    if isinstance(positional[0], ast.TupleExpr):
        raise fail("E0401", "`full` takes the value first, then the dimensions", node.span, help="write `full(1.0, 3, 4)`")
    binds = Bindings()
    value = binds.keep(argument(body, positional[0]), "value")
    dims = extents(body, positional[1:], binds, "full")
    if not isinstance(value.type, TensorType | StructType):
        raise fail("E0304", f"a tensor cannot hold a `{value.type}`", value.span)
    return binds.wrap(over(dims, node.span, lambda _: value))


def ranks(body: Body, node: ast.Call) -> typed.Expr:
    """`__ranks(m)`: a struct or tuple like `m`, in which each real leaf says in all its elements how many dimensions it has.

    The dimensions of a struct array are not the leaf's: `w: f32[I, O]` of a `Linear[L]` has 2. Leaves that are not real stay.
    """
    (model,) = values(body, node, "__ranks", 1, 1)
    binds = Bindings()
    kept = binds.keep(model, "model")
    return binds.wrap(_ranks(kept, 0, node.span))


def _ranks(e: typed.Expr, outer: int, span: Span) -> typed.Expr:
    """`outer`: how many dimensions of a leaf are those of the struct arrays around it."""
    match e.type:
        case TupleType():
            return typed.Tuple(tuple(_ranks(part(e, k), outer, span) for k in range(len(e.type.items))), type=e.type, span=span)
        case StructType():
            arrays = len(e.type.dims)
            parts = tuple(part(e, k) if f.hidden else _ranks(part(e, k), arrays, span) for k, f in enumerate(e.type.decl.fields))
            return typed.Struct(parts, type=e.type, span=span)
        case TensorType() if is_real(e.type):
            rank = len(e.type.dims) - outer
            type = tensor(elem_of(e.type))
            return over(e.type.dims, span, lambda _: PendingConst(rank, type=type, span=span))
        case _:
            return e


# ---------------------------------------------------------------- reshaping


def length(body: Body, node: ast.Call) -> typed.Expr:
    """`len(x)`: the first dimension."""
    (x,) = values(body, node, "len", 1, 1)
    if isinstance(x.type, TupleType):
        return int_const(len(x.type.items), node.span)
    dims = dims_of_value(x)
    if not dims:
        help = "`len(io.encode(text))` counts the bytes of a text" if x.type == STR else ""
        raise fail("E0402", f"`len` takes a tensor, found `{x.type}`", x.span, help=help)
    return after(x, dim_value(dims[0], node.span), dims[:1])


def reshape(body: Body, node: ast.Call) -> typed.Expr:
    """`reshape(x, n, m)`; one dimension may be the literal -1."""
    positional, _ = split_arguments(node, "reshape")
    if not positional:
        raise fail("E0401", "`reshape` takes a tensor and dimensions", node.span)
    x = argument(body, positional[0])
    type = need_tensor(x, "`reshape`")
    if not type.dims:  # a number is no array that could be seen in another shape: it becomes one of one element
        type = tensor(elem_of(type), (Dim.const(1),))
        x = typed.Rows((x,), type=type, span=node.span)
    binds = Bindings()
    x = binds.keep(x, "x")
    total = product(type.dims)
    holes = [k for k, n in enumerate(positional[1:]) if _is_hole(n)]
    if len(holes) > 1:
        raise fail("E0401", "`reshape` finds one dimension, two are -1", positional[1 + holes[1]].span)
    given = [Dim.const(1) if k in holes else extents(body, [n], binds, "reshape")[0] for k, n in enumerate(positional[1:])]
    if holes:
        given[holes[0]] = total // product(tuple(given)) if product(tuple(given)).value != 0 else Dim.const(0)
    dims = tuple(given)
    difference = product(dims) - total
    if difference.value:
        message = f"`{type}` has {total} elements, the new shape has {product(dims)}"
        raise fail("E0302", message, node.span)
    found = holes[0] if holes else None
    return binds.wrap(typed.Reshape(x, difference.value != 0, found, type=tensor(elem_of(type), dims), span=node.span))


def _is_hole(node: ast.Expr) -> bool:
    return isinstance(node, ast.Unary) and node.op == "-" and isinstance(node.operand, ast.Number) and node.operand.value == 1


def product(dims: tuple[Dim, ...]) -> Dim:
    out = Dim.const(1)
    for d in dims:
        out = out * d
    return out


def _axis(body: Body, node: ast.Expr | None, rank: int, name: str) -> int:
    """A literal axis; negative ones count from the end."""
    if node is None:
        return 0
    k = literal_int(argument(body, node), f"the axis of `{name}`")
    if not -rank <= k < rank:
        raise fail("E0307", f"there is no axis {k} of {rank} dimensions", node.span)
    return k % rank


def _several(body: Body, node: ast.Call, name: str) -> tuple[list[typed.Expr], dict[str, ast.Expr]]:
    """The tensors of `concat(a, b)` or `concat([a, b])`."""
    positional, named = split_arguments(node, name, ("axis",))
    nodes = list(positional[0].items) if len(positional) == 1 and isinstance(positional[0], ast.ListExpr | ast.TupleExpr) else positional
    if not nodes:
        raise fail("E0401", f"`{name}` takes one or more tensors", node.span)
    return [argument(body, n) for n in nodes], named


def stack(body: Body, node: ast.Call) -> typed.Expr:
    """`stack(a, b)` along a new dimension, the first or `axis`."""
    items, named = _several(body, node, "stack")
    first = need_tensor(items[0], "`stack`")
    for i in items[1:]:
        try:
            unify(first, i.type)
        except Mismatch as m:
            message = f"`stack` takes tensors of one type: `{first}` and `{i.type}`"
            labels = (Label(items[0].span, f"this is `{first}`"), *m.origins())
            raise fail("E0302", message, i.span, f"this is `{i.type}`", labels, m.help, m.notes) from None
    axis = _axis(body, named.get("axis"), len(first.dims) + 1, "stack")
    rows = typed.Rows(tuple(items), type=with_dims((Dim.const(len(items)),), first), span=node.span)
    if axis == 0:
        return rows
    binds = Bindings()
    kept = binds.keep(rows, "rows")
    dims = (*first.dims[:axis], Dim.const(len(items)), *first.dims[axis:])
    return binds.wrap(over(dims, node.span, lambda i: index(kept, (i[axis], *i[:axis], *i[axis + 1 :]))))


def concat(body: Body, node: ast.Call) -> typed.Expr:
    """`concat(a, b)` along the first dimension, or `axis`."""
    items, named = _several(body, node, "concat")
    first = need_tensor(items[0], "`concat`")
    if not first.dims:
        raise fail("E0402", "`concat` takes tensors, found a scalar", items[0].span, help="`stack` or `[a, b]` makes a tensor of scalars")
    axis = _axis(body, named.get("axis"), len(first.dims), "concat")
    for i in items[1:]:
        type = need_tensor(i, "`concat`")
        message = f"`concat` joins tensors that agree in the other dimensions: `{first}` and `{type}`"
        labels = (Label(items[0].span, f"this is `{first}`"),)
        if len(type.dims) != len(first.dims):
            raise fail("E0302", message, i.span, f"this is `{type}`", labels)
        same = type.dims[:axis] + first.dims[axis : axis + 1] + type.dims[axis + 1 :]
        try:
            unify(first, TensorType(type.elem, same))
        except Mismatch as m:
            raise fail("E0302", message, i.span, f"this is `{type}`", (*labels, *m.origins()), m.help, m.notes) from None
    binds = Bindings()
    kept = binds.keep_all(items, ["part"] * len(items))
    starts = [Dim.const(0)]
    for i in kept:
        starts.append(starts[-1] + dims_of_value(i)[axis])
    dims = (*first.dims[:axis], starts[-1], *first.dims[axis + 1 :])
    span = node.span

    def element(i: tuple[typed.Expr, ...]) -> typed.Expr:
        def at(k: int) -> typed.Expr:
            return index(kept[k], (*i[:axis], subtract(i[axis], dim_value(starts[k], span), span), *i[axis + 1 :]))

        out = at(len(kept) - 1)
        for k in reversed(range(len(kept) - 1)):
            out = if_(op("lt", (i[axis], dim_value(starts[k + 1], span)), BOOL, span), at(k), out, span)
        return out

    return binds.wrap(over(dims, span, element))


def pad(body: Body, node: ast.Call) -> typed.Expr:
    """`pad(x, before, after)` or `pad(x, n)`: zeros (or `value`) around each dimension."""
    positional, named = split_arguments(node, "pad", ("value",))
    if not 2 <= len(positional) <= 3:
        raise fail("E0401", "`pad` takes a tensor and how much before and after", node.span)
    x = argument(body, positional[0])
    type = need_tensor(x, "`pad`")
    binds = Bindings()
    x = binds.keep(x, "x")
    before = extents(body, [positional[1]], binds, "pad")[0]
    after = extents(body, [positional[-1]], binds, "pad")[0]
    elem = elem_of(type)
    value: typed.Expr = PendingConst(0, type=tensor(elem), span=node.span)
    if "value" in named:
        value = binds.keep(argument(body, named["value"]), "value")
        try:
            unify(tensor(elem), value.type)
        except Mismatch as m:
            raise fail("E0303", f"`pad` cannot fill `{type}` with `{value.type}`", value.span, help=m.help) from None
    span = node.span
    dims = tuple(d + before + after for d in type.dims)

    def element(i: tuple[typed.Expr, ...]) -> typed.Expr:
        inner = tuple(subtract(k, dim_value(before, span), span) for k in i)
        out = index(x, inner)
        for k, d in reversed(list(zip(inner, type.dims, strict=True))):
            low = op("ge", (k, int_const(0, span)), BOOL, span)
            high = op("lt", (k, dim_value(d, span)), BOOL, span)
            out = if_(low, if_(high, out, value, span), value, span)
        return out

    return binds.wrap(over(dims, span, element))

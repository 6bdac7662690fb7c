"""Comprehensions `for[i, j < n] e` and reductions `sum[k] e`.

An index without a range takes it from a dimension that it indexes alone: the body is searched for subscripts `x[.., i, ..]` whose
base does not depend on the indices, and the type of that base is found by checking it ahead of the body.
"""

from __future__ import annotations

from collections.abc import Iterator

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.body import Body, expression
from tlc.frontend.check.build import Bindings, dim_value, int_const
from tlc.frontend.check.cells import NEVER, NUMS, Mismatch, could_be, elem_of, restrict, tensor
from tlc.frontend.check.dimension import check_natural, extent_of
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import Kind
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import with_dims
from tlc.frontend.types import BOOL, I64, REALS, UNIT, Elem, FunctionType, StructType, TensorType, TupleType, Type

LOGICAL = ("any", "all")
ARG = ("argmax", "argmin")


@expression(ast.Comprehension)
def comprehension(body: Body, node: ast.Comprehension) -> typed.Expr:
    found = infer_ranges(body, node)
    before = Bindings()
    ranges: list[typed.Range] = []
    dims: list[Dim] = []
    mark = keys.Mark()
    newest = DimVar("")
    with body.inside(Kind.COMPREHENSION), body.no_escape(pure=True):
        for r in node.indices:
            lo, hi, first, last = _range(body, r, found.get(r.name), before)
            local = body.index(r.name, r.span, first, last)
            body.declare(local)
            ranges.append(typed.Range(local, lo, hi))
            if node.op == "for" and first is not None and last is not None:
                dims.append(last - first)
                _refuse_ragged_range(r, last - first, ranges[:-1])
                check_natural(body, last - first, before, r.span)
        with keys.repeated(body, "comprehension", node.indices[0].name, mark):
            value = body.expr(node.body)
    if value.type == UNIT or value.type is NEVER or isinstance(value.type, FunctionType):
        raise fail("E0503", "the body of a comprehension needs a value", node.body.span)
    if node.op == "for":
        _refuse_ragged(node, value, newest)
        return before.wrap(typed.Comp(tuple(ranges), value, type=with_dims(tuple(dims), value.type), span=node.span))
    return before.wrap(reduction(node.op, tuple(ranges), value, order_of(node), node.span))


def _range(
    body: Body, r: ast.IndexRange, found: tuple[Dim, Span] | None, before: Bindings
) -> tuple[typed.Expr, typed.Expr, Dim | None, Dim | None]:
    """The ends of an index's range and their terms. Ends that are no terms are bound before the comprehension."""
    if r.hi is None:
        if found is None:
            help = f"give it one: `{r.name} < n`"
            raise fail("E0309", f"nothing gives the index `{r.name}` a range", r.span, "it stands alone in no subscript", help=help)
        dim = found[0]
        return int_const(0, r.span), dim_value(dim, r.span), Dim.const(0), dim
    lo: typed.Expr = int_const(0, r.span)
    first: Dim | None = Dim.const(0)
    if r.lo is not None:
        lo, first = extent_of(body, body.expr(r.lo), before, "lo")
    hi, last = extent_of(body, body.expr(r.hi), before, "n")
    return lo, hi, first, last


def _refuse_ragged_range(r: ast.IndexRange, extent: Dim, earlier: list[typed.Range]) -> None:
    """The range of an index of a tensor does not depend on another index (that of a reduction may)."""
    atoms = set(extent.atoms())
    for e in earlier:
        if e.local.dim is not None and not atoms.isdisjoint(e.local.dim.atoms()):
            message = f"the range of `{r.name}` depends on the index `{e.local.name}`, so the rows would have different lengths"
            help = "give it the largest range, and fill the rest; a reduction may have such a range"
            raise fail("E0314", message, r.span, f"`{extent}` many", help=help)


def _refuse_ragged(node: ast.Comprehension, value: typed.Expr, newest: DimVar) -> None:
    """Every element has the same shape: its dimensions speak of nothing that is younger than the comprehension."""
    for leaf in typed.leaf_types(value.type):
        for dim in leaf.dims:
            young = [atom for atom in dim.atoms() if atom.uid > newest.uid]
            if young:
                message = f"the elements of this comprehension have different shapes: `{dim}` may differ from one to the next"
                indices = {r.name for r in node.indices}
                which = next((f"`{a}` is an index" for a in young if a.name in indices), f"`{young[0]}` is known only inside")
                raise fail("E0314", message, node.body.span, which, help="give each element the largest shape, and fill the rest")


def order_of(node: ast.Comprehension) -> str:
    """`chain` where the body as written is a product."""
    inner = node.body
    while isinstance(inner, ast.Block) and len(inner.stmts) == 1 and isinstance(inner.stmts[0], ast.ExprStmt):
        inner = inner.stmts[0].expr
    return "chain" if isinstance(inner, ast.Binary) and inner.op == "*" else "lanes"


def reduction(op: str, ranges: tuple[typed.Range, ...], value: typed.Expr, order: str, span: Span) -> typed.Expr:
    """`op[ranges] value`, of a scalar."""
    type = value.type
    if not isinstance(type, TensorType) or type.dims:
        dims = isinstance(type, TensorType | StructType) and type.dims
        help = "index it, or reduce the rest first" if dims else ""
        raise fail("E0304", f"`{op}` reduces scalars, its body is `{type}`", value.span, help=help)
    elem = elem_of(type)
    takes = (Elem.BOOL,) if op in LOGICAL else REALS if op == "mean" else NUMS
    try:
        restrict(elem, takes)
    except Mismatch:
        help = ""
        if op == "mean":
            help = "the mean of integers is not defined: convert with `f32(...)`"
        elif op in LOGICAL:
            help = "compare, as in `x > 0.0`" if could_be(type, REALS) else "compare, as in `x > 0`"
        elif elem is Elem.BOOL:
            help = "to count, convert with `i64(...)`"
        raise fail("E0304", f"`{op}` does not take `{type}`", value.span, help=help) from None
    if op in LOGICAL:
        result: Type = BOOL
    elif op in ARG:
        result = I64 if len(ranges) == 1 else TupleType((I64,) * len(ranges))
    else:
        result = tensor(elem)
    return typed.Reduce(op, ranges, value, order, type=result, span=span)


# ---------------------------------------------------------------- ranges from subscripts


def infer_ranges(body: Body, node: ast.Comprehension) -> dict[str, tuple[Dim, Span]]:
    """The dimension that each index without a range stands alone in, and where."""
    bare = {r.name for r in node.indices if r.hi is None}
    if not bare:
        return {}
    indices = {r.name for r in node.indices}
    found: dict[str, tuple[Dim, Span]] = {}
    types: dict[ast.Expr, Type | None] = {}
    for s, hidden in _subscripts(node.body, frozenset()):
        names = [i.name if isinstance(i, ast.Name) else "" for i in s.items]
        if not any(n in bare and n not in hidden for n in names):
            continue
        if set(ast.names_in(s.base)) & (indices | hidden):
            continue
        type = _type_of(body, s.base, types)
        if not isinstance(type, TensorType | StructType):
            continue
        for k, name in enumerate(names):
            if name not in bare or name in hidden:
                continue
            axis = _axis(s, k, len(type.dims))
            if axis is None:
                continue
            dim = type.dims[axis]
            known = found.get(name)
            if known is None:
                found[name] = (dim, s.span)
            elif known[0] != dim:
                labels = (Label(known[1], f"here it is below `{known[0]}`"), Label(s.span, f"here it is below `{dim}`"))
                place = next(r.span for r in node.indices if r.name == name)
                message = f"the index `{name}` has two ranges, `{known[0]}` and `{dim}`"
                raise fail("E0308", message, place, "", labels, f"give it one: `{name} < {known[0]}`")
    return found


def _axis(s: ast.Subscript, k: int, rank: int) -> int | None:
    """The dimension that item k of a subscript indexes."""
    dots = [j for j, i in enumerate(s.items) if isinstance(i, ast.Ellipsis)]
    axis = k if not dots or k < dots[0] else rank - (len(s.items) - k)
    return axis if 0 <= axis < rank else None


def _type_of(body: Body, node: ast.Expr, types: dict[ast.Expr, Type | None]) -> Type | None:
    """The type of an expression that stands for itself ahead of the comprehension; None if it has none there."""
    if node not in types:
        used = dict(body.keys.used)
        try:
            with body.inside(), body.no_escape(pure=True):
                types[node] = body.expr(node).type
        except Failed:
            types[node] = None
        body.keys.used = used
    return types[node]


def _subscripts(node: ast.Node, hidden: frozenset[str]) -> Iterator[tuple[ast.Subscript, frozenset[str]]]:
    """The subscripts in an expression, with the names that are bound between the expression and them."""
    if isinstance(node, ast.Subscript):
        yield node, hidden
    if isinstance(node, ast.Comprehension):
        hidden = hidden | {r.name for r in node.indices}
    elif isinstance(node, ast.Lambda):
        hidden = hidden | {p.name for p in node.params}
    elif isinstance(node, ast.Block):
        hidden = hidden | {n for s in node.stmts if isinstance(s, ast.Binding) for n in target_names(s.target)}
    elif isinstance(node, ast.For):
        hidden = hidden | set(target_names(node.target))
    for n in ast.children(node):
        yield from _subscripts(n, hidden)


def target_names(target: ast.Target) -> Iterator[str]:
    """The names that a target binds."""
    if target.name:
        yield target.name
    for item in target.items:
        yield from target_names(item)

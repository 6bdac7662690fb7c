"""Reductions as functions: `sum(x)`, `max(x, axis = -1)`, over structs too; `max(a, b)` and `min(a, b)` element by element.

`variance` and `std` are functions of the library of one row, here of the elements along the axes.
"""

from __future__ import annotations

from tlc.frontend import ast, typed
from tlc.frontend.check.apply import apply, argument
from tlc.frontend.check.arguments import literal_int, split_arguments
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, comp, dim_value, extent_range, index, op, over, part, read
from tlc.frontend.check.cells import NUMS, Cell, could_be, elem_of, is_real, tensor, unify_elem
from tlc.frontend.check.comprehensions import ARG, LOGICAL, reduction
from tlc.frontend.check.dimension import dims_of_value
from tlc.frontend.check.functions import DefinedFunction
from tlc.frontend.check.operators import scalar_op
from tlc.frontend.check.report import fail
from tlc.frontend.check.signature import is_tree
from tlc.frontend.check.tensors import product
from tlc.frontend.dims import Dim
from tlc.frontend.source import Span
from tlc.frontend.types import StructType, TensorType, TupleType

NAMES = ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin")


def reduce_call(body: Body, node: ast.Call) -> typed.Expr:
    """A call of a reducer's name."""
    assert isinstance(node.callee, ast.Name)
    name = node.callee.name
    positional, named = split_arguments(node, name, ("axis",))
    if name in ("max", "min") and len(positional) >= 2 and not named:
        out = argument(body, positional[0])
        for n in positional[1:]:
            out = scalar_op(body, name, (out, argument(body, n)), node.span, node.callee.span, f"`{name}`")
        return out
    if len(positional) == 2 and not named:
        raise fail("E0401", f"`{name}` takes one value; an axis is given by name", positional[1].span, help=f"write `{name}(x, axis = 0)`")
    if len(positional) != 1:
        raise fail("E0401", f"`{name}` takes one value, {len(positional)} are given", node.span)
    value = argument(body, positional[0])
    if is_tree(value.type):
        if named:
            raise fail("E0404", f"`{name}` of a `{value.type}` has no axis", node.span)
        return _over_struct(body, name, value, node.span)
    if not isinstance(value.type, TensorType):
        raise fail("E0304", f"`{name}` does not take a `{value.type}`", value.span)
    if not value.type.dims and name not in LOGICAL:
        help = f"`{name}` of a scalar is that scalar" if could_be(value.type, NUMS) else ""
        raise fail("E0304", f"`{name}` reduces a tensor, found `{value.type}`", value.span, help=help)
    axes = _axes(body, named["axis"], len(value.type.dims)) if "axis" in named else None
    return reduce_tensor(body, name, value, axes, node.span)


def _axes(body: Body, node: ast.Expr, rank: int) -> tuple[int, ...]:
    nodes = node.items if isinstance(node, ast.TupleExpr) else (node,)
    out: list[int] = []
    for n in nodes:
        k = literal_int(argument(body, n), "`axis`")
        if not -rank <= k < rank:
            raise fail("E0307", f"there is no axis {k} of {rank} dimensions", n.span, f"the last axis is {rank - 1}" if rank else "")
        if k % rank in out:
            raise fail("E0307", "the same axis twice", n.span)
        out.append(k % rank)
    return tuple(out)


def reduce_tensor(body: Body, name: str, value: typed.Expr, axes: tuple[int, ...] | None, span: Span) -> typed.Expr:
    """The reduction over some axes, or all."""
    dims = dims_of_value(value)
    binds = Bindings()
    if axes is None:
        if name in ARG and len(dims) > 1:
            assert isinstance(value.type, TensorType)
            flat = tensor(elem_of(value.type), (product(dims),))
            value = typed.Reshape(value, False, type=flat, span=span)
            dims = (product(dims),)
        axes = tuple(range(len(dims)))
    if name in ARG and len(axes) > 1:
        raise fail("E0401", f"`{name}` takes one axis", span, help=f"the comprehension `{name}[i, j] x[i, j]` gives a tuple")
    value = binds.keep(value, "x")
    outer = [k for k in range(len(dims)) if k not in axes]
    outer_locals = {k: body.index("ijklmn"[n % 6], span, Dim.const(0), dims[k]) for n, k in enumerate(outer)}
    inner_locals = {k: body.index("pqrstu"[n % 6], span, Dim.const(0), dims[k]) for n, k in enumerate(axes)}
    reads = tuple(read((outer_locals | inner_locals)[k], span) for k in range(len(dims)))
    ranges = tuple(extent_range(inner_locals[k], dims[k], span) for k in sorted(axes))
    element = index(value, reads)
    if not ranges:
        return value
    reduced = reduction(name, ranges, element, "lanes", span)
    return binds.wrap(comp([extent_range(outer_locals[k], dims[k], span) for k in outer], tuple(dims[k] for k in outer), reduced, span))


def spread(body: Body, node: ast.Call) -> typed.Expr:
    """`variance(x)` or `std(x)`, with an axis too: that of the rows which the elements along the axes are."""
    assert isinstance(node.callee, ast.Name)
    name, span = node.callee.name, node.span
    positional, named = split_arguments(node, name, ("axis",))
    if len(positional) != 1:
        raise fail("E0401", f"`{name}` takes one value; an axis is given by name", span, help=f"write `{name}(x, axis = 0)`")
    value = argument(body, positional[0])
    if not isinstance(value.type, TensorType) or not value.type.dims:
        raise fail("E0304", f"`{name}` reduces a tensor, found `{value.type}`", value.span)
    dims, elem = dims_of_value(value), elem_of(value.type)
    axes = _axes(body, named["axis"], len(dims)) if "axis" in named else tuple(range(len(dims)))
    outer = [k for k in range(len(dims)) if k not in axes]
    order = [*outer, *sorted(axes)]
    binds = Bindings()
    if order != sorted(order):
        kept = binds.keep(value, "x")
        places = [order.index(k) for k in range(len(dims))]
        value = over(tuple(dims[k] for k in order), span, lambda i: index(kept, tuple(i[p] for p in places)))
    if len(axes) != 1:
        rows = (*(dims[k] for k in outer), product(tuple(dims[k] for k in axes)))
        value = typed.Reshape(value, False, type=tensor(elem, rows), span=span)
    return binds.wrap(apply(body, DefinedFunction(body.session.helper("arrays", f"row_{name}")), [value], {}, span))


# ---------------------------------------------------------------- structs


def _leaves(e: typed.Expr) -> list[typed.Expr]:
    type = e.type
    if isinstance(type, TupleType):
        return [leaf for k in range(len(type.items)) for leaf in _leaves(part(e, k))]
    if isinstance(type, StructType):
        return [leaf for k in range(len(type.decl.fields)) for leaf in _leaves(part(e, k))]
    return [e]


def _over_struct(body: Body, name: str, value: typed.Expr, span: Span) -> typed.Expr:
    """A full reduction over all real leaves: each leaf's, combined in order."""
    binds = Bindings()
    value = binds.keep(value, "x")
    leaves = [e for e in _leaves(value) if is_real(e.type)]
    combine = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "mean": "add"}.get(name)
    if combine is None or not leaves:
        raise fail("E0404", f"`{name}` does not take a `{value.type}`", span)
    inner = "sum" if name == "mean" else name
    total: typed.Expr | None = None
    for leaf in leaves:
        assert isinstance(leaf.type, TensorType)
        reduced = reduce_tensor(body, inner, leaf, None, span) if leaf.type.dims else leaf
        total = reduced if total is None else scalar_op(body, combine, (total, reduced), span, span, f"`{name}`")
    assert total is not None
    if name == "mean":
        count = Dim.const(0)
        for leaf in leaves:
            count = count + product(dims_of_value(leaf))
        number = op("convert", (dim_value(count, span),), total.type, span)
        total = op("div", (total, number), total.type, span)
    return binds.wrap(total)


def norm(body: Body, node: ast.Call) -> typed.Expr:
    """`norm(x)`: the root of the sum of the squares of all (real) elements of a tensor or struct."""
    positional, _ = split_arguments(node, "norm")
    if len(positional) != 1:
        raise fail("E0401", "`norm` takes one value", node.span)
    binds = Bindings()
    x = binds.keep(argument(body, positional[0]), "x")
    span = node.span
    total: typed.Expr | None = None
    for leaf in _leaves(x):
        if not isinstance(leaf.type, TensorType) or (is_tree(x.type) and not is_real(leaf.type)):
            continue
        elem = elem_of(leaf.type)
        if isinstance(elem, Cell):
            unify_elem(elem, elem.default)
        if not is_real(leaf.type):
            raise fail("E0304", f"`norm` takes reals, found `{leaf.type}`", x.span, help="convert with `f32(...)`")
        dims = leaf.type.dims
        locals = [body.index("pqrstu"[k % 6], span, Dim.const(0), d) for k, d in enumerate(dims)]
        element = index(leaf, tuple(read(i, span) for i in locals))
        square = op("mul", (element, element), tensor(elem_of(leaf.type)), span)
        ranges = tuple(extent_range(i, d, span) for i, d in zip(locals, dims, strict=True))
        squares = reduction("sum", ranges, square, "chain", span) if ranges else square
        total = squares if total is None else scalar_op(body, "add", (total, squares), span, span, "`norm`")
    if total is None:
        raise fail("E0404", f"`norm` of a `{x.type}`, which has no real leaf", span)
    return binds.wrap(apply(body, DefinedFunction(body.session.helper("prelude", "root")), [total], {}, span))

"""`@`: the product of vectors and matrices, as NumPy's, with leading dimensions aligned as in lifting."""

from __future__ import annotations

from tlc.frontend import typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, extent_range, index, op, over, read
from tlc.frontend.check.cells import NUMS, Mismatch, dims_help, elem_of, restrict, tensor, unify_elem
from tlc.frontend.check.dimension import dims_of_value
from tlc.frontend.check.lifting import Operand, over_dims
from tlc.frontend.check.report import fail
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim
from tlc.frontend.source import Span
from tlc.frontend.types import TensorType


def matmul(body: Body, a: typed.Expr, b: typed.Expr, op_span: Span, span: Span) -> typed.Expr:
    """`a @ b`"""
    for side in (a, b):
        if not isinstance(side.type, TensorType) or not side.type.dims:
            help = "`*` multiplies numbers" if isinstance(side.type, TensorType) else ""
            raise fail("E0304", f"`@` takes vectors and matrices, found `{side.type}`", side.span, help=help)
    assert isinstance(a.type, TensorType) and isinstance(b.type, TensorType)
    try:
        elem = unify_elem(elem_of(a.type), elem_of(b.type))
        restrict(elem, NUMS)
    except Mismatch as m:
        labels = (Label(a.span, f"this is `{a.type}`"), Label(b.span, f"this is `{b.type}`"))
        raise fail("E0303", f"`@` cannot mix `{a.type.elem}` and `{b.type.elem}`", op_span, "", labels, m.help) from None
    rank_a, rank_b = min(2, len(a.type.dims)), min(2, len(b.type.dims))
    inner_a, inner_b = a.type.dims[-1], b.type.dims[-rank_b]
    if inner_a != inner_b:
        labels = (Label(a.span, f"this is `{a.type}`"), Label(b.span, f"this is `{b.type}`"))
        message = f"the dimensions of `@` do not agree: `{a.type}` and `{b.type}`"
        help = "`.T` swaps the last two dimensions of the second operand" if rank_b > 1 and inner_a == b.type.dims[-1] else ""
        help = help or dims_help(inner_a, inner_b)
        origins = Mismatch(dims=(inner_a, inner_b)).origins()
        raise fail("E0302", message, op_span, f"`{inner_a}` is not `{inner_b}`", labels + origins, help)
    type = tensor(elem)

    def product(values: list[typed.Expr]) -> typed.Expr:
        x, y = values
        rows = dims_of_value(x)[:-1]
        columns = dims_of_value(y)[1:]

        def element(i: tuple[typed.Expr, ...]) -> typed.Expr:
            k = body.index("k", span, Dim.const(0), inner_a)
            left = index(x, (*i[: len(rows)], read(k, span)))
            right = index(y, (read(k, span), *i[len(rows) :]))
            return typed.Reduce(
                "sum", (extent_range(k, inner_a, span),), op("mul", (left, right), type, span), "chain", type=type, span=span
            )

        return over(rows + columns, span, element)

    if len(a.type.dims) <= 2 and len(b.type.dims) <= 2:
        binds = Bindings()
        kept = binds.keep_all([a, b], ["a", "b"])
        return binds.wrap(product(kept))
    return over_dims(body, [Operand(a, rank_a, "a"), Operand(b, rank_b, "b")], product, span, "`@`")

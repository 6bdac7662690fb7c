"""Operators: scalar ops lifted over tensors and structs, powers, the short circuits `and` and `or`."""

from __future__ import annotations

from collections.abc import Sequence

from tlc.frontend import ast, typed
from tlc.frontend.check.apply import apply
from tlc.frontend.check.body import Body, expression
from tlc.frontend.check.build import Bindings, bool_const, if_, op
from tlc.frontend.check.cells import NEVER, NUMS, Cell, Mismatch, could_be, elem_of, has_real, is_real, restrict, tensor, unify_elem
from tlc.frontend.check.functions import DefinedFunction
from tlc.frontend.check.lifting import Operand, over_dims, over_structs
from tlc.frontend.check.matmul import matmul
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.signature import is_tree
from tlc.frontend.diagnostics import Label
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import Span
from tlc.frontend.types import BOOL, INTS, REALS, UNIT, Elem, TensorType

BINARY = {row.symbol: row.name for row in SCALAR_OPS.values() if row.symbol and row.arity == 2}
SMALL_POWER = 64  # up to here a literal exponent becomes multiplications


@expression(ast.Binary)
def binary(body: Body, node: ast.Binary) -> typed.Expr:
    if node.op in ("and", "or"):
        return _logical(body, node)
    left, right = body.each((node.left, node.right), lambda e: operand(body, e))
    if node.op == "@":
        return matmul(body, left, right, node.op_span, node.span)
    if node.op == "**":
        return power(body, left, right, node)
    return scalar_op(body, BINARY[node.op], (left, right), node.span, node.op_span, f"`{node.op}`")


def operand(body: Body, node: ast.Expr) -> typed.Expr:
    value = body.expr(node)
    if value.type == UNIT or value.type is NEVER:
        raise fail("E0503", "this has no value", node.span)
    return value


@expression(ast.Unary)
def unary(body: Body, node: ast.Unary) -> typed.Expr:
    value = operand(body, node.operand)
    if node.op == "-":
        if isinstance(value, PendingConst):
            return PendingConst(-value.value, type=value.type, span=node.span)
        return scalar_op(body, "neg", (value,), node.span, node.span, "`-`")
    if node.op == "not":
        if not (isinstance(value.type, TensorType) and elem_of(value.type) is Elem.BOOL):
            help = "`~` inverts bits; as a condition, compare: `x == 0`" if could_be(value.type, INTS) else compare_help(value)
            raise fail("E0304", f"`not` takes a `bool`, found `{value.type}`", node.operand.span, help=help)
        return scalar_op(body, "not", (value,), node.span, node.span, "`not`")
    return scalar_op(body, "not", (value,), node.span, node.span, "`~`")


def _logical(body: Body, node: ast.Binary) -> typed.Expr:
    """`and` and `or`: short circuits on scalars, element by element on tensors."""
    left, right = body.each((node.left, node.right), lambda e: operand(body, e))
    for side in (left, right):
        if not (isinstance(side.type, TensorType) and elem_of(side.type) is Elem.BOOL):
            raise fail("E0304", f"`{node.op}` takes `bool`s, found `{side.type}`", side.span, help=compare_help(side))
    if left.type == BOOL and right.type == BOOL:
        const = bool_const(node.op == "or", node.op_span)
        return if_(left, right, const, node.span) if node.op == "and" else if_(left, const, right, node.span)
    return scalar_op(body, node.op, (left, right), node.span, node.op_span, f"`{node.op}`")


def compare_help(value: typed.Expr) -> str:
    """How a number becomes a truth value."""
    if not isinstance(value.type, TensorType) or elem_of(value.type) in (Elem.STR, Elem.KEY):
        return ""
    text = value.span.source.text[value.span.start : value.span.end]
    return f"compare it: `{text if text.isidentifier() else 'x'} != {'0.0' if is_real(value.type) else '0'}`"


# ---------------------------------------------------------------- scalar ops


def scalar_op(body: Body, name: str, values: Sequence[typed.Expr], span: Span, op_span: Span, what: str) -> typed.Expr:
    """A scalar op of these values, lifted."""

    def make(scalars: list[typed.Expr]) -> typed.Expr:
        return apply_scalar(name, scalars, span, op_span, what)

    operands = [Operand(v, 0, f"t{k}") for k, v in enumerate(values)]
    if any(is_tree(v.type) for v in values):
        real = any(has_real(v.type) for v in values)
        return over_structs(body, operands, lambda leaves: scalar_op(body, name, leaves, span, op_span, what), span, what, real, op_span)
    for v in values:
        if not isinstance(v.type, TensorType):
            raise fail("E0304", f"{what} cannot take a `{v.type}`", v.span)
    return over_dims(body, operands, make, span, what, op_span)


def apply_scalar(name: str, scalars: list[typed.Expr], span: Span, op_span: Span, what: str) -> typed.Expr:
    """The op of scalars: their element types must agree and be among those that the op takes."""
    row = SCALAR_OPS[name]
    operands = scalars[1:] if name == "select" else scalars
    types = [s.type for s in operands if isinstance(s.type, TensorType)]
    for t in types[1:]:
        try:
            unify_elem(elem_of(types[0]), elem_of(t))
        except Mismatch:
            raise mixed(operands, what, op_span) from None
    try:
        restrict(elem_of(types[0]), row.takes)
    except Mismatch:
        help = _instead(name, elem_of(types[0])) or f"it takes {', '.join(map(str, row.takes))}"
        raise fail("E0304", f"{what} does not take `{types[0].elem}`", op_span, f"the operand is `{types[0].elem}`", help=help) from None
    if name == "select":
        condition = scalars[0].type
        if not (isinstance(condition, TensorType) and elem_of(condition) is Elem.BOOL):
            raise fail("E0304", f"the condition of {what} must be a `bool`, found `{condition}`", scalars[0].span)
    type = BOOL if row.gives == "bool" else tensor(elem_of(types[0]))
    return op(name, tuple(scalars), type, span)


def _instead(name: str, elem: object) -> str:
    """What is written for an op that does not take this element type."""
    if elem is Elem.STR and name == "add":
        return 'strings join by interpolation: `"{a}{b}"`'
    if name == "div":
        return "`//` divides integers and rounds down; for a real quotient convert with `f32(...)`"
    if elem is Elem.BOOL and name == "neg":
        return "`not` negates a truth value"
    if elem is Elem.BOOL and name in ("add", "mul"):
        return "to count, convert with `i64(...)`; `and` and `or` combine truth values"
    return "a power is written `x ** 2`" if name == "xor" and (isinstance(elem, Cell) or (isinstance(elem, Elem) and elem.is_real)) else ""


def mixed(values: Sequence[typed.Expr], what: str, op_span: Span) -> Failed:
    """Operands of different element types: an error that offers the conversion."""
    elems = [elem_of(v.type) for v in values if isinstance(v.type, TensorType)]
    labels = tuple(Label(v.span, f"this is `{e}`") for v, e in zip(values, elems, strict=True))
    known = [e for e in elems if isinstance(e, Elem) and e.is_num]
    help = ""
    if Elem.STR in elems:
        help = 'a value is written into a string by interpolation: `"x is {x}"`'
    elif Elem.BOOL in elems and len(known) == 1:
        help = f"convert the truth value with `{known[0]}(...)`, or choose with `where(...)`"
    elif len(known) >= 2:
        real = [e for e in known if e.is_real]
        wanted = max(real or known, key=lambda e: e.width)
        other = next(v for v, e in zip(values, elems, strict=True) if e is not wanted)
        text = other.span.source.text[other.span.start : other.span.end]
        help = (
            f"convert one side: `{wanted}({text})`"
            if text and "\n" not in text and len(text) < 40
            else f"convert one side with `{wanted}(...)`"
        )
    elif any(isinstance(e, Cell) for e in elems):
        open_ = next(e for e in elems if isinstance(e, Cell))
        known_elem = next((e for e in elems if isinstance(e, Elem)), None)
        if known_elem is not None and known_elem.is_int and all(e.is_real for e in open_.allowed):
            help = "a real literal does not become an integer; convert the other side with `f32(...)`"
    message = f"{what} cannot mix {' and '.join(f'`{e}`' for e in elems)}"
    return fail("E0303", message, op_span, "the element types must be equal", labels, help)


# ---------------------------------------------------------------- powers


def power(body: Body, base: typed.Expr, exponent: typed.Expr, node: ast.Binary) -> typed.Expr:
    """`x ** n`: multiplications for a literal integer, `powi` or `ipow` for any other integer, `pow` for a real."""
    span = node.span
    if isinstance(exponent, PendingConst) and isinstance(exponent.value, int) and abs(exponent.value) <= SMALL_POWER:
        n = exponent.value
        if n < 0 and not could_be(base.type, REALS) and not is_tree(base.type):
            raise fail("E0305", "an integer to a negative power is no integer", node.right.span, help="convert the base with `f32(...)`")

        def make(values: list[typed.Expr]) -> typed.Expr:
            return _multiplications(body, values[0], n, span, node.op_span)

        def lifted(values: list[typed.Expr]) -> typed.Expr:
            return over_dims(body, [Operand(values[0], 0, "x")], make, span, "`**`")

        if is_tree(base.type):
            return over_structs(body, [Operand(base, 0, "x")], lifted, span, "`**`", has_real(base.type))
        return lifted([base])
    kind = elem_of(exponent.type) if isinstance(exponent.type, TensorType) else None
    if isinstance(kind, Cell) and kind.default is Elem.I64:
        kind = unify_elem(kind, Elem.I64)
    if isinstance(kind, Elem) and kind.is_int:
        if kind is not Elem.I64:
            raise fail(
                "E0303", f"an integer exponent must be an `i64`, found `{exponent.type}`", node.right.span, help="convert with `i64(...)`"
            )
        helper = "powi" if has_real(base.type) else "ipow"
        return apply(body, DefinedFunction(body.session.helper("prelude", helper)), [base, exponent], {}, span)
    return scalar_op(body, "pow", (base, exponent), span, node.op_span, "`**`")


def _multiplications(body: Body, x: typed.Expr, n: int, span: Span, op_span: Span) -> typed.Expr:
    """The products of `powi` in the prelude, for a known exponent: squares, low bit first; and the reciprocal of that."""
    assert isinstance(x.type, TensorType)
    elem = elem_of(x.type)
    try:
        restrict(elem, REALS if n < 0 else NUMS)
    except Mismatch:
        raise fail("E0304", f"`**` does not take `{x.type}`", op_span) from None
    type = tensor(elem)
    binds = Bindings()
    x = base = binds.keep(x, "x")
    result: typed.Expr | None = None
    bits = abs(n)
    while bits:
        if bits & 1:
            result = base if result is None else op("mul", (result, base), type, span)
        bits >>= 1
        if bits:
            if result is not None:
                result = binds.keep(result, "power")
            base = binds.keep(op("mul", (base, base), type, span), "square")
    if result is None:
        result = PendingConst(1, type=type, span=span)
    if n < 0:
        helper = DefinedFunction(body.session.helper("prelude", "powi_reciprocal"))
        result = apply(body, helper, [result, x, PendingConst(-n, type=type, span=span)], {}, span)
    return binds.wrap(result)

"""Scalar ops as expressions of C: one table, total over `SCALAR_OPS`.

Every form means exactly what the row's `evaluate` computes, bit for bit (but for the bits of a NaN), whatever the compiler's flags
for integers are: nothing overflows a signed type. Reals want that a compiler neither contracts nor reassociates. Narrow reals are
widened for an op, and its result is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tlc.backends import scalar_text
from tlc.backends.c.helpers import Helpers, suffix
from tlc.backends.c.words import (
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    EQUAL,
    OR,
    PRODUCT,
    SHIFT,
    SUM,
    TYPES,
    UNARY,
    Text,
    call,
    cast,
    choice,
    definition,
    infix,
    literal,
)
from tlc.backends.scalar_text import COMPARED, Form, Operands, elementary, written_out
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem


class Context(scalar_text.Context[Helpers]):
    def small(self, a: Text) -> Text:
        """Arithmetic on 8 bits is done in `int` and cut off."""
        return cast(TYPES[self.result], a) if self.result in (Elem.I8, Elem.U8) else a


def _arithmetic(name: str, symbol: str, binds: int) -> Form:
    def form(c: Context, a: Text, b: Text) -> Text:
        if c.operand in (Elem.I32, Elem.I64):
            if name == "add" and re.fullmatch(r"-\d+", b.text):
                return c.help("sub", a, Text(b.text[1:]))
            return c.help(name, a, b)
        return c.small(infix(a, symbol, b, binds))

    return form


def _helper(name: str) -> Form:
    return lambda c, *args: c.help(name, *args)


def _library(name: str) -> Form:
    return lambda c, *args: call(f"{name}{suffix(c.operand)}", *args)


def _division(name: str, symbol: str) -> Form:
    """Floor division and its remainder: C's own where nothing is negative and the divisor is known not to be 0."""

    def form(c: Context, a: Text, b: Text) -> Text:
        if c.operand.is_real:
            return call(f"floor{suffix(c.operand)}", infix(a, "/", b, PRODUCT)) if name == "floordiv" else c.help("mod", a, b)
        digits = b.text.removesuffix("u")
        if not c.operand.is_signed and digits.isdigit() and int(digits):
            return infix(a, symbol, b, PRODUCT)
        return c.help(name, a, b)

    return form


def _neg(c: Context, a: Text) -> Text:
    if c.operand.is_real:
        return Text(f"-{a.at(UNARY) if not a.text.startswith('-') else f'({a.text})'}", UNARY)
    return c.help("neg", a) if c.operand.is_signed else c.small(infix(Text("0u"), "-", a, SUM))


def _abs(c: Context, a: Text) -> Text:
    if c.operand.is_real:
        return call(f"fabs{suffix(c.operand)}", a)
    return c.help("abs", a) if c.operand.is_signed else a


def _bitwise(symbol: str, binds: int, logical: Callable[[Text, Text], Text]) -> Form:
    def form(c: Context, a: Text, b: Text) -> Text:
        return logical(a, b) if c.operand is Elem.BOOL else infix(a, symbol, b, binds)

    return form


def _not(c: Context, a: Text) -> Text:
    return Text(f"!{a.at(UNARY)}", UNARY) if c.operand is Elem.BOOL else c.small(Text(f"~{a.at(UNARY)}", UNARY))


def _count(c: Context, n: Text) -> Text:
    """A shift count, modulo the width."""
    width = c.operand.width
    digits = n.text.removesuffix("u")
    return Text(digits) if digits.isdigit() and int(digits) < width else infix(n, "&", Text(str(width - 1)), BIT_AND)


def _shl(c: Context, a: Text, n: Text) -> Text:
    if c.operand.is_signed and c.operand is not Elem.I8:
        return c.help("shl", a, n)
    return c.small(infix(cast("uint8_t", a) if c.operand is Elem.I8 else a, "<<", _count(c, n), SHIFT))


def _shr(c: Context, a: Text, n: Text) -> Text:
    return infix(a, ">>", _count(c, n), SHIFT)


def _elementary_function(helpers: Helpers, name: str, elem: Elem) -> str:
    """The name of an elementary function; its text is in the file from now on.

    static inline float tanh_f32(float x) {
      const float t0 = fabsf(x) * -2.0f;
      ...
      return f32_from_bits_of_i32(i32_from_bits_of_f32(-t9 / (t9 + 2.0f)) | (i32_from_bits_of_f32(x) & INT32_MIN));
    }
    """
    full = f"{name}_{elem}"
    if full not in helpers.texts:
        params, lines, result = written_out(name, elem, literal, partial(emit, helpers), definition)
        head = f"static inline {TYPES[elem]} {full}({', '.join(f'{TYPES[elem]} {p}' for p in params)}) {{"
        helpers.add(full, "\n".join([head, *(f"  {line}" for line in (*lines, f"return {result};")), "}"]))
    return full


def _convert(c: Context, a: Text) -> Text:
    source, result = c.operand, c.result
    if source is result:
        return a
    if result is Elem.BOOL:
        return infix(a, "!=", Text("0"), EQUAL)
    if source.is_real and not result.is_real:
        return call(c.helpers.use("to_int", result, source), a)
    if result.is_real and a.text.isdigit() and int(a.text) <= 1 << 24:
        return Text(f"{a}.0{suffix(result)}")
    return cast(TYPES[result], a)


def _bitcast(c: Context, a: Text) -> Text:
    if c.operand.is_real == c.result.is_real:
        return a if c.operand is c.result else cast(TYPES[c.result], a)
    return call(c.helpers.use("bitcast", c.result, c.operand), a)


FORMS: dict[str, Form] = {
    "add":      _arithmetic("add", "+", SUM),
    "sub":      _arithmetic("sub", "-", SUM),
    "mul":      _arithmetic("mul", "*", PRODUCT),
    "div":      lambda c, a, b: infix(a, "/", b, PRODUCT),
    "floordiv": _division("floordiv", "/"),
    "mod":      _division("mod", "%"),
    "neg":      _neg,
    "abs":      _abs,
    "sign":     _helper("sign"),
    "max":      _helper("max"),
    "min":      _helper("min"),
    "fma":      _library("fma"),
    "and":      _bitwise("&", BIT_AND, lambda a, b: infix(a, "&&", b, AND)),
    "or":       _bitwise("|", BIT_OR, lambda a, b: infix(a, "||", b, OR)),
    "xor":      _bitwise("^", BIT_XOR, lambda a, b: infix(a, "!=", b, EQUAL)),
    "not":      _not,
    "shl":      _shl,
    "shr":      _shr,
    **COMPARED,
    "select":   lambda c, cond, a, b: choice(cond, a, b),
    "isnan":    lambda c, a: call("isnan", a),
    "floor":    _library("floor"),
    "ceil":     _library("ceil"),
    "trunc":    _library("trunc"),
    "round":    _library("rint"),
    "sqrt":     _library("sqrt"),
    "convert":  _convert,
    "bitcast":  _bitcast,
    "key_make": lambda c, hi, lo: infix(infix(cast("uint64_t", hi), "<<", Text("32"), SHIFT), "|", lo, BIT_OR),
    "key_hi":   lambda c, k: cast("uint32_t", infix(k, ">>", Text("32"), SHIFT)),
    "key_lo":   lambda c, k: cast("uint32_t", k),
    **elementary(_elementary_function),
}  # fmt: skip

_missing = [name for name in SCALAR_OPS if name not in FORMS]
assert not _missing, f"scalar ops without a C form: {_missing}"


def emit(helpers: Helpers, op: str, result: Elem, operands: Operands) -> Text:
    """One op as an expression."""
    of = operands[1 if op == "select" else 0][1]
    if op != "select" and (result in NARROW or of in NARROW):
        wide = tuple((widened(helpers, a, elem), Elem.F32 if elem in NARROW else elem) for a, elem in operands)
        out = emit(helpers, op, Elem.F32 if result in NARROW else result, wide)
        return call(helpers.use("round", result), out) if result in NARROW else out
    return FORMS[op](Context(helpers, result, of), *(text for text, _ in operands))


def widened(helpers: Helpers, a: Text, elem: Elem) -> Text:
    """A narrow real as the f32 that it is; what is none stays."""
    if elem not in NARROW:
        return a
    return a.wide or call(helpers.use("widen", elem), a)

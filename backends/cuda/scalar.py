"""Scalar ops as expressions of numba.cuda: one table, total over `SCALAR_OPS`.

Every form means exactly what the row's `evaluate` computes, bit for bit (but for the bits of a NaN). A product is `fmul_rn`, which no
compiler joins with an addition; then `+` and `-` have nothing that they could be joined with. Narrow reals are f32 here; what is
computed of them is rounded (`wide`: before).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tlc.backends import scalar_text
from tlc.backends.c.helpers import suffix
from tlc.backends.c.words import AND, BIT_AND, BIT_OR, BIT_XOR, EQUAL, OR, PRODUCT, SHIFT, SUM, UNARY, Text, call
from tlc.backends.cuda.helpers import Helpers
from tlc.backends.cuda.words import VALUES, bare, choice, infix, whole
from tlc.backends.scalar_text import COMPARED, Form, Operands, elementary, written_out
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import COMPARISONS, SCALAR_OPS
from tlc.frontend.types import Elem


class Context(scalar_text.Context[Helpers]):
    def cut(self, a: Text) -> Text:
        """What numba computes in 64 bits, in the type of the result."""
        return a if VALUES[self.result] in ("int64", "uint64") else self.helpers.cast(self.result, a)

    def library(self, name: str, *args: Text) -> Text:
        """A function of libdevice that has an `f` behind its name for f32."""
        return self.helpers.library(f"{name}{suffix(self.operand)}", *args)

    def rounded(self, name: str, *args: Text) -> Text:
        """A function of libdevice that has the type before its name."""
        return self.helpers.library(f"{'f' if self.operand is Elem.F32 else 'd'}{name}_rn", *args)


def _arithmetic(symbol: str, binds: int) -> Form:
    def form(c: Context, a: Text, b: Text) -> Text:
        if c.operand.is_real:
            return infix(a, symbol, b, binds)
        return c.cut(infix(bare(a), symbol, bare(b), binds))

    return form


def _mul(c: Context, a: Text, b: Text) -> Text:
    return c.rounded("mul", a, b) if c.operand.is_real else c.cut(infix(bare(a), "*", bare(b), PRODUCT))


def _division(name: str, symbol: str) -> Form:
    """Floor division and its remainder: Python's own where the divisor is known not to be 0."""

    def form(c: Context, a: Text, b: Text) -> Text:
        if c.operand.is_real:
            return c.library("floor", c.rounded("div", a, b)) if name == "floordiv" else c.help("mod", a, b)
        if bare(b).text.isdigit() and int(bare(b).text):
            return c.cut(infix(a, symbol, bare(b), PRODUCT))
        return c.help(name, a, b)

    return form


def _neg(c: Context, a: Text) -> Text:
    minus = Text(f"-{a.at(UNARY)}" if not a.text.startswith("-") else f"-({a.text})", UNARY)
    return minus if c.operand.is_real else c.cut(minus if c.operand.is_signed else infix(Text("0"), "-", a, SUM))


def _abs(c: Context, a: Text) -> Text:
    if c.operand.is_real:
        return c.library("fabs", a)
    return c.cut(call("abs", a)) if c.operand.is_signed else a


def _extremum(name: str) -> Form:
    return lambda c, a, b: c.helpers.intrinsic(f"{name}_{c.operand}", a, b) if c.operand.is_real else call(name, a, b)


def _bitwise(symbol: str, binds: int, logical: Callable[[Text, Text], Text]) -> Form:
    def form(c: Context, a: Text, b: Text) -> Text:
        return logical(a, b) if c.operand is Elem.BOOL else c.cut(infix(bare(a), symbol, bare(b), binds))

    return form


def _not(c: Context, a: Text) -> Text:
    return Text(f"not {a.at(SUM)}", AND) if c.operand is Elem.BOOL else c.cut(Text(f"~{a.at(UNARY)}", UNARY))


def _shift(symbol: str) -> Form:
    """The count is taken modulo the width."""

    def form(c: Context, a: Text, n: Text) -> Text:
        width, count = c.operand.width, bare(n)
        if not (count.text.isdigit() and int(count.text) < width):
            count = infix(count, "&", Text(str(width - 1)), BIT_AND)
        return c.cut(infix(a, symbol, count, SHIFT))

    return form


def _isnan(c: Context, a: Text) -> Text:
    return call(c.helpers.imported("math", "isnan"), a)


def _convert(c: Context, a: Text) -> Text:
    source, result = c.operand, c.result
    if source is result:
        return a
    if result is Elem.BOOL:
        return infix(a, "!=", Text("0"), EQUAL)
    if source.is_real and not result.is_real:
        return call(c.helpers.use("to_int", result, source), a)
    return c.helpers.cast(result, a)


def _bitcast(c: Context, a: Text) -> Text:
    source, result, h = c.operand, c.result, c.helpers
    if source is result:
        return a
    if source.is_real == result.is_real:
        return h.cast(result, a)
    if source is Elem.F64:
        return h.library("double_as_longlong", a)
    if result is Elem.F64:
        return h.library("longlong_as_double", a)
    if source is Elem.F32:
        bits = h.library("float_as_int", a)
        return bits if result is Elem.I32 else h.cast(result, bits)
    return h.library("int_as_float", a if source is Elem.I32 else h.cast(Elem.I32, a))


def _key_make(c: Context, hi: Text, lo: Text) -> Text:
    h = c.helpers
    high = infix(h.cast(Elem.KEY, hi), "<<", h.literal(32, Elem.KEY), SHIFT)
    return infix(high, "|", h.cast(Elem.KEY, lo), BIT_OR)


def _key_hi(c: Context, k: Text) -> Text:
    return c.helpers.cast(Elem.U32, infix(k, ">>", c.helpers.literal(32, Elem.KEY), SHIFT))


def _elementary_function(helpers: Helpers, name: str, elem: Elem) -> str:
    """The name of an elementary function, a device function; its text is in the file from now on."""
    full = f"{name}_{elem}"
    if full not in helpers.texts:
        params, lines, result = written_out(name, elem, helpers.literal, partial(emit, helpers), lambda t, e, text: f"{t} = {text}")
        head = f"@cuda.jit(device=True)\ndef {full}({', '.join(params)}):"
        helpers.texts[full] = "\n".join([head, *(f"    {line}" for line in (*lines, f"return {result}"))])
    return full


FORMS: dict[str, Form] = {
    "add":      _arithmetic("+", SUM),
    "sub":      _arithmetic("-", SUM),
    "mul":      _mul,
    "div":      lambda c, a, b: c.rounded("div", a, b),
    "floordiv": _division("floordiv", "//"),
    "mod":      _division("mod", "%"),
    "neg":      _neg,
    "abs":      _abs,
    "sign":     lambda c, a: c.help("sign", a),
    "max":      _extremum("max"),
    "min":      _extremum("min"),
    "fma":      lambda c, x, y, z: c.helpers.library("fmaf_rn" if c.operand is Elem.F32 else "fma_rn", x, y, z),
    "and":      _bitwise("&", BIT_AND, lambda a, b: infix(a, "and", b, AND)),
    "or":       _bitwise("|", BIT_OR, lambda a, b: infix(a, "or", b, OR)),
    "xor":      _bitwise("^", BIT_XOR, lambda a, b: infix(a, "!=", b, EQUAL)),
    "not":      _not,
    "shl":      _shift("<<"),
    "shr":      _shift(">>"),
    **COMPARED,
    "select":   lambda c, cond, a, b: choice(cond, a, b),
    "isnan":    _isnan,
    "floor":    lambda c, a: c.library("floor", a),
    "ceil":     lambda c, a: c.library("ceil", a),
    "trunc":    lambda c, a: c.library("trunc", a),
    "round":    lambda c, a: c.library("rint", a),
    "sqrt":     lambda c, a: c.rounded("sqrt", a),
    "convert":  _convert,
    "bitcast":  _bitcast,
    "key_make": _key_make,
    "key_hi":   _key_hi,
    "key_lo":   lambda c, k: c.helpers.cast(Elem.U32, k),
    **elementary(_elementary_function),
}  # fmt: skip

_missing = [name for name in SCALAR_OPS if name not in FORMS]
assert not _missing, f"scalar ops without a CUDA form: {_missing}"


_EXACT = ("select", "neg", "abs", "max", "min")  # of narrow reals they give narrow reals


def emit(helpers: Helpers, op: str, result: Elem, operands: Operands) -> Text:
    """One op as an expression."""
    of = operands[1 if op == "select" else 0][1]
    texts = tuple(whole(text) if elem is Elem.I64 and op not in COMPARISONS else text for text, elem in operands)
    wide, value = (Elem.F32 if e in NARROW else e for e in (of, result))
    text = FORMS[op](Context(helpers, value, wide), *texts)
    exact = op in _EXACT or (op == "convert" and of is result)
    return replace(call(helpers.use("round", result), text), wide=text) if result in NARROW and not exact else text

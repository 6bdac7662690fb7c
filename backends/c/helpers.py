"""Small functions that C has not, or not with the meaning of `frontend/ops.py`: each is printed once a file, where it is used.

A row is a function from element types to the text of a C function; what it calls itself it asks the `Helpers` for, and so
stands behind. The names end with the types: `max_f32`, `floordiv_i64`, `i32_of_f64`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tlc.backends.c.words import TYPES, UNSIGNED
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem

Row = Callable[..., str]  # (helpers, *element types) -> the body of the function, its head and braces aside


class Helpers:
    """The functions that a file has so far, in order, by name."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.types: dict[str, None] = {}  # typedefs of narrow reals

    def use(self, name: str, *elems: Elem) -> str:
        """The C name of a helper; its text is in the file from now on."""
        head, row = HELPERS[name]
        full = head(*elems)[0]
        if full not in self.texts:
            body = row(self, *elems)
            self.texts[full] = f"static inline {head(*elems)[1]} {full}({head(*elems)[2]}) {{\n{_indented(body)}\n}}"
        return full

    def add(self, name: str, text: str) -> None:
        """A function with a text of its own, once."""
        self.texts.setdefault(name, text.strip("\n"))

    def type(self, elem: Elem) -> str:
        """The C type of an element type."""
        if elem in (Elem.F16, Elem.BF16):
            self.types[TYPES[elem]] = None
        return TYPES[elem]


def suffix(elem: Elem) -> str:
    """What the names of the C library's functions end with, and of CUDA's libdevice."""
    return "f" if elem is Elem.F32 else ""


def _indented(body: str) -> str:
    return "\n".join(f"  {line}" for line in body.strip("\n").split("\n"))


Head = Callable[..., tuple[str, str, str]]  # element types -> name, result type, parameters


def _same(name: str, *params: str) -> Head:
    """Operands and result have one type."""
    return lambda e: (f"{name}_{e}", TYPES[e], ", ".join(f"{TYPES[e]} {p}" for p in params))


# ---------------------------------------------------------------- integers


def _wrapping(symbol: str) -> Row:
    def row(h: Helpers, e: Elem) -> str:
        u = UNSIGNED[e]
        return f"return ({TYPES[e]})(({u})a {symbol} ({u})b);"

    return row


def _neg(h: Helpers, e: Elem) -> str:
    return f"return ({TYPES[e]})(0 - ({UNSIGNED[e]})a);"


def _abs(h: Helpers, e: Elem) -> str:
    return f"return a < 0 ? {h.use('neg', e)}(a) : a;"


def _sign(h: Helpers, e: Elem) -> str:
    if not e.is_real:
        return f"return ({TYPES[e]})((a > 0) - (a < 0));" if e.is_signed else "return a > 0;"
    return "return a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a;"


def _floordiv(h: Helpers, e: Elem) -> str:
    if not e.is_signed:
        return "return b == 0 ? 0 : a / b;"
    return f"""
if (b == 0) return 0;
if (b == -1) return {h.use("neg", e)}(a);
return a / b - (a % b != 0 && (a % b < 0) != (b < 0));"""


def _mod(h: Helpers, e: Elem) -> str:
    if e.is_real:
        f = suffix(e)
        return f"""
{TYPES[e]} r = fmod{f}(a, b);
if (isinf(b) && isfinite(a)) return (a < 0) != (b < 0) ? (a == 0 ? a : b) : a;
if (r == 0) return copysign{f}(0, b);
return (r < 0) != (b < 0) ? r + b : r;"""
    if not e.is_signed:
        return "return b == 0 ? 0 : a % b;"
    return f"""
if (b == 0 || b == -1) return 0;
{TYPES[e]} r = a % b;
return r != 0 && (r < 0) != (b < 0) ? r + b : r;"""


def _shl(h: Helpers, e: Elem) -> str:
    return f"return ({TYPES[e]})(({UNSIGNED[e]})a << (n & {e.width - 1}));"


# ---------------------------------------------------------------- extrema: NaN wins, -0 is less than 0


def _extremum(symbol: str, of_zeros: str) -> Row:
    def row(h: Helpers, e: Elem) -> str:
        if not e.is_real:
            return f"return a {symbol} b ? a : b;"
        return f"""
if (a != a || b != b) return a + b;
if (a == 0 && b == 0) return {of_zeros};
return a {symbol} b ? a : b;"""

    return row


# ---------------------------------------------------------------- conversions


def _saturating(h: Helpers, result: Elem, e: Elem) -> str:
    """Truncation; what does not fit becomes the nearest that does, NaN 0. Both bounds are powers of two, or 0, so they are exact."""
    info = np.iinfo(DTYPES[result])
    f = suffix(e)
    low = f"{float(info.min)!r}{f}" if result.is_signed else f"0.0{f}"
    high = f"0x1p{result.width - result.is_signed}{f}"
    kind = f"{'INT' if result.is_signed else 'UINT'}{result.width}"
    least = f"{kind}_MIN" if result.is_signed else "0"
    return f"""
if (x != x) return 0;
if (x <= {low}) return {least};
if (x >= {high}) return {kind}_MAX;
return ({TYPES[result]})x;"""


def _bitcast(h: Helpers, result: Elem, e: Elem) -> str:
    return f"{TYPES[result]} y;\nmemcpy(&y, &x, sizeof y);\nreturn y;"


def _widen(h: Helpers, e: Elem) -> str:
    h.type(e)
    bits = h.use("bitcast", Elem.F32, Elem.U32)
    if e is Elem.BF16:
        return f"return {bits}((uint32_t)x << 16);"
    return f"""
uint32_t size = (uint32_t)(x & 0x7fff) << 13, sign = (uint32_t)(x & 0x8000) << 16;
if ((x & 0x7fff) >= 0x7c00) return {bits}(sign | size | 0x7f800000);
float value = {bits}(size) * 0x1p112f;  /* exponent and mantissa in their places are the number times 2^-112 */
return sign ? -value : value;"""


def _round(h: Helpers, e: Elem) -> str:
    """To nearest, halves to even (Giesen 2014)."""
    h.type(e)
    to_bits, from_bits = h.use("bitcast", Elem.U32, Elem.F32), h.use("bitcast", Elem.F32, Elem.U32)
    if e is Elem.BF16:
        return f"""
uint32_t bits = {to_bits}(x);
if (x != x) return (uint16_t)((bits >> 16) | 0x40);
return (uint16_t)((bits + (bits >> 16 & 1) + 0x7fff) >> 16);"""
    return f"""
uint32_t bits = {to_bits}(x), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
if (size >= 0x47800000) return (uint16_t)(sign | 0x7c00);
if (size < 0x38800000)  /* a subnormal result: adding 0.5 puts its last place into the last place of the sum */
  return (uint16_t)(sign | ({to_bits}({from_bits}(size) + 0.5f) - 0x3f000000));
return (uint16_t)(sign | ((size + (size >> 13 & 1) + 0xc8000fff) >> 13));"""


HELPERS: dict[str, tuple[Head, Row]] = {
    "add":      (_same("add", "a", "b"), _wrapping("+")),
    "sub":      (_same("sub", "a", "b"), _wrapping("-")),
    "mul":      (_same("mul", "a", "b"), _wrapping("*")),
    "neg":      (_same("neg", "a"), _neg),
    "abs":      (_same("abs", "a"), _abs),
    "sign":     (_same("sign", "a"), _sign),
    "floordiv": (_same("floordiv", "a", "b"), _floordiv),
    "mod":      (_same("mod", "a", "b"), _mod),
    "shl":      (_same("shl", "a", "n"), _shl),
    "max":      (_same("max", "a", "b"), _extremum(">", "signbit(a) ? b : a")),
    "min":      (_same("min", "a", "b"), _extremum("<", "signbit(a) ? a : b")),
    "to_int":   (lambda r, e: (f"{r}_of_{e}", TYPES[r], f"{TYPES[e]} x"), _saturating),
    "bitcast":  (lambda r, e: (f"{r}_from_bits_of_{e}", TYPES[r], f"{TYPES[e]} x"), _bitcast),
    "widen":    (lambda e: (f"f32_of_{e}", "float", f"{TYPES[e]} x"), _widen),
    "round":    (lambda e: (f"{e}_of_f32", TYPES[e], "float x"), _round),
}  # fmt: skip

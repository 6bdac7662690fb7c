"""The words of C: types, literals, names, and texts that know how tightly they bind.

Values live in C's own types (`TYPES`). A narrow real is its 16 bits, under a name of its own (`f16`, `bf16`); a string is its
number, a key an unsigned word.
"""

from __future__ import annotations

import math
import re

import numpy as np

from tlc.frontend.narrow_reals import rounded, to_memory
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

TYPES: dict[Elem, str] = {
    Elem.BOOL: "bool", Elem.I8: "int8_t", Elem.I32: "int32_t", Elem.I64: "int64_t", Elem.U8: "uint8_t", Elem.U32: "uint32_t",
    Elem.F16: "f16", Elem.BF16: "bf16", Elem.F32: "float", Elem.F64: "double", Elem.STR: "int64_t", Elem.KEY: "uint64_t",
}  # fmt: skip
assert set(TYPES) == set(Elem), "an element type has no C type"

UNSIGNED: dict[Elem, str] = {Elem.I8: "uint8_t", Elem.I32: "uint32_t", Elem.I64: "uint64_t"}  # of the same width

# How tightly operators bind, from C's grammar.
ASSIGN, CHOICE, OR, AND, BIT_OR, BIT_XOR, BIT_AND, EQUAL, LESS, SHIFT, SUM, PRODUCT, UNARY, PRIMARY = range(14)


@dataclass(frozen=True)
class Text:
    """An expression of C, and the operator outermost in it. `wide`: of a narrow real, the f32 that it is, where that is known."""

    text: str
    binds: int = PRIMARY
    wide: Text | None = None

    def at(self, least: int) -> str:
        """As an operand of something that binds so tightly."""
        return self.text if self.binds >= least else f"({self.text})"

    def __str__(self) -> str:
        return self.text


def call(function: str, *args: Text | str) -> Text:
    return Text(f"{function}({', '.join(map(str, args))})")


def cast(type: str, a: Text) -> Text:
    return Text(f"({type}){a.at(UNARY)}", UNARY)


def infix(a: Text, symbol: str, b: Text, binds: int) -> Text:
    """A binary operator that groups to the left. Where readers (and compilers) want parentheses that C does not ask for, they are set."""
    left, right = binds, binds + 1
    if binds in (BIT_OR, BIT_XOR, BIT_AND, SHIFT):
        left = binds if a.binds == binds and binds is not SHIFT else UNARY
        right = UNARY
    elif binds == OR:
        left, right = (OR if a.binds == OR else EQUAL), EQUAL
    elif binds == EQUAL:
        left = right = SHIFT
    elif binds == LESS:
        left = right = SHIFT + 1
    return Text(f"{a.at(left)} {symbol} {b.at(right)}", binds)


def choice(cond: Text, a: Text, b: Text) -> Text:
    return Text(f"{cond.at(OR)} ? {a.at(CHOICE + 1)} : {b.at(CHOICE)}", CHOICE)


def definition(name: str, elem: Elem, value: Text) -> str:
    return f"const {TYPES[elem]} {name} = {value};"


# ---------------------------------------------------------------- literals


def literal(value: object, elem: Elem) -> Text:
    """A constant of an element type."""
    match elem:
        case Elem.BOOL:
            return Text("true" if value else "false")
        case Elem.F16 | Elem.BF16:
            number = rounded(np.float32(_float(value)), elem)
            bits = int(to_memory(number)) if elem is Elem.BF16 else int(number.view(np.uint16))
            return Text(f"0x{bits:04x}", PRIMARY, _real(float(number), Elem.F32))
        case Elem.F32 | Elem.F64:
            return _real(_float(value), elem)
        case _:
            return _whole(_int(value), elem)


def _float(value: object) -> float:
    assert isinstance(value, bool | int | float)
    return float(value)


def _int(value: object) -> int:
    assert isinstance(value, bool | int | float)
    return int(value)


def _real(value: float, elem: Elem) -> Text:
    """The shortest decimal that reads back in its own type."""
    if math.isnan(value):
        return Text("NAN")
    if math.isinf(value):
        return Text("INFINITY") if value > 0 else Text("-INFINITY", UNARY)
    with np.errstate(over="ignore"):
        digits = str(np.float32(value)) if elem is Elem.F32 else repr(value)
    if "." not in digits and "e" not in digits:
        digits += ".0"
    text = digits + ("f" if elem is Elem.F32 else "")
    return Text(text, UNARY if text.startswith("-") else PRIMARY)


def _whole(value: int, elem: Elem) -> Text:
    if elem in UNSIGNED and value == -(2 ** (elem.width - 1)):
        return Text(f"INT{elem.width}_MIN")
    if elem in UNSIGNED and elem is not Elem.I8 and value == 2 ** (elem.width - 1) - 1:
        return Text(f"INT{elem.width}_MAX")
    if elem in UNSIGNED or elem is Elem.STR:
        text = str(value) if -(2**31) < value < 2**31 else f"INT64_C({value})"
        return Text(text, UNARY if text.startswith("-") else PRIMARY)
    return Text(f"UINT64_C({value})" if elem is Elem.KEY else f"{value}u" if elem is Elem.U32 else str(value))


# ---------------------------------------------------------------- names

# fmt: off
_KEYWORDS = frozenset((  # of C, and what the files use of its library
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto",
    "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unsigned", "void", "volatile", "while", "asm", "typeof", "bool", "true", "false", "linux", "unix", "f16",
    "bf16", "main", "NAN", "INFINITY", "malloc", "free", "memcpy", "fma", "fmaf", "fmod", "fmodf", "sqrt", "sqrtf", "floor", "floorf",
    "ceil", "ceilf", "trunc", "truncf", "rint", "rintf", "fabs", "fabsf", "copysign", "copysignf", "signbit", "isinf", "isfinite",
    "snprintf", "vsnprintf", "stopped", "push", "pop", "tapes", "allocate", "isnan", "y0", "y1", "yn", "j0", "j1", "jn", "gamma",
))
# fmt: on
_HELPERS = re.compile(r".*_(bool|i8|i32|i64|u8|u32|f16|bf16|f32|f64|str|key|t|MIN|MAX)|_.*|INT.*|UINT.*|tlc_.*")


_LOOPS = ("i", "j", "k", "m", "n", "p", "q")


class Names:
    """Names in one scope of C. `of` makes one from a name of the source, another than all before and than C's own."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self.taken = set(taken)

    def of(self, name: str) -> str:
        clean = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name).strip("_") or "v"
        if clean[0].isdigit():
            clean = f"v{clean}"
        if clean in _KEYWORDS or _HELPERS.fullmatch(clean):
            clean += "_"
        return self.first(clean)

    def of_loop(self, name: str) -> str:
        """A name for a loop variable, free again when the loop ends: i, j, k, .. for `i0`, `i1`, ..."""
        base = name.rstrip("0123456789") or name
        for found in _LOOPS if base == "i" else (base,):
            if found not in self.taken:
                self.taken.add(found)
                return found
        return self.of(name)

    def first(self, clean: str) -> str:
        found, k = clean, 1
        while found in self.taken:
            k += 1
            found = f"{clean}{'' if clean.endswith('_') else '_'}{k}"
        self.taken.add(found)
        return found

"""The words of numba.cuda: types, literals, and texts of expressions.

Python groups operators as C does where `backends/c/words.py` sets its parentheses, so texts and their operators are taken from there.

Types. numba makes 64 bits of integers that it adds, and reals of a signed and an unsigned one; so an operation on data names the type of
its result, `int32(a + b)`. An index that is never negative and fits is a variable of type `uint32` (`Small`), because then numba need
not ask at each access whether it counts from the end; what is computed of indices is an `int64`, for which one operand has to be one: a
literal, or else the first operand is made one.

A narrow real is the f32 that it is, and 16 bits in memory; a bool is a byte there.
"""

from __future__ import annotations

import keyword
import math
from dataclasses import replace

import numpy as np

from tlc.backends.c import words as c
from tlc.backends.c.words import UNARY, Names, Text, call
from tlc.frontend.narrow_reals import NARROW, nearest, to_memory
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

VALUES: dict[Elem, str] = {
    Elem.BOOL: "bool", Elem.I8: "int8", Elem.I32: "int32", Elem.I64: "int64", Elem.U8: "uint8", Elem.U32: "uint32",
    Elem.F16: "float32", Elem.BF16: "float32", Elem.F32: "float32", Elem.F64: "float64", Elem.STR: "int64", Elem.KEY: "uint64",
}  # fmt: skip
assert set(VALUES) == set(Elem), "an element type has no type of numba"

MEMORY: dict[Elem, str] = VALUES | {Elem.BOOL: "uint8", Elem.F16: "uint16", Elem.BF16: "uint16"}


@dataclass(frozen=True)
class Small(Text):
    """The name of a `uint32` that is an index."""


@dataclass(frozen=True)
class Narrow(Text):
    """A narrow real whose bits lie in memory: whoever stores it takes those."""

    elem: Elem = Elem.BF16
    bits: str = "0"


def infix(a: Text, symbol: str, b: Text, binds: int) -> Text:
    """A binary operator. Two small indices would give a `uint64`."""
    arithmetic = symbol in ("+", "-", "*", "//", "%")
    return c.infix(whole(a) if arithmetic and isinstance(b, Small) else a, symbol, b, binds)


def whole(a: Text) -> Text:
    """An index as an `int64`."""
    return call("int64", a) if isinstance(a, Small) else a


def choice(cond: Text, a: Text, b: Text) -> Text:
    return Text(f"{a.at(c.OR)} if {cond.at(c.OR)} else {b.at(c.CHOICE)}", c.CHOICE)


# ---------------------------------------------------------------- literals


def literal(value: object, elem: Elem) -> Text:
    """A constant of an element type. `wide` is the bare number, for where the type follows."""
    assert isinstance(value, bool | int | float)
    match elem:
        case Elem.BOOL:
            return Text("True" if value else "False")
        case Elem.F64:
            return _real(float(value), elem)
        case Elem.F32 | Elem.F16 | Elem.BF16:
            if elem in NARROW:
                bare = _real(nearest(float(value), elem), Elem.F32)
                return Narrow(f"float32({bare})", wide=bare, elem=elem, bits=str(_bits(float(value), elem)))
            bare = _real(float(value), Elem.F32)
            return replace(call("float32", bare), wide=bare)
        case Elem.I64 | Elem.STR:
            return _number(int(value))
        case _:
            bare = _number(int(value))
            return replace(call(VALUES[elem], bare), wide=bare)


def _bits(value: float, elem: Elem) -> int:
    """Those of a narrow real."""
    return int(np.float16(nearest(value, elem)).view(np.uint16) if elem is Elem.F16 else to_memory(np.float32(value)))


def _number(value: int) -> Text:
    return Text(str(value), UNARY if value < 0 else c.PRIMARY)


def _real(value: float, elem: Elem) -> Text:
    """The shortest decimal that reads back, as a float of Python that is converted to its type."""
    if math.isnan(value):
        return Text("nan")
    if math.isinf(value):
        return Text("inf") if value > 0 else Text("-inf", UNARY)
    with np.errstate(over="ignore"):
        digits = str(np.float32(value)) if elem is Elem.F32 else repr(value)
        if elem is Elem.F32 and np.float32(float(digits)) != np.float32(value):  # rounded twice
            digits = repr(value)
    if "." not in digits and "e" not in digits:
        digits += ".0"
    return Text(digits, UNARY if digits.startswith("-") else c.PRIMARY)


def bare(a: Text) -> Text:
    """An operand whose type follows from the other one."""
    return a.wide or a


# ---------------------------------------------------------------- names

_TAKEN = frozenset((
    *keyword.kwlist, *VALUES.values(), *MEMORY.values(), "cuda", "range", "min", "max", "abs", "inf", "nan", "isnan",
))  # fmt: skip


def names(more: frozenset[str]) -> Names:
    """Names of a function, other than what Python and the file use; `more` are the file's own."""
    return Names(_TAKEN | more)

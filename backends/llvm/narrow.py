"""Narrow reals in LLVM: from their 16 bits to f32 and back, for scalars and vectors.

Integer arithmetic alone, so that every CPU gives the same, those without such instructions too. Where the CPU converts f16 itself,
that is used: it rounds alike. The bits of a NaN are not kept.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol

from tlc.backends import cpu
from tlc.frontend.types import Elem


class Lines(Protocol):
    """Where instructions go, as in `scalar.py`."""

    def ins(self, text: str) -> str: ...


def widened(lines: Lines, x: str, elem: Elem, lanes: int) -> str:
    """The f32 value of a narrow one."""
    if elem is Elem.F16 and converts_f16():
        return lines.ins(f"fpext {_type('half', lanes)} {_Bits(lines, lanes).cast('i16', x, 'half')} to {_type('float', lanes)}")
    return (_widened_f16 if elem is Elem.F16 else _widened_bf16)(_Bits(lines, lanes), x)


def rounded(lines: Lines, x: str, elem: Elem, lanes: int) -> str:
    """An f32 in the narrow type: the nearest one, of two the even one."""
    b = _Bits(lines, lanes)
    if elem is Elem.F16 and converts_f16():
        return b.cast("half", lines.ins(f"fptrunc {_type('float', lanes)} {x} to {_type('half', lanes)}"), "i16")
    word = (_rounded_f16 if elem is Elem.F16 else _rounded_bf16)(b, x)
    return lines.ins(f"trunc {b.i32} {word} to {_type('i16', lanes)}")


@cache
def converts_f16() -> bool:
    """Whether this CPU has instructions that convert between f16 and f32."""
    return "f16c" in cpu.features()


def _type(name: str, lanes: int) -> str:
    return name if lanes == 1 else f"<{lanes} x {name}>"


class _Bits:
    """Arithmetic on 32-bit words."""

    def __init__(self, lines: Lines, lanes: int) -> None:
        self.lines, self.lanes = lines, lanes
        self.i32, self.i1, self.float = (_type(t, lanes) for t in ("i32", "i1", "float"))

    def const(self, value: int) -> str:
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    def op(self, name: str, a: str, b: str | int) -> str:
        return self.lines.ins(f"{name} {self.i32} {a}, {self.const(b) if isinstance(b, int) else b}")

    def select(self, cond: str, a: str | int, b: str | int) -> str:
        x, y = (self.const(v) if isinstance(v, int) else v for v in (a, b))
        return self.lines.ins(f"select {self.i1} {cond}, {self.i32} {x}, {self.i32} {y}")

    def compare(self, how: str, a: str, b: int) -> str:
        return self.lines.ins(f"icmp {how} {self.i32} {a}, {self.const(b)}")

    def cast(self, source: str, x: str, target: str) -> str:
        return self.lines.ins(f"bitcast {_type(source, self.lanes)} {x} to {_type(target, self.lanes)}")

    def word(self, x: str) -> str:
        """16 bits as 32."""
        return self.lines.ins(f"zext {_type('i16', self.lanes)} {x} to {self.i32}")

    def real(self, name: str, a: str, bits: int) -> str:
        """A real op on the bits of two numbers, the second a constant."""
        other = self.cast("i32", self.const(bits), "float")
        return self.cast("float", self.lines.ins(f"{name} {self.float} {self.cast('i32', a, 'float')}, {other}"), "i32")


def _widened_bf16(b: _Bits, x: str) -> str:
    return b.cast("i32", b.op("shl", b.word(x), 16), "float")


def _rounded_bf16(b: _Bits, x: str) -> str:
    bits = b.cast("float", x, "i32")
    odd = b.op("and", b.op("lshr", bits, 16), 1)
    near = b.op("lshr", b.op("add", b.op("add", bits, odd), 0x7FFF), 16)
    nan = b.compare("ugt", b.op("and", bits, 0x7FFFFFFF), 0x7F800000)
    return b.select(nan, b.op("or", b.op("lshr", bits, 16), 0x40), near)


def _widened_f16(b: _Bits, x: str) -> str:
    """The exponent and the mantissa moved to their places make the number times 2 ** -112, a subnormal one too."""
    word = b.word(x)
    size = b.op("and", word, 0x7FFF)
    moved = b.op("shl", size, 13)
    finite = b.real("fmul", moved, (127 + 112) << 23)
    special = b.op("or", moved, 0x7F800000)
    value = b.select(b.compare("uge", size, 0x7C00), special, finite)
    return b.cast("i32", b.op("or", value, b.op("shl", b.op("and", word, 0x8000), 16)), "float")


def _rounded_f16(b: _Bits, x: str) -> str:
    """Below 2 ** -14 the addition of 0.5 rounds: the last place of the sum is that of a subnormal f16 (Giesen 2014)."""
    bits = b.cast("float", x, "i32")
    size = b.op("and", bits, 0x7FFFFFFF)
    sign = b.op("and", b.op("lshr", bits, 16), 0x8000)
    half = 126 << 23
    small = b.op("sub", b.real("fadd", size, half), half)
    odd = b.op("and", b.op("lshr", size, 13), 1)
    near = b.op("lshr", b.op("add", b.op("add", size, odd), ((15 - 127) << 23) + 0xFFF), 13)
    special = b.select(b.compare("ugt", size, 0x7F800000), 0x7E00, 0x7C00)
    value = b.select(b.compare("ult", size, 113 << 23), small, near)
    value = b.select(b.compare("uge", size, 143 << 23), special, value)
    return b.op("or", value, sign)

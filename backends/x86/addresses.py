"""Addresses of elements: what `[base + index * scale + offset]` holds of a position, so that no instruction computes it.

load %a, %i + 1    ->   [a + i * 8 + 8]           load %a, 3   ->   [a + 24]
load %a, %i * 2    ->   [a + i * 8]  (elements of 4 bytes)
"""

from __future__ import annotations

from tlc.backends.x86.ops import Address
from tlc.backends.x86.selector import Selector, fits
from tlc.regalloc.ir import VReg
from tlc.ssa.ir import Value

SCALES = (1, 2, 4, 8)


def element(s: Selector, tensor: Value, position: Value) -> Address:
    """The address of an element of a tensor at a position in row-major order."""
    return displaced(s, s.reg(tensor), position, tensor.type.elem.bytes)


def displaced(s: Selector, base: VReg, position: Value, size: int) -> Address:
    """`position` times `size` bytes behind an address."""
    value, scale, offset = split(s, position, size)
    if value is None:
        return Address(base, offset=offset)
    if scale not in SCALES:
        raise s.fault(f"elements of {scale} bytes")
    return Address(base, s.reg(value), scale, offset)


def split(s: Selector, position: Value, size: int) -> tuple[Value | None, int, int]:
    """`position * size` as `value * scale + offset`, with as much as possible in the constants."""
    value: Value = position
    scale, offset = size, 0
    while True:
        literal = s.parts.literal(value)
        if literal is not None and fits(offset + int(literal) * scale):
            return None, 1, offset + int(literal) * scale
        maker = s.producer(value, "add", "sub", "mul", "shl")
        if maker is None or maker.result.type.elem.width != 64:
            return value, scale, offset
        a, b = maker.operands
        c = s.parts.literal(b)
        if c is None and maker.op in ("add", "mul"):
            a, b, c = b, a, s.parts.literal(a)
        if c is None:
            return value, scale, offset
        number = int(c)
        match maker.op:
            case "add" | "sub" if fits(offset + (number if maker.op == "add" else -number) * scale):
                offset += (number if maker.op == "add" else -number) * scale
            case "mul" if scale * number in SCALES:
                scale *= number
            case "shl" if scale << (number & 63) in SCALES:
                scale <<= number & 63
            case _:
                return value, scale, offset
        value = a

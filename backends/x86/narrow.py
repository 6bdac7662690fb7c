"""Narrow reals on x86: held as the f32 that they are, rounded after every op, 16 bits in memory and in calls of C.

The CPU converts f16 itself. Of bf16 the upper half of an f32 is kept, rounded to nearest, halves to even:

    bits + 0x7FFF + (bit 16 of bits)     then the lower half dropped; a NaN gets the top bit of its mantissa set instead
"""

from __future__ import annotations

from tlc.backends.x86.ops import Address
from tlc.backends.x86.selector import Selector
from tlc.frontend.types import Elem
from tlc.regalloc.ir import Bank, VReg
from tlc.ssa.ir import Instr


def unrounded(s: Selector, instr: Instr) -> VReg:
    """Where an op of reals leaves its result: in the result's register, unless it must be rounded."""
    if instr.result.type.elem in (Elem.F16, Elem.BF16):
        return s.new(Bank.REAL)
    return s.result(instr)


def round_result(s: Selector, instr: Instr, wide: VReg) -> None:
    """Round an f32 to the type of the result, if that is narrow."""
    if instr.result.type.elem in (Elem.F16, Elem.BF16):
        round_to(s, s.result(instr), wide, instr.result.type.elem)


def round_to(s: Selector, result: VReg, wide: VReg, elem: Elem) -> None:
    """The narrow real nearest to an f32, as an f32."""
    if elem is Elem.F16:
        s.ins("f16_to_f", result, s.make("f_to_f16", wide))
    else:
        s.ins("bits_to_f", result, s.make("and_i", _rounded_bf16(s, wide), imm=-0x10000, w=32), w=32)


def to_bits(s: Selector, value: VReg, elem: Elem) -> VReg:
    """The 16 bits of a narrow real, in the low bits of an integer register."""
    if elem is Elem.F16:
        return s.make("f_to_f16", value)
    return s.make("shr_i", s.make("f_to_bits", value, w=32), imm=16, w=32)


def from_bits(s: Selector, result: VReg, bits: VReg, elem: Elem) -> None:
    """A narrow real from its 16 bits."""
    if elem is Elem.F16:
        s.ins("f16_to_f", result, bits)
    else:
        s.ins("bits_to_f", result, s.make("shl_i", bits, imm=16, w=32), w=32)


def load(s: Selector, result: VReg, mem: Address, elem: Elem) -> None:
    from_bits(s, result, s.make("load", mem=mem, w=16, ext="z"), elem)


def store(s: Selector, value: VReg, mem: Address, elem: Elem) -> None:
    s.ins("store", to_bits(s, value, elem), mem=mem, w=16)


def _rounded_bf16(s: Selector, wide: VReg) -> VReg:
    """The bits of an f32, of which the upper half is the rounded number."""
    bits = s.make("f_to_bits", wide, w=32)
    odd = s.make("and_i", s.make("shr_i", bits, imm=16, w=32), imm=1, w=32)
    near = s.make("add_i", s.make("add", bits, odd, w=32), imm=0x7FFF, w=32)
    quiet = s.make("or_i", bits, imm=0x400000, w=32)
    size = s.make("and_i", bits, imm=0x7FFFFFFF, w=32)
    return s.make("choose_i", near, quiet, size, cc="a", imm=0x7F800000, w=32, vw=32)

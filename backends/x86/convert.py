"""Conversions between scalars: extensions, cuts, saturation.

A real becomes an integer by truncation; what lies outside becomes the nearest integer of the type, and NaN becomes 0. The instruction
gives the least integer for all of these. So NaN is masked to 0 first, and what is too large is cut down while it still is a
real, where the bounds are reals exactly, or replaced afterwards:

    i32 of f64 x:   t = x where x = x, else 0;  max(min(t, 2147483647.0), -2147483648.0);  convert
    i64 of f64 x:   t as above;  convert (what is too small gives the least already);  the greatest integer where t >= 2^63
"""

from __future__ import annotations

from tlc.backends.x86 import narrow
from tlc.backends.x86.conditions import compare, condition
from tlc.backends.x86.selector import Selector
from tlc.frontend.types import Elem
from tlc.regalloc.ir import VReg
from tlc.ssa.ir import Instr, Value


def extended(s: Selector, value: Value, w: int = 32) -> VReg:
    """An integer in `w` bits of a register."""
    elem, register = value.type.elem, s.reg(value)
    load = s.producer(value, "load")
    if elem.width >= w or (load is not None and load.result.type.elem is elem):  # loads extend to the whole register
        return register
    return s.make("sx" if elem.is_signed else "zx", register, from_=elem.width, w=w)


def convert(s: Selector, instr: Instr) -> None:
    (a,) = instr.operands
    source, target = a.type.elem, instr.result.type.elem
    if target is Elem.BOOL:
        if source.is_real:
            w = _width(source)
            s.ins("fset", s.result(instr), s.reg(a), s.real(0.0, w), cc="ne", w=w)
        else:
            compare(s, "set", (s.result(instr),), condition(s, instr.result))
    elif source.is_real and target.is_real:
        _between_reals(s, instr, source, target)
    elif source.is_real:
        _to_integer(s, s.result(instr), s.reg(a), source, target)
    elif target.is_real:
        _to_real(s, instr, a, target)
    else:
        w = max(target.width, 32)
        s.ins("sx" if source.is_signed else "zx", s.result(instr), s.reg(a), from_=source.width, w=w)


def bitcast(s: Selector, instr: Instr) -> None:
    (a,) = instr.operands
    op = "bits_to_f" if instr.result.type.elem.is_real else "f_to_bits"
    s.ins(op, s.result(instr), s.reg(a), w=a.type.elem.width)


def _width(elem: Elem) -> int:
    return 64 if elem is Elem.F64 else 32


def _between_reals(s: Selector, instr: Instr, source: Elem, target: Elem) -> None:
    value = s.reg(instr.operands[0])
    if target is Elem.F64 or target is Elem.F32:
        s.ins("f_to_f", s.result(instr), value, w=_width(target))
        return
    narrow.round_result(s, instr, s.make("f_to_f", value, w=32) if source is Elem.F64 else value)


def _to_real(s: Selector, instr: Instr, a: Value, target: Elem) -> None:
    source = a.type.elem
    bits = 64 if source.width == 64 or source is Elem.U32 else 32
    value = s.reg(a) if source is Elem.BOOL else extended(s, a, bits)
    wide = narrow.unrounded(s, instr)
    s.ins("int_to_f", wide, value, from_=bits, w=_width(target))
    narrow.round_result(s, instr, wide)


def _to_integer(s: Selector, result: VReg, x: VReg, source: Elem, target: Elem) -> None:
    w = _width(source)
    if target.width == 32 and w == 32:  # its bounds are reals of f64 only
        x, w = s.make("f_to_f", x, w=64), 64
    number = s.make("fand", x, s.make("fmask", x, x, cc="ord", w=w), w=w)
    if target is Elem.I64:
        whole = s.make("f_to_int", number, from_=w, w=64)
        greatest = s.integer(2**63 - 1)
        s.ins("choose_f", result, whole, greatest, number, s.real(2.0**63, w), cc="ge", w=w, vw=64)
        return
    least = -(1 << target.width - 1) if target.is_signed else 0
    most = (1 << (target.width - 1 if target.is_signed else target.width)) - 1
    cut = s.make("fmax", s.make("fmin", number, s.real(float(most), w), w=w), s.real(float(least), w), w=w)
    s.ins("f_to_int", result, cut, from_=w, w=64 if target is Elem.U32 else 32)

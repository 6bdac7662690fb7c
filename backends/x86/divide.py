"""Division and modulus of integers, rounded down.

By a constant there is no division: Granlund and Montgomery, "Division by invariant integers using multiplication" (1994). For a number
y of at most n bits, and with m = ceil(2^k / d) such that m d - 2^k <= 2^(k - n),

    y // d  =  (y m) >> k

A negative number is divided through its complement, which is not negative, so that the quotient is rounded down:

    x // d  =  ~(~x // d)        or for either sign, with s = x >> 63:   ((x ^ s) // d) ^ s

and powers of two are shifts and masks: `x >> 3` and `x & 7` round down by themselves.

By a variable: the instruction rounds towards zero, and traps where the divisor is 0 or the quotient does not exist. Division is total
here (0 for a divisor of 0), so the divisor is made 1 in these cases, unless it is known to be none of them; then quotient and
remainder are moved down where the remainder's sign is not the divisor's:

    r != 0 and (r ^ y) < 0   ->   q - 1, r + y
"""

from __future__ import annotations

from tlc.backends.x86.convert import extended
from tlc.backends.x86.selector import Selector, fits
from tlc.frontend.types import Elem
from tlc.regalloc.ir import VReg
from tlc.ssa.ir import Instr, Value


def floordiv(s: Selector, instr: Instr) -> None:
    x, y = instr.operands
    elem, result = x.type.elem, s.result(instr)
    w = _width(elem)
    match _constant(s, y):
        case 0:
            s.ins("mov_i", result, imm=0, w=w)
        case 1:
            s.copy(result, s.reg(x))
        case int(d) if d > 0 and d & (d - 1) == 0:
            s.ins("sar_i" if elem.is_signed else "shr_i", result, extended(s, x, w), imm=d.bit_length() - 1, w=w)
        case int(d) if d > 0:
            _by_constant(s, x, d, result)
        case _:
            _by_variable(s, instr)


def mod(s: Selector, instr: Instr) -> None:
    x, y = instr.operands
    elem, result = x.type.elem, s.result(instr)
    w = _width(elem)
    match _constant(s, y):
        case 0 | 1 | -1:
            s.ins("mov_i", result, imm=0, w=w)
        case int(d) if d > 0 and d & (d - 1) == 0:
            if fits(d - 1):
                s.ins("and_i", result, s.reg(x), imm=d - 1, w=w)
            else:
                s.ins("and", result, s.reg(x), s.integer(d - 1), w=w)
        case int(d) if d > 0:
            quotient = s.new()
            _by_constant(s, x, d, quotient)
            s.ins("sub", result, s.reg(x), _times(s, quotient, d, w), w=w)
        case _:
            _by_variable(s, instr)


def _width(elem: Elem) -> int:
    return 64 if elem.width == 64 else 32


def _constant(s: Selector, y: Value) -> int | None:
    literal = s.parts.literal(y)
    return None if literal is None else int(literal)


# ---------------------------------------------------------------- by a constant


def multiplier(d: int, bits: int, least: int) -> tuple[int, int]:
    """m and k with `y // d == (y * m) >> k` for every y of so many bits; k is the smallest that works and is not below `least`.

    For d = 10 and 7 bits: from 7 on, k = 10 is the first for which 10 m - 2^k is at most 2^(k - 7): m = 103, and 1030 - 1024 <= 8.
    """
    k = least
    while True:
        m = -(-(1 << k) // d)
        if m * d - (1 << k) <= (1 << k >> bits if k >= bits else 0):
            return m, k
        k += 1


def _by_constant(s: Selector, x: Value, d: int, result: VReg) -> None:
    """x // d for a constant d > 0, in the bits of x's type."""
    elem = x.type.elem
    w = 64 if elem.width >= 32 else 32
    value, (least, most) = extended(s, x, w), s.range(x)
    bits = max(most, ~least).bit_length()  # of the number, or of its complement
    if not elem.is_signed or s.at_least(x, 0):
        _multiplied(s, value, d, most.bit_length(), w, result)
        return
    sign, quotient = s.make("sar_i", value, imm=w - 1, w=w), s.new()
    _multiplied(s, s.make("xor", value, sign, w=w), d, bits, w, quotient)
    s.ins("xor", result, quotient, sign, w=w)


def _multiplied(s: Selector, y: VReg, d: int, bits: int, w: int, result: VReg) -> None:
    """y // d for y of so many bits: by the low half of the product if it holds all, else by the high one."""
    if d >> bits:
        s.ins("mov_i", result, imm=0, w=w)
        return
    m, k = multiplier(d, bits, bits)
    if m.bit_length() + bits <= w:
        s.ins("shr_i", result, _times(s, y, m, w), imm=k, w=w)
        return
    m, k = multiplier(d, bits, 64)
    high = s.new() if k > 64 else result
    s.ins("mul_hi", high, s.new(), y, s.integer(m), w=64)
    if k > 64:
        s.ins("shr_i", result, high, imm=k - 64, w=64)


def _times(s: Selector, value: VReg, by: int, w: int) -> VReg:
    return s.make("imul_i", value, imm=by, w=w) if fits(by) else s.make("imul", value, s.integer(by), w=w)


# ---------------------------------------------------------------- by a variable


def _by_variable(s: Selector, instr: Instr) -> None:
    """Quotient and remainder of two numbers come from one instruction, at the first place of the block that asks for either."""
    together = s.divisions[s.division(instr)]
    if together[0] is not instr:
        s.forced.add(together[0])
        return
    x, y = instr.operands
    quotients, remainders = ([s.result(i) for i in together if i.op == op and s.asked(i.result)] for op in ("floordiv", "mod"))
    quotient, remainder = (found[0] if found else None for found in (quotients, remainders))
    if x.type.elem.is_signed:
        _signed(s, x, y, quotient, remainder)
    else:
        _unsigned(s, x, y, quotient, remainder)
    for found in (quotients, remainders):
        for other in found[1:]:
            s.copy(other, found[0])


def _unsigned(s: Selector, x: Value, y: Value, quotient: VReg | None, remainder: VReg | None) -> None:
    w = _width(x.type.elem)
    divisor, known = extended(s, y, w), s.not_zero(y)
    q = quotient if quotient is not None and known else s.new()
    _divide(s, (q, remainder or s.new()), (x, y), extended(s, x, w), divisor if known else _one_for_zero(s, divisor, w), w)
    if quotient is not None and not known:
        s.ins("choose_i", quotient, q, s.integer(0, w), divisor, imm=0, cc="eq", w=w, vw=w)


def _signed(s: Selector, x: Value, y: Value, quotient: VReg | None, remainder: VReg | None) -> None:
    w = _width(x.type.elem)
    value, divisor = extended(s, x, w), extended(s, y, w)
    positive = s.at_least(y, 1)
    if positive and s.at_least(x, 0):
        _divide(s, (quotient or s.new(), remainder or s.new()), (x, y), value, divisor, w)
        return
    not_zero = positive or s.not_zero(y)
    overflows = not positive and x.type.elem.width >= 32 and _constant(s, y) in (None, -1)  # 8 bits are divided in 32
    safe = divisor if not_zero else _one_for_zero(s, divisor, w)
    if overflows:
        safe = s.make("choose_i", safe, s.integer(1, w), divisor, imm=-1, cc="eq", w=w, vw=w)
    q, r = s.new(), s.new()
    s.ins("idiv", q, r, value, safe, w=w)
    if remainder is not None:
        _rounded_remainder(s, remainder, r, divisor, positive, w)
    if quotient is not None:
        _rounded_quotient(s, quotient, q, r, (value, divisor, safe), (positive, not_zero, overflows), w)


def _divide(s: Selector, results: tuple[VReg, VReg], values: tuple[Value, Value], a: VReg, b: VReg, w: int) -> None:
    """Without sign; numbers of 32 bits in less time."""
    if w == 64 and all(s.range(v)[1] < 1 << 32 for v in values):
        short = s.new(), s.new()
        s.ins("udiv", *short, a, b, w=32)
        for to, v in zip(results, short, strict=True):
            s.ins("zx", to, v, from_=32, w=64)
    else:
        s.ins("udiv", *results, a, b, w=w)


def _one_for_zero(s: Selector, divisor: VReg, w: int) -> VReg:
    return s.make("choose_i", divisor, s.integer(1, w), divisor, imm=0, cc="eq", w=w, vw=w)


def _rounded_remainder(s: Selector, result: VReg, r: VReg, divisor: VReg, positive: bool, w: int) -> None:
    """Down. x mod 1 is 0, as is x mod -1 and what stands for x mod 0: a divisor of 1 instead is right at once."""
    if positive:
        sign = s.make("sar_i", r, imm=w - 1, w=w)
        s.ins("add", result, r, s.make("and", sign, divisor, w=w), w=w)
        return
    step = s.make("choose_i", divisor, s.integer(0, w), r, imm=0, cc="eq", w=w, vw=w)
    apart, moved = s.make("xor", r, step, w=w), s.make("add", r, step, w=w)
    s.ins("choose_i", result, r, moved, apart, imm=0, cc="lt", w=w, vw=w)


def _rounded_quotient(
    s: Selector, result: VReg, q: VReg, r: VReg, given: tuple[VReg, VReg, VReg], known: tuple[bool, bool, bool], w: int
) -> None:
    value, divisor, safe = given
    positive, not_zero, overflows = known
    if positive:
        down = s.make("sar_i", r, imm=w - 1, w=w)
    else:
        apart = s.make("sar_i", s.make("xor", r, safe, w=w), imm=w - 1, w=w)
        down = s.make("choose_i", apart, s.integer(0, w), r, imm=0, cc="eq", w=w, vw=w)
    moved = result if not_zero and not overflows else s.new()
    s.ins("add", moved, q, down, w=w)
    if overflows:
        total = result if not_zero else s.new()
        s.ins("choose_i", total, moved, s.make("neg", value, w=w), divisor, imm=-1, cc="eq", w=w, vw=w)
        moved = total
    if not not_zero:
        s.ins("choose_i", result, moved, s.integer(0, w), divisor, imm=0, cc="eq", w=w, vw=w)

"""Scalar ops as machine instructions: one table, total over `SCALAR_OPS` without the ops that `legalize.py` takes away.

Every form computes what the row's `evaluate` in `frontend/ops.py` computes, bit for bit (but for the bits of a NaN). Integers are
computed in 32 or 64 bits; the bits above an 8-bit number mean nothing, so who needs them extends it. A bool is 0 or 1 in
all 64 bits. A narrow real is held as the f32 that it is: its ops are those of f32, whose results are rounded (`narrow.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tlc.backends.x86 import convert, divide, narrow
from tlc.backends.x86.conditions import Condition, compare, compared_width, condition, loaded
from tlc.backends.x86.legalize import EXPANDED
from tlc.backends.x86.ops import Address
from tlc.backends.x86.selector import Selector
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.regalloc.ir import VReg
from tlc.ssa.ir import Instr, Value

Form = Callable[[Selector, Instr], None]


def width(elem: Elem) -> int:
    """How many bits an op on the type computes. A bool is all of its register."""
    if elem.is_real:
        return 64 if elem is Elem.F64 else 32
    return 32 if elem.is_int and elem.width <= 32 else 64


def select_scalar(s: Selector, instr: Instr) -> None:
    """Write a scalar op; its result has been asked for."""
    FORMS[instr.op](s, instr)


# ---------------------------------------------------------------- two operands


def _binary(real: str, integer: str, commutative: bool) -> Form:
    def form(s: Selector, instr: Instr) -> None:
        a, b = instr.operands
        if instr.result.type.elem.is_real:
            _real_binary(s, instr, real, a, b, commutative)
        else:
            _integer_binary(s, instr, integer, a, b, commutative)

    return form


def _real_binary(s: Selector, instr: Instr, op: str, a: Value, b: Value, commutative: bool) -> None:
    w = width(instr.result.type.elem)
    if commutative and loaded_here(s, a, w) and not loaded_here(s, b, w):
        a, b = b, a
    place = loaded(s, b, w)
    result = narrow.unrounded(s, instr)
    if place is not None:
        s.ins(f"{op}_m", result, s.reg(a), mem=place, w=w)
    else:
        s.ins(op, result, s.reg(a), s.reg(b), w=w)
    narrow.round_result(s, instr, result)


def _integer_binary(s: Selector, instr: Instr, op: str, a: Value, b: Value, commutative: bool) -> None:
    w, result = width(instr.result.type.elem), s.result(instr)
    if commutative and s.immediate(a) is not None:
        a, b = b, a
    imm = s.immediate(b)
    if imm is not None:
        s.ins(f"{op}_i", result, s.reg(a), imm=imm, w=w)
        return
    memory = _memory_width(instr.result.type.elem)
    if commutative and loaded_here(s, a, memory) and not loaded_here(s, b, memory):
        a, b = b, a
    place = loaded(s, b, memory) if memory == w else None
    if place is not None:
        s.ins(f"{op}_m", result, s.reg(a), mem=place, w=w)
        return
    if commutative and s.dies(b) and not s.dies(a):
        a, b = b, a
    s.ins(op, result, s.reg(a), s.reg(b), w=w)


def _memory_width(elem: Elem) -> int:
    """How many bits an integer has in memory."""
    return elem.width


def loaded_here(s: Selector, value: Value, w: int) -> bool:
    return s.memory(value, w) is not None


def _add(s: Selector, instr: Instr) -> None:
    """Sums of two values, one of them times 2, 4 or 8, and a constant are one address."""
    elem = instr.result.type.elem
    if elem.is_real:
        _real_binary(s, instr, "fadd", instr.operands[0], instr.operands[1], commutative=True)
        return
    for a, b in (instr.operands, instr.operands[::-1]):
        imm = s.immediate(b)
        mem = _scaled_sum(s, a, b) if imm is None else _sum_and_constant(s, a, imm)
        if mem is not None:
            s.ins("lea", s.result(instr), mem=mem, w=width(elem))
            return
    _integer_binary(s, instr, "add", instr.operands[0], instr.operands[1], commutative=True)


def _scaled_sum(s: Selector, a: Value, b: Value) -> Address | None:
    """a + b as an address, where b is another value times 2, 4 or 8."""
    scaled = _scaled(s, b)
    return None if scaled is None or s.immediate(a) is not None else Address(s.reg(a), s.reg(scaled[0]), scaled[1])


def _sum_and_constant(s: Selector, a: Value, imm: int) -> Address | None:
    """a + a constant as an address, where a is the sum of two values, or one times 3, 5 or 9, for this reader only."""
    inner = s.producer(a, "add", "mul")
    if inner is None or inner.result.type.elem is not a.type.elem or not s.only_here(a):
        return None
    x, y = inner.operands
    if s.immediate(x) is not None:
        x, y = y, x
    factor = s.immediate(y)
    if inner.op == "mul":
        return Address(s.reg(x), s.reg(x), factor - 1, imm) if factor in (3, 5, 9) else None
    if factor is not None or any(loaded_here(s, v, a.type.elem.width) for v in (x, y)):
        return None
    return Address(s.reg(x), s.reg(y), 1, imm)


def _scaled(s: Selector, value: Value) -> tuple[Value, int] | None:
    """A value that is another times 2, 4 or 8, computed for one reader only."""
    maker = s.producer(value, "shl", "mul")
    if maker is None or maker.result.type.elem.width < 32 or not s.only_here(value):
        return None
    a, b = maker.operands
    if maker.op == "mul" and s.immediate(b) is None:
        a, b = b, a
    imm = s.immediate(b)
    if imm is None:
        return None
    scale = 1 << (imm & 63) if maker.op == "shl" else imm
    return (a, scale) if scale in (2, 4, 8) and value.type.elem.width == a.type.elem.width else None


def _sub(s: Selector, instr: Instr) -> None:
    a, b = instr.operands
    if instr.result.type.elem.is_real:
        _real_binary(s, instr, "fsub", a, b, commutative=False)
        return
    w, result = width(instr.result.type.elem), s.result(instr)
    imm = s.immediate(b)
    if imm is not None and imm != -(1 << 31):
        s.ins("add_i", result, s.reg(a), imm=-imm, w=w)
    elif s.parts.literal(a) == 0:
        s.ins("neg", result, s.reg(b), w=w)
    else:
        _integer_binary(s, instr, "sub", a, b, commutative=False)


def _mul(s: Selector, instr: Instr) -> None:
    a, b = instr.operands
    if instr.result.type.elem.is_real:
        _real_binary(s, instr, "fmul", a, b, commutative=True)
        return
    if s.immediate(a) is not None:
        a, b = b, a
    w, result, imm = width(instr.result.type.elem), s.result(instr), s.immediate(b)
    if imm is None:
        _integer_binary(s, instr, "imul", a, b, commutative=True)
    elif imm in (3, 5, 9):
        x = s.reg(a)
        s.ins("lea", result, mem=Address(x, x, imm - 1), w=w)
    elif imm > 1 and imm & (imm - 1) == 0:
        s.ins("shl_i", result, s.reg(a), imm=imm.bit_length() - 1, w=w)
    else:
        s.ins("imul_i", result, s.reg(a), imm=imm, w=w)


def _logic(op: str) -> Form:
    return lambda s, instr: _integer_binary(s, instr, op, instr.operands[0], instr.operands[1], commutative=True)


def _not(s: Selector, instr: Instr) -> None:
    (a,) = instr.operands
    if a.type.elem is Elem.BOOL:
        _set(s, instr)
    else:
        s.ins("not", s.result(instr), s.reg(a), w=width(a.type.elem))


def _shift(left: bool) -> Form:
    def form(s: Selector, instr: Instr) -> None:
        a, b = instr.operands
        elem = instr.result.type.elem
        w, result = width(elem), s.result(instr)
        op = "shl" if left else "sar" if elem.is_signed else "shr"
        value = s.reg(a) if left or elem.width == w else convert.extended(s, a)
        imm = s.immediate(b)
        if imm is not None:
            s.ins(f"{op}_i", result, value, imm=imm & (elem.width - 1), w=w)
            return
        count = s.reg(b)
        if elem.width != w:
            count = s.make("and_i", count, imm=elem.width - 1, w=w)
        s.ins(op, result, value, count, w=w)

    return form


# ---------------------------------------------------------------- comparisons and choices


def _set(s: Selector, instr: Instr) -> None:
    """The bool of a comparison."""
    compare(s, "set", (s.result(instr),), condition(s, instr.result))


def _select(s: Selector, instr: Instr) -> None:
    cond, then, other = instr.operands
    c = condition(s, cond)
    if _is_bool(c) and _one_more(s, then, other) and instr.result.type.elem is Elem.I64:
        assert isinstance(c.a, Value)
        s.ins("add", s.result(instr), s.reg(other), s.reg(c.a), w=64)
        return
    _choose(s, instr, c, then, other)


def _is_bool(c: Condition) -> bool:
    """Whether a condition is a bool that is there already."""
    return c.cc == "ne" and c.b == 0 and not c.mask and c.a.type.elem is Elem.BOOL


def _one_more(s: Selector, then: Value, other: Value) -> bool:
    """Whether one value is the other plus 1."""
    maker = s.producer(then, "add")
    return maker is not None and s.immediate(maker.operands[1]) == 1 and s.parts.of(maker.operands[0]) == s.parts.of(other)


def _choose(s: Selector, instr: Instr, c: Condition, then: Value, other: Value) -> None:
    """`then` where a condition holds. The register of `other` is written over, so it should be the one that nobody reads again."""
    result, elem = s.result(instr), instr.result.type.elem
    if elem.is_real:
        _choose_real(s, result, c, then, other)
        return
    if not s.dies(other) and s.dies(then) and s.parts.literal(other) is None:
        then, other, c = other, then, c.negated
    compare(s, "choose", (result, s.reg(other), s.reg(then)), c, vw=width(elem))


def _choose_real(s: Selector, result: VReg, c: Condition, then: Value, other: Value) -> None:
    """A comparison of reals gives a mask of their width; so f32 are compared as f64 where f64 are chosen, which changes no answer."""
    w = width(then.type.elem)
    if c.real and c.width < w:
        assert isinstance(c.b, Value)
        a, b = (s.make("f_to_f", s.reg(v), w=w) for v in (c.a, c.b))
        s.ins("fchoose", result, s.reg(other), s.reg(then), a, b, cc=c.cc, w=w)
        return
    attrs: dict[str, Any] = {} if c.real else {"vw": w}
    compare(s, "fchoose", (result, s.reg(other), s.reg(then)), c, **attrs)


def _extremum(real: str, signed: str, unsigned: str) -> Form:
    def form(s: Selector, instr: Instr) -> None:
        a, b = instr.operands
        elem = instr.result.type.elem
        if elem.is_real:
            _real_extremum(s, instr, real)
            return
        imm = s.immediate(b)
        c = Condition(signed if elem.is_signed else unsigned, a, b if imm is None else imm, compared_width(elem))
        _choose(s, instr, c, a, b)

    return form


def _real_extremum(s: Selector, instr: Instr, op: str) -> None:
    """The instructions give the second operand where both are zero or one is NaN. So both orders are asked: of zeros, `or` then keeps
    the sign (min) and `and` drops it (max); a NaN with its exponent of ones stays one under `or`, and max sets all bits for it.
    """
    w = width(instr.result.type.elem)
    if _with_constant(s, instr, op, w):
        return
    a, b = (s.reg(v) for v in instr.operands)
    first, second = s.make(op, a, b, w=w), s.make(op, b, a, w=w)
    if op == "fmin":
        s.ins("for", s.result(instr), first, second, w=w)
    else:
        s.ins("for", s.result(instr), s.make("fand", first, second, w=w), s.make("fmask", a, b, cc="uno", w=w), w=w)


def _with_constant(s: Selector, instr: Instr, op: str, w: int) -> bool:
    """`max` or `min` with a constant c: `op(c, x)` gives x where x is NaN and where both are zero, which is right but for the zero that
    must win, as +0 does in `max`. Adding +0 makes -0 that and leaves everything else as it is.
    """
    for c, x in (instr.operands, instr.operands[::-1]):
        literal = s.parts.literal(c)
        if literal is None or math.isnan(float(literal)):
            continue
        wins = literal == 0 and (math.copysign(1.0, float(literal)) > 0) == (op == "fmax")
        if not wins:
            s.ins(op, s.result(instr), s.reg(c), s.reg(x), w=w)
        elif op == "fmax":
            s.ins("fadd", s.result(instr), s.make(op, s.reg(c), s.reg(x), w=w), s.reg(c), w=w)
        else:
            continue
        return True
    return False


# ---------------------------------------------------------------- one operand


def _neg(s: Selector, instr: Instr) -> None:
    real, w = instr.result.type.elem.is_real, width(instr.result.type.elem)
    s.ins("fneg" if real else "neg", s.result(instr), s.reg(instr.operands[0]), w=w)


def _abs(s: Selector, instr: Instr) -> None:
    (a,) = instr.operands
    elem, result = a.type.elem, s.result(instr)
    w = width(elem)
    if elem.is_real:
        s.ins("fabs", result, s.reg(a), w=w)
    elif not elem.is_signed:
        s.copy(result, s.reg(a))
    else:
        x = s.reg(a)
        s.ins("choose_i", result, s.make("neg", x, w=w), x, x, cc="gt", imm=0, w=elem.width, vw=w)


def _real_unary(op: str, **attrs: Any) -> Form:
    def form(s: Selector, instr: Instr) -> None:
        result = narrow.unrounded(s, instr)
        s.ins(op, result, s.reg(instr.operands[0]), w=width(instr.result.type.elem), **attrs)
        narrow.round_result(s, instr, result)

    return form


def _fma(s: Selector, instr: Instr) -> None:
    a, b, c = instr.operands
    w, result = width(instr.result.type.elem), narrow.unrounded(s, instr)
    if s.dies(a) and not s.dies(c):
        s.ins("fma", result, s.reg(a), s.reg(b), s.reg(c), w=w)
    elif s.dies(b) and not s.dies(c):
        s.ins("fma", result, s.reg(b), s.reg(a), s.reg(c), w=w)
    else:
        s.ins("fma_acc", result, s.reg(c), s.reg(a), s.reg(b), w=w)
    narrow.round_result(s, instr, result)


def _key_make(s: Selector, instr: Instr) -> None:
    high, low = (s.reg(v) for v in instr.operands)
    s.ins("or", s.result(instr), s.make("shl_i", high, imm=32, w=64), s.make("zx", low, from_=32, w=64), w=64)


def _key_hi(s: Selector, instr: Instr) -> None:
    s.ins("shr_i", s.result(instr), s.reg(instr.operands[0]), imm=32, w=64)


def _passed_on(s: Selector, instr: Instr) -> None:
    raise s.fault(f"`{instr.op}` makes nothing")


FORMS: dict[str, Form] = {
    "add":      _add,
    "sub":      _sub,
    "mul":      _mul,
    "div":      _binary("fdiv", "", False),
    "floordiv": divide.floordiv,
    "mod":      divide.mod,
    "neg":      _neg,
    "abs":      _abs,
    "max":      _extremum("fmax", "gt", "a"),
    "min":      _extremum("fmin", "lt", "b"),
    "fma":      _fma,
    "and":      _logic("and"),
    "or":       _logic("or"),
    "xor":      _logic("xor"),
    "not":      _not,
    "shl":      _shift(left=True),
    "shr":      _shift(left=False),
    "eq":       _set,
    "ne":       _set,
    "lt":       _set,
    "le":       _set,
    "gt":       _set,
    "ge":       _set,
    "select":   _select,
    "isnan":    _set,
    "floor":    _real_unary("fround", mode="floor"),
    "ceil":     _real_unary("fround", mode="ceil"),
    "trunc":    _real_unary("fround", mode="trunc"),
    "round":    _real_unary("fround", mode="even"),
    "sqrt":     _real_unary("fsqrt"),
    "convert":  convert.convert,
    "bitcast":  convert.bitcast,
    "key_make": _key_make,
    "key_hi":   _key_hi,
    "key_lo":   _passed_on,
}  # fmt: skip

_missing = [name for name in SCALAR_OPS if name not in FORMS and name not in EXPANDED]
assert not _missing, f"scalar ops that x86 can neither select nor expand: {_missing}"

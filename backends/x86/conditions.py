"""Conditions: what a bool compares, so that what depends on it compares by itself.

A comparison is one instruction together with what it decides (`br_i`, `check_m`, `choose`, ..: `backends/x86/ops.py`). So the bool of a
branch is never made, however often it is read: every reader compares again, which costs less than keeping a bool. `condition` looks
through `not` and comparisons of bools with constants; `conjuncts` splits conjunctions and finds that

    0 <= i and i < n      is     i < n, unsigned       where n >= 0

because a negative number is a large one without its sign.
"""

from __future__ import annotations

from typing import Any

from tlc.backends.x86.addresses import element, split
from tlc.backends.x86.ops import Address
from tlc.backends.x86.selector import Selector
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.regalloc.ir import VReg
from tlc.ssa.ir import Block, Instr, Value

SIGNED = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
UNSIGNED = {"eq": "eq", "ne": "ne", "lt": "b", "le": "be", "gt": "a", "ge": "ae"}
NEGATED = {
    "eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "b": "ae", "ae": "b", "a": "be", "be": "a",
}  # fmt: skip
NEGATED_REAL = {
    "eq": "ne", "ne": "eq", "lt": "nlt", "le": "nle", "gt": "ngt", "ge": "nge",
    "nlt": "lt", "nle": "le", "ngt": "gt", "nge": "ge", "uno": "ord", "ord": "uno",
}  # fmt: skip
SWAPPED = {
    "eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "b": "a", "be": "ae", "a": "b", "ae": "be",
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A comparison of two scalars of one type, or of one with a number. `mask`: of the bits that both have, with 0."""

    cc: str
    a: Value
    b: Value | int
    width: int
    real: bool = False
    mask: bool = False

    @property
    def negated(self) -> Condition:
        table = NEGATED_REAL if self.real else NEGATED
        return Condition(table[self.cc], self.a, self.b, self.width, self.real, self.mask)


def compared_width(elem: Elem) -> int:
    """How many bits of a register are compared."""
    if elem.is_real:
        return 64 if elem is Elem.F64 else 32
    return elem.width


def condition(s: Selector, value: Value) -> Condition:
    """What must hold for a bool to be true."""
    maker = s.parts.maker(value)
    if maker is not None:
        found = _comparison(s, maker)
        if found is not None:
            return found
    return Condition("ne", value, 0, 8)


def _comparison(s: Selector, maker: Instr) -> Condition | None:
    match maker.op:
        case "not" if maker.result.type.elem is Elem.BOOL:
            return condition(s, maker.operands[0]).negated
        case "isnan":
            (a,) = maker.operands
            return Condition("uno", a, a, compared_width(a.type.elem), real=True)
        case "convert" if maker.result.type.elem is Elem.BOOL:
            (a,) = maker.operands
            if not a.type.elem.is_real:
                return _integers(s, "ne", a, 0)
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            a, b = maker.operands
            elem = a.type.elem
            if elem.is_real:
                return Condition(maker.op, a, b, compared_width(elem), real=True)
            cc = (SIGNED if elem.is_signed else UNSIGNED)[maker.op]
            if s.immediate(a) is not None and s.immediate(b) is None:
                a, b, cc = b, a, SWAPPED[cc]
            imm = s.immediate(b)
            if elem is Elem.BOOL and imm is not None:
                inner = condition(s, a)
                return inner if (cc == "ne") == (imm == 0) else inner.negated
            return _integers(s, cc, a, b if imm is None else imm)
    return None


def _integers(s: Selector, cc: str, a: Value, b: Value | int) -> Condition:
    """A comparison of integers; one of `x & y` with 0 is a test, and so is `x % 2 == 0`."""
    width = compared_width(a.type.elem)
    if not isinstance(b, int) or cc not in ("eq", "ne"):
        return Condition(cc, a, b, width)
    masked = _masked(s, a)
    if masked is None:
        return Condition(cc, a, b, width)
    x, mask = masked
    if b == mask and isinstance(mask, int) and mask & (mask - 1) == 0 and b != 0:  # the bit is there if it is not missing
        cc, b = NEGATED[cc], 0
    return Condition(cc, x, mask, width, mask=True) if b == 0 else Condition(cc, a, b, width)


def _masked(s: Selector, value: Value) -> tuple[Value, Value | int] | None:
    """A value that is the common bits of two others, computed for this comparison only."""
    maker = s.producer(value, "and", "mod")
    if maker is None or maker.result.type.elem.width < value.type.elem.width or not s.only_here(value):
        return None
    x, y = maker.operands
    if maker.op == "and" and s.immediate(x) is not None:
        x, y = y, x
    imm = s.immediate(y)
    if maker.op == "and":
        return x, y if imm is None else imm
    return (x, imm - 1) if imm is not None and imm > 0 and imm & (imm - 1) == 0 else None


# ---------------------------------------------------------------- writing


def compare(s: Selector, what: str, given: tuple[VReg, ...], c: Condition, late: tuple[VReg, ...] = (), **attrs: Any) -> None:
    """Write the instruction that does `what` (`br`, `check`, `set`, `choose`, `fchoose`) where a condition holds."""
    if c.real:
        assert isinstance(c.b, Value)
        op = {"set": "fset", "fchoose": "fchoose"}.get(what, f"{what}_f")
        s.ins(op, *given, s.reg(c.a), s.reg(c.b), late=late, cc=c.cc, w=c.width, **attrs)
    elif isinstance(c.b, int):
        _compare_number(s, what, given, c, late, {**attrs, "cc": c.cc, "w": c.width, "imm": c.b})
    else:
        _compare_values(s, what, given, c, c.b, late, {**attrs, "cc": c.cc, "w": c.width})


def _compare_number(s: Selector, what: str, given: tuple[VReg, ...], c: Condition, late: tuple[VReg, ...], attrs: dict[str, Any]) -> None:
    place = None if c.mask or what == "fchoose" else loaded(s, c.a, c.width)
    if place is not None:
        s.ins(f"{what}_mi", *given, mem=place, late=late, **attrs)
    else:
        s.ins(f"{what}_ti" if c.mask else f"{what}_i", *given, s.reg(c.a), late=late, **attrs)


def _compare_values(
    s: Selector, what: str, given: tuple[VReg, ...], c: Condition, other: Value, late: tuple[VReg, ...], attrs: dict[str, Any]
) -> None:
    for a, b, cc in () if c.mask else ((c.a, other, c.cc), (other, c.a, SWAPPED[c.cc])):
        place = loaded(s, b, c.width, few=what == "choose")
        if place is not None:
            s.ins(f"{what}_m", *given, s.reg(a), mem=place, late=late, **{**attrs, "cc": cc})
            return
    suffix = "_t" if c.mask else "_c" if what == "fchoose" else ""
    s.ins(what + suffix, *given, s.reg(c.a), s.reg(other), late=late, **attrs)


def loaded(s: Selector, value: Value, width: int, few: bool = False) -> Address | None:
    """Where a value lies in memory, if its reader may read it there; `few`: if its address is in one register."""
    load = s.memory(value, width)
    if load is None or (few and split(s, load.operands[1], 1)[0] is not None):
        return None
    return element(s, *load.operands)


# ---------------------------------------------------------------- conjunctions


def conjuncts(s: Selector, value: Value) -> list[Condition]:
    """Conditions that together are a bool, in order of evaluation; two that bound an index from both sides are one."""
    out: list[Condition] = []
    for c in _flat(s, value):
        if not (out and (merged := _merged(s, out[-1], c))):
            out.append(c)
        else:
            out[-1] = merged
    return out


def disjuncts(s: Selector, value: Value) -> list[Condition]:
    """Conditions of which one must hold for a bool to be true."""
    return _flat(s, value, "or")


def _flat(s: Selector, value: Value, op: str = "and") -> list[Condition]:
    maker = s.producer(value, op)
    if maker is None or maker.result.type.elem is not Elem.BOOL:
        return [condition(s, value)]
    return [c for v in maker.operands for c in _flat(s, v, op)]


def _merged(s: Selector, first: Condition, second: Condition) -> Condition | None:
    """`0 <= i` and `i < n` (or `i <= n`) as one unsigned comparison, if n cannot be negative."""
    for low, high in ((first, second), (second, first)):
        if low.cc != "ge" or low.b != 0 or low.mask or low.real or high.real or high.mask or low.width != high.width:
            continue
        if high.cc in ("lt", "le") and _same(s, low.a, high.a) and _not_negative(s, high.b):
            return Condition({"lt": "b", "le": "be"}[high.cc], high.a, high.b, high.width)
        if high.cc in ("gt", "ge") and isinstance(high.b, Value) and _same(s, low.a, high.b) and _not_negative(s, high.a):
            return Condition({"gt": "a", "ge": "ae"}[high.cc], high.a, high.b, high.width)
    return None


def _same(s: Selector, a: Value, b: Value) -> bool:
    return s.parts.of(a) == s.parts.of(b)


def _not_negative(s: Selector, value: Value | int) -> bool:
    """Whether a bound is known not to be negative: a number, or an extent of a tensor that exists here."""
    if isinstance(value, int):
        return value >= 0
    literal = s.parts.literal(value)
    if literal is not None:
        return int(literal) >= 0
    if isinstance(value.owner, Instr) and value.owner.op == "dim":
        return True
    return any(_stands_before(s, block) for block in s.extents.get(s.parts.of(value), ()))


def _stands_before(s: Selector, block: Block) -> bool:
    """Whether what is made in another block exists wherever control is here."""
    return block is not s.block and s.tree.dominates(block, s.block)

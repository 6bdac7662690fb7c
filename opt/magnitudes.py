"""How large a real in a comprehension can be at most, computed beside it from the greatest elements of what it reads.

    y = tabulate m, n {(i, j):                               a = reduce max {|index q|}, c = reduce max {|index k|}
      s = reduce sum n {(c):                           ->    every |p| is at most a * c, and every |t| at most a * c / |d|:
        p = mul (index q, i, c), (index k, j, c)             rounding keeps the order
        t = div p, d  .. }}

So where that is finite, no element is infinite or NaN, and it takes q and k once each. Where it is not, nothing is known.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Instr, Value


def magnitude(value: Value, b: Builder, inside: AbstractSet[Value]) -> Value | None:
    """A bound of |value| at `b`, finite only if all that is computed on the way is; None if there is no rule. `inside` are the values
    that are not known at `b`.
    """
    known = outside(value, b, inside)
    if known is not None:
        return b.op("abs", known)
    owner = value.owner
    if not isinstance(owner, Instr):
        return None
    if owner.op == "index" and owner.operands[0] not in inside:
        tensor = owner.operands[0]
        greatest = b.reduce("max", b.dims(tensor), lambda b, *at: b.op("abs", b.index(tensor, *at)))
        return b.op("max", greatest, b.const(0.0, value.type))
    if owner.op == "div":
        divisor = outside(owner.operands[1], b, inside)
        divided = magnitude(owner.operands[0], b, inside) if divisor is not None else None
        return None if divisor is None or divided is None else b.op("div", divided, b.op("abs", divisor))
    if owner.op not in ("mul", "add", "sub", "neg", "abs", "convert") or not owner.operands[0].type.elem.is_real:
        return None
    bounds = [magnitude(v, b, inside) for v in owner.operands]
    found = [v for v in bounds if v is not None]
    if len(found) < len(bounds):
        return None
    match owner.op:
        case "mul":
            return b.op("mul", *found)
        case "add" | "sub":
            return b.op("add", *found)
        case "convert":
            return b.convert(found[0], value.type)
    return found[0]


def outside(value: Value, b: Builder, inside: AbstractSet[Value]) -> Value | None:
    """A scalar that depends on no index, computed at `b`; None if it does."""
    if value not in inside:
        return value
    owner = value.owner
    if not isinstance(owner, Instr) or owner.op not in (*SCALAR_OPS, "const", "dim"):
        return None
    operands = [v if v.type.rank and v not in inside else outside(v, b, inside) for v in owner.operands]
    known = tuple(v for v in operands if v is not None)
    if len(known) < len(operands):
        return None
    return b.insert(Instr(owner.op, known, (value.type,), dict(owner.attrs), (), b.span)).result

"""Scalar ops that x86 has no instructions for, written with others that it has.

Requires  host SSA. Works in place; afterwards no function holds an op of `EXPANDED` on the element types that its row names.
Preserves every bit of every value.

Elementary functions become their expansions (`frontend/elementary.py`), many uses of one a function of its own, which is called; `sign` a
choice, `//` of reals `floor` of the quotient and `%` of reals the C library's `fmod`, which is exact, with the sign and the zeros of
LANGUAGE:

    %y = mod %a, %b : f64   ->   %r = foreign %a, %b {symbol = "fmod"};  %r + %b if their signs differ, a zero with the sign of %b, ..
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tlc.frontend import elementary
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import INTS, REALS, Elem
from tlc.ssa.builder import new_function
from tlc.ssa.ir import Instr, Module, Type, Value, walk

Key = tuple[str, Elem]  # an op and its element type

MOST = 4  # how often an elementary function is expanded in place


class SsaArith:
    """Writes ops as SSA instructions into a list: what expansions compute with."""

    def __init__(self, origin: Instr) -> None:
        self.origin = origin
        self.written: list[Instr] = []

    def put(self, op: str, elem: Elem, args: tuple[Value, ...], attrs: dict[str, object] | None = None) -> Value:
        instr = Instr(op, args, (Type(elem),), attrs, (), self.origin.span)
        instr.block = self.origin.block
        self.written.append(instr)
        return instr.result

    def const(self, value: float | int | bool, elem: Elem) -> Value:
        literal = bool(value) if elem is Elem.BOOL else float(value) if elem.is_real else int(value)
        return self.put("const", elem, (), {"value": literal})

    def op(self, name: str, elem: Elem, *args: Any) -> Value:
        if name in EXPANDED and args[0].type.elem in EXPANDED[name][0]:
            return EXPANDED[name][1](self, elem, *args)
        return self.put(name, elem, args)


Expansion = Callable[..., Value]  # (arithmetic, element type, *operands)


def _elementary(name: str) -> Expansion:
    def expand(a: SsaArith, elem: Elem, *args: Value) -> Value:
        value = elementary.expand(name, a, elem, *args)
        assert isinstance(value, Value)
        return value

    return expand


def _sign(a: SsaArith, elem: Elem, x: Value) -> Value:
    """1, -1 or 0; of a NaN itself."""
    zero, one = a.const(0, elem), a.const(1, elem)
    above = a.op("gt", Elem.BOOL, x, zero)
    if not elem.is_signed and not elem.is_real:
        return a.op("select", elem, above, one, zero)
    below = a.op("lt", Elem.BOOL, x, zero)
    out = a.op("select", elem, above, one, a.op("select", elem, below, a.const(-1, elem), zero))
    return a.op("select", elem, a.op("isnan", Elem.BOOL, x), x, out) if elem.is_real else out


def _floordiv(a: SsaArith, elem: Elem, x: Value, y: Value) -> Value:
    if elem in NARROW:
        return _in_f32(a, elem, _floordiv, x, y)
    return a.op("floor", elem, a.op("div", elem, x, y))


def _mod(a: SsaArith, elem: Elem, x: Value, y: Value) -> Value:
    """As NumPy has it: `fmod`, moved by y where the signs differ, zeros with the sign of y; and x itself or y where y is infinite."""
    if elem in NARROW:
        return _in_f32(a, elem, _mod, x, y)

    def test(name: str, p: Value, q: Value) -> Value:
        return a.op(name, Elem.BOOL, p, q)

    def select(c: Value, p: Value, q: Value) -> Value:
        return a.op("select", elem, c, p, q)

    zero, infinity = a.const(0.0, elem), a.const(float("inf"), elem)
    below_x, below_y = test("lt", x, zero), test("lt", y, zero)
    r = a.put("foreign", elem, (x, y), {"symbol": "fmod" if elem is Elem.F64 else "fmodf"})
    apart = test("xor", test("lt", r, zero), below_y)
    signed_zero = _signed_zero(a, elem, y)
    finite = select(test("eq", r, zero), signed_zero, select(apart, a.op("add", elem, r, y), r))
    infinite_y, finite_x = test("eq", a.op("abs", elem, y), infinity), test("lt", a.op("abs", elem, x), infinity)
    by_infinity = select(test("xor", below_x, below_y), select(test("eq", x, zero), x, y), x)
    return select(test("and", infinite_y, finite_x), by_infinity, finite)


def _signed_zero(a: SsaArith, elem: Elem, y: Value) -> Value:
    """A zero with the sign of y, which may be a zero or a NaN itself."""
    bits = Elem.I64 if elem is Elem.F64 else Elem.I32
    sign = a.op("and", bits, a.op("bitcast", bits, y), a.const(-(1 << bits.width - 1), bits))
    return a.op("bitcast", elem, sign)


def _in_f32(a: SsaArith, elem: Elem, expansion: Expansion, *args: Value) -> Value:
    """A narrow op: computed in f32, rounded once."""
    return a.op("convert", elem, expansion(a, Elem.F32, *(a.op("convert", Elem.F32, x) for x in args)))


# op -> element types of the operands for which it is expanded, and how
EXPANDED: dict[str, tuple[tuple[Elem, ...], Expansion]] = {
    **{name: (row.takes, _elementary(name)) for name, row in SCALAR_OPS.items() if row.elementary},
    "sign":     (INTS + REALS, _sign),
    "floordiv": (REALS, _floordiv),
    "mod":      (REALS, _mod),
}  # fmt: skip


def legalize(module: Module) -> None:
    """Expand what x86 has no instructions for, in place."""
    often = _used_often(module)
    shared = {key: _function(module, *key) for key in often}
    for f in list(module.functions.values()):
        calls = {} if f.name in shared.values() else shared
        for block in f.blocks:
            if any(i.op in EXPANDED for i in block.instrs):
                block.instrs = [j for i in block.instrs for j in _legal(i, calls)]


def _legal(instr: Instr, shared: Mapping[Key, str]) -> list[Instr]:
    """What stands for an instruction: itself, a call of its function, or its expansion."""
    if not _is_expanded(instr):
        return [instr]
    arith, elem = SsaArith(instr), instr.result.type.elem
    callee = shared.get((instr.op, elem))
    if callee is not None:
        value = arith.put("call", elem, instr.operands, {"callee": callee})
    else:
        value = EXPANDED[instr.op][1](arith, elem, *instr.operands)
    instr.result.replace_by(value)
    instr.operands = ()
    return arith.written


def _is_expanded(instr: Instr) -> bool:
    return instr.op in EXPANDED and instr.operands[0].type.elem in EXPANDED[instr.op][0]


# ---------------------------------------------------------------- functions of their own


def _used_often(module: Module) -> list[Key]:
    """Elementary functions of reals that would be expanded more often than is good for the size of the code."""
    uses = Counter(
        (i.op, i.result.type.elem)
        for f in module.functions.values()
        for i in walk(f.body)
        if _is_expanded(i) and SCALAR_OPS[i.op].elementary and i.result.type.elem.is_real
    )
    return [key for key, count in uses.items() if count > MOST]


def _function(module: Module, op: str, elem: Elem) -> str:
    """A function of the module that computes one op; its name."""
    name = f"{op}.{elem}"
    while name in module.functions:
        name += "_"
    type = Type(elem)
    _, b = new_function(name, [("", type)] * SCALAR_OPS[op].arity, [type], module)
    b.ret(b.op(op, *b.block.params))
    return name

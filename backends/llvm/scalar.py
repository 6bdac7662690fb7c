"""Scalar ops as LLVM instructions, for scalars and vectors alike: one table, total over `SCALAR_OPS`.

Every form computes exactly what the row's `evaluate` computes, bit for bit (but for the bits of a NaN): no fast-math
flags, no contraction, no undefined behaviour. Values live as LLVM's own types (`i1` for bools); `storage` says how they lie in memory.
Narrow reals live as their 16 bits: `backends/llvm/narrow.py` widens them for an op and rounds its result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

import numpy as np

from tlc.backends.llvm import narrow
from tlc.backends.llvm.instructions import native
from tlc.frontend import elementary
from tlc.frontend.narrow_reals import NARROW, to_memory
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem

TYPES: dict[Elem, str] = {
    Elem.BOOL: "i1", Elem.I8: "i8", Elem.I32: "i32", Elem.I64: "i64", Elem.U8: "i8", Elem.U32: "i32",
    Elem.F16: "i16", Elem.BF16: "i16", Elem.F32: "float", Elem.F64: "double", Elem.STR: "i64", Elem.KEY: "i64",
}  # fmt: skip


class Lines(Protocol):
    """Where instructions go: `ins` appends one without effects and gives the name of its result."""

    def ins(self, text: str) -> str: ...


def register(elem: Elem, lanes: int = 1) -> str:
    """The LLVM type of a value in a register; one lane is a scalar."""
    return TYPES[elem] if lanes == 1 else f"<{lanes} x {TYPES[elem]}>"


def storage(elem: Elem, lanes: int = 1) -> str:
    """The LLVM type of a value in memory: a bool takes a byte."""
    base = "i8" if elem is Elem.BOOL else TYPES[elem]
    return base if lanes == 1 else f"<{lanes} x {base}>"


def literal(value: object, elem: Elem, lanes: int = 1) -> str:
    """A constant as an operand (without its type)."""
    text = _scalar_literal(value, elem)
    return text if lanes == 1 else f"splat ({TYPES[elem]} {text})"


def _scalar_literal(value: object, elem: Elem) -> str:
    if elem is Elem.BOOL:
        return "true" if value else "false"
    number = DTYPES[elem].type(value)
    if elem in NARROW:
        return str(int(to_memory(number) if elem is Elem.BF16 else number.view("u2")))
    if elem.is_real:
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    whole = int(number)
    return str(whole - 2**64 if elem is Elem.KEY and whole >= 2**63 else whole)


class Context:
    """What a form sees: the type of the operands, the type of the result, the lanes, and where instructions go."""

    def __init__(self, lines: Lines, result: Elem, operand: Elem, lanes: int) -> None:
        self.lines, self.result, self.operand, self.lanes = lines, result, operand, lanes
        self.type = register(operand, lanes)
        self.bool = register(Elem.BOOL, lanes)

    def ins(self, text: str) -> str:
        return self.lines.ins(text)

    def const(self, value: float | int | bool) -> str:
        return literal(value, self.operand, self.lanes)

    def call(self, name: str, *args: str, extra: str = "") -> str:
        """A call of an intrinsic overloaded on the operands' type."""
        suffix = ("" if self.lanes == 1 else f"v{self.lanes}") + MANGLED[self.operand]
        return self.ins(f"call {self.type} @llvm.{name}.{suffix}({', '.join(f'{self.type} {a}' for a in args)}{extra})")

    def select(self, cond: str, then: str, other: str) -> str:
        return self.ins(f"select {self.bool} {cond}, {self.type} {then}, {self.type} {other}")

    def compare(self, how: str, a: str, b: str) -> str:
        kind = "fcmp" if self.operand.is_real else "icmp"
        return self.ins(f"{kind} {how} {self.type} {a}, {b}")


MANGLED = {elem: {"float": "f32", "double": "f64"}.get(name, name) for elem, name in TYPES.items()}

Form = Callable[..., str]  # (context, *operands) -> operand


def _binary(real: str, integer: str) -> Form:
    return lambda c, a, b: c.ins(f"{real if c.operand.is_real else integer} {c.type} {a}, {b}")


def _comparison(real: str, signed: str, unsigned: str) -> Form:
    return lambda c, a, b: c.compare(real if c.operand.is_real else signed if c.operand.is_signed else unsigned, a, b)


def _intrinsic(name: str) -> Form:
    return lambda c, *args: c.call(name, *args)


def _extremum(real: str, signed: str, unsigned: str) -> Form:
    return lambda c, a, b: c.call(real if c.operand.is_real else signed if c.operand.is_signed else unsigned, a, b)


def _neg(c: Context, a: str) -> str:
    return c.ins(f"fneg {c.type} {a}") if c.operand.is_real else c.ins(f"sub {c.type} {c.const(0)}, {a}")


def _abs(c: Context, a: str) -> str:
    if c.operand.is_real:
        return c.call("fabs", a)
    return c.call("abs", a, extra=", i1 false") if c.operand.is_signed else a


def _sign(c: Context, a: str) -> str:
    zero = c.const(0)
    if not c.operand.is_real and not c.operand.is_signed:
        return c.select(c.compare("ne", a, zero), c.const(1), zero)
    above, below = ("ogt", "olt") if c.operand.is_real else ("sgt", "slt")
    out = c.select(c.compare(above, a, zero), c.const(1), c.select(c.compare(below, a, zero), c.const(-1), zero))
    return c.select(c.compare("uno", a, a), a, out) if c.operand.is_real else out


def _known_divisor(b: str) -> int | None:
    """The divisor where it is a positive literal: then it needs no guards."""
    text = b[b.rindex(" ") + 1 : -1] if b.startswith("splat") else b
    return int(text) if text.isdigit() and int(text) > 0 else None


def _divisor(c: Context, b: str) -> str:
    """b, or 1 where dividing by b is undefined (zero; -1 is left to the caller)."""
    return b if _known_divisor(b) else c.select(c.compare("eq", b, c.const(0)), c.const(1), b)


def _floordiv(c: Context, a: str, b: str) -> str:
    if c.operand.is_real:
        return c.call("floor", c.ins(f"fdiv {c.type} {a}, {b}"))
    known = _known_divisor(b)
    if not c.operand.is_signed:
        q = c.ins(f"udiv {c.type} {a}, {_divisor(c, b)}")
        return q if known else c.select(c.compare("eq", b, c.const(0)), c.const(0), q)
    if known and known & (known - 1) == 0:
        return c.ins(f"ashr {c.type} {a}, {c.const(known.bit_length() - 1)}")
    safe, minus = _signed_divisor(c, b)
    q = c.ins(f"sdiv {c.type} {a}, {safe}")
    r = c.ins(f"sub {c.type} {a}, {c.ins(f'mul {c.type} {q}, {safe}')}")
    q = c.select(_crosses(c, r, safe), c.ins(f"add {c.type} {q}, {c.const(-1)}"), q)
    if known:
        return q
    q = c.select(minus, c.ins(f"sub {c.type} {c.const(0)}, {a}"), q)  # wraps for the least integer
    return c.select(c.compare("eq", b, c.const(0)), c.const(0), q)


def _signed_divisor(c: Context, b: str) -> tuple[str, str]:
    """b with 0 and -1 replaced by 1, and where it was -1: dividing the least integer by -1 traps."""
    if _known_divisor(b):
        return b, literal(False, Elem.BOOL, c.lanes)
    minus = c.compare("eq", b, c.const(-1))
    return c.select(minus, c.const(1), _divisor(c, b)), minus


def _crosses(c: Context, remainder: str, divisor: str) -> str:
    """Where the truncated quotient lies above the floor: the remainder is not zero and its sign is not the divisor's."""
    some = c.compare("ne", remainder, c.const(0))
    apart = c.compare("slt", c.ins(f"xor {c.type} {remainder}, {divisor}"), c.const(0))
    return c.ins(f"and {c.bool} {some}, {apart}")


def _mod(c: Context, a: str, b: str) -> str:
    if c.operand.is_real:
        return _mod_real(c, a, b)
    known = _known_divisor(b)
    if known and known & (known - 1) == 0:
        return c.ins(f"and {c.type} {a}, {c.const(known - 1)}")
    if not c.operand.is_signed:
        r = c.ins(f"urem {c.type} {a}, {_divisor(c, b)}")
        return r if known else c.select(c.compare("eq", b, c.const(0)), c.const(0), r)
    safe, _ = _signed_divisor(c, b)  # x mod 1 is 0, and so is x mod -1
    r = c.ins(f"srem {c.type} {a}, {safe}")
    r = c.select(_crosses(c, r, safe), c.ins(f"add {c.type} {r}, {safe}"), r)
    return r if known else c.select(c.compare("eq", b, c.const(0)), c.const(0), r)


def _mod_real(c: Context, a: str, b: str) -> str:
    zero = c.const(0.0)
    below_a, below_b = c.compare("olt", a, zero), c.compare("olt", b, zero)
    r = c.ins(f"frem {c.type} {a}, {b}")
    apart = c.ins(f"xor {c.bool} {c.compare('olt', r, zero)}, {below_b}")
    r_zero = c.compare("oeq", r, zero)
    finite = c.select(r_zero, c.call("copysign", zero, b), c.select(apart, c.ins(f"fadd {c.type} {r}, {b}"), r))
    inf = c.const(float("inf"))
    infinite_b = c.compare("oeq", c.call("fabs", b), inf)
    finite_a = c.compare("olt", c.call("fabs", a), inf)
    a_zero = c.compare("oeq", a, zero)
    by_inf = c.select(c.ins(f"xor {c.bool} {below_a}, {below_b}"), c.select(a_zero, a, b), a)
    return c.select(c.ins(f"and {c.bool} {infinite_b}, {finite_a}"), by_inf, finite)


def _shift(signed: str, unsigned: str) -> Form:
    def form(c: Context, a: str, b: str) -> str:
        count = c.ins(f"and {c.type} {b}, {c.const(c.operand.width - 1)}")
        return c.ins(f"{signed if c.operand.is_signed else unsigned} {c.type} {a}, {count}")

    return form


def _not(c: Context, a: str) -> str:
    return c.ins(f"xor {c.type} {a}, {c.const(True if c.operand is Elem.BOOL else -1 if c.operand.is_signed else 2**c.operand.width - 1)}")


def _select(c: Context, cond: str, a: str, b: str) -> str:
    return c.select(cond, a, b)


def _convert(c: Context, a: str) -> str:
    source, result = c.operand, c.result
    out = register(result, c.lanes)
    if source is result:
        return a
    if result is Elem.BOOL:
        return c.compare("une" if source.is_real else "ne", a, c.const(0))
    if source.is_real and result.is_real:
        return c.ins(f"{'fpext' if result.width > source.width else 'fptrunc'} {c.type} {a} to {out}")
    if source.is_real and c.lanes > 1:
        return _saturated(c, a)
    if source.is_real:
        name = "fptosi" if result.is_signed else "fptoui"
        return c.ins(f"call {out} @llvm.{name}.sat.{MANGLED[result]}.{MANGLED[source]}({c.type} {a})")
    if result.is_real:
        return c.ins(f"{'sitofp' if source.is_signed else 'uitofp'} {c.type} {a} to {out}")
    if source is Elem.BOOL or result.width > source.width:
        return c.ins(f"{'sext' if source.is_signed else 'zext'} {c.type} {a} to {out}")
    return a if result.width == source.width else c.ins(f"trunc {c.type} {a} to {out}")


def _saturated(c: Context, a: str) -> str:
    """A vector of reals as integers. (LLVM's own saturating conversions become scalar code.) Reals are moved into the range of the integers
    first; where the greatest integer is no real of this type, a comparison chooses it.
    """
    via = Elem.I32 if c.result.width < 32 else c.result
    low, high = int(np.iinfo(DTYPES[c.result]).min), int(np.iinfo(DTYPES[c.result]).max)
    real = DTYPES[c.operand].type
    fits = int(real(high)) == high
    top = real(high) if fits else np.nextafter(real(high), real(0))
    x = c.select(c.compare("ord", a, a), a, c.const(0))
    x = c.select(c.compare("ogt", x, c.const(low)), x, c.const(low))
    x = c.select(c.compare("olt", x, c.const(float(top))), x, c.const(float(top)))
    wide, out = register(via, c.lanes), register(c.result, c.lanes)
    whole = c.ins(f"{'fptosi' if via.is_signed else 'fptoui'} {c.type} {x} to {wide}")
    if not fits:
        above = c.compare("ogt", a, c.const(float(top)))
        whole = c.ins(f"select {c.bool} {above}, {wide} {literal(high, via, c.lanes)}, {wide} {whole}")
    return whole if via is c.result else c.ins(f"trunc {wide} {whole} to {out}")


def _bitcast(c: Context, a: str) -> str:
    out = register(c.result, c.lanes)
    return a if out == c.type else c.ins(f"bitcast {c.type} {a} to {out}")


def _key_make(c: Context, hi: str, lo: str) -> str:
    out = register(Elem.KEY, c.lanes)
    high = c.ins(f"shl {out} {c.ins(f'zext {c.type} {hi} to {out}')}, {literal(32, Elem.KEY, c.lanes)}")
    return c.ins(f"or {out} {high}, {c.ins(f'zext {c.type} {lo} to {out}')}")


def _key_hi(c: Context, k: str) -> str:
    return c.ins(f"trunc {c.type} {c.ins(f'lshr {c.type} {k}, {c.const(32)}')} to {register(Elem.U32, c.lanes)}")


def _key_lo(c: Context, k: str) -> str:
    return c.ins(f"trunc {c.type} {k} to {register(Elem.U32, c.lanes)}")


FORMS: dict[str, Form] = {
    "add":      _binary("fadd", "add"),
    "sub":      _binary("fsub", "sub"),
    "mul":      _binary("fmul", "mul"),
    "div":      _binary("fdiv", "sdiv"),
    "floordiv": _floordiv,
    "mod":      _mod,
    "neg":      _neg,
    "abs":      _abs,
    "sign":     _sign,
    "max":      _extremum("maximum", "smax", "umax"),
    "min":      _extremum("minimum", "smin", "umin"),
    "fma":      _intrinsic("fma"),
    "and":      _binary("and", "and"),
    "or":       _binary("or", "or"),
    "xor":      _binary("xor", "xor"),
    "not":      _not,
    "shl":      _shift("shl", "shl"),
    "shr":      _shift("ashr", "lshr"),
    "eq":       _comparison("oeq", "eq", "eq"),
    "ne":       _comparison("une", "ne", "ne"),
    "lt":       _comparison("olt", "slt", "ult"),
    "le":       _comparison("ole", "sle", "ule"),
    "gt":       _comparison("ogt", "sgt", "ugt"),
    "ge":       _comparison("oge", "sge", "uge"),
    "select":   _select,
    "isnan":    lambda c, a: c.compare("uno", a, a),
    "floor":    _intrinsic("floor"),
    "ceil":     _intrinsic("ceil"),
    "trunc":    _intrinsic("trunc"),
    "round":    _intrinsic("roundeven"),
    "sqrt":     _intrinsic("sqrt"),
    "convert":  _convert,
    "bitcast":  _bitcast,
    "key_make": _key_make,
    "key_hi":   _key_hi,
    "key_lo":   _key_lo,
}  # fmt: skip

_missing = [name for name, row in SCALAR_OPS.items() if not row.elementary and name not in FORMS]
assert not _missing, f"scalar ops without an LLVM form: {_missing}"


def emit(lines: Lines, op: str, result: Elem, operands: tuple[tuple[str, Elem], ...], lanes: int = 1) -> str:
    """Instructions of one op on operands that all have `lanes` lanes; elementary functions become their expansion."""
    of = operands[1 if op == "select" else 0][1]
    if op != "select" and (result in NARROW or of in NARROW):
        wide = tuple((narrow.widened(lines, text, elem, lanes), Elem.F32) if elem in NARROW else (text, elem) for text, elem in operands)
        out = emit(lines, op, Elem.F32 if result in NARROW else result, wide, lanes)
        return narrow.rounded(lines, out, result, lanes) if result in NARROW else out
    words = [text for text, _ in operands]
    if SCALAR_OPS[op].instruction or (op in ("max", "min") and all(w.startswith("%") for w in words)):  # LLVM knows more of constants
        found = native(lines, op, of, words, lanes)
        if found is not None:
            return found
    if SCALAR_OPS[op].elementary:
        return str(elementary.expand(op, Expansion(lines, lanes), result, *operands)[0])
    return FORMS[op](Context(lines, result, of, lanes), *words)


class Expansion:
    """The arithmetic in which `frontend/elementary.py` writes its functions, printing instructions: values are (operand, element type)."""

    def __init__(self, lines: Lines, lanes: int) -> None:
        self.lines, self.lanes = lines, lanes

    def const(self, value: float | int | bool, elem: Elem) -> tuple[str, Elem]:
        return literal(value, elem, self.lanes), elem

    def op(self, name: str, elem: Elem, *args: tuple[str, Elem]) -> tuple[str, Elem]:
        return emit(self.lines, name, elem, args, self.lanes), elem

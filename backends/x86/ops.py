"""The machine instructions of x86-64, one row each, and a builder of instructions by these rows.

`w` is the width of the operands in bits, printed behind the op (`add.64`); of reals it is 32 (f32) or 64 (f64). Bits of a register above
the width of a result are undefined unless said here. Flags never live between instructions: what compares also decides.

Conditions `cc`: eq ne lt le gt ge (signed), b be a ae (unsigned). Of reals: eq lt le gt ge (false where one is NaN), their
negations ne nlt nle ngt nge (true there), uno and ord.

Comparisons end in what they compare:
  (nothing)  a, b any              _i   a any with imm            _t   a & b any with 0      _f  reals a, b any
  _m         a with the memory     _mi  the memory with imm       _ti  a any & imm with 0
and begin with what they do:
  br      -> then, else            goes to the first block where the condition holds
  check   {site, slots}            leaves the function where the condition HOLDS
  set     d                        1 or 0; all bits above are clear
  choose  d, x, y any {vw}         y where the condition holds, else x; d is in the place of x
  fchoose d, x, y                  the same for reals, d anywhere

A failing check tells the context its `site` and its `slots`: for each the number that is given there or, for None, all 64 bits of
the next of the late uses behind the other operands.

d, a any                           are an operand that must be written and one that may lie in the frame
add, add_i, imul_i, shl, shr, sar write anywhere; the others of two operands write over the first.

mov_i   d any {imm}
sx, zx  d, a any {from}            from its low bits; `zx` clears all bits above
lea     d [mem]                    load d [mem] {ext}: extended to 64 bits by sign or zero;  store v [mem];  store_i [mem] {imm}
shl shr sar  d, a any, count       the count modulo the width (32 or 64)
idiv udiv    q (rax), r (rdx), a (rax), b any late      traps where the quotient does not exist
mul_hi       hi (rdx), lo (rax), a (rax), b any         the whole product, unsigned
X_to, X_to_i [mem]                 the memory itself is the first operand and the result

fmin, fmax                         a < b ? a : b and a > b ? a : b
fma  d, a, b, c any                a * b + c in the place of a;   fma_acc d, c, a, b any: the same in the place of c
fmask d, a, b {cc}                 all bits set or clear
int_to_f {from, w}, f_to_int {from, w}, f_to_f {w} (from the other width)
bits_to_f, f_to_bits               the same bits;  f16_to_f d, a: from the low 16 bits;  f_to_f16
fconst d {bits}                    fload, fstore [mem]

enter   the parameters, in registers of the convention (`registers.py`); first of all
call    results = call arguments {symbol}: of a function of the module; its failure leaves this one
call_c  the same in the convention of C {symbol, checked}: `checked` leaves where eax is not 0. `service.NAME` is a service
ret     results                    jump -> block;  trap: never reached
poll                               leave if the run is to stop;  check_stack {site, slots}: if the stack is full, and then poll, too
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator

from tlc.backends.x86 import meaning
from tlc.backends.x86.meaning import CONDITIONS, REAL_CONDITIONS, Meaning, immediate, signed, unsigned
from tlc.backends.x86.registers import CALLER_SAVED, ENV, FEW, RAX, RDX, REGISTERS
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.regalloc.ir import ANY, REGISTER, Attr, Bank, Block, Constraint, Fixed, Inst, Mem, Operand, Reuse, VReg
from tlc.regalloc.target import Domain, Kind, Row, Spec, Target


def _def(constraint: Constraint = REGISTER, bank: Bank = Bank.INT) -> Spec:
    return Spec(bank, True, constraint, late=True)


def _use(constraint: Constraint = REGISTER, bank: Bank = Bank.INT, late: bool = False) -> Spec:
    return Spec(bank, False, constraint, late)


D, A, M = _def(), _use(), _use(ANY)  # a definition, a use, a use in a register or in the frame
OVER = _def(Reuse(1))  # a definition in the place of the first use
FD, FA, FM = _def(bank=Bank.REAL), _use(bank=Bank.REAL), _use(ANY, Bank.REAL)
FOVER = _def(Reuse(1), Bank.REAL)

_BYTES = (8, 32, 64)
_WORDS = (32, 64)
_MEMORY = (8, 16, 32, 64)


def _row(
    name: str,
    operands: tuple[Spec, ...],
    evaluate: Meaning,
    attrs: str = "",
    widths: tuple[int, ...] = (),
    pure: bool = True,
    remat: bool = False,
    commutes: bool = False,
) -> Row:
    names = tuple(attrs.split()) + (("w",) if widths else ())
    return Row(name, operands, evaluate, names, widths=widths, pure=pure, remat=remat, commutes=commutes)


# ---------------------------------------------------------------- comparisons

# What is compared, by suffix: uses, attributes, widths.
_TESTS: dict[str, tuple[tuple[Spec, ...], tuple[str, ...], tuple[int, ...]]] = {
    "":    ((A, M),   ("cc",),              _BYTES),
    "_i":  ((M,),     ("cc", "imm"),        _BYTES),
    "_m":  ((A,),     ("cc", "mem"),        _BYTES),
    "_mi": ((),       ("cc", "imm", "mem"), _BYTES),
    "_t":  ((A, M),   ("cc",),              _BYTES),
    "_ti": ((M,),     ("cc", "imm"),        _BYTES),
    "_f":  ((FA, FM), ("cc",),              _WORDS),
}  # fmt: skip

# What real choices compare with integers, by suffix, and the test that it is.
_REAL_CHOICES = {"": "_f", "_c": "", "_i": "_i", "_m": "_m", "_t": "_t", "_ti": "_ti"}


def _comparisons() -> Iterator[Row]:
    for suffix, (uses, compared, widths) in _TESTS.items():
        attrs = (*compared, "w")
        yield Row(f"br{suffix}", uses, meaning.branch(suffix), attrs, Kind.TERMINATOR, widths, targets=2)
        exits = (*attrs, "site", "slots")
        yield Row(f"check{suffix}", uses, meaning.check(suffix), exits, Kind.EXIT, widths, variadic=True)
        name = "fset" if suffix == "_f" else f"set{suffix}"
        yield Row(name, (D, *uses), meaning.setting(suffix), attrs, Kind.NORMAL, widths, pure=True)
        choosing = (*attrs, "vw")
        yield Row(f"choose{suffix}", (OVER, A, M, *uses), meaning.choice(suffix), choosing, Kind.NORMAL, widths, pure=True)
    for suffix, test in _REAL_CHOICES.items():
        uses, compared, widths = _TESTS[test]
        attrs = (*compared, "w") if test == "_f" else (*compared, "w", "vw")
        yield Row(f"fchoose{suffix}", (FD, FA, FA, *uses), meaning.real_choice(test), attrs, Kind.NORMAL, widths, pure=True)


# ---------------------------------------------------------------- arithmetic

_Binary = Callable[[int, int, int], int]  # of two values and the width

_INTEGER: dict[str, _Binary] = {
    "add":  lambda a, b, w: a + b,
    "sub":  lambda a, b, w: a - b,
    "and":  lambda a, b, w: a & b,
    "or":   lambda a, b, w: a | b,
    "xor":  lambda a, b, w: a ^ b,
    "imul": lambda a, b, w: a * b,
}  # fmt: skip

_SHIFTS: dict[str, _Binary] = {
    "shl": meaning.shift_left,
    "shr": meaning.shift_right,
    "sar": meaning.shift_arithmetic,
}


def _integers() -> Iterator[Row]:
    for name, f in _INTEGER.items():
        over = D if name == "add" else OVER
        yield _row(name, (over, A, M), meaning.binary(f), "", _BYTES, commutes=name not in ("add", "sub"))
        yield _row(f"{name}_m", (OVER, A), meaning.with_memory(f), "mem", _WORDS if name == "imul" else _BYTES)
        if name == "imul":
            yield _row("imul_i", (D, M), meaning.with_immediate(f), "imm", _BYTES)
            continue
        yield _row(f"{name}_i", (over, A), meaning.with_immediate(f), "imm", _BYTES)
        yield _row(f"{name}_to", (A,), meaning.to_memory(f), "mem", _MEMORY, pure=False)
        yield _row(f"{name}_to_i", (), meaning.to_memory_immediate(f), "imm mem", _MEMORY, pure=False)
    for name, f in _SHIFTS.items():
        yield _row(name, (D, M, A), meaning.binary(f), "", _WORDS)
        yield _row(f"{name}_i", (OVER, A), meaning.with_immediate(f), "imm", _WORDS)


_REAL: dict[str, Callable[..., object]] = {
    "fadd": operator.add,
    "fsub": operator.sub,
    "fmul": operator.mul,
    "fdiv": operator.truediv,
    "fmin": lambda a, b: a if a < b else b,
    "fmax": lambda a, b: a if a > b else b,
}

_REAL_BITS: dict[str, Callable[[int, int], int]] = {
    "fand": lambda a, b: a & b,
    "for":  lambda a, b: a | b,
}  # fmt: skip


def _reals() -> Iterator[Row]:
    for name, f in _REAL.items():
        yield _row(name, (FD, FA, FM), meaning.real_op(f), "", _WORDS)
        yield _row(f"{name}_m", (FD, FA), meaning.real_op_memory(f), "mem", _WORDS)
    for name, g in _REAL_BITS.items():
        yield _row(name, (FD, FA, FA), meaning.real_bits(g), "", _WORDS)


_DIVISION = (_def(Fixed(RAX)), _def(Fixed(RDX)), _use(Fixed(RAX)), _use(ANY, late=True))
_PRODUCT = (_def(Fixed(RDX)), _def(Fixed(RAX)), _use(Fixed(RAX)), M)
_ANY_DEF, _ANY_USE = Spec(None, True, ANY, late=True), Spec(None, False, ANY)

_ROWS = (
    *_comparisons(),
    *_integers(),
    *_reals(),
    _row("mov_i", (_def(ANY),), meaning.mov_i, "imm", _WORDS, remat=True),
    _row("neg", (OVER, A), meaning.unary(operator.neg), "", _BYTES),
    _row("not", (OVER, A), meaning.unary(operator.invert), "", _BYTES),
    _row("sx", (D, M), meaning.sx, "from", _WORDS),
    _row("zx", (D, M), meaning.zx, "from", _WORDS),
    _row("idiv", _DIVISION, meaning.divide(signed), "", _WORDS),
    _row("udiv", _DIVISION, meaning.divide(unsigned), "", _WORDS),
    _row("mul_hi", _PRODUCT, meaning.multiply_high, "", _WORDS),
    _row("lea", (D,), meaning.lea, "mem", _WORDS),
    _row("load", (D,), meaning.load, "mem ext", _MEMORY),
    _row("store", (A,), meaning.store, "mem", _MEMORY, pure=False),
    _row("store_i", (), meaning.store_i, "imm mem", _MEMORY, pure=False),
    _row("fconst", (FD,), meaning.fconst, "bits", _WORDS, remat=True),
    _row("fload", (FD,), meaning.fload, "mem", _WORDS),
    _row("fstore", (FA,), meaning.store, "mem", _WORDS, pure=False),
    _row("fsqrt", (FD, FM), meaning.real_op(meaning.sqrt), "", _WORDS),
    _row("fround", (FD, FM), meaning.fround, "mode", _WORDS),
    _row("fabs", (FD, FA), meaning.sign_bit(lambda a, sign: a & ~sign), "", _WORDS),
    _row("fneg", (FD, FA), meaning.sign_bit(lambda a, sign: a ^ sign), "", _WORDS),
    _row("fma", (FOVER, FA, FA, FM), meaning.fma(0, 1, 2), "", _WORDS, commutes=True),
    _row("fma_acc", (FOVER, FA, FA, FM), meaning.fma(1, 2, 0), "", _WORDS),
    _row("fmask", (FD, FA, FM), meaning.fmask, "cc", _WORDS),
    _row("int_to_f", (FD, M), meaning.int_to_f, "from", _WORDS),
    _row("f_to_int", (D, FM), meaning.f_to_int, "from", _WORDS),
    _row("f_to_f", (FD, FM), meaning.f_to_f, "", _WORDS),
    _row("bits_to_f", (FD, M), meaning.bits_to_f, "", _WORDS),
    _row("f_to_bits", (D, FM), meaning.bits_to_f, "", _WORDS),
    _row("f16_to_f", (FD, A), meaning.f16_to_f),
    _row("f_to_f16", (D, FA), meaning.f_to_f16),
    Row("move", (_ANY_DEF, _ANY_USE), meaning.move, kind=Kind.MOVE, pure=True),
    Row("pmove", (), meaning.move, kind=Kind.PMOVE, variadic=True, pure=True),
    Row("enter", (), meaning.enter, variadic=True),
    Row("call", (), meaning.call, ("symbol",), Kind.CALL, variadic=True, clobbers=CALLER_SAVED),
    Row("call_c", (), meaning.call_c, ("symbol", "checked"), Kind.CALL, variadic=True, clobbers=CALLER_SAVED),
    Row("poll", (), meaning.poll, (), Kind.EXIT),
    Row("check_stack", (), meaning.check_stack, ("site", "slots"), Kind.EXIT, variadic=True),
    Row("jump", (), meaning.jump, (), Kind.TERMINATOR, targets=1),
    Row("ret", (), meaning.move, (), Kind.TERMINATOR, variadic=True),
    Row("trap", (), meaning.trap, (), Kind.TERMINATOR),
)

ROWS: dict[str, Row] = {row.name: row for row in _ROWS}

assert len(ROWS) == len(_ROWS), "an op is declared twice"

# ---------------------------------------------------------------- attributes


def _fits(value: object, inst: Inst) -> bool:
    """Instructions hold 32 bits, which the processor extends by the sign; only `mov_i` holds more."""
    if type(value) is not int:
        return False
    w = meaning.width(inst)
    if inst.op in [f"{name}_i" for name in _SHIFTS]:
        return 0 <= value < w
    return -(1 << (w - 1)) <= value < 1 << w if w < 64 or inst.op == "mov_i" else -(2**31) <= value < 2**31


def _is_condition(value: object, inst: Inst) -> bool:
    return value in (REAL_CONDITIONS if inst.op in _COMPARES_REALS else CONDITIONS)


_COMPARES_REALS = frozenset(("br_f", "check_f", "fset", "choose_f", "fchoose", "fmask"))


def _one_of(*values: object) -> Domain:
    return Domain("one of " + ", ".join(map(repr, values)), lambda v, i: any(v == x and type(v) is type(x) for x in values))


DOMAINS: dict[str, Domain] = {
    "imm":     Domain("an integer that fits", _fits),
    "cc":      Domain("a condition of what is compared", _is_condition),
    "vw":      _one_of(8, 32, 64),
    "from":    _one_of(8, 16, 32, 64),
    "ext":     _one_of("s", "z"),
    "mode":    _one_of("floor", "ceil", "trunc", "even"),
    "checked": _one_of(True, False),
    "bits":    Domain("the bits of a real", lambda v, i: type(v) is int and 0 <= v < 1 << meaning.width(i)),
    "site":    Domain("a number", lambda v, i: type(v) is int and 0 <= v < 2**31),
    "symbol":  Domain("a name", lambda v, i: isinstance(v, str) and v != ""),
    "slots":   Domain(
        "a tuple of integers of 64 bits and None",
        lambda v, i: isinstance(v, tuple) and all(s is None or (type(s) is int and -(2**63) <= s < 2**64) for s in v),
    ),
}  # fmt: skip

TARGET = Target("x86-64", ROWS, DOMAINS, REGISTERS, ENV, FEW)

_unknown = {a for row in _ROWS for a in row.attrs} - set(DOMAINS) - {"mem", "w"}
assert not _unknown, f"attributes without a domain: {_unknown}"

# ---------------------------------------------------------------- building


@dataclass(frozen=True)
class Address:
    """An address as instructions are built with it: registers by name instead of position. See `Mem`."""

    base: VReg | None = None
    index: VReg | None = None
    scale: int = 1
    offset: int = 0
    area: str = ""


def build(
    op: str,
    *vregs: VReg,
    mem: Address | None = None,
    late: Iterable[VReg] = (),
    targets: Iterable[tuple[Block, tuple[VReg, ...]]] = (),
    span: Span = NOWHERE,
    **attrs: Attr,
) -> Inst:
    """An instruction by its row: registers in the row's order, the address, late uses in any place. An attribute whose name is Python's
    own has a `_` behind it (`from_`). For ops with other operands by a signature see `convention`.
    """
    row = ROWS[op]
    if len(vregs) != len(row.operands):
        raise InternalError(f"`{op}` with {len(vregs)} operands, should be {len(row.operands)}", "machine code")
    operands = [Operand(v, s.is_def, s.constraint, s.late) for v, s in zip(vregs, row.operands, strict=True)]
    given = {name.rstrip("_"): value for name, value in attrs.items()}
    if mem is not None:
        given["mem"] = place(mem, operands)
    operands += [Operand(v, False, ANY, True) for v in late]
    return Inst(op, operands, given, row.clobbers, list(targets), span)


def place(mem: Address, operands: list[Operand]) -> Mem:
    """Append the registers of an address to the operands."""
    at: list[int | None] = []
    for v in (mem.base, mem.index):
        at.append(None if v is None else len(operands))
        if v is not None:
            operands.append(Operand(v, False))
    return Mem(at[0], at[1], mem.scale, mem.offset, mem.area)


def convention(
    op: str,
    defs: Iterable[tuple[VReg, Fixed]] = (),
    uses: Iterable[tuple[VReg, Fixed]] = (),
    mem: Address | None = None,
    span: Span = NOWHERE,
    **attrs: Attr,
) -> Inst:
    """`enter`, a call or `ret`: operands in fixed registers; a call destroys all others that the callee need not keep."""
    given: dict[str, Attr] = dict(attrs)
    operands = [Operand(v, True, r, True) for v, r in defs]
    gone = {r.reg for _, r in ((o.vreg, o.constraint) for o in operands) if isinstance(r, Fixed)}
    if mem is not None:
        given["mem"] = place(mem, operands)
    operands += [Operand(v, False, r) for v, r in uses]
    return Inst(op, operands, given, tuple(r for r in ROWS[op].clobbers if r not in gone), span=span)


__all__ = ["ROWS", "TARGET", "Address", "build", "convention", "immediate", "place"]

"""Integers and memory: arithmetic, moves, extensions, addresses, loads and stores."""

from __future__ import annotations

from tlc.backends.x86.emitter import (
    FLOAD,
    FMOV,
    FSTORE,
    LEA,
    MOV,
    MOV32_I,
    MOV_I,
    MOV_TO,
    MOVABS,
    MOVZX8,
    MOVZX16,
    R11,
    RDX,
    SHORT,
    X15,
    XOR32,
    Emit,
    Emitter,
    address,
    forms_of,
    immediate,
    reg,
    rm,
    store_constant,
    wide,
    width,
    with_immediate,
)
from tlc.backends.x86.forms import FORMS, Memory
from tlc.regalloc.ir import Bank, Inst

RM = {name: forms_of(name, "r,m") for name in ("add", "sub", "and", "or", "xor", "imul")}
MR = {name: forms_of(name, "m,r") for name in RM if name != "imul"}
MOVSX8, MOVSX16, MOVSXD = forms_of("movsx", "r,m8"), forms_of("movsx", "r,m16"), FORMS["movsxd", "r,m32", 64]

# ---------------------------------------------------------------- integers


def _mov_i(e: Emitter, i: Inst) -> None:
    d, w = rm(e, i.operands[0]), width(i)
    value = immediate(i, w)
    if isinstance(d, Memory):
        store_constant(e, d, value)
    elif value == 0:
        e.put(XOR32, d, d)
    elif w == 32 or 0 <= value < 2**32:
        e.put(MOV32_I, d, value & 0xFFFF_FFFF)
    elif -(2**31) <= value < 0:
        e.put(MOV_I[64], d, value)
    else:
        e.put(MOVABS, d, value)


def _move(e: Emitter, i: Inst) -> None:
    d, a = i.operands
    if d.place is a.place or d.place == a.place:
        return
    to, source = rm(e, d), rm(e, a)
    real = d.vreg.bank is Bank.REAL
    if isinstance(source, Memory):
        into = to if isinstance(to, int) else X15 if real else R11
        e.put(FLOAD[64] if real else MOV[64], into, source)
        if isinstance(to, int):
            return
        source = into
    if isinstance(to, Memory):
        e.put(FSTORE[64] if real else MOV_TO[64], to, source)
    elif real:
        e.put(FMOV, to, source)
    else:
        e.put(MOV[64], to, source)


def _add(e: Emitter, i: Inst) -> None:
    """lea where the sum goes to a third place."""
    d, a, b, w = reg(i.operands[0]), reg(i.operands[1]), rm(e, i.operands[2]), wide(i)
    if d == a:
        e.put(RM["add"][w], d, b)
    elif d == b:
        e.put(RM["add"][w], d, a)
    elif isinstance(b, int):
        if a & 7 == 5:  # rbp and r13 as a base take a displacement
            a, b = b, a
        e.put(LEA[w], d, Memory(a, b))
    else:
        e.put(MOV[w], d, a)
        e.put(RM["add"][w], d, b)


def _add_immediate(e: Emitter, i: Inst) -> None:
    d, a, w = reg(i.operands[0]), reg(i.operands[1]), wide(i)
    imm = immediate(i, w)
    if d != a:
        e.put(LEA[w], d, Memory(a, None, 1, imm))
    elif imm == 128:
        e.put(SHORT["sub"][w], d, -128)
    else:
        with_immediate(e, "add", w, d, imm)


def _over(name: str) -> Emit:
    """Two operands, over the first."""
    forms = RM[name]
    return lambda e, i: e.put(forms[wide(i)], reg(i.operands[0]), rm(e, i.operands[2]))


def _over_immediate(name: str) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        w = wide(i)
        with_immediate(e, name, w, reg(i.operands[0]), immediate(i, w))

    return emit


def _and_immediate(e: Emitter, i: Inst) -> None:
    """A mask of the low bits is an extension; 32 bits clear what is above them."""
    w, d = wide(i), reg(i.operands[0])
    imm = immediate(i, w)
    if imm in (0xFF, 0xFFFF):
        e.put(MOVZX8 if imm == 0xFF else MOVZX16, d, d)
    else:
        with_immediate(e, "and", 32 if 0 <= imm < 2**31 else w, d, imm)


def _over_memory(name: str) -> Emit:
    forms = RM[name]
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), address(e, i))


def _to_memory(name: str) -> Emit:
    forms = MR[name]
    return lambda e, i: e.put(forms[width(i)], address(e, i), reg(i.operands[0]))


def _to_memory_immediate(name: str) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        w = width(i)
        with_immediate(e, name, w, address(e, i), immediate(i, w))

    return emit


IMUL_I8, IMUL_I = forms_of("imul", "r,m,i8"), forms_of("imul", "r,m,i")


def _imul_immediate(e: Emitter, i: Inst) -> None:
    w = wide(i)
    imm = immediate(i, w)
    e.put((IMUL_I8 if -128 <= imm < 128 else IMUL_I)[w], reg(i.operands[0]), rm(e, i.operands[1]), imm)


def _unary(name: str) -> Emit:
    forms = forms_of(name, "m")
    return lambda e, i: e.put(forms[wide(i)], reg(i.operands[0]))


def _shift(name: str) -> Emit:
    forms = forms_of(name, "r,m,w")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), rm(e, i.operands[1]), reg(i.operands[2]))


def _shift_immediate(name: str) -> Emit:
    forms = forms_of(name, "m,i8")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), immediate(i, 64))


_SIGN_EXTEND = {(8, 32): MOVSX8[32], (8, 64): MOVSX8[64], (16, 32): MOVSX16[32], (16, 64): MOVSX16[64], (32, 64): MOVSXD}
_ZERO_EXTEND = {8: MOVZX8, 16: MOVZX16, 32: MOV[32], 64: MOV[64]}


def _sx(e: Emitter, i: Inst) -> None:
    w, source = width(i), width(i, "from")
    e.put(MOV[w] if source >= w else _SIGN_EXTEND[source, w], reg(i.operands[0]), rm(e, i.operands[1]))


def _zx(e: Emitter, i: Inst) -> None:
    e.put(_ZERO_EXTEND[width(i, "from")], reg(i.operands[0]), rm(e, i.operands[1]))


def _divide(name: str) -> Emit:
    forms, extend = forms_of(name, "m"), {32: FORMS["cdq", "", 32], 64: FORMS["cqo", "", 64]}

    def emit(e: Emitter, i: Inst) -> None:
        w = width(i)
        if name == "idiv":
            e.put(extend[w])
        else:
            e.put(XOR32, RDX, RDX)
        e.put(forms[w], rm(e, i.operands[3]))

    return emit


MULTIPLY = forms_of("mul", "m")


def _multiply_high(e: Emitter, i: Inst) -> None:
    e.put(MULTIPLY[width(i)], rm(e, i.operands[3]))


# ---------------------------------------------------------------- memory


def _lea(e: Emitter, i: Inst) -> None:
    memory = address(e, i)
    if memory.base is not None and memory.scaled is None and memory.offset == 0:
        e.put(MOV[wide(i)], reg(i.operands[0]), memory.base)
    else:
        e.put(LEA[wide(i)], reg(i.operands[0]), memory)


_LOADS = {
    ("z", 8): MOVZX8, ("z", 16): MOVZX16, ("z", 32): MOV[32], ("z", 64): MOV[64],
    ("s", 8): MOVSX8[64], ("s", 16): MOVSX16[64], ("s", 32): MOVSXD, ("s", 64): MOV[64],
}  # fmt: skip


def _load(e: Emitter, i: Inst) -> None:
    e.put(_LOADS[str(i.attrs["ext"]), width(i)], reg(i.operands[0]), address(e, i))


def _store(e: Emitter, i: Inst) -> None:
    e.put(MOV_TO[width(i)], address(e, i), reg(i.operands[0]))


def _store_immediate(e: Emitter, i: Inst) -> None:
    e.put(MOV_I[width(i)], address(e, i), immediate(i, width(i)))


def _emitters() -> dict[str, Emit]:
    out: dict[str, Emit] = {}
    for name in RM:
        out[name], out[f"{name}_m"] = _over(name), _over_memory(name)
        if name in MR:
            out[f"{name}_i"] = _over_immediate(name)
            out[f"{name}_to"], out[f"{name}_to_i"] = _to_memory(name), _to_memory_immediate(name)
    for name in ("shl", "shr", "sar"):
        out[name], out[f"{name}_i"] = _shift(name + "x"), _shift_immediate(name)
    return out


EMIT: dict[str, Emit] = {
    **_emitters(),
    "add": _add, "add_i": _add_immediate, "and_i": _and_immediate, "imul_i": _imul_immediate,
    "mov_i": _mov_i, "move": _move, "neg": _unary("neg"), "not": _unary("not"), "sx": _sx, "zx": _zx,
    "idiv": _divide("idiv"), "udiv": _divide("div"), "mul_hi": _multiply_high,
    "lea": _lea, "load": _load, "store": _store, "store_i": _store_immediate,
}  # fmt: skip

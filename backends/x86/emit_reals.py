"""Reals: arithmetic, masks, constants, conversions, loads and stores. One lane of a vector register, with VEX."""

from __future__ import annotations

from tlc.backends.x86.emitter import (
    FCMP,
    FLOAD,
    FSTORE,
    MOV,
    PREDICATES,
    PS,
    SS,
    VMOVQ,
    WORDS,
    X15,
    Emit,
    Emitter,
    address,
    real_forms,
    reg,
    rm,
    width,
)
from tlc.backends.x86.forms import FORMS, RIP, Form, Memory
from tlc.regalloc.ir import Inst

FXOR, FAND = real_forms("vxor", "x128,v128,y128", PS), real_forms("vand", "x128,v128,y128", PS)
VMOVD, FROM_VMOVQ, FROM_VMOVD = FORMS["vmovd", "x32,m32", 32], FORMS["vmovq", "m64,x64", 64], FORMS["vmovd", "m32,x32", 32]

def _real(name: str, suffixes: dict[int, str] = SS, pattern: str = "x,v,y") -> Emit:
    forms = real_forms(name, pattern, suffixes)
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), reg(i.operands[1]), rm(e, i.operands[2]))


def _real_memory(name: str) -> Emit:
    forms = real_forms(name, "x,v,y")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), reg(i.operands[1]), address(e, i))


def _source(e: Emitter, i: Inst, w: int) -> tuple[int, int]:
    """The definition and the only use, in registers: an op that copies the rest of a register from one takes it from the use, not from what
    the definition held before, for which it would wait.
    """
    d, a = reg(i.operands[0]), rm(e, i.operands[1])
    if isinstance(a, Memory):
        e.put(FLOAD[w], d, a)
        a = d
    return d, a


FSQRT, FROUND = real_forms("vsqrt", "x,v,y"), real_forms("vround", "x,v,y,i8")
_MODES = {"even": 8, "floor": 9, "ceil": 10, "trunc": 11}


def _fsqrt(e: Emitter, i: Inst) -> None:
    d, a = _source(e, i, width(i))
    e.put(FSQRT[width(i)], d, a, a)


def _fround(e: Emitter, i: Inst) -> None:
    d, a = _source(e, i, width(i))
    e.put(FROUND[width(i)], d, a, a, _MODES[str(i.attrs["mode"])])


_SIGN = {32: (1 << 31).to_bytes(4, "little") * 4, 64: (1 << 63).to_bytes(8, "little") * 2}
_REST = {w: bytes(255 - x for x in data) for w, data in _SIGN.items()}


def _with_mask(forms: dict[int, Form], masks: dict[int, bytes]) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        e.constant(forms[width(i)], reg(i.operands[0]), reg(i.operands[1]), Memory(RIP), data=masks[width(i)])

    return emit


def _fma(name: str) -> Emit:
    forms = real_forms(name, "x,v,y")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), reg(i.operands[2]), rm(e, i.operands[3]))


def _fmask(e: Emitter, i: Inst) -> None:
    e.put(FCMP[width(i)], reg(i.operands[0]), reg(i.operands[1]), rm(e, i.operands[2]), PREDICATES[str(i.attrs["cc"])])


def _fconst(e: Emitter, i: Inst) -> None:
    d, w, bits = reg(i.operands[0]), width(i), i.attrs["bits"]
    assert isinstance(bits, int)
    if bits == 0:
        e.put(FXOR[32], d, d, d)
    else:
        e.constant(FLOAD[w], d, Memory(RIP), data=bits.to_bytes(w // 8, "little"))


def _fload(e: Emitter, i: Inst) -> None:
    e.put(FLOAD[width(i)], reg(i.operands[0]), address(e, i))


def _fstore(e: Emitter, i: Inst) -> None:
    e.put(FSTORE[width(i)], address(e, i), reg(i.operands[0]))


_FROM_INT = {(source, w): FORMS[f"vcvtsi2{SS[w]}", f"x,v,m{source}", w] for source in WORDS for w in WORDS}
_TO_INT = {(source, w): FORMS[f"vcvtt{SS[source]}2si", f"r{w},y", source] for source in WORDS for w in WORDS}


def _int_to_f(e: Emitter, i: Inst) -> None:
    """Cleared first: the conversion keeps the rest of the register, and would wait for it."""
    d = reg(i.operands[0])
    e.put(FXOR[32], d, d, d)
    e.put(_FROM_INT[width(i, "from"), width(i)], d, d, rm(e, i.operands[1]))


def _f_to_int(e: Emitter, i: Inst) -> None:
    e.put(_TO_INT[width(i, "from"), width(i)], reg(i.operands[0]), rm(e, i.operands[1]))


_F_TO_F = {32: FORMS["vcvtsd2ss", "x32,v32,y64", 32], 64: FORMS["vcvtss2sd", "x64,v64,y32", 64]}


def _f_to_f(e: Emitter, i: Inst) -> None:
    w = width(i)
    d, a = _source(e, i, 96 - w)
    e.put(_F_TO_F[w], d, a, a)


def _bits_to_f(e: Emitter, i: Inst) -> None:
    d, a, w = reg(i.operands[0]), rm(e, i.operands[1]), width(i)
    if isinstance(a, Memory):
        e.put(FLOAD[w], d, a)
    else:
        e.put(VMOVQ if w == 64 else VMOVD, d, a)


def _f_to_bits(e: Emitter, i: Inst) -> None:
    d, a, w = reg(i.operands[0]), rm(e, i.operands[1]), width(i)
    if isinstance(a, Memory):
        e.put(MOV[w], d, a)
    else:
        e.put(FROM_VMOVQ if w == 64 else FROM_VMOVD, d, a)


FROM_HALF, TO_HALF = FORMS["vcvtph2ps", "x128,y64", 32], FORMS["vcvtps2ph", "y64,x128,i8", 32]


def _f16_to_f(e: Emitter, i: Inst) -> None:
    d = reg(i.operands[0])
    e.put(VMOVD, d, reg(i.operands[1]))
    e.put(FROM_HALF, d, d)


def _f_to_f16(e: Emitter, i: Inst) -> None:
    e.put(TO_HALF, X15, reg(i.operands[1]), 0)  # to the nearest, half to even
    e.put(FROM_VMOVD, reg(i.operands[0]), X15)


def _emitters() -> dict[str, Emit]:
    out: dict[str, Emit] = {}
    for name in ("add", "sub", "mul", "div", "min", "max"):
        out[f"f{name}"], out[f"f{name}_m"] = _real(f"v{name}"), _real_memory(f"v{name}")
    for name in ("and", "or"):
        out[f"f{name}"] = _real(f"v{name}", PS, "x128,v128,y128")
    return out


EMIT: dict[str, Emit] = {
    **_emitters(),
    "fconst": _fconst, "fload": _fload, "fstore": _fstore, "fsqrt": _fsqrt, "fround": _fround,
    "fabs": _with_mask(FAND, _REST), "fneg": _with_mask(FXOR, _SIGN), "fma": _fma("vfmadd213"), "fma_acc": _fma("vfmadd231"),
    "fmask": _fmask, "int_to_f": _int_to_f, "f_to_int": _f_to_int, "f_to_f": _f_to_f,
    "bits_to_f": _bits_to_f, "f_to_bits": _f_to_bits, "f16_to_f": _f16_to_f, "f_to_f16": _f_to_f16,
}  # fmt: skip

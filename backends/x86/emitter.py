"""What the functions that emit ops share: where instructions go, where operands are, and the forms that several of them use.

The emitter is a thin interface of `assemble.py`: `put` an instruction, `jump`, bind a label. So nothing that emits knows where code is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tlc.backends.x86.forms import FORMS, Form, Memory, Value
from tlc.backends.x86.registers import CONTEXT, REAL_SCRATCH, SCRATCH, STACK
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.ir import Block, Inst, Mem, Operand, Reg, Slot

R11, X15, R15, RSP = SCRATCH.number, REAL_SCRATCH.number, CONTEXT.number, STACK.number
RAX, RDX = 0, 2

Label = int


class Emitter(Protocol):
    """Where instructions go (`assemble.py`)."""

    slots: int  # bytes from rsp to slot 0
    incoming: int  # bytes from rsp to the words that the caller passed
    stopped: Label  # leaves the function: the run has stopped

    def put(self, form: Form, *operands: Value) -> None: ...

    def compare(self, form: Form, *operands: Value) -> None:
        """`put` of a comparison, unless the flags are its result already."""
        ...

    def tells(self, register: int, width: int, equality: bool) -> bool:
        """Whether the flags tell how a register compares with 0, or at least if it is 0."""
        ...

    def constant(self, form: Form, *operands: Value, data: bytes) -> None:
        """`put` where the address relative to rip is that of a constant."""
        ...

    def call(self, symbol: str) -> None: ...

    def jump(self, condition: int | None, to: Label) -> None: ...

    def label(self, name: str = "") -> Label:
        """A new one; the name is for listings."""
        ...

    def bind(self, label: Label) -> None: ...

    def block(self, block: Block) -> Label:
        """Where a block begins, or the one that it only leads to."""
        ...

    def follows(self, block: Block) -> bool:
        """Whether what is emitted next is there that a block begins."""
        ...

    def later(self, emit: Callable[[], None]) -> None:
        """Emit behind the function."""
        ...

    def leave(self) -> None:
        """Undo the frame and return."""
        ...

    def poll_failed(self) -> Label: ...

    def check_failed(self) -> Label: ...


Emit = Callable[[Emitter, Inst], None]

# ---------------------------------------------------------------- operands


def reg(o: Operand) -> int:
    place = o.place
    if type(place) is not Reg:
        raise InternalError(f"%{o.vreg.number} is in {place}, should be in a register", "encoding")
    return place.number


def rm(e: Emitter, o: Operand) -> Value:
    """A register, or the address of a slot."""
    place = o.place
    if type(place) is Reg:
        return place.number
    if type(place) is Slot:
        return Memory(RSP, None, 1, e.slots + 8 * place.number)
    raise InternalError(f"%{o.vreg.number} has no place", "encoding")


def address(e: Emitter, i: Inst) -> Memory:
    mem = i.attrs["mem"]
    assert isinstance(mem, Mem)
    index = None if mem.index is None else reg(i.operands[mem.index])
    match mem.area:
        case "":
            if mem.base is None and mem.scale == 1:
                return Memory(index, None, 1, mem.offset)
            return Memory(None if mem.base is None else reg(i.operands[mem.base]), index, mem.scale, mem.offset)
        case "context":
            return Memory(R15, index, mem.scale, mem.offset)
        case "outgoing":
            return Memory(RSP, index, mem.scale, mem.offset)
        case "incoming":
            return Memory(RSP, index, mem.scale, e.incoming + mem.offset)
    raise InternalError(f"no area `{mem.area}`", "encoding")


def width(i: Inst, name: str = "w") -> int:
    w = i.attrs[name]
    assert isinstance(w, int)
    return w


def wide(i: Inst, name: str = "w") -> int:
    """The width that an op of 8 bits is computed in, whose upper bits nobody asks for."""
    return 64 if i.attrs[name] == 64 else 32


def immediate(i: Inst, w: int) -> int:
    """As a signed number of w bits."""
    value = i.attrs["imm"]
    assert isinstance(value, int)
    value &= (1 << w) - 1
    return value - (1 << w) if value >> (w - 1) else value


def forms_of(name: str, operands: str, widths: tuple[int, ...] = (8, 16, 32, 64)) -> dict[int, Form]:
    """The forms of a name by width."""
    return {w: FORMS[name, operands, w] for w in widths if (name, operands, w) in FORMS}


WORDS = (32, 64)
MOV, MOV_TO, MOV_I = forms_of("mov", "r,m"), forms_of("mov", "m,r"), forms_of("mov", "m,i")
MOV32_I, MOVABS = FORMS["mov", "o,i", 32], FORMS["movabs", "o,i", 64]
TEST = forms_of("test", "m,r")
XOR32, LEA = FORMS["xor", "r,m", 32], forms_of("lea", "r,a")
MOVZX8, MOVZX16 = FORMS["movzx", "r,m8", 32], FORMS["movzx", "r,m16", 32]
SHORT = {name: forms_of(name, "m,i8") for name in ("add", "or", "and", "sub", "xor", "cmp")}
LONG = {name: forms_of(name, "m,i") for name in SHORT}

SS = {32: "ss", 64: "sd"}


def real_forms(name: str, operands: str, suffixes: dict[int, str] = SS) -> dict[int, Form]:
    return {w: FORMS[name + suffixes[w], operands, w] for w in WORDS}


PS = {32: "ps", 64: "pd"}
FMOV, FLOAD, FSTORE = FORMS["vmovaps", "x128,y128", 32], real_forms("vmov", "x,a"), real_forms("vmov", "a,x")
FCMP, FBLEND = real_forms("vcmp", "x,v,y,i8"), real_forms("vblendv", "x128,v128,y128,z128", PS)
VMOVQ = FORMS["vmovq", "x64,m64", 64]
NE = 5  # the condition "not equal", or not 0

# Predicates of vcmp, those that signal nothing.
PREDICATES = {
    "eq": 0x00, "lt": 0x11, "le": 0x12, "uno": 0x03, "ne": 0x04, "nlt": 0x15, "nle": 0x16, "ord": 0x07,
    "nge": 0x19, "ngt": 0x1A, "ge": 0x1D, "gt": 0x1E,
}  # fmt: skip


def with_immediate(e: Emitter, name: str, w: int, to: Value, imm: int) -> None:
    if w > 8 and -128 <= imm < 128:
        e.put(SHORT[name][w], to, imm)
    else:
        e.put(LONG[name][w], to, imm)


def store_constant(e: Emitter, to: Memory, value: int) -> None:
    value = value - 2**64 if value >= 2**63 else value
    if -(2**31) <= value < 2**31:
        e.put(MOV_I[64], to, value)
    else:
        e.put(MOVABS, R11, value)
        e.put(MOV_TO[64], to, R11)

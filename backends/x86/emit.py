"""Machine IR after allocation as instructions of the processor: one function an op, total over `ROWS`.

An op may take several instructions; between them r11 and xmm15 are free, and so are the flags at its beginning and end. What it
writes before it has read all of its uses shares no register with those: a definition in the place of a use keeps to the rows' `Reuse`,
and where a definition is written early, the code here looks whether a use stands in its place. Though no op reads flags that another
set, a comparison that would set them to what they are already is left out.

The emitter is a thin interface of `assemble.py`: `put` an instruction, `jump`, bind a label. So nothing here knows where code ends up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tlc.backends.context import SERVICES, offset
from tlc.backends.x86.forms import CONDITIONS, FORMS, RIP, Form, Memory, Value
from tlc.backends.x86.ops import ROWS
from tlc.backends.x86.registers import CONTEXT, REAL_SCRATCH, SCRATCH, STACK
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.ir import Bank, Block, Inst, Mem, Operand, Reg, Slot

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

    def tell(self, register: int, width: int, equality: bool) -> bool:
        """Whether the flags tell how a register compares with 0, or at least if it is 0."""
        ...

    def constant(self, form: Form, *operands: Value, data: bytes) -> None:
        """`put` where the address relative to rip is that of a constant."""
        ...

    def call(self, symbol: str) -> None: ...

    def symbol_slot(self, form: Form, register: int, symbol: str) -> None: ...

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


def _forms(name: str, operands: str, widths: tuple[int, ...] = (8, 16, 32, 64)) -> dict[int, Form]:
    """The forms of a name by width."""
    return {w: FORMS[name, operands, w] for w in widths if (name, operands, w) in FORMS}


_WORDS = (32, 64)
MOV, MOV_TO, MOV_I = _forms("mov", "r,m"), _forms("mov", "m,r"), _forms("mov", "m,i")
MOV32_I, MOVABS = FORMS["mov", "o,i", 32], FORMS["movabs", "o,i", 64]
TEST, TEST_I, CMP, CMP_I = _forms("test", "m,r"), _forms("test", "m,i"), _forms("cmp", "r,m"), _forms("cmp", "m,i")
XOR32, LEA = FORMS["xor", "r,m", 32], _forms("lea", "r,a")
MOVZX8, MOVZX16 = FORMS["movzx", "r,m8", 32], FORMS["movzx", "r,m16", 32]
MOVSX8, MOVSX16, MOVSXD = _forms("movsx", "r,m8"), _forms("movsx", "r,m16"), FORMS["movsxd", "r,m32", 64]
NEG64 = FORMS["neg", "m", 64]
SETCC = [FORMS[f"set{c}", "m8", 32] for c in CONDITIONS]
CMOVCC = [_forms(f"cmov{c}", "r,m") for c in CONDITIONS]
SHORT = {name: _forms(name, "m,i8") for name in ("add", "or", "and", "sub", "xor", "cmp")}
LONG = {name: _forms(name, "m,i") for name in SHORT}
RM = {name: _forms(name, "r,m") for name in (*SHORT, "imul")}
MR = {name: _forms(name, "m,r") for name in SHORT}

_SS = {32: "ss", 64: "sd"}


def _reals(name: str, operands: str, suffixes: dict[int, str] = _SS) -> dict[int, Form]:
    return {w: FORMS[name + suffixes[w], operands, w] for w in _WORDS}


_PS = {32: "ps", 64: "pd"}
FMOV, FLOAD, FSTORE = FORMS["vmovaps", "x128,y128", 32], _reals("vmov", "x,a"), _reals("vmov", "a,x")
FCMP, FBLEND, UCOMI = _reals("vcmp", "x,v,y,i8"), _reals("vblendv", "x128,v128,y128,z128", _PS), _reals("vucomi", "x,y")
FXOR, FAND = _reals("vxor", "x128,v128,y128", _PS), _reals("vand", "x128,v128,y128", _PS)
VMOVQ, VMOVD, FROM_VMOVQ, FROM_VMOVD = (
    FORMS["vmovq", "x64,m64", 64],
    FORMS["vmovd", "x32,m32", 32],
    FORMS["vmovq", "m64,x64", 64],
    FORMS["vmovd", "m32,x32", 32],
)

# ---------------------------------------------------------------- conditions

# The number of an integer condition; the lowest bit negates it.
CC = {"eq": 4, "ne": 5, "lt": 12, "ge": 13, "le": 14, "gt": 15, "b": 2, "ae": 3, "be": 6, "a": 7}

# Of reals: whether `ucomi` compares b with a instead of a with b, and the condition that holds then. The carry is set where one
# is not a number, so `above` is false there. Equality has two flags: eq and ne are not here.
REAL_CC = {
    "gt": (False, 7), "ge": (False, 3), "ngt": (False, 6), "nge": (False, 2),
    "lt": (True, 7),  "le": (True, 3),  "nlt": (True, 6),  "nle": (True, 2),
    "uno": (False, 10), "ord": (False, 11),
}  # fmt: skip
E, NE, P, NP, B = 4, 5, 10, 11, 2

# Predicates of vcmp, those that signal nothing.
PREDICATES = {
    "eq": 0x00, "lt": 0x11, "le": 0x12, "uno": 0x03, "ne": 0x04, "nlt": 0x15, "nle": 0x16, "ord": 0x07,
    "nge": 0x19, "ngt": 0x1A, "ge": 0x1D, "gt": 0x1E,
}  # fmt: skip


def _with_immediate(e: Emitter, name: str, w: int, to: Value, imm: int) -> None:
    if w > 8 and -128 <= imm < 128:
        e.put(SHORT[name][w], to, imm)
    else:
        e.put(LONG[name][w], to, imm)


# Each compares what stands from operand `k` on and gives the number of the condition.
Compare = Callable[[Emitter, Inst, int], int]


def _compare(e: Emitter, i: Inst, k: int) -> int:
    e.compare(CMP[width(i)], reg(i.operands[k]), rm(e, i.operands[k + 1]))
    return CC[str(i.attrs["cc"])]


def _compare_immediate(e: Emitter, i: Inst, k: int) -> int:
    w, a, cc = width(i), rm(e, i.operands[k]), str(i.attrs["cc"])
    imm = immediate(i, w)
    if imm == 0 and isinstance(a, int):
        if not e.tell(a, w, cc in ("eq", "ne")):
            e.compare(TEST[w], a, a)
    elif w > 8 and -128 <= imm < 128:
        e.compare(SHORT["cmp"][w], a, imm)
    else:
        e.compare(LONG["cmp"][w], a, imm)
    return CC[cc]


def _compare_memory(e: Emitter, i: Inst, k: int) -> int:
    e.put(CMP[width(i)], reg(i.operands[k]), address(e, i))
    return CC[str(i.attrs["cc"])]


def _compare_memory_immediate(e: Emitter, i: Inst, k: int) -> int:
    w = width(i)
    _with_immediate(e, "cmp", w, address(e, i), immediate(i, w))
    return CC[str(i.attrs["cc"])]


def _test(e: Emitter, i: Inst, k: int) -> int:
    e.put(TEST[width(i)], rm(e, i.operands[k + 1]), reg(i.operands[k]))
    return CC[str(i.attrs["cc"])]


def _test_immediate(e: Emitter, i: Inst, k: int) -> int:
    w, cc = width(i), str(i.attrs["cc"])
    imm = immediate(i, w)
    if cc in ("eq", "ne") and 0 <= imm < 256:
        w = 8  # the other bits are not looked at
    e.put(TEST_I[w], rm(e, i.operands[k]), imm)
    return CC[cc]


def _compare_reals(e: Emitter, i: Inst, k: int) -> int:
    """Any condition but eq and ne."""
    w = width(i)
    swapped, condition = REAL_CC[str(i.attrs["cc"])]
    a, b = reg(i.operands[k]), rm(e, i.operands[k + 1])
    if not swapped:
        e.compare(UCOMI[w], a, b)
        return condition
    if isinstance(b, Memory):
        e.put(FLOAD[w], X15, b)
        b = X15
    e.compare(UCOMI[w], b, a)
    return condition


COMPARES: dict[str, Compare] = {
    "": _compare, "_i": _compare_immediate, "_m": _compare_memory, "_mi": _compare_memory_immediate, "_t": _test, "_ti": _test_immediate,
    "_f": _compare_reals,
}  # fmt: skip


def _is_equality(i: Inst) -> bool:
    return i.attrs["cc"] in ("eq", "ne")


def _compare_equality(e: Emitter, i: Inst, k: int) -> None:
    """Sets ZF, and PF where one is not a number (and ZF with it)."""
    e.compare(UCOMI[width(i)], reg(i.operands[k]), rm(e, i.operands[k + 1]))


# ---------------------------------------------------------------- what comparisons do


def _goto(e: Emitter, block: Block) -> None:
    if not e.follows(block):
        e.jump(None, e.block(block))


def _branch(compare: Compare) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        (then, _), (other, _) = i.targets
        if e.block(then) == e.block(other):
            _goto(e, then)
            return
        condition = compare(e, i, 0)
        if e.follows(then):
            e.jump(condition ^ 1, e.block(other))
        else:
            e.jump(condition, e.block(then))
            _goto(e, other)

    return emit


def _branch_reals(e: Emitter, i: Inst) -> None:
    if not _is_equality(i):
        _branch(_compare_reals)(e, i)
        return
    (equal, _), (unequal, _) = i.targets if i.attrs["cc"] == "eq" else reversed(i.targets)
    if e.block(equal) == e.block(unequal):
        _goto(e, equal)
        return
    _compare_equality(e, i, 0)
    e.jump(P, e.block(unequal))
    if e.follows(equal):
        e.jump(NE, e.block(unequal))
    else:
        e.jump(E, e.block(equal))
        _goto(e, unequal)


def _check(compare: Compare) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        e.jump(compare(e, i, 0), _failure(e, i))

    return emit


def _check_reals(e: Emitter, i: Inst) -> None:
    if not _is_equality(i):
        e.jump(_compare_reals(e, i, 0), _failure(e, i))
        return
    failure = _failure(e, i)
    _compare_equality(e, i, 0)
    if i.attrs["cc"] == "ne":
        e.jump(P, failure)
        e.jump(NE, failure)
    else:
        fine = e.label()
        e.jump(P, fine)
        e.jump(E, failure)
        e.bind(fine)


def _failure(e: Emitter, i: Inst) -> Label:
    """Code behind the function that writes down why it stops."""
    label = e.label(f"failed_{i.attrs['site']}")

    def emit() -> None:
        e.bind(label)
        _report(e, i)

    e.later(emit)
    return label


def _report(e: Emitter, i: Inst) -> None:
    site, slots = i.attrs["site"], i.attrs["slots"]
    assert isinstance(site, int) and isinstance(slots, tuple)
    e.put(MOV_I[64], Memory(R15, None, 1, offset("site")), site)
    k = len(i.operands) - sum(s is None for s in slots)
    for n, s in enumerate(slots):
        to = Memory(R15, None, 1, offset("values") + 8 * n)
        if s is None:
            o = i.operands[k]
            k += 1
            _store_word(e, to, o)
        else:
            _store_constant(e, to, s)
    e.jump(None, e.check_failed())


def _store_word(e: Emitter, to: Memory, o: Operand) -> None:
    place = o.place
    if isinstance(place, Reg) and place.bank is Bank.REAL:
        e.put(FSTORE[64], to, place.number)
        return
    source = rm(e, o)
    if isinstance(source, Memory):
        e.put(MOV[64], R11, source)
        source = R11
    e.put(MOV_TO[64], to, source)


def _store_constant(e: Emitter, to: Memory, value: int) -> None:
    value = value - 2**64 if value >= 2**63 else value
    if -(2**31) <= value < 2**31:
        e.put(MOV_I[64], to, value)
    else:
        e.put(MOVABS, R11, value)
        e.put(MOV_TO[64], to, R11)


def _poll(e: Emitter, i: Inst) -> None:
    e.put(SHORT["cmp"][32], Memory(R15, None, 1, offset("stop")), 0)
    e.jump(NE, e.poll_failed())


def _check_stack(e: Emitter, i: Inst) -> None:
    """Who stops a run sets the limit above all addresses, so the failing path looks at the stop flag."""
    label = e.label("stack_full")
    e.put(CMP[64], RSP, Memory(R15, None, 1, offset("stack_limit")))
    e.jump(B, label)

    def emit() -> None:
        e.bind(label)
        _poll(e, i)
        _report(e, i)

    e.later(emit)


def _set(compare: Compare) -> Emit:
    """The register is cleared before the comparison where it holds none of its operands; else extended behind it."""

    def emit(e: Emitter, i: Inst) -> None:
        d = reg(i.operands[0])
        if all(o.place != i.operands[0].place for o in i.operands[1:]):
            e.put(XOR32, d, d)
            e.put(SETCC[compare(e, i, 1)], d)
        else:
            e.put(SETCC[compare(e, i, 1)], d)
            e.put(MOVZX8, d, d)

    return emit


def _set_reals(e: Emitter, i: Inst) -> None:
    if not _is_equality(i):
        _set(_compare_reals)(e, i)
        return
    d = reg(i.operands[0])
    _compare_equality(e, i, 1)
    equal = i.attrs["cc"] == "eq"
    e.put(SETCC[NP if equal else P], R11)
    e.put(SETCC[E if equal else NE], d)
    e.put(RM["and" if equal else "or"][8], d, R11)
    e.put(MOVZX8, d, d)


def _choose(compare: Compare) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        e.put(CMOVCC[compare(e, i, 3)][wide(i, "vw")], reg(i.operands[0]), rm(e, i.operands[2]))

    return emit


def _choose_reals(e: Emitter, i: Inst) -> None:
    if not _is_equality(i):
        _choose(_compare_reals)(e, i)
        return
    d, y, w = reg(i.operands[0]), rm(e, i.operands[2]), wide(i, "vw")
    _compare_equality(e, i, 3)
    if i.attrs["cc"] == "ne":
        e.put(CMOVCC[NE][w], d, y)
        e.put(CMOVCC[P][w], d, y)
    else:
        e.put(MOV[w], R11, y)
        e.put(CMOVCC[NE][w], R11, d)
        e.put(CMOVCC[P][w], R11, d)
        e.put(MOV[w], d, R11)


def _fchoose(e: Emitter, i: Inst) -> None:
    d, x, y, a = (reg(o) for o in i.operands[:4])
    w = width(i)
    e.put(FCMP[w], X15, a, rm(e, i.operands[4]), PREDICATES[str(i.attrs["cc"])])
    e.put(FBLEND[w], d, x, y, X15)


def _fchoose_integers(compare: Compare) -> Emit:
    """The condition as a mask: -1 where it holds."""

    def emit(e: Emitter, i: Inst) -> None:
        d, x, y = (reg(o) for o in i.operands[:3])
        e.put(SETCC[compare(e, i, 3)], R11)
        e.put(MOVZX8, R11, R11)
        e.put(NEG64, R11)
        e.put(VMOVQ, X15, R11)
        e.put(FBLEND[wide(i, "vw")], d, x, y, X15)

    return emit


SBB64 = FORMS["sbb", "r,m", 64]


def _fchoose_immediate(e: Emitter, i: Inst) -> None:
    """Most are of a truth value: below 1 is 0, so the borrow is the mask."""
    if i.attrs["imm"] != 0 or not _is_equality(i):
        _fchoose_integers(_compare_immediate)(e, i)
        return
    d, x, y = (reg(o) for o in i.operands[:3])
    _with_immediate(e, "cmp", width(i), rm(e, i.operands[3]), 1)
    e.put(SBB64, R11, R11)
    e.put(VMOVQ, X15, R11)
    if i.attrs["cc"] == "ne":
        x, y = y, x
    e.put(FBLEND[wide(i, "vw")], d, x, y, X15)


# ---------------------------------------------------------------- integers


def _mov_i(e: Emitter, i: Inst) -> None:
    d, w = rm(e, i.operands[0]), width(i)
    value = immediate(i, w)
    if isinstance(d, Memory):
        _store_constant(e, d, value)
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
        _with_immediate(e, "add", w, d, imm)


def _over(name: str) -> Emit:
    """Two operands, over the first."""
    forms = RM[name]
    return lambda e, i: e.put(forms[wide(i)], reg(i.operands[0]), rm(e, i.operands[2]))


def _over_immediate(name: str) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        w = wide(i)
        _with_immediate(e, name, w, reg(i.operands[0]), immediate(i, w))

    return emit


def _and_immediate(e: Emitter, i: Inst) -> None:
    """A mask of the low bits is an extension; 32 bits clear what is above them."""
    w, d = wide(i), reg(i.operands[0])
    imm = immediate(i, w)
    if imm in (0xFF, 0xFFFF):
        e.put(MOVZX8 if imm == 0xFF else MOVZX16, d, d)
    else:
        _with_immediate(e, "and", 32 if 0 <= imm < 2**31 else w, d, imm)


def _over_memory(name: str) -> Emit:
    forms = RM[name]
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), address(e, i))


def _to_memory(name: str) -> Emit:
    forms = MR[name]
    return lambda e, i: e.put(forms[width(i)], address(e, i), reg(i.operands[0]))


def _to_memory_immediate(name: str) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        w = width(i)
        _with_immediate(e, name, w, address(e, i), immediate(i, w))

    return emit


IMUL_I8, IMUL_I = _forms("imul", "r,m,i8"), _forms("imul", "r,m,i")


def _imul_immediate(e: Emitter, i: Inst) -> None:
    w = wide(i)
    imm = immediate(i, w)
    e.put((IMUL_I8 if -128 <= imm < 128 else IMUL_I)[w], reg(i.operands[0]), rm(e, i.operands[1]), imm)


def _unary(name: str) -> Emit:
    forms = _forms(name, "m")
    return lambda e, i: e.put(forms[wide(i)], reg(i.operands[0]))


def _shift(name: str) -> Emit:
    forms = _forms(name, "r,m,w")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), rm(e, i.operands[1]), reg(i.operands[2]))


def _shift_immediate(name: str) -> Emit:
    forms = _forms(name, "m,i8")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), immediate(i, 64))


RORX = _forms("rorx", "r,m,i8")


def _rotate(e: Emitter, i: Inst) -> None:
    w = width(i)
    e.put(RORX[w], reg(i.operands[0]), rm(e, i.operands[1]), -immediate(i, 64) % w)


_SIGN_EXTEND = {(8, 32): MOVSX8[32], (8, 64): MOVSX8[64], (16, 32): MOVSX16[32], (16, 64): MOVSX16[64], (32, 64): MOVSXD}
_ZERO_EXTEND = {8: MOVZX8, 16: MOVZX16, 32: MOV[32], 64: MOV[64]}


def _sx(e: Emitter, i: Inst) -> None:
    w, source = width(i), width(i, "from")
    e.put(MOV[w] if source >= w else _SIGN_EXTEND[source, w], reg(i.operands[0]), rm(e, i.operands[1]))


def _zx(e: Emitter, i: Inst) -> None:
    e.put(_ZERO_EXTEND[width(i, "from")], reg(i.operands[0]), rm(e, i.operands[1]))


def _divide(name: str) -> Emit:
    forms, extend = _forms(name, "m"), {32: FORMS["cdq", "", 32], 64: FORMS["cqo", "", 64]}

    def emit(e: Emitter, i: Inst) -> None:
        w = width(i)
        if name == "idiv":
            e.put(extend[w])
        else:
            e.put(XOR32, RDX, RDX)
        e.put(forms[w], rm(e, i.operands[3]))

    return emit


def _multiply_high(name: str) -> Emit:
    forms = _forms(name, "m")
    return lambda e, i: e.put(forms[width(i)], rm(e, i.operands[3]))


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


# ---------------------------------------------------------------- reals


def _real(name: str, suffixes: dict[int, str] = _SS, pattern: str = "x,v,y") -> Emit:
    forms = _reals(name, pattern, suffixes)
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), reg(i.operands[1]), rm(e, i.operands[2]))


def _real_memory(name: str) -> Emit:
    forms = _reals(name, "x,v,y")
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


FSQRT, FROUND = _reals("vsqrt", "x,v,y"), _reals("vround", "x,v,y,i8")
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
    forms = _reals(name, "x,v,y")
    return lambda e, i: e.put(forms[width(i)], reg(i.operands[0]), reg(i.operands[2]), rm(e, i.operands[3]))


def _fmask(e: Emitter, i: Inst) -> None:
    e.put(FCMP[width(i)], reg(i.operands[0]), reg(i.operands[1]), rm(e, i.operands[2]), PREDICATES[str(i.attrs["cc"])])


def _fblend(e: Emitter, i: Inst) -> None:
    e.put(FBLEND[width(i)], *(reg(o) for o in i.operands))


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


_FROM_INT = {(source, w): FORMS[f"vcvtsi2{_SS[w]}", f"x,v,m{source}", w] for source in _WORDS for w in _WORDS}
_TO_INT = {(source, w): FORMS[f"vcvtt{_SS[source]}2si", f"r{w},y", source] for source in _WORDS for w in _WORDS}


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


# ---------------------------------------------------------------- calls and ends

CALL_M = FORMS["call", "a64", 32]


def _status(e: Emitter) -> None:
    e.put(TEST[32], RAX, RAX)
    e.jump(NE, e.stopped)


def _call(e: Emitter, i: Inst) -> None:
    e.call(str(i.attrs["symbol"]))
    _status(e)


def _call_c(e: Emitter, i: Inst) -> None:
    symbol = str(i.attrs["symbol"])
    if symbol.startswith("service."):
        e.put(CALL_M, Memory(R15, None, 1, offset("services") + 8 * SERVICES.index(symbol[len("service.") :])))
    else:
        e.call(symbol)
    if i.attrs["checked"]:
        _status(e)


def _call_m(e: Emitter, i: Inst) -> None:
    e.put(CALL_M, address(e, i))
    if i.attrs["checked"]:
        _status(e)


def _symbol_address(e: Emitter, i: Inst) -> None:
    e.symbol_slot(MOV[64], reg(i.operands[0]), str(i.attrs["symbol"]))


def _jump(e: Emitter, i: Inst) -> None:
    _goto(e, i.targets[0][0])


def _ret(e: Emitter, i: Inst) -> None:
    e.put(XOR32, RAX, RAX)
    e.leave()


def _nothing(e: Emitter, i: Inst) -> None:
    """The frame is there already, and parameters are where the caller put them."""


def _pmove(e: Emitter, i: Inst) -> None:
    raise InternalError("`pmove` must have become moves", "encoding")


def _trap(e: Emitter, i: Inst) -> None:
    e.put(FORMS["ud2", "", 32])


def _emitters() -> dict[str, Emit]:
    out: dict[str, Emit] = {
        "br_f": _branch_reals, "check_f": _check_reals, "fset": _set_reals, "choose_f": _choose_reals, "fchoose": _fchoose,
        "fchoose_c": _fchoose_integers(_compare), "fchoose_i": _fchoose_immediate,
        "add": _add, "add_i": _add_immediate, "imul_i": _imul_immediate,
    }  # fmt: skip
    for suffix, compare in COMPARES.items():
        if suffix == "_f":
            continue
        out[f"br{suffix}"] = _branch(compare)
        out[f"check{suffix}"] = _check(compare)
        out[f"set{suffix}"] = _set(compare)
        out[f"choose{suffix}"] = _choose(compare)
        if suffix in ("_m", "_t", "_ti"):
            out[f"fchoose{suffix}"] = _fchoose_integers(compare)
    for name in RM:
        if name == "cmp":
            continue
        out[f"{name}_m"] = _over_memory(name)
        if name != "add":
            out[name] = _over(name)
        if name in SHORT:
            out[f"{name}_to"], out[f"{name}_to_i"] = _to_memory(name), _to_memory_immediate(name)
            if name != "add":
                out[f"{name}_i"] = _and_immediate if name == "and" else _over_immediate(name)
    for name in ("shl", "shr", "sar"):
        out[name], out[f"{name}_i"] = _shift(name + "x"), _shift_immediate(name)
    for name in ("add", "sub", "mul", "div", "min", "max"):
        out[f"f{name}"], out[f"f{name}_m"] = _real(f"v{name}"), _real_memory(f"v{name}")
    for name in ("and", "or", "xor", "andn"):
        out[f"f{name}"] = _real(f"v{name}", _PS, "x128,v128,y128")
    return out


EMIT: dict[str, Emit] = {
    **_emitters(),
    "mov_i": _mov_i, "move": _move, "pmove": _pmove, "neg": _unary("neg"), "not": _unary("not"), "rol_i": _rotate, "sx": _sx, "zx": _zx,
    "idiv": _divide("idiv"), "udiv": _divide("div"), "imul_hi": _multiply_high("imul"), "mul_hi": _multiply_high("mul"),
    "lea": _lea, "load": _load, "store": _store, "store_i": _store_immediate, "symbol_address": _symbol_address,
    "fconst": _fconst, "fload": _fload, "fstore": _fstore, "fsqrt": _fsqrt, "fround": _fround,
    "fabs": _with_mask(FAND, _REST), "fneg": _with_mask(FXOR, _SIGN), "fma": _fma("vfmadd213"), "fma_acc": _fma("vfmadd231"),
    "fmask": _fmask, "fblend": _fblend, "int_to_f": _int_to_f, "f_to_int": _f_to_int, "f_to_f": _f_to_f,
    "bits_to_f": _bits_to_f, "f_to_bits": _f_to_bits, "f16_to_f": _f16_to_f, "f_to_f16": _f_to_f16,
    "enter": _nothing, "call": _call, "call_c": _call_c, "call_m": _call_m, "poll": _poll, "check_stack": _check_stack,
    "jump": _jump, "ret": _ret, "trap": _trap,
}  # fmt: skip

assert set(EMIT) == set(ROWS), f"not of one table: {set(EMIT) ^ set(ROWS)}"

"""Comparisons and what they do: branches, checks, truth values, choices; and the other ways out of a function.

Flags never live between ops, so each compares and decides. Equality of reals has two flags: the parity says that one is not a number.
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.backends.context import offset
from tlc.backends.x86.emitter import (
    FBLEND,
    FCMP,
    FLOAD,
    FSTORE,
    LONG,
    MOV,
    MOV_I,
    MOV_TO,
    MOVZX8,
    NE,
    PREDICATES,
    R11,
    R15,
    RSP,
    SHORT,
    TEST,
    VMOVQ,
    X15,
    XOR32,
    Emit,
    Emitter,
    Label,
    address,
    forms_of,
    immediate,
    real_forms,
    reg,
    rm,
    store_constant,
    wide,
    width,
    with_immediate,
)
from tlc.backends.x86.forms import CONDITIONS, FORMS, Memory
from tlc.regalloc.ir import Bank, Block, Inst, Operand, Reg

SETCC = [FORMS[f"set{c}", "m8", 32] for c in CONDITIONS]
CMOVCC = [forms_of(f"cmov{c}", "r,m") for c in CONDITIONS]
CMP, TEST_I, UCOMI = forms_of("cmp", "r,m"), forms_of("test", "m,i"), real_forms("vucomi", "x,y")
AND8, OR8, SBB64, NEG64 = (FORMS[key] for key in (("and", "r,m", 8), ("or", "r,m", 8), ("sbb", "r,m", 64), ("neg", "m", 64)))

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
E, P, NP, B = 4, 10, 11, 2

# Each compares what stands from operand `k` on and gives the number of the condition.
Compare = Callable[[Emitter, Inst, int], int]


def _compare(e: Emitter, i: Inst, k: int) -> int:
    e.compare(CMP[width(i)], reg(i.operands[k]), rm(e, i.operands[k + 1]))
    return CC[str(i.attrs["cc"])]


def _compare_immediate(e: Emitter, i: Inst, k: int) -> int:
    w, a, cc = width(i), rm(e, i.operands[k]), str(i.attrs["cc"])
    imm = immediate(i, w)
    if imm == 0 and isinstance(a, int):
        if not e.tells(a, w, cc in ("eq", "ne")):
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
    with_immediate(e, "cmp", w, address(e, i), immediate(i, w))
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
}  # fmt: skip


def is_equality(i: Inst) -> bool:
    return i.attrs["cc"] in ("eq", "ne")


def _compare_equality(e: Emitter, i: Inst, k: int) -> None:
    """Sets ZF, and PF where one is not a number (and ZF with it)."""
    e.compare(UCOMI[width(i)], reg(i.operands[k]), rm(e, i.operands[k + 1]))


# ---------------------------------------------------------------- what comparisons do


def goto(e: Emitter, block: Block) -> None:
    if not e.follows(block):
        e.jump(None, e.block(block))


def _branch(compare: Compare) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        (then, _), (other, _) = i.targets
        if e.block(then) == e.block(other):
            goto(e, then)
            return
        condition = compare(e, i, 0)
        if e.follows(then):
            e.jump(condition ^ 1, e.block(other))
        else:
            e.jump(condition, e.block(then))
            goto(e, other)

    return emit


def _branch_reals(e: Emitter, i: Inst) -> None:
    if not is_equality(i):
        _branch(_compare_reals)(e, i)
        return
    (equal, _), (unequal, _) = i.targets if i.attrs["cc"] == "eq" else reversed(i.targets)
    if e.block(equal) == e.block(unequal):
        goto(e, equal)
        return
    _compare_equality(e, i, 0)
    e.jump(P, e.block(unequal))
    if e.follows(equal):
        e.jump(NE, e.block(unequal))
    else:
        e.jump(E, e.block(equal))
        goto(e, unequal)


def _check(compare: Compare) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        e.jump(compare(e, i, 0), _failure(e, i))

    return emit


def _check_reals(e: Emitter, i: Inst) -> None:
    if not is_equality(i):
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
            store_constant(e, to, s)
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
    if not is_equality(i):
        _set(_compare_reals)(e, i)
        return
    d = reg(i.operands[0])
    _compare_equality(e, i, 1)
    equal = i.attrs["cc"] == "eq"
    e.put(SETCC[NP if equal else P], R11)
    e.put(SETCC[E if equal else NE], d)
    e.put(AND8 if equal else OR8, d, R11)
    e.put(MOVZX8, d, d)


def _choose(compare: Compare) -> Emit:
    def emit(e: Emitter, i: Inst) -> None:
        e.put(CMOVCC[compare(e, i, 3)][wide(i, "vw")], reg(i.operands[0]), rm(e, i.operands[2]))

    return emit


def _choose_reals(e: Emitter, i: Inst) -> None:
    if not is_equality(i):
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


def _fchoose_immediate(e: Emitter, i: Inst) -> None:
    """Most are of a truth value: below 1 is 0, so the borrow is the mask."""
    if i.attrs["imm"] != 0 or not is_equality(i):
        _fchoose_integers(_compare_immediate)(e, i)
        return
    d, x, y = (reg(o) for o in i.operands[:3])
    with_immediate(e, "cmp", width(i), rm(e, i.operands[3]), 1)
    e.put(SBB64, R11, R11)
    e.put(VMOVQ, X15, R11)
    if i.attrs["cc"] == "ne":
        x, y = y, x
    e.put(FBLEND[wide(i, "vw")], d, x, y, X15)


def _emitters() -> dict[str, Emit]:
    out: dict[str, Emit] = {
        "br_f": _branch_reals, "check_f": _check_reals, "fset": _set_reals, "choose_f": _choose_reals, "fchoose": _fchoose,
        "fchoose_c": _fchoose_integers(_compare), "fchoose_i": _fchoose_immediate, "poll": _poll, "check_stack": _check_stack,
    }  # fmt: skip
    for suffix, compare in COMPARES.items():
        out[f"br{suffix}"] = _branch(compare)
        out[f"check{suffix}"] = _check(compare)
        out[f"set{suffix}"] = _set(compare)
        out[f"choose{suffix}"] = _choose(compare)
        if suffix in ("_m", "_t", "_ti"):
            out[f"fchoose{suffix}"] = _fchoose_integers(compare)
    return out


EMIT = _emitters()

"""The verifier finds each kind of broken machine IR, and names function and instruction."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tlc.backends.x86.ops import TARGET
from tlc.backends.x86.registers import RAX, RCX
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.allocate import allocate
from tlc.regalloc.ir import Bank, Block, Module, Operand, Slot, VReg
from tlc.regalloc.text import parse_module
from tlc.regalloc.verify import verify, verify_module

GOOD = """
func @f.g {
entry:
  %a in rdi = enter
  ret %a in rdx
}

func @f.main {
entry:
  %p in rdi, %n in rsi, %x in xmm0 = enter
  %z = mov_i.64 {imm = 0}
  jump -> loop(%z, %x)
loop(%i: i, %s: r) depth 1:
  check.64 %i, %n, late %i any {cc = "ae", site = 1, slots = (None, 4)}
  %y = fload.64 [%p + %i*8]
  %t = fadd.64 %s, %y
  %j = add_i.64 %i {imm = 1}
  %d, %r = idiv.64 %j, %n
  %k in rdx = call %r in rdi {symbol = "f.g"}
  br.64 %k, %n {cc = "lt"} -> loop(%k, %t), done
done:
  ret %t in xmm0
}
"""


def good() -> Module:
    module = parse_module(GOOD, TARGET)
    verify_module(module, TARGET)
    return module


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # structure
        ("jump -> loop(%z, %x)", "", "a block ends without a terminator"),
        ("  ret %t in xmm0", "  ret %t in xmm0\n  ret", "a terminator within a block"),
        ("%z = mov_i.64 {imm = 0}", "enter\n  %z = mov_i.64 {imm = 0}", "is not the first instruction of the entry"),
        ("loop(%k, %t), done", "entry, done", "goes to the entry"),
        ("loop(%k, %t), done", "done", "has 1 targets, should have 2"),
        ("loop(%k, %t), done", "loop(%k), done", "passes (i) to `loop`, should pass (i, r)"),
        ("loop(%k, %t), done", "loop(%t, %k), done", "passes (r, i) to `loop`, should pass (i, r)"),
        # operands
        ("fadd.64 %s, %y", "fadd.64 %s", "has 2 operands, should have 3"),
        ("fadd.64 %s, %y", "fadd.64 %s, %y, %y", "has 4 operands, should have 3"),
        ("fadd.64 %s, %y", "fadd.64 %s, %n", "operand 2 is a use of a register of int, should be a use of a register of real"),
        ("fadd.64 %s, %y", "fadd.64 %s any, %y", "operand 1 is not where and when its row says"),
        ("fadd.64 %s, %y", "fadd.64 late %s, %y", "operand 1 is not where and when its row says"),
        # addresses
        ("[%p + %i*8]", "[%x + %i*8]", "not an early use of an integer in a register"),
        ("[%p + %i*8]", "[%p + late %i*8]", "not an early use of an integer in a register"),
        ("[%p + %i*8]", "[%p + %i*3]", "no such scale or offset"),
        ("[%p + %i*8]", "[%p + %i*8 + 2147483648]", "no such scale or offset"),
        # what is variadic
        ("late %i any {", "%i any {", "is not a late use in any place"),
        ("late %i any {", "late %i {", "is not a late use in any place"),
        ("slots = (None, 4)", "slots = (4, 4)", "reports 1 registers, should report as many as `slots` has None"),
        ("ret %t in xmm0", "ret %t", "an operand is in no fixed register"),
        ("ret %t in xmm0", "%q in rdx = ret %t in xmm0", "a definition or a use where there is none"),
        # attributes
        ("{imm = 0}", "{}", "has attributes ['w'], should have ['imm', 'w']"),
        ("{imm = 0}", "{imm = 0, cc = \"eq\"}", "has attributes ['cc', 'imm', 'w'], should have ['imm', 'w']"),
        ("mov_i.64 {imm = 0}", "mov_i.16 {imm = 0}", "width 16 is none of (32, 64)"),
        ("mov_i.64 {imm = 0}", "mov_i.32 {imm = 4294967296}", "`imm` is 4294967296, should be an integer that fits"),
        ("mov_i.64 {imm = 0}", "mov_i.64 {imm = True}", "`imm` is True, should be an integer that fits"),
        ("{imm = 1}", "{imm = 2147483648}", "`imm` is 2147483648, should be an integer that fits"),
        ('{cc = "lt"}', '{cc = "uno"}', "`cc` is 'uno', should be a condition of what is compared"),
        # registers
        ("%r in rdi {", "%r in xmm1 {", "is not of the bank of xmm1"),
        ("%k in rdx = call", "%k in rdx, %k2 in rdx = call", "two definitions in rdx"),
        ("call %r in rdi", "call %r in rdi, %j in rdi", "two values in rdi"),
        ("{symbol = \"f.g\"}", "{symbol = \"f.g\"} clobbers (rdx)", "is in rdx, which is destroyed"),
        # calls
        ("symbol = \"f.g\"", "symbol = \"f.h\"", "there is no function `f.h`"),
        ("call %r in rdi", "call %r in rsi", "passes nothing in rdi"),
        ("%k in rdx = call", "%k in rcx = call", "gets nothing in rcx"),
        # values
        ("%t = fadd.64 %s, %y", "%t = fadd.64 %t, %y", "is not defined on every path to here"),
        ("%j = add_i.64 %i {imm = 1}", "%j = add_i.64 %k {imm = 1}", "is not defined on every path to here"),
        ("%y = fload", "%t = fload.64 [%p]\n  %y = fload", "%t.6 is defined twice"),
    ],
)  # fmt: skip
def test_what_is_broken_in_text(old: str, new: str, message: str) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(InternalError) as e:
        verify_module(parse_module(text, TARGET), TARGET)
    assert message in str(e.value)
    assert e.value.where.startswith("function f.")


def foreign_target(m: Module) -> None:
    _, args = m.functions["f.main"].blocks[1].terminator.targets[0]
    m.functions["f.main"].blocks[1].terminator.targets[0] = Block("elsewhere"), args


def no_blocks(m: Module) -> None:
    m.functions["f.g"].blocks.clear()


def empty_block(m: Module) -> None:
    m.functions["f.g"].entry.insts.clear()


def parameters_of_the_entry(m: Module) -> None:
    f = m.functions["f.g"]
    f.entry.params.append(f.new(Bank.INT))


def one_number(m: Module) -> None:
    f = m.functions["f.g"]
    f.entry.terminator.operands[0].vreg = VReg(0, Bank.INT, "b")


def too_great_a_number(m: Module) -> None:
    m.functions["f.g"].vregs = 0


def another_name(m: Module) -> None:
    m.functions["f.h"] = m.functions.pop("f.g")


def unknown_op(m: Module) -> None:
    m.functions["f.g"].entry.insts[0].op = "enters"


def a_place(m: Module) -> None:
    m.functions["f.g"].entry.insts[0].operands[0].place = RAX


def base_and_area(m: Module) -> None:
    inst = m.functions["f.main"].blocks[1].insts[1]
    inst.attrs["mem"] = inst.attrs["mem"].__class__(1, 2, 8, 0, "context")


def address_elsewhere(m: Module) -> None:
    inst = m.functions["f.main"].blocks[1].insts[1]
    inst.attrs["mem"] = inst.attrs["mem"].__class__(2, 1, 8, 0)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (foreign_target, "goes to `elsewhere` outside of the function"),
        (no_blocks, "has no block"),
        (empty_block, "is empty"),
        (parameters_of_the_entry, "has parameters"),
        (one_number, "have one number"),
        (too_great_a_number, "has a number of 0 or more"),
        (another_name, "filed under `f.h`"),
        (unknown_op, "there is no op `enters`"),
        (a_place, "has places before allocation"),
        (base_and_area, "no area or base, or both"),
        (address_elsewhere, "has operand 2 as a register, should have 1"),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_what_is_broken_in_memory(breaks: Callable[[Module], None], message: str) -> None:
    module = good()
    breaks(module)
    with pytest.raises(InternalError) as e:
        verify_module(module, TARGET)
    assert message in str(e.value)


def operand(m: Module, op: str, k: int) -> Operand:
    return next(i for b in m.functions["f.main"].blocks for i in b.insts if i.op == op).operands[k]


def wrong(op: str, k: int, place: object) -> Callable[[Module], None]:
    def breaks(m: Module) -> None:
        operand(m, op, k).place = place  # type: ignore[assignment]

    return breaks


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (wrong("fadd", 0, None), "has no place"),
        (wrong("fadd", 0, RAX), "is in rax of the other bank"),
        (wrong("fadd", 0, Slot(0)), "is in slot0"),
        (wrong("fadd", 2, Slot(99)), "slot99 is not below"),
        (wrong("idiv", 0, RCX), "is in rcx, which its constraint forbids"),
    ],
)
def test_what_is_broken_after_allocation(breaks: Callable[[Module], None], message: str) -> None:
    module = good()
    for f in module.functions.values():
        allocate(f, TARGET, TARGET.env)
    verify_module(module, TARGET)
    module.functions["f.main"].slots = max(1, module.functions["f.main"].slots)
    breaks(module)
    with pytest.raises(InternalError) as e:
        verify_module(module, TARGET)
    assert message in str(e.value)


def test_a_reused_operand_is_in_the_place_of_its_use() -> None:
    text = """
func @f allocated {
a:
  %0@rbx = mov_i.64 {imm = 1}
  %1@rbx = neg.64 %0@rbx
  ret %1@rdx in rdx
}
"""
    module = parse_module(text, TARGET)
    verify(module.functions["f"], TARGET)
    module.functions["f"].entry.insts[1].operands[0].place = RCX
    with pytest.raises(InternalError, match="is in rcx, which its constraint forbids"):
        verify(module.functions["f"], TARGET)


def test_parallel_moves_pair_banks() -> None:
    text = """
func @f {
a:
  %0 = mov_i.64 {imm = 1}
  %1 = fconst.64 {bits = 0}
  %2, %3: r = pmove %0, %1
  ret %2 in rdx, %3 in xmm0
}
"""
    verify_module(parse_module(text, TARGET), TARGET)
    module = parse_module(text.replace("pmove %0, %1", "pmove %1, %0"), TARGET)
    with pytest.raises(InternalError, match="does not move as many registers, of the same banks"):
        verify_module(module, TARGET)

"""Coalescing leaves no move in loops that could be avoided. How many there must be is worked out beside each loop."""

from __future__ import annotations

import pytest

from tlc.backends.x86.ops import TARGET
from tlc.regalloc.allocate import allocate
from tlc.regalloc.ir import Function, Slot
from tlc.regalloc.target import Kind
from tlc.regalloc.text import parse_module


def allocated(text: str, registers: str = "all") -> Function:
    f = next(iter(parse_module(text, TARGET).functions.values()))
    allocate(f, TARGET, TARGET.env if registers == "all" else TARGET.few, verify=True)
    return f


def moves(f: Function) -> tuple[int, int]:
    """Moves between registers in loops, and loads and stores there."""
    plain = memory = 0
    for block in f.blocks:
        for inst in block.insts:
            if block.depth and TARGET.rows[inst.op].kind is Kind.MOVE:
                slot = any(isinstance(o.place, Slot) for o in inst.operands)
                plain, memory = plain + (not slot), memory + slot
    return plain, memory


# (a, b) -> (b, a + b). The sum must not be written over b before b is copied to a, and a is needed for the sum: the sum goes to a
# third register, then a <- b, b <- sum. Two moves; a sum over a would make it an exchange, three.
FIBONACCI = """
func @f {
entry:
  %n in rdi = enter
  %zero = mov_i.64 {imm = 0}
  %one = mov_i.64 {imm = 1}
  jump -> head(%n, %zero, %one)
head(%k: i, %a: i, %b: i) depth 1:
  br_i.64 %k {cc = "eq", imm = 0} -> done, body
body depth 1:
  %sum = add.64 %a, %b
  %next = add_i.64 %k {imm = -1}
  jump -> head(%next, %b, %sum)
done:
  ret %a in rdx
}
"""

# (a, b, c) -> (b, c, a): three values change places in a circle, which takes one move more than it has values.
ROTATE = """
func @f {
entry:
  %n in rdi, %x in rsi, %y in rdx, %z in rcx = enter
  jump -> head(%n, %x, %y, %z)
head(%k: i, %a: i, %b: i, %c: i) depth 1:
  br_i.64 %k {cc = "eq", imm = 0} -> done, body
body depth 1:
  %next = add_i.64 %k {imm = -1}
  jump -> head(%next, %b, %c, %a)
done:
  ret %a in rdx, %b in rcx, %c in rsi
}
"""

# (a, b) -> (b, a mod b). The dividend must be in rax, the remainder comes in rdx, the divisor can be in neither: a <- b and b <- rdx.
GCD = """
func @f {
entry:
  %x in rdi, %y in rsi = enter
  jump -> head(%x, %y)
head(%a: i, %b: i) depth 1:
  br_i.64 %b {cc = "eq", imm = 0} -> done, body
body depth 1:
  %q, %r = idiv.64 %a, %b
  jump -> head(%b, %r)
done:
  ret %a in rdx
}
"""

# An inner product: sums, counters and addresses are updated in place.
PRODUCT = """
func @f {
entry:
  %x in rdi, %y in rsi, %n in rdx = enter
  %zero = mov_i.64 {imm = 0}
  %nought = fconst.64 {bits = 0}
  jump -> head(%zero, %nought)
head(%k: i, %s: r) depth 1:
  br.64 %k, %n {cc = "ge"} -> done, body
body depth 1:
  %a = fload.64 [%x + %k*8]
  %b = fload.64 [%y + %k*8]
  %more = fma_acc.64 %s, %a, %b
  %next = add_i.64 %k {imm = 1}
  jump -> head(%next, %more)
done:
  ret %s in xmm0
}
"""

# x & y with x needed afterwards and y not: the result goes over y, whichever stands first.
COMMUTES = """
func @f {
entry:
  %x in rdi, %y in rsi, %n in rdx = enter
  jump -> head(%y)
head(%a: i) depth 1:
  %b = and.64 %x, %a
  %c = xor.64 %b, %x
  br.64 %c, %n {cc = "lt"} -> back, done
back depth 1:
  jump -> head(%c)
done:
  ret %c in rdx
}
"""

# Minimum and maximum so far: each is chosen over itself.
CHOOSE = """
func @f {
entry:
  %x in rdi, %n in rsi = enter
  %zero = mov_i.64 {imm = 0}
  jump -> head(%zero, %zero, %zero)
head(%k: i, %least: i, %most: i) depth 1:
  %v = load.64 [%x + %k*8] {ext = "s"}
  %l = choose.64 %least, %v, %v, %least {cc = "lt", vw = 64}
  %m = choose.64 %most, %v, %v, %most {cc = "gt", vw = 64}
  %next = add_i.64 %k {imm = 1}
  br.64 %next, %n {cc = "lt"} -> back, done
back depth 1:
  jump -> head(%next, %l, %m)
done:
  ret %l in rdx, %m in rcx
}
"""


# The counter is increased before it is read for the last time, and nobody reads the new value before the branch: it is computed behind.
EARLY = """
func @f {
entry:
  %x in rdi, %n in rsi = enter
  %zero = mov_i.64 {imm = 0}
  jump -> head(%zero)
head(%k: i) depth 1:
  %next = add_i.64 %k {imm = 1}
  %v = load.64 [%x + %k*8 + 8] {ext = "s"}
  store.64 %v, [%x + %k*8]
  br.64 %next, %n {cc = "lt"} -> head(%next), done
done:
  ret
}
"""

# The same, but a store reads the new value while the old one is still to be read: both live, one copy.
BOTH = """
func @f {
entry:
  %x in rdi, %n in rsi = enter
  %zero = mov_i.64 {imm = 0}
  jump -> head(%zero)
head(%k: i) depth 1:
  %next = add_i.64 %k {imm = 1}
  store.64 %next, [%x + %k*8]
  store.64 %k, [%x + %next*8]
  br.64 %next, %n {cc = "lt"} -> head(%next), done
done:
  ret
}
"""


@pytest.mark.parametrize(
    ("text", "least"),
    [(FIBONACCI, 2), (ROTATE, 4), (GCD, 2), (PRODUCT, 0), (COMMUTES, 0), (CHOOSE, 0), (EARLY, 0), (BOTH, 1)],
    ids=["fibonacci", "rotate", "gcd", "product", "commutes", "choose", "early", "both"],
)
def test_no_avoidable_move(text: str, least: int) -> None:
    assert moves(allocated(text)) == (least, 0)


def test_three_registers() -> None:
    """With three registers the loops of three values or less still have nothing in the frame."""
    for text, least in ((FIBONACCI, 2), (COMMUTES, 0)):
        plain, memory = moves(allocated(text, "few"))
        assert plain <= least + 1
        assert memory <= 2

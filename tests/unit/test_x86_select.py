"""What selection makes of host SSA: comparisons in their readers, addresses in loads, divisions by constants as multiplications."""

from __future__ import annotations

import random
import re

import pytest

from tlc.backends.program import Tables
from tlc.backends.x86.divide import multiplier
from tlc.backends.x86.ops import TARGET
from tlc.backends.x86.select import select
from tlc.regalloc.text import print_module
from tlc.regalloc.verify import verify
from tlc.ssa.text import parse_module


def selected(text: str) -> list[str]:
    """The lines of the machine IR, without the names of virtual registers' numbers made unique."""
    module = select(parse_module(text), {}, Tables())
    for f in module.functions.values():
        verify(f, TARGET)
    return [line.strip() for line in print_module(module, TARGET).splitlines()]


DEFINITIONS = re.compile(r"%[\w.]+( in \w+)?(, %[\w.]+( in \w+)?)* = ")


def names(lines: list[str]) -> list[str]:
    """The op of each line that is an instruction, with its width."""
    return [DEFINITIONS.sub("", line, count=1).split()[0] for line in lines]


LOOP = """
func @main(%x: i64[_]) -> i64 {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %n = dim %x {axis = 0} : i64
  jump head(%zero, %zero)
head(%i: i64, %sum: i64):
  %more = lt %i, %n : bool
  branch %more, body, exit
body:
  %next = add %i, %one : i64
  %element = load %x, %i : i64
  %sum2 = add %sum, %element : i64
  jump head(%next, %sum2)
exit:
  return %sum
}
"""


def test_a_loop_is_four_instructions() -> None:
    """The comparison is in the branch, the load in the addition, the address in the load; the header stands last and jumps back."""
    lines = selected(LOOP)
    start = next(k for k, line in enumerate(lines) if line.startswith("body"))
    assert names(lines[start + 1 : start + 5]) == ["add_m.64", "add_i.64", "poll", "jump"]
    assert "[%x" in lines[start + 1] and "*8]" in lines[start + 1]
    header = next(k for k, line in enumerate(lines) if line.startswith("head"))
    assert header > start and lines[header + 1].startswith("br.64") and "body, exit" in lines[header + 1]


def test_the_tensor_of_a_loop_in_place_is_no_parameter() -> None:
    """Its address and extent are those that entered the loop, so nothing moves them."""
    lines = selected("""
func @main(%x: i64[_]) -> i64[_] {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %n = dim %x {axis = 0} : i64
  jump head(%zero, %x)
head(%i: i64, %y: i64[_]):
  %more = lt %i, %n : bool
  branch %more, body, exit
body:
  %z = store %y, %i, %i : i64[_]
  %next = add %i, %one : i64
  jump head(%next, %z)
exit:
  return %y
}
""")
    assert any(line.startswith("head(%i") and line.count(": i") == 1 for line in lines)


def bounds(cond: str) -> list[str]:
    lines = selected(f"""
func @main(%x: i64[_], %i: i64, %m: i64) -> i64 {{
entry:
  %zero = const {{value = 0}} : i64
  %n = dim %x {{axis = 0}} : i64
  %low = ge %i, %zero : bool
  %high = lt %i, {cond} : bool
  %both = and %low, %high : bool
  check %both, %i, {cond} {{kind = "index", message = "index {{0}} is out of range for a dimension of {{1}}"}}
  %y = load %x, %i : i64
  return %y
}}
""")
    return [line for line in lines if line.startswith("check")]


def test_a_check_of_an_index_is_one_unsigned_comparison() -> None:
    """0 <= i < n is one comparison where n is an extent; where n may be negative it is two."""
    (line,) = bounds("%n")
    assert line.startswith("check.64") and 'cc = "ae"' in line and "late" in line
    low, high = bounds("%m")
    assert 'cc = "lt", imm = 0' in low and 'cc = "ge"' in high


def test_a_constant_in_a_message_costs_no_register() -> None:
    lines = selected("""
func @main(%i: i64) -> i64 {
entry:
  %n = const {value = 10} : i64
  %low = lt %i, %n : bool
  check %low, %i, %n {kind = "index", message = "{0} {1}"}
  return %i
}
""")
    (line,) = [line for line in lines if line.startswith("check")]
    assert "slots = (None, 10)" in line
    assert not any("mov_i" in line for line in lines)


def arithmetic(expression: str, prepare: str = "") -> list[str]:
    """The instructions between `enter` and `ret` for one expression of an i64 `%x`."""
    lines = selected(f"func @main(%x: i64, %y: i64) -> i64 {{\nentry:\n{prepare}  %r = {expression} : i64\n  return %r\n}}")
    start = next(k for k, line in enumerate(lines) if line.endswith("enter"))
    end = next(k for k, line in enumerate(lines) if line.startswith("ret"))
    return lines[start + 1 : end]


def constant(value: int) -> str:
    return f"  %c = const {{value = {value}}} : i64\n"


def test_division_by_a_constant() -> None:
    """No division: a product's high half, for either sign through the complement; by powers of two a shift and a mask."""
    assert names(arithmetic("floordiv %x, %c", constant(8))) == ["sar_i.64"]
    assert names(arithmetic("mod %x, %c", constant(8))) == ["and_i.64"]
    assert names(arithmetic("floordiv %x, %c", constant(10))) == ["sar_i.64", "xor.64", "mov_i.64", "mul_hi.64", "shr_i.64", "xor.64"]
    assert "idiv.64" in names(arithmetic("floordiv %x, %y"))


def test_what_is_known_of_a_number_makes_its_division_cheaper() -> None:
    """What is not negative is divided at once, a small number by the low half of a product."""
    small = "  %mask = const {value = 65535} : i64\n  %small = and %x, %mask : i64\n" + constant(10)
    assert names(arithmetic("floordiv %small, %c", small)) == ["and_i.64", "imul_i.64", "shr_i.64"]
    assert names(arithmetic("floordiv %small, %c", small.replace("value = 10}", "value = 65536}"))) == ["and_i.64", "sar_i.64"]
    assert names(arithmetic("floordiv %small, %c", small.replace("value = 10}", "value = 65537}"))) == ["mov_i.64"]
    large = "  %one = const {value = 1} : i64\n  %large = max %x, %one : i64\n" + constant(10)
    assert names(arithmetic("floordiv %large, %c", large))[-3:] == ["mov_i.64", "mul_hi.64", "shr_i.64"]


def test_quotient_and_remainder_are_one_division() -> None:
    lines = arithmetic("add %q, %m", "  %q = floordiv %x, %y : i64\n  %m = mod %x, %y : i64\n")
    assert names(lines).count("idiv.64") == 1


def test_a_divisor_that_was_checked_needs_no_guard() -> None:
    """Then only -1 is replaced, where the quotient may not exist; a divisor that is known to be positive is taken as it is."""
    zero = "  %zero = const {value = 0} : i64\n"
    check = '  check %fine {kind = "division", message = "division by zero"}\n'
    unchecked = names(arithmetic("mod %x, %y"))
    not_zero = names(arithmetic("mod %x, %y", zero + "  %fine = ne %y, %zero : bool\n" + check))
    positive = names(arithmetic("mod %x, %y", zero + "  %fine = gt %y, %zero : bool\n" + check))
    other = names(arithmetic("mod %x, %y", zero + "  %z = add %x, %y : i64\n  %fine = ne %z, %zero : bool\n" + check))
    assert [n.count("choose_i.64") for n in (unchecked, not_zero, positive, other)] == [4, 3, 0, 4]


def test_multiples() -> None:
    assert names(arithmetic("mul %x, %c", constant(9))) == ["lea.64"]
    assert names(arithmetic("mul %x, %c", constant(16))) == ["shl_i.64"]
    assert names(arithmetic("mul %x, %c", constant(7))) == ["imul_i.64"]
    assert arithmetic("add %y, %t", constant(4) + "  %t = mul %x, %c : i64\n")[0].endswith("*4]")
    for sum, address in (("%t = add %x, %y", "*1 + 7]"), ("%t = mul %x, %three", "*2 + 7]")):
        (lea,) = arithmetic("add %t, %c", constant(7) + f"  %three = const {{value = 3}} : i64\n  {sum} : i64\n")
        assert lea.endswith(address)


@pytest.mark.parametrize("bits", [7, 8, 31, 32, 63])
def test_multipliers(bits: int) -> None:
    """(y m) >> k is y // d at the ends of the range, next to multiples of d, and at random."""
    rng = random.Random(bits)
    for d in (*range(1, 130), 641, 10**6 + 3, 2**31 - 1, 2**40 + 1, *(rng.randrange(1, 2**bits) for _ in range(200))):
        if d >= 2**bits:
            continue
        m, k = multiplier(d, bits, bits)
        assert k < 64 or m.bit_length() + bits > 64, "the low half of a product has 64 bits to shift"
        top = 2**bits - 1
        numbers = {0, 1, d - 1, d, d + 1, top, top - 1, top // d * d, top // d * d - 1, *(rng.randrange(2**bits) for _ in range(20))}
        assert all((y * m) >> k == y // d for y in numbers if 0 <= y <= top), d


def test_a_branch_on_a_bit_is_a_test() -> None:
    lines = selected("""
func @main(%n: i64) -> i64 {
entry:
  %two = const {value = 2} : i64
  %zero = const {value = 0} : i64
  %bit = mod %n, %two : i64
  %even = eq %bit, %zero : bool
  branch %even, then, join(%n)
then:
  %half = floordiv %n, %two : i64
  jump join(%half)
join(%r: i64):
  return %r
}
""")
    assert any(line.startswith("br_ti.64") and "imm = 1" in line for line in lines)


@pytest.mark.parametrize(("op", "first"), [("and", "-> entry.1, other"), ("or", "-> then, entry.1")])
def test_a_branch_on_two_conditions_is_two_branches(op: str, first: str) -> None:
    lines = selected(f"""
func @main(%x: i64, %y: i64) -> i64 {{
entry:
  %a = lt %x, %y : bool
  %c = const {{value = 9}} : i64
  %b = ne %y, %c : bool
  %both = {op} %a, %b : bool
  branch %both, then, other
then:
  return %x
other:
  return %y
}}
""")
    branches = [line for line in lines if line.startswith("br")]
    assert names(branches) == ["br.64", "br_i.64"]
    assert branches[0].endswith(first) and branches[1].endswith("-> then, other")


def test_what_nobody_reads_is_not_written() -> None:
    assert names(arithmetic("add %x, %y", "  %dead = mul %x, %x : i64\n  %deader = floordiv %dead, %x : i64\n")) == ["add.64"]


NEST = """
func @main(%n: i64) -> i64 {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  jump outer(%zero, %zero, %zero)
outer(%i: i64, %sum: i64, %unread: i64):
  %more = lt %i, %n : bool
  branch %more, inner(%zero, %sum), exit
inner(%j: i64, %s: i64):
  %again = lt %j, %i : bool
  branch %again, body, latch
body:
  %s2 = add %s, %j : i64
  %j2 = add %j, %one : i64
  jump inner(%j2, %s2)
latch:
  %i2 = add %i, %one : i64
  %unread2 = add %unread, %i : i64
  jump outer(%i2, %s, %unread2)
exit:
  return %sum
}
"""


def test_loops_stand_together_with_their_tests_at_the_end() -> None:
    """Each iteration of either loop takes one jump, that of its test."""
    heads = [line.split(" ")[0].split("(")[0].rstrip(":") for line in selected(NEST) if line.endswith(":") or " depth " in line]
    assert heads == ["entry", "body", "inner", "latch", "outer", "exit"]


def test_a_parameter_that_only_feeds_itself_is_gone() -> None:
    assert not any("unread" in line for line in selected(NEST))
    assert sum("add" in name for name in names([line for line in selected(NEST) if "=" in line])) == 3


def test_a_counter_changes_at_the_end_of_its_loop() -> None:
    """Though it is computed first: so it may be written over. What reads it before adds the constant in its address."""
    lines = selected("""
func @main(%x: i64[_]) -> i64 {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %n = dim %x {axis = 0} : i64
  jump head(%zero, %zero)
head(%i: i64, %sum: i64):
  %next = add %i, %one : i64
  %more = lt %i, %n : bool
  branch %more, body, exit
body:
  %ahead = load %x, %next : i64
  %here = load %x, %i : i64
  %both = mul %ahead, %here : i64
  %sum2 = add %sum, %both : i64
  jump head(%next, %sum2)
exit:
  return %sum
}
""")
    start = next(k for k, line in enumerate(lines) if line.startswith("body"))
    assert names(lines[start + 1 : start + 6]) == ["load.64", "imul_m.64", "add.64", "add_i.64", "poll"]
    assert "*8 + 8]" in "".join(lines[start + 1 : start + 3])


def test_an_element_changes_in_place() -> None:
    """`count[at] += 1` is one instruction; not if the element is read again."""
    text = """
func @main(%x: i64[_], %at: i64) -> i64[_] {
entry:
  %one = const {value = 1} : i64
  %old = load %x, %at : i64
  %new = add %old, %one : i64
  %y = store %x, %at, %new : i64[_]
  AGAIN
  return %y
}
"""
    assert "add_to_i.64" in names(selected(text.replace("AGAIN", "")))
    assert "add_to_i.64" not in names(
        selected(
            text.replace("AGAIN", 'check %one_more {kind = "a", message = "m"}').replace(
                "%y = store", "%one_more = eq %old, %one : bool\n  %y = store"
            )
        )
    )

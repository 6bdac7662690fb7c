"""Machine IR as text: golden files round-trip, verify, and give what their `#!` lines say in the interpreter and on the processor, before and
after allocation with all registers and with few; bad text has places.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mir_run import context, field, interpreted, native, word

from tlc.backends.context import offset
from tlc.backends.x86.meaning import signed
from tlc.backends.x86.ops import TARGET
from tlc.frontend.diagnostics import CompileError, InternalError
from tlc.regalloc.allocate import allocate
from tlc.regalloc.interp import Machine, Registers, run
from tlc.regalloc.ir import Module
from tlc.regalloc.text import parse_module, print_module
from tlc.regalloc.verify import verify_module

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "mir").glob("*.mir"))


def labs(machine: Machine, registers: Registers) -> Registers:
    return {"rax": abs(signed(registers["rdi"], 64))}


def expect(facts: list[tuple[str, int]], status: int, data: bytearray) -> None:
    assert status == dict(facts).get("status", 0)
    for name, value in facts:
        if name.isdigit():
            assert signed(word(data, int(name)), 64) == value, name
        elif name.startswith("value "):
            at = offset("values") + 8 * int(name[6:])
            assert int.from_bytes(data[at : at + 8], "little", signed=True) == value, name
        elif name != "status":
            assert field(data, name, 4) == value, name


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
@pytest.mark.parametrize("registers", ["none", "all", "few"])
def test_golden_text(path: Path, registers: str) -> None:
    text = path.read_text()
    facts = [(m[1], int(m[2])) for m in re.finditer(r"^#! (.*) = (-?\d+)$", text, re.MULTILINE)]
    assert facts
    module = parse_module(text, TARGET, str(path))
    assert print_module(module, TARGET) == "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    verify_module(module, TARGET)
    if registers != "none":
        for f in module.functions.values():
            allocate(f, TARGET, TARGET.few if registers == "few" else TARGET.env, verify=True)
        verify_module(module, TARGET)
        printed = print_module(module, TARGET)
        assert print_module(parse_module(printed, TARGET), TARGET) == printed
        data = context()
        expect(facts, native(module, data), data)
    data = context()
    expect(facts, interpreted(module, data, {"labs": labs}), data)


def test_golden_files_exist() -> None:
    assert len(GOLDEN) >= 8


def test_what_is_left_out_has_a_meaning() -> None:
    """Numbers are given where there are none; line ends and comments mean nothing, but that operands begin on the line of their op."""
    short = "func @f { a: %x = mov_i.64 {imm = 0x10} # sixteen\n %3 = add.64 %x, %x\n jump -> b(%3)\n b(%y: i) cold: ret %y in rdx }"
    assert (
        print_module(parse_module(short, TARGET), TARGET)
        == """\
func @f {
a:
  %x.4 = mov_i.64 {imm = 16}
  %3 = add.64 %x.4, %x.4
  jump -> b(%3)
b(%y.5: i) cold:
  ret %y.5 in rdx
}
"""
    )


def test_an_operand_shows_its_place_time_and_constraint() -> None:
    text = """\
func @"f g" slots 4 outgoing 2 allocated {
a:
  %0@xmm3: r = move %1@slot3
  %2@rax, %3@r9 = call_c %4@rdi in rdi, late %2@rax any {checked = True, symbol = "é"} clobbers (rbx, xmm15)
  early %5@rbx over 1 = neg.32 late %6@rbx
  store.8 %5@rbx, [incoming + %6@rcx*4 - 8]
  ret
}
"""
    assert print_module(parse_module(text, TARGET), TARGET) == text.replace(" over 1", "")


@pytest.mark.parametrize(
    ("bad", "line", "message"),
    [
        ("func f {}", 1, "expected a function's name, found `f`"),
        ("func @f {", 1, "expected a block's label, found `end of the text`"),
        ("func @f {}", 1, "a function has a block"),
        ("fun @f {}", 1, "expected `func`, found `fun`"),
        ("func @f { a: ret }\nfunc @f { a: ret }", 2, "function `f` is defined twice"),
        ("func @f {\na: ret\na: ret }", 3, "block `a` is defined twice"),
        ("func @f {\na:\n  addd.64 %x, %y }", 3, "there is no op `addd`"),
        ("func @f {\na:\n  %x = mov_i.q {imm = 1}\n ret }", 3, "`q` is not a width"),
        ("func @f {\na:\n  jump -> b }", 3, "there is no block `b` in this function"),
        ("func @f {\na:\n  ret %x in rdx }", 3, "`%x` is never defined"),
        ("func @f {\na:\n  %x = mov_i.64 {imm = 1}\n  ret %x in edx }", 4, "there is no register `edx`"),
        ("func @f {\na:\n  %x = mov_i.64 {imm = 1}\n  ret %x@raxx in rdx }", 4, "there is no register `raxx`"),
        ("func @f {\na:\n  %x.1 = mov_i.64 {imm = 1}\n  ret %y.1 in rdx }", 4, "`%y.1` is `%x.1` elsewhere"),
        ("func @f {\na:\n  %x = mov_i.64 {imm = 1, imm = 2}\n ret }", 3, "attribute `imm` is given twice"),
        ("func @f {\na:\n  %x = mov_i.64 {imm = }\n ret }", 3, "expected a literal, found `}`"),
        ("func @f {\na:\n  %x = mov_i.64 {imm = 1\n ret }", 4, "expected `,` or `}`, found `ret`"),
        ("func @f {\na(%x):\n  ret }", 2, "expected `:`, found `)`"),
        ("func @f {\na(%x: j):\n  ret }", 2, "expected `i` (integer) or `r` (real), found `j`"),
        ("func @f {\na:\n  %x = fconst.64 {bits = 0}\n  jump -> b(%x)\nb(%x: i):\n  ret }", 5, "an integer in one place and a real in another"),
        ("func @f {\na:\n  %x = load.64 [rax] {ext = \"z\"}\n  ret }", 3, "expected a register, `context`, `incoming`, `outgoing` or a number"),
        ("func @f {\na:\n  %x = load.64 [%p + %q] {ext = \"z\"}\n  ret }", 3, "an address has one base"),
        ("func @f {\na:\n  %x = load.64 [%p + %q*2 + %r*4] {ext = \"z\"}\n  ret }", 3, "an address has one index"),
        ("func @f {\na:\n  %x = load.64 [%p - %q] {ext = \"z\"}\n  ret }", 3, "expected a number, found `%q`"),
        ("func @f {\na:\n  %1x = mov_i.64 {imm = 1}\n  ret }", 3, "`%1x` is not a virtual register"),
        ("func @f {\na:\n  ret $ }", 3, "unexpected character `$`"),
        ("func @f {\na:\n  %x, %y", 3, "expected `,` or `=`"),
        ('func @f {\na:\n  call {symbol = "\\x"}\n  ret }', 3, "malformed string"),
    ],
)  # fmt: skip
def test_bad_text_is_told_with_its_place(bad: str, line: int, message: str) -> None:
    with pytest.raises(CompileError) as e:
        parse_module(bad, TARGET)
    (d,) = e.value.diagnostics
    assert message in d.message
    assert d.span.source.position(d.span.start)[0] == line


def test_near_names_are_offered() -> None:
    with pytest.raises(CompileError) as e:
        parse_module("func @f {\na:\n  jmp -> a }", TARGET)
    assert e.value.diagnostics[0].help == "did you mean `jump`?"


RUNS_WRONG = {
    "read": ("%p.0 = mov_i.64 {imm = 64}\n  %x.1 = load.64 [%p.0] {ext = \"z\"}\n  ret", "8 bytes at 0x40 are not in memory"),
    "write": ("%p.0 = lea.64 [context - 1]\n  store_i.8 [%p.0] {imm = 1}\n  ret", "are not in memory"),
    "divide": ("%a.0 = mov_i.64 {imm = 1}\n  %z.1 = mov_i.64 {imm = 0}\n  %q.2, %r.3 = idiv.64 %a.0, %z.1\n  ret", "`idiv` of 1 by 0 traps"),
    "trap": ("trap", "reached what cannot be reached"),
    "loop": ("jump -> b\nb:\n  jump -> b", "too many instructions"),
    "outside": ('call_c {checked = False, symbol = "g"}\n  ret', "nobody gave `g`"),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS_WRONG)
def test_what_runs_wrong_raises(name: str) -> None:
    """No text does more than raise: memory has bounds, and the instructions are counted."""
    body, message = RUNS_WRONG[name]
    module = parse_module(f"func @f.main {{\na:\n  {body}\n}}\n", TARGET)
    verify_module(module, TARGET)
    with pytest.raises(InternalError, match=re.escape(message)) as e:
        interpreted(module, context())
    assert e.value.where.startswith("function f.main, block ")


def destroyed(text: str) -> Module:
    return parse_module(f"func @f.main allocated slots 1 {{\na:\n  {text}\n  ret\n}}\n", TARGET)


def test_what_is_destroyed_is_gone_after_allocation() -> None:
    kept = '%0@{0} = mov_i.64 {{imm = 1}}\n  call_c {{checked = False, symbol = "labs"}}\n  store.64 %0@{0}, [context + 16384]'
    outside = {"labs": lambda machine, registers: {"rax": 0}}
    assert run(destroyed(kept.format("rbx")), TARGET, "f.main", context(), outside) == 0
    with pytest.raises(InternalError, match="rsi holds nothing"):
        run(destroyed(kept.format("rsi")), TARGET, "f.main", context(), outside)
    with pytest.raises(InternalError, match="slot0 holds nothing"):
        run(destroyed("%0@rax = move %1@slot0"), TARGET, "f.main", context(), outside)

"""Functions as bytes: jumps reach their labels in the fewest bytes, frames are what calls need, and the listing says what the bytes are."""

from __future__ import annotations

import re
from pathlib import Path

import capstone
import pytest
from mir_run import context, native, word

from tlc.backends.x86.assemble import PADDING, Line, Listing, assemble
from tlc.backends.x86.code import Code, Link
from tlc.backends.x86.listing import listing
from tlc.backends.x86.ops import TARGET
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.allocate import allocate
from tlc.regalloc.ir import Module
from tlc.regalloc.text import parse_module

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "mir").glob("*.mir"))


def parsed(text: str) -> Module:
    return parse_module(text, TARGET)


def assembled(text: str) -> tuple[Code, dict[str, list[Line]]]:
    record = Listing()
    return assemble(parsed(text), record), record.functions


def words(text: str, name: str = "f") -> list[str]:
    """The instructions of a function as text, labels with a colon."""
    _, functions = assembled(text)
    return [line.text or f"{line.label}:" for line in functions[name]]


def check_bytes(code: Code, functions: dict[str, list[Line]]) -> int:
    """Decode every line by itself; gives how many jumps there were."""
    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    jumps = 0
    for lines in functions.values():
        labels = {line.label: line.start for line in lines if line.label}
        for line in lines:
            if line.label:
                continue
            found = list(disassembler.disasm(code.text[line.start : line.end], line.start))
            first, padding = found[0], found[1:]
            assert all(i.mnemonic == "nop" for i in padding), line
            name, _, target = line.text.partition(" ")
            if re.fullmatch(r"j\w+", name):
                jumps += 1
                assert first.mnemonic == name
                assert int(first.op_str, 16) == labels[target]
                short = -128 <= labels[target] - (line.start + 2) < 128
                assert first.size == 2 or not short or _grew(line, labels[target]), line
            elif name != "call" and "rip" not in line.text:
                assert _plain(f"{first.mnemonic} {first.op_str}".rstrip()) == _plain(line.text), line
    return jumps


def _grew(line: Line, to: int) -> bool:
    """A jump that was too long once may fit when paddings have changed; a few bytes of those are at most in between."""
    return abs(to - line.start) >= 128 - sum(most for _, most in PADDING)


def _plain(text: str) -> str:
    """Immediates as 64 bits."""
    return re.sub(r" (-?(0x)?[0-9a-f]+)$", lambda m: f" {int(m[1], 0) % 2**64}", text)


@pytest.mark.parametrize("registers", ["all", "few"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_the_listing_says_what_the_bytes_are(path: Path, registers: str) -> None:
    module = parsed(path.read_text())
    for f in module.functions.values():
        allocate(f, TARGET, TARGET.few if registers == "few" else TARGET.env)
    record = Listing()
    code = assemble(module, record)
    if path.stem != "reals":
        check_bytes(code, record.functions)
    assert code.text == assemble(module).text
    assert all(at % 16 == 0 for at in code.symbols.values())
    assert [at for at, _ in code.lines] == sorted(at for at, _ in code.lines)


def jumping(forward: int, backward: int) -> str:
    """A jump over `forward` instructions of 7 bytes, and one back over `backward`."""
    fill = "  store_i.32 [%0@rax + 8] {imm = 1}\n"
    return (
        "func @f allocated {\na:\n  %0@rax = lea.64 [context + 16384]\n  %1@rcx = mov_i.64 {imm = 3}\n  jump -> head\n"
        f"head depth 1:\n{backward * fill}  br_i.64 %1@rcx {{cc = \"eq\", imm = 0}} -> done, skip\n"
        f"skip depth 1:\n{forward * fill}  %1@rcx = add_i.64 %1@rcx {{imm = -1}}\n  jump -> head\n"
        "done:\n  store.64 %1@rcx, [context + 16384]\n  ret\n}\n"
    )  # fmt: skip


@pytest.mark.parametrize("forward", [0, 1, 15, 16, 17, 18, 40])
@pytest.mark.parametrize("backward", [0, 1, 14, 15, 16, 17, 18, 40])
def test_jumps_are_short_where_they_reach(forward: int, backward: int) -> None:
    text = jumping(forward, backward)
    code, functions = assembled(text)
    assert check_bytes(code, functions) == 2
    data = context()
    assert native(parsed(text.replace("@f", "@f.main")), data) == 0
    assert word(data, 0) == 0


def test_many_jumps_grow_each_other() -> None:
    """A chain of branches over each other: when one grows the next does not reach any more."""
    blocks = "".join(
        f"b{k}:\n  br_i.64 %0@rax {{cc = \"eq\", imm = {k + 1}}} -> b{min(k + 24, 60)}, b{k + 1}\n" for k in range(60)
    )  # fmt: skip
    code, functions = assembled(f"func @f allocated {{\na:\n  %0@rax = mov_i.64 {{imm = 0}}\n  jump -> b0\n{blocks}b60:\n  ret\n}}\n")
    assert check_bytes(code, functions) == 59  # the last goes to one place
    sizes = {line.end - line.start for line in functions["f"] if line.text.startswith("je ")}
    assert sizes == {2, 6}


def test_blocks_that_only_lead_on_are_left_out() -> None:
    text = """
func @f allocated {
a:
  %0@rax = mov_i.64 {imm = 1}
  br_i.64 %0@rax {cc = "gt", imm = 1} -> b, c
b:
  jump -> d
c:
  %0@rcx = move %0@rcx
  jump -> d
d:
  ret
}
"""
    assert words(text) == ["a:", "mov eax, 1", "d:", "xor eax, eax", "ret"]
    other = text.replace("  jump -> d\nc:", "  %0@rax = mov_i.64 {imm = 2}\n  jump -> d\nc:")
    assert words(other)[2:5] == ["cmp rax, 1", "jle d", "b:"]  # turned round: what it prefers follows


def test_a_loop_of_nothing_stays() -> None:
    assert words("func @f allocated {\na:\n  jump -> b\nb:\n  jump -> c\nc:\n  jump -> b\n}\n") == ["a:", "b:", "c:", "jmp b"]


def test_a_short_block_with_a_branch_is_copied() -> None:
    """The test of a loop stands at its end, and once more where the loop is entered."""
    text = """
func @f allocated {
a:
  %0@rax = mov_i.64 {imm = 5}
  jump -> test
body depth 1:
  %0@rax = add_i.64 %0@rax {imm = -1}
  jump -> test
test depth 1:
  br_i.64 %0@rax {cc = "gt", imm = 2} -> body, done
done:
  ret
}
"""
    assert words(text) == [
        "a:", "mov eax, 5", "cmp rax, 2", "jle done",
        "body:", "add rax, -1",
        "test:", "cmp rax, 2", "jg body",
        "done:", "xor eax, eax", "ret",
    ]  # fmt: skip
    for unfit in ("  poll\n", 4 * "  %0@rax = neg.64 %0@rax\n"):  # leaves the function; too long
        assert "jmp test" in words(text.replace("test depth 1:\n", f"test depth 1:\n{unfit}"))
    assert "jmp test" in words(text.replace("test depth 1:", "test depth 1 cold:"))


def test_a_branch_to_one_place_compares_nothing() -> None:
    text = 'func @f allocated {\na:\n  br_i.64 %0@rax {cc = "gt", imm = 1} -> b, b\nb:\n  ret\n}\n'
    assert words(text) == ["a:", "b:", "xor eax, eax", "ret"]


@pytest.mark.parametrize("slots", range(4))
@pytest.mark.parametrize("saved", [(), ("rbx",), ("rbx", "r12"), ("rbp", "r13", "r14")])
@pytest.mark.parametrize("outgoing", [0, 1, 20])
def test_frames(slots: int, saved: tuple[str, ...], outgoing: int) -> None:
    """rsp is a multiple of 16 at calls; what the function writes of the callee's registers comes back, and nothing else is saved."""
    body = "".join(f"  %{k}@{r} = mov_i.64 {{imm = {k + 1}}}\n" for k, r in enumerate(saved))
    for call in (True, False):
        calls = '  call_c {checked = False, symbol = "g"}\n' * call
        lines = words(f"func @f slots {slots} outgoing {outgoing} allocated {{\na:\n{body}{calls}  ret\n}}\n")
        pushed = [x[5:] for x in lines if x.startswith("push ")]
        assert pushed == list(saved)
        assert [x[4:] for x in lines if x.startswith("pop ")] == pushed[::-1]
        sizes = [int(x.split(", ")[1], 0) for x in lines if x.startswith("sub rsp")] or [0]
        assert sizes == [int(x.split(", ")[1], 0) for x in lines if x.startswith("add rsp")] or sizes == [0]
        assert sizes[0] >= 8 * (slots + outgoing)
        assert sizes[0] < 8 * (slots + outgoing) + 16
        if call:
            assert (8 + 8 * len(saved) + sizes[0]) % 16 == 0
        else:
            assert sizes[0] == 8 * (slots + outgoing)


def test_flags_that_are_there_are_not_computed_again() -> None:
    def body(text: str) -> list[str]:
        return [x for x in words(f"func @f allocated {{\na:\n{text}  ret\n}}\n") if x.startswith(("cmp", "test"))]

    choose = '  %0@rax = choose.64 %0@rax, %1@rcx, %2@rdx, %3@rsi {cc = "gt", vw = 64}\n'
    same = choose.replace("%0@rax", "%4@rdi")
    assert len(body(choose + same)) == 1
    assert len(body(choose + same.replace('"gt"', '"lt"'))) == 1  # another question to the same flags
    assert len(body(choose + same.replace("%3@rsi", "%3@rbx"))) == 2
    assert len(body(choose.replace("%0@rax", "%2@rdx") + same)) == 2  # the choice has overwritten what was compared
    assert len(body(choose + "  %2@rdx = move %5@rbx\n" + same)) == 2
    assert len(body(choose + "  %5@rbx = move %5@rbp\n" + same)) == 1
    assert len(body(choose + "  %5@rbx = neg.64 %5@rbx\n" + same)) == 2
    assert len(body(choose + '  call_c {checked = False, symbol = "g"}\n' + same)) == 2
    assert len(body(choose + "  jump -> b\nb:\n" + same)) == 2  # who knows who comes here

    zero = '  %1@rcx = set_i.{} %0@rax {{cc = "{}", imm = 0}}\n'
    below = '  %0@rcx = choose_i.64 %0@rcx, %1@rdx, %2@rax {{cc = "{}", imm = 0, vw = 64}}\n'
    assert len(body("  %2@rax = sub.64 %2@rax, %3@rsi\n" + below.format("eq"))) == 0
    assert len(body("  %2@rax = sub.64 %2@rax, %3@rsi\n" + below.format("lt"))) == 1  # sub may overflow
    assert len(body("  %2@rax = xor.64 %2@rax, %3@rsi\n" + below.format("lt"))) == 0
    assert len(body("  %2@rax = xor.32 %2@rax, %3@rsi\n" + below.format("lt"))) == 1  # of 32 bits
    assert len(body("  %2@rax = and_i.64 %2@rax {imm = 6}\n" + below.format("ne"))) == 0  # 32 bits clear those above
    assert len(body("  %2@rbx = sub.64 %2@rbx, %3@rsi\n" + below.format("eq"))) == 1
    assert len(body("  %2@rax = sub.64 %2@rax, %3@rsi\n" + zero.format(64, "eq"))) == 1  # the xor before it changes the flags


def test_the_flags_that_are_there_are_right() -> None:
    """The same by the processor: choices on flags of arithmetic and of one comparison."""
    text = """
func @f.main {
entry:
  enter
  %a = load.64 [context + 16384] {ext = "z"}
  %b = load.64 [context + 16392] {ext = "z"}
  %one = mov_i.64 {imm = 1}
  %two = mov_i.64 {imm = 2}
  %d = sub.64 %a, %b
  %x = choose_i.64 %one, %two, %d {cc = "eq", imm = 0, vw = 64}
  %y = choose.64 %one, %two, %a, %b {cc = "gt", vw = 64}
  %z = choose.64 %two, %one, %a, %b {cc = "b", vw = 64}
  %e = xor.64 %a, %b
  %w = choose_i.64 %one, %two, %e {cc = "lt", imm = 0, vw = 64}
  store.64 %x, [context + 16400]
  store.64 %y, [context + 16408]
  store.64 %z, [context + 16416]
  store.64 %w, [context + 16424]
  ret
}
"""
    for a in (0, 1, 5, 2**63, 2**63 - 1, 2**64 - 1):
        for b in (0, 1, 5, 2**63, 2**63 - 1, 2**64 - 1):
            module = parsed(text)
            allocate(module.functions["f.main"], TARGET, TARGET.env)
            data = context({0: a, 1: b})
            assert native(module, data) == 0
            s, t = (v - 2**64 if v >= 2**63 else v for v in (a, b))
            found = [word(data, 2 + k) for k in range(4)]
            assert found == [1 + (a == b), 1 + (s > t), 2 - (a < b), 1 + (s < 0) - (s < 0) * (t < 0) + (s >= 0) * (t < 0)], (a, b)


def test_constants_stand_once_behind_the_functions() -> None:
    text = """
func @f allocated {
a:
  %0@xmm0 = fconst.64 {bits = 0x3ff0000000000000}
  %1@xmm1 = fconst.64 {bits = 0x3ff0000000000000}
  %2@xmm2 = fconst.32 {bits = 0x3f800000}
  %3@xmm3 = fneg.64 %0@xmm0
  %4@xmm4 = fconst.64 {bits = 0x0}
  ret
}
"""
    code, functions = assembled(text)
    end = functions["f"][-1].end
    pool = code.text[end:]
    assert pool.count(bytes.fromhex("000000000000f03f")) == 1
    assert pool.endswith(bytes(7) + b"\x80" + bytes(7) + b"\x80" + bytes.fromhex("000000000000f03f") + bytes.fromhex("0000803f"))
    assert (len(code.text) - 12 - 16) % 16 == 0
    assert "vxorps xmm4, xmm4, xmm4" in [line.text for line in functions["f"]]


def test_what_lies_outside_is_left_to_the_loader() -> None:
    text = """
func @f.main allocated {
a:
  call_c {checked = True, symbol = "k.one"}
  call {symbol = "f.g"}
  ret
}

func @f.g allocated {
a:
  ret
}
"""
    code, functions = assembled(text)
    assert [(r.link, r.symbol) for r in code.relocations] == [(Link.CALL, "k.one")]
    call = next(line for line in functions["f.main"] if line.text == "call f.g")
    distance = int.from_bytes(code.text[call.end - 4 : call.end], "little", signed=True)
    assert call.end + distance == code.symbols["f.g"]


def test_what_is_not_ready_is_refused() -> None:
    with pytest.raises(InternalError, match="not allocated"):
        assemble(parsed("func @f {\na:\n  ret\n}\n"))
    with pytest.raises(InternalError, match="`pmove` must have become moves"):
        assemble(parsed("func @f allocated {\na:\n  %0@rax = pmove %1@rcx\n  ret\n}\n"))
    with pytest.raises(InternalError, match="in slot0, should be in a register"):
        assemble(parsed("func @f allocated {\na:\n  %0@slot0 = neg.64 %0@slot0\n  ret\n}\n"))


def test_a_listing() -> None:
    """Read me: what `tlc emit asm` shows of a loop that sums words and checks its index."""
    text = """
func @f.main slots 1 allocated {
entry:
  %0@rbx = lea.64 [context + 16384]
  %1@rax = mov_i.64 {imm = 0}
  jump -> loop
loop depth 1:
  %2@rax = add_m.64 %1@rax, [%0@rbx + %1@rax*8]
  check_i.64 %2@rax, late %2@rax any {cc = "gt", imm = 100, site = 3, slots = (None, 100)}
  poll
  jump -> loop
}
"""
    found = re.sub(r"\n  <text>.*", "", listing(parsed(text)))
    assert found == """\
asm @f.main:                                    # 8 bytes of frame, 1 slots, saves rbx
    0x0000  push rbx
    0x0001  sub rsp, 8
entry:                                          # runs once
    0x0005  lea rbx, [r15 + 0x4000]             # %0@rbx = lea.64 [context + 16384]
    0x000c  xor eax, eax                        # %1@rax = mov_i.64 {imm = 0}
loop:                                           # loop depth 1, runs about 10 times
    0x0010  add rax, qword ptr [rbx + rax*8]    # %2@rax = add_m.64 %1@rax, [%0@rbx + %1@rax*8]
    0x0014  cmp rax, 0x64                       # check_i.64 %2@rax, late %2@rax any {cc = "gt", imm = 100, site = 3, slots = (None, 100)}
    0x0018  jg failed_3
    0x001a  cmp dword ptr [r15], 0              # poll
    0x001e  jne poll_failed
    0x0020  jmp loop                            # jump -> loop
failed_3:
    0x0022  mov qword ptr [r15 + 8], 3          # check_i.64 %2@rax, late %2@rax any {cc = "gt", imm = 100, site = 3, slots = (None, 100)}
    0x002a  mov qword ptr [r15 + 0x10], rax
    0x002e  mov qword ptr [r15 + 0x18], 0x64
    0x0036  jmp check_failed
poll_failed:
    0x0038  mov dword ptr [r15 + 4], 2
    0x0040  jmp stopped
check_failed:
    0x0042  mov dword ptr [r15 + 4], 1
stopped:
    0x004a  mov eax, 1
    0x004f  add rsp, 8
    0x0053  pop rbx
    0x0054  ret
"""

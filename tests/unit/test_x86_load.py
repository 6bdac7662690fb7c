"""Objects of own code and of LLVM, linked into this process: every kind of reference, and the rights of the memory."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import pytest
from native_run import LLVM, OWN, native
from ssa_services import Recorder

from tlc.backends.llvm import jit
from tlc.backends.llvm.ahead import Ahead
from tlc.backends.program import Foreign
from tlc.backends.x86 import build
from tlc.backends.x86 import object as elf
from tlc.backends.x86.code import Code, Link, Relocation
from tlc.backends.x86.load import load
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.types import Elem
from tlc.ssa.text import parse_module

pytestmark = pytest.mark.skipif(not OWN, reason="own code does not run on this machine")

LONG = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

# i64 twice(i64): calls `half_negative` of another object, which calls `labs` of the C library through its stub
TWICE = Code(
    bytes.fromhex("4883ec08 e800000000 4883c408 4801c0 c3"),  # sub rsp, 8; call negative; add rsp, 8; add rax, rax; ret
    {"twice": 0},
    [Relocation(5, Link.CALL, "negative")],
)
NEGATIVE = Code(
    bytes.fromhex("4883ec08 e800000000 48f7d8 4883c408 c3"),  # sub rsp, 8; call labs; neg rax; add rsp, 8; ret
    {"negative": 0},
    [Relocation(5, Link.CALL, "labs")],
)


def call(code: list[Code], name: str, argument: int, foreign: list[Foreign] | None = None) -> int:
    loaded = load([elf.write(c) for c in code], foreign or [])
    return int(LONG(loaded.address(name))(argument))


def test_calls_go_to_other_objects_and_to_the_c_library() -> None:
    assert call([TWICE, NEGATIVE], "twice", 21) == -42
    assert call([NEGATIVE, TWICE], "twice", -21) == -42


def test_a_declared_function_of_c_is_found_by_its_name_there() -> None:
    declared = Foreign("labs", (Elem.I64,), Elem.I64)
    code = Code(NEGATIVE.text, NEGATIVE.symbols, [Relocation(5, Link.CALL, declared.name)])
    assert call([code], "negative", -8, [declared]) == -8


def test_a_slot_holds_an_address_wherever_it_is() -> None:
    code = Code(
        bytes.fromhex("488b0500000000 ffe0".replace(" ", "")),  # mov rax, [rip + slot of labs]; jmp rax
        {"there": 0},
        [Relocation(3, Link.SLOT, "labs")],
    )
    assert call([code], "there", -5) == 5


def test_code_refers_to_its_own_places() -> None:
    code = Code(
        bytes.fromhex("488d0500000000 c3 488d0500000000 488b00 c3"),  # lea rax, [rip + number]; ret ... ; mov rax, [number]
        {"address": 0, "value": 8, "number": 19},
        [Relocation(3, Link.ADDRESS, "number"), Relocation(11, Link.ADDRESS, "number")],
    )
    code.text += (1234567890123).to_bytes(8, "little")
    loaded = load([elf.write(code)])
    assert LONG(loaded.address("address"))(0) == loaded.address("number")
    assert LONG(loaded.address("value"))(0) == 1234567890123


def test_an_object_reads_back() -> None:
    code = Code(TWICE.text + NEGATIVE.text, {"twice": 0, "negative": len(TWICE.text)}, [*TWICE.relocations])
    found = elf.read(elf.write(code))
    (section,) = (s for s in found.sections.values() if s.size)
    assert (section.name, section.data, section.flags) == (".text", code.text, elf.ALLOC | elf.EXECUTE)
    assert [(s.name, s.offset) for s in found.symbols if s.section is not None] == [("twice", 0), ("negative", len(TWICE.text))]
    assert [(at, kind, found.symbols[n].name, addend) for _, at, kind, n, addend in found.relocations] == [(5, 4, "negative", -4)]


def test_objects_of_llvm_with_constants_tables_and_data() -> None:
    """A constant of the pool, a table of jumps or values, and a variable, each in a section of its own."""
    text = """
    @table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
    @count = internal global i64 0
    @pointer = internal constant ptr @step
    define i64 @step(i64 %n) { %a = getelementptr [4 x i64], ptr @table, i64 0, i64 %n
      %v = load i64, ptr %a
      %c = load i64, ptr @count
      %d = add i64 %c, 1
      store i64 %d, ptr @count
      %x = sitofp i64 %v to double
      %y = fmul double %x, 2.5
      %z = fptosi double %y to i64
      %s = add i64 %z, %c
      ret i64 %s }
    define i64 @through(i64 %n) { %f = load volatile ptr, ptr @pointer
      %r = call i64 %f(i64 %n)
      ret i64 %r }
    """
    loaded = load([jit.compile_object(text, jit.Level.KERNEL)])
    step, through = LONG(loaded.address("step")), LONG(loaded.address("through"))
    assert [step(0), step(3), through(1)] == [25, 101, 52]


def test_what_is_missing_or_twice_there() -> None:
    with pytest.raises(InternalError, match="two objects define `twice`"):
        load([elf.write(TWICE), elf.write(TWICE)])
    with pytest.raises(InternalError, match="no object and no library has `negative`"):
        load([elf.write(TWICE)])
    with pytest.raises(InternalError, match="no ELF64 object"):
        load([bytes(64)])


# ---------------------------------------------------------------- the memory

PROGRAM = """
func @main() {
entry:
  %n = const {value = 1000} : i64
  %x = alloc %n : i64[_]
  free %x
  %s = const {value = "here"} : str
  print %s
  return
}
"""


def pages(start: int, size: int) -> list[str]:
    """The rights of this process's mappings that meet a range of addresses."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, rights, *_ = line.split()
        low, high = (int(x, 16) for x in ends.split("-"))
        if low < start + size and start < high:
            found.append(rights[:3])
    return found


@pytest.mark.parametrize("how", [LLVM, *OWN])
def test_no_memory_is_ever_written_and_executed(how) -> None:
    """Looked at while the program runs, in a service that it calls."""
    seen: list[str] = []

    class Looks(Recorder):
        def print(self, text: str) -> None:
            at = program.loaded.address("tlc.main")
            seen.extend(pages(at, 1))
            if how.host == "x86":
                memory = program.loaded.memory  # type: ignore[attr-defined]
                assert pages(memory.address, memory.size)[:2] == ["r-x", "r--"]
                assert not [rights for rights in pages(memory.address, memory.size) if "w" in rights and "x" in rights]


    program = native(parse_module(PROGRAM), {}, Looks(), how)
    program.run()
    assert seen == ["r-x"]


def test_the_memory_goes_with_the_program() -> None:
    def run() -> tuple[int, int]:
        loaded = load([elf.write(TWICE), elf.write(NEGATIVE)])
        assert pages(loaded.memory.address, loaded.memory.size)[0] == "r-x"
        return loaded.memory.address, loaded.memory.size

    at, size = run()
    gc.collect()
    assert "r-x" not in pages(at, size)


# ---------------------------------------------------------------- what a start needs


def test_scalar_code_needs_no_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither compiling nor running it; and no program that was compiled before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = "import sys; from tlc.driver import cli; cli.main(sys.argv[1:]); print('llvmlite.binding' in sys.modules)"

    def llvm(name: str, program: str) -> str:
        path = tmp_path / name
        path.write_text(program)
        command = [sys.executable, "-c", text, "--host", "x86", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    scalar = 'fn fib(n: i64) -> i64 = if n < 2 { n } else { fib(n - 1) + fib(n - 2) }\n\nfn main(n: i64 = 20) { print("{fib(n)}") }\n'
    assert llvm("fib.tl", scalar) == "6765\nFalse\n"
    array = "fn main() {\n  var x = [3, 1, 2]\n  x[0] = x[1] + 5\n  print(x[0])\n}\n"
    assert llvm("array.tl", array) == "6\nTrue\n"
    assert llvm("array.tl", array) == "6\nFalse\n"


def test_the_support_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store: dict[str, bytes] = {}
    module = parse_module(PROGRAM)
    first = build.build(module, {}, Ahead(store), store)
    monkeypatch.setattr(build, "_compiled_support", lambda: pytest.fail("the support is compiled again"))
    assert build.build(module, {}, Ahead(store), store).objects == first.objects
    assert store == first.objects


def test_objdump_reads_the_object(tmp_path: Path) -> None:
    pytest.importorskip("capstone")
    path = tmp_path / "x.o"
    path.write_bytes(elf.write(TWICE))
    try:
        text = subprocess.run(["objdump", "-dr", str(path)], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("there is no objdump")
    assert "<twice>:" in text and "R_X86_64_PLT32\tnegative-0x4" in text

"""Host functions by the own backend, kernels by LLVM: a program as objects.

    host SSA -> machine IR (`select.py`) -> registers (`regalloc/`) -> code (`assemble.py`) -> an object (`object.py`)

What kernels apply is compiled by LLVM together with them, also where the host calls it too, so code of LLVM never calls own code
and there is one convention between the two: own code calls kernels and support as C does. The support (memory, the tape) is an
object that is always the same; it is compiled once and kept. A program that uses neither asks LLVM for nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from functools import cache

from tlc.backends import cpu
from tlc.backends.context import offset
from tlc.backends.llvm.ahead import Ahead, Object
from tlc.backends.llvm.host import alone, print_applied
from tlc.backends.program import ENTRY, Executable, Nobody, Store, Tables, Watcher
from tlc.backends.x86 import object as elf
from tlc.backends.x86.assemble import assemble
from tlc.backends.x86.code import Code, Link, Relocation
from tlc.backends.x86.ops import TARGET
from tlc.backends.x86.select import select
from tlc.regalloc import ir as mir
from tlc.regalloc.allocate import allocate
from tlc.ssa.calls import reached
from tlc.ssa.clone import clone_function
from tlc.ssa.ir import Module
from tlc.tensor.kernel.ir import Kernel

NOBODY = Nobody()


def build(
    module: Module,
    kernels: Mapping[str, Kernel],
    ahead: Ahead,
    store: Store,
    registers: str = "all",
    check: bool = False,
    watcher: Watcher = NOBODY,
    timed: bool = False,
) -> Executable:
    """`main` and what it needs as machine code; objects that `store` has are not compiled again. Kernels that call nothing are `ahead`'s.
    `check` proves every step. Kernels count their time if `timed`.
    """
    tables = Tables()
    machine = select_reached(module, kernels, tables, check, watcher)

    def rest() -> dict[str, bytes]:
        objects = ahead.objects(alone(module, kernels))
        if applied := print_applied(module, kernels, tables, timed):
            from tlc.backends.llvm import jit

            objects |= jit.compile_objects([(applied, jit.Level.HOST)], store)
        return objects

    return finish(machine, tables, store, registers, check, watcher, rest)


def finish(
    machine: mir.Module,
    tables: Tables,
    store: Store,
    registers: str = "all",
    check: bool = False,
    watcher: Watcher = NOBODY,
    rest: Callable[[], dict[str, bytes]] = dict,
) -> Executable:
    """Machine IR, the functions that are not allocated yet among them, as machine code. `rest` gives the other objects: kernels."""
    allocate_all(machine, registers, check, watcher)
    with watcher.stage("encode"):
        code = with_entry(assemble(machine))
        data = elf.write(code)
    key = hashlib.sha256(data).hexdigest()
    if store.get(key) is None:
        store[key] = data
    with watcher.stage("llvm"):
        objects = {key: data, **rest()}
        if _needs_support(code, tables) and _support_key() not in objects:
            key, data = support(store)
            objects[key] = data
    return Executable(objects, tables, "x86")


def machine_ir(module: Module, kernels: Mapping[str, Kernel], watcher: Watcher = NOBODY) -> str:
    """Machine IR before allocation, with the tables that it refers to: it can be run."""
    from tlc.backends.tables_text import print_tables
    from tlc.regalloc.text import print_module

    tables = Tables()
    text = print_module(select_reached(module, kernels, tables, watcher=watcher), TARGET)
    return f"{print_tables(tables)}\n{text}"


def assembly(module: Module, kernels: Mapping[str, Kernel], registers: str = "all", watcher: Watcher = NOBODY) -> str:
    """The code with its source lines, for people."""
    from tlc.backends.x86.listing import listing

    machine = select_reached(module, kernels, Tables(), watcher=watcher)
    allocate_all(machine, registers, watcher=watcher)
    return listing(machine)


def select_reached(
    module: Module, kernels: Mapping[str, Kernel], tables: Tables, check: bool = False, watcher: Watcher = NOBODY
) -> mir.Module:
    """What `main` reaches as machine IR. `module` stays as it is."""
    with watcher.stage("select"):
        needed = reached(module, ["main"])
        copies = Module({name: clone_function(f, name) for name, f in module.functions.items() if name in needed})
        machine = select(copies, kernels, tables)
    if check:
        from tlc.regalloc.verify import verify_module

        verify_module(machine, TARGET)
    return machine


def allocate_all(machine: mir.Module, registers: str = "all", check: bool = False, watcher: Watcher = NOBODY) -> None:
    """Give every operand its place. `registers` may be "few": three of each bank."""
    env = TARGET.few if registers == "few" else TARGET.env
    with watcher.stage("registers"):
        stats = {name: allocate(f, TARGET, env, check) for name, f in machine.functions.items() if not f.allocated}
    for name, row in stats.items():
        watcher.note(name, row.counts())


# ---------------------------------------------------------------- the entry


def with_entry(code: Code) -> Code:
    """The code with `i32 tlc.main(context)`, which C calls: it keeps C's registers, puts the context where own code expects it, and
    says how low the stack may grow.
    """
    at = -(-len(code.text) // 16) * 16
    stack_bytes, stack_limit = (struct.pack("<i", offset(name)) for name in ("stack_bytes", "stack_limit"))
    before = b"".join(
        (
            bytes.fromhex("53 55 4154 4155 4156 4157"),  # push rbx, rbp, r12, r13, r14, r15
            bytes.fromhex("4883ec08"),                   # sub rsp, 8: now a multiple of 16
            bytes.fromhex("4989ff"),                     # mov r15, rdi
            bytes.fromhex("4889e0"),                     # mov rax, rsp
            bytes.fromhex("482b87") + stack_bytes,       # sub rax, [rdi + stack_bytes]
            bytes.fromhex("488987") + stack_limit,       # mov [rdi + stack_limit], rax
            bytes.fromhex("e8"),                         # call f.main
        )
    )  # fmt: skip
    after = b"".join(
        (
            bytes.fromhex("4883c408"),                   # add rsp, 8
            bytes.fromhex("415f 415e 415d 415c 5d 5b"),  # pop r15, r14, r13, r12, rbp, rbx
            bytes.fromhex("c3"),                         # ret
        )
    )  # fmt: skip
    text = code.text.ljust(at, b"\xcc") + before + bytes(4) + after
    call = Relocation(at + len(before), Link.CALL, "f.main")
    return Code(text, code.symbols | {ENTRY: at}, [*code.relocations, call], code.lines)


# ---------------------------------------------------------------- what LLVM makes


def _needs_support(code: Code, tables: Tables) -> bool:
    """Whether the program has tensors or a tape or shows progress, or gets tensors from a service."""
    called = any(r.symbol.startswith("tlc.") and r.symbol not in code.symbols for r in code.relocations)
    return called or any(t.rank for e in tables.externs for t in e.results)


def support(store: Store) -> Object:
    """The support as an object, with its key. Where the store has it, LLVM is not even loaded."""
    key = _support_key()
    data = store.get(key)
    if data is None:
        data = store[key] = _compiled_support()
    return key, data


@cache
def _support_key() -> str:
    import llvmlite  # only its version

    from tlc.backends.llvm.support import SUPPORT

    return hashlib.sha256(f"llvmlite {llvmlite.__version__}\n{cpu.name()}\n{SUPPORT}".encode()).hexdigest()


@cache
def _compiled_support() -> bytes:
    from tlc.backends.llvm import jit
    from tlc.backends.llvm.support import SUPPORT

    return jit.compile_object(SUPPORT, jit.Level.HOST)

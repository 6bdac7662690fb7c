"""Kernels for a GPU on the side of the host, as LLVM IR: `k.NAME` puts its name and its arguments into 64-bit slots and calls the launcher
of the context, which gives the status.

    slots   bytes of the name | the name, 8 bytes a slot | outputs, then inputs: an address or the bits of a scalar each

The launcher may leave a record of how the kernel is started for such extents, in the table of the context. Then `k.NAME` starts it
itself, by the driver's function, and nothing of Python runs:

    table    number of the last start | records, by the hash of a kernel's name
    record   hash | number of its last start | status of it | alignment of addresses, less 1 | function that starts | stream
             | extents | for each grid: function, blocks in x, y and z, threads of a block, bytes of shared memory

A record that is for something else, or an address that is not aligned, leads to the launcher; so does a start that fails. Kernels that give
a number to the host are always the launcher's: it waits for them.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence

from tlc.backends.context import offset
from tlc.backends.llvm.abi import kernel_symbol, parameter_types
from tlc.frontend.types import Elem
from tlc.tensor.kernel.grid import Grid, grids
from tlc.tensor.kernel.ir import Buffer, Kernel, Var

RECORDS = 1024
HEAD = ("hash", "last", "status", "mask", "start", "stream")  # words of a record
_GRID = 6  # words about a grid


def table() -> ctypes.Array[ctypes.c_uint64]:
    """A table without records."""
    return (ctypes.c_uint64 * (1 + RECORDS))()


class Record:
    """How a kernel is started for some extents: see the text of this module. It must live as long as its table."""

    def __init__(self, kernel: Kernel, mask: int, start: int, stream: int, extents: Sequence[int], grids: Sequence[Sequence[int]]) -> None:
        words = [_hash(kernel), 0, 0, mask, start, stream, *extents, *(word for grid in grids for word in grid)]
        self.words = (ctypes.c_uint64 * len(words))(*(word & (1 << 64) - 1 for word in words))
        self.kernel = kernel

    @property
    def last(self) -> int:
        return self.words[HEAD.index("last")]

    def take_status(self) -> int:
        """The status of the last start; it is told once."""
        at = HEAD.index("status")
        status, self.words[at] = self.words[at], 0
        return status

    def enter(self, table: ctypes.Array[ctypes.c_uint64]) -> None:
        table[_place(self.kernel)] = ctypes.addressof(self.words)


def starts_itself(kernel: Kernel) -> bool:
    """Whether a kernel may have a record."""
    return all(b.shape for b in kernel.buffers)


def extents_of(kernel: Kernel, words: ctypes.Array[ctypes.c_uint64]) -> tuple[int, ...]:
    """What the record of a kernel is for, among the words of its arguments."""
    return tuple(words[k] for k in _extents(kernel))


def _extents(kernel: Kernel) -> list[int]:
    return [k for k, p in enumerate(kernel.parameters) if isinstance(p, Var) and p.elem is Elem.I64]


def _hash(kernel: Kernel) -> int:
    return int.from_bytes(hashlib.sha256(kernel.name.encode()).digest()[:8], "little")


def _place(kernel: Kernel) -> int:
    return 1 + _hash(kernel) % RECORDS


def print_launch(kernel: Kernel) -> str:
    """The definition that stands for a kernel."""
    types = parameter_types(kernel)
    bools = [isinstance(p, Var) and p.elem is Elem.BOOL for p in kernel.parameters]
    name = kernel.name.encode()
    words = [len(name), *(int.from_bytes(name[k : k + 8], "little") for k in range(0, len(name), 8))]
    params = ", ".join(["ptr %ctx", *(f"{t} %a{k}" for k, t in enumerate(types))])
    lines = [f"\ndefine i32 {kernel_symbol(kernel.name)}({params}) nounwind {{", "entry:"]
    lines.append(f"  %slots = alloca [{len(words) + len(types)} x i64], align 8")
    if starts_itself(kernel):
        lines.append(f"  %params = alloca [{len(types)} x ptr], align 8")
    for k in range(len(words) + len(types)):
        lines.append(f"  %s{k} = getelementptr i64, ptr %slots, i64 {k}")
    for k, word in enumerate(words):
        lines.append(f"  store i64 {word}, ptr %s{k}")
    for k, (type, is_bool) in enumerate(zip(types, bools, strict=True)):
        slot = f"%s{len(words) + k}"
        lines.append(f"  store i64 0, ptr {slot}")
        if is_bool:
            lines += [f"  %b{k} = zext {type} %a{k} to i64", f"  store i64 %b{k}, ptr {slot}"]
        else:
            lines.append(f"  store {type} %a{k}, ptr {slot}")
    if starts_itself(kernel):
        lines += _start(kernel, [f"%s{len(words) + k}" for k in range(len(types))])
    lines += [
        f"  %launch.at = getelementptr i8, ptr %ctx, i64 {offset('launch')}",
        "  %launch = load ptr, ptr %launch.at",
        "  %status = call i32 %launch(ptr %slots)",
        "  ret i32 %status",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _start(kernel: Kernel, slots: Sequence[str]) -> list[str]:
    """Start a kernel by its record and return, or go on at `slow`. `slots` hold the arguments."""
    lines = [
        f"  %table.at = getelementptr i8, ptr %ctx, i64 {offset('table')}",
        "  %table = load ptr, ptr %table.at",
        "  %no.table = icmp eq ptr %table, null",
        "  br i1 %no.table, label %slow, label %look",
        "look:",
        f"  %record.at = getelementptr i64, ptr %table, i64 {_place(kernel)}",
        "  %record = load ptr, ptr %record.at",
        "  %no.record = icmp eq ptr %record, null",
        "  br i1 %no.record, label %slow, label %compare",
        "compare:",
    ]

    def word(name: str, k: int, type: str = "i64") -> str:
        lines.append(f"  %{name}.at = getelementptr i64, ptr %record, i64 {k}")
        lines.append(f"  %{name} = load {type}, ptr %{name}.at")
        return f"%{name}"

    lines.append(f"  %other = xor i64 {word('hash', HEAD.index('hash'))}, {_signed(_hash(kernel))}")
    wrong = "%other"
    for n, k in enumerate(_extents(kernel)):
        lines.append(f"  %differs{n} = xor i64 %a{k}, {word(f'extent{n}', len(HEAD) + n)}")
        lines.append(f"  %wrong{n} = or i64 {wrong}, %differs{n}")
        wrong = f"%wrong{n}"
    addresses = "0"
    for k, p in enumerate(kernel.parameters):
        if isinstance(p, Buffer):
            lines += [f"  %address{k} = ptrtoint ptr %a{k} to i64", f"  %addresses{k} = or i64 {addresses}, %address{k}"]
            addresses = f"%addresses{k}"
    lines += [
        f"  %crooked = and i64 {addresses}, {word('mask', HEAD.index('mask'))}",
        f"  %any = or i64 {wrong}, %crooked",
        "  %fits = icmp eq i64 %any, 0",
        "  br i1 %fits, label %begin, label %slow",
        "begin:",
        "  %before = load i64, ptr %table",
        "  %now = add i64 %before, 1",
        "  store i64 %now, ptr %table",
        f"  %last.at = getelementptr i64, ptr %record, i64 {HEAD.index('last')}",
        "  store i64 %now, ptr %last.at",
    ]
    for k, slot in enumerate(slots):
        lines += [f"  %p{k} = getelementptr ptr, ptr %params, i64 {k}", f"  store ptr {slot}, ptr %p{k}"]
    start, stream = word("start", HEAD.index("start"), "ptr"), word("stream", HEAD.index("stream"), "ptr")
    count = sum(isinstance(g, Grid) for g in grids(kernel))
    for n in range(count):
        first = len(HEAD) + len(_extents(kernel)) + n * _GRID
        x, y, z, threads, shared = (word(f"{what}{n}", first + 1 + m, "i32") for m, what in enumerate(("x", "y", "z", "threads", "shared")))
        args = [f"ptr {word(f'function{n}', first, 'ptr')}", *(f"i32 {v}" for v in (x, y, z, threads, "1", "1", shared))]
        lines += [
            f"  %said{n} = call i32 {start}({', '.join([*args, f'ptr {stream}', 'ptr %params', 'ptr null'])})",
            f"  %well{n} = icmp eq i32 %said{n}, 0",
            f"  br i1 %well{n}, label %{f'begun{n}'}, label %fails{n}",
            f"fails{n}:",
            f"  %code{n} = zext i32 %said{n} to i64",
            f"  %status{n}.at = getelementptr i64, ptr %record, i64 {HEAD.index('status')}",
            f"  store i64 %code{n}, ptr %status{n}.at",
            "  br label %slow",
            f"begun{n}:",
        ]
    return [*lines, "  ret i32 0", "slow:"]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def given(address: int, kernels: Mapping[str, Kernel]) -> tuple[Kernel, ctypes.Array[ctypes.c_uint64]]:
    """What the slots at an address ask for: a kernel, and its arguments, which may be written over."""
    length = ctypes.c_int64.from_address(address).value
    kernel = kernels[ctypes.string_at(address + 8, length).decode()]
    return kernel, (ctypes.c_uint64 * len(kernel.parameters)).from_address(address + 8 + -(-length // 8) * 8)

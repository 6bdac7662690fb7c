"""Kernels for a GPU on the side of the host, as LLVM IR: `k.NAME` puts its name and its arguments into 64-bit slots and calls the launcher
of the context, which gives the status.

    slots   bytes of the name | the name, 8 bytes a slot | outputs, then inputs: an address or the bits of a scalar each

The launcher may leave a record of how the kernel is started for such extents, in the table of the context. Then `k.NAME` starts it
itself, by the driver's function, and nothing of Python runs:

    table    number of the last start | what `stretch.py` is about | records, by the hash of a kernel's name
    record   hash | number of its last start | status of it, and which call gave it | alignment of addresses, less 1 | function that starts
             | stream | extents | for each grid: function, blocks in x, y and z, threads of a block, bytes of shared memory

A record that is for something else, or an address that is not aligned, leads to the launcher; so does a start that fails.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

from tlc.backends.context import offset
from tlc.backends.llvm import stretch
from tlc.backends.llvm.abi import kernel_symbol, parameter_types
from tlc.frontend.types import Elem
from tlc.tensor.kernel.grid import Grid, grids
from tlc.tensor.kernel.ir import Buffer, Kernel, Let, Var, subexpressions

RECORDS = 1 << 16  # so many that two kernels rarely have one place; the pages of others are never touched
HEAD = ("hash", "last", "status", "mask", "start", "stream")  # words of a record
_GRID = 6  # words about a grid


def table() -> ctypes.Array[ctypes.c_uint64]:
    """A table without records."""
    return (ctypes.c_uint64 * (stretch.FIRST + RECORDS))()


class Record:
    """How a kernel is started for some extents: see the text of this module. It must live as long as its table. `parts` are its grids."""

    def __init__(self, kernel: Kernel, mask: int, start: int, stream: int, extents: Sequence[int], parts: Sequence[Sequence[int]]) -> None:
        words = [_hash(kernel), 0, 0, mask, start, stream, *extents, *(word for part in parts for word in part)]
        self.words = (ctypes.c_uint64 * len(words))(*(word & (1 << 64) - 1 for word in words))
        self.kernel, self.parts = kernel, parts
        self.address = ctypes.addressof(self.words)
        self.buffers = _buffers(kernel)
        self.told = 1 + len(kernel.parameters)  # words of a launch in the log: this and the arguments
        self.size = self.told + _count(kernel)  # and with its nodes

    @property
    def last(self) -> int:
        return self.words[HEAD.index("last")]

    def take_status(self) -> tuple[int, str]:
        """The status of the last start, and the call of the driver that gave it; it is told once."""
        at = HEAD.index("status")
        word, self.words[at] = self.words[at], 0
        return word & 0xFFFFFFFF, stretch.CALLS[word >> 32]

    def enter(self, table: ctypes.Array[ctypes.c_uint64]) -> None:
        table[_place(self.kernel)] = self.address


@cache
def extent_places(kernel: Kernel) -> tuple[int, ...]:
    """The positions of what a record of a kernel is for: the scalars that shapes and grids are made of. Others may change from launch to
    launch.
    """
    sizes = [n for b in kernel.buffers for n in b.shape]
    for part in grids(kernel):
        sizes += [part.value] if isinstance(part, Let) else [loop.stop for loop in part.blocks]
    used = {e.name for size in sizes for e in subexpressions(size) if isinstance(e, Var)}
    return tuple(k for k, p in enumerate(kernel.parameters) if isinstance(p, Var) and p.elem is Elem.I64 and p.name in used)


def _buffers(kernel: Kernel) -> tuple[int, ...]:
    return tuple(k for k, p in enumerate(kernel.parameters) if isinstance(p, Buffer))


def _count(kernel: Kernel) -> int:
    """How many grids a kernel has."""
    return sum(isinstance(part, Grid) for part in grids(kernel))


def _hash(kernel: Kernel) -> int:
    return int.from_bytes(hashlib.sha256(kernel.name.encode()).digest()[:8], "little")


def _place(kernel: Kernel) -> int:
    return stretch.FIRST + _hash(kernel) % RECORDS


def print_launch(kernel: Kernel) -> str:
    """The definition that stands for a kernel."""
    types = parameter_types(kernel)
    bools = [isinstance(p, Var) and p.elem is Elem.BOOL for p in kernel.parameters]
    name = kernel.name.encode()
    words = [len(name), *(int.from_bytes(name[k : k + 8], "little") for k in range(0, len(name), 8))]
    params = ", ".join(["ptr %ctx", *(f"{t} %a{k}" for k, t in enumerate(types))])
    lines = [f"\ndefine i32 {kernel_symbol(kernel.name)}({params}) nounwind {{", "entry:"]
    lines.append(f"  %slots = alloca [{len(words) + len(types)} x i64], align 8")
    lines.append(f"  %params = alloca [{len(types)} x ptr], align 8")
    lines.append(f"  %launch.node = alloca [{stretch.NODE} x i64], align 8")
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
    for n, k in enumerate(extent_places(kernel)):
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
        f"  %status.at = getelementptr i64, ptr %record, i64 {HEAD.index('status')}",
    ]
    for k, slot in enumerate(slots):
        lines += [f"  %p{k} = getelementptr ptr, ptr %params, i64 {k}", f"  store ptr {slot}, ptr %p{k}"]
    count, first_grid = _count(kernel), len(HEAD) + len(extent_places(kernel))
    lines += stretch.follow(slots, _buffers(kernel), count, first_grid, _GRID)
    start, stream = word("start", HEAD.index("start"), "ptr"), word("stream", HEAD.index("stream"), "ptr")
    for n in range(count):
        first = first_grid + n * _GRID
        x, y, z, threads, shared = (word(f"{what}{n}", first + 1 + m, "i32") for m, what in enumerate(("x", "y", "z", "threads", "shared")))
        args = [f"ptr {word(f'function{n}', first, 'ptr')}", *(f"i32 {v}" for v in (x, y, z, threads, "1", "1", shared))]
        call = f"{start}({', '.join([*args, f'ptr {stream}', 'ptr %params', 'ptr null'])})"
        lines += stretch.checked(f"start{n}", stretch.LAUNCH, call)
    return [*lines, *stretch.write_down(slots, count), "slow:"]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def given(address: int, kernels: Mapping[str, Kernel]) -> tuple[Kernel, ctypes.Array[ctypes.c_uint64]]:
    """What the slots at an address ask for: a kernel, and its arguments, which may be written over."""
    length = ctypes.c_int64.from_address(address).value
    kernel = kernels[ctypes.string_at(address + 8, length).decode()]
    return kernel, (ctypes.c_uint64 * len(kernel.parameters)).from_address(address + 8 + -(-length // 8) * 8)

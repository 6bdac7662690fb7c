"""Machine IR, run in Python and by the processor, on the same context."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from tlc.backends.context import FIELDS, offset
from tlc.backends.x86 import object as elf
from tlc.backends.x86.assemble import assemble
from tlc.backends.x86.build import with_entry
from tlc.backends.x86.load import load
from tlc.backends.x86.ops import TARGET
from tlc.regalloc import interp
from tlc.regalloc.ir import Module

ENTRY = "f.main"
DATA = 16384  # where a test's own words begin in the context
SIZE = DATA + (1 << 18)

assert offset(FIELDS[-1].name) + FIELDS[-1].bits // 8 * FIELDS[-1].count <= DATA


def context(words: Mapping[int, int] | None = None) -> bytearray:
    """A context whose words of 8 bytes from `DATA` on are these."""
    out = bytearray(SIZE)
    for k, value in (words or {}).items():
        out[DATA + 8 * k : DATA + 8 * k + 8] = (value % 2**64).to_bytes(8, "little")
    return out


def word(data: bytearray | bytes, k: int) -> int:
    return int.from_bytes(data[DATA + 8 * k : DATA + 8 * k + 8], "little")


def field(data: bytearray, name: str, size: int = 8) -> int:
    return int.from_bytes(data[offset(name) : offset(name) + size], "little")


def interpreted(module: Module, data: bytearray, outside: Mapping[str, interp.Outside] | None = None) -> int:
    """The status; `data` is changed."""
    return interp.run(module, TARGET, ENTRY, data, outside, limit=1_000_000)


def native(module: Module, data: bytearray) -> int:
    """The same by the processor, of an allocated module."""
    loaded = load([elf.write(with_entry(assemble(module)))])
    memory = (ctypes.c_char * (len(data) + 64)).from_buffer_copy(bytes(data) + bytes(64))
    address = ctypes.addressof(memory)
    data[offset("stack_bytes") : offset("stack_bytes") + 8] = (1 << 20).to_bytes(8, "little")
    ctypes.memmove(address, bytes(data), len(data))
    main = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(loaded.address("tlc.main"))
    status = main(address)
    data[:] = ctypes.string_at(address, len(data))
    return int(status)

"""Objects linked into this process: their bytes in memory of their own, with every reference led to its place.

The memory is one piece, so that references of 32 bits reach all of it: first what may be executed, then what may be read, then what may
be written. It is filled while it may be written and not executed; then each part gets the rights that it keeps. No part may ever be
written and executed.

    code of all objects | stubs       read, execute
    constants | slots                 read
    data                              read, write

An object refers to another, to the C library, or to a function of C that the program declares. What is not in this memory may lie too
far away for 32 bits: its address stands in a slot, and a call goes through a stub, `jmp [rip + slot]`.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator

from tlc.backends.program import Foreign
from tlc.backends.x86.object import EXECUTE, WRITE, Object, Symbol, read
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.foreign import address as foreign_address
from tlc.frontend.records import dataclass
from tlc.ssa.world import RuntimeStop

_WORD, _CALL, _SLOTS = 1, 4, frozenset({9, 41, 42})  # types of relocations

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Loaded:
    """Addresses stay good while this lives."""

    symbols: dict[str, int]
    memory: _Memory

    def address(self, name: str) -> int:
        """Where a function begins."""
        return self.symbols[name]


def load(objects: Iterable[bytes], foreign: Iterable[Foreign] = ()) -> Loaded:
    """Link objects with each other, with the C library of this process, and with the functions of it that the program declares."""
    linker = _Linker([read(data) for data in objects], {f.name: f.symbol for f in foreign})
    memory = _Memory(linker.size)
    image = linker.image(memory.address)
    memory.fill(image, linker.parts)
    return Loaded({name: memory.address + at for name, at in linker.globals.items()}, memory)


class _Memory:
    """Pages of this process; they go when the object goes."""

    def __init__(self, size: int) -> None:
        self.size = size
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if address in (None, _FAILED):
            raise RuntimeStop(f"there is no memory for {size} bytes of code")
        self.address = int(address)
        weakref.finalize(self, _libc.munmap, self.address, size).atexit = False  # a thread may still be running there

    def fill(self, image: bytearray, parts: list[tuple[int, int, int]]) -> None:
        """Put the bytes there and give each part (start, end, rights) what it keeps."""
        ctypes.memmove(self.address, bytes(image), len(image))
        for start, end, rights in parts:
            if _libc.mprotect(self.address + start, end - start, rights):
                raise RuntimeStop("the system lets no program make memory executable, which native code needs")


class _Linker:
    """Gives every section of every object a place, counted from the start of the memory, and leads every reference to its symbol."""

    def __init__(self, objects: list[Object], foreign: dict[str, str]) -> None:
        self.objects, self.foreign = objects, foreign
        self.places: dict[tuple[int, int], int] = {}  # (object, section) -> place
        self.stubs: dict[str, int] = {}  # symbol -> place of the code that jumps there
        self.slots: dict[str, int] = {}  # symbol -> place of the word with its address
        self.parts: list[tuple[int, int, int]] = []
        called, held = self.needs()
        at = self.sections(0, lambda flags: bool(flags & EXECUTE))
        at = self.words(at, called, self.stubs)
        at = self.part(0, at, mmap.PROT_READ | mmap.PROT_EXEC)
        end = self.sections(at, lambda flags: not flags & (EXECUTE | WRITE))
        end = self.words(end, called | held, self.slots)
        at = self.part(at, end, mmap.PROT_READ)
        end = self.sections(at, lambda flags: bool(flags & WRITE))
        self.size = max(self.part(at, end, mmap.PROT_READ | mmap.PROT_WRITE), mmap.PAGESIZE)
        self.globals = {s.name: self.target(n, s) for n, s in self.exported()}

    # ------------------------------------------------------------ places

    def exported(self) -> Iterator[tuple[int, Symbol]]:
        """Global symbols that an object defines, with its number."""
        for n, o in enumerate(self.objects):
            for s in o.symbols:
                if s.is_global and s.section in o.sections:
                    yield n, s

    def needs(self) -> tuple[dict[str, None], dict[str, None]]:
        """Symbols that need a stub, and those that need a slot without one."""
        here: set[str] = set()
        for _, s in self.exported():
            if s.name in here:
                raise InternalError(f"two objects define `{s.name}`", "loader")
            here.add(s.name)
        called: dict[str, None] = {}
        held: dict[str, None] = {}
        for o in self.objects:
            for _, _, kind, number, _ in o.relocations:
                symbol = o.symbols[number]
                if kind in _SLOTS:
                    held[symbol.name] = None
                elif kind == _CALL and symbol.section is None and symbol.name not in here:
                    called[symbol.name] = None
        return called, held

    def sections(self, at: int, wanted: Callable[[int], bool]) -> int:
        """Place the sections with such flags from `at` on; gives their end."""
        for n, o in enumerate(self.objects):
            for number, section in o.sections.items():
                if wanted(section.flags):
                    at = _aligned(at, section.align)
                    self.places[n, number] = at
                    at += section.size
        return at

    def words(self, at: int, names: Iterable[str], places: dict[str, int]) -> int:
        """Place words of 8 bytes, one a name; gives their end."""
        at = _aligned(at, 8)
        for name in names:
            places[name] = at
            at += 8
        return at

    def part(self, start: int, end: int, rights: int) -> int:
        """A part with rights of its own, in whole pages; gives its end."""
        end = _aligned(end, mmap.PAGESIZE)
        if end > start:
            self.parts.append((start, end, rights))
        return end

    # ------------------------------------------------------------ bytes

    def image(self, base: int) -> bytearray:
        """What belongs into the memory that begins at `base`."""
        image = bytearray(self.size)
        for (n, number), at in self.places.items():
            data = self.objects[n].sections[number].data
            image[at : at + len(data)] = data
        for name, at in self.slots.items():
            struct.pack_into("<Q", image, at, self.outside(name) if name not in self.globals else base + self.globals[name])
        for name, at in self.stubs.items():
            struct.pack_into("<2sixx", image, at, b"\xff\x25", self.slots[name] - (at + 6))  # jmp [rip + slot]
        for n, o in enumerate(self.objects):
            for section, offset, kind, number, addend in o.relocations:
                at = self.places[n, section] + offset
                symbol = o.symbols[number]
                if kind in _SLOTS:
                    value = self.slots[symbol.name] + addend - at
                else:
                    value = self.target(n, symbol) + addend - (0 if kind == _WORD else at)
                match kind:
                    case 1:
                        struct.pack_into("<Q", image, at, base + value)
                    case 2 | 4 | 9 | 41 | 42:
                        struct.pack_into("<i", image, at, value)
                    case _:
                        raise InternalError(f"a relocation of type {kind} to `{symbol.name}`", "loader")
        return image

    def target(self, n: int, symbol: Symbol) -> int:
        """The place of a symbol that object `n` refers to: itself, or its stub."""
        if symbol.section is not None:
            return self.places[n, symbol.section] + symbol.offset
        at = self.globals.get(symbol.name, self.stubs.get(symbol.name))
        if at is None:
            raise InternalError(f"`{symbol.name}` is outside and neither called nor held in a slot", "loader")
        return at

    def outside(self, name: str) -> int:
        """The address of a function of the C library."""
        at = foreign_address(self.foreign.get(name, name))
        if at is None:
            raise InternalError(f"no object and no library has `{name}`", "loader")
        return at


def _aligned(at: int, to: int) -> int:
    return -(-at // to) * to

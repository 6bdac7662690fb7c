"""Machine code as ELF64 relocatable objects: our own written as one, and any read.

An object is what linkers, `objdump` and debuggers understand and what LLVM gives too, so the cache keeps one kind of file and the
loader (`backends/x86/load.py`) reads one. Of the format this knows what code of a compiler has: sections with their bytes, symbols, and
relocations with addends.

Source: System V ABI, "Object Files", and its AMD64 supplement.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tlc.backends.x86.code import Code
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_MAGIC = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")  # 64 bits, little endian
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS = 1, 2, 3, 4, 8
WRITE, ALLOC, EXECUTE = 1, 2, 4  # flags of a section
_GLOBAL, _FUNCTION = 1 << 4, 2
_UNDEFINED, _SPECIAL = 0, 0xFF00  # numbers of no section; from the second on: absolute, common


@dataclass(frozen=True)
class Section:
    """Bytes that belong into memory; `data` is shorter than `size` where the rest is zero."""

    name: str
    flags: int
    align: int
    data: bytes
    size: int


@dataclass(frozen=True)
class Symbol:
    """A place in a section of this object, or `section` None: it is in another one."""

    name: str
    section: int | None
    offset: int
    is_global: bool


@dataclass(frozen=True)
class Object:
    """`relocations` are (section, offset in it, type, symbol, addend). Numbers of sections are positions in the file."""

    sections: dict[int, Section]
    symbols: list[Symbol]
    relocations: list[tuple[int, int, int, int, int]]


# ---------------------------------------------------------------- writing


def write(code: Code) -> bytes:
    """An object of one section `.text` with the code's functions as global symbols."""
    names = _Strings()
    begins = sorted(code.symbols.values())
    ends = dict(zip(begins, [*begins[1:], len(code.text)], strict=True))
    symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    numbers: dict[str, int] = {}
    for name, at in code.symbols.items():
        numbers[name] = len(symbols)
        symbols.append(_SYMBOL.pack(names.add(name), _GLOBAL | _FUNCTION, 0, 1, at, ends[at] - at))
    for r in code.relocations:
        if r.symbol not in numbers:
            numbers[r.symbol] = len(symbols)
            symbols.append(_SYMBOL.pack(names.add(r.symbol), _GLOBAL, 0, _UNDEFINED, 0, 0))
    relocations = (_RELOCATION.pack(r.at, numbers[r.symbol] << 32 | r.link, r.addend) for r in code.relocations)
    # name, type, flags, content, link, info, alignment, size of an entry
    sections = [
        (".text", _PROGBITS, ALLOC | EXECUTE, code.text, 0, 0, 64, 0),
        (".rela.text", _RELA, 0, b"".join(relocations), 3, 1, 8, _RELOCATION.size),
        (".symtab", _SYMTAB, 0, b"".join(symbols), 4, 1, 8, _SYMBOL.size),
        (".strtab", _STRTAB, 0, bytes(names.data), 0, 0, 1, 0),
        (".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 1, 0),  # says that the stack need not be executable
    ]
    return _file(sections)


def _file(sections: list[tuple[str, int, int, bytes, int, int, int, int]]) -> bytes:
    titles = _Strings()
    heads = [_SECTION.pack(*[0] * 10)]
    body = bytearray(_HEADER.size)

    def put(name: str, kind: int, flags: int, data: bytes, link: int, info: int, align: int, entry: int) -> None:
        body.extend(bytes(-len(body) % align))
        heads.append(_SECTION.pack(titles.add(name), kind, flags, 0, len(body), len(data), link, info, align, entry))
        body.extend(data)

    for section in sections:
        put(*section)
    title = titles.add(".shstrtab")
    heads.append(_SECTION.pack(title, _STRTAB, 0, 0, len(body), len(titles.data), 0, 0, 1, 0))
    body.extend(titles.data)
    body.extend(bytes(-len(body) % 8))
    at = len(body)
    header = (_MAGIC, _RELOCATABLE, _X86_64, 1, 0, 0, at, 0, _HEADER.size, 0, 0, _SECTION.size, len(heads), len(heads) - 1)
    body[: _HEADER.size] = _HEADER.pack(*header)
    return bytes(body) + b"".join(heads)


class _Strings:
    """A table of strings, each ended by a zero; the first is empty."""

    def __init__(self) -> None:
        self.data = bytearray(1)

    def add(self, text: str) -> int:
        at = len(self.data)
        self.data += text.encode() + b"\0"
        return at


# ---------------------------------------------------------------- reading


def read(data: bytes) -> Object:
    """The sections that belong into memory, the symbols and the relocations of an object."""
    magic, kind, machine, *_ = header = _HEADER.unpack_from(data)
    if magic[:6] != _MAGIC[:6] or (kind, machine) != (_RELOCATABLE, _X86_64):
        raise InternalError("this is no ELF64 object for x86-64", "loader")
    first, size, count = header[6], header[11], header[12]
    heads = [_SECTION.unpack_from(data, first + size * k) for k in range(count)]
    titles = _content(data, heads[header[13]])
    sections: dict[int, Section] = {}
    symbols: list[Symbol] = []
    relocations: list[tuple[int, int, int, int, int]] = []
    for number, head in enumerate(heads):
        name, kind, flags, _, _, length, link, info, align, _ = head
        if flags & ALLOC:
            content = b"" if kind == _NOBITS else _content(data, head)
            sections[number] = Section(_string(titles, name), flags, max(align, 1), content, length)
        elif kind == _SYMTAB:
            symbols = list(_symbols(_content(data, head), _content(data, heads[link])))
        elif kind == _RELA and heads[info][2] & ALLOC:
            for at, what, addend in _RELOCATION.iter_unpack(_content(data, head)):
                relocations.append((info, at, what & 0xFFFFFFFF, what >> 32, addend))
    return Object(sections, symbols, relocations)


def _symbols(table: bytes, names: bytes) -> Iterator[Symbol]:
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(table):
        known = _UNDEFINED < section < _SPECIAL  # absolute is only the symbol that names the file; common nothing in code of compilers
        yield Symbol(_string(names, name), section if known else None, value, info >> 4 != 0)


def _content(data: bytes, head: tuple[int, ...]) -> bytes:
    return data[head[4] : head[4] + head[5]]


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(0, at)].decode()

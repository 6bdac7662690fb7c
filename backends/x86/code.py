"""Machine code as the encoder leaves it: bytes, where functions begin, what refers to other places, and the source of each stretch."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span


class Link(IntEnum):
    """How four bytes of the code refer to a symbol, all relative to their own place; the numbers are those of the x86-64 ELF ABI."""

    ADDRESS = 2  # `lea r, [rip + symbol]`: within this code
    CALL = 4  # `call symbol`, `jmp symbol`; the loader may lead it through a stub
    SLOT = 42  # `mov r, [rip + slot]` with REX: a word that holds the address of the symbol, wherever it is; objects of LLVM have these


@dataclass(frozen=True)
class Relocation:
    at: int  # of the four bytes, in `text`
    link: Link
    symbol: str
    addend: int = -4  # the processor counts from the end of the four bytes


@dataclass
class Code:
    """`text` may end with constants. `symbols` are functions by name, with where each begins. `lines` rise by offset: from there on the
    code belongs to that place in the source.
    """

    text: bytes
    symbols: dict[str, int] = field(default_factory=dict)
    relocations: list[Relocation] = field(default_factory=list)
    lines: list[tuple[int, Span]] = field(default_factory=list)

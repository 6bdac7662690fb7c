"""How own functions are called: where the words of arguments and results travel.

A value is one word if it is a scalar and 1 + rank words if it is a tensor: the address of its buffer and its extents. The first
six words that are integers or addresses travel in registers, the first eight reals too, and what is left in words of the frame of
the caller: those of the arguments, then those of the results. The context is in r15, always.

    f(x: f64[_, _], k: i64, y: f32) -> (f64[_], f32)
      rdi = x, rsi, rdx = its extents, rcx = k, xmm0 = y      eax = 0, rdx = the result's buffer, rcx = its extent, xmm0
"""

from __future__ import annotations

from tlc.backends.x86 import registers
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.regalloc.ir import Bank, Reg
from tlc.ssa.ir import Type


@dataclass(frozen=True)
class Word:
    """One word of a value: its bank, and its bits in a register."""

    bank: Bank
    width: int


INTEGER = Word(Bank.INT, 64)


def words(type: Type) -> tuple[Word, ...]:
    """The words of a value, the address of a tensor first."""
    if type.rank:
        return (INTEGER,) * (1 + type.rank)
    return (word(type.elem),)


def word(elem: Elem) -> Word:
    """The word of a scalar. A narrow real is held as an f32, an integer in at least 32 bits, a bool in all of its register."""
    if elem.is_real:
        return Word(Bank.REAL, 64 if elem is Elem.F64 else 32)
    return Word(Bank.INT, 32 if elem.is_int and elem.width <= 32 else 64)


Place = Reg | int  # a register, or which word of the caller's frame


def arguments(types: tuple[Type, ...]) -> tuple[list[Place], int]:
    """The place of each word of the arguments, and how many words lie in the frame."""
    return _assign(types, registers.INT_ARGUMENTS, registers.REAL_ARGUMENTS, 0)


def results(types: tuple[Type, ...], first: int) -> tuple[list[Place], int]:
    """The same for results, whose words in the frame begin at `first`, behind those of the arguments. The second is where they end."""
    return _assign(types, registers.INT_RESULTS, registers.REAL_RESULTS, first)


def c_arguments(banks: list[Bank]) -> tuple[list[Place], int]:
    """The same for a function of C (System V)."""
    return _places(banks, registers.INT_ARGUMENTS, registers.REAL_ARGUMENTS, 0)


def _assign(types: tuple[Type, ...], ints: tuple[Reg, ...], reals: tuple[Reg, ...], first: int) -> tuple[list[Place], int]:
    return _places([w.bank for t in types for w in words(t)], ints, reals, first)


def _places(banks: list[Bank], ints: tuple[Reg, ...], reals: tuple[Reg, ...], first: int) -> tuple[list[Place], int]:
    free = {Bank.INT: list(ints), Bank.REAL: list(reals)}
    out: list[Place] = []
    for bank in banks:
        if free[bank]:
            out.append(free[bank].pop(0))
        else:
            out.append(first)
            first += 1
    return out, first

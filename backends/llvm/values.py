"""What an expression of a kernel is worth while its code is printed: a register, or an index as a linear form.

Indices stay linear forms as long as they can. Then the constant parts of an address fold, the code sees by how much an
address moves from lane to lane, and the part that does not change in a loop can be computed before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tlc.frontend.types import Elem


@dataclass(frozen=True)
class Word:
    """A value in a register: an operand, its type and how many lanes it has."""

    text: str
    elem: Elem
    lanes: int = 1


@dataclass(frozen=True)
class Linear:
    """An `i64`: the sum of names times coefficients, a constant and the number of the lane times a coefficient."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0
    lane: int = 0

    elem = Elem.I64

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for name, c in other.terms:
            terms[name] = terms.get(name, 0) + c
        return Linear(tuple((n, c) for n, c in terms.items() if c), self.constant + other.constant, self.lane + other.lane)

    def scaled(self, by: int) -> Linear:
        return Linear(tuple((n, c * by) for n, c in self.terms), self.constant * by, self.lane * by) if by else Linear()

    @property
    def value(self) -> int | None:
        """The number, if it is one."""
        return None if self.terms or self.lane else self.constant


Value = Word | Linear


def wrapped(value: int) -> int:
    """The number as a signed 64-bit one."""
    return (value + 2**63) % 2**64 - 2**63


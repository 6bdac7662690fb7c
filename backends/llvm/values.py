"""What an expression of a kernel is worth while its code is printed: a register, or an index as a linear form.

Indices stay linear forms as long as they can. Then the constant parts of an address fold, the code sees by how much an
address moves from lane to lane, and the part that does not change in a loop can be computed before it.
"""

from __future__ import annotations

from typing import NamedTuple

from tlc.frontend.types import Elem


class Word(NamedTuple):
    """A value in a register: an operand, its type and how many lanes it has."""

    text: str
    elem: Elem
    lanes: int = 1


class Linear(NamedTuple):
    """An `i64`: the sum of names times coefficients, none of which is 0, a constant and the number of the lane times a coefficient; and
    where lanes do not go up evenly (0, 0, 1, 1, .. of `l // 2`), what each has more than that.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0
    lane: int = 0
    offsets: tuple[int, ...] = ()

    def plus(self, other: Linear) -> Linear:
        terms = self.terms or other.terms
        if self.terms and other.terms:
            sums = dict(self.terms)
            for name, c in other.terms:
                sums[name] = sums.get(name, 0) + c
            terms = tuple([t for t in sums.items() if t[1]])
        offsets = self.offsets or other.offsets
        if self.offsets and other.offsets:
            offsets = tuple([a + b for a, b in zip(self.offsets, other.offsets, strict=True)])
        return Linear(terms, self.constant + other.constant, self.lane + other.lane, offsets)

    def minus(self, other: Linear) -> Linear:
        return self.plus(other.scaled(-1))

    def scaled(self, by: int) -> Linear:
        if not by:
            return Linear()
        if by == 1:
            return self
        terms = tuple([(n, c * by) for n, c in self.terms])
        return Linear(terms, self.constant * by, self.lane * by, tuple([o * by for o in self.offsets]))

    @property
    def varies(self) -> bool:
        """Whether it differs between lanes."""
        return bool(self.lane or self.offsets)

    def numbers(self, lanes: int) -> list[int]:
        """What each lane has, constant included and terms aside."""
        return [self.constant + self.lane * k + (self.offsets[k] if self.offsets else 0) for k in range(lanes)]

    @staticmethod
    def of(terms: tuple[tuple[str, int], ...], numbers: list[int]) -> Linear:
        """Terms, and a number for each lane."""
        first, step = numbers[0], numbers[1] - numbers[0] if len(numbers) > 1 else 0
        if all(n == first + step * k for k, n in enumerate(numbers)):
            return Linear(terms, first, step)
        return Linear(terms, first, 0, tuple(n - first for n in numbers))

    @property
    def value(self) -> int | None:
        """The number, if it is one."""
        return None if self.terms or self.lane or self.offsets else self.constant


Value = Word | Linear


def wrapped(value: int) -> int:
    """The number as a signed 64-bit one."""
    return (value + 2**63) % 2**64 - 2**63


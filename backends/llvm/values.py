"""What an expression of a kernel is worth while its code is printed: a register, or an index as a linear form.

Indices stay linear forms as long as they can. Then the constant parts of an address fold, the code sees by how much an
address moves from lane to lane, and the part that does not change in a loop can be computed before it.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem


@dataclass(frozen=True)
class Word:
    """A value in a register: an operand, its type and how many lanes it has."""

    text: str
    elem: Elem
    lanes: int = 1


@dataclass(frozen=True)
class Linear:
    """An `i64`: the sum of names times coefficients, a constant and the number of the lane times a coefficient; and where lanes do not
    go up evenly (0, 0, 1, 1, .. of `l // 2`), what each has more than that.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0
    lane: int = 0
    offsets: tuple[int, ...] = ()

    elem = Elem.I64

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for name, c in other.terms:
            terms[name] = terms.get(name, 0) + c
        offsets = self.offsets or other.offsets
        if self.offsets and other.offsets:
            offsets = tuple(a + b for a, b in zip(self.offsets, other.offsets, strict=True))
        kept = tuple((n, c) for n, c in terms.items() if c)
        return Linear(kept, self.constant + other.constant, self.lane + other.lane, offsets)

    def scaled(self, by: int) -> Linear:
        if not by:
            return Linear()
        return Linear(tuple((n, c * by) for n, c in self.terms), self.constant * by, self.lane * by, tuple(o * by for o in self.offsets))

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
        return None if self.terms or self.varies else self.constant


Value = Word | Linear


def wrapped(value: int) -> int:
    """The number as a signed 64-bit one."""
    return (value + 2**63) % 2**64 - 2**63


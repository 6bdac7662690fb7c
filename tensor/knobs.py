"""Knobs: what a schedule may do one way or another without changing a bit of a result.

A schedule asks for a knob where it needs it (`Knobs.ask`), with the value that its own rule gives; what else could be had is in the table
below. So the knobs of a kernel are found by writing it, and one that stands behind another (blocks of rows, where a product is a tile) is
found once that other is turned. `tlc tune` turns them and measures; a `Choice` is what it found. A value that a knob does not have is not
taken, so a choice made for another kernel, or by another version, does no harm.

    knob       of kernels that                               by rule
    registers  fill vectors with elements, searches, windows  two; four where f64 is inside only or rows are searched; one for windows, sums
    lanes      reduce in any order along the data            16, or four registers for the greatest or least of long rows
    tile       are products: rows by registers of columns    6 by 2, with 32 registers 12 by 2; 1 where there are few columns
    reuse      the same: which axis the rows are             0: the one along which most of what is read stays the same, 1: the next
    share      the same: rows pass all columns together      as many as take up a half of the core's cache
    panels     the same, all extents known: copy operands    1 where it pays; 2: by blocks, where the reduction goes down both
    height     are products without vectors: rows            8
    steps      go over a large matrix by rows: how many      8 (of each sixteenth, if a column has sixteen sums)
    panel      the same: columns whose sums stay near        1024, or 2048 where sixteen sums are kept for each
    square     transpose: elements read of a line            16
    tall       go by blocks of rows: rows of a tile          4, with 32 registers 8
    piece      the same: columns between visits of memory    512
    cost       have a loop that threads can share            1: what an iteration is said to cost, 0: one thread
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from tlc.frontend.records import dataclass
from tlc.tensor.kernel.ir import Kernel

Value = int | tuple[int, int]
Choice = Mapping[str, Value]  # knob -> value, of those that are not as their rule has them

V = TypeVar("V", bound=Value)


def _tiles(registers: int) -> tuple[Value, ...]:
    """Rows and registers of columns. Accumulators, a row of the one operand and a number of the other have to find registers; fewer than
    a third for accumulators do not keep the units busy.
    """
    rows = (2, 4, 5, 6, 8, 10, 12, 14, 20, 28)
    return tuple((r, c) for c in (1, 2, 4) for r in rows if registers // 3 < r * c < registers - c)


# knob -> its values, for a number of vector registers; what a rule gives is always one, here or not
VALUES: Mapping[str, Callable[[int], tuple[Value, ...]]] = {
    "registers": lambda registers: (1, 2, 4, 8) if registers > 16 else (1, 2, 4),
    "lanes": lambda _: (8, 16, 32, 64),
    "tile": _tiles,
    "reuse": lambda _: (0, 1, 2),
    "share": lambda _: (0, 1, 2, 4, 8),  # a part of the cache: a half, ..; 0: no blocks
    "panels": lambda _: (0, 1, 2),
    "height": lambda _: (2, 4, 8, 16),
    "steps": lambda _: (2, 4, 8, 16),
    "panel": lambda _: (256, 512, 1024, 2048, 4096),
    "square": lambda _: (8, 16, 32, 64),
    "tall": lambda registers: (2, 4, 6, 8, 12) if registers > 16 else (2, 4, 6),
    "piece": lambda _: (128, 256, 512, 1024),
    "cost": lambda _: (0, 1, 4, 16),
}


@dataclass(frozen=True)
class Asked:
    """A knob that a schedule has: how it stands, how it would by rule, and how it could."""

    value: Value
    rule: Value
    values: tuple[Value, ...]


class Knobs:
    """The knobs of one schedule in the making, for so many vector registers: what is wanted, and what it asked for so far."""

    def __init__(self, registers: int, wanted: Choice) -> None:
        self.registers = registers
        self.wanted = wanted
        self.asked: dict[str, Asked] = {}

    def ask(self, name: str, rule: V) -> V:
        """The value of a knob: the wanted one if the knob has it, else that of the rule."""
        values = VALUES[name](self.registers)
        value = rule
        for v in values:
            if v == self.wanted.get(name) and isinstance(v, type(rule)):
                value = v
        self.asked.setdefault(name, Asked(value, rule, tuple(dict.fromkeys((rule, *values)))))
        return value


class Choices(Protocol):
    """Who knows choices: for a kernel as its rules make it, and what it asked for."""

    def choice(self, kernel: Kernel, asked: Mapping[str, Asked]) -> Choice: ...


class ByRule:
    """Nothing is chosen."""

    def choice(self, kernel: Kernel, asked: Mapping[str, Asked]) -> Choice:
        return {}


def turned(asked: Mapping[str, Asked]) -> Choice:
    """The knobs that stand otherwise than by their rule."""
    return {name: a.value for name, a in asked.items() if a.value != a.rule}


def choice_text(choice: Choice) -> str:
    """`tile 8x2, share 4`; empty for what is all by rule."""
    return ", ".join(f"{name} {value_text(value)}" for name, value in choice.items())


def value_text(value: Value) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)

"""Races: two threads touch one cell of shared or global memory, one of them stores to it, and nothing orders the two.

What orders threads of one block is a barrier: it ends a region, and what was done in another region is done before or after. Threads of
different blocks of a grid are never ordered. Grids are.
"""

from __future__ import annotations

from collections.abc import Iterable

from tlc.frontend.records import dataclass


@dataclass(frozen=True)
class Moment:
    """A thread of a block in a region."""

    block: tuple[int, ...]
    region: int
    thread: int

    def meets(self, other: Moment) -> bool:
        """Whether it is another thread, and nothing orders the two."""
        if self.block != other.block:
            return True
        return self.region == other.region and self.thread != other.thread

    def __str__(self) -> str:
        return f"thread {self.thread} of block {', '.join(map(str, self.block))}"


class Touched:
    """Who touched the cells of one buffer in a grid: of each cell who stored last, and the last two of each block who loaded."""

    def __init__(self) -> None:
        self.stored: dict[int, Moment] = {}
        self.loaded: dict[int, dict[tuple[int, ...], tuple[Moment, ...]]] = {}

    def touch(self, cells: Iterable[int], now: Moment, stores: bool) -> tuple[int, Moment] | None:
        """Note an access; gives the cell and the other thread, if there is a race."""
        for cell in cells:
            before = self.stored.get(cell)
            if before is not None and now.meets(before):
                return cell, before
            loaded = self.loaded.setdefault(cell, {})
            if stores:
                for other in (m for moments in loaded.values() for m in moments):
                    if now.meets(other):
                        return cell, other
                self.stored[cell] = now
                continue
            own = loaded.get(now.block, ())
            if now not in own:
                loaded[now.block] = (*own[-1:], now)  # of two that loaded in a region, one is not the thread that stores in it
        return None

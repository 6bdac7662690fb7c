"""Figures of an allocation, as data: `--stats` prints them."""

from __future__ import annotations

from dataclasses import field

from tlc.frontend.records import dataclass
from tlc.regalloc.interference import Graph
from tlc.regalloc.ir import Bank, Reg


@dataclass
class Stats:
    """`loads`, `stores`, `moves` (between registers) and `remats` (constants made again) count instructions; `spilled` values that have a
    slot for a part of their life at least; `pressure` is the most values live at once. `saved`: the callee-saved registers
    that the function writes.
    """

    spilled: int = 0
    slots: int = 0
    loads: int = 0
    stores: int = 0
    moves: int = 0
    remats: int = 0
    pressure: dict[Bank, int] = field(default_factory=lambda: dict.fromkeys(Bank, 0))
    saved: tuple[Reg, ...] = ()
    graph: Graph | None = None

    def counts(self) -> dict[str, int]:
        """The figures by name, in the order of a table."""
        return {
            "spilled": self.spilled,
            "slots": self.slots,
            "loads": self.loads,
            "stores": self.stores,
            "moves": self.moves,
            "remats": self.remats,
            "pressure_int": self.pressure[Bank.INT],
            "pressure_real": self.pressure[Bank.REAL],
        }

"""How often loops run at most.

A loop ends when a parameter of its header that every back edge moves on in one direction has come to the end of its range: the number of
iterations is at most the length of the range that it has at the back edges (`opt/ranges.py`) over the least step.

    head(%low, %high):  %low + 1 and %high - 1 come back, from where 0 <= %low < %high <= 8
      at the back edge %low is in 0..7 and moves by 1: at most 9 times through the body

Requires SSA; changes nothing. A snapshot of one function.
"""

from __future__ import annotations

from tlc.opt.conditions import END, Conditions, Place
from tlc.opt.ranges import Ranges
from tlc.ssa.ir import Function, Instr, Value
from tlc.ssa.loops import Loop, loops


class Iterations:
    """The loops of a function, outer ones first, and how often each runs."""

    def __init__(self, function: Function) -> None:
        self.conditions = Conditions()
        self.ranges = Ranges(self.conditions)
        self.tree = self.conditions.tree(function.body)
        self.loops = loops(function.body, self.tree)

    def most(self, loop: Loop) -> int | None:
        """How often the body is begun at most, each time the loop is entered; None where nothing bounds it."""
        found = [n for param in loop.header.params if not param.type.rank and (n := self._by(param, loop)) is not None]
        return min(found, default=None)

    def _by(self, param: Value, loop: Loop) -> int | None:
        step = self._step(param, loop)
        if step is None:
            return None
        ends = [self.ranges.at(param, (latch, END)) for latch in loop.latches]
        reached = [end for end in ends if end is not None]
        if not reached:
            return 1
        low, high = min(end[0] for end in reached), max(end[1] for end in reached)
        bits = param.type.elem.width - param.type.elem.is_signed
        limit = 1 << bits
        if not -limit * param.type.elem.is_signed <= min(low, low + step[0]) or max(high, high + step[1]) >= limit:
            return None  # it may wrap
        return (high - low) // min(abs(step[0]), abs(step[1])) + 2

    def _step(self, param: Value, loop: Loop) -> tuple[int, int] | None:
        """The least and the greatest step, if all back edges move the parameter in one direction."""
        if not param.type.elem.is_int:
            return None
        least, greatest = None, None
        for value, place in self._brought_back(param, loop):
            owner = value.owner
            if not isinstance(owner, Instr) or owner.op not in ("add", "sub") or param not in owner.operands:
                return None
            a, b = owner.operands
            if owner.op == "sub" and a is not param:
                return None
            step = self.ranges.at(b if a is param else a, place)
            if step is None:
                continue
            low, high = step if owner.op == "add" else (-step[1], -step[0])
            least, greatest = min(low, low if least is None else least), max(high, high if greatest is None else greatest)
        if least is None or greatest is None or least <= 0 <= greatest:
            return None
        return least, greatest

    def _brought_back(self, param: Value, loop: Loop) -> list[tuple[Value, Place]]:
        """What the back edges give a parameter of the header, and where."""
        k = loop.header.params.index(param)
        into = self.conditions.into(loop.header)
        return [(source.terminator.args(edge)[k], (source, END)) for source, edge in into if source in loop]


__all__ = ["Iterations"]

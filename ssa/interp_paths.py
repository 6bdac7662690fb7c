"""Branches and loops over whole index arrays: every element walks its own way through the blocks of a region.

The elements of the grid around are laid out in one axis. Each stands at a block; those that stand at one block go through it
together, as a grid of their own, and then each follows its own edge. The turn is that of the block in the innermost loop, of
those the first, so elements that leave a loop early wait behind it for the others. Any order would give the same values.

What one block defines and another reads is kept for all elements. An element that has not come by the definition has a
zero there, which it never reads.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import numpy as np

from tlc.frontend.records import dataclass
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.interp_grid import Array, Ends, Grid, Lifted, Unable, small
from tlc.ssa.ir import Block, Region, Terminator, User, Value
from tlc.ssa.liveness import Values, liveness, reads
from tlc.ssa.loops import loops

PATIENCE = 1_000_000  # visits of blocks; an element that never ends must not keep an earlier one from failing


class Paths:
    """Evaluates the branchy regions of one module, which must not change meanwhile."""

    def __init__(self) -> None:
        self.plans: dict[Region, _Plan] = {}

    def __call__(self, grid: Grid, region: Region, ends: Ends) -> list[Lifted]:
        """What a region yields or returns to each element of the grid; the parameters of its entry have their values in `grid`."""
        if grid.empty():
            raise Unable(again=True)
        small(grid.shape)
        if region not in self.plans:
            self.plans[region] = _plan(region, ends)
        return _Walk(grid, self.plans[region], ends).run()


@dataclass(frozen=True)
class _Plan:
    entry: Block
    turns: dict[Block, int]  # the lowest goes first
    kept: dict[Block, list[Value]]  # what instructions of a block define for other blocks


def _plan(region: Region, ends: Ends) -> _Plan:
    def read(user: User) -> Values:
        needed = ends.operands(user) if isinstance(user, Terminator) and not user.targets else ()
        return {**reads(user), **dict.fromkeys(needed)}

    live = liveness(region, read).live_out
    depth = {block: loop.depth for loop in loops(region) for block in loop.blocks}  # inner loops come last
    order = sorted(reverse_postorder(region), key=lambda block: -depth.get(block, 0))
    kept = {block: [r for instr in block.instrs for r in instr.results if r in live[block]] for block in order}
    return _Plan(region.entry, {block: k for k, block in enumerate(order)}, kept)


class _Walk:
    def __init__(self, grid: Grid, plan: _Plan, ends: Ends) -> None:
        self.grid, self.plan, self.ends = grid, plan, ends
        self.count = math.prod(grid.shape)
        self.kept: dict[Hashable, Lifted] = {}  # by value, and the results by position; with one axis for all elements, or none

    def run(self) -> list[Lifted]:
        end = len(self.plan.turns)
        turns = np.full(self.count, self.plan.turns[self.plan.entry])  # of the block where each element stands
        blocks = list(self.plan.turns)
        for _ in range(PATIENCE):
            turn = int(turns.min())
            if turn == end:
                break
            here = np.flatnonzero(turns == turn)
            turns[here] = end
            for target, there in self.visit(blocks[turn], here):
                turns[there] = self.plan.turns[target]
        else:
            raise Unable(again=False)
        results = [lifted.array for key, lifted in self.kept.items() if isinstance(key, int)]
        return [Lifted(y.reshape(self.grid.shape + y.shape[1:]), len(self.grid.shape)) for y in results]

    def visit(self, block: Block, here: Array) -> Iterator[tuple[Block, Array]]:
        """Run a block for some elements; which of them then go where."""
        grid = self.grid.apart(lambda value: self.read(value, here), here.shape)
        grid.block(block.instrs, self.ends)
        for value in self.plan.kept[block]:
            self.keep(value, grid.read(value), here)
        end = block.terminator
        match end.op:
            case "jump":
                sides = [np.full(here.shape, True)]
            case "branch":
                cond = np.broadcast_to(grid.read(end.own[0]).at(1), here.shape)
                sides = [cond, ~cond]
            case "unreachable":
                raise Unable(again=True)
            case _:
                sides = []
                for k, result in enumerate(self.ends.read(grid, end)):
                    self.keep(k, Lifted(result.at(1), 1), here)
        for (target, args), side in zip(end.edges, sides, strict=True):
            there = here[side]
            if there.size:
                moved = [_some(grid.read(a), side) for a in args]  # all are read before one is written
                for param, new in zip(target.params, moved, strict=True):
                    self.keep(param, new, there)
                yield target, there

    def read(self, value: Value, here: Array) -> Lifted:
        """A value for some elements."""
        if value not in self.kept:
            self.kept[value] = self.laid_out(self.grid.read(value))
        lifted = self.kept[value]
        return Lifted(lifted.array[here], 1) if lifted.lead else lifted

    def laid_out(self, value: Lifted) -> Lifted:
        """A value of the code around, with one axis for all elements."""
        if not value.lead:
            return value
        array = value.at(len(self.grid.shape))
        own = array.shape[len(self.grid.shape) :]
        small((self.count, *own))
        return Lifted(np.broadcast_to(array, self.grid.shape + own).reshape((self.count, *own)), 1)

    def keep(self, key: Hashable, value: Lifted, there: Array) -> None:
        """Note a value for some elements. What depends on none, not even on the way, is the same for all."""
        if not value.lead:
            self.kept[key] = value
            return
        own = value.array.shape[1:]
        if key not in self.kept:
            small((self.count, *own))
            self.kept[key] = Lifted(np.zeros((self.count, *own), value.array.dtype), 1)
        kept = self.kept[key].array
        if kept.shape[1:] != own:
            raise Unable(again=False)
        kept[there] = value.array


def _some(value: Lifted, side: Array) -> Lifted:
    """A value for those elements of a grid that go one way."""
    array = value.at(1)
    return Lifted(array[side] if len(array) == len(side) else array, 1)

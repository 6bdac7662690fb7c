"""Dominators of one region: Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001.

Block a dominates b if every path from the entry to b goes through a. Immediate dominators are found by sweeping
reverse postorder until nothing changes: the dominator of a block is where the dominator chains of its processed
predecessors meet. The paper's frontier follows: b is in the frontier of every block on the way from a predecessor of b
up to (not including) b's immediate dominator.

    entry -> loop;  loop -> body, exit;  body -> loop
    immediate:  loop: entry   body: loop   exit: loop        frontier:  loop: {loop}   body: {loop}

Unreachable blocks have no place in the tree: nothing dominates them, and they dominate nothing.
"""

from __future__ import annotations

from dataclasses import field

from tlc.frontend.records import dataclass
from tlc.ssa.cfg import predecessors, reverse_postorder
from tlc.ssa.ir import Block, Region


@dataclass(frozen=True)
class Dominance:
    """The dominator tree. A snapshot: it is not kept when the region changes."""

    order: list[Block]  # reverse postorder
    immediate: dict[Block, Block]  # of every reachable block; the entry's is itself
    _interval: dict[Block, tuple[int, int]] = field(repr=False)  # first and last number of the block's subtree

    def dominates(self, a: Block, b: Block) -> bool:
        """Whether a dominates b (every block itself). False where one of them is unreachable."""
        if a not in self._interval or b not in self._interval:
            return False
        return self._interval[a][0] <= self._interval[b][0] <= self._interval[a][1]

    def children(self) -> dict[Block, list[Block]]:
        """The dominator tree downwards, children in reverse postorder."""
        out: dict[Block, list[Block]] = {b: [] for b in self.order}
        for b in self.order[1:]:
            out[self.immediate[b]].append(b)
        return out

    def frontiers(self) -> dict[Block, list[Block]]:
        """The dominance frontier of every reachable block, in reverse postorder."""
        out: dict[Block, list[Block]] = {b: [] for b in self.order}
        before = predecessors(_region(self.order[0]))
        for b in self.order[1:]:  # nothing jumps to the entry
            for p in before[b]:
                runner = p
                while p in self.immediate and runner is not self.immediate[b] and b not in out[runner]:
                    out[runner].append(b)
                    runner = self.immediate[runner]
        return out


def dominance(region: Region) -> Dominance:
    """The dominator tree of a region."""
    if len(region.blocks) == 1:
        only = region.entry
        return Dominance([only], {only: only}, {only: (0, 0)})
    order = reverse_postorder(region)
    number = {b: k for k, b in enumerate(order)}
    before = predecessors(region)
    immediate: dict[Block, Block] = {region.entry: region.entry}

    def meet(a: Block, b: Block) -> Block:
        while a is not b:
            while number[a] > number[b]:
                a = immediate[a]
            while number[b] > number[a]:
                b = immediate[b]
        return a

    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            ready = [p for p in before[b] if p in immediate]
            new = ready[0]
            for p in ready[1:]:
                new = meet(p, new)
            if immediate.get(b) is not new:
                immediate[b] = new
                changed = True
    return Dominance(order, immediate, _intervals(order, immediate))


def _intervals(order: list[Block], immediate: dict[Block, Block]) -> dict[Block, tuple[int, int]]:
    """Preorder numbers of the dominator tree: a dominates b if b's number lies in a's interval."""
    size = dict.fromkeys(order, 1)
    for b in reversed(order[1:]):
        size[immediate[b]] += size[b]
    out: dict[Block, tuple[int, int]] = {}
    free: dict[Block, int] = {}  # the next number for a child
    for b in order:
        first = 0 if b is order[0] else free[immediate[b]]
        if b is not order[0]:
            free[immediate[b]] += size[b]
        out[b] = (first, first + size[b] - 1)
        free[b] = first + 1
    return out


def _region(block: Block) -> Region:
    assert block.region is not None
    return block.region

"""The control-flow graph of one region: successors, predecessors, orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tlc.ssa.components import components
from tlc.ssa.ir import Block, Region


def successors(block: Block) -> tuple[Block, ...]:
    """Targets of the terminator in order; a branch with equal targets gives one twice."""
    return block.terminator.targets


def predecessors(region: Region) -> dict[Block, list[Block]]:
    """For every block, those that jump to it, in order of the list; twice where both edges of a branch do."""
    out: dict[Block, list[Block]] = {b: [] for b in region.blocks}
    for block in region.blocks:
        for target in successors(block):
            out[target].append(block)
    return out


def cycles(region: Region) -> list[frozenset[Block]]:
    """The largest sets of reachable blocks that all lead to each other: the outermost loops, also those with several ways in."""
    found = components([region.entry], successors)
    return [frozenset(blocks) for blocks in found if len(blocks) > 1 or blocks[0] in successors(blocks[0])]


def postorder(region: Region, following: Callable[[Block], Iterable[Block]] = successors) -> list[Block]:
    """Reachable blocks, each after those it leads to (back edges aside), which are visited in the order of `following`. Iterative: regions
    may be long.
    """
    if len(region.blocks) == 1:  # as nearly every region of a comprehension
        return [region.entry]
    out: list[Block] = []
    seen = {region.entry}
    stack = [(region.entry, iter(following(region.entry)))]
    while stack:
        block, rest = stack[-1]
        for target in rest:
            if target not in seen:
                seen.add(target)
                stack.append((target, iter(following(target))))
                break
        else:
            stack.pop()
            out.append(block)
    return out


def reverse_postorder(region: Region) -> list[Block]:
    """Reachable blocks from the entry, each before those it leads to (back edges aside)."""
    return postorder(region)[::-1]

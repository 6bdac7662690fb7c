"""Small edits of the graph of one region that several stages make."""

from __future__ import annotations

from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.ir import Block, Instr, Region, Terminator, Value, drop_block


def edges_into(region: Region) -> dict[Block, list[tuple[Block, int]]]:
    """The edges into each block: the block that jumps and which edge of its terminator it is."""
    into: dict[Block, list[tuple[Block, int]]] = {b: [] for b in region.blocks}
    for b in region.blocks:
        for k, target in enumerate(b.terminator.targets):
            into[target].append((b, k))
    return into


def remove_unreachable(region: Region) -> bool:
    """Remove the blocks that no path from the entry reaches; whether there were any."""
    if len(region.blocks) == 1:
        return False
    reached = set(reverse_postorder(region))
    if len(reached) == len(region.blocks):
        return False
    for block in region.blocks:
        if block not in reached:
            drop_block(block)
    region.blocks = [b for b in region.blocks if b in reached]
    return True


def redirect(block: Block, edge: int, target: Block, args: tuple[Value, ...]) -> None:
    """Let one edge of a block's terminator go to `target` with these arguments."""
    t = block.terminator
    edges = tuple((target, args) if k == edge else e for k, e in enumerate(t.edges))
    block.terminator = Terminator(t.op, t.own, edges, t.span)


def remove_params(block: Block, positions: set[int], into: list[tuple[Block, int]]) -> None:
    """Remove parameters without uses, and what the edges `into` the block pass for them."""
    assert not any(block.params[k].uses for k in positions)
    for source, edge in into:
        args = source.terminator.args(edge)
        redirect(source, edge, block, tuple(a for k, a in enumerate(args) if k not in positions))
    block.params = [p for k, p in enumerate(block.params) if k not in positions]


def insert_before(instr: Instr, new: Instr) -> Instr:
    """Put a new instruction before one that stands in a block."""
    block = instr.block
    assert block is not None
    new.block = block
    block.instrs.insert(block.instrs.index(instr), new)
    return new

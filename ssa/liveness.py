"""Liveness of values in one region.

A value is live at a point if some path from there reads it. What an instruction's nested regions read of the blocks around
counts as read by the instruction itself. Arguments of an edge are read at the end of the block that jumps; block parameters
are defined at the start of their block, so they are not live into it.

    live_out(b) = union of live_in(s) over successors s
    live_in(b)  = (live_out(b) - defined in b) + read in b before it is defined there

solved by sweeping blocks in postorder until nothing changes. Values of regions
around are live from the entry to their last reading. Dictionaries stand for sets, so that order is that of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tlc.frontend.records import dataclass
from tlc.ssa.cfg import postorder
from tlc.ssa.ir import Block, Instr, Region, User, Value

Values = dict[Value, None]  # an ordered set


@dataclass(frozen=True)
class Liveness:
    """A snapshot: it is not kept when the region changes."""

    live_in: dict[Block, Values]
    live_out: dict[Block, Values]

    def last_uses(self, block: Block) -> dict[User, list[Value]]:
        """For each instruction and the terminator of a block: the values live before it and not after it, and results that nobody reads."""
        out: dict[User, list[Value]] = {}
        live = dict(self.live_out[block])
        for user in (block.terminator, *reversed(block.instrs)):
            dying = [v for v in reads(user) if v not in live]
            if isinstance(user, Instr):
                dying += [r for r in user.results if r not in live]
                for r in user.results:
                    live.pop(r, None)
            out[user] = dying
            live.update(dict.fromkeys(reads(user)))
        return out


def reads(user: User) -> Values:
    """What an instruction or terminator reads, its regions' reads of values around them included."""
    out: Values = dict.fromkeys(user.operands)
    if isinstance(user, Instr):
        for region in user.regions:
            out.update(free_values(region))
    return out


def free_values(region: Region) -> Values:
    """Values that a region reads and does not define, in order of first reading."""
    inside: set[Value] = set()
    read: Values = {}

    def visit(r: Region) -> None:
        for block in r.blocks:
            inside.update(block.params)
            for instr in block.instrs:
                inside.update(instr.results)
                read.update(dict.fromkeys(instr.operands))
                for inner in instr.regions:
                    visit(inner)
            read.update(dict.fromkeys(block.terminator.operands))

    visit(region)
    return {v: None for v in read if v not in inside}


def liveness(region: Region, reads: Callable[[User], Values] = reads) -> Liveness:
    """Live values at both ends of every reachable block; `reads` says what counts as a reading."""
    return liveness_of(postorder(region), reads)


def liveness_of(
    order: Sequence[Block],
    reads: Callable[[User], Values],
    on_edge: Callable[[Block, tuple[Value, ...]], Iterable[Value]] = lambda target, args: (),
) -> Liveness:
    """The same for some blocks of a region, best in postorder, and the edges between them. `on_edge` says what is read on an edge with
    these arguments, and nowhere else: that is live out of the block that jumps.
    """
    read: dict[Block, Values] = {}
    defined: dict[Block, Values] = {}
    for block in order:
        here: Values = dict.fromkeys(block.params)
        upward: Values = {}
        for user in (*block.instrs, block.terminator):
            upward.update({v: None for v in reads(user) if v not in here})
            if isinstance(user, Instr):
                here.update(dict.fromkeys(user.results))
        read[block], defined[block] = upward, here
    live_in: dict[Block, Values] = {b: dict(read[b]) for b in order}
    live_out: dict[Block, Values] = {b: {} for b in order}
    changed = True
    while changed:
        changed = False
        for block in order:
            out = live_out[block]
            size = len(out)
            for target, args in block.terminator.edges:
                if target in live_in:
                    out.update(live_in[target])
                    out.update(dict.fromkeys(on_edge(target, args)))
            if len(out) != size:
                changed = True
                live_in[block].update({v: None for v in out if v not in defined[block]})
    return Liveness(live_in, live_out)

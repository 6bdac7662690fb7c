"""Which arrays the interpreter may change in place.

A value of a frame is owned if nobody but that value holds its array. What `update` makes is owned. It stays so while only
ops of `LOOKS` read it, and an edge hands it on to a block's parameter if it is not read any more behind that edge. An
`update` of an owned value that is not read any more changes its array, which its result owns from then on:

    jump head(%a)                       %a owned: an `update` made it
    head(%x):                           %x owned: %a is not read here
      %y = update %x, %i, %v            in place: %x is not read any more
      jump head(%y)

So a loop that fills an array copies it once. A call or a comprehension that is given an owned value ends that: what
they hold or give back is not followed.
"""

from __future__ import annotations

from tlc.ssa.ir import Block, Instr, Region, Terminator, User, Value
from tlc.ssa.liveness import Liveness, liveness, reads

# Ops that keep no operand, nor give one back.
LOOKS = frozenset({"index", "index_if", "load", "dim", "update", "store", "reshape", "check", "format", "print"})


def shared(instr: Instr) -> tuple[Value, ...]:
    """The tensors that somebody else may hold after an instruction."""
    return () if instr.op in LOOKS else tuple(v for v in reads(instr) if v.type.rank)


class Owners:
    """What liveness says of the regions of one module, which must not change meanwhile."""

    def __init__(self) -> None:
        self.live: dict[Region, Liveness] = {}
        self.last: dict[Block, dict[User, list[Value]]] = {}
        self.hands: dict[tuple[Terminator, int], list[tuple[Value, Value, bool]]] = {}

    def dies(self, value: Value, instr: Instr) -> bool:
        """Whether an instruction is the last to read a value."""
        block = instr.block
        assert block is not None
        if block not in self.last:
            self.last[block] = self.liveness(block).last_uses(block)
        return value in self.last[block][instr]

    def follow(self, owned: set[Value], end: Terminator, edge: int) -> None:
        """Pass on what is owned along an edge."""
        if (end, edge) not in self.hands:
            self.hands[end, edge] = self.moves(end, edge)
        moves = self.hands[end, edge]
        handed = [param for param, arg, last in moves if last and arg in owned]
        for param, arg, _ in moves:
            owned -= {param, arg}
        owned.update(handed)

    def moves(self, end: Terminator, edge: int) -> list[tuple[Value, Value, bool]]:
        """The tensors that an edge moves: parameter, argument, and whether the argument is neither read behind the edge nor moved twice."""
        assert end.block is not None
        target, args = end.edges[edge]
        behind = self.liveness(end.block).live_in[target]
        return [(p, a, a not in behind and args.count(a) == 1) for p, a in zip(target.params, args, strict=True) if p.type.rank]

    def liveness(self, block: Block) -> Liveness:
        region = block.region
        assert region is not None
        if region not in self.live:
            self.live[region] = liveness(region)
        return self.live[region]

"""Values with several definitions: SSA form after a copy of a part of a function.

Where blocks were copied (a second version of a loop, the iterations of one that was unrolled, a test before a loop), a value of the
original and its copies are one variable with several definitions. `rejoin` gives every use of the original the definition that
reaches it, through new parameters where different ones meet: the iterated dominance frontier of the definitions, as in
the construction of SSA (Cytron et al. 1991), for one variable at a time.

    loop:  %x = ..; branch %c, loop, exit          loop:   %x = ..;  branch %c, loop, exit(%x)
    copy:  %y = ..; branch %d, copy, exit    ->    copy:   %y = ..;  branch %d, copy, exit(%y)
    exit:  use %x                                  exit(%z): use %z
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import Block, Instr, Region, Terminator, User, Value

Ends = Mapping[Block, Value]  # where a variable has a new value: block -> that value at its end


def rejoin(region: Region, variables: Iterable[tuple[Value, Ends]]) -> None:
    """For each variable, given as its original and its values at the ends of the blocks that define it (the original's among them): let
    uses of the original outside of its block read the definition that reaches them. Every such use must be reached by
    definitions on all ways.
    """
    joining = _Joining(region)
    for original, ends in variables:
        _Variable(joining, original, ends).run()


class _Joining:
    """The graph of blocks, which does not change meanwhile."""

    def __init__(self, region: Region) -> None:
        self.tree: Dominance = dominance(region)
        self.frontiers = self.tree.frontiers()
        self.into = edges_into(region)
        self.region = region
        self.meets: dict[tuple[Block, ...], set[Block]] = {}

    def meeting(self, blocks: tuple[Block, ...]) -> set[Block]:
        """The iterated dominance frontier of blocks."""
        if blocks not in self.meets:
            found: set[Block] = set()
            work = [b for b in blocks if b in self.frontiers]
            while work:
                for b in self.frontiers[work.pop()]:
                    if b not in found:
                        found.add(b)
                        work.append(b)
            self.meets[blocks] = found
        return self.meets[blocks]

    def place(self, user: User) -> Block:
        """The block of the region in which a user stands, perhaps inside of an instruction there."""
        assert isinstance(user, Instr | Terminator) and user.block is not None
        block = user.block
        while block.region is not self.region:
            assert block.region is not None
            parent = block.region.parent
            assert isinstance(parent, Instr) and parent.block is not None
            block = parent.block
        return block


class _Variable:
    def __init__(self, joining: _Joining, original: Value, ends: Ends) -> None:
        self.joining, self.original, self.ends = joining, original, ends
        self.meets = joining.meeting(tuple(ends))
        self.entries: dict[Block, Value] = {}  # the variable at the beginnings of blocks

    def run(self) -> None:
        home = self.original.block
        seen: set[User] = set()
        while work := [u for u in self.original.uses if u not in seen]:  # a new parameter makes new terminators
            for user in work:
                seen.add(user)
                block = self.joining.place(user)
                if user in self.original.uses and block is not home and block in self.joining.tree.immediate:
                    new = self.at_end(block)
                    if new is not self.original:
                        user.replace(self.original, new)

    def at_end(self, block: Block) -> Value:
        return self.ends[block] if block in self.ends else self.at_entry(block)

    def at_entry(self, block: Block) -> Value:
        way: list[Block] = []
        while block not in self.entries and block not in self.meets:
            way.append(block)
            above = self.joining.tree.immediate[block]
            assert above is not block, "a use that no definition reaches"
            if above in self.ends:
                value = self.ends[above]
                break
            block = above
        else:
            value = self.entries[block] if block in self.entries else self.parameter(block)
        for b in way:
            self.entries[b] = value
        return value

    def parameter(self, block: Block) -> Value:
        """A new parameter of a block where definitions meet."""
        param = self.entries[block] = block.add_param(self.original.type, self.original.name)
        for source, edge in self.joining.into[block]:
            passed = self.at_end(source) if source in self.joining.tree.immediate else param
            redirect(source, edge, block, (*source.terminator.args(edge), passed))
        return param

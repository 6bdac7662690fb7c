"""Copies of functions, regions, blocks and instructions.

A value map (old to new) says what the copy reads: values defined in what is copied map to their copies, entries that the
caller put there beforehand map as it says, all others stay. The map is filled along the way, so the caller finds the
copy of any value in it afterwards.

Copying has two steps, because a block may read what a block below it in the list defines: first everything is
made, without operands, then the operands are filled in.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.ssa.ir import Block, Function, Instr, Region, Terminator, User, Value

Values = dict[Value, Value]


def clone_function(function: Function, name: str) -> Function:
    """A copy under another name; it is not added to a module."""
    return Function(name, clone_region(function.body, {}), function.results, function.span)


def clone_region(region: Region, values: Values) -> Region:
    """A copy of a region. Parameters of its blocks map to new ones."""
    return Region(clone_blocks(region.blocks, values))


def clone_blocks(blocks: Sequence[Block], values: Values) -> list[Block]:
    """Copies of blocks, in order and in no region yet. Edges between them go between the copies, other edges stay."""
    copier = _Copier(values)
    copies = copier.blocks(blocks)
    copier.fill()
    return copies


def clone_instr(instr: Instr, values: Values) -> Instr:
    """A copy of an instruction and its regions, in no block yet."""
    copier = _Copier(values)
    copy = copier.instr(instr)
    copier.fill()
    return copy


def clone_terminator(terminator: Terminator, values: Values, targets: dict[Block, Block] | None = None) -> Terminator:
    """A copy of a terminator; targets outside of `targets` stay."""
    targets = targets or {}
    own = tuple(values.get(v, v) for v in terminator.own)
    edges = tuple((targets.get(b, b), tuple(values.get(v, v) for v in args)) for b, args in terminator.edges)
    return Terminator(terminator.op, own, edges, terminator.span)


class _Copier:
    def __init__(self, values: Values) -> None:
        self.values = values
        self.targets: dict[Block, Block] = {}
        self.users: list[tuple[User, User]] = []  # old, new
        self.ends: list[tuple[Block, Block]] = []

    def blocks(self, blocks: Sequence[Block]) -> list[Block]:
        copies = []
        for block in blocks:
            copy = Block(block.name)
            self.targets[block] = copy
            copies.append(copy)
            for p in block.params:
                self.values[p] = copy.add_param(p.type, p.name)
            for instr in block.instrs:
                copy.append(self.instr(instr))
            if block.terminated:
                self.ends.append((block, copy))
        return copies

    def instr(self, instr: Instr) -> Instr:
        regions = tuple([Region(self.blocks(r.blocks)) for r in instr.regions]) if instr.regions else ()
        types, names = tuple([r.type for r in instr.results]), tuple([r.name for r in instr.results])
        copy = Instr(instr.op, (), types, dict(instr.attrs), regions, instr.span, names)
        self.values.update(zip(instr.results, copy.results, strict=True))
        self.users.append((instr, copy))
        return copy

    def fill(self) -> None:
        values = self.values
        for old, new in self.users:
            new.operands = tuple([values.get(v, v) for v in old.operands])
        for block, copy in self.ends:
            copy.terminator = clone_terminator(block.terminator, self.values, self.targets)

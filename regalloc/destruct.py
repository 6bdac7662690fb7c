"""Leaving SSA form: block parameters become parallel moves (`pmove`) on the edges.

Requires machine IR in SSA form. Afterwards no block has parameters, no target arguments, no edge is critical (from a block with several
successors to one with several predecessors), and unreachable blocks are gone. Virtual registers that were parameters
now have a definition for every predecessor; all others keep their one.

    latch:                                        latch:
      br.64 %i, %n {cc = "lt"} -> loop(%i, %s), out      br.64 %i, %n {cc = "lt"} -> latch.loop, out
                                                  latch.loop:
                                                    %a, %b = pmove %i, %s
                                                    jump -> loop

Why parallel: a sequence would get two cases wrong that Briggs et al. named. *Swap*: `loop(%b, %a)` exchanges two parameters; one after
the other, the second copy would read what the first wrote. *Lost copy*: a parameter is live behind the loop while the
latch already writes its next value; with the critical edge split, the copy stands on the way back only.

A block with one predecessor needs no moves: its parameters are other names for the arguments, so the names are replaced.
No copies are made to be coalesced later ("conventional" SSA): the allocator joins ranges only where they are disjoint, and the
pmove stays where they are not. After Boissinot, Darte, Rastello, de Dinechin, Guillon, "Revisiting out-of-SSA translation
for correctness, code quality, and efficiency" (CGO 2009).

An edge block is cold if either end is; it stands where it disturbs the layout least, and the allocator removes it again when
no move remains in it.
"""

from __future__ import annotations

from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.ir import ANY, Block, Function, Inst, VReg, define, use
from tlc.regalloc.liveness import postorder

JUMP, PMOVE = "jump", "pmove"


def destruct(function: Function) -> list[Block]:
    """Gives the blocks made for critical edges."""
    reached = set(postorder(function))
    function.blocks = [block for block in function.blocks if block in reached]
    entering: dict[Block, int] = dict.fromkeys(function.blocks, 0)
    for block in function.blocks:
        for successor in block.successors:
            entering[successor] += 1
    if entering[function.entry] or function.entry.params:
        raise InternalError("the entry has predecessors or parameters", function.name)
    _rename(function, entering)
    made: list[Block] = []
    for block in list(function.blocks):
        terminator = block.terminator
        single = len(terminator.targets) == 1
        if single and terminator.operands:
            raise InternalError(f"`{terminator.op}` has one successor and operands", f"{function.name}, {block.name}")
        targets: list[tuple[Block, tuple[VReg, ...]]] = []
        for successor, arguments in terminator.targets:
            if entering[successor] == 1:
                targets.append((successor, ()))
            elif single:
                _copy(block, successor, arguments)
                targets.append((successor, ()))
            else:
                edge = Block(f"{block.name}.{successor.name}", min(block.depth, successor.depth), block.cold or successor.cold)
                edge.insts = [Inst(JUMP, targets=[(successor, ())], span=terminator.span)]
                _copy(edge, successor, arguments)
                _place(function, block, edge, successor)
                targets.append((edge, ()))
                made.append(edge)
        terminator.targets = targets
    for block in function.blocks:
        block.params = []
    return made


def _copy(block: Block, successor: Block, arguments: tuple[VReg, ...]) -> None:
    """The pmove at the end of a block with one successor, without the elements that copy a register to itself."""
    pairs = [(p, a) for p, a in zip(successor.params, arguments, strict=True) if p is not a]
    if pairs:
        operands = [define(p, ANY) for p, _ in pairs] + [use(a, ANY) for _, a in pairs]
        block.insts.insert(-1, Inst(PMOVE, operands, span=block.terminator.span))


def _rename(function: Function, entering: dict[Block, int]) -> None:
    """Parameters of blocks with one predecessor are their arguments."""
    same: dict[VReg, VReg] = {}
    for block in function.blocks:
        for successor, arguments in block.terminator.targets:
            if entering[successor] == 1:
                same.update(zip(successor.params, arguments, strict=True))

    def final(vreg: VReg) -> VReg:
        while vreg in same:
            vreg = same[vreg]
        return vreg

    if not same:
        return
    for block in function.blocks:
        for inst in block.insts:
            for operand in inst.operands:
                if operand.vreg in same:
                    operand.vreg = final(operand.vreg)
        terminator = block.terminator
        terminator.targets = [(successor, tuple(final(a) for a in arguments)) for successor, arguments in terminator.targets]


def _place(function: Function, block: Block, edge: Block, successor: Block) -> None:
    """A cold edge goes to the end; one that leaves a loop before its target, if nothing falls into that; any other behind its source."""
    blocks = function.blocks
    if edge.cold and not block.cold:
        blocks.append(edge)
        return
    at = blocks.index(successor)
    if edge.depth < block.depth and at > 0 and successor not in blocks[at - 1].successors:
        blocks.insert(at, edge)
        return
    blocks.insert(blocks.index(block) + 1, edge)

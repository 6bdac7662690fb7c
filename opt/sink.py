"""Sinking: what only one side of a branch reads is computed on that side, where its derivative may be infinite.

    block:  %u = log %x                          block:  branch %c, side, join(%x)
            branch %c, join(%u), join(%x)   ->   side:   %u = log %x
                                                         jump join(%u)

The derivative by an `if` is that of the side taken (LANGUAGE: branches are constants of the path). Where the other side is taken, the
adjoint of `%u` is zero, and 0 * inf at x = 0 would make a NaN of the gradient; on its side, `%u` has no adjoint there at all. So this
runs while a module still has a `grad` to expand, before `if-convert`, which then leaves such a side alone.

Moved are ops of `SINGULAR`, and what is computed of them. Requires SSA. Preserves every value. It is late scheduling as in Click,
"Global code motion, global value numbering" (1995), for the few values that need it.
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.opt.regions import all_regions
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, User, Value

# Ops whose derivative may be infinite where their result is not needed: at a pole, or where they overflow.
SINGULAR = frozenset({"div", "log", "log1p", "sqrt", "pow", "exp", "expm1", "tan"})


def sink(module: Module) -> None:
    """Sink in every region, in place."""
    for region in all_regions(module):
        sink_region(region)


def sink_region(region: Region) -> None:
    into = edges_into(region)
    for block in reverse_postorder(region):  # what was moved to a side may move on from there
        end = block.terminator
        if end.op != "branch":
            continue
        for edge in (0, 1):
            moved = _only_for(block, edge, len(into[end.targets[edge]]) == 1)
            if moved:
                _move(region, block, edge, moved, len(into[end.targets[edge]]) == 1)


def _only_for(block: Block, edge: int, alone: bool) -> list[Instr]:
    """The instructions of a block that only one edge of it needs, or the block behind that if nobody else enters it."""
    end = block.terminator
    arguments = end.args(edge)
    elsewhere = {*end.own, *end.args(1 - edge)}
    found: set[Instr] = set()

    def is_side(user: User, value: Value) -> bool:
        if user is end:
            return value in arguments and value not in elsewhere
        if isinstance(user, Instr) and user in found:
            return True
        return alone and isinstance(user, Instr | Terminator) and user.block is end.targets[edge]

    for instr in reversed(block.instrs):
        if instr.op in SCALAR_OPS and instr.result.uses and all(is_side(u, instr.result) for u in instr.result.uses):
            found.add(instr)
    moved: list[Instr] = []
    for instr in block.instrs:
        if instr in found and (_is_singular(instr) or any(v.owner in moved for v in instr.operands)):
            moved.append(instr)
    return moved


def _is_singular(instr: Instr) -> bool:
    return instr.op in SINGULAR and instr.result.type.elem.is_real


def _move(region: Region, block: Block, edge: int, moved: list[Instr], alone: bool) -> None:
    """To the start of the block behind the edge; to a new one on the edge if others enter that, or it has parameters."""
    end = block.terminator
    side = end.targets[edge]
    if not alone or side.params:
        target, args = side, end.args(edge)
        side = region.add(Block("side"))
        side.terminator = Terminator("jump", (), ((target, args),), end.span)
        redirect(block, edge, side, ())
    for instr in moved:
        block.instrs.remove(instr)
        instr.block = side
    side.instrs[0:0] = moved

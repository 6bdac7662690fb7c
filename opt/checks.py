"""Removal of checks that cannot fail, and of choices that are no choices.

Requires SSA; preserves every check that could fail, so a program that stops still stops in the same place with the same
message. A check falls if its condition is the constant true or follows from what `opt/facts.py` knows: indices of
regions, counters of loops, extents, remainders, branches on the way and the checks before it. Of a condition `a and b` whose one
half is proved the other half stays. A `select` or `branch` whose condition is proved either way gets the constant (`fold` takes
the side): hoisting leaves such selects of checks that only then can be proved.

    %y = tabulate %n {                          %n = dim %x 0
      (%i: i64):
        check (0 <= %i and %i < dim %x 0)       proved: 0 <= i < n
"""

from __future__ import annotations

from tlc.frontend.types import Elem
from tlc.opt.conditions import END
from tlc.opt.facts import Facts
from tlc.opt.regions import regions
from tlc.ssa.ir import BOOL, Block, Instr, Module, Value, const_of, erase


def checks(module: Module) -> None:
    """Remove the checks that are proved, and decide the choices that are, in every function."""
    for f in module.functions.values():
        facts = Facts()
        for region in regions(f.body):
            for block in region.blocks:
                for instr in list(block.instrs):
                    if instr.op == "check" and instr.attrs["kind"] != "finite":  # of reals nothing is known
                        check(facts, instr)
                    elif instr.op == "select":
                        decide(facts, block, instr)
                if block.terminator.op == "branch":
                    decide(facts, block, None)


def check(facts: Facts, instr: Instr) -> None:
    """Remove a check that is proved, or the half of it that is."""
    left = [c for c in conjuncts(instr.operands[0]) if not facts.holds(c, instr)]
    if not left:
        erase(instr)
    elif len(left) == 1 and left[0] is not instr.operands[0]:
        instr.operands = (left[0], *instr.operands[1:])


def conjuncts(cond: Value) -> list[Value]:
    """What a condition is the conjunction of."""
    owner = cond.owner
    if isinstance(owner, Instr) and owner.op == "and" and cond.type.elem is Elem.BOOL:
        return [c for v in owner.operands for c in conjuncts(v)]
    return [cond]


def decide(facts: Facts, block: Block, select: Instr | None) -> None:
    """Give a select, or the branch that ends the block, the constant that its condition is proved to be."""
    user = select or block.terminator
    cond: Value = user.operands[0]
    known = None if const_of(cond) is not None else facts.decided(cond, select or (block, END))
    if known is None:
        return
    constant = Instr("const", (), (BOOL,), {"value": known}, (), user.span)
    constant.block = block
    block.instrs.insert(block.instrs.index(select) if select else len(block.instrs), constant)
    user.operands = (constant.result, *user.operands[1:])

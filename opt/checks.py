"""Removal of checks that cannot fail.

Requires SSA; preserves every check that could fail, so a program that stops still stops in the same place with the same
message. A check falls if its condition is the constant true or follows from what `opt/facts.py` knows: indices of
regions, counters of loops, extents.

    %y = tabulate %n {                          %n = dim %x 0
      (%i: i64):
        check (0 <= %i and %i < dim %x 0)       proved: 0 <= i < n
"""

from __future__ import annotations

from tlc.opt.facts import Facts
from tlc.ssa.ir import Module, erase, walk


def checks(module: Module) -> None:
    """Remove the checks that are proved, in every function."""
    for f in module.functions.values():
        facts = Facts()
        for instr in list(walk(f.body)):
            if instr.op == "check" and instr.block is not None and facts.holds(instr.operands[0], instr.block):
                erase(instr)

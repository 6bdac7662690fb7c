"""Removes what nobody reads from machine IR in SSA form: instructions without effect, parameters of blocks and what edges pass for them.

Selection asks for every word of a tensor that goes around a loop, and for the arguments of parameters that turn out to be read by
nobody but the next round. Marked from what acts (all that is not `pure`), backwards over uses.
"""

from __future__ import annotations

from tlc.backends.x86.ops import ROWS
from tlc.regalloc.ir import Block, Function, Inst, VReg


def prune(function: Function) -> None:
    """Remove dead instructions and parameters, in place."""
    made: dict[VReg, Inst] = {}
    passed: dict[VReg, list[VReg]] = {p: [] for b in function.blocks for p in b.params}
    live: set[VReg] = set()
    work: list[VReg] = []

    def read(inst: Inst) -> None:
        for o in inst.operands:
            if not o.is_def and o.vreg not in live:
                live.add(o.vreg)
                work.append(o.vreg)

    for block in function.blocks:
        for inst in block.insts:
            if ROWS[inst.op].pure:
                made.update((o.vreg, inst) for o in inst.operands if o.is_def)
            else:
                read(inst)
        for target, args in block.terminator.targets:
            for p, a in zip(target.params, args, strict=True):
                passed[p].append(a)
    while work:
        v = work.pop()
        if v in made:
            read(made[v])
        for a in passed.get(v, ()):
            if a not in live:
                live.add(a)
                work.append(a)
    _sweep(function.blocks, live)


def _sweep(blocks: list[Block], live: set[VReg]) -> None:
    for block in blocks:
        block.insts = [i for i in block.insts if not ROWS[i.op].pure or any(o.vreg in live for o in i.operands if o.is_def)]
        end = block.terminator
        end.targets = [(t, tuple(a for p, a in zip(t.params, args, strict=True) if p in live)) for t, args in end.targets]
    for block in blocks:
        block.params = [p for p in block.params if p in live]

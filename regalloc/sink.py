"""Next values of loops are computed behind the last use of what they replace, so that both can have one register.

Where a block passes `%a` on as the next value of `%p`, and computes `%a` before it reads `%p` for the last time, the two are live at
once: a copy on the edge is left, and mostly a jump for it. If `%a` is not read in between, its instruction can as well stand behind
that last use:

    %a = add_i %p {imm = 1}                          %x = load [%base + %p*8 + 8]
    %x = load [%base + %p*8 + 8]          =>         %a = add_i %p {imm = 1}
    br %a, %n -> loop(%a), out                       br %a, %n -> loop(%a), out

Requires SSA form. Moves only instructions without effect that do not read memory, only within their block, and only if no more than
one of their operands lives longer by it: then no more values are live at any point than before.
"""

from __future__ import annotations

from tlc.regalloc.ir import Block, Function, VReg
from tlc.regalloc.target import Kind, Target


def sink(function: Function, target: Target) -> None:
    for block in function.blocks:
        pairs = [(p, a) for s, arguments in block.terminator.targets for p, a in zip(s.params, arguments, strict=True) if p is not a]
        if pairs:
            _block(block, pairs, target)


def _block(block: Block, pairs: list[tuple[VReg, VReg]], target: Target) -> None:
    defined: dict[VReg, int] = {}
    first: dict[VReg, int] = {}  # uses in the block
    last: dict[VReg, int] = {}
    for k, inst in enumerate(block.insts):
        for operand in inst.operands:
            if operand.is_def:
                defined[operand.vreg] = k
            else:
                first.setdefault(operand.vreg, k)
                last[operand.vreg] = k
    end = len(block.insts) - 1
    replaced = {p for p, _ in pairs}
    behind: dict[int, int] = {}  # instruction -> the one that it goes behind
    for p, a in pairs:
        at, stop = defined.get(a), last.get(p)
        if at is None or stop is None or not at < stop < end or first.get(a, end) <= stop or at in behind:
            continue
        inst = block.insts[at]
        row = target.rows[inst.op]
        if not row.pure or row.kind is not Kind.NORMAL or row.remat or "mem" in inst.attrs or len(inst.defs) != 1:
            continue
        ending = {o.vreg for o in inst.uses if last[o.vreg] == at and (o.vreg in defined or o.vreg in replaced)}
        if len(ending) <= 1:
            behind[at] = stop
    if behind:
        order = sorted(range(len(block.insts)), key=lambda k: (behind.get(k, k), k in behind, k))
        block.insts = [block.insts[k] for k in order]

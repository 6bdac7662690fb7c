"""Folding: constants are computed, algebraic rules applied, branches on constants become jumps.

Requires SSA. Preserves everything but the shape of the graph where a branch falls (the other side may become unreachable; it is
removed at once, because a block that no path reaches may hold anything). What the ops mean is the `evaluate` of their rows, so that
a folded program gives the bits of the unfolded one. The rules are data (`opt/rules.py`). One sweep in reverse postorder is repeated until
nothing changes.

    %c = mul %a, %b   with %a = 6, %b = 7     ->   %c = const 42
    branch %true, then, else                  ->   jump then
    reduce %n {op = "sum"} { (%k): yield 0 }  ->   const 0             whatever %n is
"""

from __future__ import annotations

import numpy as np

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import DTYPES, SCALAR_OPS, literal
from tlc.opt.regions import all_regions, fused_product
from tlc.opt.rewrite import Rewriter, constant, same_literal
from tlc.opt.rules import RULES
from tlc.opt.simplify_cfg import settle_branches
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.edit import insert_before, remove_unreachable
from tlc.ssa.ir import Instr, Module, Region, Value, const_of, erase
from tlc.ssa.ops import effect
from tlc.ssa.reductions import fold as reduction

_REWRITER = Rewriter(RULES)


def fold(module: Module) -> None:
    """Fold every region of the module until nothing changes.

    Regions inside see the constants of those around them, so they come later; what changes in a region matters outside only where
    its `reduce` becomes one of nothing.
    """
    again = True
    while again:
        changed = [region for region in all_regions(module) if _settle(region)]
        again = any(map(_yields_constant, changed))


def _yields_constant(region: Region) -> bool:
    end = region.entry.terminator
    return end.op == "yield" and const_of(end.own[0]) is not None


def _settle(region: Region) -> bool:
    """Sweep over a region until nothing changes; whether anything did."""
    changed = False
    while fold_region(region):
        changed = True
    return changed


def fold_region(region: Region) -> bool:
    """One sweep over a region (not the regions inside it); whether it changed."""
    changed = False
    for block in reverse_postorder(region):
        for instr in list(block.instrs):
            new = None
            if instr.op in SCALAR_OPS and not fused_product(instr):
                new = folded(instr)
            elif instr.op == "reduce":
                new = _reduction_of_nothing(instr)
            if new is not None:
                new.name = new.name or instr.result.name
                instr.result.replace_by(new)
                erase(instr)
                changed = True
    changed |= settle_branches(region)
    changed |= remove_unreachable(region)
    return changed


def folded(instr: Instr) -> Value | None:
    """The value that this scalar instruction is equal to, if it is simpler; new instructions are put before it."""
    return _constant(instr) or _REWRITER.rewrite(instr) or _same_type(instr)


def _constant(instr: Instr) -> Value | None:
    operands = instr.operands
    if const_of(operands[0]) is None:
        return None
    value = constant(instr.op, instr.result.type.elem, [const_of(v) for v in operands], operands)
    if value is None:
        return None
    return insert_before(instr, Instr("const", (), (instr.result.type,), {"value": value}, (), instr.span)).result


def _reduction_of_nothing(instr: Instr) -> Value | None:
    """A reduction of what its empty range gives (a sum of zeros) gives that."""
    op, entry = instr.attrs["op"], instr.regions[0].entry
    if op in ("argmax", "argmin") or entry.terminator.op != "yield" or any(effect(i.op) != "none" or i.regions for i in entry.instrs):
        return None
    known, type = const_of(entry.terminator.own[0]), instr.result.type
    if known is None or type.elem in NARROW:
        return None
    empty = literal(reduction(str(op), "lanes", type.elem, np.zeros(0, DTYPES[type.elem])), type.elem)
    if not same_literal(known, empty, type.elem):
        return None
    return insert_before(instr, Instr("const", (), (type,), {"value": empty}, (), instr.span)).result


def _same_type(instr: Instr) -> Value | None:
    """convert(x) = x where x has that type already."""
    if instr.op in ("convert", "bitcast") and instr.operands[0].type == instr.result.type:
        return instr.operands[0]
    return None


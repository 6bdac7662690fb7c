"""Tensors that every element of a comprehension has for itself and changes in place, at indices that are the same for all elements.

    for b { h = ..;  for j { .. index h, j ..;  h = update h, j, v } }

Where the control flow moves around the comprehension (`tensor/interchange.py`), the tensors of all elements become one. What the
updates index comes first in it, and what counts the elements behind that: then an update changes a row, in place.

    H = ..;  for j { V = tabulate [b] { .. index H, j, b .. };  H = update H, j, V }

These tensors are the results of such updates and the parameters of blocks that they are passed through.

Requires: nothing. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tlc.ssa.ir import Block, Instr, Region, Terminator, User, Value
from tlc.ssa.liveness import reads
from tlc.ssa.loops import loops

READS = {"index": 0, "index_if": 1}  # what reads elements or a part of a tensor: the position of the tensor


def changed_in_place(region: Region, order: Sequence[Block], varying: set[Value]) -> dict[Value, int] | None:
    """The tensors that are kept so, and how many of their axes come first; None where a loop changes a tensor that cannot be."""
    looped = {b for loop in loops(region) for b in loop.blocks}
    first: dict[Value, int] = {}
    work: list[tuple[Value, int]] = []
    for block in order:
        if block in looped:
            work += [(i.result, len(i.operands) - 2) for i in block.instrs if i.op == "update" and not varying.isdisjoint(reads(i))]
    into = _Passed(order)
    while work:
        v, axes = work.pop()
        if first.setdefault(v, axes) != axes:
            return None
        if v in into.done:
            continue
        into.done.add(v)
        if isinstance(v.owner, Instr):
            before, *indices, _ = v.owner.operands
            if len(indices) != axes or not varying.isdisjoint(indices):
                return None
            work += [(before, axes)] if _is_kept(before, varying) else []
        else:
            work += [(a, axes) for a in into.args[v] if _is_kept(a, varying)]
        work += [(p, axes) for p in into.params.get(v, ())]
        work += [(u.result, axes) for u in v.uses if isinstance(u, Instr) and u.op == "update" and u.operands[0] is v]
    once = set(order) - looped
    fine = all(_is_read(u, v, order, once) for v in first for u in v.uses)
    return first if fine else None


class _Passed:
    """What blocks pass: of each parameter the arguments, and of each value the parameters that get it."""

    def __init__(self, order: Sequence[Block]) -> None:
        self.args: dict[Value, list[Value]] = {p: [] for b in order for p in b.params}
        self.params: dict[Value, list[Value]] = {}
        self.done: set[Value] = set()
        for b in order:
            for target, args in b.terminator.edges:
                for p, a in zip(target.params, args, strict=True):
                    self.args[p].append(a)
                    self.params.setdefault(a, []).append(p)


def _is_kept(v: Value, varying: set[Value]) -> bool:
    """Whether a value is passed on or changed, not made: a parameter of a block, or the result of an update."""
    return v in varying and v.type.rank > 0 and (isinstance(v.owner, Block) or v.owner.op == "update")


def _is_read(user: User, v: Value, order: Collection[Block], once: Collection[Block]) -> bool:
    """Whether a user reads elements or a part, changes the tensor, passes it on, or yields it where no loop is around."""
    if isinstance(user, Terminator):
        return user.block in (once if user.op == "yield" else order)
    assert isinstance(user, Instr)
    if user.op in READS:
        return user.operands[READS[user.op]] is v
    return user.op == "update" and user.operands[0] is v and v not in user.operands[1:]

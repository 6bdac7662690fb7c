"""Dead stores: what is overwritten before anybody reads it is not stored.

Requires host SSA before the memory plan, equal positions being one value (`gvn`); preserves the graph and every value. Tensors are
values, so a store whose tensor nobody reads is dead code (`dce`). What is left is a store whose tensor only later stores read:
going up a chain of stores that are each read by the next one alone, a store to the position that the last one writes is
skipped. A store of the element that is there already does nothing at all.

    %y = store %x, %i, %v                      %z = store %x, %i, %w
    %z = store %y, %i, %w             ->

    %v = load %x, %i;  %y = store %x, %i, %v   ->   %y is %x
"""

from __future__ import annotations

from tlc.ssa.ir import Instr, Module, Value, erase

CHAIN = 16  # stores that are looked through


def dead_stores(module: Module) -> None:
    """Remove the stores that nothing can see in every function."""
    for f in module.functions.values():
        for block in f.blocks:
            for instr in list(block.instrs):
                if instr.op == "store":
                    if _stores_what_is_there(instr):
                        instr.result.replace_by(instr.operands[0])
                        erase(instr)
                    else:
                        _skip(instr)


def _stores_what_is_there(store: Instr) -> bool:
    x, place, element = store.operands
    return isinstance(element.owner, Instr) and element.owner.op == "load" and element.owner.operands == (x, place)


def _skip(last: Instr) -> None:
    """Take stores to the same position, which only lead to this one, out of the chain above it."""
    below = last
    for _ in range(CHAIN):
        above = below.operands[0].owner
        if not isinstance(above, Instr) or above.op != "store" or not _only_read_by(above.result, below):
            return
        if above.operands[1] is last.operands[1]:
            above.result.replace_by(above.operands[0])
            erase(above)
        else:
            below = above


def _only_read_by(value: Value, user: Instr) -> bool:
    """`dim` reads no element."""
    return all(u is user or (isinstance(u, Instr) and u.op == "dim") for u in value.uses) and value.uses.get(user) == 1

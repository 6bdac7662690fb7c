"""Unrolling of loops that run a small constant number of times: each iteration becomes code of its own.

Requires host SSA before the memory plan; preserves every value and the order of effects. The counter is then a constant in each
iteration, so positions become constants too, and what one iteration stores the next need not load.

A loop is unrolled if its first test has a counter that starts at a constant, goes by a constant and is compared with one, if it
does nothing but scalar ops, loads, stores and checks, and if what becomes of it, loops inside counted with all their iterations
(`opt/iterations.py`), is not more than `LIMIT` instructions. As many copies of the loop as it has iterations go before it, each of
which goes on with the next; constants run through them (`sccp`), and nothing is left of the loop itself.

    for i in 0..3 { for j in i + 1..3 { f(i, j) } }     ->     f(0, 1);  f(0, 2);  f(1, 2)
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.opt.dce import dce
from tlc.opt.fold import fold_region
from tlc.opt.iterations import Iterations
from tlc.opt.loop_shape import copy_loop, definitions, enter_by_one_block, region_of
from tlc.opt.ranges import WHOLE, fits
from tlc.opt.sccp import sccp
from tlc.opt.simplify_cfg import simplify_region
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import Block, Function, Instr, Module, Value, const_of
from tlc.ssa.loops import Loop, loops
from tlc.ssa.repair import rejoin

MOST = 8  # iterations
LIMIT = 500  # instructions that may become of a loop
ALLOWED = frozenset({*SCALAR_OPS, "const", "dim", "load", "store", "check"})
Copy = tuple[dict[Block, Block], dict[Value, Value]]  # the copies of a loop's blocks and values
_TESTS = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "ne": lambda a, b: a != b,
}  # fmt: skip


def unroll(module: Module) -> None:
    """Unroll the loops of every function until none is short enough; a round takes all that are, so that there are few."""
    unrolled = False
    while changed := [f for f in module.functions.values() if _function(f)]:
        unrolled = True
        sccp(module)
        for f in changed:
            while fold_region(f.body):
                pass
            simplify_region(f.body)
    if unrolled:
        dce(module)


def _function(f: Function) -> bool:
    """Unroll the loops of a function that are short enough, outer ones before those inside; whether there were any."""
    counts = {loop.header: trip_count(loop) for loop in loops(f.body)}
    if all(count is None for count in counts.values()):
        return False
    iterations = Iterations(f)
    copied: list[tuple[Loop, list[Copy]]] = []
    taken: set[Block] = set()
    for loop in iterations.loops:
        count = counts[loop.header]
        if count is not None and loop.header not in taken and _size(loop, iterations, count) <= LIMIT:
            copied.append((loop, _copies(loop, count)))
            taken.update(loop.blocks)
    rejoin(f.body, [variable for loop, copies in copied for variable in definitions(loop, copies)])
    return bool(copied)


def trip_count(loop: Loop) -> int | None:
    """How often a loop runs that has a constant start, step and end, if nothing else ends it, and not more than a few times."""
    t = loop.header.terminator
    if t.op != "branch" or t.targets[0] not in loop or t.targets[1] in loop or len(loop.latches) != 1:
        return None
    test, (latch,) = t.own[0].owner, loop.latches
    outside = [(source, edge) for source, edge in edges_into(region_of(loop))[loop.header] if source is not latch]
    if not isinstance(test, Instr) or test.op not in _TESTS or test.block is not loop.header:
        return None
    if len(outside) != 1 or latch.terminator.op != "jump":
        return None
    ((before, edge),) = outside
    counter, last = test.operands[0], const_of(test.operands[1])
    if counter.owner is not loop.header or last is None or not counter.type.elem.is_int:
        return None
    k = loop.header.params.index(counter)
    now, step = const_of(before.terminator.args(edge)[k]), _step(latch.terminator.args(0)[k], counter)
    if now is None or step is None:
        return None
    at = int(now)
    for count in range(MOST + 1):
        if not _TESTS[test.op](at, int(last)):
            return count
        at += step
        if not fits((at, at), WHOLE[counter.type.elem]):
            return None
    return None


def _step(passed: Value, counter: Value) -> int | None:
    owner = passed.owner
    if not isinstance(owner, Instr) or owner.op != "add" or counter not in owner.operands:
        return None
    known = const_of(owner.operands[1] if owner.operands[0] is counter else owner.operands[0])
    return None if known is None else int(known)


def _size(loop: Loop, iterations: Iterations, count: int) -> int:
    """How many instructions would become of a loop; more than the limit if it must stay."""
    total = 0
    for block in loop.blocks:
        if any(i.op not in ALLOWED for i in block.instrs):
            return LIMIT + 1
        times = count
        for inner in iterations.loops:
            if inner is not loop and block in inner and inner.header in loop.blocks:
                times *= iterations.most(inner) or LIMIT
        total += times * sum(1 for i in block.instrs if i.op != "const")
    return total


def _copies(loop: Loop, count: int) -> list[Copy]:
    """Put copies of a loop before it, one an iteration: the first is entered, each goes on with the next, the last with the loop."""
    before, header, (latch,) = enter_by_one_block(loop), loop.header, loop.latches
    copies = [copy_loop(loop) for _ in range(count)]
    for k, (blocks, _) in enumerate(copies):
        following = copies[k + 1][0][header] if k + 1 < count else header
        end = blocks[latch]
        redirect(end, 0, following, end.terminator.args(0))
    if copies:
        redirect(before, 0, copies[0][0][header], before.terminator.args(0))
    return copies

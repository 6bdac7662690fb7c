"""Guarded loads: a branch around loads becomes loads with a condition, so that padding and rims stay whole-array code.

    y = tabulate [i] {                               y = tabulate [i] {
      branch (1 <= i and i <= n), then, join(0.0)      c = and (1 <= i), (i <= n)
    then:                                         ->   v = index_if c, x, (sub i, 1)
      v = index x, (sub i, 1)                          yield v }
      jump join(v)
    join(r): yield r }

What is read may lie out of range where the condition does not hold, so nothing is read there; the value is 0 then, and where the other
side gives 0 too there is nothing to choose. A load that is in range for every element needs no condition: `tensor/hoist.py` has taken it
out before. A load in two branches has both conditions.

Requires: a region without loops; a load's range was proved, or is checked in the block itself, and then it stays. Preserves: every
value, to the bit. Ops beside the loads are those that may be computed in vain (`opt/if_convert.py`): while derivatives are still to be
made, only what has finite ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from tlc.frontend.types import Elem
from tlc.opt.if_convert import CHEAP, LINEAR, convert_region, is_cheap
from tlc.opt.simplify_cfg import simplify_region
from tlc.ssa.builder import Builder
from tlc.ssa.ir import BOOL, I64, Block, Function, Instr, Module, Region, Terminator, Value, const_of, drop, erase
from tlc.ssa.loops import loops
from tlc.ssa.lower_state import zero_of
from tlc.ssa.recipe import closed, watched_by
from tlc.tensor.loops import split_behind
from tlc.tensor.scalar_code import is_scalar_load

TOGETHER = 8  # traps: what they look at is kept until then
LIMIT = 24  # instructions on a side, most of them index arithmetic
_DIVISIONS = ("floordiv", "mod")  # of integers, in indices


def guard(instr: Instr, module: Module, differentiates: bool) -> None:
    """Convert the branches in the region of a comprehension around loads and cheap ops."""
    region = instr.regions[0]
    if loops(region) or len(region.blocks) == 1:
        return
    allowed = LINEAR if differentiates else CHEAP | {"div", "sqrt"}

    def may_move(side: Block) -> bool:
        return len(side.instrs) <= LIMIT and all(_is_guardable(i) or is_cheap(i, allowed) or _is_division(i) for i in side.instrs)

    def before(side: Block, cond: Value, truth: bool) -> None:
        for i in list(side.instrs):
            if is_scalar_load(i):
                _guard(i, cond, truth, module)

    simplify_region(region)
    while convert_region(region, may_move, before):
        simplify_region(region)
    _settle(region)


def branch_guards(function: Function, module: Module) -> None:
    """Guarded loads that stand in no comprehension become branches again: in scalar functions and in loops that comprehensions became."""
    for instr in [i for block in function.blocks for i in block.instrs if i.op == "index_if"]:
        block = instr.block
        assert block is not None
        cond, *operands = instr.operands
        done = split_behind(instr, "done")
        block.instrs.pop()
        b = Builder(block, module, instr.span)
        b.position = len(block.instrs)
        read = b.new_block("read")
        elem = instr.result.type.elem
        zero = b.const(zero_of(elem), instr.result.type)
        value = done.add_param(instr.result.type, instr.result.name)
        b.end(Terminator("branch", (cond,), ((read, ()), (done, (zero,))), instr.span))
        at = Builder(read, module, instr.span)
        at.jump(done, at.index(*operands))
        instr.result.replace_by(value)
        drop(instr)


def watch(function: Function, module: Module) -> None:
    """What traps watch becomes part of their condition. All tensors go through one kernel, as rows whose length only the run knows."""
    for trap in [i for block in function.blocks for i in block.instrs if i.op == "trap" and watched_by(i)]:
        b = Builder.before(trap, module)
        ok, *others = trap.operands
        watched, values = others[: watched_by(trap)], others[watched_by(trap) :]
        holds = b.every([*([] if const_of(ok) is True else [ok]), *(_well(b, v) for v in watched)])
        b.emit("trap", (holds, *values), (), {**trap.attrs, "watched": 0})
        erase(trap)


def _well(b: Builder, v: Value) -> Value:
    """Whether a real, or each of a tensor, is finite, or a bool true."""
    is_well = b.finite if v.type.elem.is_real else lambda x: x
    if not v.type.rank:
        return is_well(v)
    size = b.barrier(reduce(lambda m, n: b.op("mul", m, n), b.dims(v)))  # a barrier, so that it is no part of another kernel
    row = b.reshape(b.barrier(v), [size])
    return b.reduce("all", [size], lambda b, i: _well(b, b.index(row, i)), hint="well")


def branch_traps(function: Function, module: Module, may_pass: Callable[[Instr], bool]) -> None:
    """What traps are given is looked at only where one fails. So they move into a branch; a few together, if between them stands only what
    `may_pass`, and no update: it would have to copy what a trap behind it reads.
    """
    for block in list(function.blocks):
        waiting: list[Instr] = []
        for instr in list(block.instrs):
            if instr.op == "trap" and const_of(instr.operands[0]) is True:
                erase(instr)
            elif instr.op == "trap":
                waiting.append(instr)
            elif waiting and (instr.op == "update" or not may_pass(instr)):
                _branch(waiting, module)
                waiting = []
            if len(waiting) == TOGETHER:
                _branch(waiting, module)
                waiting = []
        if waiting:
            _branch(waiting, module)


def _branch(traps: Sequence[Instr], module: Module) -> None:
    """Traps of one block, as it is now, become one in a branch behind the last of them, where each looks whether it was the one."""
    last = traps[-1]
    block = last.block
    assert block is not None
    done = split_behind(last, "done")
    b = Builder(block, module, last.span)
    failed = b.new_block("failed")
    holds = traps[0].operands[0]
    if len(traps) > 1:  # one branch, so no conjunction, of which each part would be one
        holds = b.op("ne", reduce(lambda x, y: b.op("and", x, y), (b.convert(t.operands[0], I64) for t in traps)), b.i64(0))
    b.end(Terminator("branch", (holds,), ((done, ()), (failed, ())), last.span))
    at = Builder(failed, module, last.span)
    inside = Builder(Block("recipe"), None, last.span)
    false = inside.const(False, BOOL)
    known: dict[Value, Value] = {}
    for trap in traps:
        for v in trap.operands:
            number = const_of(v)
            known[v] = v if number is None else known.get(v) or inside.const(number, v.type)
        ok = known[trap.operands[0]] if len(traps) > 1 else false
        inside.emit("trap", (ok, *(known[v] for v in trap.operands[1:])), (), dict(trap.attrs))
        erase(trap)
    recipe, captured = closed(inside.block)
    at.emit("trap", (at.const(False, BOOL), *captured), (), {"recipe": recipe, "watched": 0})
    at.jump(done)


def _is_guardable(instr: Instr) -> bool:
    """A load of a number or bool, which has a zero."""
    return is_scalar_load(instr) and instr.result.type.elem not in (Elem.STR, Elem.KEY)


def _is_division(instr: Instr) -> bool:
    return instr.op in _DIVISIONS and not instr.result.type.elem.is_real


def _guard(load: Instr, cond: Value, truth: bool, module: Module) -> None:
    """Let a load happen only where a condition is `truth`."""
    assert load.block is not None
    b = Builder.before(load, module)
    b.span = load.span
    holds = cond if truth else b.op("not", cond)
    if load.op == "index_if":
        own, *operands = load.operands
        holds = b.op("and", holds, own)
    else:
        operands = list(load.operands)
    load.result.replace_by(b.index_if(holds, *operands, hint=load.result.name))
    erase(load)


def _settle(region: Region) -> None:
    """A choice between a guarded load and 0, by the guard, is the load."""
    for block in region.blocks:
        for i in list(block.instrs):
            if i.op != "select":
                continue
            cond, a, b = i.operands
            if _is_guarded_by(a, cond, True) and _is_zero(b):
                i.result.replace_by(a)
                erase(i)
            elif _is_guarded_by(b, cond, False) and _is_zero(a):
                i.result.replace_by(b)
                erase(i)


def _is_guarded_by(value: Value, cond: Value, truth: bool) -> bool:
    """Whether a value is a load that happens only where a condition is `truth`."""
    owner = value.owner
    return isinstance(owner, Instr) and owner.op == "index_if" and _implies(owner.operands[0], cond, truth)


def _implies(a: Value, b: Value, truth: bool) -> bool:
    """Whether b is `truth` where a holds."""
    if a is b:
        return truth
    if not isinstance(a.owner, Instr):
        return False
    if a.owner.op == "not":
        return not truth and a.owner.operands[0] is b
    return a.owner.op == "and" and any(_implies(x, b, truth) for x in a.owner.operands)


def _is_zero(value: Value) -> bool:
    number = const_of(value)
    return number is not None and not isinstance(number, str) and number == 0 and math.copysign(1.0, number) > 0

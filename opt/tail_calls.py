"""Tail calls: a function whose last act is to call itself goes round a loop instead.

Requires SSA; preserves every value and the order of effects. Done at every level, so that how deep such a recursion may go does
not depend on the level: it takes no stack. (Steele, "Debunking the expensive procedure call myth", 1977; with an accumulator:
Cohen, "Transformation of recursive programs", 1980.) A derivative is made of the recursion, before this pass.

A call may be followed by an addition or a multiplication of integers, whose other operand does not need it. Both are
associative and commutative, wrapping included, so what is left to be added is carried in an accumulator: it begins with
the neutral element, a tail call adds its part, and a return adds what it returns. (Sums of reals are not associative: such a
function stays as it is.)

    func @sum(%n: i64) -> i64 {               func @sum(%n: i64) -> i64 {
    entry:                                    entry:
      branch (%n == 0), join(0), more           jump again(%n, 0)
    more:                                ->   again(%m: i64, %acc: i64):
      %r = call (%n - 1) {"sum"}                branch (%m == 0), join(0), more
      %s = add %n, %r                         more:
      jump join(%s)                             jump again(%m - 1, %acc + %m)
    join(%v: i64):                            join(%v: i64):
      return %v                                 return %acc + %v

A parameter that every tail call passes on unchanged stays the function's own: a tensor that is only read stays borrowed from
the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from tlc.ssa.edit import edges_into, remove_unreachable
from tlc.ssa.ir import Block, Function, Instr, Module, Terminator, Value, erase, jump, ret
from tlc.ssa.ops import effect

NEUTRAL = {"add": 0, "mul": 1}


@dataclass(frozen=True)
class TailCall:
    """A block that ends in a call of its own function. `combine` is the op behind the call, if there is one."""

    block: Block
    call: Instr
    combine: Instr | None

    @property
    def other(self) -> Value | None:
        """The operand of `combine` that is not the call's result."""
        if self.combine is None:
            return None
        a, b = self.combine.operands
        return b if a is self.call.result else a


def tail_calls(module: Module) -> None:
    """Make loops of the tail calls of every function to itself."""
    for f in module.functions.values():
        found = find(f)
        if found:
            _make_loop(f, found)


def find(function: Function) -> list[TailCall]:
    """The tail calls of a function to itself; all that combine do it by one op."""
    found: list[TailCall] = []
    combines: str | None = None
    for block in function.blocks:
        values = _returned(block)
        if values is None:
            continue
        tail = _tail_call(function, block, values)
        if tail is None or (tail.combine is not None and tail.combine.op != (combines or tail.combine.op)):
            continue
        combines = tail.combine.op if tail.combine is not None else combines
        found.append(tail)
    return found


def _returned(block: Block) -> tuple[Value, ...] | None:
    """What the function returns at the end of this block: by itself, or by a jump to a block that does nothing else."""
    t = block.terminator
    if t.op == "return":
        return t.operands
    if t.op != "jump":
        return None
    (target,) = t.targets
    if target.instrs or target.terminator.op != "return":
        return None
    values = dict(zip(target.params, t.operands, strict=True))
    return tuple(values.get(v, v) for v in target.terminator.operands)


def _tail_call(function: Function, block: Block, values: tuple[Value, ...]) -> TailCall | None:
    call: Instr | None = None
    for instr in reversed(block.instrs):
        if instr.op == "call" and instr.attrs["callee"] == function.name:
            call = instr
            break
        if effect(instr.op) != "none" or instr.regions:
            return None
    if call is None or len(call.results) != len(values):
        return None
    if values == call.results and all(_only_use(v, block.terminator) for v in values):
        return TailCall(block, call, None)
    if len(values) != 1 or not call.result.type.elem.is_int or call.result.type.rank:
        return None
    combine = values[0].owner
    if not isinstance(combine, Instr) or combine.block is not block or combine.op not in NEUTRAL:
        return None
    if _only_use(combine.result, block.terminator) and _only_use(call.result, combine):
        return TailCall(block, call, combine)
    return None


def _only_use(value: Value, user: Instr | Terminator) -> bool:
    return value.uses == {user: 1}


def _make_loop(f: Function, found: list[TailCall]) -> None:
    entry = f.body.entry
    again = Block("again")
    combine = next((t.combine for t in found if t.combine is not None), None)
    changing = [k for k, p in enumerate(f.params) if any(t.call.operands[k] is not p for t in found)]
    params = [f.params[k] for k in changing]
    carried = [again.add_param(p.type, p.name) for p in params]
    for p, new in zip(params, carried, strict=True):
        p.replace_by(new)
    again.instrs, entry.instrs = entry.instrs, []
    for i in again.instrs:
        i.block = again
    t = entry.terminator
    again.terminator = Terminator(t.op, t.own, t.edges, t.span)
    start: tuple[Value, ...] = tuple(params)
    if combine is not None:
        acc = again.add_param(combine.result.type, "acc")
        start += (entry.append(Instr("const", (), (acc.type,), {"value": NEUTRAL[combine.op]}, (), combine.span)).result,)
    entry.terminator = jump(again, start, f.span)
    again.region = f.body
    f.body.blocks.insert(1, again)
    tails = {again if t.block is entry else t.block: t for t in found}
    for block, tail in tails.items():
        _go_round(block, tail, again, changing)
    if combine is not None:
        _combine_returns(f, combine, again.params[-1])
    remove_unreachable(f.body)  # nothing may be left that returns


def _go_round(block: Block, tail: TailCall, again: Block, changing: list[int]) -> None:
    """Replace a tail call by a jump to the top."""
    end = block.terminator
    args = tuple(tail.call.operands[k] for k in changing)
    if len(again.params) > len(args):
        acc = again.params[-1]
        if tail.combine is not None:
            assert tail.other is not None
            more = Instr(tail.combine.op, (acc, tail.other), (acc.type,), {}, (), tail.combine.span)
            acc = block.append(more).result
        args += (acc,)
    block.terminator = jump(again, args, end.span)
    if tail.combine is not None:
        erase(tail.combine)
    erase(tail.call)


def _combine_returns(f: Function, combine: Instr, acc: Value) -> None:
    into = edges_into(f.body)
    for block in f.blocks:
        t = block.terminator
        if t.op == "return" and (block is f.body.entry or into[block]):
            (value,) = t.operands
            total = block.append(Instr(combine.op, (acc, value), (acc.type,), {}, (), combine.span)).result
            block.terminator = ret((total,), t.span)

"""Tail calls: a function whose last act is to call itself goes round a loop instead.

Requires SSA; preserves every value and the order of effects. Done at every level, so that how deep such a recursion may go does
not depend on the level: it takes no stack. (Steele, "Debunking the expensive procedure call myth", 1977; with an accumulator:
Cohen, "Transformation of recursive programs", 1980.) A derivative is made of the recursion, before this pass.

A call may be followed by additions, or by multiplications, of integers, whose other operands do not need it. Both are
associative and commutative, wrapping included, so what is left to be added is carried in an accumulator: it begins with
the neutral element, a tail call adds its part, and a return adds what it returns. (Sums of reals are not associative: such a
function stays as it is.) To subtract from the result is to add, to negate it is to multiply: in which of these ways the code says it may
depend on what other passes made of it.

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

from tlc.frontend.records import dataclass
from tlc.ssa.edit import edges_into, remove_unreachable
from tlc.ssa.ir import Block, Function, Instr, Module, Terminator, Value, const_of, erase, jump, ret
from tlc.ssa.ops import effect

NEUTRAL = {"add": 0, "mul": 1}


@dataclass(frozen=True)
class TailCall:
    """A block that ends in a call of its own function. `links` are the ops behind the call, each of the one before, all of one `kind`
    (empty where there are none).
    """

    block: Block
    call: Instr
    links: tuple[Instr, ...] = ()
    kind: str = ""


def tail_calls(module: Module) -> None:
    """Make loops of the tail calls of every function to itself."""
    for f in module.functions.values():
        found = find(f)
        if found:
            _make_loop(f, found)


def find(function: Function) -> list[TailCall]:
    """The tail calls of a function to itself; all that combine do it in one way."""
    found: list[TailCall] = []
    kind = ""
    for block in function.blocks:
        values = _returned(block)
        if values is None:
            continue
        tail = _tail_call(function, block, values)
        if tail is None or (tail.kind and tail.kind != (kind or tail.kind)):
            continue
        kind = tail.kind or kind
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
    if values == call.results and all(v.uses == {block.terminator: 1} for v in values):
        return TailCall(block, call)
    if len(values) != 1 or not call.result.type.elem.is_int or call.result.type.rank:
        return None
    links = _links(call, block)
    kinds = {kind for _, kind in links}
    if len(kinds) != 1 or links[-1][0].result is not values[0]:
        return None
    return TailCall(block, call, tuple(link for link, _ in links), kinds.pop())


def _links(call: Instr, block: Block) -> list[tuple[Instr, str]]:
    """The ops from a call to the end of its block, each the only use of the one before, with their kinds; empty if there is another use."""
    links: list[tuple[Instr, str]] = []
    value = call.result
    while value.uses != {block.terminator: 1}:
        user = next(iter(value.uses), None)
        kind = _kind(user, value) if isinstance(user, Instr) and user.block is block and value.uses == {user: 1} else ""
        if not isinstance(user, Instr) or not kind:
            return []
        links.append((user, kind))
        value = user.result
    return links


def _kind(instr: Instr, value: Value) -> str:
    """How an op combines a value with what it does not depend on."""
    match instr.op:
        case "add" | "mul":
            return instr.op
        case "neg":
            return "mul"
        case "sub":
            return "add" if instr.operands[0] is value else "mul" if const_of(instr.operands[0]) == 0 else ""
        case _:
            return ""


def _make_loop(f: Function, found: list[TailCall]) -> None:
    entry = f.body.entry
    again = Block("again")
    combining = next((t for t in found if t.kind), None)
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
    if combining is not None:
        acc = again.add_param(combining.call.result.type, "acc")
        neutral = Instr("const", (), (acc.type,), {"value": NEUTRAL[combining.kind]}, (), combining.links[0].span)
        start += (entry.append(neutral).result,)
    entry.terminator = jump(again, start, f.span)
    again.region = f.body
    f.body.blocks.insert(1, again)
    tails = {again if t.block is entry else t.block: t for t in found}
    for block, tail in tails.items():
        _go_round(block, tail, again, changing)
    if combining is not None:
        _combine_returns(f, combining, again.params[-1])
    remove_unreachable(f.body)  # nothing may be left that returns


def _go_round(block: Block, tail: TailCall, again: Block, changing: list[int]) -> None:
    """Replace a tail call by a jump to the top."""
    end = block.terminator
    args = tuple(tail.call.operands[k] for k in changing)
    if len(again.params) > len(args):
        acc, value = again.params[-1], tail.call.result
        for link in tail.links:
            operands = tuple(acc if v is value else v for v in link.operands)
            acc, value = block.append(Instr(link.op, operands, (acc.type,), {}, (), link.span)).result, link.result
        args += (acc,)
    block.terminator = jump(again, args, end.span)
    for instr in (*reversed(tail.links), tail.call):
        erase(instr)


def _combine_returns(f: Function, combining: TailCall, acc: Value) -> None:
    into = edges_into(f.body)
    for block in f.blocks:
        t = block.terminator
        if t.op == "return" and (block is f.body.entry or into[block]):
            (value,) = t.operands
            total = block.append(Instr(combining.kind, (acc, value), (acc.type,), {}, (), combining.links[0].span)).result
            block.terminator = ret((total,), t.span)

"""Reductions and loads come out of the branches of a comprehension, so that they stay whole-array code.

    y = tabulate [i, j] {                                      y = tabulate [i, j] {
      branch (le j, i), then, join(-inf)                         r = reduce [c] { mul (index q, i, c), (index k, j, c) }
    then:                                                        branch (le j, i), then, join(-inf)
      r = reduce [c] { mul (index q, i, c), (index k, j, c) }  then:
      jump join(div r, 8)                                        jump join(div r, 8)

Left alone, a region with control flow is one scalar function of an element, and a reduction in it a scalar loop. Taken out it is a
matrix product, half of which may be in vain. So it stays where the condition asks for equality, which holds for few elements. A
load costs little and always comes out; what remains of the branch is then a choice between scalars (`opt/if_convert.py`).

Requires: the reduction is flat, and what is read is in range for every element, taken or not: each index runs through the
dimension that it stands in, or is proved to lie there (`opt/facts.py`). Checks and calls stay where they are, and so does all of
a region with a loop, which must run element by element anyway.

Derivatives (LANGUAGE: `if` differentiates one side). An element that was not taken has adjoint 0, but 0 times a derivative that is
infinite would be NaN. So where derivatives are still to be made (`guarded`), operands become 1 for such elements:

    mul (select (le j, i), (index q, i, c), 1), (index k, j, c)

The adjoint of k is then 0 * 1, and that of q goes through the select, which makes 0 of whatever it is.
"""

from __future__ import annotations

from tlc.opt.facts import Facts
from tlc.ssa.builder import Builder
from tlc.ssa.edit import edges_into
from tlc.ssa.ir import Block, Instr, Module, Region, Value
from tlc.ssa.liveness import free_values
from tlc.ssa.loops import loops
from tlc.tensor.extents import Extents, Key
from tlc.tensor.scalar_code import is_scalar, is_straight, loaded

# Ops of reals whose derivatives are numbers, whatever the operands: 0, 1 and -1.
PLAIN = frozenset({
    "const", "index", "index_if", "add", "sub", "neg", "max", "min", "select", "convert", "abs", "floor", "ceil", "trunc", "round", "sign",
})  # fmt: skip


def can_hoist(instr: Instr) -> bool:
    """Whether an instruction is one that leaves branches if it may."""
    return instr.op == "reduce" or (instr.op == "index" and instr.result.type.rank == 0)


def hoist(tabulate: Instr, extents: Extents, module: Module, guarded: bool) -> None:
    """Take reductions and loads of a tabulate's region out of its branches, as far up as they may go."""
    region = tabulate.regions[0]
    if loops(region):
        return
    facts = Facts()
    work = region.blocks[1:]
    while work:
        block = work.pop()
        into = edges_into(region)[block]
        if len(into) == 1:
            ((source, edge),) = into
            moved = [_hoist(i, source, edge, facts, extents, module, guarded) for i in list(block.instrs) if can_hoist(i)]
            if any(moved) and source is not region.entry:
                work.append(source)


def _hoist(instr: Instr, source: Block, edge: int, facts: Facts, extents: Extents, module: Module, guarded: bool) -> bool:
    """Move an instruction, and what it is computed from, to the end of the block before; whether that could be done."""
    block, t = instr.block, source.terminator
    assert block is not None
    group = _group(instr, block)
    if group is None:
        return False
    if t.op == "branch" and instr.op == "reduce":
        if _is_rare(t.own[0], edge == 0):
            return False
        if guarded and instr.attrs["op"] == "prod":
            return False  # the derivative of a product of all divides by what may be 0
    place = {i: block.instrs.index(i) for i in group}
    _move(group, block, source)
    facts.forget()
    if all(_in_range(load, facts, extents) for i in group for load in _loads(i)):
        if guarded and t.op == "branch" and instr.op == "reduce":
            _guard(instr.regions[0], t.own[0], edge == 0, module)
        return True
    for i in group:
        source.instrs.remove(i)
        i.block = block
        block.instrs.insert(place[i], i)
    return False


def _group(of: Instr, block: Block) -> list[Instr] | None:
    """An instruction and those of its block that it is computed from, in order; None if one of them must stay."""
    wanted = {of}
    work = [of]
    while work:
        i = work.pop()
        for v in (*i.operands, *(free_values(i.regions[0]) if i.regions else ())):
            if v.owner is block:
                return None  # a parameter
            if isinstance(v.owner, Instr) and v.owner.block is block and v.owner not in wanted:
                wanted.add(v.owner)
                work.append(v.owner)
    group = [i for i in block.instrs if i in wanted]
    fits = all(is_scalar(i) or i.op in ("index", "dim") or (i.op == "reduce" and is_straight(i)) for i in group)
    return group if fits else None


def _is_rare(cond: Value, truth: bool) -> bool:
    """Whether a condition asks for equality."""
    owner = cond.owner
    if not isinstance(owner, Instr):
        return False
    if owner.op == "not":
        return _is_rare(owner.operands[0], not truth)
    if owner.op == ("and" if truth else "or"):
        return any(_is_rare(v, truth) for v in owner.operands)
    return owner.op == ("eq" if truth else "ne")


def _move(group: list[Instr], block: Block, source: Block) -> None:
    for i in group:
        block.instrs.remove(i)
        source.append(i)


def _loads(instr: Instr) -> list[Instr]:
    inner = [i for r in instr.regions for b in r.blocks for i in b.instrs]
    return [i for i in (instr, *inner) if loaded(i) is not None]


def _in_range(load: Instr, facts: Facts, extents: Extents) -> bool:
    """Whether a load is in range wherever its block runs."""
    assert load.block is not None
    tensor, *places = loaded(load) or ()
    return all(_within(v, extents.of(tensor, k), load.block, facts, extents) for k, v in enumerate(places))


def _within(index: Value, extent: Key, at: Block, facts: Facts, extents: Extents) -> bool:
    block = index.owner
    holder = block.region.parent if isinstance(block, Block) and block.region is not None else None
    if isinstance(block, Block) and isinstance(holder, Instr) and block is holder.regions[0].entry:
        runs = holder.operands[len(holder.operands) - len(block.params) + block.params.index(index)]
        if extents.key(runs) == extent:
            return True
    return isinstance(extent, (int, Value)) and facts.within(index, extent, at)


def _guard(region: Region, cond: Value, truth: bool, module: Module) -> None:
    """Operands at which a derivative may be infinite are 1 where the reduction is not asked for."""
    active = {v for v in free_values(region) if v.type.rank == 0 and v.type.elem.is_real}
    for instr in list(region.entry.instrs):
        reals = [v for v in instr.operands if v.type.elem.is_real]
        if loaded(instr) is None and not any(v in active for v in reals):
            continue
        active.update(r for r in instr.results if r.type.elem.is_real)
        if instr.op in PLAIN or not instr.result.type.elem.is_real:
            continue
        b = Builder(region.entry, module, instr.span)
        b.position = region.entry.instrs.index(instr)
        one = b.const(1.0, reals[0].type)
        chosen = _infinite(instr, active)
        instr.operands = tuple(
            b.op("select", cond, *((v, one) if truth else (one, v))) if k in chosen else v for k, v in enumerate(instr.operands)
        )


def _infinite(instr: Instr, active: set[Value]) -> tuple[int, ...]:
    """Positions of the operands to guard. Of a product one will do: it is the derivative of the other, and its own goes through
    the guard.
    """
    match instr.op:
        case "mul" | "fma":
            return (0,) if instr.operands[0] in active else (1,)
        case "div":
            return (1,)
    return tuple(range(len(instr.operands)))

"""Regions that never yield, because every path of them stops the program: `for[i < n] f(i)` where `f` always fails.

What follows an `unreachable` is never looked at, so one of them may as well yield zeros. Then every region has a `yield`, which tells
the stages behind what types it gives.

    (%i: i64):                          (%i: i64):
      check %false, ...           ->      check %false, ...
      unreachable                         %z = const 0 : f32
                                          yield %z

Or because no path ends: then the comprehension does not end either, where it has an element, and the first element is all that runs.

    y = tabulate n { (%i: i64):            branch (gt n, 0), first, none
                       jump head     ->    first: jump head
                     head: jump head }     head:  jump head
                                           none:  y = tabulate n { (%i: i64): yield 0 };  jump done
"""

from __future__ import annotations

from tlc.frontend.source import NOWHERE
from tlc.ssa.builder import Builder
from tlc.ssa.ir import I64, Block, Function, Instr, Module, Region, Type, Value, jump, walk, yield_
from tlc.ssa.lower_state import zero_of
from tlc.tensor.loops import put_last, split_behind


def end_regions(function: Function, module: Module) -> None:
    """Let all regions of a function yield that passes have left without an end."""
    for instr in [i for i in walk(function.body) if i.regions]:
        if not all(map(give_end, instr.regions)):
            run_first(instr, module)


def give_end(region: Region) -> bool:
    """Let the region of an instruction yield, in place, if it does not; False where no path of it ends."""
    if any(b.terminator.op == "yield" for b in region.blocks):
        return True
    block = next((b for b in region.blocks if b.terminator.op == "unreachable"), None)
    if block is not None:
        _yield_zeros(block)
    return block is not None


def run_first(instr: Instr, module: Module) -> None:
    """Run the first element of a comprehension that has one in its place: what never ends; the comprehension stays where it has none."""
    block, region = instr.block, instr.regions[0]
    assert block is not None and block.region is not None
    done = split_behind(instr, "done")
    block.instrs.pop()
    b = Builder(block, module, instr.span)
    params, nothing = region.entry.params, Block()
    for p in params:
        nothing.add_param(p.type, p.name)
        p.replace_by(b.i64(0))
    region.entry.params = []
    none = b.new_block("none")
    some = b.every([b.op("gt", n, b.i64(0)) for n in instr.operands[len(instr.operands) - len(params) :]])
    b.branch(some, region.entry, none)
    for own in region.blocks:
        block.region.add(own)
    instr.regions = (Region([nothing]),)
    instr.regions[0].parent = instr
    _yield_zeros(nothing)
    none.append(instr)
    none.terminator = jump(done, (), instr.span)
    put_last(done)


def _yield_zeros(end: Block) -> None:
    assert end.region is not None
    b = Builder(end, None, end.terminator.span if end.terminated else NOWHERE)
    end.terminator = yield_(tuple(_zero(b, t) for t in _types(end.region)), b.span)


def _types(region: Region) -> list[Type]:
    """What the instruction around wants of its region: of a `scatter`, indices and an element; of a reduction, what it reduces."""
    instr = region.parent
    assert isinstance(instr, Instr)
    match instr.op:
        case "scatter":
            return [I64] * instr.operands[0].type.rank + [Type(instr.result.type.elem)]
        case "reduce":
            return [Type(instr.results[-1].type.elem)]
        case _:
            return [Type(v.type.elem, v.type.rank - len(region.entry.params)) for v in instr.results]


def _zero(b: Builder, type: Type) -> Value:
    """A number, or a tensor without elements."""
    if type.rank == 0:
        return b.const(zero_of(type.elem), type)
    return b.tabulate([b.i64(0)] * type.rank, lambda b, *_: b.const(zero_of(type.elem), Type(type.elem)))

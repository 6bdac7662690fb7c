"""Regions that never yield, because every path of them stops the program: `for[i < n] f(i)` where `f` always fails.

What follows an `unreachable` is never looked at, so one of them may as well yield zeros. Then every region has a `yield`, which tells
the stages behind what types it gives.

    (%i: i64):                          (%i: i64):
      check %false, ...           ->      check %false, ...
      unreachable                         %z = const 0 : f32
                                          yield %z
"""

from __future__ import annotations

from tlc.ssa.builder import Builder
from tlc.ssa.ir import I64, Instr, Region, Type, Value, yield_
from tlc.ssa.lower_state import zero_of


def give_end(region: Region) -> None:
    """Let the region of an instruction yield, in place, if it does not."""
    if any(b.terminator.op == "yield" for b in region.blocks):
        return
    block = next((b for b in region.blocks if b.terminator.op == "unreachable"), None)
    assert block is not None, "a region without an end"
    b = Builder(block, None, block.terminator.span)
    block.terminator = yield_(tuple(_zero(b, t) for t in _types(region)), block.terminator.span)


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

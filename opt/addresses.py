"""Addresses: `index` and `update` of one element become arithmetic on the element's row-major position, and `load` or `store` there.

Requires host SSA (after the tensor stage, before the memory plan); preserves the graph and every value. Afterwards the
multiplications by extents that an access of a matrix hides are instructions like any other: what two accesses share is computed
once, what a loop does not change leaves it, and what grows by a constant on every turn can be added up. An index is in
range (a `check` before it saw to that), so a position is below the number of elements and nothing wraps.

The position of an element is found by Horner's rule, `((i1 * n2) + i2) * n3 + i3`; the first extent is never needed.

    %a = index %x, %i, %j : f64        ->   %n = dim %x {axis = 1} : i64
                                            %row = mul %i, %n : i64
                                            %at = add %row, %j : i64
                                            %a = load %x, %at : f64

Of a scalar, `index` is the scalar and `update` the new part. What reads or replaces a part of rank 1 or more stays: it moves memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.ssa.builder import Builder
from tlc.ssa.ir import Instr, Module, Value, drop


def addresses(module: Module) -> None:
    """Make the addresses of elements explicit in every function."""
    for f in module.functions.values():
        for block in f.blocks:
            before, block.instrs = block.instrs, []  # written anew: a literal of many elements makes many of them
            b = Builder(block)
            for instr in before:
                b.span = instr.span
                new = None
                if instr.op == "index" and not instr.result.type.rank:
                    new = _index(instr, b)
                elif instr.op == "update" and not instr.operands[-1].type.rank:
                    new = _update(instr, b)
                if new is None:
                    block.instrs.append(instr)
                    continue
                new.name = new.name or instr.result.name
                instr.result.replace_by(new)
                drop(instr)


def _index(instr: Instr, b: Builder) -> Value:
    x, *indices = instr.operands
    return b.emit("load", (x, position(b, x, indices))).result if indices else x


def _update(instr: Instr, b: Builder) -> Value:
    x, *indices, element = instr.operands
    return b.emit("store", (x, position(b, x, indices), element)).result if indices else element


def position(b: Builder, x: Value, indices: Sequence[Value]) -> Value:
    """The row-major position of an element from all its indices."""
    at = indices[0]
    for axis, index in enumerate(indices[1:], start=1):
        at = b.op("add", b.op("mul", at, b.dim(x, axis)), index)
    return at

"""Reductions inside opaque regions become loops over scalars.

An opaque region (control flow inside a comprehension) is compiled as a scalar function, so a `reduce` under its control
flow is spelled out: a loop over the row-major position with the accumulators as parameters of its header, in exactly
the order that `ssa/ir.py` fixes. Nothing is speculated: the loop stands where the reduction stood.

    r = reduce %n {op = "sum", order = "chain"} {(i): .. yield (mul a, b)}

        jump head(0, 0.0)
    head(p, acc):  branch (lt p, n), body, done
    body:          .. next = fma a, b, acc;  jump head(add p, 1, next)
    done:          uses of r read acc

The sixteen accumulators of `lanes` change places: each element goes to the first, which becomes the last. The tree adds those that are
eight, four, two and one apart, in a circle, so it does not matter which of them is the first at the end. A sum of few elements for sure
is no loop: each element has an accumulator of its own, and what would only add the zeros of the others is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product, zip_longest

from tlc.ssa.builder import Builder
from tlc.ssa.clone import clone_instr
from tlc.ssa.ir import BOOL, Block, Instr, Module, Region, Type, Value, drop, number_of
from tlc.ssa.reductions import LANES
from tlc.ssa.reductions import product as fused_product
from tlc.tensor.loops import split_behind


def expand_reductions(region: Region, module: Module) -> None:
    """Every reduction of the region's blocks, where the region has control flow."""
    if len(region.blocks) == 1:
        return
    work = list(region.blocks)
    while work:
        block = work.pop()
        for instr in block.instrs:
            if instr.op == "reduce":
                work.append(_expand(instr, module))
                break


def _expand(instr: Instr, module: Module) -> Block:
    """Replace one reduction by a loop; gives the block with what stood behind it."""
    block = instr.block
    assert block is not None and block.region is not None
    done = split_behind(instr, "done")
    block.instrs.pop()
    b = Builder(block, module, instr.span)

    reduction = _Reduction(instr)
    few = reduction.places()
    if few is not None:
        instr.result.replace_by(reduction.at_once(b, few))
        b.jump(done)
        drop(instr)
        return done
    total = instr.operands[0]
    for n in instr.operands[1:]:
        total = b.op("mul", total, n)
    start = [b.i64(0), *reduction.start(b)]
    types = [v.type for v in start]
    head, body = b.new_block("head", types), b.new_block("body")
    position, state = head.params[0], head.params[1:]
    b.jump(head, *start)
    b.move_to(head)
    b.branch(b.op("lt", position, total), body, done)
    b.move_to(body)
    indices = _indices(b, position, instr.operands)
    after = reduction.step(b, position, indices, state)
    b.jump(head, b.op("add", position, b.i64(1)), *after)
    b.block, b.position = done, 0
    for old, new in zip(instr.results, reduction.finish(b, state), strict=True):
        old.replace_by(new)
    drop(instr)
    return done


def _indices(b: Builder, position: Value, extents: Sequence[Value]) -> list[Value]:
    """The indices at a row-major position."""
    out: list[Value] = []
    for n in reversed(extents[1:]):
        out.insert(0, b.op("mod", position, n))
        position = b.op("floordiv", position, n)
    return [position, *out]


class _Reduction:
    """The accumulators of a reduction: how they start, take one element, and end."""

    def __init__(self, instr: Instr) -> None:
        self.instr = instr
        op, order = instr.attrs["op"], instr.attrs["order"]
        assert isinstance(op, str)
        self.op = op
        (block,) = instr.regions[0].blocks
        self.block = block
        (self.element,) = block.terminator.operands
        self.type = self.element.type
        self.lanes = LANES if op in ("sum", "prod") and self.type.elem.is_real and order == "lanes" else 1

    def start(self, b: Builder) -> list[Value]:
        if self.op in ("argmax", "argmin"):
            return [_least(b, self.type), *(b.i64(0) for _ in self.instr.results)]
        return [_unit(b, self.op, self.type)] * self.lanes

    def step(self, b: Builder, position: Value, indices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        values = dict(zip(self.block.params, indices, strict=True))
        for instr in self.block.instrs:
            b.insert(clone_instr(instr, values))
        element = values.get(self.element, self.element)
        if self.op in ("argmax", "argmin"):
            return self._best(b, position, element, indices, state)
        if self.lanes == 1:
            return [self._accumulate(b, state[0], element, values)]
        first, *others = state
        return [*others, b.op(_BINARY[self.op], first, element)]

    def places(self) -> list[tuple[int, ...]] | None:
        """The indices of the elements, if they are no more than the lanes for sure."""
        extents = [number_of(n) for n in self.instr.operands]
        if self.lanes == 1 or any(n is None for n in extents) or math.prod(n or 0 for n in extents) > self.lanes:
            return None
        return list(product(*(range(n or 0) for n in extents)))

    def at_once(self, b: Builder, places: Sequence[tuple[int, ...]]) -> Value:
        """The result of a lane for each of some elements."""
        start = _unit(b, self.op, self.type)
        lanes = []
        for place in places:
            values = dict(zip(self.block.params, map(b.i64, place), strict=True))
            for instr in self.block.instrs:
                b.insert(clone_instr(instr, values))
            lanes.append(b.op(_BINARY[self.op], start, values.get(self.element, self.element)))
        half = self.lanes // 2
        while half:
            pairs = zip_longest(lanes[:half], lanes[half : 2 * half])
            lanes = [v if w is None else b.op(_BINARY[self.op], v, w) for v, w in pairs]
            half //= 2
        return lanes[0] if lanes else start

    def _accumulate(self, b: Builder, acc: Value, element: Value, values: dict[Value, Value]) -> Value:
        fused = fused_product(self.instr, self.element)
        if fused is not None:
            return b.op("fma", *(values.get(v, v) for v in fused.operands), acc)
        return b.op(_BINARY[self.op], acc, element)

    def _best(self, b: Builder, position: Value, element: Value, indices: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        """The first element that is better than all before; NaN is best."""
        best, *where = state
        better = b.op("gt" if self.op == "argmax" else "lt", element, best)
        if self.type.elem.is_real:
            new = b.op("and", b.op("isnan", element), b.op("not", b.op("isnan", best)))
            better = b.op("or", better, new)
        better = b.op("or", better, b.op("eq", position, b.i64(0)))
        return [b.op("select", better, element, best), *(b.op("select", better, i, w) for i, w in zip(indices, where, strict=True))]

    def finish(self, b: Builder, state: Sequence[Value]) -> list[Value]:
        if self.op in ("argmax", "argmin"):
            return list(state[1:])
        lanes = list(state)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [b.op(_BINARY[self.op], lanes[k], lanes[k + half]) for k in range(half)]
        return lanes


_BINARY = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def _unit(b: Builder, op: str, type: Type) -> Value:
    """What a reduction of nothing is."""
    match op:
        case "any" | "all":
            return b.const(op == "all", BOOL)
        case "max" | "min":
            return _bound(b, type, least=op == "max")
    one = op == "prod"
    return b.const(float(one) if type.elem.is_real else int(one), type)


def _least(b: Builder, type: Type) -> Value:
    return b.const(0.0 if type.elem.is_real else 0, type)


def _bound(b: Builder, type: Type, least: bool) -> Value:
    """The least or greatest number of a type."""
    if type.elem.is_real:
        return b.const(-math.inf if least else math.inf, type)
    width, signed = type.elem.width, type.elem.is_signed
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return b.const(low if least else high, type)

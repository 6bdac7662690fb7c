"""Builds SSA: appends (or inserts) instructions, inferring result types by the rules of `ssa/typerules.py`.

    b = Builder(block, module)
    n = b.dim(x, 0)
    y = b.tabulate([n], lambda b, i: b.op("exp", b.index(x, i)))
    s = b.reduce("sum", [n], lambda b, i: b.index(y, i))
    b.ret(s)

The function given to `tabulate`, `reduce` or `scatter` gets a builder at the region's entry and the indices, and returns what
the region yields. It may make more blocks (`new_block`, `move_to`); the `yield` goes where its builder stands at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tlc.frontend.narrow_reals import nearest
from tlc.frontend.source import NOWHERE, Span
from tlc.ssa.ir import (
    BOOL,
    I64,
    Attr,
    Block,
    Function,
    Instr,
    Module,
    Region,
    Terminator,
    Type,
    Value,
    branch,
    jump,
    ret,
    unreachable,
    yield_,
)
from tlc.ssa.typerules import Site, result_types

Body = Callable[..., "Value | Sequence[Value]"]  # (builder, *indices) -> what is yielded


class Builder:
    """A place in a block. `span` is what new instructions carry; set it as you go. Mutable."""

    def __init__(self, block: Block, module: Module | None = None, span: Span = NOWHERE, before: Instr | None = None) -> None:
        self.block = block
        self.module = module
        self.span = span
        self.position = None if before is None else block.instrs.index(before)  # None: at the end

    @staticmethod
    def before(instr: Instr, module: Module | None = None) -> Builder:
        """A builder that inserts before an instruction, in its span."""
        assert instr.block is not None
        return Builder(instr.block, module, instr.span, instr)

    @staticmethod
    def behind(instr: Instr, module: Module | None = None) -> Builder:
        """A builder that inserts behind an instruction, in its span."""
        b = Builder.before(instr, module)
        assert b.position is not None
        b.position += 1
        return b

    def new_block(self, name: str = "", types: Sequence[Type] = ()) -> Block:
        """A new block at the end of this region; the builder stays where it is."""
        assert self.block.region is not None, "the builder's block is in no region"
        block = self.block.region.add(Block(name))
        for t in types:
            block.add_param(t)
        return block

    def move_to(self, block: Block) -> Block:
        """Go on at the end of another block."""
        self.block, self.position = block, None
        return block

    # ------------------------------------------------------------ instructions

    def emit(
        self,
        op: str,
        operands: Sequence[Value] = (),
        types: Sequence[Type] | None = None,
        attrs: dict[str, Attr] | None = None,
        regions: Sequence[Region] = (),
        names: Sequence[str] = (),
    ) -> Instr:
        """Any instruction. `types` may be left out where they follow from the rest; raises `InternalError` if it breaks its rule."""
        operands, given = tuple(operands), None if types is None else tuple(types)
        inferred = result_types(Site(op, tuple(v.type for v in operands), attrs or {}, tuple(regions), given, self.module))
        return self.insert(Instr(op, operands, inferred, attrs, tuple(regions), self.span, tuple(names)))

    def insert(self, instr: Instr) -> Instr:
        """Put a finished instruction here."""
        if self.position is None:
            return self.block.append(instr)
        instr.block = self.block
        self.block.instrs.insert(self.position, instr)
        self.position += 1
        return instr

    def op(self, name: str, *operands: Value, type: Type | None = None, hint: str = "") -> Value:
        """A scalar op (`type` for `convert` and `bitcast`), or any other op with one result and no attributes."""
        return self.emit(name, operands, None if type is None else [type], names=[hint]).result

    def const(self, value: bool | int | float | str, type: Type, hint: str = "") -> Value:
        """A constant, rounded to its type."""
        if type.elem.is_real:
            value = nearest(float(value), type.elem)
        return self.emit("const", (), [type], {"value": value}, names=[hint]).result

    def i64(self, value: int) -> Value:
        return self.const(value, I64)

    def convert(self, x: Value, type: Type) -> Value:
        """`x` itself where it has that type already."""
        return x if x.type == type else self.op("convert", x, type=type)

    def every(self, conditions: Iterable[Value]) -> Value:
        """Whether all of the conditions hold; there may be none."""
        found: Value | None = None
        for c in conditions:
            found = c if found is None else self.op("and", found, c)
        return self.const(True, BOOL) if found is None else found

    def finite(self, x: Value) -> Value:
        """Whether a real is neither infinite nor NaN."""
        return self.op("lt", self.op("abs", x), self.const(math.inf, x.type))

    def index(self, x: Value, *indices: Value, hint: str = "") -> Value:
        return self.emit("index", (x, *indices), names=[hint]).result if indices else x

    def index_if(self, cond: Value, x: Value, *indices: Value, hint: str = "") -> Value:
        return self.emit("index_if", (cond, x, *indices), names=[hint]).result

    def update(self, x: Value, indices: Sequence[Value], part: Value, hint: str = "") -> Value:
        return self.emit("update", (x, *indices, part), names=[hint]).result

    def dim(self, x: Value, axis: int, hint: str = "") -> Value:
        return self.emit("dim", (x,), attrs={"axis": axis}, names=[hint]).result

    def dims(self, x: Value) -> list[Value]:
        """Every extent of a tensor."""
        return [self.dim(x, axis) for axis in range(x.type.rank)]

    def reshape(self, x: Value, extents: Sequence[Value], hint: str = "") -> Value:
        return self.emit("reshape", (x, *extents), names=[hint]).result

    def barrier(self, x: Value) -> Value:
        return self.emit("barrier", (x,), names=[x.name]).result

    # ------------------------------------------------------------ regions

    def tabulate(self, extents: Sequence[Value], body: Body, names: Sequence[str] = (), hint: str = "") -> Value:
        """A tensor of what the body gives at each index."""
        return self.tabulate_many(extents, body, names, [hint]).result

    def tabulate_many(self, extents: Sequence[Value], body: Body, names: Sequence[str] = (), hints: Sequence[str] = ()) -> Instr:
        """`tabulate` with any number of results."""
        return self.emit("tabulate", extents, regions=[self.region(len(extents), body, names)], names=hints)

    def reduce(
        self, op: str, extents: Sequence[Value], body: Body, order: str = "lanes", names: Sequence[str] = (), hint: str = ""
    ) -> Value:
        """A reduction with one result; of several indices, `argmax` and `argmin` give several: see `reduce_many`."""
        return self.reduce_many(op, extents, body, order, names, [hint]).result

    def reduce_many(
        self, op: str, extents: Sequence[Value], body: Body, order: str = "lanes", names: Sequence[str] = (), hints: Sequence[str] = ()
    ) -> Instr:
        region = self.region(len(extents), body, names)
        return self.emit("reduce", extents, attrs={"op": op, "order": order}, regions=[region], names=hints)

    def scatter(self, x: Value, extents: Sequence[Value], body: Body, op: str = "add", names: Sequence[str] = (), hint: str = "") -> Value:
        """`x` with values added at computed places; the body gives the indices and then the value."""
        region = self.region(len(extents), body, names)
        return self.emit("scatter", (x, *extents), attrs={"op": op}, regions=[region], names=[hint]).result

    def region(self, rank: int, body: Body, names: Sequence[str] = ()) -> Region:
        """A region over `rank` indices that yields what `body` gives."""
        entry = Block()
        region = Region([entry])
        indices = [entry.add_param(I64, names[k] if k < len(names) else "") for k in range(rank)]
        inner = Builder(entry, self.module, self.span)
        result: Any = body(inner, *indices)
        inner.yield_(*((result,) if isinstance(result, Value) else tuple(result)))
        return region

    # ------------------------------------------------------------ calls and effects

    def call(self, callee: str, args: Sequence[Value], types: Sequence[Type] | None = None, hints: Sequence[str] = ()) -> tuple[Value, ...]:
        """`types` are needed only where the callee is not in the module yet."""
        module = self.module if types is None else None
        operands = tuple(args)
        attrs: dict[str, Attr] = {"callee": callee}
        given = None if types is None else tuple(types)
        inferred = result_types(Site("call", tuple(v.type for v in operands), attrs, (), given, module))
        return self.insert(Instr("call", operands, inferred, attrs, (), self.span, tuple(hints))).results

    def extern(self, name: str, args: Sequence[Value], types: Sequence[Type], hints: Sequence[str] = ()) -> tuple[Value, ...]:
        return self.emit("extern", args, types, {"name": name}, names=hints).results

    def check(self, cond: Value, kind: str, message: str, *values: Value) -> Instr:
        """Stop the program unless `cond`; `{k}` in the message is the k-th of `values`."""
        return self.emit("check", (cond, *values), attrs={"kind": kind, "message": message})

    def format(self, template: tuple[Attr, ...], leaves: Sequence[Value]) -> Value:
        return self.emit("format", leaves, attrs={"template": template}).result

    def print(self, text: Value) -> Instr:
        return self.emit("print", (text,))

    def get(self, var: str, type: Type, hint: str = "") -> Value:
        return self.emit("get", (), [type], {"var": var}, names=[hint or var]).result

    def set(self, var: str, value: Value) -> Instr:
        return self.emit("set", (value,), attrs={"var": var})

    # ------------------------------------------------------------ terminators

    def end(self, terminator: Terminator) -> None:
        self.block.terminator = terminator

    def jump(self, target: Block, *args: Value) -> None:
        self.end(jump(target, args, self.span))

    def branch(self, cond: Value, then: Block, other: Block, then_args: Sequence[Value] = (), other_args: Sequence[Value] = ()) -> None:
        self.end(branch(cond, then, other, tuple(then_args), tuple(other_args), self.span))

    def ret(self, *values: Value) -> None:
        self.end(ret(values, self.span))

    def yield_(self, *values: Value) -> None:
        self.end(yield_(values, self.span))

    def unreachable(self) -> None:
        self.end(unreachable(self.span))


def new_function(
    name: str, params: Sequence[tuple[str, Type]], results: Sequence[Type], module: Module | None = None, span: Span = NOWHERE
) -> tuple[Function, Builder]:
    """An empty function (added to `module` if given) and a builder at its entry."""
    entry = Block("entry")
    for hint, type in params:
        entry.add_param(type, hint)
    function = Function(name, Region([entry]), tuple(results), span)
    if module is not None:
        module.add(function)
    return function, Builder(entry, module, span)

"""How a kernel reaches memory, as LLVM IR.

- An address that moves by one element a lane is a contiguous load or store, one that does not move is a scalar load (spread where a vector
  is wanted), one that moves by a few elements a wider load and a shuffle, and any other a gather or scatter. What a vector loop reads of
  rows is loaded as squares, which are turned in registers.
- An address is invariant part first, constant part last, so what does not change in a loop is computed before it.
- A guarded load chooses between its address and one where zeros lie; what varies with the lane is a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TypeGuard

from tlc.backends.llvm import scalar
from tlc.backends.llvm.code import Scope
from tlc.backends.llvm.expressions import Expressions, NotVectorError, Vector, mask_lanes, mask_word
from tlc.backends.llvm.scalar import literal, register, storage
from tlc.backends.llvm.turn import turned
from tlc.backends.llvm.values import Linear, Value, Word, wrapped
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import (
    Apply,
    Buffer,
    Expr,
    For,
    If,
    Kind,
    Load,
    Op,
    Space,
    Stmt,
    Store,
    Var,
    conjuncts,
    expressions,
    subexpressions,
)

Ends = tuple[Expr, Expr]

NEAR = 4  # elements from lane to lane that are loaded with what lies between, which is cheaper than to gather them


@dataclass(frozen=True)
class Address:
    """`kind`: `uniform` (one element), `contiguous` (one a lane, side by side) or `scattered` (a vector of pointers)."""

    kind: str
    pointer: str
    flat: Linear


@dataclass(frozen=True)
class Square:
    """What a load of rows found: the columns, the scope in which they are known, and the values of the variables that they depend on."""

    columns: list[str]
    scope: Scope
    known: list[Value | None]


def readers_of(body: tuple[Stmt, ...], loop: For | None, found: dict[str, set[Ends | None]]) -> dict[str, set[Ends | None]]:
    """For each local buffer the ends of the vector loops in which each lane reads its own cells only; None for any other reading."""
    for s in body:
        for root in expressions(s):
            for e in subexpressions(root):
                if isinstance(e, Load) and e.buffer.space is Space.LOCAL:
                    own = loop is not None and e.indices[-1:] == (loop.var,) and not any(_mentions(i, loop.var) for i in e.indices[:-1])
                    found.setdefault(e.buffer.name, set()).add((loop.start, loop.stop) if own and loop else None)
        match s:
            case For():
                readers_of(s.body, s if s.kind is Kind.VECTOR else loop, found)
            case If():
                readers_of(s.then, loop, found)
                readers_of(s.other, loop, found)
            case _:
                pass
    return found


def _mentions(e: Expr, var: Var) -> bool:
    return any(x == var for x in subexpressions(e))


def _adds(e: Expr, var: Var) -> bool:
    """Whether an index is a variable plus something."""
    if isinstance(e, Op) and e.op == "add":
        return any(_adds(a, var) and not _mentions(b, var) for a, b in (e.args, e.args[::-1]))
    return e == var


def _is_bound(e: Expr, bound: Mapping[str, Expr]) -> TypeGuard[Var]:
    return isinstance(e, Var) and e.name in bound


@dataclass
class Accesses(Expressions):
    """Loads and stores of a kernel."""

    bound: dict[str, Expr] = field(default_factory=dict)  # the value of each `Let`; names are unique in a kernel
    readers: dict[str, set[Ends | None]] = field(default_factory=dict)
    unrolling: For | None = None  # the innermost unrolled loop, if it is as long as the vector
    squares: dict[int, Square] = field(default_factory=dict)  # by the `id` of the load
    zeros: int = 0  # how many bytes of zeros are read where a guard does not hold

    def address(self, buffer: Buffer, indices: tuple[Expr, ...], strided: bool = False) -> Address:
        """Where an element of each lane lies. `strided`: the caller can do with a kind of its own for lanes a few elements apart."""
        flat, varying = Linear(), []
        stride: int | str = 1
        for position in reversed(range(len(indices))):
            if position + 1 < len(indices):
                stride = self.times_extent(stride, self.linear(buffer.shape[position + 1]))
            index = self.value(indices[position])
            if isinstance(index, Word) and index.lanes == 1:
                index = Linear(((index.text, 1),))
            if isinstance(index, Word):
                varying.append(self.times(index.text, stride))
            else:
                flat = flat.plus(self.strided(index, stride, varying))
        lanes = self.memory[buffer.name].lanes
        if lanes > 1 and (flat.varies or varying):
            raise NotVectorError
        if strided and lanes == 1 and not varying and self.vector and (flat.offsets or flat.lane not in (0, 1)):
            numbers = flat.numbers(self.vector.lanes)
            if max(numbers) - min(numbers) <= NEAR * (self.vector.lanes - 1):
                flat = Linear.of(flat.terms, numbers)
                first = flat._replace(constant=min(numbers))
                return Address("strided", self.pointer(self.memory[buffer.name].pointer, first, storage(buffer.elem)), flat)
        if flat.offsets or flat.lane not in (0, 1) or (varying and flat.lane):
            varying.append(self.word(Linear(lane=flat.lane, offsets=flat.offsets)).text)
            flat = flat._replace(lane=0, offsets=())
        pointer = self.pointer(self.memory[buffer.name].pointer, flat, storage(buffer.elem, lanes))
        if not varying:
            return Address("contiguous" if flat.lane else "uniform", pointer, flat)
        assert self.vector is not None
        type = register(Elem.I64, self.vector.lanes)
        total = varying[0]
        for v in varying[1:]:
            total = self.code.ins(f"add {type} {total}, {v}")
        return Address("scattered", self.code.ins(f"getelementptr {storage(buffer.elem)}, ptr {pointer}, {type} {total}"), flat)

    def strided(self, index: Linear, stride: int | str, varying: list[str]) -> Linear:
        """index * stride; what moves with the lane by a stride known only at run time goes to `varying`."""
        if isinstance(stride, int):
            return index.scaled(stride)
        if index.varies:
            varying.append(self.times(self.word(Linear(lane=index.lane, offsets=index.offsets)).text, stride))
        terms = [(self.code.ins(f"mul i64 {name}, {stride}"), c) for name, c in index.terms]
        out = Linear()
        for t in terms + ([(stride, index.constant)] if index.constant else []):
            out = out.plus(Linear((t,)))
        return out

    def times(self, vector: str, stride: int | str) -> str:
        """A vector of i64 times a stride."""
        if stride == 1:
            return vector
        assert self.vector is not None
        lanes = self.vector.lanes
        by = literal(stride, Elem.I64, lanes) if isinstance(stride, int) else self.spread(Word(stride, Elem.I64), lanes).text
        return self.code.ins(f"mul {register(Elem.I64, lanes)} {vector}, {by}")

    def times_extent(self, stride: int | str, extent: Linear) -> int | str:
        known = extent.value
        if isinstance(stride, int) and known is not None:
            return stride * known
        other = self.word(extent).text
        return other if stride == 1 else self.code.ins(f"mul i64 {stride}, {other}")

    def pointer(self, base: str, flat: Linear, type: str) -> str:
        """base + flat (at lane 0): the terms that change least come first, so that loops inside share the rest."""
        by_depth: dict[int, list[tuple[str, int]]] = {}
        for name, c in flat.terms:
            by_depth.setdefault(self.code.depth.get(name, 0), []).append((name, c))
        for depth in sorted(by_depth):
            base = self.code.ins(f"getelementptr {type}, ptr {base}, i64 {self.total(tuple(by_depth[depth]), 0)}")
        return self.code.ins(f"getelementptr {type}, ptr {base}, i64 {wrapped(flat.constant)}") if flat.constant else base

    def load(self, e: Load) -> Word:
        memory, elem = self.memory[e.buffer.name], e.buffer.elem
        place = self.code.shared if memory.fixed else self.code.here
        if e.guard is not None:
            return self.guarded(e, e.guard, place)
        if self.is_square(e):
            return Word(self.square(e), elem, self.vector.lanes if self.vector else 1)
        active = self.known_mask() if self.vector is not None else None
        at = self.address(e.buffer, e.indices, strided=active is not None)
        if at.kind == "strided":
            return self.from_storage(self.apart(elem, at, active or [], place), elem, self.vector.lanes if self.vector else 1)
        if memory.lanes > 1 or at.kind == "uniform":
            text = f"load {storage(elem, memory.lanes)}, ptr {at.pointer}, align {elem.bytes}"
            return self.from_storage(place(text), elem, memory.lanes)
        vector = self.vector
        assert vector is not None
        type = storage(elem, vector.lanes)
        if at.kind == "contiguous" and (vector.mask is None or self.within(e.buffer, at.flat, vector.lanes)):
            text = place(f"load {type}, ptr {at.pointer}, align {elem.bytes}")
        else:
            text = self.picked(elem, type, at, vector.mask, place)
        return self.from_storage(text, elem, vector.lanes)

    # What a vector loop reads of rows, one element of each lane's row after the other in an unrolled loop as long as the vector, is a
    # square of elements: rows are loaded, and turned in registers.

    def is_square(self, e: Load) -> bool:
        """Whether a load moves by one element in the unrolled loop around, and from row to row with the lane."""
        if self.unrolling is None or self.vector is None or self.vector.mask is not None or not self.memory[e.buffer.name].fixed:
            return False
        *outer, inner = e.indices
        lane, step = self.vector.loop.var, self.unrolling.var
        return (
            e.elem.bytes == 4
            and self.vector.lanes in (4, 8, 16)
            and not self.depends(inner, lane)
            and _adds(inner, step)
            and not any(self.depends(i, step) for i in outer)
            and any(_mentions(i, lane) for i in outer)
            and not any(self.depends(self.bound[x.name], lane) for i in outer for x in subexpressions(i) if _is_bound(x, self.bound))
            and not any(self.depends(self.bound[x.name], step) for x in subexpressions(inner) if _is_bound(x, self.bound))
        )

    def depends(self, e: Expr, var: Var) -> bool:
        """Whether an expression depends on a loop variable, also by way of what is bound to a name."""
        return any(x == var or (_is_bound(x, self.bound) and self.depends(self.bound[x.name], var)) for x in subexpressions(e))

    def square(self, e: Load) -> str:
        """The element of each lane's row: the rows are loaded and turned where the first of them is asked for, and shared by the others."""
        vector, step = self.vector, self.unrolling
        assert vector is not None and step is not None
        now, first = self.env[step.var.name], self.env[vector.loop.var.name]
        assert isinstance(now, Linear) and now.value is not None and isinstance(first, Linear)
        parts = [x for root in (*e.indices, *e.buffer.shape) for x in subexpressions(root)]
        known = [self.env.get(x.name) for x in parts if isinstance(x, Var) and x != step.var]
        before = self.squares.get(id(e))
        if before and before.scope in self.code.scopes and before.known == known and len(before.columns) == vector.lanes:
            return before.columns[now.value]
        lanes, env, memo = vector.lanes, dict(self.env), self.memo
        type, rows = storage(e.elem, lanes), []
        self.vector = None
        self.env[step.var.name] = Linear()
        for lane in range(lanes):
            self.memo = {}
            self.env[vector.loop.var.name] = first._replace(lane=0).plus(Linear(constant=lane))
            rows.append(self.code.shared(f"load {type}, ptr {self.address(e.buffer, e.indices).pointer}, align {e.elem.bytes}"))
        self.vector, self.env, self.memo = vector, env, memo
        columns = turned(self.code, rows, type)
        if not any(isinstance(x, Load | Apply) for x in parts):
            self.squares[id(e)] = Square(columns, self.code.scopes[-1], known)
        return columns[now.value]

    def known_mask(self) -> list[bool] | None:
        """Which lanes are active, if that is known here."""
        assert self.vector is not None
        return mask_lanes(self.vector.mask or "true", self.vector.lanes)

    def apart(self, elem: Elem, at: Address, active: list[bool], place: Callable[[str], str]) -> str:
        """Elements a few apart, by a load of them and of what lies between (nothing beyond the first and the last one is read)."""
        assert self.vector is not None
        lanes = self.vector.lanes
        numbers = at.flat.numbers(lanes)
        places = [n - min(numbers) for n in numbers]
        read = [p for p, a in zip(places, active, strict=True) if a]
        first, last = min(read, default=0), max(read, default=-1)
        count = 1 << max(1, max(places).bit_length())
        mask = "<" + ", ".join(f"i1 {'true' if first <= k <= last else 'false'}" for k in range(count)) + ">"
        type = storage(elem, count)
        base = "i8" if elem is Elem.BOOL else scalar.MANGLED[elem]
        operands = f"ptr {at.pointer}, i32 {elem.bytes}, <{count} x i1> {mask}, {type} zeroinitializer"
        wide = place(f"call {type} @llvm.masked.load.v{count}{base}.p0({operands})")
        picks = "<" + ", ".join(f"i32 {p}" for p in places) + ">"
        return place(f"shufflevector {type} {wide}, {type} poison, <{lanes} x i32> {picks}")

    def guarded(self, e: Load, guard: Expr, place: Callable[[str], str]) -> Word:
        """A load under a condition. What of that is the same for all lanes chooses between the address and one where zeros lie; what varies
        with the lane is a mask.
        """
        elem, lanes = e.elem, self.vector.lanes if self.vector else 1
        same, varying = "", self.vector.mask if self.vector else None
        for c in conjuncts(guard):
            word = self.word(self.value(c))
            if word.text == "false":
                return Word(literal(False if elem is Elem.BOOL else 0, elem), elem)
            if word.lanes > 1:
                known = [mask_lanes(text, lanes) for text in (varying or "true", word.text)]
                if all(k is not None for k in known):
                    both = mask_word([x and y for x, y in zip(*(k or [] for k in known), strict=True)])
                    varying = both.text if both.lanes > 1 else None
                    if both.text == "false":
                        return Word(literal(False if elem is Elem.BOOL else 0, elem), elem)
                else:
                    varying = self.code.ins(f"and {register(Elem.BOOL, lanes)} {varying}, {word.text}") if varying else word.text
            elif word.text != "true":
                same = self.code.ins(f"and i1 {same}, {word.text}") if same else word.text
        active = mask_lanes(varying or "true", lanes) if self.vector and not same else None
        at = self.address(e.buffer, e.indices, strided=active is not None and any(active))
        if at.kind == "strided" and active is not None:
            wide = self.apart(elem, at, active, place)
            if all(active):
                return self.from_storage(wide, elem, lanes)
            type = storage(elem, lanes)
            chosen = self.code.ins(f"select <{lanes} x i1> {mask_word(active).text}, {type} {wide}, {type} zeroinitializer")
            return self.from_storage(chosen, elem, lanes)
        if at.kind == "uniform" and varying is not None and varying != (self.vector.mask if self.vector else None):
            pointers = self.code.ins(f"getelementptr i8, ptr {at.pointer}, <{lanes} x i64> zeroinitializer")
            at = Address("scattered", pointers, at.flat)
        if at.kind == "scattered" and same:
            spread = self.spread(Word(same, Elem.BOOL), lanes).text
            varying = spread if varying is None else self.code.ins(f"and {register(Elem.BOOL, lanes)} {varying}, {spread}")
        elif same:
            self.zeros = max(self.zeros, lanes * elem.bytes)
            at = replace(at, pointer=self.code.ins(f'select i1 {same}, ptr {at.pointer}, ptr @"k.{self.kernel.name}.zeros"'))
        if at.kind == "uniform":
            return self.from_storage(place(f"load {storage(elem)}, ptr {at.pointer}, align {elem.bytes}"), elem, 1)
        type = storage(elem, lanes)
        if at.kind == "contiguous" and varying is None:
            text = place(f"load {type}, ptr {at.pointer}, align {elem.bytes}")
        else:
            text = self.picked(elem, type, at, varying, place)
        return self.from_storage(text, elem, lanes)

    def picked(self, elem: Elem, type: str, at: Address, mask: str | None, place: Callable[[str], str]) -> str:
        """The elements of active lanes, zeros for the others. Where it is known which lanes are active, the others gather what the first of
        them does: LLVM 22 stops at some gathers under a constant mask.
        """
        if at.kind != "scattered":
            return place(self.masked("load", elem, type, at, mask=mask))
        assert self.vector is not None
        lanes = self.vector.lanes
        active = mask_lanes(mask or self.vector.mask or "true", lanes)
        if active is None or all(active) or not any(active):
            return place(self.masked("gather", elem, type, at, mask=mask))
        picks = ", ".join(f"i32 {k if a else active.index(True)}" for k, a in enumerate(active))
        pointers = self.code.ins(f"shufflevector <{lanes} x ptr> {at.pointer}, <{lanes} x ptr> poison, <{lanes} x i32> <{picks}>")
        found = place(self.masked("gather", elem, type, Address(at.kind, pointers, at.flat), mask="splat (i1 true)"))
        return self.code.ins(f"select <{lanes} x i1> {mask_word(active).text}, {type} {found}, {type} zeroinitializer")

    def masked(self, name: str, elem: Elem, result: str, at: Address, value: str = "", mask: str | None = None) -> str:
        """A call of `llvm.masked.load`, `store`, `gather` or `scatter` for the active lanes; lanes that are not active load zeros."""
        assert self.vector is not None
        lanes = self.vector.lanes
        scattered = at.kind == "scattered"
        pointers = f"<{lanes} x ptr> {at.pointer}" if scattered else f"ptr {at.pointer}"
        mask = f"<{lanes} x i1> {mask or self.vector.mask or 'splat (i1 true)'}"
        base = "i8" if elem is Elem.BOOL else scalar.MANGLED[elem]
        overload = f"v{lanes}{base}.{f'v{lanes}p0' if scattered else 'p0'}"
        before, after = (f"{storage(elem, lanes)} {value}, ", "") if value else ("", f", {result} zeroinitializer")
        return f"call {result} @llvm.masked.{name}.{overload}({before}{pointers}, i32 {elem.bytes}, {mask}{after})"

    def within(self, buffer: Buffer, flat: Linear, lanes: int) -> bool:
        """All lanes of a contiguous access lie in a local buffer, active or not."""
        if buffer.space is not Space.LOCAL or flat.terms:
            return False
        cells = 1
        for e in buffer.shape:
            cells *= self.linear(e).value or 0
        return flat.constant >= 0 and flat.constant + lanes <= cells

    def unseen(self, buffer: Buffer, flat: Linear, vector: Vector) -> bool:
        """What lanes beyond the end of the loop store is never read: every reading is by the lane itself, in a loop of the same ends,
        and these do not change while the buffer lives.
        """
        ends = (vector.loop.start, vector.loop.stop)
        fixed = all(x.name in self.memory[buffer.name].older for e in ends for x in subexpressions(e) if isinstance(x, Var))
        return fixed and self.within(buffer, flat, vector.lanes) and self.readers.get(buffer.name, {ends}) == {ends}

    def from_storage(self, text: str, elem: Elem, lanes: int) -> Word:
        if elem is Elem.BOOL:
            text = self.code.ins(f"icmp ne {storage(elem, lanes)} {text}, {'0' if lanes == 1 else 'zeroinitializer'}")
        return Word(text, elem, lanes)

    def to_storage(self, value: Word) -> str:
        if value.elem is not Elem.BOOL:
            return value.text
        return self.code.ins(f"zext {register(value.elem, value.lanes)} {value.text} to {storage(value.elem, value.lanes)}")

    def store(self, s: Store) -> None:
        elem, memory, vector = s.buffer.elem, self.memory[s.buffer.name], self.vector
        value = self.word(self.value(s.value))
        at = self.address(s.buffer, s.indices)
        if vector is None:
            self.code.put(f"store {storage(elem)} {self.to_storage(value)}, ptr {at.pointer}, align {elem.bytes}")
            return
        if at.kind == "uniform" and memory.lanes == 1:
            raise NotVectorError  # the last lane would win
        lanes = vector.lanes
        type, mask = storage(elem, lanes), vector.mask
        text = self.to_storage(self.spread(value, lanes))
        if at.kind == "scattered":
            self.code.put(self.masked("scatter", elem, "void", at, text))
        elif mask is None or (vector.tail_only and (memory.lanes > 1 or self.unseen(s.buffer, at.flat, vector))):
            self.code.put(f"store {type} {text}, ptr {at.pointer}, align {elem.bytes}")
        elif memory.lanes > 1 or self.within(s.buffer, at.flat, lanes):
            old = self.code.here(f"load {type}, ptr {at.pointer}, align {elem.bytes}")
            new = self.code.here(f"select <{lanes} x i1> {mask}, {type} {text}, {type} {old}")
            self.code.put(f"store {type} {new}, ptr {at.pointer}, align {elem.bytes}")
        else:
            self.code.put(self.masked("store", elem, "void", at, text))

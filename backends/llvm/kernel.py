"""Prints a kernel as LLVM IR.

What the schedule says is what is printed; LLVM only allocates registers and selects instructions.

- A `vector` loop disappears: its body becomes code on vectors of its width. An index is kept as a linear form of scalars
  and of the lane, so an address that moves by one element a lane is a contiguous load or store, one that does not move is a scalar load
  (spread where a vector is wanted) and any other a gather or scatter. A loop that cannot be vector code (a call that varies with
  the lane, a store that does not) is printed as a scalar loop: the meaning is the same.
- Where the extent is only known at run time, the code around is printed twice: full vectors without masks, and the
  tail with masks. The choice is made as soon as both ends are known, outside of the loops within.
- Local buffers are stack slots with constant addresses, which `sroa` turns into (vector) registers and phis. One that is
  declared inside a vector loop has a copy for each lane.
- A parallel loop becomes a function of its own, which runs some of the iterations; the pool (`backends/llvm/pool.py`) calls it, on
  as many threads as there are. What is known before the loop is computed again in it, so only the kernel's parameters are passed.
- An address is invariant part first, constant part last, so what does not change in a loop is computed before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from math import gcd
from typing import TypeGuard

from tlc.backends.llvm import scalar
from tlc.backends.llvm.abi import function_symbol, kernel_symbol
from tlc.backends.llvm.code import Code
from tlc.backends.llvm.launch import print_launch
from tlc.backends.llvm.scalar import literal, register, storage
from tlc.backends.llvm.turn import turned
from tlc.backends.llvm.values import Linear, Value, Word, wrapped
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.kernel.calls import expressions
from tlc.tensor.kernel.grid import is_gpu
from tlc.tensor.kernel.ir import (
    Apply,
    Barrier,
    Buffer,
    Const,
    Declare,
    Exchange,
    Expr,
    For,
    If,
    Kernel,
    Kind,
    Let,
    Load,
    Op,
    Space,
    Stmt,
    Store,
    Var,
    conjuncts,
    const,
    statements,
    subexpressions,
)

NEAR = 4  # elements from lane to lane that are loaded with what lies between, which is cheaper than to gather them
VERSIONS = 2  # at most this many tails are decided for all the code around them (the code doubles with each)


class NotVectorError(Exception):
    """A vector loop has to be printed as a scalar one."""


@dataclass(frozen=True)
class Vector:
    """The vector loop being printed: its lanes, and which of them are active (None: all)."""

    loop: For
    lanes: int
    mask: str | None = None
    tail_only: bool = True  # the mask comes from the end of the loop alone


@dataclass(frozen=True)
class Address:
    """`kind`: `uniform` (one element), `contiguous` (one a lane, side by side) or `scattered` (a vector of pointers)."""

    kind: str
    pointer: str
    flat: Linear


class Active(Enum):
    """How many lanes of a vector loop run."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


Tail = tuple[Expr, Expr, int]  # start, stop and width of a vector loop
Ends = tuple[Expr, Expr]


def print_kernel(kernel: Kernel) -> str:
    """The definition of one kernel. Functions that it applies must be declared or defined in the same module."""
    return print_launch(kernel) if is_gpu(kernel) else _Printer(kernel).run()


def _ready(e: Expr, env: dict[str, Value]) -> bool:
    """All variables of an expression are known, and it reads no memory."""
    return all(not isinstance(x, Load | Apply) and (not isinstance(x, Var) or x.name in env) for x in subexpressions(e))


def _readers(body: tuple[Stmt, ...], loop: For | None, found: dict[str, set[Ends | None]]) -> dict[str, set[Ends | None]]:
    """For each local buffer the ends of the vector loops in which each lane reads its own cells only; None for any other reading."""
    for s in body:
        for root in expressions(s):
            for e in subexpressions(root):
                if isinstance(e, Load) and e.buffer.space is Space.LOCAL:
                    own = loop is not None and e.indices[-1:] == (loop.var,) and not any(_mentions(i, loop.var) for i in e.indices[:-1])
                    found.setdefault(e.buffer.name, set()).add((loop.start, loop.stop) if own and loop else None)
        match s:
            case For():
                _readers(s.body, s if s.kind is Kind.VECTOR else loop, found)
            case If():
                _readers(s.then, loop, found)
                _readers(s.other, loop, found)
            case _:
                pass
    return found


def _together(stmts: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """The statements that become one function: what is in a parallel loop does not."""
    for s in stmts:
        yield s
        match s:
            case For() if s.kind is not Kind.PARALLEL:
                yield from _together(s.body)
            case If():
                yield from _together(s.then)
                yield from _together(s.other)
            case _:
                pass


def _needed(s: For, before: list[Let]) -> list[Let]:
    """Those of the bindings, in order, on which a loop depends."""
    names = {x.name for t in statements((s,)) for root in expressions(t) for x in subexpressions(root) if isinstance(x, Var)}
    needed = []
    for let in reversed(before):
        if let.var.name in names:
            needed.append(let)
            names |= {x.name for x in subexpressions(let.value) if isinstance(x, Var)}
    return needed[::-1]


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def _mask(lanes: list[bool]) -> Word:
    """A bool for each lane as a constant."""
    if len(set(lanes)) == 1:
        return Word(literal(lanes[0], Elem.BOOL), Elem.BOOL)
    return Word("<" + ", ".join(f"i1 {literal(x, Elem.BOOL)}" for x in lanes) + ">", Elem.BOOL, len(lanes))


def _lanes_of(text: str, lanes: int) -> list[bool] | None:
    """What each lane of a constant bool is; None for what is no constant."""
    if text in ("true", "false"):
        return [text == "true"] * lanes
    return [x.endswith("true") for x in text.strip("<>").split(", ")] if text.startswith("<") else None


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
class _Memory:
    """Where a buffer lies; `lanes` > 1: a local one with a copy for each lane; `fixed`: nobody writes to it;
    `older`: the variables that were there when a local one was declared.
    """

    pointer: str
    lanes: int = 1
    fixed: bool = False
    older: frozenset[str] = frozenset()


@dataclass
class _Printer:
    kernel: Kernel
    code: Code = field(default_factory=Code)
    env: dict[str, Value] = field(default_factory=dict)
    memory: dict[str, _Memory] = field(default_factory=dict)
    vector: Vector | None = None
    decided: dict[Tail, Active] = field(default_factory=dict)
    positive: set[Expr] = field(default_factory=set)  # what is known to be greater than zero
    bound: dict[str, Expr] = field(default_factory=dict)  # the value of each `Let`; names are unique in a kernel
    memo: dict[int, Value] = field(default_factory=dict)  # id of an expression of the current statement -> its value
    readers: dict[str, set[Ends | None]] = field(default_factory=dict)
    can_stop: bool = False
    before: list[Let] = field(default_factory=list)  # what was bound so far around the place that is printed
    parts: list[str] = field(default_factory=list)  # the functions of parallel loops
    unrolling: For | None = None  # the innermost unrolled loop, if it is as long as the vector
    multiples: dict[str, int] = field(default_factory=dict)  # counters of loops, which do not wrap, and what they are multiples of
    zeros: int = 0  # how many bytes of zeros are read where a guard does not hold

    # ------------------------------------------------------------ the function

    def run(self) -> str:
        params = self.parameters()
        self.body(self.kernel.body)
        self.code.put("ret i32 0")
        if self.can_stop:
            self.code.start("stopped")
            self.code.put("ret i32 1")
        head = f"define i32 {kernel_symbol(self.kernel.name)}({', '.join(params)}) nounwind {{"
        if self.zeros:
            self.parts.insert(0, f'@"k.{self.kernel.name}.zeros" = internal constant [{self.zeros} x i8] zeroinitializer, align 64\n')
        return "".join([*self.parts, f"{head}\nentry:\n{self.code.text()}\n}}\n"])

    def parameters(self) -> list[str]:
        """The parameters as text; from here on they are known."""
        params = ["ptr %ctx"]
        aliased_out = {o for o, _ in self.kernel.may_alias}
        aliased_in = {i for _, i in self.kernel.may_alias}
        for k, p in enumerate((*self.kernel.outputs, *self.kernel.inputs)):
            n = len(self.kernel.outputs)
            if isinstance(p, Var):
                params.append(f"{register(p.elem)} %p{k}")
                self.env[p.name] = Linear(((f"%p{k}", 1),)) if p.elem is Elem.I64 else Word(f"%p{k}", p.elem)
            else:
                shared = k in aliased_out if k < n else k - n in aliased_in
                params.append(f"ptr {'' if shared else 'noalias '}%p{k}")
                self.memory[p.name] = _Memory(f"%p{k}", fixed=k >= n and not shared)
        self.readers = _readers(self.kernel.body, None, {})
        return params

    # ------------------------------------------------------------ parallel loops

    def parallel(self, s: For) -> None:
        """Ask the pool to run the iterations; their code is a function that gets the kernel's parameters through memory."""
        assert s.work is not None
        name = f"k.{self.kernel.name}.{len(self.parts)}"
        part = _Printer(self.kernel, positive=set(self.positive), bound=dict(self.bound))
        params = part.parameters()
        types = ["ptr" if p.startswith("ptr") else p.split()[0] for p in params]
        names = [p.split()[-1] for p in params]
        env = self.code.alloca(f"[{len(params)} x i64]")
        for k, (type, value) in enumerate(zip(types, names, strict=True)):
            self.code.put(f"store {type} {value}, ptr {self.code.ins(f'getelementptr i8, ptr {env}, i64 {8 * k}')}")
        trips = self.linear(s.stop) + self.linear(s.start).scaled(-1)
        count: str = str(max(-(-trips.value // s.step), 0)) if trips.value is not None else self.trips(self.word(trips).text, s.step)
        work = self.word(self.value(s.work)).text
        self.code.put(f'call void @tlc.parallel(ptr %ctx, ptr @"{name}", ptr {env}, i64 {count}, i64 {work})')
        loads = []
        for k, (type, value) in enumerate(zip(types, names, strict=True)):
            loads += [f"  %e{k} = getelementptr i8, ptr %env, i64 {8 * k}", f"  {value} = load {type}, ptr %e{k}"]
        passed = ", ".join([f"{t} {v}" for t, v in zip(types, names, strict=True)] + ["i64 %first", "i64 %last"])
        entry = f'define internal void @"{name}"(ptr %env, i64 %first, i64 %last) nounwind {{'
        call = f'  call void @"{name}.part"({passed})\n  ret void'
        self.parts.append("\n".join([entry, *loads, call, "}", part.part(s, name, params, self.before), ""]))
        self.zeros = max(self.zeros, part.zeros)

    def trips(self, length: str, step: int) -> str:
        """How many steps lie in a length, none if it is negative."""
        rounded = self.code.ins(f"add i64 {length}, {step - 1}")
        count = self.code.ins(f"sdiv i64 {rounded}, {step}")
        return self.code.ins(f"call i64 @llvm.smax.i64(i64 {count}, i64 0)")

    def part(self, s: For, name: str, params: list[str], before: list[Let]) -> str:
        """The function that runs iterations from `%first` to below `%last`."""
        for let in _needed(s, before):
            self.statement(let)
        start, stop = self.linear(s.start), self.word(self.linear(s.stop)).text
        self.multiples |= {"%first": 1, "%last": 1}
        end = self.word(start + Linear((("%last", s.step),))).text
        self.env["%first"] = start + Linear((("%first", s.step),))
        self.env["%last"] = Linear(((self.code.ins(f"call i64 @llvm.smin.i64(i64 {stop}, i64 {end})"), 1),))
        self.body((replace(s, start=Var("%first"), stop=Var("%last"), kind=Kind.SERIAL, work=None),))
        self.code.put("ret void")
        head = f'define internal void @"{name}.part"({", ".join([*params, "i64 %first", "i64 %last"])}) nounwind {{'
        return f"{head}\nentry:\n{self.code.text()}\n}}\n"

    # ------------------------------------------------------------ statements

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        for k, s in enumerate(stmts):
            tail = self.undecided(stmts[k:])
            if tail is not None:
                self.by_length(tail, partial(self.version, tail, stmts[k:]))
                return
            self.statement(s)

    def undecided(self, stmts: tuple[Stmt, ...]) -> Tail | None:
        """A vector loop in these statements whose length is only known at run time, but already known here."""
        if len(self.decided) >= VERSIONS or self.vector is not None:
            return None
        for s in _together(stmts):
            if isinstance(s, For) and s.kind is Kind.VECTOR:
                tail = (s.start, s.stop, s.width)
                ready = _ready(s.start, self.env) and _ready(s.stop, self.env)
                if tail not in self.decided and ready and self.length(tail).value is None:
                    return tail
        return None

    def length(self, tail: Tail) -> Linear:
        self.memo = {}
        return self.linear(tail[1]) + self.linear(tail[0]).scaled(-1)

    def by_length(self, tail: Tail, emit: Callable[[Active], None]) -> None:
        """What to do when all lanes are active, when some are and when none is."""
        start, stop, width = tail
        count = self.word(self.length(tail)).text
        some = partial(emit, Active.SOME)
        if start != const(0) or not self.is_positive(stop):
            some = partial(self.code.branch, self.code.ins(f"icmp sgt i64 {count}, 0"), some, partial(emit, Active.NONE))
        self.code.branch(self.code.ins(f"icmp sge i64 {count}, {width}"), partial(emit, Active.ALL), some)

    def is_positive(self, e: Expr) -> bool:
        """An expression is greater than zero, for what an `If` or a loop around says."""
        match e:
            case _ if e in self.positive:
                return True
            case Const():
                return e.value > 0
            case Var():
                return e.name in self.bound and self.is_positive(self.bound[e.name])
            case Op("min"):
                return all(map(self.is_positive, e.args))
            case _:
                return False

    def version(self, tail: Tail, stmts: tuple[Stmt, ...], active: Active) -> None:
        self.decided[tail] = active
        with self.nested():
            self.body(stmts)
        del self.decided[tail]

    def nested(self) -> _Nested:
        return _Nested(self)

    def statement(self, s: Stmt) -> None:
        self.memo = {}
        match s:
            case For(kind=Kind.PARALLEL):
                self.parallel(s)
            case For(kind=Kind.UNROLL):
                self.unrolled(s)
            case For(kind=Kind.VECTOR) if self.vector is None:
                self.vector_loop(s)
            case For():
                self.serial(s)
            case Let():
                self.bound[s.var.name] = s.value
                self.before.append(s)
                self.env[s.var.name] = self.value(s.value)
            case Store():
                self.store(s)
            case If():
                self.conditional(s)
            case Declare():
                self.declare(s.buffer)
            case Barrier() | Exchange():
                raise InternalError("threads of a GPU meet", f"kernel {self.kernel.name}")

    def unrolled(self, s: For) -> None:
        start, stop = self.linear(s.start).value, self.linear(s.stop).value
        if start is None or stop is None:
            raise InternalError("the ends of an unrolled loop are not constants", f"kernel {self.kernel.name}")
        outer, self.unrolling = self.unrolling, s if (start, stop, s.step) == (0, self.vector.lanes if self.vector else 0, 1) else None
        for i in range(start, stop, s.step):
            self.env[s.var.name] = Linear(constant=i)
            self.body(s.body)
        self.unrolling = outer

    def serial(self, s: For) -> None:
        start, stop = self.linear(s.start), self.linear(s.stop)
        if start.varies or stop.varies:
            raise NotVectorError
        trips = (stop + start.scaled(-1)).value
        if trips is not None and trips <= s.step:
            if trips > 0:
                self.env[s.var.name] = start
                with self.nested():
                    self.body(s.body)
            return

        whole = all(name in self.multiples for name, _ in start.terms)
        grain = gcd(s.step, start.constant, *(c * self.multiples.get(name, 1) for name, c in start.terms)) if whole else 1

        def body(i: str) -> None:
            self.multiples[i] = grain
            self.env[s.var.name] = Linear(((i, 1),))
            self.knowing(Op("sub", Elem.I64, (s.stop, s.var)), self.arm(s.body))

        self.code.loop(self.word(start).text, self.word(stop).text, s.step, trips is not None, body)

    def vector_loop(self, s: For) -> None:
        mark, scopes, decided, positive = self.code.mark(), len(self.code.scopes), dict(self.decided), set(self.positive)
        try:
            with self.nested():
                self.as_vectors(s)
        except NotVectorError:
            self.code.rewind(mark, scopes)
            self.vector, self.decided, self.positive = None, decided, positive
            self.memo = {}
            self.serial(s)

    def as_vectors(self, s: For) -> None:
        tail = (s.start, s.stop, s.width)
        start = self.linear(s.start)
        length = self.length(tail)
        if length.value is not None:
            self.known_lanes(s, start, min(length.value, s.width))
        elif tail in self.decided:
            self.active_lanes(s, start, length, self.decided[tail])
        else:
            self.by_length(tail, partial(self.active_lanes, s, start, length))

    def known_lanes(self, s: For, start: Linear, count: int) -> None:
        """A known number of lanes, in a vector of the next power of two."""
        lanes = 1 << max(count - 1, 0).bit_length()
        if count == lanes:
            self.lanes_of(s, start, lanes, None)
        elif count > 0:
            self.lanes_of(s, start, lanes, "<" + ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(lanes)) + ">")

    def active_lanes(self, s: For, start: Linear, length: Linear, active: Active) -> None:
        """As many lanes as the length says, if any."""
        if active is Active.ALL:
            self.lanes_of(s, start, s.width, None)
        elif active is Active.SOME:
            few = self.code.ins(f"trunc i64 {self.word(length).text} to i32")
            numbers = "<" + ", ".join(f"i32 {k}" for k in range(s.width)) + ">"
            mask = self.code.ins(f"icmp slt {register(Elem.I32, s.width)} {numbers}, {self.spread(Word(few, Elem.I32), s.width).text}")
            self.lanes_of(s, start, s.width, mask)

    def lanes_of(self, s: For, start: Linear, lanes: int, mask: str | None) -> None:
        if lanes == 1:
            self.env[s.var.name] = start
            with self.nested():
                self.body(s.body)
            return
        self.vector = Vector(s, lanes, mask)
        self.env[s.var.name] = start + Linear(lane=1)
        with self.nested():
            self.body(s.body)
        self.vector = None

    def conditional(self, s: If) -> None:
        cond = self.word(self.value(s.cond))
        if cond.lanes > 1:
            self.predicated(s, cond)
        elif cond.text in ("true", "false"):
            with self.nested():
                self.body(s.then if cond.text == "true" else s.other)
        else:
            self.code.branch(cond.text, self.then(s), self.arm(s.other) if s.other else None)

    def then(self, s: If) -> Callable[[], None]:
        """The first arm, where `if n > 0` has shown that n is positive."""
        match s.cond:
            case Op("gt", _, (known, Const(0))):
                return lambda: self.knowing(known, self.arm(s.then))
            case _:
                return self.arm(s.then)

    def knowing(self, positive: Expr, emit: Callable[[], None]) -> None:
        """Print something where an expression is known to be positive."""
        before = set(self.positive)
        self.positive.add(positive)
        emit()
        self.positive = before

    def arm(self, stmts: tuple[Stmt, ...]) -> Callable[[], None]:
        def emit() -> None:
            with self.nested():
                self.body(stmts)

        return emit

    def predicated(self, s: If, cond: Word) -> None:
        """A condition that varies with the lane: each arm runs with its lanes active, if there are any."""
        outer = self.vector
        assert outer is not None
        type = register(Elem.BOOL, outer.lanes)
        inverse = self.code.ins(f"xor {type} {cond.text}, splat (i1 true)")
        for chosen, stmts in ((cond.text, s.then), (inverse, s.other)):
            if stmts:
                mask = chosen if outer.mask is None else self.code.ins(f"and {type} {outer.mask}, {chosen}")
                some = self.code.ins(f"call i1 @llvm.vector.reduce.or.v{outer.lanes}i1({type} {mask})")
                self.vector = replace(outer, mask=mask, tail_only=False)
                self.code.branch(some, self.arm(stmts))
                self.vector = outer

    def declare(self, buffer: Buffer) -> None:
        cells = 1
        for e in buffer.shape:
            extent = self.linear(e).value
            if extent is None:
                raise InternalError(f"the local buffer `{buffer.name}` has no constant shape", f"kernel {self.kernel.name}")
            cells *= extent
        lanes = self.vector.lanes if self.vector else 1
        pointer = self.code.alloca(f"[{max(cells, 1)} x {storage(buffer.elem, lanes)}]")
        self.memory[buffer.name] = _Memory(pointer, lanes, older=frozenset(self.env))

    # ------------------------------------------------------------ memory

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
                flat = flat + self.strided(index, stride, varying)
        lanes = self.memory[buffer.name].lanes
        if lanes > 1 and (flat.varies or varying):
            raise NotVectorError
        if strided and lanes == 1 and not varying and self.vector and (flat.offsets or flat.lane not in (0, 1)):
            numbers = flat.numbers(self.vector.lanes)
            if max(numbers) - min(numbers) <= NEAR * (self.vector.lanes - 1):
                flat = Linear.of(flat.terms, numbers)
                first = replace(flat, constant=min(numbers))
                return Address("strided", self.pointer(self.memory[buffer.name].pointer, first, storage(buffer.elem)), flat)
        if flat.offsets or flat.lane not in (0, 1) or (varying and flat.lane):
            varying.append(self.word(Linear(lane=flat.lane, offsets=flat.offsets)).text)
            flat = replace(flat, lane=0, offsets=())
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
            out = out + Linear((t,))
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
        lanes, env, memo = vector.lanes, dict(self.env), self.memo
        now, first = self.env[step.var.name], self.env[vector.loop.var.name]
        assert isinstance(now, Linear) and now.value is not None and isinstance(first, Linear)
        type, rows = storage(e.elem, lanes), []
        self.vector = None
        self.env[step.var.name] = Linear()
        for lane in range(lanes):
            self.memo = {}
            self.env[vector.loop.var.name] = replace(first, lane=0) + Linear(constant=lane)
            rows.append(self.code.shared(f"load {type}, ptr {self.address(e.buffer, e.indices).pointer}, align {e.elem.bytes}"))
        self.vector, self.env, self.memo = vector, env, memo
        return turned(self.code, rows, type)[now.value]

    def known_mask(self) -> list[bool] | None:
        """Which lanes are active, if that is known here."""
        assert self.vector is not None
        return _lanes_of(self.vector.mask or "true", self.vector.lanes)

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
                known = [_lanes_of(text, lanes) for text in (varying or "true", word.text)]
                if all(k is not None for k in known):
                    both = _mask([x and y for x, y in zip(*(k or [] for k in known), strict=True)])
                    varying = both.text if both.lanes > 1 else None
                    if both.text == "false":
                        return Word(literal(False if elem is Elem.BOOL else 0, elem), elem)
                else:
                    varying = self.code.ins(f"and {register(Elem.BOOL, lanes)} {varying}, {word.text}") if varying else word.text
            elif word.text != "true":
                same = self.code.ins(f"and i1 {same}, {word.text}") if same else word.text
        active = _lanes_of(varying or "true", lanes) if self.vector and not same else None
        at = self.address(e.buffer, e.indices, strided=active is not None and any(active))
        if at.kind == "strided" and active is not None:
            wide = self.apart(elem, at, active, place)
            if all(active):
                return self.from_storage(wide, elem, lanes)
            type = storage(elem, lanes)
            chosen = self.code.ins(f"select <{lanes} x i1> {_mask(active).text}, {type} {wide}, {type} zeroinitializer")
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
        active = _lanes_of(mask or self.vector.mask or "true", lanes)
        if active is None or all(active) or not any(active):
            return place(self.masked("gather", elem, type, at, mask=mask))
        picks = ", ".join(f"i32 {k if a else active.index(True)}" for k, a in enumerate(active))
        pointers = self.code.ins(f"shufflevector <{lanes} x ptr> {at.pointer}, <{lanes} x ptr> poison, <{lanes} x i32> <{picks}>")
        found = place(self.masked("gather", elem, type, Address(at.kind, pointers, at.flat), mask="splat (i1 true)"))
        return self.code.ins(f"select <{lanes} x i1> {_mask(active).text}, {type} {found}, {type} zeroinitializer")

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

    # ------------------------------------------------------------ expressions

    def value(self, e: Expr) -> Value:
        found = self.memo.get(id(e))
        if found is None:
            found = self.memo[id(e)] = self.compute(e)
        return found

    def compute(self, e: Expr) -> Value:
        match e:
            case Const():
                return Linear(constant=int(e.value)) if e.elem is Elem.I64 else Word(literal(e.value, e.elem), e.elem)
            case Var():
                return self.env[e.name]
            case Op():
                return self.op(e)
            case Load():
                return self.load(e)
            case Apply():
                return self.apply(e)

    def linear(self, e: Expr) -> Linear:
        """The value of an `i64` expression that is the same for all lanes, or linear in the lane."""
        v = self.value(e)
        if isinstance(v, Linear):
            return v
        if v.lanes > 1:
            raise NotVectorError
        return Linear(((v.text, 1),))

    def word(self, v: Value) -> Word:
        """The value in a register."""
        if isinstance(v, Word):
            return v
        base = self.total(v.terms, v.constant)
        if not v.varies:
            return Word(base, Elem.I64)
        assert self.vector is not None
        lanes = self.vector.lanes
        each = replace(v, constant=0).numbers(lanes)
        numbers = "<" + ", ".join(f"i64 {wrapped(n)}" for n in each) + ">"
        if not v.terms and not v.constant:
            return Word(numbers, Elem.I64, lanes)
        spread = self.spread(Word(base, Elem.I64), lanes).text
        return Word(self.code.ins(f"add {register(Elem.I64, lanes)} {spread}, {numbers}"), Elem.I64, lanes)

    def total(self, terms: tuple[tuple[str, int], ...], constant: int) -> str:
        """The sum in a scalar register, outer terms first."""
        out = ""
        for name, c in sorted(terms, key=lambda t: self.code.depth.get(t[0], 0)):
            term = name if c == 1 else self.code.ins(f"mul i64 {name}, {wrapped(c)}")
            out = self.code.ins(f"add i64 {out}, {term}") if out else term
        if not out:
            return str(wrapped(constant))
        return self.code.ins(f"add i64 {out}, {wrapped(constant)}") if constant else out

    def spread(self, w: Word, lanes: int) -> Word:
        """A value with as many lanes as asked for."""
        if w.lanes == lanes:
            return w
        assert w.lanes == 1
        if not w.text.startswith("%"):
            return Word(f"splat ({register(w.elem)} {w.text})", w.elem, lanes)
        type = register(w.elem, lanes)
        one = self.code.ins(f"insertelement {type} poison, {register(w.elem)} {w.text}, i64 0")
        text = self.code.ins(f"shufflevector {type} {one}, {type} poison, <{lanes} x i32> zeroinitializer")
        return Word(text, w.elem, lanes)

    def op(self, e: Op) -> Value:
        args = [self.value(a) for a in e.args]
        known = [a.value if isinstance(a, Linear) else None for a in args]
        numbers = [k for k in known if k is not None]
        if len(numbers) == len(args) and args:
            return self.folded(e, numbers)
        if e.elem is Elem.I64 and all(isinstance(a, Linear) or a.lanes == 1 for a in args) and all(a.elem is Elem.I64 for a in args):
            forms = [a if isinstance(a, Linear) else Linear(((a.text, 1),)) for a in args]
            match e.op:
                case "add":
                    return forms[0] + forms[1]
                case "sub":
                    return forms[0] + forms[1].scaled(-1)
                case "neg":
                    return forms[0].scaled(-1)
                case "mul" if known[1] is not None:
                    return forms[0].scaled(known[1])
                case "mul" if known[0] is not None:
                    return forms[1].scaled(known[0])
                case _:
                    pass
        if e.op in ("floordiv", "mod") and e.elem is Elem.I64:
            split = self.divided(e.op, args[0], known[1])
            if split is not None:
                return split
        settled = self.settled(e, args)
        if settled is not None:
            return settled
        words = [self.word(a) for a in args]
        if e.op == "select" and words[0].text in ("true", "false"):
            return args[1] if words[0].text == "true" else args[2]
        lanes = max(w.lanes for w in words)
        operands = tuple((self.spread(w, lanes).text, w.elem) for w in words)
        text = scalar.emit(self.code, e.op, e.elem, operands, lanes)
        return Linear(((text, 1),)) if e.elem is Elem.I64 and lanes == 1 and text.startswith("%") else Word(text, e.elem, lanes)

    def settled(self, e: Op, args: list[Value]) -> Word | None:
        """A comparison of lanes that are known numbers, or a conjunction or disjunction of what came out of such, as a constant."""
        if self.vector is None:
            return None
        lanes = self.vector.lanes
        if e.op in _COMPARISONS and all(isinstance(a, Linear) and not a.terms for a in args):
            a, b = (x.numbers(lanes) for x in args if isinstance(x, Linear))
            return _mask([_COMPARISONS[e.op](wrapped(x), wrapped(y)) for x, y in zip(a, b, strict=True)])
        if e.op in ("and", "or") and e.elem is Elem.BOOL:
            known = [_lanes_of(a.text, lanes) if isinstance(a, Word) else None for a in args]
            both = [k for k in known if k is not None]
            if len(both) == 2:
                return _mask([x and y if e.op == "and" else x or y for x, y in zip(*both, strict=True)])
        return None

    def divided(self, op: str, a: Value, by: int | None) -> Value | None:
        """A quotient or remainder of an index by a number whose lanes are known, because the rest is a multiple of the number; or that
        are of one multiple of it, because the rest counts in steps that the lanes do not fill; or that pass one multiple of it at most.

            (8 i + l) // 2 = 4 i + (0, 0, 1, 1, ..)             (16 i + l) // 784 = 16 i // 784,  16 lanes
            (16 i + l) // 196 = q + (r + l >= 196)              for q = 16 i // 196, r = 16 i % 196
        """
        if by is None or by <= 0 or not isinstance(a, Linear) or not a.varies or self.vector is None:
            return None
        if any(name not in self.multiples or abs(c) > 1 << 20 for name, c in a.terms):
            return None  # a multiple that wraps is none
        grain = gcd(*(c * self.multiples[name] for name, c in a.terms))
        numbers = a.numbers(self.vector.lanes)
        if any(abs(n) > 1 << 61 for n in numbers):
            return None  # what wraps is not what it seems
        rest = Linear(a.terms)
        if grain % by == 0:
            if op == "mod":
                return Linear.of((), [n % by for n in numbers])
            if all(c % by == 0 for _, c in a.terms):
                return Linear.of(tuple((name, c // by) for name, c in a.terms), [n // by for n in numbers])
        elif by % grain or min(numbers) < 0 or max(numbers) >= grain:
            return self.passing(op, rest, numbers, by) if min(numbers) >= 0 and max(numbers) < by else None
        text = scalar.emit(self.code, op, Elem.I64, ((self.word(rest).text, Elem.I64), (str(by), Elem.I64)), 1)
        return Linear(((text, 1),)) + Linear.of((), [n // by if op == "floordiv" else n for n in numbers])

    def passing(self, op: str, rest: Linear, numbers: list[int], by: int) -> Word:
        """The quotient or remainder of a rest plus a number below the divisor for each lane."""
        assert self.vector is not None
        lanes, type = self.vector.lanes, register(Elem.I64, self.vector.lanes)
        operands = ((self.word(rest).text, Elem.I64), (str(by), Elem.I64))
        quotient, left = (scalar.emit(self.code, name, Elem.I64, operands, 1) for name in ("floordiv", "mod"))
        at = self.word(Linear(((left, 1),)) + Linear.of((), numbers)).text
        passed = self.code.ins(f"icmp sge {type} {at}, splat (i64 {by})")
        if op == "mod":
            less = self.code.ins(f"sub {type} {at}, splat (i64 {by})")
            return Word(self.code.ins(f"select <{lanes} x i1> {passed}, {type} {less}, {type} {at}"), Elem.I64, lanes)
        one = self.code.ins(f"zext <{lanes} x i1> {passed} to {type}")
        return Word(self.code.ins(f"add {type} {self.spread(Word(quotient, Elem.I64), lanes).text}, {one}"), Elem.I64, lanes)

    def folded(self, e: Op, numbers: list[int]) -> Value:
        """An op on constants."""
        import numpy as np

        result = SCALAR_OPS[e.op].evaluate(e.elem, *(np.int64(wrapped(n)) for n in numbers))
        return Linear(constant=int(result)) if e.elem is Elem.I64 else Word(literal(result, e.elem), e.elem)

    def apply(self, e: Apply) -> Value:
        args = ["ptr %ctx"]
        for a in e.args:
            if isinstance(a, Buffer):
                args.append(f"ptr {self.memory[a.name].pointer}")
                args += [f"i64 {self.word(self.linear(extent)).text}" for extent in a.shape]
                continue
            w = self.word(self.value(a))
            if w.lanes > 1:
                raise NotVectorError
            args.append(f"{register(w.elem)} {w.text}")
        type = f"{{ i32, {register(e.elem)} }}"
        both = self.code.here(f"call {type} {function_symbol(e.function)}({', '.join(args)})")
        status = self.code.here(f"extractvalue {type} {both}, 0")
        fine = self.code.here(f"icmp eq i32 {status}, 0")
        label = self.code.label("fine")
        self.code.put(f"br i1 {fine}, label %{label}, label %stopped, !prof !{{!\"branch_weights\", i32 1048575, i32 1}}")
        self.code.start(label)
        self.can_stop = True
        text = self.code.here(f"extractvalue {type} {both}, 1")
        return Linear(((text, 1),)) if e.elem is Elem.I64 else Word(text, e.elem)


class _Nested:
    """Bindings made inside are forgotten outside."""

    def __init__(self, printer: _Printer) -> None:
        self.printer = printer

    def __enter__(self) -> None:
        self.env, self.memory, self.before = dict(self.printer.env), dict(self.printer.memory), list(self.printer.before)

    def __exit__(self, *_: object) -> None:
        self.printer.env, self.printer.memory, self.printer.before = self.env, self.memory, self.before

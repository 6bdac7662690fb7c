"""The interpreter of kernels: their meaning, over NumPy arrays.

The tree is translated once to Python closures over a list of variables. Loops run in order, whatever their kind, and every
op is evaluated by its row of `frontend/ops.py`, so results are exact to the bit. One thing is done for speed: the lanes
of a vector loop are evaluated together as NumPy arrays where the text shows that no lane sees what another one stores
(`_independent`); otherwise the loop runs lane by lane. Accesses are checked against the buffers' extents.

The threads of a block of a GPU run in turn, each from barrier to barrier; those of a warp from exchange to exchange. Shared memory is full
of rubbish at first, and races can be looked for (`tensor/kernel/races.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.grid import grid_of, is_gpu, syncs
from tlc.tensor.kernel.ir import (
    WARP,
    Apply,
    Barrier,
    Buffer,
    CommitCopies,
    Const,
    CopyAsync,
    Declare,
    Exchange,
    Expr,
    For,
    How,
    If,
    Kernel,
    Kind,
    Let,
    Load,
    LoadMatrices,
    Meeting,
    Mma,
    Op,
    Space,
    Stmt,
    Store,
    Var,
    WaitCopies,
    statements,
    subexpressions,
)
from tlc.tensor.kernel.matrices import FORMS, ROW_BYTES, is_tf32, loaded, multiplied
from tlc.tensor.kernel.races import Moment, Touched

Applied = Callable[[str, list[Any]], Any]  # a function of the host module, on scalars and arrays
_Frame = list[Any]
_COPIES = ".copies"  # the variable of a thread with what it has begun to copy
_Eval = Callable[[_Frame], Any]
_Run = Callable[[_Frame], None]


def launch(kernel: Kernel, operands: Sequence[Any], apply: Applied | None = None) -> list[Any]:
    """The results of a `launch` instruction: `operands` are the extents of each result in order, then the kernel's inputs."""
    at = 0
    outputs = []
    for b in kernel.outputs:
        outputs.append(np.zeros([int(n) for n in operands[at : at + len(b.shape)]], DTYPES[b.elem]))
        at += len(b.shape)
    run(kernel, outputs, operands[at:], apply)
    return [o if o.ndim else o[()] for o in outputs]


def run(
    kernel: Kernel,
    outputs: Sequence[np.ndarray[Any, Any]],
    inputs: Sequence[Any],
    apply: Applied | None = None,
    *,
    adverse: bool = False,
    races: bool = False,
) -> None:
    """Run a kernel into C-contiguous output arrays. An input array may have any shape with the right number of elements.

    `adverse`: as lawful and as unkind as can be: parallel loops, blocks and threads run from their end to their start, and fresh local
    memory holds rubbish. A kernel whose promises are true gives the same bits. `races`: a race between threads of a GPU is an error.
    """
    _Compiled(kernel, apply, adverse, races).run(outputs, inputs)


class _Memory:
    """A buffer's cells, flat, with its extents and strides."""

    __slots__ = ("cells", "shape", "strides")

    def __init__(self, cells: np.ndarray[Any, Any], shape: tuple[int, ...]) -> None:
        self.cells = cells
        self.shape = shape
        self.strides = tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


@dataclass(frozen=True)
class _Copy:
    """Elements that are on their way to a buffer, and where they belong."""

    buffer: Buffer
    memory: _Memory
    first: int
    values: np.ndarray[Any, Any]


class _Copies:
    """What a thread has begun to copy: the groups, oldest first, and what is in none yet."""

    def __init__(self) -> None:
        self.groups: list[list[_Copy]] = []
        self.begun: list[_Copy] = []

    def commit(self) -> None:
        self.groups.append(self.begun)
        self.begun = []


@dataclass(frozen=True)
class _Asked:
    """A thread waits for the others of its warp, with what it brings. At an exchange it wants the value of a lane."""

    at: Meeting
    value: Any
    lane: int = 0


_Event = Barrier | _Asked | None  # why a thread stands still: None when it is done
_Thread = Generator[_Event, Any, None]
_Program = Callable[[_Frame], _Thread]


class _Compiled:
    def __init__(self, kernel: Kernel, apply: Applied | None, adverse: bool, races: bool) -> None:
        self.kernel = kernel
        self.apply = apply
        self.adverse = adverse
        self.touched: dict[str, Touched] | None = {} if races and is_gpu(kernel) else None
        self.now: Moment | None = None  # the thread that runs, in a thread loop
        self.homes: dict[str, str] = {}  # inputs that lie where an output lies
        self.slots: dict[str, int] = {}
        for p in kernel.parameters:
            self.slot(p.name)
        self.slot(_COPIES)
        self.code = self.body(kernel.body)

    def slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    def fail(self, message: str) -> InternalError:
        return InternalError(message, f"kernel {self.kernel.name}")

    def run(self, outputs: Sequence[np.ndarray[Any, Any]], inputs: Sequence[Any]) -> None:
        k = self.kernel
        if len(outputs) != len(k.outputs) or len(inputs) != len(k.inputs):
            raise self.fail(f"{len(outputs)} outputs and {len(inputs)} inputs are given for {len(k.outputs)} and {len(k.inputs)}")
        self.homes = {k.inputs[i].name: k.outputs[o].name for o, i in k.may_alias if np.shares_memory(outputs[o], inputs[i])}
        frame: _Frame = [None] * len(self.slots)
        for p, value in zip(k.inputs, inputs, strict=True):
            if isinstance(p, Var):
                frame[self.slot(p.name)] = DTYPES[p.elem].type(value)
        for b, array in zip(k.parameters, (*outputs, *inputs), strict=True):
            if isinstance(b, Buffer):
                shape = tuple(int(self.expr(e)(frame)) for e in b.shape)
                cells = np.ascontiguousarray(array).reshape(-1)
                if b in k.outputs and not np.shares_memory(cells, array) and cells.size:
                    raise self.fail(f"output `{b.name}` is not contiguous")
                if cells.size != prod(shape):
                    raise self.fail(f"`{b.name}` has shape {shape} and {cells.size} elements")
                frame[self.slot(b.name)] = _Memory(cells, shape)
        self.code(frame)

    # ---------------------------------------------------------------- statements

    def body(self, body: tuple[Stmt, ...]) -> _Run:
        runs = [self.stmt(s) for s in body]

        def run(frame: _Frame) -> None:
            for r in runs:
                r(frame)

        return run

    def stmt(self, s: Stmt) -> _Run:
        match s:
            case For(kind=Kind.BLOCK):
                return self.grid(s)
            case For():
                return self.loop(s)
            case Let():
                value, slot = self.expr(s.value), self.slot(s.var.name)

                def let(frame: _Frame) -> None:
                    frame[slot] = value(frame)

                return let
            case Store():
                return self.store(s)
            case If():
                cond, then, other = self.expr(s.cond), self.body(s.then), self.body(s.other)

                def branch(frame: _Frame) -> None:
                    (then if cond(frame) else other)(frame)

                return branch
            case Declare():
                slot, dtype = self.slot(s.buffer.name), DTYPES[s.buffer.elem]
                shape = tuple(int(e.value) for e in s.buffer.shape if isinstance(e, Const))
                fresh = rubbish(s.buffer.elem) if self.adverse or s.buffer.space is Space.SHARED else dtype.type(0)

                def declare(frame: _Frame) -> None:
                    frame[slot] = _Memory(np.full(prod(shape), fresh), shape)

                return declare
            case CopyAsync():
                return self.copy(s)
            case CommitCopies():
                return lambda frame: self.copies(frame).commit()
            case WaitCopies():
                return self.wait(s)
            case Barrier() | Exchange() | LoadMatrices() | Mma():
                raise self.fail("threads meet outside of a grid")

    # ---------------------------------------------------------------- grids

    def grid(self, outermost: For) -> _Run:
        grid = grid_of(outermost)
        extents = [(self.index(b.stop), self.slot(b.var.name)) for b in grid.blocks]
        before, program = self.body(grid.before), self.program(grid.thread.body)
        threads, slot = grid.threads, self.slot(grid.thread.var.name)
        turn = reversed if self.adverse else iter

        def run(frame: _Frame) -> None:
            if self.touched is not None:
                self.touched.clear()
            for place in turn(list(product(*(range(int(n(frame))) for n, _ in extents)))):
                for i, (_, at) in zip(place, extents, strict=True):
                    frame[at] = i
                before(frame)
                if self.touched is not None:
                    for b in grid.shared:
                        self.touched.pop(b.name, None)
                frames = [list(frame) for _ in range(threads)]
                for t, own in enumerate(frames):
                    own[slot] = t
                self.block(place, list(map(program, frames)))
            self.now = None

        return run

    def block(self, place: tuple[int, ...], threads: list[_Thread]) -> None:
        """Run the threads of a block to their end, from barrier to barrier."""
        warps = [range(low, low + WARP) for low in range(0, len(threads), WARP)]
        region = 0
        while True:
            stopped = [self.warp(warp, threads, place, region) for warp in (reversed(warps) if self.adverse else warps)]
            if all(event is None for event in stopped):
                return
            if any(event is not stopped[0] for event in stopped):
                raise self.fail("a warp waits at a barrier to which another does not come")
            region += 1

    def warp(self, warp: range, threads: list[_Thread], place: tuple[int, ...], region: int) -> Barrier | None:
        """Run the threads of a warp to a barrier (or to their end), from exchange to exchange."""
        replies: dict[int, Any] = {}
        while True:
            events: dict[int, _Event] = {}
            for t in reversed(warp) if self.adverse else warp:
                self.now = Moment(place, region, t)
                try:
                    events[t] = threads[t].send(replies.get(t))
                except StopIteration:
                    events[t] = None
            first = events[warp[0]]
            asked = [e for t in warp if isinstance(e := events[t], _Asked)]
            if not isinstance(first, _Asked):
                if any(e is not first for e in events.values()):
                    raise self.fail("a thread waits at a barrier to which another does not come")
                return first
            if len(asked) < WARP or any(e.at is not first.at for e in asked):
                raise self.fail(f"a thread waits at {_named(first.at)} to which another of its warp does not come")
            replies = dict(zip(warp, self.answers(first.at, asked), strict=True))

    def answers(self, s: Meeting, asked: list[_Asked]) -> Sequence[Any]:
        """What each thread of a warp gets where they meet."""
        match s:
            case Exchange():
                return self.exchanged(s, asked)
            case LoadMatrices():
                rows: Any = loaded(np.array([a.value for a in asked]), s.transposed)
                return list(rows)
            case Mma():
                acc, a, b = (np.array(held) for held in zip(*(x.value for x in asked), strict=True))
                if s.a.elem is Elem.F32 and not (is_tf32(a) and is_tf32(b)):
                    raise self.fail(f"{_named(s)} has factors that are no numbers of tf32")
                new: Any = multiplied(s.a.elem, acc, a, b)
                return list(new)

    def exchanged(self, s: Exchange, asked: list[_Asked]) -> list[Any]:
        """What each thread of a warp gets."""
        out = []
        for lane, asks in enumerate(asked):
            if not 0 <= asks.lane < WARP:
                raise self.fail(f"the exchange `{s.var.name}` asks for lane {asks.lane}")
            source = {How.XOR: lane ^ asks.lane, How.DOWN: lane + asks.lane, How.INDEX: asks.lane}[s.how]
            out.append(asked[source if source < WARP else lane].value)
        return out

    def program(self, body: tuple[Stmt, ...]) -> _Program:
        """Statements that may hold barriers and exchanges, for one thread."""
        parts = [(self.meeting(s), None) if syncs(s) else (None, self.stmt(s)) for s in body]

        def run(frame: _Frame) -> _Thread:
            for meets, plain in parts:
                if meets is not None:
                    yield from meets(frame)
                elif plain is not None:
                    plain(frame)

        return run

    def meeting(self, s: Stmt) -> _Program:
        match s:
            case For():
                return self.meeting_loop(s)
            case If():
                cond, then, other = self.expr(s.cond), self.program(s.then), self.program(s.other)
                return lambda frame: (then if cond(frame) else other)(frame)
            case Exchange():
                value, lane, slot = self.expr(s.value), self.index(s.lane), self.slot(s.var.name)

                def exchange(frame: _Frame) -> _Thread:
                    frame[slot] = yield _Asked(s, value(frame), int(lane(frame)))

                return exchange
            case LoadMatrices():
                return self.matrices(s)
            case Mma():
                return self.product(s)
            case _:
                assert isinstance(s, Barrier)

                def barrier(_: _Frame) -> _Thread:
                    yield s

                return barrier

    def meeting_loop(self, s: For) -> _Program:
        start, stop, slot, code = self.index(s.start), self.index(s.stop), self.slot(s.var.name), self.program(s.body)

        def run(frame: _Frame) -> _Thread:
            for i in range(int(start(frame)), int(stop(frame)), s.step):
                frame[slot] = i
                yield from code(frame)

        return run

    def copies(self, frame: _Frame) -> _Copies:
        """Those of the thread that runs."""
        slot = self.slots[_COPIES]
        if frame[slot] is None:
            frame[slot] = _Copies()
        found: _Copies = frame[slot]
        return found

    def copy(self, s: CopyAsync) -> _Run:
        """The place is full of rubbish until the thread has waited."""
        elem = s.into.elem
        count = ROW_BYTES // elem.bytes
        into, source = self.neighbours(s.into), self.neighbours(s.source)
        guard = None if s.source.guard is None else self.expr(s.source.guard)

        def copy(frame: _Frame) -> None:
            memory, at = into(frame, count)
            values = np.zeros(count, DTYPES[elem])
            first = 0
            if guard is None or guard(frame):
                given, first = source(frame, count)
                values[:] = given.cells[first : first + count]
            if at % count or first % count:
                names = f"element {first} of `{s.source.buffer.name}` to {at} of `{s.into.buffer.name}`"
                raise self.fail(f"a copy of {ROW_BYTES} bytes goes from {names}, and not between multiples of those")
            self.arrive(_Copy(s.into.buffer, memory, at, np.full(count, rubbish(elem))))
            self.copies(frame).begun.append(_Copy(s.into.buffer, memory, at, values))

        return copy

    def arrive(self, c: _Copy) -> None:
        if self.is_watched(c.buffer):
            self.touch(c.buffer, c.memory, np.arange(c.first, c.first + len(c.values)), stores=True)
        c.memory.cells[c.first : c.first + len(c.values)] = c.values

    def wait(self, s: WaitCopies) -> _Run:
        def wait(frame: _Frame) -> None:
            groups = self.copies(frame).groups
            while len(groups) > s.pending:
                for c in groups.pop(0):
                    self.arrive(c)

        return wait

    def matrices(self, s: LoadMatrices) -> _Program:
        count = ROW_BYTES // s.row.elem.bytes
        row, into = self.neighbours(s.row), self.neighbours(s.into)

        def load(frame: _Frame) -> _Thread:
            got = yield _Asked(s, self.read_row(s.row.buffer, *row(frame, count)))
            memory, first = into(frame, len(got))
            memory.cells[first : first + len(got)] = got

        return load

    def read_row(self, b: Buffer, memory: _Memory, first: int) -> Any:
        """A row of a matrix in shared memory."""
        count = ROW_BYTES // b.elem.bytes
        if first % count:
            raise self.fail(f"a row of a matrix begins at element {first} of `{b.name}`, and not at a multiple of {ROW_BYTES} bytes")
        if self.is_watched(b):
            self.touch(b, memory, np.arange(first, first + count), stores=False)
        return memory.cells[first : first + count].copy()

    def product(self, s: Mma) -> _Program:
        form = FORMS[s.a.elem]
        parts = [(self.neighbours(e), f.count) for e, f in ((s.acc, form.c), (s.a, form.a), (s.b, form.b))]

        def multiply(frame: _Frame) -> _Thread:
            found = [where(frame, count) for where, count in parts]
            held = [memory.cells[at : at + n].copy() for (memory, at), (_, n) in zip(found, parts, strict=True)]
            new = yield _Asked(s, tuple(held))
            memory, at = found[0]
            memory.cells[at : at + len(new)] = new

        return multiply

    def neighbours(self, e: Load) -> Callable[[_Frame, int], tuple[_Memory, int]]:
        """Memory, and where in it so many elements lie from one on, along the last axis."""
        place, slot, last = self.place(e.buffer, e.indices), self.slot(e.buffer.name), self.index(e.indices[-1])

        def neighbours(frame: _Frame, count: int) -> tuple[_Memory, int]:
            memory: _Memory = frame[slot]
            at, first = place(frame), last(frame)
            if first + count > memory.shape[-1]:
                raise self.fail(f"{count} elements from index {first} of `{e.buffer.name}` on are out of range for {memory.shape[-1]}")
            return memory, int(at)

        return neighbours

    def touch(self, b: Buffer, memory: _Memory, at: Any, stores: bool) -> None:
        """Note an access by the thread that runs, to memory that it has not alone."""
        if self.touched is None or self.now is None:
            return
        cells = [at] if isinstance(at, int) else np.atleast_1d(at).tolist()
        found = self.touched.setdefault(self.homes.get(b.name, b.name), Touched()).touch(cells, self.now, stores)
        if found is not None:
            cell, other = found
            place = ", ".join(map(str, np.unravel_index(cell, memory.shape)))
            raise self.fail(f"a race for `{b.name}[{place}]` between {self.now} and {other}")

    def is_watched(self, b: Buffer) -> bool:
        k = self.kernel
        return self.touched is not None and (b.space is Space.SHARED or b in k.outputs or any(k.inputs[i] == b for _, i in k.may_alias))

    # ---------------------------------------------------------------- loops and stores

    def loop(self, s: For) -> _Run:
        start, stop, slot, step = self.index(s.start), self.index(s.stop), self.slot(s.var.name), s.step
        code = self.body(s.body)
        together = s.kind is Kind.VECTOR and _independent(s)
        from_the_end = self.adverse and s.kind is Kind.PARALLEL

        def run(frame: _Frame) -> None:
            first, last = int(start(frame)), int(stop(frame))
            if s.kind is Kind.VECTOR and last - first > s.width:
                raise self.fail(f"vector loop `{s.var.name}` runs from {first} to {last}, more than its width {s.width}")
            if together and last > first:
                frame[slot] = np.arange(first, last, dtype=np.int64)
                code(frame)
            else:
                turns = range(first, last, step)
                for i in reversed(turns) if from_the_end else turns:
                    frame[slot] = i
                    code(frame)

        return run

    def store(self, s: Store) -> _Run:
        place, value, slot = self.place(s.buffer, s.indices), self.expr(s.value), self.slot(s.buffer.name)

        def store(frame: _Frame) -> None:
            frame[slot].cells[place(frame)] = value(frame)

        def watched(frame: _Frame) -> None:
            new, at, memory = value(frame), place(frame), frame[slot]
            self.touch(s.buffer, memory, at, stores=True)
            memory.cells[at] = new

        return watched if self.is_watched(s.buffer) else store

    # ---------------------------------------------------------------- expressions

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> _Eval:
        """The flat position of an access, checked."""
        slot = self.slot(b.name)
        parts = [self.index(i) for i in indices]

        def place(frame: _Frame) -> Any:
            memory: _Memory = frame[slot]
            at: Any = 0
            for part, extent, stride in zip(parts, memory.shape, memory.strides, strict=True):
                i = part(frame)
                if (i < 0).any() or (i >= extent).any() if isinstance(i, np.ndarray) else not 0 <= i < extent:
                    raise self.fail(f"index {i} of `{b.name}` is out of range for {extent}")
                at = at + i * stride
            return at

        return place

    def index(self, e: Expr) -> _Eval:
        """An index: as `expr`, with plain integers where they cannot overflow."""
        match e:
            case Const(value=value):
                return lambda frame: value
            case Op(op=("add" | "sub" | "mul") as name, args=args):
                f = getattr(operator, name)
                a, b = (self.index(x) for x in args)
                return lambda frame: f(a(frame), b(frame))
            case Load() | Apply() | Op():
                inner = self.expr(e)

                def plain(frame: _Frame) -> Any:
                    value = inner(frame)
                    return value if isinstance(value, np.ndarray) else int(value)

                return plain
            case _:
                return self.expr(e)

    def expr(self, e: Expr) -> _Eval:
        match e:
            case Const():
                constant = DTYPES[e.elem].type(e.value) if e.elem is not Elem.STR else e.value
                return lambda frame: constant
            case Var():
                slot = self.slot(e.name)
                if e.elem is Elem.I64:
                    return lambda frame: np.int64(frame[slot]) if isinstance(frame[slot], int) else frame[slot]
                return lambda frame: frame[slot]
            case Load() if e.guard is not None:
                return self.guarded(e, e.guard)
            case Load():
                return self.load(e)
            case Op():
                evaluate, elem = SCALAR_OPS[e.op].evaluate, e.elem
                args = [self.expr(a) for a in e.args]
                return lambda frame: evaluate(elem, *(a(frame) for a in args))
            case Apply():
                return self.applied(e)

    def load(self, e: Load) -> _Eval:
        place, slot = self.place(e.buffer, e.indices), self.slot(e.buffer.name)

        def watched(frame: _Frame) -> Any:
            at, memory = place(frame), frame[slot]
            self.touch(e.buffer, memory, at, stores=False)
            return memory.cells[at]

        return watched if self.is_watched(e.buffer) else lambda frame: frame[slot].cells[place(frame)]

    def guarded(self, e: Load, guard: Expr) -> _Eval:
        """A load where its guard holds, 0 elsewhere; only the indices of those lanes are checked."""
        slot, holds = self.slot(e.buffer.name), self.expr(guard)
        parts = [self.index(i) for i in e.indices]
        zero, watched = DTYPES[e.elem].type(0), self.is_watched(e.buffer)

        def load(frame: _Frame) -> Any:
            memory: _Memory = frame[slot]
            where, *indices = np.broadcast_arrays(holds(frame), *(p(frame) for p in parts))
            at = np.zeros(where.shape, np.int64)
            for i, extent, stride in zip(indices, memory.shape, memory.strides, strict=True):
                if (where & ((i < 0) | (i >= extent))).any():
                    raise self.fail(f"guarded index {i} of `{e.buffer.name}` is out of range for {extent}")
                at = at + np.where(where, i, 0) * stride
            if watched:
                self.touch(e.buffer, memory, at[where], stores=False)
            out = np.full(where.shape, zero)
            out[where] = memory.cells[at[where]]
            return out if out.ndim else out[()]

        return load

    def applied(self, e: Apply) -> _Eval:
        buffers = [isinstance(a, Buffer) for a in e.args]
        parts = [_whole(self.slot(a.name)) if isinstance(a, Buffer) else self.expr(a) for a in e.args]
        apply, dtype = self.apply, DTYPES[e.elem]
        if apply is None:
            raise self.fail(f"the function `{e.function}` is applied and no host functions are given")

        def call(frame: _Frame) -> Any:
            values = [p(frame) for p in parts]
            lanes = {np.shape(v) for v, whole in zip(values, buffers, strict=True) if not whole} - {()}
            if not lanes:
                return dtype.type(apply(e.function, values))
            (shape,) = lanes
            rows = [[v if whole or not np.shape(v) else v[i] for v, whole in zip(values, buffers, strict=True)] for i in range(shape[0])]
            return np.array([apply(e.function, row) for row in rows], dtype)

        return call


def rubbish(elem: Elem) -> Any:
    """A value that nobody expects in memory that was not written."""
    return DTYPES[elem].type(float("nan") if elem.is_real else True if elem is Elem.BOOL else np.iinfo(DTYPES[elem]).max - 5)


def _named(s: Meeting) -> str:
    match s:
        case Exchange():
            return f"the exchange `{s.var.name}`"
        case LoadMatrices():
            return f"the load of matrices of `{s.row.buffer.name}`"
        case Mma():
            return f"the product for `{s.acc.buffer.name}`"


def _whole(slot: int) -> _Eval:
    def whole(frame: _Frame) -> Any:
        memory: _Memory = frame[slot]
        return memory.cells.reshape(memory.shape)

    return whole


# ---------------------------------------------------------------- independence of lanes


def _independent(loop: For) -> bool:
    """Whether no lane touches a cell that another lane stores to: every access to a stored buffer has, at one position, the same
    index, affine in the loop's variable and otherwise fixed outside the loop.
    """
    bound: set[str] = set()
    accesses: dict[Buffer, list[tuple[Expr, ...]]] = {}
    stored: set[Buffer] = set()
    for s in statements(loop.body):
        match s:
            case If() | Declare():
                return False
            case For():
                bound.add(s.var.name)
            case Let():
                bound.add(s.var.name)
            case Store():
                stored.add(s.buffer)
                accesses.setdefault(s.buffer, []).append(s.indices)
        for e in _expressions(s):
            for x in subexpressions(e):
                if isinstance(x, Load):
                    accesses.setdefault(x.buffer, []).append(x.indices)
    return all(
        any(
            len({indices[k] for indices in accesses[b]}) == 1 and _slope(accesses[b][0][k], loop.var.name, bound) not in (None, 0)
            for k in range(len(b.shape))
        )
        for b in stored
    )



def _expressions(s: Stmt) -> tuple[Expr, ...]:
    match s:
        case Let():
            return (s.value,)
        case Store():
            return (*s.indices, s.value)
        case For():
            return (s.start, s.stop)
        case _:
            return ()


def _slope(e: Expr, var: str, bound: set[str]) -> int | None:
    """The coefficient of a variable in an affine expression; None if it is not one or reads what the loop binds."""
    match e:
        case Const():
            return 0
        case Var():
            return None if e.name in bound else int(e.name == var)
        case Op(op="add" | "sub", args=(a, b)):
            x, y = _slope(a, var, bound), _slope(b, var, bound)
            return None if x is None or y is None else x + y if e.op == "add" else x - y
        case Op(op="mul", args=(a, Const(value=int(factor)))):
            x = _slope(a, var, bound)
            return None if x is None else x * factor
        case _:
            return None

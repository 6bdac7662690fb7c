"""Kernels for a GPU: the grids that they are made of, and what they must not do.

The body of such a kernel is a sequence of `let`s and grids. A grid is one launch: all of it is done before the next begins.

    let m = (n + 255) // 256            of scalar parameters
    block b in 0..m {                   one to three block loops, from 0, each directly in the one before
      let low = b * 256                 what is the same for all threads of a block
      shared s: f32[256]
      thread t in 0..256 {              one thread loop; its body is the program of a thread
        ..
        barrier
        ..
      }
    }

`check(kernel)` raises `InternalError` at the first broken property:

 1. The form above. There are at most `THREADS` threads, a multiple of `WARP`. Block and thread loops, shared buffers, barriers and
    exchanges stand nowhere else, and no parallel loop stands in a grid. `let`s before the thread loop load from inputs only, and those
    before a grid load nothing.
 2. Where one thread of a block comes to a barrier, all do: the loops and conditions around it do not vary in the block. Where one
    thread of a warp comes to an exchange, all of the warp do. Neither stands in a vector loop.
 3. An exchange is of 32 or 64 bits; how far `xor` and `down` reach does not vary in a warp.

What varies: the thread's variable, what is loaded from local and shared memory and from outputs, what is loaded at an index that
varies, and what is computed from these. `t // 32` is the same in a warp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import (
    THREADS,
    WARP,
    Apply,
    Barrier,
    Buffer,
    Const,
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
    Op,
    Space,
    Stmt,
    Store,
    Var,
    const,
    statements,
    subexpressions,
)


@dataclass(frozen=True)
class Grid:
    """`blocks` are the block loops, outermost first; `before` are the `let`s and shared buffers of a block, in order."""

    blocks: tuple[For, ...]
    before: tuple[Let | Declare, ...]
    thread: For

    @property
    def threads(self) -> int:
        return extent(self.thread)

    @property
    def shared(self) -> tuple[Buffer, ...]:
        return tuple(s.buffer for s in self.before if isinstance(s, Declare))


def extent(loop: For) -> int:
    """Of a loop from 0 to a constant."""
    assert isinstance(loop.stop, Const)
    return int(loop.stop.value)


def is_gpu(kernel: Kernel) -> bool:
    return any(isinstance(s, For) and s.kind is Kind.BLOCK for s in kernel.body)


def syncs(s: Stmt) -> bool:
    """Whether a barrier or an exchange is in a statement."""
    return any(isinstance(x, Barrier | Exchange) for x in statements((s,)))


def grids(kernel: Kernel) -> Iterator[Let | Grid]:
    """What a kernel for a GPU does, in order. It has the form that `check` checks."""
    for s in kernel.body:
        if isinstance(s, Let):
            yield s
        else:
            assert isinstance(s, For)
            yield grid_of(s)


def grid_of(loop: For) -> Grid:
    """The grid whose outermost block loop is given."""
    blocks: list[For] = []
    before: list[Let | Declare] = []
    while loop.kind is Kind.BLOCK:
        blocks.append(loop)
        *first, last = loop.body
        assert isinstance(last, For)
        before += [s for s in first if isinstance(s, Let | Declare)]
        loop = last
    return Grid(tuple(blocks), tuple(before), loop)


# ---------------------------------------------------------------- what must hold


class Varies(IntEnum):
    """Among which threads a value may differ."""

    NOWHERE = 0
    WARPS = 1  # the same in each warp
    THREADS = 2


def check(kernel: Kernel) -> None:
    """Raise `InternalError` unless a kernel for a GPU has every property of this module's text."""
    _Checker(kernel).run()


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.varies: dict[str, Varies] = {}

    def check(self, ok: bool, message: str) -> None:
        if not ok:
            raise InternalError(message, f"kernel {self.kernel.name}")

    def run(self) -> None:
        for s in self.kernel.body:
            if isinstance(s, Let):
                loads = any(isinstance(e, Load | Apply) for e in subexpressions(s.value))
                self.check(not loads, f"`{s.var.name}` stands before a grid and loads")
            elif isinstance(s, For) and s.kind is Kind.BLOCK:
                self.block(s, 1)
            else:
                self.check(False, "a kernel with block loops holds something else between its grids")

    def block(self, loop: For, depth: int) -> None:
        self.check(depth <= 3, "more than three block loops stand in each other")
        self.check(loop.start == const(0) and loop.step == 1, f"block loop `{loop.var.name}` does not count from 0")
        *before, last = loop.body or (None,)
        for s in before:
            if isinstance(s, Let):
                for e in subexpressions(s.value):
                    fine = not isinstance(e, Load) or (e.buffer.space is Space.GLOBAL and e.buffer not in self.kernel.outputs)
                    self.check(fine, f"`{s.var.name}` stands before a thread loop and loads from what is no input")
            else:
                shared = isinstance(s, Declare) and s.buffer.space is Space.SHARED
                self.check(shared, f"block loop `{loop.var.name}` holds more than threads")
        if isinstance(last, For) and last.kind is Kind.BLOCK:
            self.block(last, depth + 1)
        elif isinstance(last, For) and last.kind is Kind.THREAD:
            self.threads(last)
        else:
            self.check(False, f"block loop `{loop.var.name}` does not end in a thread loop")

    def threads(self, loop: For) -> None:
        name = loop.var.name
        fixed = loop.start == const(0) and loop.step == 1 and isinstance(loop.stop, Const)
        self.check(fixed, f"thread loop `{name}` does not count from 0 to a constant")
        count = extent(loop)
        fits = 0 < count <= THREADS and count % WARP == 0
        self.check(fits, f"thread loop `{name}` has {count} threads, and not a multiple of {WARP} up to {THREADS}")
        self.varies[name] = Varies.THREADS
        self.thread = loop.var
        self.body(loop.body, Varies.NOWHERE)

    def body(self, body: tuple[Stmt, ...], around: Varies) -> None:
        """`around`: what the loops and conditions around vary by."""
        for s in body:
            match s:
                case Let():
                    self.varies[s.var.name] = self.of(s.value)
                case If():
                    inner = max(around, self.of(s.cond))
                    self.body(s.then, inner)
                    self.body(s.other, inner)
                case For():
                    self.check(s.kind not in (Kind.BLOCK, Kind.THREAD, Kind.PARALLEL), f"`{s.var.name}`: a {s.kind.value} loop in a thread")
                    self.check(s.kind is not Kind.VECTOR or not syncs(s), f"threads meet in the vector loop `{s.var.name}`")
                    inner = max(self.of(s.start), self.of(s.stop))
                    self.varies[s.var.name] = inner
                    self.body(s.body, max(around, inner))
                case Declare():
                    self.check(s.buffer.space is Space.LOCAL, f"shared `{s.buffer.name}` is declared in a thread")
                case Barrier():
                    self.check(around is Varies.NOWHERE, "a barrier stands where not all threads of a block may come")
                case Exchange():
                    name = s.var.name
                    self.check(around <= Varies.WARPS, f"the exchange `{name}` stands where not all threads of a warp may come")
                    self.check(s.value.elem.bytes >= 4 and s.value.elem is not Elem.STR, f"`{name}`: a {s.value.elem} is not exchanged")
                    reach = self.of(s.lane)
                    self.check(s.how is How.INDEX or reach <= Varies.WARPS, f"`{name}`: how far the exchange reaches varies in a warp")
                    self.varies[name] = Varies.WARPS if s.how is How.INDEX and reach <= Varies.WARPS else Varies.THREADS
                case Store():
                    pass

    def of(self, e: Expr) -> Varies:
        match e:
            case Const():
                return Varies.NOWHERE
            case Var():
                return self.varies.get(e.name, Varies.NOWHERE)
            case Op(op="floordiv", args=(Var() as v, Const(value=int(by)))) if v == self.thread and by > 0 and by % WARP == 0:
                return Varies.WARPS
            case Op():
                return max(map(self.of, e.args))
            case Load():
                same = e.buffer.space is Space.GLOBAL and e.buffer not in self.kernel.outputs
                parts = (*e.indices, *([] if e.guard is None else [e.guard]))
                return max(map(self.of, parts), default=Varies.NOWHERE) if same else Varies.THREADS
            case Apply():
                return Varies.THREADS

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
    before a grid load nothing. The shared buffers of a grid have at most `SHARED` bytes.
 2. Where one thread of a block comes to a barrier, all do: the loops and conditions around it do not vary in the block. Where one
    thread of a warp comes to an exchange, a load or a product of matrices, all of the warp do. None stands in a vector loop.
 3. An exchange is of 32 or 64 bits; how far `xor` and `down` reach does not vary in a warp.
 4. Copies that are not waited for go from an input to shared memory, with elements of one type, and 16 bytes along the last axes. Of
    their groups at most `GROUPS` are left when a thread has waited.
 5. What a thread has of a matrix lies in a local buffer whose last axis has room for it: at an index of that axis that is a multiple of
    its number of elements, all the same in a warp. Both factors have a type of `FORMS` (`tensor/kernel/matrices.py`), the
    accumulator is of f32. Matrices are loaded from shared memory, by rows of 16 bytes on its last axis; transposed only those of 16 bits.

What varies: the thread's variable, what is loaded from local and shared memory and from outputs, what is loaded at an index that
varies, and what is computed from these. `t // 32` is the same in a warp.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from math import prod

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import (
    GROUPS,
    SHARED,
    THREADS,
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
    const,
    statements,
    subexpressions,
)
from tlc.tensor.kernel.matrices import FORMS, MATRICES, ROW_BYTES, register_elements

ALIGNED = 16  # bytes: where a shared buffer begins


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

    @property
    def bytes(self) -> int:
        """Of shared memory."""
        return sum(map(room, self.shared))


def extent(loop: For) -> int:
    """Of a loop from 0 to a constant."""
    assert isinstance(loop.stop, Const)
    return int(loop.stop.value)


def extents(b: Buffer) -> list[int]:
    """Of a local or shared buffer."""
    return [int(e.value) for e in b.shape if isinstance(e, Const)]


def room(b: Buffer) -> int:
    """The bytes of a shared buffer; each begins at a multiple of `ALIGNED`."""
    return -(-b.elem.bytes * prod(extents(b)) // ALIGNED) * ALIGNED


def is_multiple(e: Expr, of: int) -> bool:
    """Whether an index is a multiple of a number for whoever reads it."""
    match e:
        case Const():
            return int(e.value) % of == 0
        case Op(op="mul", args=args):
            return any(is_multiple(a, of) for a in args)
        case Op(op="add", args=args):
            return all(is_multiple(a, of) for a in args)
        case _:
            return of == 1


def is_gpu(kernel: Kernel) -> bool:
    return any(isinstance(s, For) and s.kind is Kind.BLOCK for s in kernel.body)


def syncs(s: Stmt) -> bool:
    """Whether a barrier or a meeting is in a statement."""
    return any(isinstance(x, Barrier | Meeting) for x in statements((s,)))


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
                size = grid_of(s).bytes
                self.check(size <= SHARED, f"a block has {size} bytes of shared memory, and there are {SHARED}")
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
                case LoadMatrices():
                    self.matrices(s)
                    name = s.row.buffer.name
                    self.check(around <= Varies.WARPS, f"matrices of `{name}` are loaded where not all threads of a warp may come")
                case Mma():
                    self.product(s)
                    name = s.acc.buffer.name
                    self.check(around <= Varies.WARPS, f"a product for `{name}` stands where not all threads of a warp may come")
                case CopyAsync():
                    self.copy(s)
                case WaitCopies():
                    self.check(0 <= s.pending <= GROUPS, f"waiting leaves {s.pending} groups of copies, and not {GROUPS} at most")
                case Store() | CommitCopies():
                    pass

    def copy(self, s: CopyAsync) -> None:
        name, source = s.into.buffer.name, s.source.buffer
        self.check(s.into.buffer.space is Space.SHARED and s.into.guard is None, f"a copy goes to `{name}`, which is not shared")
        fits = source in self.kernel.inputs and bool(s.source.indices)
        self.check(fits, f"a copy comes from `{source.name}`, which is no input with elements")
        self.check(s.into.elem is source.elem and source.elem is not Elem.STR, f"a copy of {source.elem} to `{name}`, of {s.into.elem}")

    def matrices(self, s: LoadMatrices) -> None:
        name, elem = s.row.buffer.name, s.row.elem
        self.check(elem in FORMS and s.into.elem is elem, f"matrices of `{name}` are of {elem}, and go to {s.into.elem}")
        self.check(not s.transposed or elem.bytes == 2, f"matrices of `{name}` are of {elem} and transposed")
        self.check(s.row.buffer.space is Space.SHARED and s.row.guard is None, f"matrices of `{name}` lie in no shared memory")
        self.fragment(s.into, MATRICES * register_elements(elem))
        self.check(extents(s.row.buffer)[-1] * elem.bytes >= ROW_BYTES, f"`{name}` has no rows of {ROW_BYTES} bytes")

    def product(self, s: Mma) -> None:
        form = FORMS.get(s.a.elem)
        if form is None:
            self.check(False, f"there is no product of matrices of {s.a.elem}")
            return
        same = s.b.elem is s.a.elem and s.acc.elem is Elem.F32
        self.check(same, f"a product of matrices of {s.a.elem} and {s.b.elem} in {s.acc.elem}")
        for e, fragment in ((s.acc, form.c), (s.a, form.a), (s.b, form.b)):
            self.fragment(e, fragment.count)

    def fragment(self, e: Load, count: int) -> None:
        """What a thread has of a matrix."""
        name = e.buffer.name
        self.check(e.buffer.space is Space.LOCAL and e.guard is None and bool(e.indices), f"`{name}` is no local buffer with a matrix")
        self.check(max(map(self.of, e.indices)) <= Varies.WARPS, f"where the matrix in `{name}` lies varies in a warp")
        room = extents(e.buffer)[-1]
        fits = room >= count and room % count == 0 and is_multiple(e.indices[-1], count)
        self.check(fits, f"a matrix of {count} elements a thread does not lie in `{name}`")

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

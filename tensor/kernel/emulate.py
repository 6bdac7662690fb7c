"""A kernel for a GPU as one of plain loops: `emulated(kernel)`. Every backend of the CPU then runs it, and gives the same bits.

The program of a thread is cut where threads meet; each piece becomes a loop over the threads.

    thread t in 0..64 {                 for t1 in 0..64 {
      let v = x[i, t]                     let v = x[i, t1]
      row[t] = v                          kept1[t1] = v
      barrier                             row[t1] = v
      y[i, t] = row[63 - t] + v         }
    }                                   for t2 in 0..64 {
                                          let v1 = kept1[t2]
                                          y[i, t2] = row[63 - t2] + v1
                                        }

Loops and conditions around a barrier stay outside of the loops over threads; they do not vary in a block
(`tensor/kernel/grid.py`). What holds exchanges or matrices and no barrier becomes a loop over warps, which is cut at these
in the same way. For a product of matrices, whole matrices are made of what the lanes hold, and back. What lives from one piece to
another has an element for each thread. Shared buffers are local ones of the block, full of rubbish at first. Block loops are parallel.

Requires a verified kernel. `backward` lets threads run in the other order: a race then gives other results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from tlc.frontend.ops import DTYPES
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.grid import Grid, grids, is_gpu, syncs
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
    const,
    expressions,
    op,
    statements,
    subexpressions,
)
from tlc.tensor.kernel.matrices import FORMS, MATRICES, MEMBERS, ROW_BYTES, ROWS, Fragment, register_elements, total

PRICE = 64  # what a thread is taken to cost, in fused multiply-adds: blocks are shared out by this


def emulated(kernel: Kernel, backward: bool = False) -> Kernel:
    """The kernel as plain loops; one that is for no GPU as it is."""
    if not is_gpu(kernel):
        return kernel
    names = _Names(kernel)
    body: list[Stmt] = []
    for part in grids(kernel):
        body += [part] if isinstance(part, Let) else _Block(part, kernel, names, backward).loops()
    return replace(kernel, body=tuple(body))


class _Names:
    """Names that a kernel does not have yet."""

    def __init__(self, kernel: Kernel) -> None:
        self.taken = {p.name for p in kernel.parameters}
        for s in statements(kernel.body):
            match s:
                case For() | Let() | Exchange():
                    self.taken.add(s.var.name)
                case Declare():
                    self.taken.add(s.buffer.name)
                case _:
                    pass

    def fresh(self, base: str) -> str:
        stem = base.rstrip("0123456789") or base
        k = 1
        while f"{stem}{k}" in self.taken:
            k += 1
        self.taken.add(f"{stem}{k}")
        return f"{stem}{k}"


# ---------------------------------------------------------------- the pieces of a thread's program


@dataclass(frozen=True, eq=False)
class _Piece:
    """Statements in which no threads meet."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False)
class _Same:
    """A `let` of what does not vary in the block."""

    let: Let


@dataclass(frozen=True, eq=False)
class _Around:
    """A loop or a condition around pieces; of a loop `other` is empty."""

    head: For | If
    body: tuple[_Part, ...]
    other: tuple[_Part, ...] = ()


@dataclass(frozen=True, eq=False)
class _Warps:
    """What every warp does by itself."""

    body: tuple[_Part, ...]


_Part = _Piece | _Same | _Around | _Warps | Meeting


def _holds(s: Stmt, what: type[Stmt]) -> bool:
    return any(isinstance(x, what) for x in statements((s,)))


def _cut_block(body: Sequence[Stmt], same: set[str]) -> Iterator[_Part]:
    """The parts of a block's program, cut at barriers. `same` are the variables that do not vary in the block, to which it adds, and the
    inputs.
    """
    run: list[Stmt] = []

    def flush() -> Iterator[_Part]:
        if run:
            yield _Warps(tuple(_cut_warp(run))) if any(map(syncs, run)) else _Piece(tuple(run))
            run.clear()

    for s in body:
        match s:
            case Let() if _is_same(s.value, same):
                same.add(s.var.name)
                yield _Same(s)  # before what is in the run: it reads nothing that a thread stores
            case Barrier():
                yield from flush()
            case For() if _holds(s, Barrier):
                yield from flush()
                same.add(s.var.name)
                yield _Around(s, tuple(_cut_block(s.body, same)))
            case If() if _holds(s, Barrier):
                yield from flush()
                yield _Around(s, tuple(_cut_block(s.then, same)), tuple(_cut_block(s.other, same)))
            case _:
                run.append(s)
    yield from flush()


def _cut_warp(body: Sequence[Stmt]) -> Iterator[_Part]:
    """The parts of a warp's program, cut where its threads meet."""
    run: list[Stmt] = []
    for s in body:
        if not syncs(s):
            run.append(s)
            continue
        if run:
            yield _Piece(tuple(run))
            run = []
        match s:
            case For():
                yield _Around(s, tuple(_cut_warp(s.body)))
            case If():
                yield _Around(s, tuple(_cut_warp(s.then)), tuple(_cut_warp(s.other)))
            case _:
                assert isinstance(s, Meeting)
                yield s
    if run:
        yield _Piece(tuple(run))


def _is_same(e: Expr, same: set[str]) -> bool:
    """Whether an expression reads only inputs and variables that do not vary."""
    for x in subexpressions(e):
        match x:
            case Var() if x.name not in same:
                return False
            case Load() if x.buffer.name not in same:
                return False
            case Apply():
                return False
            case _:
                pass
    return True


# ---------------------------------------------------------------- one grid


class _Block:
    """The blocks of one grid."""

    def __init__(self, grid: Grid, kernel: Kernel, names: _Names, backward: bool) -> None:
        self.grid = grid
        self.kernel = kernel
        self.names = names
        self.backward = backward
        self.calls = bool(kernel.applied)  # into the host, which knows one thread
        self.threads = grid.threads
        self.t = grid.thread.var
        self.kept: dict[str, Buffer] = {}  # variables that live from piece to piece
        self.wide: dict[str, Buffer] = {}  # local buffers that do
        self.lane: dict[str, Expr] = {}  # what stands for variables of a thread, where a piece or the head of a warp's loop is written
        self.first: list[Stmt] = []  # what must stand before the statement that is written

    def loops(self) -> list[Stmt]:
        bound = {s.var.name for s in self.grid.before if isinstance(s, Let)} | {b.var.name for b in self.grid.blocks}
        inner = [x for x in statements((self.grid.thread,)) if isinstance(x, For | Let | Exchange)]
        own = {self.t.name, *(x.var.name for x in inner)}
        outside = {v.name for s in statements((self.grid.thread,)) for e in expressions(s) for v in _variables(e)} - own
        inputs = {p.name for p in self.kernel.inputs}
        parts = tuple(_cut_block(self.grid.thread.body, bound | outside | inputs))
        self.find_kept(parts)
        body: list[Stmt] = []
        for s in self.grid.before:
            if isinstance(s, Let):
                body.append(s)
            else:
                local = replace(s.buffer, space=Space.LOCAL)
                self.wide[s.buffer.name] = local
                body += [Declare(local), *self.spoiled(local)]
        body += map(Declare, (b for b in (*self.kept.values(), *self.wide.values()) if Declare(b) not in body))
        body += self.parts(parts)
        for k, b in reversed(list(enumerate(self.grid.blocks))):
            at_once = k == 0 and not self.calls
            work = self.price() if at_once else None
            body = [replace(b, body=tuple(body), kind=Kind.PARALLEL if at_once else Kind.SERIAL, work=work)]
        return body

    def price(self) -> Expr:
        """What an iteration of the outermost block loop costs."""
        total: Expr = const(self.threads * PRICE)
        for b in self.grid.blocks[1:]:
            if not any(v.name == self.grid.blocks[0].var.name for v in _variables(b.stop)):
                total = op("mul", b.stop, total)
        return total

    def spoiled(self, b: Buffer) -> list[Stmt]:
        """A buffer is filled with rubbish."""
        index = [Var(self.names.fresh("i")) for _ in b.shape]
        body: Stmt = Store(b, tuple(index), _rubbish(b.elem))
        for v, n in reversed(list(zip(index, b.shape, strict=True))):
            body = For(v, const(0), n, (body,))
        return [body]

    # ------------------------------------------------------------ what lives from piece to piece

    def find_kept(self, parts: tuple[_Part, ...]) -> None:
        """Name buffers for variables and local buffers that are used elsewhere than in the piece that makes them."""
        made: dict[str, tuple[_Part, Var | Buffer]] = {}
        pieces = list(_walk(parts))
        for part in pieces:
            match part:
                case _Piece():
                    for s in part.stmts:  # what is made further in is not seen outside
                        match s:
                            case Let():
                                made[s.var.name] = (part, s.var)
                            case Declare():
                                made[s.buffer.name] = (part, s.buffer)
                            case _:
                                pass
                case Exchange():
                    self.keep(part.var)
                case _:
                    pass
        for part in pieces:
            for name in _uses(part):
                home, what = made.get(name, (part, None))
                if home is part or what is None:
                    continue
                if isinstance(what, Var):
                    self.keep(what)
                elif name not in self.wide:
                    shape = (const(self.threads), *what.shape)
                    self.wide[name] = Buffer(self.names.fresh(what.name), what.elem, shape, Space.LOCAL)

    def keep(self, v: Var) -> None:
        if v.name not in self.kept:
            self.kept[v.name] = Buffer(self.names.fresh("kept"), v.elem, (const(self.threads),), Space.LOCAL)

    # ------------------------------------------------------------ writing

    def parts(self, parts: Sequence[_Part], warp: Expr | None = None) -> list[Stmt]:
        """`warp`: the first thread of the warp, in a loop over warps."""
        out: list[Stmt] = []
        for part in parts:
            match part:
                case _Piece():
                    out.append(self.piece(part, warp))
                case _Same():
                    out.append(part.let)
                case _Around(head=For() as head):
                    before, (start, stop) = self.head((head.start, head.stop), warp)
                    out += [*before, replace(head, start=start, stop=stop, body=tuple(self.parts(part.body, warp)), kind=Kind.SERIAL)]
                case _Around(head=If() as head):
                    before, (cond,) = self.head((head.cond,), warp)
                    out += [*before, If(cond, tuple(self.parts(part.body, warp)), tuple(self.parts(part.other, warp)))]
                case _Warps():
                    out.append(self.warps(part))
                case Exchange():
                    assert warp is not None
                    out += self.exchange(part, warp)
                case LoadMatrices():
                    assert warp is not None
                    out += self.load_matrices(part, warp)
                case Mma():
                    assert warp is not None
                    out += self.multiply(part, warp)
        return out

    def warps(self, part: _Warps) -> Stmt:
        w = Var(self.names.fresh("w"))
        count = self.threads // WARP
        number: Expr = op("sub", const(count - 1), w) if self.backward else w
        first = Var(self.names.fresh("first"))
        let = Let(first, op("mul", number, const(WARP)))
        return For(w, const(0), const(count), (let, *self.parts(part.body, first)))

    def head(self, exprs: Sequence[Expr], warp: Expr | None) -> tuple[list[Stmt], list[Expr]]:
        """The bounds or the condition of a loop over pieces: those of the first lane of a warp are those of all."""
        if warp is None:
            return [], list(exprs)
        before = self.enter(warp, [v.name for e in exprs for v in _variables(e)])
        done = list(map(self.expr, exprs))
        return [*before, *self.leave()], done

    def enter(self, thread: Expr, used: Iterable[str]) -> list[Stmt]:
        """Begin to write what one thread does: its variables that live longer are read."""
        self.lane = {self.t.name: thread}
        out: list[Stmt] = []
        for name in used:
            if name in self.kept and name not in self.lane:
                b = self.kept[name]
                v = Var(self.names.fresh(name), b.elem)
                out.append(Let(v, Load(b, (thread,))))
                self.lane[name] = v
        return out

    def leave(self) -> list[Stmt]:
        """End that; gives what must stand before what was written last."""
        self.lane = {}
        return self.take_first()

    def take_first(self) -> list[Stmt]:
        first, self.first = self.first, []
        return first

    def lanes(self, count: int, first: Expr | None) -> tuple[Var, Expr, list[Stmt]]:
        """A loop over threads: its variable, the thread, and the `let`s that make one of the other."""
        name = self.names.fresh(self.t.name)
        at = Var(name)
        if first is None and not self.backward:
            return at, at, []
        place: Expr = op("sub", const(count - 1), at) if self.backward else at
        thread = Var(self.names.fresh(self.t.name))
        return at, thread, [Let(thread, place if first is None else op("add", first, place))]

    def piece(self, part: _Piece, warp: Expr | None) -> Stmt:
        count = self.threads if warp is None else WARP
        at, thread, body = self.lanes(count, warp)
        own = {s.var.name for s in statements(part.stmts) if isinstance(s, For | Let | Exchange)}
        body += self.enter(thread, [name for name in _uses(part) if name not in own])
        for s in part.stmts:
            match s:
                case Declare() if s.buffer.name in self.wide:
                    continue
                case Let() if s.var.name in self.kept:
                    body += [*self.stmt(s), Store(self.kept[s.var.name], (thread,), s.var)]
                case _:
                    body += self.stmt(s)
        self.leave()
        return For(at, const(0), const(count), tuple(body))

    def exchange(self, s: Exchange, warp: Expr) -> list[Stmt]:
        given = Buffer(self.names.fresh("given"), s.value.elem, (const(WARP),), Space.LOCAL)
        at, thread, body = self.lanes(WARP, warp)
        body += self.enter(thread, [v.name for v in _variables(s.value)])
        value = self.expr(s.value)
        give = For(at, const(0), const(WARP), (*body, *self.leave(), Store(given, (op("sub", thread, warp),), value)))
        at, thread, body = self.lanes(WARP, warp)
        body += self.enter(thread, [v.name for v in _variables(s.lane)])
        lane, by = Var(self.names.fresh("lane")), Var(self.names.fresh("by"))
        reach = self.expr(s.lane)
        body += [*self.leave(), Let(lane, op("sub", thread, warp)), Let(by, reach)]
        source: Expr = by
        if s.how is How.XOR:
            source = op("xor", lane, by)
        elif s.how is How.DOWN:
            source = op("select", op("lt", op("add", lane, by), const(WARP)), op("add", lane, by), lane)
        there = Var(self.names.fresh("source"))
        body += [Let(there, source), Store(self.kept[s.var.name], (thread,), Load(given, (there,)))]
        return [Declare(given), give, For(at, const(0), const(WARP), tuple(body))]

    def load_matrices(self, s: LoadMatrices, warp: Expr) -> list[Stmt]:
        """The rows that the lanes name come together; then each lane takes its elements of them."""
        elem = s.row.elem
        rows = Buffer(self.names.fresh("rows"), elem, (const(WARP), const(ROW_BYTES // elem.bytes)), Space.LOCAL)
        at = Var(self.names.fresh("i"))

        def bring(lane: Expr) -> list[Stmt]:
            source, indices = self.place(s.row.buffer, s.row.indices)
            value = Load(source, (*indices[:-1], op("add", indices[-1], at)))
            return [For(at, const(0), rows.shape[1], (Store(rows, (lane, at), value),))]

        each = register_elements(elem)

        def take(lane: Expr) -> list[Stmt]:
            group, member = self.group_and_member(lane)
            out: list[Stmt] = [group, member]
            for matrix, k in product(range(MATRICES), range(each)):
                near = total([(each, member.var), (k, const(1))])
                row, column = (near, group.var) if s.transposed else (group.var, near)
                value = Load(rows, (total([(1, row), (ROWS * matrix, const(1))]), column))
                out.append(Store(*self.element(s.into, each * matrix + k), value))
            return out

        return [Declare(rows), self.each_lane(warp, s.row, bring), self.each_lane(warp, s.into, take)]

    def multiply(self, s: Mma, warp: Expr) -> list[Stmt]:
        """What the lanes hold becomes matrices, and the new accumulator what they hold."""
        form = FORMS[s.a.elem]
        parts = [(e, f, self.matrix(f)) for e, f in ((s.acc, form.c), (s.a, form.a), (s.b, form.b))]

        def cell(f: Fragment, k: int, group: Var, member: Var) -> tuple[Expr, ...]:
            return f.row.expr(group, member, f.bits(k)), f.column.expr(group, member, f.bits(k))

        def give(lane: Expr) -> list[Stmt]:
            group, member = self.group_and_member(lane)
            out: list[Stmt] = [group, member]
            for e, f, matrix in parts:
                for k in range(f.count):
                    value = Load(*self.element(e, k))
                    wide = value if value.elem is Elem.F32 else op("convert", value, elem=Elem.F32)
                    out.append(Store(matrix, cell(f, k, group.var, member.var), wide))
            return out

        def take(lane: Expr) -> list[Stmt]:
            group, member = self.group_and_member(lane)
            cells = [cell(form.c, k, group.var, member.var) for k in range(form.c.count)]
            return [group, member, *(Store(*self.element(s.acc, k), Load(z, c)) for k, c in enumerate(cells))]

        (_, _, z), (_, _, x), (_, _, y) = parts
        i, k, j = (Var(self.names.fresh(name)) for name in ("i", "k", "j"))
        step = Store(z, (i, j), op("fma", Load(x, (i, k)), Load(y, (k, j)), Load(z, (i, j))))
        width = form.c.extents[1]
        columns = For(j, const(0), const(width), (step,), Kind.VECTOR, width=width)
        chains = For(i, const(0), z.shape[0], (For(k, const(0), const(form.depth), (columns,)),))
        return [*(Declare(m) for _, _, m in parts), self.each_lane(warp, s.acc, give, s.a, s.b), chains, self.each_lane(warp, s.acc, take)]

    def matrix(self, f: Fragment) -> Buffer:
        return Buffer(self.names.fresh("matrix"), Elem.F32, tuple(map(const, f.extents)), Space.LOCAL)

    def each_lane(self, warp: Expr, e: Load, fill: Callable[[Expr], list[Stmt]], *others: Load) -> Stmt:
        """A loop over the lanes of a warp, in which the indices of some elements can be written; `fill` gets the lane."""
        at, thread, body = self.lanes(WARP, warp)
        body += self.enter(thread, [v.name for x in (e, *others) for i in x.indices for v in _variables(i)])
        lane = Var(self.names.fresh("lane"))
        inside = fill(lane)
        return For(at, const(0), const(WARP), (*body, *self.leave(), Let(lane, op("sub", thread, warp)), *inside))

    def group_and_member(self, lane: Expr) -> tuple[Let, Let]:
        group, member = Var(self.names.fresh("group")), Var(self.names.fresh("member"))
        return Let(group, op("floordiv", lane, const(MEMBERS))), Let(member, op("mod", lane, const(MEMBERS)))

    def element(self, e: Load, further: int) -> tuple[Buffer, tuple[Expr, ...]]:
        """The element of a thread that is so much further than the one named, along the last axis."""
        buffer, indices = self.place(e.buffer, e.indices)
        return buffer, (*indices[:-1], total([(1, indices[-1]), (further, const(1))]))

    # ------------------------------------------------------------ the same statements, of one thread

    def stmt(self, s: Stmt) -> list[Stmt]:
        new = s
        match s:
            case For():
                start, stop = self.expr(s.start), self.expr(s.stop)
                first = self.take_first()
                return [*first, replace(s, start=start, stop=stop, body=self.body(s.body))]
            case If():
                cond = self.expr(s.cond)
                first = self.take_first()
                return [*first, If(cond, self.body(s.then), self.body(s.other))]
            case Let():
                new = Let(s.var, self.expr(s.value))
            case Store():
                new = Store(*self.place(s.buffer, s.indices), self.expr(s.value))
            case CopyAsync():
                new = self.copy(s)
            case CommitCopies() | WaitCopies():
                return []
            case _:
                pass
        return [*self.take_first(), new]

    def copy(self, s: CopyAsync) -> Stmt:
        """All at once, which is lawful."""
        count = ROW_BYTES // s.into.elem.bytes
        lane = Var(self.names.fresh("l"))
        buffer, (*outer, last) = self.place(s.into.buffer, s.into.indices)
        *rows, first = map(self.expr, s.source.indices)
        guard = None if s.source.guard is None else self.expr(s.source.guard)
        value = Load(s.source.buffer, (*rows, op("add", first, lane)), guard)
        store = Store(buffer, (*outer, op("add", last, lane)), value)
        return For(lane, const(0), const(count), (store,), Kind.VECTOR, width=count)

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(new for s in body for new in self.stmt(s))

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        inner = list(map(self.expr, indices))
        if b.name not in self.wide:
            return b, tuple(inner)
        for k, e in enumerate(inner):  # indices of local buffers load nothing
            if any(isinstance(x, Load | Apply) for x in subexpressions(e)):
                found = Var(self.names.fresh("at"))
                self.first.append(Let(found, e))
                inner[k] = found
        return self.wide[b.name], tuple(inner) if b.space is Space.SHARED else (self.lane[self.t.name], *inner)

    def expr(self, e: Expr) -> Expr:
        match e:
            case Var():
                return self.lane.get(e.name, e)
            case Load():
                return Load(*self.place(e.buffer, e.indices), None if e.guard is None else self.expr(e.guard))
            case Apply():
                return replace(e, args=tuple(a if isinstance(a, Buffer) else self.expr(a) for a in e.args))
            case Op():
                return Op(e.op, e.elem, tuple(map(self.expr, e.args)))
            case Const():
                return e


# ---------------------------------------------------------------- what parts use


def _walk(parts: Iterable[_Part]) -> Iterator[_Part]:
    for part in parts:
        yield part
        match part:
            case _Around():
                yield from _walk(part.body)
                yield from _walk(part.other)
            case _Warps():
                yield from _walk(part.body)
            case _:
                pass


def _uses(part: _Part) -> list[str]:
    """Names of variables and buffers that a part itself reads or stores to, in order."""
    stmts: Sequence[Stmt] = ()
    exprs: list[Expr] = []
    match part:
        case _Piece():
            stmts = list(statements(part.stmts))
        case _Same():
            exprs = [part.let.value]
        case _Around(head=For() as head):
            exprs = [head.start, head.stop]
        case _Around(head=If() as head):
            exprs = [head.cond]
        case Exchange() | LoadMatrices() | Mma():
            exprs = list(expressions(part))
        case _:
            pass
    exprs += [e for s in stmts for e in expressions(s)]
    names = [s.buffer.name for s in stmts if isinstance(s, Store)]
    for e in exprs:
        for x in subexpressions(e):
            match x:
                case Var():
                    names.append(x.name)
                case Load():
                    names.append(x.buffer.name)
                case _:
                    pass
    return list(dict.fromkeys(names))


def _variables(e: Expr) -> Iterator[Var]:
    return (x for x in subexpressions(e) if isinstance(x, Var))


def _rubbish(elem: Elem) -> Const:
    """What shared memory holds at first: a value that nobody expects."""
    if elem.is_real:
        return Const(float("nan"), elem)
    return Const(True, elem) if elem is Elem.BOOL else Const(int(np.iinfo(DTYPES[elem]).max) - 5, elem)

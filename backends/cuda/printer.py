"""Prints kernels for a GPU as Python for numba.cuda that says what the schedule says: a function a grid.

    block i in 0..(n + 63) // 64         i = uint32(cuda.blockIdx.x), the innermost of the block loops
    thread t in 0..256                   t = uint32(cuda.threadIdx.x)
    shared s: f32[8, 128]                s = cuda.shared.array((8, 128), float32, alignment=16)
    for k in 0..n                        k = uint32(0), while k < n: .. (a range, where its length is known)
    local a: f32[8]                      a = cuda.local.array(8, float32); a variable, if it has one cell
    unroll k in 0..8                     `for k in range(8)`, which the compiler writes out; written out here, if it is large
    vector<4> l in 0..4                  the same, and where its accesses are neighbours and aligned, `load4` and `store4`
    mma c[r, 0] += a[r, 0] @ b[0]        mma_bf16(c, 4 * r, a, 8 * r, b, 0); so `ldmatrix`
    v = shuffle_xor(x, 16)               cuda.shfl_xor_sync(0xffffffff, x, 16)
    fma(x, y, z), x * y                  fmaf_rn(x, y, z), fmul_rn(x, y): reals round as they stand, nothing contracts

Global buffers are pointers, indexed by row-major positions (`backends/cuda/index.py`). Names and simplifications are those of the C
backend. A kernel has two forms, by the type of its indices: `wide`, for buffers of 2^31 elements and more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import frexp

from tlc.backends.c.words import LESS, Text, call
from tlc.backends.cuda import words
from tlc.backends.cuda.helpers import Helpers
from tlc.backends.cuda.index import Indices
from tlc.backends.cuda.intrinsics import INTRINSICS
from tlc.backends.cuda.procedure import Procedures
from tlc.backends.cuda.scalar import emit as emit_op
from tlc.backends.cuda.vectors import Wide, wide_accesses
from tlc.backends.cuda.words import MEMORY, VALUES, whole
from tlc.backends.kernel_text import KernelPrinter, is_variable, origin, zero
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.graph import ir as algebra
from tlc.tensor.kernel.grid import Grid, room
from tlc.tensor.kernel.ir import (
    WARP,
    Apply,
    Barrier,
    Buffer,
    CommitCopies,
    Const,
    CopyAsync,
    Copying,
    Exchange,
    Expr,
    For,
    How,
    If,
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
from tlc.tensor.kernel.text import print_expr

STATIC = 48 << 10  # bytes of shared memory that a block has without asking
_WRITTEN_OUT = 96  # statements that an unrolled loop may run before it is written out here: the compiler leaves larger ones
_SHORT = 16  # iterations of a loop that the compiler writes out by itself
_DIMENSIONS = ("x", "y", "z")  # of a grid, the innermost loop first
_SHUFFLES = {How.XOR: "shfl_xor_sync", How.DOWN: "shfl_down_sync", How.INDEX: "shfl_sync"}


@dataclass
class Printer(KernelPrinter):
    """Prints one grid of a kernel. `parameters` are numba's types of the kernel's parameters, pointers with a star."""

    helpers: Helpers
    procedures: Procedures
    name: str
    lets: tuple[Let, ...]
    grid: Grid
    wide: bool
    indices: Indices = field(init=False)
    lanes: dict[Expr, Text] = field(init=False, default_factory=dict)  # loads of a vector loop that are done before it
    stores: dict[int, str] = field(init=False, default_factory=dict)  # ids of those that are done behind it, and cells for them
    parameters: tuple[str, ...] = field(init=False, default=())
    dynamic: int = field(init=False, default=0)  # bytes of shared memory that a launch asks for: then shared buffers are parts of it,
    offsets: dict[str, int] = field(init=False, default_factory=dict)  # from these elements on, of their type
    pools: dict[str, str] = field(init=False, default_factory=dict)  # what it is called, by the type of its elements

    indent, true, false = "    ", words.literal(True, Elem.BOOL), words.literal(False, Elem.BOOL)

    def __post_init__(self) -> None:
        k = self.kernel
        self.count(statements((*self.grid.before, self.grid.thread)))
        self.indices = Indices(k.buffers, self.wide, self.plain, self.help, self.divide)
        self.names = words.names(frozenset(INTRINSICS))
        for p in k.parameters:
            self.env[p.name] = self.names.of(p.name)

    # ------------------------------------------------------------ the function

    def run(self) -> str:
        """The function. Raises `CompileError` for what cannot be on a GPU yet."""
        k = self.kernel
        if self.grid.bytes > STATIC:
            self.dynamic = self.grid.bytes
            at = 0
            for b in self.grid.shared:
                self.offsets[b.name] = at // b.elem.bytes
                at += room(b)
        self.parameters = (*(f"{MEMORY[b.elem]}*" for b in k.outputs), *(self.parameter(p) for p in k.inputs))
        later = Counter(x.name for s in self.lets for x in subexpressions(s.value) if isinstance(x, Var))
        self.uses.update(later)
        for s in self.lets:
            self.let(s)
        heading = self.heading()
        self.block(self.grid.blocks, self.grid.before)
        params = ", ".join(self.env[p.name] for p in k.parameters)
        top = [f"@cuda.jit(launch_bounds={self.grid.threads})", f"def {self.name}({params}):", *heading]
        return "\n".join([*top, *self.lines])

    def parameter(self, p: Buffer | Var) -> str:
        """The type of an input; a scalar becomes the value that it is."""
        name = self.env[p.name]
        if isinstance(p, Buffer):
            return f"{MEMORY[p.elem]}*"
        if p.elem is Elem.I64:
            small = not self.wide and p in self.indices.extents
            self.indices.scalar(p, name)
            self.indices.texts[self.indices.known[p.name]] = words.Small(name) if small else Text(name)
            return "uint32" if small else "int64"
        if VALUES[p.elem] != MEMORY[p.elem]:
            self.put(f"{name} = {self.helpers.loaded(Text(name), p.elem)}")
        return MEMORY[p.elem]

    def heading(self) -> list[str]:
        """What the function is, for people."""
        k = self.kernel
        shapes = [f"{self.env[b.name]}: {_shape(b)}" for b in k.buffers]
        extents = ", ".join(re.sub(r"int64\((\w+)\)", r"\1", str(self.indices.text(b.stop))) for b in reversed(self.grid.blocks))
        notes = [*origin(k.span, k.notes), f"grid ({extents}), {self.grid.threads} threads a block; {', '.join(shapes)}"]
        first, *rest = (n.replace("\\", "/").replace('"""', "'''") for n in notes)
        if not rest:
            return [f'    """{first}"""']
        return [f'    """{first}', *(f"    {line}" for line in rest), '    """']

    def block(self, blocks: Sequence[For], before: Sequence[Stmt]) -> None:
        """The block loops, then what all threads share, then the program of a thread."""
        if blocks:
            self.coordinate(blocks[0], f"cuda.blockIdx.{_DIMENSIONS[len(blocks) - 1]}", lambda: self.block(blocks[1:], before))
            return
        for s in before:
            self.statement(s)
        thread = self.grid.thread
        self.coordinate(thread, "cuda.threadIdx.x", lambda: self.body(thread.body))

    # ------------------------------------------------------------ statements

    def coordinate(self, s: For, text: str, inside: Callable[[], None]) -> None:
        """A variable of the hardware, and what is done for each of its values."""
        if self.trips(s) == 1 or not self.uses[s.var.name]:
            self.indices.constant(s.var, const(0))
            inside()
            return
        name = self.env[s.var.name] = self.names.of(s.var.name)
        with self.indices.loop(s, name):
            small = self.indices.fits(self.indices.known[s.var.name])
            if small:
                self.indices.make_small()
            self.put(f"{name} = {'uint32' if small else 'int64'}({text})")
            inside()

    def suite(self, body: tuple[Stmt, ...]) -> None:
        """What is indented behind a colon."""
        self.depth += 1
        lines = len(self.lines)
        self.body(body)
        if len(self.lines) == lines:
            self.put("pass")
        self.depth -= 1

    def meet(self, s: Barrier | Meeting | Copying) -> None:
        match s:
            case Barrier():
                self.put("cuda.syncthreads()")
            case Exchange():
                self.exchange(s)
            case LoadMatrices():
                name = "ldmatrix_trans" if s.transposed else "ldmatrix"
                self.put(str(self.helpers.intrinsic(name, *self.cell(s.into), *self.cell(s.row))))
            case Mma():
                self.put(str(self.helpers.intrinsic(f"mma_{s.a.elem}", *self.cell(s.acc), *self.cell(s.a), *self.cell(s.b))))
            case CopyAsync():
                self.copy(s)
            case CommitCopies():
                self.put(str(self.helpers.intrinsic("commit_copies")))
            case WaitCopies():
                self.put(str(self.helpers.intrinsic(f"wait_copies_{s.pending}")))

    def copy(self, s: CopyAsync) -> None:
        """Nothing is read where the guard does not hold."""
        size = Text("16")
        if s.source.guard is not None and not self.indices.holds(s.source.guard):
            size = words.choice(self.expr(s.source.guard), size, Text("0"))
        self.put(str(self.helpers.intrinsic("copy16", *self.cell(s.into), *self.cell(s.source), size)))

    def cell(self, e: Load) -> tuple[Text, Text]:
        """An array and a row-major position in it."""
        return Text(self.env[e.buffer.name]), self.position(e.buffer, e.indices)

    def position(self, b: Buffer, indices: tuple[Expr, ...]) -> Text:
        """The row-major position of an element in what its buffer is, or is a part of."""
        if offset := self.offsets.get(b.name):
            indices = (*indices[:-1], op("add", indices[-1], const(offset)))
        return self.indices.flat(indices, b.shape)

    def declare(self, b: Buffer, first: Const | None) -> None:
        """A variable begins with 0 where its first value is not known, so that it has its type."""
        if b.name in self.offsets:
            self.env[b.name] = self.pool(MEMORY[b.elem])
            return
        name = self.env[b.name] = self.names.of(b.name.rstrip("0123456789") or b.name)
        if is_variable(b):
            self.put(f"{name} = {self.typed(first or zero(b.elem))}")
            return
        extents = [str(e.value) for e in b.shape if isinstance(e, Const) and e.value != 1] or ["1"]
        shape = extents[0] if len(extents) == 1 else f"({', '.join(extents)})"
        aligned = ", alignment=16" if b.space is Space.SHARED else ""
        self.put(f"{name} = cuda.{b.space.value}.array({shape}, {MEMORY[b.elem]}{aligned})")

    def pool(self, kind: str) -> str:
        """The shared memory that the launch asks for, as elements of a type."""
        if kind not in self.pools:
            self.pools[kind] = self.names.of("shared")
            self.put(f"{self.pools[kind]} = cuda.shared.array(0, {kind}, alignment=16)")
        return self.pools[kind]

    def typed(self, c: Const) -> Text:
        """A constant that is the first value of a variable."""
        text = self.helpers.literal(c.value, c.elem)
        return self.helpers.cast(c.elem, text) if c.elem is Elem.I64 else text

    def loop(self, s: For) -> None:
        trips = self.trips(s)
        if trips == 0:
            return
        if trips == 1:
            self.at(s, s.start)
        elif s.kind is Kind.UNROLL and self.statements_run(s) > _WRITTEN_OUT:
            assert isinstance(s.start, Const) and isinstance(s.stop, Const)
            for k in range(int(s.start.value), int(s.stop.value), s.step):
                self.put(f"# {s.var.name} = {k}")
                self.at(s, const(k))
        elif s.kind is Kind.VECTOR and trips is not None and self.vectors(s, trips):
            pass
        else:
            self.plain_loop(s, trips)

    def at(self, s: For, value: Expr) -> None:
        """The body of a loop, for one value of its variable. What it declares is declared anew each time."""
        self.indices.constant(s.var, value)
        taken = set(self.names.taken)
        self.body(s.body)
        self.names.taken = taken

    def plain_loop(self, s: For, trips: int | None) -> None:
        """A loop over a range. Where that is not constant, the compiler sees through a `while` better."""
        name = self.env[s.var.name] = self.names.of_loop(s.var.name)
        start, stop = self.indices.text(s.start), self.indices.text(s.stop)
        if trips is None:
            self.while_loop(s, name, start, stop)
        else:
            ends = [stop] if start.text == "0" and s.step == 1 else [start, stop]
            steps = [Text(str(s.step))] if s.step != 1 else []
            self.put(f"for {name} in {call('range', *ends, *steps)}:")
            with self.indices.loop(s, name):
                if trips > _SHORT and self.indices.fits(self.indices.known[s.var.name]) and _wants_small(s):
                    self.indices.make_small()
                    self.put(f"    {name} = uint32({name})")
                self.suite(s.body)
        self.names.taken.discard(name)

    def while_loop(self, s: For, name: str, start: Text, stop: Text) -> None:
        if any(isinstance(e, Load | Apply) for e in subexpressions(s.stop)):  # its value is that before the loop
            end = self.names.of(f"{name}_end")
            self.put(f"{end} = {stop}")
            stop = Text(end)
        with self.indices.loop(s, name):
            value = self.indices.known[s.var.name]
            small = self.indices.fits(value) and (self.indices.most(value) or 0) + s.step < 1 << 32
            kind = "uint32" if small else "int64"
            if small:
                self.indices.make_small()
            self.put(f"{name} = {start if small and isinstance(start, words.Small) else call(kind, start)}")
            self.put(f"while {words.infix(Text(name), '<', stop, LESS)}:")
            self.suite(s.body)
            self.put(f"    {name} = {kind}({name} + {s.step})")

    def statements_run(self, s: Stmt) -> int:
        """How many statements a loop runs that is written out with all short loops in it."""
        match s:
            case For():
                trips = self.trips_alone(s)
                inner = sum(map(self.statements_run, s.body))
                return inner * trips if trips is not None and trips <= _SHORT else inner + 1
            case If():
                return 1 + sum(map(self.statements_run, (*s.then, *s.other)))
            case _:
                return 1

    def trips_alone(self, s: For) -> int | None:
        if isinstance(s.start, Const) and isinstance(s.stop, Const):
            return -(-max(int(s.stop.value) - int(s.start.value), 0) // s.step)
        return s.width if s.kind is Kind.VECTOR else None

    def let(self, s: Let) -> None:
        used = self.uses[s.var.name]
        if s.var.elem is Elem.I64 and self.is_position(s):
            value = self.indices.simple(s.value)
            text = self.indices.print(value)
            if not used or isinstance(s.value, Const | Var) or text.text.isalnum():  # an unused one may be the extent of a block loop
                self.indices.known[s.var.name] = value
                return
            name = self.env[s.var.name] = self.names.of(s.var.name)
            if self.indices.define(s.var, name, value):
                text = call("uint32", text)
            self.put(f"{name} = {text}")
            return
        if not used:
            return
        if s.var.elem is Elem.BOOL:
            self.indices.conditions[s.var.name] = s.value
        value_text = whole(self.expr(self.wholly(s.value)))
        name = self.env[s.var.name] = self.names.of(s.var.name)
        self.put(self.definition(name, s.var.elem, value_text))
        if s.var.elem is Elem.I64:
            self.indices.scalar(s.var, name)

    def definition(self, name: str, elem: Elem, value: Text) -> str:
        return f"{name} = {value}"

    def exchange(self, s: Exchange) -> None:
        """numba exchanges signed integers and reals."""
        signed = {Elem.U32: Elem.I32, Elem.KEY: Elem.I64}.get(s.value.elem)
        value = self.expr(s.value)
        value = whole(value) if signed is None else self.helpers.cast(signed, value)
        mask = Text(hex((1 << WARP) - 1))
        text = call(f"cuda.{_SHUFFLES[s.how]}", mask, value, self.indices.text(s.lane))
        name = self.env[s.var.name] = self.names.of(s.var.name)
        self.put(f"{name} = {text if signed is None else self.helpers.cast(s.value.elem, text)}")
        if s.var.elem is Elem.I64:
            self.indices.scalar(s.var, name)

    def store(self, s: Store) -> None:
        if id(s) in self.begun:
            return
        if id(s) in self.stores:
            place = Text(self.stores[id(s)])
        else:
            place = self.place(s.buffer, s.indices)
        value = whole(self.expr(self.wholly(s.value)))
        self.put(f"{place} = {value if is_variable(s.buffer) else self.helpers.stored(value, s.buffer.elem)}")

    def conditional(self, s: If) -> None:
        cond = self.true if self.indices.holds(s.cond) else self.expr(s.cond)
        if cond in (self.true, self.false):
            self.body(s.then if cond == self.true else s.other)
            return
        self.put(f"if {cond}:")
        with self.indices.given(s.cond):
            self.suite(s.then)
        if s.other:
            self.put("else:")
            self.suite(s.other)

    # ------------------------------------------------------------ vectors

    def vectors(self, s: For, trips: int) -> bool:
        """A vector loop with wide accesses, if it has some; gives whether it has."""
        found = wide_accesses(s, trips, self.indices)
        if found is None:
            return False
        for first in range(0, trips, found.count):
            start = op("add", s.start, const(first))
            self.vector(replace(s, start=start, stop=op("add", start, const(found.count)), width=found.count), found)
        return True

    def vector(self, s: For, found: Wide) -> None:
        """As many lanes as an access has; its position is that of the first one."""
        count = found.count
        before, taken = self.lanes, set(self.names.taken)
        start = self.indices.simple(s.start)
        self.indices.known[s.var.name] = start
        name = self.names.of_loop(s.var.name)
        lane = Text(f"[{name}]")
        self.lanes = dict(before)
        for e in found.loads:
            array = self.names.of(f"{e.buffer.name}_{count}")
            at = self.position(e.buffer, e.indices)
            self.put(f"{array} = {self.helpers.intrinsic(f'load{count}', Text(self.env[e.buffer.name]), at)}")
            self.lanes[e] = self.helpers.loaded(Text(f"{array}{lane}"), e.buffer.elem)
        behind = []
        for x in found.stores:
            array = self.names.of(f"{x.buffer.name}_{count}")
            cells = [f"{array}[{k}]" for k in range(count)]
            at = self.position(x.buffer, x.indices)
            values = Text(f"({', '.join(cells)})")
            behind.append(self.helpers.intrinsic(f"store{count}", Text(self.env[x.buffer.name]), at, values))
            self.put(f"{array} = cuda.local.array({count}, {MEMORY[x.buffer.elem]})")
            self.stores[id(x)] = f"{array}{lane}"
        self.put(f"for {name} in range({count}):")
        counter = Var(f"{s.var.name}.lane")
        with self.indices.loop(For(counter, const(0), const(count), ()), name):
            self.indices.known[s.var.name] = algebra.op("add", start, self.indices.known[counter.name])
            self.suite(s.body)
        for text in behind:
            self.put(str(text))
        self.lanes, self.names.taken = before, taken

    # ------------------------------------------------------------ expressions

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> Text:
        """A cell of a buffer."""
        name = self.env[b.name]
        if b.space is Space.GLOBAL or b.name in self.offsets:
            return Text(f"{name}[{self.position(b, indices)}]")
        if is_variable(b):
            return Text(name)
        at = [str(self.indices.text(i)) for i, e in zip(indices, b.shape, strict=True) if not isinstance(e, Const) or e.value != 1]
        return Text(f"{name}[{', '.join(at) or '0'}]")

    def literal(self, value: object, elem: Elem) -> Text:
        return self.helpers.literal(value, elem)

    def plain(self, e: Expr) -> Text:
        return self.lanes[e] if isinstance(e, Load) and e in self.lanes else super().plain(_multiplied(e))

    def load(self, e: Load) -> Text:
        cell = self.place(e.buffer, e.indices)
        return cell if is_variable(e.buffer) else self.helpers.loaded(cell, e.elem)

    def emit(self, op: str, elem: Elem, operands: tuple[tuple[Text, Elem], ...]) -> Text:
        return emit_op(self.helpers, op, elem, operands)

    def apply(self, e: Apply) -> Text:
        return call(self.procedures.name(e.function, self.kernel.span), *map(whole, self.arguments(e)))

    def divide(self, name: str, a: Text, b: Text) -> Text:
        """A quotient or remainder of `uint32`s."""
        both = (x if isinstance(x, words.Small) else self.helpers.cast(Elem.U32, x) for x in (a, b))
        return call(self.helpers.use(name, Elem.U32), *both)


def _multiplied(e: Expr) -> Expr:
    """A quotient by a power of two as a product, which is the same number: the compiler does not see it through `fdiv_rn`."""
    match e:
        case Op("div", Elem.F32 | Elem.F64, (a, Const(float(by)))) if abs(frexp(by)[0]) == 0.5 and 2.0**-64 <= abs(by) <= 2.0**64:
            return Op("mul", e.elem, (a, Const(1.0 / by, e.elem)))
    return e


def _wants_small(s: For) -> bool:
    """Shared or local memory is indexed with the variable of a loop, or with what is computed of it, or that is divided."""
    derived = {s.var.name}

    def reads(e: Expr) -> bool:
        return any(isinstance(x, Var) and x.name in derived for x in subexpressions(e))

    for x in statements(s.body):
        if isinstance(x, Let) and x.var.elem is Elem.I64 and reads(x.value):
            derived.add(x.var.name)
        if isinstance(x, Store) and x.buffer.space is not Space.GLOBAL and any(map(reads, x.indices)):
            return True
        for root in expressions(x):
            for e in subexpressions(root):
                match e:
                    case Load() if e.buffer.space is not Space.GLOBAL and any(map(reads, e.indices)):
                        return True
                    case Op("floordiv" | "mod", Elem.I64) if any(map(reads, e.args)):
                        return True
    return False


def _shape(b: Buffer) -> str:
    return f"{b.elem}[{', '.join(map(print_expr, b.shape))}]" if b.shape else str(b.elem)

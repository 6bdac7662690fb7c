"""Prints kernels for a GPU as Python for numba.cuda that says what the schedule says: a function a grid.

    block i in 0..(n + 63) // 64         i = uint32(cuda.blockIdx.x), the innermost of the block loops
    thread t in 0..256                   t = uint32(cuda.threadIdx.x)
    shared s: f32[8, 128]                s = cuda.shared.array((8, 128), float32, alignment=16)
    for k in 0..n                        k = uint32(0), while k < n: .. (a range, where its length is known)
    local a: f32[8]                      a = cuda.local.array(8, float32); a variable, if it has one cell
    unroll k in 0..8                     `for k in range(8)`, which the compiler writes out; written out here, if it is large
    vector<4> l in 0..4                  the same, and where its accesses are neighbours and aligned, `load4` and `store4`
    v = shuffle_xor(x, 16)               cuda.shfl_xor_sync(0xffffffff, x, 16)
    fma(x, y, z), x * y                  fmaf_rn(x, y, z), fmul_rn(x, y): reals round as they stand, nothing contracts

Global buffers are pointers, indexed by row-major positions (`backends/cuda/index.py`). Names and simplifications are those of the C
backend. A kernel has two forms, by the type of its indices: `wide`, for buffers of 2^31 elements and more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tlc.backends.c.kernel import origin
from tlc.backends.c.words import LESS, Names, Text, call
from tlc.backends.cuda import words
from tlc.backends.cuda.helpers import Helpers
from tlc.backends.cuda.index import Indices
from tlc.backends.cuda.intrinsics import INTRINSICS
from tlc.backends.cuda.procedure import Procedures
from tlc.backends.cuda.scalar import emit as emit_op
from tlc.backends.cuda.vectors import Wide, wide_accesses
from tlc.backends.cuda.words import MEMORY, VALUES, choice, whole
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.types import Elem
from tlc.tensor.graph import ir as algebra
from tlc.tensor.kernel.calls import expressions
from tlc.tensor.kernel.grid import Grid
from tlc.tensor.kernel.ir import (
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
    op,
    statements,
    subexpressions,
)
from tlc.tensor.kernel.text import print_expr

SHARED = 48 << 10  # bytes of shared memory that a block has without asking
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_INDEX = ("add", "sub", "mul", "neg", "floordiv", "mod", "min", "max")
_LONG = 110  # a part of an expression that gets a name, for people
_WRITTEN_OUT = 96  # statements that an unrolled loop may run before it is written out here: the compiler leaves larger ones
_SHORT = 16  # iterations of a loop that the compiler writes out by itself
_DIMENSIONS = ("x", "y", "z")  # of a grid, the innermost loop first
_SHUFFLES = {How.XOR: "shfl_xor_sync", How.DOWN: "shfl_down_sync", How.INDEX: "shfl_sync"}
TRUE, FALSE = words.literal(True, Elem.BOOL), words.literal(False, Elem.BOOL)


@dataclass
class Printer:
    """Prints one grid of a kernel. `parameters` are numba's types of the kernel's parameters, pointers with a star."""

    kernel: Kernel
    helpers: Helpers
    procedures: Procedures
    name: str
    lets: tuple[Let, ...]
    grid: Grid
    wide: bool
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    names: Names = field(default_factory=lambda: words.names(frozenset(INTRINSICS)))
    env: dict[str, str] = field(default_factory=dict)  # what variables and buffers are called in Python
    standing: dict[str, Expr] = field(default_factory=dict)  # variables whose value stands where they are read
    begun: set[int] = field(default_factory=set)  # ids of stores that are done by a declaration
    hoisted: dict[Expr, Text] = field(default_factory=dict)  # parts of long expressions that stand before the current statement
    lanes: dict[Expr, Text] = field(default_factory=dict)  # loads of a vector loop that are done before it
    stores: dict[int, str] = field(default_factory=dict)  # ids of stores of a vector loop that are done behind it, and arrays for them
    whole: Expr | None = None
    lazy: int = 0  # choices around, one side of which is not evaluated
    parameters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        k = self.kernel
        program = statements((*self.grid.before, self.grid.thread))
        read = (x for s in program for e in expressions(s) for x in subexpressions(e) if isinstance(x, Var))
        self.uses = Counter(x.name for x in read)
        buffers = [*k.outputs, *(p for p in k.inputs if isinstance(p, Buffer))]
        self.indices = Indices(buffers, self.wide, self.plain, self.help, self.divide)
        for p in (*k.outputs, *k.inputs):
            self.env[p.name] = self.names.of(p.name)

    # ------------------------------------------------------------ the function

    def run(self) -> str:
        """The function. Raises `CompileError` for what cannot be on a GPU yet."""
        k = self.kernel
        shared = sum(b.elem.bytes * prod(int(e.value) for e in b.shape if isinstance(e, Const)) for b in self.grid.shared)
        if shared > SHARED:
            raise InternalError(f"{shared} bytes of shared memory, and a block has {SHARED}", f"kernel {k.name}")
        self.parameters = (*(f"{MEMORY[b.elem]}*" for b in k.outputs), *(self.parameter(p) for p in k.inputs))
        later = Counter(x.name for s in self.lets for x in subexpressions(s.value) if isinstance(x, Var))
        self.uses.update(later)
        for s in self.lets:
            self.let(s)
        heading = self.heading()
        self.block(self.grid.blocks, self.grid.before)
        params = ", ".join(self.env[p.name] for p in (*k.outputs, *k.inputs))
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
        shapes = [f"{self.env[b.name]}: {_shape(b)}" for b in (*k.outputs, *(p for p in k.inputs if isinstance(p, Buffer)))]
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

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

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

    def body(self, body: tuple[Stmt, ...]) -> None:
        for k, s in enumerate(body):
            self.hoisted = {}
            if isinstance(s, Let) and s.var.elem is not Elem.I64 and self.is_next(s.var, body[k + 1 :]):
                self.standing[s.var.name] = s.value
            elif isinstance(s, Declare):
                self.declare(s.buffer, next(self.flat(body[k + 1 :]), None))
            else:
                self.statement(s)

    def suite(self, body: tuple[Stmt, ...]) -> None:
        """What is indented behind a colon."""
        self.depth += 1
        lines = len(self.lines)
        self.body(body)
        if len(self.lines) == lines:
            self.put("pass")
        self.depth -= 1

    def is_next(self, var: Var, following: tuple[Stmt, ...]) -> bool:
        """A variable is read once, by what stands behind it with nothing stored in between: then its value can stand there."""
        if self.uses[var.name] != 1:
            return False
        for s in self.flat(following):
            if not isinstance(s, Let | Store | Exchange):
                return False
            if any(x == var for e in expressions(s) for x in subexpressions(e)):
                return True
            if not isinstance(s, Let):
                return False
        return False

    def flat(self, body: tuple[Stmt, ...]) -> Iterator[Stmt]:
        """Statements, those in loops that run once among them."""
        for s in body:
            if isinstance(s, For) and self.trips(s) == 1:
                yield from self.flat(s.body)
            else:
                yield s

    def statement(self, s: Stmt) -> None:
        match s:
            case For():
                self.loop(s)
            case Let():
                self.let(s)
            case Store():
                self.store(s)
            case If():
                self.conditional(s)
            case Declare():
                self.declare(s.buffer, None)
            case Barrier():
                self.put("cuda.syncthreads()")
            case Exchange():
                self.exchange(s)

    def declare(self, b: Buffer, following: Stmt | None) -> None:
        """A local or shared buffer; a single local cell is a variable, which begins with what is stored to it first, if that is known."""
        name = self.env[b.name] = self.names.of(b.name.rstrip("0123456789") or b.name)
        if _is_variable(b):
            first = _zero(b.elem)
            if isinstance(following, Store) and following.buffer == b and isinstance(following.value, Const):
                self.begun.add(id(following))
                first = following.value
            self.put(f"{name} = {self.typed(first)}")
            return
        extents = [str(e.value) for e in b.shape if isinstance(e, Const) and e.value != 1] or ["1"]
        shape = extents[0] if len(extents) == 1 else f"({', '.join(extents)})"
        aligned = ", alignment=16" if b.space is Space.SHARED else ""
        self.put(f"{name} = cuda.{b.space.value}.array({shape}, {MEMORY[b.elem]}{aligned})")

    def typed(self, c: Const) -> Text:
        """A constant that is the first value of a variable."""
        text = self.helpers.literal(c.value, c.elem)
        return self.helpers.cast(c.elem, text) if c.elem is Elem.I64 else text

    def trips(self, s: For) -> int | None:
        """How often a loop runs, if that is known."""
        length = self.indices.simple(Op("sub", Elem.I64, (s.stop, s.start))).value
        return None if length is None else -(-max(length, 0) // s.step)

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
        self.put(f"{name} = {value_text}")
        if s.var.elem is Elem.I64:
            self.indices.scalar(s.var, name)

    def is_position(self, s: Let) -> bool:
        """Plain index arithmetic."""
        plain = all(isinstance(x, Var | Const) or (isinstance(x, Op) and x.op in _INDEX) for x in subexpressions(s.value))
        return plain and self.indices.is_safe(s.value)

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
        self.put(f"{place} = {value if _is_variable(s.buffer) else self.helpers.stored(value, s.buffer.elem)}")

    def conditional(self, s: If) -> None:
        cond = TRUE if self.indices.holds(s.cond) else self.expr(s.cond)
        if cond in (TRUE, FALSE):
            self.body(s.then if cond == TRUE else s.other)
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
            at = self.indices.flat(e.indices, e.buffer.shape)
            self.put(f"{array} = {self.helpers.intrinsic(f'load{count}', Text(self.env[e.buffer.name]), at)}")
            self.lanes[e] = self.helpers.loaded(Text(f"{array}{lane}"), e.buffer.elem)
        behind = []
        for x in found.stores:
            array = self.names.of(f"{x.buffer.name}_{count}")
            cells = [f"{array}[{k}]" for k in range(count)]
            at = self.indices.flat(x.indices, x.buffer.shape)
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
        if b.space is Space.GLOBAL:
            return Text(f"{name}[{self.indices.flat(indices, b.shape)}]")
        if _is_variable(b):
            return Text(name)
        at = [str(self.indices.text(i)) for i, e in zip(indices, b.shape, strict=True) if not isinstance(e, Const) or e.value != 1]
        return Text(f"{name}[{', '.join(at) or '0'}]")

    def wholly(self, e: Expr) -> Expr:
        """What stands in a line of its own anyway."""
        self.whole = e
        return e

    def expr(self, e: Expr) -> Text:
        match e:
            case Var() if e.elem is Elem.I64:
                return self.indices.text(e)
            case Op() if e.elem is Elem.I64 and e.op in _INDEX and self.indices.is_safe(e):
                return self.indices.text(e)
            case Op() if e.op in _COMPARISONS and e.args[0].elem is Elem.I64:
                return self.indices.comparison(e.op, *e.args) or self.op(e)
            case Op("and" | "or", Elem.BOOL, (a, b)):
                return self.logic(e, a, b)
            case _:
                return self.plain(e)

    def plain(self, e: Expr) -> Text:
        """What is no index arithmetic."""
        match e:
            case Const():
                return self.helpers.literal(e.value, e.elem)
            case Var():
                return self.expr(self.standing[e.name]) if e.name in self.standing else Text(self.env[e.name])
            case Load() if e in self.lanes:
                return self.lanes[e]
            case Load() if e.guard is not None:
                return self.choice(e, e.guard, Load(e.buffer, e.indices), _zero(e.elem))
            case Load():
                cell = self.place(e.buffer, e.indices)
                return cell if _is_variable(e.buffer) else self.helpers.loaded(cell, e.elem)
            case Apply():
                return self.apply(e)
            case Op("select", _, (cond, a, b)):
                return self.choice(e, cond, a, b)
            case Op():
                return self.op(e)

    def apply(self, e: Apply) -> Text:
        args: list[Text] = []
        for a in e.args:
            if isinstance(a, Buffer):
                args += [Text(self.env[a.name]), *(whole(self.indices.text(n)) for n in a.shape)]
            else:
                args.append(whole(self.expr(a)))
        return call(self.procedures.name(e.function, self.kernel.span), *args)

    def op(self, e: Op) -> Text:
        text = emit_op(self.helpers, e.op, e.elem, tuple((self.expr(a), a.elem) for a in e.args))
        if len(text.text) <= _LONG or e is self.whole or (self.lazy and not _is_harmless(e)):
            return text
        if e not in self.hoisted:
            name = self.names.of("part")
            self.put(f"{name} = {text}")
            self.hoisted[e] = Text(name)
        return self.hoisted[e]

    def choice(self, e: Op | Load, cond: Expr, a: Expr, b: Expr) -> Text:
        c = TRUE if self.indices.holds(cond) else self.expr(cond)
        if c == FALSE:
            return self.expr(b)
        self.lazy += 1
        with self.indices.given(cond):
            then = self.expr(a)
        self.lazy -= 1
        return then if c == TRUE else choice(c, whole(then), whole(self.expr(b)))

    def logic(self, e: Op, a: Expr, b: Expr) -> Text:
        x = self.expr(a)
        self.lazy += 1
        with self.indices.given(a if e.op == "and" else Const(True, Elem.BOOL)):
            y = self.expr(b)
        self.lazy -= 1
        unit, zero = (TRUE, FALSE) if e.op == "and" else (FALSE, TRUE)
        if zero in (x, y):
            return zero
        if unit in (x, y):
            return y if x == unit else x
        return emit_op(self.helpers, e.op, Elem.BOOL, ((x, Elem.BOOL), (y, Elem.BOOL)))

    def help(self, name: str, args: Sequence[Text]) -> Text:
        return emit_op(self.helpers, name, Elem.I64, tuple((a, Elem.I64) for a in args))

    def divide(self, name: str, a: Text, b: Text) -> Text:
        """A quotient or remainder of `uint32`s."""
        both = (x if isinstance(x, words.Small) else self.helpers.cast(Elem.U32, x) for x in (a, b))
        return call(self.helpers.use(name, Elem.U32), *both)


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


def _is_variable(b: Buffer) -> bool:
    """A local buffer of one cell."""
    return b.space is Space.LOCAL and all(isinstance(e, Const) and e.value == 1 for e in b.shape)


def _zero(elem: Elem) -> Const:
    return Const(False if elem is Elem.BOOL else 0.0 if elem.is_real else 0, elem)


def _is_harmless(e: Expr) -> bool:
    """An expression may be evaluated where its value is not wanted."""
    return not any(isinstance(x, Load | Apply) or (isinstance(x, Op) and x.op in ("floordiv", "mod")) for x in subexpressions(e))


def _shape(b: Buffer) -> str:
    return f"{b.elem}[{', '.join(map(print_expr, b.shape))}]" if b.shape else str(b.elem)

"""Prints a kernel as LLVM IR: its loops. `backends/llvm/expressions.py` has the expressions, `backends/llvm/accesses.py` loads and stores.

What the schedule says is what is printed; LLVM only allocates registers and selects instructions.

- A `vector` loop disappears: its body becomes code on vectors of its width. A loop that cannot be vector code (a call that varies with
  the lane, a store that does not) is printed as a scalar loop: the meaning is the same.
- Where the extent is only known at run time, the code around is printed twice: full vectors without masks, and the
  tail with masks. The choice is made as soon as both ends are known, outside of the loops within.
- Local buffers are stack slots with constant addresses, which `sroa` turns into (vector) registers and phis. One that is
  declared inside a vector loop has a copy for each lane.
- A parallel loop becomes a function of its own, which runs some of the iterations; the pool (`backends/llvm/pool.py`) calls it, on
  as many threads as there are. What is known before the loop is computed again in it, so only the kernel's parameters are passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from enum import Enum
from functools import partial
from math import gcd

from tlc.backends.llvm.abi import kernel_symbol
from tlc.backends.llvm.accesses import Accesses, readers_of
from tlc.backends.llvm.expressions import Memory, NotVectorError, Vector
from tlc.backends.llvm.launch import print_launch
from tlc.backends.llvm.scalar import register, storage
from tlc.backends.llvm.values import Linear, Value, Word
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.grid import is_gpu
from tlc.tensor.kernel.ir import (
    Apply,
    Buffer,
    Const,
    Declare,
    Expr,
    For,
    If,
    Kernel,
    Kind,
    Let,
    Load,
    Op,
    Stmt,
    Store,
    Var,
    const,
    expressions,
    statements,
    subexpressions,
)

VERSIONS = 2  # at most this many tails are decided for all the code around them (the code doubles with each)


class Active(Enum):
    """How many lanes of a vector loop run."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


Tail = tuple[Expr, Expr, int]  # start, stop and width of a vector loop


def print_kernel(kernel: Kernel) -> str:
    """The definition of one kernel. Functions that it applies must be declared or defined in the same module."""
    return print_launch(kernel) if is_gpu(kernel) else _Printer(kernel).run()


def _ready(e: Expr, env: dict[str, Value]) -> bool:
    """All variables of an expression are known, and it reads no memory."""
    return all(not isinstance(x, Load | Apply) and (not isinstance(x, Var) or x.name in env) for x in subexpressions(e))


def _tails(s: Stmt) -> list[Tail]:
    """The vector loops in a statement, itself included, whose length may only be known at run time. What is in a parallel loop is left out:
    it becomes a function of its own.
    """
    match s:
        case For(kind=Kind.VECTOR) if not (isinstance(s.start, Const) and isinstance(s.stop, Const)):
            return [(s.start, s.stop, s.width), *(tail for inner in s.body for tail in _tails(inner))]
        case For() if s.kind is not Kind.PARALLEL:
            return [tail for inner in s.body for tail in _tails(inner)]
        case If():
            return [tail for inner in (*s.then, *s.other) for tail in _tails(inner)]
        case _:
            return []


def _needed(s: For, before: list[Let]) -> list[Let]:
    """Those of the bindings, in order, on which a loop depends."""
    if not before:
        return []
    names = {x.name for t in statements((s,)) for root in expressions(t) for x in subexpressions(root) if isinstance(x, Var)}
    needed = []
    for let in reversed(before):
        if let.var.name in names:
            needed.append(let)
            names |= {x.name for x in subexpressions(let.value) if isinstance(x, Var)}
    return needed[::-1]


@dataclass
class _Printer(Accesses):
    decided: dict[Tail, Active] = field(default_factory=dict)
    positive: set[Expr] = field(default_factory=set)  # what is known to be greater than zero
    before: list[Let] = field(default_factory=list)  # what was bound so far around the place that is printed
    parts: list[str] = field(default_factory=list)  # the functions of parallel loops
    tails: dict[int, tuple[Stmt, list[Tail]]] = field(default_factory=dict)  # by the `id` of a statement, which so stays alive

    # ------------------------------------------------------------ the function

    def run(self) -> str:
        params = self.parameters()
        self.readers = readers_of(self.kernel.body, None, {})
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
        for k, p in enumerate(self.kernel.parameters):
            n = len(self.kernel.outputs)
            if isinstance(p, Var):
                params.append(f"{register(p.elem)} %p{k}")
                self.env[p.name] = Linear(((f"%p{k}", 1),)) if p.elem is Elem.I64 else Word(f"%p{k}", p.elem)
            else:
                shared = k in aliased_out if k < n else k - n in aliased_in
                params.append(f"ptr {'' if shared else 'noalias '}%p{k}")
                self.memory[p.name] = Memory(f"%p{k}", fixed=k >= n and not shared)
        return params

    # ------------------------------------------------------------ parallel loops

    def parallel(self, s: For) -> None:
        """Ask the pool to run the iterations; their code is a function that gets the kernel's parameters through memory."""
        assert s.work is not None
        name = f"k.{self.kernel.name}.{len(self.parts)}"
        part = _Printer(self.kernel, positive=set(self.positive), bound=dict(self.bound), readers=self.readers)
        params = part.parameters()
        types = ["ptr" if p.startswith("ptr") else p.split()[0] for p in params]
        names = [p.split()[-1] for p in params]
        env = self.code.alloca(f"[{len(params)} x i64]")
        for k, (type, value) in enumerate(zip(types, names, strict=True)):
            self.code.put(f"store {type} {value}, ptr {self.code.ins(f'getelementptr i8, ptr {env}, i64 {8 * k}')}")
        trips = self.linear(s.stop).minus(self.linear(s.start))
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
        end = self.word(start.plus(Linear((("%last", s.step),)))).text
        self.env["%first"] = start.plus(Linear((("%first", s.step),)))
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
        for s in stmts:
            for tail in self.tails_of(s):
                ready = _ready(tail[0], self.env) and _ready(tail[1], self.env)
                if tail not in self.decided and ready and self.length(tail).value is None:
                    return tail
        return None

    def tails_of(self, s: Stmt) -> list[Tail]:
        """`_tails`, which is asked for in front of every statement before."""
        found = self.tails.get(id(s))
        if found is None:
            found = self.tails[id(s)] = (s, _tails(s))
        return found[1]

    def length(self, tail: Tail) -> Linear:
        self.memo = {}
        return self.linear(tail[1]).minus(self.linear(tail[0]))

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
            case _:
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
        trips = stop.minus(start).value
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
            self.squares.clear()
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
        self.env[s.var.name] = start.plus(Linear(lane=1))
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
        self.memory[buffer.name] = Memory(pointer, lanes, older=frozenset(self.env))


class _Nested:
    """Bindings made inside are forgotten outside."""

    def __init__(self, printer: _Printer) -> None:
        self.printer = printer

    def __enter__(self) -> None:
        self.env, self.memory, self.before = dict(self.printer.env), dict(self.printer.memory), list(self.printer.before)

    def __exit__(self, *_: object) -> None:
        self.printer.env, self.printer.memory, self.printer.before = self.env, self.memory, self.before

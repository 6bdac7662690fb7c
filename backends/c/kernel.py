"""Prints a kernel as a function of C that says what the schedule says: loops as loops, buffers as pointers, `let` as `const`.

Every kind of loop is a plain `for`: its meaning is the sequential one, and a C compiler makes vectors of it where it can. A loop that
runs once is no loop. Local buffers are arrays, of rank 0 where they have one cell. Indices are simplified (`backends/c/index.py`).
An applied function that may stop the program is called in a statement of its own, before the one that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tlc.backends.c.helpers import Helpers
from tlc.backends.c.index import Indices
from tlc.backends.c.scalar import emit
from tlc.backends.c.words import LESS, TYPES, UNARY, Names, Text, call, infix, literal
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem
from tlc.tensor.kernel.calls import applied, expressions
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
    statements,
    subexpressions,
)

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_INDEX = ("add", "sub", "mul", "neg", "floordiv", "mod", "min", "max")
_LONG = 110  # a part of an expression that gets a name, for people
_NOTES = {Kind.PARALLEL: "  /* in any order */"}
TRUE, FALSE = literal(True, Elem.BOOL), literal(False, Elem.BOOL)


@dataclass(frozen=True)
class Callee:
    """A function that kernels apply: its name in C, and whether it may stop the program: then it gives a status, results by pointers."""

    name: str
    can_stop: bool


def print_kernel(kernel: Kernel, helpers: Helpers, callees: Mapping[str, Callee], name: str) -> str:
    """The definition of one kernel. What it calls must stand before."""
    return _Printer(kernel, helpers, callees, name).run()


def comment(span: Span, notes: Sequence[str] = ()) -> list[str]:
    """Where something comes from, as comments of C."""
    return [f"/* {line.replace('*/', '* /')} */" for line in origin(span, notes)]


def origin(span: Span, notes: Sequence[str] = ()) -> list[str]:
    """Where something comes from, in the source's own words."""
    lines = []
    if span.source is not NOWHERE.source:
        line, _ = span.source.position(span.start)
        lines.append(f"{span.source.path}:{line}: {span.source.line(line).strip()}")
    return [*lines, *notes]


def head(kernel: Kernel, helpers: Helpers, callees: Mapping[str, Callee], name: str) -> str:
    """The head of a kernel's definition."""
    return _Printer(kernel, helpers, callees, name).head()


def can_stop(kernel: Kernel, callees: Mapping[str, Callee]) -> bool:
    """Whether a kernel gives a status."""
    return any(callees[f].can_stop for f in applied(kernel))


def _zero(elem: Elem) -> Const:
    return Const(False if elem is Elem.BOOL else 0.0 if elem.is_real else 0, elem)


def _is_harmless(e: Expr) -> bool:
    """An expression may be evaluated where its value is not wanted."""
    return not any(isinstance(x, Load | Apply) or (isinstance(x, Op) and x.op in ("floordiv", "mod")) for x in subexpressions(e))


@dataclass
class _Printer:
    kernel: Kernel
    helpers: Helpers
    callees: Mapping[str, Callee]
    name: str
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    names: Names = field(default_factory=Names)
    env: dict[str, str] = field(default_factory=dict)  # what variables and buffers are called in C
    standing: dict[str, Expr] = field(default_factory=dict)  # variables whose value stands where they are read
    begun: set[int] = field(default_factory=set)  # ids of stores that are done by a declaration
    hoisted: dict[Expr, Text] = field(default_factory=dict)  # calls and parts of long expressions that stand before the current statement
    whole: Expr | None = None
    lazy: int = 0  # choices around, one side of which is not evaluated

    def __post_init__(self) -> None:
        k = self.kernel
        read = (x for s in statements(k.body) for e in expressions(s) for x in subexpressions(e) if isinstance(x, Var))
        bounds = (e for s in statements(k.body) if isinstance(s, For) for e in (s.start, s.stop))
        self.ends = {x.name for e in bounds for x in subexpressions(e) if isinstance(x, Var)}
        self.uses = Counter(x.name for x in read)
        buffers = [*k.outputs, *(p for p in k.inputs if isinstance(p, Buffer))]
        extents = frozenset(x for b in buffers for e in b.shape for x in subexpressions(e) if isinstance(x, Var))
        self.indices = Indices(extents, self.plain, self.help)
        for p in (*k.outputs, *k.inputs):
            self.env[p.name] = self.names.of(p.name)
        for p in k.inputs:
            if isinstance(p, Var) and p.elem is Elem.I64:
                self.indices.scalar(p, self.env[p.name])

    # ------------------------------------------------------------ the function

    def head(self) -> str:
        k = self.kernel
        shared_out = {o for o, _ in k.may_alias}
        shared_in = {i for _, i in k.may_alias}
        params = [self.pointer(b, "", n in shared_out) for n, b in enumerate(k.outputs)]
        for n, p in enumerate(k.inputs):
            params.append(f"{TYPES[p.elem]} {self.env[p.name]}" if isinstance(p, Var) else self.pointer(p, "const ", n in shared_in))
            self.helpers.type(p.elem)
        result = "int" if can_stop(k, self.callees) else "void"
        return f"{result} {self.name}({', '.join(params)})"

    def pointer(self, b: Buffer, const: str, shared: bool) -> str:
        return f"{const}{self.helpers.type(b.elem)} *{'' if shared else 'restrict '}{self.env[b.name]}"

    def run(self) -> str:
        k = self.kernel
        notes = [*k.notes]
        for o, i in k.may_alias:
            notes.append(f"`{self.env[k.outputs[o].name]}` may be the memory of `{self.env[k.inputs[i].name]}`")
        top = [*comment(k.span, notes), f"{self.head()} {{"]
        self.body(k.body)
        if can_stop(k, self.callees):
            self.put("return 0;")
        return "\n".join([*top, *self.lines, "}"])

    # ------------------------------------------------------------ statements

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def open(self, text: str) -> None:
        self.put(text)
        self.depth += 1

    def close(self, text: str = "}") -> None:
        self.depth -= 1
        self.put(text)

    def body(self, body: tuple[Stmt, ...]) -> None:
        for k, s in enumerate(body):
            self.hoisted = {}
            if isinstance(s, Let) and s.var.elem is not Elem.I64 and self.is_next(s.var, body[k + 1 :]):
                self.standing[s.var.name] = s.value
            elif isinstance(s, Declare):
                self.declare(s.buffer, next(self.flat(body[k + 1 :]), None))
            else:
                self.statement(s)

    def is_next(self, var: Var, following: tuple[Stmt, ...]) -> bool:
        """A variable is read once, by what stands behind it with nothing stored in between: then its value can stand there."""
        if self.uses[var.name] != 1:
            return False
        for s in self.flat(following):
            if not isinstance(s, Let | Store):
                return False
            if any(x == var for e in expressions(s) for x in subexpressions(e)):
                return True
            if isinstance(s, Store):
                return False
        return False

    def flat(self, body: tuple[Stmt, ...]) -> Iterator[Stmt]:
        """Statements, those in loops that run once among them."""
        for s in body:
            if isinstance(s, For) and self.trips(s) == 1:
                yield from self.flat(s.body)
            else:
                yield s

    def trips(self, s: For) -> int | None:
        """How often a loop runs, if that is known."""
        length = self.indices.simple(Op("sub", Elem.I64, (s.stop, s.start))).value
        return None if length is None else -(-max(length, 0) // s.step)

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
            case Barrier() | Exchange():
                raise InternalError("threads of a GPU meet", f"kernel {self.kernel.name}")

    def declare(self, b: Buffer, following: Stmt | None) -> None:
        """A local buffer; a single cell begins with the constant that is stored to it first."""
        name = self.env[b.name] = self.names.of(b.name.rstrip("0123456789") or b.name)
        extents = "".join(f"[{e.value}]" for e in b.shape if isinstance(e, Const) and e.value != 1)
        match following:
            case Store(buffer, _, Const() as first) if buffer == b and not extents:
                self.begun.add(id(following))
                self.put(f"{self.helpers.type(b.elem)} {name} = {self.expr(first)};")
            case _:
                self.put(f"{self.helpers.type(b.elem)} {name}{extents};")

    def loop(self, s: For) -> None:
        trips = self.trips(s)
        if trips in (0, 1):
            if trips:
                self.indices.constant(s.var, s.start)
                self.body(s.body)
            return
        name = self.env[s.var.name] = self.names.of_loop(s.var.name)
        start, stop = self.indices.text(s.start), self.indices.text(s.stop)
        step = f"{name}++" if s.step == 1 else f"{name} += {s.step}"
        if s.kind is Kind.UNROLL and trips is not None:
            self.put(f"#pragma GCC unroll {trips}")
        self.open(f"for (int64_t {name} = {start}; {infix(Text(name), '<', stop, LESS)}; {step}) {{{_NOTES.get(s.kind, '')}")
        with self.indices.loop(s, name):
            self.body(s.body)
        self.close()
        self.names.taken.discard(name)

    def let(self, s: Let) -> None:
        if s.var.elem is Elem.I64 and self.is_position(s):
            self.indices.constant(s.var, s.value)
            return
        if s.var.elem is Elem.BOOL:
            self.indices.conditions[s.var.name] = s.value
        value = self.expr(self.wholly(s.value))
        name = self.env[s.var.name] = self.names.of(s.var.name)
        self.put(f"const {self.helpers.type(s.var.elem)} {name} = {value};")
        if s.var.elem is Elem.I64:
            self.indices.scalar(s.var, name)

    def is_position(self, s: Let) -> bool:
        """Plain index arithmetic, which is better seen through than named, unless it is the end of a loop."""
        plain = all(isinstance(x, Var | Const) or (isinstance(x, Op) and x.op in _INDEX) for x in subexpressions(s.value))
        return plain and s.var.name not in self.ends and self.indices.is_safe(s.value)

    def store(self, s: Store) -> None:
        if id(s) in self.begun:
            return
        place = self.place(s.buffer, s.indices)
        itself = Load(s.buffer, s.indices)
        match s.value:
            case Op("add" | "sub" | "mul" as name, Elem.F32 | Elem.F64, (first, other)) if first == itself:
                self.put(f"{place} {SCALAR_OPS[name].symbol}= {self.expr(self.wholly(other))};")
            case _:
                value = self.expr(self.wholly(s.value))
                self.put(f"{place} = {value};")

    def conditional(self, s: If) -> None:
        cond = self.expr(s.cond)
        if cond in (TRUE, FALSE):
            self.body(s.then if cond == TRUE else s.other)
            return
        self.open(f"if ({cond}) {{")
        with self.indices.given(s.cond):
            self.body(s.then)
        if s.other:
            self.close("} else {")
            self.depth += 1
            self.body(s.other)
        self.close()

    # ------------------------------------------------------------ expressions

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> Text:
        """A cell of a buffer."""
        name = self.env[b.name]
        if b.space is Space.LOCAL:
            at = [self.indices.text(i) for i, e in zip(indices, b.shape, strict=True) if not isinstance(e, Const) or e.value != 1]
            return Text(name + "".join(f"[{i}]" for i in at))
        return Text(f"{name}[{self.indices.flat(indices, b.shape)}]") if b.shape else Text(f"*{name}", UNARY)

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
            case Op("select", _, (cond, a, b)):
                return self.choice(e, cond, a, b)
            case Op("and" | "or", Elem.BOOL, (a, b)):
                return self.logic(e, a, b)
            case _:
                return self.plain(e)

    def plain(self, e: Expr) -> Text:
        """What is no index arithmetic."""
        match e:
            case Const():
                self.helpers.type(e.elem)
                return literal(e.value, e.elem)
            case Var():
                return self.expr(self.standing[e.name]) if e.name in self.standing else Text(self.env[e.name])
            case Load() if e.guard is not None:
                return self.choice(e, e.guard, Load(e.buffer, e.indices), _zero(e.elem))
            case Load():
                return self.place(e.buffer, e.indices)
            case Apply():
                return self.apply(e)
            case Op("select", _, (cond, a, b)):
                return self.choice(e, cond, a, b)
            case Op():
                return self.op(e)

    def op(self, e: Op) -> Text:
        text = emit(self.helpers, e.op, e.elem, tuple((self.expr(a), a.elem) for a in e.args))
        if len(text.text) <= _LONG or e is self.whole or (self.lazy and not _is_harmless(e)):
            return text
        if e not in self.hoisted:
            name = self.names.of("part")
            self.put(f"const {self.helpers.type(e.elem)} {name} = {text};")
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
        return then if c == TRUE else emit(self.helpers, "select", e.elem, ((c, Elem.BOOL), (then, a.elem), (self.expr(b), b.elem)))

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
        return emit(self.helpers, e.op, Elem.BOOL, ((x, Elem.BOOL), (y, Elem.BOOL)))

    def apply(self, e: Apply) -> Text:
        if e in self.hoisted:
            return self.hoisted[e]
        callee = self.callees[e.function]
        args: list[Text] = []
        for a in e.args:
            if isinstance(a, Buffer):
                args += [Text(self.env[a.name]), *(self.indices.text(n) for n in a.shape)]
            else:
                args.append(self.expr(a))
        if not callee.can_stop:
            return call(callee.name, *args)
        result = Text(self.names.of("result"))
        self.put(f"{self.helpers.type(e.elem)} {result};")
        self.put(f"if ({call(callee.name, f'&{result}', *args)}) return 1;")
        self.hoisted[e] = result
        return result

    def help(self, op: str, args: Sequence[Text]) -> Text:
        return emit(self.helpers, op, Elem.I64, tuple((a, Elem.I64) for a in args))

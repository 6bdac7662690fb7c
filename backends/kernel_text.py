"""What printers of kernels as text have in common: the walk over statements and expressions, names, and what stands where.

A language adds how it declares, loops, branches and stores (`backends/c/kernel.py`, `backends/cuda/printer.py`). Shared is what makes the
text one for people, whatever the language is:

    let t = x[i]; store y[i] = t * t + t     t has a name: it is read more than once
    let t = x[i]; store y[i] = -t            y[i] = -x[i]: a variable that is read once, next, stands where it is read
    for i in 0..1 { .. }                     a loop that runs once is no loop
    a sum of more than `_LONG` letters       its long parts get names, before the statement (not where they may not be evaluated)
    select(c, a, b)                          inside of a, c is known to hold; a decided choice is its side
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import ClassVar

from tlc.backends.c.index import ARITHMETIC, Indices
from tlc.backends.c.words import Names, Text
from tlc.frontend.ops import COMPARISONS
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import (
    Apply,
    Barrier,
    Buffer,
    Const,
    Copying,
    Declare,
    Exchange,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Meeting,
    Op,
    Space,
    Stmt,
    Store,
    Var,
    expressions,
    subexpressions,
)

_LONG = 110  # a part of an expression that gets a name, for people


def origin(span: Span, notes: Sequence[str] = ()) -> list[str]:
    """Where something comes from, in the source's own words."""
    lines = []
    if span.source is not NOWHERE.source:
        line, _ = span.source.position(span.start)
        lines.append(f"{span.source.path}:{line}: {span.source.line(line).strip()}")
    return [*lines, *notes]


def zero(elem: Elem) -> Const:
    return Const(False if elem is Elem.BOOL else 0.0 if elem.is_real else 0, elem)


def is_variable(b: Buffer) -> bool:
    """A local buffer of one element."""
    return b.space is Space.LOCAL and all(isinstance(e, Const) and e.value == 1 for e in b.shape)


def _is_harmless(e: Expr) -> bool:
    """An expression may be evaluated where its value is not wanted."""
    return not any(isinstance(x, Load | Apply) or (isinstance(x, Op) and x.op in ("floordiv", "mod")) for x in subexpressions(e))


@dataclass
class KernelPrinter(ABC):
    """Prints a kernel. `indices` says what is known of index arithmetic at the place that is printed; a printer makes it at first."""

    kernel: Kernel
    indices: Indices = field(init=False)
    names: Names = field(init=False)
    uses: Counter[str] = field(init=False)  # how often variables are read
    lines: list[str] = field(init=False, default_factory=list)
    depth: int = field(init=False, default=1)
    env: dict[str, str] = field(init=False, default_factory=dict)  # what variables and buffers are called in the text
    standing: dict[str, Expr] = field(init=False, default_factory=dict)  # variables whose value stands where they are read
    begun: set[int] = field(init=False, default_factory=set)  # ids of stores that are done by a declaration
    hoisted: dict[Expr, Text] = field(init=False, default_factory=dict)  # what stands before the current statement, by name
    whole: Expr | None = field(init=False, default=None)  # what stands in a line of its own anyway
    lazy: int = field(init=False, default=0)  # choices around, one side of which is not evaluated

    # ------------------------------------------------------------ the language

    indent: ClassVar[str]
    true: ClassVar[Text]
    false: ClassVar[Text]

    @abstractmethod
    def literal(self, value: object, elem: Elem) -> Text:
        """A constant."""

    @abstractmethod
    def emit(self, op: str, elem: Elem, operands: tuple[tuple[Text, Elem], ...]) -> Text:
        """A scalar op on texts of values."""

    @abstractmethod
    def definition(self, name: str, elem: Elem, value: Text) -> str:
        """A line that gives a name to a value."""

    @abstractmethod
    def load(self, e: Load) -> Text:
        """What lies in memory; the guard holds."""

    @abstractmethod
    def apply(self, e: Apply) -> Text: ...

    @abstractmethod
    def declare(self, b: Buffer, first: Const | None) -> None:
        """A local or shared buffer; `first` is the constant that a variable begins with, where that is known."""

    @abstractmethod
    def loop(self, s: For) -> None: ...

    @abstractmethod
    def let(self, s: Let) -> None: ...

    @abstractmethod
    def store(self, s: Store) -> None: ...

    @abstractmethod
    def conditional(self, s: If) -> None: ...

    @abstractmethod
    def meet(self, s: Barrier | Meeting | Copying) -> None:
        """Threads wait for each other, exchange values, load and multiply matrices, or copy to shared memory."""

    # ------------------------------------------------------------ statements

    def count(self, program: Iterable[Stmt]) -> None:
        """Count how often variables are read."""
        self.uses = Counter(x.name for s in program for e in expressions(s) for x in subexpressions(e) if isinstance(x, Var))

    def put(self, text: str) -> None:
        self.lines.append(self.indent * self.depth + text)

    def body(self, body: tuple[Stmt, ...]) -> None:
        for k, s in enumerate(body):
            self.hoisted = {}
            if isinstance(s, Let) and s.var.elem is not Elem.I64 and self.is_next(s.var, body[k + 1 :]):
                self.standing[s.var.name] = s.value
            elif isinstance(s, Declare):
                self.declare(s.buffer, self.first(s.buffer, body[k + 1 :]))
            else:
                self.statement(s)

    def first(self, b: Buffer, following: tuple[Stmt, ...]) -> Const | None:
        """The constant that a variable gets first, if the next statement stores one: then the declaration does that."""
        match next(self.flat(following), None):
            case Store(buffer, _, Const() as value) as s if buffer == b and is_variable(b):
                self.begun.add(id(s))
                return value
        return None

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
            case _:
                self.meet(s)

    def is_position(self, s: Let) -> bool:
        """Plain index arithmetic, which is better seen through than named."""
        plain = all(isinstance(x, Var | Const) or (isinstance(x, Op) and x.op in ARITHMETIC) for x in subexpressions(s.value))
        return plain and self.indices.is_safe(s.value)

    # ------------------------------------------------------------ expressions

    def wholly(self, e: Expr) -> Expr:
        """What stands in a line of its own anyway."""
        self.whole = e
        return e

    def expr(self, e: Expr) -> Text:
        match e:
            case Var() if e.elem is Elem.I64:
                return self.indices.text(e)
            case Op() if e.elem is Elem.I64 and e.op in ARITHMETIC and self.indices.is_safe(e):
                return self.indices.text(e)
            case Op() if e.op in COMPARISONS and e.args[0].elem is Elem.I64:
                return self.indices.comparison(e.op, *e.args) or self.op(e)
            case Op("and" | "or", Elem.BOOL, (a, b)):
                return self.logic(e, a, b)
            case _:
                return self.plain(e)

    def plain(self, e: Expr) -> Text:
        """What is no index arithmetic."""
        match e:
            case Const():
                return self.literal(e.value, e.elem)
            case Var():
                return self.expr(self.standing[e.name]) if e.name in self.standing else Text(self.env[e.name])
            case Load() if e.guard is not None:
                return self.choice(e, e.guard, Load(e.buffer, e.indices), zero(e.elem))
            case Load():
                return self.load(e)
            case Apply():
                return self.apply(e)
            case Op("select", _, (cond, a, b)):
                return self.choice(e, cond, a, b)
            case Op():
                return self.op(e)

    def op(self, e: Op) -> Text:
        text = self.emit(e.op, e.elem, tuple((self.expr(a), a.elem) for a in e.args))
        if len(text.text) <= _LONG or e is self.whole or (self.lazy and not _is_harmless(e)):
            return text
        if e not in self.hoisted:
            name = self.names.of("part")
            self.put(self.definition(name, e.elem, text))
            self.hoisted[e] = Text(name)
        return self.hoisted[e]

    def choice(self, e: Op | Load, cond: Expr, a: Expr, b: Expr) -> Text:
        c = self.true if self.indices.holds(cond) else self.expr(cond)
        if c == self.false:
            return self.expr(b)
        self.lazy += 1
        with self.indices.given(cond):
            then = self.expr(a)
        self.lazy -= 1
        return then if c == self.true else self.emit("select", e.elem, ((c, Elem.BOOL), (then, a.elem), (self.expr(b), b.elem)))

    def logic(self, e: Op, a: Expr, b: Expr) -> Text:
        x = self.expr(a)
        self.lazy += 1
        with self.indices.given(a if e.op == "and" else Const(True, Elem.BOOL)):
            y = self.expr(b)
        self.lazy -= 1
        unit, absorbing = (self.true, self.false) if e.op == "and" else (self.false, self.true)
        if absorbing in (x, y):
            return absorbing
        if unit in (x, y):
            return y if x == unit else x
        return self.emit(e.op, Elem.BOOL, ((x, Elem.BOOL), (y, Elem.BOOL)))

    def arguments(self, e: Apply) -> list[Text]:
        """What a function gets: of a buffer its address and its extents."""
        args: list[Text] = []
        for a in e.args:
            if isinstance(a, Buffer):
                args += [Text(self.env[a.name]), *(self.indices.text(n) for n in a.shape)]
            else:
                args.append(self.expr(a))
        return args

    def help(self, name: str, args: Sequence[Text]) -> Text:
        """An op on texts of indices."""
        return self.emit(name, Elem.I64, tuple((a, Elem.I64) for a in args))

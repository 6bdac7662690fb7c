"""The body of one instance while it is checked: its scope, its result, and the door to the checking of expressions.

The files around hold one kind of expression or statement each and register their functions with `@expression(...)` and
`@statement(...)`; `Body.expr` and `Body.stmt` find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from tlc.frontend import ast, typed
from tlc.frontend.check.cells import Pattern
from tlc.frontend.check.keys import Keys
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import Entry, Kind, ModuleScope, Scope, Variable
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import I64, Type

if TYPE_CHECKING:
    from tlc.frontend.check.flexible import Flexible
    from tlc.frontend.check.session import Session

EXPRESSIONS: dict[type[ast.Node], Callable[[Body, Any], typed.Expr]] = {}
STATEMENTS: dict[type[ast.Node], Callable[[Body, Any], list[typed.Stmt]]] = {}

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N")
R = TypeVar("R")


def expression(node: type[ast.Node]) -> Callable[[F], F]:
    """Register the function that checks this kind of expression."""

    def register(f: F) -> F:
        EXPRESSIONS[node] = f
        return f

    return register


def statement(node: type[ast.Node]) -> Callable[[F], F]:
    """Register the function that checks this kind of statement."""

    def register(f: F) -> F:
        STATEMENTS[node] = f
        return f

    return register


@dataclass
class Loop:
    """A loop around a statement; `broken` once a `break` leaves it."""

    broken: bool = False


@dataclass(eq=False)
class Body:
    """`result` is None where no value may be returned. `pure` is true inside a comprehension. Mutable."""

    session: Session
    module: ModuleScope
    scope: Scope
    result: Pattern | None = None
    fresh: frozenset[DimVar] = frozenset()  # dimensions of the result that only the run knows
    returns: bool = True  # whether a `return` may stand here
    pure: bool = False
    loops: list[Loop] = field(default_factory=list)
    ranges: dict[DimVar, tuple[Dim, Dim]] = field(default_factory=dict)  # half-open ranges of loop variables and indices
    natural: set[DimVar] = field(default_factory=set)  # atoms that are never negative: dimensions
    keys: Keys = field(default_factory=Keys)
    declared: Span | None = None  # where the result is declared
    main: bool = False  # whether this is `main`, which has no result
    tail: ast.Stmt | None = None  # the last statement of a function without a result
    flexible: dict[int, Flexible] = field(default_factory=dict)  # variables whose dimensions change, by their uid

    # ------------------------------------------------------------ the door

    def expr(self, node: ast.Expr) -> typed.Expr:
        return EXPRESSIONS[type(node)](self, node)

    def stmt(self, node: ast.Stmt) -> list[typed.Stmt]:
        return STATEMENTS[type(node)](self, node)

    def each(self, nodes: Iterable[N], check: Callable[[N], R]) -> list[R]:
        """`check` of nodes that stand side by side. If some fail, all others are checked too before this raises Failed, so that one run
        shows the faults of all.
        """
        out: list[R] = []
        failure: Failed | None = None
        for node in nodes:
            try:
                out.append(check(node))
            except Failed as e:
                if failure is not None:
                    self.session.report(failure)
                failure = e
        if failure is not None:
            raise failure
        return out

    # ------------------------------------------------------------ scopes

    @contextmanager
    def inside(self, kind: Kind = Kind.BLOCK, parent: Scope | None = None) -> Iterator[Scope]:
        """A scope inside the present one (or inside `parent`)."""
        outer = self.scope
        self.scope = Scope(parent or outer, kind)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def no_escape(self, pure: bool) -> Iterator[None]:
        """The inside of a comprehension or an anonymous function: no `return`, no `break` of a loop outside."""
        saved = self.returns, self.loops, self.pure
        self.returns, self.loops, self.pure = False, [], pure or self.pure
        try:
            yield
        finally:
            self.returns, self.loops, self.pure = saved

    def bind(self, name: str, entry: Entry) -> None:
        self.scope.names[name] = entry

    # ------------------------------------------------------------ locals

    def local(self, name: str, type: Type, span: Span, mutable: bool = False, dim: Dim | None = None) -> typed.Local:
        """A new variable that no name leads to."""
        return typed.Local(name, type, mutable, dim, span)

    def index(self, name: str, span: Span, lo: Dim | None, hi: Dim | None) -> typed.Local:
        """A new index or loop variable: an atom, with its range where that is known."""
        atom = DimVar(name, span)
        if lo is not None and hi is not None:
            self.ranges[atom] = (lo, hi)
        return typed.Local(name, I64, False, Dim.var(atom), span)

    def declare(self, local: typed.Local) -> typed.Local:
        self.bind(local.name, Variable(local))
        return local

    # ------------------------------------------------------------ errors

    def act(self, name: str, span: Span) -> None:
        """Say that a function is called here that acts on the world. Raises Failed where nothing may."""
        if not self.pure:
            return
        if self.scope.innermost(Kind.COMPREHENSION) is not None:
            raise fail("E0507", f"`{name}` cannot stand in a comprehension", span, help="use a `for` loop")
        raise fail("E0507", f"`{name}` cannot stand in a constant or a default value", span, help="call it in a function")

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """Report what fails inside and go on behind it."""
        try:
            yield
        except Failed as e:
            self.session.report(e)

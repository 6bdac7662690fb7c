"""Variables whose dimensions change: `var x: f32[?] = ...`.

The type of such a variable follows the code. After `x = e` its dimensions are those of `e`; where paths meet (behind an
`if`, at the start of a loop's body, behind a loop) they are new and unknown if a path assigned the variable. A statement
that reads the variable there gives the new dimensions their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tlc.frontend import ast, typed
from tlc.frontend.check.scope import Variable
from tlc.frontend.check.signature import Bindings, finish, match, substitute
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Type

if TYPE_CHECKING:
    from tlc.frontend.check.body import Body


@dataclass
class Flexible:
    """`pattern` is the declared type, whose `wilds` are free; `now` is the type at this point of the code."""

    pattern: Type
    wilds: frozenset[DimVar]
    now: Type

    def renew(self, span: Span) -> None:
        """Forget the dimensions."""
        fresh = Bindings(dims={w: Dim.var(DimVar(w.name, span)) for w in self.wilds})
        self.now = substitute(self.pattern, fresh)

    def accept(self, type: Type) -> None:
        """The variable gets a value of this type. Raises Mismatch."""
        binds = Bindings()
        match(self.pattern, type, binds, self.wilds)
        finish(binds, self.wilds)
        self.now = substitute(self.pattern, binds)


def read(body: Body, local: typed.Local, span: Span) -> typed.Expr:
    """A variable, with its type at this point."""
    flexible = body.flexible.get(local.uid)
    return typed.Read(local, type=flexible.now if flexible is not None else local.type, span=span)


def renewed(body: Body, node: ast.Node, span: Span) -> list[typed.Stmt]:
    """Where paths meet: the variables that `node` assigns get new dimensions, which these statements bind."""
    if not body.flexible:
        return []
    out: list[typed.Stmt] = []
    for name in dict.fromkeys(_assigned(node)):
        found = body.scope.lookup(name)
        if isinstance(found, Variable) and found.local.uid in body.flexible:
            body.flexible[found.local.uid].renew(span)
            out.append(typed.Eval(read(body, found.local, span), span=span))
    return out


def _assigned(node: ast.Node) -> Iterator[str]:
    """The names of variables that are assigned as a whole somewhere inside."""
    for n in ast.walk(node):
        if isinstance(n, ast.Assignment):
            yield from _targets(n.target)


def _targets(target: ast.Expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.name
    elif isinstance(target, ast.TupleExpr):
        for item in target.items:
            yield from _targets(item)

"""The warning for a `let` in a loop whose value is lost.

    let w = zeros(3)
    for i in 0..n { let w = w - lr * g(w) }         each round begins with the `w` of outside again

A `let` may shadow, so this is no error; but a new `w` that is made of the old one and then never read is seldom meant.
"""

from __future__ import annotations

from collections import Counter

from tlc.frontend import ast
from tlc.frontend.check.report import Failed, warning


def lost(node: ast.Function) -> list[Failed]:
    """The warnings for a function."""
    loops = [n for n in ast.walk(node.body) if isinstance(n, ast.For | ast.While)]
    everywhere = _names(node) if loops else Counter[str]()
    return [w for loop in loops for w in _lost_in(loop, everywhere)]


def _lost_in(loop: ast.For | ast.While, everywhere: Counter[str]) -> list[Failed]:
    found: list[Failed] = []
    outside = everywhere - _names(loop)
    own = set(_names(loop.target)) if isinstance(loop, ast.For) else set[str]()
    for k, stmt in enumerate(loop.body.stmts):
        if not isinstance(stmt, ast.Binding):
            continue
        name = stmt.target.name
        old = name in outside and name not in own and name in ast.names_of_all(stmt.value) and name not in _names(stmt.value)
        if old and name not in ast.names_of_all(*loop.body.stmts[k + 1 :]):
            message = f"this `{name}` is made of the one outside of the loop, and never read"
            help = f"to go on with it in the next round, make the outer one a `var` and assign: `{name} = ...`"
            found.append(warning("W0002", message, stmt.target.span, f"a new `{name}`, in each round", (), help))
        own.update(_names(stmt.target))
    return found


def _names(node: ast.Node) -> Counter[str]:
    """The names of values that are bound in a node, and how often."""
    return Counter(n.name for n in ast.walk(node) if isinstance(n, ast.Target | ast.Param | ast.IndexRange))

"""How deep a tree is nested. The later stages recurse over it; a program nested deeper than `LIMIT` is refused here.

A chain of operators that group to the left, `a + b + .. + z`, is nested too, the first operand deepest. A long one in a function or
statement is computed in steps instead, and may be as long as it likes:

    a + b + .. + z        { let ~1 = a + b + .. + m;  let ~2 = ~1 + n + ..;  ~2 + .. + z }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tlc.frontend import ast
from tlc.frontend.ast import Node
from tlc.frontend.diagnostics import Diagnostic

LIMIT = 200
STEP = 64  # operators of a chain that are computed at once


def too_deep(items: Iterable[Node]) -> list[Diagnostic]:
    """A diagnostic for each item that is nested too deeply.

    A child's text is shorter than its parent's, so whatever is shorter than the levels that are left needs no visit:
    for ordinary programs this looks at the longest definitions only.
    """
    found = []
    for item in items:
        pending = [(item, 1)]
        while pending:
            node, depth = pending.pop()
            if depth > LIMIT:
                found.append(
                    Diagnostic(
                        "E0114",
                        "this is nested too deeply",
                        node.span,
                        f"{LIMIT} levels are inside one another",
                        help="name a part with `let`",
                    )
                )
                break
            if depth + (node.span.end - node.span.start) > LIMIT:
                pending += [(child, depth + (child.span != node.span)) for child in children(node)]
    return found


def in_steps(items: Iterable[Any]) -> list[Any]:
    """The items, those that only their chains nest too deeply in another form. (A const or a type is no place for steps.)"""
    return [_stepped(item) if _is_deep(item) and not _is_deep(item, chains=False) else item for item in items]


def _is_deep(item: Node, chains: bool = True) -> bool:
    """Whether an item is nested too deeply, with its chains or without."""
    pending = [(item, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > LIMIT:
            return True
        if depth + (node.span.end - node.span.start) > LIMIT:
            for child in children(node):
                inside = child.span != node.span and (chains or not (isinstance(node, ast.Binary) and child is node.left))
                pending.append((child, depth + inside))
    return False


def _stepped(node: Any) -> Any:
    """A node in which no chain is longer than a step."""
    if isinstance(node, ast.ConstDef | ast.TypeNode):
        return node
    if not isinstance(node, ast.Binary):
        changed = {name: _stepped_value(value) for name, value in vars(node).items() if isinstance(value, Node | tuple)}
        return replace(node, **{name: value for name, value in changed.items() if value is not vars(node)[name]})
    links = [node]
    while isinstance(links[-1].left, ast.Binary):
        links.append(links[-1].left)
    value = _stepped(links[-1].left)
    steps: list[ast.Stmt] = []
    for count, link in enumerate(reversed(links)):
        if count and count % STEP == 0:
            name, span = f"~{len(steps) + 1}", value.span
            target = ast.Target(name, (), span=span)
            steps.append(ast.Binding(False, target, None, value, span=span))
            value = ast.Name(name, span=span)
        value = replace(link, left=value, right=_stepped(link.right))
    return ast.Block((*steps, ast.ExprStmt(value, span=node.span)), span=node.span) if steps else value


def _stepped_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_stepped(v) if isinstance(v, Node) else v for v in value)
    return _stepped(value)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node, in the order of its fields."""
    for value in vars(node).values():
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Node):
                    yield item

"""How deep a tree is nested. The later stages recurse over it; a program nested deeper than `LIMIT` is refused here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tlc.frontend.ast import Node
from tlc.frontend.diagnostics import Diagnostic

LIMIT = 200


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


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node, in the order of its fields."""
    for value in vars(node).values():
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Node):
                    yield item

"""What is reached in a graph, and its strongly connected components (Tarjan 1972)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def reachable(roots: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> dict[Node, None]:
    """The roots and all that they lead to, in the order of finding them, depth first."""
    found: dict[Node, None] = {}
    work = list(roots)
    while work:
        node = work.pop()
        if node not in found:
            found[node] = None
            work += following(node)
    return found


def components(roots: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> list[list[Node]]:
    """The components that are reached from the roots, those that others lead to first."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    closed: set[Node] = set()
    found: list[list[Node]] = []
    for root in roots:
        if root in index:
            continue
        work: list[tuple[Node, Iterator[Node]]] = []

        def enter(node: Node, work: list[tuple[Node, Iterator[Node]]] = work) -> None:
            index[node] = low[node] = len(index)
            stack.append(node)
            work.append((node, iter(following(node))))

        enter(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    enter(other)
                    break
                if other not in closed:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    closed.update(stack[at:])
                    del stack[at:]
    return found

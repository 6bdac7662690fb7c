"""Elementary functions (`exp`, `tanh`, ...) become the ops of their definition in `frontend/elementary.py`. Those that kernels keep, since
processors have them as instructions, stay.

Expressions are interned, so what a definition uses twice stays shared; a schedule binds shared parts by `Let`.
"""

from __future__ import annotations

from tlc.frontend import elementary
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.graph.ir import Expr, Node, const, op, rebuild, transform, walk


class GraphArith:
    """Builds expressions; see `elementary.Arith`."""

    def const(self, value: float | int | bool, elem: Elem) -> Expr:
        return const(value, elem)

    def op(self, name: str, elem: Elem, *args: Expr) -> Expr:
        return op(name, *args, elem=elem)


_EXPANDED = frozenset(name for name, row in SCALAR_OPS.items() if row.elementary and not row.instruction)


def _step(e: Expr, args: tuple[Expr, ...]) -> Expr:
    if e.op in _EXPANDED:
        expanded = elementary.expand(e.op, GraphArith(), e.elem, *args)
        assert isinstance(expanded, Expr)
        return expanded
    return rebuild(e, args) if args else e


def expand(node: Node) -> Node:
    """The node without elementary functions that are no instructions."""
    roots = (*node.roots, *node.domain)
    if not any(e.op in _EXPANDED for e in walk(roots)):
        return node
    expanded = dict(zip(roots, transform(roots, _step), strict=True))
    return node.rebuilt(lambda e: expanded[e])

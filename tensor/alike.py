"""Nodes that do the same thing: equal but for which tensors and scalars of the host they are about.

    y = for i < n: exp(x[i])        and        z = for i < m: exp(u[i])

are alike, with n, x and m, u in each other's place; a program of many layers has most of its nodes several times. What is alike becomes
the same kernel, so it is scheduled once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from tlc.tensor.graph.ir import Expr, Node, Scalar, Tensor

Leaf = Tensor | Scalar


def form(node: Node) -> tuple[Hashable, tuple[Leaf, ...]]:
    """What a node does, equal for nodes that are alike, and with what, in an order that is then the same."""
    rows = _Rows()
    r, s = node.reduction, node.scatter
    reduction = r and (r.op, r.order, r.step, rows.all(r.extents), rows.all(r.terms), r.quick and (r.quick[0], rows.all(r.quick[1:])))
    scatter = s and (rows.leaf(s.base), rows.all(s.targets))
    key = (rows.all(node.extents), rows.all(node.outputs), reduction, scatter, tuple(rows.rows))
    return key, tuple(rows.leaves)


class _Rows:
    """Expressions as rows that refer to each other, and to leaves, by number."""

    def __init__(self) -> None:
        self.rows: list[Hashable] = []
        self.numbers: dict[Expr, int] = {}
        self.leaves: dict[Leaf, int] = {}

    def all(self, roots: Iterable[Expr]) -> tuple[int, ...]:
        return tuple(map(self.expression, roots))

    def expression(self, e: Expr) -> int:
        if e not in self.numbers:
            for x in (*e.below, e):
                if x not in self.numbers:
                    self.rows.append((x.op, x.elem, self.data(x), *[self.numbers[a] for a in x.args]))
                    self.numbers[x] = len(self.numbers)
        return self.numbers[e]

    def data(self, e: Expr) -> Hashable:
        match e.op:
            case "load":
                return self.leaf(e.data.tensor), self.all(e.data.shape)
            case "whole" | "scalar":
                return self.leaf(e.data)
            case "const":
                return repr(e.data)  # 0.0 is not -0.0, and nan is nan
            case _:
                return e.data  # type: ignore[no-any-return]

    def leaf(self, x: Leaf) -> int:
        if x not in self.leaves:
            self.rows.append((x.elem, self.all(x.shape) if isinstance(x, Tensor) else x.extent))
            self.leaves[x] = len(self.leaves)
        return self.leaves[x]

"""Nodes that do the same thing with different tensors are scheduled once, and nothing else is taken for the same."""

from __future__ import annotations

import pytest

from tlc.frontend.types import Elem
from tlc.tensor.alike import form
from tlc.tensor.graph.ir import Expr, Node, Reduction, Scalar, Tensor, acc, axis, const, load, op, scalar


def vector(name: str, n: Expr, elem: Elem = Elem.F32) -> Tensor:
    return Tensor(name, elem, (n,))


def element_wise(n: Expr, e: Expr) -> Node:
    return Node((Tensor("y", e.elem, (n,)),), (n,), (e,))


def sums(first: Tensor, second: Tensor, n: Expr) -> Node:
    """y[i] = first[i] + second[i]."""
    return element_wise(n, op("add", load(first, [axis(0)]), load(second, [axis(0)])))


def test_other_tensors_and_extents_in_each_others_place() -> None:
    n, m = Scalar("n", extent=True), Scalar("m", extent=True)
    a, b, c, d = (vector(name, scalar(s)) for name, s in zip("abcd", (n, n, m, m), strict=True))
    (one, first), (other, second) = form(sums(a, b, scalar(n))), form(sums(c, d, scalar(m)))
    assert one == other
    assert dict(zip(first, second, strict=True)) == {n: m, a: c, b: d}


A, B, W = vector("a", const(8)), vector("b", const(8)), vector("w", const(8), Elem.F64)
N, M = scalar(Scalar("n", extent=True)), scalar(Scalar("m", extent=True))
AT = axis(0)


def reduced(order: str) -> Node:
    r = Reduction("sum", order, (const(8),), (load(A, [axis(0)]),))
    return Node((Tensor("y", Elem.F32, ()),), (), (acc(0, Elem.F32),), r)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (sums(A, B, const(8)), sums(A, A, const(8))),  # one tensor twice
        (sums(A, B, const(8)), sums(A, B, const(4))),
        (element_wise(const(8), load(A, [AT])), element_wise(const(8), load(W, [AT]))),
        (element_wise(const(8), load(A, [AT])), element_wise(const(8), load(A, [op("sub", const(7), AT)]))),
        (element_wise(const(8), const(0.0, Elem.F32)), element_wise(const(8), const(-0.0, Elem.F32))),
        (sums(vector("c", N), vector("d", N), N), sums(vector("c", N), vector("d", M), N)),  # of one length, and of two
        (element_wise(N, scalar(Scalar("s"))), element_wise(N, scalar(Scalar("s", extent=True)))),  # never negative
        (element_wise(const(8), load(A, [AT])), element_wise(const(8), load(A, [AT, const(0)], [const(8), const(1)]))),  # another view
        (reduced("lanes"), reduced("chain")),
    ],
)  # fmt: skip
def test_what_is_not_alike(one: Node, other: Node) -> None:
    assert form(one)[0] != form(other)[0]
    assert form(one)[0] == form(one)[0]

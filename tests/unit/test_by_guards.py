"""What is put together from parts reads each part in a loop of its own, with the same bits."""

from __future__ import annotations

from tlc.frontend.types import Elem
from tlc.tensor.graph.ir import Node, Tensor, axis, const, load, op
from tlc.tensor.nests import by_guards


def joined(n: int, at: int) -> Node:
    """y[j] = a[j if j < at] + b[j - at if j >= at]."""
    a, b = Tensor("a", Elem.F32, (const(at),)), Tensor("b", Elem.F32, (const(n - at),))
    j = axis(0)
    first = load(a, [j], guard=op("lt", j, const(at)))
    second = load(b, [op("sub", j, const(at))], guard=op("ge", j, const(at)))
    return Node((Tensor("y", Elem.F32, (const(n),)),), (const(n),), (op("add", first, second),))


def test_a_part_for_each_operand() -> None:
    parts = by_guards(joined(96, 32), 0, 16)
    assert [(start, extent.value) for start, extent, _ in parts] == [(0, 32), (32, 64)]
    for (_, _, node), name in zip(parts, "ab", strict=True):
        (e,) = node.loads
        assert e.data.tensor.name == name and e.guard is None
        assert node.outputs[0].op == "add"  # and 0 is still added: it makes 0 of -0


def test_parts_of_whole_vectors_alone() -> None:
    node = joined(96, 33)
    assert by_guards(node, 0, 16) == [(0, node.extents[0], node)]


def test_either_way_of_writing_a_bound() -> None:
    x, j = Tensor("x", Elem.F32, (const(64),)), axis(0)
    for guard in (op("le", j, const(31)), op("gt", const(32), j), op("lt", j, const(32)), op("ge", const(31), j)):
        node = Node((Tensor("y", Elem.F32, (const(64),)),), (const(64),), (load(x, [j], guard=guard),))
        (_, _, inside), (start, _, outside) = by_guards(node, 0, 16)
        assert start == 32 and inside.outputs[0].guard is None and outside.outputs[0].value is None and outside.outputs[0].op == "const"

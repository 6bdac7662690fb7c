"""Index algebra: simplified expressions are equal for all indices, and the ones that should vanish do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.graph.index import Ranges, flatten, slope, unflatten
from tlc.tensor.graph.ir import Expr, Scalar, axis, const, op, scalar, walk

I, J = axis(0), axis(1)


def images() -> tuple[Expr, ...]:
    """Indices of [b, 28, 28] for a position of [b, 784]."""
    return unflatten(flatten([I, J], [N, const(784)]), [N, const(28), const(28)])


N = scalar(Scalar("n", extent=True))


def evaluate(e: Expr, values: dict[Expr, int]) -> int:
    done: dict[Expr, np.int64] = {}
    for x in walk([e]):
        if x.op == "const":
            done[x] = x.data
        elif x in values:
            done[x] = np.int64(values[x])
        else:
            done[x] = SCALAR_OPS[x.op].evaluate(x.elem, *(np.int64(done[a]) if a.elem is Elem.I64 else done[a] for a in x.args))
    return int(done[e])


@st.composite
def indices(draw: st.DrawFn, depth: int = 4) -> Expr:
    if not depth or not draw(st.integers(0, 3)):
        return draw(st.sampled_from([I, J, N, const(draw(st.integers(-3, 12)))]))
    name = draw(st.sampled_from(["add", "add", "sub", "mul", "floordiv", "mod", "min", "max"]))
    return op(name, draw(indices(depth - 1)), draw(indices(depth - 1)))


@settings(max_examples=300, deadline=None)
@given(indices(), st.integers(1, 7), st.integers(1, 30))
def test_simplified_expressions_are_equal(e: Expr, m: int, n: int) -> None:
    simple = Ranges([const(m), N]).simplify(e)
    for i in range(m):
        for j in range(0, n, max(1, n // 5)):
            values = {I: i, J: j, N: n}
            assert evaluate(e, values) == evaluate(simple, values), (e, simple)


@pytest.mark.parametrize(
    ("extents", "make", "expected"),
    [
        ([N, const(784)], lambda: images()[0], lambda: I),
        ([N, const(784)], lambda: images()[1], lambda: op("floordiv", J, const(28))),
        ([N, const(784)], lambda: images()[2], lambda: op("mod", J, const(28))),
        # a symbolic row: (i n + j) // n = i and (i n + j) % n = j
        ([const(5), N], lambda: op("floordiv", op("add", op("mul", I, N), J), N), lambda: I),
        ([const(5), N], lambda: op("mod", op("add", op("mul", I, N), J), N), lambda: J),
        # k (x // k) + x % k = x
        ([const(9), N], lambda: op("add", op("mul", op("floordiv", J, const(4)), const(4)), op("mod", J, const(4))), lambda: J),
        ([const(9), N], lambda: op("floordiv", op("floordiv", J, const(4)), const(6)), lambda: op("floordiv", J, const(24))),
        ([const(9), N], lambda: op("max", op("sub", I, const(9)), const(0)), lambda: const(0)),
        ([const(9), N], lambda: op("lt", J, N), lambda: const(True, Elem.BOOL)),
        ([const(9), N], lambda: op("sub", op("add", I, J), I), lambda: J),
        ([const(1), N], lambda: op("mul", I, N), lambda: const(0)),
    ],
)
def test_rules(extents: list[Expr], make: Callable[[], Expr], expected: Callable[[], Expr]) -> None:
    assert Ranges(extents).simplify(make()) is expected()


def test_a_division_that_could_wrap_stays() -> None:
    s = scalar(Scalar("s"))  # any number: 4 s may wrap
    e = op("floordiv", op("mul", s, const(4)), const(4))
    assert Ranges([]).simplify(e) is e


def test_slope() -> None:
    assert slope(op("add", op("mul", I, const(3)), J), 0) is const(3)
    assert slope(J, 0) is const(0)
    assert slope(op("floordiv", I, const(2)), 0) is None

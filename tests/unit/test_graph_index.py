"""Index algebra: simplified expressions are equal for all indices, and the ones that should vanish do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.graph.index import Ranges, divisions, flatten, slope, straightened, to_poly, unflatten
from tlc.tensor.graph.ir import Expr, Node, Scalar, Tensor, axis, const, load, op, scalar, walk

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


# ---------------------------------------------------------------- the laws of division, both sides as data


def i(e: Expr, by: int) -> Expr:
    return op("floordiv", e, const(by))


def r(e: Expr, by: int) -> Expr:
    return op("mod", e, const(by))


def sum_of(*terms: Expr | int) -> Expr:
    out = const(0)
    for t in terms:
        out = op("add", out, const(t) if isinstance(t, int) else t)
    return out


def times(c: int, e: Expr) -> Expr:
    return op("mul", e, const(c))


K = axis(2)
LAWS = {  # extents of I, J, K; what is simplified, what it becomes
    "a term that the divisor divides leaves, the rest is small": ((9, 4, 1), i(sum_of(times(4, I), J), 4), I),
    "its remainder": ((9, 4, 1), r(sum_of(times(4, I), J), 4), J),
    "from the end: 7 - j = 4 + (3 - j)": ((9, 4, 1), i(sum_of(7, times(-1, J)), 4), const(1)),
    "its remainder is 3 - j": ((9, 4, 1), r(sum_of(7, times(-1, J)), 4), op("sub", const(3), J)),
    "a flattened flip": ((3, 2, 1), i(sum_of(5, times(-2, I), times(-1, J)), 2), op("sub", const(2), I)),
    "(g a + r) // (g m) = a // m": ((24, 2, 1), i(sum_of(times(2, I), J), 12), i(I, 6)),
    "(g a + r) % (g m) = g (a % m) + r": ((24, 2, 1), r(sum_of(times(2, I), J), 12), sum_of(times(2, r(I, 6)), J)),
    "a common factor": ((24, 1, 1), i(sum_of(times(6, I), 3), 9), i(sum_of(times(2, I), 1), 3)),
    "(a + x // m) // n = (a m + x) // (m n)": ((5, 30, 1), i(sum_of(I, i(J, 4)), 3), i(sum_of(times(4, I), J), 12)),
    "x % (m n) % n = x % n": ((50, 1, 1), r(r(I, 12), 4), r(I, 4)),
    "x // m m + x % m = x": ((50, 1, 1), sum_of(times(7, i(I, 7)), r(I, 7)), I),
    "through two levels": ((4, 6, 1), sum_of(times(12, i(sum_of(times(6, I), J), 12)), r(sum_of(times(6, I), J), 12)), sum_of(times(6, I), J)),
    "2 i + 1 < 6 is i < 3": ((9, 9, 1), op("lt", sum_of(times(2, I), 1), const(6)), op("lt", I, const(3))),
    "2 i >= 5 is i > 2": ((9, 9, 1), op("ge", times(2, I), const(5)), op("gt", I, const(2))),
    "i // 4 < 3 is i < 12": ((90, 9, 1), op("lt", i(I, 4), const(3)), op("lt", I, const(12))),
    "i // 4 >= 3 is i >= 12": ((90, 9, 1), op("ge", i(I, 4), const(3)), op("ge", I, const(12))),
    "3 > i // 4 is i < 12": ((90, 9, 1), op("gt", const(3), i(I, 4)), op("lt", I, const(12))),
    "4 i < 4 j is i < j": ((9, 9, 1), op("lt", times(4, I), times(4, J)), op("lt", I, J)),
    "what is always so": ((9, 9, 1), op("le", i(I, 3), const(2)), const(True, Elem.BOOL)),
    "a clamp that changes nothing": ((9, 9, 1), op("min", op("max", sum_of(I, -1), const(0)), const(8)), op("max", sum_of(I, -1), const(0))),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws(name: str) -> None:
    """Both sides are equal for all indices, and the left one becomes the right one."""
    extents, left, right = LAWS[name]
    for point in np.ndindex(*extents):
        values = dict(zip((I, J, K), map(int, point), strict=True))
        assert evaluate(left, values) == evaluate(right, values), values
    ranges = Ranges([*map(const, extents)])
    assert ranges.simplify(left) is ranges.simplify(right)
    assert divisions([ranges.simplify(left)]) == divisions([right])


def test_facts() -> None:
    """Inside of a choice its condition holds."""
    clamped = op("min", op("max", op("sub", I, const(1)), const(0)), const(3))
    plain = Ranges([const(6)])
    assert plain.simplify(clamped) is clamped
    known = Ranges([const(6)], [to_poly(op("sub", I, const(1))), to_poly(op("sub", const(4), I))])
    assert known.simplify(clamped) is op("sub", I, const(1))
    row = op("max", op("sub", const(3), i(I, 5)), const(0))
    assert Ranges([const(25)]).simplify(row) is row
    assert Ranges([const(25)], [to_poly(op("sub", const(19), I))]).simplify(row) is op("sub", const(3), i(I, 5))


def test_a_load_takes_the_shape_in_which_it_divides_least() -> None:
    x = Tensor("x", Elem.F32, (const(24),))
    y = Tensor("y", Elem.F32, (const(24),))
    node = Node((y,), (const(24),), (load(x, [i(I, 8), r(I, 8)], [const(3), const(8)]),))
    assert straightened(node).outputs[0] is load(x, [I])
    odd = Node((y,), (const(24),), (load(x, [r(I, 3), i(I, 3)], [const(3), const(8)]),))
    assert straightened(odd).outputs[0] is odd.outputs[0]


@st.composite
def quotients(draw: st.DrawFn, depth: int = 3) -> Expr:
    """Sums of indices, quotients and remainders by constants."""
    if not depth or not draw(st.integers(0, 2)):
        return draw(st.sampled_from([I, J, const(draw(st.integers(-5, 30)))]))
    a = draw(quotients(depth - 1))
    match draw(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "mod", "floordiv"])):
        case "mul":
            return times(draw(st.sampled_from([-4, -1, 2, 3, 4, 6])), a)
        case "add" | "sub" as name:
            return op(name, a, draw(quotients(depth - 1)))
        case name:
            return op(name, a, const(draw(st.sampled_from([2, 3, 4, 6, 12]))))


@settings(max_examples=400, deadline=None)
@given(quotients(), st.sampled_from(["lt", "le", "gt", "ge"]), st.integers(-3, 12), st.integers(1, 9), st.integers(1, 30))
def test_quotients_and_their_comparisons(e: Expr, name: str, limit: int, m: int, n: int) -> None:
    ranges = Ranges([const(m), const(n)])
    simple, test = ranges.simplify(e), op(name, e, const(limit))
    decided = ranges.simplify(test)
    for a in range(m):
        for b in range(n):
            values = {I: a, J: b}
            assert evaluate(e, values) == evaluate(simple, values), (e, simple)
            assert evaluate(test, values) == evaluate(decided, values), (test, decided)


def test_a_division_that_could_wrap_stays() -> None:
    s = scalar(Scalar("s"))  # any number: 4 s may wrap
    e = op("floordiv", op("mul", s, const(4)), const(4))
    assert Ranges([]).simplify(e) is e


def test_slope() -> None:
    assert slope(op("add", op("mul", I, const(3)), J), 0) is const(3)
    assert slope(J, 0) is const(0)
    assert slope(op("floordiv", I, const(2)), 0) is None

"""Tensor lowering keeps every bit: fused, scheduled and packed kernels against the interpreter of SSA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensor_run import F32, F64, I64, call, compare, function, lowered, product, tensor

from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder
from tlc.ssa.ir import BOOL, Module, Type, Value
from tlc.tensor import schedule
from tlc.tensor.kernel.ir import For, Kind, const, statements
from tlc.tensor.kernel.text import print_kernels
from tlc.tensor.nests import GAP
from tlc.tensor.pack import OFTEN
from tlc.tensor.schedule import Target

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(5)


def reals(*shape: int, dtype: Any = np.float32) -> Array:
    return RANDOM.standard_normal(shape).astype(dtype)


def layer(activation: str, a: str = "ik", w: str = "kj") -> Module:
    """y = activation(a @ w + bias), with each operand in either layout."""

    def body(b: Builder, x: Value, m: Value, bias: Value) -> list[Value]:
        n, k, p = b.dim(x, a.index("i")), b.dim(x, a.index("k")), b.dim(m, w.index("j"))

        def element(b: Builder, i: Value, j: Value) -> Value:
            def term(b: Builder, q: Value) -> Value:
                at = {"i": i, "j": j, "k": q}
                return product(b, x, [at[c] for c in a], m, [at[c] for c in w])

            return b.op("add", b.reduce("sum", [k], term, "chain"), b.index(bias, j))

        y = b.tabulate([n, p], element)
        return [b.tabulate([n, p], lambda b, i, j: b.op(activation, b.index(y, i, j)))]

    return function([tensor(2), tensor(2), tensor(1)], [tensor(2)], body)


@pytest.mark.parametrize("shape", [(3, 4, 5), (7, 20, 33), (13, 3, 17), (1, 1, 1), (6, 0, 16), (0, 4, 4), (4, 4, 0), (25, 2, 40)])
@pytest.mark.parametrize(("a", "w"), [("ik", "kj"), ("ki", "kj"), ("ik", "jk"), ("ki", "jk")])
def test_layers(shape: tuple[int, int, int], a: str, w: str) -> None:
    size = dict(zip("ikj", shape, strict=True))
    tensors = compare(layer("tanh", a, w), reals(*(size[c] for c in a)), reals(*(size[c] for c in w)), reals(shape[2]))
    assert sum(name.startswith("product") for name in tensors.kernels) == 1
    assert len(tensors.kernels) == (2 if (a, w) == ("ik", "jk") else 1)  # a copy only where no axis of the output is contiguous


def test_wider_vectors_give_the_same_bits() -> None:
    compare(layer("abs"), reals(29, 9), reals(9, 70), reals(70), target=Target(64, 32))


@pytest.mark.parametrize("shape", [(70, 9, 65), (64, 4, 64), (73, 7, 71)])
@pytest.mark.parametrize(("a", "w"), [("ik", "kj"), ("ki", "kj"), ("ik", "jk"), ("ki", "jk")])
def test_large_products_copy_their_operands(shape: tuple[int, int, int], a: str, w: str) -> None:
    """Large for a cache of a few bytes: panels of columns, and of rows where those are contiguous; the last ones are not full."""
    size = dict(zip("ikj", shape, strict=True))

    def body(b: Builder, x: Value, m: Value) -> list[Value]:
        n, k, p = (b.i64(size[c]) for c in "ikj")
        x, m = b.reshape(x, [b.i64(size[c]) for c in a]), b.reshape(m, [b.i64(size[c]) for c in w])

        def element(b: Builder, i: Value, j: Value) -> Value:
            at = {"i": i, "j": j}
            term = lambda b, q: product(b, x, [{**at, "k": q}[c] for c in a], m, [{**at, "k": q}[c] for c in w])  # noqa: E731
            return b.reduce("sum", [k], term, "chain")

        return [b.tabulate([n, p], element)]

    module = function([tensor(2), tensor(2)], None, body)
    operands = reals(*(size[c] for c in a)), reals(*(size[c] for c in w))
    tensors = compare(module, *operands, target=Target(16, 16, 64))
    (kernel,) = (k for name, k in tensors.kernels.items() if name.startswith("product"))
    assert kernel.notes[-1].startswith("panels")
    assert len(kernel.outputs) == (3 if a == "ki" else 2)


@pytest.mark.parametrize(("narrow", "wide"), [(Elem.F16, Elem.F32), (Elem.I8, Elem.I32), (Elem.F32, Elem.F64)])
@pytest.mark.parametrize("shape", [(33, 5, 40), (33, 5, 7)])
def test_what_is_converted_for_a_product_is_converted_once(narrow: Elem, wide: Elem, shape: tuple[int, int, int]) -> None:
    n, k, p = shape

    def body(b: Builder, x: Value, m: Value) -> list[Value]:
        sizes = [b.i64(size) for size in shape]
        x, m = b.reshape(x, sizes[:2]), b.reshape(m, sizes[1:])

        def element(b: Builder, i: Value, j: Value) -> Value:
            def term(b: Builder, q: Value) -> Value:
                return b.op("mul", b.convert(b.index(x, i, q), Type(wide)), b.convert(b.index(m, q, j), Type(wide)))

            return b.reduce("sum", [sizes[1]], term, "chain")

        return [b.tabulate([sizes[0], sizes[2]], element)]

    a, w = (RANDOM.integers(-100, 100, s).astype(DTYPES[narrow]) for s in ((n, k), (k, p)))
    tensors = compare(function([tensor(2, narrow), tensor(2, narrow)], None, body), a, w)
    assert len(tensors.kernels) == (3 if p >= OFTEN else 2)  # of each factor that is read often


@pytest.mark.parametrize("shape", [(64, 4, 64), (77, 8, 71)])
def test_rows_that_share_places_of_the_cache_are_copied_apart(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "CROWDED", 16)
    n, k, p = shape

    def body(b: Builder, x: Value, m: Value) -> list[Value]:
        sizes = [b.i64(size) for size in shape]
        x, m = b.reshape(x, sizes[:2]), b.reshape(m, sizes[1:])
        element = lambda b, i, j: b.reduce("sum", [sizes[1]], lambda b, q: product(b, x, [i, q], m, [q, j]), "chain")  # noqa: E731
        return [b.tabulate([sizes[0], sizes[2]], element)]

    tensors = compare(function([tensor(2), tensor(2)], None, body), reals(n, k), reals(k, p), target=Target(16, 16, 64))
    (kernel,) = (k for name, k in tensors.kernels.items() if name.startswith("product"))
    assert [b.shape for b in kernel.outputs[2:]] == [(const(n * (k + GAP)),)]


def test_blocks_of_rows_leave_room_for_what_is_written() -> None:
    """Of a product of [4096, 64] and [64, 1024], a cache of 256 KB has room for 512 rows of the one factor, but for 60 rows with the result."""

    def body(b: Builder, x: Value, m: Value) -> list[Value]:
        x, m = b.reshape(x, [b.i64(4096), b.i64(64)]), b.reshape(m, [b.i64(64), b.i64(1024)])
        element = lambda b, i, j: b.reduce("sum", [b.i64(64)], lambda b, q: product(b, x, [i, q], m, [q, j]), "chain")  # noqa: E731
        return [b.tabulate([b.i64(4096), b.i64(1024)], element)]

    tensors = lowered(function([tensor(2), tensor(2)], None, body), Target(64, 32, 256 << 10))
    (kernel,) = (k for name, k in tensors.kernels.items() if name.startswith("product"))
    assert any(isinstance(s, For) and s.var.name.startswith("b") and s.step == 60 for s in statements(kernel.body))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (20, 37), (33, 16), (16, 33)])
@pytest.mark.parametrize("elem", [Elem.F32, Elem.F64])
def test_softmax_and_sums(shape: tuple[int, int], elem: Elem) -> None:
    def body(b: Builder, x: Value) -> list[Value]:
        n, k = b.dims(x)
        row = lambda op, y: b.tabulate([n], lambda b, i: b.reduce(op, [k], lambda b, q: b.index(y, i, q)))  # noqa: E731
        column = lambda op, y: b.tabulate([k], lambda b, i: b.reduce(op, [n], lambda b, q: b.index(y, q, i)))  # noqa: E731
        top = row("max", x)
        e = b.tabulate([n, k], lambda b, i, j: b.op("exp", b.op("sub", b.index(x, i, j), b.index(top, i))))
        s = row("sum", e)
        y = b.tabulate([n, k], lambda b, i, j: b.op("div", b.index(e, i, j), b.index(s, i)))
        t = b.tabulate([k, n], lambda b, i, j: b.index(y, j, i))
        total = b.reduce("sum", [n, k], lambda b, i, j: b.index(y, i, j))
        square = lambda b, i, j: b.op("mul", b.index(t, j, i), b.index(y, i, j))  # noqa: E731
        corner = b.tabulate([b.i64(2)], lambda b, a: b.reduce("sum", [n, k], square))
        return [y, t, total, corner, column("sum", y), column("prod", x), column("min", x), row("argmax", x), row("prod", x)]

    real = lambda rank: tensor(rank, elem)  # noqa: E731
    results = [real(2), real(2), real(0), real(1), real(1), real(1), real(1), tensor(1, Elem.I64), real(1)]
    compare(function([real(2)], results, body), reals(*shape, dtype=np.float32 if elem is Elem.F32 else np.float64))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (20, 37)])
def test_rows_that_lie_where_a_row_lies_that_lies_where_the_result_will(shape: tuple[int, int]) -> None:
    """e is stored in the memory of c, and c in that of y."""

    def body(b: Builder, x: Value) -> list[Value]:
        n, k = b.dims(x)
        row = lambda op, y: b.tabulate([n], lambda b, i: b.reduce(op, [k], lambda b, q: b.index(y, i, q)))  # noqa: E731
        each = lambda op, y, z: b.tabulate([n, k], lambda b, i, j: b.op("exp", b.op(op, b.index(y, i, j), b.index(z, i))))  # noqa: E731
        e = each("sub", x, row("max", x))
        c = each("div", e, row("sum", e))
        return [each("div", c, row("sum", c))]

    tensors = compare(function([tensor(2)], None, body), reals(*shape))
    (kernel,) = tensors.kernels.values()
    assert len(kernel.outputs) == 1


def batch_of_rows(b: int, n: int, k: int) -> Module:
    """x less the sum of its row, over a batch of known size."""

    def body(builder: Builder, x: Value) -> list[Value]:
        extents = [builder.i64(e) for e in (b, n, k)]
        x = builder.reshape(x, extents)
        rows, columns = extents[:2], extents[2:]
        total = builder.tabulate(rows, lambda c, p, i: c.reduce("sum", columns, lambda d, q: d.index(x, p, i, q)))
        return [builder.tabulate(extents, lambda c, p, i, j: c.op("sub", c.index(x, p, i, j), c.index(total, p, i)))]

    return function([tensor(3)], None, body)


def test_the_rows_of_a_batch_of_one_are_shared_among_threads() -> None:
    (kernel,) = compare(batch_of_rows(1, 5, 7), reals(1, 5, 7)).kernels.values()
    assert kernel.notes[-1].startswith("a row after the other")
    compare(batch_of_rows(1, 1, 7), reals(1, 1, 7))
    (large,) = lowered(batch_of_rows(1, 4096, 1024)).kernels.values()
    assert [s.stop for s in large.body if isinstance(s, For) and s.kind is Kind.PARALLEL] == [const(4096)]


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (20, 37)])
def test_integers_and_bools(shape: tuple[int, int]) -> None:
    def body(b: Builder, x: Value) -> list[Value]:
        n, k = b.dims(x)
        s = b.tabulate([n], lambda b, i: b.reduce("sum", [k], lambda b, q: b.index(x, i, q)))
        c = b.tabulate([k], lambda b, i: b.reduce("prod", [n], lambda b, q: b.index(x, q, i)))
        a = b.reduce("all", [n, k], lambda b, p, q: b.op("lt", b.index(x, p, q), b.i64(9)))
        e = b.reduce("any", [n, k], lambda b, p, q: b.op("gt", b.index(x, p, q), b.i64(9)))
        least = b.reduce("max", [n, k], lambda b, p, q: b.index(x, p, q))
        where = b.reduce_many("argmin", [n, k], lambda b, p, q: b.index(x, p, q)).results
        eq = b.tabulate([n, k], lambda b, i, j: b.op("eq", b.index(x, i, j), j))
        count = b.reduce("sum", [n, k], lambda b, p, q: b.convert(b.index(eq, p, q), F32))
        return [s, c, a, e, least, *where, eq, count]

    results = [tensor(1, Elem.I64), tensor(1, Elem.I64), BOOL, BOOL, I64, I64, I64, tensor(2, Elem.BOOL), F32]
    compare(function([tensor(2, Elem.I64)], results, body), RANDOM.integers(-5, 11, shape))


def test_not_a_number_and_signed_zero() -> None:
    def body(b: Builder, x: Value) -> list[Value]:
        (n,) = b.dims(x)
        fold = lambda op: b.reduce(op, [n], lambda b, i: b.index(x, i))  # noqa: E731
        return [fold("max"), fold("min"), fold("argmax"), fold("argmin"), fold("sum")]

    module = function([tensor(1)], [F32, F32, I64, I64, F32], body)
    for values in ([1.0, np.nan, 3.0, np.nan], [-0.0, 0.0, -0.0], [-np.inf, -np.inf], [0.0, -0.0], [2.0, 7.0, 7.0]):
        compare(module, np.array(values, np.float32))


@pytest.mark.parametrize("count", [0, 1, 20])
def test_scatter_and_gather(count: int) -> None:
    def body(b: Builder, x: Value, at: Value) -> list[Value]:
        n, d = b.dim(at, 0), b.dim(x, 1)
        add = lambda b, i, j: (b.index(at, i), j, b.op("mul", b.convert(i, F32), b.index(x, b.i64(0), j)))  # noqa: E731
        s = b.scatter(x, [n, d], add)
        zeros = b.tabulate([b.dim(x, 0), d], lambda b, i, j: b.const(0.0, F32))
        z = b.scatter(zeros, [n, d], lambda b, i, j: (b.index(at, i), j, b.convert(i, F32)))
        return [s, z, b.tabulate([n, d], lambda b, i, j: b.index(s, b.index(at, i), j))]

    compare(function([tensor(2), tensor(1, Elem.I64)], [tensor(2)] * 3, body), reals(5, 7), RANDOM.integers(0, 5, count))


def test_each_addition_of_a_scatter_rounds() -> None:
    """1 + 2**-8 lies in the middle of two values of bf16 and goes to the even one, each time."""

    def body(b: Builder, x: Value) -> list[Value]:
        return [b.scatter(x, [b.i64(6)], lambda b, i: (b.op("floordiv", i, b.i64(4)), b.const(2.0**-8, Type(Elem.BF16))))]

    module = function([tensor(1, Elem.BF16)], None, body)
    compare(module, np.ones(2, np.float32))
    (found,) = call(lowered(module), [np.ones(2, np.float32)])
    assert found.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("n", [0, 1, 5, 40])
def test_reshapes_and_parts(n: int) -> None:
    def body(b: Builder, x: Value) -> list[Value]:
        n, six = b.dim(x, 0), b.i64(6)
        y = b.tabulate([n, b.i64(4), six], lambda b, i, j, k: b.op("exp", b.index(x, i, b.op("add", b.op("mul", j, six), k))))
        z = b.reshape(y, [n, b.i64(24)])
        w = b.tabulate([n, b.i64(24)], lambda b, i, j: b.op("add", b.index(z, i, j), b.index(x, i, j)))
        v = b.reshape(w, [b.i64(24), n])
        part = b.index(v, b.i64(3))
        s = b.tabulate([b.i64(24)], lambda b, i: b.reduce("sum", [n], lambda b, k: b.index(v, i, k)))
        return [w, v, part, s]

    tensors = compare(function([tensor(2)], [tensor(2), tensor(2), tensor(1), tensor(1)], body), reals(n, 24))
    assert "//" not in print_kernels(tensors.kernels), "no division is left"


@pytest.mark.parametrize("n", [0, 1, 5, 40])
def test_reductions_that_end_at_an_index(n: int) -> None:
    def body(b: Builder, x: Value) -> list[Value]:
        (n,) = b.dims(x)
        y = b.tabulate([n], lambda b, i: b.reduce("sum", [b.op("add", i, b.i64(1))], lambda b, k: b.index(x, k)))
        dot = lambda b, i, k, j: b.op("mul", b.index(x, k), b.index(x, j))  # noqa: E731
        z = b.tabulate([n, n], lambda b, i, j: b.reduce("sum", [i], lambda b, k: dot(b, i, k, j), "chain"))
        w = b.tabulate([n], lambda b, i: b.reduce("sum", [i], lambda b, k: dot(b, i, k, i), "chain"))
        return [y, z, w]

    compare(function([tensor(1)], [tensor(1), tensor(2), tensor(1)], body), reals(n))


def convolution() -> Module:
    def body(b: Builder, x: Value, w: Value) -> list[Value]:
        c, height, width = b.dims(x)
        o, p, q = b.dim(w, 0), b.dim(w, 2), b.dim(w, 3)
        rows = b.op("add", b.op("sub", height, p), b.i64(1))
        columns = b.op("add", b.op("sub", width, q), b.i64(1))

        def element(b: Builder, k: Value, i: Value, j: Value) -> Value:
            def term(b: Builder, c: Value, p: Value, q: Value) -> Value:
                return product(b, x, [c, b.op("add", i, p), b.op("add", j, q)], w, [k, c, p, q])

            return b.reduce("sum", [c, p, q], term, "chain")

        return [b.tabulate([o, rows, columns], element)]

    return function([tensor(3), tensor(4)], [tensor(3)], body)


def test_convolution_is_a_tile() -> None:
    tensors = compare(convolution(), reals(3, 6, 20), reals(7, 3, 3, 3))
    (kernel,) = tensors.kernels.values()
    assert any(isinstance(s, For) and s.kind is Kind.VECTOR for s in statements(kernel.body))


def test_matrix_by_vector_and_batches() -> None:
    def body(b: Builder, a: Value, x: Value, s: Value) -> list[Value]:
        h, n, k = b.dims(s)
        y = b.tabulate([n], lambda b, i: b.reduce("sum", [k], lambda b, q: product(b, a, [i, q], x, [q]), "chain"))
        z = b.tabulate([k], lambda b, j: b.reduce("sum", [n], lambda b, q: product(b, y, [q], a, [q, j]), "chain"))
        batch = lambda b, c, i, j: b.reduce("sum", [k], lambda b, q: product(b, s, [c, i, q], s, [c, j, q]), "chain")  # noqa: E731
        return [y, z, b.tabulate([h, n, n], batch)]

    compare(function([tensor(2), tensor(1), tensor(3)], [tensor(1), tensor(1), tensor(3)], body), reals(19, 6), reals(6), reals(2, 19, 6))


def escape(b: Builder, v: Value, limit: Value) -> tuple[Value, Value]:
    """z = z * z + v until it is large; the last z and the number of steps."""
    head, body, done = b.new_block("head", [F32, I64]), b.new_block("body"), b.new_block("done")
    b.jump(head, v, b.i64(0))
    b.move_to(head)
    z, count = head.params
    b.branch(b.op("and", b.op("lt", z, b.const(10.0, F32)), b.op("lt", count, limit)), body, done)
    b.move_to(body)
    b.jump(head, b.op("add", b.op("mul", z, z), v), b.op("add", count, b.i64(1)))
    b.move_to(done)
    return z, count


def test_control_flow_is_applied() -> None:
    def body(b: Builder, x: Value, limit: Value) -> list[Value]:
        (n,) = b.dims(x)
        y, c = b.tabulate_many([n], lambda b, i: escape(b, b.index(x, i), limit)).results
        s = b.reduce("sum", [n], lambda b, i: b.convert(b.index(c, i), F32))
        t = b.reduce("sum", [n], lambda b, i: escape(b, b.index(x, i), limit)[0])
        return [y, c, s, t]

    compare(function([tensor(1), I64], [tensor(1), tensor(1, Elem.I64), F32, F32], body), reals(50), 20)


def step(types: list[Type]) -> Module:
    def body(b: Builder, *tensors: Value) -> list[Value]:
        n, k = b.i64(24), b.i64(10)
        shaped = [b.reshape(t, [n, k]) for t in tensors]  # so that the extents are known

        def element(b: Builder, i: Value, j: Value) -> list[Value]:
            p, g, m = (b.index(t, i, j) for t in shaped)
            m2 = b.op("add", b.op("mul", b.const(0.9, F32), m), g)
            return [b.op("sub", p, b.op("mul", b.const(0.1, F32), m2)), m2]

        return list(b.tabulate_many([n, k], element).results)

    return function(types, [tensor(2), tensor(2)], body)


def test_several_results_are_one_kernel_that_may_work_in_place() -> None:
    tensors = compare(step([tensor(2)] * 3), reals(24, 10), reals(24, 10), reals(24, 10))
    (kernel,) = tensors.kernels.values()
    assert {o for o, _ in kernel.may_alias} == {0, 1}


def test_equal_kernels_are_one() -> None:
    def body(b: Builder, x: Value, y: Value) -> list[Value]:
        return [b.tabulate([b.dim(v, 0)], lambda b, i, v=v: b.op("exp", b.index(v, i))) for v in (x, y)]

    assert len(lowered(function([tensor(1), tensor(1)], [tensor(1), tensor(1)], body)).kernels) == 1


def test_a_load_does_not_move_behind_an_update() -> None:
    """y = exp(x); x[0] = 1; z = y + x: y is computed before the update, which then copies nothing."""

    def body(b: Builder, x: Value) -> list[Value]:
        (n,) = b.dims(x)
        y = b.tabulate([n], lambda b, i: b.op("exp", b.index(x, i)))
        x2 = b.update(x, [b.i64(0)], b.const(1.0, F32))
        return [b.tabulate([n], lambda b, i: b.op("add", b.index(y, i), b.index(x2, i)))]

    tensors = compare(function([tensor(1)], [tensor(1)], body), reals(20))
    assert len(tensors.kernels) == 2


def test_views_of_f64_and_constants() -> None:
    def body(b: Builder, x: Value) -> list[Value]:
        n, k = b.dims(x)
        y = b.tabulate([k, n], lambda b, i, j: b.op("sin", b.index(x, j, i)))
        return [b.tabulate([n, k], lambda b, i, j: b.op("add", b.index(y, j, i), b.convert(b.op("sub", i, j), F64))), y]

    module = function([tensor(2, Elem.F64)], [tensor(2, Elem.F64)] * 2, body)
    compare(module, reals(9, 13, dtype=np.float64))
    assert call(lowered(module), [np.zeros((0, 3))])[0].shape == (0, 3)

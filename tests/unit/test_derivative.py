"""Gradients agree with finite differences in f64, and their code has the form that one expects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ssa_services import Recorder

from tlc.frontend.elementary import PROMISING
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.opt import passes
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import I64, Instr, Module, Type, Value, walk
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.derivative import differentiate
from tlc.tensor.derivative_rules import RULES
from tlc.tensor.flatten import flatten

F64, VECTOR, MATRIX, COUNTS = Type(Elem.F64), Type(Elem.F64, 1), Type(Elem.F64, 2), Type(Elem.I64, 1)
Body = Callable[..., Value]  # (builder, *parameters) -> the result; the builder stands where the result is returned

RANDOM = np.random.default_rng(7)
A, B = RANDOM.normal(size=5), RANDOM.normal(size=5)
M, N = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(4, 2))


def type_of(value: Any) -> Type:
    a = np.asarray(value)
    return Type(Elem.F64 if a.dtype.kind == "f" else Elem.BOOL if a.dtype.kind == "b" else Elem.I64, a.ndim)


def primal(body: Body, args: Sequence[Any]) -> Module:
    """A module with a function `f` of that body."""
    module = Module()
    f, b = new_function("f", [(f"p{k}", type_of(a)) for k, a in enumerate(args)], [F64], module)
    b.ret(body(b, *f.params))
    verify(module)
    return module


def gradient(module: Module, args: Sequence[Any], shapes: bool = False) -> Module:
    """The module with `g`, which gives the value and the gradients of `f` by its real parameters.

    With `shapes`, `g` knows the extents: it rebuilds its arguments by `reshape` to constants.
    """
    wrt = tuple(k for k, p in enumerate(module.functions["f"].params) if p.type.elem.is_real)
    types = [p.type for p in module.functions["f"].params]
    results = [F64, *(types[k] for k in wrt)]
    g, b = new_function("g", [(f"p{k}", t) for k, t in enumerate(types)], results, module)
    given: list[Value] = list(g.params)
    if shapes:
        given = [b.reshape(p, [b.i64(n) for n in np.shape(a)]) if np.ndim(a) else p for p, a in zip(given, args, strict=True)]
    b.ret(*b.emit("grad", given, results, {"callee": "f", "wrt": wrt, "value": True}).results)
    passes.run(module, passes.LEVELS[2], verify_each=True)
    flatten(module)
    verify(module)
    differentiate(module)
    verify(module)
    assert not any(i.op == "grad" for f in module.functions.values() for i in walk(f.body))
    return module


def run(module: Module, name: str, args: Sequence[Any]) -> list[Any]:
    return Interpreter(module, Recorder()).call(name, args)


def numeric(body: Body, args: Sequence[Any], k: int, step: float = 1e-6) -> Any:
    """Central differences by argument k."""
    module = primal(body, args)
    x = np.array(args[k], dtype=np.float64)
    out = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * step
            ends.append(run(module, "f", [moved if j == k else a for j, a in enumerate(args)])[0])
        out[at] = (ends[0] - ends[1]) / (2 * step)
    return out


def agree(body: Body, *args: Any, rtol: float = 1e-6) -> Module:
    """The gradients by every real argument are those of finite differences, with and without known extents."""
    for shapes in (False, True):
        module = gradient(primal(body, args), args, shapes)
        value, *found = run(module, "g", args)
        np.testing.assert_allclose(value, run(primal(body, args), "f", args)[0], rtol=1e-12)
        wrt = [k for k, a in enumerate(args) if type_of(a).elem.is_real]
        for k, d in zip(wrt, found, strict=True):
            wanted = numeric(body, args, k)
            assert np.shape(d) == np.shape(args[k])
            np.testing.assert_allclose(d, wanted, rtol=rtol, atol=1e-7, err_msg=f"by argument {k}\n{print_module(module)}")
    return module


def total(b: Builder, x: Value, order: str = "lanes") -> Value:
    """The sum of the squares, so that every element has another adjoint."""
    return b.reduce("sum", b.dims(x), lambda b, *i: b.op("mul", b.index(x, *i), b.index(x, *i)), order)


def of_derivative(module: Module) -> list[Instr]:
    (name,) = (n for n in module.functions if "grad" in n)
    return [i for block in module.functions[name].blocks for i in block.instrs]


# ---------------------------------------------------------------- scalar ops

POINTS: dict[str, list[tuple[Any, ...]]] = {
    "sqrt": [(2.0,)],
    "log": [(2.0,)],
    "log1p": [(-0.5,), (3.0,)],
    "pow": [(1.5, 2.5), (2.0, -1.5), (0.0, 2.0)],
    "mod": [(5.3, 2.1), (-5.3, 2.1)],
    "floordiv": [(5.3, 2.1)],
    "fma": [(1.5, -0.5, 2.0)],
    "select": [(True, 1.5, 2.5), (False, 1.5, 2.5)],
}
REAL_RESULTS = sorted(n for n, row in SCALAR_OPS.items() if row.gives == "same" and Elem.F64 in row.takes and n not in PROMISING)


@pytest.mark.parametrize("op", REAL_RESULTS)
def test_scalar_op(op: str) -> None:
    arity = SCALAR_OPS[op].arity
    for point in POINTS.get(op, [(0.7, -1.3, 0.4)[:arity], (-0.7, 1.3, 0.4)[:arity]]):
        agree(lambda b, *x: b.op("mul", b.op(op, *x), b.const(3.0, F64)), *point)


@pytest.mark.parametrize("op", REAL_RESULTS)
def test_scalar_op_in_a_comprehension(op: str) -> None:
    points = POINTS.get(op, [(0.7, -1.3, 0.4), (-0.7, 1.3, 0.4)])
    columns = [np.array(c) for c in list(zip(*points, strict=True))[: SCALAR_OPS[op].arity]]

    def body(b: Builder, *x: Value) -> Value:
        y = b.tabulate([b.dim(x[0], 0)], lambda b, i: b.op(op, *(b.index(v, i) for v in x)))
        return total(b, y)

    agree(body, *columns)


def test_every_op_has_a_rule() -> None:
    assert set(RULES) == set(SCALAR_OPS)


@pytest.mark.parametrize(
    ("op", "args", "wanted"),
    [
        ("max", (1.0, 1.0), (0.0, 1.0)),
        ("min", (1.0, 1.0), (0.0, 1.0)),
        ("abs", (0.0,), (0.0,)),
        ("sqrt", (0.0,), (np.inf,)),
        ("floor", (2.5,), (0.0,)),
        ("round", (2.0,), (0.0,)),
        ("sign", (0.0,), (0.0,)),
        ("pow", (0.0, 0.0), (0.0, 0.0)),
    ],
)
def test_kinks(op: str, args: tuple[float, ...], wanted: tuple[float, ...]) -> None:
    module = gradient(primal(lambda b, *x: b.op(op, *x), args), args)
    assert tuple(run(module, "g", args)[1:]) == wanted


def test_conversions() -> None:
    def body(b: Builder, x: Value, n: Value) -> Value:
        narrow = b.op("convert", b.op("convert", x, type=Type(Elem.F32)), type=F64)
        whole = b.op("convert", b.op("convert", x, type=I64), type=F64)
        return b.op("mul", b.op("add", narrow, whole), b.op("convert", n, type=F64))

    args = (1.25, 3)
    assert run(gradient(primal(body, args), args), "g", args)[1] == 3.0


def test_stop_grad() -> None:
    args = (3.0,)
    module = gradient(primal(lambda b, x: b.op("mul", x, b.op("stop_grad", x)), args), args)
    assert run(module, "g", args)[1] == 3.0


def test_an_unused_argument_has_zeros() -> None:
    module = gradient(primal(lambda b, x, y: total(b, x), (A, M)), (A, M))
    assert np.array_equal(run(module, "g", (A, M))[2], np.zeros((3, 4)))


# ---------------------------------------------------------------- comprehensions


def test_sum_mean_and_broadcast() -> None:
    def body(b: Builder, x: Value, s: Value) -> Value:
        n = b.dim(x, 0)
        mean = b.op("div", b.reduce("sum", [n], lambda b, i: b.index(x, i)), b.op("convert", n, type=F64))
        y = b.tabulate([n], lambda b, i: b.op("mul", b.op("sub", b.index(x, i), mean), s))
        return total(b, y)

    agree(body, A, 1.5)


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_reductions(op: str) -> None:
    def whole(b: Builder, x: Value) -> Value:
        r = b.reduce(op, b.dims(x), lambda b, i, j: b.op("mul", b.index(x, i, j), b.index(x, i, j)))
        return b.op("mul", r, r)

    def rows(b: Builder, x: Value) -> Value:
        n, m = b.dims(x)
        return total(b, b.tabulate([n], lambda b, i: b.reduce(op, [m], lambda b, j: b.op("sin", b.index(x, i, j)))))

    agree(whole, M)
    agree(rows, M)


def test_a_maximum_gives_all_to_the_first() -> None:
    args = (np.array([1.0, 3.0, 3.0, 2.0]),)
    module = gradient(primal(lambda b, x: b.reduce("max", b.dims(x), lambda b, i: b.index(x, i)), args), args)
    assert np.array_equal(run(module, "g", args)[1], [0.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_a_product_with_zeros(zeros: int) -> None:
    x = np.array([1.5, -2.0, 0.5, 3.0])
    x[:zeros] = 0.0
    agree(lambda b, x: b.reduce("prod", b.dims(x), lambda b, i: b.index(x, i)), x)


def matmul(b: Builder, x: Value, y: Value) -> Value:
    n, k, m = b.dim(x, 0), b.dim(x, 1), b.dim(y, 1)

    def dot(b: Builder, i: Value, j: Value) -> Value:
        return b.reduce("sum", [k], lambda b, p: b.op("mul", b.index(x, i, p), b.index(y, p, j)), "chain")

    return b.tabulate([n, m], dot)


def test_matrix_product() -> None:
    module = agree(lambda b, x, y: total(b, matmul(b, x, y)), M, N)
    chains = [i for top in of_derivative(module) for r in top.regions for i in walk(r) if i.op == "reduce"]
    assert [i.attrs["order"] for i in chains] == ["chain"] * 3
    assert not any(i.op == "scatter" for i in of_derivative(module))


def test_transposes_diagonals_and_squares() -> None:
    square = RANDOM.normal(size=(3, 3))

    def body(b: Builder, x: Value) -> Value:
        n = b.dim(x, 0)
        t = b.tabulate([n, n], lambda b, i, j: b.op("mul", b.index(x, j, i), b.index(x, i, i)))
        gram = matmul(b, x, t)
        return total(b, gram)

    agree(body, square)


def test_convolution_and_shifted_reads() -> None:
    def body(b: Builder, x: Value, k: Value) -> Value:
        n, m = b.dim(x, 0), b.dim(k, 0)
        width = b.op("add", b.op("sub", n, m), b.i64(1))

        def at(b: Builder, i: Value) -> Value:
            return b.reduce("sum", [m], lambda b, p: b.op("mul", b.index(x, b.op("add", i, p)), b.index(k, p)), "chain")

        return total(b, b.tabulate([width], at))

    agree(body, A, B[:2])


def test_pooling() -> None:
    def body(b: Builder, x: Value) -> Value:
        half = b.op("floordiv", b.dim(x, 0), b.i64(2))

        def at(b: Builder, i: Value) -> Value:
            start = b.op("mul", i, b.i64(2))
            return b.reduce("max", [b.i64(2)], lambda b, p: b.op("sin", b.index(x, b.op("add", start, p))))

        return total(b, b.tabulate([half], at))

    agree(body, A)


def test_gather() -> None:
    def body(b: Builder, table: Value, at: Value) -> Value:
        rows = b.tabulate([b.dim(at, 0), b.dim(table, 1)], lambda b, i, c: b.index(table, b.index(at, i), c))
        return total(b, rows)

    agree(body, M, np.array([2, 0, 2, 2]))


def test_picking_one_of_each_row_is_dense() -> None:
    def body(b: Builder, x: Value, label: Value) -> Value:
        return total(b, b.tabulate([b.dim(x, 0)], lambda b, i: b.index(x, i, b.index(label, i))))

    module = agree(body, M, np.array([2, 0, 3]))
    assert not any(i.op == "scatter" for i in of_derivative(module))


def test_scatter() -> None:
    def body(b: Builder, x: Value, y: Value, at: Value) -> Value:
        added = b.scatter(x, [b.dim(y, 0)], lambda b, i: (b.index(at, i), b.op("sin", b.index(y, i))))
        return total(b, added)

    agree(body, A, B, np.array([1, 1, 4, 0, 1]))


def test_reshape_and_rows() -> None:
    def body(b: Builder, x: Value) -> Value:
        y = b.reshape(x, [b.i64(2), b.i64(6)])
        return b.op("add", total(b, b.index(y, b.i64(1))), total(b, y))

    agree(body, M)


def test_update() -> None:
    def body(b: Builder, x: Value, y: Value, s: Value) -> Value:
        one, two = b.i64(1), b.i64(2)
        x = b.update(b.update(x, [one], y), [two, one], b.op("mul", s, s))
        x = b.update(x, [b.i64(0), one], b.index(x, two, one))
        return total(b, x)

    agree(body, M, B[:4], 0.7)


def test_softmax_of_rows() -> None:
    def body(b: Builder, x: Value, w: Value) -> Value:
        def row(b: Builder, i: Value) -> Value:
            r = b.index(x, i)
            n = b.dim(r, 0)
            top = b.reduce("max", [n], lambda b, j: b.index(r, j))
            e = b.tabulate([n], lambda b, j: b.op("exp", b.op("sub", b.index(r, j), top)))
            s = b.reduce("sum", [n], lambda b, j: b.index(e, j))
            return b.tabulate([n], lambda b, j: b.op("mul", b.index(w, j), b.op("div", b.index(e, j), s)))

        return total(b, b.tabulate([b.dim(x, 0)], row))

    agree(body, M, B[:4])


def test_ragged_reductions() -> None:
    def body(b: Builder, x: Value, y: Value) -> Value:
        def below(b: Builder, i: Value) -> Value:
            return b.reduce("sum", [i], lambda b, k: b.op("mul", b.index(x, k), b.op("sin", b.index(y, i))), "chain")

        return total(b, b.tabulate([b.dim(x, 0)], below))

    agree(body, A, B)


# ---------------------------------------------------------------- control flow


def counted(b: Builder, n: Value, start: Sequence[Value], step: Callable[..., Sequence[Value]]) -> list[Value]:
    """`for k in 0..n`; `step` gives the next state from k and the state."""
    head, body, done = b.new_block("head", [I64, *(v.type for v in start)]), b.new_block("body"), b.new_block("done")
    b.jump(head, b.i64(0), *start)
    b.move_to(head)
    k, *state = head.params
    b.branch(b.op("lt", k, n), body, done)
    b.move_to(body)
    after = step(b, k, *state)
    b.jump(head, b.op("add", k, b.i64(1)), *after)
    b.move_to(done)
    return state


def choice(b: Builder, cond: Value, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
    first, second, join = b.new_block("then"), b.new_block("else"), b.new_block("join")
    b.branch(cond, first, second)
    b.move_to(first)
    a = then()
    result = join.add_param(a.type)
    b.jump(join, a)
    b.move_to(second)
    b.jump(join, other())
    b.move_to(join)
    return result


@pytest.mark.parametrize("x", [0.5, -0.5])
def test_a_branch_differentiates_the_side_taken(x: float) -> None:
    def body(b: Builder, x: Value) -> Value:
        positive = b.op("gt", x, b.const(0.0, F64))
        return choice(b, positive, lambda: b.op("log", b.op("sqrt", x)), lambda: b.op("mul", x, b.op("mul", x, x)))

    agree(body, x)


def test_a_branch_with_tensors() -> None:
    def body(b: Builder, x: Value, w: Value) -> Value:
        big = b.op("gt", b.index(x, b.i64(0)), b.const(0.0, F64))
        n = b.dim(x, 0)
        y = choice(
            b,
            big,
            lambda: b.tabulate([n], lambda b, i: b.op("exp", b.index(x, i))),
            lambda: b.tabulate([n], lambda b, i: b.op("mul", b.index(x, i), b.index(w, i))),
        )
        return total(b, y)

    agree(body, np.abs(A), B)
    agree(body, -np.abs(A), B)


def test_a_counted_loop() -> None:
    def body(b: Builder, x: Value, n: Value) -> Value:
        (y,) = counted(b, n, [x], lambda b, k, y: [b.op("mul", b.op("sin", y), b.op("add", y, b.op("convert", k, type=F64)))])
        return y

    agree(body, 0.7, 4)
    agree(body, 0.7, 0)


def test_nested_loops_and_a_branch() -> None:
    def body(b: Builder, x: Value, w: Value) -> Value:
        n = b.dim(w, 0)

        def outer(b: Builder, i: Value, acc: Value) -> list[Value]:
            def inner(b: Builder, j: Value, v: Value) -> list[Value]:
                odd = b.op("eq", b.op("mod", b.op("add", i, j), b.i64(2)), b.i64(1))
                return [choice(b, odd, lambda: b.op("mul", v, b.index(w, j)), lambda: b.op("sin", b.op("add", v, b.index(w, i))))]

            (v,) = counted(b, i, [b.op("mul", acc, x)], inner)
            return [b.op("add", acc, v)]

        (y,) = counted(b, n, [x], outer)
        return y

    agree(body, 0.8, B)


def test_a_loop_over_tensors() -> None:
    """A step of a recurrent net, as often as there are rows: weights are used in every iteration."""

    def body(b: Builder, w: Value, x: Value, h: Value) -> Value:
        n = b.dim(h, 0)

        def step(b: Builder, k: Value, h: Value) -> list[Value]:
            def unit(b: Builder, i: Value) -> Value:
                s = b.reduce("sum", [n], lambda b, j: b.op("mul", b.index(w, i, j), b.index(h, j)), "chain")
                return b.op("tanh", b.op("add", s, b.index(x, k, i)))

            return [b.tabulate([n], unit)]

        (last,) = counted(b, b.dim(x, 0), [h], step)
        return total(b, last)

    agree(body, RANDOM.normal(size=(4, 4)), M, B[:4])


def test_a_loop_that_updates() -> None:
    def body(b: Builder, x: Value) -> Value:
        n = b.op("sub", b.dim(x, 0), b.i64(1))

        def step(b: Builder, k: Value, y: Value) -> list[Value]:
            after = b.op("add", k, b.i64(1))
            return [b.update(y, [after], b.op("mul", b.index(y, after), b.op("sin", b.index(y, k))))]

        (y,) = counted(b, n, [x], step)
        return total(b, y)

    module = agree(body, A)
    assert not any(i.op == "push" and i.operands[0].type.rank for i in of_derivative(module)), "a tensor is on the tape"


def test_early_returns_and_a_data_dependent_loop() -> None:
    def body(b: Builder, x: Value) -> Value:
        early, on = b.new_block("early"), b.new_block("on")
        b.branch(b.op("lt", x, b.const(0.0, F64)), early, on)
        b.move_to(early)
        b.ret(b.op("mul", x, x))
        b.move_to(on)
        head, loop, done = b.new_block("head", [F64]), b.new_block("loop"), b.new_block("done")
        b.jump(head, x)
        b.move_to(head)
        (v,) = head.params
        b.branch(b.op("lt", v, b.const(50.0, F64)), loop, done)
        b.move_to(loop)
        b.jump(head, b.op("mul", b.op("add", v, x), x))
        b.move_to(done)
        return v

    agree(body, -1.5)
    agree(body, 1.5)
    agree(body, 60.0)


def test_a_loop_without_reals_is_not_reversed() -> None:
    def body(b: Builder, x: Value, n: Value) -> Value:
        (k,) = counted(b, n, [b.i64(1)], lambda b, i, k: [b.op("add", k, i)])
        return b.op("mul", b.op("sin", x), b.op("convert", k, type=F64))

    module = agree(body, 0.5, 4)
    assert not any(i.op in ("push", "pop") for i in of_derivative(module))


def test_branches_in_a_comprehension() -> None:
    """Only the side that an element takes contributes: log and sqrt are differentiated where they are finite."""

    def body(b: Builder, x: Value, s: Value, at: Value) -> Value:
        def element(b: Builder, i: Value) -> Value:
            v = b.index(x, i)
            positive = b.op("gt", v, b.const(0.0, F64))
            y = choice(b, positive, lambda: b.op("log", b.op("sqrt", v)), lambda: b.op("mul", v, b.op("mul", s, s)))
            behind = b.op("gt", i, b.i64(0))
            before = choice(b, behind, lambda: b.index(x, b.op("sub", i, b.i64(1))), lambda: b.op("mul", y, s))
            picked = choice(b, positive, lambda: b.op("sin", b.index(x, b.index(at, i))), lambda: b.const(0.5, F64))
            return b.op("mul", b.op("mul", y, before), picked)

        return total(b, b.tabulate([b.dim(at, 0)], element))

    for x in (A, np.abs(A), -np.abs(A)):
        module = agree(body, x, 0.7, np.array([2, 2, 0, 1]))
        assert not any(i.op in ("push", "pop") for f in module.functions.values() for i in walk(f.body))


def test_branches_in_a_reduction() -> None:
    def body(b: Builder, x: Value) -> Value:
        n, m = b.dims(x)

        def element(b: Builder, i: Value, j: Value) -> Value:
            lower = b.op("lt", j, i)
            return choice(b, lower, lambda: b.op("mul", b.index(x, i, j), b.index(x, i, j)), lambda: b.op("exp", b.index(x, i, j)))

        return b.reduce("sum", [n, m], element)

    agree(body, M)


# ---------------------------------------------------------------- whole programs


def test_gradient_of_a_gradient() -> None:
    module = Module()
    f, b = new_function("inner", [("x", VECTOR)], [F64], module)
    (x,) = f.params
    b.ret(b.reduce("sum", b.dims(x), lambda b, i: b.op("mul", b.op("sin", b.index(x, i)), b.index(x, i))))

    def body(b: Builder, x: Value) -> Value:
        b.module = None
        d = b.emit("grad", (x,), [VECTOR], {"callee": "inner", "wrt": (0,), "value": False}).result
        return total(b, d)

    outer = primal_of(module, body, A)
    found = run(gradient(outer, (A,)), "g", (A,))
    first = np.sin(A) + A * np.cos(A)
    np.testing.assert_allclose(found[1], 2 * first * (2 * np.cos(A) - A * np.sin(A)), rtol=1e-10)


def primal_of(module: Module, body: Body, *args: Any) -> Module:
    f, b = new_function("f", [(f"p{k}", type_of(a)) for k, a in enumerate(args)], [F64], module)
    b.ret(body(b, *f.params))
    return module


def test_a_gradient_for_each_row() -> None:
    module = Module()
    f, b = new_function("f", [("x", VECTOR)], [F64], module)
    b.ret(b.reduce("sum", b.dims(f.params[0]), lambda b, i: b.op("exp", b.index(f.params[0], i))))
    g, b = new_function("g", [("x", MATRIX)], [MATRIX], module)
    (x,) = g.params

    def row(b: Builder, i: Value) -> Value:
        return b.emit("grad", (b.index(x, i),), [VECTOR], {"callee": "f", "wrt": (0,), "value": False}).result

    b.ret(b.tabulate([b.dim(x, 0)], row))
    flatten(module)
    differentiate(module)
    passes.run(module, passes.LEVELS[2], verify_each=True)
    flatten(module)
    verify(module)
    np.testing.assert_allclose(run(module, "g", (M,))[0], np.exp(M), rtol=1e-12)
    assert len(module.functions["g"].blocks) == 1


def test_a_recursive_function_has_a_derivative_in_two_parts() -> None:
    """f(x) = x if x < 1, else f(x / 2) x: at 5 it is (5 / 8) (5 / 4) (5 / 2) 5 = 5^4 / 64, with the derivative 4 * 5^3 / 64."""
    module = Module()
    f, b = new_function("f", [("x", F64)], [F64], module)
    stop, on = b.new_block("stop"), b.new_block("on")
    (x,) = f.params
    b.branch(b.op("lt", x, b.const(1.0, F64)), stop, on)
    b.move_to(stop)
    b.ret(x)
    b.move_to(on)
    (rest,) = b.call("f", [b.op("mul", x, b.const(0.5, F64))])
    b.ret(b.op("mul", rest, x))
    assert run(gradient(module, (5.0,)), "g", (5.0,)) == [5**4 / 64, 4 * 5**3 / 64]
    parts = [f for name, f in module.functions.items() if "ward" in name]
    assert [f.name for f in parts] == ["f.forward[0]", "f.backward[0]"]
    assert [{i.op for i in walk(f.body)} & {"push", "pop"} for f in parts] == [{"push"}, {"pop"}]


def mlp(b: Builder, w1: Value, b1: Value, w2: Value, b2: Value, x: Value, label: Value) -> Value:
    """The mean cross entropy of a net with one hidden layer, as the first program of LANGUAGE.md has it."""

    def layer(b: Builder, w: Value, bias: Value, x: Value) -> Value:
        def unit(b: Builder, o: Value) -> Value:
            s = b.reduce("sum", [b.dim(w, 0)], lambda b, i: b.op("mul", b.index(x, i), b.index(w, i, o)), "chain")
            return b.op("add", s, b.index(bias, o))

        return b.tabulate([b.dim(w, 1)], unit)

    def loss(b: Builder, i: Value) -> Value:
        h = layer(b, w1, b1, b.index(x, i))
        r = b.tabulate([b.dim(h, 0)], lambda b, j: b.op("max", b.index(h, j), b.const(0.0, F64)))
        y = layer(b, w2, b2, r)
        top = b.op("stop_grad", b.reduce("max", [b.dim(y, 0)], lambda b, j: b.index(y, j)))
        s = b.reduce("sum", [b.dim(y, 0)], lambda b, j: b.op("exp", b.op("sub", b.index(y, j), top)))
        return b.op("sub", b.op("add", b.op("log", s), top), b.index(y, b.index(label, i)))

    losses = b.tabulate([b.dim(x, 0)], loss)
    n = b.dim(losses, 0)
    return b.op("div", b.reduce("sum", [n], lambda b, i: b.index(losses, i)), b.op("convert", n, type=F64))


def test_the_gradient_of_a_net_has_the_products_that_one_expects() -> None:
    """Two products forward and three backward: the gradient by the images is not asked for."""
    args = [RANDOM.normal(size=s) for s in ((4, 3), 3, (3, 2), 2, (5, 4))] + [np.array([0, 1, 1, 0, 1])]
    agree(mlp, *args)
    module = primal(mlp, args)
    results = [F64, MATRIX, VECTOR, MATRIX, VECTOR]
    g, b = new_function("g", [(p.name, p.type) for p in module.functions["f"].params], results, module)
    given = [b.reshape(p, [b.i64(n) for n in np.shape(a)]) for p, a in zip(g.params, args, strict=True)]
    b.ret(*b.emit("grad", given, results, {"callee": "f", "wrt": (0, 1, 2, 3), "value": True}).results)
    passes.run(module, passes.LEVELS[2])
    flatten(module)
    differentiate(module)
    products = [i for top in of_derivative(module) if top.op == "tabulate" and len(top.operands) == 2 for i in walk(top.regions[0])]
    assert [i.attrs["order"] for i in products if i.op == "reduce"] == ["chain"] * 5
    assert not any(i.op == "scatter" for i in of_derivative(module))


# ---------------------------------------------------------------- random programs

UNARY = ["sin", "cos", "tanh", "neg", "exp", "abs"]
BINARY = ["add", "sub", "mul", "max", "min"]


@st.composite
def programs(draw: st.DrawFn) -> Body:
    """Functions of (f64, f64[5], f64[3, 4]): comprehensions, branches and loops, smooth but for a few kinks."""

    def scalar(b: Builder, values: list[Value]) -> Value:
        numbers = [v for v in values if v.type == F64]
        x = draw(st.sampled_from(numbers))
        for _ in range(draw(st.integers(0, 3))):
            if draw(st.booleans()):
                x = b.op(draw(st.sampled_from(UNARY)), x)
            else:
                x = b.op(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from(numbers)))
        return b.op("tanh", x)

    def load(b: Builder, values: list[Value], indices: Sequence[Value]) -> list[Value]:
        def at(t: Value, axis: int) -> Value:
            if draw(st.booleans()):
                return b.op("mod", draw(st.sampled_from(list(indices))), b.dim(t, axis))
            return b.i64(draw(st.integers(0, 2)))

        return [b.index(t, *(at(t, k) for k in range(t.type.rank))) for t in values if t.type.rank]

    def step(b: Builder, values: list[Value], depth: int) -> Value:
        kind = draw(st.sampled_from(["vector", "sum", "branch", "loop", "scalar"] if depth else ["vector", "sum", "scalar"]))
        if kind == "scalar":
            return scalar(b, values)
        if kind == "vector":
            return b.tabulate([b.i64(5)], lambda b, i: scalar(b, values + load(b, values, [i])))
        if kind == "sum":
            op, order = draw(st.sampled_from(["sum", "max", "prod"])), draw(st.sampled_from(["chain", "lanes"]))
            return b.reduce(op, [b.i64(3), b.i64(4)], lambda b, i, j: scalar(b, values + load(b, values, [i, j])), order)
        number = next(v for v in reversed(values) if v.type == F64)
        if kind == "branch":
            cond = b.op("gt", number, b.const(0.1, F64))
            return choice(b, cond, lambda: scalar(b, [*values, steps(b, values, 0)]), lambda: scalar(b, values))

        def iteration(b: Builder, k: Value, x: Value) -> list[Value]:
            return [scalar(b, [*values, x, as_number(b, step(b, [*values, x], 0))])]

        (x,) = counted(b, b.i64(draw(st.integers(0, 3))), [number], iteration)
        return x

    def as_number(b: Builder, v: Value) -> Value:
        return total(b, v) if v.type.rank else v

    def steps(b: Builder, values: list[Value], depth: int) -> Value:
        values = list(values)
        for _ in range(draw(st.integers(1, 3))):
            values.append(step(b, values, depth))
        return as_number(b, values[-1])

    def body(b: Builder, *params: Value) -> Value:
        return steps(b, list(params), 1)

    return body


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_programs(data: st.DataObject) -> None:
    """The random choices are made once, when the program is built; other builds copy it."""
    args = (0.6, A, M)
    module = Module()
    f, b = new_function("f", [(f"p{k}", type_of(a)) for k, a in enumerate(args)], [F64], module)
    b.ret(data.draw(programs())(b, *f.params))
    verify(module)

    def value(at: Sequence[Any]) -> Any:
        return run(module_before, "f", at)[0]

    module_before = parse_module(print_module(module))
    found = run(gradient(module, args), "g", args)
    np.testing.assert_allclose(found[0], value(args), rtol=1e-9)
    rng = np.random.default_rng(3)
    for k, x in enumerate(args):
        direction = rng.normal(size=np.shape(x))
        slopes = []
        for h in (1e-5, 1e-6, 1e-7):
            ends = [value([np.asarray(x) + s * h * direction if j == k else a for j, a in enumerate(args)]) for s in (1, -1)]
            slopes.append((ends[0] - ends[1]) / (2 * h))
        if abs(slopes[0] - slopes[2]) > 1e-5 * max(1.0, abs(slopes[1])):
            continue  # at a kink
        np.testing.assert_allclose(np.sum(found[1 + k] * direction), slopes[1], rtol=1e-5, atol=1e-6)





def test_an_extreme_over_every_element_in_another_order() -> None:
    """Each element is looked at once for each i: nothing has to hold for that."""

    def body(b: Builder, x: Value) -> Value:
        n, m = b.dims(x)
        return total(b, b.tabulate([n], lambda b, i: b.reduce("max", [m, n], lambda b, k, j: b.index(x, j, k))))

    agree(body, M)

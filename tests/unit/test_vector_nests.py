"""Products of a matrix and a vector, sums of products in lanes, and searches: in vectors, and with the bits of the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differential import outcomes
from tensor_run import compare, function, product, tensor

from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Module, Value
from tlc.tensor.schedule import Target

Array = np.ndarray[Any, Any]
TARGETS = [Target(16, 16), Target(64, 32)]
RANDOM = np.random.default_rng(11)


def reals(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def times_vector(by_rows: bool, known: tuple[int, int] | None) -> Module:
    """y[j] = sum[k] x[k] * w[j, k], or w[k, j], plus a bias; with extents that are known, or not."""

    def body(b: Builder, w: Value, x: Value, bias: Value) -> list[Value]:
        n, k = (b.dim(w, 0), b.dim(w, 1)) if by_rows else (b.dim(w, 1), b.dim(w, 0))
        if known is not None:
            n, k = map(b.i64, known)
            w, x = b.reshape(w, [n, k] if by_rows else [k, n]), b.reshape(x, [k])

        def element(b: Builder, j: Value) -> Value:
            term = lambda b, q: product(b, x, [q], w, [j, q] if by_rows else [q, j])  # noqa: E731
            return b.op("add", b.reduce("sum", [k], term, "chain"), b.index(bias, j))

        return [b.tabulate([n], element)]

    return function([tensor(2), tensor(1), tensor(1)], [tensor(1)], body)


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (70, 83), (130, 16), (5, 70), (16, 0)])
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("static", [True, False])
def test_a_matrix_times_a_vector(shape: tuple[int, int], by_rows: bool, static: bool, target: Target) -> None:
    n, k = shape
    module = times_vector(by_rows, shape if static else None)
    tensors = compare(module, reals(*((n, k) if by_rows else (k, n))), reals(k), reals(n), target=target)
    (kernel,) = tensors.kernels.values()
    if min(shape) >= 64:
        assert kernel.notes[-1].startswith("squares" if by_rows else "rows of axis 1 pass over panels")


def sums_of_products(axis: int, known: tuple[int, int] | None) -> Module:
    """The sums of x * y along an axis, in lanes, and twice that."""

    def body(b: Builder, x: Value, y: Value) -> list[Value]:
        if known is not None:
            x, y = (b.reshape(v, [b.i64(n) for n in known]) for v in (x, y))
        sizes = b.dims(x)

        def element(b: Builder, i: Value) -> Value:
            def term(b: Builder, q: Value) -> Value:
                at = (i, q) if axis else (q, i)
                return b.op("mul", b.index(x, *at), b.index(y, *at))

            total = b.reduce("sum", [sizes[axis]], term, "lanes")
            return b.op("add", total, total)

        return [b.tabulate([sizes[1 - axis]], element)]

    return function([tensor(2), tensor(2)], [tensor(1)], body)


@pytest.mark.parametrize("target", [*TARGETS, Target(16, 16, 1 << 10)], ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (83, 70), (16, 130), (1, 1), (0, 16)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("static", [True, False])
def test_sums_of_products_in_lanes(shape: tuple[int, int], axis: int, static: bool, target: Target) -> None:
    tensors = compare(sums_of_products(axis, shape if static else None), reals(*shape), reals(*shape), target=target)
    if min(shape) >= 64:
        (kernel,) = tensors.kernels.values()
        by_rows = not static or target.cache_bytes < 1 << 16
        assert kernel.notes[-1].startswith("rows: 16" if axis else "rows of axis 1 pass over panels" if by_rows else "columns: ")


def sums_down(known: tuple[int, int] | None, dependent: bool) -> Module:
    """Down the columns of x: the sums of x * y, and of x or, dependent, of x less the first of the former."""

    def body(b: Builder, x: Value, y: Value) -> list[Value]:
        if known is not None:
            x, y = (b.reshape(v, [b.i64(n) for n in known]) for v in (x, y))
        rows, columns = b.dims(x)

        def down(term: Callable[[Builder, Value, Value], Value]) -> Value:
            return b.tabulate([columns], lambda b, j: b.reduce("sum", [rows], lambda b, i: term(b, i, j), "lanes"))

        first = down(lambda b, i, j: b.op("mul", b.index(x, i, j), b.index(y, i, j)))
        if not dependent:
            return [first, down(lambda b, i, j: b.index(x, i, j))]
        return [first, down(lambda b, i, j: b.op("sub", b.index(x, i, j), b.index(first, j)))]

    return function([tensor(2), tensor(2)], [tensor(1), tensor(1)], body)


@pytest.mark.parametrize("target", [Target(16, 16, 1 << 10), Target(64, 32, 1 << 10)], ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (83, 70), (200, 130), (0, 70), (3, 600)])
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("dependent", [True, False])
def test_sums_down_the_same_columns_are_one_walk(shape: tuple[int, int], static: bool, dependent: bool, target: Target) -> None:
    """But not where one reads the other."""
    tensors = compare(sums_down(shape if static else None, dependent), reals(*shape), reals(*shape), target=target)
    if min(shape) >= 64:
        assert [name.split("_")[0] for name in tensors.kernels] == (["sum", "sum"] if dependent else ["columns"])


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("length", [0, 5, 16, 33, 64, 70])
@pytest.mark.parametrize("static", [True, False])
def test_sums_of_long_chains_of_operations(length: int, static: bool, target: Target) -> None:
    """Terms for two registers at once, if the registers are as wide as the sums are many."""

    def body(b: Builder, x: Value) -> list[Value]:
        n = b.i64(length) if static else b.dim(x, 1)
        term = lambda b, i, k: b.op("exp", b.index(x, i, k))  # noqa: E731
        return [b.tabulate([b.dim(x, 0)], lambda b, i: b.reduce("sum", [n], lambda b, k: term(b, i, k), "lanes"))]

    module = function([tensor(2)], [tensor(1)], body)
    (kernel,) = compare(module, reals(3, length), target=target).kernels.values()
    assert kernel.notes[-1].endswith("32 at once" if target.vector_bytes == 64 else "accumulators")


def search(reducer: str, axis: int, elem: Elem) -> Module:
    def body(b: Builder, x: Value) -> list[Value]:
        sizes = b.dims(x)

        def element(b: Builder, i: Value) -> Value:
            return b.reduce(reducer, [sizes[axis]], lambda b, q: b.index(x, *((i, q) if axis else (q, i))))

        return [b.tabulate([sizes[1 - axis]], element)]

    return function([tensor(2, elem)], [tensor(1, Elem.I64)], body)


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("shape", [(40, 33), (1, 1), (3, 70)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reducer", ["argmax", "argmin"])
def test_the_first_of_the_best(shape: tuple[int, int], axis: int, reducer: str, target: Target) -> None:
    x = RANDOM.integers(-3, 4, shape).astype(np.float32)  # many are equal
    x[:, -1] = np.inf if reducer == "argmin" else -np.inf
    x[RANDOM.random(shape) < 0.02] = np.nan
    module = search(reducer, axis, Elem.F32)
    compare(module, x, target=target)
    compare(search(reducer, axis, Elem.I64), RANDOM.integers(-3, 4, shape), target=target)
    worst = np.full(shape, -np.inf if reducer == "argmax" else np.inf, np.float32)
    compare(module, worst, target=target)


PROGRAM = """
fn times(w: f32[n, k], v: f32[k, n], x: f32[k]) -> (f32[n], f32[n]) = (for[i] sum[q] w[i, q] * x[q], for[i] sum[q] x[q] * v[q, i])

fn main() {
  for s in 0..3 {
    let n = 60 + 45 * s
    let k = 128 - 31 * s
    let w = for[i < n, j < k] sin(f32(i * 31 + j))
    let v = for[i < k, j < n] cos(f32(i * 17 + j))
    let (a, b) = times(w, v, for[q < k] 1.0 / f32(q + 1))
    print(a)
    print(b)
    print("{sum[i] i * argmax(w, axis = -1)[i]} {sum[i] i * argmin(w, axis = 0)[i]}")
  }
  let w = for[i < 100, j < 96] sin(f32(i * 31 + j))
  let v = for[i < 96, j < 100] cos(f32(i * 17 + j))
  let (a, b) = times(w, v, for[q < 96] 1.0 / f32(q + 1))
  print("{a} {b} {argmax(w, axis = -1)} {argmin(w, axis = 0)}")
}
"""


def test_every_way_agrees() -> None:
    """Machine code too: what is turned in registers, with rows and columns that fill no vector."""
    found = [(way, outcome.lines) for way, outcome in outcomes(PROGRAM, verify=True)]
    for way, lines in found[1:]:
        assert lines == found[0][1], way

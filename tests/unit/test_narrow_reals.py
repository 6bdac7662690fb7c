"""The narrow reals against roundings that share no code with them: a table of all their values, searched by exact comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from whole_program import both

from tlc.frontend.narrow_reals import from_memory, nearest, rounded, shortest, to_memory
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem

BITS = {Elem.F16: (5, 10), Elem.BF16: (8, 7)}  # of the exponent and the mantissa


def values(elem: Elem) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The value of each of the 2**15 patterns without sign, by the definition of the format; from the first infinite one on: inf."""
    exponent, mantissa = BITS[elem]
    bias = 2 ** (exponent - 1) - 1
    out = []
    for e in range(2**exponent):
        for m in range(2**mantissa):
            if e == 2**exponent - 1:
                out.append(np.inf)
            elif e == 0:
                out.append(m * 2.0 ** (1 - bias - mantissa))
            else:
                out.append((1 + m / 2**mantissa) * 2.0 ** (e - bias))
    return np.array(out)


TABLE = {elem: values(elem) for elem in BITS}


def expected(x: float, elem: Elem) -> float:
    """The nearest value, of two the one with an even pattern; beyond the midpoint between the largest and the next power of two: inf."""
    table = TABLE[elem]
    finite = table[np.isfinite(table)]
    size = abs(x)
    above = int(np.searchsorted(finite, size))
    if above == len(finite):
        step = finite[-1] - finite[-2]
        return float(np.copysign(finite[-1] if size < finite[-1] + step / 2 else np.inf, x))
    if finite[above] == size:
        return float(np.copysign(size, x))
    low, high = finite[above - 1], finite[above]
    first = size - low < high - size or (size - low == high - size and (above - 1) % 2 == 0)
    return float(np.copysign(low if first else high, x))


def hard(elem: Elem) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Every value of the type, every midpoint of two, the f32 numbers beside these, and random ones."""
    finite = TABLE[elem][np.isfinite(TABLE[elem])]
    middle = (finite[1:] + finite[:-1]) / 2
    edge = finite[-1] + (finite[-1] - finite[-2]) / 2
    exact = np.concatenate([finite[::7], middle[::7], [edge, finite[-1], finite[1] / 2]]).astype(np.float32)
    rng = np.random.default_rng(3)
    some = (rng.standard_normal(500) * 10.0 ** rng.integers(-8, 6, 500)).astype(np.float32)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(exact, np.float32(s)) for s in (np.inf, -np.inf)]
    return np.concatenate([exact, *beside, -exact, some])


@pytest.mark.parametrize("elem", BITS)
def test_rounding_finds_the_nearest_value(elem: Elem) -> None:
    x = hard(elem)
    found = np.asarray(rounded(x, elem)).astype(np.float64)
    wanted = np.array([expected(float(v), elem) for v in x])
    assert (found == wanted).all() and (np.signbit(found) == np.signbit(wanted)).all()


@pytest.mark.parametrize("elem", BITS)
def test_a_literal_is_rounded_once(elem: Elem) -> None:
    """A number just above a midpoint goes up, though in f32 it would be the midpoint itself."""
    table = TABLE[elem]
    k = int(np.searchsorted(table, 1.0))
    middle = (table[k] + table[k + 1]) / 2
    assert nearest(float(np.nextafter(middle, 2.0)), elem) == table[k + 1]
    assert nearest(float(np.nextafter(middle, 0.0)), elem) == nearest(float(middle), elem) == table[k]
    rng = np.random.default_rng(5)
    for v in rng.standard_normal(300) * 10.0 ** rng.integers(-6, 6, 300):
        assert nearest(float(v), elem) == expected(float(v), elem)


def test_bf16_goes_to_memory_and_back() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    again = to_memory(from_memory(bits))
    nan = np.isnan(from_memory(bits))
    assert (again[~nan] == bits[~nan]).all() and np.isnan(from_memory(again[nan])).all()


def test_the_shortest_text_reads_back() -> None:
    rng = np.random.default_rng(9)
    for v in from_memory(rng.integers(0, 1 << 16, 300).astype(np.uint16)):
        if np.isfinite(v):
            assert nearest(shortest(v), Elem.BF16) == float(v)
    assert [shortest(np.float32(nearest(x, Elem.BF16))) for x in (0.1, 3.14, 100.0, 1e30)] == [0.1, 3.14, 100.0, 1e30]


@pytest.mark.parametrize("elem", BITS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "sqrt", "exp", "floordiv", "max", "fma"])
def test_an_op_computes_in_f32_and_rounds(name: str, elem: Elem) -> None:
    rng = np.random.default_rng(1)
    row = SCALAR_OPS[name]
    args = [np.abs(np.asarray(rounded((rng.standard_normal(200) * 8).astype(np.float32), elem))) for _ in range(row.arity)]
    wide = row.evaluate(Elem.F32, *(a.astype(np.float32) for a in args))
    found = row.evaluate(elem, *args)
    assert found.dtype == DTYPES[elem]
    assert [float(v) for v in found] == [expected(float(v), elem) for v in wide]


PROGRAMS = {
    "scalars": (
        "fn main(s: bf16 = 0.1, n: i64 = 3) {\n"
        "  print(s, f16(0.1), 1.0f16 / f16(n), f32(s), s + 1.0, -s, s < 0.2, 2.0bf16 ** n, i64(s * 25.0))\n"
        '  print(65504.0f16 + 100.0f16, f16(n) // 2.0, f16(7.5) % f16(n), max(s, 0.05), bool(s), "{s:.5f}")\n}\n',
        ["0.1 0.1 0.3333 0.100097656 1.1 -0.1 true 8.0 2", "inf 1.0 1.5 0.1 true 0.10010"],
    ),
    "sums_accumulate_in_f32": (
        "fn main(n: i64 = 3000) {\n  let x = full(1.0bf16, n)\n  var s = 0.0bf16\n  for v in x { s += v }\n"
        "  print(s, sum(x), sum[i] x[i] * x[i], mean(x), x @ x)\n"
        "  let y = full(60000.0f16, 10)\n  print(sum(y), mean(y), mean[i < 10, j < i] y[j], prod(full(256.0f16, 2)))\n}\n",
        ["256.0 3000.0 3000.0 1.0 3000.0", "inf 60000.0 60000.0 inf"],
    ),
    "a_product_that_feeds_a_sum_is_not_rounded": (
        "fn main(n: i64 = 1) {\n  let a = full(1.0078125bf16, n + 1)\n"
        "  let b = for[i < n + 1] if i == 0 { 1.0078125bf16 } else { -1.0bf16 }\n"
        "  print(f32(sum[i] a[i] * b[i]), f32(a[0] * b[0] + a[1] * b[1]))\n}\n",
        ["0.007873535 0.0078125"],  # (1 + 2**-7)**2 - (1 + 2**-7) = 2**-7 + 2**-14, here to eight bits
    ),
    "tensors": (
        "fn dense[T: float](x: T[n], w: T[n, m]) -> T[m] = tanh(x @ w)\n"
        "fn main(n: i64 = 37) {\n  let x = for[i < n] bf16(0.01 * f32(i)) - 0.1\n  let w = for[i < n, j < 5] bf16(0.02 * f32(i - j))\n"
        "  print(dense(x, w), softmax(f16(f32(x)))[..4], argmax(x), cumsum(x)[-1])\n"
        "  var v = for[i < 20] f16(i)\n  v[[0, 0, 1]] += 0.5\n  v[3..5] = [9.0, 9.5]\n  print(v[..6], any(v > 18.0))\n}\n",
        None,
    ),
    "additions_at_places_round_one_by_one": (
        "fn main(n: i64 = 6) {\n  var v = full(1.0bf16, 2)\n  let at = for[i < n] i // 4\n  v[at] += 0.00390625\n  print(v, f32(v))\n}\n",
        ["[1. 1.] [1. 1.]"],  # 1 + 2**-8 lies in the middle of two values, and goes to the even one, each time
    ),
    "derivatives": (
        "fn loss(x: bf16[n], w: bf16[n]) -> bf16 = sum[i] x[i] * w[i] * w[i]\n"
        "fn scaled(s: f16, x: f16[n]) -> f16 = sum(x * s)\n"
        "fn main(n: i64 = 600) {\n  let x = full(0.5bf16, n)\n  print(grad(loss)(x, x)[..3], grad(scaled)(2.0, full(1.0f16, n)))\n}\n",
        ["[0.25 0.25 0.25] 600.0"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text, lines = PROGRAMS[name]
    found = both(text)
    assert lines is None or found == lines

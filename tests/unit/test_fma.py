"""The fused multiply-add of float32 against exact rational arithmetic, where two roundings differ from one above all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tlc.frontend.fma import fma32

F32 = NDArray[np.float32]


def exact(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c for finite numbers, rounded once to nearest, halves to even, by integers."""
    total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if total == 0:
        return np.float32(float(a) * float(b) + float(c))  # for the sign
    exponent = abs(total.numerator).bit_length() - total.denominator.bit_length()
    if abs(total) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - 23, -149)
    rounded = round(abs(total) / unit) * unit
    value = float(rounded) if rounded < 2**128 else np.inf
    return np.float32(-value if total < 0 else value)


def twice(a: F32, b: F32, c: F32) -> F32:
    """Rounded to f64 and then to float32."""
    return (a.astype(np.float64) * b + c).astype(np.float32)


def scaled(x: NDArray[np.float64], exponent: NDArray[np.int64]) -> F32:
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(x, exponent.astype(np.int32)).astype(np.float32)


def near_halves(rng: np.random.Generator, n: int, low: int, high: int) -> tuple[F32, F32, F32]:
    """Products a little more or less than half the last place of c, or of what c + a * b rounds to: (1 + j u)(1 - k u) u / 2."""
    c = scaled(rng.integers(1 << 23, 1 << 24, n) * rng.choice([-1.0, 1.0], n), rng.integers(low, high, n) - 23)
    exponent = np.maximum(np.frexp(c)[1] - 1, -126).astype(np.int64)
    split = rng.integers(-70, -30, n) if low < -126 else rng.integers(-20, 20, n)  # both factors are normal
    j, k = rng.integers(-3, 4, n), rng.integers(-3, 4, n)
    a = scaled(1.0 + j * 2.0**-23, split)
    b = scaled((1.0 - k * 2.0**-23) * rng.choice([-1.0, 1.0], n), exponent - split - rng.choice([22, 23, 24, 25], n))
    return a, b, c


def any_bits(rng: np.random.Generator, n: int) -> F32:
    x = rng.integers(0, 1 << 32, n, dtype=np.uint32).view(np.float32)
    return np.where(np.isfinite(x), x, np.float32(1)).astype(np.float32)


LARGEST = 3.4028235e38
SPECIAL = [0.0, 1.0, 1.5, 2.0**-149, 2.0**-126, 2.0**-127 + 2.0**-149, 1 - 2.0**-24, 1 + 2.0**-23, LARGEST, 2.0**127, 2.0**64]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["normal", "subnormal", "overflow", "cancel", "bits", "special"])
def test_one_rounding(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 2000
    match kind:
        case "normal":
            a, b, c = near_halves(rng, n, -60, 60)
            assert np.any(twice(a, b, c) != fma32(a, b, c)), "no value here needs care"
        case "subnormal":  # sums of a few bits: their halves lie elsewhere in the f64
            a, b, c = near_halves(rng, n, -149, -120)
            assert np.any(twice(a, b, c) != fma32(a, b, c)), "no value here needs care"
        case "overflow":
            a, b, c = near_halves(rng, n, 120, 128)
            c = np.where(rng.random(n) < 0.5, np.copysign(np.float32(LARGEST), c), c).astype(np.float32)
        case "cancel":
            a, b = any_bits(rng, n), any_bits(rng, n)
            with np.errstate(all="ignore"):
                c = -(a * b)
            c = np.where(np.isfinite(c), c, np.float32(0)).astype(np.float32)
        case "bits":
            a, b, c = (any_bits(rng, n) for _ in range(3))
        case _:
            values = np.array([*SPECIAL, *(-x for x in SPECIAL)], np.float32)
            a, b, c = (rng.choice(values, n) for _ in range(3))
    with np.errstate(over="ignore"):
        expected = np.array([exact(*abc) for abc in zip(a, b, c, strict=True)], np.float32)
    found = fma32(a, b, c)
    assert found.dtype == np.float32
    wrong = np.flatnonzero(found.view(np.uint32) != expected.view(np.uint32))
    assert not wrong.size, [(a[i], b[i], c[i], found[i], expected[i]) for i in wrong[:3]]


def test_infinities_and_nan() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    assert fma32(inf, np.float32(2), np.float32(1)) == inf
    assert fma32(np.float32(1), np.float32(1), -inf) == -inf
    assert np.isnan(fma32(inf, np.float32(0), np.float32(1)))
    assert np.isnan(fma32(inf, np.float32(1), -inf))
    half = np.array([0x7FF8000010000000], np.uint64).view(np.float64)  # a NaN whose bits look like a half
    assert np.isnan(fma32(half.astype(np.float32), np.float32(1), nan))


def test_shapes_broadcast() -> None:
    a, b = np.float32([[1.5], [2.5]]), np.float32([3.0, 4.0, 5.0])
    assert fma32(a, b, np.float32(1)).tolist() == (a * b + 1).tolist()
    assert type(fma32(np.float32(1), np.float32(2), np.float32(3))) is np.float32

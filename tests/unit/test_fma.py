"""The fused multiply-add against exact rational arithmetic, where two roundings differ from one above all."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tlc.frontend.fma import fma32, fma64, libm_fma

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Format:
    fma: Any
    dtype: Any
    digits: int  # binary ones of a number
    least: int  # exponent of the least normal number
    greatest: int
    bits: Any

    def __str__(self) -> str:
        return str(np.dtype(self.dtype))

    def scaled(self, x: Array, exponent: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.ldexp(np.asarray(x, np.float64), exponent.astype(np.int32)).astype(self.dtype)

    def any_bits(self, rng: np.random.Generator, n: int) -> Array:
        x = rng.integers(0, 1 << 64, n, dtype=np.uint64).astype(self.bits).view(self.dtype)
        return np.where(np.isfinite(x), x, self.dtype(1))

    def exact(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c for finite numbers, rounded once to nearest, halves to even, by integers."""
        total = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if total == 0:
            return a * b + c if a == 0 or b == 0 else self.dtype(0)  # for the sign
        exponent = abs(total.numerator).bit_length() - total.denominator.bit_length()
        if abs(total) < Fraction(2) ** exponent:
            exponent -= 1
        unit = Fraction(2) ** (max(exponent, self.least) - self.digits + 1)
        rounded = round(abs(total) / unit) * unit
        value = float(rounded) if rounded < Fraction(2) ** (self.greatest + 1) else np.inf
        return self.dtype(-value if total < 0 else value)


SINGLE = Format(fma32, np.float32, 24, -126, 127, np.uint32)
DOUBLE = Format(fma64, np.float64, 53, -1022, 1023, np.uint64)

Factors = tuple[Array, Array, Array]


def near_halves(f: Format, rng: np.random.Generator, n: int, low: int, high: int) -> Factors:
    """Products a little more or less than half the last place of c, or of what c + a * b rounds to: (1 + j u)(1 - k u) u / 2."""
    unit = 2.0 ** (1 - f.digits)
    c = f.scaled(rng.integers(1 << f.digits - 1, 1 << f.digits, n) * rng.choice([-1.0, 1.0], n), rng.integers(low, high, n) - f.digits + 1)
    exponent = np.maximum(np.frexp(c)[1] - 1, f.least).astype(np.int64)
    split = rng.integers(f.least // 2 - 7, f.least // 2 + 33, n) if low < f.least else rng.integers(-20, 20, n)  # both factors are normal
    a = f.scaled(1.0 + rng.integers(-3, 4, n) * unit, split)
    b = f.scaled(1.0 - rng.integers(-3, 4, n) * unit, exponent - split - rng.choice([-2, -1, 0, 1], n) - f.digits)
    return a, b * rng.choice([-1.0, 1.0], n).astype(f.dtype), c


def normal(f: Format, rng: np.random.Generator, n: int) -> Factors:
    return near_halves(f, rng, n, -60, 60)


def subnormal(f: Format, rng: np.random.Generator, n: int) -> Factors:
    """Sums of a few bits: their halves lie elsewhere in a wider number."""
    return near_halves(f, rng, n, f.least - f.digits + 1, f.least + 6)


def overflow(f: Format, rng: np.random.Generator, n: int) -> Factors:
    a, b, c = near_halves(f, rng, n, f.greatest - 7, f.greatest + 1)
    return a, b, np.where(rng.random(n) < 0.5, np.copysign(np.finfo(f.dtype).max, c), c)


def cancel(f: Format, rng: np.random.Generator, n: int) -> Factors:
    a, b = f.any_bits(rng, n), f.any_bits(rng, n)
    with np.errstate(all="ignore"):
        c = -(a * b)
    return a, b, np.where(np.isfinite(c), c, f.dtype(0))


def bits(f: Format, rng: np.random.Generator, n: int) -> Factors:
    return f.any_bits(rng, n), f.any_bits(rng, n), f.any_bits(rng, n)


def moderate(f: Format, rng: np.random.Generator, n: int) -> Factors:
    a, b, c = (rng.normal(size=n).astype(f.dtype) for _ in "abc")
    return a, b, c * f.scaled(np.ones(n), rng.integers(-80, 80, n))


def special(f: Format, rng: np.random.Generator, n: int) -> Factors:
    unit, least = 2.0**-f.digits, 2.0**f.least
    values = [0.0, 1.0, 1.5, least, least * unit * 2, least / 2 + least * unit * 2, 1 - unit, 1 + unit * 2, np.finfo(f.dtype).max, 2.0**64]
    a, b, c = (rng.choice(np.array([*values, *(-x for x in values)], f.dtype), n) for _ in "abc")
    return a, b, c


@pytest.mark.parametrize("f", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("kind", [normal, subnormal, overflow, cancel, bits, moderate, special])
def test_one_rounding(kind: Any, f: Format) -> None:
    a, b, c = kind(f, np.random.default_rng(1), 3000)
    with np.errstate(all="ignore"):
        expected = np.array([f.exact(*abc) for abc in zip(a, b, c, strict=True)], f.dtype)
        twice = (a.astype(np.float64) * b + c).astype(f.dtype)
    if kind in (normal, subnormal):
        assert np.any(twice != expected), "no value here needs care"
    library = libm_fma(32 if f is SINGLE else 64)
    singly = np.array([library(float(x), float(y), float(z)) for x, y, z in zip(a, b, c, strict=True)], f.dtype)
    for found in (f.fma(a, b, c), np.concatenate([f.fma(*(x[i : i + 50] for x in (a, b, c))) for i in range(0, len(a), 50)]), singly):
        assert found.dtype == f.dtype
        wrong = np.flatnonzero(found.view(f.bits) != expected.view(f.bits))
        assert not wrong.size, [(a[i], b[i], c[i], found[i], expected[i]) for i in wrong[:3]]


@pytest.mark.parametrize("f", [SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("n", [1, 100])
def test_infinities_and_nan(f: Format, n: int) -> None:
    inf, one, zero = (np.full(n, x, f.dtype) for x in (np.inf, 1, 0))
    assert np.all(f.fma(inf, one, one) == inf)
    assert np.all(f.fma(one, one, -inf) == -inf)
    assert np.all(np.isnan(f.fma(inf, zero, one)))
    assert np.all(np.isnan(f.fma(inf, one, -inf)))
    assert np.all(np.isnan(f.fma(one * f.dtype(np.nan), one, one)))


@pytest.mark.parametrize("f", [SINGLE, DOUBLE], ids=str)
def test_shapes_broadcast(f: Format) -> None:
    a, b = np.array([[1.5], [2.5]], f.dtype), np.array([3.0, 4.0, 5.0], f.dtype)
    assert f.fma(a, b, f.dtype(1)).tolist() == (a * b + 1).tolist()
    assert f.fma(np.repeat(a, 40, 0), b, f.dtype(1)).tolist() == (np.repeat(a, 40, 0) * b + 1).tolist()
    assert type(f.fma(f.dtype(1), f.dtype(2), f.dtype(3))) is f.dtype

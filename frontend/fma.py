"""The fused multiply-add a * b + c, rounded once, on NumPy arrays: exact and without a loop over elements.

Both widths get the exact product as one or two numbers and add c to it. Two roundings in a row are as good as one if the
first is to odd: of the two numbers around an inexact value it takes the one whose last bit is 1, so that the second sees on
which side of a half the value lies (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np

Array = np.ndarray[Any, Any]

_LEAST_NORMAL = 2.0**-126  # of float32
_MIDDLE = 2.0**-450, 2.0**450  # factors of float64 whose products have an exact error
_MANY = 64  # elements from which on arrays are faster than calls of the C library


def fma32(a: Any, b: Any, c: Any) -> Any:
    """For float32.

    The product of two floats is exact in f64. Their sum is rounded there, and then to float32; to round twice is wrong only
    where the first rounding lands half way between two floats, for then what it dropped decides. A float keeps 29 bits less
    than an f64. A subnormal one keeps fewer still, so there all sums are looked at. The few that remain are rounded to odd.
    """
    with np.errstate(all="ignore"):
        product = np.asarray(np.asarray(a, np.float64) * np.asarray(b, np.float64))
        addend = np.asarray(c, np.float64)
        total = np.asarray(product + addend)
        doubtful = np.asarray((total.view(np.int64) & 0x1FFFFFFF) == 0x10000000)
        doubtful |= (np.abs(total) < _LEAST_NORMAL) & (total != 0)
        if doubtful.any():
            x, y = (np.broadcast_to(v, total.shape)[doubtful] for v in (product, addend))
            total[doubtful] = _odd_sum(x, y)
        return total.astype(np.float32)[()]


def fma64(a: Any, b: Any, c: Any) -> Any:
    """For float64: Boldo and Melquiond's sum of the product, its error and c.

    It needs errors of products that are numbers themselves. Where a factor or c is too large or too small for that, or nothing is left to
    round, the C library is asked.
    """
    with np.errstate(all="ignore"):
        a, b, c = (np.asarray(x, np.float64) for x in (a, b, c))
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
        if np.prod(shape) < _MANY:
            return _one_by_one(a, b, c)[()]
        product, error = _two_product(a, b)
        sum_low, error_low = _two_sum(c, error)
        sum_high, error_high = _two_sum(product, sum_low)
        total = np.asarray(sum_high + _odd_sum(error_low, error_high))
        usual = _middle(a) & _middle(b) & (np.abs(c) < _MIDDLE[1]) & (total != 0)
        if not usual.all():
            rest = ~np.broadcast_to(usual, shape)
            total[rest] = _one_by_one(*(np.broadcast_to(x, shape)[rest] for x in (a, b, c)))
        return total


def _middle(x: Array) -> Array:
    size = np.abs(x)
    return (size > _MIDDLE[0]) & (size < _MIDDLE[1])


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and its error (Knuth)."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded product and its error (Veltkamp, Dekker)."""
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _halves(x: Array) -> tuple[Array, Array]:
    big = x * 134217729.0  # 2^27 + 1
    high = big - (big - x)
    return high, x - high


def _odd_sum(x: Array, y: Array) -> Array:
    """x + y rounded to odd."""
    total, error = _two_sum(x, y)
    total = np.asarray(total)
    fix = (error != 0) & ((total.view(np.int64) & 1) == 0) & np.isfinite(total)
    return np.where(fix, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


@cache
def libm_fma(width: int) -> Callable[[float, float, float], float]:
    """The C library's, for numbers of 32 or 64 bits. Finding the library starts a process, so it is looked for when it is needed."""
    from ctypes.util import find_library

    library = ctypes.CDLL(find_library("m"))
    f, kind = (library.fmaf, ctypes.c_float) if width == 32 else (library.fma, ctypes.c_double)
    f.restype = kind
    f.argtypes = [kind] * 3
    return cast("Callable[[float, float, float], float]", f)


def _one_by_one(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.frompyfunc(libm_fma(64), 3, 1)(a, b, c)).astype(np.float64)

"""The narrow reals, `f16` and `bf16`: they are stored in 16 bits and computed in f32.

Every op on them converts its operands to f32, computes there, and rounds its result once (to nearest, halves to even). NumPy has a
type for f16 and none for bf16, whose values lie in arrays of f32 here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tlc.frontend.types import Elem

NARROW = (Elem.F16, Elem.BF16)
_F16 = np.dtype(np.float16)


def rounded(x: Any, elem: Elem) -> Any:
    """Values of f32 in the narrow type."""
    if elem is Elem.F16:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x, np.float32).astype(np.float16)[()]
    bits = _bf16_bits(np.asarray(x, np.float32))
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)[()]


def wide(x: Any) -> Any:
    """An operand in f32, if it is an f16 (a bf16 is one already)."""
    return x.astype(np.float32) if getattr(x, "dtype", None) is _F16 else x


def to_memory(x: Any) -> Any:
    """The 16 bits of bf16 values."""
    return _bf16_bits(np.asarray(x, np.float32)).astype(np.uint16)


def from_memory(bits: Any) -> Any:
    """bf16 values from their 16 bits."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def nearest(value: float, elem: Elem) -> float:
    """The value of a real type that is nearest to a Python float (infinite if it is too large): what a literal means."""
    with np.errstate(over="ignore"):
        match elem:
            case Elem.F16:
                return float(np.float16(value))
            case Elem.BF16:
                return float(rounded(_odd(value), elem))
            case Elem.F32:
                return float(np.float32(value))
            case _:
                return value


def shortest(value: Any) -> float:
    """The float of fewest digits among those that are nearest to this bf16."""
    real = float(value)
    if not math.isfinite(real):
        return real
    texts = (f"{real:.{digits}e}" for digits in range(4))
    return next((float(t) for t in texts if nearest(float(t), Elem.BF16) == real), real)


def _bf16_bits(x: Any) -> Any:
    """The upper halves of f32 numbers, rounded."""
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(np.shape(x))
    up = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        near = (bits + (up + np.uint32(0x7FFF))) >> np.uint32(16)
    return np.where(np.isnan(x), (bits >> np.uint32(16)) | np.uint32(0x40), near)


def _odd(value: float) -> Any:
    """The float as f32, rounded to odd: rounding that to fewer bits is as good as rounding the float itself."""
    single = np.float32(value)
    if not np.isfinite(single) or float(single) == value or np.asarray(single).view(np.uint32) & 1:
        return single
    return np.nextafter(single, np.float32(math.copysign(math.inf, value - float(single))))

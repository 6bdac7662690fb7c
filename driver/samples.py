"""What files of kernels and of graphs are run on where nothing is given, always the same, and how their results are written."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tlc.driver.flags import Flag, UsageError, Value
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa import formatting

FILL = 10  # elements repeat after so many
MOST = 1 << 28  # elements of one tensor


def scalar_flag(name: str, elem: Elem, doc: str = "") -> Flag:
    """A scalar: 8 where it is not given, 1 if it is real, on if it is a bool."""
    default: Value = True if elem is Elem.BOOL else 1.0 if elem.is_real else 8
    return Flag(name, Elem.I64 if elem is Elem.KEY else elem, default, doc)


def sized(what: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, if it is one that can be run. Raises `UsageError`."""
    if any(n < 0 for n in shape) or prod(shape) > MOST:
        raise UsageError(f"{what} would have the shape {list(shape)}: an extent is at least 0, all together at most {MOST}")
    return shape


def numbers(shape: tuple[int, ...], elem: Elem) -> Any:
    """Element k, in row-major order, is k modulo 10; of bools, whether k is odd."""
    count = np.arange(prod(shape))
    return (count % 2 if elem is Elem.BOOL else count % FILL).astype(DTYPES[elem]).reshape(shape)


def text(array: Any, elem: Elem) -> str:
    """An array as `print` writes it."""
    return formatting.render((("hole", "", "leaf"),), [formatting.marked(array if array.ndim else array[()], elem)])

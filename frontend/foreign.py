"""Functions of the C library: which there are, and calling them from Python.

An `extern fn` of a user's file names a function of the C library or of its mathematical part. Its parameters and its result are
scalars, which pass by the C ABI of the machine; whether the declaration is the function's true one nobody can check.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem

C_TYPES: dict[Elem, Any] = {
    Elem.BOOL: ctypes.c_bool,
    Elem.I8: ctypes.c_int8,
    Elem.I32: ctypes.c_int32,
    Elem.I64: ctypes.c_int64,
    Elem.U8: ctypes.c_uint8,
    Elem.U32: ctypes.c_uint32,
    Elem.F32: ctypes.c_float,
    Elem.F64: ctypes.c_double,
}


def address(symbol: str) -> int | None:
    """Where a function of the C library lies in this process, or None if there is none of this name."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        except AttributeError:
            pass
    return None


def call(symbol: str, params: Sequence[Elem], result: Elem | None, args: Sequence[Any]) -> Any:
    """The result of a function as a NumPy scalar, None where it has none."""
    kind = ctypes.CFUNCTYPE(C_TYPES[result] if result is not None else None, *(C_TYPES[p] for p in params))
    at = address(symbol)
    assert at is not None, symbol
    value = kind(at)(*(a.item() for a in args))
    return DTYPES[result].type(value) if result is not None else None


def _libraries() -> Iterator[ctypes.CDLL]:
    yield _process()
    mathematics = _mathematics()
    if mathematics is not None:
        yield mathematics


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _mathematics() -> ctypes.CDLL | None:
    """Where it is a library of its own. Looking for it starts a process, so its usual name is tried first."""
    from ctypes.util import find_library

    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        name = find_library("m")
        return ctypes.CDLL(name) if name else None

"""The meaning of `reduce` on arrays: the order of sums that ssa/ir.py states, NaN and ties of `max` and `argmax`.

Everything here folds the last axis of an array, whose positions are the row-major order of the reduction's indices; the
axes before it are independent reductions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.ssa.ir import Instr, Value

Array = np.ndarray[Any, Any]

LANES = 16


def product(reduce: Instr, yielded: Value) -> Instr | None:
    """The `mul` that a chained real sum fuses into its accumulation, if its body is one."""
    owner = yielded.owner
    fuses = (
        reduce.attrs["op"] == "sum"
        and reduce.attrs["order"] == "chain"
        and yielded.type.elem.is_real
        and isinstance(owner, Instr)
        and owner.op == "mul"
        and owner.block is not None
        and owner.block.region is reduce.regions[0]
    )
    return owner if fuses and isinstance(owner, Instr) else None


def fold(op: str, order: str, elem: Elem, x: Array) -> Array:
    """`op` over the last axis of `x`; `argmax` and `argmin` give positions. `elem` is that of `x`."""
    match op:
        case "any":
            return np.asarray(np.any(x, axis=-1))
        case "all":
            return np.asarray(np.all(x, axis=-1))
        case "argmax" | "argmin":
            if x.shape[-1] == 0:
                return np.zeros(x.shape[:-1], np.int64)
            return np.asarray((np.argmax if op == "argmax" else np.argmin)(x, axis=-1)).astype(np.int64)
        case "max" | "min":
            return _halve(op, elem, x)
    if elem.is_real:
        return (_chain if order == "chain" else _lanes)(op, elem, x)
    ufunc = np.add if op == "sum" else np.multiply
    return np.asarray(ufunc.reduce(x, axis=-1, dtype=DTYPES[elem]))


def fold_product(elem: Elem, a: Array, b: Array) -> Array:
    """The sum of a * b over the last axis as one chain of fused multiply-adds. The other axes broadcast."""
    n = np.broadcast_shapes(a.shape, b.shape)[-1]
    a, b = np.broadcast_to(a, (*a.shape[:-1], n)), np.broadcast_to(b, (*b.shape[:-1], n))
    total = np.zeros(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), DTYPES[elem])
    for k in range(n):
        total = np.asarray(SCALAR_OPS["fma"].evaluate(elem, a[..., k], b[..., k], total))
    return total


_STEP = {"sum": "add", "prod": "mul"}
_UNIT = {"sum": 0.0, "prod": 1.0}


def _chain(op: str, elem: Elem, x: Array) -> Array:
    total = np.full(x.shape[:-1], _UNIT[op], DTYPES[elem])
    for k in range(x.shape[-1]):
        total = np.asarray(SCALAR_OPS[_STEP[op]].evaluate(elem, total, x[..., k]))
    return total


def _lanes(op: str, elem: Elem, x: Array) -> Array:
    step = SCALAR_OPS[_STEP[op]].evaluate
    lanes = np.full((*x.shape[:-1], LANES), _UNIT[op], DTYPES[elem])
    for start in range(0, x.shape[-1], LANES):
        row = x[..., start : start + LANES]
        width = row.shape[-1]
        lanes[..., :width] = step(elem, lanes[..., :width], row)
    half = LANES // 2
    while half:
        lanes = np.asarray(step(elem, lanes[..., :half], lanes[..., half : 2 * half]))
        half //= 2
    return lanes[..., 0]


def _halve(op: str, elem: Elem, x: Array) -> Array:
    """`max` and `min` do not depend on the order. Of an empty range, the least or greatest value."""
    if x.shape[-1] == 0:
        info: Any = np.finfo(DTYPES[elem]) if elem.is_real else np.iinfo(DTYPES[elem])
        worst = (-np.inf if op == "max" else np.inf) if elem.is_real else (info.min if op == "max" else info.max)
        return np.full(x.shape[:-1], worst, DTYPES[elem])
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        folded = np.asarray(SCALAR_OPS[op].evaluate(elem, x[..., :half], x[..., half : 2 * half]))
        x = np.concatenate([folded, x[..., 2 * half :]], axis=-1)
    return x[..., 0]

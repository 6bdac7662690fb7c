"""The meaning of `reduce` on arrays: the order of sums that ssa/ir.py states, NaN and ties of `max` and `argmax`.

A `Fold` is given the elements in row-major order of the reduction's indices, in runs along the last axis of an array; the
axes before it are independent reductions. How the elements are cut into runs changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tlc.frontend.fma import libm_fma
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.ssa.ir import Instr, Value

Array = np.ndarray[Any, Any]

LANES = 16
FEW = 8  # sums that are faster one by one than together
ONE_BY_ONE = ("chain", "strict")  # orders with one accumulator


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
    f = Fold(op, order, elem, x.shape[:-1])
    f.take(x)
    return f.result()


def fold_product(elem: Elem, a: Array, b: Array) -> Array:
    """The sum of a * b over the last axis as one chain of fused multiply-adds. The other axes broadcast."""
    f = Fold("sum", "chain", elem, np.broadcast_shapes(a.shape[:-1], b.shape[:-1]))
    f.take_product(a, b)
    return f.result()


class Fold:
    """Reductions in progress, one for each element of an array of some shape. `elem` is the type of what is reduced."""

    def __init__(self, op: str, order: str, elem: Elem, shape: tuple[int, ...]) -> None:
        self.op, self.order, self.elem = op, order, elem
        self.taken = 0  # elements so far
        self.lanes = order == "lanes" and op in _STEP and elem.is_real
        self.total = np.full((*shape, LANES) if self.lanes else shape, _unit(op, elem))
        self.position = np.zeros(shape, np.int64)  # of the best element, for `argmax` and `argmin`

    def take(self, x: Array) -> None:
        """The next elements."""
        if self.lanes:
            self._take_lanes(x)
        elif x.shape[-1]:
            self._take_row(x)
        self.taken += x.shape[-1]

    def take_product(self, a: Array, b: Array) -> None:
        """The next elements of a real chain, as factors that are not to be rounded: each is one fused multiply-add."""
        n = np.broadcast_shapes(a.shape, b.shape)[-1]
        if self.total.size <= FEW:
            self._take_product_singly(a, b, n)
        else:
            a, b = np.broadcast_to(a, (*a.shape[:-1], n)), np.broadcast_to(b, (*b.shape[:-1], n))
            for k in range(n):
                self.total = np.asarray(SCALAR_OPS["fma"].evaluate(self.elem, a[..., k], b[..., k], self.total))
        self.taken += n

    def result(self) -> Array:
        if self.op in ("argmax", "argmin"):
            return self.position
        if not self.lanes:
            return self.total
        lanes, half = self.total, LANES // 2
        while half:
            lanes = np.asarray(SCALAR_OPS[_STEP[self.op]].evaluate(self.elem, lanes[..., :half], lanes[..., half : 2 * half]))
            half //= 2
        return lanes[..., 0]

    def _take_product_singly(self, a: Array, b: Array, n: int) -> None:
        shape = self.total.shape
        fma = libm_fma(self.elem.width)
        for at in np.ndindex(shape):
            total = float(self.total[at])
            for x, y in zip(*(np.broadcast_to(v, (*shape, n))[at].tolist() for v in (a, b)), strict=True):
                total = fma(x, y, total)
            self.total[at] = total

    def _take_row(self, x: Array) -> None:
        match self.op:
            case "any":
                self.total = self.total | np.any(x, axis=-1)
            case "all":
                self.total = self.total & np.all(x, axis=-1)
            case "max" | "min":
                self.total = self._step(self.total, _halve(self.op, self.elem, x))
            case "argmax" | "argmin":
                self._take_best(x)
            case _ if self.elem.is_real:
                self.total = _one_by_one(self.op, self.total, x, -1)
            case _:  # integers wrap, in any order
                self.total = self._step(self.total, _UFUNC[self.op].reduce(x, axis=-1, dtype=DTYPES[self.elem]))

    def _take_best(self, x: Array) -> None:
        """A later element wins if it is better, or the first NaN."""
        at = (np.argmax if self.op == "argmax" else np.argmin)(x, axis=-1)
        best = np.take_along_axis(x, at[..., None], -1)[..., 0]
        with np.errstate(invalid="ignore"):
            wins = (best > self.total) if self.op == "argmax" else (best < self.total)
            wins |= np.isnan(best) & ~np.isnan(self.total)
        wins |= self.taken == 0
        self.total, self.position = np.where(wins, best, self.total), np.where(wins, at + self.taken, self.position)

    def _take_lanes(self, x: Array) -> None:
        """The element at position p goes to lane p mod 16: what fills up a row of lanes, then whole rows, then the rest."""
        first = min(-self.taken % LANES, x.shape[-1])
        rows = (x.shape[-1] - first) // LANES
        self._take_part(x[..., :first], self.taken % LANES)
        whole = x[..., first : first + rows * LANES].reshape((*x.shape[:-1], rows, LANES))
        self.total = _one_by_one(self.op, self.total, whole, -2)
        self._take_part(x[..., first + rows * LANES :], 0)

    def _take_part(self, x: Array, lane: int) -> None:
        part = self.total[..., lane : lane + x.shape[-1]]
        part[...] = self._step(part, x)

    def _step(self, a: Array, b: Array) -> Array:
        return np.asarray(SCALAR_OPS[_STEP.get(self.op, self.op)].evaluate(self.elem, a, b))


_STEP = {"sum": "add", "prod": "mul"}
_UFUNC = {"sum": np.add, "prod": np.multiply}


def _one_by_one(op: str, start: Array, x: Array, axis: int) -> Array:
    """`start` and then the elements of `x` along an axis, each added (or multiplied) and rounded in turn."""
    with np.errstate(all="ignore"):
        steps = _UFUNC[op].accumulate(np.concatenate([np.expand_dims(start, axis), x], axis), axis)
    return np.array(np.take(steps, -1, axis))


def _unit(op: str, elem: Elem) -> Any:
    """What an empty reduction gives; of `max` and `min` the least and the greatest value."""
    match op:
        case "any" | "all":
            return np.bool_(op == "all")
        case "max" | "min" if elem.is_real:
            return DTYPES[elem].type(-np.inf if op == "max" else np.inf)
        case "max" | "min":
            info = np.iinfo(DTYPES[elem])
            return DTYPES[elem].type(info.min if op == "max" else info.max)
        case _:
            return DTYPES[elem].type(op == "prod")


def _halve(op: str, elem: Elem, x: Array) -> Array:
    """`max` and `min` do not depend on the order."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        folded = np.asarray(SCALAR_OPS[op].evaluate(elem, x[..., :half], x[..., half : 2 * half]))
        x = np.concatenate([folded, x[..., 2 * half :]], axis=-1)
    return x[..., 0]

"""Evaluates straight-line regions over whole index arrays: what makes the interpreter fast enough for real programs.

This is only a faster way to the same values. Whenever it cannot be sure of them (a check fails somewhere, an extent differs
between elements, an array would be huge) it raises `Unable`, and the interpreter goes through the elements one by one:
that is the meaning, and it finds the least index that fails.

A comprehension in a comprehension adds axes: at depth g of indices a value is an array whose first `lead <= g` axes
belong to the indices around it and have their extent or 1 (does not depend on that index), followed by the axes of its own type. A value
with `lead` 0 depends on no index and is computed once.

    for[i < 2, j < 3] x[i] * y[j]       i: (2, 1)  j: (1, 3)  x[i]: (2, 1)  y[j]: (1, 3)  product: (2, 3)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.ssa.ir import Function, Instr, Module, Region, Value
from tlc.ssa.reductions import fold, fold_product, product

Array = np.ndarray[Any, Any]

LARGEST = 1 << 26  # elements of an intermediate array


class Unable(Exception):
    """Whole arrays cannot tell; `again` says whether other runs of the region may succeed."""

    def __init__(self, again: bool) -> None:
        self.again = again


@dataclass(frozen=True)
class Lifted:
    """A value for all elements at once; see the module's text. Not changed in place."""

    array: Any  # a NumPy scalar, a `str` or an array
    lead: int

    def at(self, lead: int) -> Array:
        """The array with `lead` leading axes."""
        array = _array(self.array)
        return array.reshape(array.shape[: self.lead] + (1,) * (lead - self.lead) + array.shape[self.lead :])


def _array(value: Any) -> Array:
    return np.asarray(value, dtype=object) if isinstance(value, str) else np.asarray(value)


class Straight:
    """Which regions are straight-line: one block of ops that have a row in `_OPS`, calls of such functions included."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.known: dict[Region, bool] = {}

    def __call__(self, region: Region) -> bool:
        if region not in self.known:
            self.known[region] = False  # while it is being found out: recursion is not straight
            entry = region.entry
            ends = len(region.blocks) == 1 and entry.terminator.op in ("yield", "return")
            self.known[region] = ends and all(map(self.instr, entry.instrs))
        return self.known[region]

    def instr(self, instr: Instr) -> bool:
        if instr.op == "call":
            return self(self.module.functions[str(instr.attrs["callee"])].body)
        return instr.op in SCALAR_OPS or (instr.op in _OPS and all(map(self, instr.regions)))


class Grid:
    """One evaluation. `outer` and `outer_variable` read values and variables of the code around the outermost region."""

    def __init__(self, module: Module, outer: Callable[[Value], Any], outer_variable: Callable[[str], Any]) -> None:
        self.module = module
        self.outer, self.outer_variable = outer, outer_variable
        self.values: dict[Value, Lifted] = {}
        self.variables: dict[str, Lifted] = {}
        self.shape: tuple[int, ...] = ()  # extents of the indices around

    def run(self, instr: Instr, extents: tuple[int, ...]) -> list[Any]:
        """The results of a `tabulate` or `reduce` that stands in no other region."""
        lifted = _tabulate(self, instr, extents) if instr.op == "tabulate" else _reduce(self, instr, extents)
        return [_own(v.at(0)) for v in lifted]

    def scatter(self, instr: Instr, extents: tuple[int, ...]) -> list[Array]:
        """What the region of a `scatter` yields, one axis an index."""
        yields, depth = self.inside(instr.regions[0], extents)
        return [np.broadcast_to(y.at(depth), extents) for y in yields]

    # ------------------------------------------------------------ values

    def read(self, value: Value) -> Lifted:
        found = self.values.get(value)
        return Lifted(self.outer(value), 0) if found is None else found

    def extents(self, values: tuple[Value, ...]) -> tuple[int, ...]:
        """Extents that are the same for all elements; `Unable` if they are not."""
        out = []
        for v in values:
            array = _array(self.read(v).array)
            least = int(array.min()) if array.size else 0
            if array.size and least != int(array.max()):
                raise Unable(again=False)
            if least < 0 and 0 not in self.shape:
                raise Unable(again=True)
            out.append(max(least, 0))
        return tuple(out)

    # ------------------------------------------------------------ code

    def inside(self, region: Region, extents: tuple[int, ...], fused: Instr | None = None) -> tuple[list[Lifted], int]:
        """What a region yields over its indices, and the number of indices there. Of a `fused` product: its factors."""
        around, rank = len(self.shape), len(extents)
        self.shape += extents
        depth = len(self.shape)
        for k, (param, n) in enumerate(zip(region.entry.params, extents, strict=True)):
            axis = [1] * depth
            axis[around + k] = n
            self.values[param] = Lifted(np.arange(n, dtype=np.int64).reshape(axis), depth)
        out = self.block(region, fused)
        self.shape = self.shape[: depth - rank]
        return out, depth

    def block(self, region: Region, fused: Instr | None = None) -> list[Lifted]:
        for instr in region.entry.instrs:
            if instr is fused and list(instr.result.uses.values()) == [1]:
                continue  # the product alone would fill all axes
            results = self.scalar(instr) if instr.op in SCALAR_OPS else _OPS[instr.op](self, instr)
            self.values.update(zip(instr.results, results, strict=True))
        return [self.read(v) for v in (fused or region.entry.terminator).operands]

    def scalar(self, instr: Instr) -> list[Lifted]:
        arguments = [self.read(v) for v in instr.operands]
        lead = max((a.lead for a in arguments), default=0)
        arrays = [a.at(lead) for a in arguments] if lead else [a.array for a in arguments]
        if lead:
            _small(np.broadcast_shapes(*(a.shape for a in arrays)))
        return [Lifted(SCALAR_OPS[instr.op].evaluate(instr.result.type.elem, *arrays), lead)]

    def call(self, function: Function, arguments: list[Lifted]) -> list[Lifted]:
        self.values.update(zip(function.params, arguments, strict=True))
        variables, self.variables = self.variables, {}
        out = self.block(function.body)
        self.variables = variables
        return out


def _own(array: Array) -> Any:
    """A scalar for rank 0, an array that shares memory with no other otherwise."""
    return np.array(array) if array.ndim else array[()]


def _small(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > LARGEST:
        raise Unable(again=False)


def _lead_indices(shape: tuple[int, ...], own: int) -> tuple[Array, ...]:
    """Indices that pick each element's own part of an array with these leading axes."""
    return tuple(np.arange(n).reshape([1] * k + [n] + [1] * (len(shape) - k - 1)) for k, n in enumerate(shape))


def _index(grid: Grid, instr: Instr) -> list[Lifted]:
    x, *indices = [grid.read(v) for v in instr.operands]
    lead = max(v.lead for v in (x, *indices))
    arrays = [i.at(lead) for i in indices]
    extents = _array(x.array).shape[x.lead : x.lead + len(indices)]
    rest = _array(x.array).shape[x.lead + len(indices) :]
    shape = np.broadcast_shapes(*(a.shape for a in arrays), x.at(lead).shape[:lead] if x.lead else ())
    _small(shape + rest)
    if 0 in grid.shape:
        return [Lifted(np.zeros(shape + rest, DTYPES[instr.result.type.elem]), lead)]
    if any(a.size and (int(a.min()) < 0 or int(a.max()) >= n) for a, n in zip(arrays, extents, strict=True)):
        raise Unable(again=True)
    if x.lead:
        array = x.at(lead)
        return [Lifted(array[(*_lead_indices(array.shape[:lead], len(rest)), *arrays)], lead)]
    return [Lifted(_array(x.array)[tuple(arrays)], lead)]


def _update(grid: Grid, instr: Instr) -> list[Lifted]:
    x, *indices, part = [grid.read(v) for v in instr.operands]
    lead = max(v.lead for v in (x, *indices, part))
    array, arrays, new = x.at(lead), [i.at(lead) for i in indices], part.at(lead)
    shape = np.broadcast_shapes(array.shape[:lead], new.shape[:lead], *(a.shape for a in arrays))
    extents = array.shape[lead : lead + len(indices)]
    _small(shape + array.shape[lead:])
    out = np.array(np.broadcast_to(array, shape + array.shape[lead:]))
    if 0 not in grid.shape:
        if any(a.size and (int(a.min()) < 0 or int(a.max()) >= n) for a, n in zip(arrays, extents, strict=True)):
            raise Unable(again=True)
        out[(*_lead_indices(shape, 0), *arrays)] = new
    return [Lifted(out, lead)]


def _dim(grid: Grid, instr: Instr) -> list[Lifted]:
    x, axis = grid.read(instr.operands[0]), instr.attrs["axis"]
    assert isinstance(axis, int)
    return [Lifted(np.int64(_array(x.array).shape[x.lead + axis]), 0)]


def _reshape(grid: Grid, instr: Instr) -> list[Lifted]:
    x = grid.read(instr.operands[0])
    array, extents = _array(x.array), grid.extents(instr.operands[1:])
    if math.prod(extents) != math.prod(array.shape[x.lead :]):
        raise Unable(again=True)
    return [Lifted(array.reshape(array.shape[: x.lead] + extents), x.lead)]


def _tabulate(grid: Grid, instr: Instr, extents: tuple[int, ...] | None = None) -> list[Lifted]:
    extents = grid.extents(instr.operands) if extents is None else extents
    yields, depth = grid.inside(instr.regions[0], extents)
    around = depth - len(extents)
    out = []
    for y, result in zip(yields, instr.results, strict=True):
        array = y.at(depth)
        shape = array.shape[:around] + extents + array.shape[depth:]
        _small(shape)
        array = np.broadcast_to(array, shape).astype(DTYPES[result.type.elem], copy=False)
        out.append(Lifted(array, around))
    return out


def _reduce(grid: Grid, instr: Instr, extents: tuple[int, ...] | None = None) -> list[Lifted]:
    extents = grid.extents(instr.operands) if extents is None else extents
    body = instr.regions[0].entry.terminator.operands[0]
    fused = product(instr, body)
    yields, depth = grid.inside(instr.regions[0], extents, fused)
    around = depth - len(extents)

    def rows(value: Lifted) -> Array:
        """The reduction's axes, broadcast and made one."""
        array = value.at(depth)
        _small(array.shape[:around] + extents)
        return np.broadcast_to(array, array.shape[:around] + extents).reshape((*array.shape[:around], math.prod(extents)))

    op, order, elem = str(instr.attrs["op"]), str(instr.attrs["order"]), body.type.elem
    if fused:
        return [Lifted(fold_product(elem, *map(rows, yields)), around)]
    array = fold(op, order, elem, rows(*yields))
    if op in ("argmax", "argmin"):
        return [Lifted(k, around) for k in positions(array, extents)]
    return [Lifted(array, around)]


def positions(flat: Array, extents: tuple[int, ...]) -> list[Array]:
    """Row-major positions as one array an index."""
    if 0 in extents:
        return [np.zeros_like(flat) for _ in extents]
    return [np.asarray(k).astype(np.int64) for k in np.unravel_index(flat, extents)]


def _check(grid: Grid, instr: Instr) -> list[Lifted]:
    if 0 not in grid.shape and not np.all(grid.read(instr.operands[0]).array):
        raise Unable(again=True)
    return []


def _const(grid: Grid, instr: Instr) -> list[Lifted]:
    value, elem = instr.attrs["value"], instr.result.type.elem
    return [Lifted(value if isinstance(value, str) else DTYPES[elem].type(value), 0)]


def _call(grid: Grid, instr: Instr) -> list[Lifted]:
    return grid.call(grid.module.functions[str(instr.attrs["callee"])], [grid.read(v) for v in instr.operands])


def _get(grid: Grid, instr: Instr) -> list[Lifted]:
    name = str(instr.attrs["var"])
    return [grid.variables[name] if name in grid.variables else Lifted(grid.outer_variable(name), 0)]


def _set(grid: Grid, instr: Instr) -> list[Lifted]:
    grid.variables[str(instr.attrs["var"])] = grid.read(instr.operands[0])
    return []


_OPS: dict[str, Callable[[Grid, Instr], list[Lifted]]] = {
    "const": _const,
    "index": _index,
    "update": _update,
    "dim": _dim,
    "reshape": _reshape,
    "stop_grad": lambda grid, instr: [grid.read(instr.operands[0])],
    "tabulate": _tabulate,
    "reduce": _reduce,
    "check": _check,
    "call": _call,
    "get": _get,
    "set": _set,
}

"""Evaluates regions over whole index arrays: what makes the interpreter fast enough for real programs.

This is only a faster way to the same values. Whenever it cannot be sure of them (a check fails somewhere, an extent differs
between elements) it raises `Unable`, and the interpreter goes through the elements one by one: that is the meaning, and it
finds the least index that fails.

A comprehension in a comprehension adds axes: at depth g of indices a value is an array whose first `lead <= g` axes
belong to the indices around it and have their extent or 1 (does not depend on that index), followed by the axes of its own
type. A value with `lead` 0 depends on no index and is computed once.

    for[i < 2, j < 3] x[i] * y[j]       i: (2, 1)  j: (1, 3)  x[i]: (2, 1)  y[j]: (1, 3)  product: (2, 3)

The indices of the outermost comprehension are cut into boxes such that no array has more than `LIMIT` elements, which
then stay in the cache; a `reduce` takes its elements box by box too. Boxes come in row-major order, as the elements do.
Branches and loops are the business of `ssa/interp_paths.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.calls import callee_of
from tlc.ssa.formatting import marked, render
from tlc.ssa.ir import Function, Instr, Module, Region, Terminator, Value, walk
from tlc.ssa.reductions import Fold, product

Array = np.ndarray[Any, Any]
Box = tuple[range, ...]  # a range for each index

LIMIT = 1 << 13  # elements of an array


class Unable(Exception):
    """Whole arrays cannot tell; `again` says whether other runs of the region may succeed."""

    def __init__(self, again: bool) -> None:
        self.again = again


class TooLarge(Exception):
    """An array would have more than `LIMIT` elements, namely `size`: smaller boxes are needed."""

    def __init__(self, size: int) -> None:
        self.size = size


@dataclass(frozen=True)
class Lifted:
    """A value for all elements at once; see the module's text. Not changed in place. An index knows its axis, along which it counts up."""

    array: Any  # a NumPy scalar, a `str` or an array
    lead: int
    axis: int | None = None

    def at(self, lead: int) -> Array:
        """The array with `lead` leading axes."""
        array = as_array(self.array)
        return array.reshape(array.shape[: self.lead] + (1,) * (lead - self.lead) + array.shape[self.lead :])

    def counts(self) -> slice:
        """Of an index: where it counts."""
        first = int(self.array.flat[0]) if self.array.size else 0
        return slice(first, first + self.array.size)


def as_array(value: Any) -> Array:
    return np.asarray(value, dtype=object) if isinstance(value, str) else np.asarray(value)


# ---------------------------------------------------------------- what can be evaluated


class Way(IntEnum):
    """How a region is evaluated: over whole arrays, over whole arrays with a path for each element, or element by element."""

    STRAIGHT = 0
    BRANCHY = 1
    SINGLE = 2


class Ways:
    """The way of each region of a module, that of what it calls included."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.known: dict[Region, Way] = {}

    def __call__(self, region: Region) -> Way:
        if region not in self.known:
            self.known[region] = Way.SINGLE  # while it is being found out: recursion has no other way
            straight = len(region.blocks) == 1 and region.entry.terminator.op in ("yield", "return")
            own = Way.STRAIGHT if straight else Way.BRANCHY if not _has_variables(region) else Way.SINGLE
            self.known[region] = max([own, *(self.instr(i) for block in region.blocks for i in block.instrs)])
        return self.known[region]

    def instr(self, instr: Instr) -> Way:
        if instr.op == "call":
            return self(self.module.functions[callee_of(instr)].body)
        if instr.op in SCALAR_OPS:
            return Way.STRAIGHT
        return max(map(self, instr.regions), default=Way.STRAIGHT) if instr.op in _OPS else Way.SINGLE


def _has_variables(region: Region) -> bool:
    return any(instr.op in ("get", "set") for instr in walk(region))


def boxes(extents: tuple[int, ...], limit: int) -> Iterator[Box]:
    """All indices in row-major order, in boxes of at most `limit`: one axis is cut into runs, those before it into single indices.

    Of no index there is one box, without any.
    """
    inner, axis = 1, len(extents)
    while axis and (inner * extents[axis - 1] <= limit or 0 in extents):
        axis -= 1
        inner *= extents[axis]
    whole = tuple(map(range, extents[axis:]))
    if axis == 0:
        yield whole
        return
    run, end = max(1, limit // inner), extents[axis - 1]
    for outer in np.ndindex(*extents[: axis - 1]):
        for start in range(0, end, run):
            yield (*(range(i, i + 1) for i in outer), range(start, min(start + run, end)), *whole)


# ---------------------------------------------------------------- the ends of a region


Outer = Callable[[Value], Lifted]  # a value of the code around
RunPaths = Callable[["Grid", Region, "Ends"], list[Lifted]]  # what a branchy region yields; see ssa/interp_paths.py


class Ends:
    """How the ends of a region are read: what they yield or return."""

    unneeded: frozenset[Instr] = frozenset()  # instructions that then nobody reads

    def operands(self, end: Terminator) -> tuple[Value, ...]:
        return end.own

    def read(self, grid: Grid, end: Terminator) -> list[Lifted]:
        return [grid.read(v) for v in self.operands(end)]


PLAIN = Ends()


class Factors(Ends):
    """Of a region that sums products: each end is read as two factors, where it yields no product as the value and 1."""

    def __init__(self, products: dict[Terminator, Instr | None]) -> None:
        self.products = products
        self.unneeded = frozenset(i for i in products.values() if i and list(i.result.uses.values()) == [1])

    @staticmethod
    def of(reduce: Instr) -> Factors | None:
        """None where the reduction fuses no product."""
        ends = [b.terminator for b in reduce.regions[0].blocks if b.terminator.op == "yield"]
        products = {end: product(reduce, end.operands[0]) for end in ends}
        return Factors(products) if any(products.values()) else None

    def operands(self, end: Terminator) -> tuple[Value, ...]:
        factors = self.products.get(end)
        return factors.operands if factors else end.own

    def read(self, grid: Grid, end: Terminator) -> list[Lifted]:
        values = super().read(grid, end)
        return values if self.products[end] else [*values, Lifted(DTYPES[end.operands[0].type.elem].type(1), 0)]


# ---------------------------------------------------------------- evaluation


class Grid:
    """One evaluation. `outer` and `outer_variable` read values and variables of the code around the outermost region."""

    def __init__(
        self, module: Module, paths: RunPaths, outer: Outer, outer_variable: Callable[[str], Any], shape: tuple[int, ...] = ()
    ) -> None:
        self.module, self.paths = module, paths
        self.outer, self.outer_variable = outer, outer_variable
        self.values: dict[Value, Lifted] = {}
        self.variables: dict[str, Lifted] = {}
        self.shape = shape  # extents of the indices around

    def apart(self, outer: Outer, shape: tuple[int, ...]) -> Grid:
        """A grid of other elements, for the same code."""
        return Grid(self.module, self.paths, outer, self.outer_variable, shape)

    # ------------------------------------------------------------ outermost comprehensions

    def tabulate(self, instr: Instr, extents: tuple[int, ...], limit: int) -> list[Any]:
        """The results of a `tabulate` that stands in no other region, with at most `limit` indices at a time."""
        out: list[Array] = []
        for box in boxes(extents, limit):
            parts = [y.at(len(extents)) for y in self.inside(instr.regions[0], box)]
            owns = [p.shape[len(extents) :] for p in parts]
            if not out:
                out = [np.empty(extents + own, DTYPES[r.type.elem]) for own, r in zip(owns, instr.results, strict=True)]
            for whole, part, own in zip(out, parts, owns, strict=True):
                if whole.shape[len(extents) :] != own:
                    raise Unable(again=False)
                whole[tuple(slice(r.start, r.stop) for r in box)] = part
        return [y if y.ndim else y[()] for y in out]

    def reduce(self, instr: Instr, extents: tuple[int, ...], limit: int) -> list[Any]:
        """The results of a `reduce` that stands in no other region."""
        return [np.asarray(v.array)[()] for v in _folded(self, instr, extents, limit)]

    def scatter(self, instr: Instr, x: Array, extents: tuple[int, ...], limit: int) -> Array:
        """The result of a `scatter` that stands in no other region, in the place of `x`."""
        for box in boxes(extents, limit):
            shape = tuple(map(len, box))
            columns = [np.broadcast_to(y.at(len(extents)), shape).ravel() for y in self.inside(instr.regions[0], box)]
            add_at(x, instr.result.type.elem, columns[:-1], columns[-1])
        return x

    # ------------------------------------------------------------ values

    def read(self, value: Value) -> Lifted:
        if value not in self.values:
            self.values[value] = self.outer(value)
        return self.values[value]

    def extents(self, values: tuple[Value, ...]) -> tuple[int, ...]:
        """Extents that are the same for all elements; `Unable` if they are not."""
        out = []
        for v in values:
            array = as_array(self.read(v).array)
            least = int(array.min()) if array.size else 0
            if array.size and least != int(array.max()):
                raise Unable(again=False)
            if least < 0 and not self.empty():
                raise Unable(again=True)
            out.append(max(least, 0))
        return tuple(out)

    def empty(self) -> bool:
        """Whether there is no element, so that nothing can fail."""
        return 0 in self.shape

    # ------------------------------------------------------------ code

    def inside(self, region: Region, box: Box, ends: Ends = PLAIN) -> list[Lifted]:
        """What a region yields over its indices, which are as many axes more."""
        around = self.shape
        self.shape += tuple(map(len, box))
        depth = len(self.shape)
        indices = []
        for axis, counts in enumerate(box, len(around)):
            line = np.arange(counts.start, counts.stop, dtype=np.int64)
            indices.append(Lifted(line.reshape([-1 if k == axis else 1 for k in range(depth)]), depth, axis))
        try:
            return self.run(region, indices, ends)
        finally:
            self.shape = around

    def run(self, region: Region, arguments: list[Lifted], ends: Ends) -> list[Lifted]:
        """What a region yields or returns, at the depth of the grid."""
        self.values.update(zip(region.entry.params, arguments, strict=True))
        if len(region.blocks) > 1 or region.entry.terminator.op == "unreachable":
            return self.paths(self, region, ends)
        self.block(region.entry.instrs, ends)
        return ends.read(self, region.entry.terminator)

    def block(self, instrs: list[Instr], ends: Ends) -> None:
        for instr in instrs:
            if instr not in ends.unneeded:
                results = self.scalar(instr) if instr.op in SCALAR_OPS else _OPS[instr.op](self, instr)
                self.values.update(zip(instr.results, results, strict=True))

    def scalar(self, instr: Instr) -> list[Lifted]:
        arguments = [self.read(v) for v in instr.operands]
        lead = max((a.lead for a in arguments), default=0)
        arrays = [a.at(lead) for a in arguments] if lead else [a.array for a in arguments]
        if lead:
            small(np.broadcast_shapes(*(a.shape for a in arrays)))
        return [Lifted(SCALAR_OPS[instr.op].evaluate(instr.result.type.elem, *arrays), lead)]

    def call(self, function: Function, arguments: list[Lifted]) -> list[Lifted]:
        variables, self.variables = self.variables, {}
        try:
            return self.run(function.body, arguments, PLAIN)
        finally:
            self.variables = variables


def small(shape: tuple[int, ...]) -> None:
    """Raise `TooLarge` for a shape that is."""
    size = math.prod(shape)
    if size > LIMIT:
        raise TooLarge(size)


T = TypeVar("T")


def fitting(count: int, limit: int, evaluate: Callable[[int], T]) -> T:
    """What `evaluate` gives, which is told how many of `count` indices it may take at a time: as many as arrays can be for."""
    while True:
        try:
            return evaluate(limit)
        except TooLarge as e:
            limit = min(limit, count) * LIMIT // e.size
            if not limit:
                raise


def add_at(x: Array, elem: Elem, where: list[Array], values: Array) -> None:
    """Add values to elements of `x`, which lies in row-major order, in place and one after the other."""
    if any(w.size and (int(w.min()) < 0 or int(w.max()) >= n) for w, n in zip(where, x.shape, strict=True)):
        raise Unable(again=True)
    flat = np.ravel_multi_index(tuple(where), x.shape) if where and values.size else np.zeros(values.shape, np.int64)
    cells = x.reshape(-1)
    if elem is Elem.BF16:  # its values lie in f32: NumPy would not round the sums
        for at, value in zip(flat.tolist(), values, strict=True):
            cells[at] = SCALAR_OPS["add"].evaluate(elem, cells[at], value)
        return
    with np.errstate(all="ignore"):
        np.add.at(cells, flat, values)


# ---------------------------------------------------------------- the ops that are not scalar ops


def _index(grid: Grid, instr: Instr) -> list[Lifted]:
    x, *indices = [grid.read(v) for v in instr.operands]
    array = as_array(x.array)
    extents = array.shape[x.lead : x.lead + len(indices)]
    rest = array.shape[x.lead + len(indices) :]
    if not grid.empty() and not all(map(_in_range, indices, extents)):
        raise Unable(again=True)
    found = None if grid.empty() else _view(x, indices)
    if found is not None:
        return [found]
    lead = max(v.lead for v in (x, *indices))
    arrays = [i.at(lead) for i in indices]
    shape = np.broadcast_shapes(*(a.shape for a in arrays), x.at(lead).shape[:lead] if x.lead else ())
    small(shape + rest)
    if grid.empty():
        return [Lifted(np.zeros(shape + rest, DTYPES[instr.result.type.elem]), lead)]
    if x.lead:
        array = x.at(lead)
        return [Lifted(array[(*_lead_indices(array.shape[:lead]), *arrays)], lead)]
    return [Lifted(array[tuple(arrays)], lead)]


def _index_if(grid: Grid, instr: Instr) -> list[Lifted]:
    """Where the condition does not hold, the first element is read in place of nothing; an empty tensor is read nowhere."""
    cond, x, *indices = [grid.read(v) for v in instr.operands]
    lead = max(v.lead for v in (cond, x, *indices))
    holds, array = cond.at(lead), x.at(lead)
    shape = np.broadcast_shapes(holds.shape, array.shape[:lead], *(i.at(lead).shape for i in indices))
    small(shape)
    zero = np.zeros((), DTYPES[instr.result.type.elem])
    if grid.empty() or not holds.any():
        return [Lifted(np.broadcast_to(zero, shape) if lead else zero[()], lead)]
    arrays = [np.where(holds, i.at(lead), 0) for i in indices]
    if any(a.min() < 0 or a.max() >= n for a, n in zip(arrays, array.shape[lead:], strict=True)):
        raise Unable(again=True)
    found = array[(*_lead_indices(array.shape[:lead]), *arrays)] if x.lead else as_array(x.array)[tuple(arrays)]
    return [Lifted(np.where(holds, found, zero), lead)]


def _in_range(index: Lifted, extent: int) -> bool:
    if index.axis is not None:
        return bool(index.counts().start >= 0 and index.counts().stop <= extent)
    array = as_array(index.array)
    return not array.size or bool(array.min() >= 0 and array.max() < extent)


def _view(x: Lifted, indices: list[Lifted]) -> Lifted | None:
    """A part of `x` without a copy, where each index depends on nothing or is an index of the grid that stands for itself."""
    axes = [*range(x.lead), *(i.axis for i in indices if i.lead)]
    known = [a for a in axes if a is not None]
    if len(set(known)) < len(axes):
        return None
    ranges = [i.counts() if i.lead else int(i.array) for i in indices]
    part = as_array(x.array)[(*[slice(None)] * x.lead, *ranges, ...)]
    order = sorted(range(len(known)), key=known.__getitem__)
    lead = max(known, default=-1) + 1
    shape = [1] * lead
    for axis, length in zip(known, part.shape, strict=False):
        shape[axis] = length
    part = part.transpose(*order, *range(len(order), part.ndim))
    return Lifted(part.reshape((*shape, *part.shape[len(order) :]))[()], lead)


def _lead_indices(shape: tuple[int, ...]) -> list[Array]:
    """Indices that pick each element's own part of an array with these leading axes."""
    return list(np.ix_(*map(np.arange, shape)))


def _update(grid: Grid, instr: Instr) -> list[Lifted]:
    x, *indices, part = [grid.read(v) for v in instr.operands]
    lead = max(v.lead for v in (x, *indices, part))
    array, arrays, new = x.at(lead), [i.at(lead) for i in indices], part.at(lead)
    shape = np.broadcast_shapes(array.shape[:lead], new.shape[:lead], *(a.shape for a in arrays))
    small(shape + array.shape[lead:])
    out = np.array(np.broadcast_to(array, shape + array.shape[lead:]))
    if not grid.empty():
        if not all(map(_in_range, indices, array.shape[lead:])):
            raise Unable(again=True)
        out[(*_lead_indices(shape), *arrays)] = new
    return [Lifted(out, lead)]


def _scatter(grid: Grid, instr: Instr) -> list[Lifted]:
    x = grid.read(instr.operands[0])
    extents, depth = grid.extents(instr.operands[1:]), len(grid.shape)
    own = as_array(x.array).shape[x.lead :]
    small(grid.shape + own)
    small(grid.shape + extents)
    out = np.array(np.broadcast_to(x.at(depth), grid.shape + own), order="C")
    shape = grid.shape + extents
    yields = [np.broadcast_to(y.at(len(shape)), shape) for y in grid.inside(instr.regions[0], tuple(map(range, extents)))]
    elements = [np.broadcast_to(i, shape) for i in np.ix_(*map(np.arange, shape))][:depth]
    *where, value = [y.ravel() for y in (*elements, *yields)]
    if not grid.empty():
        add_at(out, instr.result.type.elem, where, value)
    return [Lifted(out, depth)]


def _dim(grid: Grid, instr: Instr) -> list[Lifted]:
    x, axis = grid.read(instr.operands[0]), instr.attrs["axis"]
    assert isinstance(axis, int)
    return [Lifted(np.int64(as_array(x.array).shape[x.lead + axis]), 0)]


def _reshape(grid: Grid, instr: Instr) -> list[Lifted]:
    x = grid.read(instr.operands[0])
    array, extents = as_array(x.array), grid.extents(instr.operands[1:])
    if math.prod(extents) != math.prod(array.shape[x.lead :]):
        raise Unable(again=True)
    return [Lifted(array.reshape(array.shape[: x.lead] + extents), x.lead)]


def _tabulate(grid: Grid, instr: Instr) -> list[Lifted]:
    extents, around = grid.extents(instr.operands), len(grid.shape)
    out = []
    for y in grid.inside(instr.regions[0], tuple(map(range, extents))):
        array = y.at(around + len(extents))
        shape = array.shape[:around] + extents + array.shape[around + len(extents) :]
        small(shape)
        out.append(Lifted(np.broadcast_to(array, shape), around))
    return out


def _reduce(grid: Grid, instr: Instr) -> list[Lifted]:
    extents = grid.extents(instr.operands)
    small(grid.shape)
    return fitting(math.prod(extents), LIMIT, lambda limit: _folded(grid, instr, extents, limit))


def _folded(grid: Grid, instr: Instr, extents: tuple[int, ...], limit: int) -> list[Lifted]:
    """A reduction for each element of the grid, taking at most `limit` indices at a time."""
    region, around, op = instr.regions[0], len(grid.shape), str(instr.attrs["op"])
    ends = Factors.of(instr) or PLAIN
    fold = Fold(op, str(instr.attrs["order"]), yielded(instr), (1,) * around)  # of nothing
    for box in boxes(extents, limit) if 0 not in extents else ():
        rows = [_row(y.at(around + len(box)), around, box) for y in grid.inside(region, box, ends)]
        if not fold.taken:
            fold = Fold(op, fold.order, fold.elem, np.broadcast_shapes(*(r.shape[:-1] for r in rows)))
        fold.take(*rows) if ends is PLAIN else fold.take_product(*rows)
    if op in ("argmax", "argmin"):
        return [Lifted(k, around) for k in positions(fold.result(), extents)]
    return [Lifted(fold.result(), around)]


def _row(array: Array, around: int, box: Box) -> Array:
    """The axes of a box, which stand behind those around, as one."""
    shape = array.shape[:around]
    return np.broadcast_to(array, (*shape, *map(len, box))).reshape((*shape, math.prod(map(len, box))))


def yielded(reduce: Instr) -> Elem:
    """The element type that a reduction's region yields."""
    for block in reduce.regions[0].blocks:
        if block.terminator.op == "yield":
            return block.terminator.operands[0].type.elem
    return reduce.results[0].type.elem


def positions(flat: Array, extents: tuple[int, ...]) -> list[Array]:
    """Row-major positions as one array an index."""
    if 0 in extents:
        return [np.zeros_like(flat) for _ in extents]
    return [np.asarray(k).astype(np.int64) for k in np.unravel_index(flat, extents)]


def _check(grid: Grid, instr: Instr) -> list[Lifted]:
    if not grid.empty() and not np.all(grid.read(instr.operands[0]).array):
        raise Unable(again=True)
    return []


def _format(grid: Grid, instr: Instr) -> list[Lifted]:
    template, leaves = instr.attrs["template"], [grid.read(v) for v in instr.operands]
    assert isinstance(template, tuple)
    lead = max((v.lead for v in leaves), default=0)
    arrays = [v.at(lead) for v in leaves]
    shape = np.broadcast_shapes(*(a.shape[:lead] for a in arrays))
    arrays = [np.broadcast_to(a, shape + a.shape[lead:]) for a in arrays]
    texts = np.empty(shape, object)
    for at in np.ndindex(*shape):
        texts[at] = render(template, [marked(a[at], v.type.elem) for a, v in zip(arrays, instr.operands, strict=True)])
    return [Lifted(texts[()], lead)]


def _const(grid: Grid, instr: Instr) -> list[Lifted]:
    value, elem = instr.attrs["value"], instr.result.type.elem
    return [Lifted(value if isinstance(value, str) else DTYPES[elem].type(value), 0)]


def _call(grid: Grid, instr: Instr) -> list[Lifted]:
    return grid.call(grid.module.functions[callee_of(instr)], [grid.read(v) for v in instr.operands])


def _get(grid: Grid, instr: Instr) -> list[Lifted]:
    name = str(instr.attrs["var"])
    return [grid.variables[name] if name in grid.variables else Lifted(grid.outer_variable(name), 0)]


def _set(grid: Grid, instr: Instr) -> list[Lifted]:
    grid.variables[str(instr.attrs["var"])] = grid.read(instr.operands[0])
    return []


_OPS: dict[str, Callable[[Grid, Instr], list[Lifted]]] = {
    "const": _const,
    "index": _index,
    "index_if": _index_if,
    "update": _update,
    "scatter": _scatter,
    "dim": _dim,
    "reshape": _reshape,
    "stop_grad": lambda grid, instr: [grid.read(instr.operands[0])],
    "barrier": lambda grid, instr: [grid.read(instr.operands[0])],
    "tabulate": _tabulate,
    "reduce": _reduce,
    "check": _check,
    "format": _format,
    "call": _call,
    "get": _get,
    "set": _set,
}

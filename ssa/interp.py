"""The interpreter of SSA, plain and obvious: the living definition of what a program means.

    Interpreter(module, services).call("main", [np.int64(3)])

A scalar is a NumPy scalar of `DTYPES` (a `str` is a Python `str`), a tensor an `ndarray`; nothing is changed in place. It runs every
stage: variables (`get`, `set`) before construction, SSA, and host code with `launch`, whose kernels the `launch` hook runs.

Calls live on a stack of `Frame`s, not on Python's, so recursion is as deep as `MAX_CALLS`. Straight-line regions are
evaluated over whole index arrays (`ssa/interp_grid.py`), others element by element.

A `check` that fails raises `Stop`. What the verifier or a `check` should have excluded (an index out of range, a buffer's size) is
an `InternalError`: a bug of the compiler, not of the program.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from tlc.frontend import foreign
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.ssa import formatting
from tlc.ssa.interp_grid import Grid, Straight, Unable, positions
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Type, Value
from tlc.ssa.ops import ROWS
from tlc.ssa.reductions import fold, fold_product, product
from tlc.ssa.world import Services, Stop

Array = np.ndarray[Any, Any]

MAX_CALLS = 100_000  # calls in progress
MAX_REGIONS = 1_000  # regions in progress: recursion through comprehensions


Launch = Callable[[str, list[Array], list[Any]], None]  # kernel, outputs to fill, inputs
Grad = Callable[[Instr, list[Any]], list[Any]]  # a `grad` instruction and its operands to its results


@dataclass
class Frame:
    """A call, or a region, in progress. A region shares `values` and `variables` with the code around it."""

    block: Block
    at: int
    values: dict[Value, Any]
    variables: dict[str, Any]


class Interpreter:
    """Runs functions of one module, which must not change meanwhile. The tape of `push` and `pop` lives as long as the interpreter."""

    def __init__(self, module: Module, services: Services, launch: Launch | None = None, grad: Grad | None = None) -> None:
        self.module, self.services, self.launch, self.grad = module, services, launch, grad
        self.straight = Straight(module)
        self.tape: list[Any] = []
        self.calls = self.regions = 0  # in progress

    def call(self, name: str, args: Sequence[Any]) -> list[Any]:
        """The results of a function; arguments are converted to the types of its parameters. Raises `Stop`."""
        function = self.module.functions[name]
        arguments = [_fit(deepcopy(a), p.type) for a, p in zip(args, function.params, strict=True)]
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 20 * MAX_REGIONS))
        self.calls = self.regions = 0
        try:
            return self.execute(function.body, arguments, {}, {})[0]
        finally:
            sys.setrecursionlimit(limit)

    # ------------------------------------------------------------ control

    def execute(self, region: Region, args: list[Any], values: dict[Value, Any], variables: dict[str, Any]) -> tuple[list[Any], Terminator]:
        """Run a region, and the calls in it, to its `yield` or `return`; gives that terminator too."""
        values.update(zip(region.entry.params, args, strict=True))
        stack = [Frame(region.entry, 0, values, variables)]
        while True:
            frame = stack[-1]
            values = frame.values
            if frame.at < len(frame.block.instrs):
                instr = frame.block.instrs[frame.at]
                frame.at += 1
                operands = [values[v] for v in instr.operands]
                if instr.op == "call":
                    stack.append(self.enter(instr, operands))
                else:
                    values.update(zip(instr.results, self.step(instr, operands, frame), strict=True))
                continue
            end = frame.block.terminator
            match end.op:
                case "jump":
                    self.follow(frame, end, 0)
                case "branch":
                    self.follow(frame, end, 0 if values[end.own[0]] else 1)
                case "unreachable":
                    raise InternalError(f"reached `unreachable` of block `{frame.block.name}` at {end.span}", "interpreter")
                case _:
                    results = [values[v] for v in end.operands]
                    stack.pop()
                    if not stack:
                        return results, end
                    self.calls -= 1
                    caller = stack[-1]
                    caller.values.update(zip(caller.block.instrs[caller.at - 1].results, results, strict=True))

    def follow(self, frame: Frame, end: Terminator, edge: int) -> None:
        """Take an edge: all its arguments are read before a parameter is written."""
        args = [frame.values[v] for v in end.args(edge)]
        frame.block, frame.at = end.targets[edge], 0
        frame.values.update(zip(frame.block.params, args, strict=True))

    def enter(self, instr: Instr, operands: list[Any]) -> Frame:
        function = self.module.functions[str(instr.attrs["callee"])]
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise Stop(f"recursion is deeper than {MAX_CALLS} calls", instr.span, "recursion")
        return Frame(function.body.entry, 0, dict(zip(function.params, operands, strict=True)), {})

    def step(self, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
        """The results of one instruction that is no call."""
        row = SCALAR_OPS.get(instr.op)
        if row is not None:
            return (row.evaluate(instr.result.type.elem, *operands),)
        return _OPS[instr.op](self, instr, operands, frame)

    # ------------------------------------------------------------ regions

    def element(self, region: Region, index: tuple[int, ...], frame: Frame, span: Span) -> tuple[list[Any], Terminator]:
        """What a region yields at one index."""
        self.regions += 1
        if self.regions > MAX_REGIONS:
            raise Stop(f"recursion is deeper than {MAX_REGIONS} comprehensions", span, "recursion")
        out = self.execute(region, [np.int64(i) for i in index], frame.values, frame.variables)
        self.regions -= 1
        return out

    def whole(self, instr: Instr, extents: tuple[int, ...], frame: Frame) -> list[Any] | None:
        """The results over whole index arrays; None where the elements must be looked at one by one."""
        if not self.straight(instr.regions[0]):
            return None
        grid = Grid(self.module, frame.values.__getitem__, frame.variables.__getitem__)
        try:
            return grid.scatter(instr, extents) if instr.op == "scatter" else grid.run(instr, extents)
        except Unable as e:
            self.straight.known[instr.regions[0]] = e.again
            return None


def _fit(value: Any, type: Type) -> Any:
    """A value in its type: `str`, NumPy scalar or array."""
    if type.elem is Elem.STR and type.rank == 0:
        return str(value)
    array = np.asarray(value, dtype=DTYPES[type.elem])
    if array.ndim != type.rank:
        raise InternalError(f"a value of rank {array.ndim} for {type}", "interpreter")
    return array if type.rank else array[()]


def _extents(operands: Sequence[Any], instr: Instr) -> tuple[int, ...]:
    extents = tuple(int(n) for n in operands)
    if min(extents, default=0) < 0:
        raise InternalError(f"negative extent in {extents}", f"`{instr.op}` at {instr.span}")
    return extents


def _inside(indices: Sequence[Any], x: Array, instr: Instr) -> tuple[int, ...]:
    where = tuple(int(i) for i in indices)
    if not all(0 <= i < n for i, n in zip(where, x.shape, strict=False)):
        raise InternalError(f"index {where} is out of range for {x.shape}", f"`{instr.op}` at {instr.span}")
    return where


def _undefined(shape: tuple[int, ...], elem: Elem) -> Array:
    """What nobody may read: NaN, or all bits 1010."""
    out = np.empty(shape, DTYPES[elem])
    _poison(out)
    return out


def _poison(buffer: Array) -> None:
    if buffer.dtype.kind == "f":
        buffer.fill(np.nan)
    elif buffer.dtype.kind == "O":
        buffer.fill("<undefined>")
    elif buffer.size:
        np.ascontiguousarray(buffer).view(np.uint8).fill(0xAA if buffer.dtype.kind != "b" else 1)


# ---------------------------------------------------------------- the ops that are not scalar ops


def _const(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    value, elem = instr.attrs["value"], instr.result.type.elem
    return (value if elem is Elem.STR else DTYPES[elem].type(value),)


def _tabulate(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    extents = _extents(operands, instr)
    whole = self.whole(instr, extents, frame)
    if whole is not None:
        return whole
    parts: list[list[Any]] = [[] for _ in instr.results]
    for index in np.ndindex(*extents):
        for part, value in zip(parts, self.element(instr.regions[0], index, frame, instr.span)[0], strict=True):
            part.append(value)
    out = []
    for part, result in zip(parts, instr.results, strict=True):
        shapes = {np.shape(v) for v in part}
        if len(shapes) > 1:
            raise InternalError(f"elements of different shapes {sorted(shapes)}", f"`tabulate` at {instr.span}")
        own = shapes.pop() if shapes else (0,) * (result.type.rank - len(extents))
        array = np.empty((len(part), *own), DTYPES[result.type.elem])
        for k, v in enumerate(part):
            array[k] = v
        out.append(array.reshape(extents + own) if extents else _fit(part[0], result.type))
    return out


def _reduce(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    extents = _extents(operands, instr)
    whole = self.whole(instr, extents, frame)
    if whole is not None:
        return whole
    elem = _yielded(instr.regions[0], instr)
    columns: list[list[Any]] = [[], []]  # of a product its factors
    fused = False
    for index in np.ndindex(*extents):
        (value,), end = self.element(instr.regions[0], index, frame, instr.span)
        factors = product(instr, end.operands[0])
        fused = fused or factors is not None
        pair = [frame.values[v] for v in factors.operands] if factors else [value, 1]
        for column, v in zip(columns, pair, strict=True):
            column.append(v)
    a, b = (np.array(c, dtype=DTYPES[elem]) for c in columns)
    if fused:
        return (fold_product(elem, a, b)[()],)
    total = fold(str(instr.attrs["op"]), str(instr.attrs["order"]), elem, a)
    if instr.attrs["op"] in ("argmax", "argmin"):
        return [k[()] for k in positions(total, extents)]
    return (total[()],)


def _yielded(region: Region, instr: Instr) -> Elem:
    """The element type that a reduction's region yields."""
    for block in region.blocks:
        if block.terminator.op == "yield":
            return block.terminator.operands[0].type.elem
    return instr.results[0].type.elem


def _scatter(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, extents = np.array(operands[0]), _extents(operands[1:], instr)
    whole = self.whole(instr, extents, frame)
    elem = instr.result.type.elem
    for index in np.ndindex(*extents):
        if whole is not None:
            *where, value = (column[index] for column in whole)
        else:
            *where, value = self.element(instr.regions[0], index, frame, instr.span)[0]
        at = _inside(where, x, instr)
        x[at] = SCALAR_OPS["add"].evaluate(elem, x[at], value)
    return (x if x.ndim else x[()],)


def _index(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, *indices = operands
    part = x[_inside(indices, x, instr)]
    return (_fit(np.array(part), instr.result.type),)


def _update(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, *indices, part = operands
    at = _inside(indices, x, instr)
    if np.shape(x[at]) != np.shape(part):
        raise InternalError(f"a part of shape {np.shape(part)} for one of {np.shape(x[at])}", f"`update` at {instr.span}")
    out = np.array(x)
    out[at] = part
    return (_fit(out, instr.result.type),)


def _dim(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    axis = instr.attrs["axis"]
    assert isinstance(axis, int)
    return (np.int64(operands[0].shape[axis]),)


def _reshape(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, extents = np.asarray(operands[0]), _extents(operands[1:], instr)
    if x.size != math.prod(extents):
        raise InternalError(f"{x.shape} to {extents}", f"`reshape` at {instr.span}")
    return (np.array(x.reshape(extents)) if extents else x.reshape(())[()],)


def _grad(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    if self.grad is None:
        raise InternalError("derivatives are expanded before interpretation", f"`grad` at {instr.span}")
    return self.grad(instr, operands)


def _extern(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    results = self.services.extern(str(instr.attrs["name"]), operands)
    return [_fit(v, r.type) for v, r in zip(results, instr.results, strict=True)]


def _foreign(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    result = instr.result.type.elem if instr.results else None
    value = foreign.call(str(instr.attrs["symbol"]), [v.type.elem for v in instr.operands], result, operands)
    return (value,) if instr.results else ()


def _check(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    if not operands[0]:
        raise Stop(formatting.fill(str(instr.attrs["message"]), operands[1:]), instr.span, str(instr.attrs["kind"]))
    return ()


def _format(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    template = instr.attrs["template"]
    assert isinstance(template, tuple)
    leaves = [formatting.marked(x, v.type.elem) for x, v in zip(operands, instr.operands, strict=True)]
    return (formatting.render(template, leaves),)


def _print(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.services.print(operands[0])
    return ()


def _progress_begin(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (np.int64(self.services.progress_begin(operands[0], int(operands[1]))),)


def _progress_tick(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.services.progress_tick(int(operands[0]), int(operands[1]))
    return ()


def _progress_end(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.services.progress_end(int(operands[0]))
    return ()


def _push(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.tape.append(operands[0])
    return ()


def _pop(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    if not self.tape:
        raise InternalError("the tape is empty", f"`pop` at {instr.span}")
    return (_fit(self.tape.pop(), instr.result.type),)


def _get(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    name = str(instr.attrs["var"])
    if name not in frame.variables:
        raise InternalError(f"variable `{name}` is read before it is set", f"`get` at {instr.span}")
    return (frame.variables[name],)


def _set(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    frame.variables[str(instr.attrs["var"])] = operands[0]
    return ()


def _fill(self: Interpreter, instr: Instr, outputs: list[Array], inputs: list[Any]) -> Sequence[Any]:
    if self.launch is None:
        raise InternalError("no hook runs kernels", f"`{instr.op}` at {instr.span}")
    self.launch(str(instr.attrs["kernel"]), outputs, inputs)
    return [y if y.ndim else y[()] for y in outputs]


def _launch(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    outputs, at = [], 0
    for r in instr.results:
        outputs.append(_undefined(_extents(operands[at : at + r.type.rank], instr), r.type.elem))
        at += r.type.rank
    return _fill(self, instr, outputs, operands[at:])


def _run(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    count = len(instr.results)
    return _fill(self, instr, [np.asarray(y) for y in operands[:count]], operands[count:])


def _alloc(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (_fit(_undefined(_extents(operands, instr), instr.result.type.elem), instr.result.type),)


def _copy(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (np.array(operands[0]) if instr.result.type.rank else operands[0],)


def _free(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    if isinstance(operands[0], np.ndarray) and operands[0].flags.writeable:
        _poison(operands[0])  # so that a later read shows
    return ()


_OPS: dict[str, Callable[[Interpreter, Instr, list[Any], Frame], Sequence[Any]]] = {
    "const": _const,
    "tabulate": _tabulate,
    "reduce": _reduce,
    "scatter": _scatter,
    "index": _index,
    "update": _update,
    "dim": _dim,
    "reshape": _reshape,
    "grad": _grad,
    "stop_grad": lambda self, instr, operands, frame: operands,
    "extern": _extern,
    "foreign": _foreign,
    "check": _check,
    "format": _format,
    "print": _print,
    "progress_begin": _progress_begin,
    "progress_tick": _progress_tick,
    "progress_end": _progress_end,
    "push": _push,
    "pop": _pop,
    "get": _get,
    "set": _set,
    "launch": _launch,
    "run": _run,
    "alloc": _alloc,
    "copy": _copy,
    "free": _free,
}

# `call` is control and stands in `execute`.
_missing = set(ROWS) ^ {*_OPS, "call"}
assert not _missing, f"ops without an interpretation: {sorted(_missing)}"

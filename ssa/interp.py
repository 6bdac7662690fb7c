"""The interpreter of SSA, plain and obvious: the living definition of what a program means.

    Interpreter(module, services).call("main", [np.int64(3)])

A scalar is a NumPy scalar of `DTYPES` (a `str` is a Python `str`), a tensor an `ndarray`. It runs every stage: variables
(`get`, `set`) before construction, SSA, and host code with `launch`, whose kernels the `launch` hook runs.

Calls live on a stack of `Frame`s, not on Python's, so recursion is as deep as `MAX_CALLS`. Three things are for speed alone: regions
are evaluated over whole index arrays where that can be done (`ssa/interp_grid.py`), what an instruction does is looked up
once (`Step`), and an `update` changes an array in place where nobody can tell (`ssa/interp_owned.py`).

A `check` that fails raises `Stop`. What the verifier or a `check` should have excluded (an index out of range, a buffer's size) is
an `InternalError`: a bug of the compiler, not of the program.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import field
from typing import Any, TypeVar

import numpy as np

from tlc.frontend import foreign
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS, Evaluate
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.ssa import formatting
from tlc.ssa.calls import callee_of
from tlc.ssa.interp_grid import LIMIT, Grid, Lifted, TooLarge, Unable, Way, Ways, fitting, positions, yielded
from tlc.ssa.interp_owned import Owners, shared
from tlc.ssa.interp_paths import Paths
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Type, Value
from tlc.ssa.ops import ROWS
from tlc.ssa.recipe import recipe_of, watched_by
from tlc.ssa.reductions import fold, fold_product, product
from tlc.ssa.tape import tape_of
from tlc.ssa.world import RuntimeStop, Services, Stop

T = TypeVar("T")
Array = np.ndarray[Any, Any]

MAX_CALLS = 100_000  # calls in progress
MAX_REGIONS = 1_000  # regions in progress: recursion through comprehensions
FEW = 8  # elements whose branches and loops are not worth whole arrays


Launch = Callable[[str, list[Array], list[Any]], None]  # kernel, outputs to fill, inputs
Grad = Callable[[Instr, list[Any]], list[Any]]  # a `grad` instruction and its operands to its results
Run = Callable[["Interpreter", Instr, list[Any], "Frame"], Sequence[Any]]  # an op and its operands to its results


@dataclass
class Frame:
    """A call, or a region, in progress. A region shares `values` and `variables` with the code around it."""

    block: Block
    values: dict[Value, Any]
    variables: dict[str, Any]
    at: int = 0  # the instruction that is next
    owned: set[Value] = field(default_factory=set)  # see ssa/interp_owned.py


@dataclass(frozen=True)
class Step:
    """What an instruction does: `evaluate` for a scalar op, else `run`, which is None for a call."""

    instr: Instr
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    elem: Elem
    evaluate: Evaluate | None
    run: Run | None
    shared: tuple[Value, ...]  # operands that are not owned any more


class Interpreter:
    """Runs functions of one module, which must not change meanwhile. The tapes of `push` and `pop` live as long as the interpreter.

    `whole` says whether regions may be evaluated over whole arrays; it changes no result.
    """

    def __init__(
        self, module: Module, services: Services, launch: Launch | None = None, grad: Grad | None = None, whole: bool = True
    ) -> None:
        self.module, self.services, self.launch, self.grad = module, services, launch, grad
        self.whole = whole
        self.ways = Ways(module)
        self.paths = Paths()
        self.limits: dict[tuple[Region, tuple[int, ...]], int] = {}  # how many indices of a region to take at a time
        self.steps: dict[Block, list[Step]] = {}
        self.owners = Owners()
        self.tapes: dict[int, list[Any]] = {}
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
        stack = [Frame(region.entry, values, variables)]
        try:
            return self.run(stack)
        except Stop as e:
            for frame in stack[-2::-1]:
                e.called_from(frame.block.instrs[frame.at - 1].span)
            raise

    def run(self, stack: list[Frame]) -> tuple[list[Any], Terminator]:
        """Run frames, the last first, to the end of the first."""
        while True:
            frame = stack[-1]
            try:
                call = self.straight(frame)
            except MemoryError:
                raise Stop("there is not enough memory for a tensor", frame.block.instrs[frame.at - 1].span, "memory") from None
            if call is not None:
                stack.append(self.enter(call, [frame.values[v] for v in call.operands]))
                continue
            end = frame.block.terminator
            match end.op:
                case "jump":
                    self.follow(frame, end, 0)
                case "branch":
                    self.follow(frame, end, 0 if frame.values[end.own[0]] else 1)
                case "unreachable":
                    raise InternalError(f"reached `unreachable` of block `{frame.block.name}` at {end.span}", "interpreter")
                case _:
                    results = [frame.values[v] for v in end.operands]
                    stack.pop()
                    if not stack:
                        return results, end
                    self.calls -= 1
                    caller = stack[-1]
                    caller.values.update(zip(caller.block.instrs[caller.at - 1].results, results, strict=True))

    def straight(self, frame: Frame) -> Instr | None:
        """Run a block from where it stands to the next call, which is given, or to its end."""
        steps, values = self.prepared(frame.block), frame.values
        for step in steps[frame.at :] if frame.at else steps:
            frame.at += 1
            if step.shared:
                frame.owned.difference_update(step.shared)
            if step.evaluate is not None:
                values[step.results[0]] = step.evaluate(step.elem, *[values[v] for v in step.operands])
            elif step.run is not None:
                results = step.run(self, step.instr, [values[v] for v in step.operands], frame)
                values.update(zip(step.results, results, strict=True))
            else:
                return step.instr
        return None

    def prepared(self, block: Block) -> list[Step]:
        if block not in self.steps:
            self.steps[block] = [_step(instr) for instr in block.instrs]
        return self.steps[block]

    def follow(self, frame: Frame, end: Terminator, edge: int) -> None:
        """Take an edge: all its arguments are read before a parameter is written."""
        args = [frame.values[v] for v in end.args(edge)]
        if frame.owned:
            self.owners.follow(frame.owned, end, edge)
        frame.block, frame.at = end.targets[edge], 0
        frame.values.update(zip(frame.block.params, args, strict=True))

    def enter(self, instr: Instr, operands: list[Any]) -> Frame:
        function = self.module.functions[callee_of(instr)]
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise Stop(f"recursion is deeper than {MAX_CALLS} calls", instr.span, "recursion")
        return Frame(function.body.entry, dict(zip(function.params, operands, strict=True)), {})

    # ------------------------------------------------------------ regions

    def element(self, region: Region, index: tuple[int, ...], frame: Frame, span: Span) -> tuple[list[Any], Terminator]:
        """What a region yields at one index."""
        self.regions += 1
        if self.regions > MAX_REGIONS:
            raise Stop(f"recursion is deeper than {MAX_REGIONS} comprehensions", span, "recursion")
        out = self.execute(region, [np.int64(i) for i in index], frame.values, frame.variables)
        self.regions -= 1
        return out

    def over_arrays(self, instr: Instr, extents: tuple[int, ...], frame: Frame, evaluate: Callable[[Grid, int], T]) -> T | None:
        """What `evaluate` gives, which is told how many indices it may take at a time; None where only single elements can tell."""
        region, count = instr.regions[0], math.prod(extents)
        way = self.ways(region)
        if not self.whole or way is Way.SINGLE or (way is Way.BRANCHY and count < FEW):
            return None

        def attempt(limit: int) -> T:
            self.limits[region, extents] = limit
            return evaluate(Grid(self.module, self.paths, lambda v: Lifted(frame.values[v], 0), frame.variables.__getitem__), limit)

        try:
            return fitting(count, self.limits.get((region, extents), LIMIT), attempt)
        except TooLarge:
            return None
        except Unable as e:
            if not e.again:
                self.ways.known[region] = Way.SINGLE
            return None


def _step(instr: Instr) -> Step:
    row = SCALAR_OPS.get(instr.op)
    elem = instr.results[0].type.elem if instr.results else Elem.BOOL
    run = None if row or instr.op == "call" else _OPS[instr.op]
    return Step(instr, instr.operands, instr.results, elem, row.evaluate if row else None, run, () if row else shared(instr))


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
    whole = self.over_arrays(instr, extents, frame, lambda grid, limit: grid.tabulate(instr, extents, limit))
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
        out.append(_fit(array.reshape(extents + own), result.type))
    return out


def _reduce(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    extents = _extents(operands, instr)
    whole = self.over_arrays(instr, extents, frame, lambda grid, limit: grid.reduce(instr, extents, limit))
    if whole is not None:
        return whole
    elem = yielded(instr)
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


def _scatter(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, extents = operands[0], _extents(operands[1:], instr)
    whole = self.over_arrays(instr, extents, frame, lambda grid, limit: grid.scatter(instr, np.array(x, order="C"), extents, limit))
    if whole is not None:
        return (_fit(whole, instr.result.type),)
    out, elem = np.array(x), instr.result.type.elem
    for index in np.ndindex(*extents):
        *where, value = self.element(instr.regions[0], index, frame, instr.span)[0]
        at = _inside(where, out, instr)
        out[at] = SCALAR_OPS["add"].evaluate(elem, out[at], value)
    return (_fit(out, instr.result.type),)


def _index(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, *indices = operands
    part = x[_inside(indices, x, instr)]
    return (_fit(np.array(part), instr.result.type),)


def _index_if(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    cond, x, *indices = operands
    return (x[_inside(indices, x, instr)] if cond else x.dtype.type(0),)


def _update(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, *indices, part = operands
    at = _inside(indices, x, instr)
    if np.shape(x[at]) != np.shape(part):
        raise InternalError(f"a part of shape {np.shape(part)} for one of {np.shape(x[at])}", f"`update` at {instr.span}")
    return _written(self, instr, x, at, part, frame)


def _written(self: Interpreter, instr: Instr, x: Any, at: Any, part: Any, frame: Frame) -> Sequence[Any]:
    """The first operand with a part replaced: in place if nobody else needs it."""
    if instr.operands[0] in frame.owned and self.owners.dies(instr.operands[0], instr):
        frame.owned.remove(instr.operands[0])
    else:
        x = np.array(x)
    x[at] = part
    frame.owned.add(instr.result)
    return (x if x.ndim else x[()],)


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


def _unexpanded(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    raise InternalError("derivatives are expanded before interpretation", f"`{instr.op}` at {instr.span}")


def _extern(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    try:
        results = self.services.extern(str(instr.attrs["name"]), operands)
        return [_fit(v, r.type) for v, r in zip(results, instr.results, strict=True)]
    except RuntimeStop as e:
        raise e.at(instr.span) from None


def _foreign(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    result = instr.result.type.elem if instr.results else None
    value = foreign.call(str(instr.attrs["symbol"]), [v.type.elem for v in instr.operands], result, operands)
    return (value,) if instr.results else ()


def _check(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    if not operands[0]:
        raise Stop(formatting.fill(str(instr.attrs["message"]), operands[1:]), instr.span, str(instr.attrs["kind"]))
    return ()


def _is_well(x: Any) -> bool:
    """Whether a real, or each of a tensor, is finite, or a bool true."""
    return bool(np.all(x) if np.asarray(x).dtype == np.bool_ else np.isfinite(x).all())


def _trap(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    rest = 1 + watched_by(instr)
    if not operands[0] or not all(_is_well(x) for x in operands[1:rest]):
        recipe_of(instr).run(operands[rest:], self.services)
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


def _progress_due(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (np.bool_(True),)


def _progress_note(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.services.progress_note(int(operands[0]), int(operands[1]), operands[2])
    return ()


def _progress_end(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.services.progress_end(int(operands[0]))
    return ()


def _push(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    self.tapes.setdefault(tape_of(instr), []).append(operands[0])
    return ()


def _pop(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    tape = self.tapes.get(tape_of(instr))
    if not tape:
        raise InternalError("the tape is empty", f"`pop` at {instr.span}")
    return (_fit(tape.pop(), instr.result.type),)


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


def _load(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, position = operands
    return (x[_place(position, x, instr)],)


def _store(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, position, element = operands
    return _written(self, instr, x, _place(position, x, instr), element, frame)


def _place(position: Any, x: Array, instr: Instr) -> tuple[int, ...]:
    """The indices of a row-major position."""
    if not 0 <= position < x.size:
        raise InternalError(f"position {position} is out of range for {x.shape}", f"`{instr.op}` at {instr.span}")
    return tuple(int(i) for i in np.unravel_index(int(position), x.shape))


def _view(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    """The array itself, seen otherwise: who writes it too early is seen to do so."""
    x, *words = operands
    rank = instr.result.type.rank
    extents, flat = _extents(words[len(words) - rank :], instr), x.reshape(-1)
    at = sum(int(i) * math.prod(x.shape[k + 1 :]) for k, i in enumerate(words[: len(words) - rank]))
    if not 0 <= at <= at + math.prod(extents) <= x.size:
        return (_undefined(extents, instr.result.type.elem),)
    return (flat[at : at + math.prod(extents)].reshape(extents),)


def _split(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    x, *indices = operands
    return x, x[_inside(indices, x, instr)]


def _join(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (operands[0],)


def _alloc(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (_fit(_undefined(_extents(operands, instr), instr.result.type.elem), instr.result.type),)


def _copy(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    return (np.array(operands[0]) if instr.result.type.rank else operands[0],)


def _free(self: Interpreter, instr: Instr, operands: list[Any], frame: Frame) -> Sequence[Any]:
    if isinstance(operands[0], np.ndarray) and operands[0].flags.writeable:
        _poison(operands[0])  # so that a later read shows
    return ()


_OPS: dict[str, Run] = {
    "const": _const,
    "tabulate": _tabulate,
    "reduce": _reduce,
    "scatter": _scatter,
    "index": _index,
    "index_if": _index_if,
    "update": _update,
    "dim": _dim,
    "reshape": _reshape,
    "grad": _grad,
    "jvp": _unexpanded,
    "call_vjp": _unexpanded,
    "stop_grad": lambda self, instr, operands, frame: operands,
    "barrier": lambda self, instr, operands, frame: operands,
    "extern": _extern,
    "foreign": _foreign,
    "check": _check,
    "trap": _trap,
    "format": _format,
    "print": _print,
    "progress_begin": _progress_begin,
    "progress_tick": _progress_tick,
    "progress_due": _progress_due,
    "progress_note": _progress_note,
    "progress_end": _progress_end,
    "push": _push,
    "pop": _pop,
    "get": _get,
    "set": _set,
    "launch": _launch,
    "load": _load,
    "store": _store,
    "run": _run,
    "view": _view,
    "split": _split,
    "join": _join,
    "alloc": _alloc,
    "copy": _copy,
    "free": _free,
}

# `call` is control and stands in `execute`.
_missing = set(ROWS) ^ {*_OPS, "call"}
assert not _missing, f"ops without an interpretation: {sorted(_missing)}"

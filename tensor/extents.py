"""Which extents are equal: a canonical key for every `i64` value and every axis of a tensor.

A key is an `int` (a known extent), a `Value` (the `i64` that some instruction computed) or an `Axis` (the extent of a
tensor about which nothing more is known). Equal keys mean equal extents on every run; different keys mean nothing.

Extents of block parameters are found by an optimistic fixpoint (a parameter has the extent that all its incoming edges
agree on), so a model that a loop carries around keeps the extents that it began with.

Worked example: in `%w1 = tabulate %n {..}; head(%w): ..; %v = tabulate (dim %w) {..}; jump head(%v)` the key of axis 0 of
`%w`, `%v` and `%w1` is `%n`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tlc.frontend.records import dataclass
from tlc.opt.dims import SAME_SHAPE
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Block, Function, Instr, Region, Value


@dataclass(frozen=True)
class Axis:
    """The extent of a tensor of which nothing more is known."""

    tensor: Value
    axis: int


Key = int | Value | Axis


class _Anything:
    """The extent of a parameter of which no edge has been looked at: the top of the lattice."""


_ANYTHING = _Anything()
_SAME_SHAPE = (*SAME_SHAPE, "join")


class Extents:
    """The extents of one function as it is now. Make it anew after a change; new straight-line code may be asked about at once.

    `known` says what is known of the function's own parameters (by axis) from elsewhere.
    """

    def __init__(self, function: Function, known: Mapping[tuple[Value, int], Key] | None = None) -> None:
        self._params: dict[tuple[Value, int], Key | _Anything] = dict(known or {})
        self._firsts: dict[Value, Value] = {}  # of what was asked about: the first of its chain
        incoming = _incoming(function.body)
        for param in incoming:
            for axis in range(param.type.rank):
                self._params[param, axis] = _ANYTHING
        changed = True
        while changed:
            changed = False
            for param, args in incoming.items():
                for axis in range(param.type.rank):
                    new = self._meet(param, axis, args)
                    changed |= new != self._params[param, axis]
                    self._params[param, axis] = new

    def of(self, tensor: Value, axis: int) -> Key:
        """The key of one extent."""
        key = self._axis(tensor, axis)
        return Axis(tensor, axis) if isinstance(key, _Anything) else key

    def all(self, tensor: Value) -> tuple[Key, ...]:
        return tuple(self.of(tensor, k) for k in range(tensor.type.rank))

    def key(self, value: Value) -> Key:
        """The key of an `i64` value."""
        key = self._scalar(value)
        return value if isinstance(key, _Anything) else key

    def declare_alike(self, param: Value, other: Value) -> None:
        """A block parameter made since, or what comes from elsewhere, has the shape of another tensor."""
        for axis in range(param.type.rank):
            self._params[param, axis] = self.of(other, axis)

    def _meet(self, param: Value, axis: int, args: list[Value]) -> Key | _Anything:
        if self._params[param, axis] == Axis(param, axis):
            return Axis(param, axis)
        found: Key | _Anything = _ANYTHING
        for arg in args:
            key = self._axis(arg, axis)
            if isinstance(key, _Anything):
                continue
            if isinstance(found, _Anything):
                found = key
            elif key != found:
                return Axis(param, axis)
        return found

    def _axis(self, tensor: Value, axis: int) -> Key | _Anything:
        tensor = self._first(tensor)
        owner = tensor.owner
        if isinstance(owner, Block) or (tensor, axis) in self._params:
            return self._params.get((tensor, axis), Axis(tensor, axis))
        match owner.op:
            case "tabulate" if axis < len(owner.operands):
                return self._scalar(owner.operands[axis])
            case "reshape":
                return self._scalar(owner.operands[1 + axis])
            case "index":
                return self._axis(owner.operands[0], len(owner.operands) - 1 + axis)
            case "alloc":
                return self._scalar(owner.operands[axis])
            case "run":
                return self._axis(owner.operands[owner.results.index(tensor)], axis)
            case "split":
                return self._axis(owner.operands[0], axis + owner.results.index(tensor) * (len(owner.operands) - 1))
            case "view":
                return self._scalar(owner.operands[len(owner.operands) - tensor.type.rank + axis])
            case "launch":
                before = owner.results[: owner.results.index(tensor)]
                return self._scalar(owner.operands[sum(r.type.rank for r in before) + axis])
            case "grad":
                wrt = owner.attrs["wrt"]
                assert isinstance(wrt, tuple)
                position = owner.results.index(tensor) - (len(owner.results) - len(wrt))
                if position >= 0:
                    return self._axis(owner.operands[wrt[position]], axis)
            case "call_vjp":
                return self._of_call(owner, tensor, axis)
        return Axis(tensor, axis)

    def _first(self, tensor: Value) -> Value:
        """The first tensor of a chain of updates. It may be thousands long, and asked about at every link."""
        at = tensor
        while at not in self._firsts and isinstance(at.owner, Instr) and at.owner.op in _SAME_SHAPE:
            at = at.owner.operands[0]
        first = self._firsts.get(at, at)
        if first is not tensor:
            self._firsts[tensor] = first
        return first

    def _of_call(self, call: Instr, tensor: Value, axis: int) -> Key | _Anything:
        """What is known of the callee's result, in terms of the operands."""
        shapes = call.attrs["shapes"]
        assert isinstance(shapes, tuple)
        match shapes[call.results.index(tensor)][axis] if shapes else ():
            case (int(number),):
                return number
            case (int(k), -1):
                return self._scalar(call.operands[k])
            case (int(k), int(of)):
                return self._axis(call.operands[k], of)
        return Axis(tensor, axis)

    def _scalar(self, value: Value) -> Key | _Anything:
        owner = value.owner
        if not isinstance(owner, Instr):
            return value
        match owner.op:
            case "const":
                number = owner.attrs["value"]
                return number if isinstance(number, int) else value
            case "dim":
                axis = owner.attrs["axis"]
                assert isinstance(axis, int)
                return self._axis(owner.operands[0], axis)
            case "max":  # max(n, 0) = n where n is an extent
                for a, b in (owner.operands, owner.operands[::-1]):
                    if self._scalar(b) == 0:
                        inner = self._scalar(a)
                        if isinstance(inner, (_Anything, Axis)) or (isinstance(inner, int) and inner >= 0):
                            return inner
        return value


def _shaped_like(tensor: Value) -> Value:
    """The first tensor of a chain of updates (it may be thousands long)."""
    while isinstance(tensor.owner, Instr) and tensor.owner.op in _SAME_SHAPE:
        tensor = tensor.owner.operands[0]
    return tensor


def known_extent(tensor: Value, axis: int) -> Value | None:
    """The value that an extent was made from, if the tensor's own instruction tells."""
    tensor = _shaped_like(tensor)
    owner = tensor.owner
    if isinstance(owner, Instr):
        match owner.op:
            case "tabulate" if axis < len(owner.operands):
                return owner.operands[axis]
            case "reshape":
                return owner.operands[1 + axis]
            case "index":
                return known_extent(owner.operands[0], len(owner.operands) - 1 + axis)
    return None


def extent(b: Builder, tensor: Value, axis: int) -> Value:
    """A value for an extent; a `dim` only where no operand of the tensor's own instruction is it."""
    known = known_extent(tensor, axis)
    return b.dim(tensor, axis) if known is None else known


def _incoming(region: Region) -> dict[Value, list[Value]]:
    """For every tensor parameter of a block that is jumped to: the arguments of all edges."""
    found: dict[Value, list[Value]] = {}
    for block in _all_blocks(region):
        if not block.terminated:
            continue
        for target, args in block.terminator.edges:
            for param, arg in zip(target.params, args, strict=True):
                if param.type.rank:
                    found.setdefault(param, []).append(arg)
    return found


def _all_blocks(region: Region) -> Iterator[Block]:
    for block in region.blocks:
        yield block
        for instr in block.instrs:
            for inner in instr.regions:
                yield from _all_blocks(inner)

"""Runs machine IR in Python: the meaning of every stage between selection and encoding, before and after allocation.

Before allocation a frame holds values by virtual register, after it by place. What an instruction destroys is gone afterwards, and a
frame begins with nothing but its parameters; to read what is not there is an error. So a register that does not outlive a call, or a
slot that nobody wrote, shows at once.

Memory consists of pieces with gaps between them, and every access must lie within one. So no text, however wrong, does more than raise
`InternalError`.

Calls go by the convention that the operands themselves tell: a call passes what its fixed uses hold, `enter` takes it from there, `ret`
passes results back in the same way. What does not fit into registers goes through the words that a frame keeps for its calls
(`outgoing`), which the callee sees as `incoming`.

    run(module, TARGET, "f.main", context, {"service.print": f})    f(machine, {"rdi": 4096}) -> {"rax": 0}
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NoReturn

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.regalloc.ir import Block, Fixed, Function, Inst, Mem, Module, Operand, Place, VReg
from tlc.regalloc.target import Kind, Target
from tlc.regalloc.text import print_inst
from tlc.regalloc.verify import ENTER

Values = tuple[int, ...]
Registers = dict[str, int]  # by name
Outside = Callable[["Machine", Registers], Mapping[str, int]]  # a function from outside: registers with arguments -> those with results

DEPTH = 400  # frames
GAP = 1 << 16  # bytes between pieces of memory


class Memory:
    """Pieces of bytes at addresses that rise."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.pieces: list[bytearray] = []
        self.end = 1 << 20

    def add(self, data: bytearray) -> int:
        """Its address, a multiple of 64. The piece stays the caller's."""
        address = self.end
        self.starts.append(address)
        self.pieces.append(data)
        self.end += (len(data) + 63) // 64 * 64 + GAP
        return address

    def at(self, address: int, size: int) -> tuple[bytearray, int]:
        """The piece and the offset."""
        k = bisect_right(self.starts, address) - 1
        if k < 0 or address + size > self.starts[k] + len(self.pieces[k]):
            raise InternalError(f"{size} bytes at {address:#x} are not in memory", "machine code")
        return self.pieces[k], address - self.starts[k]

    def read(self, address: int, size: int) -> int:
        piece, at = self.at(address, size)
        return int.from_bytes(piece[at : at + size], "little")

    def write(self, address: int, size: int, value: int) -> None:
        piece, at = self.at(address, size)
        piece[at : at + size] = value.to_bytes(size, "little")

    def remove(self, address: int) -> None:
        """A piece that is given back: to touch it from now on is an error."""
        k = bisect_right(self.starts, address) - 1
        if k < 0 or self.starts[k] != address:
            raise InternalError(f"nothing begins at {address:#x}", "machine code")
        del self.starts[k], self.pieces[k]


class _Left(Exception):
    """The run has stopped: every function leaves."""


@dataclass
class _Frame:
    function: Function
    given: Registers
    incoming: int  # address of the words that the caller passed
    outgoing: int
    values: dict[VReg | Place, int] = field(default_factory=dict)


class Machine:
    """The state of a run, as meanings see it (`Row.evaluate`)."""

    def __init__(
        self, module: Module, target: Target, context: bytearray, outside: Mapping[str, Outside], limit: int | None = None
    ) -> None:
        """`context` stays the caller's, who sees there why a run stopped. At most `limit` instructions run."""
        self.module, self.target, self.outside = module, target, outside
        self.memory = Memory()
        self.context = self.memory.add(context)
        self.frames: list[_Frame] = []
        self.limit = limit

    # ------------------------------------------------------------ what meanings ask for

    def read(self, address: int, size: int) -> int:
        return self.memory.read(address, size)

    def write(self, address: int, size: int, value: int) -> None:
        self.memory.write(address, size, value)

    def address(self, inst: Inst, values: Values) -> int:
        mem, frame = inst.attrs["mem"], self.frames[-1]
        assert isinstance(mem, Mem)
        first = sum(o.is_def for o in inst.operands)
        out = mem.offset + {"": 0, "context": self.context, "incoming": frame.incoming, "outgoing": frame.outgoing}[mem.area]
        if mem.base is not None:
            out += values[mem.base - first]
        if mem.index is not None:
            out += values[mem.index - first] * mem.scale
        return out % 2**64

    def stack_left(self) -> bool:
        return len(self.frames) < DEPTH

    def leave(self) -> NoReturn:
        raise _Left

    def call(self, inst: Inst, values: Values) -> Values:
        name = str(inst.attrs["symbol"])
        if name not in self.module.functions:
            raise InternalError(f"there is no function `{name}`", "machine code")
        return self.results(inst, self.run(self.module.functions[name], self.passed(inst, values), self.frames[-1].outgoing))

    def call_outside(self, inst: Inst, values: Values) -> Values:
        name = str(inst.attrs["symbol"])
        if name not in self.outside:
            raise InternalError(f"nobody gave `{name}`", "machine code")
        results = self.outside[name](self, self.passed(inst, values))
        if inst.attrs["checked"] and results["rax"] % 2**32:
            self.leave()
        return self.results(inst, results)

    def passed(self, inst: Inst, values: Values) -> Registers:
        uses = [o for o in inst.operands if not o.is_def]
        return {o.constraint.reg.name: v for o, v in zip(uses, values, strict=True) if isinstance(o.constraint, Fixed)}

    def results(self, inst: Inst, registers: Mapping[str, int]) -> Values:
        out = []
        for o in inst.operands:
            if o.is_def:
                assert isinstance(o.constraint, Fixed)
                if o.constraint.reg.name not in registers:
                    raise InternalError(f"no result in {o.constraint.reg}", "machine code")
                out.append(registers[o.constraint.reg.name] % 2**64)
        return tuple(out)

    # ------------------------------------------------------------ running

    def run(self, function: Function, given: Registers, incoming: int) -> Registers:
        """One call, up to its `ret`."""
        if len(self.frames) >= DEPTH + 8:
            raise InternalError("functions call each other too deeply", f"machine code of {function.name}")
        words = self.memory.add(bytearray(8 * function.outgoing))
        frame = _Frame(function, given, incoming, words)
        self.frames.append(frame)
        block: Block = function.entry
        inst = block.insts[0]
        try:
            while True:
                for inst in block.insts:
                    taken = self.step(frame, inst)
                if not inst.targets:
                    return {o.constraint.reg.name: v for o, v in zip(inst.operands, taken, strict=True) if isinstance(o.constraint, Fixed)}
                block = self.enter(frame, inst, taken[0])
        except InternalError as e:
            if e.where.startswith("function"):
                raise
            where = f"function {function.name}, block {block.name}, `{print_inst(inst, self.target)}`"
            raise InternalError(str(e), where, inst.span) from None
        finally:
            self.frames.pop()
            self.memory.remove(words)

    def enter(self, frame: _Frame, inst: Inst, number: int) -> Block:
        block, args = inst.targets[number]
        values = [self.value(frame, v) for v in args]
        frame.values.update(zip(block.params, values, strict=True))
        return block

    def step(self, frame: _Frame, inst: Inst) -> Values:
        """One instruction; of a terminator, its values or the number of its target."""
        if self.limit is not None:
            self.limit -= 1
            if self.limit < 0:
                raise InternalError("too many instructions", "machine code")
        row = self.target.rows[inst.op]
        if inst.op == ENTER:
            results = self.results(inst, frame.given)
        else:
            values = tuple([self.value(frame, self.key(frame, o)) for o in inst.operands if not o.is_def])
            result = row.evaluate(self, inst, values)
            results = (result,) if inst.targets else result
        if row.kind is Kind.TERMINATOR:
            return results
        if frame.function.allocated:
            for reg in inst.clobbers:
                frame.values.pop(reg, None)
        defs = [o for o in inst.operands if o.is_def]
        for o, v in zip(defs, results, strict=True):
            frame.values[self.key(frame, o)] = v
        return ()

    def key(self, frame: _Frame, o: Operand) -> VReg | Place:
        if not frame.function.allocated:
            return o.vreg
        assert o.place is not None
        return o.place

    def value(self, frame: _Frame, key: VReg | Place) -> int:
        if key not in frame.values:
            raise InternalError(f"{key} holds nothing", "machine code")
        return frame.values[key]


def run(
    module: Module, target: Target, entry: str, context: bytearray, outside: Mapping[str, Outside] | None = None, limit: int | None = None
) -> int:
    """Run a function without parameters; gives its status, 0 or 1: the run has stopped, and the context says why."""
    machine = Machine(module, target, context, outside or {}, limit)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 8 * DEPTH + 1000))
    try:
        machine.run(module.functions[entry], {}, machine.memory.add(bytearray()))
        return 0
    except _Left:
        return 1
    finally:
        sys.setrecursionlimit(before)

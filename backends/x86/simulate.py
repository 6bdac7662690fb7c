"""Machine IR run by its interpreter as a program: with the services, the memory and the context that native code has.

It is slow, and it sees what a processor does not: a register that nobody wrote, an access outside of every buffer, memory that was given
back. Kernels are not there: they are no machine IR.
"""

from __future__ import annotations

import struct

import numpy as np

from tlc.backends.context import FIELDS, SERVICES, VALUES, Reason, offset
from tlc.backends.program import Foreign, Tables
from tlc.backends.runtime.served import Served, Slots, stored
from tlc.backends.x86.ops import TARGET
from tlc.backends.x86.registers import INT_ARGUMENTS, REAL_ARGUMENTS
from tlc.frontend import foreign
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.interp import Machine, Outside, Registers, run
from tlc.regalloc.ir import Module
from tlc.ssa.world import Services

_SIZE = offset(FIELDS[-1].name) + FIELDS[-1].bits // 8 * FIELDS[-1].count
_HUGE = 1 << 32  # bytes of a buffer that Python had better not make


class _Memory:
    """The memory of the interpreter, which exists from the first call on."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.tapes: dict[int, list[int]] = {}

    @property
    def pieces(self) -> Machine:
        assert self.machine is not None
        return self.machine

    def read(self, address: int, size: int) -> bytes:
        if not size:
            return b""
        piece, at = self.pieces.memory.at(address, size)
        return bytes(piece[at : at + size])

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little", signed=True)

    def set_word(self, address: int, value: int) -> None:
        self.pieces.write(address, 8, value % 2**64)

    def buffer(self, data: memoryview) -> int | None:
        return self.pieces.memory.add(bytearray(data))


def simulate(module: Module, tables: Tables, services: Services) -> None:
    """Run `f.main`. Raises `Stop` where the program stops itself, what a service raised, or `InternalError` for what code must not do."""
    memory, context = _Memory(), bytearray(_SIZE)
    served = Served(tables, services, memory)
    failures: list[BaseException] = []

    def service(name: str) -> Outside:
        def call(machine: Machine, given: Registers) -> Registers:
            memory.machine = machine
            try:
                getattr(served, name)(Slots(memory, given["rdi"]))
                return {"rax": 0}
            except InternalError:
                raise
            except BaseException as error:
                failures.append(error)
                struct.pack_into("<i", context, offset("reason"), int(Reason.SERVICE))
                return {"rax": 1}

        return call

    outside = {f"service.{name}": service(name) for name in SERVICES} | _support(memory) | {f.name: _foreign(f) for f in tables.foreign}
    outside["tlc.tick"] = lambda machine, given: {"rax": 0}
    outside["tlc.due"] = lambda machine, given: {"rax": 1}
    if not run(module, TARGET, "f.main", context, outside):
        return
    if struct.unpack_from("<i", context, offset("reason"))[0] == Reason.CHECK:
        site = struct.unpack_from("<q", context, offset("site"))[0]
        raise served.stop(site, list(struct.unpack_from(f"<{VALUES}q", context, offset("values"))))
    raise failures[-1] if failures else InternalError("the code returned early without a reason", "machine code")


def _support(memory: _Memory) -> dict[str, Outside]:
    """Buffers and the tapes, as `backends/llvm/support.py` has them for native code."""

    def alloc(machine: Machine, given: Registers) -> Registers:
        memory.machine = machine
        return {"rax": machine.memory.add(bytearray(given["rsi"])) if given["rsi"] < _HUGE else 0}

    def free(machine: Machine, given: Registers) -> Registers:
        machine.memory.remove(given["rsi"])
        return {}

    def push(machine: Machine, given: Registers) -> Registers:
        place = machine.memory.add(bytearray(given["rdx"]))
        memory.tapes.setdefault(given["rsi"], []).append(place)
        return {"rax": place}

    def pop(machine: Machine, given: Registers) -> Registers:
        if not memory.tapes.get(given["rsi"]):
            raise InternalError("the tape is empty", "machine code")
        return {"rax": memory.tapes[given["rsi"]].pop()}

    def copy(machine: Machine, given: Registers) -> Registers:
        for k in range(given["rdx"]):
            machine.write(given["rdi"] + k, 1, machine.read(given["rsi"] + k, 1))
        return {"rax": given["rdi"]}

    return {"tlc.alloc": alloc, "tlc.free": free, "tlc.push": push, "tlc.pop": pop, "memcpy": copy}


def _foreign(f: Foreign) -> Outside:
    """A function of the C library, with its arguments where C's convention has them."""

    def call(machine: Machine, given: Registers) -> Registers:
        integers, reals = iter(INT_ARGUMENTS), iter(REAL_ARGUMENTS)
        args = []
        for elem in f.params:
            register = next(reals if elem.is_real else integers, None)
            if register is None:
                raise InternalError(f"`{f.symbol}` takes more arguments than there are registers for them", "machine code")
            word = given[register.name].to_bytes(8, "little")
            args.append(np.frombuffer(word[: elem.bytes], stored(elem))[0])
        result = foreign.call(f.symbol, f.params, f.result, args)
        if f.result is None:
            return {}
        word = np.asarray(result, stored(f.result)).tobytes()
        return {"xmm0" if f.result.is_real else "rax": int.from_bytes(word, "little")}

    return call

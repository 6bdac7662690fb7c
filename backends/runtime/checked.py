"""Kernels for a GPU under suspicion: a program's `Device` that is the interpreter of kernels, on the memory of this process.

Each launch is run twice, on the same inputs: with a look at races, and adversely: blocks and threads from their end to their start, and
rubbish in memory that nobody has written. Indices are checked in both, and so is that all threads come where threads meet. What is
found, or a difference of one bit between the two, is a fault of the compiler. It takes a thousand times as long as the emulated kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tlc.backends.llvm.launch import given
from tlc.backends.runtime.served import stored
from tlc.backends.runtime.services import WorldServices
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.types import Elem
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.tensor.kernel.interp import rubbish, run
from tlc.tensor.kernel.ir import Buffer, Kernel
from tlc.tensor.kernel.scalars import value_of

Array = np.ndarray[Any, Any]
_ALIGNED = 64


class Checked:
    """The kernels of a program, interpreted. The module has the functions that kernels apply, after the memory plan."""

    table = 0

    def __init__(self, kernels: Mapping[str, Kernel], module: Module) -> None:
        self.kernels, self.module = kernels, module
        self.services = WorldServices()  # functions in kernels ask for none
        self.memory: dict[int, Any] = {}

    def enter(self) -> None:
        pass

    def allocate(self, size: int) -> int | None:
        try:
            room = ctypes.create_string_buffer(size + _ALIGNED)
        except MemoryError:
            return None
        address = -(-ctypes.addressof(room) // _ALIGNED) * _ALIGNED
        self.memory[address] = room
        return address

    def release(self, address: int) -> None:
        del self.memory[address]

    def read(self, places: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        return [ctypes.string_at(address, size) for address, size in places]

    def write(self, address: int, data: memoryview) -> None:
        ctypes.memmove(address, data.tobytes(), len(data))

    def notes(self) -> tuple[str, ...]:
        return ()

    def mark(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def launch(self, address: int) -> None:
        kernel, words = given(address, self.kernels)
        scalars = {p.name: _scalar(w, p.elem) for p, w in zip(kernel.parameters, words, strict=True) if not isinstance(p, Buffer)}
        cells = [_cells(p, w, scalars) if isinstance(p, Buffer) else None for p, w in zip(kernel.parameters, words, strict=True)]
        racing, adverse = self.run(kernel, cells, scalars, races=True), self.run(kernel, cells, scalars, adverse=True)
        for b, c, one, other in zip(kernel.results, cells, racing, adverse, strict=False):
            assert c is not None
            if one.tobytes() != other.tobytes():
                what = f"`{b.name}` depends on the order of threads, or on memory that nobody has written"
                raise InternalError(what, f"kernel {kernel.name}")
            c[...] = one

    def run(self, kernel: Kernel, cells: Sequence[Array | None], scalars: Mapping[str, Any], **how: bool) -> list[Array]:
        """The results, as they are stored; what was there is as it was."""
        read = {_place(c) for c in cells[len(kernel.outputs) :] if c is not None}
        copies: dict[tuple[int, int], Array] = {}  # an output that lies where an input lies is one array
        args: list[Any] = []
        for p, c in zip(kernel.parameters, cells, strict=True):
            if c is None:
                args.append(scalars[p.name])
                continue
            at = _place(c)
            if at not in copies:
                copies[at] = np.array(from_memory(c) if p.elem is Elem.BF16 else c)
                if at not in read and "adverse" in how:
                    copies[at].fill(rubbish(p.elem))
            args.append(copies[at].reshape(c.shape))
        count = len(kernel.outputs)
        with np.errstate(all="ignore"):
            run(kernel, args[:count], args[count:], self.apply, **how)
        return [to_memory(a) if b.elem is Elem.BF16 else a for a, b in zip(args, kernel.outputs, strict=False)]

    def apply(self, name: str, values: list[Any]) -> Any:
        return Interpreter(self.module, self.services).call(name, values)[0]


def _scalar(word: int, elem: Elem) -> Any:
    found = np.frombuffer(int(word).to_bytes(8, "little")[: stored(elem).itemsize], stored(elem))
    return (from_memory(found) if elem is Elem.BF16 else found)[0]


def _cells(b: Buffer, address: int, scalars: Mapping[str, Any]) -> Array:
    """The elements of a buffer, where they lie."""
    shape = tuple(int(value_of(n, scalars)) for n in b.shape)
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.empty(shape, stored(b.elem))
    room = memoryview((ctypes.c_ubyte * (size * stored(b.elem).itemsize)).from_address(address))
    return np.frombuffer(room, stored(b.elem)).reshape(shape)


def _place(cells: Array) -> tuple[int, int]:
    """Where elements lie; what begins in the same place and ends elsewhere is a part that is looked at."""
    return cells.ctypes.data, cells.nbytes

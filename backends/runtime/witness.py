"""What kernels were given in a run: the hook of a timed run (`backends/timing.py`) notes the scalars of a call, and the contents of the
inputs that it was asked for.

The hook sees calls whose numbers are powers of two, and the last it saw counts: so it is from the later half of the run, when what
grows has grown, and a run of a million calls is looked at twenty times.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import Buffer, Kernel, Var
from tlc.tensor.kernel.scalars import bytes_of

SLOT = 8  # bytes
MOST = 1 << 30  # bytes of contents that are kept, all kernels together

_Hook = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


@dataclass(frozen=True)
class Call:
    """The slots of a call, 8 bytes an argument, and the contents of inputs by position. `missing`: bytes that were too many to keep."""

    slots: bytes
    contents: Mapping[int, bytes]
    missing: int

    def scalars(self, kernel: Kernel) -> dict[str, np.generic]:
        """The values of those among the kernel's parameters that extents are made of, by name."""
        words = np.frombuffer(self.slots, np.int64)
        first = len(kernel.outputs)
        return {p.name: words[first + k] for k, p in enumerate(kernel.inputs) if isinstance(p, Var) and p.elem is Elem.I64}


class Witness:
    """For the kernels of a run in the order of its table. `wanted` are positions among the inputs of each. The calls seen last are in
    `calls`; `address` is that of the hook.
    """

    def __init__(self, kernels: Sequence[Kernel], wanted: Sequence[frozenset[int]]) -> None:
        self.kernels = kernels
        self.wanted = wanted
        self.calls: dict[int, Call] = {}
        self.left = MOST
        self._hook = _Hook(self._look)

    @property
    def address(self) -> int:
        return ctypes.cast(self._hook, ctypes.c_void_p).value or 0

    def _look(self, number: int, address: int) -> None:
        kernel = self.kernels[number]
        first = len(kernel.outputs)
        slots = ctypes.string_at(address, SLOT * (first + len(kernel.inputs)))
        before = self.calls.get(number)
        self.left += sum(map(len, before.contents.values())) if before else 0
        call = Call(slots, {}, 0)
        scalars = call.scalars(kernel)
        sizes = {k: bytes_of(p, scalars) for k, p in enumerate(kernel.inputs) if k in self.wanted[number] and isinstance(p, Buffer)}
        total = sum(sizes.values())
        if total > self.left:
            self.calls[number] = Call(slots, {}, total)
            return
        words = np.frombuffer(slots, np.int64)
        self.left -= total
        self.calls[number] = Call(slots, {k: ctypes.string_at(int(words[first + k]), size) for k, size in sizes.items()}, 0)

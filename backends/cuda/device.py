"""Kernels on a GPU, through the driver: a program's `Device`.

The driver library is called by ctypes; nothing else of CUDA is needed to run what was compiled. Buffers lie in managed memory, which
host and GPU see at one address; a kernel has ended when its launch returns, so the host may read at once. An error of a kernel, which the
driver tells when somebody asks next, is therefore that kernel's.

What a launch needs is prepared once for each kernel and each set of extents: functions, grids, and a block of pointers to the arguments.
What the GPU cannot see or not read by wide accesses (single results, which lie on the host's stack; views at odd addresses) is copied.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tlc.backends.cuda import ptx
from tlc.backends.cuda.emit import Unit, dimensions, emit
from tlc.backends.cuda.index import MOST
from tlc.frontend.source import NOWHERE
from tlc.frontend.types import Elem
from tlc.ssa.ir import Module
from tlc.ssa.world import RuntimeStop, Stop
from tlc.tensor.kernel.ir import Buffer, Kernel, Var
from tlc.tensor.kernel.scalars import value_of

LIBRARY = "libcuda.so.1"
LEAST_CAPABILITY = 80
ALIGNED = 16  # bytes of the widest access
_WIDE = re.compile(r"\b(load|store)\d+\(")

_OUT_OF_MEMORY = 2
_MAJOR, _MINOR, _MANAGED = 75, 76, 83  # numbers of device attributes
_GLOBAL = 1  # managed memory that every device sees
_MOST_BLOCKS = ((1 << 31) - 1, 65535, 65535)  # of a grid


class Driver:
    """The driver library, and the context of the first GPU. Raises `RuntimeStop` where there is none that will do."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise RuntimeStop(f"the driver for NVIDIA's GPUs is not installed: there is no `{LIBRARY}`", "device") from None
        status = self.library.cuInit(0)
        count = ctypes.c_int()
        if status or self.library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
            raise RuntimeStop(f"there is no GPU{f': {self.reason(status)}' if status else ''}", "device")
        device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(device), 0)
        self.sm = 10 * self.attribute(device, _MAJOR) + self.attribute(device, _MINOR)
        if self.sm < LEAST_CAPABILITY or not self.attribute(device, _MANAGED):
            why = f"sm_{self.sm}" if self.sm < LEAST_CAPABILITY else "without managed memory"
            raise RuntimeStop(f"the GPU is too old: {why}, and kernels need sm_{LEAST_CAPABILITY} and managed memory", "device")
        self.context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)

    def attribute(self, device: ctypes.c_int, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def check(self, name: str, *args: Any) -> None:
        """Call a function of the driver. Raises `RuntimeStop` if it fails."""
        status = getattr(self.library, name)(*args)
        if status:
            raise RuntimeStop(f"`{name}` failed: {self.reason(status)}", "device")

    def reason(self, status: int) -> str:
        """What the driver says of a status."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.library.cuGetErrorName(status, ctypes.byref(name))
        self.library.cuGetErrorString(status, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} ({(name.value or str(status).encode()).decode()})"

    def enter(self) -> None:
        """Make the context that of the thread that calls."""
        self.check("cuCtxSetCurrent", self.context)

    def function(self, code: str, name: str) -> ctypes.c_void_p:
        """A function out of PTX, which the driver compiles for its GPU (and keeps)."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code.encode()))
        self.check("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        return function


@dataclass(frozen=True)
class _Launch:
    function: ctypes.c_void_p
    grid: tuple[int, int, int]
    threads: int


@dataclass(frozen=True)
class _Plan:
    """What a kernel does for one set of extents. `sizes` are the bytes of its buffers, outputs first, None for scalars; addresses are to be
    multiples of `aligned`.
    """

    launches: tuple[_Launch, ...]
    sizes: tuple[int | None, ...]
    aligned: int


class Gpu:
    """The kernels of a program, compiled for the GPU of this machine. Raises `RuntimeStop` where one cannot be had."""

    def __init__(self, kernels: Mapping[str, Kernel], module: Module) -> None:
        self.kernels, self.module = dict(kernels), module
        self.driver = Driver()
        self.unit = emit(kernels, module=module)
        self.texts = dict(zip((f.name for f in self.unit.functions), ptx.compile_unit(self.unit, self.driver.sm), strict=True))
        self.functions: dict[tuple[str, bool], ctypes.c_void_p] = {}
        self.wide: dict[str, tuple[Unit, dict[str, str]]] = {}
        self.plans: dict[tuple[str, tuple[int, ...]], _Plan] = {}
        self.scratch: dict[int, int] = {}  # position of an argument -> managed memory for a copy of it
        self.rooms: dict[int, int] = {}  # and its bytes

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> int | None:
        self.driver.enter()
        address = ctypes.c_uint64()
        status = self.driver.library.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(size), _GLOBAL)
        if status not in (0, _OUT_OF_MEMORY):
            raise RuntimeStop(f"managed memory cannot be had: {self.driver.reason(status)}", "device")
        return None if status else address.value

    def release(self, address: int) -> None:
        self.driver.enter()
        self.driver.check("cuMemFree_v2", ctypes.c_uint64(address))

    # ------------------------------------------------------------ launches

    def launch(self, address: int) -> None:
        length = ctypes.c_int64.from_address(address).value
        name = ctypes.string_at(address + 8, length).decode()
        kernel = self.kernels[name]
        parameters = (*kernel.outputs, *kernel.inputs)
        words = (ctypes.c_uint64 * len(parameters)).from_address(address + 8 + -(-length // 8) * 8)
        self.driver.enter()
        extents = tuple(_signed(words[k]) for k, p in enumerate(parameters) if isinstance(p, Var) and p.elem is Elem.I64)
        plan = self.plans.get((name, extents))
        if plan is None:
            plan = self.plans[name, extents] = self.plan(kernel, extents)
        copied = self.copy_in(kernel, words, plan)
        pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(words) + 8 * k for k in range(len(words))))
        for part in plan.launches:
            status = self.driver.library.cuLaunchKernel(part.function, *part.grid, part.threads, 1, 1, 0, None, pointers, None)
            status = status or self.driver.library.cuCtxSynchronize()
            if status:
                raise Stop(f"the kernel `{name}` failed on the GPU: {self.driver.reason(status)}", kernel.span, "kernel")
        for k, home in copied.items():
            if k < len(kernel.outputs):
                ctypes.memmove(home, words[k], plan.sizes[k] or 0)

    def plan(self, kernel: Kernel, extents: Sequence[int]) -> _Plan:
        """Prepare the launches of a kernel."""
        names = [p.name for p in kernel.inputs if isinstance(p, Var) and p.elem is Elem.I64]
        scalars = dict(zip(names, extents, strict=True))
        sizes, wide = [], False
        for p in (*kernel.outputs, *kernel.inputs):
            shape = [int(value_of(n, scalars)) for n in p.shape] if isinstance(p, Buffer) else []
            wide = wide or prod(max(n, 1) for n in shape) > MOST
            sizes.append(p.elem.bytes * prod(shape) if isinstance(p, Buffer) else None)
        launches, aligned = [], 1
        unit, texts = self.compiled(kernel, wide)
        for f in unit.functions:
            if f.kernel.name != kernel.name:
                continue
            aligned = max(aligned, ALIGNED if _WIDE.search(f.text) else 1)
            grid = dimensions(f, scalars)
            if any(n > most for n, most in zip(grid, _MOST_BLOCKS, strict=False)):
                raise Stop(f"the kernel `{kernel.name}` would have a grid of {' x '.join(map(str, grid))} blocks", kernel.span, "kernel")
            if all(grid):
                key = (f.name, wide)
                if key not in self.functions:
                    self.functions[key] = self.driver.function(texts[f.name], f.name)
                x, y, z = (*grid, 1, 1)[:3]
                launches.append(_Launch(self.functions[key], (x, y, z), f.grid.threads))
        return _Plan(tuple(launches), tuple(sizes), aligned)

    def compiled(self, kernel: Kernel, wide: bool) -> tuple[Unit, Mapping[str, str]]:
        """The form of a kernel that its sizes ask for."""
        if not wide:
            return self.unit, self.texts
        if kernel.name not in self.wide:
            unit = emit({kernel.name: kernel}, wide=True, module=self.module)
            texts = ptx.compile_unit(unit, self.driver.sm)
            self.wide[kernel.name] = (unit, dict(zip((f.name for f in unit.functions), texts, strict=True)))
        return self.wide[kernel.name]

    def copy_in(self, kernel: Kernel, words: ctypes.Array[ctypes.c_uint64], plan: _Plan) -> dict[int, int]:
        """Give the GPU copies of what it cannot use where it is; where each of them belongs, by the position of the argument."""
        copied = {}
        for k, (p, size) in enumerate(zip((*kernel.outputs, *kernel.inputs), plan.sizes, strict=True)):
            if size is None or (isinstance(p, Buffer) and p.shape and words[k] % plan.aligned == 0):
                continue
            copied[k] = words[k]
            if self.rooms.get(k, 0) < size:
                room = self.allocate(size)
                if room is None:
                    raise Stop("there is not enough memory for a tensor", NOWHERE, "memory")
                self.scratch[k], self.rooms[k] = room, size
            ctypes.memmove(self.scratch[k], copied[k], size)
            words[k] = self.scratch[k]
        return copied


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word

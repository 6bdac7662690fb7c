"""Kernels on a GPU, through its driver: a program's `Device`.

Buffers lie in managed memory, which host and GPU see at one address. Their pages live on the GPU; the header that the allocator puts
before a buffer has a page of its own, which lives with the host, so allocating and freeing move nothing.

Kernels run beside the host, one after the other. The host waits where its code touches a tensor (`tensor/waits.py`), in services, and for
a kernel that gives it a number. An error of a kernel is told when somebody waits, or starts the next: it is that of one of the
kernels which were started since all was well. If `each` is waited for, it is that one.

What a launch needs is prepared once for each kernel and each set of extents: functions, grids. The host's code then starts the kernel
itself (`backends/llvm/launch.py`). What the GPU cannot see or not read by wide accesses (single results, which lie on the host's
stack; views at odd addresses) is copied.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tlc.backends.cuda import ptx
from tlc.backends.cuda.driver import OUT_OF_MEMORY, Driver
from tlc.backends.cuda.emit import Unit, dimensions, emit
from tlc.backends.cuda.index import MOST
from tlc.backends.llvm.launch import Record, extents_of, given, starts_itself, table
from tlc.frontend.source import NOWHERE
from tlc.frontend.types import Elem
from tlc.ssa.ir import Module
from tlc.ssa.world import RuntimeStop, Stop
from tlc.tensor.footprint_text import in_general
from tlc.tensor.kernel.grid import Grid, grids
from tlc.tensor.kernel.ir import Buffer, Kernel, Var
from tlc.tensor.kernel.scalars import value_of

ALIGNED = 16  # bytes of the widest access
HEADER = 64  # what the allocator keeps before a buffer
PAGE = 64 << 10  # what is moved between host and GPU at once
SUSPECTS = 12  # kernels that an error names, at most
_WIDE = re.compile(r"\b(load|store|copy)\d+\(")
_MOST_BLOCKS = ((1 << 31) - 1, 65535, 65535)  # of a grid


@dataclass(frozen=True)
class _Launch:
    function: ctypes.c_void_p
    grid: tuple[int, int, int]
    threads: int
    dynamic: int


@dataclass(frozen=True)
class _Plan:
    """What a kernel does for one set of extents. `sizes` are the bytes of its buffers, outputs first, None for scalars; addresses are to be
    multiples of `aligned`. `numbers`: the positions of single results.
    """

    launches: tuple[_Launch, ...]
    sizes: tuple[int | None, ...]
    numbers: tuple[int, ...]
    aligned: int
    record: Record | None


class Gpu:
    """The kernels of a program, compiled for the GPU of this machine. Raises `RuntimeStop` where one cannot be had."""

    def __init__(self, kernels: Mapping[str, Kernel], module: Module, each: bool = False) -> None:
        self.kernels, self.module = dict(kernels), module
        self.driver = Driver()
        self.each = each or not self.driver.concurrent
        self.unit = emit(kernels, module=module)
        self.texts = dict(zip((f.name for f in self.unit.functions), ptx.compile_unit(self.unit, self.driver.sm), strict=True))
        self.functions: dict[tuple[str, bool], ctypes.c_void_p] = {}
        self.wide: dict[str, tuple[Unit, dict[str, str]]] = {}
        self.plans: dict[tuple[str, tuple[int, ...]], _Plan] = {}
        self.starts = table()
        self.table = 0 if self.each else ctypes.addressof(self.starts)
        self.records: dict[str, Record] = {}
        self.started: dict[str, int] = {}  # kernel -> number of its last start by the launcher
        self.good = 0  # number of the last start of which all is known to be well
        self.taken: dict[int, tuple[int, int]] = {}  # block of the allocator -> its managed memory, with bytes
        self.held = 0  # bytes of them
        self.refused = False  # whether there was no memory for one
        self.scratch: dict[int, int] = {}  # position of an argument -> managed memory for a copy of it
        self.rooms: dict[int, int] = {}  # and its bytes

    # ------------------------------------------------------------ memory

    def allocate(self, size: int) -> int | None:
        """A block of the allocator, whose buffer begins a page. The GPU's memory bounds what there is."""
        self.well(self.driver.enter())
        base, status = self.driver.allocate(PAGE + size) if self.held + size <= self.driver.memory else (0, OUT_OF_MEMORY)
        if status == OUT_OF_MEMORY:
            self.refused = True
            return None
        self.well(status)
        self.driver.settle(base, PAGE, on_gpu=False)
        self.driver.settle(base + PAGE, size - HEADER, on_gpu=True)
        block = base + PAGE - HEADER
        self.taken[block] = base, size
        self.held += size
        return block

    def release(self, address: int) -> None:
        """Give a block back when the kernels that may use it have ended. That one failed is told to whoever asks next."""
        if not self.driver.enter() and self.good < self.starts[0] and not self.driver.wait():
            self.good = self.starts[0]
        base, size = self.taken.pop(address)
        self.held -= size
        self.driver.release(base)

    def notes(self) -> tuple[str, ...]:
        """What is to be said when the program ends for want of memory; nothing if it was not the GPU's."""
        if not self.refused:
            return ()
        has = f"the GPU has {_gigabytes(self.driver.memory)} for tensors, and the program holds {_gigabytes(self.held)} of it"
        plan = in_general(self.module, "main", self.kernels)
        hint = "smaller sizes, such as that of a batch, take less; `tlc emit memory` shows what is held where"
        return (has, *(["\n".join(["the program plans", *plan])] if plan else []), hint)

    # ------------------------------------------------------------ launches

    def launch(self, address: int) -> None:
        kernel, words = given(address, self.kernels)
        self.well(self.driver.enter())
        extents = tuple(map(_signed, extents_of(kernel, words)))
        plan = self.plans.get((kernel.name, extents))
        if plan is None:
            plan = self.plans[kernel.name, extents] = self.planned(kernel, extents)
        if kernel.name in self.records:
            self.well(self.records[kernel.name].take_status())
        self.starts[0] += 1
        self.started[kernel.name] = self.starts[0]
        homes = self.copy_in(words, plan)
        pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(words) + 8 * k for k in range(len(words))))
        start = self.driver.library.cuLaunchKernel
        for part in plan.launches:
            self.well(start(part.function, *part.grid, part.threads, 1, 1, part.dynamic, self.driver.stream, pointers, None))
        written = {k: home for k, home in homes.items() if k < len(kernel.outputs)}
        for k, home in written.items():
            if k not in plan.numbers:
                self.well(self.driver.copy(home, words[k], plan.sizes[k] or 0))
        if self.each or plan.numbers:
            self.wait()
        for k in plan.numbers:
            ctypes.memmove(written[k], words[k], plan.sizes[k] or 0)
        if plan.record is not None:
            self.records[kernel.name] = plan.record
            plan.record.enter(self.starts)

    def wait(self) -> None:
        """Wait for all kernels. Raises `Stop` if one failed."""
        if self.good < self.starts[0]:
            self.well(self.driver.enter() or self.driver.wait())
            self.good = self.starts[0]

    def well(self, status: int) -> None:
        """Raise `Stop` for a status that tells of a failure: a kernel's, of those that were started and not waited for. `RuntimeStop` if
        there are none.
        """
        if not status:
            return
        last = Counter(self.started) | Counter({name: record.last for name, record in self.records.items()})
        suspects = [self.kernels[name] for name in sorted(last, key=last.__getitem__) if last[name] > self.good]
        reason = self.driver.reason(status)
        if not suspects:
            raise RuntimeStop(f"the GPU failed: {reason}", "device")
        if len(suspects) == 1:
            raise Stop(f"the kernel `{suspects[0].name}` failed on the GPU: {reason}", suspects[0].span, "kernel")
        shown = suspects[-SUSPECTS:]
        names = ", ".join(f"`{k.name}`" for k in shown)
        earlier = f", or one of {len(suspects) - len(shown)} before them" if len(suspects) > len(shown) else ""
        places = "\n".join(["they stand at", *(f"  {k.span}  {k.name}" for k in shown)])
        hint = "with `--check-kernels` each is waited for, so that the one which fails is known"
        raise Stop(f"one of the kernels {names}{earlier} failed on the GPU: {reason}", NOWHERE, "kernel", (places, hint))

    def planned(self, kernel: Kernel, extents: Sequence[int]) -> _Plan:
        """The launches of a kernel, prepared. If that fails because another kernel has failed, that is what is told."""
        try:
            return self.plan(kernel, extents)
        except RuntimeStop:
            self.wait()
            raise

    def plan(self, kernel: Kernel, extents: Sequence[int]) -> _Plan:
        names = [p.name for p in kernel.inputs if isinstance(p, Var) and p.elem is Elem.I64]
        scalars = dict(zip(names, extents, strict=True))
        sizes, wide = [], False
        for p in kernel.parameters:
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
                    self.functions[key] = self.driver.function(texts[f.name], f.name, f.dynamic)
                x, y, z = (*grid, 1, 1)[:3]
                launches.append(_Launch(self.functions[key], (x, y, z), f.grid.threads, f.dynamic))
        numbers = tuple(k for k, b in enumerate(kernel.outputs) if not b.shape)
        return _Plan(tuple(launches), tuple(sizes), numbers, aligned, self.record(kernel, extents, launches, aligned))

    def record(self, kernel: Kernel, extents: Sequence[int], launches: Sequence[_Launch], aligned: int) -> Record | None:
        """How the host starts a kernel itself; None if it is not to, or if a grid of it has no blocks."""
        if self.each or not starts_itself(kernel) or len(launches) < sum(isinstance(g, Grid) for g in grids(kernel)):
            return None
        start = ctypes.cast(self.driver.library.cuLaunchKernel, ctypes.c_void_p).value or 0
        parts = [(part.function.value or 0, *part.grid, part.threads, part.dynamic) for part in launches]
        return Record(kernel, aligned - 1, start, self.driver.stream.value or 0, extents, parts)

    def compiled(self, kernel: Kernel, wide: bool) -> tuple[Unit, Mapping[str, str]]:
        """The form of a kernel that its sizes ask for."""
        if not wide:
            return self.unit, self.texts
        if kernel.name not in self.wide:
            unit = emit({kernel.name: kernel}, wide=True, module=self.module)
            texts = ptx.compile_unit(unit, self.driver.sm)
            self.wide[kernel.name] = (unit, dict(zip((f.name for f in unit.functions), texts, strict=True)))
        return self.wide[kernel.name]

    def copy_in(self, words: ctypes.Array[ctypes.c_uint64], plan: _Plan) -> dict[int, int]:
        """Give the GPU copies of what it cannot use where it is; where each of them belongs, by the position of the argument."""
        homes = {}
        for k, size in enumerate(plan.sizes):
            number = k in plan.numbers
            if size is None or (not number and words[k] % plan.aligned == 0):
                continue
            homes[k] = words[k]
            words[k] = self.room(k, size)
            if not number:
                self.well(self.driver.copy(words[k], homes[k], size))
        return homes

    def room(self, k: int, size: int) -> int:
        """Managed memory for a copy of an argument. What runs may still use that which was too small, so it is kept."""
        if self.rooms.get(k, 0) < size:
            room, status = self.driver.allocate(size)
            if status == OUT_OF_MEMORY:
                raise Stop("there is not enough memory for a tensor", NOWHERE, "memory")
            self.well(status)
            self.scratch[k], self.rooms[k] = room, size
        return self.scratch[k]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 100_000_000 else f"{size:,} bytes"

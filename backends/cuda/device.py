"""Kernels on a GPU, through its driver: a program's `Device`.

Buffers lie in managed memory, which host and GPU see at one address. Their pages are made on the GPU and live there; the header that the
allocator puts before a buffer has a page of its own, which lives with the host, so allocating and freeing move nothing. What services read
and make, and single elements that the host reads, are copied, so that no page moves; pages do where the host's own loops touch elements.

Kernels run beside the host, one after the other. The host waits where its code touches a tensor or needs a number that a kernel gives
(`tensor/waits.py`), and in services. An error of a kernel is told when somebody waits, or starts the next: it is that of one of the
kernels which were started since all was well. If `each` is waited for, it is that one.

What a launch needs is prepared once for each kernel and each set of extents: functions, grids. The host's code then starts the kernel
itself (`backends/llvm/launch.py`); what comes again and again is a graph (`backends/cuda/stretches.py`). What the GPU
cannot read by wide accesses (views at odd addresses) is copied.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import numpy as np

from tlc.backends.cuda import ptx
from tlc.backends.cuda.driver import OUT_OF_MEMORY, Driver, Launch
from tlc.backends.cuda.emit import Unit, dimensions, emit
from tlc.backends.cuda.index import MOST
from tlc.backends.cuda.stretches import Stretches
from tlc.backends.llvm.launch import Record, extent_places, given, table
from tlc.backends.llvm.stretch import LAUNCH, NUMBER
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE
from tlc.ssa.ir import Module
from tlc.ssa.world import RuntimeStop, Stop
from tlc.tensor.footprint_text import in_general
from tlc.tensor.kernel.grid import Grid, grids
from tlc.tensor.kernel.ir import Buffer, Kernel
from tlc.tensor.kernel.scalars import value_of

ALIGNED = 16  # bytes of the widest access
HEADER = 64  # what the allocator keeps before a buffer
PAGE = 64 << 10  # what is moved between host and GPU at once
FEW = 4096  # bytes that are read by way of pinned memory
SUSPECTS = 12  # kernels that an error names, at most
_WIDE = re.compile(r"\b(load|store|copy)\d+\(")
_MOST_BLOCKS = ((1 << 31) - 1, 65535, 65535)  # of a grid


@dataclass(frozen=True)
class _Plan:
    """What a kernel does for one set of extents. `sizes` are the bytes of its buffers, outputs first, None for scalars; addresses are to be
    multiples of `aligned`.
    """

    launches: tuple[Launch, ...]
    sizes: tuple[int | None, ...]
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
        self.stretches = Stretches(self.driver, self.starts)
        self.records: dict[str, Record] = {}
        self.started: dict[str, int] = {}  # kernel -> number of its last start by the launcher
        self.good = 0  # number of the last start of which all is known to be well
        self.taken: dict[int, tuple[int, int]] = {}  # block of the allocator -> its managed memory, with bytes
        self.held = 0  # bytes of them
        self.refused = False  # whether there was no memory for one
        self.scratch: dict[int, tuple[int, int]] = {}  # position of an argument -> the GPU's memory for a copy of it, with bytes
        self.small = 0  # pinned memory, if there is any

    def enter(self) -> None:
        self.well(self.driver.enter())
        self.stretches.reset()

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
        if not self.driver.enter() and self.good < self.starts[NUMBER] and not self.stretches.cut() and not self.driver.wait():
            self.good = self.starts[NUMBER]
        base, size = self.taken.pop(address)
        self.held -= size
        self.driver.release(base)

    def read(self, places: Sequence[tuple[int, int]]) -> Sequence[memoryview]:
        self.well(self.driver.enter() or self.stretches.cut())
        *begins, total = accumulate((size for _, size in places), initial=0)
        room = (ctypes.c_ubyte * total)()
        to = self.pinned() if total <= FEW else ctypes.addressof(room)
        for begin, (address, size) in zip(begins, places, strict=True):
            self.well(self.driver.fetch(to + begin, address, size))
        self.finish()
        if to != ctypes.addressof(room):
            ctypes.memmove(room, to, total)
        return [memoryview(room)[begin : begin + size] for begin, (_, size) in zip(begins, places, strict=True)]

    def pinned(self) -> int:
        """Where a few bytes are copied to: for other memory of the host, the driver waits at each copy."""
        if not self.small:
            self.small, status = self.driver.allocate_here(FEW)
            self.well(status)
        return self.small

    def write(self, address: int, data: memoryview) -> None:
        here = np.frombuffer(data, np.uint8).ctypes.data
        self.well(self.driver.enter() or self.stretches.cut() or self.driver.put(address, here, len(data)))
        self.finish()  # with the copy: only then may the data go

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
        if kernel.name in self.records:
            self.well(*self.records[kernel.name].take_status())
        extents = tuple(_signed(words[k]) for k in extent_places(kernel))
        plan = self.plans.get((kernel.name, extents))
        if plan is None:
            plan = self.plans[kernel.name, extents] = self.planned(kernel, extents)
        self.starts[NUMBER] += 1
        self.started[kernel.name] = self.starts[NUMBER]
        record = plan.record if not self.copied(words, plan) else None
        if record is None:
            self.well(self.stretches.cut())
        else:
            taken, status = self.stretches.takes(record, words)
            self.well(status)
            if taken:
                return
        homes = self.copy_in(words, plan)
        pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(words) + 8 * k for k in range(len(words))))
        for part in plan.launches:
            self.well(self.driver.start(part, pointers))
        if record is not None:
            self.stretches.note(record, words)
        written = {k: home for k, home in homes.items() if k < len(kernel.outputs)}
        for k, home in written.items():
            self.well(self.driver.copy(home, words[k], plan.sizes[k] or 0))
        if self.each:
            self.wait()
        if plan.record is not None:
            self.records[kernel.name] = plan.record
            self.stretches.enter(plan.record)

    def mark(self) -> None:
        """A turn of a long loop ends."""
        self.well(self.stretches.cut())

    def wait(self) -> None:
        """Wait for all kernels. Raises `Stop` if one failed."""
        if self.good < self.starts[NUMBER]:
            self.well(self.driver.enter() or self.stretches.cut())
            self.finish()

    def finish(self) -> None:
        """Wait for all that the driver was told."""
        self.well(self.driver.wait())
        self.good = self.starts[NUMBER]

    def well(self, status: int, call: str = "") -> None:
        """Raise `Stop` for a status that tells of a failure: a kernel's, of those that were started and not waited for. `RuntimeStop` if
        there are none. The status is of that call of the driver; if none is said, of the last one.
        """
        if not status:
            return
        last = Counter(self.started) | Counter({name: record.last for name, record in self.records.items()})
        suspects = [self.kernels[name] for name in sorted(last, key=last.__getitem__) if last[name] > self.good]
        reason = f"{self.driver.reason(status)}, told by `{call or self.driver.called}`"
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
        names = [kernel.parameters[k].name for k in extent_places(kernel)]
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
                launches.append(Launch(self.functions[key].value or 0, x, y, z, f.grid.threads, f.dynamic))
        return _Plan(tuple(launches), tuple(sizes), aligned, self.record(kernel, extents, launches, aligned))

    def record(self, kernel: Kernel, extents: Sequence[int], launches: Sequence[Launch], aligned: int) -> Record | None:
        """How the host starts a kernel itself; None if it is not to, or if a grid of it has no blocks."""
        if self.each or len(launches) < sum(isinstance(g, Grid) for g in grids(kernel)):
            return None
        start = self.driver.address(LAUNCH)
        return Record(kernel, aligned - 1, start, self.driver.stream.value or 0, extents, launches)

    def compiled(self, kernel: Kernel, wide: bool) -> tuple[Unit, Mapping[str, str]]:
        """The form of a kernel that its sizes ask for."""
        if not wide:
            return self.unit, self.texts
        if kernel.name not in self.wide:
            unit = emit({kernel.name: kernel}, wide=True, module=self.module)
            texts = ptx.compile_unit(unit, self.driver.sm)
            self.wide[kernel.name] = (unit, dict(zip((f.name for f in unit.functions), texts, strict=True)))
        return self.wide[kernel.name]

    def copied(self, words: ctypes.Array[ctypes.c_uint64], plan: _Plan) -> list[int]:
        """The positions of arguments that the GPU cannot use where they are."""
        return [k for k, size in enumerate(plan.sizes) if size and words[k] % plan.aligned]

    def copy_in(self, words: ctypes.Array[ctypes.c_uint64], plan: _Plan) -> dict[int, int]:
        """Give the GPU copies of them; where each of them belongs, by the position of the argument."""
        homes = {}
        for k in self.copied(words, plan):
            homes[k], size = words[k], plan.sizes[k] or 0
            words[k] = self.room(k, size)
            self.well(self.driver.copy(words[k], homes[k], size))
        return homes

    def room(self, k: int, size: int) -> int:
        """Memory for a copy of an argument. What runs may still use that which was too small, so it is kept."""
        room, has = self.scratch.get(k, (0, 0))
        if has < size:
            room, status = self.driver.allocate_there(size)
            if status == OUT_OF_MEMORY:
                raise Stop("there is not enough memory for a tensor", NOWHERE, "memory")
            self.well(status)
            self.scratch[k] = room, size
        return room


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 100_000_000 else f"{size:,} bytes"

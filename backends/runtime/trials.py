"""Kernels of one work beside each other on the same data: whether they give the same bits, and how long each takes (`tlc tune`).

Sizes are those of a call that a run made. So are the contents of inputs that a kernel takes indices or lengths from, and of all that are
no reals; other reals are random, about as large as one. Inputs and outputs are the same memory for every kernel.

A sample is as many calls as take about `SAMPLE` together. Samples of all kernels take turns, so that what disturbs the machine disturbs
all, and the least of each counts; whoever is far behind leaves. On one thread the clock is the thread's own, which
stands still while others have the processor.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tlc.backends.llvm import jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.llvm.repeat import print_repeated, repeated_symbol
from tlc.backends.runtime.native import Context
from tlc.backends.runtime.witness import SLOT, Call
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.tensor.graph.ir import Scalar, Tensor
from tlc.tensor.kernel.ir import Buffer, Kernel
from tlc.tensor.kernel.scalars import bytes_of
from tlc.tensor.knobs import choice_text, turned
from tlc.tensor.schedule import Scheduled

SAMPLE = 2e-3  # seconds
SAMPLES = 7  # of a kernel that stays
LONG = 0.05  # a call that takes so many seconds is sampled less often:
FEW = 3
BEHIND = 1.25
HEADER = 128  # bytes before a buffer, as a program's own have them; so buffers are not all at the start of a page
LARGE = 4 << 20  # bytes from which on large pages are asked for

Bytes = npt.NDArray[np.uint8]
_Repeat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_Void = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Memory:
    """Bytes for a buffer."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, HEADER + max(size, 1))
        if size >= LARGE:
            with suppress(OSError, AttributeError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.cells: Bytes = np.frombuffer(self._map, np.uint8, size, HEADER)
        self.slot = (int(np.frombuffer(self._map, np.uint8).ctypes.data) + HEADER).to_bytes(SLOT, "little")  # its address


class Trials:
    """The kernels of one work, run with the arguments of a call. `scheduled` is the kernel that was called."""

    def __init__(self, scheduled: Scheduled, call: Call, threads: int, late: Callable[[], bool]) -> None:
        kernel = scheduled.kernel
        self.late = late
        self.scalars = call.scalars(kernel)
        self.threads = threads
        self.clock = time.thread_time if threads == 1 else time.perf_counter
        self.memory: dict[Tensor, Memory] = {}
        self.words: dict[Scalar, bytes] = {}
        random = np.random.default_rng(0)
        first = len(kernel.outputs)
        for k, (p, x) in enumerate(zip(kernel.inputs, scheduled.operands, strict=True)):
            if isinstance(x, Scalar):
                self.words[x] = call.slots[SLOT * (first + k) : SLOT * (first + k + 1)]
            elif isinstance(p, Buffer) and x not in self.memory:
                self.memory[x] = Memory(bytes_of(p, self.scalars))
                self.memory[x].cells[:] = _contents(p.elem, self.memory[x].cells.size, call.contents.get(k), random)
        self.results = [Memory(bytes_of(b, self.scalars)) for b in kernel.outputs[: len(scheduled.results)]]
        self.expected: list[Bytes] = []

    def seconds(self, kernels: Sequence[Scheduled]) -> list[float]:
        """What a call of each takes. Raises `InternalError` where one gives other bits than the first kernel of all."""
        return self._run(kernels, self._race)

    def check(self, kernels: Sequence[Scheduled]) -> None:
        """The same without a race."""
        self._run(kernels, lambda runs: [])

    def _run(self, kernels: Sequence[Scheduled], then: Callable[[Sequence[_Run]], list[float]]) -> list[float]:
        """Compile kernels, and run each once."""
        named = [replace(s, kernel=replace(s.kernel, name=f"trial{k}")) for k, s in enumerate(kernels)]
        texts = ["\n".join(show(s.kernel) for s in named) for show in (print_kernel, print_repeated)]
        loaded = jit.load(jit.compile_objects([(text, jit.Level.KERNEL) for text in texts], {}).values())
        context = Context(threads=self.threads)
        runs = [_Run(self, s, context, _Repeat(loaded.address(repeated_symbol(s.kernel.name)))) for s in named]
        try:
            for run in runs:
                self._compare(run)
            return then(runs)
        finally:
            if context.workers:
                _Void(loaded.address("tlc.disband"))(ctypes.addressof(context))

    def _compare(self, run: _Run) -> None:
        """Whether a kernel gives what the first one gave."""
        for memory in self.results:
            memory.cells[:] = 0xA5
        run(1)
        if not self.expected:
            self.expected = [memory.cells.copy() for memory in self.results]
        for b, memory, expected in zip(run.scheduled.kernel.outputs, self.results, self.expected, strict=False):
            if not _same(memory.cells, expected, b.elem):
                choice = choice_text(turned(run.scheduled.asked)) or "no choice"
                raise InternalError(f"`{b.name}` has other bits with {choice} than by the rules", "tlc tune")

    def _race(self, runs: Sequence[_Run]) -> list[float]:
        start = self.clock()
        runs[0](1)
        one = max(self.clock() - start, 1e-9)
        times = max(1, round(SAMPLE / one))
        best = [self._sample(run, times) for run in runs]
        for n in range(FEW if one > LONG else SAMPLES):
            for k, run in enumerate(runs):
                if best[k] <= BEHIND * min(best) and not (n >= FEW and self.late()):
                    best[k] = min(best[k], self._sample(run, times))
        return best

    def _sample(self, run: _Run, times: int) -> float:
        start = self.clock()
        run(times)
        return (self.clock() - start) / times


class _Run:
    """One kernel with its arguments; a call runs it so many times."""

    def __init__(self, trials: Trials, scheduled: Scheduled, context: Context, function: Callable[..., None]) -> None:
        self.scheduled = scheduled
        self.function = function
        self.context = context
        kernel = scheduled.kernel
        made = len(scheduled.results)
        by_name = _named(kernel, scheduled, trials)
        self.work = [Memory(bytes_of(b, by_name)) for b in kernel.outputs[made:]]
        slots = [m.slot for m in (*trials.results, *self.work)]
        slots += [trials.words[x] if isinstance(x, Scalar) else trials.memory[x].slot for x in scheduled.operands]
        self.slots = ctypes.create_string_buffer(b"".join(slots), SLOT * len(slots))

    def __call__(self, times: int) -> None:
        self.function(ctypes.addressof(self.context), ctypes.addressof(self.slots), times)


def _named(kernel: Kernel, scheduled: Scheduled, trials: Trials) -> dict[str, np.generic]:
    """The integers among a kernel's parameters, by the names that it has for them."""
    own = zip(kernel.inputs, scheduled.operands, strict=True)
    return {p.name: np.frombuffer(trials.words[x], DTYPES[p.elem], 1)[0] for p, x in own if isinstance(x, Scalar) and p.elem is Elem.I64}


def _contents(elem: Elem, size: int, seen: bytes | None, random: np.random.Generator) -> Bytes:
    """What an input holds."""
    if seen is not None:
        return np.frombuffer(seen, np.uint8)
    reals = random.standard_normal(size // elem.bytes, np.float32)
    stored = to_memory(reals) if elem is Elem.BF16 else reals.astype(DTYPES[elem])
    return np.ascontiguousarray(stored).view(np.uint8)


def _same(a: Bytes, b: Bytes, elem: Elem) -> bool:
    """Equal bits, those of a NaN aside."""
    if np.array_equal(a, b):
        return True
    if not elem.is_real:
        return False
    x, y = (from_memory(cells.view(np.uint16)) if elem is Elem.BF16 else cells.view(DTYPES[elem]) for cells in (a, b))
    differs = a.reshape(-1, elem.bytes) != b.reshape(-1, elem.bytes)
    where = differs.any(axis=1)
    return bool(np.isnan(x[where]).all() and np.isnan(y[where]).all())

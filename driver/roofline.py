"""What this machine can do at most, measured: arithmetic, and the bandwidth of memory and of each cache.

The kernels are ours, run as those of a program are, on as many threads. `peak` has twelve independent accumulators, each a
vector register, so neither the latency of a fused multiply-add nor memory holds it up. `triad` is `a[j] = b[j] + s * c[j]`: three arrays of
four times the last cache together for memory; for a cache, arrays that fill half of it, again and again. Bytes are counted as
for any kernel, one write and two reads; that a write of a line may read it first is not. Of several runs the best counts: what
disturbs a measurement only ever makes it slower. `empty` does nothing, so its time is what the timing itself costs.

`passed` fills arrays that another core filled the time before, so their lines pass from cache to cache. How fast that goes, and the peak of
more than one thread, depend on where the cores are that a virtual machine has, and may change while it runs: `state` measures them alone.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tlc.backends import cpu, timing
from tlc.backends.llvm import jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.llvm.timing import DECLARE_CLOCK, print_timed, support
from tlc.backends.program import Store
from tlc.backends.runtime.native import Context
from tlc.frontend.records import dataclass
from tlc.tensor.kernel.ir import GRAIN
from tlc.tensor.kernel.text import parse_kernels
from tlc.tensor.kernel.verify import verify

ACCUMULATORS = 12
PARTS = 4  # pieces of work a thread
SHORT = 0.006  # seconds of one run of a kernel, about
ROUNDS, RUNS = 4, 4  # measurements of all, and runs of a kernel in each: what disturbs the machine seldom lasts through all
LEAST, MOST = 96 << 20, 768 << 20  # bytes of the arrays of the triad in memory
EMPTY_CALLS = 20_000

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Level:
    """A cache or the memory: how many bytes it holds (None: all), for all threads together, and bytes a second."""

    name: str
    size: int | None
    bandwidth: float


@dataclass(frozen=True)
class Machine:
    """Operations a second on reals of 32 and of 64 bits; levels from the smallest on, memory last; seconds that timing costs a call, those
    that count as the kernel's own among them (`inside`).
    """

    threads: int
    peak: float
    peak64: float
    levels: tuple[Level, ...]
    inside: float
    around: float

    @property
    def memory(self) -> Level:
        return self.levels[-1]

    def level(self, size: float) -> Level:
        """The smallest level that holds so many bytes."""
        return next(level for level in self.levels if level.size is None or size <= level.size)


@dataclass(frozen=True)
class State:
    """How the cores are now: operations a second on f32, and bytes a second that pass from one core to another (0 with one thread)."""

    peak: float
    passed: float


def state(threads: int, store: Store) -> State:
    """Measure that alone; takes a tenth of a second."""
    kernels = _Kernels(threads, store)
    try:
        peaks, passed = zip(*((kernels.peak("f32"), kernels.passed() if threads > 1 else 0.0) for _ in range(ROUNDS)), strict=True)
        return State(max(peaks), max(passed))
    finally:
        kernels.close()


def measure(threads: int, store: Store, say: Callable[[str], None] = lambda text: None) -> Machine:
    """Measure this machine; takes a second or less. `say` is told what comes, in the end nothing."""
    kernels = _Kernels(threads, store)
    best: dict[str, float] = {}

    def note(name: str, rate: float) -> None:
        best[name] = max(best.get(name, 0.0), rate)

    try:
        caches = _caches(threads)
        memory = kernels.memory()
        for _ in range(ROUNDS):
            say("fused multiply-adds")
            note("f32", kernels.peak("f32"))
            note("f64", kernels.peak("f64"))
            for name, size in caches:
                say(f"bandwidth of the {name} cache")
                note(name, kernels.cached(size))
            say("bandwidth of memory")
            note("memory", memory())
        levels = [Level(name, size, best[name]) for name, size in (*caches, ("memory", None))]
        return Machine(threads, best["f32"], best["f64"], tuple(levels), *kernels.empty())
    finally:
        say("")
        kernels.close()


def _caches(threads: int) -> list[tuple[str, int]]:
    """The caches for data beyond the first, with the bytes that so many threads have of them."""
    found = []
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size, shared = ((index / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list"))
        except OSError:
            continue
        if kind in ("Data", "Unified") and level != "1" and size.endswith("K") and size[:-1].isdigit():
            sharers = sum(int(b or a) - int(a) + 1 for a, _, b in (part.partition("-") for part in shared.split(",")))
            copies = max(-(-min(threads, os.cpu_count() or 1) // sharers), 1)
            found.append((f"L{level}", copies * int(size[:-1]) * 1024))
    return found


# ---------------------------------------------------------------- the kernels

_TEXT = """
kernel peak_f32(y: out f32[n, {w32}], n: i64, rounds: i64, x: f32, z: f32) {{
  parallel({grain}) i in 0..n {{
    local acc: f32[{accs}, {w32}]
    vector<{w32}> l0 in 0..{w32} {{
      unroll r0 in 0..{accs} {{
        acc[r0, l0] = z
      }}
    }}
    for k in 0..rounds {{
      vector<{w32}> l1 in 0..{w32} {{
        unroll r1 in 0..{accs} {{
          acc[r1, l1] = fma(acc[r1, l1], x, z)
        }}
      }}
    }}
    vector<{w32}> l2 in 0..{w32} {{
      y[i, l2] = {sum}
    }}
  }}
}}

kernel triad(a: out f32[parts, m], parts: i64, m: i64, rounds: i64, b: f32[parts, m], c: f32[parts, m], s: f32) {{
  parallel({grain}) i in 0..parts {{
    for k in 0..rounds {{
      for j in 0..m by {wide} {{
        let q = min(m - j, {wide})
        vector<{wide}> l in 0..q {{
          a[i, j + l] = fma(c[i, j + l], s, b[i, j + l])
        }}
      }}
    }}
  }}
}}

kernel passed(a: out f32[parts, m], parts: i64, m: i64, turn: i64, s: f32) {{
  parallel({grain}) i in 0..parts {{
    let at = (i + turn) % parts
    for j in 0..m by {wide} {{
      let q = min(m - j, {wide})
      vector<{wide}> l in 0..q {{
        a[at, j + l] = s
      }}
    }}
  }}
}}

kernel empty() {{
}}
"""

# What calls the empty kernel, timed, many times.
_CALLS = """
define void @"many"(ptr %ctx, i64 %n) {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %loop]
  call i32 @"k.empty"(ptr %ctx)
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}

define i32 @tlc.main(ptr %ctx) {
  ret i32 0
}
"""


def _kernel_text() -> str:
    size = cpu.vectors().vector_bytes
    acc = [f"acc[{k}, l2]" for k in range(ACCUMULATORS)]
    text = _TEXT.format(w32=size // 4, wide=size // 2, grain=GRAIN, accs=ACCUMULATORS, sum=" + ".join(acc))
    double = text[: text.index("kernel triad")].replace("f32", "f64").replace(f"<{size // 4}>", f"<{size // 8}>")
    return text + double.replace(f", {size // 4}]", f", {size // 8}]").replace(f"0..{size // 4} ", f"0..{size // 8} ")


class _Kernels:
    """The kernels, loaded, with a context of their own."""

    def __init__(self, threads: int, store: Store) -> None:
        kernels = parse_kernels(_kernel_text(), "roofline")
        for kernel in kernels.values():
            verify(kernel, expanded=True)
        texts = [print_timed(k, 0) if k.name == "empty" else print_kernel(k) for k in kernels.values()]
        objects = jit.compile_objects(
            [("\n".join([*texts, DECLARE_CLOCK, _CALLS]), jit.Level.KERNEL), (support(), jit.Level.HOST)],
            store,
        )
        self.loaded = jit.load(objects.values())
        self.threads = threads
        self.table = timing.Table(1)
        self.context = Context(threads=threads, profile=self.table.address)
        self.lanes = cpu.vectors().vector_bytes // 4

    def close(self) -> None:
        if self.context.workers:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.loaded.address("tlc.disband"))(ctypes.addressof(self.context))

    def function(self, name: str, *types: type) -> Callable[..., object]:
        call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *types)(self.loaded.address(name))
        return lambda *args: call(ctypes.addressof(self.context), *args)

    def peak(self, elem: str) -> float:
        """Operations a second."""
        real = ctypes.c_float if elem == "f32" else ctypes.c_double
        lanes = self.lanes if elem == "f32" else self.lanes // 2
        pieces = PARTS * self.threads
        y = np.zeros((pieces, lanes), elem.replace("f", "float"))
        call = self.function(f"k.peak_{elem}", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, real, real)

        def work(rounds: int) -> None:
            call(y.ctypes.data, pieces, rounds, 0.5, 1.0)

        return 2.0 * ACCUMULATORS * lanes * pieces * _rate(work)

    def triad(self, parts: int, m: int) -> tuple[Callable[[int], None], float]:
        """A function that runs the triad so many times over so many arrays, and the bytes of one time."""
        a, b, c = (np.ones((parts, m), np.float32) for _ in range(3))
        call = self.function("k.triad", ctypes.c_void_p, *3 * [ctypes.c_int64], ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float)

        def work(rounds: int) -> None:
            call(a.ctypes.data, parts, m, rounds, b.ctypes.data, c.ctypes.data, 3.0)

        return work, 12.0 * parts * m

    def cached(self, size: int) -> float:
        """Bytes a second of arrays that fill half of a cache."""
        parts = self.threads
        work, count = self.triad(parts, max(size // 2 // 12 // parts // 64 * 64, 64))
        return count * _rate(work)

    def passed(self) -> float:
        """Bytes a second of arrays that fill half of a core's cache, each filled by one core after the other."""
        parts, size = self.threads, cpu.vectors().cache_bytes // 2
        a = np.zeros((parts, size // 4), np.float32)
        call = self.function("k.passed", ctypes.c_void_p, *3 * [ctypes.c_int64], ctypes.c_float)

        def work(rounds: int) -> None:
            for turn in range(rounds):
                call(a.ctypes.data, parts, size // 4, turn % parts, 1.0)

        return parts * size * _rate(work)

    def memory(self) -> Callable[[], float]:
        """Gives bytes a second of arrays larger than all caches."""
        largest = max((size for _, size in _caches(self.threads)), default=0)
        size = min(max(4 * largest, LEAST), MOST, _free_memory() // 4)
        parts = PARTS * self.threads
        work, count = self.triad(parts, size // 12 // parts // 64 * 64)
        return lambda: count / min(_seconds(lambda: work(1)) for _ in range(3))

    def empty(self) -> tuple[float, float]:
        """Seconds that an empty timed call counts as its own, and those it takes."""
        many = self.function("many", ctypes.c_int64)
        calls = EMPTY_CALLS // 10
        inside, around = [], []
        for _ in range(10):
            before = self.table.kernel(0).spent
            around.append(_seconds(lambda: many(calls)) / calls)
            inside.append((self.table.kernel(0).spent - before) / calls / 1e9)
        return min(inside), min(around)


def _rate(work: Callable[[int], None]) -> float:
    """The most rounds a second, of a few short runs."""
    rounds = 1
    while (took := _seconds(lambda: work(rounds))) < SHORT / 4:  # noqa: B023 (called at once)
        rounds = int(rounds * min(max(SHORT / 2 / max(took, 1e-9), 2), 1000)) + 1
    rounds = max(int(rounds * SHORT / took), 1)
    return max(rounds / _seconds(lambda: work(rounds)) for _ in range(RUNS))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _free_memory() -> int:
    """Bytes that are free, at least what the smallest measurement wants."""
    try:
        return max(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), 4 * LEAST)
    except (ValueError, OSError):
        return 4 * LEAST

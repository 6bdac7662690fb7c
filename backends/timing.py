"""The figures of a run whose kernels are timed: a table of 64-bit words in memory, which native code fills.

    inner | wall | processor | hook | services: (calls, nanoseconds) each | kernels: (calls, nanoseconds, totals of `kernel/counts.py`) each

`inner` is scratch: what was spent in timed calls within the one that runs, so that a row has what was spent in itself alone. Times are
of the thread that runs the program, which waits in the kernel for other threads that share its work; `processor` is how long of all the
time (`wall`) the thread had a processor. `hook`, if it is not 0, is a function `void(i64 kernel, ptr slots)` that is called with the
arguments of every first, second, fourth, eighth .. call of a kernel before it begins (`backends/runtime/witness.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tlc.backends.context import SERVICES
from tlc.frontend.records import dataclass
from tlc.tensor.kernel.counts import TOTALS

INNER, WALL, PROCESSOR, HOOK, FIRST_SERVICE = 0, 1, 2, 3, 4
SERVICE_WORDS = 2
FIRST_KERNEL = FIRST_SERVICE + SERVICE_WORDS * len(SERVICES)
KERNEL_WORDS = 2 + len(TOTALS)
CALLS, SPENT, AMOUNTS = 0, 1, 2  # in the words of a service or kernel

TIMED_ENTRY = "tlc.timed"  # i32 tlc.timed(ptr context): runs the program, timed


@dataclass(frozen=True)
class Row:
    """What one kernel did in a run: calls, nanoseconds in it alone, and the totals of its counts."""

    calls: int
    spent: int
    totals: tuple[int, ...]


class Table:
    """The table of a run of a program with so many kernels."""

    def __init__(self, kernels: int) -> None:
        self.words = (ctypes.c_int64 * (FIRST_KERNEL + KERNEL_WORDS * kernels))()
        self.address = ctypes.addressof(self.words)

    @property
    def wall(self) -> int:
        """Nanoseconds of the whole run."""
        return self.words[WALL]

    @property
    def processor(self) -> int:
        """Nanoseconds of it that the program's thread had a processor."""
        return self.words[PROCESSOR]

    def kernel(self, number: int) -> Row:
        calls, spent, *totals = self._at(FIRST_KERNEL + KERNEL_WORDS * number, KERNEL_WORDS)
        return Row(calls, spent, tuple(totals))

    def service(self, name: str) -> tuple[int, int]:
        """Calls, and nanoseconds."""
        calls, spent = self._at(FIRST_SERVICE + SERVICE_WORDS * SERVICES.index(name), SERVICE_WORDS)
        return calls, spent

    def _at(self, first: int, count: int) -> Sequence[int]:
        return self.words[first : first + count]

"""The context: what a running program and the world outside share, one row a field.

Native code gets a pointer to it as the first parameter of every function. The run time makes it from the same rows
(`backends/runtime/native.py`), so both sides agree on where a field lies.
"""

from __future__ import annotations

from enum import IntEnum

from tlc.frontend.records import dataclass
from tlc.ssa.tape import TAPES

VALUES = 16  # operands of a failed check that are kept
CLASSES = 1024  # lists of free buffers
WORKERS = 63  # threads beside the one that runs the program, at most


class Reason(IntEnum):
    """Why a run ended early."""

    NONE = 0
    CHECK = 1  # the check `site` failed, with `values`
    STOPPED = 2  # somebody set `stop`
    SERVICE = 3  # a service failed; it keeps the cause itself


@dataclass(frozen=True)
class Field:
    name: str
    bits: int  # of one element
    count: int = 1


# What the services are, in order of the table. A service takes a pointer to 64-bit slots (its arguments, then room for results)
# and gives 0, or 1 if the run must end.
SERVICES = ("print", "format", "extern", "progress_begin", "progress_tick", "progress_note", "progress_end")

FIELDS = (
    Field("stop", 32),            # set from outside; host loops look at it
    Field("reason", 32),
    Field("site", 64),
    Field("values", 64, VALUES),
    Field("stack_bytes", 64),     # of the thread that runs the program, less a margin; set from outside
    Field("stack_limit", 64),     # the lowest address that a frame may have
    Field("services", 64, len(SERVICES)),
    Field("ticked", 64),          # when progress was last shown, in nanoseconds
    Field("used", 64),            # bytes in buffers that are alive
    Field("peak", 64),            # the most that `used` ever was
    Field("cached", 64),          # bytes in buffers that wait to be used again
    Field("mallocs", 64),         # how often memory was asked of the C library
    Field("tapes", 64, 3 * TAPES),  # of each: where it goes on, where its chunk begins, and where that ends
    Field("classes", 64, CLASSES),
    Field("threads", 64),         # how many the program may use; set from outside
    Field("workers", 64),         # how many threads run beside the program's own
    Field("pool_word", 64),       # see backends/llvm/pool.py
    Field("pool_done", 64),       # chunks that are done
    Field("pool_sleepers", 64),   # threads that wait to be woken
    Field("pool_quit", 64),
    Field("pool_part", 64),       # what the chunks run: a function, its environment, iterations of a chunk and of all
    Field("pool_env", 64),
    Field("pool_size", 64),
    Field("pool_count", 64),
    Field("pool_threads", 64, WORKERS),
    Field("profile", 64),         # where a timed run counts, see backends/timing.py
    Field("launch", 64),          # runs kernels on a device, see backends/llvm/launch.py; this and the next four are set from outside
    Field("wait", 64),            # returns when no kernel runs there
    Field("table", 64),           # how kernels are started without the launcher; 0: they are not
    Field("allocate", 64),        # memory that a device sees too; 0: the C library's is taken
    Field("release", 64),
)  # fmt: skip


def offset(name: str) -> int:
    """Bytes from the start of the context to a field."""
    at = 0
    for f in FIELDS:
        at = -(-at // (f.bits // 8)) * (f.bits // 8)
        if f.name == name:
            return at
        at += f.bits // 8 * f.count
    raise KeyError(name)

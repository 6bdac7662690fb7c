"""What a profile is: the figures of one run by kernel, beside what the machine can do (`tlc profile`).

Time is cut into what kernels take, what services take (printing, reading data), what timing itself costs, and the rest, which is the
host: scalar code, buffers and calls. Together they are the time of the run. A kernel is judged against the roofline (Williams, Waterman,
Patterson 2009): a call cannot be faster than its operations at the peak, nor than its bytes at the bandwidth of the smallest cache
that holds them, or of memory. `roof` is the greater of the two as a share of the time that was taken.

    bound      compute    the operations take longer than the bytes
               L2, ..     the bytes take longer, and lie in that cache (`memory`: in none)
               overhead   a call is so short that to begin and to end it is most of it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tlc.backends.context import SERVICES
from tlc.backends.timing import Row, Table
from tlc.driver.flags import Value
from tlc.driver.roofline import Machine
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.tensor.kernel.counts import TOTALS

FORMAT = "tlc profile 1"
SHORT_CALL = 20  # a call that takes less than so many empty ones is overhead, and
SHORTEST = 1e-6  # one that takes less than so many seconds
DISTURBED = 0.1  # a share of the time without a processor that is worth saying

# what a row of the profile is called -> the services that it is of
_SERVICES = {
    "print": ("print",),
    "format": ("format",),
    "data": ("extern",),
    "progress": ("progress_begin", "progress_tick", "progress_note", "progress_end"),
}
assert sorted(s for parts in _SERVICES.values() for s in parts) == sorted(SERVICES)


@dataclass(frozen=True)
class Place:
    """A line of a source."""

    path: str
    line: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "line": self.line}


@dataclass(frozen=True)
class KernelFigures:
    """One kernel; amounts are of all calls. `whole`: every operation is counted."""

    name: str
    places: tuple[Place, ...]
    calls: int
    seconds: float
    share: float
    flops: int
    is_double: bool  # most of its operations are on reals of 64 bits
    integers: int
    read: int
    written: int
    whole: bool
    bound: str
    roof: float

    @property
    def bytes(self) -> int:
        return self.read + self.written

    @property
    def flop_rate(self) -> float:
        """Operations on reals a second."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def byte_rate(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations on reals a byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class ServiceFigures:
    name: str
    calls: int
    seconds: float
    share: float


@dataclass(frozen=True)
class Profile:
    """A run. `kernels` that were called, by time; `stopped` says why the program ended early, empty if it did not."""

    program: str
    args: tuple[str, ...]  # its flags as they were given
    flags: Mapping[str, Value]
    host: str
    machine: Machine
    seconds: float
    kernels: tuple[KernelFigures, ...]
    services: tuple[ServiceFigures, ...]
    host_seconds: float
    timing_seconds: float
    processor_seconds: float  # of `seconds`, how long the program's thread had a processor
    stopped: str = ""

    @property
    def title(self) -> str:
        return " ".join((self.program, *self.args))

    @property
    def disturbance(self) -> str:
        """What to say where the thread had no processor for a part of the time, outside of services; empty where it had."""
        working = self.seconds - sum(s.seconds for s in self.services)
        without = self.seconds - self.processor_seconds - sum(s.seconds for s in self.services)
        if without <= DISTURBED * working:
            return ""
        return f"disturbed: other processes had the program's processor for at least {without / working:.0%} of its work"

    def share(self, seconds: float) -> float:
        return seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Timed:
    """What is known of a kernel before the run."""

    name: str
    places: tuple[Place, ...]
    whole: bool


def places(spans: Sequence[Span], program: str) -> tuple[Place, ...]:
    """The lines of spans, each once, those of the program first, then by file and number."""
    found = {}
    for span in spans:
        if span.source is not NOWHERE.source:
            line, _ = span.source.position(span.start)
            found[span.source.path, line] = Place(span.source.path, line, span.source.line(line).strip())
    return tuple(found[key] for key in sorted(found, key=lambda key: (key[0] != program, key)))


@dataclass(frozen=True)
class Command:
    """What was run."""

    program: str
    args: tuple[str, ...]
    flags: Mapping[str, Value]
    host: str


def summary(command: Command, machine: Machine, kernels: Sequence[Timed], table: Table, stopped: str = "") -> Profile:
    """The profile of a run whose figures are in `table`."""
    wall = table.wall / 1e9
    rows = [(k, table.kernel(n)) for n, k in enumerate(kernels)]
    served = [(name, *_added(table.service(s) for s in parts)) for name, parts in _SERVICES.items()]
    calls = sum(r.calls for _, r in rows) + sum(n for _, n, _ in served)
    own = {k.name: _own(r.calls, r.spent, machine) for k, r in rows}
    own_services = {name: _own(n, spent, machine) for name, n, spent in served}
    spent = (sum(r.spent for _, r in rows) + sum(s for _, _, s in served)) / 1e9
    host_seconds = max(wall - spent - calls * (machine.around - machine.inside), 0.0)
    timing = max(wall - host_seconds - sum(own.values()) - sum(own_services.values()), 0.0)
    share = (lambda seconds: seconds / wall) if wall else (lambda seconds: 0.0)
    figures = [_figures(k, r, own[k.name], share(own[k.name]), machine) for k, r in rows if r.calls]
    services = [ServiceFigures(name, n, own_services[name], share(own_services[name])) for name, n, _ in served if n]
    return Profile(
        command.program,
        command.args,
        command.flags,
        command.host,
        machine,
        wall,
        tuple(sorted(figures, key=lambda k: -k.seconds)),
        tuple(sorted(services, key=lambda s: -s.seconds)),
        host_seconds,
        timing,
        table.processor / 1e9,
        stopped,
    )


def _added(figures: Iterable[tuple[int, int]]) -> tuple[int, int]:
    calls, spent = map(sum, zip(*figures, strict=True))
    return calls, spent


def _own(calls: int, nanoseconds: int, machine: Machine) -> float:
    """Seconds without what timing costs."""
    return max(nanoseconds / 1e9 - calls * machine.inside, 0.0)


def _figures(kernel: Timed, row: Row, seconds: float, share: float, machine: Machine) -> KernelFigures:
    amount = dict(zip(TOTALS, row.totals, strict=True))
    size = amount["read"] + amount["written"]
    level = machine.level(size / row.calls)
    computing = (amount["flops"] + amount["integers"]) / machine.peak + amount["flops64"] / machine.peak64
    moving = size / level.bandwidth
    if seconds / row.calls < max(SHORT_CALL * machine.around, SHORTEST):
        bound = "overhead"
    else:
        bound = "compute" if computing >= moving else level.name
    return KernelFigures(
        kernel.name,
        kernel.places,
        row.calls,
        seconds,
        share,
        amount["flops"] + amount["flops64"],
        amount["flops64"] > amount["flops"],
        amount["integers"],
        amount["read"],
        amount["written"],
        kernel.whole,
        bound,
        max(computing, moving) / seconds if seconds else 0.0,
    )


# ---------------------------------------------------------------- as JSON


def to_json(p: Profile) -> dict[str, Any]:
    """Everything as plain data: seconds, counts, bytes, rates a second, shares of 1."""
    m = p.machine
    return {
        "format": FORMAT,
        "program": p.program,
        "arguments": list(p.args),
        "flags": dict(p.flags),
        "host": p.host,
        "stopped": p.stopped or None,
        "seconds": p.seconds,
        "processor_seconds": p.processor_seconds,
        "machine": {
            "threads": m.threads,
            "peak_f32": m.peak,
            "peak_f64": m.peak64,
            "levels": [{"name": level.name, "size": level.size, "bandwidth": level.bandwidth} for level in m.levels],
            "timed_call_seconds": m.around,
        },
        "kernels": [_kernel_json(k) for k in p.kernels],
        "services": [{"name": s.name, "calls": s.calls, "seconds": s.seconds, "share": s.share} for s in p.services],
        "host_code": {"seconds": p.host_seconds, "share": p.share(p.host_seconds)},
        "timing": {"seconds": p.timing_seconds, "share": p.share(p.timing_seconds)},
    }


def _kernel_json(k: KernelFigures) -> dict[str, Any]:
    return {
        "name": k.name,
        "lines": [place.to_json() for place in k.places],
        "calls": k.calls,
        "seconds": k.seconds,
        "share": k.share,
        "flops": k.flops,
        "integer_operations": k.integers,
        "bytes_read": k.read,
        "bytes_written": k.written,
        "counts_are_whole": k.whole,
        "flops_per_second": k.flop_rate,
        "bytes_per_second": k.byte_rate,
        "flops_per_byte": k.intensity,
        "bound": k.bound,
        "share_of_roofline": k.roof,
    }

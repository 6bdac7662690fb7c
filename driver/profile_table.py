"""A profile as a table for the terminal. What does not fit the width goes, the least wanted column first; then source lines are cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tlc.driver.profile import KernelFigures, Place, Profile
from tlc.driver.roofline import Machine
from tlc.frontend.records import dataclass

FEW = 8  # kernels that have rows whatever they take; of the others
SMALL = 0.0005  # those with a smaller share of the time come together in one row
NARROWEST = 12  # columns for source lines, at least


@dataclass(frozen=True)
class _Column:
    """`wanted`: the least goes first. Names stand to the left, numbers to the right."""

    head: str
    wanted: int
    left: bool = False


COLUMNS = (
    _Column("kernel", 99, left=True),
    _Column("calls", 5),
    _Column("time", 98),
    _Column("share", 97),
    _Column("FLOP/call", 3),
    _Column("B/call", 2),
    _Column("GFLOP/s", 7),
    _Column("GB/s", 6),
    _Column("FLOP/B", 1),
    _Column("bound", 9, left=True),
    _Column("roof", 8),
    _Column("lines", 96, left=True),
)


def table(p: Profile, width: int) -> str:
    """Lines of at most `width` characters where that can be."""
    shown = [k for rank, k in enumerate(p.kernels) if rank < FEW or k.share >= SMALL]
    rest = p.kernels[len(shown) :]  # they are sorted by time
    rows = [_kernel(k) for k in shown]
    if rest:
        rows.append(_plain(f"{len(rest)} more", sum(k.calls for k in rest), sum(k.seconds for k in rest), p))
    rows.append(_plain("host code", None, p.host_seconds, p))
    rows += [_plain(f"service: {s.name}", s.calls, s.seconds, p) for s in p.services]
    rows.append(_plain("timing", None, p.timing_seconds, p))
    rows.append(_plain("all", None, p.seconds, p))
    return "\n".join([*_head(p), "", *_aligned(rows, width)])


def _head(p: Profile) -> list[str]:
    threads = f"{p.machine.threads} thread{'s' if p.machine.threads != 1 else ''}"
    lines = [f"{p.title}: {time_text(p.seconds)}, {threads}, host {p.host}", f"this machine: {machine_text(p.machine)}"]
    return [*lines, *([p.disturbance] if p.disturbance else []), *([f"stopped: {p.stopped}"] if p.stopped else [])]


def machine_text(m: Machine) -> str:
    """What the machine can do at most, in a line."""
    peaks = f"{m.peak / 1e9:.0f} GFLOP/s of f32, {m.peak64 / 1e9:.0f} of f64"
    levels = [f"{n.bandwidth / 1e9:.0f} GB/s {'from memory' if n.size is None else f'from {n.name}'}" for n in m.levels]
    return f"{peaks}; {', '.join(levels)}"


def _kernel(k: KernelFigures) -> list[str]:
    return [
        k.name,
        str(k.calls),
        time_text(k.seconds),
        f"{k.share:.1%}",
        amount_text(k.flops / k.calls, k.whole),
        amount_text(k.bytes / k.calls),
        f"{k.flop_rate / 1e9:.1f}" if k.flops else "",
        f"{k.byte_rate / 1e9:.1f}" if k.bytes else "",
        f"{k.intensity:.2f}" if k.flops else "",
        k.bound,
        f"{k.roof:.0%}" if k.bound != "overhead" else "",
        lines_text(k.places),
    ]


def _plain(name: str, calls: int | None, seconds: float, p: Profile) -> list[str]:
    return [name, "" if calls is None else str(calls), time_text(seconds), f"{p.share(seconds):.1%}", *[""] * (len(COLUMNS) - 4)]


def _aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    widths = [max(len(row[k]) for row in [[c.head for c in COLUMNS], *rows]) for k in range(len(COLUMNS))]
    shown = list(range(len(COLUMNS)))
    last = len(COLUMNS) - 1

    def need() -> int:
        return sum(widths[k] for k in shown if k != last) + 2 * (len(shown) - 1) + min(widths[last], NARROWEST)

    while need() > width and len(shown) > 4:
        shown.remove(min(shown, key=lambda k: COLUMNS[k].wanted))
    room = max(width - (need() - min(widths[last], NARROWEST)), NARROWEST)
    lines = []
    for row in [[c.head for c in COLUMNS], *rows]:
        cells = []
        for k in shown:
            text = _cut(row[k], room) if k == last else row[k]
            cells.append(text.ljust(widths[k]) if COLUMNS[k].left else text.rjust(widths[k]))
        lines.append("  ".join(cells).rstrip())
    return lines


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 2] + ".."


# ---------------------------------------------------------------- numbers for people


def time_text(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.{2 if seconds < 10 * unit else 1}f} {name}"
    return f"{seconds * 1e6:.1f} us"


def amount_text(amount: float, whole: bool = True) -> str:
    """`51.4M`; with a plus sign where something is not counted."""
    more = "" if whole else "+"
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= unit:
            return f"{amount / unit:.1f}{name}{more}"
    return f"{amount:.0f}{more}" if amount or more else ""


def lines_text(found: Sequence[Place]) -> str:
    """`mlp.tl:16,24 nn.tl:30`"""
    by_file: dict[str, list[str]] = {}
    for place in found:
        by_file.setdefault(Path(place.path).name, []).append(str(place.line))
    return " ".join(f"{name}:{','.join(numbers)}" for name, numbers in by_file.items())

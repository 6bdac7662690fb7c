"""A profile as one page of HTML that needs nothing else: the roofline plot as SVG, the table, light and dark by the reader's choice.

The plot has operations a byte to the right and operations a second upwards, both logarithmic. A slanted line is the bandwidth of
memory or of a cache, the flat one the peak. A kernel is a circle whose area is its share of the time; it stands where it was, and what
lies between it and the roof above is what could be gained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from tlc.driver.profile import KernelFigures, Profile
from tlc.driver.profile_table import amount_text, lines_text, machine_text, time_text
from tlc.frontend.records import dataclass

WIDTH, HEIGHT = 860, 470
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 16, 46
LARGEST, SMALLEST = 26.0, 3.0  # radius of a kernel that takes all the time, and the least
NAMED = 12  # kernels that have their names beside them
LINE = 13  # height of a name

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667078; --faint: #d8dde1; --page: #ffffff; --mark: #0b62c4; --roof: #b3400e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e6e8; --soft: #98a2aa; --faint: #353b40; --page: #15181a; --mark: #6cb0ff; --roof: #f59a63; }
}
body { margin: 2rem auto; max-width: 74rem; padding: 0 1rem; background: var(--page); color: var(--ink); }
body { font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; } p { margin: .3rem 0; color: var(--soft); }
.stopped { color: var(--roof); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--faint); }
th { color: var(--soft); font-weight: 600; } .left { text-align: left; }
td.source { text-align: left; white-space: normal; min-width: 14rem; } code { font-size: .8rem; color: var(--soft); }
svg { width: 100%; height: auto; max-width: 60rem; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); stroke: var(--page); stroke-width: 3; paint-order: stroke; }
.grid { stroke: var(--faint); stroke-width: 1; } .roof { stroke: var(--roof); stroke-width: 1.6; fill: none; }
svg .rooftext { fill: var(--roof); } .kernel { fill: var(--mark); fill-opacity: .45; stroke: var(--mark); } svg .name { fill: var(--ink); }
"""


def page(p: Profile) -> str:
    """The page."""
    title = f"{p.program}, profile"
    threads = f"{p.machine.threads} thread{'s' if p.machine.threads != 1 else ''}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        f'<head><meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style></head>",
        "<body>",
        f"<h1>{escape(p.title)}</h1>",
        f"<p>{time_text(p.seconds)}, {threads}, host {p.host}</p>",
        f"<p>This machine, measured in this run: {escape(machine_text(p.machine))}</p>",
        *([f'<p class="stopped">{escape(p.disturbance.capitalize())}</p>'] if p.disturbance else []),
        *([f'<p class="stopped">The program stopped: {escape(p.stopped)}</p>'] if p.stopped else []),
        "<h2>Roofline</h2>",
        _plot(p),
        "<p>To the right: operations on reals a byte. Upwards: operations a second. Area: share of the time. "
        "Kernels without such operations are in the table alone.</p>",
        "<h2>Kernels</h2>",
        _table(p),
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


# ---------------------------------------------------------------- the table


def _table(p: Profile) -> str:
    heads = ("kernel", "calls", "time", "share", "FLOP/call", "B/call", "GFLOP/s", "GB/s", "FLOP/B", "bound", "roof", "source")
    left = {"kernel", "bound", "source"}
    rows = ["".join(f'<th class="left">{h}</th>' if h in left else f"<th>{h}</th>" for h in heads)]
    rows += [_row(k) for k in p.kernels]
    rows += [_plain("host code", "", p.host_seconds, p)]
    rows += [_plain(f"service: {s.name}", str(s.calls), s.seconds, p) for s in p.services]
    rows += [_plain("timing", "", p.timing_seconds, p), _plain("all", "", p.seconds, p)]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="wide"><table>\n{body}\n</table></div>'


def _row(k: KernelFigures) -> str:
    source = "<br/>".join(f"{escape(f'{place.path}:{place.line}')} <code>{escape(place.text)}</code>" for place in k.places)
    numbers = (
        str(k.calls),
        time_text(k.seconds),
        f"{k.share:.2%}",
        amount_text(k.flops / k.calls, k.whole),
        amount_text(k.bytes / k.calls),
        f"{k.flop_rate / 1e9:.1f}" if k.flops else "",
        f"{k.byte_rate / 1e9:.1f}" if k.bytes else "",
        f"{k.intensity:.2f}" if k.flops else "",
    )
    roof = f"{k.roof:.0%}" if k.bound != "overhead" else ""
    cells = "".join(f"<td>{n}</td>" for n in numbers)
    return f'<td class="left">{escape(k.name)}</td>{cells}<td class="left">{k.bound}</td><td>{roof}</td><td class="source">{source}</td>'


def _plain(name: str, calls: str, seconds: float, p: Profile) -> str:
    return f'<td class="left">{name}</td><td>{calls}</td><td>{time_text(seconds)}</td><td>{p.share(seconds):.2%}</td>' + "<td></td>" * 8


# ---------------------------------------------------------------- the plot


@dataclass(frozen=True)
class _Axes:
    """Powers of ten at the ends of both axes."""

    left: float
    right: float
    low: float
    high: float

    def x(self, intensity: float) -> float:
        part = (math.log10(intensity) - self.left) / (self.right - self.left)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, rate: float) -> float:
        part = (math.log10(rate) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _plot(p: Profile) -> str:
    shown = [k for k in p.kernels if k.flops and k.bytes and k.seconds]
    axes = _axes(p, shown)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="roofline plot">', *_grid(axes), *_roofs(p, axes)]
    taken: list[tuple[float, float, float]] = []  # names so far: left, right, bottom
    for place, k in enumerate(shown):
        x, y, r = axes.x(k.intensity), axes.y(k.flop_rate), max(LARGEST * math.sqrt(k.share), SMALLEST)
        about = f"{k.name}: {k.flop_rate / 1e9:.1f} GFLOP/s, {k.intensity:.2f} FLOP/B, {k.share:.1%} of the time, {lines_text(k.places)}"
        parts.append(f'<circle class="kernel" cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"><title>{escape(about)}</title></circle>')
        if place < NAMED:
            parts.append(_name(k.name, x, y, r, taken))
    return "\n".join([*parts, "</svg>"])


def _axes(p: Profile, shown: Iterable[KernelFigures]) -> _Axes:
    """Around the kernels and the corner of the roof."""
    m = p.machine
    corner = m.peak / m.memory.bandwidth
    across = [math.log10(x) for x in (corner / 20, corner * 8, *(k.intensity for k in shown))]
    rates = [math.log10(x) for x in (m.peak / 200, m.peak, m.peak64, *(k.flop_rate for k in shown))]
    return _Axes(min(across) - 0.15, max(across) + 0.15, min(rates) - 0.15, max(rates) + 0.25)


def _grid(axes: _Axes) -> list[str]:
    parts = []
    for n in range(math.ceil(axes.left), math.floor(axes.right) + 1):
        x = axes.x(10.0**n)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_power(n)}</text>')
    for n in range(math.ceil(axes.low), math.floor(axes.high) + 1):
        y = axes.y(10.0**n)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_power(n - 9)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">FLOP/B</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">GFLOP/s</text>')
    return parts


def _power(n: int) -> str:
    return f"{10.0**n:g}"


def _roofs(p: Profile, axes: _Axes) -> list[str]:
    """The peak, and each bandwidth up to where it meets it."""
    m, left, right = p.machine, 10.0**axes.left, 10.0**axes.right
    parts = []
    meets = min(level.bandwidth for level in m.levels)
    for level in m.levels:
        corner = m.peak / level.bandwidth
        start = max(left, 10.0**axes.low / level.bandwidth)
        if start >= corner:
            continue
        ends = (axes.x(start), axes.y(start * level.bandwidth), axes.x(corner), axes.y(m.peak))
        parts.append('<line class="roof" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends))
        x1, y1, x2, y2 = ends
        angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
        at = f"{x1 + 6:.1f} {y1 - 6:.1f}"
        name = f"{level.name} {level.bandwidth / 1e9:.0f} GB/s"
        parts.append(f'<text class="rooftext" transform="translate({at}) rotate({angle:.1f})">{name}</text>')
        meets = max(meets, level.bandwidth)
    for peak, what in ((m.peak, "f32"), (m.peak64, "f64")):
        if what == "f64" and not any(k.is_double for k in p.kernels):
            continue
        x, y = axes.x(max(peak / meets, left)), axes.y(peak)
        parts.append(f'<line class="roof" x1="{x:.1f}" y1="{y:.1f}" x2="{axes.x(right):.1f}" y2="{y:.1f}"/>')
        text = f"{what} {peak / 1e9:.0f} GFLOP/s"
        parts.append(f'<text class="rooftext" x="{WIDTH - RIGHT - 4}" y="{y - 6:.1f}" text-anchor="end">{text}</text>')
    return parts


def _name(name: str, x: float, y: float, r: float, taken: list[tuple[float, float, float]]) -> str:
    """A name beside its circle, moved down where another name stands."""
    width = 6.2 * len(name)
    to_left = x + r + 4 + width > WIDTH - RIGHT
    left = x - r - 4 - width if to_left else x + r + 4
    bottom = y + 4
    while any(left < b and left + width > a and abs(bottom - c) < LINE for a, b, c in taken):
        bottom += LINE
    taken.append((left, left + width, bottom))
    return f'<text class="name" x="{left:.1f}" y="{bottom:.1f}">{escape(name)}</text>'

"""What `--explain-fusion` prints: for every pair of neighbouring array operations, whether one kernel does both, and why not.

    layer.tl:3: relu(for[o] sum[i] x[i] * w[i, o])
      x_1 -> y          one kernel: y is computed where x_1 ends
    mlp.tl:12: let h = relu(x @ w)
      h -> out          two kernels
                        h is not computed in its readers: a factor of a product is read many times, so only movement goes into it
                        out is not computed where h ends: the reader reduces it

A pair is a value and one that reads it; both are named as in the source and in `tlc emit graph`, and stand under the line of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tlc.frontend.source import NOWHERE, Span
from tlc.tensor.fuse import Decision

_HOW = {
    "inlined": "one kernel: {0} is computed in {1}",
    "appended": "one kernel: {1} is computed where {0} ends",
    "shared": "one kernel: {0} and {1} compute the same functions",
    "bundled": "one kernel: {1} goes through the rows right behind {0}",
}
_WIDTH = 22


def fusion_report(decisions: Sequence[Decision]) -> list[str]:
    """The lines of the report, in the order of the source."""
    out: list[str] = []
    heading = ""
    for d in sorted(decisions, key=lambda d: _order(d.producer.span)):
        if _heading(d.producer.span) != heading:
            heading = _heading(d.producer.span)
            out.append(heading)
        pair = f"{d.producer.name} -> {d.reader.name}"
        first, *rest = _verdict(d)
        out.append(f"  {pair:{_WIDTH}}{first}")
        out += [f"  {'':{_WIDTH}}{line}" for line in rest]
    fused = sum(bool(d.how) for d in decisions)
    return [*out, f"{len(decisions)} pairs, {fused} in one kernel"]


def _verdict(d: Decision) -> Iterator[str]:
    a, b = d.producer.name, d.reader.name
    if d.how:
        yield _HOW[d.how].format(a, b)
        return
    yield "two kernels"
    if d.inline is not None:
        yield f"{a} is not computed in its readers: {d.inline.value}"
    if d.append is not None:
        yield f"{b} is not computed where {a} ends: {d.append.value}"


def _heading(span: Span) -> str:
    if span.source is NOWHERE.source:
        return "made by the compiler"
    line, _ = span.source.position(span.start)
    return f"{span.source.path}:{line}: {span.source.line(line).strip()}"


def _order(span: Span) -> tuple[bool, str, int]:
    if span.source is NOWHERE.source:
        return True, "", 0
    return False, span.source.path, span.source.position(span.start)[0]

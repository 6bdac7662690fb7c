"""The memory plan for people: host SSA with what each function holds, as comments that readers of the text skip.

    func @main() {
      # memory: at most 4 * n * m + 4 * n bytes, at prog.tl:7
      #   4 * n * m  %y  prog.tl:7
      #   4 * n      %x  prog.tl:5
      # buffers:
      #   made       gone                bytes      name  how
      #   prog.tl:5  freed               4 * n      %x
      #   prog.tl:7  returned prog.tl:9  4 * n * m  %y    in place at prog.tl:8

Sizes are those of the elements; the allocator adds up to 127 bytes to each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tlc.frontend.dims import Dim
from tlc.frontend.source import NOWHERE, Span
from tlc.ssa.calls import callee_of
from tlc.ssa.ir import Function, Instr, Module, Value, walk
from tlc.ssa.text import print_function
from tlc.tensor.footprint import Buffer, Footprint, Held, Taped, footprint, summed
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.taking import Consumed, infer_consumed

Name = Callable[[Value], str]

SHOWN = 12  # of what is held at a peak, the largest
MAKES = {"copy": "a copy", "extern": "read from outside", "call": "from a call", "pop": "from the tape", "index": "a copy of a part"}


def print_planned(module: Module, kernels: Mapping[str, Kernel]) -> str:
    """All functions after the memory plan, each with its memory."""
    consumed = infer_consumed(module, kernels)
    return "\n".join(print_function(f, about=_about(module, f, consumed)) for f in module.functions.values())


def _about(module: Module, function: Function, consumed: Consumed) -> Callable[[Name], list[str]]:
    callees = dict.fromkeys(callee_of(i) for i in walk(function.body) if i.op == "call")
    holding = [f for f in callees if any(map(_makes_a_buffer, walk(module.functions[f].body)))]
    above = [f"besides, what it calls: {', '.join(holding)}"] if holding else []
    return lambda name: [*describe(footprint(function, consumed), name), *above]


def _makes_a_buffer(instr: Instr) -> bool:
    return (instr.op == "alloc" or instr.op in MAKES) and any(r.type.rank for r in instr.results)


def in_general(module: Module, function: str, kernels: Mapping[str, Kernel]) -> list[str]:
    """The most that a function holds, where its module was not specialized."""
    return most(footprint(module.functions[function], infer_consumed(module, kernels)), lambda v: v.name and f"%{v.name}")


def describe(memory: Footprint, name: Name) -> list[str]:
    """The lines about one function; none where it has no memory."""
    lines = most(memory, name)
    if not lines:
        return []
    if memory.taped:
        taped = [_taped(t, name) for t in sorted(memory.taped, key=lambda t: -_weight(t.size * t.times))]
        lines += ["on the tape:", *_table([("bytes", "name", "made", "kept for the derivative of"), *taped])]
    rows = [_buffer(b, name) for b in memory.buffers if b.how != "parameter"]
    return [*lines, "buffers:", *_table([("made", "gone", "bytes", "name", "how"), *rows])]


def most(memory: Footprint, name: Name) -> list[str]:
    """The peak, what is held there, and what the formulas speak of."""
    if not any(p.held for p in memory.peaks):
        return []
    peak, *others = sorted(memory.peaks, key=lambda p: -_weight(p.bytes))
    known = f" ({peak.number:,} with headers)" if peak.number is not None else ""
    also = ", or what is said below where that is more" if others else ""
    lines = [f"memory: at most {_bytes(peak.bytes)} bytes{known}, at {_place(peak.span)}{also}"]
    largest = sorted(peak.held, key=lambda h: -_weight(h.size * h.times))
    rows = [(_product(h.times, h.size), *_holder(h, name)) for h in largest[:SHOWN]]
    if rest := largest[SHOWN:]:
        rows.append((_bytes(summed(h.size * h.times for h in rest)), f"{len(rest)} smaller ones", ""))
    lines += _table(rows)
    lines += [f"  or {_bytes(p.bytes)} bytes, at {_place(p.span)}" for p in others]
    spoken = {str(atom) for p in memory.peaks for atom in p.bytes.atoms()}
    return lines + [f"  where {symbol} is {meaning}" for symbol, meaning in memory.symbols.items() if symbol in spoken]


def _holder(h: Held, name: Name) -> tuple[str, str]:
    if h.value is None:
        return "what the tape itself takes", ""
    span = _span(h.value)
    return name(h.value), ", ".join(x for x in (_line(span), "derivative" * span.derivative, "on the tape" * h.taped) if x)


def _taped(t: Taped, name: Name) -> tuple[str, ...]:
    return _product(t.times, t.size), name(t.value), _line(_span(t.value)), _line(t.span)


def _buffer(b: Buffer, name: Name) -> tuple[str, ...]:
    gone = f"{b.end} {_line(b.last)}".rstrip() if b.last is not None else ""
    over = f"in place at {', '.join(dict.fromkeys(map(_line, b.over)))}" if b.over else ""
    made = _line(b.span) + " (derivative)" * b.span.derivative
    return made, gone, _bytes(b.size), name(b.value), ", ".join(x for x in (MAKES.get(b.how, ""), over) if x)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# ---------------------------------------------------------------- words


def _bytes(size: Dim) -> str:
    return f"{size.value:,}" if size.value is not None else str(size)


def _product(times: Dim, size: Dim) -> str:
    if times == Dim.const(1):
        return _bytes(size)
    return f"({times}) times {_bytes(size)}" if len(times.terms) > 1 else f"{_bytes(times)} times {_bytes(size)}"


def _weight(size: Dim) -> int:
    """The size if every symbol were a thousand: an order for people."""
    thousand = size.substitute(lambda _: Dim.const(1000))
    return thousand.value or 0


def _span(value: Value) -> Span:
    return value.owner.span if isinstance(value.owner, Instr) else NOWHERE


def _place(span: Span) -> str:
    """File and line."""
    return "a place of the compiler" if span is NOWHERE else str(span).rpartition(":")[0]


def _line(span: Span | None) -> str:
    """File, without its folder, and line."""
    if span is None or span is NOWHERE:
        return ""
    return f"{span.source.path.rpartition('/')[2]}:{span.source.position(span.start)[0]}"

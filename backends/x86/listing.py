"""Machine code for people: instructions in Intel's syntax, from the table that encodes them, with where they come from.

    asm @f.main:                                      # 40 bytes of frame, 1 slots, saves rbx, rbp
    head:                                             # loop depth 1, runs about 10 times
      sieve.tl:4  while p * p < n {                                    the source, where it changes
        0x0060  mov rsi, rcx                          # %p.7@rsi = move %p.3@rcx
        0x0063  imul rsi, rsi                         # %8@rsi = imul.64 %p.7@rsi, %p.7@rsi

Behind an instruction stands the machine IR that it comes from, with the place of every virtual register; the first of several
instructions has it for all.
"""

from __future__ import annotations

from tlc.backends.x86.assemble import Line, Listing, assemble
from tlc.backends.x86.ops import TARGET
from tlc.frontend.source import NOWHERE, Span
from tlc.regalloc.ir import Block, Function, Inst, Module
from tlc.regalloc.text import print_inst

_COMMENT = 48  # column
_COLD = "hardly ever runs"


def listing(module: Module) -> str:
    """The code of all functions. They must be allocated."""
    record = Listing()
    assemble(module, record)
    return "\n".join(_function(f, record) for f in module.functions.values())


def _function(f: Function, record: Listing) -> str:
    out = [f"asm @{f.name}:".ljust(_COMMENT) + f"# {record.frames[f.name]}"]
    source: tuple[str, int] | None = None
    inst: Inst | None = None
    for line in record.functions[f.name]:
        if line.label:
            out.append(f"{line.label}:".ljust(_COMMENT) + (f"# {_often(line.block)}" if line.block else ""))
            continue
        span = line.inst.span if line.inst is not None else NOWHERE
        if span is not NOWHERE and (here := (span.source.path, span.source.position(span.start)[0])) != source:
            source = here
            out.append(_source(span))
        out.append(_instruction(line, inst))
        inst = line.inst
    return "\n".join(x.rstrip() for x in out) + "\n"


def _often(block: Block) -> str:
    """How often a block runs is a guess by loops, the one that the allocator makes."""
    if block.cold:
        return _COLD
    return f"loop depth {block.depth}, runs about {10**block.depth} times" if block.depth else "runs once"


def _source(span: Span) -> str:
    line, _ = span.source.position(span.start)
    return f"  {span.source.path}:{line}  {span.source.line(line).strip()}"


def _instruction(line: Line, before: Inst | None) -> str:
    words = f"    {line.start:#06x}  {line.text}"
    if line.inst is None or line.inst is before:
        return words
    return words.ljust(_COMMENT - 1) + f" # {print_inst(line.inst, TARGET)}"

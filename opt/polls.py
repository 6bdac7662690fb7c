"""Which loops must look at the stop flag, so that Ctrl-C is heard soon.

A poll at every back edge costs a load and a branch an iteration and keeps a loop from being made into vectors, so a loop whose work is
bounded has none. The work of a loop is the greatest number of its iterations (`opt/iterations.py`) times the work of its body; inner loops
count with all their iterations, one that polls with a single one. Up to `BUDGET` instructions (some hundredths of a second) need no poll.

    for i in 0..300 {                 # 300 * 600 * 12 instructions: no poll
      for j in 0..600 { ... }         # no poll
    }
    while p[0] != 0 {                 # nobody knows how often: polls
      while low < high { ... }        # `low` grows by 1 and `high < 9` here: at most 9 times
    }

Requires host SSA after the memory plan; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.opt.iterations import Iterations
from tlc.ssa.calls import callee_of, recursive
from tlc.ssa.ir import Block, Function, Instr, Module

BUDGET = 1 << 27  # instructions between two polls

# What an instruction counts, others 1. A kernel may take as long as it likes; a service is a call into Python.
WORK = {
    "run": BUDGET + 1, "foreign": BUDGET + 1,
    "alloc": 1 << 6, "free": 1 << 6, "copy": 1 << 16, "index": 1 << 8, "update": 1 << 8, "push": 8, "pop": 8,
    "format": 1 << 16, "print": 1 << 16, "extern": 1 << 16,
    "progress_begin": 1 << 16, "progress_tick": 1 << 6, "progress_due": 1 << 6, "progress_note": 1 << 16, "progress_end": 1 << 16,
}  # fmt: skip


def polled(module: Module) -> dict[str, set[Block]]:
    """By function, the headers of the loops whose back edges poll."""
    again = recursive(module)
    found: dict[str, set[Block]] = {}
    work: dict[str, int] = {}

    def work_of(name: str) -> int:
        if name in again:
            return BUDGET + 1
        if name not in work:
            found[name], work[name] = _polls(module.functions[name], work_of)
        return work[name]

    for name, function in module.functions.items():
        if name not in found:
            found[name], work[name] = _polls(function, work_of)
    return found


def _polls(function: Function, work_of: Callable[[str], int]) -> tuple[set[Block], int]:
    """The headers that poll, and the greatest work between two polls."""

    def weight(instr: Instr) -> int:
        return work_of(callee_of(instr)) if instr.op == "call" else WORK.get(instr.op, 1)

    iterations = Iterations(function)
    headers: set[Block] = set()
    own = {block: sum(map(weight, block.instrs), 1) for block in iterations.tree.order}
    for loop in reversed(iterations.loops):  # inner ones first; what counts in the header of one counts nowhere else outside
        body = sum(own[block] for block in loop.blocks)
        times = iterations.most(loop)
        if times is None or times * body > BUDGET:
            headers.add(loop.header)
            times = 1
        own.update(dict.fromkeys(loop.blocks, 0))
        own[loop.header] = min(times * body, BUDGET + 1)
    return headers, min(sum(own.values()), BUDGET + 1)


__all__ = ["polled"]

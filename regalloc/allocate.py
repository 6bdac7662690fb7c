"""Register allocation: machine IR in SSA form to machine IR in places. One function, its steps in order:

  sink        next values of loops are computed late                        sink.py
  destruct    block parameters become parallel moves                        destruct.py
  analyse     live ranges as sets of program points, copies, prices         ranges.py (liveness.py)
  assign      bundles of ranges to registers, by splitting where it pays    assign.py
  rewrite     places of operands, moves, loads, stores, constants           rewrite.py (moves.py)
  tidy        blocks that were made for moves and got none go
  check       on demand: a proof of this very result                        checker.py

The allocator knows nothing of a machine but its rows and its `MachineEnv`.
"""

from __future__ import annotations

from tlc.regalloc.assign import Assignment
from tlc.regalloc.checker import check, record
from tlc.regalloc.destruct import destruct
from tlc.regalloc.interference import graph as interference_graph
from tlc.regalloc.ir import Block, Function
from tlc.regalloc.ranges import analyse
from tlc.regalloc.rewrite import Rewriter
from tlc.regalloc.sink import sink
from tlc.regalloc.stats import Stats
from tlc.regalloc.target import MachineEnv, Target


def allocate(function: Function, target: Target, env: MachineEnv, verify: bool = False, graph: bool = False) -> Stats:
    """Give every operand of `function` a place, in place. `verify` proves the result by the symbolic checker; `graph` adds the interference
    graph to the figures.

    Requires SSA form, an entry without parameters and predecessors, jumps without operands, terminators without definitions.
    Afterwards there are no parameters, no `pmove`, and no moves but those between registers and between a register and a slot.
    InternalError if an instruction demands more registers than there are, or if the check fails.
    """
    sink(function, target)
    before = record(function, target) if verify else None
    made = destruct(function)
    ranges = analyse(function, target)
    assignment = Assignment(ranges, env)
    assignment.run()
    stats = Stats(pressure=ranges.pressure)
    if graph:
        stats.graph = interference_graph(ranges, assignment)
    Rewriter(ranges, assignment, env, stats).run()
    function.slots = stats.slots
    _tidy(function, made)
    function.allocated = True
    if before is not None:
        check(before, function, target, env, stats.saved)
    return stats


def _tidy(function: Function, made: list[Block]) -> None:
    """Edges whose moves all vanished lead to their targets directly again."""
    empty = {block: block.successors[0] for block in made if len(block.insts) == 1}
    if empty:
        function.blocks = [block for block in function.blocks if block not in empty]
        for block in function.blocks:
            block.terminator.targets = [(empty.get(successor, successor), ()) for successor, _ in block.terminator.targets]

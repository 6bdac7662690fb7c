"""The passes over SSA as one ordered table, and what every pass gets for free: verification, timing, dumps, switching off.

`LEVELS` are lists of names; a pass that stands twice says why. The driver runs a level before and after the tensor
stages (see `driver/pipeline.py`). `HOST_LEVELS` are for what is left to the host when comprehensions have become launches of kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from tlc.frontend.diagnostics import CompileError, InternalError
from tlc.frontend.records import dataclass
from tlc.opt.addresses import addresses
from tlc.opt.carry import carry
from tlc.opt.checks import checks
from tlc.opt.cse import cse
from tlc.opt.dce import dce
from tlc.opt.dead_stores import dead_stores
from tlc.opt.dims import dims
from tlc.opt.fold import fold
from tlc.opt.gvn import gvn
from tlc.opt.if_convert import if_convert
from tlc.opt.inline import inline, inline_small
from tlc.opt.inline_recursion import inline_recursion
from tlc.opt.jam import jam
from tlc.opt.licm import licm
from tlc.opt.loop_checks import loop_checks
from tlc.opt.sccp import sccp
from tlc.opt.simplify_cfg import simplify_cfg
from tlc.opt.strength import strength
from tlc.opt.tail_calls import tail_calls
from tlc.opt.thread_jumps import thread_jumps
from tlc.opt.unroll import unroll
from tlc.ssa.ir import Module, changes
from tlc.ssa.verify import verify


@dataclass(frozen=True)
class Pass:
    """A function that changes a module in place. `why` says why it stands where it stands in the levels."""

    name: str
    run: Callable[[Module], None]
    requires: str
    preserves: str
    why: str


PASSES: dict[str, Pass] = {
    row.name: row
    for row in (
        Pass(
            "inline", inline, requires="SSA", preserves="meaning; only calls of recursive functions and of large scalar ones remain",
            why="first: every other pass then sees through what was a call",
        ),
        Pass(
            "simplify-cfg", simplify_cfg, requires="SSA", preserves="every value, the order of effects",
            why="after `inline`, `fold` and `if-convert`: they leave chains of blocks and blocks that nobody reaches",
        ),
        Pass(
            "fold", fold, requires="SSA", preserves="every bit of every value",
            why="before `cse`, which then finds more equal; again after `dims` and `if-convert`, which bring new constants and choices",
        ),
        Pass(
            "dims", dims, requires="SSA", preserves="the graph",
            why="after `simplify-cfg`: a parameter that is gone need not be looked through; again after `cse`, which makes extents equal",
        ),
        Pass(
            "if-convert", if_convert, requires="SSA", preserves="every value; derivatives, while there is a `grad` to expand",
            why="after `fold`: a branch on a constant is no choice",
        ),
        Pass(
            "cse", cse, requires="SSA", preserves="the graph",
            why="after `fold` and `dims`: they make equal what was written in two ways",
        ),
        Pass(
            "checks", checks, requires="SSA", preserves="every check that could fail",
            why="after `cse`: an index and its extent are then one value where they are equal; again on the host, where `and` is branches",
        ),
        Pass(
            "dce", dce, requires="SSA", preserves="the graph, the order of effects",
            why="last: it removes what the others left",
        ),
        Pass(
            "addresses", addresses, requires="host SSA before the memory plan", preserves="the graph, every value",
            why="first on the host: what an access computes is then in sight of every other pass",
        ),
        Pass(
            "sccp", sccp, requires="SSA", preserves="every bit of every value",
            why="early: what it finds never to run need not be looked at by the others",
        ),
        Pass(
            "gvn", gvn, requires="SSA", preserves="the graph, the order of effects",
            why="on the host, where an access is an address and no comprehension is left; after `fold`, which writes equal things alike",
        ),
        Pass(
            "dead-stores", dead_stores, requires="host SSA before the memory plan", preserves="the graph, every value",
            why="after `gvn`: equal positions are then one value",
        ),
        Pass(
            "thread-jumps", thread_jumps, requires="SSA", preserves="every value, the order of effects",
            why="on the host only: what becomes a kernel should branch less, not have more blocks; before `gvn`, which then knows more",
        ),
        Pass(
            "jam", jam, requires="host SSA before the memory plan", preserves="every value, the order of effects",
            why="after `checks` and `gvn`, which leave loops bare",
        ),
        Pass(
            "loop-checks", loop_checks, requires="host SSA before the memory plan", preserves="every value, where a program stops",
            why="between two runs of `checks`: it takes what the first leaves, and the second removes what it made provable",
        ),
        Pass(
            "unroll", unroll, requires="host SSA before the memory plan", preserves="every value, the order of effects",
            why="before `gvn`, which sees what one iteration leaves to the next, and before the other loop passes",
        ),
        Pass(
            "carry", carry, requires="host SSA before the memory plan", preserves="every value, the order of effects, what is stored",
            why="after `gvn`, which does the same within an iteration; before `strength`, behind which positions are not what they were",
        ),
        Pass(
            "licm", licm, requires="host SSA before the memory plan", preserves="every value, the order of effects, where a program stops",
            why="after `checks`, whose checks stand in the way of loads, and `jam`, which wants its loops with the tests at their heads",
        ),
        Pass(
            "strength", strength, requires="host SSA before the memory plan", preserves="the graph, every value",
            why="after `licm`, which shows what a loop does not change; last of the loop passes, because it hides what a position is",
        ),
        Pass(
            "tail-calls", tail_calls, requires="SSA", preserves="every value, the order of effects",
            why="at every level, so that all let a recursion go as deep; on the host, because derivatives are made of what is written",
        ),
        Pass(
            "inline-small", inline_small, requires="SSA", preserves="every value, the order of effects",
            why="after `tail-calls`: a recursion that became a loop is inlined like anything else",
        ),
        Pass(
            "inline-recursion", inline_recursion, requires="SSA", preserves="every value, the order of effects",
            why="after `tail-calls`: what became a loop has fewer calls or none",
        ),
    )
}  # fmt: skip

LEVELS: dict[int, tuple[str, ...]] = {
    0: ("inline", "simplify-cfg"),  # kernels need their calls inlined at any level
    1: ("inline", "simplify-cfg", "fold", "cse", "checks", "dce", "simplify-cfg"),
    2: (
        *("inline", "simplify-cfg", "sccp", "fold", "dims", "fold", "simplify-cfg", "if-convert", "simplify-cfg"),
        *("fold", "cse", "dims", "fold", "cse", "checks", "fold", "dce", "simplify-cfg"),
    ),
}

# Before checks of NaN are put in (`opt/traps.py`), behind inlining: what makes blocks long and leaves few checks in them, but folds no real
# and drops nothing that is computed.
BEFORE_TRAPS: tuple[str, ...] = ("simplify-cfg", "dims", "cse", "checks", "simplify-cfg")

# After the tensor stage and before the memory plan.
HOST_LEVELS: dict[int, tuple[str, ...]] = {
    0: ("addresses", "tail-calls"),  # no backend sees `index` or `update` of an element
    1: ("addresses", "tail-calls", "dims", "simplify-cfg", "fold", "gvn", "dce", "simplify-cfg"),
    2: (
        *("addresses", "tail-calls", "inline-small", "inline-recursion", "dims", "simplify-cfg", "sccp", "fold"),
        *("thread-jumps", "simplify-cfg", "unroll"),
        *("gvn", "dead-stores", "simplify-cfg", "checks", "loop-checks", "checks", "fold", "dce", "simplify-cfg", "jam"),
        *("carry", "licm", "strength", "dce", "simplify-cfg"),
    ),
}


@dataclass
class Report:
    """How long each pass took, in seconds, in the order of running."""

    times: list[tuple[str, float]] = field(default_factory=list)


def run(
    module: Module,
    names: Sequence[str],
    verify_each: bool = False,
    disable: Sequence[str] = (),
    after: Callable[[str, Module], None] | None = None,
    stage: str = "ssa",
) -> Report:
    """Run passes by name, in place; `stage` is what the verifier is told. `after` is called with the name of each pass and the module
    (dumps). Before the tensor stages a pass is left out where it changed nothing when it ran last, and nothing has changed since.
    (On the host, passes move instructions, which is no change of one.) Raises `InternalError` that names the pass where one fails, or
    leaves SSA that does not verify.
    """
    report = Report()
    for name in names:
        if name in disable:
            continue
        start = time.perf_counter()
        try:
            before = changes()
            if stage != "ssa" or module.settled.get(name) != before:
                PASSES[name].run(module)
                module.settled[name] = before  # as it stays if the pass changed nothing
            report.times.append((name, time.perf_counter() - start))
            if verify_each:
                verify(module, stage)
        except (CompileError, InternalError) as e:
            raise InternalError(str(e), f"pass {name}") from e
        except Exception as e:
            raise InternalError(f"{type(e).__name__}: {e}", f"pass {name}") from e
        if after is not None:
            after(name, module)
    return report


def chosen(levels: Mapping[int, Sequence[str]], level: int, names: Sequence[str] | None) -> Sequence[str]:
    """The passes of a level; or with names, what every level needs and then those of the names that can stand in this place."""
    if names is None:
        return levels[level]
    here = {name for row in levels.values() for name in row}
    return [*levels[0], *(name for name in names if name in here)]


def unknown(names: Sequence[str]) -> list[str]:
    """Those names that are no passes."""
    return [n for n in names if n not in PASSES]

"""The passes over SSA as one ordered table, and what every pass gets for free: verification, timing, dumps, switching off.

`LEVELS` are lists of names; a pass that stands twice says why. The driver runs a level before and after the tensor
stages (see `driver/pipeline.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tlc.frontend.diagnostics import CompileError, InternalError
from tlc.opt.checks import checks
from tlc.opt.cse import cse
from tlc.opt.dce import dce
from tlc.opt.dims import dims
from tlc.opt.fold import fold
from tlc.opt.if_convert import if_convert
from tlc.opt.inline import inline
from tlc.opt.simplify_cfg import simplify_cfg
from tlc.ssa.ir import Module
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
            "inline", inline, requires="SSA", preserves="meaning; only calls of recursive functions remain",
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
            why="after `cse`: an index and its extent are then one value where they are equal",
        ),
        Pass(
            "dce", dce, requires="SSA", preserves="the graph, the order of effects",
            why="last: it removes what the others left",
        ),
    )
}  # fmt: skip

LEVELS: dict[int, tuple[str, ...]] = {
    0: ("inline", "simplify-cfg"),  # kernels need their calls inlined at any level
    1: ("inline", "simplify-cfg", "fold", "cse", "checks", "dce", "simplify-cfg"),
    2: (
        *("inline", "simplify-cfg", "fold", "dims", "fold", "simplify-cfg", "if-convert", "simplify-cfg"),
        *("fold", "cse", "dims", "fold", "cse", "checks", "fold", "dce", "simplify-cfg"),
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
) -> Report:
    """Run passes by name, in place. `after` is called with the name of each pass and the module (dumps). Raises `InternalError`
    that names the pass where one fails, or leaves SSA that does not verify.
    """
    report = Report()
    for name in names:
        if name in disable:
            continue
        start = time.perf_counter()
        try:
            PASSES[name].run(module)
            report.times.append((name, time.perf_counter() - start))
            if verify_each:
                verify(module)
        except (CompileError, InternalError) as e:
            raise InternalError(str(e), f"pass {name}") from e
        except Exception as e:
            raise InternalError(f"{type(e).__name__}: {e}", f"pass {name}") from e
        if after is not None:
            after(name, module)
    return report


def unknown(names: Sequence[str]) -> list[str]:
    """Those names that are no passes."""
    return [n for n in names if n not in PASSES]

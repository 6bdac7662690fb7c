"""Programs in every form print the same: variables, SSA, each level of optimization. `tests/golden/run/*.tl` say what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_runner import Case, cases
from ssa_services import Recorder

from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.opt import passes
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.ssa.lower import lower
from tlc.ssa.verify import verify

PROGRAMS = Path(__file__).parents[2] / "programs"
SMALL: dict[str, list[Any]] = {"sieve": [50], "mandelbrot": [12, 5, 20, True], "nbody": [2], "layer": [3]}


def output(module: Module, arguments: list[Any]) -> list[str]:
    services = Recorder()
    Interpreter(module, services).call("main", arguments)
    return services.lines


def in_every_form(source: Source, arguments: list[Any] | None = None) -> list[str]:
    """What the program prints; fails where a form prints something else."""
    program = check(parse(source))
    if arguments is None:
        arguments = [flag.default for flag in program.flags]
    module = lower(program)
    verify(module, "cfg")
    lines = output(module, arguments)
    for names in ((), *passes.LEVELS.values()):
        module = lower(program)
        construct(module)
        verify(module)
        passes.run(module, names, verify_each=True)
        assert output(module, arguments) == lines, names
    return lines


@pytest.mark.parametrize("case", cases("golden/run", "*.tl"), ids=str)
def test_golden_programs(case: Case, bless: bool) -> None:
    case.check(lambda source: "\n".join(in_every_form(source)), bless)


@pytest.mark.parametrize("name", SMALL)
def test_programs(name: str) -> None:
    path = PROGRAMS / f"{name}.tl"
    assert in_every_form(Source(str(path), path.read_text()), SMALL[name])

"""`--trap-nan` on random programs: where they stop, and what is said, does not depend on what is watched, nor on how the program runs.

Three ways: by the interpreter; by the interpreter, with every recipe run wherever there is one, which needs nothing to be watched; natively.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ssa_services import Recorder
from trap_programs import trap_program
from whole_program import options

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.frontend.source import Source
from tlc.ssa import interp
from tlc.ssa.ir import Instr
from tlc.ssa.recipe import recipe_of, watched_by
from tlc.ssa.world import Stop

Report = tuple[int, str, int]  # lines printed, the message of a stop, its place


def _report(run: Any, services: Recorder) -> Report:
    try:
        run()
    except Stop as e:
        return len(services.lines), e.message, e.span.start
    return len(services.lines), "", 0


def _always(self: interp.Interpreter, trap: Instr, operands: Sequence[Any], frame: object) -> Sequence[Any]:
    recipe_of(trap).run(operands[1 + watched_by(trap) :], self.services)
    return ()


@pytest.mark.parametrize("seed", [0, 7, 11, 13, 20, 21, 29, 30, 44, 50])
def test_reports_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = pipeline.front(Source("test.tl", trap_program(seed)))
    asked = replace(options(program, None, host=pipeline.hosts()[seed % len(pipeline.hosts())]), traps=True)
    natively, interpreted, looking = Recorder(), Recorder(), Recorder()
    executable = pipeline.build(program, asked, {})
    reports = [
        _report(lambda: Native(executable, natively).run(), natively),
        _report(lambda: pipeline.interpret(program, asked, interpreted), interpreted),
    ]
    monkeypatch.setitem(interp._OPS, "trap", _always)
    reports.append(_report(lambda: pipeline.interpret(program, asked, looking), looking))
    assert len(set(reports)) == 1, reports

"""The passes on SSA text: `tests/golden/opt/*.ssa`, whose second line names the passes."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.source import Source
from tlc.opt import passes
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify

CASES = cases("golden/opt", "*.ssa")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes(case: Case, bless: bool) -> None:
    def run(source: Source) -> str:
        module = parse_module(source.text, source.path)
        verify(module, "host")
        passes.run(module, [name.strip() for name in case.pipeline.split(",")], verify_each=True, stage="host")
        return print_module(module)

    case.check(run, bless)


def test_every_pass_has_a_case() -> None:
    assert {name.strip() for case in CASES for name in case.pipeline.split(",")} == set(passes.PASSES)

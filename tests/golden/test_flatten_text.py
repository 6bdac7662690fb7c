"""SSA to flat SSA: the pieces that a comprehension becomes."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.source import Source
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.flatten import flatten


def run(source: Source) -> str:
    module = parse_module(source.text, source.path)
    notes = flatten(module)
    verify(module)
    return "".join(f"# {n.span}: runs as a loop: {n.reason}\n" for n in notes) + print_module(module)


@pytest.mark.parametrize("case", cases("golden/flatten", "*.ssa"), ids=str)
def test_flatten(case: Case, bless: bool) -> None:
    case.check(run, bless)

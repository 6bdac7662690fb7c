"""SSA with `grad` to the function that computes the gradient."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.source import Source
from tlc.ssa.text import parse_module, print_function
from tlc.ssa.verify import verify
from tlc.tensor.derivative import differentiate
from tlc.tensor.flatten import flatten


def run(source: Source) -> str:
    module = parse_module(source.text, source.path)
    given = set(module.functions)
    flatten(module)
    differentiate(module)
    verify(module)
    return "\n".join(print_function(f) for name, f in module.functions.items() if name not in given)


@pytest.mark.parametrize("case", cases("golden/derivative", "*.ssa"), ids=str)
def test_derivative(case: Case, bless: bool) -> None:
    case.check(run, bless)

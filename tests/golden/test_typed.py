"""Source to typed AST: tests/golden/typed shows what the checker makes explicit."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.typed_text import print_program


@pytest.mark.parametrize("case", cases("golden/typed", "*.tl"), ids=str)
def test_typed(case: Case, bless: bool) -> None:
    case.check(lambda source: print_program(check(parse(source))), bless)

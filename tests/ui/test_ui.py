"""Diagnostics as users see them: a program that does not compile and what `tlc` says about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from golden_runner import Case, cases

from tlc.frontend.ast_text import dump
from tlc.frontend.parser import parse
from tlc.frontend.source import Source


def checked(source: Source) -> str:
    from tlc.frontend.check import check
    from tlc.frontend.typed_text import print_program

    return print_program(check(parse(source)))


PIPELINES: dict[str, Callable[[Source], str]] = {
    "parse": lambda source: dump(parse(source)),
    "check": checked,
}


@pytest.mark.parametrize("case", cases("ui", "*.tl"), ids=str)
def test_ui(case: Case, bless: bool) -> None:
    case.check(PIPELINES[case.pipeline], bless)

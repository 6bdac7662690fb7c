"""The catalogue tells the truth: the bad program of a row gets its code, the mended one does not."""

from __future__ import annotations

import pytest

from tlc.frontend.check import check
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS, ErrorRow
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

CHECKING = [row for row in ERRORS.values() if "E02" <= row.code[:3] <= "E07"]
PARSING = [row for row in ERRORS.values() if row.code.startswith("E01")]


def codes(text: str, checked: bool = False) -> set[str]:
    try:
        module = parse(Source("test.tl", text))
        if checked:
            check(module)
    except CompileError as error:
        return {d.code for d in error.diagnostics}
    return set()


@pytest.mark.parametrize("row", PARSING, ids=lambda row: row.code)
def test_the_parser_gives_the_code(row: ErrorRow) -> None:
    assert row.code in codes(row.bad)
    assert codes(row.mend) == set()


@pytest.mark.parametrize("row", CHECKING, ids=lambda row: row.code)
def test_the_checker_gives_the_code(row: ErrorRow) -> None:
    assert row.code in codes(row.bad, checked=True)
    assert codes(row.mend, checked=True) == set()


@pytest.mark.parametrize("row", [row for row in ERRORS.values() if row.code[:3] not in ("E01", "E08")], ids=lambda row: row.code)
def test_other_rows_are_no_mistakes_of_the_parser(row: ErrorRow) -> None:
    assert codes(row.bad) == set()
    assert codes(row.mend) == set()

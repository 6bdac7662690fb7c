"""The catalogue tells the truth: the bad program of a row gets its code, the mended one does not."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tlc.frontend import ast
from tlc.frontend.check import check
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS, ErrorRow
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

PARSING = [row for row in ERRORS.values() if row.code.startswith("E01")]
CHECKING = [row for row in ERRORS.values() if "E02" <= row.code[:3] <= "E07"]

# What lies beside the programs of a row: name of the file -> text.
FILES = {"E0208": {"settings.tl": "let x = 1\n"}}

SECONDS = 10  # for one program, before the compiler is taken to be caught in a loop


@pytest.fixture
def limit() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def codes(text: str, run: Callable[[ast.Module], object], folder: Path) -> set[str]:
    try:
        run(parse(Source(str(folder / "test.tl"), text)))
    except CompileError as error:
        return {d.code for d in error.diagnostics}
    return set()


@pytest.mark.parametrize("row", PARSING, ids=lambda row: row.code)
def test_the_parser_gives_the_code(row: ErrorRow, tmp_path: Path) -> None:
    assert row.code in codes(row.bad, lambda module: None, tmp_path)
    assert codes(row.mend, lambda module: None, tmp_path) == set()


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("row", CHECKING, ids=lambda row: row.code)
def test_the_checker_gives_the_code(row: ErrorRow, tmp_path: Path) -> None:
    for name, text in FILES.get(row.code, {}).items():
        (tmp_path / name).write_text(text)
    assert row.code in codes(row.bad, check, tmp_path)
    assert codes(row.mend, check, tmp_path) == set()


# The rows of intermediate forms have no programs of TL: the tests of those forms read them.
PROGRAMS = [row for row in ERRORS.values() if row not in PARSING and not row.code.startswith("E10")]


@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row.code)
def test_other_rows_are_no_mistakes_of_the_parser(row: ErrorRow, tmp_path: Path) -> None:
    assert codes(row.bad, lambda module: None, tmp_path) == set()
    assert codes(row.mend, lambda module: None, tmp_path) == set()


@pytest.mark.parametrize("row", ERRORS.values(), ids=lambda row: row.code)
def test_the_style_of_a_row(row: ErrorRow) -> None:
    """A title names the mistake, small and without an article; the cause is made of sentences; the programs end with a newline."""
    assert not row.title.startswith(("a ", "an ", "the ")) and not row.title.endswith(".")
    assert row.title[0] == "`" or row.title[0].islower()
    assert row.cause.endswith((".", ".)")) and (row.cause[0].isupper() or row.cause[0] == "`")
    assert row.cause.count("`") % 2 == 0
    assert row.bad.endswith("\n") and row.mend.endswith("\n") and row.bad != row.mend

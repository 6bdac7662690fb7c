"""docs/errors.md is the catalogue, and the catalogue has a section for every code."""

from __future__ import annotations

from pathlib import Path

from tlc.driver.error_index import SECTIONS, page
from tlc.frontend.errors import ERRORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make it again: python -m tlc.driver.error_index > docs/errors.md"


def test_every_code_has_a_section() -> None:
    assert [code for code in ERRORS if not code.startswith(tuple(SECTIONS))] == []


def test_rows_are_whole() -> None:
    for code, row in ERRORS.items():
        assert row.code == code
        assert row.title and row.cause, code
        assert not row.title.endswith("."), code

"""Diagnostics as users see them: a program that does not compile and what `tlc` says about it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from golden_runner import Case, cases

from tlc.driver.render import to_json
from tlc.frontend.ast_text import dump
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.errors import ERRORS
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


def diagnostics(case: Case) -> list[Diagnostic]:
    with pytest.raises(CompileError) as caught:
        PIPELINES[case.pipeline](case.source)
    return caught.value.diagnostics


@pytest.mark.parametrize("case", cases("ui", "*.tl"), ids=str)
def test_style(case: Case) -> None:
    """What every diagnostic is: a code of the catalogue, a place in the text, and texts that begin small and have no full stop."""
    found = diagnostics(case)
    places = [(d.span.start, d.message) for d in found]
    assert len(places) == len(set(places)), "said twice"
    for d in found:
        assert d.code in ERRORS
        assert 0 <= d.span.start <= d.span.end <= len(d.span.source.text) + 1
        for text in (d.message, d.label, d.help, *d.notes, *(label.text for label in d.labels)):
            assert not text.endswith(".") or text.endswith("...") or (text.endswith("`.") is False and "`" in text[-4:]), text
            assert not text[:1].isupper(), text
            assert text.count("`") % 2 == 0, text


@pytest.mark.parametrize("case", cases("ui", "*.tl"), ids=str)
def test_json(case: Case) -> None:
    """The same for programs: one line of JSON a diagnostic, with places that count from 1."""
    for d in diagnostics(case):
        line = to_json(d)
        data = json.loads(line)
        assert "\n" not in line
        assert (data["severity"], data["code"], data["message"], data["help"]) == ("error", d.code, d.message, d.help)
        text = case.text.split("\n")
        for place in (data, *(label for label in data["labels"] if label["path"] == case.source.path)):
            assert (place["line"], place["column"]) <= (place["end_line"], place["end_column"])
            assert 1 <= place["column"] <= len(text[place["line"] - 1]) + 1


def test_every_code_of_the_parser_and_the_checker_is_shown() -> None:
    shown = {d.code for case in cases("ui", "*.tl") for d in diagnostics(case)}
    elsewhere = {"E0208", "E0940", "E0941", "E0960", "E0961"}  # needs two files, or a later stage
    other = {code for code in ERRORS if code.startswith(("E09", "E10"))}  # what is not there yet, and texts of intermediate forms
    assert {code for code in ERRORS if code.startswith("E")} - elsewhere - other - shown == set()

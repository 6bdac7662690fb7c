"""The renderer of diagnostics: the layout of marks, other files, long and odd lines, colors, JSON."""

from __future__ import annotations

import json
import re

from tlc.driver.render import render, render_all, to_json
from tlc.frontend.diagnostics import Diagnostic, Label, Severity
from tlc.frontend.source import NOWHERE, Source, Span

TEXT = "fn f(x: f32) -> f32 {\n  let y = x + z\n  # one\n  # two\n\tg(y, y)\n}\n"
SOURCE = Source("a.tl", TEXT)


def at(word: str, source: Source = SOURCE, skip: int = 0) -> Span:
    start = source.text.index(word, skip)
    return Span(source, start, start + len(word))


def test_all_parts() -> None:
    d = Diagnostic("E0201", "unknown name `z`", at("z"), "not defined", (Label(at("y", skip=20), "in this"),), ("a note",), "write `x`")
    assert render(d) == (
        "error[E0201]: unknown name `z`\n"
        " --> a.tl:2:15\n"
        "  |\n"
        "2 |   let y = x + z\n"
        "  |       -       ^ not defined\n"
        "  |       in this\n"
        "  = note: a note\n"
        "  = help: write `x`\n"
    )


def test_lines_apart() -> None:
    d = Diagnostic("E0201", "m", at("z"), "here", (Label(at("g(y, y)"), "there"), Label(at("f32"), "and there")))
    assert render(d) == (
        "error[E0201]: m\n"
        " --> a.tl:2:15\n"
        "  |\n"
        "1 | fn f(x: f32) -> f32 {\n"
        "  |         --- and there\n"
        "2 |   let y = x + z\n"
        "  |               ^ here\n"
        "...\n"
        "5 |     g(y, y)\n"
        "  |     ------- there\n"
    )


def test_one_line_between_is_shown() -> None:
    d = Diagnostic("E0201", "m", at("z"), labels=(Label(at("# two"), "there"),))
    assert "3 |   # one\n4 |   # two\n  |   ----- there\n" in render(d)


def test_overlapping_marks() -> None:
    d = Diagnostic("E0201", "m", at("x + z"), "sum", (Label(at("let y = x + z"), "all"), Label(at("z"), "part")))
    assert "2 |   let y = x + z\n  |   --------^^^^^\n" in render(d)
    assert all(text in render(d) for text in ("sum", "all", "part"))


def test_another_file() -> None:
    other = Source("b.tl", "struct S {\n  a: f32,\n}\n")
    d = Diagnostic("E0301", "m", at("z"), "here", (Label(at("a: f32", other), "declared here"),))
    assert " ::: b.tl:2:3\n  |\n2 |   a: f32,\n  |   ------ declared here\n" in render(d)


def test_a_span_over_lines_is_marked_to_the_end_of_its_first() -> None:
    d = Diagnostic("E0301", "m", Span(SOURCE, TEXT.index("{"), len(TEXT)), "block")
    assert "1 | fn f(x: f32) -> f32 {\n  |                     ^ block\n" in render(d)


def test_the_end_of_the_file() -> None:
    d = Diagnostic("E0301", "m", Span(SOURCE, len(TEXT), len(TEXT)))
    assert render(d) == "error[E0301]: m\n --> a.tl:7:1\n  |\n7 |\n  | ^\n"


def test_wide_and_odd_characters() -> None:
    source = Source("w.tl", "x = \u4f60\u597d\x00e\u0301 + z")
    assert render(Diagnostic("E0201", "m", at("z", source))).splitlines()[-1] == "  | " + " " * 13 + "^"


def test_a_long_line_is_cut_around_the_mark() -> None:
    source = Source("l.tl", "a + " * 200 + "z" + " + b" * 200)
    lines = render(Diagnostic("E0201", "m", at("z", source))).splitlines()
    assert all(len(line) < 140 for line in lines)
    assert lines[3][lines[4].index("^")] == "z"
    assert lines[3][4] == lines[3][-1] == "\u2026"


def test_without_a_source() -> None:
    assert render(Diagnostic("E0801", "m", NOWHERE, help="h")) == "error[E0801]: m\n --> <compiler>:1:1\n  = help: h\n"


def test_warnings_and_colors() -> None:
    d = Diagnostic("W0201", "m", at("z"), "here", (Label(at("y", skip=20), "in this"),), ("n",), "h", Severity.WARNING)
    assert render(d).startswith("warning[W0201]: m\n")
    colored = render(d, color=True)
    assert "\x1b[1;33mwarning[W0201]" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == render(d)


def test_several() -> None:
    d = Diagnostic("E0201", "m", at("z"))
    assert render_all([d, d]) == render(d) + "\n" + render(d)


def test_json() -> None:
    d = Diagnostic("E0201", 'unknown "z"', at("z"), "here", (Label(at("y", skip=20), "in this"),), ("n",), "h")
    assert json.loads(to_json(d)) == {
        "severity": "error", "code": "E0201", "message": 'unknown "z"', "path": "a.tl",
        "line": 2, "column": 15, "end_line": 2, "end_column": 16, "label": "here",
        "labels": [{"path": "a.tl", "line": 2, "column": 7, "end_line": 2, "end_column": 8, "text": "in this"}],
        "notes": ["n"], "help": "h",
    }  # fmt: skip
    assert "\n" not in to_json(d)


def test_joined_emoji_and_accents_have_no_width_of_their_own() -> None:
    source = Source("e.tl", "x = \u2764\ufe0f \U0001f468\u200d\U0001f469 e\u0301 \u202e z")
    line, marks = render(Diagnostic("E0201", "m", at("z", source))).splitlines()[-2:]
    assert "\u200d" in line and "\u202e" not in line
    assert marks.index("^") == len("  | x = h ffFF e ? ")  # a heart is one cell wide, a face two


def test_lines_of_another_system() -> None:
    source = Source("w.tl", "let a = 1\r\nlet b = z\r\nlet c = 2\r\n")
    text = render(Diagnostic("E0201", "m", at("z\r\nlet c", source), "here"))
    assert "\r" not in text
    assert "2 | let b = z\n  |         ^ here\n" in text


def test_marks_far_apart_in_a_long_line() -> None:
    source = Source("l.tl", "first + " + "a + " * 200 + "z")
    d = Diagnostic("E0201", "m", at("z", source), "here", (Label(at("first", source), "there"), Label(at("a", source, 9), "between")))
    lines = render(d).splitlines()
    assert lines[3][lines[4].index("^")] == "z"
    assert all(len(line) < 150 for line in lines)
    assert [line.split("|")[1].strip() for line in lines[5:]] == ["between", "there"]


def test_a_mark_longer_than_the_window() -> None:
    source = Source("l.tl", "x = " + "a + " * 200 + "z\n")
    lines = render(Diagnostic("E0201", "m", Span(source, 4, 900), "all of it")).splitlines()
    assert all(len(line) < 150 for line in lines)
    assert "^^^ all of it" in lines[4]


def test_a_place_behind_the_text() -> None:
    for text in ("", "x", "x\n", "\n\n"):
        source = Source("s.tl", text)
        for start in range(len(text) + 1):
            for end in range(start, len(text) + 2):
                d = Diagnostic("E0101", "m", Span(source, start, end), "here")
                assert render(d).startswith("error[E0101]: m\n --> s.tl:")
                assert json.loads(to_json(d))["line"] >= 1

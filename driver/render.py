"""Diagnostics as people read them, with an excerpt of the source, and as programs read them (JSON).

    error[E0103]: `(` is never closed
     --> model.tl:2:11
      |
    2 |   let y = (x + 1
      |           ^ opened here
    3 | }
      | - `}` is found where it should be closed
      = help: add a `)`

The caret marks the cause, dashes mark the other places that the reader needs. This is the only place that knows the layout.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from typing import Any

from tlc.frontend.diagnostics import Diagnostic, Severity
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span

TAB = 4
WINDOW = 130  # columns of a line that are shown around a mark
_JOINER = "\u200d"  # makes one emoji of several

_COLORS = {
    "error": "\x1b[1;31m",
    "warning": "\x1b[1;33m",
    "bold": "\x1b[1m",
    "gutter": "\x1b[1;34m",
    "second": "\x1b[1;34m",
    "help": "\x1b[1;36m",
}
_RESET = "\x1b[0m"


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """The text of one diagnostic, ending with a newline."""
    return _Renderer(diagnostic, color).text()


def render_all(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """Several, with an empty line between."""
    return "\n".join(render(d, color) for d in diagnostics)


def to_json(diagnostic: Diagnostic) -> str:
    """One line of JSON; lines and columns count from 1, the end is exclusive."""
    d = diagnostic
    data = {
        "severity": d.severity.value,
        "code": d.code,
        "message": d.message,
        **_place(d.span),
        "label": d.label,
        "labels": [{**_place(label.span), "text": label.text} for label in d.labels],
        "notes": list(d.notes),
        "help": d.help,
    }
    return json.dumps(data, ensure_ascii=False)


def _place(span: Span) -> dict[str, Any]:
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {"path": span.source.path, "line": line, "column": column, "end_line": end_line, "end_column": end_column}


@dataclass(frozen=True)
class _Mark:
    """A stretch of one line, in columns of the screen, with its text."""

    line: int
    start: int
    end: int
    text: str
    primary: bool


class _Renderer:
    def __init__(self, diagnostic: Diagnostic, color: bool) -> None:
        self.diagnostic = diagnostic
        self.color = color
        self.severity = "error" if diagnostic.severity is Severity.ERROR else "warning"
        spans = [diagnostic.span, *(label.span for label in diagnostic.labels)]
        self.width = max(len(str(span.source.position(span.start)[0])) for span in spans)

    def text(self) -> str:
        d = self.diagnostic
        head = self._paint(self.severity, f"{self.severity}[{d.code}]") + self._paint("bold", f": {d.message}")
        lines = [head]
        for number, source in enumerate(self._sources()):
            lines += self._excerpt(source, first=number == 0)
        margin = " " * (self.width + 1) + self._paint("gutter", "=")
        lines += [f"{margin} {self._paint('bold', 'note')}: {note}" for note in d.notes]
        if d.help:
            lines.append(f"{margin} {self._paint('help', 'help')}: {d.help}")
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _paint(self, kind: str, text: str) -> str:
        return f"{_COLORS[kind]}{text}{_RESET}" if self.color and text else text

    def _sources(self) -> list[Source]:
        """That of the caret first, then the others in the order of the labels."""
        return list(dict.fromkeys([self.diagnostic.span.source, *(label.span.source for label in self.diagnostic.labels)]))

    def _gutter(self, number: int | str = "") -> str:
        return self._paint("gutter", f"{number:>{self.width}} |")

    def _excerpt(self, source: Source, first: bool) -> list[str]:
        """The lines of one source that hold marks, with the marks below each."""
        d = self.diagnostic
        places = [(d.span, d.label, True)] * first + [(label.span, label.text, False) for label in d.labels if label.span.source is source]
        arrow = self._paint("gutter", "-->" if first else ":::")
        lines = [f"{' ' * self.width}{arrow} {places[0][0]}"]
        if not source.text:
            return lines
        marks = [_mark(span, text, primary) for span, text, primary in places]
        lines.append(self._gutter())
        previous = 0
        for number in sorted({mark.line for mark in marks}):
            if previous and number == previous + 2:
                lines.append(f"{self._gutter(previous + 1)} {_cut(_shown(source.line(previous + 1)), 0)}")
            elif previous and number > previous + 2:
                lines.append(self._paint("gutter", "..."))
            lines += self._marked_line(source, number, [mark for mark in marks if mark.line == number])
            previous = number
        return lines

    def _marked_line(self, source: Source, number: int, marks: list[_Mark]) -> list[str]:
        text = _shown(source.line(number))
        left = _window(marks) if _columns(text) > WINDOW else 0
        lines = [f"{self._gutter(number)} {_cut(text, left)}"]
        marks = sorted(marks, key=lambda mark: (mark.start, mark.primary))
        inline = marks[-1] if all(mark.end <= marks[-1].start for mark in marks[:-1]) else None
        lines.append(f"{self._gutter()} {self._underline(marks, left)}{' ' + self._label(inline) if inline and inline.text else ''}")
        below = [mark for mark in marks if mark.text and mark is not inline]
        for mark in reversed(below):
            lines.append(f"{self._gutter()} {' ' * min(max(mark.start - left, 0), WINDOW)}{self._label(mark)}")
        return lines

    def _label(self, mark: _Mark) -> str:
        return self._paint(self.severity if mark.primary else "second", mark.text)

    def _underline(self, marks: list[_Mark], left: int) -> str:
        """Carets and dashes under the line; where they overlap, carets win."""
        cells: list[str] = []
        for mark in sorted(marks, key=lambda mark: mark.primary):
            end = min(mark.end, left + WINDOW)
            cells += [" "] * (end - left - len(cells))
            for column in range(max(mark.start, left), end):
                cells[column - left] = "^" if mark.primary else "-"
        parts: list[str] = []
        for cell in cells:
            kind = {"^": self.severity, "-": "second"}.get(cell)
            parts.append(self._paint(kind, cell) if kind else cell)
        return "".join(parts)


def _window(marks: list[_Mark]) -> int:
    """The first column of a long line that is shown: all marks are seen if they are near one another, else the caret."""
    first = min(mark.start for mark in marks)
    caret = next((mark.start for mark in marks if mark.primary), first)
    near = all(mark.end - first < WINDOW // 2 for mark in marks)
    return max(0, (first if near else caret) - WINDOW // 2)


def _mark(span: Span, text: str, primary: bool) -> _Mark:
    """A span that goes on in the next line is marked to the end of its first."""
    line, column = span.source.position(span.start)
    whole = span.source.line(line)
    last = min(len(whole), column - 1 + span.end - span.start)
    start = _columns(_shown(whole[: column - 1]))
    end = _columns(_shown(whole[:last]))
    return _Mark(line, start, max(end, start + 1), text, primary)


def _shown(text: str) -> str:
    """A line with its tabs widened and without what would disturb a terminal."""
    return "".join(" " * TAB if c == "\t" else c if c.isprintable() or c == _JOINER else "" if c == "\r" else "\ufffd" for c in text)


def _cell_width(c: str) -> int:
    if unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0  # accents, and what joins or varies emoji
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cell_width, text))


def _cut(text: str, left: int) -> str:
    """The part of a line from column `left`, a window wide; `…` where something is left out."""
    column, shown = 0, []
    for c in text:
        if left <= column < left + WINDOW:
            shown.append(c)
        column += _cell_width(c)
    if shown and left:
        shown[0] = "…"
    if shown and column > left + WINDOW:
        shown[-1] = "…"
    return "".join(shown)

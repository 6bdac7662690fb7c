"""Reading texts of intermediate forms: their words, and what is said of mistakes in them."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span

_CODE = "E0101"  # unexpected text


@dataclass(frozen=True)
class Token:
    """A word. `kind` is the name of the pattern's group, `end`, or of punctuation the text itself."""

    kind: str
    text: str
    span: Span


class Tokens:
    """The words of a source, one after the other. `pattern` has a group for each kind; `skip` is left out."""

    def __init__(self, source: Source, pattern: re.Pattern[str]) -> None:
        self.tokens = _tokens(source, pattern)
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, kind: str) -> bool:
        if self.token.kind == kind:
            self.at += 1
            return True
        return False

    def expect(self, kind: str, what: str = "") -> Token:
        if self.token.kind != kind:
            fail(self.token.span, f"expected {what or f'`{kind}`'}, found `{self.token.text}`")
        return self.next()


def _tokens(source: Source, pattern: re.Pattern[str]) -> list[Token]:
    out: list[Token] = []
    position, text = 0, source.text
    while position < len(text):
        m = pattern.match(text, position)
        if m is None:
            fail(Span(source, position, position + 1), f"unexpected character `{text[position]}`")
        if m.lastgroup != "skip":
            kind = m[0] if m.lastgroup == "punctuation" else m.lastgroup or ""
            out.append(Token(kind, m[0], Span(source, position, m.end())))
        position = m.end()
    out.append(Token("end", "end of the text", Span(source, len(text), len(text))))
    return out


def fail(span: Span, message: str, help: str = "") -> NoReturn:
    raise CompileError([Diagnostic(_CODE, message, span, help=help)])


def unquote(token: Token, start: int = 0) -> str:
    """What a quoted word says; `start` is where its quote stands."""
    try:
        text = ast.literal_eval(token.text[start:])
    except (SyntaxError, ValueError) as e:
        fail(token.span, f"malformed string: {e.args[0]}")
    assert isinstance(text, str)
    return text


def near(name: str, known: Iterable[str]) -> str:
    """A help that names what is spelled nearly so, if anything is."""
    match difflib.get_close_matches(name, list(known), 1):
        case [other]:
            return f"did you mean `{other}`?"
    return ""

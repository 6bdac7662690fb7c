"""What to say when no production allows a token: what was found, what could have stood there, and a hint.

What could have stood there is asked of the parser's own tables: the text before the token is parsed again, and every
kind of token is tried on that stack. So the list is exact, and a change of the grammar needs none here. The hints have a
file of their own, `syntax_hints.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tlc.frontend.diagnostics import Diagnostic, Label
from tlc.frontend.source import Source, Span
from tlc.frontend.syntax_hints import HINTS, OPERATORS_OF_EXPRESSIONS, POSTFIX, Place
from tlc.frontend.tokens import CLOSING, COMPARISONS, KEYWORDS, OPENING, OPERATORS, TERMINALS, Token

# ---------------------------------------------------------------- names of tokens

_SYMBOLS = {kind: symbol for symbol, kind in {**OPERATORS, **OPENING, **CLOSING, ":": "COLON"}.items()}

_KINDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "NEWLINE": "the end of the line",
    "$end": "the end of the file",
    "STRING_START": "a string",
    "STRING_END": 'the closing `"`',
    "HOLE_END": "the `}` that ends the interpolation",
    "ATTRIBUTE": "`@`",
    "WILD": "`?`",
    "AUGASSIGN": "`+=`",
    "SPEC": "`:`",
}

# A group is named by one phrase if all of it could stand here.
_ANY_EXPRESSION = {
    "NAME", "NUMBER", "STRING_START", "MINUS", "NOT", "LPAREN", "LBRACKET", "LBRACE", "FN", "IF", "TRUE",
    "FOR", "REDUCER", "QUANTIFIER", "TILDE", "FALSE", "WILD",
}  # fmt: skip
_EXPRESSION = {"NAME", "NUMBER", "STRING_START", "MINUS", "NOT", "LPAREN", "LBRACKET", "LBRACE", "FN", "IF", "TRUE"}
_GROUPS = (
    ("a definition", {"STRUCT", "CONST", "USE"}, {"STRUCT", "CONST", "USE", "EXTERN", "ATTRIBUTE", "FN"}),
    ("a statement", {"LET", "WHILE"}, {"LET", "VAR", "WHILE", "FOR", "BREAK", "CONTINUE", "RETURN", "ASSERT", *_ANY_EXPRESSION}),
    ("an expression", _EXPRESSION, _ANY_EXPRESSION),
    ("a type", {"NAME", "LPAREN", "FN"}, {"NAME", "LPAREN", "FN"}),
)


def _phrase(kind: str) -> str:
    if kind in _KINDS:
        return _KINDS[kind]
    return f"`{_SYMBOLS.get(kind, kind.lower())}`"


# ---------------------------------------------------------------- what could have stood there


class Machine:
    """PLY's machine, stopped before the token that it cannot take."""

    def __init__(self, machine: Any) -> None:
        self.action, self.goto, self.productions = machine.action, machine.goto, machine.productions
        self.states: list[int] = list(machine.statestack)
        self.symbols: list[str] = [symbol.type for symbol in machine.symstack]

    def accepts(self, kind: str) -> bool:
        """Whether a token of this kind could come next: reduce as the tables say until it is shifted or refused."""
        states = list(self.states)
        while True:
            step = self.action[states[-1]].get(kind)
            if step is None or step >= 0:
                return step is not None
            production = self.productions[-step]
            if production.len:
                del states[-production.len :]
            states.append(self.goto[states[-1]][production.name])

    def expected(self) -> set[str]:
        return {kind for kind in (*TERMINALS, "$end") if self.accepts(kind)}


def _expectation(kinds: set[str]) -> str:
    """`an expression`, or `,` or `)`: the alternatives, without those that nearly always could stand there."""
    left = set(kinds)
    phrases = []
    for phrase, needed, covered in _GROUPS:
        if needed <= left:
            phrases.append(phrase)
            left -= covered
    if ("PLUS" in left or left >= POSTFIX) and left - OPERATORS_OF_EXPRESSIONS - POSTFIX:
        left -= OPERATORS_OF_EXPRESSIONS | POSTFIX  # an expression or type that could go on: name what would end it
    if "ARROW" in left:
        left -= {"NEWLINE", "$end"}  # only an `extern` function could end here
    if "NEWLINE" in left:
        left -= {"NEWLINE", "$end", "RBRACE", "ELSE", "ASSIGN", "AUGASSIGN"}
        phrases.append("the end of the statement")
    phrases += [_phrase(kind) for kind in (*TERMINALS, "$end") if kind in left]
    phrases = list(dict.fromkeys(phrases))
    if len(phrases) > 5:
        return ""
    return phrases[0] if len(phrases) == 1 else ", ".join(phrases[:-1]) + " or " + phrases[-1] if phrases else ""


# ---------------------------------------------------------------- the diagnostic


def explain(source: Source, tokens: Sequence[Token], at: int, before: Machine, symbols: list[str]) -> Diagnostic:
    """`before` is the machine before token `at` was read; `symbols` its stack after the reductions that this token allowed."""
    if chain := _chained(tokens, at, symbols):
        return chain
    expected = before.expected()
    place = Place(source, tokens, at, expected, before.symbols)
    wanted = _expectation(expected)
    found = _found(place)
    message = f"expected {wanted}, found {found}" if wanted else f"unexpected {found.removeprefix('the keyword ')}"
    diagnostic = Diagnostic("E0101", message, _span(place))
    for hint in HINTS:
        if text := hint(place):
            return replace(diagnostic, help=text)
    return diagnostic


def _chained(tokens: Sequence[Token], at: int, symbols: list[str]) -> Diagnostic | None:
    """`a < b < c`"""
    comparisons = set(COMPARISONS.values())
    if at >= len(tokens) or tokens[at].type not in comparisons or symbols[-1] != "expression" or symbols[-2] not in comparisons:
        return None
    depth = 0
    for first in reversed(tokens[:at]):
        if first.type in CLOSING.values():
            depth += 1
        elif first.type in OPENING.values():
            depth -= 1
        elif depth == 0 and first.type in comparisons:
            label = (Label(first.span, "the comparison before"),)
            help = f"write `a {first.text} b and b {tokens[at].text} c`"
            return Diagnostic("E0109", "comparisons do not chain", tokens[at].span, labels=label, help=help)
    return None


def _found(place: Place) -> str:
    if place.kind() == "NEWLINE" and place.text() == ";":
        return "`;`"
    if place.kind() in ("NEWLINE", "$end", "STRING_START"):
        return _phrase(place.kind())
    if place.kind() == "SPEC":
        return "`:`"
    word = place.text() in KEYWORDS
    return f"{'the keyword ' if word else ''}`{place.text()}`"


def _span(place: Place) -> Span:
    """The token; for the end of a line or file the place just after the last word."""
    if place.kind() in ("NEWLINE", "$end") and place.text() != ";" and place.at > 0:
        end = place.tokens[place.at - 1].span.end
        return Span(place.source, end, end + 1)
    if place.at < len(place.tokens):
        return place.tokens[place.at].span
    return Span(place.source, len(place.source.text), len(place.source.text))

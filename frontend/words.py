"""Text to words, by PLY's `lex`: the patterns, and the open brackets and strings that some of them depend on.

A string becomes a run of tokens, so that an interpolation is parsed like any other expression:

    "loss {l:.4f}"    STRING_START TEXT HOLE NAME SPEC HOLE_END STRING_END

The brackets decide about newlines and about the end of an interpolation, and they let an unclosed one be reported at its
opening. A mistake never stops the work: it is noted, the stream is mended, and the next word is read.
"""

from __future__ import annotations

import re
import sys
from dataclasses import field
from functools import cache
from typing import Any

from ply import lex

from tlc.frontend.diagnostics import Diagnostic, Label
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span
from tlc.frontend.tokens import CLOSING, OPENING, OPERATORS, PARTNER, TERMINALS, Token

if sys.flags.optimize > 1:
    raise ImportError("tlc needs docstrings: PLY reads its rules from them; run Python without -OO")

# PLY wants to know every type that a rule may give. Those of the second row are not for the grammar.
tokens = (*TERMINALS, "COMMENT", "DOC", "SEMICOLON", "OPERATOR", "OPENING", "CLOSING", "ESCAPE")

# What begins a definition; in the first column nothing else does.
DEFINITION = re.compile(r"(fn[ \t]+\w|struct\b|const\b|use\b|extern\b)")

_OPENED_BY = {")": "(", "]": "[", "}": "{"}

_CHARACTER_HELP = {
    "'": 'a string is written with `"`',
    "\u201c": 'a string is written with `"`',
    "\u201d": 'a string is written with `"`',
    "\u2018": 'a string is written with `"`',
    "\u2019": 'a string is written with `"`',
    "!": "negation is written `not`, and `!=` is one word",
    "\\": "a line goes on after an operator or a comma, and inside `( )` and `[ ]`",
    "?": "",
    "\u00d7": "the product is written `*`",
    "\u00f7": "the quotient is written `/`",
    "\u2212": "minus is written `-`",
    "\u2013": "minus is written `-`",
    "\u2264": "write `<=`",
    "\u2265": "write `>=`",
    "\u2260": "write `!=`",
    "\u2192": "write `->`",
    "\u21d2": "write `=>`",
    "\u2026": "write `...`",
    "\u00a0": "this is a no-break space; write an ordinary blank",
}

_OTHER_QUOTES = re.compile("'[^'\n]*'|\u201c[^\u201d\n]*\u201d|\u2018[^\u2019\n]*\u2019")


@dataclass
class Words:
    """What PLY's rules share: `open` holds the brackets, strings and interpolations that are open, innermost last."""

    source: Source
    open: list[Token] = field(default_factory=list)
    suspects: list[tuple[Token, Span]] = field(default_factory=list)  # `{` and its `}` at another indentation
    diagnostics: list[Diagnostic] = field(default_factory=list)
    restarted: bool = False  # a definition began although brackets were open

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def report(self, code: str, message: str, span: Span, label: str = "", help: str = "", labels: tuple[Label, ...] = ()) -> None:
        self.diagnostics.append(Diagnostic(code, message, span, label, labels, (), help))

    def indentation(self, offset: int) -> int:
        start = self.source.text.rfind("\n", 0, offset) + 1
        line = self.source.text[start:offset]
        return len(line) - len(line.lstrip())

    def first_in_line(self, offset: int) -> bool:
        start = self.source.text.rfind("\n", 0, offset) + 1
        return not self.source.text[start:offset].strip()

    def report_unclosed(self, found: Span, what: str) -> None:
        """One message for all that is open: at the `{` whose `}` is oddly indented, else at the innermost opening."""
        if self.suspects:
            opening, closing = self.suspects[0]
            label = Label(closing, "this `}` closes it, but stands at another indentation")
        else:
            opening, label = self.open[-1], Label(found, what)
        self.report("E0103", f"`{opening.text}` is never closed", opening.span, "opened here", f"add a `{PARTNER[opening.type]}`", (label,))


# ---------------------------------------------------------------- PLY's rules (a function's docstring is its pattern; order matters)

states = (("string", "exclusive"),)

t_ignore = " \t\r\f\ufeff"
t_string_ignore = ""


def t_COMMENT(t: Any) -> Any:
    r"\#[^\n]*"
    if t.value.startswith("##") and not t.value.startswith("###") and t.lexer.words.first_in_line(t.lexpos):
        t.type = "DOC"
        return t
    return None


def t_ANY_NEWLINE(t: Any) -> Any:
    r"\n"
    t.lexer.lineno += 1
    words: Words = t.lexer.words
    if any(opening.type == "STRING_START" for opening in words.open):
        leave_string(t.lexer, t.lexpos)
    if words.open and words.open[-1].type != "LBRACE":
        return None
    t.type = "NEWLINE"
    return t


def t_SEMICOLON(t: Any) -> Any:
    r";"
    t.type = "NEWLINE"
    return t


def t_NUMBER(t: Any) -> Any:
    r"0[xXbBoO]\w+|[0-9][0-9_]*(\.[0-9][0-9_]*)?([eE][+-]?[0-9][0-9_]*)?\w*|\.[0-9]\w*"
    text, end = t.lexer.lexdata, t.lexer.lexpos
    after = text[end : end + 2]
    if "." in t.value and after[:1] == "." and after[1:].isdigit():
        t.lexer.lexpos = end = re.compile(r"[.\w]*").match(text, end).end()  # type: ignore[union-attr]
        t.lexer.words.report("E0108", f"`{text[t.lexpos : end]}` has two points", t.lexer.words.span(t.lexpos, end))
        t.value = "0.0"
        return t
    bare_point = after[:1] == "." and not (after[1:] == "." or after[1:].isidentifier())
    words: Words = t.lexer.words
    if t.value[0] == "." and re.match(r"[\w)\]]", text[t.lexpos - 1 : t.lexpos]):
        words.report(
            "E0108",
            "a field has a name, not a number",
            words.span(t.lexpos, end),
            help=f"an element of a tuple is written `[{t.value[1:]}]`",
        )
        return None
    if bare_point or t.value[0] == ".":
        span = words.span(t.lexpos, end + bare_point)
        mended = "0" + t.value if t.value[0] == "." else t.value + ".0"
        words.report("E0108", "a real number has digits on both sides of its point", span, help=f"write `{mended}`")
        t.lexer.lexpos = span.end
        t.value = mended
    return t


def t_NAME(t: Any) -> Any:
    r"[^\W\d]\w*"
    words: Words = t.lexer.words
    if not t.value.isidentifier():
        words.report("E0102", f"`{t.value}` is not a name", words.span(t.lexpos, t.lexer.lexpos), help="a name has letters, digits and `_`")
    column_one = t.lexpos == 0 or t.lexer.lexdata[t.lexpos - 1] == "\n"
    if words.open and column_one and DEFINITION.match(t.lexer.lexdata, t.lexpos):
        words.report_unclosed(words.span(t.lexpos, t.lexer.lexpos), "the next definition begins here")
        words.open.clear()
        words.suspects.clear()
        words.restarted = True
    return t


def t_WILD(t: Any) -> Any:
    r"\?([^\W\d]\w*)?"
    return t


def t_COLON(t: Any) -> Any:
    r":"
    words: Words = t.lexer.words
    if words.open and words.open[-1].type == "HOLE":
        return _format_spec(t)
    return t


def t_OPERATOR(t: Any) -> Any:
    r"\.\.\.|\.\.|\.|\*\*=|//=|<<=|>>=|\*\*|//|<<|>>|->|=>|==|!=|<=|>=|[-+*/%@&^|]=|[-+*/%@&^|<>=~,]"
    t.type = OPERATORS[t.value]
    return t


def t_OPENING(t: Any) -> Any:
    r"[(\[{]"
    words: Words = t.lexer.words
    t.type = OPENING[t.value]
    words.open.append(Token(t.type, t.value, words.span(t.lexpos, t.lexpos + 1)))
    return t


def t_CLOSING(t: Any) -> Any:
    r"[)\]}]"
    words: Words = t.lexer.words
    span = words.span(t.lexpos, t.lexpos + 1)
    matching = _matching(words, t.value)
    if matching is None:
        if words.open and words.open[-1].type in ("LPAREN", "LBRACKET"):
            opening = words.open.pop()
            label = (Label(opening.span, "opened here"),)
            words.report("E0103", f"`{t.value}` does not close `{opening.text}`", span, f"expected `{PARTNER[opening.type]}`", labels=label)
        else:
            words.report("E0104", f"`{t.value}` closes nothing", span, f"no `{_OPENED_BY[t.value]}` is open here")
        return None
    if matching < len(words.open) - 1:
        words.report_unclosed(span, f"`{t.value}` is found where it should be closed")
    opening = words.open[matching]
    del words.open[matching:]
    if not words.open:
        words.suspects.clear()
    if opening.type == "HOLE":
        t.type = "HOLE_END"
        t.lexer.pop_state()
        return t
    t.type = CLOSING[t.value]
    if t.type == "RBRACE" and words.first_in_line(t.lexpos) and words.indentation(t.lexpos) != words.indentation(opening.span.start):
        words.suspects.append((opening, span))
    return t


def t_STRING_START(t: Any) -> Any:
    r'"'
    words: Words = t.lexer.words
    words.open.append(Token("STRING_START", '"', words.span(t.lexpos, t.lexpos + 1)))
    t.lexer.push_state("string")
    return t


def t_string_STRING_END(t: Any) -> Any:
    r'"'
    t.lexer.words.open.pop()
    t.lexer.pop_state()
    return t


def t_string_TEXT(t: Any) -> Any:
    r'[^"\\{}\n]+|\{\{|\}\}'
    return t


def t_string_ESCAPE(t: Any) -> Any:
    r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^\n])"
    t.type = "TEXT"
    return t


def t_string_HOLE(t: Any) -> Any:
    r"\{"
    words: Words = t.lexer.words
    span = words.span(t.lexpos, t.lexpos + 1)
    empty = re.compile(r"[ \t]*[:}]").match(t.lexer.lexdata, span.end)
    if empty:
        words.report("E0107", "an interpolation without an expression", words.span(t.lexpos, empty.end()), help="a brace is written `{{`")
    words.open.append(Token("HOLE", "{", span))
    t.lexer.push_state("INITIAL")
    return t


def t_string_CLOSING(t: Any) -> Any:
    r"\}"
    words: Words = t.lexer.words
    words.report("E0107", "a single `}` in a string", words.span(t.lexpos, t.lexpos + 1), help="a brace is written `}}`")
    t.type = "TEXT"
    return t


def t_error(t: Any) -> None:
    words: Words = t.lexer.words
    character = t.value[0]
    quoted = _OTHER_QUOTES.match(t.lexer.lexdata, t.lexpos)
    end = quoted.end() if quoted else t.lexpos + 1
    while end < len(t.lexer.lexdata) and t.lexer.lexdata[end] == character:
        end += 1
    shown = character if character.isprintable() else f"U+{ord(character):04X}"
    words.report("E0102", f"unknown character `{shown}`", words.span(t.lexpos, end), help=_CHARACTER_HELP.get(character, ""))
    if character == "\\" and t.lexer.lexdata[end : end + 1] == "\n":
        end += 1  # the line was meant to go on
    t.lexer.skip(end - t.lexpos)


def t_string_error(t: Any) -> None:
    """Only a backslash at the end of the line gets here."""
    words: Words = t.lexer.words
    words.report("E0107", "a string does not go on in the next line", words.span(t.lexpos, t.lexpos + 1))
    t.lexer.skip(1)


def _matching(words: Words, closing: str) -> int | None:
    """The open bracket that this closes: the innermost of its kind, but none outside the string around."""
    for index in range(len(words.open) - 1, -1, -1):
        kind = words.open[index].type
        if kind == "STRING_START":
            return None
        if PARTNER[kind] == closing:
            return index
        if kind == "HOLE":
            return None
    return None


def _format_spec(t: Any) -> Any:
    """`:.4f` up to the `}` that ends the interpolation."""
    words: Words = t.lexer.words
    match = re.compile(r'[^{}"\n]*').match(t.lexer.lexdata, t.lexpos)
    assert match
    if t.lexer.lexdata[match.end() : match.end() + 1] == "{":
        span = words.span(match.end(), match.end() + 1)
        words.report("E0107", "a format specification cannot hold an interpolation", span)
    t.lexer.lexpos = match.end()
    t.type, t.value = "SPEC", match.group()
    return t


def leave_string(lexer: Any, at: int) -> None:
    """A newline (or the end of the file) inside a string: report it and go on as if the line had closed all of it."""
    words: Words = lexer.words
    first = next(i for i, opening in enumerate(words.open) if opening.type == "STRING_START")
    opening = words.open[first]
    hole = next((o for o in words.open[first:] if o.type == "HOLE"), None)
    labels = (Label(hole.span, "this `{` begins an interpolation that is not closed"),) if hole else ()
    words.diagnostics[:] = [d for d in words.diagnostics if d.span.start < opening.span.start]  # they follow from this one
    words.report(
        "E0106", "a string is not closed at the end of its line", words.span(opening.span.start, at), 'expected `"`', labels=labels
    )
    del words.open[first:]
    line_start = words.source.text.rfind("\n", 0, opening.span.start) + 1
    swallowed = {"LPAREN", "LBRACKET"} | ({"LBRACE"} if words.source.text[:at].rstrip().endswith("}") else set())
    while words.open and words.open[-1].type in swallowed and words.open[-1].span.start >= line_start:
        words.open.pop()
    lexer.lexstatestack.clear()
    lexer.begin("INITIAL")


@cache
def _lexer() -> Any:
    return lex.lex(module=sys.modules[__name__], reflags=re.VERBOSE)


def reader(source: Source) -> tuple[Any, Words]:
    """PLY's lexer at the beginning of a source (`token()` gives the next word), and what it keeps beside."""
    lexer = _lexer().clone()
    lexer.words = words = Words(source)
    lexer.input(source.text)
    return lexer, words

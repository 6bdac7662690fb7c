"""Text to tokens: `tokenize`. It decides which newlines end a statement, which names are keywords, and where documentation belongs.

A newline ends a statement unless the innermost bracket is `(` or `[`, the line ends with a word that waits for more, or
the next begins with one that goes on. A line that begins with an operator is reported: it looks as if it went on.
"""

from __future__ import annotations

from dataclasses import field

from tlc.frontend.diagnostics import Diagnostic, Label
from tlc.frontend.literals import read_number, read_text
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span
from tlc.frontend.tokens import ARITHMETIC, COMPARISONS, KEYWORDS, OPENING, REDUCERS, Token
from tlc.frontend.words import DEFINITION, Words, leave_string, reader

_BINARY = {*COMPARISONS.values(), *ARITHMETIC.values(), "AND", "OR", "AS"}
_OPEN_ENDED = {*_BINARY, "ASSIGN", "AUGASSIGN", "ARROW", "FATARROW", "COMMA", "DOTDOT", "IN", "BY"}

# A newline after these, or before those, ends nothing; a line that starts with one of the last kind is an error.
_CONTINUES_AFTER = {*_OPEN_ENDED, *OPENING.values(), "COLON", "NOT", "TILDE", "DOT"}
_CONTINUES_BEFORE = {"RBRACE", "DOT", "ELSE"}
_NEVER_FIRST = _OPEN_ENDED

# These begin a statement or definition whatever is before them: the mistake is then at the end of the line above.
_ALWAYS_FIRST = {"LET", "VAR", "WHILE", "BREAK", "CONTINUE", "RETURN", "ASSERT", "STRUCT", "CONST", "USE", "EXTERN"}


@dataclass
class Lexed:
    """The tokens of a source, what was wrong with its words, and the documentation of the file.

    `cuts`: indices of the tokens where a definition began although brackets were open, which were then forgotten.
    `waits`: nothing is wrong but that the text ends inside brackets, or with documentation that belongs to nothing yet.
    """

    tokens: list[Token]
    cuts: list[int]
    diagnostics: list[Diagnostic]
    doc: str
    waits: bool = False


@dataclass
class _Docs:
    """The `##` lines just above: they belong to the token that begins the next line; the first block, if free, to the file."""

    lines: list[str] = field(default_factory=list)
    last_line: int = -1
    file_doc: str = ""

    def add(self, text: str, line: int, first: bool) -> None:
        if line != self.last_line + 1:
            self.drop(first)
        self.lines.append(text[2:].removeprefix(" ").rstrip())
        self.last_line = line

    def drop(self, first: bool) -> None:
        if first and self.lines and not self.file_doc:
            self.file_doc = "\n".join(self.lines)
        self.lines.clear()

    def take(self, line: int, first: bool) -> str:
        doc = "\n".join(self.lines) if line == self.last_line + 1 else ""
        if doc:
            self.lines.clear()
        else:
            self.drop(first)
        return doc


def tokenize(source: Source) -> Lexed:
    """All tokens of a source. Mistakes in words and brackets are in the result's diagnostics; the stream is mended."""
    lexer, words = reader(source)
    out: list[Token] = []
    cuts: list[int] = []
    docs = _Docs()
    newline: Token | None = None
    while (raw := lexer.token()) is not None:
        kind: str = raw.type
        if kind == "DOC":
            docs.add(raw.value, raw.lineno, not out)
            continue
        token = Token(kind, raw.value, Span(source, raw.lexpos, lexer.lexpos))
        if kind == "NEWLINE":
            if newline is None or (newline.text == "\n" and token.text == ";"):
                newline = token
            continue
        if docs.lines:
            token.doc = docs.take(raw.lineno, not out)
        if kind == "NAME":
            _classify(token, out, source.text)
        elif kind == "NUMBER":
            read_number(token, words.report)
        elif kind == "TEXT":
            read_text(token, words.report)
        elif kind == "AT" and not out:
            token.type = "ATTRIBUTE"  # behind a newline, `_ends_statement` decides
        if words.restarted:
            words.restarted = False
            cuts.append(len(out))
            newline = None
        if newline is not None:
            if out and _ends_statement(words, out[-1], newline, token):
                out.append(newline)
            newline = None
        out.append(token)
    waits = bool(words.open or docs.lines) and not words.diagnostics and all(o.type != "STRING_START" for o in words.open)
    docs.drop(not out)
    if any(opening.type == "STRING_START" for opening in words.open):
        leave_string(lexer, len(source.text))
    if words.open:
        end = max(0, len(source.text.rstrip()))
        words.report_unclosed(Span(source, end, end), "the file ends here")
    return Lexed(out, cuts, words.diagnostics, docs.file_doc, waits)


def _classify(token: Token, before: list[Token], text: str) -> None:
    """A name may be a keyword, a reducer (directly before `[`, and not a field), or the number `inf` or `nan`."""
    word = token.text
    keyword = KEYWORDS.get(word)
    if keyword is not None:
        token.type = keyword
    elif before and before[-1].type == "DOT":
        return
    elif word in REDUCERS and text[token.span.end : token.span.end + 1] == "[":
        token.type = REDUCERS[word]
    elif word in ("inf", "nan"):
        token.type, token.literal = "NUMBER", (float(word), "")


def _ends_statement(words: Words, before: Token, newline: Token, after: Token) -> bool:
    """Whether the newline (or `;`) between two tokens ends a statement. Only asked where the innermost bracket allows it."""
    if after.type == "RBRACE" or before.type == "LBRACE":
        return False
    if newline.text == ";" or after.type in _ALWAYS_FIRST:
        return True
    if after.type == "FN" and DEFINITION.match(words.source.text, after.span.start) and not words.open:
        return True
    if before.type in _CONTINUES_AFTER or after.type in _CONTINUES_BEFORE:
        return False
    if after.type not in _NEVER_FIRST:
        return True
    following = words.source.text[after.span.end : after.span.end + 1]
    if after.type == "MINUS" and following not in (" ", "\t"):
        return True
    if after.type == "AT" and not words.open and following.isidentifier():
        after.type = "ATTRIBUTE"
        return True
    _report_leading_operator(words, before, after)
    return False


def _report_leading_operator(words: Words, before: Token, after: Token) -> None:
    comment = after.text in ("//", "/") and words.source.text[after.span.start :][:2] in ("//", "/*")
    what = f"end the line above with `{after.text}`"
    if after.type == "MINUS":
        what += ", or write `-x` without a blank for a negative value"
    if comment:
        what += "; a comment starts with `#`"
    words.report(
        "E0105",
        f"a line cannot start with `{after.text}`",
        after.span,
        "",
        what,
        (Label(Span(words.source, before.span.end - 1, before.span.end), "a newline here ends the statement"),),
    )

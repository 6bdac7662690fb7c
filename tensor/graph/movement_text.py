"""The lines of graphs of movement ops (`tensor/graph/movement.py`): `%name = op arguments : attributes`, as data.

Arguments are names of values, numbers, and tuples of numbers and tuples; attributes are `name=value`. `#` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span

_NUMBER = r"-?(?:inf|nan|\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)(?!\w)"
_TOKEN = re.compile(rf"[ \t]+|(?P<value>%\w+)|(?P<number>{_NUMBER})|(?P<word>[A-Za-z_]\w*)|(?P<punct>[(),:=])")


@dataclass(frozen=True)
class Name:
    """A value's, with its `%`, or a word."""

    text: str
    span: Span


@dataclass(frozen=True)
class Number:
    value: int | float
    span: Span


@dataclass(frozen=True)
class Tuple:
    items: tuple[Number | Tuple, ...]
    span: Span


@dataclass(frozen=True)
class Attribute:
    name: str
    value: Name | Number | Tuple
    span: Span


@dataclass(frozen=True)
class Definition:
    name: Name
    op: Name
    args: tuple[Name | Number | Tuple, ...]
    attributes: dict[str, Attribute]
    span: Span


@dataclass(frozen=True)
class Output:
    names: tuple[Name, ...]


def read_lines(source: Source) -> Iterator[Definition | Output | CompileError]:
    """Every line that is not empty; of a line that cannot be read, what is wrong with it."""
    for start, text in zip(source.line_starts, source.text.split("\n"), strict=True):
        code = text.partition("#")[0].rstrip()
        if code.strip():
            try:
                yield _Parser(source, start, code).line()
            except CompileError as error:
                yield error


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    span: Span


class _Parser:
    """One line."""

    def __init__(self, source: Source, start: int, text: str) -> None:
        self.source = source
        self.tokens = list(self.scan(start, text))
        self.position = 0

    def scan(self, start: int, text: str) -> Iterator[_Token]:
        at = 0
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                raise self.error("E1011", f"unexpected character `{text[at]}`", Span(self.source, start + at, start + at + 1))
            if m.lastgroup:
                yield _Token(m.lastgroup, m.group(), Span(self.source, start + m.start(), start + m.end()))
            at = m.end()
        yield _Token("end", "", Span(self.source, start + len(text), start + len(text)))

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def take(self) -> _Token:
        self.position += 1
        return self.tokens[self.position - 1]

    def error(self, code: str, message: str, span: Span) -> CompileError:
        return CompileError([Diagnostic(code, message, span)])

    def expected(self, what: str) -> CompileError:
        found = f"`{self.token.text}`" if self.token.text else "the end of the line"
        return self.error("E1011", f"expected {what}, found {found}", self.token.span)

    def expect(self, text: str) -> None:
        if self.token.text != text:
            raise self.expected(f"`{text}`")
        self.take()

    def line(self) -> Definition | Output:
        if self.token.text == "output":
            return self.output()
        if self.token.kind != "value":
            raise self.expected("a definition `%name = op ...`")
        name = self.name()
        self.expect("=")
        if self.token.kind != "word":
            raise self.expected("an op")
        op = self.name()
        args: list[Name | Number | Tuple] = []
        while self.token.kind != "end" and self.token.text != ":":
            if args:
                self.expect(",")
            args.append(self.name() if self.token.kind == "value" else self.number_or_tuple("a value, a number or a tuple"))
        attributes = self.attributes() if self.token.text == ":" else {}
        return Definition(name, op, tuple(args), attributes, name.span.to(self.tokens[-2].span))

    def output(self) -> Output:
        self.take()
        names: list[Name] = []
        while self.token.kind != "end":
            if names:
                self.expect(",")
            if self.token.kind != "value":
                raise self.expected("a value")
            names.append(self.name())
        return Output(tuple(names))

    def name(self) -> Name:
        token = self.take()
        return Name(token.text, token.span)

    def number_or_tuple(self, what: str) -> Number | Tuple:
        if self.token.kind == "number":
            t = self.take()
            plain = t.text.replace("_", "")
            return Number(int(plain) if re.fullmatch(r"-?\d+", plain) else float(plain), t.span)
        if self.token.text != "(":
            raise self.expected(what)
        start = self.take().span
        items: list[Number | Tuple] = []
        while self.token.text != ")":
            items.append(self.number_or_tuple("a number, `(` or `)`"))
            if self.token.text != ")":
                self.expect(",")
        return Tuple(tuple(items), start.to(self.take().span))

    def attributes(self) -> dict[str, Attribute]:
        """`: dtype=f32 slot=0`"""
        self.take()
        found: dict[str, Attribute] = {}
        while self.token.kind != "end":
            if self.token.kind != "word":
                raise self.expected("an attribute `name=value`")
            name = self.name()
            self.expect("=")
            value = self.name() if self.token.kind == "word" else self.number_or_tuple("a word, a number or a tuple")
            span = name.span.to(value.span)
            if name.text in found:
                raise self.error("E1020", f"`{name.text}` is given twice", span)
            found[name.text] = Attribute(name.text, value, span)
            if self.token.text == ",":
                self.take()
        return found

"""Source text and places in it. A span travels with every token, tree node, instruction and kernel statement."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from functools import cached_property

from tlc.frontend.records import dataclass


@dataclass(frozen=True, eq=False)
class Source:
    """One file (or one entry of the REPL). Compared by identity; immutable. `library`: of the standard library."""

    path: str
    text: str = field(repr=False)
    library: bool = False

    @cached_property
    def line_starts(self) -> list[int]:
        return [0] + [i + 1 for i, c in enumerate(self.text) if c == "\n"]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset, both from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line (from 1), without its newline."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end]


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a source. `derivative`: of code that computes the derivative of what stands there.
    `caller`, of code of the library that was inlined: where the program calls it.
    """

    source: Source
    start: int
    end: int
    derivative: bool = field(default=False, compare=False)
    caller: Span | None = field(default=None, compare=False)

    def to(self, other: Span) -> Span:
        """From the beginning of this span to the end of the other."""
        return Span(self.source, self.start, max(self.end, other.end))

    def of_derivative(self) -> Span:
        return self if self.derivative else Span(self.source, self.start, self.end, True, self.caller)

    def called_from(self, call: Span) -> Span:
        """This place, reached by a call: of the library it notes the first place in the program that leads to it."""
        by = call.caller if call.source.library else call
        if by is None or not self.source.library or self.caller is not None:
            return self
        return Span(self.source, self.start, self.end, self.derivative, by)

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.path}:{line}:{column}"

    def __repr__(self) -> str:
        return f"<{self}>"


NOWHERE = Span(Source("<compiler>", ""), 0, 0)  # what the compiler makes without a source

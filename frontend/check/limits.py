"""What keeps a small program from becoming a huge one: each limit is far beyond what people write, and has a message of its own.

leaves      tensors in one value: `let b = (a, a)`, `let c = (b, b)`, ... doubles them a line
depth       types inside of types, constants and anonymous functions that need one another: later stages recurse over them
expansions  bodies of anonymous functions and values of constants that are put in place of a name, in one definition
terms       of a dimension: `(a + b + c) * (a + b + c) * ...`
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tlc.frontend.check.report import Failed, fail
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import TypeParam, field_types
from tlc.frontend.types import StructType, TupleType, Type

MAX_LEAVES = 4096
MAX_DEPTH = 64
MAX_EXPANSIONS = 10_000
MAX_TERMS = 256


def is_large(type: Type | TypeParam, limit: int = MAX_LEAVES, levels: int = MAX_DEPTH) -> bool:
    """Whether a value of the type has too many leaves, or they lie too deep. A larger type is not looked at further."""
    leaves = 0
    pending: list[tuple[Type | TypeParam, int]] = [(type, 0)]
    while pending:
        t, depth = pending.pop()
        if depth > levels:
            return True
        match t:
            case TupleType():
                pending += [(i, depth + 1) for i in t.items]
            case StructType():
                pending += [(f, depth + 1) for f in field_types(t)]
            case _:
                leaves += 1
        if leaves + len(pending) > limit:
            return True
    return False


def check_size(type: Type, span: Span) -> None:
    """Refuse a value that is too large. Raises Failed."""
    if is_large(type):
        raise fail("E0114", "this value has too many parts", span, f"more than {MAX_LEAVES} tensors, or more than {MAX_DEPTH} levels")


def has_many_terms(a: Dim, b: Dim) -> bool:
    """Whether the product of two dimension terms is too large to reason with."""
    return len(a.terms) * len(b.terms) > MAX_TERMS


@dataclass
class Expansions:
    """Counts what is put in place of names, and how deep. Mutable; `reset` begins a definition."""

    count: int = 0
    depth: int = 0

    def reset(self) -> None:
        self.count = 0

    @contextmanager
    def inside(self, what: str, span: Span) -> Iterator[None]:
        """One more, for what is inside. Raises Failed."""
        self.count += 1
        if self.count > MAX_EXPANSIONS or self.depth >= MAX_DEPTH:
            raise self._too_many(what, span)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def _too_many(self, what: str, span: Span) -> Failed:
        deep = self.depth >= MAX_DEPTH
        message = f"{what} need one another more than {MAX_DEPTH} deep" if deep else f"more than {MAX_EXPANSIONS} {what} are put in here"
        return fail("E0408", message, span)

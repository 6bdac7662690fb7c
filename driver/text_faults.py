"""Faults of a text in an intermediate form, as diagnostics: what a verifier says of it is its author's mistake, not the compiler's."""

from __future__ import annotations

from collections.abc import Callable

from tlc.frontend.diagnostics import CompileError, Diagnostic, InternalError
from tlc.frontend.source import NOWHERE, Source, Span


def holds(verify: Callable[[], object], source: Source) -> None:
    """Run a verifier; what does not hold is shown where it stands in the text."""
    try:
        verify()
    except InternalError as error:
        raise fault(error.message.partition("\n")[0], error.span, source) from None


def fault(message: str, span: Span, source: Source, help: str = "") -> CompileError:
    """A fault at its place, or on the first line where it has none."""
    place = span if span.source is not NOWHERE.source else Span(source, 0, len(source.line(1)))
    return CompileError([Diagnostic("E1001", message, place, help=help)])

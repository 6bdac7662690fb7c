"""Raising and collecting errors. `Failed` leaves the statement that cannot be checked; whoever catches it goes on with the next."""

from __future__ import annotations

from tlc.frontend.diagnostics import Diagnostic, Label, Severity
from tlc.frontend.source import Span


class Failed(Exception):
    """A statement or definition cannot be checked. `diagnostic` is None where the cause was already reported."""

    def __init__(self, diagnostic: Diagnostic | None = None) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic


def fail(
    code: str, message: str, span: Span, label: str = "", labels: tuple[Label, ...] = (), help: str = "", notes: tuple[str, ...] = ()
) -> Failed:
    """An error to raise."""
    return Failed(Diagnostic(code, message, span, label, labels, notes, help))


def warning(code: str, message: str, span: Span, label: str = "", labels: tuple[Label, ...] = (), help: str = "") -> Failed:
    """A warning: to report, not to raise."""
    return Failed(Diagnostic(code, message, span, label, labels, (), help, Severity.WARNING))


def unsupported(what: str, span: Span, help: str = "") -> Failed:
    """What the language has and the compiler has not, yet."""
    return fail("E0901", f"{what}: not supported yet", span, help=help)

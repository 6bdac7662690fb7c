"""Diagnostics are data: a code, spans, notes and a help. One renderer (`driver/render.py`) prints them."""

from __future__ import annotations

from enum import Enum

from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Label:
    """A second place that the reader needs, with what it says there."""

    span: Span
    text: str


@dataclass(frozen=True)
class Diagnostic:
    """One message. `message` says what; `label` says why at the caret; `help` alone proposes a mend.

    Texts are lower case, without a full stop, names in backticks. `code` is a row of `frontend/errors.py`.
    """

    code: str
    message: str
    span: Span
    label: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    severity: Severity = Severity.ERROR


class CompileError(Exception):
    """The program cannot be compiled; carries every diagnostic that was found."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics


class InternalError(Exception):
    """A failure inside the compiler, never the user's mistake. `where` names the pass, function and instruction; `span` is its place in a
    source, where it has one: then a command that reads an intermediate form from a file can show the fault there.
    """

    def __init__(self, message: str, where: str = "", span: Span = NOWHERE) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.where, self.span = message, where, span

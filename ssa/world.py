"""What a running program and the world around it say to each other, in the interpreter and in native code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from tlc.frontend.source import Span

WAIT = "device.wait"  # an `extern` by this name does nothing, when the kernels that run beside the host have ended
MARK = "device.mark"  # and this one, at the end of a turn of a loop that begins many of them, at once
LOAD = "device.load"  # and this one gives the element of a tensor at a row-major position, when they have ended


class Services(Protocol):
    """What the world does for a program. `stopping` becomes true when Ctrl-C asks a service that waits to give up."""

    stopping: bool

    def print(self, text: str) -> None: ...

    def progress_begin(self, label: str, total: int) -> int: ...

    def progress_tick(self, bar: int, at: int) -> None: ...

    def progress_note(self, bar: int, at: int, text: str) -> None: ...

    def progress_end(self, bar: int) -> None: ...

    def extern(self, name: str, args: list[Any]) -> Iterable[Any]:
        """The results of a service, one after the other. Raises `RuntimeStop`, also while they are taken."""
        ...


class Stop(Exception):
    """The program stopped: a check failed (`kind` is the check's), it is too deep in calls (`recursion`), or a service failed."""

    def __init__(self, message: str, span: Span, kind: str, notes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.span, self.kind, self.notes = message, span, kind, notes

    def called_from(self, call: Span) -> None:
        """It happened in a function that is called there."""
        self.span = self.span.called_from(call)


class RuntimeStop(Exception):
    """The failure of a service, which does not know the place in the program: who calls it makes a `Stop` of this.

    It is for the program's user, no fault of the compiler. The message is lower case, without a full stop.
    """

    def __init__(self, message: str, kind: str = "extern", notes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.kind, self.notes = message, kind, notes

    def at(self, span: Span) -> Stop:
        return Stop(self.message, span, self.kind, self.notes)

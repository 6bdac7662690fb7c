"""What a running program and the world around it say to each other, in the interpreter and in native code."""

from __future__ import annotations

from typing import Any, Protocol

from tlc.frontend.source import Span


class Services(Protocol):
    """What the world does for a program."""

    def print(self, text: str) -> None: ...

    def progress_begin(self, label: str, total: int) -> int: ...

    def progress_tick(self, bar: int, at: int) -> None: ...

    def progress_end(self, bar: int) -> None: ...

    def extern(self, name: str, args: list[Any]) -> list[Any]: ...


class Stop(Exception):
    """The program stopped itself: a check failed. `kind` is the check's, or `recursion`."""

    def __init__(self, message: str, span: Span, kind: str) -> None:
        super().__init__(message)
        self.message, self.span, self.kind = message, span, kind

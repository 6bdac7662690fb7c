"""Standard output and standard error of `tlc`, made so that a failing write says what could not be written.

A program, a command and the interpreter's own last flush all write by way of these two streams, so this is the one place that knows.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(Exception):
    """What `tlc` made cannot be written, as on a full disk: exit status 1. The message is lower case, without a full stop."""


def unwritten(what: str, error: OSError) -> OutputError:
    """The error of writing `what`: in the words of the system, why it could not be written."""
    return OutputError(f"cannot write {what}: {(error.strerror or str(error)).lower()}")


class _Output(io.FileIO):
    """Standard output. It fails once, and what comes behind that is dropped, also what Python writes when it ends. The failure is a
    `BrokenPipeError` where the reader has gone, and an `OutputError` for all else.
    """

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _put(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise
            raise unwritten("to standard output", error) from None


class _Error(io.FileIO):
    """Standard error. There is nobody to tell that it cannot be written, so what cannot be is dropped."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare() -> None:
    """Put the streams in the place of those that Python has opened."""
    sys.stdout = _remade(sys.stdout, 1, _Output)
    sys.stderr = _remade(sys.stderr, 2, _Error)


def _remade(stream: TextIO | None, number: int, raw: type[io.FileIO]) -> TextIO:
    """A stream over `raw` that encodes as `stream` does. A line is written when it is whole, also to a pipe or a file: who follows a long
    run sees how far it is, and what was said is not lost when the run is killed.
    """
    if stream is None:
        # the descriptor is closed: no file may get it, and writes are to fail as on a closed one, so it cannot be written
        _put(os.open(os.devnull, os.O_RDONLY), number)
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    elif not isinstance(stream, io.TextIOWrapper):
        return stream  # somebody else's
    file = raw(number, "w", closefd=False)
    unbuffered = isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
        write_through=stream.write_through,
    )


def _put(opened: int, number: int) -> None:
    """Give an open file this descriptor instead of its own."""
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)

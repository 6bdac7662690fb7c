"""What the world does for a program that runs inside `tlc`: `ssa/interp.py`'s `Services`, for the interpreter and native code alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

from tlc.backends.runtime.externs import SPEAKING, extern
from tlc.backends.runtime.progress import ProgressBar


class WorldServices:
    """Prints to standard output, shows progress on standard error and calls externs. A failing extern raises `RuntimeStop`."""

    def __init__(self, output: IO[str] | None = None) -> None:
        self.output = output or sys.stdout
        self.bars: dict[int, ProgressBar] = {}
        self.started = 0
        self.rest = b""  # of standard input, what was read and not asked for
        self.stopping = False
        self.unended = False  # whether a line has begun on the terminal: bars wait for its end

    def print(self, text: str) -> None:
        """One line; bars step aside for it."""
        self.put(text + "\n")

    def put(self, text: str) -> None:
        """A piece of a line, to be seen at once on a terminal."""
        for bar in self.bars.values():
            bar.clear()
        self.output.write(text)
        if text:
            self.unended = not text.endswith("\n") and self.output.isatty()
        if self.unended:
            self.output.flush()

    def flush(self) -> None:
        """Have what is written seen."""
        self.output.flush()

    def progress_begin(self, label: str, total: int) -> int:
        self.started += 1
        self.bars[self.started] = ProgressBar(label, total)
        return self.started

    def progress_tick(self, bar: int, at: int) -> None:
        if not self.unended:
            self.bars[bar].update(at)

    def progress_note(self, bar: int, at: int, text: str) -> None:
        if not self.unended:
            self.bars[bar].update(at, text)

    def progress_end(self, bar: int) -> None:
        self.bars.pop(bar).close()

    def extern(self, name: str, args: list[Any]) -> Iterable[Any]:
        world = (self,) if name in SPEAKING else ()
        return extern(name)(*world, *args) or ()

    def close(self) -> None:
        """Leave nothing unfinished, however the program ended."""
        for bar in self.bars.values():
            bar.close()
        self.bars.clear()
        self.output.flush()

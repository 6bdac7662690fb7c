"""What the world does for a program that runs inside `tlc`: `ssa/interp.py`'s `Services`, for the interpreter and native code alike."""

from __future__ import annotations

import sys
from typing import IO, Any

from tlc.backends.runtime.externs import EXTERNS
from tlc.backends.runtime.progress import ProgressBar


class WorldServices:
    """Prints to standard output, shows progress on standard error and calls externs. A failing extern raises `RuntimeStop`."""

    def __init__(self, output: IO[str] | None = None) -> None:
        self.output = output or sys.stdout
        self.bars: dict[int, ProgressBar] = {}
        self.started = 0

    def print(self, text: str) -> None:
        """One line; bars step aside for it."""
        for bar in self.bars.values():
            bar.clear()
        self.output.write(text + "\n")

    def progress_begin(self, label: str, total: int) -> int:
        self.started += 1
        self.bars[self.started] = ProgressBar(label, total)
        return self.started

    def progress_tick(self, bar: int, at: int) -> None:
        self.bars[bar].update(at)

    def progress_end(self, bar: int) -> None:
        self.bars.pop(bar).close()

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        return list(EXTERNS[name](*args))

    def close(self) -> None:
        """Leave nothing unfinished, however the program ended."""
        for bar in self.bars.values():
            bar.close()
        self.bars.clear()
        self.output.flush()

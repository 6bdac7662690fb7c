"""Services for tests: what a program does to the world is kept in lists."""

from __future__ import annotations

from typing import Any


class Recorder:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.progress: list[tuple[Any, ...]] = []

    def print(self, text: str) -> None:
        self.lines.append(text)

    def progress_begin(self, label: str, total: int) -> int:
        self.progress.append(("begin", label, total))
        return 1

    def progress_tick(self, bar: int, at: int) -> None:
        self.progress.append(("tick", at))

    def progress_note(self, bar: int, at: int, text: str) -> None:
        self.progress.append(("note", at, text))

    def progress_end(self, bar: int) -> None:
        self.progress.append(("end",))

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        return [name, *args]

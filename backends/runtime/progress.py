"""How far a loop has come, on standard error: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Protocol

FIRST_LINE = 5.0  # seconds before the first plain line: short loops say nothing
NEXT_LINE = 10.0  # seconds between plain lines
BAR_DELAY = 0.3  # seconds before a bar shows
COLUMNS, ROWS = 80, 24  # of a terminal that does not say


class Display(Protocol):
    def update(self, done: int, note: str) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


class ProgressBar:
    """`update` takes the number of steps done, not the number since the last call, and may be called at any rate."""

    def __init__(
        self, label: str, total: int, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic, unit: str = "steps"
    ) -> None:
        stream = stream or sys.stderr
        self._display: Display = _Bar(label, total, stream, unit) if stream.isatty() else _Lines(label, total, stream, clock, unit)

    def update(self, done: int, note: str = "") -> None:
        self._display.update(done, note)

    def clear(self) -> None:
        """Take the bar from the screen until the next update, so that a line can be printed in its place."""
        self._display.clear()

    def close(self) -> None:
        self._display.close()


class _Bar:
    """tqdm's, which knows terminals."""

    def __init__(self, label: str, total: int, stream: IO[str], unit: str) -> None:
        from tqdm import tqdm

        size: dict[str, Any] = {"dynamic_ncols": True} if _has_size(stream) else {"ncols": COLUMNS, "nrows": ROWS}
        self._bar: Any = tqdm(total=total, desc=label or None, file=stream, leave=False, delay=BAR_DELAY, unit=f" {unit}", **size)

    def update(self, done: int, note: str) -> None:
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)

    def clear(self) -> None:
        self._bar.clear()

    def close(self) -> None:
        self._bar.close()


def _has_size(stream: IO[str]) -> bool:
    """Whether the terminal says how wide it is; one that nobody has set a size for says 0."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns > 0
    return False


class _Lines:
    def __init__(self, label: str, total: int, stream: IO[str], clock: Callable[[], float], unit: str) -> None:
        self._label = label
        self._total = total
        self._stream = stream
        self._clock = clock
        self._unit = unit
        self._start = clock()
        self._due = self._start + FIRST_LINE
        self._said = self._done = 0
        self._note = ""

    def update(self, done: int, note: str) -> None:
        self._done, self._note = done, note
        now = self._clock()
        if now >= self._due:
            self._due = now + NEXT_LINE
            self._say(now - self._start)

    def clear(self) -> None:
        pass

    def close(self) -> None:
        """A loop that said something also says its end."""
        if self._said and self._said != self._done:
            self._say(self._clock() - self._start)

    def _say(self, elapsed: float) -> None:
        self._said = self._done
        rate = self._done / elapsed if elapsed > 0 else 0.0
        left = f", {_duration((self._total - self._done) / rate)} left" if rate > 0 and self._done < self._total else ""
        label = f"{self._label}: " if self._label else ""
        text = f"{label}{self._done}/{self._total}, {_duration(elapsed)}, {_rate(rate, self._unit)}{left}"
        if self._note:
            text += f", {self._note}"
        print(text, file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    """`7s`, `3:07` or `2:03:07`."""
    whole = int(seconds + 0.5)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    if hour:
        return f"{hour}:{minute:02}:{second:02}"
    return f"{minute}:{second:02}" if minute else f"{second}s"


def _rate(rate: float, unit: str) -> str:
    """Steps a second, or seconds a step where they are slow."""
    if rate >= 1 or rate <= 0:
        return f"{rate:.1f} {unit}/s"
    return f"{1 / rate:.1f} s/{unit.removesuffix('s')}"

"""Progress: plain lines now and then where there is no terminal, a bar where there is."""

from __future__ import annotations

import io

from tlc.backends.runtime.progress import ProgressBar


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_short_loops_say_nothing() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = ProgressBar("epoch 0", 100, stream, clock)
    for done in range(101):
        clock.now = done * 0.04
        bar.update(done)
    bar.close()
    assert stream.getvalue() == ""


def test_long_loops_say_lines_with_rate_and_time_left() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = ProgressBar("epoch 0", 400, stream, clock)
    for done in range(401):
        clock.now = done * 0.1
        bar.update(done)
    bar.close()
    assert stream.getvalue().splitlines() == [
        "epoch 0: 50/400, 5s, 10.0 steps/s, 35s left",
        "epoch 0: 150/400, 15s, 10.0 steps/s, 25s left",
        "epoch 0: 250/400, 25s, 10.0 steps/s, 15s left",
        "epoch 0: 350/400, 35s, 10.0 steps/s, 5s left",
        "epoch 0: 400/400, 40s, 10.0 steps/s",
    ]


def test_slow_steps_and_long_times() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = ProgressBar("", 100, stream, clock)
    clock.now = 120.0
    bar.update(1)
    assert stream.getvalue() == "1/100, 2:00, 120.0 s/step, 3:18:00 left\n"


def test_a_terminal_gets_a_bar() -> None:
    stream = Terminal()
    bar = ProgressBar("epoch 0", 10, stream)
    bar._display._bar.delay = 0  # type: ignore[attr-defined]
    bar.update(0)
    bar._display._bar.mininterval = 0  # type: ignore[attr-defined]
    bar.update(7)
    bar._display._bar.refresh()  # type: ignore[attr-defined]
    assert "epoch 0" in stream.getvalue()
    assert "7/10" in stream.getvalue()
    bar.close()

"""Progress: plain lines now and then where there is no terminal, a bar where there is."""

from __future__ import annotations

import io

from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.backends.runtime.progress import ProgressBar
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source


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


def test_a_line_ends_with_the_note() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = ProgressBar("epoch 0", 100, stream, clock)
    clock.now = 10.0
    bar.update(20, "loss 0.5")
    assert stream.getvalue() == "epoch 0: 20/100, 10s, 2.0 steps/s, 40s left, loss 0.5\n"


def test_a_note_sees_what_the_body_assigned() -> None:
    """The interpreter asks for every note; native code for those that are due, the first of which always is."""
    program = pipeline.front(Source("test.tl", """
fn main() {
  var total = 0
  for i in progress(0..3, "work", note = "total {total}") { total += 10 * i }
}
"""))
    said = Recorder()
    pipeline.interpret(program, Options(), said)
    assert said.progress == [("begin", "work", 3), ("note", 1, "total 0"), ("note", 2, "total 10"), ("note", 3, "total 30"), ("end",)]
    for host in pipeline.hosts():
        said = Recorder()
        Native(pipeline.build(program, Options(verify=True, host=host), {}), said).run()
        assert said.progress[:2] == [("begin", "work", 3), ("note", 1, "total 0")]


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

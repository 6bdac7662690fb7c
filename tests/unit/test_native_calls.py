"""No Python runs inside a training step: every call back into Python during the MNIST program is counted and accounted for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tlc.backends.runtime.native import Native
from tlc.backends.runtime.services import WorldServices
from tlc.driver import pipeline
from tlc.driver.flags import of_main, parse
from tlc.driver.options import Options
from tlc.frontend.source import Source

PROGRAM = Path(__file__).parents[2] / "programs" / "mnist_mlp.tl"


def run(*args: str) -> tuple[Native, float]:
    program = pipeline.front(Source(str(PROGRAM), PROGRAM.read_text()))
    flags = parse(of_main(program.flags), args)
    native = Native(pipeline.build(program, Options(flags=flags), {}), WorldServices())
    start = time.perf_counter()
    native.run()
    return native, time.perf_counter() - start


def test_calls_into_python_do_not_depend_on_the_number_of_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TLC_DATA", raising=False)
    few, seconds = run("--epochs", "2", "--batch", "2000")  # 8 steps
    many, more_seconds = run("--epochs", "2", "--batch", "64")  # 250 steps
    for native, limit in ((few, seconds), (many, more_seconds)):
        calls = dict(native.calls)
        ticks = calls.pop("progress_tick", 0)
        assert ticks <= 10 * limit + 2, "the bar is drawn at most ten times a second"
        # the two splits of the data; a label, a line and a bar an epoch
        assert calls == {"extern": 2, "format": 4, "print": 2, "progress_begin": 2, "progress_end": 2}
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_training_step_takes_its_memory_from_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TLC_DATA", raising=False)
    two, _ = run("--epochs", "1", "--batch", "4000")
    many, _ = run("--epochs", "1", "--batch", "100")
    assert many.context.mallocs <= two.context.mallocs + 2
    assert many.context.used == 0, "everything was freed at the end"

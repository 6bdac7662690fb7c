"""Programs that once ran differently in different ways: tests/programs/agreement. All ways print what the program's last comments say."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential import outcomes

PROGRAMS = Path(__file__).with_name("agreement")


@pytest.mark.parametrize("name", sorted(p.stem for p in PROGRAMS.glob("*.tl")))
def test_agreement(name: str) -> None:
    """A stop is a last line: `stop: kind: message at line:column`."""
    text = (PROGRAMS / f"{name}.tl").read_text(encoding="utf-8")
    expected = [line[3:] for line in text.split("# prints\n", 1)[1].splitlines()]
    for way, outcome in outcomes(text, verify=True):
        lines = "\n".join(outcome.lines).splitlines()
        if outcome.kind:
            lines.append(f"stop: {outcome.kind}: {outcome.message} at {outcome.place.split(':', 1)[1]}")
        assert lines == expected, way

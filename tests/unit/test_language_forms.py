"""Rarer forms of the language, as whole programs: natively with every stage verified, and by the interpreter of unoptimized SSA."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_program import both

FORMS = Path(__file__).parents[1] / "programs" / "forms"
NAMES = sorted(p.stem for p in FORMS.glob("*.tl"))


@pytest.mark.parametrize("name", NAMES)
def test_form(name: str) -> None:
    """A program ends with comments that say what it prints."""
    text = (FORMS / f"{name}.tl").read_text(encoding="utf-8")
    expected = [line[3:] for line in text.split("# prints\n", 1)[1].splitlines()]
    assert both(text) == expected

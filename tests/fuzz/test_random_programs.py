"""Random programs mean what the same text in Python means, in every way of running them.

`TLC_FUZZ=1000 python -m pytest tests/fuzz/test_random_programs.py` runs more of them.
"""

from __future__ import annotations

import os

import meaning
import pytest
from differential import outcomes
from fuzz_programs import generate

COUNT = int(os.environ.get("TLC_FUZZ", "12"))


@pytest.mark.parametrize("seed", range(COUNT))
def test_every_way_agrees_with_python(seed: int) -> None:
    program = generate(seed)
    try:
        lines, kind, _ = meaning.run(program.py)
    except meaning.TooLong:
        pytest.skip("the program takes too long")
    for way, outcome in outcomes(program.tl):
        assert (list(outcome.lines), outcome.kind) == (list(lines), kind), way

"""Gradients of random programs agree with finite differences and with forward mode, and the compiled form with the plain one.

`TLC_FUZZ=1000 python -m pytest tests/fuzz/test_random_gradients.py` runs more of them; `compare_gradients.py` is a campaign.
"""

from __future__ import annotations

import math
import os

import pytest
from compare_gradients import Checked, compared, examine
from fuzz_gradients import STEPS, generate_gradient

COUNT = int(os.environ.get("TLC_FUZZ", "12"))


@pytest.mark.parametrize("seed", range(COUNT))
def test_gradients(seed: int) -> None:
    program = generate_gradient(seed)
    ways = ("plain", "optimized") if seed % 3 == 0 else ("plain",)
    assert examine(program.tl, program.py, ways, Checked()) == []


@pytest.mark.parametrize("x", [0.0, 0.3, -2.0])
def test_what_is_smooth_is_compared(x: float) -> None:
    for f, slope in ((math.sin, math.cos(x)), (lambda v: v * v * v - 5.0 * v, 3.0 * x * x - 5.0), (lambda v: 3.0, 0.0)):
        values, counts = [f(x + step) for step in (-STEPS[0], -STEPS[1], 0.0, STEPS[1], STEPS[0])], Checked()
        assert list(compared("f", slope, values, counts)) == []
        assert len(list(compared("f", slope + 1e-3, values, counts))) == 1
        assert (counts.compared, counts.rough) == (2, 0)


def test_nothing_follows_at_a_kink() -> None:
    for f in (abs, lambda v: max(v, 0.0), lambda v: 3.0 * v + abs(v - 7e-6), math.floor):
        values, counts = [f(step) for step in (-STEPS[0], -STEPS[1], 0.0, STEPS[1], STEPS[0])], Checked()
        assert list(compared("f", 5.0, values, counts)) == []
        assert (counts.compared, counts.rough) == (0, 1)

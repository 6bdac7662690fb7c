"""Random scalar programs mean the same by every way of running them.

`TLC_FUZZ_SCALARS=20000 python -m pytest tests/fuzz/test_random_scalars.py` runs more of them; `compare_scalars.py` makes what differs small.
"""

from __future__ import annotations

import os

import compare_scalars
import pytest
from compare_scalars import FEW, WAYS, differences, interpreted
from fuzz_scalars import generate

from tlc.driver.pipeline import front, hosts
from tlc.frontend.source import Source

BATCH = 20
COUNT = int(os.environ.get("TLC_FUZZ_SCALARS", "40"))

OURS = [way for way in (*WAYS, FEW) if way[0] in hosts()]


@pytest.fixture(scope="module")
def store() -> dict[str, bytes]:
    """Kernels are the same in every batch, so they are compiled once."""
    return {}


@pytest.mark.parametrize("seed", range(-(-COUNT // BATCH)))
def test_every_way_agrees_with_the_meaning(seed: int, store: dict[str, bytes]) -> None:
    batch = generate(seed, BATCH)
    found = differences(batch.text, batch.runs, OURS, store=store, verify=seed % 2 == 1)
    assert not found, f"{len(found)} differences, the first: {found[0]}"


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself: where the meaning is that of other numbers, machine code differs from it."""
    batch = generate(0, BATCH)
    spoiled = front(Source("program.tl", batch.text.replace("let t = i64(clock())", "let t = i64(clock()) + 1")))
    meaning = interpreted(spoiled)
    monkeypatch.setattr(compare_scalars, "interpreted", lambda _: meaning)
    assert differences(batch.text, batch.runs, [("llvm", "all")], (0,))

"""The programs of `benchmarks/tensor.py` start from the numbers that the peers have, and give what NumPy gives."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def tensor() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("tensor")
    finally:
        sys.path.remove(str(FOLDER))


def test_every_row_has_its_program(tensor: ModuleType) -> None:
    assert len({row.name for row in tensor.ROWS}) == len(tensor.ROWS)
    assert {row.work for row in tensor.ROWS} == {p.stem for p in tensor.FOLDER.glob("*.tl")} - {"sample"}


SMALL = [
    ("product", {"m": 20, "k": 30, "n": 40, "turn_a": False, "turn_b": True}),
    ("product", {"m": 20, "k": 30, "n": 40, "turn_a": True, "turn_b": False}),
    ("batched", {"batch": 3, "m": 5, "k": 7, "n": 9}),
    *(("vectors", {"what": what, "k": 70, "n": 90}) for what in ("vector_matrix", "matrix_vector", "argmax")),
]


@pytest.mark.parametrize(("work", "flags"), SMALL, ids=str)
def test_ours_gives_what_numpy_gives(work: str, flags: Mapping[str, Any], tensor: ModuleType) -> None:
    row = tensor.Row("small", work, flags, 1, 1)
    ours = tensor.Ours(1, time.perf_counter).samples(row, 2, 1)
    peer = tensor.Peer("numpy", 1, time.perf_counter).samples(row, 2, 1)
    assert len(ours["time"]) == len(peer["time"]) == 2
    for a, b in zip(ours["value"], peer["value"], strict=True):
        assert math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5)

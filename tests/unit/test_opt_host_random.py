"""Every pass, and every level of the host, on random host SSA: the same bits, or the same stop in the same place.

`TLC_FUZZ=1000 python -m pytest tests/unit/test_opt_host_random.py` tries more.
"""

from __future__ import annotations

import os
from typing import Any

import host_random
import numpy as np
import pytest
from ssa_services import Recorder

from tlc.opt import passes
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import Module
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.memory import plan
from tlc.tensor.ownership import verify_ownership

COUNT = int(os.environ.get("TLC_FUZZ", "6"))
ARGUMENTS: list[list[Any]] = [[3, 1.5, [4, -1, 7], [0.5, -1.0, 2.0, 8.0]], [-1, -0.0, [0, 1, 1, 2], [float("inf"), float("nan"), 1.0]]]


def outcome(module: Module, arguments: list[Any]) -> object:
    try:
        results = Interpreter(module, Recorder()).call("f", arguments)
    except Stop as stop:
        return stop.kind, stop.message
    return [np.where(np.isnan(np.asarray(v, np.float64)), np.nan, v).tobytes() for v in results]


def agree(seed: int, names: tuple[str, ...]) -> Module:
    module = host_random.module(seed)
    verify(module, "host")
    text = print_module(module)
    passes.run(module, names, verify_each=True, stage="host")
    for arguments in ARGUMENTS:
        assert outcome(module, arguments) == outcome(parse_module(text), arguments), f"{names}\n{text}\n{print_module(module)}"
    return module


@pytest.mark.parametrize("name", list(passes.PASSES))
def test_each_pass(name: str) -> None:
    for seed in range(COUNT):
        agree(seed, (name,))


@pytest.mark.parametrize("level", list(passes.HOST_LEVELS))
def test_each_level_and_its_memory_plan(level: int) -> None:
    for seed in range(100, 100 + 4 * COUNT):
        module = agree(seed, passes.HOST_LEVELS[level])
        before = [outcome(module, arguments) for arguments in ARGUMENTS]
        takes = plan(module)
        verify(module, "host")
        verify_ownership(module, takes)
        assert [outcome(module, arguments) for arguments in ARGUMENTS] == before

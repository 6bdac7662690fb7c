"""Every pass, and every level, on random SSA: it verifies afterwards and computes the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ssa_random import modules
from ssa_services import Recorder

from tlc.opt import passes
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.ssa.text import parse_module, print_module

ARGUMENTS: list[Any] = [3, 1.5, [0.5, -1.0, 2.0], [[1.0, 2.0, 3.0], [-0.0, 0.25, 1e300]]]
EXAMPLES = 10


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bits(values: list[Any]) -> list[bytes]:
    """The results bit by bit; all NaN are one."""
    return [np.where(np.isnan(np.asarray(v, np.float64)), np.nan, v).tobytes() for v in values]


def copy(module: Module) -> Module:
    return parse_module(print_module(module))


def agree(module: Module, names: tuple[str, ...]) -> None:
    changed = copy(module)
    passes.run(changed, names, verify_each=True, stage="host")
    for f in module.functions:
        before = Interpreter(module, Recorder()).call(f, ARGUMENTS)
        after = Interpreter(changed, Recorder()).call(f, ARGUMENTS)
        assert bits(before) == bits(after), print_module(changed)


@pytest.mark.parametrize("name", list(passes.PASSES))
@examples(EXAMPLES)
@given(data=st.data())
def test_each_pass_computes_the_same_bits(name: str, data: st.DataObject) -> None:
    agree(data.draw(modules()), (name,))


@examples(4 * EXAMPLES)
@given(data=st.data())
def test_the_highest_level_computes_the_same_bits(data: st.DataObject) -> None:
    agree(data.draw(modules()), passes.LEVELS[2])


@examples(4 * EXAMPLES)
@given(data=st.data())
def test_the_passes_of_the_host_compute_the_same_bits(data: st.DataObject) -> None:
    agree(data.draw(modules()), passes.HOST_LEVELS[2])

"""Every pass, and every level, on random SSA: it verifies afterwards and computes the same bits."""

from __future__ import annotations

from dataclasses import replace
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


TWICE = """
func @f(%x: f64) -> f64 {
entry:
  %a = mul %x, %x : f64
  %b = mul %x, %x : f64
  %c = add %a, %b : f64
  return %c
}
"""


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


# ---------------------------------------------------------------- passes that are left out


@examples(EXAMPLES)
@given(data=st.data())
def test_what_is_left_out_would_change_nothing(data: st.DataObject) -> None:
    """A level twice, with and without what is remembered of the first time."""
    module = data.draw(modules())
    other = copy(module)
    for _ in range(2):
        passes.run(module, passes.LEVELS[2])
    for name in 2 * passes.LEVELS[2]:
        passes.PASSES[name].run(other)
    assert print_module(module) == print_module(other)


def test_a_pass_runs_again_behind_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    row = passes.PASSES["cse"]
    monkeypatch.setitem(passes.PASSES, "cse", replace(row, run=lambda module: runs.append("cse") or row.run(module)))
    module = parse_module(TWICE)
    passes.run(module, ("cse", "cse", "cse", "dce", "cse"))
    assert len(runs) == 2, "the first one changed something, the second one and `dce` did not"
    f = module.functions["f"]
    f.blocks[0].instrs[-1].operands = (f.params[0], f.params[0])
    passes.run(module, ("cse", "cse"))
    assert len(runs) == 3

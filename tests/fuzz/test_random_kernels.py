"""Kernels of random comprehensions give the same bits in every way of running them.

`TLC_FUZZ_KERNELS=20000 python -m pytest tests/fuzz/test_random_kernels.py` compares more; `compare_kernels.py` makes what differs small.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from random import Random

import compare_kernels
import numpy as np
import pytest
from compare_kernels import Campaign, Fault, Machine, each_way, smaller
from fuzz_kernels import Case, again, generate

from tlc.ssa.text import print_module
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import parse_kernel

COUNT = int(os.environ.get("TLC_FUZZ_KERNELS", "60"))
BATCH = 20  # modules that are compiled together


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.close()


def test_every_way_agrees(machine: Machine) -> None:
    campaign, seed = Campaign(machine), 0
    while len(campaign.kernels) < COUNT:
        campaign.batch(range(seed, seed + BATCH))
        seed += BATCH
        assert not campaign.faults, f"{len(campaign.faults)} faults, the first: seed {campaign.faults[0][0]}, {campaign.faults[0][1]}"
    for way in ("adverse", "plan", "gradients", "differences", "native 1", "native 3", "in place"):
        assert campaign.seen[way] > 0, way


def launched(text: str, machine: Machine, size: int = 40) -> Kernel:
    """A kernel of one output and one input, compared in every way."""
    kernel = parse_kernel(text)
    machine.load([kernel])
    x = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    each_way(kernel, [np.zeros(size, np.float32)], [x, size], machine, Random(0), Counter(), adverse=True)
    return kernel


FINE = "kernel fine(y: out f32[n], x: f32[n], n: i64) { parallel(1) i in 0..n { y[i] = x[i] * x[i] } }"
WRONG = {
    "adverse differs": "kernel chain(y: out f32[n], x: f32[n], n: i64) { y[0] = x[0] parallel(1) i in 1..n { y[i] = x[i] + y[i - 1] } }",
    "adverse differs, of local memory": "kernel fresh(y: out f32[n], x: f32[n], n: i64) { for i in 0..n { local a: f32[1] y[i] = x[i] + a[0] } }",
    "in place differs": "kernel turned(y: out f32[n], x: f32[n], n: i64) alias(0, 0) { for i in 0..n { y[i] = x[n - 1 - i] } }",
}


def test_what_is_right_passes(machine: Machine) -> None:
    launched(FINE, machine)


@pytest.mark.parametrize("what", WRONG)
def test_false_promises_are_found(what: str, machine: Machine) -> None:
    with pytest.raises(Fault) as e:
        launched(WRONG[what], machine)
    assert e.value.what == what.partition(",")[0]


def test_a_store_beside_the_output_is_found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code that stores one element more than the kernel says."""
    kernel = parse_kernel("kernel more(y: out f32[n], x: f32[n], n: i64) { for i in 0..n { y[i] = x[i] } }")
    real = compare_kernels.print_kernel
    monkeypatch.setattr(compare_kernels, "print_kernel", lambda k: real(k).replace("ret i32 0", "%a = getelementptr float, ptr %p0, i64 %p2\n store float 1.0, ptr %a\n ret i32 0"))
    machine.load([kernel])
    x = np.ones(8, np.float32)
    with pytest.raises(AssertionError, match="overwritten"):
        machine.run(kernel, [np.zeros(8, np.float32)], [x, 8], 1, False, {})


def test_a_case_is_made_from_its_choices() -> None:
    case = generate(7)
    same = again(case.choices)
    assert print_module(same.module) == print_module(case.module)
    assert same.choices == case.choices


def test_a_fault_is_made_small(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = next(s for s in range(100) if "argmin" in print_module(generate(s).module))

    def fails(case: Case, *_: object) -> Fault | None:
        return Fault("argmin", "") if "argmin" in print_module(case.module) else None

    monkeypatch.setattr(compare_kernels, "fails", fails)
    best, found = smaller(seed, Fault("argmin", ""), machine, patience=10)
    assert found.what == "argmin"
    assert "argmin" in print_module(best.module)
    assert len(print_module(best.module)) < len(print_module(generate(seed).module)) / 2

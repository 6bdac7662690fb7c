"""Random functions of the toy machine, with all, four and three registers a bank: the symbolic checker proves each allocation, and the
evaluator, which shares nothing with either, sees the same before and after.
"""

from __future__ import annotations

import random
import time

import pytest
from mir_toy import ENV, FEW, FOUR, TARGET, random_function, run

from tlc.regalloc.allocate import allocate
from tlc.regalloc.ir import Function, Slot
from tlc.regalloc.target import Kind, MachineEnv

ENVS = {"all": ENV, "four": FOUR, "few": FEW}


def make(seed: int) -> tuple[Function, list[int]]:
    rng = random.Random(seed)
    f = random_function(rng, rng.randrange(1, 9), rng.choice((3, 8, 15)), rng.choice((2, 5, 8)))
    return f, [rng.randrange(1000) for _ in range(5)]


@pytest.mark.parametrize("registers", ENVS)
@pytest.mark.parametrize("start", range(0, 150, 30))
def test_runs_as_before(start: int, registers: str) -> None:
    for seed in range(start, start + 30):
        f, arguments = make(seed)
        before = run(f, arguments)
        allocate(f, TARGET, ENVS[registers], verify=True)
        assert run(f, arguments) == before, seed


def _text(f: Function) -> list[str]:
    return [f"{b.name}: {i.op} {[str(o.place) for o in i.operands]}" for b in f.blocks for i in b.insts]


@pytest.mark.parametrize("env", [ENV, FEW], ids=["all", "few"])
def test_the_same_twice(env: MachineEnv) -> None:
    for seed in range(20):
        a, b = make(seed)[0], make(seed)[0]
        assert allocate(a, TARGET, env).counts() == allocate(b, TARGET, env).counts()
        assert _text(a) == _text(b)


def test_form() -> None:
    """No parameters, no parallel moves, no moves between slots or to themselves; every operand has a place."""
    for seed in range(40):
        f, _ = make(seed)
        allocate(f, TARGET, FEW)
        assert f.allocated
        for block in f.blocks:
            assert not block.params
            assert all(not arguments for _, arguments in block.terminator.targets)
            for inst in block.insts:
                kind = TARGET.rows[inst.op].kind
                assert kind is not Kind.PMOVE
                assert all(o.place is not None for o in inst.operands)
                if kind is Kind.MOVE:
                    target, source = inst.operands[0].place, inst.operands[1].place
                    assert target != source
                    assert not (isinstance(target, Slot) and isinstance(source, Slot))


def test_large() -> None:
    """5,600 instructions in 330 blocks, up to 66 values live at once where 8 registers are: most of it is splitting. Takes 0.8 s."""
    f = random_function(random.Random(1), 330, 30, 3)
    assert sum(len(b.insts) for b in f.blocks) > 5000
    start = time.process_time()
    stats = allocate(f, TARGET, ENV)
    assert time.process_time() - start < 4
    assert stats.spilled > 500

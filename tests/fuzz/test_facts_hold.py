"""What the compiler believes of integers holds while random programs run: ranges, linear forms, conditions, loops.

The interpreter runs the program, optimized as far as SSA goes, and holds every value against what `opt/ranges.py` and `opt/facts.py` say of it.
`TLC_FUZZ=1000 python -m pytest tests/fuzz/test_facts_hold.py` runs more programs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any

import fuzz_scalars
import pytest

from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.opt import passes
from tlc.opt.conditions import END, Place
from tlc.opt.facts import Facts, Linear
from tlc.ssa.interp import Frame, Interpreter, Stop
from tlc.ssa.ir import Block, Instr, Module, Value
from tlc.ssa.world import Services

COUNT = int(os.environ.get("TLC_FUZZ", "4"))


class Watched(Interpreter):
    """An interpreter that looks at every place whether what is known of it holds."""

    def __init__(self, module: Module, services: Services) -> None:
        super().__init__(module, services, whole=False)
        self.of_block: dict[Block, Facts] = {}
        for f in module.functions.values():
            facts = Facts()
            for block in f.blocks:
                self.of_block[block] = facts

    def straight(self, frame: Frame) -> Instr | None:
        facts = self.of_block.get(frame.block)
        if facts is None:
            return super().straight(frame)
        steps = self.prepared(frame.block)
        if not frame.at:
            self.begun(facts, frame)
        for step in steps[frame.at :]:
            place = facts.conditions.before(step.instr)
            for v in step.instr.operands:
                self.lies(facts, v, place, frame)
            frame.at += 1
            if step.shared:
                frame.owned.difference_update(step.shared)
            if step.evaluate is not None:
                frame.values[step.results[0]] = step.evaluate(step.elem, *[frame.values[v] for v in step.operands])
            elif step.run is not None:
                frame.values.update(zip(step.results, step.run(self, step.instr, [frame.values[v] for v in step.operands], frame), strict=True))
            else:
                return step.instr
            for v in step.results:
                self.defined(facts, v, frame)
        for v in frame.block.terminator.operands:
            self.lies(facts, v, (frame.block, END), frame)
        return None

    def begun(self, facts: Facts, frame: Frame) -> None:
        for p in frame.block.params:
            if not p.type.rank and p.type.elem.is_int:
                self.defined(facts, p, frame)
                for form in facts.loop(p):
                    assert self.value(form, frame) >= 0, f"%{p.name} of {frame.block.name}: {form}"

    def defined(self, facts: Facts, value: Value, frame: Frame) -> None:
        if value.type.rank or not value.type.elem.is_int:
            return
        found = facts.ranges.of(value)
        now = int(frame.values[value])
        assert found is not None and found[0] <= now <= found[1], f"%{value.name} = {now}, believed to lie in {found}"
        form = facts.form(value)
        assert self.value(form, frame) == now, f"%{value.name} = {now} is not {form}"
        for fact in facts.definition(value):
            assert self.value(fact, frame) >= 0, f"%{value.name} = {now}: {fact}"

    def lies(self, facts: Facts, value: Value, place: Place, frame: Frame) -> None:
        if value.type.rank or not value.type.elem.is_int:
            return
        found = facts.ranges.at(value, place)
        now = int(frame.values[value])
        assert found is not None and found[0] <= now <= found[1], f"%{value.name} = {now} in {place[0].name}, believed to lie in {found}"

    def value(self, form: Linear, frame: Frame) -> int:
        return form.constant + sum(c * int(frame.values[a]) for a, c in form.terms.items())


class Answers:
    """Answers the questions of a batch of programs, and forgets what they print."""

    def __init__(self, answers: list[float]) -> None:
        self.answers = itertools.chain(answers, itertools.repeat(0.0))

    def print(self, text: str) -> None:
        pass

    def progress_begin(self, label: str, total: int) -> int:
        return 1

    def progress_tick(self, bar: int, at: int) -> None:
        pass

    def progress_note(self, bar: int, at: int, text: str) -> None:
        pass

    def progress_end(self, bar: int) -> None:
        pass

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        assert name == "clock"
        return [next(self.answers)]


def watch(module: Module, runs: list[list[float]]) -> None:
    for answers in runs:
        with contextlib.suppress(Stop):  # where programs stop is another test's
            Watched(module, Answers(answers)).call("main", [])


@pytest.mark.parametrize("seed", range(COUNT))
def test_what_is_believed_holds(seed: int) -> None:
    batch = fuzz_scalars.generate(seed)
    program = pipeline.front(Source("test.tl", batch.text))
    runs = [list(map(float, answers)) for _, answers in batch.runs]
    module = next(value for name, _, value in pipeline.middle(program, Options(2)) if name == "opt")
    watch(module, runs)
    passes.run(module, passes.HOST_LEVELS[2], verify_each=True, stage="host")
    watch(module, runs)

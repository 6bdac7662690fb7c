"""The symbolic checker finds broken allocations: each kind of fault is put into good ones, and whatever the evaluator can tell apart, the
checker must refuse. Some faults change nothing (a place that happens to hold the value too); those it may accept.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from mir_toy import ENV, FEW, FOUR, SCRATCH, TARGET, Garbage, I, fixed, make, places, random_function, run

from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.allocate import allocate
from tlc.regalloc.checker import Program, check, record
from tlc.regalloc.ir import Bank, Block, Function, Inst, Reg, Slot
from tlc.regalloc.sink import sink
from tlc.regalloc.target import Kind, MachineEnv

Fault = tuple[str, Callable[[], object]]  # its kind, what takes it back


def _added(f: Function, program: Program) -> Iterator[tuple[Block, int]]:
    """What the allocator put between the instructions."""
    known = {b.inst for insts in program.blocks.values() for b in insts}
    for block in f.blocks:
        for at, inst in enumerate(block.insts):
            if inst not in known and inst.op != "jump":
                yield block, at


def faults(f: Function, program: Program, rng: random.Random) -> Iterator[Fault]:
    """Put a fault in; go on after it has been taken back."""
    used = places(f)
    added = list(_added(f, program))

    def drop(block: Block, at: int) -> Callable[[], object]:
        inst = block.insts.pop(at)
        return lambda: block.insts.insert(at, inst)

    for block, at in added:
        inst = block.insts[at]
        target = inst.operands[0].place
        kind = "constant dropped" if TARGET.rows[inst.op].remat else "load dropped" if len(inst.uses) else ""
        if TARGET.rows[inst.op].kind is Kind.MOVE:
            source = inst.operands[1].place
            kind = "store dropped" if isinstance(target, Slot) else "load dropped" if isinstance(source, Slot) else "move dropped"
        yield kind, drop(block, at)
        for k, operand in enumerate(inst.operands):
            before = operand.place
            others = [p for p in used if p != before and isinstance(p, Slot) == isinstance(before, Slot)]
            if isinstance(before, Reg):
                others = [p for p in others if isinstance(p, Reg) and p.bank is before.bank]
            if others:
                operand.place = rng.choice(others)
                name = "slot" if isinstance(before, Slot) else "register"
                yield f"wrong {name} {'written' if k == 0 else 'read'}", lambda o=operand, p=before: setattr(o, "place", p)  # type: ignore[misc]
        if "imm" in inst.attrs:
            value = inst.attrs["imm"]
            inst.attrs["imm"] = 12345
            yield "wrong constant", lambda i=inst, v=value: i.attrs.update(imm=v)  # type: ignore[misc]
        if at and (block, at - 1) in added:
            block.insts[at - 1 : at + 1] = block.insts[at - 1 : at + 1][::-1]

            def back(block: Block = block, at: int = at) -> None:
                block.insts[at - 1 : at + 1] = block.insts[at - 1 : at + 1][::-1]

            yield "two moves exchanged", back

    for block in f.blocks:
        for inst in block.insts:
            for operand in inst.operands:
                before = operand.place
                assert before is not None
                others = [p for p in used if p != before and (isinstance(p, Slot) or p.bank is operand.vreg.bank)]
                if others and TARGET.rows[inst.op].kind is not Kind.MOVE and not TARGET.rows[inst.op].remat:
                    operand.place = rng.choice(others)
                    name = "definition" if operand.is_def else "use"
                    yield f"{name} in another place", lambda o=operand, p=before: setattr(o, "place", p)  # type: ignore[misc]
        terminator = block.terminator
        if len({s for s, _ in terminator.targets}) == 2:
            terminator.targets.reverse()
            yield "branch reversed", terminator.targets.reverse

    edges = [b for b in f.blocks if b not in program.blocks]
    for a, b in itertools.pairwise(edges):
        if len(a.insts) > 1:
            moved = a.insts[:-1]
            a.insts[:-1], b.insts[:0] = [], moved

            def home(a: Block = a, b: Block = b, moved: list[Inst] = moved) -> None:
                a.insts[:0] = moved
                del b.insts[: len(moved)]

            yield "moves on another edge", home


def _accepts(program: Program, f: Function, env: MachineEnv, saved: tuple[Reg, ...]) -> bool:
    try:
        check(program, f, TARGET, env, saved)
    except InternalError:
        return False
    return True


# What is left of a fault kind at least, so that the test cannot pass for want of faults.
LEAST = {
    "load dropped": 50,
    "store dropped": 20,
    "move dropped": 50,
    "constant dropped": 10,
    "wrong slot read": 20,
    "wrong slot written": 10,
    "wrong register read": 50,
    "wrong register written": 50,
    "wrong constant": 5,
    "two moves exchanged": 3,
    "use in another place": 100,
    "definition in another place": 50,
    "branch reversed": 5,
    "moves on another edge": 2,
}


def test_faults_are_found() -> None:
    found: Counter[str] = Counter()
    for seed in range(15):
        rng = random.Random(seed)
        f = random_function(rng, 6, 8, 5)
        inputs = [[rng.randrange(1000) for _ in range(5)] for _ in range(3)]
        before = [run(f, a, 120) for a in inputs]
        env = (ENV, FOUR, FEW)[seed % 3]
        sink(f, TARGET)
        program = record(f, TARGET)
        saved = allocate(f, TARGET, env).saved
        assert _accepts(program, f, env, saved)
        for kind, take_back in faults(f, program, rng):
            wrong = any(_trace_of(f, a) != b for a, b in zip(inputs, before, strict=True))
            if wrong:
                found[kind] += 1
                assert not _accepts(program, f, env, saved), (seed, kind)
            take_back()
        assert _accepts(program, f, env, saved)
    for kind, least in LEAST.items():
        assert found[kind] >= least, (kind, found)


def _trace_of(f: Function, arguments: list[int]) -> object:
    try:
        return run(f, arguments, 120)
    except Garbage as garbage:
        return str(garbage)


def test_ignored_clobbers_are_found() -> None:
    """An allocator that does not know what calls destroy."""
    found = 0
    for seed in range(60):
        f = random_function(random.Random(seed), 5, 10, 5)
        sink(f, TARGET)
        program = record(f, TARGET)
        calls = [(i, i.clobbers) for b in f.blocks for i in b.insts if i.op == "call"]
        for inst, _ in calls:
            inst.clobbers = ()
        saved = allocate(f, TARGET, ENV).saved
        for inst, clobbers in calls:
            inst.clobbers = clobbers
        found += not _accepts(program, f, ENV, saved)
    assert found > 30


def _line(*insts: Inst) -> tuple[Function, Program]:
    """A function of one block, with what the checker is to compare with."""
    f = Function("f")
    block = Block("entry")
    block.insts = list(insts)
    f.blocks = [block]
    return f, record(f, TARGET)


def _refused(f: Function, program: Program, message: str, env: MachineEnv = ENV, saved: tuple[Reg, ...] = ()) -> None:
    with pytest.raises(InternalError, match=message):
        check(program, f, TARGET, env, saved)


def test_what_each_rule_says() -> None:
    """The rules that random faults hardly reach, one by one, on code that is right but for one thing."""
    f = Function("names")
    a, b, d, e = (f.new(Bank.INT) for _ in range(4))

    def code() -> tuple[Function, Program, Inst, Inst]:
        enter = fixed("enter", [(a, I[1]), (b, I[2])])
        pair = make("pair", d, e, a, b)
        g, program = _line(enter, pair, fixed("ret", uses=[(d, I[3]), (e, I[2])]))
        for operand, place in zip(enter.operands, (I[1], I[2]), strict=True):
            operand.place = place
        for operand, place in zip(pair.operands, (I[3], I[2], I[1], I[2]), strict=True):
            operand.place = place
        for operand, place in zip(g.blocks[0].insts[2].operands, (I[3], I[2]), strict=True):
            operand.place = place
        return g, program, enter, pair

    g, program, _, _ = code()
    check(program, g, TARGET, ENV, ())

    g, program, _, pair = code()
    pair.operands[0].place = I[1]
    _refused(g, program, "written early, in the place of a use")

    g, program, _, pair = code()
    pair.operands[1].place = I[3]
    _refused(g, program, "two definitions in `i3`")

    g, program, _, pair = code()
    pair.operands[2].place = Slot(0)
    g.slots = 1
    _refused(g, program, "must be in a register")

    g, program, _, pair = code()
    pair.operands[0].place = I[9]
    _refused(g, program, "`i9`, which is reserved")

    g, program, _, pair = code()
    pair.operands[0].place = I[5]
    _refused(g, program, "`i5` is written and not saved")

    g, program, enter, _ = code()
    enter.operands[0].place = I[4]
    _refused(g, program, "must be in `i1`, is in `i4`")

    g, program, _, pair = code()
    pair.attrs["more"] = 1
    _refused(g, program, "other attributes")

    g, program, _, pair = code()
    g.blocks[0].insts.remove(pair)
    _refused(g, program, "`pair` is missing")

    g, program, _, pair = code()
    g.blocks[0].insts.insert(2, make("put", a, a, a))
    g.blocks[0].insts[2].operands[0].place = I[1]
    _refused(g, program, "an added instruction")


def test_the_scratch_register_holds_nothing_across_an_instruction() -> None:
    f = Function("names")
    a, d = f.new(Bank.INT), f.new(Bank.INT)
    enter, check_inst = fixed("enter", [(a, I[1])]), make("check", a, a)
    add = make("add", d, a, a)
    to, back = make("move", a, a), make("move", a, a)
    scratch = SCRATCH[Bank.INT]
    g, program = _line(enter, check_inst, add, fixed("ret", uses=[(d, I[1])]))
    for inst, found in (
        (enter, (I[1],)),
        (check_inst, (I[1], I[1])),
        (add, (I[1], I[1], I[1])),
        (to, (scratch, I[1])),
        (back, (I[1], scratch)),
    ):
        for operand, place in zip(inst.operands, found, strict=True):
            operand.place = place
    g.blocks[0].insts[3].operands[0].place = I[1]
    g.blocks[0].insts[1:1] = [to, back]
    check(program, g, TARGET, ENV, ())
    g.blocks[0].insts[1:5] = [to, check_inst, back, add]
    _refused(g, program, "is read from `i1`, which holds nothing known")


def test_late_uses() -> None:
    """What a division reads late is in no register that it writes: rax and rdx of the toy are i0 and i2."""
    f = Function("names")
    a, b, q, r = (f.new(Bank.INT) for _ in range(4))
    enter, div = fixed("enter", [(a, I[0]), (b, I[1])]), make("div", q, r, a, b)
    move = make("move", b, b)
    g, program = _line(enter, div, fixed("ret", uses=[(q, I[0])]))
    for inst, found in ((enter, (I[0], I[1])), (div, (I[0], I[2], I[0], I[2])), (move, (I[2], I[1]))):
        for operand, place in zip(inst.operands, found, strict=True):
            operand.place = place
    g.blocks[0].insts[2].operands[0].place = I[0]
    g.blocks[0].insts.insert(1, move)
    _refused(g, program, "read late from `i2`, which is overwritten")

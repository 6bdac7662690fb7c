"""What goes to the frame and where it is loaded again, which registers are taken, what is made anew instead: on code whose best form is
worked out beside it.
"""

from __future__ import annotations

import pytest
from mir_toy import CALLER_SAVED, ENV, FEW, FOUR, SAVED, TARGET, I, R, fixed, make, places, run

from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.allocate import allocate
from tlc.regalloc.ir import Bank, Block, Function, Inst, Slot, VReg
from tlc.regalloc.target import Kind


class Maker:
    """A function, block by block."""

    def __init__(self) -> None:
        self.f = Function("f")

    def block(self, name: str, depth: int = 0, cold: bool = False) -> Block:
        self.f.blocks.append(Block(name, depth, cold))
        return self.f.blocks[-1]

    def ints(self, count: int) -> list[VReg]:
        return [self.f.new(Bank.INT) for _ in range(count)]

    def reals(self, count: int) -> list[VReg]:
        return [self.f.new(Bank.REAL) for _ in range(count)]


def moved(block: Block) -> list[Inst]:
    """Moves, loads, stores in a block."""
    return [i for i in block.insts if TARGET.rows[i.op].kind is Kind.MOVE]


def in_frame(inst: Inst) -> bool:
    return any(isinstance(o.place, Slot) for o in inst.operands)


def loop_with(live_through: int, used: int) -> tuple[Function, Block]:
    """A loop that uses `used` values, while `live_through` more are live through it and used behind it."""
    m = Maker()
    entry, loop, out = m.block("entry"), m.block("loop", depth=1), m.block("out")
    a, b = m.ints(2)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])])]
    waiting, busy = m.ints(live_through), m.ints(used)
    for v in waiting + busy:
        entry.insts.append(make("add", v, a, b))
        a = v
    (k,) = m.ints(1)
    loop.params = [k]
    entry.insts.append(make("jump", targets=[(loop, (b,))]))
    for v in busy:
        (k2,) = m.ints(1)
        loop.insts.append(make("add", k2, k, v))
        loop.insts.append(make("put", v, v, k2))
        k = k2
    loop.insts.append(make("br", k, b, targets=[(loop, (k,)), (out, ())]))
    for v in waiting:
        out.insts.append(make("put", v, v, v))
    out.insts.append(fixed("ret", uses=[(k, I[1])]))
    return m.f, loop


def test_what_a_loop_does_not_use_waits_in_the_frame() -> None:
    """8 registers; in the loop 6 values, its counter and its limit. Three more live through it: they are stored before and loaded behind
    it, and nothing moves in the loop.
    """
    f, loop = loop_with(live_through=3, used=6)
    stats = allocate(f, TARGET, ENV, verify=True)
    assert moved(loop) == []
    assert stats.spilled == 3
    assert (stats.loads, stats.stores) == (3, 3)


def test_no_spill_without_pressure() -> None:
    f, _ = loop_with(live_through=0, used=5)
    stats = allocate(f, TARGET, ENV, verify=True)
    assert (stats.spilled, stats.loads, stats.stores, stats.slots) == (0, 0, 0, 0)
    assert stats.pressure[Bank.INT] == 7
    assert stats.pressure[Bank.REAL] == 0


def test_the_hot_loop_keeps_its_registers() -> None:
    """An inner loop with as many values as there are registers, an outer one with more: loads and stores stand in the outer one."""
    m = Maker()
    entry, outer, inner, latch, out = m.block("entry"), m.block("outer", 1), m.block("inner", 2), m.block("latch", 1), m.block("out")
    a, b = m.ints(2)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])])]
    far, near = m.ints(4), m.ints(5)
    for v in far + near:
        entry.insts.append(make("add", v, a, b))
    entry.insts.append(make("jump", targets=[(outer, (a,))]))
    i, j = m.ints(2)
    outer.params = [i]
    for v in far:
        outer.insts.append(make("put", v, i, v))
    outer.insts.append(make("jump", targets=[(inner, (i,))]))
    inner.params = [j]
    for v in near:
        (n,) = m.ints(1)
        inner.insts.append(make("add", n, j, v))
        j = n
    inner.insts.append(make("br", j, b, targets=[(inner, (j,)), (latch, ())]))
    latch.insts.append(make("br", j, a, targets=[(outer, (j,)), (out, ())]))
    out.insts.append(fixed("ret", uses=[(j, I[1])]))
    stats = allocate(m.f, TARGET, ENV, verify=True)
    assert moved(inner) == []
    assert stats.spilled >= 1


def test_leaf_code_saves_nothing() -> None:
    """Callee-saved registers are the last that code without calls takes."""
    f, _ = loop_with(live_through=0, used=2)
    stats = allocate(f, TARGET, ENV, verify=True)
    assert stats.saved == ()
    assert not set(places(f)) & set(SAVED)


def _calls_in_a_loop(values: int) -> tuple[Function, Block]:
    m = Maker()
    entry, loop, out = m.block("entry"), m.block("loop", depth=1), m.block("out")
    a, b, k, n, r = m.ints(5)
    keep = m.ints(values)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), *(make("add", v, a, b) for v in keep), make("jump", targets=[(loop, (a,))])]
    loop.params = [k]
    loop.insts = [fixed("call", [(r, I[0])], [(k, I[0])]), make("add", n, r, k), *(make("put", v, v, n) for v in keep)]
    loop.insts.append(make("br", n, b, targets=[(loop, (n,)), (out, ())]))
    out.insts = [fixed("ret", uses=[(n, I[1])])]
    return m.f, loop


def test_values_across_calls_are_in_callee_saved_registers() -> None:
    """Of three values that live across the call, each gets one of the three registers that calls keep."""
    f, loop = _calls_in_a_loop(values=1)
    stats = allocate(f, TARGET, ENV, verify=True)
    assert len(stats.saved) == 3
    assert not any(in_frame(i) for i in moved(loop))


def test_more_values_across_calls_than_registers() -> None:
    """Those that do not fit are stored before the loop and read once in each round."""
    f, loop = _calls_in_a_loop(values=4)
    allocate(f, TARGET, ENV, verify=True)
    frame = [i for i in moved(loop) if in_frame(i)]
    assert len(frame) == 3
    assert all(isinstance(i.operands[1].place, Slot) for i in frame)


def test_a_call_in_cold_code_costs_hot_code_nothing() -> None:
    """Reals have no callee-saved registers. The call stands in a cold block of the loop: stores and loads do too."""
    m = Maker()
    entry, loop, rare, latch, out = m.block("entry"), m.block("loop", 1), m.block("rare", 1, cold=True), m.block("latch", 1), m.block("out")
    a, b, k, n = m.ints(4)
    x, y, s, t = m.reals(4)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2]), (x, R[0]), (y, R[1])]), make("jump", targets=[(loop, (a, y))])]
    loop.params = [k, s]
    loop.insts = [make("radd", t, s, x), make("br", k, b, targets=[(rare, ()), (latch, ())])]
    rare.insts = [fixed("call"), make("jump", targets=[(latch, ())])]
    latch.insts = [make("add", n, k, b), make("br", n, a, targets=[(loop, (n, t)), (out, ())])]
    out.insts = [fixed("ret", uses=[(t, R[0])])]
    stats = allocate(m.f, TARGET, ENV, verify=True)
    assert moved(loop) == [] and moved(latch) == []
    assert stats.stores == sum(isinstance(i.operands[0].place, Slot) for i in moved(rare))


def test_constants_are_made_again() -> None:
    """Ten constants, live through a loop: none is stored, none moved."""
    m = Maker()
    entry, loop, out = m.block("entry"), m.block("loop", depth=1), m.block("out")
    a, b, k, n = m.ints(4)
    constants = m.ints(10)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), *(make("const", v, imm=j) for j, v in enumerate(constants))]
    entry.insts.append(make("jump", targets=[(loop, (constants[0],))]))
    loop.params = [k]
    loop.insts = [make("add", n, k, a), make("br", n, b, targets=[(loop, (n,)), (out, ())])]
    out.insts = [*(make("put", v, v, v) for v in constants), fixed("ret", uses=[(constants[3], I[1])])]
    stats = allocate(m.f, TARGET, ENV, verify=True)
    assert (stats.loads, stats.stores, stats.moves) == (0, 0, 0)
    assert run(m.f, [5, 20])[-1] == ("ret", 3)


def test_an_unused_constant_goes() -> None:
    """A constant that is only passed on is made where it is wanted, and its definition is gone."""
    m = Maker()
    entry = m.block("entry")
    (a,) = m.ints(1)
    entry.insts = [make("const", a, imm=4), fixed("call", uses=[(a, I[0])]), fixed("ret", uses=[(a, I[1])])]
    allocate(m.f, TARGET, ENV, verify=True)
    assert [(i.op, str(i.operands[0].place)) for i in entry.insts] == [("const", "i0"), ("call", "i0"), ("const", "i1"), ("ret", "i1")]


def test_slots_are_shared() -> None:
    """Two groups of values, one after the other, each across a call with nothing to keep them: the second takes the slots of the first."""
    m = Maker()
    entry = m.block("entry")
    start = m.reals(1)[0]
    entry.insts = [fixed("enter", [(start, R[0])])]
    for _ in range(3):
        group = m.reals(4)
        for v in group:
            entry.insts.append(make("radd", v, start, start))
        entry.insts.append(fixed("call"))
        for v in group:
            (w,) = m.reals(1)
            entry.insts.append(make("radd", w, v, v))
            start = w
    entry.insts.append(fixed("ret", uses=[(start, R[0])]))
    stats = allocate(m.f, TARGET, ENV, verify=True)
    assert stats.spilled == 12
    assert stats.slots == 4


def test_what_only_a_failure_reads_costs_nothing() -> None:
    """Values that a check reports are in the frame if there are too many: one store each, no load."""
    m = Maker()
    entry = m.block("entry")
    a, b = m.ints(2)
    values = m.ints(12)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), *(make("add", v, a, b) for v in values)]
    entry.insts += [make("check", a, b, late=values), fixed("ret", uses=[(a, I[1])])]
    stats = allocate(m.f, TARGET, ENV, verify=True)
    assert stats.loads == 0
    assert stats.stores == 6 and stats.slots == 6


def test_three_at_once_fit_three_registers() -> None:
    """An address of two registers and a value, while others are live."""
    m = Maker()
    entry = m.block("entry")
    a, b = m.ints(2)
    values = m.ints(6)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), *(make("add", v, a, b) for v in values)]
    entry.insts += [make("put", values[k], values[k - 1], values[k - 2]) for k in range(6)]
    entry.insts.append(fixed("ret", uses=[(a, I[1])]))
    before = run(m.f, [3, 4])
    allocate(m.f, TARGET, FEW, verify=True)
    assert run(m.f, [3, 4]) == before


def test_more_than_there_are_is_an_error() -> None:
    """`sel` wants its result and two compared values, `pair` four: that many registers there must be."""
    m = Maker()
    entry = m.block("entry")
    a, b, c, d, p, q = m.ints(6)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), make("add", c, a, b), make("add", d, a, c), make("pair", p, q, c, d)]
    entry.insts += [make("put", c, d, a), make("put", p, q, b), fixed("ret", uses=[(c, I[1])])]
    allocate(m.f, TARGET, FOUR, verify=True)
    few = FEW.allocatable[Bank.INT][:2]
    two = type(FEW)({Bank.INT: few, Bank.REAL: FEW.allocatable[Bank.REAL]}, FEW.callee_saved, FEW.scratch)
    n = Maker()
    entry = n.block("entry")
    a, b, c = n.ints(3)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), make("add", c, a, b), make("put", a, b, c), fixed("ret", uses=[(a, I[1])])]
    with pytest.raises(InternalError, match="no register for"):
        allocate(n.f, TARGET, two)


def test_stats_and_graph() -> None:
    """Three values of which two live at once, and a copy that joins the first and the third."""
    m = Maker()
    entry, loop, out = m.block("entry"), m.block("loop", depth=1), m.block("out")
    a, b, k, n = m.ints(4)
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), make("jump", targets=[(loop, (a,))])]
    loop.params = [k]
    loop.insts = [make("add", n, k, b), make("br", n, b, targets=[(loop, (n,)), (out, ())])]
    out.insts = [fixed("ret", uses=[(n, I[1])])]
    stats = allocate(m.f, TARGET, ENV, graph=True)
    assert stats.graph is not None
    assert [number for number, _, _ in stats.graph.nodes] == [a.number, b.number, k.number, n.number]
    assert stats.graph.edges == ((a.number, b.number), (b.number, k.number), (b.number, n.number))
    # The latch copies n to k in the loop (10 times as often), the entry a to k.
    assert stats.graph.copies == ((a.number, k.number, 1.0), (k.number, n.number, 10.0))
    assert stats.graph.colours == {a.number: ("i1",), b.number: ("i2",), k.number: ("i1",), n.number: ("i1",)}
    assert stats.counts()["pressure_int"] == 2
    assert list(stats.counts()) == ["spilled", "slots", "loads", "stores", "moves", "remats", "pressure_int", "pressure_real"]


def test_caller_saved_are_those_that_calls_destroy() -> None:
    """The toy machine itself: no register is of both kinds."""
    assert not set(CALLER_SAVED) & set(SAVED)

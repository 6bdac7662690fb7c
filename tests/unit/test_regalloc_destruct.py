"""Leaving SSA form: the swap problem, the lost-copy problem, critical edges, and where the blocks on edges go."""

from __future__ import annotations

from mir_toy import ENV, FEW, TARGET, I, fixed, make, run

from tlc.regalloc.allocate import allocate
from tlc.regalloc.destruct import destruct
from tlc.regalloc.ir import Bank, Block, Function, VReg


def _ints(f: Function, *names: str) -> list[VReg]:
    return [f.new(Bank.INT, name) for name in names]


def swap() -> Function:
    """loop(a, b, n) goes on with (b, a, n - 1): after an odd number of rounds a and b have changed places.

    One copy after the other would give both the same value.
    """
    f = Function("swap")
    entry, loop, out = Block("entry"), Block("loop", depth=1), Block("out")
    f.blocks = [entry, loop, out]
    a0, b0, n0, a, b, n, one, zero, next_n = _ints(f, "a0", "b0", "n0", "a", "b", "n", "one", "zero", "next")
    entry.insts = [fixed("enter", [(a0, I[1]), (b0, I[2]), (n0, I[3])]), make("jump", targets=[(loop, (a0, b0, n0))])]
    loop.params = [a, b, n]
    loop.insts = [
        make("const", one, imm=1),
        make("const", zero, imm=0),
        make("sub", next_n, n, one),
        make("br", zero, next_n, targets=[(loop, (b, a, next_n)), (out, ())]),
    ]
    out.insts = [fixed("ret", uses=[(a, I[1]), (b, I[2])])]
    return f


def lost_copy() -> Function:
    """loop(x) goes on with x + 1, and x of the last round, not x + 1, is what the function returns.

    A copy x <- x + 1 at the end of the loop block itself, before it is known where to go, would lose it.
    """
    f = Function("lost_copy")
    entry, loop, out = Block("entry"), Block("loop", depth=1), Block("out")
    f.blocks = [entry, loop, out]
    x0, limit, x, one, y = _ints(f, "x0", "limit", "x", "one", "y")
    entry.insts = [fixed("enter", [(x0, I[1]), (limit, I[2])]), make("jump", targets=[(loop, (x0,))])]
    loop.params = [x]
    loop.insts = [make("const", one, imm=1), make("add", y, x, one), make("br", y, limit, targets=[(loop, (y,)), (out, ())])]
    out.insts = [fixed("ret", uses=[(x, I[1])])]
    return f


def test_swap() -> None:
    for n, expected in ((1, (10, 20)), (2, (20, 10)), (3, (10, 20)), (6, (20, 10))):
        for env in (None, ENV, FEW):
            f = swap()
            if env is None:
                destruct(f)
            else:
                allocate(f, TARGET, env, verify=True)
            assert run(f, [10, 20, n])[-1] == ("ret", *expected)


def test_lost_copy() -> None:
    for env in (None, ENV, FEW):
        f = lost_copy()
        if env is None:
            destruct(f)
        else:
            allocate(f, TARGET, env, verify=True)
        # x runs 3, 4, 5, 6; the first y that is not below 7 is 7, with x = 6.
        assert run(f, [3, 7])[-1] == ("ret", 6)


def test_swap_takes_one_cycle() -> None:
    """The exchange of two registers is three moves through the scratch register, nothing else moves in the loop."""
    f = swap()
    stats = allocate(f, TARGET, ENV)
    assert (stats.moves, stats.loads, stats.stores) == (3, 0, 0)


def test_critical_edge() -> None:
    """The edge from a block with two successors to one with two predecessors gets a block; the others do not."""
    f = swap()
    made = destruct(f)
    assert [b.name for b in made] == ["loop.loop"]
    assert [i.op for i in made[0].insts] == ["pmove", "jump"]
    assert made[0].depth == 1
    assert [b.name for b in f.blocks] == ["entry", "loop", "loop.loop", "out"]


def test_an_edge_without_moves_goes() -> None:
    """A counting loop: the next value is in the place of the parameter, so its edge needs no block."""
    f = Function("count")
    entry, loop, out = Block("entry"), Block("loop", depth=1), Block("out")
    f.blocks = [entry, loop, out]
    x0, limit, x, one, y = _ints(f, "x0", "limit", "x", "one", "y")
    entry.insts = [fixed("enter", [(x0, I[1]), (limit, I[2])]), make("jump", targets=[(loop, (x0,))])]
    loop.params = [x]
    loop.insts = [make("const", one, imm=1), make("add", y, x, one), make("br", y, limit, targets=[(loop, (y,)), (out, ())])]
    out.insts = [fixed("ret", uses=[(y, I[1])])]
    stats = allocate(f, TARGET, ENV, verify=True)
    assert [b.name for b in f.blocks] == ["entry", "loop", "out"]
    assert loop.terminator.targets[0][0] is loop
    assert (stats.moves, stats.loads, stats.stores) == (0, 0, 0)


def test_cold_edges_go_to_the_end() -> None:
    """A branch to a cold block that has other predecessors too: its moves stand behind everything else."""
    f = Function("cold")
    entry, hot, cold = Block("entry"), Block("hot"), Block("cold", cold=True)
    f.blocks = [entry, hot, cold]
    a, b, x = _ints(f, "a", "b", "x")
    entry.insts = [fixed("enter", [(a, I[1]), (b, I[2])]), make("br", a, b, targets=[(cold, (a,)), (hot, ())])]
    hot.insts = [make("br", b, a, targets=[(cold, (b,)), (entry_end := Block("end"), ())])]
    entry_end.insts = [fixed("ret", uses=[(a, I[1])])]
    f.blocks.append(entry_end)
    cold.params = [x]
    cold.insts = [fixed("ret", uses=[(x, I[1])])]
    made = destruct(f)
    assert [m.name for m in made] == ["entry.cold", "hot.cold"]
    assert all(m.cold for m in made)
    assert [m.name for m in f.blocks] == ["entry", "hot", "cold", "end", "entry.cold", "hot.cold"]


def test_one_predecessor_needs_no_moves() -> None:
    """A parameter of a block with one predecessor is another name of the argument, also through a chain of blocks."""
    f = Function("chain")
    blocks = [Block(f"b{k}") for k in range(3)]
    f.blocks = blocks
    a, p, q = _ints(f, "a", "p", "q")
    blocks[0].insts = [fixed("enter", [(a, I[1])]), make("jump", targets=[(blocks[1], (a,))])]
    blocks[1].params = [p]
    blocks[1].insts = [make("put", p, p, a), make("jump", targets=[(blocks[2], (p,))])]
    blocks[2].params = [q]
    blocks[2].insts = [fixed("ret", uses=[(q, I[1])])]
    stats = allocate(f, TARGET, ENV, verify=True)
    assert stats.moves == 0
    assert run(f, [5]) == [("put", 5, 5, 5), ("ret", 5)]


def test_unreachable_blocks_go() -> None:
    f = swap()
    lost = Block("lost")
    lost.insts = [make("jump", targets=[(lost, ())])]
    f.blocks.append(lost)
    allocate(f, TARGET, ENV, verify=True)
    assert lost not in f.blocks

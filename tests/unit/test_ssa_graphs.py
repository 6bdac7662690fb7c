"""Dominators, frontiers and liveness against their definitions on random graphs; loops by example."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from ssa_random import modules

from tlc.frontend.types import Elem
from tlc.ssa.cfg import predecessors, reverse_postorder, successors
from tlc.ssa.dominance import dominance
from tlc.ssa.ir import BOOL, Block, Function, Instr, Module, Region, Type, branch, jump, ret
from tlc.ssa.liveness import free_values, liveness, reads
from tlc.ssa.loops import loops
from tlc.ssa.text import parse_module


@st.composite
def graphs(draw: st.DrawFn) -> Region:
    n = draw(st.integers(1, 9))
    region = Region([Block(f"b{k}") for k in range(n)])
    cond = region.entry.add_param(BOOL)
    for block in region.blocks:
        targets = draw(st.lists(st.integers(1, n - 1), max_size=2)) if n > 1 else []
        match [region.blocks[t] for t in targets]:
            case []:
                block.terminator = ret(())
            case [a]:
                block.terminator = jump(a)
            case [a, b]:
                block.terminator = branch(cond, a, b)
    return region


def reach(region: Region, without: Block | None = None) -> set[Block]:
    seen: set[Block] = set()
    work = [region.entry]
    while work:
        b = work.pop()
        if b not in seen and b is not without:
            seen.add(b)
            work += successors(b)
    return seen


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_dominance_is_what_its_definition_says(region: Region) -> None:
    tree = dominance(region)
    reachable = reach(region)
    assert set(tree.order) == reachable
    for a in region.blocks:
        missing = reachable - reach(region, without=a)
        for b in region.blocks:
            assert tree.dominates(a, b) == (a in reachable and b in missing)
    frontiers = tree.frontiers()
    before = predecessors(region)
    for a in tree.order:
        expected = {b for b in tree.order if any(tree.dominates(a, p) for p in before[b]) and not (tree.dominates(a, b) and a is not b)}
        assert set(frontiers[a]) == expected
    for b, children in tree.children().items():
        assert all(tree.immediate[c] is b for c in children)


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_loops_are_strongly_connected_and_entered_by_the_header(region: Region) -> None:
    tree = dominance(region)
    for loop in loops(region):
        assert loop.blocks[0] is loop.header
        assert all(tree.dominates(loop.header, b) for b in loop.blocks)
        before = predecessors(region)
        for b in loop.blocks[1:]:
            assert all(p in loop for p in before[b] if p in tree.immediate)
        if loop.parent:
            assert set(loop.blocks) < set(loop.parent.blocks)


def test_nested_loops() -> None:
    f = parse_module(
        """func @f(%p: bool) {
        entry: jump outer
        outer: branch %p, pre, out
        pre: jump inner
        inner: branch %p, body, next
        body: jump inner
        next: jump outer
        out: return
        }"""
    ).functions["f"]
    outer, inner = loops(f.body)
    assert [b.name for b in inner.blocks] == ["inner", "body"]
    assert (outer.depth, inner.depth, inner.parent) == (1, 2, outer)
    assert outer.preheader() is f.blocks[0]
    assert [b.name for b in inner.latches] == ["body"]
    assert [(a.name, b.name) for a, b in inner.exits()] == [("inner", "next")]


def test_reverse_postorder_of_a_long_chain() -> None:
    region = Region([Block() for _ in range(5000)])
    for a, b in zip(region.blocks, region.blocks[1:], strict=False):
        a.terminator = jump(b)
    region.blocks[-1].terminator = ret(())
    assert reverse_postorder(region) == region.blocks
    assert dominance(region).dominates(region.blocks[0], region.blocks[-1])


def live_by_paths(f: Function, block: Block) -> set[object]:
    """Values that some path from the start of a block reads before it defines them, by search from every reader."""
    out = set()
    read = {u: reads(u) for b in f.blocks for u in (*b.instrs, b.terminator)}
    for v in {v for values in read.values() for v in values}:
        seen, work = set(), [block]
        while work:
            b = work.pop()
            if b in seen or v in b.params:
                continue
            seen.add(b)
            for user in (*b.instrs, b.terminator):
                if v in read[user]:
                    out.add(v)
                if isinstance(user, Instr) and v in user.results:
                    break
            else:
                work += successors(b)
    return out


@settings(max_examples=25, deadline=None)
@given(modules())
def test_liveness_is_what_its_definition_says(module: Module) -> None:
    for f in module.functions.values():
        live = liveness(f.body)
        for block in live.live_in:
            assert set(live.live_in[block]) == live_by_paths(f, block)
            assert set(live.live_out[block]) == {v for s in successors(block) for v in live.live_in[s]}
        assert not live.live_in[f.body.entry]
        assert not free_values(f.body)


def test_a_region_reads_at_the_instruction_that_holds_it() -> None:
    f = parse_module(
        """func @f(%n: i64, %x: f32[_]) -> f32[_] {
        entry:
          %y = tabulate %n { (%i: i64): %a = index %x, %i : f32  yield %a } : f32[_]
          %dead = dim %y {axis = 0} : i64
          return %y
        }"""
    ).functions["f"]
    n, x = f.params
    tabulate, dim = f.blocks[0].instrs
    assert list(reads(tabulate)) == [n, x]
    last = liveness(f.body).last_uses(f.blocks[0])
    assert last[tabulate] == [n, x]
    assert last[dim] == [dim.result]
    assert last[f.blocks[0].terminator] == [tabulate.result]
    assert tabulate.result.type == Type(Elem.F32, 1)

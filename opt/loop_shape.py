"""What the passes over loops share: a block to enter a loop by, the test of a loop before it, copies of a loop.

Requires SSA. Each changes the graph, so trees and loops are to be found anew.
"""

from __future__ import annotations

from collections.abc import Collection

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.clone import clone_blocks, clone_instr
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import Block, Instr, Region, Terminator, Value, const_of, jump
from tlc.ssa.loops import Loop
from tlc.ssa.ops import effect
from tlc.ssa.repair import rejoin

PURE = frozenset({*SCALAR_OPS, "const", "dim", "load", "index"})  # ops without effect that may be computed twice


def region_of(loop: Loop) -> Region:
    assert loop.header.region is not None
    return loop.header.region


def enter_by_one_block(loop: Loop) -> Block:
    """The block that enters the loop and goes nowhere else; it is made if there is none."""
    found = loop.preheader()
    if found is not None:
        return found
    region = region_of(loop)
    outside = [(source, edge) for source, edge in edges_into(region)[loop.header] if source not in loop]
    before = Block("before")
    params = tuple(before.add_param(p.type, p.name) for p in loop.header.params)
    before.terminator = jump(loop.header, params, loop.header.terminator.span)
    before.region = region
    region.blocks.insert(region.blocks.index(loop.header), before)
    for source, edge in outside:
        redirect(source, edge, before, source.terminator.args(edge))
    return before


def defined_in(blocks: list[Block]) -> list[Value]:
    """The values that blocks define, in order."""
    out: list[Value] = []
    for b in blocks:
        out += b.params
        for i in b.instrs:
            out += i.results
    return out


def is_outside(value: Value, blocks: Collection[Block]) -> bool:
    """Whether a value is none that the blocks of a loop define, or a constant."""
    home = value.block
    return home not in blocks or const_of(value) is not None


def used_outside(values: list[Value], blocks: set[Block]) -> list[Value]:
    """Those of the values that something outside of the blocks reads."""
    return [v for v in values if any(isinstance(u, Instr | Terminator) and u.block not in blocks for u in v.uses)]


def may_rotate(loop: Loop) -> bool:
    """Whether the loop begins with a test that may leave it, and nothing but pure ops before."""
    t = loop.header.terminator
    if t.op != "branch" or (t.targets[0] in loop) == (t.targets[1] in loop) or loop.header in t.targets:
        return False
    return all(i.op in PURE for i in loop.header.instrs)


def sure_to_come(loop: Loop) -> set[Instr]:
    """The instructions that the first iteration is sure to come to, if there is one, with no effect before them."""
    found: set[Instr] = set()
    block, seen = loop.header, {loop.header}
    while True:
        for instr in block.instrs:
            if effect(instr.op) != "none":
                return found
            found.add(instr)
        t = block.terminator
        inside = [b for b in t.targets if b in loop]
        tests = t.op == "branch" and block is loop.header and may_rotate(loop)
        if (t.op != "jump" and not tests) or len(inside) != 1 or inside[0] in seen:
            return found
        block = inside[0]
        seen.add(block)


def rotate(loop: Loop) -> Block:
    """Test before the loop whether it runs at all, and from then on at the end of each iteration; gives the new block that enters the
    loop, which runs only if the first iteration does.

        before: jump head(%a)                                     before: branch (test %a), enter, exit
        head(%i): branch (test %i), body, exit          ->        enter:  jump body(%a)
        body: ..; jump head(%j)                                   body(%i): ..; jump head(%j)
                                                                  head(%k): branch (test %k), body(%k), exit
    """
    region, header = region_of(loop), loop.header
    before = enter_by_one_block(loop)
    values = dict(zip(header.params, before.terminator.args(0), strict=True))
    for i in header.instrs:
        before.append(clone_instr(i, values))
    t = header.terminator
    inside = 0 if t.targets[0] in loop else 1
    enter = Block("enter")
    enter.region = region
    region.blocks.insert(region.blocks.index(before) + 1, enter)
    edges = [(b, tuple(values.get(a, a) for a in args)) for b, args in t.edges]
    enter.terminator = jump(*edges[inside], t.span)
    edges[inside] = (enter, ())
    before.terminator = Terminator("branch", tuple(values.get(v, v) for v in t.own), tuple(edges), t.span)
    rejoin(region, [(v, {header: v, before: values[v]}) for v in used_outside(defined_in([header]), {header})])
    return enter


def copy_loop(loop: Loop) -> tuple[dict[Block, Block], dict[Value, Value]]:
    """A copy of the loop's blocks beside it, which nobody enters yet; its exits go where those of the loop go. Gives the copies of blocks
    and values. Values that are read behind the loop have two definitions from now on: `rejoin` them (`definitions`) when the
    copy is entered.
    """
    region = region_of(loop)
    values: dict[Value, Value] = {}
    copies = clone_blocks(loop.blocks, values)
    for c in copies:
        region.add(c)
    return dict(zip(loop.blocks, copies, strict=True)), values


def definitions(loop: Loop, copies: list[tuple[dict[Block, Block], dict[Value, Value]]]) -> list[tuple[Value, dict[Block, Value]]]:
    """What `rejoin` is to be given for a loop and its copies."""
    found = []
    for v in used_outside(defined_in(loop.blocks), set(loop.blocks)):
        home = v.block
        assert home is not None
        found.append((v, {home: v, **{blocks[home]: values[v] for blocks, values in copies}}))
    return found

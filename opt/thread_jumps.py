"""Jump threading: an edge that already knows how the branch behind it will go takes that way at once.

Requires SSA; preserves every value and the order of effects. Where several edges meet in a block that ends with a branch, each is asked
what the condition is if control comes from there: the constants that it passes to parameters, and the branches on the
way to it (Bodik, Gupta and Soffa, "Interprocedural conditional branch elimination", 1997, inside of one function). A decided
edge gets its own copy of the few instructions that it still needs and goes on to the side that is taken.

    a:  branch %p, b, join(%false)             a:  branch %p, b, other
    b:  jump join(%q)                    ->    b:  branch %q, then, other          (`simplify-cfg` merges what is left of `join`)
    join(%c):  branch %c, then, other

What other blocks read of the block, or of its copies, comes to them through new parameters (`ssa/repair.py`).

Not threaded: a block that does more than a few ops without effect, the header of a loop (the loop would get a second entry), and
an edge that would become one more way back to a header.
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS, Literal
from tlc.opt.conditions import OPPOSITE
from tlc.opt.regions import all_regions, fused_product
from tlc.opt.rewrite import constant
from tlc.ssa.clone import clone_instr
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into, redirect, remove_unreachable
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Value, const_of, jump
from tlc.ssa.repair import rejoin

LIMIT = 4  # instructions of a block that is threaded, and values of it that other blocks read

Fact = tuple[Value, bool]


def thread_jumps(module: Module) -> None:
    """Thread every region of the module until nothing changes."""
    for region in all_regions(module):
        while thread_region(region):
            pass


def thread_region(region: Region) -> bool:
    """Thread the edges into one block of a region; whether there were any to thread."""
    tree, into = dominance(region), edges_into(region)
    for block in region.blocks[1:]:
        if block in tree.immediate and len(into[block]) > 1 and _may_thread(block, into[block], tree):
            decided: list[tuple[Block, int, bool]] = []
            for source, edge in into[block]:
                if source in tree.immediate:
                    given = dict(zip(block.params, source.terminator.args(edge), strict=True))
                    side = _Edge(block, given, _facts(source, edge, tree, into)).truth(block.terminator.own[0])
                    if side is not None:
                        decided.append((source, edge, side))
            if decided:
                _thread(region, block, decided)
                return True
    return False


def _may_thread(block: Block, edges: list[tuple[Block, int]], tree: Dominance) -> bool:
    t = block.terminator
    if t.op != "branch" or len(block.instrs) > LIMIT or any(tree.dominates(block, source) for source, _ in edges):
        return False
    if any(i.op not in SCALAR_OPS and i.op != "const" for i in block.instrs) or len(_read_elsewhere(block)) > LIMIT:
        return False
    return not any(tree.dominates(target, block) for target in t.targets)


def _thread(region: Region, block: Block, decided: list[tuple[Block, int, bool]]) -> None:
    """Let edges into a block go on to the side that each takes, through a copy of the block if somebody needs its values."""
    end = block.terminator
    elsewhere = _read_elsewhere(block)
    passed = {a for _, args in end.edges for a in args}
    copies: dict[Block, dict[Value, Value]] = {}
    for source, edge, side in decided:
        copy = dict(zip(block.params, source.terminator.args(edge), strict=True))
        target, args = end.edges[0 if side else 1]
        if not elsewhere and not any(i.result in passed for i in block.instrs):
            redirect(source, edge, target, tuple(copy.get(a, a) for a in args))
            continue
        between = region.add(Block(block.name))
        for i in block.instrs:
            between.append(clone_instr(i, copy))
        between.terminator = jump(target, tuple(copy.get(a, a) for a in args), end.span)
        redirect(source, edge, between, ())
        copies[between] = copy
    if elsewhere:
        rejoin(region, [(v, {block: v, **{b: copy[v] for b, copy in copies.items()}}) for v in elsewhere])
    remove_unreachable(region)


def _read_elsewhere(block: Block) -> list[Value]:
    """The values of a block that other blocks read."""
    values = [*block.params, *(i.result for i in block.instrs)]
    return [v for v in values if any(_block_of(user) is not block for user in v.uses)]


def _block_of(user: object) -> Block | None:
    return user.block if isinstance(user, Instr | Terminator) else None


def _facts(source: Block, edge: int, tree: Dominance, into: dict[Block, list[tuple[Block, int]]]) -> list[Fact]:
    """The conditions that are decided where an edge is taken, the nearest first."""
    found: list[Fact] = []
    if source.terminator.op == "branch":
        found.append((source.terminator.own[0], edge == 0))
    block = source
    while True:
        if len(into[block]) == 1:
            before, k = into[block][0]
            if before.terminator.op == "branch":
                found.append((before.terminator.own[0], k == 0))
        if tree.immediate[block] is block:
            return found
        block = tree.immediate[block]


class _Edge:
    """What is known of the values of a block if control comes by one edge."""

    def __init__(self, block: Block, given: dict[Value, Value], facts: list[Fact]) -> None:
        self.block, self.given, self.facts = block, given, facts

    def truth(self, cond: Value) -> bool | None:
        known = self.literal(cond)
        if known is not None:
            return known is True
        cond = self.given.get(cond, cond)
        for fact, truth in self.facts:
            found = self.follows(cond, fact, truth)
            if found is not None:
                return found
        if isinstance(cond.owner, Instr) and cond.owner.op == "not":
            inner = self.truth(cond.owner.operands[0])
            return None if inner is None else not inner
        return None

    def literal(self, value: Value) -> Literal | None:
        """The constant that a value is on this edge."""
        value = self.given.get(value, value)
        known = const_of(value)
        instr = value.owner
        if known is not None or not isinstance(instr, Instr) or instr.block is not self.block:
            return known
        if instr.op not in SCALAR_OPS or fused_product(instr):
            return None
        return constant(instr.op, instr.result.type.elem, [self.literal(v) for v in instr.operands], instr.operands)

    def follows(self, cond: Value, fact: Value, truth: bool) -> bool | None:
        """What a condition is if another one has a value."""
        if cond is fact:
            return truth
        a, b = cond.owner, fact.owner
        if not isinstance(b, Instr):
            return None
        if b.op == ("and" if truth else "or"):
            found = [self.follows(cond, v, truth) for v in b.operands]
            return next((f for f in found if f is not None), None)
        if not isinstance(a, Instr) or a.op not in OPPOSITE or b.op not in OPPOSITE:
            return None
        if [self.name(v) for v in a.operands] != [self.name(v) for v in b.operands]:
            return None
        if a.op == b.op:
            return truth
        total = not a.operands[0].type.elem.is_real or a.op in ("eq", "ne")  # of reals, `not (x < y)` is not `x >= y`
        return not truth if total and a.op == OPPOSITE[b.op] else None

    def name(self, value: Value) -> object:
        """A value on this edge; a constant by what it is."""
        value = self.given.get(value, value)
        known = const_of(value)
        return value if known is None else (value.type, repr(known))

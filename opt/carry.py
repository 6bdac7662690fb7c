"""What one iteration stores and the next loads is handed on in a register (scalar replacement: Callahan, Carr and Kennedy 1990).

Requires host SSA before the memory plan; preserves every value, the order of effects, and what is stored. A load of the tensor
that a loop's header hands on finds, in every iteration but the first, what an iteration before has left there. If the last
store to that position is in sight, because positions are polynomials of the loop's counters (`opt/polynomials.py`) and the
stores behind it go elsewhere, the stored value comes as a parameter, and the first one is loaded before the loop.

    head(%t, %j):  %a = load %t, %j                          %first = load %t0, 0;  jump head(%t0, 0, %first)
                   %at = add %j, 1                     ->    head(%t, %j, %a):  %at = add %j, 1
                   %u = store %t, %at, %v                                       %u = store %t, %at, %v
                   jump head(%u, %at)                                           jump head(%u, %at, %v)

A load takes some cycles behind the store that it reads from, and the sum or minimum that waits for it is what such a loop
consists of. The first load must be sure to come, or be in range, as in `licm`.
"""

from __future__ import annotations

from tlc.opt.conditions import END
from tlc.opt.dims import Sizes
from tlc.opt.facts import ZERO, Facts
from tlc.opt.loop_shape import enter_by_one_block, may_rotate, region_of, rotate, sure_to_come
from tlc.opt.polynomials import Polynomials, difference
from tlc.opt.strength import Emitter
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import Block, Function, Instr, Module, Value, const_of, erase
from tlc.ssa.loops import Loop, loops

MOST = 4  # values that one loop hands on so
STORES = 8  # stores that are looked through


def carry(module: Module) -> None:
    """Hand on what is stored in the loops of every function, innermost loops first."""
    for f in module.functions.values():
        _function(f)


def _function(f: Function) -> None:
    count: dict[Block, int] = {}  # by latch
    while True:
        tree = dominance(f.body)
        found = sorted(loops(f.body, tree), key=lambda loop: -loop.depth)
        if not any(_Carrying(loop, tree, f).run() for loop in found if count.get(loop.latches[0], 0) < MOST and _count(count, loop)):
            return


def _count(count: dict[Block, int], loop: Loop) -> bool:
    count[loop.latches[0]] = count.get(loop.latches[0], 0) + 1
    return True


class _Carrying:
    def __init__(self, loop: Loop, tree: Dominance, function: Function) -> None:
        self.loop, self.tree, self.function = loop, tree, function
        self.blocks = set(loop.blocks)

    def run(self) -> bool:
        """Hand on one load of the loop; whether there was one. The graph may be another then."""
        loads = [i for b in self.loop.blocks for i in b.instrs if i.op == "load" and i.operands[0].owner is self.loop.header]
        if not loads or len(self.loop.latches) != 1:
            return False
        (latch,) = self.loop.latches
        edge = latch.terminator.targets.index(self.loop.header)
        outside = [(s, e) for s, e in edges_into(region_of(self.loop))[self.loop.header] if s is not latch]
        if len(outside) != 1:
            return False
        self.polynomials = Polynomials(self.blocks)
        handed = dict(zip(self.loop.header.params, latch.terminator.args(edge), strict=True))
        starts = dict(zip(self.loop.header.params, outside[0][0].terminator.args(outside[0][1]), strict=True))
        for load in loads:
            stored = self.stored(load, handed)
            if stored is None or not self.is_made_before(load.operands[1]):
                continue
            if load in sure_to_come(self.loop) or self.in_range(load, starts, outside[0][0]):
                self.hand_on(load, stored)
                return True
        return False

    def stored(self, load: Instr, handed: dict[Value, Value]) -> Value | None:
        """What an iteration stores where the next one loads."""
        position = self.polynomials.of(load.operands[1])
        if any(not isinstance(v.owner, Block) and v.owner.block in self.blocks for m in position for v in m):
            return None
        following = {p: self.polynomials.of(v) for p, v in handed.items() if not p.type.rank}
        wanted = self.polynomials.replaced(position, following)
        tensor = handed[load.operands[0]]
        for _ in range(STORES):
            store = tensor.owner
            if wanted is None or not isinstance(store, Instr) or store.op != "store" or store.block not in self.blocks:
                return None
            apart = difference(self.polynomials.of(store.operands[1]), wanted)
            if apart == 0:
                value = store.operands[2]
                return value if value is not load.result else None
            if apart is None:
                return None
            tensor = store.operands[0]
        return None

    def is_made_before(self, position: Value) -> bool:
        """Whether the position in the first iteration can be computed before the loop."""
        return all(v.owner is self.loop.header or not self.is_inside(v) for m in self.polynomials.of(position) for v in m)

    def is_inside(self, value: Value) -> bool:
        home = value.block
        return home in self.blocks and const_of(value) is None

    def in_range(self, load: Instr, starts: dict[Value, Value], before: Block) -> bool:
        """Whether the first position is proved to be in range wherever the loop is entered."""
        size = Sizes(self.function).of(load.operands[0])
        if size is None:
            return False
        facts, form = Facts(), ZERO
        for monomial, c in self.polynomials.of(load.operands[1]).items():
            if len(monomial) > 1:
                return False
            form = form.plus(facts.form(starts.get(*monomial, *monomial)), c) if monomial else form.more(c)
        last = (facts.form(size) if isinstance(size, Value) else ZERO.more(size)).more(-1)
        place = (before, END)
        return facts.proved(form, place) and facts.proved(last.plus(form, -1), place)

    def hand_on(self, load: Instr, stored: Value) -> None:
        if load.block is not self.loop.header and load in sure_to_come(self.loop) and may_rotate(self.loop):
            before = rotate(self.loop)
        else:
            before = enter_by_one_block(self.loop)
        header = before.terminator.targets[0]
        starts = dict(zip(header.params, before.terminator.args(0), strict=True))
        emitter = Emitter(before)
        position = emitter.polynomial(Polynomials(self.blocks).of(load.operands[1]), starts)
        first = before.append(Instr("load", (starts[load.operands[0]], position), (load.result.type,), {}, (), load.span)).result
        param = header.add_param(load.result.type, load.result.name)
        for source, edge in edges_into(region_of(self.loop))[header]:
            redirect(source, edge, header, (*source.terminator.args(edge), first if source is before else stored))
        load.result.replace_by(param)
        erase(load)

"""Loop-invariant code motion: what gives the same value in every iteration is computed once, before the loop.

Requires host SSA (no regions in its functions) before the memory plan; preserves every value, the order of effects, and where a
program stops: a `check` is never moved. Innermost loops come first, so that what left one may leave the next. Moved are

  scalar ops   wherever they stand in the loop if they are cheap, and costly ones (division, square root, elementary functions) if every
               iteration computes them; an integer division only by what is proved not to be 0 before the loop, or if it is sure to come
  loads        of a tensor from outside: tensors are values, so nothing can change the element. The position must be proved to be
               in range before the loop, or the load sure to come
  `dim`        always

What stands on the straight way from the beginning of a loop, with nothing before it that could stop the program, is sure to
come once the loop runs. If something on that way behind the loop's first test may leave, the test is put before the loop
(`opt/loop_shape.py`, rotation): so it is not computed for a loop that does not run at all.

Not moved: constants, comparisons (they fuse with their branch), a sum with a constant that is only a position (the address
has room for it), and tensors: a tensor that lives longer may have to be copied when it is updated.

    head(%i):  branch (lt %i, %n), body, exit           %row = mul %r, %n;  jump head(%zero)
    body:      %row = mul %r, %n                  ->    head(%i):  branch (lt %i, %n), body, exit
               %at = add %row, %i                       body:      %at = add %row, %i
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.opt.conditions import END, Place
from tlc.opt.dims import Sizes
from tlc.opt.facts import Facts
from tlc.opt.loop_shape import enter_by_one_block, is_outside, may_rotate, rotate, sure_to_come
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.ir import Block, Function, Instr, Module, Value, const_of
from tlc.ssa.loops import Loop, loops

COSTLY = frozenset({"div", "sqrt", "floordiv", "mod", *(name for name, row in SCALAR_OPS.items() if row.elementary)})
DIVIDING = ("floordiv", "mod", "iterations")  # the last operand must not be 0


def licm(module: Module) -> None:
    """Move invariant code out of the loops of every function."""
    for f in module.functions.values():
        _function(f)


def _function(f: Function) -> None:
    done: set[Block] = set()  # latches of loops that were seen to: rotation gives a loop another header
    while True:
        tree = dominance(f.body)
        left = sorted((loop for loop in loops(f.body, tree) if loop.latches[0] not in done), key=lambda loop: -loop.depth)
        facts, sizes = Facts(), Sizes(f)
        blocks = len(f.blocks)
        for loop in left:
            done.add(loop.latches[0])
            _loop(loop, tree, facts, sizes, done)
            if len(f.blocks) != blocks:
                break  # the graph changed
        else:
            return


def hoist_scalars(f: Function, wanted: Callable[[Loop], bool]) -> None:
    """Move invariant scalar ops out of some loops, innermost first, without changing what a loop looks like."""
    found = loops(f.body)
    for loop in sorted(found, key=lambda loop: -loop.depth):
        if wanted(loop) and loop.preheader() is None:
            enter_by_one_block(loop)
    tree = dominance(f.body)
    facts, sizes = Facts(), Sizes(f)
    for loop in sorted(loops(f.body, tree), key=lambda loop: -loop.depth):
        motion = _Motion(loop, tree, facts, sizes, loads=False)
        if wanted(loop) and motion.anything():
            motion.move(enter_by_one_block(loop))
            facts.forget()


def _loop(loop: Loop, tree: Dominance, facts: Facts, sizes: Sizes, done: set[Block]) -> None:
    """Move scalars first: what is proved of the positions of loads is proved of where they stand."""
    for loads in (False, True):
        motion = _Motion(loop, tree, facts, sizes, loads)
        if not motion.anything():
            continue
        if motion.needs_rotation():
            done.add(loop.header)
            motion.move(rotate(loop))
            return
        if loop.preheader() is None:
            done.discard(loop.latches[0])
            enter_by_one_block(loop)
            return  # come again, in the new graph
        motion.move(enter_by_one_block(loop))
        facts.forget()


@dataclass
class _Motion:
    """What can leave one loop. `moving` is in an order in which each stands behind its operands."""

    loop: Loop
    tree: Dominance
    facts: Facts
    sizes: Sizes
    loads: bool  # whether loads may go, and what comes only after the first test
    moving: list[Instr] = field(default_factory=list)
    values: set[Value] = field(default_factory=set)  # their results

    def anything(self) -> bool:
        """Find what can be moved; whether there is anything."""
        self.blocks = set(self.loop.blocks)
        self.sure = sure_to_come(self.loop)
        self.early = self.before_the_test()
        self.entered = [(source, END) for source, _ in self.facts.conditions.into(self.loop.header) if source not in self.blocks]
        for block in self.loop.blocks:
            for instr in block.instrs:
                if self.can_move(instr, block):
                    self.moving.append(instr)
                    self.values.update(instr.results)
        self.keep_positions()
        if self.needs_rotation():
            self.keep_what_reads_the_header()
        return bool(self.moving)

    def keep_what_reads_the_header(self) -> None:
        """After the rotation the body does not see what the header computes, but a parameter."""
        header = {r for i in self.loop.header.instrs for r in i.results if i.op != "const"}
        for instr in list(self.moving):
            if instr not in self.early and any(v in header for v in instr.operands):
                self.moving.remove(instr)
                header.update(instr.results)

    def before_the_test(self) -> set[Instr]:
        return set(self.loop.header.instrs)

    def needs_rotation(self) -> bool:
        """Whether something is to be moved only because the first iteration is sure to come to it, behind the test."""
        return may_rotate(self.loop) and any(i not in self.early and not self.harmless(i) for i in self.moving)

    def can_move(self, instr: Instr, block: Block) -> bool:
        if not all(v in self.values or is_outside(v, self.blocks) for v in instr.operands) or instr.regions:
            return False
        if instr.op == "dim":
            return True
        if instr.op == "load":
            return self.loads and (instr in self.sure or self.in_range(instr))
        if instr.op not in SCALAR_OPS or instr.result.type.elem in (Elem.BOOL, Elem.STR):
            return False
        if instr.op in COSTLY and not all(self.tree.dominates(block, latch) for latch in self.loop.latches):
            return False
        return self.harmless(instr) or (self.loads and instr in self.sure)

    def harmless(self, instr: Instr) -> bool:
        """Whether the instruction may be computed even if the loop does not run."""
        if instr.op == "load":
            return self.in_range(instr)
        if instr.op in DIVIDING and instr.result.type.elem.is_int:
            return self.not_zero(instr.operands[-1])
        return True

    def not_zero(self, value: Value) -> bool:
        known = const_of(value)
        if known is not None:
            return known != 0
        if not self.entered or not is_outside(value, self.blocks):
            return False
        ranges = [self.facts.ranges.at(value, place) for place in self.entered]
        return all(r is not None and (r[0] > 0 or r[1] < 0) for r in ranges)

    def in_range(self, load: Instr) -> bool:
        """Whether the position of a load is proved to lie in its tensor wherever the loop is entered."""
        tensor, position = load.operands
        if const_of(position) is None and (position in self.values or not is_outside(position, self.blocks)):
            return False
        size = self.sizes.of(tensor)
        return size is not None and bool(self.entered) and all(self.within(position, size, place) for place in self.entered)

    def within(self, position: Value, size: int | Value, place: Place) -> bool:
        return self.facts.within(position, size, place)

    def keep_positions(self) -> None:
        """Leave sums with a constant in the loop that are positions and nothing else."""
        kept = True
        while kept:
            kept = False
            for instr in self.moving:
                if instr.op in ("add", "sub") and any(const_of(v) is not None for v in instr.operands) and self.only_position(instr):
                    self.moving.remove(instr)
                    self.values.discard(instr.result)
                    kept = True
                    break

    def only_position(self, instr: Instr) -> bool:
        return all(
            isinstance(u, Instr) and u.op in ("load", "store") and u.operands[1] is instr.result and u not in self.moving
            for u in instr.result.uses
        )

    def move(self, to: Block) -> None:
        for instr in self.moving:
            for v in instr.operands:
                owner = v.owner
                if isinstance(owner, Instr) and owner.op == "const" and owner.block in self.blocks:
                    _append(owner, to)
            _append(instr, to)


def _append(instr: Instr, to: Block) -> None:
    assert instr.block is not None
    instr.block.instrs.remove(instr)
    to.append(instr)


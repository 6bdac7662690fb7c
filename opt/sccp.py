"""Sparse conditional constant propagation: Wegman and Zadeck, "Constant propagation with conditional branches", 1991.

Requires SSA; preserves every bit of every value (what an op means is the `evaluate` of its row). A value begins as unknown yet, may
become a constant and at last varying; an edge begins as not taken. Two lists of work drive each other: an edge that
turns out to be taken brings its block's instructions and what it passes to parameters; a value that changes brings its
users. A branch on a constant takes one edge only. So a parameter that is given one constant by every edge that is ever
taken is that constant, even if a loop passes it round or a branch that is never taken would change it: more than
`fold` sees, which looks at one instruction at a time.

    entry:  jump head(%zero, %true)                    entry:  jump head(%zero)
    head(%i, %first):                                  head(%i):
            branch %first, keep, change                        jump keep
    keep:   ...  jump head(%i2, %first)          ->    keep:   ...  jump head(%i2)
    change: %no = const False
            jump head(%i2, %no)

A region is solved after the one around it, whose constants it sees; its indices vary.
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS, Literal
from tlc.frontend.types import Elem
from tlc.opt.regions import fused_product, regions
from tlc.opt.rewrite import constant, same_literal
from tlc.ssa.edit import edges_into, remove_params, remove_unreachable
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Value, const_of, erase, jump


class Varying:
    """Not one constant: the bottom of the lattice. (A value that is not in the table is at its top.)"""


VARYING = Varying()
Known = Literal | Varying


def sccp(module: Module) -> None:
    """Propagate constants through every function and the regions in it."""
    for f in module.functions.values():
        known: dict[Value, Known] = {}
        for region in regions(f.body):
            _Propagation(region, known).run()


class _Propagation:
    def __init__(self, region: Region, known: dict[Value, Known]) -> None:
        self.region = region
        self.known = known  # of this region and those around it
        self.reached: set[Block] = set()
        self.taken: set[tuple[Block, int]] = set()
        self.edges: list[tuple[Block, int]] = []
        self.changed: list[Value] = []

    def run(self) -> None:
        for p in self.region.entry.params:
            self.known[p] = VARYING
        self.visit(self.region.entry)
        while self.edges or self.changed:
            while self.edges:
                self.take(*self.edges.pop())
            if self.changed:
                self.users(self.changed.pop())
        self.rewrite()

    # ------------------------------------------------------------ the lattice

    def of(self, value: Value) -> Known | None:
        literal = const_of(value)
        if literal is not None:
            return literal
        known = self.known.get(value)
        if known is None and not self.inside(value):
            return VARYING
        return known

    def inside(self, value: Value) -> bool:
        block = value.block
        return block is not None and block.region is self.region

    def lower(self, value: Value, to: Known | None) -> None:
        """Meet what is known of a value with something."""
        old = self.known.get(value)
        if to is None or isinstance(old, Varying):
            return
        if old is not None and (isinstance(to, Varying) or not _same(old, to, value.type.elem)):
            to = VARYING
        elif old is not None:
            return
        self.known[value] = to
        self.changed.append(value)

    # ------------------------------------------------------------ work

    def visit(self, block: Block) -> None:
        self.reached.add(block)
        for instr in block.instrs:
            self.instr(instr)
        self.end(block)

    def take(self, block: Block, edge: int) -> None:
        if (block, edge) in self.taken:
            return
        self.taken.add((block, edge))
        target = block.terminator.targets[edge]
        self.arrive(block.terminator, edge)
        if target not in self.reached:
            self.visit(target)

    def arrive(self, end: Terminator, edge: int) -> None:
        for p, v in zip(end.targets[edge].params, end.args(edge), strict=True):
            self.lower(p, self.of(v))

    def users(self, value: Value) -> None:
        for user in value.uses:
            block = user.block if isinstance(user, Instr | Terminator) else None
            if block not in self.reached:
                continue
            if isinstance(user, Instr):
                self.instr(user)
            else:
                assert isinstance(user, Terminator)
                self.end(block)
                for edge in range(len(user.targets)):
                    if (block, edge) in self.taken:
                        self.arrive(user, edge)

    def end(self, block: Block) -> None:
        t = block.terminator
        if t.op == "branch":
            cond = self.of(t.own[0])
            if cond is not None:
                self.edges += [(block, k) for k in range(2) if isinstance(cond, Varying) or cond is (k == 0)]
        else:
            self.edges += [(block, k) for k in range(len(t.targets))]

    def instr(self, instr: Instr) -> None:
        if instr.op not in SCALAR_OPS or fused_product(instr):
            if instr.op != "const":
                for r in instr.results:
                    self.lower(r, VARYING)
            return
        if not isinstance(self.known.get(instr.result), Varying):
            self.lower(instr.result, self.value(instr))

    def value(self, instr: Instr) -> Known | None:
        operands = [self.of(v) for v in instr.operands]
        if instr.op == "select" and operands[0] is not None and not isinstance(operands[0], Varying):
            return operands[1 if operands[0] else 2]
        settled = _ABSORBING.get((instr.op, instr.result.type.elem))
        if settled is not None and any(v is settled for v in operands):
            return settled
        if any(isinstance(v, Varying) for v in operands):
            return VARYING
        if any(v is None for v in operands):
            return None
        known = [v for v in operands if not isinstance(v, Varying)]
        value = constant(instr.op, instr.result.type.elem, known, instr.operands)
        return VARYING if value is None else value

    # ------------------------------------------------------------ the result

    def rewrite(self) -> None:
        """Put constants in place of what turned out to be one, and drop the edges that are never taken."""
        into = edges_into(self.region)
        for block in self.region.blocks:
            if block not in self.reached:
                continue
            for instr in list(block.instrs):
                if instr.op != "const" and len(instr.results) == 1 and self.replace(instr.result, block):
                    erase(instr)
            gone = {k for k, p in enumerate(block.params) if self.replace(p, block)}
            if gone:
                remove_params(block, gone, into[block])
        for block in self.region.blocks:
            t = block.terminator
            if t.op == "branch" and block in self.reached:
                edges = [k for k in range(2) if (block, k) in self.taken]
                if len(edges) == 1:
                    block.terminator = jump(*t.edges[edges[0]], t.span)
        remove_unreachable(self.region)

    def replace(self, value: Value, block: Block) -> bool:
        known = self.known.get(value)
        if known is None or isinstance(known, Varying):
            return False
        span = value.owner.span if isinstance(value.owner, Instr) else block.terminator.span
        constant = Instr("const", (), (value.type,), {"value": known}, (), span, (value.name,))
        constant.block = block
        block.instrs.insert(block.instrs.index(value.owner) if isinstance(value.owner, Instr) else 0, constant)
        value.replace_by(constant.result)
        return True


_ABSORBING = {("and", Elem.BOOL): False, ("or", Elem.BOOL): True}  # one operand settles the result


def _same(a: Literal, b: Known, elem: Elem) -> bool:
    """Equal in every bit."""
    return not isinstance(b, Varying) and same_literal(a, b, elem)

"""Dead code: what no effect and no result of the program needs is removed.

Requires SSA; preserves the graph and the order of effects. Marking starts from what must happen (effects, checks
included, and what terminators decide and return) and goes backwards over operands; an argument of an edge is needed only
if the parameter is. A region is needed if a result of its instruction is, or if something in it must happen. Then the
unmarked is swept: instructions, parameters with the arguments passed for them, and results of `tabulate` that nobody
reads (with what the region yields for them).

    head(%i, %x):  %y = exp %x                 head(%i):
                   jump head(%i2, %y)    ->               jump head(%i2)          (nobody reads %x behind the loop)
"""

from __future__ import annotations

from tlc.opt.regions import Effects, regions
from tlc.ssa.edit import edges_into
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Terminator, Value, drop, yield_


def dce(module: Module) -> None:
    """Remove the dead code of every function."""
    effects = Effects(module)
    for f in module.functions.values():
        _DeadCode(effects, f).run()


class _DeadCode:
    def __init__(self, effects: Effects, function: Function) -> None:
        self.effects = effects
        self.function = function
        self.values: set[Value] = set()  # needed
        self.instrs: set[Instr] = set()
        self.work: list[Value] = []
        self.into: dict[Block, list[tuple[Block, int]]] = {}

    def run(self) -> None:
        for region in regions(self.function.body):
            self.into.update(edges_into(region))
        self.start(self.function.body)
        while self.work:
            self.visit(self.work.pop())
        for region in regions(self.function.body):  # outer ones first: what is inside a dead instruction is never seen
            self.sweep(region)

    # ------------------------------------------------------------ marking

    def start(self, region: Region) -> None:
        """Mark what must happen in a region that is executed."""
        for block in region.blocks:
            for i in block.instrs:
                if not self.effects.removable(i):
                    self.need_instr(i)
            if region.parent is self.function or block.terminator.op == "branch":
                self.need(block.terminator.own)

    def need(self, values: tuple[Value, ...]) -> None:
        for v in values:
            if v not in self.values:
                self.values.add(v)
                self.work.append(v)

    def need_instr(self, instr: Instr) -> None:
        if instr in self.instrs:
            return
        self.instrs.add(instr)
        self.need(instr.operands)
        for region in instr.regions:
            self.start(region)
            if instr.op != "tabulate":
                self.need_yielded(region, None)
            elif not self.effects.removable(instr):
                self.need(instr.results[:1])  # it runs for its checks; a `tabulate` without results is a case nobody needs

    def need_yielded(self, region: Region, position: int | None) -> None:
        """Mark what the region yields, all of it or one value."""
        for block in region.blocks:
            if block.terminator.op == "yield":
                values = block.terminator.operands
                self.need(values if position is None else (values[position],))

    def visit(self, value: Value) -> None:
        if isinstance(value.owner, Instr):
            self.need_instr(value.owner)
            if value.owner.op == "tabulate":
                self.need_yielded(value.owner.regions[0], value.owner.results.index(value))
            return
        block = value.owner
        k = block.params.index(value)
        for source, edge in self.into[block]:
            self.need((source.terminator.args(edge)[k],))

    # ------------------------------------------------------------ sweeping

    def sweep(self, region: Region) -> None:
        for block in region.blocks:
            dead = [i for i in block.instrs if i not in self.instrs]
            block.instrs = [i for i in block.instrs if i in self.instrs]
            for i in reversed(dead):
                drop(i)
        for block in region.blocks:
            for i in list(block.instrs):
                if i.op == "tabulate" and any(r not in self.values for r in i.results):
                    self.narrow(i)
        for block in region.blocks:
            t = block.terminator
            if any(p not in self.values for target in t.targets for p in target.params):
                edges = tuple((b, tuple(a for a, p in zip(args, b.params, strict=True) if p in self.values)) for b, args in t.edges)
                block.terminator = Terminator(t.op, t.own, edges, t.span)
        for block in region.blocks[1:]:
            block.params = [p for p in block.params if p in self.values]

    def narrow(self, instr: Instr) -> None:
        """Drop the results of a `tabulate` that nobody reads."""
        kept = [k for k, r in enumerate(instr.results) if r in self.values]
        (region,) = instr.regions
        for block in region.blocks:
            t = block.terminator
            if t.op == "yield":
                block.terminator = yield_(tuple(t.operands[k] for k in kept), t.span)
        old = [instr.results[k] for k in kept]
        new = Instr("tabulate", instr.operands, tuple(v.type for v in old), instr.attrs, (region,), instr.span, tuple(v.name for v in old))
        for a, b in zip(old, new.results, strict=True):
            a.replace_by(b)
        self.values.update(new.results)
        self.instrs.add(new)
        assert instr.block is not None
        instr.block.instrs[instr.block.instrs.index(instr)] = new
        new.block = instr.block
        instr.operands = ()

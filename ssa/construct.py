"""Construction of SSA: variables that are read and written (`get`, `set`) become values, and parameters of blocks where they meet.

Requires the form that `lower` gives; afterwards no `get` or `set` is left. The algorithm is the one of Cytron, Ferrante, Rosen, Wegman
and Zadeck, "Efficiently computing static single assignment form and the control dependence graph", 1991: a variable
gets a parameter at every block of the iterated dominance frontier of its assignments, and a walk down the dominator tree
renames. The form is pruned (Choi, Cytron and Ferrante 1991): only where the variable is live.

    entry:  set %0 {var = "s"};  jump head              entry:  jump head(%0)
    head:   branch %c, body, exit                       head(%s):  branch %c, body, exit
    body:   set (add (get {var = "s"}), %1) {var = "s"} body:   jump head(add %s, %1)
            jump head
    exit:   return (get {var = "s"})                    exit:   return %s

Regions. A variable belongs to the region that assigns it. A region inside may read it, and then reads the value that the variable has
at the instruction; it never assigns it (LANGUAGE: a comprehension does not assign outer variables). So each region is done by itself, its
outer variables being plain values by then.
"""

from __future__ import annotations

from tlc.frontend.diagnostics import InternalError
from tlc.ssa.cfg import postorder, successors
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Type, Value, erase

Names = dict[str, None]  # an ordered set of variables


def construct(module: Module) -> None:
    """Put every function of the module into SSA form, in place."""
    for f in module.functions.values():
        try:
            _Construction(f.body, {}).run()
        except _Unassigned as u:
            raise InternalError(f"variable `{u}` is read before it is assigned", f"construct, function {f.name}") from None


def construct_region(region: Region) -> None:
    """Put a region that assigns variables of its own into SSA form, in place."""
    _Construction(region, {}).run()


class _Unassigned(Exception):
    pass


class _Construction:
    """One region. `outer`: the values of the variables of the regions around, at the instruction that holds this one."""

    def __init__(self, region: Region, outer: dict[str, Value]) -> None:
        self.region = region
        self.outer = outer
        self.types: dict[str, Type] = {}  # the region's own variables
        for block in region.blocks:
            for i in block.instrs:
                if i.op == "set":
                    self.types.setdefault(_variable(i), i.operands[0].type)

    def run(self) -> None:
        tree = dominance(self.region)
        placed = self.place(tree)
        self.rename(tree, placed)

    # ------------------------------------------------------------ where parameters stand

    def place(self, tree: Dominance) -> dict[Block, list[str]]:
        """The variables that get a parameter at each block, in the order of their parameters."""
        live_in = self.live_in()
        frontiers = tree.frontiers()
        placed: dict[Block, list[str]] = {b: [] for b in tree.order}
        for variable in self.types:
            work = [b for b in tree.order if any(i.op == "set" and _variable(i) == variable for i in b.instrs)]
            queued = set(work)
            while work:
                for block in frontiers[work.pop()]:
                    if variable in live_in[block] and variable not in placed[block]:
                        placed[block].append(variable)
                        if block not in queued:
                            queued.add(block)
                            work.append(block)
        for block, variables in placed.items():
            for v in variables:
                block.add_param(self.types[v], v.split("/", 1)[0].split("~", 1)[0])
        return placed

    def live_in(self) -> dict[Block, Names]:
        """The region's own variables that may be read before they are assigned again, at the start of each block."""
        order = postorder(self.region)
        live: dict[Block, Names] = {}
        assigned: dict[Block, Names] = {}
        for block in order:
            live[block], assigned[block] = {}, {}
            for i in block.instrs:
                if i.op == "set":
                    assigned[block][_variable(i)] = None
                else:
                    live[block].update({v: None for v in _reads(i) if v in self.types and v not in assigned[block]})
        changed = True
        while changed:
            changed = False
            for block in order:
                size = len(live[block])
                for s in successors(block):
                    live[block].update({v: None for v in live[s] if v not in assigned[block]})
                changed |= len(live[block]) != size
        return live

    # ------------------------------------------------------------ renaming

    def rename(self, tree: Dominance, placed: dict[Block, list[str]]) -> None:
        children = tree.children()
        work = [(self.region.entry, self.outer)]
        while work:
            block, before = work.pop()
            values = dict(before)
            values.update(zip(placed[block], block.params[len(block.params) - len(placed[block]) :], strict=True))
            self.block(block, values)
            t = block.terminator
            if any(placed[target] for target in t.targets):
                edges = tuple((b, args + tuple(_value(values, v) for v in placed[b])) for b, args in t.edges)
                block.terminator = Terminator(t.op, t.own, edges, t.span)
            work += [(child, values) for child in reversed(children[block])]

    def block(self, block: Block, values: dict[str, Value]) -> None:
        """Replace reads by the present values and note assignments, from top to bottom."""
        for i in list(block.instrs):
            if i.op == "get":
                i.result.replace_by(_value(values, _variable(i)))
                erase(i)
            elif i.op == "set":
                values[_variable(i)] = i.operands[0]
                erase(i)
            else:
                for inner in i.regions:
                    _Construction(inner, values).run()


def _variable(instr: Instr) -> str:
    name = instr.attrs["var"]
    assert isinstance(name, str)
    return name


def _value(values: dict[str, Value], variable: str) -> Value:
    if variable not in values:
        raise _Unassigned(variable)
    return values[variable]


def _reads(instr: Instr) -> Names:
    """The variables that an instruction reads, in its regions those that belong to regions around."""
    if instr.op == "get":
        return {_variable(instr): None}
    out: Names = {}
    for region in instr.regions:
        own = {_variable(i) for b in region.blocks for i in b.instrs if i.op == "set"}
        out.update({v: None for b in region.blocks for i in b.instrs for v in _reads(i) if v not in own})
    return out

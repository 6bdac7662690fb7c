"""The verifier of SSA: what must hold, each property checked where its number stands in the code.

Structure
 1. A region has a block; every block has one terminator; owners point back (`block.region`, `instr.block`, `region.parent`,
    `value.owner`), and no block or instruction stands in two places.
 2. Edges stay in their region; nothing jumps to an entry block.
 3. `return` ends blocks of a function's region only, `yield` blocks of nested regions only; the rest ends either.
 4. A jump has one edge, a branch two and a bool scalar before them; other terminators have none.
 5. Functions are filed under their own names.

Types
 6. Every instruction obeys the rule of its op (`ssa/typerules.py`): operands, attributes, results, and what regions take and yield.
 7. Edge arguments have the types of the target's parameters; `return` gives the function's results.
 8. A variable (`get`, `set`) has one type in a function.

Values
 9. A definition dominates every use. Within a block it stands above; across blocks its block dominates; a nested region may
    use what its instruction could use. In unreachable blocks only existence is required.
10. `Value.uses`, recounted, is exact: every user counted as often as it reads the value, and no user outside of the function.

Stages
11. An op stands only in its stages: those of row stage `cfg` in `cfg`, `host` in `host`, `ssa` in all.
12. No region prints, shows progress or reads tapes: `print`, `progress_*` and memory ops stand in a function's own blocks.

A violation is a bug of the compiler: `InternalError` names the function and the instruction and has its text.
"""

from __future__ import annotations

from collections.abc import Iterator

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import NOWHERE
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.ir import BOOL, Block, Function, Instr, Module, Region, Terminator, Type, User, Value, walk
from tlc.ssa.ops import ROWS
from tlc.ssa.text import print_function
from tlc.ssa.typerules import check_instr

STAGES = ("cfg", "ssa", "host")
_EDGES = {"jump": 1, "branch": 2, "return": 0, "yield": 0, "unreachable": 0}
_PROGRESS = ("progress_begin", "progress_tick", "progress_due", "progress_note", "progress_end")
_OUTSIDE_REGIONS = ("print", *_PROGRESS, "launch", "run", "alloc", "free")


def verify(module: Module, stage: str = "ssa") -> None:
    """Check every property above; raises `InternalError` at the first violation."""
    assert stage in STAGES, stage
    for name, function in module.functions.items():
        if function.name != name:  # 5
            raise InternalError(f"filed under `{name}`", f"function {function.name}")
        verify_function(function, module, stage)


def verify_function(function: Function, module: Module | None = None, stage: str = "ssa") -> None:
    """Check one function; without a module, calls are not held against signatures."""
    try:
        _Verifier(function, module, stage).run()
    except _Violation as v:
        raise InternalError(f"{v.message}\n\n{print_function(function)}", f"function {function.name}, {v.where}", v.span) from None


class _Violation(Exception):
    def __init__(self, message: str, thing: User | Block | Region) -> None:
        self.message, self.where = message, _say(thing)
        self.span = getattr(thing, "span", NOWHERE)


def _say(thing: User | Block | Region) -> str:
    match thing:
        case Instr():
            results = ", ".join(f"%{r.name}" for r in thing.results)
            return f"instruction `{results}{' = ' * bool(results)}{thing.op}` at {thing.span}"
        case Terminator():
            return f"`{thing.op}` of block `{thing.block.name if thing.block else '?'}`"
        case Block():
            return f"block `{thing.name}`"
    return "a region"


class _Verifier:
    def __init__(self, function: Function, module: Module | None, stage: str) -> None:
        self.function, self.module, self.stage = function, module, stage
        self.seen: set[Block | Instr] = set()
        self.position: dict[User, int] = {}
        self.trees: dict[Region, Dominance] = {}
        self.variables: dict[object, Type] = {}

    def require(self, holds: bool, message: str, where: User | Block | Region) -> None:
        if not holds:
            raise _Violation(message, where)

    def run(self) -> None:
        self.require(self.function.body.parent is self.function, "the body's parent is another", self.function.body)
        self.structure(self.function.body, nested=False)
        self.trees[self.function.body] = dominance(self.function.body)
        for instr in walk(self.function.body):
            for region in instr.regions:
                self.trees[region] = dominance(region)
        for region in self.trees:
            self.region(region)
        self.uses()

    # ------------------------------------------------------------ structure

    def structure(self, region: Region, nested: bool) -> None:
        """1 to 4, before anything walks the graph."""
        self.require(bool(region.blocks), "a region without blocks", region)
        for block in region.blocks:
            self.once(block)
            self.require(block.region is region, "the block's region is another", block)  # 1
            self.require(all(p.owner is block for p in block.params), "a parameter has another owner", block)
            self.require(block.terminated, "the block has no terminator", block)
            for k, instr in enumerate(block.instrs):
                self.once(instr)
                self.position[instr] = k
                self.require(instr.block is block, "the instruction's block is another", instr)
                self.require(all(r.owner is instr for r in instr.results), "a result has another owner", instr)
                for inner in instr.regions:
                    self.require(inner.parent is instr, "the region's parent is another", instr)
                    self.structure(inner, nested=True)
            self.end(block.terminator, block, region, nested)

    def once(self, thing: Block | Instr) -> None:
        self.require(thing not in self.seen, "stands in two places", thing)
        self.seen.add(thing)

    def end(self, t: Terminator, block: Block, region: Region, nested: bool) -> None:
        self.require(t.block is block, "the terminator's block is another", t)
        self.require(t.op in _EDGES, f"there is no terminator `{t.op}`", t)
        self.require(t.op != ("return" if nested else "yield"), f"`{t.op}` in a {'nested' if nested else 'function'} region", t)  # 3
        self.require(len(t.targets) == _EDGES[t.op], f"has {len(t.targets)} edges", t)  # 4
        self.require(sum(t.counts) <= len(t.operands), "has fewer operands than its edges pass", t)
        if t.op == "branch":
            self.require([v.type for v in t.own] == [BOOL], "needs one bool before its edges", t)
        elif t.op in ("jump", "unreachable"):
            self.require(not t.own, "has operands of its own", t)
        for target in t.targets:
            self.require(target.region is region, f"goes to {_say(target)} outside of its region", t)  # 2
            self.require(target is not region.entry, "goes to the entry block", t)

    # ------------------------------------------------------------ types, values, stages

    def region(self, region: Region) -> None:
        nested = region is not self.function.body
        for block in region.blocks:
            for instr in block.instrs:
                self.instr(instr, nested)
                self.dominated(instr, block)
            t = block.terminator
            self.dominated(t, block)
            for target, args in t.edges:  # 7
                self.types(args, [p.type for p in target.params], f"passes to {_say(target)}", t)
            if t.op == "return":
                self.types(t.operands, list(self.function.results), "returns", t)

    def types(self, values: tuple[Value, ...], types: list[Type], what: str, where: User) -> None:
        found = [v.type for v in values]
        self.require(found == types, f"{what} ({', '.join(map(str, found))}), should be ({', '.join(map(str, types))})", where)

    def instr(self, instr: Instr, nested: bool) -> None:
        try:
            check_instr(instr, self.module)  # 6
        except InternalError as e:
            raise _Violation(str(e), instr) from None
        stage = ROWS[instr.op].stage if instr.op in ROWS else "ssa"
        self.require(stage in ("ssa", self.stage), f"an op of stage `{stage}` in stage `{self.stage}`", instr)  # 11
        self.require(not (nested and instr.op in _OUTSIDE_REGIONS), "inside a region", instr)  # 12
        if instr.op in ("get", "set"):  # 8
            type = (instr.results or instr.operands)[0].type
            known = self.variables.setdefault(instr.attrs["var"], type)
            self.require(known == type, f"variable `{instr.attrs['var']}` is {known} elsewhere, {type} here", instr)

    def dominated(self, user: Instr | Terminator, block: Block) -> None:
        """9."""
        for v in user.operands:
            home = v.block
            exists = home is not None and (v.owner in self.position if isinstance(v.owner, Instr) else home in self.seen)
            self.require(exists, f"reads %{v.name}: {v.type}, which is not in the function", user)
            assert home is not None
            here, below = block, self.position.get(user, len(block.instrs))
            while here.region is not home.region and here.region is not self.function.body:
                assert here.region is not None
                parent = here.region.parent
                assert isinstance(parent, Instr) and parent.block is not None
                here, below = parent.block, self.position[parent]
            assert here.region is not None
            tree = self.trees[here.region]
            if here not in tree.immediate:
                continue  # unreachable
            if here is home:
                holds = not isinstance(v.owner, Instr) or self.position[v.owner] < below
            else:
                holds = here.region is home.region and tree.dominates(home, here)
            self.require(holds, f"reads %{v.name}: {v.type}, whose definition does not dominate it", user)

    def uses(self) -> None:
        """10."""
        counts: dict[Value, dict[User, int]] = {}
        for user in self.users():
            for v in user.operands:
                of = counts.setdefault(v, {})
                of[user] = of.get(user, 0) + 1
        for region in self.trees:
            for block in region.blocks:
                defined: list[tuple[Block | Instr, Value]] = [(block, p) for p in block.params]
                defined += [(instr, r) for instr in block.instrs for r in instr.results]
                for owner, v in defined:
                    self.require(v.uses == counts.get(v, {}), f"%{v.name}: {v.type} counts uses {v.uses}, has {counts.get(v, {})}", owner)

    def users(self) -> Iterator[Instr | Terminator]:
        for region in self.trees:
            for block in region.blocks:
                yield from block.instrs
                yield block.terminator

"""`--trap-nan`: stops the program where it first makes a NaN, or makes an infinity of finite numbers (`opt/nan_checks.py`).

The program is left as it is. Behind each stretch of its blocks stands a `trap`, which watches values: if they are not finite, a recipe
(`ssa/recipe.py`) does all of the stretch again, in order, with a check behind each operation, and stops with what is to be said:

    a = tabulate n { (i): yield mul (index x, i), c }     a and b as they are
    b = tabulate n { (i): yield sub (index a, i), m }     trap true, b, x, c, m, n {watched = 1, recipe = "
                                                            tabulate n { (i): p = mul (index x, i), c
                                                              check (p is no worse) "`*` of {0} and {1} gives {2} at [{3}]", .. }
                                                            a = tabulate n { .. };  tabulate n { .. check .. "}

A NaN or infinity in `a` shows in `b`, so only `b` is watched (`opt/shows.py`), and a chain of operations may become one kernel that
stores its end alone. What hides them has tests of its own: a reduction over the elements (`well`), or a bound (`opt/magnitudes.py`). So
is tested, op by op, what may be infinite without fault. A guess that errs costs time: a recipe that finds nothing lets the program go
on. In the region of a comprehension that computes whole arrays for each element (a lifted call) the same is done, and flattened like
all that stands there. A region that calls a function has checks beside it: recipes know no functions.

The same is done twice: to what the program says, before any real is folded, and to what derivatives add to it, whose spans say so.

Requires SSA, where regions call only what stays a call. Preserves every value to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from tlc.opt.magnitudes import magnitude
from tlc.opt.nan_checks import Checks, Look, chosen, counting, products
from tlc.opt.regions import regions
from tlc.opt.shows import Shown, chosen_blocks, is_plain, may_be_factored, suspects
from tlc.ssa.builder import Builder
from tlc.ssa.calls import NAMED, callee_of, reached
from tlc.ssa.clone import clone_instr
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import BOOL, Block, Function, Instr, Module, Region, Value, ret, walk
from tlc.ssa.liveness import reads
from tlc.ssa.ops import effect
from tlc.ssa.recipe import Recipe


def trap_program(module: Module) -> None:
    """Check what the program computes."""
    _trap(module, derivative=False)


def trap_derivatives(module: Module) -> None:
    """Check what derivatives compute beside what they differentiate."""
    _trap(module, derivative=True)


def _trap(module: Module, derivative: bool) -> None:
    applied = [callee_of(i) for f in module.functions.values() for i in _inner(f) if i.op == "call"]
    elements = reached(module, applied)  # functions that comprehensions call: kernels, which cannot run recipes
    for function in module.functions.values():
        checks = Checks(derivative)
        if function.name in elements:
            checks.check(function.body, ())
        else:
            _guard(checks, suspects(function), function.body, ())


def _inner(function: Function) -> Iterator[Instr]:
    """What stands in the regions of comprehensions."""
    return (i for b in function.blocks for outer in b.instrs for r in outer.regions for i in walk(r))


def _guard(checks: Checks, suspects: AbstractSet[Value], region: Region, indices: Sequence[Value]) -> None:
    """Have everything in a region tested, and looked at by recipes. `indices` are those of the comprehensions around."""
    for block in region.blocks:
        stretch = _Stretch(checks, suspects, block, indices)
        for instr in list(block.instrs):
            stretch.take(instr)
        stretch.end(None)


class _Stretch:
    """Instructions of a block that one trap looks after: what stops the program or acts on the world ends it, and so does an update, for
    the recipe may read what that takes over.
    """

    def __init__(self, checks: Checks, suspects: AbstractSet[Value], block: Block, indices: Sequence[Value]) -> None:
        self.checks = checks
        self.suspects = suspects
        self.block = block
        self.indices = indices
        self.instrs: list[Instr] = []
        self.checked: dict[Instr, None] = {}
        self.before: dict[Instr, None] = {}  # this block so far
        self.reach: dict[Instr, None] = {}  # what recipes may do again: none of what it reads has been taken over

    def take(self, instr: Instr) -> None:
        """The next instruction of the block."""
        checks = self.checks
        inside = list(_inside(instr))
        calls = any(i.op in NAMED for i in inside)
        lifted = instr.op == "tabulate" and not calls and any(r.type.rank for i in inside for r in i.results)
        if lifted or instr.op in ("update", "scatter") or any(effect(i.op) != "none" for i in (instr, *inside)):
            self.end(instr)
        if instr.op in ("update", "scatter", "push"):
            self.reach = {}
        self.reach[instr] = self.before[instr] = None
        for i in (instr, *inside):
            checks.unrounded.update(products(i))
        if lifted and checks.has_checks(instr.regions[0]):
            _guard(checks, self.suspects, instr.regions[0], (*self.indices, *instr.regions[0].entry.params))
        elif calls and checks.has_checks(instr.regions[0]):
            insert_before(instr, checks.shadow(instr, self.indices))
        elif any(map(checks.is_source, inside)):
            self.checked[instr] = None
        if checks.is_source(instr):
            self.checked[instr] = None
        self.instrs.append(instr)

    def end(self, before: Instr | None) -> None:
        """Put a trap before an instruction, or at the end of the block, if there is something to look at."""
        instrs, checked, self.instrs, self.checked = self.instrs, self.checked, [], {}
        if not checked:
            return
        shown = Shown(self.checks.is_source, counting)
        watched: dict[Value, None] = {}
        for instr in reversed(instrs):
            if not instr.regions:
                if instr in checked:
                    self._scalar(instr, shown, watched)
                shown.back(instr)
            elif instr in checked:
                self._comprehension(instr, shown, watched)
            elif is_plain(instr) and any(r in shown.values for r in instr.results):
                shown.through(instr)
        b = Builder.before(before) if before is not None else Builder(self.block)
        b.span = next(iter(checked)).span
        recipe, captured = self._recipe(checked)
        b.emit("trap", (b.const(True, BOOL), *watched, *captured), (), {"recipe": recipe, "watched": len(watched)})

    def _scalar(self, instr: Instr, shown: Shown, watched: dict[Value, None]) -> None:
        if instr.result in shown.values:
            return
        if instr.result in self.suspects or chosen(instr)[1]:
            last, conditions = chosen(instr)
            behind = Builder.behind(last)
            watched[self.checks.holds(behind, instr, conditions)] = None
        else:
            watched[instr.result] = None
            shown.values.add(instr.result)

    def _comprehension(self, instr: Instr, shown: Shown, watched: dict[Value, None]) -> None:
        """Look at the results of a comprehension where that shows all or some of what is made in it, and at the rest beside it."""
        checks = self.checks
        may_be_worse = any(r in self.suspects for i in (*checks.sources(instr.regions[0]), instr) for r in i.results)
        if not is_plain(instr) or may_be_worse:
            self._exactly(instr, watched)
            return
        new = [r for r in instr.results if r.type.elem.is_real and r not in shown.values]

        def seen_with(results: list[Value]) -> tuple[set[Value], list[Instr]]:
            found = Shown(checks.is_source, counting)
            found.values = shown.values.union(results)
            sources = found.through(instr)
            return found.values, sources

        results = list[Value]()
        seen, sources = seen_with(results)
        all_seen, fewest = seen_with(new)
        if new and (checks.is_total(instr) or len(fewest) < len(sources)):
            results, seen, sources = new, all_seen, fewest
            for r in new if len(new) > 1 else ():
                others = [x for x in results if x is not r]
                seen_by_others, left = seen_with(others)
                if others and len(left) <= len(sources):
                    results, seen, sources = others, seen_by_others, left
        if any(chosen(i)[1] for i in sources):
            self._exactly(instr, watched)
            return
        shown.values = seen
        watched.update(dict.fromkeys(results))
        if sources:
            self._beside(instr, set(sources), False, watched)

    def _exactly(self, instr: Instr, watched: dict[Value, None]) -> None:
        """Test every op of a comprehension, for infinities that are given do no harm; or the element, where a branch ends with it."""
        sources, ends = self.checks.sources(instr.regions[0]), dict[Block, Value]()
        for block, given, result in chosen_blocks(instr):
            shown = Shown(self.checks.is_source, counting)
            shown.values.add(given)
            hidden = set(shown.up(block))
            seen = {i for top in block.instrs for i in (top, *_inside(top)) if i in sources} - hidden
            if seen:
                ends[block] = result
                sources -= seen
        self._beside(instr, sources, True, watched, ends)
        if self.checks.is_total(instr):
            watched[Builder.behind(instr).finite(instr.result)] = None

    def _beside(
        self,
        instr: Instr,
        sources: set[Instr],
        exactly: bool,
        watched: dict[Value, None],
        ends: Mapping[Block, Value] = MappingProxyType({}),
    ) -> None:
        """Test sources in a comprehension: those in sums by what they read, if that tells, and the others element by element."""
        b = Builder.behind(instr)
        own, *sums = regions(instr.regions[0])
        blocks = [block for region in (own, *sums) for block in region.blocks]
        inside = {v for block in blocks for v in (*block.params, *(r for i in block.instrs for r in i.results))}
        for i in [i for region in sums for block in region.blocks for i in block.instrs if i in sources]:
            bound = magnitude(i.result, b, inside)
            if bound is not None:
                watched[b.finite(bound)] = None
                sources = sources - {i}
        well = self.checks.well(instr, b, sources, exactly, ends)
        if well is not None:
            watched[well] = None

    def _recipe(self, checked: Collection[Instr]) -> tuple[Recipe, list[Value]]:
        """What looks again, in order. Tensors that this block makes are made again there, so that they need not be stored for it."""
        checks = self.checks
        again: set[Instr] = set()
        work = [v for i in checked for v in reads(i)]
        while work:
            owner = work.pop().owner
            if isinstance(owner, Instr) and owner not in again and self._may_run_again(owner):
                again.add(owner)
                work += reads(owner)
        entry = Block("entry")
        values: dict[Value, Value] = {v: entry.add_param(v.type, v.name) for v in self.indices}
        captured, places = list(self.indices), list[int]()
        for instr in [i for i in self.before if i in again or i in checked]:
            conditions = () if instr.regions else chosen(instr)[1]
            for v in [*reads(instr), *(cond for cond, _ in conditions)]:
                if v not in values:
                    captured.append(v)
                    values[v] = entry.add_param(v.type, v.name)
            copy = entry.append(clone_instr(instr, values))
            if instr in checked and not conditions:
                places.append(len(entry.instrs) - 1)
            elif instr in checked:  # it is known here alone who else reads it
                at = tuple(values[v] for v in self.indices)
                checks.say(Builder(entry, None, instr.span), copy, [(values[cond], side) for cond, side in conditions], at)
        entry.terminator = ret((), entry.instrs[-1].span)
        function = Function("trap", Region([entry]), (), entry.instrs[-1].span)
        return Recipe(function, Look(checks.derivative, tuple(places), len(self.indices))), captured

    def _may_run_again(self, instr: Instr) -> bool:
        """Whether a recipe may compute a tensor, or a constant, again. It is to have the bits that the program has."""
        if instr.op == "reshape":
            return instr in self.before  # kernels read what it is made of, so that is there, and it itself may not be
        if instr.op not in ("tabulate", "index", "barrier", "stop_grad") or not any(r.type.rank for r in instr.results):
            return instr.op == "const" and instr in self.reach
        inside = list(_inside(instr))
        differs = any(i.op in NAMED or i.op == "trap" or (i.op == "reduce" and may_be_factored(i)) for i in inside)
        return instr in self.reach and not differs


def _inside(instr: Instr) -> Iterator[Instr]:
    return (i for r in instr.regions for i in walk(r))

"""Where a NaN or an infinity shows: which values have one wherever another has one.

    a = tabulate n {(i): .. yield (mul (index x, i), c)}       an infinite element of x, or of a, makes one of b infinite or NaN,
    b = tabulate n {(i): .. yield (sub (index a, i), s)}       so who looks at b need not look at a, nor at the op that makes it
    d = tabulate n {(i): .. yield (exp (index b, i))}          exp hides one: it gives 0 for -inf

A value shows in another if that is computed from it by ops that pass NaN and infinities on (`PASSES_ON`), at every index: each element
of a tensor has to be read, so a read by a comprehension that may have no elements, or not those, tells nothing. A product that is
summed shows no factor: schedules skip factors whose partner is 0.

`suspects` are values that may well be infinite or NaN without anybody's fault: what comes of such numbers that the program writes down
itself. It is a guess, to which nothing but time is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tlc.frontend.ops import SCALAR_OPS
from tlc.opt.dims import same_extent
from tlc.ssa.ir import Block, Function, Instr, Region, Value, const_of, walk
from tlc.ssa.reductions import product

# The operands of an op that make its result NaN or infinite if they are, whatever the others.
PASSES_ON: dict[str, tuple[int, ...]] = {
    "add": (0, 1), "sub": (0, 1), "mul": (0, 1), "fma": (0, 1, 2), "div": (0,),
    "neg": (0,), "abs": (0,), "sqrt": (0,), "floor": (0,), "ceil": (0,), "trunc": (0,), "round": (0,), "convert": (0,),
    "log": (0,), "log1p": (0,), "sin": (0,), "cos": (0,), "tan": (0,),
}  # fmt: skip
assert set(SCALAR_OPS) >= set(PASSES_ON), f"no ops: {sorted(set(PASSES_ON) - set(SCALAR_OPS))}"

# The operands from which results get the infinities of a mask; of ops that are not here, from all.
_INHERITS: dict[str, tuple[int, ...]] = {
    "div": (0,), "exp": (), "expm1": (), "tanh": (), "erf": (), "sign": (),
    "index": (0,), "index_if": (1,), "tabulate": (), "reduce": (), "select": (1, 2),
    "call": (), "call_vjp": (), "grad": (), "jvp": (), "extern": (),
}  # fmt: skip


def suspects(function: Function) -> set[Value]:
    """The reals that may be infinite or NaN because the program says so."""
    found: set[Value] = set()

    def add(v: Value) -> bool:
        if v in found or not v.type.elem.is_real:
            return False
        found.add(v)
        return True

    instrs = list(walk(function.body))
    for i in instrs:
        if i.op == "const" and isinstance(number := const_of(i.result), float) and not math.isfinite(number):
            found.add(i.result)
    changed = bool(found)
    while changed:
        changed = False
        for i in instrs:
            if any(v in found for v in _inherited(i)):
                for r in i.results:
                    changed |= add(r)
        for block in _blocks(function.body):
            for target, args in block.terminator.edges:
                for p, v in zip(target.params, args, strict=True):
                    changed |= v in found and add(p)
    return found


def _inherited(instr: Instr) -> Iterator[Value]:
    at = _INHERITS.get(instr.op)
    yield from instr.operands if at is None else (instr.operands[k] for k in at)
    if instr.op != "reduce" or instr.attrs["op"] not in ("max", "min"):
        yield from (v for r in instr.regions for b in r.blocks if b.terminator.op == "yield" for v in b.terminator.operands)


def _blocks(region: Region) -> Iterator[Block]:
    for block in region.blocks:
        yield block
        for instr in block.instrs:
            for inner in instr.regions:
                yield from _blocks(inner)


class Shown:
    """The values that show in what is looked at, found from the end of a block to its beginning. `is_source` says which ops, and sums, may
    make a NaN or an infinity: what they give has to show, or what it `stands_for`, where that alone counts.
    """

    def __init__(self, is_source: Callable[[Instr], bool], stands_for: Callable[[Instr], Value]) -> None:
        self.is_source = is_source
        self.stands_for = stands_for
        self.values: set[Value] = set()
        self._runs: dict[Value, Value] = {}  # indices of the comprehensions that are gone through -> extents

    def back(self, instr: Instr) -> None:
        """Go back over an instruction without a region."""
        if any(r in self.values for r in instr.results):
            if instr.op in ("reshape", "barrier", "stop_grad"):
                self.values.add(instr.operands[0])
            elif instr.op in PASSES_ON:
                self._passed_on(instr, instr.block)

    def through(self, instr: Instr) -> list[Instr]:
        """Go back through a comprehension; gives the sources in it that do not show. From here on they do: they have to be looked at."""
        entry = instr.regions[0].entry
        yields = entry.terminator.operands
        self._runs.update(zip(entry.params, instr.operands, strict=True))
        if instr.op == "tabulate":
            for r, v in zip(instr.results, yields, strict=True):
                if r in self.values:
                    self._show(v, entry)
        elif instr.attrs["op"] in ("sum", "prod") and instr.result in self.values and not _is_product(instr) and not may_be_factored(instr):
            self._show(yields[0], entry)
        sources = self.up(entry)
        for p in entry.params:
            del self._runs[p]
        return sources

    def up(self, block: Block) -> list[Instr]:
        """Go back through a block of scalars; gives the sources in it that do not show, as `through` does."""
        sources: list[Instr] = []
        for inner in reversed(block.instrs):
            if self.is_source(inner) and inner.result not in self.values and self.stands_for(inner) not in self.values:
                self.values.add(inner.result)
                sources.append(inner)
            if inner.regions:
                sources += self.through(inner)
            elif inner.op in PASSES_ON and inner.result in self.values:
                self._passed_on(inner, inner.block)
            elif inner.op == "index" and inner.result in self.values and self._reads_all(inner):
                self.values.add(inner.operands[0])
        return sources

    def _reads_all(self, load: Instr) -> bool:
        """Whether the elements of the comprehensions read each element of a tensor, and there are none only if that has none."""
        tensor, *indices = load.operands
        if len(indices) != len(self._runs) or set(indices) != set(self._runs):
            return False
        return all(same_extent(self._runs[v], tensor, k) for k, v in enumerate(indices))

    def _passed_on(self, instr: Instr, block: Block | None) -> None:
        for k in PASSES_ON[instr.op]:
            if instr.operands[k].type.elem.is_real:
                self._show(instr.operands[k], block)

    def _show(self, value: Value, block: Block | None) -> None:
        """What is made elsewhere, outside of a region, does not show in it: there may be no elements."""
        if value.block is block:
            self.values.add(value)


def _is_product(reduce: Instr) -> bool:
    """Whether a sum of products adds these without rounding them."""
    return any(product(reduce, v) is not None for v in _terms(reduce))


def may_be_factored(reduce: Instr) -> bool:
    """Whether a sum may become one of products that are not rounded (`ssa/orders.py`): its terms are not computed then, and it is rounded
    otherwise.
    """
    if reduce.attrs["op"] != "sum" or not reduce.result.type.elem.is_real or _is_product(reduce):
        return False
    made = [v.owner for v in _terms(reduce) if isinstance(v.owner, Instr)]
    parts = [v.owner for i in made if i.op in ("mul", "div") for v in i.operands]
    return any(i.op == "select" for i in made) or any(isinstance(i, Instr) and i.op in ("mul", "div") for i in parts)


def _terms(reduce: Instr) -> list[Value]:
    return [v for b in reduce.regions[0].blocks if b.terminator.op == "yield" for v in b.terminator.operands]


def is_plain(instr: Instr) -> bool:
    """Whether the regions of a comprehension are single blocks of scalars."""
    return instr.op in ("tabulate", "reduce") and all(len(r.blocks) == 1 and _is_scalar(r.entry) for r in instr.regions)


def _is_scalar(block: Block) -> bool:
    return all(v.type.rank == 0 for i in block.instrs for v in i.results) and all(is_plain(i) for i in block.instrs if i.regions)


def chosen_blocks(instr: Instr) -> list[tuple[Block, Value, Value]]:
    """The blocks in the region of a `tabulate` with branches that end with what an element of a result is: that value, and the result."""
    region = instr.regions[0]
    if instr.op != "tabulate" or len(region.blocks) == 1:
        return []
    found: dict[Block, tuple[Block, Value, Value]] = {}
    for block in filter(_is_scalar, region.blocks):
        for target, args in block.terminator.edges if block.terminator.op == "jump" else ():
            given = dict(zip(target.params, args, strict=True))
            for v, result in zip(target.terminator.operands, instr.results, strict=False) if target.terminator.op == "yield" else ():
                if v in given and given[v].block is block:
                    found.setdefault(block, (block, given[v], result))
    return list(found.values())

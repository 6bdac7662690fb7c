"""Flattening: afterwards the region of every comprehension computes one scalar.

Requires: SSA after inlining. Preserves: meaning, up to which of several failing checks is reported first when different checks fail
at different elements. Regions that hold `grad` wait until derivatives are known, and so do functions that `grad` differentiates: what
extents they are given, which `tensor/derivative.py` finds out, decides what may leave a branch.

Afterwards, for every `tabulate`, the region is
  flat     one block of scalar ops and full loads of tensors from outside, or
  reducing the same, and last one `reduce` whose own region is flat (its extents may use the indices), which is what is yielded, or
  opaque   blocks with control flow, checks or calls, every value a scalar, every load a full load of a tensor from outside;
for every `reduce` and `scatter`, it is flat.

Method: from the inside out, reductions leave branches where that is safe (`tensor/hoist.py`), branches around loads become guarded
loads (`tensor/guard.py`), and each comprehension is distributed over the statements of its body (`tensor/distribute.py`). Control flow that
is the same for all elements moves around it (`tensor/interchange.py`). What remains becomes a loop over its first index
(`tensor/loops.py`), whose body is flattened in turn; a reduction that cannot be is a tabulate first and then a flat reduction of its
elements.

Worked example: `for[b] softmax(x[b])`, inlined,

  Y = tabulate [b] {                                      M = tabulate [b] { reduce max [j] { index x, b, j } }
    r = index x, b                                        E = tabulate [b, j] { exp (sub (index x, b, j), (index M, b)) }
    m = reduce max [j] { index r, j }            =>       S = tabulate [b] { reduce sum [j] { index E, b, j } }
    e = tabulate [j] { exp (sub (index r, j), m) }        Y = tabulate [b, j] { div (index E, b, j), (index S, b) }
    s = reduce sum [j] { index e, j }
    yield tabulate [j] { div (index e, j), s } }
"""

from __future__ import annotations

from collections.abc import Mapping

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.ssa.builder import Builder
from tlc.ssa.calls import DERIVED, KEPT, callee_of, named
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Type, Value, drop, drop_block, walk
from tlc.ssa.tape import touching
from tlc.tensor.distribute import Distribution, NotDistributable
from tlc.tensor.endings import give_end, run_first
from tlc.tensor.extents import Extents, Key
from tlc.tensor.guard import guard
from tlc.tensor.hoist import can_hoist, hoist
from tlc.tensor.interchange import interchange
from tlc.tensor.loops import run_as_loop
from tlc.tensor.scalar_code import is_scalar, is_scalar_call, is_scalar_load, is_straight, loaded


@dataclass(frozen=True)
class Note:
    """A comprehension that runs as a loop, and why."""

    span: Span
    reason: str


def flatten(module: Module) -> list[Note]:
    """Flatten every function of a module, in place; gives the comprehensions that became loops."""
    notes: list[Note] = []
    differentiated = {n for f in module.functions.values() for i in walk(f.body) if i.op in (*DERIVED, "call_vjp") for n in named(i)}
    for name, function in list(module.functions.items()):
        if name not in differentiated:
            _Flattening(function, module, notes, bool(differentiated)).blocks(function.body)
    return notes


def flatten_function(function: Function, module: Module, known: Mapping[tuple[Value, int], Key]) -> None:
    """Flatten one function that is to be differentiated, in place. `known`: extents of its parameters."""
    _Flattening(function, module, [], True, known).blocks(function.body)


class _Flattening:
    def __init__(
        self,
        function: Function,
        module: Module,
        notes: list[Note],
        differentiates: bool,
        known: Mapping[tuple[Value, int], Key] | None = None,
    ) -> None:
        self.function = function
        self.module = module
        self.notes = notes
        self.differentiates = differentiates
        self.known = known
        self.taped = touching(module, module.functions)

    def blocks(self, region: Region) -> None:
        """All comprehensions of a region's blocks. Blocks that loops add are put behind and get their turn."""
        done: set[Block] = set()
        while work := [b for b in region.blocks if b not in done]:
            for block in work:
                self.block(block)
                done.add(block)

    def block(self, block: Block) -> None:
        k = 0
        while k < len(block.instrs):
            instr = block.instrs[k]
            if instr.regions and not any(i.op in DERIVED for i in walk(instr.regions[0])):
                if not all(map(give_end, instr.regions)):
                    run_first(instr, self.module)
                    return  # what is there now gets its turn
                for region in instr.regions:
                    self.blocks(region)
                if any(can_hoist(i) for b in instr.regions[0].blocks[1:] for i in b.instrs):
                    hoist(instr, Extents(self.function, self.known), self.module, self.differentiates)
                guard(instr, self.module, self.differentiates)
                if not is_flat(instr, self.taped):
                    self.replace(instr)
                    continue  # at what stands in its place
            k += 1

    def replace(self, instr: Instr) -> None:
        """Distribute a comprehension, or take the step towards it that is possible."""
        if instr.op != "tabulate" and not _is_consumable(instr):
            _tabulate_first(instr, self.module)
            return
        distribution = Distribution(instr, self.module, self.taped)
        try:
            results = distribution.run()
        except NotDistributable as e:
            _discard(distribution.pieces)
            if instr.op != "tabulate":
                _tabulate_first(instr, self.module)
            elif not interchange(instr, self.module, self.taped):
                self.notes.append(Note(e.span, e.reason))
                run_as_loop(instr, self.module)
            return
        _put_in_place(instr, distribution.pieces, results)


def is_flat(instr: Instr, taped: frozenset[str] = frozenset()) -> bool:
    """Whether a comprehension has the form that flattening ensures. `taped` are functions that touch a tape: no kernel calls them."""
    region = instr.regions[0]
    if any(i.op == "call" and callee_of(i) in taped for b in region.blocks for i in b.instrs):
        return False
    inside = {v for b in region.blocks for v in (*b.params, *(r for i in b.instrs for r in i.results))}
    if instr.op != "tabulate":
        return len(region.blocks) == 1 and all(_is_simple(i, inside) for i in region.entry.instrs)
    if len(region.blocks) > 1:
        passed = [v for b in region.blocks for v in (*b.params, *b.terminator.operands)]
        return all(v.type.rank == 0 for v in passed) and all(
            _is_simple(i, inside) or is_scalar_call(i) or i.op == "check" for b in region.blocks for i in b.instrs
        )
    reductions = [i for i in region.entry.instrs if i.op == "reduce"]
    others = [i for i in region.entry.instrs if i.op != "reduce"]
    if not all(_is_simple(i, inside) or is_scalar_call(i) for i in others):
        return False
    if not reductions:
        return all(v.type.rank == 0 for v in region.entry.terminator.operands)
    (*more, last) = reductions
    reads_outside = all(x[0] not in inside for x in map(loaded, last.regions[0].entry.instrs) if x is not None)
    return not more and is_straight(last) and reads_outside and region.entry.terminator.operands == last.results


def _is_simple(instr: Instr, inside: set[Value]) -> bool:
    """A scalar op, or a full load of a tensor from outside."""
    tensor, *_ = loaded(instr) or (None,)
    return is_scalar(instr) or (is_scalar_load(instr) and tensor not in inside)


def _is_consumable(instr: Instr) -> bool:
    """Whether a reduce or scatter can keep its region: straight-line, without calls."""
    region = instr.regions[0]
    return len(region.blocks) == 1 and not any(i.op in KEPT for i in region.entry.instrs)


def _tabulate_first(instr: Instr, module: Module) -> None:
    """`reduce [i] { e }` -> `t = tabulate [i] { e }; reduce [i] { index t, i }`, and so for scatter."""
    assert instr.block is not None
    region = instr.regions[0]
    rank = len(region.entry.params)
    extents = instr.operands[len(instr.operands) - rank :]
    yields = next(b.terminator for b in region.blocks if b.terminator.op == "yield").operands
    block = instr.block
    at = block.instrs.index(instr)
    names = [p.name for p in region.entry.params]
    instr.regions = ()
    types = tuple(Type(v.type.elem, rank) for v in yields)
    tabulated = Instr("tabulate", extents, types, {}, (region,), instr.span)
    tabulated.block = block
    block.instrs.insert(at, tabulated)
    b = Builder(block, module, instr.span)
    instr.regions = (b.region(rank, lambda b, *indices: [b.index(t, *indices) for t in tabulated.results], names),)
    instr.regions[0].parent = instr


def _put_in_place(instr: Instr, pieces: Block, results: tuple[Value, ...]) -> None:
    """The pieces stand where the comprehension stood, and its uses read the results."""
    block = instr.block
    assert block is not None
    at = block.instrs.index(instr)
    for piece in pieces.instrs:
        piece.block = block
    block.instrs[at : at + 1] = pieces.instrs
    for old, new in zip(instr.results, results, strict=True):
        new.name = new.name or old.name
        old.replace_by(new)
    drop(instr)


def _discard(pieces: Block) -> None:
    drop_block(pieces)

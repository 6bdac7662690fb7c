"""Reverse mode of a comprehension whose region has branches: only the side that an element took contributes.

The region becomes a function of scalars, to which each group of equal loads adds a parameter:

    y = tabulate [i] { .. branch .. a = index x, i;  yield v }      f(i, dy, d) { .. a = add (index x, i), d;  return dy * v }

The gradient of f by d, by the ordinary reverse sweep and without a tape (there is no loop), is the adjoint of the load: zero where it
did not run. So one tabulate over the same indices gives the adjoints of all loads, and each goes to its tensor as those
of a straight-line region do (`derivative_region.py`).

    p = tabulate [i] { .. f reversed at (i, dy[i], 0) .. }          x[i] gets p[i]

Where a load did not run its index may lie outside of the tensor: there the adjoint is zero, and goes anywhere. An index that is itself
computed under a branch is tabulated too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlc.frontend.ops import SCALAR_OPS
from tlc.opt import passes
from tlc.opt.inline import inline_call
from tlc.ssa.builder import Builder
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.clone import clone_blocks
from tlc.ssa.construct import construct
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Terminator, Type, Value, erase, jump
from tlc.ssa.liveness import free_values
from tlc.ssa.lower_state import zero_of
from tlc.tensor.derivative_point import Indices, Root
from tlc.tensor.derivative_region import Body, Context, Group, RegionAdjoint, Sweep


def differentiate_branches(sweep: Sweep, instr: Instr, seeds: Sequence[Value | None]) -> None:
    """Add the contributions of a tabulate with control flow, given the adjoints of its results (None for zero)."""
    _BranchesAdjoint(sweep, instr, seeds).run()


class _BranchesAdjoint(RegionAdjoint):
    """`instrs` are those that may be computed for every element: the entry's, and scalar ops of other blocks."""

    def __init__(self, sweep: Sweep, instr: Instr, seeds: Sequence[Value | None]) -> None:
        super().__init__(sweep, instr, seeds)
        entry, *others = reverse_postorder(instr.regions[0])
        self.instrs = [*entry.instrs, *(i for b in others for i in b.instrs if i.op in SCALAR_OPS or i.op == "const")]
        self.inside = {v for b in (entry, *others) for v in (*b.params, *(r for i in b.instrs for r in i.results))}
        self.blocks = [entry, *others]
        self.adjoints: dict[Value, Value] = {}  # a load or free scalar -> a tensor of its adjoint for every element
        self.places: dict[Value, Value] = {}  # an index computed under a branch -> a tensor of it, 0 where it was not

    def _stored(self) -> dict[Value, Value]:
        return {}

    def _roots(self) -> list[Root]:
        return []

    def run(self) -> None:
        instrs = [i for b in self.blocks for i in b.instrs]
        groups = self._loads(instrs)
        free = free_values(self.instr.regions[0])
        scalars = [v for v in free if v.type.rank == 0 and self.sweep.is_active(v)]
        adjoints = _elementwise(self, groups, scalars, list(free))
        self.adjoints = dict(zip([*(loads[0] for loads in groups.values()), *scalars], adjoints, strict=True))
        read = (v for _, places, guard in groups for v in (*places, *(() if guard is None else (guard,))))
        hidden = dict.fromkeys(v for v in read if not self._is_computable(v))
        self.places = dict(zip(hidden, _elements(self, list(hidden), list(free)) if hidden else (), strict=True))
        for group, loads in groups.items():
            self._contribute(group, loads)
        for scalar in scalars:
            self._contribute((scalar, (), None), [scalar])

    def _solved(self, group: Group, targets: list[Value]) -> bool:
        return False  # where a branch was not taken, the place says nothing

    def reaches(self, targets: object) -> bool:
        return True

    def _same_adjoint(self, targets: list[Value]) -> Value:
        return targets[0]

    def _context(self, base: Value, places: tuple[Value, ...], targets: list[Value]) -> Context:
        inner = super()._context(base, places, targets)
        adjoint = self.adjoints[targets[0]]

        def place(v: Value) -> Body:
            if v not in self.places:
                return inner.place(v)
            return lambda b, values: b.index(self.places[v], *(values[i] for i in self.outer))

        return Context(inner.indices, inner.extents, self._read(adjoint, tuple(self.outer)), place)

    def _is_computable(self, value: Value) -> bool:
        """Whether a scalar can be computed for every element: it is no result of a branch, nor of a load that may not have run."""
        known = {r for i in self.instrs for r in i.results} | set(self.outer)
        return not any(v in self.inside and v not in known for v in self.computed_from(value))

    def _scatter(self, base: Value, places: tuple[Value, ...], context: Context, guard: Value | None) -> None:
        bounds = [self.sweep.extent(base, axis) for axis in range(base.type.rank)]
        extents = context.extents if guard is not None else self._if_any(base, context.extents)  # with a guard, the others do it

        def clamped(v: Value) -> Body:
            if v not in places:
                return context.place(v)
            n = bounds[places.index(v)]

            def body(b: Builder, values: Indices) -> Value:
                at = context.place(v)(b, values)
                inside = b.op("and", b.op("ge", at, b.i64(0)), b.op("lt", at, n))
                return b.op("select", inside, at, b.i64(0))

            return body

        super()._scatter(base, places, Context(context.indices, extents, context.value, clamped), guard)


def _elementwise(of: _BranchesAdjoint, groups: dict[Group, list[Value]], scalars: list[Value], free: list[Value]) -> Sequence[Value]:
    """The adjoints of loads and scalars for every element."""
    sweep, seeds = of.sweep, [(k, d) for k, d in enumerate(of.seeds) if d is not None]
    function, nudges = _function(of, groups, [k for k, _ in seeds], free)
    counts = len(of.outer), len(seeds), len(groups)
    asked = (*range(sum(counts[:2]), sum(counts)), *(sum(counts) + free.index(s) for s in scalars))
    scratch = Module({function.name: function})
    sweep.reverse(function, asked)
    for nudge in nudges:
        nudge.result.replace_by(nudge.operands[0])
        erase(nudge)
    passes.run(scratch, ("fold", "cse", "dce", "simplify-cfg"))
    zeros = [loads[0].type for loads in groups.values()]

    def body(b: Builder, at: Sequence[Value]) -> Sequence[Value]:
        return [*at, *(b.index(d, *at) for _, d in seeds), *(b.const(0.0, t) for t in zeros), *given]

    given = [sweep.forward(v) for v in free]
    return _tabulate_calls(of, function, body)


def _elements(of: _BranchesAdjoint, wanted: list[Value], free: list[Value]) -> Sequence[Value]:
    """Scalars of the region for every element; 0 where they are not computed."""
    start = Block("entry")
    indices = [start.add_param(i.type, i.name) for i in of.outer]
    values = {v: start.add_param(v.type, v.name) for v in free}
    blocks = clone_blocks(of.instr.regions[0].blocks, values)
    b = Builder(start, None, of.instr.span)
    for k, v in enumerate(wanted):
        b.set(f"place{k}", b.const(zero_of(v.type.elem), v.type))
    b.jump(blocks[0], *indices)
    for old, new in zip(of.instr.regions[0].blocks, blocks, strict=True):
        at = Builder(new, None, of.instr.span)
        for k, v in enumerate(wanted):
            if v in old.params or (isinstance(v.owner, Instr) and v.owner.block is old):
                at.set(f"place{k}", values[v])
        if new.terminator.op == "yield":
            at.ret(*(at.get(f"place{k}", v.type) for k, v in enumerate(wanted)))
    function = Function("element", Region([start, *blocks]), tuple(v.type for v in wanted), of.instr.span)
    scratch = Module({function.name: function})
    construct(scratch)
    passes.run(scratch, ("fold", "cse", "dce", "simplify-cfg"))
    given = [of.sweep.forward(v) for v in free]
    return _tabulate_calls(of, function, lambda b, at: [*at, *given])


def _tabulate_calls(
    of: _BranchesAdjoint, function: Function, arguments: Callable[[Builder, Sequence[Value]], Sequence[Value]]
) -> Sequence[Value]:
    """The results of a function of scalars for every element, inlined."""
    extents = [of.sweep.forward(n) for n in of.outer.values()]

    def body(b: Builder, *at: Value) -> Sequence[Value]:
        return b.call(function.name, arguments(b, at), function.results)

    result = of.sweep.b.tabulate_many(extents, body, [i.name for i in of.outer])
    (call,) = (i for i in result.regions[0].entry.instrs if i.op == "call")
    inline_call(call, function)
    return result.results


def _function(
    of: _BranchesAdjoint, groups: dict[Group, list[Value]], wanted: list[int], free: list[Value]
) -> tuple[Function, list[Instr]]:
    """The region as a function: of its indices, the adjoints of its results, what is added to each group of loads, and what it
    reads. Gives the additions too.
    """
    region = of.instr.regions[0]
    start = Block("entry")
    indices = [start.add_param(i.type, i.name) for i in of.outer]
    seeds = [start.add_param(Type(of.instr.results[k].type.elem)) for k in wanted]
    added = [start.add_param(loads[0].type) for loads in groups.values()]
    values = {v: start.add_param(v.type, v.name) for v in free}
    blocks = clone_blocks(region.blocks, values)
    start.terminator = jump(blocks[0], tuple(indices))
    nudges = []
    for loads, d in zip(groups.values(), added, strict=True):
        for load in loads:
            copy = values[load]
            assert isinstance(copy.owner, Instr) and copy.owner.block is not None
            nudge = Instr("add", (copy, d), (copy.type,), {}, (), copy.owner.span)
            copy.replace_by(nudge.result)
            nudge.operands = (copy, d)
            nudge.block = copy.owner.block
            at = copy.owner.block.instrs
            at.insert(at.index(copy.owner) + 1, nudge)
            nudges.append(nudge)
    function = Function("element", Region([start, *blocks]), (seeds[0].type,), of.instr.span)
    for block in blocks:
        if block.terminator.op == "yield":
            b = Builder(block, None, block.terminator.span)
            ends = block.terminator.operands
            parts = [b.op("mul", d, ends[k]) for k, d in zip(wanted, seeds, strict=True)]
            sum_type = parts[0].type
            total = parts[0]
            for p in parts[1:]:
                total = b.op("add", total, b.convert(p, sum_type))
            block.terminator = Terminator("return", (total,), (), b.span)
    return function, nudges

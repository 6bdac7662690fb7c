"""The parts of a flat or reducing comprehension (`tensor/flatten.py`) and what its scalars depend on, as derivatives ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tlc.ssa.components import reachable
from tlc.ssa.ir import Instr, Value
from tlc.tensor.scalar_code import loaded


class RegionForm:
    """One comprehension. `outer` are the indices of a tabulate or scatter, `inner` those of a reduce."""

    def __init__(self, instr: Instr) -> None:
        self.instr = instr
        region = instr.regions[0]
        self.reduction = instr if instr.op == "reduce" else next((i for i in region.entry.instrs if i.op == "reduce"), None)
        self.outer: dict[Value, Value] = {}  # index -> extent, both of the differentiated code
        self.inner: dict[Value, Value] = {}
        self.instrs: list[Instr] = []
        if instr.op != "reduce":
            extents = instr.operands[len(instr.operands) - len(region.entry.params) :]
            self.outer = dict(zip(region.entry.params, extents, strict=True))
            self.instrs += [i for i in region.entry.instrs if i.op != "reduce"]
        if self.reduction is not None:
            body = self.reduction.regions[0].entry
            self.inner = dict(zip(body.params, self.reduction.operands, strict=True))
            self.instrs += body.instrs
        self.inside = {*self.outer, *self.inner, *(r for i in self.instrs for r in i.results)}

    def is_ragged(self, is_active: Callable[[Value], bool]) -> bool:
        """Whether the elements are sums or products over ranges of their own, of which some active load is not summed over a rectangle
        (`RegionAdjoint._rectangular`).
        """
        if self.reduction is None or self.reduction.attrs["op"] not in ("sum", "prod") or all(map(self.is_uniform, self.inner.values())):
            return False
        loads = [read for read in map(loaded, self.instrs) if read is not None and is_active(read[0])]
        return not all(self._is_rectangular(places) for _, *places in loads)

    def _is_rectangular(self, places: Sequence[Value]) -> bool:
        """Whether a tensor is read at no inner index, or at all of them."""
        by_inner = [v for v in places if self.depends(v, self.inner)]
        return not by_inner or (all(v in self.inner for v in by_inner) and len({*by_inner}) == len(self.inner))

    def is_uniform(self, extent: Value) -> bool:
        """Whether an extent is the same for all elements, and may be computed where there are none."""
        found = self.computed_from(extent) & self.inside
        return not any(v in self.outer or (isinstance(v.owner, Instr) and loaded(v.owner) is not None) for v in found)

    def depends(self, value: Value, indices: Iterable[Value]) -> bool:
        """Whether a scalar of the region is computed from one of these indices."""
        return not self.computed_from(value).isdisjoint(indices)

    def computed_from(self, value: Value) -> set[Value]:
        """A scalar and what it is computed from in the region."""
        return set(reachable([value], lambda v: v.owner.operands if v in self.inside and isinstance(v.owner, Instr) else ()))

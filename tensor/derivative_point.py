"""One point of a comprehension whose derivative is made: scalars of its region computed again there, and their adjoints.

    y = tabulate [b, o] { reduce chain [k] { mul (x b k), (w k o) } }
    at (b, k, o):  forward(w k o) reads w[k, o];  adjoint([x b k]) = mul (dy b o), (w k o), by a reverse sweep over the region
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Instr, Value, const_of
from tlc.tensor.derivative_rules import At, by_own_rule, partial
from tlc.tensor.scalar_code import loaded

if TYPE_CHECKING:
    from tlc.tensor.derivative_region import RegionAdjoint

Indices = dict[Value, Value]  # index of the differentiated code -> index here
NONE: frozenset[Value] = frozenset()


@dataclass(frozen=True)
class Root:
    """A value of the region whose adjoint is given: by `seed` at each point."""

    value: Value
    seed: Callable[[Point], Value]


class Point:
    """One point of the context, in code that is being made: values of the region at it, and adjoints. With a guard its adjoints are read
    only where that holds, and so is what lies at indices that are `doubtful`: in range only there.
    """

    def __init__(
        self, of: RegionAdjoint, b: Builder, values: Indices, guard: Value | None = None, doubtful: frozenset[Value] = NONE
    ) -> None:
        self.of, self.b, self.guard, self.doubtful = of, b, guard, doubtful
        self.values = values
        for inner, best in of.at_best.items():
            if inner not in values and all(i in values for i in of.outer):
                values[inner] = self.load(best, *(values[i] for i in of.outer))

    def load(self, tensor: Value, *indices: Value) -> Value:
        """An element of a tensor, or a scalar itself."""
        if self.guard is None or not indices:
            return self.b.index(tensor, *indices)
        return self.b.index_if(self.guard, tensor, *indices)

    def only_if(self, value: Value) -> Value:
        """A value where the guard holds, else 0. A product stays one, so that a sum of it is one chain: each factor that is more than an
        element or a number is chosen for itself.
        """
        owner = value.owner
        if self.guard is None or _is_plain(value, guarded=True):
            return value
        if isinstance(owner, Instr) and owner.op == "mul":
            seed, other = (v if _is_plain(v, guarded=k == 0) else self._or_zero(v) for k, v in enumerate(owner.operands))
            return self.b.op("mul", seed, other)
        return self._or_zero(value)

    def _or_zero(self, value: Value) -> Value:
        assert self.guard is not None
        return self.b.op("select", self.guard, value, self.b.const(0.0, value.type))

    def forward(self, value: Value) -> Value:
        """A value that the region computes or reads."""
        of = self.of
        work, needed = [value], set[Instr]()
        while work:
            v = work.pop()
            if v in self.values or v not in of.inside or v in of.stored:
                continue
            assert isinstance(v.owner, Instr), v
            if v.owner not in needed:
                needed.add(v.owner)
                work += v.owner.operands
        for i in of.instrs if needed else ():
            if i in needed:
                self._copy(i)
        return self._known(value)

    def _known(self, value: Value) -> Value:
        if value in self.values:
            return self.values[value]
        if value in self.of.stored:
            tensor = self.of.sweep.forward(self.of.stored[value])
            self.values[value] = self.load(tensor, *(self.values[i] for i in self.of.outer))
            return self.values[value]
        return self.of.sweep.forward(value)

    def _copy(self, instr: Instr) -> None:
        operands = tuple(map(self._known, instr.operands))
        read_at = loaded(instr)
        if self.guard is not None and read_at is not None and any(self.of.depends(v, self.doubtful) for v in read_at[1:]):
            own = (operands[0], self.guard) if instr.op == "index_if" else (self.guard,)
            read = operands[1:] if instr.op == "index_if" else operands
            self.values[instr.result] = self.b.index_if(self.b.every(own), *read, hint=instr.result.name)
            return
        types, names = tuple(r.type for r in instr.results), tuple(r.name for r in instr.results)
        copy = self.b.insert(Instr(instr.op, operands, types, dict(instr.attrs), (), instr.span, names))
        self.values.update(zip(instr.results, copy.results, strict=True))

    def adjoint(self, targets: Sequence[Value]) -> Value:
        """The sum of the adjoints of some values, by a reverse sweep over what depends on them."""
        of = self.of
        relevant = of.relevant(targets)
        sums: dict[Value, Value] = {}
        for root in of.roots:
            if root.value in relevant:
                self._add(sums, root.value, root.seed(self))
        for i in reversed(of.instrs):
            if i.op == "call_vjp" and any(r in sums for r in i.results):
                self._by_own_rule(i, sums, relevant)
            if not i.results or i.result not in sums or i.op not in SCALAR_OPS:
                continue
            for k, operand in enumerate(i.operands):
                rule = partial(i, k)
                if operand in relevant and rule is not None:
                    self.b.span = i.span.of_derivative()
                    self._add(sums, operand, rule(At(self.b, i, sums[i.result], self.forward)))
        total: dict[Value, Value] = {}
        for t in targets:
            if t in sums:
                self._add(total, targets[0], sums[t])
        return total[targets[0]]

    def _by_own_rule(self, instr: Instr, sums: dict[Value, Value], relevant: set[Value]) -> None:
        self.b.span = instr.span.of_derivative()
        real = [r for r in instr.results if r.type.elem.is_real]
        adjoints = [sums[r] if r in sums else self.b.const(0.0, r.type) for r in real]
        for operand, gradient in by_own_rule(self.b, instr, adjoints, self.forward):
            if operand in relevant:
                self._add(sums, operand, gradient)

    def _add(self, sums: dict[Value, Value], of: Value, more: Value) -> None:
        sums[of] = self.b.op("add", sums[of], more) if of in sums else more


def _is_plain(value: Value, guarded: bool) -> bool:
    """An element of a tensor (under a guard, if it has to be 0 where that does not hold), or a value from outside."""
    owner = value.owner
    if not isinstance(owner, Instr) or const_of(value) is not None:
        return not guarded
    return owner.op == "index_if" or (owner.op == "index" and not guarded)

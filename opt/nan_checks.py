"""What `--trap-nan` checks, and how it is said: checks of scalars where they stand, and of comprehensions beside them.

    y = log x            y = log x;  check (y is no worse than x) "`log` of {0} gives {1}", x, y

A number is finite, infinite or NaN, and no operation may give what is worse than all of its operands. So what the program writes down
itself, and what it reads, may be infinite or NaN: a mask of `-inf` and what is computed with it. But `-inf - -inf`, the NaN of a row
that is masked as a whole, is made there. A sum is looked at as a whole: it is no worse than its elements. What a derivative computes for
a side of a `select` alone is looked at where that is chosen (a rule divides by zero and drops the result); the program's own choices by
`where` compute both sides, and both count.

A comprehension keeps its bits: its elements are checked in a copy of it, its `shadow`, or tested in a reduction, `well`, which says only
whether they are all right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.ssa.builder import Builder
from tlc.ssa.clone import clone_region
from tlc.ssa.construct import construct_region
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import BOOL, I64, Attr, Block, Function, Instr, Region, Type, Value, walk
from tlc.ssa.reductions import product

# Ops that never give a real that is worse than their operands.
HARMLESS = frozenset({
    *("neg", "abs", "sign", "max", "min", "select", "floor", "ceil", "trunc", "round", "tanh", "erf", "bitcast"),
})  # fmt: skip
assert set(SCALAR_OPS) >= HARMLESS, f"no ops: {sorted(HARMLESS - set(SCALAR_OPS))}"

_ALL: dict[str, Attr] = {"op": "all", "order": "lanes"}
Conditions = Sequence[tuple[Value, bool]]  # conditions of `select`s, and whether the first side of each is the one in question


@dataclass(frozen=True)
class Look:
    """Puts checks into the function of a recipe, of one block: behind the instructions at `places`. Its first `depth` parameters are the
    indices of the comprehensions around.
    """

    derivative: bool
    places: tuple[int, ...]
    depth: int

    def __call__(self, function: Function) -> None:
        checks = Checks(self.derivative)
        entry = function.body.entry
        indices = entry.params[: self.depth]
        for instr in [entry.instrs[k] for k in self.places]:
            if instr.regions:
                checks.comprehension(instr, indices)
            else:
                checks.say(Builder.behind(instr), instr, (), indices)


class Checks:
    """Adds checks to the blocks of a function, or of a copied region. `indices` are always those of the comprehensions around."""

    def __init__(self, derivative: bool) -> None:
        self.derivative = derivative  # whether to look at what derivatives compute, or at all else
        self.unrounded: set[Instr] = set()  # products that a sum adds without rounding them
        self.variables = 0  # names the variables of regions

    def check(self, region: Region, indices: Sequence[Value]) -> None:
        """Check everything where it stands, each element of a comprehension in a copy of it."""
        for block in region.blocks:
            for instr in list(block.instrs):
                if instr.regions:
                    self.comprehension(instr, indices)
                elif self.is_checked(instr):
                    last, conditions = chosen(instr)
                    b = Builder.behind(last)
                    b.span = instr.span
                    self.say(b, instr, conditions, indices)

    def comprehension(self, instr: Instr, indices: Sequence[Value]) -> None:
        """Check a comprehension."""
        if self.has_checks(instr.regions[0]):
            insert_before(instr, self.shadow(instr, indices))
        if self.is_total(instr):
            self.total(Builder.behind(instr), instr, indices)

    # ------------------------------------------------------------ what is checked

    def is_dangerous(self, instr: Instr) -> bool:
        if instr.op not in SCALAR_OPS or instr.op in HARMLESS or not self._is_asked(instr):
            return False
        return instr.op != "convert" or instr.operands[0].type.elem.is_real

    def is_checked(self, instr: Instr) -> bool:
        return self.is_dangerous(instr) and instr not in self.unrounded

    def is_total(self, instr: Instr) -> bool:
        return instr.op == "reduce" and instr.attrs["op"] in ("sum", "prod") and self._is_asked(instr)

    def _is_asked(self, instr: Instr) -> bool:
        return instr.result.type.elem.is_real and instr.span.derivative == self.derivative

    def is_source(self, instr: Instr) -> bool:
        """Whether an instruction itself may make a NaN or an infinity."""
        return self.is_checked(instr) or self.is_total(instr)

    def has_checks(self, region: Region) -> bool:
        return any(self.is_dangerous(i) or self.is_total(i) for i in walk(region))

    def _copy(self, instr: Instr) -> tuple[Region, dict[Value, Value]]:
        known: dict[Value, Value] = {}
        copy = clone_region(instr.regions[0], known)
        self.unrounded.update(i for i in (known[p.result].owner for p in products(instr)) if isinstance(i, Instr))
        return copy, known

    def shadow(self, instr: Instr, indices: Sequence[Value]) -> Instr:
        """A comprehension that makes the checks of another."""
        copy, _ = self._copy(instr)
        self.check(copy, (*indices, *copy.entry.params))
        _yield_instead(copy, lambda b: b.const(True, BOOL))
        extents = _extents(instr)
        return Instr("tabulate", extents, (Type(BOOL.elem, len(extents)),), {}, (copy,), instr.span)

    def sources(self, region: Region) -> set[Instr]:
        return {i for i in walk(region) if self.is_source(i)}

    def well(
        self,
        instr: Instr,
        b: Builder,
        looked_at: AbstractSet[Instr],
        exactly: bool,
        ends: Mapping[Block, Value] = MappingProxyType({}),
        inside: bool = False,
    ) -> Value | None:
        """At `b`, whether in a comprehension some sources are finite; or, if they are ops and that is asked `exactly`, no worse than their
        operands; and the results of which elements come from its blocks `ends` are finite there. A bool for each row, or for all of a
        comprehension `inside` another. None if there is nothing to look at.
        """
        if not ends and looked_at.isdisjoint(walk(instr.regions[0])):
            return None
        copy, values = self._copy(instr)
        here = {values[i.result].owner for i in looked_at if i.result in values}
        straight = len(copy.blocks) == 1
        self.variables += 1
        variable = f"well~{self.variables}"
        found: list[Value] = []

        def note(b: Builder, holds: Value) -> None:
            if not straight:
                b.set(variable, b.op("and", b.get(variable, BOOL), holds))
            found.append(holds)

        for old, block in zip(instr.regions[0].blocks, copy.blocks, strict=True):
            for inner in list(block.instrs):
                if inner.regions:
                    before = Builder.before(inner)
                    well = self.well(inner, before, {i for i in here if isinstance(i, Instr)}, exactly, inside=True)
                    if well is not None:
                        note(before, well)
                if inner in here:
                    last, conditions = chosen(inner)
                    behind = Builder.behind(last)
                    behind.span = inner.span
                    is_op = exactly and not inner.regions
                    note(behind, self.holds(behind, inner, conditions) if is_op else behind.finite(inner.result))
            if old in ends:
                at = Builder(block, None, instr.span)
                note(at, at.finite(at.index(ends[old], *copy.entry.params)))
        if straight:
            _yield_instead(copy, lambda b: b.every(found))
        else:
            start = Builder(copy.entry, None, b.span)
            start.position = 0
            start.set(variable, start.const(True, BOOL))
            _yield_instead(copy, lambda b: b.get(variable, BOOL))
            construct_region(copy)
        extents = _extents(instr)
        if inside or len(extents) == 1:
            return b.emit("reduce", extents, [BOOL], dict(_ALL), [copy], ["well"]).result

        def row(b: Builder, *indices: Value) -> Value:
            for old_index, index in zip(copy.entry.params, indices, strict=False):
                old_index.replace_by(index)
            copy.entry.params = copy.entry.params[len(indices) :]
            return b.emit("reduce", extents[len(indices) :], [BOOL], dict(_ALL), [copy], ["well"]).result

        return b.tabulate(extents[:-1], row, [p.name for p in copy.entry.params[:-1]], "well")

    # ------------------------------------------------------------ checks

    def holds(self, b: Builder, instr: Instr, conditions: Conditions) -> Value:
        """At `b`, whether a scalar is no worse than what it is made of, or is not chosen."""
        holds = _no_worse(b, instr.result, [v for v in instr.operands if v.type.elem.is_real])
        for cond, side in conditions:
            holds = b.op("or", holds, b.op("not", cond) if side else cond)
        return holds

    def say(self, b: Builder, instr: Instr, conditions: Conditions, indices: Sequence[Value]) -> None:
        """At `b`, check a scalar."""
        said = [f"{{{k}}}" for k in range(len(instr.operands))]
        what = f"`{_said(instr)}` of {', '.join(said[:-1])}{' and ' * (len(said) > 1)}{said[-1]} gives {{{len(said)}}}"
        _check(b, self.holds(b, instr, conditions), what, (*instr.operands, instr.result), indices)

    def total(self, b: Builder, instr: Instr, indices: Sequence[Value]) -> None:
        """At `b`: a sum or product is no worse than the worst of its elements. They are looked at only where it is not finite."""
        values: dict[Value, Value] = {}
        region = clone_region(instr.regions[0], values)
        factors = {values[p.result]: tuple(values.get(v, v) for v in p.operands) for p in products(instr)}
        for block in region.blocks:
            if block.terminator.op == "yield":
                (element,) = block.terminator.operands
                inner = Builder(block, None, instr.span)
                inner.yield_(_badness(inner, factors.get(element, (element,))))
        finite = b.finite(instr.result)
        extents = [b.op("select", finite, b.i64(0), n) for n in instr.operands]
        worst = b.emit("reduce", extents, [I64], {"op": "max", "order": instr.attrs["order"]}, [region]).result
        of_finite = b.op("or", finite, b.op("gt", worst, b.i64(0)))
        of_infinite = b.op("or", b.op("eq", instr.result, instr.result), b.op("ne", worst, b.i64(1)))
        op = f"`{instr.attrs['op']}`"
        _check(b, of_finite, f"{op} of finite numbers gives {{0}}", (instr.result,), indices)
        _check(b, of_infinite, f"{op} of infinities gives {{0}}", (instr.result,), indices)


def counting(instr: Instr) -> Value:
    """What has to be no worse than its operands: what an op gives, or what is chosen of that."""
    return chosen(instr)[0].result


def _check(b: Builder, holds: Value, what: str, values: tuple[Value, ...], indices: Sequence[Value]) -> None:
    """Stop unless it holds, and say what, with a place for each of the values, at these indices of comprehensions."""
    where = ", ".join(f"{{{len(values) + k}}}" for k in range(len(indices)))
    of = "in the derivative of this, " if b.span.derivative else ""
    b.check(holds, "finite", f"{of}{what}{f' at [{where}]' if where else ''}", *values, *indices)


def _yield_instead(region: Region, what: Callable[[Builder], Value]) -> None:
    """Let a region yield something else."""
    for block in region.blocks:
        if block.terminator.op == "yield":
            b = Builder(block, None, block.terminator.span)
            b.yield_(what(b))


def _extents(instr: Instr) -> tuple[Value, ...]:
    """Those of a comprehension."""
    return instr.operands[len(instr.operands) - len(instr.regions[0].entry.params) :]


def _said(instr: Instr) -> str:
    """An op as the source writes it."""
    return str(instr.result.type) if instr.op == "convert" else SCALAR_OPS[instr.op].symbol or instr.op


def products(instr: Instr) -> list[Instr]:
    """The products that a sum adds without rounding them."""
    ends = [b.terminator.operands[0] for b in instr.regions[0].blocks if b.terminator.op == "yield"] if instr.op == "reduce" else []
    return [p for p in (product(instr, v) for v in ends) if p is not None]


def chosen(instr: Instr) -> tuple[Instr, Conditions]:
    """The last of the selects in the same block which alone, through other ops, read what a derivative computes, and what each must choose
    for it; the instruction itself and nothing of others.
    """
    last, needed = instr, list[tuple[Value, bool]]()
    at = instr
    if not instr.span.derivative:
        return last, needed
    while len(at.results) == 1 and len(at.result.uses) == 1:
        (user,) = at.result.uses
        if not isinstance(user, Instr) or user.op not in SCALAR_OPS or user.block is not instr.block:
            break
        if user.op == "select":
            if user.operands.count(at.result) > 1 or user.operands[0] is at.result:
                break
            needed.append((user.operands[0], user.operands[1] is at.result))
            last = user
        at = user
    return last, needed


def _no_worse(b: Builder, result: Value, operands: Sequence[Value]) -> Value:
    """Whether a result is finite; or infinite, as an operand is or worse; or NaN as an operand."""
    holds = b.finite(result)
    if not operands:
        return holds
    worst = b.op("abs", operands[0])
    for v in operands[1:]:
        worst = b.op("max", worst, b.op("abs", v))  # NaN wins
    infinite = b.op("eq", b.op("abs", result), b.const(math.inf, result.type))
    of_infinite = b.op("eq", worst, b.const(math.inf, worst.type))
    return b.op("or", b.op("or", holds, b.op("ne", worst, worst)), b.op("and", infinite, of_infinite))


def _badness(b: Builder, values: Sequence[Value]) -> Value:
    """0 of finite numbers, 1 if one is infinite, 2 if one is NaN."""
    number = b.every(b.op("eq", v, v) for v in values)
    finite = b.every(b.finite(v) for v in values)
    return b.op("select", finite, b.i64(0), b.op("select", number, b.i64(1), b.i64(2)))

"""`--trap-nan`: checks that stop the program where it first makes a NaN, or makes an infinity of finite numbers.

    y = log x            y = log x;  check (y is no worse than x) "`log` of {0} gives {1}", x, y

A number is finite, infinite or NaN, and no operation may give what is worse than all of its operands. So what the program writes down
itself, and what it reads, may be infinite or NaN: a mask of `-inf` and what is computed with it. But `-inf - -inf`, the NaN of a row
that is masked as a whole, is made there. A sum is looked at as a whole: it is no worse than its elements. What a derivative computes for
a side of a `select` alone is looked at where that is chosen (a rule divides by zero and drops the result); the program's own choices by
`where` compute both sides, and both count.

Values keep their bits: a comprehension is left as it is. Before it stand reductions that compute the same for its checks. Straight code
gives each of its operations a number, and the first element where one of them fails says which, with what numbers:

    y = tabulate n {               first = reduce min n { (i): a = exp (index x, i); which = ..; yield (if which = 0 none else i) }
      (i): a = exp (index x, i)    which, u, v = tabulate (first != none) { .. which, and the operands, of the element `first` .. }
           yield div a, s }        which = reduce max (first != none) { index which, 0 };  u = ..
                                   check which != 1, "`exp` of {0} gives {1} at [{2}]", u, v, first
                                   check which != 2, "`/` of {0} and {1} gives {2} at [{3}]", u, s, v, first
                                   y = tabulate n { .. }

so that a comprehension costs a few kernels, however many operations it has. Beside one with control flow stands a copy that holds the
checks.

The same is done twice: to what the program says, before anything is folded, and to what derivatives add to it, whose spans say so.

Requires SSA, where regions call only what stays a call. The program computes everything twice or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import Span
from tlc.ssa.builder import Builder
from tlc.ssa.clone import clone_instr, clone_region
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import BOOL, I64, Block, Instr, Module, Region, Terminator, Type, Value, walk
from tlc.ssa.liveness import free_values
from tlc.ssa.reductions import product

# Ops that never give a real that is worse than their operands.
HARMLESS = frozenset({
    *("neg", "abs", "sign", "max", "min", "select", "floor", "ceil", "trunc", "round", "tanh", "erf", "bitcast"),
})  # fmt: skip
assert set(SCALAR_OPS) >= HARMLESS, f"no ops: {sorted(HARMLESS - set(SCALAR_OPS))}"

NONE = 2**63 - 1  # the position of the first failing element where none fails

Which = Callable[[Instr], bool]


def trap_program(module: Module) -> None:
    """Check what the program computes."""
    _trap(module, lambda i: not i.span.derivative)


def trap_derivatives(module: Module) -> None:
    """Check what derivatives compute beside what they differentiate."""
    _trap(module, lambda i: i.span.derivative)


def _trap(module: Module, which: Which) -> None:
    for function in module.functions.values():
        _Traps(which).blocks(function.body, ())


@dataclass(frozen=True)
class _Case:
    """What must hold, and what is said if not: `what`, with a place for each of the values, at these indices of comprehensions."""

    holds: Value
    what: str
    values: tuple[Value, ...]
    span: Span
    indices: tuple[Value, ...] = ()

    def check(self, b: Builder, around: tuple[Value, ...]) -> None:
        indices = (*around, *self.indices)
        where = ", ".join(f"{{{len(self.values) + k}}}" for k in range(len(indices)))
        of = "in the derivative of this, " if self.span.derivative else ""
        b.span = self.span
        b.check(self.holds, "finite", f"{of}{self.what}{f' at [{where}]' if where else ''}", *self.values, *indices)


class _Traps:
    """Adds checks to the blocks of a function, or of a copied region."""

    def __init__(self, which: Which) -> None:
        self.which = which
        self.unrounded: set[Instr] = set()  # products that a sum adds without rounding them

    def blocks(self, region: Region, indices: tuple[Value, ...]) -> None:
        """Check everything in a region's own blocks. `indices` are those of the comprehensions around."""
        for block in region.blocks:
            for b, case in self._cases(block, indices):
                case.check(b, indices)

    def _cases(self, block: Block, indices: tuple[Value, ...]) -> Iterator[tuple[Builder, _Case]]:
        """What is to be checked in a block, each with the place where it is known."""
        for instr in list(block.instrs):
            if instr.regions:
                if self._has_checks(instr.regions[0]):
                    if self._is_straight(instr.regions[0]):
                        b = Builder.before(instr)
                        yield from ((b, case) for case in self._gathered(instr, b))
                    else:
                        self._shadow(instr, indices)
                if _is_sum(instr) and self.which(instr):
                    yield from self._total(instr)
            elif self._is_dangerous(instr) and instr not in self.unrounded:
                yield self._scalar(instr)

    def _is_dangerous(self, instr: Instr) -> bool:
        if instr.op not in SCALAR_OPS or instr.op in HARMLESS or not instr.result.type.elem.is_real or not self.which(instr):
            return False
        return instr.op != "convert" or instr.operands[0].type.elem.is_real

    def _has_checks(self, region: Region) -> bool:
        return any(self._is_dangerous(i) or (self.which(i) and _is_sum(i)) for i in walk(region))

    def _is_straight(self, region: Region) -> bool:
        """Whether what is checked in a region stands in no control flow."""
        nested = (r for i in region.entry.instrs for r in i.regions if self._has_checks(r))
        return len(region.blocks) == 1 and all(map(self._is_straight, nested))

    def _copy(self, instr: Instr) -> Region:
        values: dict[Value, Value] = {}
        copy = clone_region(instr.regions[0], values)
        self.unrounded.update(i for i in (values[p.result].owner for p in _products(instr)) if isinstance(i, Instr))
        return copy

    def _shadow(self, instr: Instr, indices: tuple[Value, ...]) -> None:
        """Beside a comprehension, one that makes its checks."""
        copy = self._copy(instr)
        self.blocks(copy, (*indices, *copy.entry.params))
        for block in copy.blocks:
            if block.terminator.op == "yield":
                span = block.terminator.span
                true = block.append(Instr("const", (), (BOOL,), {"value": True}, (), span))
                block.terminator = Terminator("yield", true.results, (), span)
        extents = _extents(instr)
        insert_before(instr, Instr("tabulate", extents, (Type(BOOL.elem, len(extents)),), {}, (copy,), instr.span))

    def _gathered(self, instr: Instr, b: Builder) -> list[_Case]:
        """What is to be checked in a straight comprehension, known at `b`: the first element that fails, and its numbers."""
        copy = self._copy(instr)
        inner = copy.entry
        cases = [case for _, case in self._cases(inner, ())]
        element = _Element(inner, _extents(instr), cases)
        return element.at(element.first(copy, b), b)

    # ------------------------------------------------------------ what is checked

    def _scalar(self, instr: Instr) -> tuple[Builder, _Case]:
        last, needed = _chosen(instr) if instr.span.derivative else (instr, [])
        b = Builder.behind(last)
        b.span = instr.span
        holds = _no_worse(b, instr.result, [v for v in instr.operands if v.type.elem.is_real])
        for cond, side in needed:
            holds = b.op("or", holds, b.op("not", cond) if side else cond)
        said = [f"{{{k}}}" for k in range(len(instr.operands))]
        what = f"`{_said(instr)}` of {', '.join(said[:-1])}{' and ' * (len(said) > 1)}{said[-1]} gives {{{len(said)}}}"
        return b, _Case(holds, what, (*instr.operands, instr.result), instr.span)

    def _total(self, instr: Instr) -> Iterator[tuple[Builder, _Case]]:
        """A sum or product is no worse than the worst of its elements. They are looked at only where it is not finite."""
        values: dict[Value, Value] = {}
        region = clone_region(instr.regions[0], values)
        factors = {values[p.result]: tuple(values.get(v, v) for v in p.operands) for p in _products(instr)}
        for block in region.blocks:
            if block.terminator.op == "yield":
                (element,) = block.terminator.operands
                inner = Builder(block, None, instr.span)
                inner.yield_(_badness(inner, factors.get(element, (element,))))
        b = Builder.behind(instr)
        finite = _finite(b, instr.result)
        extents = [b.op("select", finite, b.i64(0), n) for n in instr.operands]
        worst = b.emit("reduce", extents, [I64], {"op": "max", "order": instr.attrs["order"]}, [region]).result
        of_finite = b.op("or", finite, b.op("gt", worst, b.i64(0)))
        of_infinite = b.op("or", b.op("eq", instr.result, instr.result), b.op("ne", worst, b.i64(1)))
        op = f"`{instr.attrs['op']}`"
        yield b, _Case(of_finite, f"{op} of finite numbers gives {{0}}", (instr.result,), instr.span)
        yield b, _Case(of_infinite, f"{op} of infinities gives {{0}}", (instr.result,), instr.span)


class _Element:
    """A copy of a straight comprehension as what it has to say of one element. `cases` are known at the end of its block."""

    def __init__(self, block: Block, extents: Sequence[Value], cases: Sequence[_Case]) -> None:
        self.block = block
        self.extents = extents
        self.cases = cases
        self.slots: dict[Type, list[Value]] = {}
        self.place: list[dict[Value, tuple[Type, int]]] = []  # of each case: which slot has a value
        b = Builder(block)
        self.which = b.i64(0)
        for k, case in reversed(list(enumerate(cases))):
            b.span = case.span
            self.which = b.op("select", case.holds, self.which, b.i64(k + 1))
        for k, case in enumerate(cases):
            b.span = case.span
            self._seat(b, k, dict.fromkeys(v for v in (*case.values, *case.indices) if self._is_own(v)))

    def _seat(self, b: Builder, k: int, values: Iterable[Value]) -> None:
        """Put the values of a case into slots of their types, where that case is the one that failed."""
        seats: dict[Value, tuple[Type, int]] = {}
        taken: dict[Type, int] = {}
        for v in values:
            slots, at = self.slots.setdefault(v.type, []), taken.get(v.type, 0)
            if at == len(slots):
                slots.append(v)
            else:
                slots[at] = b.op("select", b.op("eq", self.which, b.i64(k + 1)), v, slots[at])
            seats[v] = (v.type, at)
            taken[v.type] = at + 1
        self.place.append(seats)

    def _is_own(self, v: Value) -> bool:
        """Whether a value is computed for each element. Indices are found otherwise."""
        return isinstance(v.owner, Instr) and v.owner.block is self.block

    def first(self, region: Region, b: Builder) -> Value:
        """At `b`, the row-major position of the first element of which a case does not hold. The copy becomes that reduction."""
        inner = Builder(self.block, None, b.span)
        flat: Value = self.block.params[0]
        for i, n in zip(self.block.params[1:], self.extents[1:], strict=True):
            flat = inner.op("add", inner.op("mul", flat, n), i)
        position = inner.op("select", inner.op("eq", self.which, inner.i64(0)), inner.i64(NONE), flat)
        inner.yield_(position)
        return b.emit("reduce", self.extents, [I64], {"op": "min", "order": "lanes"}, [region], ["first"]).result

    def at(self, first: Value, b: Builder) -> list[_Case]:
        """The cases at `b`, with the values of that element."""
        failed = b.op("convert", b.op("ne", first, b.i64(NONE)), type=I64)
        told = [self.which, *(v for values in self.slots.values() for v in values)]

        def element(b: Builder, nought: Value) -> list[Value]:
            values = dict(zip(self.block.params, self._indices(b, b.op("add", first, nought)), strict=True))
            for instr in _needed(self.block, told):
                b.insert(clone_instr(instr, values))
            return [values.get(v, v) for v in told]

        lists = b.tabulate_many([failed], element, ["nought"]).results  # of one element, or of none if nothing failed
        read = dict(zip(told, (b.reduce("max", [failed], lambda b, nought, x=x: b.index(x, nought)) for x in lists), strict=True))
        which = read[self.which] if len(self.cases) > 1 else failed
        slots = {type: [read[v] for v in values] for type, values in self.slots.items()}
        indices = self._indices(b, first)
        at = dict(zip(self.block.params, indices, strict=True))
        out = []
        for k, (case, place) in enumerate(zip(self.cases, self.place, strict=True)):
            there = {**at, **{v: slots[type][n] for v, (type, n) in place.items()}}
            values, inner = (tuple(there.get(v, v) for v in vs) for vs in (case.values, case.indices))
            out.append(replace(case, holds=b.op("ne", which, b.i64(k + 1)), values=values, indices=(*indices, *inner)))
        return out

    def _indices(self, b: Builder, flat: Value) -> list[Value]:
        """The indices of a row-major position."""
        indices: list[Value] = []
        for n in reversed(self.extents[1:]):
            indices.insert(0, b.op("mod", flat, n))
            flat = b.op("floordiv", flat, n)
        return [flat, *indices]


def _needed(block: Block, values: Iterable[Value]) -> list[Instr]:
    """What a block computes values from."""
    wanted = set(values)
    out: list[Instr] = []
    for instr in reversed(block.instrs):
        if not wanted.isdisjoint(instr.results):
            out.append(instr)
            wanted.update(instr.operands, *map(free_values, instr.regions))
    return out[::-1]


def _extents(instr: Instr) -> tuple[Value, ...]:
    """Those of a comprehension."""
    return instr.operands[len(instr.operands) - len(instr.regions[0].entry.params) :]


def _said(instr: Instr) -> str:
    """An op as the source writes it."""
    return str(instr.result.type) if instr.op == "convert" else SCALAR_OPS[instr.op].symbol or instr.op


def _is_sum(instr: Instr) -> bool:
    return instr.op == "reduce" and instr.attrs["op"] in ("sum", "prod") and instr.result.type.elem.is_real


def _products(instr: Instr) -> list[Instr]:
    """The products that a sum adds without rounding them."""
    ends = [b.terminator.operands[0] for b in instr.regions[0].blocks if b.terminator.op == "yield"] if instr.op == "reduce" else []
    return [p for p in (product(instr, v) for v in ends) if p is not None]


def _chosen(instr: Instr) -> tuple[Instr, list[tuple[Value, bool]]]:
    """The last of the selects in the same block which alone, through other ops, read a value, and what each must choose for it."""
    last, needed = instr, list[tuple[Value, bool]]()
    at = instr
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


def _finite(b: Builder, v: Value) -> Value:
    return b.op("lt", b.op("abs", v), b.const(math.inf, v.type))


def _no_worse(b: Builder, result: Value, operands: Sequence[Value]) -> Value:
    """Whether a result is finite; or infinite, as an operand is or worse; or NaN as an operand."""
    holds = _finite(b, result)
    if not operands:
        return holds
    infinite = b.op("not", b.every(_finite(b, v) for v in operands))
    holds = b.op("or", holds, b.op("and", infinite, b.op("eq", result, result)))
    for v in operands:
        holds = b.op("or", holds, b.op("ne", v, v))
    return holds


def _badness(b: Builder, values: Sequence[Value]) -> Value:
    """0 of finite numbers, 1 if one is infinite, 2 if one is NaN."""
    number = b.every(b.op("eq", v, v) for v in values)
    finite = b.every(_finite(b, v) for v in values)
    return b.op("select", finite, b.i64(0), b.op("select", number, b.i64(1), b.i64(2)))

"""Solving the indices at which a tensor is read for the indices of a comprehension: the inverse of an affine map, one dimension each.

    x[2 i + p - 1]        read at t:    i = (t - p + 1) // 2,  if (t - p + 1) % 2 = 0 and 0 <= i < extent of i
    x[2 i + p], p < 2     read at t:    i = t // 2,  p = t % 2,  if i < extent of i        (each element is read once: p is the remainder)
    x[i // n, i % n]      read at s, t: i = s n + t,  if t < n and 0 <= i < extent of i    (a dimension that is cut in two)

With it reverse mode needs no scatter: instead of adding each point's part to the element that it read, every element collects the parts
of the points that read it. What stays unknown (p in the first line) is summed over.

A place is c i + rest: a constant c > 0, an index i that no other dimension is solved for, and a rest that does not depend on i nor
on what other dimensions are solved for. Of several such indices the outermost is taken: what is summed over is then a window of the
kernel, and not the image. Elsewhere (gathers, diagonals) there is no solution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tlc.frontend.records import dataclass
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Instr, Value, const_of


class Known(Protocol):
    """Values of the code that is differentiated, in code that is being made."""

    values: dict[Value, Value]

    def forward(self, value: Value, /) -> Value: ...


@dataclass(frozen=True)
class Affine:
    """A sum of values times coefficients, and a constant."""

    terms: Mapping[Value, int]
    constant: int = 0

    def plus(self, other: Affine, factor: int) -> Affine:
        terms = dict(self.terms)
        for v, c in other.terms.items():
            terms[v] = terms.get(v, 0) + c * factor
        return Affine({v: c for v, c in terms.items() if c}, self.constant + other.constant * factor)

    def without(self, *values: Value) -> Affine:
        return Affine({v: c for v, c in self.terms.items() if v not in values}, self.constant)


@dataclass(frozen=True)
class Equation:
    """The place along an axis is `by` times `index`, plus `remainder` (an index below `by`) if there is one, plus `rest`. `below` is the
    extent of the remainder. With `digit`, an axis and a number n, the place is that along the first axis times n plus that along `digit`.
    """

    axis: int
    index: Value
    by: int
    rest: Affine
    remainder: Value | None = None
    below: int = 0
    digit: tuple[int, int] | None = None


@dataclass(frozen=True)
class Solution:
    """Axes that are an index themselves, and equations for the others."""

    direct: Mapping[int, Value]
    equations: tuple[Equation, ...]

    @property
    def solved(self) -> set[Value]:
        """The indices that equations give."""
        return {i for e in self.equations for i in (e.index, e.remainder) if i is not None}

    @property
    def indices(self) -> set[Value]:
        """What is known of an element's place."""
        return {*self.direct.values(), *self.solved}

    def projected(self, at: Sequence[Value]) -> dict[Value, Value]:
        return {i: at[axis] for axis, i in self.direct.items()}

    def apply(self, b: Builder, point: Known, at: Sequence[Value], extents: Mapping[Value, Value]) -> list[Value]:
        """Give the indices their values at the element `at`; the conditions under which there is such a point."""
        holds: list[Value] = []
        found: dict[Value, Value] = {}
        for e in self.equations:
            d = at[e.axis]
            if e.digit is not None:
                axis, n = e.digit
                d = b.op("add", b.op("mul", d, b.i64(n)), at[axis])
                holds.append(b.op("lt", at[axis], b.i64(n)))
            for v, c in e.rest.terms.items():
                d = b.op("sub", d, _times(b, point.forward(v), c))
            if e.rest.constant:
                d = b.op("sub", d, b.i64(e.rest.constant))
            i = d if e.by == 1 else b.op("floordiv", d, b.i64(e.by))
            holds += [b.op("ge", i, b.i64(0)), b.op("lt", i, extents[e.index])]
            found[e.index] = i
            left = None if e.by == 1 else b.op("mod", d, b.i64(e.by))
            if e.remainder is not None:
                found[e.remainder] = b.i64(0) if left is None else left
                if left is not None and e.below < e.by:
                    holds.append(b.op("lt", left, b.i64(e.below)))
            elif left is not None:
                holds.append(b.op("eq", left, b.i64(0)))
        point.values.update(found)
        return holds


def solve(
    places: Sequence[Value],
    indices: Sequence[Value],
    depends: Callable[[Value, Value], bool],
    number: Callable[[Value], int | None],
    direct: Mapping[int, Value],
) -> Solution | None:
    """Solve `places` for `indices`, outer ones first. `depends(i, v)`: whether v is computed from i; `number` is the extent of an index,
    where it is known; `direct` are the axes whose place is an index that runs through the whole axis.
    """
    taken = set(direct.values())
    equations: list[Equation] = []
    digits = _digits(places)
    seconds = {second for second, _ in digits.values()}
    for axis, place in enumerate(places):
        if axis in direct or axis in seconds:
            continue
        digit = digits.get(axis)
        form = affine(place if digit is None else _operand(place))
        for i in indices:
            rest = form.without(i)
            if i not in taken and form.terms.get(i, 0) > 0 and not any(depends(i, v) for v in rest.terms):
                break
        else:
            return None
        elsewhere = [p for k, p in enumerate(places) if k != axis and (digit is None or k != digit[0])]
        by, remainder, below = form.terms[i], None, 0
        for p in rest.terms:
            n = number(p) if p in indices else None
            if rest.terms[p] == 1 and n is not None and n <= by and p not in taken and not any(depends(p, v) for v in elsewhere):
                others = rest.without(p)
                if not any(depends(p, v) for v in others.terms):
                    rest, remainder, below = others, p, n
                    break
        equations.append(Equation(axis, i, by, rest, remainder, below, digit))
        taken |= {i} if remainder is None else {i, remainder}
    solved = taken - set(direct.values())
    if any(depends(i, v) for e in equations for v in e.rest.terms for i in solved):
        return None
    return Solution(dict(direct), tuple(equations))


def _digits(places: Sequence[Value]) -> dict[int, tuple[int, int]]:
    """Axes at v // n, each with the axis at v % n of the same v, and n."""
    found: dict[int, tuple[int, int]] = {}
    for axis, place in enumerate(places):
        for k, other in enumerate(places):
            a, b = place.owner, other.owner
            if isinstance(a, Instr) and isinstance(b, Instr) and (a.op, b.op) == ("floordiv", "mod") and a.operands[0] is b.operands[0]:
                n, m = const_of(a.operands[1]), const_of(b.operands[1])
                if isinstance(n, int) and n == m and n > 0 and k not in {second for second, _ in found.values()}:
                    found[axis] = (k, n)
                    break
    return found


def _operand(value: Value) -> Value:
    assert isinstance(value.owner, Instr)
    return value.owner.operands[0]


def affine(value: Value) -> Affine:
    """A value as a sum; what is no sum, difference or multiple is a term."""
    constant = const_of(value)
    if isinstance(constant, int):
        return Affine({}, constant)
    owner = value.owner
    if isinstance(owner, Instr):
        match owner.op:
            case "add":
                return affine(owner.operands[0]).plus(affine(owner.operands[1]), 1)
            case "sub":
                return affine(owner.operands[0]).plus(affine(owner.operands[1]), -1)
            case "neg":
                return Affine({}).plus(affine(owner.operands[0]), -1)
            case "mul":
                for a, factor in (owner.operands, owner.operands[::-1]):
                    by = const_of(factor)
                    if isinstance(by, int):
                        return Affine({}).plus(affine(a), by)
            case _:
                pass
    return Affine({value: 1})


def _times(b: Builder, value: Value, c: int) -> Value:
    return value if c == 1 else b.op("mul", value, b.i64(c))

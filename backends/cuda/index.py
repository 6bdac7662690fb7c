"""Index expressions of a kernel in numba.cuda, simplified as those of C are (`backends/c/index.py`), and which of them are `uint32`.

A variable is a `uint32` where it is provably in 0 .. 2^32 - 1, given that a buffer has at most `MOST` elements and each of its extents is
at most that: whoever launches a kernel sees to it, or takes the wide form of the kernel, in which all indices are `int64`. What is
computed of variables in an expression is an `int64`, so nothing wraps there in either form. The variable of a loop remains the `int64`
that numba makes it, and so does what is computed of it, unless shared or local memory is indexed with it or it is divided: the compiler
sees through loops over these better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd, prod

from tlc.backends.c import index as c
from tlc.backends.c.words import PRODUCT, Text
from tlc.backends.cuda.words import Small, infix, literal
from tlc.frontend.types import Elem
from tlc.tensor.graph import ir as algebra
from tlc.tensor.graph.index import Poly, to_poly
from tlc.tensor.kernel.ir import Buffer, Expr, For, Var, subexpressions

MOST = (1 << 31) - 1


class Indices(c.Indices):
    """`buffers` are the global ones; `wide`: there is no `uint32`. `divide` calls a function on two of those."""

    literal, infix, quotient = staticmethod(literal), staticmethod(infix), "//"

    def __init__(
        self,
        buffers: Sequence[Buffer],
        wide: bool,
        other: Callable[[Expr], Text],
        helper: Callable[[str, Sequence[Text]], Text],
        divide: Callable[[str, Text, Text], Text],
    ) -> None:
        super().__init__(frozenset(x for b in buffers for e in b.shape for x in subexpressions(e) if isinstance(x, Var)), other, helper)
        self.buffers = buffers
        self.wide = wide
        self.divide = divide
        self.ends: dict[algebra.Expr, int] = {}  # the greatest values of atoms that are no extents
        self.multiples: dict[algebra.Expr, int] = {}  # of what atoms are multiples, where that is more than 1

    # ------------------------------------------------------------ sizes

    def define(self, var: Var, name: str, value: algebra.Expr) -> bool:
        """A variable with this value gets a name; gives whether it is a `uint32`."""
        small, most = self.is_small(value), self.most(value)
        atom = algebra.scalar(algebra.Scalar(name, Elem.I64, self.ranges.at_least_zero(to_poly(value))))
        self.known[var.name] = atom
        self.texts[atom] = Small(name) if small else Text(name)
        if most is not None:
            self.ends[atom] = most
        self.multiples[atom] = self.multiple(to_poly(value))
        return small

    @contextmanager
    def loop(self, s: For, name: str) -> Iterator[None]:
        axis = algebra.axis(len(self.axes))
        with super().loop(s, name):
            self.multiples[axis] = s.step
            yield
            del self.multiples[axis]

    def make_small(self) -> None:
        """The variable of the innermost loop is a `uint32`."""
        variable = next(reversed(self.loops))
        self.texts[variable] = Small(self.texts[variable].text)

    def is_small(self, value: algebra.Expr) -> bool:
        """A value fits a `uint32`, and is made of such."""
        return self.fits(value) and all(isinstance(self.texts[a], Small) for a in self.atoms_of(value) if a in self.texts)

    def fits(self, value: algebra.Expr) -> bool:
        most = self.most(value)
        return not self.wide and most is not None and most < 1 << 32 and self.ranges.at_least_zero(to_poly(value))

    def atoms_of(self, value: algebra.Expr) -> Iterator[algebra.Expr]:
        """The variables in a value, those of loops for their axes."""
        for a in algebra.walk([value]):
            if a in self.named:
                yield from (x for m in self.named[a] for x in m)
            elif a.op == "scalar":
                yield a

    def most(self, e: algebra.Expr) -> int | None:
        """A bound of an expression that is not negative, if there is one below 2^63."""
        p = to_poly(e)
        if set(p) == {(e,)}:
            return self._most_of_atom(e)
        total = 0
        for m, n in p.items():
            if n > 0:
                most = self._most_of_product(m)
                if most is None:
                    return None
                total += n * most
        return total if total < 1 << 63 else None

    def _most_of_product(self, m: Sequence[algebra.Expr]) -> int | None:
        if len(m) > 1 and any(_contains(shape, m) for shape in self.shapes()):
            return MOST
        found = [self._most_of_atom(a) for a in m]
        return prod(n for n in found if n is not None) if None not in found else None

    def shapes(self) -> list[list[algebra.Expr]]:
        return [[self.graph(e) for e in b.shape] for b in self.buffers]

    def _most_of_atom(self, a: algebra.Expr) -> int | None:
        if a in self.ends:
            return self.ends[a]
        match a.op:
            case "const":
                return int(a.data)
            case "axis":
                extent = self.most(self.axes[a.data])
                return None if extent is None else max(extent - 1, 0)
            case "scalar" if a.data.extent:
                return min((MOST // prod(n.value or 1 for n in s) for s in self.shapes() if a in s), default=MOST)
            case "floordiv":
                most, by = self.most(a.args[0]), a.args[1].value
                return None if most is None else most // by if by and by > 0 else most
            case "mod":
                most = self.most(a.args[1])
                return None if most is None else most - 1
            case "min":
                found = [n for n in map(self.most, a.args) if n is not None]
                return min(found, default=None)
            case "max":
                both = [self.most(x) for x in a.args]
                return max(n for n in both if n is not None) if None not in both else None
        return None

    # ------------------------------------------------------------ printing

    def term(self, m: Sequence[algebra.Expr], c: int) -> Text:
        if c == -1 and m:
            return self.infix(Text("-1"), "*", super().term(m, 1), PRODUCT)
        return super().term(m, c)

    def print(self, e: algebra.Expr) -> Text:
        """A quotient of small numbers, of which the divisor may be 0, is one of 32 bits."""
        if e.op in ("floordiv", "mod") and not self.is_plain_division(*e.args) and all(map(self.is_small, e.args)):
            return Small(str(self.divide(e.op, *map(self.print, e.args))))
        return super().print(e)

    def position(self, indices: Sequence[Expr], shape: Sequence[Expr]) -> Poly:
        """The row-major position of an element, as a polynomial."""
        at = algebra.const(0)
        for i, n in zip(indices, shape, strict=True):
            at = algebra.op("add", algebra.op("mul", at, self.graph(n)), self.graph(i))
        return to_poly(self.ranges.simplify(at))

    def aligned(self, indices: Sequence[Expr], shape: Sequence[Expr], axis: algebra.Expr, count: int) -> bool:
        """Along an axis the positions are neighbours, the first at a multiple of `count`."""
        p = self.position(indices, shape)
        along = {m: n for m, n in p.items() if axis in m or any(axis in set(algebra.walk([a])) for a in m)}
        return along == {(axis,): 1} and self.multiple({m: n for m, n in p.items() if m != (axis,)}) % count == 0

    def multiple(self, p: Poly) -> int:
        """The greatest number that a polynomial is known to be a multiple of; 0 for 0, which is one of all."""
        return gcd(*(n * prod(map(self.multiple_of_atom, m)) for m, n in p.items()))

    def multiple_of_atom(self, a: algebra.Expr) -> int:
        if a in self.multiples:
            return self.multiples[a]
        match a.op:
            case "mod" | "min" | "max":
                return gcd(*(self.multiple(to_poly(x)) for x in a.args))
            case _:
                return 1


def _contains(shape: list[algebra.Expr], m: Sequence[algebra.Expr]) -> bool:
    """Whether all factors are extents of one buffer."""
    rest = list(shape)
    for a in m:
        if a not in rest:
            return False
        rest.remove(a)
    return True

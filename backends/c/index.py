"""Index expressions of a kernel in C: simplified, and written as people write them.

Inside of loops an index is a polynomial over loop variables and extents. It is brought into normal form by the algebra of the graph
(`tensor/graph/index.py`) with the ranges that the loops around give, and printed with shared factors taken out:

    x[i0 + r0, k] of f32[20, 784]        x[784 * i0 + 784 * r0 + k]
    x[i, j, k] of f32[n, m, p]           x[(i * m + j) * p + k]
    x[(28 * i + j) // 28, j % 28]        x[i], for j < 28

A loop variable with start s is s plus an axis 0 .. stop - s - 1 in that algebra, and gets its name when it is printed. What is no
index arithmetic (a loaded index, a hash of one) is an atom. On the true side of a choice its condition is known (C evaluates the chosen
side alone), so there `min(max(i - 1, 0), n - 1)` is `i - 1` if the condition says that `i - 1` lies in range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd

from tlc.backends.c.words import EQUAL, LESS, PRODUCT, SUM, UNARY, Text, infix, literal
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.graph import ir as algebra
from tlc.tensor.graph.index import Poly, Ranges, poly_product, poly_sum, to_poly
from tlc.tensor.kernel.ir import Apply, Const, Expr, For, Kind, Load, Op, Var, conjuncts

ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "neg", "min", "max")
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


class Indices:
    """The loops around a place of a kernel, and the index arithmetic there.

    `extents` are the parameters that are extents of buffers, and so not negative. `other` prints what is no index arithmetic, `helper`
    calls a function on C texts by the name of its op. Other languages have other `literal`, `infix` and `quotient`.
    """

    literal, infix, quotient = staticmethod(literal), staticmethod(infix), "/"

    def __init__(self, extents: frozenset[Var], other: Callable[[Expr], Text], helper: Callable[[str, Sequence[Text]], Text]) -> None:
        self.extents, self.other, self.helper = extents, other, helper
        self.known: dict[str, algebra.Expr] = {}  # kernel variable -> expression over axes and atoms
        self.texts: dict[algebra.Expr, Text] = {}  # atoms in C, in order of appearance
        self.loops: dict[algebra.Expr, None] = {}  # of the atoms, those that are loop variables
        self.axes: list[algebra.Expr] = []  # extents of the loops around
        self.named: dict[algebra.Expr, Poly] = {}  # axis -> loop variable less start
        self.atoms: dict[Expr, algebra.Expr] = {}
        self.facts: tuple[Poly, ...] = ()
        self.conditions: dict[str, Expr] = {}  # what variables of conditions stand for
        self.holding: tuple[Expr, ...] = ()  # conditions that hold

    @property
    def ranges(self) -> Ranges:
        return Ranges(self.axes, self.facts)

    # ------------------------------------------------------------ what is known here

    def scalar(self, var: Var, name: str) -> None:
        """A parameter or a `let` of the kernel."""
        atom = algebra.scalar(algebra.Scalar(name, Elem.I64, var in self.extents))
        self.known[var.name] = atom
        self.texts[atom] = Text(name)

    def constant(self, var: Var, value: Expr) -> None:
        """A variable that has one value."""
        self.known[var.name] = self.simple(value)

    @contextmanager
    def loop(self, s: For, name: str) -> Iterator[None]:
        """Inside of a loop, whose variable has a name in C."""
        start, stop = self.simple(s.start), self.simple(s.stop)
        extent = self.ranges.simplify(algebra.op("sub", stop, start))
        if s.kind is Kind.VECTOR and extent.value is None:
            extent = algebra.const(s.width)
        axis = algebra.axis(len(self.axes))
        variable = algebra.scalar(algebra.Scalar(name))
        self.texts[variable] = Text(name)
        self.loops[variable] = None
        self.named[axis] = poly_sum(to_poly(variable), poly_product({(): -1}, self.outside(to_poly(start))))
        self.axes.append(extent)
        self.known[s.var.name] = algebra.op("add", start, axis)
        yield
        self.axes.pop()
        del self.named[axis], self.known[s.var.name]

    @contextmanager
    def given(self, cond: Expr) -> Iterator[None]:
        """Where a condition holds."""
        before = self.facts, self.holding
        self.facts = (*self.facts, *self.learned(cond))
        self.holding = (*self.holding, *conjuncts(cond))
        yield
        self.facts, self.holding = before

    def holds(self, cond: Expr) -> bool:
        """A condition is one that holds here."""
        return bool(self.holding) and all(c in self.holding for c in conjuncts(cond))

    def learned(self, cond: Expr) -> Iterator[Poly]:
        """Polynomials that are not negative where a condition holds."""
        match cond:
            case Op("and", _, (a, b)):
                yield from self.learned(a)
                yield from self.learned(b)
            case Var() if cond.name in self.conditions:
                yield from self.learned(self.conditions[cond.name])
            case Op("lt" | "le" | "gt" | "ge" as name, _, (a, b)) if a.elem is Elem.I64:
                low, high = (a, b) if name in ("lt", "le") else (b, a)
                d = self.difference(high, low)
                if self.ranges.bounded(d):
                    yield poly_sum(d, {(): -1} if name in ("lt", "gt") else {})

    # ------------------------------------------------------------ expressions

    def graph(self, e: Expr) -> algebra.Expr:
        """A kernel's `i64` expression in the algebra of the algebra."""
        match e:
            case Const():
                return algebra.const(int(e.value))
            case Var() if e.name in self.known:
                return self.known[e.name]
            case Op() if e.op in ARITHMETIC and e.elem is Elem.I64:
                return algebra.op(e.op, *map(self.graph, e.args), elem=Elem.I64)
            case Var() | Op() | Load() | Apply():
                if e not in self.atoms:
                    self.atoms[e] = algebra.scalar(algebra.Scalar(f"atom{len(self.atoms)}"))
                self.texts[self.atoms[e]] = self.other(e)
                return self.atoms[e]

    def simple(self, e: Expr) -> algebra.Expr:
        """The same, in normal form."""
        return self.ranges.simplify(self.graph(e))

    def difference(self, a: Expr, b: Expr) -> Poly:
        return poly_sum(to_poly(self.simple(a)), poly_product({(): -1}, to_poly(self.simple(b))))

    def text(self, e: Expr) -> Text:
        """An `i64` expression as C."""
        return self.print(self.simple(e))

    def flat(self, indices: Sequence[Expr], shape: Sequence[Expr]) -> Text:
        """The row-major position of an element."""
        at = algebra.const(0)
        for i, n in zip(indices, shape, strict=True):
            at = algebra.op("add", algebra.op("mul", at, self.graph(n)), self.graph(i))
        return self.print(self.ranges.simplify(at))

    def is_safe(self, e: Expr) -> bool:
        """No step of the arithmetic can wrap, so that C's operators on signed numbers do for it."""
        found = self.graph(e)
        ranges = self.ranges
        return all(x.elem is not Elem.I64 or ranges.bounded(to_poly(x)) for x in algebra.walk([found, ranges.simplify(found)]))

    def comparison(self, name: str, a: Expr, b: Expr) -> Text | None:
        """A comparison of index arithmetic, each term on the side where it is positive; None if something could wrap."""
        d = self.difference(a, b)
        if not (self.is_safe(a) and self.is_safe(b) and self.ranges.bounded(d)):
            return None
        decided = self.ranges.compare(name, self.simple(a), self.simple(b)) if name not in ("eq", "ne") else None
        if decided is not None:
            return self.literal(decided, Elem.BOOL)
        d = self.outside(d)
        constant = d.pop((), 0)
        if not d:
            return self.literal((constant == 0) == (name == "eq"), Elem.BOOL)
        left = {m: c for m, c in d.items() if c > 0}
        right = {m: -c for m, c in d.items() if c < 0}
        if not left:  # 0 < x reads better as x > 0
            left, right, constant, name = right, left, -constant, _TURNED[name]
        if constant > 0 and right:
            left[()] = constant
        elif constant:
            right[()] = -constant
        return self.infix(self.polynomial(left), SCALAR_OPS[name].symbol, self.polynomial(right), EQUAL if name in ("eq", "ne") else LESS)

    # ------------------------------------------------------------ printing

    def outside(self, p: Poly) -> Poly:
        """Axes as the loop variables that they stand for."""
        out: Poly = {}
        for m, c in p.items():
            term: Poly = {(): c}
            for a in m:
                term = poly_product(term, self.named.get(a) or {(a,): 1})
            out = poly_sum(out, term)
        return out

    def print(self, e: algebra.Expr) -> Text:
        """An expression over axes."""
        match e.op:
            case "const":
                return self.literal(e.data, Elem.I64)
            case "floordiv" | "mod":
                a, b = (self.print(x) for x in e.args)
                if self.is_plain_division(*e.args):
                    return self.infix(a, self.quotient if e.op == "floordiv" else "%", b, PRODUCT)
                return self.helper(e.op, [a, b])
            case "min" | "max":
                return self.helper(e.op, [self.print(x) for x in e.args])
            case "scalar":
                return self.texts[e]
            case _:
                return self.polynomial(self.outside(to_poly(e)))

    def is_plain_division(self, a: algebra.Expr, b: algebra.Expr) -> bool:
        """C's own division does where nothing is negative."""
        ranges, p = self.ranges, to_poly(a)
        return ((b.value or 0) > 0 or b in ranges.positive) and ranges.bounded(p) and ranges.at_least_zero(p)

    def polynomial(self, p: Poly) -> Text:
        """The sum of terms, positive ones first, then those that move slowest; a factor that several terms share is taken out."""
        shared = self.shared(p)
        if shared is not None:
            inner = {_without(m, shared): c for m, c in p.items() if shared in m}
            rest = {m: c for m, c in p.items() if shared not in m}
            product = self.infix(self.polynomial(inner), "*", self.texts[shared], PRODUCT)
            return self.plus(product, rest)
        stride = self.stride(p)
        if stride > 1:
            inner = {m: c // stride for m, c in p.items() if c % stride == 0}
            rest = {m: c for m, c in p.items() if c % stride}
            return self.plus(self.infix(self.polynomial(inner), "*", self.literal(stride, Elem.I64), PRODUCT), rest)
        terms = sorted(p.items(), key=self.place)
        if not terms:
            return Text("0")
        if terms[0][1] < 0 and terms[-1][1] > 0:
            terms = [terms[-1], *terms[:-1]]  # 3 - i
        (m, c), *others = terms
        return self.plus(self.term(m, c), dict(others))

    def plus(self, first: Text, rest: Poly) -> Text:
        out = first
        terms = sorted(rest.items(), key=self.place)
        for m, c in terms:
            out = self.infix(out, "-" if c < 0 else "+", self.term(m, abs(c)), SUM)
        return out

    def place(self, term: tuple[tuple[algebra.Expr, ...], int]) -> tuple[bool, bool, int, int, list[tuple[int, int]]]:
        """Where a term stands in a sum: constants last, before them what is taken away, large strides first."""
        m, c = term
        return not m, c < 0, -len(m), -abs(c), [self.order(a) for a in m]

    def shared(self, p: Poly) -> algebra.Expr | None:
        """The extent that most terms have as a factor, if more than one has."""
        counts: dict[algebra.Expr, int] = {}
        for m in p:
            for a in dict.fromkeys(m):
                if a in self.texts and a not in self.loops:
                    counts[a] = counts.get(a, 0) + 1
        best = max(counts, key=lambda a: counts[a], default=None)
        return best if best is not None and counts[best] > 1 else None

    def stride(self, p: Poly) -> int:
        """The number that terms with extents and others have in common: 12 of 12 i m + 12 j + k."""
        found = [abs(c) for m, c in p.items() if any(a in self.texts and a not in self.loops for a in m)]
        common = gcd(*found)
        return common if common > 1 and sum(c % common == 0 for m, c in p.items() if m) > 1 else 1

    def term(self, m: Sequence[algebra.Expr], c: int) -> Text:
        factors = [self.texts[a] if a in self.texts else self.print(a) for a in sorted(m, key=self.order)]
        if not factors:
            return self.literal(c, Elem.I64)
        if c == -1:
            out = Text(f"-{factors[0].at(UNARY)}", UNARY)
        else:
            out = factors[0] if c == 1 else self.infix(self.literal(c, Elem.I64), "*", factors[0], PRODUCT)
        for f in factors[1:]:
            out = self.infix(out, "*", f, PRODUCT)
        return out

    def order(self, a: algebra.Expr) -> tuple[int, int]:
        """Loop variables first, outer ones before inner ones."""
        return (0 if a in self.loops else 1, a.number)


def _without(m: tuple[algebra.Expr, ...], factor: algebra.Expr) -> tuple[algebra.Expr, ...]:
    rest = list(m)
    rest.remove(factor)
    return tuple(rest)

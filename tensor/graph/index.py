"""Index algebra: what makes movement free.

An index expression is put into normal form, a polynomial with integer coefficients over atoms (axes, scalars, loads, quotients and
remainders), and divisions and remainders are resolved by the ranges of the axes. Worked example: a tensor of shape
[b, 28, 28] read as [b, 784] at (i, j) is read in full at

    ((784 i + j) // 784, (784 i + j) // 28 % 28, (784 i + j) % 28)  =  (i, j // 28, j % 28)       for 0 <= j < 784

because a term that the divisor divides leaves the division, and what remains lies in 0 .. 783.

Sums, differences and products are exact modulo 2^64, as `i64` arithmetic is. Divisions are split, and comparisons decided, only if
nothing wraps: every atom is an axis or an extent (or their quotient or remainder), so bounded, and the coefficients are small enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import gcd

from tlc.frontend.types import Elem
from tlc.tensor.graph.ir import Expr, Node, axis, const, load, op, rebuild, transform, walk, zero

Monomial = tuple[Expr, ...]  # atoms sorted by number, repeated by power; () is the constant term
Poly = dict[Monomial, int]  # without zero coefficients

_WRAP = 1 << 64
_MOST = (1 << 63) - 1
_LARGEST = 24  # terms of a product; a larger one stays as it is
_BITS = 62  # of a value that does not wrap, and of a difference of two
_SIZE_BITS = 34  # of the number of elements of a tensor: nobody has a larger one


class Ranges:
    """What is known where an expression is evaluated: axis k lies in 0 .. extents[k] - 1, and neither extents nor `facts` are negative."""

    def __init__(self, extents: Sequence[Expr], facts: Sequence[Poly] = ()) -> None:
        self.extents = tuple(extents)
        self.facts = tuple(facts)

    @cached_property
    def positive(self) -> frozenset[Expr]:
        """Atoms that are at least 1, because an axis runs over them."""
        return frozenset(self.extents)

    @cached_property
    def ends(self) -> dict[Expr, int]:
        """The greatest values of atoms that facts give: of those that say no more than that."""
        out: dict[Expr, int] = {}
        for f in self.facts:
            atoms = [m for m in f if m]
            if len(atoms) == 1 and len(atoms[0]) == 1 and f[atoms[0]] == -1:
                (a,), most = atoms[0], f.get((), 0)
                extent = self.extents[a.data].value if a.op == "axis" else None
                out[a] = min(most, out.get(a, most), most if extent is None else extent - 1)
        return out

    def simplify(self, e: Expr) -> Expr:
        """An equal expression in normal form, for `i64` expressions; others are simplified inside."""
        return self.simplify_all([e])[0]

    def simplify_all(self, roots: Sequence[Expr]) -> tuple[Expr, ...]:
        return transform(roots, self._step)

    def _step(self, e: Expr, args: tuple[Expr, ...]) -> Expr:
        if not args:
            return const(0) if e.op == "axis" and self.extents[e.data].value == 1 else e
        match e.op:
            case "add" | "sub" | "mul" if e.elem is Elem.I64:
                return from_poly(self.recombine(to_poly(op(e.op, *args))))
            case "neg" if e.elem is Elem.I64:
                return from_poly(to_poly(op("mul", args[0], const(-1))))
            case "floordiv" if e.elem is Elem.I64:
                return self.divide(*args)[0]
            case "mod" if e.elem is Elem.I64:
                return self.divide(*args)[1]
            case "lt" | "le" | "gt" | "ge" if args[0].elem is Elem.I64:
                decided = self.compare(e.op, *args)
                return self.smaller(e.op, *args) if decided is None else const(decided, Elem.BOOL)
            case "min" | "max" if e.elem is Elem.I64:
                a, b = args
                if self.compare("le", a, b):
                    return a if e.op == "min" else b
                if self.compare("le", b, a):
                    return b if e.op == "min" else a
                return rebuild(e, args)
            case _:
                return rebuild(e, args)

    # ------------------------------------------------------------ division

    def divide(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Quotient and remainder of a floor division, as simple as ranges allow."""
        plain = op("floordiv", a, b), op("mod", a, b)
        p, d = to_poly(a), to_poly(b)
        if len(d) != 1 or not self.bounded(p) or not self.bounded(d):
            return plain
        ((monomial, factor),) = d.items()
        if factor <= 0 or not all(x in self.positive for x in monomial):
            return plain
        for q, r in self._splits(p, monomial, factor):
            if self.at_least_zero(r) and self.at_least_zero(_sub(_sub(d, r), {(): 1})):
                return from_poly(q), from_poly(r)
        for g in self._common(p, factor) if not monomial else ():
            for q, r in self._splits(p, (), g):  # (g a + r) // (g m) = a // m;  (g a + r) % (g m) = g (a % m) + r
                if self.at_least_zero(r) and self.at_least_zero(_sub(_poly(g - 1), r)):
                    whole, rest = self.divide(from_poly(q), const(factor // g))
                    return whole, from_poly(_add(_mul(to_poly(rest), _poly(g)), r))
        q, r = next(self._splits(p, monomial, factor))
        left_over = from_poly(r)
        quotient, remainder = op("floordiv", left_over, b), op("mod", left_over, b)
        if not monomial:
            inner = self._inner_quotient(r)
            if inner is not None:  # (a + x // m) // n = (a m + x) // (m n)
                more, x, by = inner
                quotient = self.divide(from_poly(_add(_mul(more, _poly(by)), to_poly(x))), const(by * factor))[0]
            elif left_over.op == "mod" and (left_over.args[1].value or 1) % factor == 0:  # x % (m n) % n = x % n
                remainder = self.divide(left_over.args[0], b)[1]
        return from_poly(_add(q, to_poly(quotient))), remainder

    def _inner_quotient(self, p: Poly) -> tuple[Poly, Expr, int] | None:
        """p = a + x // m with a constant m, if that is its form."""
        atoms = [m[0] for m, c in p.items() if c == 1 and len(m) == 1 and m[0].op == "floordiv" and (m[0].args[1].value or 0) > 0]
        if len(atoms) != 1:
            return None
        x, m = atoms[0].args
        assert m.value is not None
        a = _sub(p, _atom(atoms[0]))
        return (a, x, m.value) if self.bounded(_add(_mul(a, _poly(m.value)), to_poly(x))) else None

    def _common(self, p: Poly, factor: int) -> list[int]:
        """What terms and a divisor have in common, large numbers first."""
        return sorted({gcd(c, factor) for m, c in p.items() if m} - {1, factor}, reverse=True)

    def _splits(self, p: Poly, monomial: Monomial, factor: int) -> Iterator[tuple[Poly, Poly]]:
        """Ways to write p as q b + r, where b is `factor` times a monomial: what b divides goes to q, and of other coefficients what is
        left stays in r. First what is left of a negative coefficient is negative (5 - j = 2 * 2 + (1 - j)), with a constant that makes r as
        small as it can be and not negative; then it is positive (5 - j = 2 (2 - j) + (1 + j)).
        """
        for toward_zero in (True, False):
            q: Poly = {}
            r: Poly = {}
            for m, c in p.items():
                rest = _without(m, monomial)
                if rest is None:
                    r[m] = c
                    continue
                whole = -(-c // factor) if toward_zero and c < 0 and m else c // factor
                if whole:
                    q[rest] = whole
                if c - whole * factor:
                    r[m] = c - whole * factor
            if toward_zero and not monomial:
                least = self.most({m: -c for m, c in r.items() if m})
                if least is not None and set(least) <= {()}:
                    low = least.get((), 0)  # r without its constant is at least -low
                    constant = low + (r.get((), 0) - low) % factor
                    q = _add(q, _poly((r.pop((), 0) - constant) // factor))
                    r = _add(r, _poly(constant))
            yield q, r

    def recombine(self, p: Poly) -> Poly:
        """k c (x // c) + k (x % c) = k x."""
        for m, k in p.items():
            for atom in m:
                if atom.op != "mod":
                    continue
                x, c = atom.args
                rest = _without(m, (atom,)) or ()
                other = _mul(to_poly(self.divide(x, c)[0]), {rest: 1})
                other = {n: v * k for n, v in _mul(other, to_poly(c)).items()}
                if other and all(p.get(n) == v for n, v in other.items()):
                    out = dict(p)
                    for n in (m, *other):
                        del out[n]
                    return self.recombine(_add(out, {n: v * k for n, v in _mul(to_poly(x), {rest: 1}).items()}))
        return p

    # ------------------------------------------------------------ comparisons

    def smaller(self, name: str, a: Expr, b: Expr) -> Expr:
        """A comparison without common factors and quotients: 2 i + 1 < 6 is i < 3, and i // 4 < 3 is i < 12."""
        as_it_is = op(name, a, b)
        p, q = to_poly(a), to_poly(b)
        if not (self.bounded(p) and self.bounded(q)):
            return as_it_is
        if name in ("gt", "ge"):
            p, q = q, p
        d = _sub(_sub(p, q), {(): 1} if name in ("le", "ge") else {})  # d < 0
        k = d.pop((), 0)
        g = gcd(*d.values())
        limit = -(k // g)  # d / g < limit
        (m, c), *others = d.items()
        if len(m) == 1 and m[0].op == "floordiv" and not others and (m[0].args[1].value or 0) > 0:
            x, by = m[0].args[0], int(m[0].args[1].value or 0)
            if c > 0:  # x // by < limit
                return self._again("lt", x, limit * by)
            return self._again("ge", x, (1 - limit) * by)  # -(x // by) < limit
        if g == 1:
            return as_it_is
        left, right = ({n: v * sign // g for n, v in d.items() if v * sign > 0} for sign in (1, -1))
        if not left:
            return self._again("gt", from_poly(right), -limit)
        return self._again("lt", from_poly(left), from_poly(_add(right, _poly(limit))))

    def _again(self, name: str, a: Expr, b: Expr | int) -> Expr:
        other = const(b) if isinstance(b, int) else b
        decided = self.compare(name, a, other)
        return self.smaller(name, a, other) if decided is None else const(decided, Elem.BOOL)

    # ------------------------------------------------------------ ranges

    def bounded(self, p: Poly) -> bool:
        """Whether every atom is an axis, an extent, or a quotient or remainder of such, and no value wraps."""
        room = _BITS - len(p).bit_length()
        return all(self._bounded_atom(a) for m in p for a in m) and all(self._bits(m, c) <= room for m, c in p.items())

    def _bits(self, monomial: Monomial, coefficient: int) -> int:
        """Bits that a term takes at most. The product of different atoms without a known bound is at most the size of a tensor."""
        known = [self._most_of(a) for a in monomial]
        symbolic = [a for a, n in zip(monomial, known, strict=True) if n is None]
        size = _SIZE_BITS if symbolic else 0
        if len(set(symbolic)) < len(symbolic):
            return _BITS + 1
        return size + abs(coefficient).bit_length() + sum(n.bit_length() for n in known if n is not None)

    def _most_of(self, a: Expr) -> int | None:
        """A bound of the magnitude of an atom, where a known number is one."""
        match a.op:
            case "axis":
                extent: int | None = self.extents[a.data].value
                return extent
            case "floordiv":
                return self._most_of_poly(a.args[0])
            case "mod":
                return abs(a.args[1].value) if a.args[1].value is not None else None
            case "min" | "max":
                known = [self._most_of_poly(x) for x in a.args]
                return None if None in known else max(n for n in known if n is not None)
        return None

    def _most_of_poly(self, e: Expr) -> int | None:
        """A bound of the magnitude of what a quotient is taken of, which is one of the quotient."""
        total = 0
        for m, c in to_poly(e).items():
            term = abs(c)
            for a in m:
                n = self._most_of(a)
                if n is None:
                    return None
                term *= n
            total += term
        return total

    def _bounded_atom(self, a: Expr) -> bool:
        if a.op in ("floordiv", "mod", "min", "max"):
            return all(self.bounded(to_poly(x)) for x in a.args)
        return a.op == "axis" or a in self.positive or (a.op == "scalar" and a.data.extent)

    def never_negative(self, a: Expr) -> bool:
        """Whether an atom is at least 0."""
        if a.op in ("floordiv", "mod"):
            x, c = a.args
            if not (c in self.positive or (c.value or 0) > 0):
                return False
            return a.op == "mod" or self.at_least_zero(to_poly(x))
        if a.op in ("min", "max"):
            return (all if a.op == "min" else any)(self.at_least_zero(to_poly(x)) for x in a.args)
        return a.op == "axis" or a in self.positive or (a.op == "scalar" and a.data.extent)

    def last(self, a: Expr) -> Poly | None:
        """The greatest value of an atom, if it has one in terms of extents."""
        if a in self.ends:
            return _poly(self.ends[a])
        if a.op == "axis":
            return _sub(to_poly(self.extents[a.data]), {(): 1})
        if a.op == "mod" and self.never_negative(a):
            return _sub(to_poly(a.args[1]), {(): 1})
        if a.op == "floordiv" and self.never_negative(a):
            most, by = self.most(to_poly(a.args[0])), a.args[1].value
            if most is not None and set(most) <= {()} and by:
                return _poly(most.get((), 0) // by)
        if a.op in ("min", "max"):
            ends = [self.most(to_poly(x)) for x in a.args]
            known = [e.get((), 0) for e in ends if e is not None and set(e) <= {()}]
            if known and (a.op == "min" or len(known) == len(ends)):
                return _poly(min(known) if a.op == "min" else max(known))
        return None

    def most(self, p: Poly) -> Poly | None:
        """An upper bound without axes, quotients and remainders."""
        out: Poly = {}
        for m, c in p.items():
            if not all(self.never_negative(a) for a in m):
                return None
            term: Poly = {(): c}
            for a in m:
                movable = a.op in ("axis", "floordiv", "mod", "min", "max")
                if movable and c < 0:
                    term = {}  # the least value of the atom is 0
                    break
                last = self.last(a) if movable else _atom(a)
                if last is None:
                    return None
                if any(x.op == "axis" for n in last for x in n):  # an extent that reads another axis
                    nested = self.most(last)
                    if nested is None:
                        return None
                    last = nested
                term = _mul(term, last)
            out = _add(out, term)
        return out

    def at_least_zero(self, p: Poly) -> bool:
        """Whether a polynomial is provably never negative: for the ranges of axes, or because it is no less than a fact."""
        return self._in_range(p) or any(self._in_range(_sub(p, f)) for f in self.facts)

    def _in_range(self, p: Poly) -> bool:
        bound = self.most({m: -c for m, c in p.items()})
        if bound is None:
            return False
        # -bound is a lower bound over extents; put e = 1 + e' for those that are positive
        low: Poly = {}
        for m, c in bound.items():
            term: Poly = {(): -c}
            for a in m:
                term = _mul(term, _add(_atom(a), _poly(1)) if a in self.positive else _atom(a))
            low = _add(low, term)
        return all(c >= 0 for c in low.values())

    def within(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is provably in range."""
        return bool(self.compare("ge", index, const(0)) and self.compare("lt", index, extent))

    def compare(self, name: str, a: Expr, b: Expr) -> bool | None:
        """The value of a comparison, if it is the same for all indices."""
        p, q = to_poly(a), to_poly(b)
        if not (self.bounded(p) and self.bounded(q)):
            return None
        if name in ("gt", "ge"):
            p, q, name = q, p, {"gt": "lt", "ge": "le"}[name]
        strict: Poly = {(): 1} if name == "lt" else {}
        if self.at_least_zero(_sub(_sub(q, p), strict)):
            return True
        opposite: Poly = {} if name == "lt" else {(): 1}
        if self.at_least_zero(_sub(_sub(p, q), opposite)):
            return False
        return None


# ---------------------------------------------------------------- polynomials


def to_poly(e: Expr) -> Poly:
    """The polynomial of an `i64` expression; what is no sum or product is an atom."""
    if e.value is not None:
        return _poly(e.value)
    if e.op == "add" and len(e.args) == 2:
        return _add(to_poly(e.args[0]), to_poly(e.args[1]))
    if e.op == "sub":
        return _sub(to_poly(e.args[0]), to_poly(e.args[1]))
    if e.op == "mul":
        a, b = to_poly(e.args[0]), to_poly(e.args[1])
        if len(a) * len(b) <= _LARGEST:
            return _mul(a, b)
    return _atom(e)


def from_poly(p: Poly) -> Expr:
    """The canonical expression: what is added first, terms of higher degree and earlier atoms first, the constant last."""
    out: Expr | None = None
    constant = p.get((), 0)
    if constant > 0 and len(p) > 1 and all(-_MOST <= c < 0 for m, c in p.items() if m):
        out, constant = const(constant), 0  # 3 - i
    for m, c in sorted(p.items(), key=lambda t: (t[1] < 0, -len(t[0]), [_order(a) for a in t[0]])):
        if not m:
            continue
        term = m[0]
        for a in m[1:]:
            term = op("mul", term, a)
        if out is None:
            out = op("mul", term, const(c))
        elif -_MOST <= c < 0:
            out = op("sub", out, op("mul", term, const(-c)))
        else:
            out = op("add", out, op("mul", term, const(c)))
    if out is None:
        return const(constant)
    return op("sub", out, const(-constant)) if -_MOST <= constant < 0 else op("add", out, const(constant))


def _order(a: Expr) -> tuple[int, int]:
    return (0, a.data) if a.op == "axis" else (1, a.number)


def _poly(value: int) -> Poly:
    return {(): value} if value else {}


def _atom(a: Expr) -> Poly:
    return {(a,): 1}


def _signed(c: int) -> int:
    return (c + _WRAP // 2) % _WRAP - _WRAP // 2


def _add(a: Poly, b: Poly) -> Poly:
    out = dict(a)
    for m, c in b.items():
        out[m] = _signed(out.get(m, 0) + c)
    return {m: c for m, c in out.items() if c}


def _sub(a: Poly, b: Poly) -> Poly:
    return _add(a, {m: -c for m, c in b.items()})


def _mul(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n, key=_order))
            out[key] = _signed(out.get(key, 0) + c * d)
    return {m: c for m, c in out.items() if c}


poly_sum, poly_product = _add, _mul  # for who writes polynomials down


def _without(m: Monomial, factors: Monomial) -> Monomial | None:
    """The monomial divided by others, if they divide it."""
    rest = list(m)
    for f in factors:
        if f not in rest:
            return None
        rest.remove(f)
    return tuple(rest)


# ---------------------------------------------------------------- shapes


def flatten(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The row-major position of an element."""
    at = const(0)
    for i, n in zip(indices, shape, strict=True):
        at = op("add", op("mul", at, n), i)
    return at


def unflatten(position: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The indices of the element at a row-major position."""
    out: list[Expr] = []
    stride = const(1)
    for k in reversed(range(len(shape))):
        part = op("floordiv", position, stride)
        out.append(op("mod", part, shape[k]) if k else part)
        stride = op("mul", stride, shape[k])
    return tuple(reversed(out))


def by_ranges(node: Node, change: Callable[[Sequence[Expr], Ranges], tuple[Expr, ...]]) -> Node:
    """The node with its expressions changed by what is known where each is evaluated. What follows a reduction also runs where that ran
    over nothing, and an extent is there before its axis.
    """
    r, s = node.reduction, node.scatter
    if r:
        extents = [change([n], Ranges(node.domain[: node.rank + k]))[0] for k, n in enumerate(r.extents)]
        quick = (r.quick[0], change(r.quick[1:], Ranges(()))[0]) if r.quick else None
        r = replace(r, extents=tuple(extents), terms=change(r.terms, Ranges(node.domain)), quick=quick)
    around = Ranges(node.extents)
    if s:
        s = replace(s, targets=change(s.targets, around))
    return replace(node, extents=change(node.extents, Ranges(())), outputs=change(node.outputs, around), reduction=r, scatter=s)


def straightened(node: Node) -> Node:
    """The node with every load in the shape in which its indices divide least: in the view's, in the tensor's own, or as one row of cells.
    What is in range for every element is read without a guard, and chosen afterwards (but for factors of a product, which stay loads).

        x seen as [12, 2] at (i // 2, i % 2)        x seen as [24] at (i)
        x[i if c]                                   select(c, x[i], 0)
    """
    if not any(e.guard is not None or divisions(e.indices) for e in node.loads):
        return node
    r = node.reduction
    factors = set(walk(r.terms)) if r and len(r.terms) > 1 else set()

    def change(ranges: Ranges, e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op == "load" and e.guard is not None and e not in factors:
            indices = args[: len(e.data.shape)]
            if all(ranges.within(i, n) for i, n in zip(indices, e.data.shape, strict=True)):
                return op("select", args[-1], change_shape(ranges, e, indices), zero(e.elem))
        return change_shape(ranges, e, args)

    def change_shape(ranges: Ranges, e: Expr, args: tuple[Expr, ...]) -> Expr:
        rank = len(e.data.shape) if e.op == "load" else 0
        if e.op != "load" or not divisions(args[:rank]):
            return rebuild(e, args) if args else e
        args, guard = args[:rank], args[rank:]
        flat = ranges.simplify(flatten(args, e.data.shape))
        size = const(1)
        for n in e.data.shape:
            size = op("mul", size, n)
        own = ranges.simplify_all(unflatten(flat, e.data.tensor.shape))
        ways = [(args, e.data.shape), (own, e.data.tensor.shape), ((flat,), (ranges.simplify(size),))]
        best, shape = min(ways, key=lambda way: divisions(way[0]))
        return load(e.data.tensor, best, shape, *guard)

    return by_ranges(node, lambda roots, ranges: transform(roots, partial(change, ranges)))


def aligned(node: Node) -> Node:
    """The node with index 0 written as the axis of extent 1 that stands at its place, so that loads of the own element look like it.

        for i < 1, j < n: x[0, j]       ->      for i < 1, j < n: x[i, j]
    """
    units = [k for k, n in enumerate(node.extents) if n.value == 1]
    if not units:
        return node

    def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op != "load":
            return rebuild(e, args) if args else e
        indices = list(args)
        for k in units:
            if k < len(e.data.shape) and e.data.shape[k].value == 1 and indices[k].value == 0:
                indices[k] = axis(k)
        return rebuild(e, indices)

    roots = (*node.roots, *node.domain)
    changed = dict(zip(roots, transform(roots, change), strict=True))
    return node.rebuilt(lambda e: changed[e])


def divisions(indices: Sequence[Expr]) -> int:
    """How many quotients and remainders there are in the arithmetic of indices (not in what is loaded for one)."""
    found: set[Expr] = set()
    work = list(indices)
    while work:
        e = work.pop()
        if e in found or e.op not in ("add", "sub", "mul", "floordiv", "mod", "min", "max"):
            continue
        found.add(e)
        work += e.args
    return sum(e.op in ("floordiv", "mod") for e in found)


def slope(e: Expr, k: int) -> Expr | None:
    """The coefficient of axis k in an affine expression of that axis, 0 if it does not occur; None if it is not affine in it."""
    target = axis(k)
    if e is target:
        return const(1)
    if target not in e.below:
        return const(0)
    out: Poly = {}
    for m, c in to_poly(e).items():
        count = m.count(target)
        if count > 1 or any(target in a.below for a in m):
            return None
        if count:
            out[_without(m, (target,)) or ()] = c
    return from_poly(out)


def equal(a: Expr, b: Expr) -> bool:
    """Whether two index expressions are the same polynomial."""
    return a is b or not _sub(to_poly(a), to_poly(b))

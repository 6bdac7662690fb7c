"""Amounts: how often something happens in a loop nest, as a polynomial over the scalar parameters of a kernel.

An `Amount` is a sum of monomials with integer coefficients. Its atoms are kernel expressions that are no sums or products
(`n`, `min(n - j, 16)`), the lesser of two amounts, or a sum over a loop for which no closed form was found. `total` sums an amount over the
iterations of a loop:

    nothing depends on j                          trips * amount
    j itself                                      an arithmetic series                        a triangle
    min(stop - j, step), j going by step          stop - start                                the pieces that a schedule cuts
    anything else                                 stays a sum, which is evaluated as a loop

Every amount can be written as statements of a kernel (`Writer`), so that a backend makes code of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tlc.frontend.ops import evaluate
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import Buffer, Const, Declare, Expr, For, Let, Load, Op, Space, Stmt, Store, Var, const, op, subexpressions
from tlc.tensor.kernel.text import print_expr


@dataclass(frozen=True)
class Least:
    """The lesser of two amounts."""

    a: Amount
    b: Amount


@dataclass(frozen=True)
class Sum:
    """`body`, summed over `var` from `start` to below `stop`."""

    var: str
    start: Amount
    stop: Amount
    step: int
    body: Amount


Atom = Expr | Least | Sum
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Amount:
    """Immutable; monomials and their atoms are in the order of their texts, coefficients are not 0."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Amount) -> Amount:
        return _of((*self.terms, *other.terms))

    def __sub__(self, other: Amount) -> Amount:
        return self + other * number(-1)

    def __mul__(self, other: Amount) -> Amount:
        return _of(((*m, *n), c * d) for m, c in self.terms for n, d in other.terms)

    def __str__(self) -> str:
        """For people: `2 * m * n * k + 3`."""
        return " + ".join(" * ".join([*([str(c)] if c != 1 or not m else []), *map(_shown, m)]) for m, c in self.terms) or "0"

    @property
    def value(self) -> int | None:
        """The number that it is, if it is one."""
        if not self.terms:
            return 0
        ((m, c), *rest) = self.terms
        return c if not m and not rest else None

    def depends(self, name: str) -> bool:
        """Whether a variable occurs."""
        return any(mentions(a, name) for m, _ in self.terms for a in m)


def _of(terms: Iterable[tuple[Iterable[Atom], int]]) -> Amount:
    found: dict[Monomial, int] = {}
    for m, c in terms:
        key = tuple(sorted(m, key=_shown))
        found[key] = found.get(key, 0) + c
    return Amount(tuple(sorted(((m, c) for m, c in found.items() if c), key=lambda t: (-len(t[0]), " ".join(map(_shown, t[0]))))))


def number(n: int) -> Amount:
    return Amount((((), n),)) if n else Amount(())


def atom(a: Atom) -> Amount:
    return Amount((((a,), 1),))


NOTHING, ONE = number(0), number(1)


def _shown(a: Atom) -> str:
    match a:
        case Least():
            return f"min({a.a}, {a.b})"
        case Sum():
            return f"sum[{a.var} in {a.start}..{a.stop}{f' by {a.step}' if a.step != 1 else ''}]({a.body})"
        case Var():
            return a.name
        case _:
            text = print_expr(a)
            return text if text.endswith(")") and text.split("(")[0].isidentifier() else f"({text})"


def mentions(a: Atom, name: str) -> bool:
    match a:
        case Least():
            return a.a.depends(name) or a.b.depends(name)
        case Sum():
            return a.start.depends(name) or a.stop.depends(name) or a.body.depends(name)
        case _:
            return any(isinstance(x, Var) and x.name == name for x in subexpressions(a))


def least(a: Amount, b: Amount) -> Amount:
    if a == b:
        return a
    if a.value is not None and b.value is not None:
        return number(min(a.value, b.value))
    return atom(Least(a, b))


# ---------------------------------------------------------------- from expressions and back


def of_expr(e: Expr, known: Mapping[str, Amount]) -> Amount:
    """An index expression; what `known` says of a variable takes its place."""
    match e:
        case Const():
            return number(int(e.value)) if e.elem is Elem.I64 else atom(e)
        case Var():
            return known.get(e.name, atom(e))
        case Op("add" | "sub" | "mul", Elem.I64, (x, y)):
            a, b = of_expr(x, known), of_expr(y, known)
            return a + b if e.op == "add" else a - b if e.op == "sub" else a * b
        case Op():
            args = tuple(_plain(of_expr(a, known)) if a.elem is Elem.I64 else _replaced(a, known) for a in e.args)
            if all(isinstance(a, Const) for a in args) and e.elem is Elem.I64:
                return number(int(evaluate(e.op, e.elem, ((a.value, a.elem) for a in args if isinstance(a, Const)))))
            return atom(Op(e.op, e.elem, args))
        case _:
            return atom(e)


def _replaced(e: Expr, known: Mapping[str, Amount]) -> Expr:
    """An expression of another type, with what is known in place of the variables in it."""
    if isinstance(e, Op):
        return Op(e.op, e.elem, tuple(_plain(of_expr(a, known)) if a.elem is Elem.I64 else _replaced(a, known) for a in e.args))
    return e


def _plain(a: Amount) -> Expr:
    """An amount without sums over loops as one expression."""
    return to_expr(a, lambda x: x)


def to_expr(a: Amount, convert: Callable[[Expr], Expr]) -> Expr:
    """A sum of products; `convert` is applied to the atoms, which are expressions."""
    total: Expr | None = None
    for m, c in a.terms:
        product: Expr | None = None if c in (1, -1) and m else const(abs(c))
        for x in m:
            assert not isinstance(x, Least | Sum), x
            y = convert(x)
            product = y if product is None else op("mul", product, y)
        assert product is not None
        if total is None:
            total = product if c > 0 else op("sub", const(0), product)
        else:
            total = op("add" if c > 0 else "sub", total, product)
    return const(0) if total is None else total


# ---------------------------------------------------------------- loops


@dataclass(frozen=True)
class Loop:
    """A loop with its ends as amounts."""

    var: str
    start: Amount
    stop: Amount
    step: int

    def left(self) -> Amount:
        """What is left of it, at least 1 in its body."""
        return self.stop - atom(Var(self.var))

    def length(self, around: Iterable[Loop]) -> Amount:
        """stop - start, 0 if it is negative. min(a, b) - start is the lesser of both differences."""
        span = self.stop - self.start
        match self.stop.terms:
            case (((Op("min", Elem.I64, (x, y)),), 1),):
                a, b = (of_expr(e, {}) - self.start for e in (x, y))
                span = number(min(a.value, b.value)) if a.value is not None and b.value is not None else _lesser(a, b)
            case _:
                pass
        if span.value is not None:
            return number(max(span.value, 0))
        return span if never_negative(span, [loop.left() for loop in around]) else atom(op("max", _plain(span), const(0)))

    def trips(self, around: Iterable[Loop]) -> Amount:
        length = self.length(around)
        if all(c % self.step == 0 for _, c in length.terms):
            return Amount(tuple((m, c // self.step) for m, c in length.terms))
        if length.value is not None:
            return number(-(-length.value // self.step))
        return atom(op("floordiv", _plain(length + number(self.step - 1)), const(self.step)))


def _lesser(a: Amount, b: Amount) -> Amount:
    """As an expression, constants last."""
    first, second = (b, a) if a.value is not None else (a, b)
    return atom(op("min", _plain(first), _plain(second)))


def never_negative(a: Amount, positive: list[Amount]) -> bool:
    """As far as signs show it; variables are extents or indices, which never are."""
    return a in positive or all(c > 0 and all(_atom_never_negative(x, positive) for x in m) for m, c in a.terms)


def _atom_never_negative(a: Atom, positive: list[Amount]) -> bool:
    match a:
        case Var():
            return True
        case Op("max", Elem.I64, (x, y)):
            return any(never_negative(of_expr(e, {}), positive) for e in (x, y))
        case Op("min", Elem.I64, (x, y)):
            return all(never_negative(of_expr(e, {}), positive) for e in (x, y))
        case Op("mod", Elem.I64, (_, Const(value=n))):
            return n > 0
        case Op("floordiv", Elem.I64, (x, Const(value=n))):
            return n > 0 and never_negative(of_expr(x, {}), positive)
        case _:
            return False


def total(a: Amount, loop: Loop, around: Iterable[Loop] = ()) -> Amount:
    """The sum of an amount over the iterations of a loop, which stands in the loops `around`."""
    around = list(around)
    trips, variable = loop.trips(around), Var(loop.var)
    out = NOTHING
    rest: dict[Monomial, Amount] = {}
    for m, c in a.terms:
        own = tuple(x for x in m if mentions(x, loop.var))
        free = Amount(((tuple(x for x in m if x not in own), c),))
        if not own:
            out += free * trips
        elif own == (variable,):
            pairs = trips * (trips - ONE)
            halves = pairs.value // 2 if pairs.value is not None else None
            out += free * (loop.start * trips + number(loop.step) * (_halved(pairs) if halves is None else number(halves)))
        elif len(own) == 1 and _is_piece(own[0], loop):
            out += free * loop.length(around)
        else:
            rest[free.terms[0][0]] = rest.get(free.terms[0][0], NOTHING) + Amount(((own, c),))
    for m, body in rest.items():
        out += Amount(((m, 1),)) * atom(Sum(loop.var, loop.start, loop.stop, loop.step, body))
    return out


def _halved(pairs: Amount) -> Amount:
    return atom(op("floordiv", _plain(pairs), const(2)))


def _is_piece(a: Atom, loop: Loop) -> bool:
    """min(stop - j, step): how long the piece is that begins at j."""
    match a:
        case Op("min", Elem.I64, (x, y)):
            pair = [of_expr(e, {}) for e in (x, y)]
            return loop.left() in pair and number(loop.step) in pair
        case _:
            return False


# ---------------------------------------------------------------- as statements


class Writer:
    """Writes amounts as statements, `body`; none of their names is one of `taken`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.body: list[Stmt] = []
        self.taken = frozenset(taken)
        self.count = 0

    def fresh(self, base: str) -> str:
        self.count += 1
        name = f"{base}{self.count}"
        return name if name not in self.taken else self.fresh(base)

    def write(self, a: Amount) -> Expr:
        return self._amount(a, {}, self.body)

    def _amount(self, a: Amount, names: Mapping[str, Var], body: list[Stmt]) -> Expr:
        simple: dict[Atom, Expr] = {}
        for m, _ in a.terms:
            for x in m:
                if x not in simple:
                    simple[x] = self._atom(x, names, body)
        parts = tuple((tuple(simple[x] for x in m), c) for m, c in a.terms)
        return to_expr(Amount(parts), lambda e: e)

    def _atom(self, a: Atom, names: Mapping[str, Var], body: list[Stmt]) -> Expr:
        match a:
            case Least():
                return self._bound(op("min", self._amount(a.a, names, body), self._amount(a.b, names, body)), body)
            case Sum():
                acc = Buffer(self.fresh("sum"), Elem.I64, (const(1),), Space.LOCAL)
                cell = Load(acc, (const(0),))
                start, stop = (self._amount(e, names, body) for e in (a.start, a.stop))
                var = Var(self.fresh("i"))
                inner: list[Stmt] = []
                value = self._amount(a.body, {**names, a.var: var}, inner)
                inner.append(Store(acc, (const(0),), op("add", cell, value)))
                body += [Declare(acc), Store(acc, (const(0),), const(0)), For(var, start, stop, tuple(inner), step=a.step)]
                return self._bound(cell, body)
            case _:
                return renamed(a, names)

    def _bound(self, value: Expr, body: list[Stmt]) -> Var:
        var = Var(self.fresh("t"))
        body.append(Let(var, value))
        return var


def renamed(e: Expr, names: Mapping[str, Var]) -> Expr:
    """An expression without loads, with other variables."""
    match e:
        case Var():
            return names.get(e.name, e)
        case Op():
            return Op(e.op, e.elem, tuple(renamed(a, names) for a in e.args))
        case _:
            return e

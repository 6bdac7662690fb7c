"""Dimension terms: polynomials with integer coefficients over atoms, the algebra by which shapes are proved equal.

An atom is a variable (any immutable `i64`: a dimension variable of a signature, a `let`, a parameter, a loop index, or a
fresh unknown) or a floor division that could not be carried out. Polynomials are kept in normal form, so two terms are
equal exactly when their normal forms are. Immutable and hashable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import count

from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span

_uids = count(1)


@dataclass(frozen=True)
class DimVar:
    """An atom: one binding of an `i64`. Identity is `uid`; the name is for people."""

    name: str = field(compare=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    uid: int = field(default_factory=lambda: next(_uids))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DimQuotient:
    """An atom: `num // den` that does not divide evenly as polynomials."""

    num: Dim
    den: Dim

    def __str__(self) -> str:
        return f"{_wrap(self.num)} // {_wrap(self.den)}"


Atom = DimVar | DimQuotient
Monomial = tuple[tuple[Atom, int], ...]  # (atom, power) sorted by _key, powers > 0


def _key(atom: Atom) -> tuple[int, int, str]:
    return (0, atom.uid, "") if isinstance(atom, DimVar) else (1, 0, f"{_order(atom.num)}/{_order(atom.den)}")


def _order(dim: Dim) -> str:
    return repr([([(_key(a), p) for a, p in m], c) for m, c in dim.terms])


@dataclass(frozen=True)
class Dim:
    """A polynomial: sorted (monomial, coefficient) pairs without zero coefficients. `Dim.const(0)` has no terms."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def const(value: int) -> Dim:
        return Dim((((), value),)) if value else Dim(())

    @staticmethod
    def var(atom: Atom) -> Dim:
        return Dim(((((atom, 1),), 1),))

    @staticmethod
    def of(terms: dict[Monomial, int]) -> Dim:
        kept = [(m, c) for m, c in terms.items() if c]
        if len(kept) > 1:
            kept.sort(key=lambda t: (-sum(p for _, p in t[0]), [(_key(a), p) for a, p in t[0]]))
        return Dim(tuple(kept))

    @property
    def value(self) -> int | None:
        """The integer, if the term is a constant."""
        if not self.terms:
            return 0
        monomial, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not monomial else None

    @property
    def atom(self) -> Atom | None:
        """The atom, if the term is nothing else."""
        if len(self.terms) != 1:
            return None
        monomial, coefficient = self.terms[0]
        return monomial[0][0] if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1 else None

    def __add__(self, other: Dim) -> Dim:
        if not self.terms or not other.terms:
            return self if self.terms else other
        out = dict(self.terms)
        for m, c in other.terms:
            out[m] = out.get(m, 0) + c
        return Dim.of(out)

    def __neg__(self) -> Dim:
        return Dim(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __mul__(self, other: Dim) -> Dim:
        for factor, term in ((self.value, other), (other.value, self)):
            if factor is not None:
                return term._scaled(factor)
        out: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in other.terms:
                powers: dict[Atom, int] = {}
                for a, p in m + n:
                    powers[a] = powers.get(a, 0) + p
                key = tuple(sorted(powers.items(), key=lambda t: _key(t[0])))
                out[key] = out.get(key, 0) + c * d
        return Dim.of(out)

    def _scaled(self, factor: int) -> Dim:
        if factor == 1:
            return self
        return Dim(tuple((m, c * factor) for m, c in self.terms)) if factor else self.const(0)

    def __floordiv__(self, other: Dim) -> Dim:
        """Exact where every term divides by a single-term divisor, otherwise an atom. The divisor is not zero."""
        a, b = self.value, other.value
        if a is not None and b:
            return Dim.const(a // b)
        if b == 1:
            return self
        if len(other.terms) == 1 and other.terms[0][1] > 0:
            quotient = _divide(self, *other.terms[0])
            if quotient is not None:
                return quotient
        return Dim.var(DimQuotient(self, other))

    def atoms(self) -> Iterator[DimVar]:
        """Every variable that occurs, quotients included."""
        for monomial, _ in self.terms:
            for a, _ in monomial:
                if isinstance(a, DimVar):
                    yield a
                else:
                    yield from a.num.atoms()
                    yield from a.den.atoms()

    def substitute(self, lookup: Callable[[DimVar], Dim | None]) -> Dim:
        """Replace variables; `lookup` gives None to keep one."""
        atom = self.atom
        if isinstance(atom, DimVar):  # as nearly every term is
            return lookup(atom) or self
        out = Dim.const(0)
        for monomial, coefficient in self.terms:
            product = Dim.const(coefficient)
            for a, power in monomial:
                if isinstance(a, DimVar):
                    factor = lookup(a) or Dim.var(a)
                else:
                    factor = a.num.substitute(lookup) // a.den.substitute(lookup)
                for _ in range(power):
                    product = product * factor
            out = out + product
        return out

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, c in self.terms:
            factors = [str(abs(c))] if abs(c) != 1 or not monomial else []
            alone = not factors and sum(p for _, p in monomial) == 1 and (c > 0 or text != "")
            factors += [f"({a})" if isinstance(a, DimQuotient) and not alone else str(a) for a, p in monomial for _ in range(p)]
            sign = "-" if c < 0 else "+"
            text += (f" {sign} " if text else ("-" if c < 0 else "")) + " * ".join(factors)
        return text


def linear(term: Dim, atom: DimVar) -> tuple[Dim, Dim] | None:
    """`factor` and `rest` with term = factor * atom + rest, neither of which has the atom; None if the term is not of that form."""
    zero, one = Dim.const(0), Dim.const(1)
    rest = term.substitute(lambda v: zero if v == atom else None)
    factor = (term - rest).substitute(lambda v: one if v == atom else None)
    return (factor, rest) if factor != zero and factor * Dim.var(atom) + rest == term else None


def _divide(dim: Dim, by: Monomial, coefficient: int) -> Dim | None:
    out: dict[Monomial, int] = {}
    for monomial, c in dim.terms:
        powers = dict(monomial)
        for a, p in by:
            powers[a] = powers.get(a, 0) - p
        if c % coefficient or min(powers.values(), default=0) < 0:
            return None
        out[tuple((a, p) for a, p in sorted(powers.items(), key=lambda t: _key(t[0])) if p)] = c // coefficient
    return Dim.of(out)


def _wrap(dim: Dim) -> str:
    return f"({dim})" if len(dim.terms) > 1 else str(dim)

"""Integers of a loop as polynomials of what the loop does not compute, over the ring of i64: two positions are the same, or differ by a
constant, if their polynomials do.

Sums and products of i64 wrap, so they may be arranged at will, and nothing needs to be proved (`opt/facts.py` proves inequalities,
where wrapping matters).

    %row = mul %k, %n;  %more = add %j, 1;  %at = add %row, %more       at = k * n + j + 1
"""

from __future__ import annotations

from tlc.ssa.ir import I64, Block, Instr, Value, const_of

TERMS = 6  # terms of a polynomial
FACTORS = 3  # of a term
LOOK = 6  # ops that a value is looked through

Monomial = tuple[Value, ...]
Polynomial = dict[Monomial, int]  # () is the constant; no coefficient is 0


class Polynomials:
    """The polynomials of values in some blocks: their atoms are parameters, values that are not sums or products, and what comes
    from outside, of which only constants that are added are seen. A snapshot.
    """

    def __init__(self, blocks: set[Block]) -> None:
        self.blocks = blocks
        self._numbers: dict[Value, int] = {}
        self._known: dict[Value, Polynomial] = {}

    def of(self, value: Value, limit: int = LOOK) -> Polynomial:
        if value in self._known:
            return self._known[value]
        known, owner = const_of(value), value.owner
        found: Polynomial | None = None
        if known is not None:
            found = {(): int(known)} if known else {}
        elif limit and isinstance(owner, Instr) and value.type == I64 and self._is_seen(owner):
            found = self._combined(owner.op, [self.of(v, limit - 1) for v in owner.operands])
        if found is None or len(found) > TERMS:
            found = {(value,): 1}
        self._known[value] = found
        return found

    def _is_seen(self, instr: Instr) -> bool:
        if any(v.type.rank for v in instr.operands):
            return False
        return instr.block in self.blocks or (instr.op in ("add", "sub") and any(const_of(v) is not None for v in instr.operands))

    def replaced(self, polynomial: Polynomial, by: dict[Value, Polynomial]) -> Polynomial | None:
        """The polynomial with others in place of some atoms; None if that is too large."""
        out: Polynomial = {}
        for monomial, c in polynomial.items():
            product: Polynomial | None = {(): c}
            for v in monomial:
                assert product is not None
                product = self._product(product, by.get(v, {(v,): 1}))
                if product is None:
                    return None
            assert product is not None
            out = added(out, product)
        return out

    def _combined(self, op: str, parts: list[Polynomial]) -> Polynomial | None:
        match op:
            case "add":
                return added(parts[0], parts[1])
            case "sub":
                return added(parts[0], parts[1], sign=-1)
            case "neg":
                return added({}, parts[0], sign=-1)
            case "shl" if set(parts[1]) <= {()} and 0 <= parts[1].get((), 0) < 64:
                return self._product(parts[0], {(): 1 << parts[1].get((), 0)})
            case "mul":
                return self._product(parts[0], parts[1])
        return None

    def _product(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        out: Polynomial = {}
        for m, c in a.items():
            for n, d in b.items():
                key = tuple(sorted((*m, *n), key=lambda v: self._numbers.setdefault(v, len(self._numbers))))
                if len(key) > FACTORS:
                    return None
                out[key] = out.get(key, 0) + c * d
        return _proper(out)


def added(a: Polynomial, b: Polynomial, sign: int = 1) -> Polynomial:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + sign * c
    return _proper(out)


def difference(a: Polynomial, b: Polynomial) -> int | None:
    """The constant by which two polynomials differ; None if it is none."""
    rest = added(a, b, sign=-1)
    return rest.get((), 0) if set(rest) <= {()} else None


def wrapped(value: int) -> int:
    """An integer as i64 holds it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _proper(polynomial: Polynomial) -> Polynomial:
    return {m: w for m, c in polynomial.items() if (w := wrapped(c))}

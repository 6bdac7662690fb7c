"""The algebra of dimension terms: normal forms agree with arithmetic on integers, and equal terms are equal objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tlc.frontend.dims import Dim, DimQuotient, DimVar

VARS = [DimVar(name) for name in "abc"]


def evaluate(dim: Dim, values: dict[DimVar, int]) -> int:
    total = 0
    for monomial, coefficient in dim.terms:
        product = coefficient
        for atom, power in monomial:
            x = evaluate(atom.num, values) // evaluate(atom.den, values) if isinstance(atom, DimQuotient) else values[atom]
            product *= x**power
        total += product
    return total


leaf = st.one_of(st.integers(-5, 9).map(lambda n: (Dim.const(n), lambda v: n)), st.sampled_from(VARS).map(lambda x: (Dim.var(x), lambda v: v[x])))


def combine(children):  # type: ignore[no-untyped-def]
    def build(op, x, y):  # type: ignore[no-untyped-def]
        (a, f), (b, g) = x, y
        if op == "+":
            return a + b, lambda v: f(v) + g(v)
        if op == "-":
            return a - b, lambda v: f(v) - g(v)
        return a * b, lambda v: f(v) * g(v)

    return st.builds(build, st.sampled_from("+-*"), children, children)


terms = st.recursive(leaf, combine, max_leaves=8)
values = st.fixed_dictionaries({x: st.integers(1, 20) for x in VARS})


@given(terms, values)
def test_normal_form_has_the_value_of_the_term(term, v):  # type: ignore[no-untyped-def]
    dim, meaning = term
    assert evaluate(dim, v) == meaning(v)


@given(terms, st.integers(1, 6), values)
def test_quotients_floor(term, n, v):  # type: ignore[no-untyped-def]
    dim, meaning = term
    assert evaluate(dim // Dim.const(n), v) == meaning(v) // n


@given(terms, terms)
def test_addition_and_product_commute(x, y):  # type: ignore[no-untyped-def]
    (a, _), (b, _) = x, y
    assert a + b == b + a and a * b == b * a and hash(a + b) == hash(b + a)
    assert (a - b) + b == a


@given(terms, st.sampled_from(VARS))
def test_substitution_of_a_variable_by_itself_changes_nothing(term, x):  # type: ignore[no-untyped-def]
    dim, _ = term
    assert dim.substitute(lambda v: Dim.var(v) if v == x else None) == dim


def test_exact_division() -> None:
    a, b = Dim.var(VARS[0]), Dim.var(VARS[1])
    assert (a * b) // b == a
    assert (Dim.const(6) * a) // Dim.const(3) == Dim.const(2) * a
    assert str(a // b) == "a // b" and str((a + b) // b) == "(a + b) // b"
    i, n = a, b
    assert (i + Dim.const(1)) * n - i * n == n

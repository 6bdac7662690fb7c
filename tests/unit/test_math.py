"""`stdlib/math.tl` beside mpmath: the bounds that its documentation states, in units in the last place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from test_stdlib import call

from tlc.driver import documentation as docs

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])


def evenly(a: float, b: float, n: int = 200) -> Array:
    return RANDOM.uniform(a, b, n)


def powers(a: float, b: float, n: int = 100) -> Array:
    """Positive numbers whose exponents lie evenly between a and b."""
    return 2.0 ** RANDOM.uniform(a, b, n)


def both_signs(x: Array) -> Array:
    return np.concatenate([x, -x])


UNIT = np.concatenate([evenly(-1, 1), both_signs(powers(-300, 0)), both_signs(1 - powers(-50, -1))])
WIDE = np.concatenate([evenly(-3, 3), both_signs(powers(-300, 300))])
MIDDLE = np.concatenate([evenly(-3, 3), both_signs(powers(-300, 9))])
UP = np.concatenate([evenly(0.01, 3), powers(-1060, 1023)])
# fmt: off
ROWS: dict[str, tuple[Array, Callable[[Any], Any], Callable[[Array], Array]]] = {
    "asin":  (UNIT, mpmath.asin, np.arcsin),
    "acos":  (UNIT, mpmath.acos, np.arccos),
    "atan":  (WIDE, mpmath.atan, np.arctan),
    "sinh":  (MIDDLE, mpmath.sinh, np.sinh),
    "cosh":  (MIDDLE, mpmath.cosh, np.cosh),
    "asinh": (WIDE, mpmath.asinh, np.arcsinh),
    "acosh": (np.concatenate([evenly(1, 3), 1 + powers(-50, 300)]), mpmath.acosh, np.arccosh),
    "atanh": (UNIT, mpmath.atanh, np.arctanh),
    "exp2":  (np.concatenate([evenly(-3, 3), evenly(-1022, 1023)]), lambda x: mpmath.mpf(2) ** x, np.exp2),
    "log2":  (UP, lambda x: mpmath.log(x, 2), np.log2),
    "log10": (UP, mpmath.log10, np.log10),
    "cbrt":  (both_signs(UP), lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), np.cbrt),
}
# fmt: on


def stated(name: str) -> float:
    """The bound in the documentation."""
    page = docs.page("math")
    entry = page.find(name) if page is not None else None
    assert entry is not None
    found = re.search(r"Within (\d+) units? in the last place", " ".join(entry.doc.split()))
    assert found, name
    return float(found[1])


def units(found: Array, wanted: list[Any]) -> float:
    """The largest error."""
    return max(float(abs(mpmath.mpf(float(a)) - b) / mpmath.mpf(float(np.spacing(abs(float(b)))))) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_the_stated_bound_holds(name: str) -> None:
    x, exact, near = ROWS[name]
    f = f"use math\nfn f(x: f64[n]) -> f64[n] = math.{name}(x)\n"
    with mpmath.workprec(200):
        assert units(call(f, x), [exact(mpmath.mpf(float(v))) for v in x]) <= stated(name)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(call(f, SPECIAL), near(SPECIAL), rtol=1e-15)
        narrow = x.astype(np.float32)
        got = call(f.replace("f64", "f32"), narrow)
        np.testing.assert_array_max_ulp(got, near(narrow.astype(np.float64)).astype(np.float32), 1, dtype=np.float32)


def test_atan2() -> None:
    f = "use math\nfn f(y: f64[n], x: f64[n]) -> f64[n] = math.atan2(y, x)\n"
    y, x = both_signs(powers(-50, 50, 200)), RANDOM.permutation(both_signs(powers(-50, 50, 200)))
    with mpmath.workprec(200):
        wanted = [mpmath.atan2(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(y.tolist(), x.tolist(), strict=True)]
        assert units(call(f, y, x), wanted) <= stated("atan2")
    ys, xs = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    got, there = call(f, ys, xs), np.arctan2(ys, xs)
    np.testing.assert_allclose(got, there, rtol=3e-16)
    known = ~np.isnan(there)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(there[known]))


def test_powers_are_exact() -> None:
    whole = np.arange(-1022.0, 1024.0)
    np.testing.assert_array_equal(call("use math\nfn f(x: f64[n]) -> f64[n] = math.exp2(x)\n", whole), 2.0**whole)
    np.testing.assert_array_equal(call("use math\nfn f(x: f64[n]) -> f64[n] = math.log2(x)\n", 2.0**whole), whole)
    ten = np.array([float(f"1e{k}") for k in range(-300, 301)])
    np.testing.assert_array_equal(call("use math\nfn f(x: f64[n]) -> f64[n] = math.log10(x)\n", ten), np.arange(-300.0, 301.0))


def test_lgamma() -> None:
    x = np.concatenate([evenly(-20, 20), powers(-300, 60)])
    got = call("use math\nfn f(x: f64[n]) -> f64[n] = math.lgamma(x)\n", x)
    with mpmath.workprec(200):
        wanted = [mpmath.log(abs(mpmath.gamma(mpmath.mpf(float(v))))) for v in x]
    assert max(float(abs(mpmath.mpf(float(a)) - b) / max(1, abs(b))) for a, b in zip(got, wanted, strict=True)) < 1e-14
    np.testing.assert_array_equal(call("use math\nfn f(x: f64[n]) -> f64[n] = math.lgamma(x)\n", np.array([0.0, -1.0, np.inf])), np.inf)


def test_whole_numbers_stop_where_they_do_not_fit() -> None:
    binomial = "use math\nfn f(n: i64, k: i64) -> i64 = math.binomial(n, k)\n"
    for n, k in ((66, 33), (100, 3), (61, 40), (1, 1), (0, 0)):
        assert call(binomial, np.int64(n), np.int64(k)) == math.comb(n, k)
    for source, args in ((binomial, (70, 35)), ("use math\nfn f(n: i64) -> i64 = math.factorial(n)\n", (21,))):
        with pytest.raises(Exception, match="i64"):
            call(source, *map(np.int64, args))

"""The elementary functions against mpmath: largest error in units in the last place, and the special values of IEEE 754."""

from __future__ import annotations

import ctypes
import math

import mpmath
import numpy as np
import pytest
from test_llvm_scalar import function

from tlc.backends.llvm import jit
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem

RANGES = {
    "exp": [(-100, 88), (-1, 1)],
    "expm1": [(-20, 20), (-1, 1), (-1e-3, 1e-3)],
    "log": [(1e-30, 1e30), (0.5, 2), (0.99, 1.01)],
    "log1p": [(-0.99, 10), (-1e-3, 1e-3), (0, 1e6)],
    "sin": [(-10, 10), (-1e5, 1e5)],
    "cos": [(-10, 10), (-1e5, 1e5)],
    "tan": [(-1.5, 1.5), (-1e4, 1e4)],
    "tanh": [(-1, 1), (-10, 10), (-1e-3, 1e-3)],
    "erf": [(-1, 1), (-5, 5), (-1e-3, 1e-3)],
}
BOUND = {"exp": 1.0, "log": 1.0, "sin": 1.5, "cos": 1.5}


def ulps(name: str, elem: Elem, xs: np.ndarray, *more: np.ndarray) -> float:
    dtype = DTYPES[elem].type
    got = SCALAR_OPS[name].evaluate(elem, xs, *more)
    worst = 0.0
    function = {"pow": mpmath.power}.get(name) or getattr(mpmath, name)
    for i, (args, y) in enumerate(zip(zip(xs, *more, strict=True), got, strict=True)):
        with mpmath.workprec(200):
            exact = function(*(mpmath.mpf(float(a)) for a in args))
            if abs(exact) < float(np.finfo(dtype).tiny) or abs(exact) > float(np.finfo(dtype).max):
                continue
            spacing = float(np.spacing(dtype(abs(float(exact)))))
            worst = max(worst, float(abs(mpmath.mpf(float(y)) - exact)) / spacing)
        assert math.isfinite(y), (name, i, args)
    return worst


@pytest.mark.parametrize("elem", [Elem.F32, Elem.F64], ids=str)
@pytest.mark.parametrize("name", sorted(RANGES))
def test_error_is_within_its_bound(name: str, elem: Elem) -> None:
    rng = np.random.default_rng(1)
    for low, high in RANGES[name]:
        xs = rng.uniform(low, high, 400) if high < 1e20 else np.exp(rng.uniform(np.log(low), np.log(high), 400))
        assert ulps(name, elem, xs.astype(DTYPES[elem])) <= BOUND.get(name, 4.0), (low, high)


@pytest.mark.parametrize(("elem", "bound"), [(Elem.F32, 1.0), (Elem.F64, 8.0)], ids=str)
def test_powers(elem: Elem, bound: float) -> None:
    rng = np.random.default_rng(2)
    x = np.exp(rng.uniform(-5, 5, 500)).astype(DTYPES[elem])
    y = rng.uniform(-15, 15, 500).astype(DTYPES[elem])
    assert ulps("pow", elem, x, y) <= bound


@pytest.mark.parametrize("elem", [Elem.F32, Elem.F64], ids=str)
@pytest.mark.parametrize("name", sorted(RANGES))
def test_special_values_agree_with_numpy(name: str, elem: Elem) -> None:
    xs = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, 200.0, -200.0, 1e30 if name != "tan" else 1.0], DTYPES[elem])
    if name in ("sin", "cos", "tan"):
        xs = xs[:10]
    with np.errstate(all="ignore"):
        want = np.array([math.erf(float(x)) for x in xs], DTYPES[elem]) if name == "erf" else getattr(np, name)(xs)
    got = SCALAR_OPS[name].evaluate(elem, xs)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(DTYPES[elem]).eps, atol=0)
    same_sign = np.signbit(got) == np.signbit(want)
    assert np.all(same_sign | np.isnan(want))


@pytest.mark.parametrize("elem", [Elem.F32, Elem.F64], ids=str)
def test_special_powers_agree_with_numpy(elem: Elem) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, np.inf, -np.inf, np.nan, 1e9], DTYPES[elem])
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    got = SCALAR_OPS["pow"].evaluate(elem, x, y)
    np.testing.assert_allclose(got, want, rtol=8 * np.finfo(DTYPES[elem]).eps)
    assert np.all((np.signbit(got) == np.signbit(want)) | np.isnan(want))


def test_subnormal_results_of_exp() -> None:
    xs = np.linspace(-103, -87, 50, dtype=np.float32)
    got = SCALAR_OPS["exp"].evaluate(Elem.F32, xs)
    np.testing.assert_allclose(got, np.exp(xs.astype(np.float64)), atol=1.5e-45, rtol=1e-6)


@pytest.mark.parametrize("elem", [Elem.F32, Elem.F64], ids=str)
@pytest.mark.parametrize("lanes", [1, 2, 8, 16, 64])
def test_ldexp_and_exp_are_the_same_by_instructions(elem: Elem, lanes: int) -> None:
    """`ldexp` where it keeps its promise, subnormal results and both ends among them, and `exp` over all sizes of numbers."""
    dtype, bias = DTYPES[elem], {Elem.F32: 127, Elem.F64: 1023}[elem]
    rng = np.random.default_rng(3)
    k = np.concatenate([rng.integers(-2 * bias + 2, 3 * bias, 990), [-bias, bias, bias + 1, 2 * bias, 2 * bias + 1, 1 << 20]]).astype(dtype)
    x = (rng.uniform(0.5, 2.0, k.size) * rng.choice([-1, 1], k.size)).astype(dtype)
    x[k > 2 * bias] = abs(x[k > 2 * bias])
    x, k = np.append(x, np.array([np.nan, 1, np.nan, np.nan], dtype)), np.append(k, np.array([np.inf, np.inf, 3, np.nan], dtype))
    with np.errstate(over="ignore", under="ignore"):
        want = np.where(k > 2 * bias, np.inf, np.ldexp(x, np.where(k <= 2 * bias, k, 0).astype(int))).astype(dtype)
        want[-1] = np.nan
        assert np.array_equal(SCALAR_OPS["ldexp"].evaluate(elem, x, k), want, equal_nan=True)
        z = np.concatenate([[np.inf, -np.inf, np.nan, 0.0], rng.standard_normal(996) * 10.0 ** rng.integers(-3, 39, 996)]).astype(dtype)
        exp = SCALAR_OPS["exp"].evaluate(elem, z)
    size = x.size // lanes * lanes
    found = compiled("ldexp", elem, lanes, [x[:size], k[:size]])
    assert np.array_equal(found, want[:size], equal_nan=True)
    found = compiled("exp", elem, lanes, [z[:960]])
    assert np.array_equal(found, exp[:960], equal_nan=True)


def compiled(name: str, elem: Elem, lanes: int, args: list[np.ndarray]) -> np.ndarray:
    """An op by LLVM on vectors of so many lanes."""
    text = function("f", name, elem, [elem] * len(args), lanes)
    loaded = jit.load([jit.compile_object(text, jit.Level.KERNEL)])
    out = np.zeros(args[0].size, DTYPES[elem])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *args)]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)(loaded.address("f"))(*pointers, out.size)
    return out

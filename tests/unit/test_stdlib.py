"""The standard library, run by the interpreter of unoptimized SSA and compared with NumPy or with published values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.lower import lower

X = np.array([0.3, -1.7, 2.5, 0.0, -0.2])
WILD = np.array([700.0, -700.0, 0.0, math.inf])
MASKED = np.array([1.0, -math.inf, 3.0])


class Silent:
    """No services: these functions need none."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a pure function asked for `{name}`")


def call(source: str, *args: Any) -> Any:
    """The results of the last function of a file, called with these leaves; a single one alone."""
    program = check(parse(Source("test.tl", source)))
    module = lower(program)
    construct(module)
    name = source[source.rindex("fn ") + 3 :].partition("(")[0]
    results = Interpreter(module, Silent()).call(name, list(args))
    return results[0] if len(results) == 1 else results


def row(expression: str, size: int = 5) -> str:
    return f"fn f(x: f64[{size}]) -> f64[{size}] = {expression}\n"


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("abs(x)", np.abs(X)),
        ("sign(x)", np.sign(X)),
        ("sqrt(abs(x))", np.sqrt(np.abs(X))),
        ("rsqrt(abs(x) + 1.0)", 1 / np.sqrt(np.abs(X) + 1)),
        ("exp(x)", np.exp(X)),
        ("expm1(x)", np.expm1(X)),
        ("log(abs(x) + 0.1)", np.log(np.abs(X) + 0.1)),
        ("log1p(abs(x))", np.log1p(np.abs(X))),
        ("sin(x)", np.sin(X)),
        ("cos(x)", np.cos(X)),
        ("tan(x)", np.tan(X)),
        ("tanh(x)", np.tanh(X)),
        ("erf(x)", [math.erf(v) for v in X]),
        ("floor(x)", np.floor(X)),
        ("ceil(x)", np.ceil(X)),
        ("trunc(x)", np.trunc(X)),
        ("round(x)", np.round(X)),  # 2.5 goes to 2
        ("where(x > 0.0, x, -2.0 * x)", np.where(X > 0, X, -2 * X)),
        ("clip(x, -1.0, 1.0)", np.clip(X, -1, 1)),
        ("x ** 3", X**3),
        ("(x + 3.0) ** -2", (X + 3) ** -2.0),
        ("powi(x, 5)", X**5),
        ("relu(x)", np.maximum(X, 0)),
        ("sigmoid(x)", 1 / (1 + np.exp(-X))),
        ("silu(x)", X / (1 + np.exp(-X))),
        ("gelu(x)", [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in X]),
        ("softmax(x)", softmax(X)),
        ("log_softmax(x)", np.log(softmax(X))),
        ("layernorm(x)", (X - X.mean()) / np.sqrt(X.var() + 1e-5)),
        ("rmsnorm(x)", X / np.sqrt((X * X).mean() + 1e-5)),
        ("flip(x)", X[::-1]),
        ("cumsum(x)", np.cumsum(X)),
        ("sort(x)", np.sort(X)),
    ],
)
def test_prelude_on_a_row(expression: str, expected: Any) -> None:
    np.testing.assert_allclose(call(row(expression), X), expected, rtol=1e-13, atol=1e-15)


def test_activations_do_not_overflow() -> None:
    np.testing.assert_array_equal(call(row("sigmoid(x)", 4), WILD), [1.0, math.exp(-700), 0.5, 1.0])
    np.testing.assert_array_equal(call(row("softmax(x)", 4), WILD[[0, 1, 2, 2]]), softmax(WILD[[0, 1, 2, 2]]))
    np.testing.assert_allclose(call(row("softmax(x)", 3), MASKED), softmax(MASKED), rtol=1e-14)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1000.0, 1000.0], 1000 + math.log(2)),
        ([-math.inf, -math.inf], -math.inf),
        ([math.inf, 0.0], math.inf),
        ([-math.inf, 3.0], 3.0),
        ([math.nan, 3.0], math.nan),
    ],
)
def test_logsumexp(x: list[float], expected: float) -> None:
    np.testing.assert_allclose(call("fn f(x: f64[2]) -> f64 = logsumexp(x)\n", np.array(x)), expected, rtol=1e-15)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 33])
def test_sort(size: int) -> None:
    random = np.random.default_rng(size)
    x = random.integers(-5, 6, size)
    np.testing.assert_array_equal(call("fn f(x: i64[n]) -> i64[n] = sort(x)\n", x), np.sort(x))
    y = np.where(random.random(size) < 0.2, math.nan, random.normal(size=size))
    np.testing.assert_array_equal(call("fn f(x: f64[n]) -> f64[n] = sort(x)\n", y), np.sort(y))


def test_integer_powers_and_small_ones() -> None:
    assert call("fn f(x: i64, n: i64) -> i64 = ipow(x, n)\n", np.int64(3), np.int64(13)) == 3**13
    assert call("fn f(x: i64, n: i64) -> i64 = ipow(x, n)\n", np.int64(-7), np.int64(0)) == 1
    assert call("fn f(a: f64[n], b: f64[n]) -> f64 = dot(a, b)\n", X, X + 1) == pytest.approx(X @ (X + 1))
    np.testing.assert_array_equal(call("fn f(label: i64) -> f32[4] = one_hot(label, 4)\n", np.int64(2)), [0, 0, 1, 0])
    np.testing.assert_array_equal(call("fn f() -> f32[2, 2] = eye(2)\n"), np.eye(2))


def test_math() -> None:
    assert call("use math\nfn f(x: f64, y: f64) -> f64 = math.hypot(x, y)\n", np.float64(3e200), np.float64(-4e200)) == pytest.approx(5e200)
    assert call("use math\nfn f(a: i64, b: i64) -> i64 = math.gcd(a, b)\n", np.int64(-84), np.int64(36)) == 12
    assert call("use math\nfn f(a: i64, b: i64) -> i64 = math.lcm(a, b)\n", np.int64(4), np.int64(-6)) == 12
    assert call("use math\nfn f() -> f64 = math.PI\n") == math.pi


# ---------------------------------------------------------------- random numbers

WORDS = "use random\nfn f(k: key, x: u32, y: u32) -> (u32, u32) = random.threefry(k, x, y)\n"


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # the test vectors that the authors of Threefry publish
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry(key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]) -> None:
    k = np.uint64(key[0] << 32 | key[1])
    assert tuple(call(WORDS, k, np.uint32(counter[0]), np.uint32(counter[1]))) == words


def test_distributions() -> None:
    for elem in ("f32", "f64"):
        u = call(f"fn f(n: i64) -> {elem}[n] = uniform(key(1), n)\n", np.int64(20_000))
        assert u.dtype == np.dtype(elem.replace("f", "float"))
        assert 0 <= u.min() < 0.001 and 0.999 < u.max() < 1
        assert abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.002
        z = call(f"fn f(n: i64) -> {elem}[n] = normal(key(2), n)\n", np.int64(20_000))
        assert abs(z.mean()) < 0.02 and abs(z.var() - 1) < 0.03 and abs((z**3).mean()) < 0.1 and abs((z**4).mean() - 3) < 0.2
    r = call("fn f(n: i64) -> i64[n] = randint(key(3), -2, 3, n)\n", np.int64(1000))
    assert np.bincount(r + 2).min() > 150 and set(r) == {-2, -1, 0, 1, 2}


def test_choices_are_in_proportion() -> None:
    weights = np.array([0.5, 0.0, 2.0, 1.5], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(weights)
    for name, given in (("choice", weights), ("categorical", logits)):
        drawn = call(f"use random\nfn f(n: i64, w: f32[4]) -> i64[n] = random.{name}(split(key(1), n), w)\n", np.int64(4000), given)
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, weights / 4, atol=0.03)


@pytest.mark.parametrize(
    ("expression", "mean", "variance"),
    [
        ("gumbel(split(key(1), n))", 0.5772, math.pi**2 / 6),
        ("exponential(split(key(1), n), 2.0)", 0.5, 0.25),
        ("gamma(split(key(1), n), 0.4)", 0.4, 0.4),
        ("gamma(split(key(1), n), 3.0)", 3.0, 3.0),
        ("beta(split(key(1), n), 2.0, 3.0)", 0.4, 0.04),
        ("truncated_normal(split(key(1), n))", 0.0, 0.7737),
        ("truncated_normal(split(key(1), n), 0.0, 1.0)", 0.4598, 0.0799),
    ],
)
def test_moments(expression: str, mean: float, variance: float) -> None:
    x = call(f"use random\nfn f(n: i64) -> f32[n] = random.{expression}\n", np.int64(4000))
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / 4000)
    assert abs(x.var() / variance - 1) < 0.25


def test_poisson() -> None:
    x = call("use random\nfn f(n: i64) -> i64[n] = random.poisson(split(key(1), n), 2.5)\n", np.int64(4000))
    assert x.min() == 0 and abs(x.mean() - 2.5) < 0.13 and abs(x.var() - 2.5) < 0.4


def test_elements_have_counters_in_row_major_order() -> None:
    flat = call("fn f() -> f32[6] = normal(key(5), 6)\n")
    np.testing.assert_array_equal(call("fn f() -> f32[2, 3] = normal(key(5), 2, 3)\n").reshape(6), flat)


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
def test_permutation(size: int) -> None:
    p = call("fn f(n: i64) -> i64[n] = permutation(key(4), n)\n", np.int64(size))
    np.testing.assert_array_equal(np.sort(p), np.arange(size))
    assert size < 1000 or np.mean(p == np.arange(size)) < 0.01


# ---------------------------------------------------------------- layers and optimizers


def test_linear_and_cross_entropy() -> None:
    random = np.random.default_rng(0)
    w, b, x = (random.normal(size=s).astype(np.float32) for s in ((4, 3), (3,), (5, 4)))
    y = call("use nn\nfn f(l: nn.Linear(4, 3), x: f32[n, 4]) -> f32[n, 3] = nn.linear(l, x)\n", w, b, x)
    np.testing.assert_allclose(y, x @ w + b, rtol=1e-5, atol=1e-6)
    labels = np.array([0, 2, 1, 1, 0])
    loss = call("use nn\nfn f(x: f32[n, 3], y: i64[n]) -> f32[n] = nn.cross_entropy(x, y)\n", y * 50, labels)
    z = y.astype(np.float64) * 50
    z -= z.max(1, keepdims=True)
    np.testing.assert_allclose(loss, np.log(np.exp(z).sum(1)) - z[np.arange(5), labels], rtol=1e-5, atol=1e-5)


def test_initial_weights() -> None:
    w, b = call("use nn\nfn f() -> nn.Linear(300, 100) = nn.init_linear(key(0), 300, 100)\n")
    bound = math.sqrt(6 / 300)
    assert w.shape == (300, 100) and not b.any()
    assert np.abs(w).max() <= bound * 1.000001 and np.abs(w).max() > 0.999 * bound
    assert abs(w.var() - 2 / 300) < 1e-4


ADAM = """
use optim
struct Model { a: f32[3], b: f32, n: i64 }
fn f(m: Model, g: Model) -> (Model, Model, Model) {
  var p = m
  var s = optim.adam(m)
  for i in 0..5 { (p, s) = optim.adamw_step(p, g, s, 0.1, 0.01) }
  (p, s.mean, s.variance)
}
"""


def test_adam_over_a_struct() -> None:
    a, b = np.array([1.0, -2.0, 0.5], np.float32), np.float32(3.0)
    ga, gb = np.array([0.1, 0.0, -20.0], np.float32), np.float32(1e-3)
    pa, pb, n, *_ = call(ADAM, a, b, np.int64(7), ga, gb, np.int64(7))
    assert n == 7

    def adam(p: Any, g: Any) -> Any:
        m = v = 0.0
        p, g = np.float64(p), np.float64(g)
        for t in range(1, 6):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            p = p - 0.1 * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.01 * p)
        return p

    np.testing.assert_allclose(pa, adam(a, ga), rtol=1e-4)
    np.testing.assert_allclose(pb, adam(b, gb), rtol=1e-4)


DECAY = """
use optim
struct Part { w: f32[2, 2], b: f32[2] }
struct Model { parts: Part[3], scale: f32 }
fn f(m: Model, g: Model) -> Model = optim.adamw_step(m, g, optim.adam(m), 0.1, decay = 0.5, only_matrices = true)[0]
"""


def test_matrices_alone_decay() -> None:
    """A vector of a struct array has two dimensions where it lies, and is a vector."""
    w, b = np.full((3, 2, 2), 4.0, np.float32), np.full((3, 2), 4.0, np.float32)
    pw, pb, pscale = call(DECAY, w, b, np.float32(4), 0 * w, 0 * b, np.float32(0))
    np.testing.assert_allclose(pw, 0.95 * w)
    np.testing.assert_array_equal(pb, b)
    assert pscale == 4


def test_other_optimizers() -> None:
    x, g = np.array([1.0, 2.0], np.float32), np.array([0.5, -0.5], np.float32)
    np.testing.assert_allclose(call("use optim\nfn f(p: f32[2], g: f32[2]) -> f32[2] = optim.sgd(p, g, 0.1)\n", x, g), x - 0.1 * g)
    p, v = call("use optim\nfn f(p: f32[2], g: f32[2], v: f32[2]) -> (f32[2], f32[2]) = optim.momentum(p, g, v, 0.1)\n", x, g, x)
    np.testing.assert_allclose(v, 0.9 * x + g)
    np.testing.assert_allclose(p, x - 0.1 * v)
    clip = "use optim\nstruct M { a: f32[2], b: f32 }\nfn f(g: M) -> M = optim.clip_norm(g, 1.0)\n"
    a, b = call(clip, np.array([3.0, 0.0], np.float32), np.float32(4.0))
    np.testing.assert_allclose([*a, b], [0.6, 0.0, 0.8], rtol=1e-6)

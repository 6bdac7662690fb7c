"""Every differentiable function of the standard library: reverse mode, forward mode and finite differences agree.

The functions of a module are one program. What is written for f32 alone (layers, optimizers) is compared more loosely.
"""

from __future__ import annotations

import pytest
from gradcheck import Case, case, gradcheck
from test_stdlib_examples import MODULES, functions

POSITIVE = "0.6 + 0.5 * x"
ROW = (5,)
SQUARE = "=x @ x.T + eye(3)"  # symmetric, positive definite, eigenvalues apart


def positive(expression: str) -> Case:
    return case(expression, values={"x": POSITIVE}, x=ROW)


def plain(*expressions: str) -> list[Case]:
    return [case(e, x=ROW) for e in expressions]


CASES: dict[str, list[Case]] = {
    "prelude": [
        *plain("abs(x)", "exp(x)", "expm1(x)", "sin(x)", "cos(x)", "tan(x)", "tanh(x)", "erf(x)", "clip(x, -0.5, 0.5)", "relu(x)", "sigmoid(x)"),
        *plain("silu(x)", "gelu(x)", "softmax(x)", "log_softmax(x)", "logsumexp(x)", "layernorm(x)", "rmsnorm(x)", "flip(x)", "cumsum(x)"),
        *plain("sort(x)", "where(x > 0.2, x, x * x)", "norm(x)", "max(x)", "min(x)", "mean(x)", "prod(x)", "sigmoid(900.0 * x)"),
        *map(positive, ("sqrt(x)", "rsqrt(x)", "log(x)", "log1p(x)", "x ** 3", "x ** -2", "x ** 1.7")),
        *plain("variance(x)", "std(x)"),
        case("variance(x, axis = 0)", x=(3, 4)),
        case("dot(x, z)", x=ROW, z=ROW),
        case("clip(x, z, y)", x=ROW, z=(), y=(), values={"z": "x - 1.2", "y": "x"}),
        case("concat(x, z)", x=ROW, z=(2,)),
        case("stack(x, z)", x=ROW, z=ROW),
        case("pad(x, 1, 2)", x=ROW),
        case("x @ z", x=(2, 3), z=(3, 4)),
    ],
    "activations": [
        *plain("gelu_tanh(x)", "softplus(x)", "log_sigmoid(x)", "elu(x, 1.3)", "selu(x)", "mish(x)", "softplus(900.0 * x)"),
        case("leaky_relu(x, z)", x=ROW, z=()),
    ],
    "arrays": [
        *plain("diag(x)", "cumprod(x)", "diff(x)", "roll(x, 2)", "topk(x, 3)[0]", "unique(x)"),
        case("linspace(x, z, 4)", x=(), z=()),
        case("outer(x, z)", x=ROW, z=(3,)),
        case("cross(x, z)", x=(3,), z=(3,)),
        *(case(e, x=(3, 3)) for e in ("diagonal(x)", "trace(x)", "tril(x, -1)", "triu(x)")),
    ],
    "math": [
        *plain("math.radians(x)", "math.degrees(x)", "math.asin(0.9 * x)", "math.acos(0.9 * x)", "math.atan(4.0 * x)", "math.sinh(3.0 * x)"),
        *plain("math.cosh(x)", "math.asinh(3.0 * x)", "math.atanh(0.9 * x)", "math.exp2(3.0 * x)"),
        *plain("math.cbrt(x)", "math.lgamma(1.4 * x)"),
        *map(positive, ("math.acosh(1.0 + x)", "math.log2(x)", "math.log10(x)", "math.lgamma(12.0 * x)")),
        case("math.atan2(x, z)", x=ROW, z=ROW),
        case("math.hypot(x, z)", x=ROW, z=ROW),
    ],
    "nn": [
        case("nn.linear(nn.Linear(w = w, b = b), x)", "f32", w=(3, 2), b=(2,), x=(3,)),
        case("nn.embedding(nn.Embedding(table = w), [2, 0, 2])", "f32", w=(3, 2)),
        case("nn.conv2d(nn.Conv2d(w = w, b = b), x, padding = 1)", "f32", w=(2, 1, 2, 2), b=(2,), x=(1, 3, 3)),
        case("nn.convolve2d(x, w, 2, 1)", w=(2, 1, 2, 2), x=(1, 4, 3)),
        case("nn.max_pool2d(x)", x=(4, 4)),
        case("nn.avg_pool2d(x)", x=(4, 4)),
        case("nn.norm(nn.Norm(scale = w, shift = b), x)", "f32", w=(4,), b=(4,), x=(4,)),
        case("nn.rmsnorm(nn.RmsNorm(scale = w), x)", "f32", w=(4,), x=(4,)),
        case("nn.attention(q, k, v)", q=(2, 3), k=(4, 3), v=(4, 2)),
        case("nn.causal_attention(q, k, v)", q=(3, 2), k=(3, 2), v=(3, 2)),
        case("nn.split_heads(x, 2)", x=(3, 4)),
        case("nn.merge_heads(x)", x=(2, 3, 2)),
        case("nn.lstm_cell(nn.LstmCell(wx = w, wh = u, b = b), x, h, c)[0]", "f32", w=(3, 8), u=(2, 8), b=(8,), x=(3,), h=(2,), c=(2,)),
        case("nn.lstm_cell(nn.LstmCell(wx = w, wh = u, b = b), x, h, c)[1]", "f32", w=(3, 8), u=(2, 8), b=(8,), x=(3,), h=(2,), c=(2,)),
        case("nn.gru_cell(nn.GruCell(wx = w, wh = u, bx = a, bh = b), x, h)", "f32", w=(3, 6), u=(2, 6), a=(6,), b=(6,), x=(3,), h=(2,)),
        case("nn.dropout(key(3), x, 0.4)", "f32", x=ROW),
        case("nn.cross_entropy(x, [1, 0])", x=(2, 4)),
        case("nn.nll(x, [1, 0])", x=(2, 4)),
        case("nn.binary_cross_entropy(x, z)", x=ROW, z=ROW),
        case("nn.mse(x, z)", x=ROW, z=ROW),
        case("nn.l1(x, z)", x=ROW, z=ROW),
        case("nn.huber(x, z, 0.5)", x=ROW, z=ROW),
        case("nn.kl(x, z)", x=ROW, z=ROW, values={"x": POSITIVE, "z": POSITIVE}),
        case("nn.cosine_similarity(x, z)", x=ROW, z=ROW),
    ],
    "linalg": [
        case("linalg.solve(a, b)", a=(3, 3), b=(3,)),
        case("linalg.solve_matrix(a, b)", a=(3, 3), b=(3, 2)),
        case("linalg.solve_lower(a, b)", a=(3, 3), b=(3,)),
        case("linalg.solve_upper(a, b)", a=(3, 3), b=(3,)),
        case("linalg.lstsq(a, b)", a=(4, 2), b=(4,)),
        *(case(f"linalg.{f}(a)", a=(3, 3)) for f in ("inverse", "det")),
        case("linalg.slogdet(a)[1]", a=(3, 3)),
        case("linalg.lu(a)[0]", a=(3, 3)),
        case("linalg.cholesky(a)", a=(3, 3), values={"a": SQUARE}),
        *(case(f"linalg.qr(a)[{k}]", a=(4, 3)) for k in (0, 1)),
        *(case(f"linalg.eigh(a)[{k}]", a=(3, 3), values={"a": SQUARE}) for k in (0, 1)),
        case("linalg.eigh(a)[1]", a=(3, 3), values={"a": "=diag([1.0, 2.0, 4.0])"}),
        *(case(f"linalg.svd(a)[{k}]", a=(4, 3)) for k in (0, 1, 2)),
        case("linalg.norm1(x)", x=ROW),
        case("linalg.norm_inf(x)", x=ROW),
        case("linalg.spectral_norm(a)", a=(3, 2)),
        case("linalg.cond(a)", a=(3, 3)),
        case("linalg.matrix_power(a, 5)", a=(3, 3)),
        case("linalg.kron(a, b)", a=(2, 2), b=(2, 3)),
    ],
}
# No derivative, or 0 everywhere; random numbers; and rules of optimizers, which nobody differentiates.
NONE = {
    "prelude": {"sign", "floor", "ceil", "trunc", "round", "isnan", "one_hot", "eye"},
    "arrays": {"isfinite", "isinf", "isclose", "argsort", "searchsorted", "bincount", "nonzero"},
    "math": {"gcd", "lcm", "factorial", "binomial"},
    "linalg": {"orthogonal"},
}
WITHOUT = {"optim", "random", "builtins"}


@pytest.mark.parametrize("module", sorted(CASES))
def test_gradients(module: str) -> None:
    assert gradcheck(CASES[module], [] if module in ("prelude", "activations", "arrays") else [module]) == []


def test_every_function_is_here() -> None:
    missing = []
    for module in MODULES:
        text = " ".join(c.expression for c in CASES.get(module, ()))
        for f in functions(module):
            known = f.name in NONE.get(module, ()) or f.name.startswith(("init_", "kaiming_", "xavier_"))
            if module not in WITHOUT and not known and f"{f.name}(" not in text:
                missing.append(f"{module}.{f.name}")
    assert missing == []

"""Layers, losses, activations and optimizers of the library beside those of PyTorch, where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from test_stdlib import call

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")

# the type of the result, parameters with their shapes, the expression here and the one there (over tensors of those names, and `F`, `torch`)
ROWS: list[tuple[str, dict[str, tuple[int, ...]], str, str]] = [
    ("f64[5]", {"x": (5,)}, "gelu_tanh(x)", "F.gelu(x, approximate='tanh')"),
    ("f64[5]", {"x": (5,)}, "softplus(x)", "F.softplus(x)"),
    ("f64[5]", {"x": (5,)}, "log_sigmoid(x)", "F.logsigmoid(x)"),
    ("f64[5]", {"x": (5,)}, "leaky_relu(x, 0.2)", "F.leaky_relu(x, 0.2)"),
    ("f64[5]", {"x": (5,)}, "elu(x, 1.5)", "F.elu(x, 1.5)"),
    ("f64[5]", {"x": (5,)}, "selu(x)", "F.selu(x)"),
    ("f64[5]", {"x": (5,)}, "mish(x)", "F.mish(x)"),
    ("f64[3]", {"x": (3, 5)}, "nn.cross_entropy(x, [4, 0, 2])", "F.cross_entropy(x, torch.tensor([4, 0, 2]), reduction='none')"),
    ("f64[3]", {"x": (3, 5)}, "nn.nll(x, [4, 0, 2])", "F.nll_loss(x, torch.tensor([4, 0, 2]), reduction='none')"),
    ("f64[5]", {"x": (5,), "z": (5,)}, "nn.binary_cross_entropy(x, sigmoid(z))",
     "F.binary_cross_entropy_with_logits(x, z.sigmoid(), reduction='none')"),
    ("f64", {"x": (5,), "z": (5,)}, "nn.mse(x, z)", "F.mse_loss(x, z)"),
    ("f64", {"x": (5,), "z": (5,)}, "nn.l1(x, z)", "F.l1_loss(x, z)"),
    ("f64", {"x": (5,), "z": (5,)}, "nn.huber(x, z, 0.5)", "F.huber_loss(x, z, delta=0.5)"),
    ("f64", {"x": (5,), "z": (5,)}, "nn.kl(softmax(x), softmax(z))", "F.kl_div(z.log_softmax(0), x.softmax(0), reduction='sum')"),
    ("f64", {"x": (5,), "z": (5,)}, "nn.cosine_similarity(x, z)", "F.cosine_similarity(x, z, dim=0)"),
    ("f64[2, 3, 6]", {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 6)}, "nn.attention(q, k, v)", "F.scaled_dot_product_attention(q, k, v)"),
    ("f64[2, 5, 6]", {"q": (2, 5, 4), "k": (2, 5, 4), "v": (2, 5, 6)}, "nn.causal_attention(q, k, v)",
     "F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ("f32[2, 4]", {"x": (2, 4), "w": (4,)}, "nn.rmsnorm(nn.RmsNorm(scale = w), x)", "F.rms_norm(x, (4,), w, 1e-5)"),
    ("f32[2, 4]", {"x": (2, 4), "w": (4,), "b": (4,)}, "nn.norm(nn.Norm(scale = w, shift = b), x)", "F.layer_norm(x, (4,), w, b)"),
    *(
        ("f32[2, 3]", {"x": (2, 4), "h": (2, 3), "c": (2, 3), "w": (4, 12), "u": (3, 12), "b": (12,)},
         f"nn.lstm_cell(nn.LstmCell(wx = w, wh = u, b = b), x, h, c)[{k}]",
         f"torch.lstm_cell(x, (h, c), w.T, u.T, b, torch.zeros(12))[{k}]")
        for k in (0, 1)
    ),
    ("f32[2, 3]", {"x": (2, 4), "h": (2, 3), "w": (4, 9), "u": (3, 9), "a": (9,), "b": (9,)},
     "nn.gru_cell(nn.GruCell(wx = w, wh = u, bx = a, bh = b), x, h)", "torch.gru_cell(x, h, w.T, u.T, a, b)"),
]  # fmt: skip

# what a step is here, what the optimizer is there; each is a run of four steps
OPTIMIZERS = [
    ("(p, s) = optim.momentum(p, g, s, 0.1)", "SGD", {"lr": 0.1, "momentum": 0.9}),
    ("(p, s) = optim.nesterov(p, g, s, 0.1)", "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("(p, s) = optim.rmsprop(p, g, s, 0.1)", "RMSprop", {"lr": 0.1}),
    ("(p, s) = optim.adagrad(p, g, s, 0.1)", "Adagrad", {"lr": 0.1}),
    ("(p, a) = optim.adam_step(p, g, a, 0.1)", "Adam", {"lr": 0.1}),
    ("(p, a) = optim.adamw_step(p, g, a, 0.1, 0.3)", "AdamW", {"lr": 0.1, "weight_decay": 0.3}),
]

THERE = """
import json, sys, torch
import torch.nn.functional as F
rows, optimizers, start, gradients = json.load(sys.stdin)
out = []
for values, expression in rows:
    names = {n: torch.tensor(v, dtype=getattr(torch, t)) for n, (v, t) in values.items()}
    out.append(eval(expression, {"F": F, "torch": torch, **names}).tolist())
for name, options in optimizers:
    p = torch.tensor(start, requires_grad=True)
    optimizer = getattr(torch.optim, name)([p], **options)
    for g in gradients:
        p.grad = torch.tensor(g)
        optimizer.step()
    out.append(p.tolist())
print(json.dumps(out))
"""


def draw(shape: tuple[int, ...], at: int) -> Any:
    return np.random.default_rng(at).normal(size=shape)


def there(rows: list[Any], optimizers: list[Any], start: Any, gradients: Any) -> list[Any]:
    given = json.dumps([rows, optimizers, start, gradients])
    done = subprocess.run([sys.executable, "-c", THERE], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_beside_torch() -> None:
    start, gradients = draw((4,), 1).astype(np.float32), draw((4, 4), 2).astype(np.float32)
    here, rows = [], []
    for result, shapes, expression, peer in ROWS:
        elem = result.partition("[")[0]
        dtype = {"f32": np.float32, "f64": np.float64}[elem]
        values = {n: draw(s, k).astype(dtype) for k, (n, s) in enumerate(shapes.items())}
        params = ", ".join(f"{n}: {elem}[{', '.join(map(str, s))}]" for n, s in shapes.items())
        here.append(call(f"use nn\nuse optim\nfn f({params}) -> {result} = {expression}\n", *values.values()))
        rows.append(({n: (v.tolist(), f"float{dtype(0).itemsize * 8}") for n, v in values.items()}, peer))
    for step, _, _ in OPTIMIZERS:
        code = f"""
use optim
struct M {{ w: f32[4] }}
fn f(w: f32[4], gs: f32[4, 4]) -> f32[4] {{
  var p = M(w = w)
  var s = optim.zero(p)
  var a = optim.adam(p)
  for row in gs {{
    let g = M(w = row)
    {step}
  }}
  p.w
}}
"""
        here.append(call(code, start, gradients))
    wanted = there(rows, [(name, options) for _, name, options in OPTIMIZERS], start.tolist(), gradients.tolist())
    names = [expression for _, _, expression, _ in ROWS] + [step for step, _, _ in OPTIMIZERS]
    for name, got, expected in zip(names, here, wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6, err_msg=name)

"""A training step of the model of `programs/gpt.tl` (AdamW that lets matrices alone decay), beside PyTorch, plain and compiled, and JAX:
`python benchmarks/gpt_step.py`, for the larger size

    python benchmarks/gpt_step.py --layers 6 --heads 6 --width 384 --context 256 --batch 16 --steps 1 --rounds 5

and with `--parts 8` from parts of the batch, one after the other, which takes less memory.

How it is timed: `beside.py`. All begin with the same parameters and see the same texts, and must end with the same loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from beside import Step, Work, main
from gpt_hashed import LETTERS, Array, Model, hashed, mapped, model, turned_model

RATE, DECAY, BETAS, EPS = 1e-4, 0.1, (0.9, 0.99), 1e-8


def texts(steps: int, batch: int, context: int) -> Array:
    """For each step the letters of a batch: [steps, batch, context + 1]."""
    return np.stack([hashed(200 + s, batch, context + 1).astype(np.int64) % LETTERS for s in range(steps)])


# ---------------------------------------------------------------- the peers


def torch_step(
    threads: int, compiled: bool = False, device: str = "cpu",
    *, steps: int, batch: int, parts: int, layers: int, heads: int, width: int, context: int,
) -> Step:  # fmt: skip
    """Weights as PyTorch keeps them, fused attention and a fused optimizer."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    leaves: list[torch.Tensor] = []

    def take(array: Array) -> torch.nn.Parameter:
        leaves.append(torch.nn.Parameter(torch.from_numpy(array).to(device)))
        return leaves[-1]

    p = mapped(turned_model(layers, width, context), take)
    optimizer = torch.optim.AdamW(
        [
            {"params": [w for w in leaves if w.dim() > 1], "weight_decay": DECAY},
            {"params": [w for w in leaves if w.dim() == 1], "weight_decay": 0.0},
        ], RATE, betas=BETAS, eps=EPS, fused=True,
    )  # fmt: skip
    data = torch.from_numpy(texts(steps, batch, context)).to(device)
    share = batch // parts  # texts at once

    def norm(q: Model, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (width,), q["scale"], q["shift"], 1e-5)

    def linear(q: Model, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, q["w"], q["b"])

    def loss(text: torch.Tensor) -> torch.Tensor:
        x = p["wte"][text[:, :-1]] + p["wpe"]
        for b in p["blocks"]:
            q, k, v = (y.view(share, context, heads, -1).transpose(1, 2) for y in linear(b["qkv"], norm(b["norm1"], x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(b["proj"], y.transpose(1, 2).reshape(share, context, width))
            x = x + linear(b["down"], F.gelu(linear(b["up"], norm(b["norm2"], x))))
        logits = norm(p["norm"], x) @ p["wte"].T
        return F.cross_entropy(logits.view(-1, LETTERS), text[:, 1:].reshape(-1))

    run = torch.compile(loss) if compiled else loss

    def step(i: int) -> object:
        optimizer.zero_grad(set_to_none=True)
        value = torch.tensor(0.0, device=device)
        for part in data[i].chunk(parts):
            mean = run(part) / parts
            mean.backward()
            value += mean.detach()
        optimizer.step()
        return value

    return step


def jax_step(_: int, *, steps: int, batch: int, parts: int, layers: int, heads: int, width: int, context: int) -> Step:
    """The whole step is one compiled function that may reuse the memory of its arguments."""
    import jax
    import jax.numpy as jnp

    each = jax.tree_util.tree_map
    share = batch // parts  # texts at once
    causal = jnp.tril(jnp.ones((context, context), bool))

    def norm(q: Model, x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * q["scale"] + q["shift"]

    def linear(q: Model, x: jax.Array) -> jax.Array:
        return x @ q["w"] + q["b"]

    def loss(p: Model, text: jax.Array) -> jax.Array:
        x = p["wte"][text[:, :-1]] + p["wpe"]
        for b in p["blocks"]:
            qkv = linear(b["qkv"], norm(b["norm1"], x)).reshape(share, context, 3, heads, width // heads)
            q, k, v = qkv.transpose(2, 0, 3, 1, 4)
            score = jnp.where(causal, q @ k.swapaxes(-1, -2) / (width // heads) ** 0.5, -jnp.inf)
            y = (jax.nn.softmax(score) @ v).transpose(0, 2, 1, 3).reshape(share, context, width)
            x = x + linear(b["proj"], y)
            x = x + linear(b["down"], jax.nn.gelu(linear(b["up"], norm(b["norm2"], x)), approximate=False))
        logs = jax.nn.log_softmax(norm(p["norm"], x) @ p["wte"].T)
        return -jnp.take_along_axis(logs, text[:, 1:, None], -1).mean()

    def update(p: Model, mean: Model, square: Model, count: jax.Array, text: jax.Array) -> tuple[Any, ...]:
        def part(sums: Any, text: jax.Array) -> tuple[Any, None]:
            return each(lambda a, b: a + b / parts, sums, jax.value_and_grad(loss)(p, text)), None

        zeros = (jnp.float32(0), each(jnp.zeros_like, p))
        if parts == 1:
            value, grads = jax.value_and_grad(loss)(p, text)
        else:
            (value, grads), _ = jax.lax.scan(part, zeros, text.reshape(parts, share, context + 1))
        count = count + 1
        mean = each(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, mean, grads)
        square = each(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, square, grads)
        unbias = [1 / (1 - beta**count) for beta in BETAS]

        def rule(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            return w - RATE * (m * unbias[0] / (jnp.sqrt(v * unbias[1]) + EPS) + (DECAY * w if w.ndim > 1 else 0))

        return each(rule, p, mean, square), mean, square, count, value

    compiled = jax.jit(update, donate_argnums=(0, 1, 2, 3))
    p = each(jnp.asarray, model(layers, width, context))
    state: list[Any] = [p, each(jnp.zeros_like, p), each(jnp.zeros_like, p), jnp.float32(0)]
    data = [jnp.asarray(text.astype(np.int32)) for text in texts(steps, batch, context)]

    def step(i: int) -> object:
        *state[:], value = jax.block_until_ready(compiled(*state, data[i]))
        return value

    return step


PEERS: dict[str, Callable[..., Step]] = {
    "torch": torch_step,
    "compile": lambda threads, **sizes: torch_step(threads, compiled=True, **sizes),
    "jax": jax_step,
}


def work(sizes: Mapping[str, int]) -> Work:
    """Forward, and twice that backward: the matrices of each layer, the half of each attention that is not masked, and the letters."""
    tokens, width = sizes["batch"] * sizes["context"], sizes["width"]
    layer = 12 * width * width + sizes["context"] * width
    return Work(tokens, 3 * 2 * tokens * (sizes["layers"] * layer + width * LETTERS))


if __name__ == "__main__":
    sizes = {"batch": 12, "parts": 1, "layers": 4, "heads": 4, "width": 128, "context": 64}
    main(__file__, "a training step of a GPT", PEERS, rounds=15, steps=2, work=work, **sizes)

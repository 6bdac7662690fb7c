"""Writing a text letter by letter with the model of `programs/gpt.tl`, one text at a time, with a cache of keys and values, beside
PyTorch and JAX: `python benchmarks/generate.py`, for the larger size

    python benchmarks/generate.py --layers 6 --heads 6 --width 384 --context 256 --steps 1 --rounds 5

How it is timed: `beside.py`; a step is a whole text. All take the likeliest letter each time, and must write the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from beside import Step, Work, main
from gpt_hashed import Model, mapped, model, turned_model


def torch_step(threads: int, *, steps: int, layers: int, heads: int, width: int, context: int) -> Step:
    """Weights as PyTorch keeps them; attention to the part of the cache that is filled."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(threads)

    p = mapped(turned_model(layers, width, context), torch.from_numpy)
    keys, values = torch.zeros(2, layers, heads, context, width // heads)

    def norm(q: Model, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (width,), q["scale"], q["shift"], 1e-5)

    def linear(q: Model, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, q["w"], q["b"])

    def following(token: int, at: int) -> int:
        x = p["wte"][token] + p["wpe"][at]
        for layer, b in enumerate(p["blocks"]):
            q, keys[layer, :, at], values[layer, :, at] = linear(b["qkv"], norm(b["norm1"], x)).view(3, heads, -1)
            y = F.scaled_dot_product_attention(q[:, None], keys[layer, :, : at + 1], values[layer, :, : at + 1])
            x = x + linear(b["proj"], y.reshape(width))
            x = x + linear(b["down"], F.gelu(linear(b["up"], norm(b["norm2"], x))))
        return int(F.linear(norm(p["norm"], x), p["wte"]).argmax())

    def step(_: int) -> object:
        text = [1]
        with torch.inference_mode():
            for at in range(context - 1):
                text.append(following(text[-1], at))
        return np.mean(text[1:])

    return step


def jax_step(_: int, *, steps: int, layers: int, heads: int, width: int, context: int) -> Step:
    """The loop over the letters is compiled too (`lax.scan`); attention to the whole cache, with a mask."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def norm(q: Model, x: jax.Array) -> jax.Array:
        centred = x - x.mean()
        return centred * lax.rsqrt((centred**2).mean() + 1e-5) * q["scale"] + q["shift"]

    def linear(q: Model, x: jax.Array) -> jax.Array:
        return x @ q["w"] + q["b"]

    def following(p: Model, state: tuple[Any, ...]) -> tuple[Any, ...]:
        token, at, keys, values = state
        x = p["wte"][token] + p["wpe"][at]
        for layer, b in enumerate(p["blocks"]):
            q, k, v = linear(b["qkv"], norm(b["norm1"], x)).reshape(3, heads, 1, -1)
            keys = lax.dynamic_update_slice(keys, k[None], (layer, 0, at, 0))
            values = lax.dynamic_update_slice(values, v[None], (layer, 0, at, 0))
            score = jnp.where(jnp.arange(context) <= at, (q @ keys[layer].swapaxes(1, 2))[:, 0] / (width // heads) ** 0.5, -jnp.inf)
            y = (jax.nn.softmax(score)[:, None] @ values[layer]).reshape(width)
            x = x + linear(b["proj"], y)
            x = x + linear(b["down"], jax.nn.gelu(linear(b["up"], norm(b["norm2"], x)), approximate=False))
        return jnp.argmax(p["wte"] @ norm(p["norm"], x)), at + 1, keys, values

    def write(p: Model) -> jax.Array:
        def one(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], jax.Array]:
            state = following(p, state)
            return state, state[0]

        empty = jnp.zeros((layers, heads, context, width // heads))
        return lax.scan(one, (jnp.int32(1), jnp.int32(0), empty, empty), length=context - 1)[1]

    compiled = jax.jit(write)
    p = jax.tree_util.tree_map(jnp.asarray, model(layers, width, context))

    def step(_: int) -> object:
        return np.mean(np.asarray(compiled(p)))

    return step


PEERS: dict[str, Callable[..., Step]] = {"torch": torch_step, "jax": jax_step}


if __name__ == "__main__":
    sizes = {"layers": 4, "heads": 4, "width": 128, "context": 64}
    main(__file__, "the writing of a text", PEERS, rounds=60, steps=1, work=lambda s: Work(s["context"] - 1), **sizes)

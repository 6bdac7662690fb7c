"""A training step of the MNIST network (784-256-10, batch 128, Adam), beside PyTorch and JAX: `python benchmarks/mnist_step.py`.

How it is timed: `beside.py`. Our step gathers its batch from the data, which the peers find ready.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from beside import Step, main

ROUNDS, STEPS, BATCH, HIDDEN = 20, 60, 128, 256


def batches() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((STEPS, BATCH, 784), dtype=np.float32), rng.integers(0, 10, (STEPS, BATCH))


def torch_step(threads: int, device: str = "cpu") -> Step:
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    net = nn.Sequential(nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    xs, ys = (torch.from_numpy(a).to(device) for a in batches())

    def step(i: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(xs[i]), ys[i]).backward()
        optimizer.step()

    return step


def jax_step(_: int) -> Step:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(1)
    shapes = ((0.05, (784, HIDDEN)), (0, HIDDEN), (0.09, (HIDDEN, 10)), (0, 10))
    params = [rng.normal(0, scale, shape).astype(np.float32) for scale, shape in shapes]
    xs, ys = (jnp.asarray(a) for a in batches())

    def loss(p: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        out = jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
        return -jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1).mean()

    def update(state: tuple, x: jax.Array, y: jax.Array) -> tuple:
        p, m, v, t = state
        grads = jax.grad(loss)(p, x, y)
        t = t + 1
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads, strict=True)]
        unbiased = [(a / (1 - 0.9**t), b / (1 - 0.999**t)) for a, b in zip(m, v, strict=True)]
        p = [w - 1e-3 * a / (jnp.sqrt(b) + 1e-8) for w, (a, b) in zip(p, unbiased, strict=True)]
        return p, m, v, t

    compiled = jax.jit(update, donate_argnums=0)
    zeros = [np.zeros_like(w) for w in params]
    box = [(params, zeros, [z.copy() for z in zeros], jnp.float32(0))]

    def step(i: int) -> None:
        box[0] = jax.block_until_ready(compiled(box[0], xs[i], ys[i]))

    return step


PEERS: dict[str, Callable[[int], Step]] = {"torch": torch_step, "jax": jax_step}


if __name__ == "__main__":
    main(__file__, "a training step of the MNIST network", PEERS, ROUNDS, STEPS)

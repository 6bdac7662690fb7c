"""A training step of the convolutional MNIST network (`programs/mnist_cnn.tl`: 1-16-32 channels, batch 64, gradient descent),
beside PyTorch, plain and channels-last, and JAX: `python benchmarks/cnn_step.py`.

How it is timed: `beside.py`. Our step gathers its batch from the data, which the peers find ready.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from beside import Step, main

ROUNDS, STEPS, BATCH, RATE = 10, 15, 64, 1e-2


def batches() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((STEPS, BATCH, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, (STEPS, BATCH))


def torch_step(threads: int, channels_last: bool = False, device: str = "cpu") -> Step:
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1568, 10)).to(device)
    xs, ys = (torch.from_numpy(a).to(device) for a in batches())
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        xs = [x.contiguous(memory_format=torch.channels_last) for x in xs]
    optimizer = torch.optim.SGD(net.parameters(), RATE, fused=True)

    def step(i: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(xs[i]), ys[i]).backward()
        optimizer.step()

    return step


def jax_step(threads: int) -> Step:
    """Channels last, which JAX is faster with. The environment sets the threads."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    rng = np.random.default_rng(1)
    shapes = ((0.3, (3, 3, 1, 16)), (0, 16), (0.1, (3, 3, 16, 32)), (0, 32), (0.03, (1568, 10)), (0, 10))
    params = [rng.normal(0, scale, shape).astype(np.float32) for scale, shape in shapes]
    xs, ys = batches()
    xs, ys = jnp.asarray(xs.transpose(0, 1, 3, 4, 2)), jnp.asarray(ys)

    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        y = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b)
        return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss(p: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        out = layer(layer(x, p[0], p[1]), p[2], p[3]).reshape(BATCH, -1) @ p[4] + p[5]
        return -jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1).mean()

    def update(p: list[jax.Array], x: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [w - RATE * g for w, g in zip(p, jax.grad(loss)(p, x, y), strict=True)]

    compiled = jax.jit(update, donate_argnums=0)
    box = [params]

    def step(i: int) -> None:
        box[0] = jax.block_until_ready(compiled(box[0], xs[i], ys[i]))

    return step


PEERS: dict[str, Callable[[int], Step]] = {
    "torch": torch_step,
    "torch-cl": lambda threads: torch_step(threads, channels_last=True),
    "jax": jax_step,
}


if __name__ == "__main__":
    main(__file__, "a training step of the convolutional MNIST network", PEERS, ROUNDS, STEPS)

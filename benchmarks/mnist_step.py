"""A training step of the MNIST network (784-256-10, batch 128, Adam), beside PyTorch and JAX: `python benchmarks/mnist_step.py`.

Each contestant runs in a process of its own, on one thread, and they take turns. A figure is the median of the medians that the
processes print, in ms, with the least step of all; the ratio is the peer's median by ours. Our step gathers its batch from the
data, which the peers find ready. The peers are left out where they are not installed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROUNDS, STEPS, BATCH, HIDDEN = 20, 60, 128, 256


def batches() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((STEPS, BATCH, 784), dtype=np.float32), rng.integers(0, 10, (STEPS, BATCH))


def torch_step() -> Callable[[int], object]:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    xs, ys = (torch.from_numpy(a) for a in batches())

    def step(i: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(xs[i]), ys[i]).backward()
        optimizer.step()

    return step


def jax_step() -> Callable[[int], object]:
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


PEERS: dict[str, Callable[[], Callable[[int], object]]] = {"torch": torch_step, "jax": jax_step}


def time_peer(name: str) -> None:
    """In a process of its own: print the median and the least time of a step in ms, over rounds, as our program does."""
    step = PEERS[name]()
    for i in range(STEPS):
        step(i)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(STEPS):
            step(i)
        times.append((time.perf_counter() - start) / STEPS * 1e3)
    print(statistics.median(times), min(times))


def main() -> None:
    parser = argparse.ArgumentParser(description="Times a training step of the MNIST network beside PyTorch and JAX.")
    parser.add_argument("--turns", type=int, default=3, help="processes of each contestant (default 3)")
    parser.add_argument("--peer", choices=sorted(PEERS), help="only time this peer, in this process")
    args = parser.parse_args()
    if args.peer:
        return time_peer(args.peer)
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    env = {**os.environ, **one, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    cpu = min(os.sched_getaffinity(0))
    commands = {"tlc": [sys.executable, "-m", "tlc", str(HERE / "mnist_step.tl"), "--rounds", str(ROUNDS), "--steps", str(STEPS)]}
    commands |= {name: [sys.executable, __file__, "--peer", name] for name in PEERS if find_spec(name)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(args.turns):
        for name, command in commands.items():
            pinned = ["taskset", "-c", str(cpu), *command]
            done = subprocess.run(pinned, env=env, capture_output=True, text=True, check=True)
            median, least = map(float, done.stdout.split())
            found[name].append((median, least))
    ours = statistics.median(m for m, _ in found["tlc"])
    print(f"{'':8} {'median':>9} {'least':>9}   median / tlc")
    for name, figures in found.items():
        median, least = statistics.median(m for m, _ in figures), min(b for _, b in figures)
        print(f"{name:8} {median:6.3f} ms {least:6.3f} ms   {median / ours:.2f}")
    return None


if __name__ == "__main__":
    main()

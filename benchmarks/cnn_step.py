"""A training step of the convolutional MNIST network (`programs/mnist_cnn.tl`: 1-16-32 channels, batch 64, gradient descent),
beside PyTorch, plain and channels-last, and JAX: `python benchmarks/cnn_step.py`.

Each contestant runs in a process of its own, and they take turns. A figure is the median of the medians that the processes print, in
ms, with the least step of all; the ratio is the peer's median by ours. Our step gathers its batch from the data, which the peers find
ready. `--python` names an interpreter that has the peers; those that it has not are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROUNDS, STEPS, BATCH, RATE = 10, 15, 64, 1e-2


def batches() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((STEPS, BATCH, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, (STEPS, BATCH))


def torch_step(threads: int, channels_last: bool = False) -> Callable[[int], object]:
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1568, 10))
    xs, ys = (torch.from_numpy(a) for a in batches())
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
        xs = [x.contiguous(memory_format=torch.channels_last) for x in xs]
    optimizer = torch.optim.SGD(net.parameters(), RATE, fused=True)

    def step(i: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(xs[i]), ys[i]).backward()
        optimizer.step()

    return step


def jax_step(threads: int) -> Callable[[int], object]:
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


PEERS: dict[str, Callable[[int], Callable[[int], object]]] = {
    "torch": torch_step,
    "torch-cl": lambda threads: torch_step(threads, channels_last=True),
    "jax": jax_step,
}


def time_peer(name: str, threads: int) -> None:
    """In a process of its own: print the median and the least time of a step in ms, over rounds, as our program does."""
    step = PEERS[name](threads)
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
    parser = argparse.ArgumentParser(description="Times a training step of the convolutional MNIST network beside PyTorch and JAX.")
    parser.add_argument("--turns", type=int, default=3, help="processes of each contestant (default 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each contestant (default 1)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    parser.add_argument("--peer", choices=sorted(PEERS), help="only time this peer, in this process")
    args = parser.parse_args()
    if args.peer:
        return time_peer(args.peer, args.threads)
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(args.threads))
    env = {**os.environ, **counts, "JAX_PLATFORMS": "cpu"}
    if args.threads == 1:
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[: args.threads]))
    program = [str(HERE / "cnn_step.tl"), "--rounds", str(ROUNDS), "--steps", str(STEPS)]
    commands = {"tlc": [sys.executable, "-m", "tlc", "--threads", str(args.threads), *program]}
    commands |= {name: [args.python, __file__, "--peer", name, "--threads", str(args.threads)] for name in PEERS}
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(args.turns):
        for name, command in commands.items():
            done = subprocess.run(["taskset", "-c", cpus, *command], env=env, capture_output=True, text=True, check=False)
            if done.returncode and "No module named" in done.stderr:
                continue  # a peer that is not installed
            done.check_returncode()
            median, least = map(float, done.stdout.split())
            found.setdefault(name, []).append((median, least))
    ours = statistics.median(m for m, _ in found["tlc"])
    print(f"{'':8} {'median':>9} {'least':>9}   median / tlc")
    for name, figures in found.items():
        median, least = statistics.median(m for m, _ in figures), min(b for _, b in figures)
        print(f"{name:8} {median:6.3f} ms {least:6.3f} ms   {median / ours:.2f}")
    return None


if __name__ == "__main__":
    main()

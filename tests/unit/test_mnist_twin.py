"""Twenty steps of `programs/mnist_mlp.tl` beside a twin in NumPy: the same weights, batches and losses.

The twin shares no code with the compiler: it has its own Threefry, its own forward and backward pass and its own Adam, and
reads the shipped digits by itself. It computes in f64 from the f32 weights, so it also bounds our rounding.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
STEPS, BATCH, LR, HIDDEN = 20, 128, 2e-3, 256

PROGRAM = """
use nn
use optim
use data
use ./mnist_mlp as mlp

fn show(name: str, w: f32[n, m]) {
  for i in 0..n { for j in 0..m { print("{name} {w[i, j]}") } }
}

fn main(steps: i64, batch: i64 = 128, lr: f32 = 2e-3, seed: i64 = 0) {
  let train = data.mnist("train")
  let (k1, k2, shuffle) = split(key(seed), 3)
  var m = mlp.Mlp(hidden = nn.init_linear(k1, 784, mlp.HIDDEN), out = nn.init_linear(k2, mlp.HIDDEN, 10))
  var opt = optim.adam(m)
  let order = permutation(fold(shuffle, 0), train.n)
  for i in 0..steps {
    let pick = order[i * batch .. (i + 1) * batch]
    let (l, g) = value_and_grad(mlp.loss)(m, train.images[pick], train.labels[pick])
    (m, opt) = optim.adam_step(m, g, opt, lr)
    print("loss {l}")
  }
  show("hidden.w", m.hidden.w)
  show("out.w", m.out.w)
}
"""

# ---------------------------------------------------------------- random numbers


def rotate(x: np.ndarray, by: int) -> np.ndarray:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def threefry(key: tuple[int, int], counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Threefry2x32 with 20 rounds, on counters of 64 bits; Salmon et al. 2011."""
    ks = [np.uint32(key[0]), np.uint32(key[1]), np.uint32(key[0] ^ key[1] ^ 0x1BD11BDA)]
    counter = counter.astype(np.uint64)
    with np.errstate(over="ignore"):
        x = (counter >> np.uint64(32)).astype(np.uint32) + ks[0]
        y = counter.astype(np.uint32) + ks[1]
        for group in range(5):
            for by in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
                x = x + y
                y = rotate(y, by) ^ x
            x = x + ks[(group + 1) % 3]
            y = y + ks[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def fold_in(key: tuple[int, int], data: int) -> tuple[int, int]:
    x, y = threefry(key, np.array([data]))
    return int(x[0]), int(y[0])


def test_threefry_gives_the_published_vectors() -> None:
    # Random123's kat_vectors, threefry2x32 20
    x, y = threefry((0, 0), np.array([0]))
    assert (int(x[0]), int(y[0])) == (0x6B200159, 0x99BA4EFE)
    x, y = threefry((0x13198A2E, 0x03707344), np.array([0x243F6A8885A308D3]))
    assert (int(x[0]), int(y[0])) == (0xC4923A9C, 0x483DF7A0)


def init_linear(key: tuple[int, int], inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    bound = np.sqrt(np.float32(6.0) / np.float32(inputs))
    bits, _ = threefry(key, np.arange(inputs * outputs))
    u = (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    return (u * (np.float32(2) * bound) - bound).reshape(inputs, outputs).astype(np.float64), np.zeros(outputs)


def permutation(key: tuple[int, int], n: int) -> np.ndarray:
    x, y = threefry(key, np.arange(n))
    bits = ((x >> np.uint32(1)).astype(np.int64) << 32) | y.astype(np.int64)
    order = np.arange(n)
    for i in range(n):
        j = i + int(bits[i]) % (n - i)
        order[i], order[j] = order[j], order[i]
    return order


# ---------------------------------------------------------------- the model


def digits() -> tuple[np.ndarray, np.ndarray]:
    folder = ROOT / "stdlib" / "mnist"
    raw = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 784)
    labels = np.frombuffer(gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return images.astype(np.float64) / 255, labels.astype(np.int64)


def twin() -> tuple[list[float], list[np.ndarray]]:
    root = (0, 0)
    k1, k2, shuffle = (fold_in(root, i) for i in range(3))
    params = [*init_linear(k1, 784, HIDDEN), *init_linear(k2, HIDDEN, 10)]
    mean = [np.zeros_like(p) for p in params]
    variance = [np.zeros_like(p) for p in params]
    images, labels = digits()
    order = permutation(fold_in(shuffle, 0), len(labels))
    losses = []
    for step in range(STEPS):
        pick = order[step * BATCH : (step + 1) * BATCH]
        x, y = images[pick], labels[pick]
        w1, b1, w2, b2 = params
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        shifted = logits - logits.max(1, keepdims=True)
        p = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        losses.append(float(-np.log(p[np.arange(BATCH), y]).mean()))
        g = p.copy()
        g[np.arange(BATCH), y] -= 1
        g /= BATCH
        back = (g @ w2.T) * (hidden > 0)
        grads = [x.T @ back, back.sum(0), hidden.T @ g, g.sum(0)]
        for i, d in enumerate(grads):
            mean[i] = 0.9 * mean[i] + 0.1 * d
            variance[i] = 0.999 * variance[i] + 0.001 * d * d
            m, v = mean[i] / (1 - 0.9 ** (step + 1)), variance[i] / (1 - 0.999 ** (step + 1))
            params[i] = params[i] - LR * m / (np.sqrt(v) + 1e-8)
    return losses, params


def test_twenty_steps_agree_with_numpy(tmp_path: Path) -> None:
    (tmp_path / "mnist_mlp.tl").write_bytes((ROOT / "programs" / "mnist_mlp.tl").read_bytes())
    (tmp_path / "twin.tl").write_text(PROGRAM)
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env.pop("TLC_DATA", None)
    done = subprocess.run(
        [sys.executable, "-m", "tlc", str(tmp_path / "twin.tl"), "--steps", str(STEPS)],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, list[float]] = {}
    for line in io.StringIO(done.stdout):
        name, value = line.split()
        found.setdefault(name, []).append(float(value))
    losses, (w1, _, w2, _) = twin()
    assert len(found["loss"]) == STEPS
    np.testing.assert_allclose(found["loss"], losses, rtol=1e-4)
    for name, want in (("hidden.w", w1), ("out.w", w2)):
        got = np.array(found[name]).reshape(want.shape)
        assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want), name

"""The GPT block of the language's design: its forward pass beside one in NumPy, its gradient beside finite differences of that.

The program is compiled twice: as it stands, in f32, where the differences are those of rounding, and with every `f32` of it and
of the library's `nn` replaced by `f64`, where almost none are left. The twin in NumPy is f64 and shares no code with the compiler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference_random import Key, make_key, normal, normal64, randint, split

from tlc.driver import cli, pipeline

ROOT = Path(__file__).resolve().parents[2]
C, T, L, H, V, BATCH, LENGTH = 8, 6, 2, 2, 11, 3, 5

Array = np.ndarray
Normal = Callable[..., Array]

# ---------------------------------------------------------------- the twin

erf = np.vectorize(math.erf)


def random_norm(k: Key, draw: Normal) -> list[Array]:
    a, b = split(k)
    return [1 + 0.3 * draw(a, C), 0.3 * draw(b, C)]


def random_linear(k: Key, i: int, o: int, draw: Normal) -> list[Array]:
    a, b = split(k)
    return [0.5 * draw(a, i, o), 0.3 * draw(b, o)]


def random_block(k: Key, draw: Normal) -> list[Array]:
    a, b, c, d, e, f = split(k, 6)
    return [
        *random_norm(a, draw), *random_linear(b, C, 3 * C, draw), *random_linear(c, C, C, draw),
        *random_norm(d, draw), *random_linear(e, C, 4 * C, draw), *random_linear(f, 4 * C, C, draw),
    ]  # fmt: skip


def random_gpt(k: Key, draw: Normal) -> list[Array]:
    """The leaves in the order of the fields; those of the blocks have a leading dimension."""
    a, b, c, d = split(k, 4)
    blocks = [random_block(key, draw) for key in split(c, L)]
    return [draw(a, V, C), draw(b, T, C), *(np.stack(leaf) for leaf in zip(*blocks, strict=True)), *random_norm(d, draw)]


def norm(scale: Array, shift: Array, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def forward(model: list[Array], token: Array) -> Array:
    """The logits for texts `token`: [batch, t] to [batch, t, V]."""
    wte, wpe, *blocks, scale, shift = model
    batch, t = token.shape
    x = wte[token] + wpe[:t]
    for one in range(L):
        s1, h1, qkv_w, qkv_b, proj_w, proj_b, s2, h2, up_w, up_b, down_w, down_b = (leaf[one] for leaf in blocks)
        qkv = (norm(s1, h1, x) @ qkv_w + qkv_b).reshape(batch, t, 3, H, C // H).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv
        score = np.where(np.tri(t, dtype=bool), q @ k.swapaxes(-1, -2) / math.sqrt(C // H), -np.inf)
        weight = np.exp(score - score.max(-1, keepdims=True))
        y = weight / weight.sum(-1, keepdims=True) @ v
        x = x + y.transpose(0, 2, 1, 3).reshape(batch, t, C) @ proj_w + proj_b
        up = norm(s2, h2, x) @ up_w + up_b
        x = x + 0.5 * up * (1 + erf(up / math.sqrt(2))) @ down_w + down_b
    return norm(scale, shift, x) @ wte.T


def loss(model: list[Array], token: Array, target: Array) -> float:
    logits = forward(model, token)
    top = logits.max(-1, keepdims=True)
    logs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return -float(np.take_along_axis(logs, target[..., None], -1).mean())


def slope(model: list[Array], leaf: int, place: tuple[int, ...], token: Array, target: Array) -> float:
    """The derivative of the loss by one number, by a central difference."""
    values = []
    for step in (1e-5, -1e-5):
        moved = [*model]
        moved[leaf] = moved[leaf].copy()
        moved[leaf][place] += step
        values.append(loss(moved, token, target))
    return (values[0] - values[1]) / 2e-5


# ---------------------------------------------------------------- the program


def run(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> list[float]:
    """The numbers that the program prints."""
    status = cli.main(arguments)
    out, err = capfd.readouterr()
    assert status == 0, err
    return [float(word) for word in re.findall(r"-?\d\.\d+e[-+]\d+", out)]


def compare(found: list[float], draw: Normal, tolerance: float) -> None:
    """Logits, loss and gradient, as one list, beside the twin's; of each leaf of the gradient, some places."""
    model_key, text_key = split(make_key(0))
    model, text = random_gpt(model_key, draw), randint(text_key, 0, V, BATCH, LENGTH)
    token, target = text[:, :-1], text[:, 1:]
    logits = forward(model, text[:1])[0]
    np.testing.assert_allclose(np.reshape(found[: logits.size], logits.shape), logits, rtol=tolerance, atol=tolerance)
    at = logits.size
    np.testing.assert_allclose(found[at], loss(model, token, target), rtol=tolerance)
    at += 1
    random = np.random.default_rng(0)
    for number, leaf in enumerate(model):
        gradient = np.reshape(found[at : at + leaf.size], leaf.shape)
        at += leaf.size
        for flat in random.choice(leaf.size, min(leaf.size, 10), replace=False):
            place = tuple(map(int, np.unravel_index(flat, leaf.shape)))
            expected = slope(model, number, place, token, target)
            assert gradient[place] == pytest.approx(expected, rel=10 * tolerance, abs=10 * tolerance), f"leaf {number} at {place}"
    assert at == len(found)


def test_in_f32(capfd: pytest.CaptureFixture[str]) -> None:
    """And the bits are the same at every level and with every host, those of the gradient too."""
    ways = [[level, "--host", host, str(ROOT / "tests/programs/gpt_block.tl")] for level in ("-O2", "-O0") for host in pipeline.hosts()]
    found, *others = (run(way, capfd) for way in ways)
    compare(found, normal, 3e-5)
    assert all(other == found for other in others)


@pytest.mark.parametrize("mode", ["-O2", "--interp"])
def test_in_f64(mode: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "tests/programs/gpt_block.tl").read_text().replace("use nn\n", "use ./nn64 as nn\n")
    (tmp_path / "gpt.tl").write_text(text.replace("f32", "f64"))
    (tmp_path / "nn64.tl").write_text((ROOT / "stdlib/nn.tl").read_text().replace("f32", "f64").replace("__", ""))
    compare(run([mode, str(tmp_path / "gpt.tl")], capfd), normal64, 1e-9)

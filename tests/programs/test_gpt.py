"""The transformer of `programs/gpt.tl`: small runs of the program, what it writes, and its model beside twins in NumPy and PyTorch."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlc.driver import cli

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / "programs" / "gpt.tl")
TEXT = "In the beginning was the word, and the word was in a loop, and the loop went round and round.\n" * 8
SMALL = [
    "--layers",
    "1",
    "--heads",
    "2",
    "--width",
    "16",
    "--context",
    "8",
    "--batch",
    "8",
    "--every",
    "20",
    "--steps",
    "40",
    "--lr",
    "0.03",
]

Array = np.ndarray[Any, Any]


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def run(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    """What a command says on standard output and standard error."""
    assert cli.main(list(arguments)) == status, capfd.readouterr().err
    captured = capfd.readouterr()
    return captured.out, captured.err


# ---------------------------------------------------------------- the program


def test_a_run_in_two_parts_ends_as_a_whole_one(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the same bits, on one thread and on two; and the loss falls."""
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    given = [PROGRAM, "--text", text, *SMALL, "--sample", "20"]
    out, _ = run(capfd, "--threads", "1", *given, "--out", whole)
    first, _ = run(capfd, "--threads", "2", *given, "--out", parts, "--steps", "20", "--decay-steps", "40", "--sample", "0")
    second, _ = run(capfd, "--threads", "2", *given, "--out", parts, "--resume")
    assert first + second == out
    assert Path(parts).read_bytes() == Path(whole).read_bytes()
    early, late = (float(part.split()[0]) for part in out.split("held out ")[1:])
    assert late < early < math.log(len(set(TEXT)))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--heads", "3"], "a width of 16 cannot be shared by 3 heads"),
        (["--parts", "3"], "a batch of 8 cannot be cut into 3 parts"),
        (["--temperature", "-1.0"], "the temperature is at least 0"),
        (["--context", "1"], "batch, layers, heads, width and every are at least 1, context 2"),
        (["--context", "500"], "a text of 752 letters is too short for a context of 500"),
        (["--resume"], "--resume goes on with a file: name it with --out"),
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "Z"], '--prompt "Z" has a letter that the text has not'),
        (["--text", "/nowhere/text"], "/nowhere/text"),
        (["--out", "/nowhere/model", "--resume"], "cannot write /nowhere/model: no such file or directory"),
    ],
)
def test_flags_that_cannot_be(flags: list[str], message: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    _, err = run(capfd, "--interp", PROGRAM, "--text", text, *SMALL, *flags, status=1)
    assert message in err


def test_without_the_data_set_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TLC_DATA", raising=False)
    _, err = run(capfd, "--interp", PROGRAM, status=1)
    assert "tlc data get tinyshakespeare" in err


@pytest.mark.slow
def test_the_document_shows_what_the_defaults_give(request: pytest.FixtureRequest, bless: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Some minutes: `python -m pytest -m slow tests/programs/test_gpt.py`."""
    if "slow" not in request.config.getoption("markexpr"):
        pytest.skip("a long training")
    out, _ = run(capfd, PROGRAM)
    losses, sample = out[: out.index("\n\n") + 1], out[out.index("\n\n") + 1 :]
    path = ROOT / "docs" / "gpt.md"
    text = path.read_text(encoding="utf-8")
    wanted = text
    for name, body in (("losses", losses), ("sample", sample)):
        before, block = f"<!-- {name} -->\n```\n", "```\n"
        begin = wanted.index(before) + len(before)
        wanted = wanted[:begin] + body + wanted[wanted.index(block, begin) :]
    if bless:
        path.write_text(wanted, encoding="utf-8")
    assert text == wanted or bless
    assert float(losses.split()[-1]) <= 1.88, "what a model of this size reaches"


# ---------------------------------------------------------------- the model


# The parameters, a text, its logits in several ways, what the model writes, the loss of a batch with its gradient, the same in parts, and the
# losses of a training.
TWIN = """
use io
use optim
use ./gpt

# Norms and biases at random too, so that their gradients are seen.
fn shaken(p: f32, u: f32) -> f32 = p + 0.1 * u

fn main(folder: str, steps: i64 = 100, layers: i64 = 2, heads: i64 = 2, width: i64 = 32, context: i64 = 16, batch: i64 = 4, letters: i64 = 23) {
  let (a, b, c) = split(key(1), 3)
  let made = gpt.init([a, b], letters, context, layers, heads, width)
  let m = shaken(made[0], made[1])
  let text = randint(c, 0, letters, steps, batch, context + 1)
  io.save(m, "{folder}/model")
  io.save(text, "{folder}/text")

  # The first text by the whole, and by what writes: 5 letters at once, then one after the other.
  let line = text[0, 0, ..context]
  let whole = gpt.forward(m, line)
  var (logits, seen) = gpt.read(m, line[..5])
  var parts = for[i < context, v < letters] if i == 4 { logits[v] } else { 0.0 }
  for i in 5..context {
    (logits, seen) = gpt.next(m, seen, line[i], i)
    parts[i] = logits
  }
  io.save((whole, parts[4..]), "{folder}/logits")

  # Beyond the context: the likeliest letters, twice the same at random, and the likeliest as the only ones to choose from.
  let seeds = [1, 2, 2, 3]
  let temperature = [0.0, 0.8, 0.8, 5.0]
  let topk = [0, 0, 0, 1]
  var written = for[r < 4, i < 40] 0
  for r in 0..4 { written[r] = gpt.write(m, key(seeds[r]), line[..5], 40, temperature[r], topk[r]) }
  io.save(written, "{folder}/written")
  io.save(for[i < 10000] gpt.pick(fold(key(4), i), [0.5, -1.0, 2.0, 1.0, 0.6], 2.0, 3), "{folder}/picks")

  io.save(gpt.gradient(m, text[0, :, ..context], text[0, :, 1..], 2), "{folder}/parts")
  var model = m
  var state = optim.adam(m)
  var losses: f32[steps] = zeros(steps)
  for i in 0..steps {
    let (l, g) = value_and_grad(gpt.loss)(model, text[i, :, ..context], text[i, :, 1..])
    if i == 0 { io.save((l, g), "{folder}/gradient") }
    let rate = optim.warmup_cosine(i, 10, steps, 1e-2, least = 1e-3)
    (model, state) = optim.adamw_step(model, optim.clip_norm(g, 1.0), state, rate, decay = 0.1, beta2 = 0.99, only_matrices = true)
    losses[i] = l
  }
  io.save(losses, "{folder}/losses")
}
"""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Array]]:
    """What `TWIN` wrote."""
    return twin(tmp_path_factory.mktemp("gpt"))


def twin(folder: Path, *flags: str) -> dict[str, dict[str, Array]]:
    """What `TWIN` writes: of each file, the tensors by name."""
    shutil.copy(PROGRAM, folder)
    (folder / "twin.tl").write_text(TWIN)
    assert cli.main([str(folder / "twin.tl"), "--folder", str(folder), *flags]) == 0
    return {name: tensors(folder / name) for name in ("model", "text", "logits", "written", "picks", "gradient", "parts", "losses")}


def tensors(path: Path) -> dict[str, Array]:
    """The format safetensors: the length of the header, the header in JSON, the numbers."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    types = {"F32": np.float32, "I64": np.int64}
    out = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = np.frombuffer(data[start + begin : start + end], types[entry["dtype"]]).reshape(entry["shape"])
    return out


class Twin:
    """The model in NumPy, in f64."""

    def __init__(self, leaves: dict[str, Array], heads: int = 2) -> None:
        self.leaves = {name: leaf.astype(np.float64) for name, leaf in leaves.items()}
        self.heads = heads

    def logits(self, token: Array) -> Array:
        m = self.leaves
        t, width = len(token), m["wte"].shape[1]
        x = m["wte"][token] + m["wpe"][:t]
        for layer in range(len(m["blocks.qkv.w"])):
            qkv = self.linear("qkv", layer, self.norm(x, "blocks.norm1", layer))
            q, k, v = qkv.reshape(t, 3, self.heads, width // self.heads).transpose(1, 2, 0, 3)
            weight = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(width // self.heads)) * np.tri(t)
            y = weight / weight.sum(-1, keepdims=True) @ v
            x = x + self.linear("proj", layer, y.transpose(1, 0, 2).reshape(t, width))
            up = self.linear("up", layer, self.norm(x, "blocks.norm2", layer))
            x = x + self.linear("down", layer, up * (1 + np.vectorize(math.erf)(up / math.sqrt(2))) / 2)
        out: Array = self.norm(x, "norm") @ m["wte"].T
        return out

    def norm(self, x: Array, name: str, *layer: int) -> Array:
        scale, shift = (self.leaves[f"{name}.{field}"][layer] for field in ("scale", "shift"))
        centred: Array = x - x.mean(-1, keepdims=True)
        y: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
        return y

    def linear(self, name: str, layer: int, x: Array) -> Array:
        y: Array = x @ self.leaves[f"blocks.{name}.w"][layer] + self.leaves[f"blocks.{name}.b"][layer]
        return y


def test_letters_one_by_one_have_the_logits_of_the_whole(numbers: dict[str, dict[str, Array]]) -> None:
    whole, parts = numbers["logits"]["0"], numbers["logits"]["1"]
    np.testing.assert_allclose(parts, whole[4:], atol=1e-5)
    np.testing.assert_allclose(whole, Twin(numbers["model"]).logits(numbers["text"]["value"][0, 0, :-1]), atol=2e-5)


def test_writing(numbers: dict[str, dict[str, Array]]) -> None:
    """The likeliest letters are the twin's, which reads half of the context again where it is full; the key decides about the others."""
    likeliest, random, again, one = numbers["written"]["value"]
    twin, text, begin = Twin(numbers["model"]), list(numbers["text"]["value"][0, 0, :5]), 0
    for _ in likeliest:
        full = len(text) - begin == 16
        text.append(int(twin.logits(np.array(text[begin:]))[-1].argmax()))
        begin = len(text) - 8 if full else begin
    assert text[5:] == list(likeliest) == list(one)
    assert list(random) == list(again) != list(likeliest)


def test_choices_fall_as_the_softmax_says(numbers: dict[str, dict[str, Array]]) -> None:
    """Of the three likeliest letters, at temperature 2; within four standard deviations."""
    count = np.bincount(numbers["picks"]["value"], minlength=5)
    weight = np.exp(np.array([-np.inf, -np.inf, 2.0, 1.0, 0.6]) / 2.0)
    expected = weight / weight.sum()
    assert (abs(count / 10000 - expected) <= 4 * np.sqrt(expected * (1 - expected) / 10000)).all(), count


def test_a_gradient_in_parts(numbers: dict[str, dict[str, Array]]) -> None:
    """The same numbers, but for rounding."""
    assert numbers["parts"].keys() == numbers["gradient"].keys()
    for name, whole in numbers["gradient"].items():
        assert np.linalg.norm(numbers["parts"][name] - whole) < 1e-5 * np.linalg.norm(whole), name


TORCH = """
import sys
import numpy as np, torch
from torch.nn import functional as F
heads = int(sys.argv[2])
torch.set_num_threads(1)
p = {name: torch.tensor(leaf) for name, leaf in np.load(sys.argv[1]).items()}
text = p.pop("text")
for leaf in p.values():
    leaf.requires_grad_()
width, context = p["wte"].shape[1], p["wpe"].shape[0]

def norm(x, name, *layer):
    scale, shift = (p[f"{name}.{field}"][layer] for field in ("scale", "shift"))
    return F.layer_norm(x, (width,), scale, shift)

def linear(x, name, layer):
    return x @ p[f"blocks.{name}.w"][layer] + p[f"blocks.{name}.b"][layer]

def loss(text):
    x = p["wte"][text[:, :-1]] + p["wpe"]
    for layer in range(len(p["blocks.qkv.w"])):
        q, k, v = (y.unflatten(2, (heads, -1)).transpose(1, 2) for y in linear(norm(x, "blocks.norm1", layer), "qkv", layer).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(y.transpose(1, 2).flatten(2), "proj", layer)
        x = x + linear(F.gelu(linear(norm(x, "blocks.norm2", layer), "up", layer)), "down", layer)
    return F.cross_entropy((norm(x, "norm") @ p["wte"].T).flatten(0, 1), text[:, 1:].flatten())

loss(text[0]).backward()
gradient = {name: leaf.grad.clone() for name, leaf in p.items()}
bare = [leaf for name, leaf in p.items() if not name.endswith((".w", "wte", "wpe"))]
matrices = [leaf for name, leaf in p.items() if name.endswith((".w", "wte", "wpe"))]
groups = [{"params": matrices, "weight_decay": 0.1}, {"params": bare, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))
losses = []
steps = len(text)
for i in range(steps):
    optimizer.zero_grad()
    value = loss(text[i])
    value.backward()
    torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
    done = torch.tensor((i - 10) / (steps - 10))
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * (i + 1) / 10 if i < 10 else float(1e-3 + 9e-3 * 0.5 * (1 + torch.cos(torch.pi * done)))
    optimizer.step()
    losses.append(value.item())
np.savez(sys.argv[1], losses=losses, **gradient)
"""


@pytest.mark.peers
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_gradient_and_training_beside_torch(numbers: dict[str, dict[str, Array]], tmp_path: Path) -> None:
    gradient_beside_torch(numbers, 2, tmp_path)
    training_beside_torch(numbers, 2, tmp_path)


# The sizes that the program has by default.
FULL = ("--layers", "4", "--heads", "4", "--width", "128", "--context", "64", "--batch", "12", "--letters", "65")


@pytest.mark.peers
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_gradient_of_the_whole_size_beside_torch(tmp_path: Path) -> None:
    gradient_beside_torch(twin(tmp_path, *FULL, "--steps", "1"), 4, tmp_path)


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_training_of_the_whole_size_beside_torch(tmp_path: Path) -> None:
    training_beside_torch(twin(tmp_path, *FULL), 4, tmp_path)


def gradient_beside_torch(numbers: dict[str, dict[str, Array]], heads: int, folder: Path) -> None:
    """Every tensor of the gradient to 1e-4 of its norm."""
    gradient, _ = by_torch(numbers, heads, folder)
    assert gradient.keys() == numbers["model"].keys()
    for name, expected in gradient.items():
        assert np.linalg.norm(numbers["gradient"][f"1.{name}"] - expected) < 1e-4 * np.linalg.norm(expected), name


def training_beside_torch(numbers: dict[str, dict[str, Array]], heads: int, folder: Path) -> None:
    """The losses of clipped AdamW with a schedule to 1e-3."""
    _, losses = by_torch(numbers, heads, folder)
    np.testing.assert_allclose(numbers["losses"]["value"], losses, rtol=1e-3)


def by_torch(numbers: dict[str, dict[str, Array]], heads: int, folder: Path) -> tuple[dict[str, Array], Array]:
    """The gradient of the first loss, and the losses, of the same model on the same texts."""
    path = folder / "numbers.npz"
    given: dict[str, Any] = {"text": numbers["text"]["value"], **numbers["model"]}
    np.savez(path, **given)
    subprocess.run([sys.executable, "-c", TORCH, str(path), str(heads)], check=True)
    found = dict(np.load(path))
    losses = found.pop("losses")
    return found, losses

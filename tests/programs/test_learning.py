"""The programs that learn: short trainings give what is right, the same with one thread and with three that claim the smallest pieces."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tlc.backends.llvm import pool
from tlc.driver import cli
from tlc.tensor import emit

Learn = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]

# words that stand among the same words, but never together
ANIMALS, FOOD, COLOURS, THINGS = (
    set(row.split()) for row in ("dog cat horse cow", "bread meat milk apples", "red green blue white", "house car boat door")
)


@pytest.fixture
def learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Learn:
    """Runs a program with flags and gives what it prints."""
    monkeypatch.delenv("TLC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # what is compiled here is for tests; the second run finds it
    monkeypatch.setattr(emit, "GRAIN", 1)
    monkeypatch.setattr(pool, "POOL", pool.pool(1))

    def run(program: str, flags: str, *more: str) -> str:
        found = []
        for threads in "1", "3":
            status = cli.main(["--threads", threads, str(ROOT / f"programs/{program}.tl"), *flags.split(), *more])
            out, err = capfd.readouterr()
            assert status == 0, err
            found.append(out)
        assert found[0] == found[1]
        return found[0]

    return run


def numbers(pattern: str, text: str) -> list[float]:
    return [float(x) for x in re.findall(pattern, text)]


def test_a_neural_ode(learn: Learn) -> None:
    """The first loss is about the squared way of the pendulum from a point to the next; then little of it is left."""
    first, last = numbers(r"loss (\S+)", learn("neural_ode", "--points 20 --steps 201"))
    assert first > 0.1
    assert last < 0.02


def test_a_recurrent_network(learn: Learn) -> None:
    """At first every letter is as likely: log(27). A third of that takes knowledge of what came before."""
    first, *_, last = numbers(r"loss (\S+)", learn("char_rnn", "--steps 100 --batch 8 --length 20 --hidden 32 --sample 40 --lr 0.02"))
    assert first == pytest.approx(3.296, abs=0.3)
    assert last < 1.0


def test_a_variational_autoencoder(learn: Learn) -> None:
    """The loss of the best image that is the same for all, the mean of the sample, is 207 nats."""
    out = learn("vae", "--epochs 1 --batch 128")
    assert numbers(r"test (\S+)", out)[0] < 185.0
    assert len(out.splitlines()) > 8, "a picture follows"


def test_diffusion(learn: Learn) -> None:
    out = learn("diffusion_2d", "--steps 500 --batch 128")
    ((noise, samples),) = re.findall(r"noise (\S+), samples (\S+)", out)
    assert float(samples) < 0.5 * float(noise)
    assert numbers(r"samples: shape (\S+)", out)[0] < 0.1, "all of the shape is made"


def test_word_vectors(learn: Learn, tmp_path: Path) -> None:
    """The nearest three words are the others of a kind."""
    pick = random.Random(0)
    animal, food, colour, thing = map(sorted, (ANIMALS, FOOD, COLOURS, THINGS))
    sentences = [
        f"The {pick.choice(animal)} eats {pick.choice(food)}. A {pick.choice(colour)} {pick.choice(thing)} stands there."
        for _ in range(200)
    ]
    text = tmp_path / "text.txt"
    text.write_text(" ".join(sentences), encoding="utf-8")
    flags = "--least 1 --common 1 --steps 600 --batch 128 --width 8 --lr 0.03 --window 2"
    out = learn("word2vec", flags, "--text", str(text), "--ask", "dog milk blue boat")
    for word, kind in ("dog", ANIMALS), ("milk", FOOD), ("blue", COLOURS), ("boat", THINGS):
        (near,) = re.findall(rf"^{word}: (.*)$", out, re.MULTILINE)
        assert set(near.split()[:3]) == kind - {word}


GRADIENT = """
use ./neural_ode as ode

# where a pendulum is at the end, for the square of its frequency; with a step of 2e-3 and less
fn swing(w: f64) -> f64 = ode.solve(fn(y: f64[2]) => [y[1], -w * sin(y[0]) - 0.15 * y[1]], [1.5f64, 0.0], 3.0, 1e-7)[0]

fn main() {
  let h = 1e-4f64
  print(grad(swing)(4.0), jvp(swing)(4.0, 1.0)[1], (swing(4.0 + h) - swing(4.0 - h)) / (2.0 * h))
}
"""


def test_the_gradient_through_an_adaptive_solver(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Reverse and forward mode beside a central difference, whose error is about 1e-8 and what rejected steps add to it."""
    (tmp_path / "neural_ode.tl").write_bytes((ROOT / "programs/neural_ode.tl").read_bytes())
    path = tmp_path / "main.tl"
    path.write_text(GRADIENT, encoding="utf-8")
    assert cli.main([str(path)]) == 0, capfd.readouterr().err
    backward, forward, difference = map(float, capfd.readouterr().out.split())
    assert backward == pytest.approx(forward, rel=1e-9)
    assert backward == pytest.approx(difference, rel=1e-5)

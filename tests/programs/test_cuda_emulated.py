"""Programs with their tensors on a GPU that is emulated: the kernels of a GPU schedule, interpreted with a look at races, and as loops over
their threads in machine code. All print what the interpreter of SSA prints.

A few of them are run always. All programs of this repository take some minutes: `python -m pytest -m slow tests/programs/test_cuda_emulated.py`.
"""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest
import reference
from cuda_stub import Card
from differential import on_gpu
from test_stops import CODES
from test_stops import FLAGS as STOP_FLAGS

from tlc.backends.cuda import driver, ptx
from tlc.driver import cli, pipeline, stage_texts
from tlc.driver.options import Options
from tlc.driver.request import main_flags
from tlc.frontend.errors import ERRORS
from tlc.frontend.source import Source

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent

# what reaches a kernel in an unusual form; the others of `agreement` differ in the host alone
AGREEMENT = [
    "a_kernel_writes_over_a_reshaped_tensor",
    "a_reduction_inside_of_an_index",
    "a_row_of_what_was_just_made",
    "an_array_of_choices_between_tensors",
    "choices_of_wide_values_by_narrow_comparisons",
    "derivatives_of_gradients_of_loops_that_break",
    "empty_comprehensions_load_nothing",
    "kernels_that_stop_stay_in_order",
    "offsets_near_the_greatest_integer",
    "what_may_stop_is_kept",
]

SCHEDULES = {
    # a tile of rows behind the last one, a depth that is no multiple of a stage, and an epilogue
    "products": """
fn main(m: i64 = 33, n: i64 = 9, k: i64 = 9) {
  let a = for[i < m, p < k] sin(f32(i * 31 + p * 7))
  let b = for[p < k, j < n] cos(f32(p * 13 + j * 5))
  print(a @ b)
  let x = for[q < 2, i < 10, p < 8] f64(q + i * 31 % 17 + p * 7 % 5) / 3.0
  print(sum(for[q < 2, i < 10, j < 10] tanh((sum[p < 8] x[q, i, p] * x[q, j, p]) + f64(i))))
}
""",
    # images times filters: the places of all images are the rows of one product
    "convolution": """
fn main() {
  let x = for[n < 2, c < 3, i < 5, j < 5] sin(f32(n * 31 + c * 7 + i * 3 + j))
  let w = for[o < 10, c < 3, p < 2, q < 2] cos(f32(o * 13 + c * 5 + p - q))
  let y = for[n < 2, o < 10, i < 4, j < 4] sum[c < 3, p < 2, q < 2] x[n, c, i + p, j + q] * w[o, c, p, q]
  print(y)
}
""",
    # rows of sixteen threads: bundles and reductions alone, of every reducer, more and fewer elements than threads
    "rows": """
fn main(n: i64 = 9, m: i64 = 37) {
  let x = for[i < n, j < m] sin(f32(i * 31 + j * 7))
  print(softmax(x * 2.0))
  print(for[i < n] (x[i] - mean(x[i])) / sqrt(mean((x[i] - mean(x[i])) * (x[i] - mean(x[i]))) + 0.00001))
  print(sum(x), max(x), min(x), prod(x * 2.0), any(x > 0.999), all(x < 0.999), argmax(x), sum(for[i < 300] i * i))
  print(for[i < n] max(x[i]), for[j < m] sum[i < n] x[i, j], for[i < n] any(x[i] > 0.99))
  print(softmax(for[j < 3] f16(j)), sum(for[j < 40] bf16(j) / 16.0), sum(for[j < 40] i8(j)))
}
""",
    # rows that are few and long: blocks of threads, some for a part of a row
    "long rows": """
fn main(n: i64 = 2050) {
  let x = for[i < n] sin(f32(i * 7 % 1001))
  print(sum(x), max(x), argmax(x), argmin(for[i < n] if i == 2000 { 0.0 / 0.0 } else { x[i] }), any(x > 2.0), sum(x * x))
  print(argmax(for[i < 33000] i * 31 % 777), sum(for[i < n] i8(i)), for[r < 2] sum(for[i < n] f64(x[i]) * f64(r)))
  let s = softmax(for[r < 2, i < n] x[i] * f32(r + 1))
  print(s[1, 7], sum(s[0]))
  let z = for[r < 3, i < 40] sin(f32(r + i * i))
  print(for[r < 3] argmax(z[r]), argmin(z), argmax(for[i < 33] -1.0 / 0.0))
}
""",
    # additions to the same element keep their order; a last axis that is cut into blocks by itself
    "scatters": """
fn main() {
  let t = for[i < 40] i * 37 % 5
  var g = zeros(5, 6)
  for i in 0..40 { for d in 0..6 { g[t[i], d] += sin(f32(i + d)) * 1000.0 } }
  var h = zeros(5)
  for i in 0..40 { h[t[i]] += exp(f32(i) * 0.3) }
  let u = 4 + argmax(t)
  var many = zeros(u, 4)
  for i in 0..40 { for d in 0..3 { many[t[i] + 1, d] += f32(i + d) / 7.0 } }
  var b = for[a < 9, b < 4] bf16(a - b)
  for a in 0..7 { for i in 0..11 { b[a, t[i] % 4] += bf16(a * i) / 7.0 } }
  print(many, b)
  print(g, h, sum(for[i < 3, j < 300] f32(i * j)))
  print((for[i < 3, j < 300] f32(i) / f32(j + 1))[2, 290])
}
""",
}


# every program of the folder, small: its flags, and whether the interpreter is quick enough to say what it prints (else the CPU does)
TEXT = "the dog and the cat ate meat and bread. a red house by a green car, and a blue boat!\n" * 40
PROGRAMS = {
    "char_rnn": ("--steps 3 --batch 2 --length 6 --hidden 8 --sample 10", True),
    "diffusion_2d": ("--steps 5 --batch 32", False),
    "fannkuch": ("--n 5", True),
    "game_of_life": ("--width 9 --height 6 --generations 17", True),
    "gpt": ("--text TEXT --steps 2 --batch 2 --layers 2 --heads 2 --width 32 --context 16 --sample 20", True),
    "heat": ("--size 8 --steps 12", True),
    "kmeans": ("--points 60", True),
    "layer": ("", True),
    "levenshtein": ("--n 12 --m 9", True),
    "linear_regression": ("--points 64 --steps 30 --seed 7", True),
    "lqr": ("", False),
    "mandelbrot": ("--width 19 --height 7 --limit 20", True),
    "mnist_cnn": ("--epochs 1 --batch 128", False),
    "mnist_mlp": ("--epochs 1 --batch 256", False),
    "nbody": ("--steps 100", True),
    "neural_ode": ("--points 5 --steps 2", True),
    "newton": ("", True),
    "pca": ("--examples 40 --seed 2", True),
    "quicksort": ("--n 40 --seed 9", True),
    "sieve": ("--n 200", True),
    "spectral_norm": ("--n 7", True),
    "spiral": ("--points 20 --steps 3 --seed 1", True),
    "vae": ("--epochs 1 --batch 500", False),
    "word2vec": ("--text TEXT --least 1 --steps 3 --batch 16 --ask dog", True),
}

QUICK = ("kmeans", "layer", "levenshtein", "pca")  # what is run always
CHOICE = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROGRAMS]


def agree(text: str, name: str) -> None:
    (_, first), *rest = on_gpu(text, name)
    assert len(rest) == 2
    for way, outcome in rest:
        assert outcome == first, way


@pytest.mark.parametrize("name", AGREEMENT)
def test_agreement(name: str) -> None:
    agree((HERE / f"agreement/{name}.tl").read_text(encoding="utf-8"), f"{name}.tl")


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    agree(SCHEDULES[name], f"{name}.tl")


ATTENTION = """
fn causal(q: f32[t, d], k: f32[t, d], v: f32[t, e]) -> f32[t, e] =
  softmax(for[i, j] if j <= i { (sum[c] q[i, c] * k[j, c]) / sqrt(f32(d)) } else { -inf }) @ v
fn plain(q: f64[t, d], k: f64[m, d], v: f64[m, e]) -> f64[t, e] =
  softmax(for[i, j] (sum[c] q[i, c] * k[j, c]) / 3.0) @ v
fn near(x: f32[t, d], bias: f32[t]) -> f32[t, d] =
  softmax(for[i, j] if j <= i + 3 { (sum[c] x[i, c] * x[j, c]) + bias[j] } else { -inf }) @ x
fn of_causal(q: f32[b, t, d], k: f32[b, t, d], v: f32[b, t, e], w: f32[b, t, e]) -> f32 = sum(w * causal(q, k, v))
fn of_plain(q: f64[t, d], k: f64[m, d], v: f64[m, e]) -> f64 = sum(plain(q, k, v) * plain(q, k, v))

fn main(t: i64 = 66, m: i64 = 70, d: i64 = 12, e: i64 = 7) {
  let q = for[h < 2, i < t, c < d] sin(f32(h + i * 7 + c))
  let k = for[h < 2, i < t, c < d] cos(f32(h + i * 5 + c * 3))
  let v = for[h < 2, i < t, c < e] sin(f32(h * 3 + i + c * 2))
  let w = for[h < 2, i < t, c < e] cos(f32(h * 3 + i + c * 5))
  let (a, b, c) = grad(of_causal)(q, k, v, w, wrt = (q, k, v))
  print(sum(a * a), sum(b * b), sum(c * c), a[1, 2], b[0, t - 1], c[1, 3])
  let y = for[i < m, c < d] cos(f64(i * 5 + c * 3))
  let (r, s, z) = grad(of_plain)(f64(q[0]), y, for[i < m, c < e] y[i, c] / 3.0, wrt = (q, k, v))
  print(sum(r * r), sum(s * s), sum(z * z), r[t - 1], s[m - 1], z[0])
  let n = 60 + argmax(for[i < 9] f32(i % 7))
  print(near(for[i < n, c < 10] sin(f32(i * 3 + c)), for[i < n] f32(i % 5))[n - 1])
}
"""


def test_attention(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By blocks of rows, forward and backward; the interpreter of kernels would take minutes."""
    path = tmp_path / "attention.tl"
    path.write_text(ATTENTION)
    found = []
    for device in ("cpu", "cuda-emulated"):
        assert cli.main(["--device", device, str(path)]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("program", "flags"), [("linear_regression", {"points": 64, "steps": 30, "seed": 7}), ("kmeans", {"points": 60})]
)
def test_output(program: str, flags: dict[str, float], capfd: pytest.CaptureFixture[str]) -> None:
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    status = cli.main(["--device", "cuda-emulated", str(ROOT / f"programs/{program}.tl"), *words])
    out, err = capfd.readouterr()
    assert (out, status) == (getattr(reference, program)(**flags), 0), err


def test_a_network_learns(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and accuracy are those of the CPU, to the last digit; and it does learn."""
    monkeypatch.setenv("TLC_DATA", "")
    found = []
    for device in ("cpu", "cuda-emulated"):
        assert cli.main(["--device", device, str(ROOT / "programs/mnist_mlp.tl"), "--epochs", "1", "--batch", "256"]) == 0
        found.append(capfd.readouterr().out)
    assert found[0] == found[1]
    assert float(found[0].split("test accuracy")[1].strip().rstrip("%")) > 80


def only_if_slow_is_asked(request: pytest.FixtureRequest) -> None:
    if "slow" not in request.config.getoption("markexpr"):
        pytest.skip("some minutes")


def test_every_program_has_a_row() -> None:
    assert sorted(PROGRAMS) == sorted(p.stem for p in (ROOT / "programs").glob("*.tl"))


@pytest.mark.parametrize("program", CHOICE)
def test_every_program(
    program: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if program not in QUICK:
        only_if_slow_is_asked(request)
    monkeypatch.setenv("TLC_DATA", "")
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    flags, interpreted = PROGRAMS[program]
    found = []
    for way in (["--interp"] if interpreted else ["--device", "cpu"], ["--device", "cuda-emulated", "--verify"]):
        status = cli.main([*way, str(ROOT / f"programs/{program}.tl"), *flags.replace("TEXT", str(text)).split()])
        out, err = capfd.readouterr()
        assert status == 0, err
        found.append(out)
    assert found[0] == found[1] and found[0]


@pytest.mark.skipif(which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("program", CHOICE)
def test_every_program_beside_its_kernels(
    program: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With `--device cuda` and a driver that does everything as late as it can: the host waits wherever it has to."""
    if program not in QUICK:
        only_if_slow_is_asked(request)
    monkeypatch.setenv("TLC_DATA", "")
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    path, words = str(ROOT / f"programs/{program}.tl"), PROGRAMS[program][0].replace("TEXT", str(text)).split()
    front = pipeline.front(Source(path, Path(path).read_text(encoding="utf-8")))
    tensors = stage_texts.tensors_for_gpu(front, Options(flags=main_flags(path, front, words)))
    card = Card(tensors.kernels, tensors.module, tmp_path)
    monkeypatch.setattr(driver, "LIBRARY", str(card.path))
    monkeypatch.setattr(ptx, "compile_unit", lambda unit, sm: [f"sm_{sm}" for _ in unit.functions])
    found = []
    for device in ("cpu", "cuda"):
        status = cli.main(["--device", device, path, *words])
        out, err = capfd.readouterr()
        assert status == 0, err
        found.append(out)
    assert found[0] == found[1] and found[0]
    assert card.launches == card.done


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for folder in ("agreement", "forms") for p in sorted((HERE / folder).glob("*.tl"))], ids=lambda p: p.stem)
def test_every_form(path: Path, request: pytest.FixtureRequest) -> None:
    only_if_slow_is_asked(request)
    agree(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_every_stop(code: str, tmp_path: Path, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> None:
    """The same code, message and place as on the CPU."""
    only_if_slow_is_asked(request)
    path = tmp_path / "x.tl"
    path.write_text(ERRORS[code].bad)
    found = []
    for device in ("cpu", "cuda-emulated"):
        status = cli.main(["--device", device, *STOP_FLAGS.get(code, ()), str(path)])
        found.append((status, *capfd.readouterr()))
    assert found[0] == found[1] and found[0][0] == 1

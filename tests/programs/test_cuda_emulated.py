"""Programs with their tensors on a GPU that is emulated: the kernels of a GPU schedule, interpreted with a look at races, and as loops over
their threads in machine code. All print what the interpreter of SSA prints.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import reference
from differential import on_gpu

from tlc.driver import cli

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
    # additions to the same element keep their order; a last axis that is cut into blocks by itself
    "scatters": """
fn main() {
  let t = for[i < 40] i * 37 % 5
  var g = zeros(5, 6)
  for i in 0..40 { for d in 0..6 { g[t[i], d] += sin(f32(i + d)) * 1000.0 } }
  var h = zeros(5)
  for i in 0..40 { h[t[i]] += exp(f32(i) * 0.3) }
  print(g, h, sum(for[i < 3, j < 300] f32(i * j)))
  print((for[i < 3, j < 300] f32(i) / f32(j + 1))[2, 290])
}
""",
}


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

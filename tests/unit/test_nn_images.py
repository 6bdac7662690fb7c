"""Convolutions and pooling of `stdlib/nn.tl`, and their gradients, beside NumPy loops (and PyTorch, where it is installed)."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from whole_program import both, natively

from tlc.driver import pipeline
from tlc.frontend.source import Source

Array = np.ndarray[Any, Any]


def convolved(x: Array, k: Array, stride: int, padding: int, dilation: int) -> Array:
    """By the definition, one window after the other."""
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    reach = [dilation * (n - 1) for n in k.shape[2:]]
    rows, columns = ((x.shape[d + 1] - reach[d] - 1) // stride + 1 for d in (0, 1))
    out = np.zeros((k.shape[0], rows, columns))
    for i in range(rows):
        for j in range(columns):
            part = x[:, i * stride : i * stride + reach[0] + 1 : dilation, j * stride : j * stride + reach[1] + 1 : dilation]
            out[:, i, j] = (k * part).sum((1, 2, 3))
    return out


def pooled(x: Array, size: int, stride: int, how: Any) -> Array:
    rows, columns = ((n - size) // stride + 1 for n in x.shape)
    return np.array([[how(x[i * stride : i * stride + size, j * stride : j * stride + size]) for j in range(columns)] for i in range(rows)])


def numbers(lines: list[str]) -> Array:
    return np.array(" ".join(lines).replace("[", " ").replace("]", " ").split(), dtype=np.float64)


def grid(*shape: int) -> Array:
    """What the programs below work on."""
    at = np.indices(shape).reshape(len(shape), -1)
    weights = np.array([1.0, 0.7, 1.3, 0.4][: len(shape)])
    return np.sin(weights @ at + 0.5).reshape(shape)


GRID3 = "for[a < {0}, i < {1}, j < {2}] sin(f64(a) + 0.7 * f64(i) + 1.3 * f64(j) + 0.5)"
GRID4 = "for[o < {0}, a < {1}, i < {2}, j < {3}] sin(f64(o) + 0.7 * f64(a) + 1.3 * f64(i) + 0.4 * f64(j) + 0.5)"

CASES = [(1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 2, 1), (2, 4, 3)]


def program(stride: int, padding: int, dilation: int) -> str:
    return f"""
use nn
fn flat(x: f64[a, b, c]) -> f64[a * b * c] = reshape(x, a * b * c)
fn flat4(x: f64[a, b, c, d]) -> f64[a * b * c * d] = reshape(x, a * b * c * d)
fn loss(x: f64[C, h, w], k: f64[O, C, n, m]) -> f64 {{
  let y = nn.convolve2d(x, k, {stride}, {padding}, {dilation})
  0.5 * sum(y * y)
}}
fn main() {{
  let x = {GRID3.format(2, 8, 9)}
  let k = {GRID4.format(3, 2, 3, 2)}
  let y = nn.convolve2d(x, k, {stride}, {padding}, {dilation})
  print(y.shape)
  for v in flat(y) {{ print("{{v:.9f}}") }}
  let (dx, dk) = grad(loss)(x, k, wrt = (x, k))
  for v in flat(dx) {{ print("{{v:.9f}}") }}
  for v in flat4(dk) {{ print("{{v:.9f}}") }}
}}
"""


@pytest.mark.parametrize(("stride", "padding", "dilation"), CASES)
def test_convolve2d(stride: int, padding: int, dilation: int) -> None:
    x, k = grid(2, 8, 9), grid(3, 2, 3, 2)
    lines = natively(pipeline.front(Source("test.tl", program(stride, padding, dilation))))
    expected = convolved(x, k, stride, padding, dilation)
    assert lines[0] == str(expected.shape)
    got = numbers(lines[1:])
    np.testing.assert_allclose(got[: expected.size], expected.ravel(), atol=1e-8)
    # a convolution is linear in each argument, so its gradient is exact by differences of the whole loss
    dx, dk = got[expected.size :][: x.size], got[expected.size + x.size :]
    for gradient, array, is_image in ((dx, x, True), (dk, k, False)):
        for at in range(0, array.size, 5):
            step = np.zeros(array.size)
            step[at] = 1.0
            moved = step.reshape(array.shape)
            change = convolved(moved, k, stride, padding, dilation) if is_image else convolved(x, moved, stride, padding, dilation)
            assert abs((expected * change).sum() - gradient[at]) < 1e-7


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize(("stride", "padding", "dilation"), CASES)
def test_convolve2d_beside_torch(stride: int, padding: int, dilation: int) -> None:
    code = f"""
import json, sys, torch
x, k = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in json.load(sys.stdin))
y = torch.nn.functional.conv2d(x[None], k, stride={stride}, padding={padding}, dilation={dilation})[0]
(0.5 * (y * y).sum()).backward()
print(json.dumps([y.flatten().tolist(), x.grad.flatten().tolist(), k.grad.flatten().tolist()]))
"""
    given = json.dumps([grid(2, 8, 9).tolist(), grid(3, 2, 3, 2).tolist()])
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True)
    expected = np.concatenate(json.loads(done.stdout))
    lines = natively(pipeline.front(Source("test.tl", program(stride, padding, dilation))))
    np.testing.assert_allclose(numbers(lines[1:]), expected, atol=1e-8)


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (2, 3), (3, 1), (8, 8)])
def test_pooling(size: int, stride: int) -> None:
    lines = both(f"""
use nn
fn most(x: f64[h, w]) -> f64 = sum(nn.max_pool2d(x, {size}, {stride}))
fn middle(x: f64[h, w]) -> f64 = sum(nn.avg_pool2d(x, {size}, {stride}))
fn main() {{
  let x = {GRID3.format(1, 8, 9)}
  print(nn.max_pool2d(x[0], {size}, {stride}))
  print(nn.avg_pool2d(x[0], {size}, {stride}))
  print(grad(most)(x[0]))
  print(grad(middle)(x[0]))
}}
""")
    (x,) = grid(1, 8, 9)
    most, middle = np.zeros(x.shape), np.zeros(x.shape)
    rows, columns = ((n - size) // stride + 1 for n in x.shape)
    for i in range(rows):
        for j in range(columns):
            part = (slice(i * stride, i * stride + size), slice(j * stride, j * stride + size))
            middle[part] += 1 / size**2
            best = np.unravel_index(np.argmax(x[part]), (size, size))
            most[part][best] += 1
    expected = [pooled(x, size, stride, np.max), pooled(x, size, stride, np.mean), most, middle]
    np.testing.assert_allclose(numbers(lines), np.concatenate([e.ravel() for e in expected]), atol=1e-7)


def test_layers_lift_over_a_batch_and_groups() -> None:
    """A batch lifts; and kernels in groups with it, as the documentation of `convolve2d` says."""
    lines = both("""
use nn
fn main() {
  let l = nn.init_conv2d(key(0), 4, 6, 3)
  let x: f32[5, 4, 8, 8] = uniform(key(1), 5, 4, 8, 8)
  let y = nn.max_pool2d(relu(nn.conv2d(l, x, stride = 1, padding = 1)))
  print(y.shape)
  print(y[2] == nn.max_pool2d(relu(nn.conv2d(l, x[2], padding = 1))))
  let k: f32[2, 3, 2, 3, 3] = uniform(key(2), 2, 3, 2, 3, 3)
  let z = nn.convolve2d(reshape(x, 5, 2, 2, 8, 8), k, padding = 1)
  print(z.shape)
  print(all[o, i, j] z[3, 1, o, i, j] == nn.convolve2d(x[3, 2..4], k[1], padding = 1)[o, i, j])
  print(abs(l.w[5, 3, 2, 2]) <= sqrt(6.0 / 36.0) and max(abs(l.w)) > 0.3 and max(abs(l.b)) == 0.0)
}
""")
    text = "\n".join(lines)
    assert lines[0] == "(5, 6, 4, 4)" and "(5, 2, 3, 8, 8)" in lines
    assert "false" not in text and lines[-1] == "true"

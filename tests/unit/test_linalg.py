"""`stdlib/linalg.tl` beside NumPy, in native code for f64 and by the interpreter for f32, and what singular matrices answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from whole_program import interpreted, natively

from tlc.driver import pipeline
from tlc.frontend.source import Source

Array = np.ndarray[Any, Any]
N, M = 7, 11


def wave(rows: int, columns: int) -> Array:
    """What the program below works on."""
    i, j = np.indices((rows, columns)).astype(np.float64)
    return np.sin(2.3 * i * i + 1.7 * j * j + 0.9 * i * j + 0.4)


PROGRAM = """
use linalg
fn wave(n: i64, m: i64) -> T[n, m] =
  for[i < n, j < m] T(sin(2.3f64 * f64(i * i) + 1.7f64 * f64(j * j) + 0.9f64 * f64(i * j) + 0.4f64))
fn show(name: str, x: T[n]) {
  for v in x { print("{name} {v}") }
}
fn main() {
  let a = wave(N, N)
  let b = wave(M, N)
  let s = a @ a.T + eye(N)
  show("solve", linalg.solve(a, b[0]))
  show("batch", reshape(linalg.solve(a, b), -1))
  show("columns", reshape(linalg.solve_matrix(a, b.T), -1))
  show("inverse", reshape(linalg.inverse(a), -1))
  show("det", [linalg.det(a)])
  show("slogdet", [linalg.slogdet(a)[0], linalg.slogdet(a)[1]])
  show("cholesky", reshape(linalg.cholesky(s), -1))
  let (q, r) = linalg.qr(b)
  show("orthonormal", reshape(q.T @ q - eye(N), -1))
  show("qr", reshape(q @ r - b, -1))
  show("triangle", reshape(r - triu(r), -1))
  show("lstsq", linalg.lstsq(b, b[:, 0] * b[:, 1]))
  let (values, vectors) = linalg.eigh(s)
  show("values", values)
  show("vectors", reshape(s @ vectors - vectors * values, -1))
  show("unit", reshape(vectors.T @ vectors - eye(N), -1))
  let (u, d, vt) = linalg.svd(b)
  show("singular", d)
  show("svd", reshape((u * d) @ vt - b, -1))
  show("sides", concat(reshape(u.T @ u - eye(N), -1), reshape(vt @ vt.T - eye(N), -1)))
  show("power", reshape(linalg.matrix_power(a, 6), -1))
  show("kron", reshape(linalg.kron(a, b), -1))
}
"""


@pytest.mark.parametrize("elem", ["f64", "f32"])
def test_beside_numpy(elem: str) -> None:
    text = PROGRAM.replace("T(", f"{elem}(").replace("T[", f"{elem}[").replace("N", str(N)).replace("M", str(M))
    program = pipeline.front(Source("test.tl", text))
    lines = natively(program, level=1) if elem == "f64" else interpreted(program)
    found: dict[str, Array] = {}
    for line in lines:
        name, value = line.split()
        found[name] = np.append(found.get(name, np.zeros(0)), float(value))
    a, b = wave(N, N), wave(M, N)
    s = a @ a.T + np.eye(N)
    wanted: dict[str, Any] = {
        "solve": np.linalg.solve(a, b[0]),
        "batch": np.linalg.solve(a, b.T).T,
        "columns": np.linalg.solve(a, b.T),
        "inverse": np.linalg.inv(a),
        "det": np.linalg.det(a),
        "slogdet": np.array(np.linalg.slogdet(a)),
        "cholesky": np.linalg.cholesky(s),
        "lstsq": np.linalg.lstsq(b, b[:, 0] * b[:, 1], rcond=None)[0],
        "values": np.linalg.eigvalsh(s),
        "singular": np.linalg.svd(b, compute_uv=False),
        "power": np.linalg.matrix_power(a, 6),
        "kron": np.kron(a, b),
    }
    close = 1e-11 if elem == "f64" else 1e-3
    for name, got in found.items():
        expected = np.ravel(wanted.get(name, np.zeros_like(got)))
        np.testing.assert_allclose(got, expected, atol=close * max(1.0, np.abs(expected).max()), rtol=0, err_msg=name)
    assert set(wanted) < set(found)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("linalg.solve([[1.0, 2.0], [2.0, 4.0]], [1.0, 1.0])", "the matrix is singular: its diagonal has a 0 at 1"),
        ("linalg.inverse([[0.0, 0.0], [0.0, 0.0]])", "the matrix is singular: its diagonal has a 0 at 1"),
        ("linalg.cholesky([[1.0, 2.0], [2.0, 1.0]])", "the matrix is not positive definite: cholesky finds the square -3.0 at 1"),
        ("linalg.qr([[1.0, 2.0]])", "qr takes a matrix with as many rows as columns or more, found 1 rows and 2 columns"),
    ],
)
def test_what_cannot_be(expression: str, message: str) -> None:
    assert interpreted(pipeline.front(Source("test.tl", f"use linalg\nfn main() {{ print({expression}) }}\n"))) == [message]

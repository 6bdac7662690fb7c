"""Kernels: the text reads back, the verifier refuses what its docstring forbids, the interpreter runs loops as written."""

from __future__ import annotations

import numpy as np
import pytest

from tlc.frontend.diagnostics import CompileError, InternalError
from tlc.tensor.kernel.interp import launch, run
from tlc.tensor.kernel.text import parse_kernel, print_kernel
from tlc.tensor.kernel.verify import verify

ROW_SUM = """\
kernel row_sum(y: out f32[n], x: f32[n, 20], n: i64) {
  note "sum over k: sixteen \\"lanes\\""
  for i in 0..n {
    local acc: f32[16]
    vector<16> l in 0..16 {
      acc[l] = 0.0f32
    }
    vector<16> l1 in 0..16 {
      acc[l1] = acc[l1] + x[i, l1]
    }
    vector<16> l2 in 0..20 - 16 {
      acc[l2] = acc[l2] + x[i, 16 + l2]
    }
    unroll s in 0..8 {
      acc[s] = acc[s] + acc[s + 8]
    }
    let half = acc[0] + acc[4] + (acc[2] + acc[6])
    if n > 0 and not(false) {
      y[i] = half + (acc[1] + acc[5] + (acc[3] + acc[7]))
    } else {
      y[i] = -inff32
    }
  }
}
""".replace("n > 0 and not(false)", "(n > 0) & not(false)")

PARALLEL = """\
kernel halves(n: i64, y: out f64[n], x: f64[n]) {
  parallel(n * 8) p in 0..n by 2 {
    y[p] = x[p] * 0.5f64
  }
}
""".replace("n: i64, y: out f64[n]", "y: out f64[n], n: i64")

EVERYTHING = """\
kernel all(y: out f64[2], z: out i64[], x: u8[3], s: f64, k: key) alias(0, 0) can_fail {
  let a = f64(x[2] - 255u8) * -1.5f64
  let b = bitcast:i64(a + s)
  let c = select(a < s, max(a, s), fma(a, s, nanf64))
  let d = key_hi:u32(k) ^ 4294967295u32 >> 3u32
  for p in 0..2 by 2 {
    y[p + 1] = @"f[i64] of \\"x\\"":f64(x, c, 2 * (p - -1))
  }
  unroll u in 0..1 {
    z[] = b // 7 + i64(d)
  }
}
""".replace("alias(0, 0) ", "")


@pytest.mark.parametrize("text", [ROW_SUM, PARALLEL, EVERYTHING])
def test_text_reads_back(text: str) -> None:
    kernel = parse_kernel(text)
    assert print_kernel(kernel) == text
    assert parse_kernel(print_kernel(kernel)) == kernel
    verify(kernel)


def test_runs() -> None:
    x = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    (y,) = launch(parse_kernel(ROW_SUM), [3, x, 3])
    acc = x[:, :16].copy()
    acc[:, :4] += x[:, 16:]
    acc = acc[:, :8] + acc[:, 8:]
    acc = acc[:, :4] + acc[:, 4:]
    acc = acc[:, :2] + acc[:, 2:]
    np.testing.assert_array_equal(y, acc[:, 0] + acc[:, 1])


def test_rank_0_output_is_a_scalar() -> None:
    y, z = launch(parse_kernel(EVERYTHING), [2, np.array([1, 2, 3], np.uint8), 1.0, 5 << 32], lambda f, a: a[0].sum() + a[2])
    assert isinstance(z, np.int64)
    assert y[1] == 6 + 2


def test_lanes_that_depend_on_each_other_run_in_order() -> None:
    text = "kernel k(y: out i64[4]) { y[0] = 1 vector<4> l in 0..3 { y[l + 1] = y[l] * 2 } }"
    (y,) = launch(parse_kernel(text), [4])
    assert y.tolist() == [1, 2, 4, 8]


def test_views_have_other_shapes() -> None:
    out = np.zeros(6)
    text = "kernel k(y: out f64[2, 3], x: f64[3, 2]) { for i in 0..2 { for j in 0..3 { y[i, j] = x[j, i] } } }"
    run(parse_kernel(text), [out], [np.arange(6.0)])
    assert out.tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[i] = x[0]", "`i` is not defined"),
        ("let i = 0 let i = 1", "bound twice"),
        ("y[0] = 1", "a i64 is stored"),
        ("x[0] = x[1]", "not an output"),
        ("y[0] = x[0, 1]", "has rank 1 and 2 indices"),
        ("y[0] = x[f64(1)]", "is not an i64"),
        ("y[0] = x[0] & x[1]", "does not take a f64"),
        ("y[0] = exp(x[0])", "not expanded"),
        ("local a: f64[4] a[i64(x[0])] = 0.0f64", "loads"),
        ("unroll i in 0..n { }", "not constant"),
        ("vector<4> i in 0..8 { }", "more than its width"),
        ("vector<4> i in 0..4 { for j in 0..2 { } }", "stands in a vector loop"),
        ("local a: f64[0]", "not a positive constant"),
        ("for i in 0..n { parallel(8) j in 0..n { } }", "stands in a loop"),
        ("local a: f64[1] parallel(8) j in 0..n { a[0] = 1.0f64 }", "not in scope"),
    ],
)
def test_verifier_refuses(body: str, message: str) -> None:
    with pytest.raises((InternalError, CompileError), match=message):
        verify(parse_kernel(f"kernel k(y: out f64[n], x: f64[n], n: i64) {{ {body} }}"), expanded=True)


def test_an_access_out_of_range_is_found() -> None:
    with pytest.raises(InternalError, match="out of range"):
        launch(parse_kernel("kernel k(y: out f64[2], x: f64[2]) { vector<4> i in 0..2 { y[i] = x[i + 1] } }"), [2, np.zeros(2)])

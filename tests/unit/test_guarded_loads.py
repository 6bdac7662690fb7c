"""Guarded loads: padding, rims and strides stay whole-array code and read nothing where their condition does not hold."""

from __future__ import annotations

import numpy as np
import pytest
from c_run import Ways, needs_compiler
from tensor_run import F32, compare, function, tensor
from test_llvm_kernel import compare as natively_equal
from whole_program import both, stage

from tlc.ssa.builder import Builder
from tlc.ssa.ir import I64, Module, Value
from tlc.tensor.kernel.text import parse_kernel, print_kernels

PICK = """
fn pick(x: f32[h, w], r: i64, c: i64) -> f32 = if r >= 0 and r < h and c >= 0 and c < w { x[r, c] } else { 0.0 }
"""

PAD = """
fn pad(x: f32[n]) -> f32[n + 2] = for[i < n + 2] if i >= 1 and i <= n { x[i - 1] } else { 0.0 }
fn main(n: i64 = 5) {
  let x = for[i < n] f32(i) + 1.0
  print(sum(x))
  print(pad(x))
}
"""


def kernels(text: str) -> str:
    return print_kernels(stage("kernels", text).kernels)


def test_padding_is_a_vector_load_with_a_condition() -> None:
    text = kernels(PAD.replace("print(sum(x))", "print(x)"))
    assert "[l0 - 1 if (l0 >= 1) & (l0 <= 5)]" in text
    assert '@"' not in text  # no function is applied to each element


@pytest.mark.parametrize("n", [5, 0, 1, 70])
def test_padding(n: int) -> None:
    x = [0.0, *np.arange(1.0, n + 1), 0.0]
    assert "".join(both(PAD, {"n": n})[1:]).strip("[ ]").split() == [f"{v:.0f}." for v in x]


@pytest.mark.parametrize(("n", "m"), [(5, 40), (0, 7), (7, 0), (1, 1), (33, 9)])
def test_a_convolution_of_equal_size(n: int, m: int) -> None:
    """A rim in both dimensions, of sizes that only the run knows too; the sum of products stays one chain."""
    text = PICK + """
fn conv(x: f32[h, w], k: f32[3, 3]) -> f32[h, w] = for[i < h, j < w] sum[p, q] k[p, q] * pick(x, i + p - 1, j + q - 1)
fn main(n: i64 = 5, m: i64 = 40) {
  var h = 0
  while h < n { h += 1 }
  let x = for[i < h, j < m] f32(i * 10 + j) * 0.37
  print(sum(x))
  print(sum(conv(x, for[p < 3, q < 3] f32(p) - 0.7 * f32(q))))
  print(conv(x, for[p < 3, q < 3] f32(p) - 0.7 * f32(q)))
}
"""
    both(text, {"n": n, "m": m})
    assert "sum" not in kernels(text).split("product", 1)[1].split("{", 1)[0] and "fma" in kernels(text)


def test_the_other_side_may_be_anything() -> None:
    """What is no zero stays a choice; a zero on the true side is a guard of the opposite; one guard in another are both."""
    lines = both("""
fn main(n: i64 = 6) {
  let x = for[i < n] f32(i) + 1.0
  print(sum(x))
  print(for[i < 8] if i < n { x[i] * 2.0 } else { -1.0 })
  print(for[i < 8] if i >= n { 0.0 } else { x[i] })
  print(for[i < 8] if i < n { if i > 1 { x[i] - x[i - 2] } else { x[i] } } else { -0.0 })
  print(for[i < 4] if 2 * i < n and i % 2 == 0 { x[2 * i] } else { 0.0 })
  print(for[i < 8] if i >= 1 and i <= n { i64(x[i - 1]) } else { 7 })
  print(for[i < 8] i < n and x[i] > 2.0)
}
""")
    assert lines[1:] == [
        "[ 2.  4.  6.  8. 10. 12. -1. -1.]",
        "[1. 2. 3. 4. 5. 6. 0. 0.]",
        "[ 1.  2.  2.  2.  2.  2. -0. -0.]",
        "[1. 0. 5. 0.]",
        "[7 1 2 3 4 5 6 7]",
        "[false false  true  true  true  true false false]",
    ]


def test_a_check_that_may_fail_stays() -> None:
    lines = both("""
fn main(n: i64 = 6) {
  let x = for[i < n] f32(i) + 1.0
  print(sum(x))
  print(for[i < 8] if i > 1 { x[i] } else { 0.0 })
}
""")
    assert "index 6 is out of range for a dimension of 6" in lines[-1]


def shifted(by: int) -> Module:
    """y[i, j] = x[i + by, j - by] where that exists."""

    def body(b: Builder, x: Value, n: Value, m: Value) -> list[Value]:
        def element(b: Builder, i: Value, j: Value) -> Value:
            r, c = b.op("add", i, b.i64(by)), b.op("sub", j, b.i64(by))
            bounds = [b.op("ge", r, b.i64(0)), b.op("lt", r, b.dim(x, 0)), b.op("ge", c, b.i64(0)), b.op("lt", c, b.dim(x, 1))]
            holds = bounds[0]
            for other in bounds[1:]:
                holds = b.op("and", holds, other)
            return b.op("mul", b.index_if(holds, x, r, c), b.const(3.0, F32))

        return [b.tabulate([n, m], element)]

    return function([tensor(2), I64, I64], [tensor(2)], body)


@pytest.mark.parametrize("by", [0, 1, -3])
@pytest.mark.parametrize("shape", [(4, 4), (0, 3), (5, 0), (3, 37)])
def test_bits_of_every_form(by: int, shape: tuple[int, int]) -> None:
    """SSA, graph and kernel say the same, and their texts are read back."""
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    compare(shifted(by), x, np.int64(6), np.int64(40))


def test_loads_a_few_elements_apart() -> None:
    """Every second element, windows that overlap, mirrored rows and doubled elements are vector loads and a shuffle; tails of every length."""
    both("""
fn main(n: i64 = 37) {
  let x = for[i < n, j < 2 * n] f32(i * 100 + j) * 0.25
  print(sum(x))
  print(for[i < n, j < n] x[i, 2 * j])
  print(for[i < n, j < n - 1] max[p < 3] x[i, 2 * j + p])
  print(for[i < 3, j < n - 1] argmax[p < 2, q < 3] x[i + p, 2 * j + q] * f32(1 - p))
  print(for[i < n - 1, j < n - 2] mean[p < 2, q < 2] x[i + p, 3 * j // 2 + q])
  print(for[i < 2, j < 2 * n] x[i, 2 * n - 1 - j])
  print(for[i < 2 * n, j < 4 * n] if i % 2 == j % 2 { x[i // 2, j // 2] } else { -1.0 })
  print(sum[i, j < 2 * n] x[i, j // 2 * 2 + 1 - j % 2] * 0.5)
  print(for[j < n] sum[i < 16, k < 32] x[i, k] * f32(j))
  print(for[j < 10] min[p < 2] x[p, j * 4 + p])
}
""")
    for n in (1, 4, 20):
        both("""
fn main(n: i64 = 37) {
  var m = 0
  while m < n { m += 1 }
  let x = for[i < m, j < 2 * m] f32(i * 100 + j) * 0.25
  print(sum(x))
  print(for[i < m, j < m] x[i, 2 * j])
  print(for[i < m, j < m] max[p < 2] x[i, 2 * j + p])
  print(for[i < m, j < 4 * m] x[i, j // 2])
}
""", {"n": n})


def test_windows_that_partly_exist() -> None:
    """Guards that are known for each lane of a vector: no element beyond the tensor is read, and LLVM 22 once stopped at such gathers."""
    both(PICK.replace("f32", "f64") + """
fn main(n: i64 = 4) {
  let x = for[i < n, j < 5] sin(f64(i) * 1.3 + f64(j))
  print(sum(x))
  print(for[i < 1, j < 4] max[p < 3, q < 3] (pick(x, i + p + 3, 2 * j + q + 1) * pick(x, i + q - 2, j) + 0.01 * f64(p + q)))
  print(for[i < 2, j < 7] min[p < 2, q < 4] pick(x, i + p - 1, 2 * j - q - 1))
  print(for[i < 2, j < 19] sum[p < 2, q < 2] pick(x, j // 3, j - 5 * q) * pick(x, i - p, 9 - 2 * j))
}
""")


EVERY_GUARD = """
kernel guards(y: out f32[6, 37], z: out i8[37], x: f32[n], i: i64[37], b: i8[7], n: i64, m: i64) {
  for r in 0..6 {
    for j in 0..37 by 16 {
      vector<16> l in 0..min(37 - j, 16) {
        let same = x[r - 2 if (r >= 2) & (r < m)]
        let beside = x[j + l - 3 if (j + l >= 3) & (j + l - 3 < m) & (r < m)]
        let apart = x[2 * (j + l) - 9 if (2 * (j + l) >= 9) & (2 * (j + l) - 9 < n)]
        let anywhere = x[i[j + l] if (i[j + l] < n) & (n > 0)]
        let one = x[r if (j + l < 20) & (r < n)]
        y[r, j + l] = same + beside * apart - anywhere + one
      }
    }
  }
  vector<8> k in 0..7 { z[k] = b[k if k != 3] }
  for t in 7..37 { z[t] = b[t % 9 if t % 9 < 7] }
}
"""


@pytest.mark.parametrize("n", [0, 5, 60])
def test_every_way_of_loading(n: int) -> None:
    """One element, elements side by side, apart and anywhere, under conditions that hold for all lanes or for some: the interpreter's bits."""
    x = np.random.default_rng(3).standard_normal(n).astype(np.float32)
    i = np.random.default_rng(4).integers(0, 100, 37)
    b = np.arange(-3, 4, dtype=np.int8)
    natively_equal(EVERY_GUARD, [(6, 37), (37,)], [x, i, b, n, min(n, 40)])


@needs_compiler
def test_guards_in_c() -> None:
    kernel = parse_kernel(EVERY_GUARD)
    ways = Ways({"guards": kernel})
    x = np.random.default_rng(3).standard_normal(60).astype(np.float32)
    i = np.random.default_rng(4).integers(0, 100, 37)
    outputs = [np.zeros((6, 37), np.float32), np.zeros(37, np.int8)]
    ways.launch("guards", outputs, [x, i, np.arange(-3, 4, dtype=np.int8), np.int64(60), np.int64(40)])
    assert ways.compared == 1

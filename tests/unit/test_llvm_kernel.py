"""Printed kernels against the interpreter of kernels, bit for bit, and what the text of some must and must not hold."""

from __future__ import annotations

import ctypes
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from tlc.backends.llvm import jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.runtime.native import Context
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.ir import Buffer, Kernel
from tlc.tensor.kernel.text import parse_kernel
from tlc.tensor.kernel.verify import verify

Array = np.ndarray[Any, Any]
_C = {Elem.I64: ctypes.c_int64, Elem.F32: ctypes.c_float, Elem.F64: ctypes.c_double, Elem.I32: ctypes.c_int32, Elem.BOOL: ctypes.c_bool}


def natively(kernel: Kernel, outputs: list[Array], inputs: list[Any], threads: int = 1) -> None:
    loaded = jit.load(jit.compile_objects([(print_kernel(kernel), jit.Level.KERNEL)]).values())
    context = Context(threads=threads)
    types: list[Any] = [ctypes.c_void_p] * (1 + len(outputs))
    values: list[Any] = [ctypes.addressof(context), *(o.ctypes.data for o in outputs)]
    for p, v in zip(kernel.inputs, inputs, strict=True):
        types.append(ctypes.c_void_p if isinstance(p, Buffer) else _C[p.elem])
        values.append(v.ctypes.data if isinstance(p, Buffer) else v)
    assert ctypes.CFUNCTYPE(ctypes.c_int32, *types)(loaded.address(f"k.{kernel.name}"))(*values) == 0
    if context.workers:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address("tlc.disband"))(ctypes.addressof(context))


def compare(text: str, shapes: list[tuple[int, ...]], inputs: list[Any], lawful: bool = True) -> None:
    """Both give the same bits, and neither touches what lies behind an output."""
    kernel = parse_kernel(text)
    if lawful:
        verify(kernel)
    found = []
    for way in (run, natively, partial(natively, threads=3)):
        cells = [np.full(int(np.prod(s)) + 64, 77).astype(DTYPES[b.elem]) for s, b in zip(shapes, kernel.outputs, strict=True)]
        outputs = [c[: c.size - 64].reshape(s) for c, s in zip(cells, shapes, strict=True)]
        way(kernel, outputs, inputs)  # type: ignore[operator]
        found.append(cells)
    for a, *others in zip(*found, strict=True):
        for b in others:
            assert a.tobytes() == b.tobytes(), f"{print_kernel(kernel)}\n{a[:-64]}\n{b[:-64]}"


def reals(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


MATMUL = """
kernel matmul(y: out f32[n, m], a: f32[n, k], b: f32[k, m], n: i64, k: i64, m: i64) {
  for j in 0..m by 16 {
    let c = min(m - j, 16)
    for i in 0..n by 3 {
      local acc: f32[3, 16]
      vector<16> l in 0..16 { unroll r in 0..3 { acc[r, l] = 0.0f32 } }
      for p in 0..k {
        vector<16> l1 in 0..c { unroll r1 in 0..3 { acc[r1, l1] = fma(a[i + r1, p], b[p, j + l1], acc[r1, l1]) } }
      }
      vector<16> l2 in 0..c { unroll r2 in 0..3 { y[i + r2, j + l2] = acc[r2, l2] } }
    }
  }
}
"""


@pytest.mark.parametrize("m", [0, 1, 15, 16, 33])
def test_a_tile_with_a_tail(m: int) -> None:
    compare(MATMUL, [(6, m)], [reals(1, 6, 5), reals(2, 5, m), 6, 5, m])


PARALLEL = """
kernel rows(y: out f32[n, m], x: f32[n, m], n: i64, m: i64) {
  let half = 0.5f32 * x[0, 0]
  if n > 0 {
    let first = n - n + 1
    parallel(3000000) i in first..n by 2 {
      for j in 0..m by 16 {
        let c = min(m - j, 16)
        vector<16> l in 0..c { y[i, j + l] = x[i, j + l] * half }
      }
    }
    parallel(WORK) i1 in 0..n by 2 { for j1 in 0..m { y[i1, j1] = f32(i1) - half } }
  }
}
"""


@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize("work", ["m - m", "1500000", "700000 * m"])
def test_parallel_loops(n: int, work: str) -> None:
    compare(PARALLEL.replace("WORK", work), [(n, 21)], [reals(1, n, 21), n, 21])


def test_accumulators_are_registers_and_only_the_tail_is_masked() -> None:
    text = jit.optimized_text(print_kernel(parse_kernel(MATMUL)), jit.Level.KERNEL)
    assert "alloca" not in text
    body = text[: text.index("\ndeclare")]
    full, tail = body[: body.index("masked")], body[body.index("masked") :]
    assert full.count("call <16 x float> @llvm.fma.v16f32") == tail.count("call <16 x float> @llvm.fma.v16f32") == 3
    assert full.count("load <16 x float>") == 1, "the vector of b is loaded once for all rows"
    assert "select" not in tail, "what lanes beyond the end accumulate is never read"


def test_lanes_that_come_back_keep_what_they_had() -> None:
    text = """
kernel waves(y: out f32[n, 8], x: f32[n, 8], n: i64) {
  for j in 0..n { vector<8> z in 0..8 { y[j, z] = 0.0f32 } }
  local acc: f32[8]
  vector<8> l in 0..8 { acc[l] = 0.0f32 }
  for i in 0..n {
    let c = select(i % 2 == 1, 3, 8)
    vector<8> l1 in 0..c { acc[l1] = acc[l1] + x[i, l1] y[i, l1] = acc[l1] }
  }
}"""
    compare(text, [(5, 8)], [reals(20, 5, 8), 5])


SUM = """
kernel row_sum(y: out f32[n], x: f32[n, m], n: i64, m: i64) {
  let full = m // 16 * 16
  for i in 0..n {
    local acc: f32[16]
    vector<16> l in 0..16 { acc[l] = 0.0f32 }
    for k in 0..full by 16 { vector<16> l1 in 0..16 { acc[l1] = acc[l1] + x[i, k + l1] } }
    let rest = m - full
    vector<16> l2 in 0..rest { acc[l2] = acc[l2] + x[i, full + l2] }
    vector<8> h in 0..8 { acc[h] = acc[h] + acc[h + 8] }
    vector<4> h1 in 0..4 { acc[h1] = acc[h1] + acc[h1 + 4] }
    vector<2> h2 in 0..2 { acc[h2] = acc[h2] + acc[h2 + 2] }
    acc[0] = acc[0] + acc[1]
    y[i] = acc[0]
  }
}
"""


@pytest.mark.parametrize("m", [0, 3, 16, 50])
def test_interleaved_sums_and_their_tree(m: int) -> None:
    compare(SUM, [(4,)], [reals(3, 4, m), 4, m])
    assert "alloca" not in jit.optimized_text(print_kernel(parse_kernel(SUM)), jit.Level.KERNEL)


def test_a_known_number_of_lanes_that_is_no_power_of_two() -> None:
    text = """
kernel ten(y: out f32[n, 10], x: f32[n, 10], b: f32[10], n: i64) {
  for i in 0..n { vector<16> l in 0..10 { y[i, l] = x[i, l] * 2.0f32 + b[l] } }
}"""
    compare(text, [(5, 10)], [reals(4, 5, 10), reals(5, 10), 5])


def test_gather_scatter_and_conditions_that_vary() -> None:
    text = """
kernel pick(y: out f32[m], z: out i64[q], x: f32[n], at: i64[m], n: i64, m: i64, q: i64) {
  for j in 0..q { z[j] = 0 }
  for j0 in 0..m by 8 {
    let stop = min(j0 + 8, m)
    vector<8> l in j0..stop {
      let a = at[l]
      if a < 5 { y[l] = x[a] } else { y[l] = x[a] * 2.0f32 if_none }
      z[l * 2] = a
      z[l * 2 + 1] = select(a == 3, 1, 0) - l
    }
  }
}""".replace(" if_none", "")
    at = np.random.default_rng(6).integers(0, 20, 37)
    compare(text, [(37,), (74,)], [reals(7, 20), at, 20, 37, 74])


def test_strided_and_fixed_loads() -> None:
    text = """
kernel strides(y: out f32[n, m], x: f32[m, n], s: f32[n], n: i64, m: i64) {
  for i in 0..n {
    for j0 in 0..m by 4 {
      let c = min(m - j0, 4)
      vector<4> l in 0..c { y[i, j0 + l] = x[j0 + l, i] + s[i] * x[m - 1 - j0 - l, i] }
    }
  }
}"""
    compare(text, [(3, 11)], [reals(8, 11, 3), reals(9, 3), 3, 11])


def test_loads_from_the_end_read_nothing_before_the_start() -> None:
    """Lanes that are not active lie below the active ones: their memory may not be there."""
    text = """
kernel turned(y: out f32[20], x: f32[20]) {
  vector<32> l in 0..20 { y[l] = x[19 - l] }
}"""
    compare(text, [(20,)], [reals(21, 20)])
    printed = print_kernel(parse_kernel(text))
    (mask,) = re.findall(r"masked\.load.*?<32 x i1> <(.*?)>", printed)
    assert mask.split(", ") == ["i1 false"] * 12 + ["i1 true"] * 20


def test_what_cannot_be_a_vector_runs_in_order() -> None:
    text = """
kernel last(y: out f32[1], x: f32[n], n: i64) {
  y[0] = 0.0f32
  for j0 in 0..n by 8 { let c = min(n - j0, 8) vector<8> l in 0..c { y[0] = y[0] * 0.5f32 + x[j0 + l] } }
}"""
    compare(text, [(1,)], [reals(10, 21), 21])


def test_a_local_buffer_inside_a_vector_loop_is_one_a_lane() -> None:
    text = """
kernel dots(y: out f32[m], a: f32[k], b: f32[k, m], k: i64, m: i64) {
  for j0 in 0..m by 8 {
    let c = min(m - j0, 8)
    vector<8> l in 0..c {
      local acc: f32[1]
      acc[0] = 0.0f32
      for p in 0..k { acc[0] = fma(a[p], b[p, j0 + l], acc[0]) }
      y[j0 + l] = acc[0]
    }
  }
}"""
    compare(text, [(19,)], [reals(11, 6), reals(12, 6, 19), 6, 19], lawful=False)


@pytest.mark.parametrize("elem", ["bool", "i8", "u8", "i32", "u32", "i64", "f32", "f64"])
@pytest.mark.parametrize("n", [1, 8, 13])
def test_every_element_type_is_loaded_and_stored(elem: str, n: int) -> None:
    dtype = DTYPES[Elem(elem)]
    x = (np.random.default_rng(13).integers(0, 2 if elem == "bool" else 120, n)).astype(dtype)
    text = f"""
kernel copy(y: out {elem}[n], b: out bool[n], w: out i64[n], x: {elem}[n], n: i64) {{
  let full = n // 8 * 8
  for j in 0..full by 8 {{ vector<8> l in 0..8 {{ y[j + l] = x[j + l] b[j + l] = x[j + l] == x[0] w[j + l] = i64(x[j + l]) }} }}
  let rest = n - full
  vector<8> r in 0..rest {{ y[full + r] = x[full + r] b[full + r] = x[full + r] == x[0] w[full + r] = i64(x[full + r]) }}
}}"""
    compare(text, [(n,), (n,), (n,)], [x, n])


def test_scalar_parameters_and_elementary_functions() -> None:
    text = """
kernel soft(y: out f32[n], x: f32[n], a: f32, flag: bool, n: i64) {
  for j in 0..n by 4 { let c = min(n - j, 4) vector<4> l in 0..c { y[j + l] = select(flag, exp(x[j + l] * a), tanh(x[j + l])) } }
}"""
    for flag in (True, False):
        compare(text, [(9,)], [reals(14, 9), 0.25, flag, 9])


def test_invariant_addresses_are_computed_before_the_loop() -> None:
    text = print_kernel(parse_kernel("""
kernel row(y: out f32[n, m], x: f32[n, m], n: i64, m: i64) {
  for i in 0..n { for j in 0..m { y[i, j] = x[i, j] } }
}"""))
    inner = text.split("\nloop")[2].split("\nafter")[0]
    assert "mul" not in inner and inner.count("getelementptr") == 2

"""What a kernel does, counted by formulas: known kernels by hand, and those of programs against counting every iteration."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from differential import Recorder

from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.ssa.interp import Interpreter
from tlc.tensor.kernel.amount import Loop, atom, number, total
from tlc.tensor.kernel.counts import _WEIGHTS, TOTALS, Counts, counting_kernel, counts
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.ir import Buffer, Const, Expr, For, If, Kernel, Let, Load, Op, Space, Stmt, Store, Var
from tlc.tensor.kernel.text import parse_kernel, print_kernel
from tlc.tensor.kernel.verify import verify

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))
from compare_kernels import Lowered, lowered
from fuzz_kernels import generate

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"


def evaluated(kernel: Kernel, counted: Counts, scalars: dict[str, int]) -> dict[str, int]:
    """The totals of one call, by the kernel that counts."""
    counting = counting_kernel(kernel, counted, "counting")
    verify(counting, expanded=True)
    totals = np.zeros(len(TOTALS), np.int64)
    run(counting, [totals], [scalars.get(p.name, 1) for p in counting.inputs])
    return dict(zip(TOTALS, map(int, totals), strict=True))


def count(text: str, **scalars: int) -> dict[str, int]:
    kernel = parse_kernel(text, "test")
    verify(kernel, expanded=True)
    return evaluated(kernel, counts(kernel), scalars)


# ---------------------------------------------------------------- by hand

PRODUCT = """
kernel product(y: out f32[m, n], m: i64, n: i64, d: i64, x: f32[m, d], w: f32[d, n]) {
  for i in 0..m {
    for j in 0..n by 16 {
      let q = min(n - j, 16)
      local acc: f32[16]
      vector<16> l0 in 0..16 {
        acc[l0] = 0.0f32
      }
      for k in 0..d {
        vector<16> l1 in 0..q {
          acc[l1] = fma(x[i, k], w[k, j + l1], acc[l1])
        }
      }
      vector<16> l2 in 0..q {
        y[i, j + l2] = acc[l2]
      }
    }
  }
}
"""


@pytest.mark.parametrize(("m", "n", "d"), [(7, 16, 3), (128, 784, 256), (5, 37, 9), (1, 1, 1), (0, 4, 4), (3, 4, 0)])
def test_a_product_of_matrices(m: int, n: int, d: int) -> None:
    found = count(PRODUCT, m=m, n=n, d=d)
    read = 4 * (m * d + d * n) if m and n and d else 4 * d * n if not m else found["read"]  # nothing runs where an extent is 0
    assert found == {"flops": 2 * m * n * d, "flops64": 0, "integers": 0, "read": read, "written": 4 * m * n}


def test_the_formula_of_a_product_is_the_one_of_the_books() -> None:
    counted = counts(parse_kernel(PRODUCT, "test"))
    assert str(counted.flops) == "2 * d * m * n"
    assert str(counted.written) == "4 * m * n"
    assert counted.whole


def test_a_triangle_counts_half() -> None:
    text = """
    kernel below(y: out f64[n], n: i64, x: f64[n, n]) {
      for i in 0..n {
        local acc: f64[1]
        acc[0] = 0.0f64
        for j in 0..i + 1 {
          acc[0] = acc[0] + x[i, j]
        }
        y[i] = acc[0]
      }
    }"""
    found = count(text, n=10)
    assert (found["flops"], found["flops64"]) == (0, 55)
    assert (found["read"], found["written"]) == (8 * 55, 8 * 10)


def test_a_stencil_reads_each_element_once() -> None:
    text = """
    kernel heat(y: out f32[n], n: i64, m: i64, x: f32[m]) {
      for i in 0..n {
        y[i] = (x[i] + x[i + 1] + x[i + 2]) * 0.25f32
      }
    }"""
    assert count(text, n=100, m=102) == {"flops": 300, "flops64": 0, "integers": 0, "read": 4 * 102, "written": 400}
    assert count(text, n=100, m=5000)["read"] == 4 * 102  # also where more would be there


def test_halves_of_one_array_are_different_elements() -> None:
    text = """
    kernel halves(y: out f32[8], x: f32[1000]) {
      for i in 0..8 {
        y[i] = x[i] + x[i + 500]
      }
    }"""
    assert count(text)["read"] == 4 * 16


def test_a_second_pass_over_the_same_elements_reads_nothing_new() -> None:
    text = """
    kernel twice(y: out f32[1], n: i64, x: f32[n, n]) {
      local acc: f32[1]
      acc[0] = 0.0f32
      for i in 0..n {
        acc[0] = max(acc[0], x[3, i])
      }
      for j in 0..n {
        acc[0] = acc[0] + x[3, j]
      }
      y[0] = acc[0]
    }"""
    assert count(text, n=50) == {"flops": 100, "flops64": 0, "integers": 0, "read": 200, "written": 4}


def test_a_gather_reads_at_most_the_table() -> None:
    text = """
    kernel pick(y: out f32[n, 4], n: i64, t: i64, table: f32[t, 4], at: i64[n]) {
      for i in 0..n {
        let k = at[i]
        for j in 0..4 {
          y[i, j] = table[k, j]
        }
      }
    }"""
    assert count(text, n=10, t=1000)["read"] == 4 * 40 + 8 * 10
    assert count(text, n=10, t=6)["read"] == 4 * 24 + 8 * 10


def test_integers_that_are_data_count_and_indices_do_not() -> None:
    text = """
    kernel bits(y: out u32[n], n: i64, x: u32[n]) {
      for i in 0..n {
        y[n - 1 - i] = (x[i] << 13u32) ^ x[i] * 5u32
      }
    }"""
    assert count(text, n=9)["integers"] == 3 * 9


def test_what_it_only_works_in_is_not_counted() -> None:
    text = """
    kernel through(y: out f32[n], w: work f32[n], n: i64, x: f32[n]) {
      for i in 0..n {
        w[i] = x[i]
      }
      for j in 0..n {
        y[j] = w[j]
      }
    }"""
    kernel = parse_kernel(text, "test")
    assert evaluated(kernel, counts(kernel), {"n": 5})["written"] == 20
    assert evaluated(kernel, counts(replace(kernel, work=0)), {"n": 5})["written"] == 40


def test_every_op_has_a_weight() -> None:
    assert set(_WEIGHTS) == {name for name, row in SCALAR_OPS.items() if row.instruction or not row.elementary}


def test_sums_over_loops_have_closed_forms() -> None:
    n, j = atom(Var("n")), atom(Var("j"))
    by_four = Loop("j", number(0), n, 4)
    piece = Op("min", Elem.I64, (Op("sub", Elem.I64, (Var("n"), Var("j"))), Const(4, Elem.I64)))
    assert str(total(atom(piece), by_four)) == "n"
    assert str(total(number(1), Loop("j", number(2), number(11), 4))) == "3"
    assert str(total(j, Loop("j", number(3), number(7), 1))) == "18"  # 3 + 4 + 5 + 6


# ---------------------------------------------------------------- against every iteration


class Every:
    """Runs the loops of a kernel on indices alone and counts what happens."""

    def __init__(self, scalars: Mapping[str, int | None]) -> None:
        self.flops: Counter[bool] = Counter()  # on f64 or not
        self.touched: set[tuple[bool, str, tuple[int, ...]]] = set()
        self.env: dict[str, Any] = dict(scalars)

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        for s in stmts:
            match s:
                case For():
                    for i in range(self.index(s.start), self.index(s.stop), s.step):
                        self.env[s.var.name] = i
                        self.body(s.body)
                case Let():
                    self.ops(s.value, set())
                    self.env[s.var.name] = self.index(s.value)
                case Store():
                    self.ops(s.value, set())
                    self.touch(True, s.buffer, s.indices)
                case If():
                    self.body(s.then if self.index(s.cond) else s.other)
                case _:
                    pass

    def index(self, e: Expr) -> Any:
        """The value of an expression, None where it is data."""
        match e:
            case Const():
                return e.value
            case Var():
                return self.env[e.name]
            case Op():
                args = [self.index(a) for a in e.args]
                if (
                    e.elem.is_real
                    or any(a is None for a in args)
                    or any(a.elem is not Elem.I64 and a.elem is not Elem.BOOL for a in e.args)
                ):
                    return None
                return SCALAR_OPS[e.op].evaluate(e.elem, *map(np.int64, args)) if e.elem in (Elem.I64, Elem.BOOL) else None
            case _:
                return None

    def ops(self, e: Expr, seen: set[int]) -> None:
        if id(e) in seen:
            return
        seen.add(id(e))
        match e:
            case Op():
                if e.elem.is_real:
                    self.flops[e.elem is Elem.F64] += _WEIGHTS[e.op][0]
                for a in e.args:
                    self.ops(a, seen)
            case Load() if e.guard is None or self.index(e.guard):
                self.touch(False, e.buffer, e.indices)
            case _:
                pass

    def touch(self, stores: bool, b: Buffer, indices: tuple[Expr, ...]) -> None:
        at = tuple(self.index(i) for i in indices)
        if b.space is Space.GLOBAL and None not in at:
            self.touched.add((stores, b.name, at))


SOURCES = {
    "product": "fn main(m: i64, n: i64, d: i64) {\n  let x = for[i < m, k < d] f32(i + k)\n  let w = for[k < d, j < n] f32(k - j)\n"
    "  print(for[i, j] sum[k] x[i, k] * w[k, j])\n}\n",
    "turned": "fn main(m: i64, n: i64, d: i64) {\n  let x = for[k < d, i < m] f64(i + k)\n  let w = for[j < n, k < d] f64(k - j)\n"
    "  print(for[i, j] sum[k] x[k, i] * w[j, k])\n}\n",
    "softmax": "fn main(m: i64, n: i64) {\n  let x = for[i < m, k < n] f32(i * k) / 10.0\n  print(softmax(x))\n}\n",
    "triangle": "fn main(n: i64) {\n  let x = for[i < n, k < n] f32(i + k)\n  print(for[i < n] sum[j in 0..i + 1] x[i, j])\n}\n",
    "moving": "fn main(n: i64, w: i64) {\n  let x = for[i < n + w] f32(i)\n  print(for[i < n] sum[k < w] x[i + k])\n}\n",
    "columns": "fn main(n: i64, m: i64) {\n  let x = for[i < n, k < m] f32(i + k)\n  print(for[k < m] sum[i < n] x[i, k])\n}\n",
}


def kernels_of(source: Source, **sizes: int) -> dict[str, Kernel]:
    """Kernels whose sizes are not known, or these."""
    stages = pipeline.middle(pipeline.front(source), Options(flags=sizes or None))
    kernels: dict[str, Kernel] = next(value for name, _, value in stages if name == "kernels").kernels
    return kernels


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize("name", SOURCES)
def test_formulas_agree_with_counting(name: str, size: int, known: bool) -> None:
    flags = re.findall(r"(\w+): i64", SOURCES[name]) if known else []
    for kernel in kernels_of(Source(f"{name}.tl", SOURCES[name]), **dict.fromkeys(flags, size)).values():
        scalars = {p.name: size for p in kernel.inputs if isinstance(p, Var)}
        found = evaluated(kernel, counts(kernel), scalars)
        every = Every(scalars)
        every.body(kernel.body)
        text = f"kernel {kernel.name} of {name}, all sizes {size}"
        assert (found["flops"], found["flops64"]) == (every.flops[False], every.flops[True]), text
        shapes = {b.name: [every.index(e) for e in b.shape] for b in kernel.buffers}
        for stores, total_name, buffers in ((False, "read", kernel.inputs), (True, "written", kernel.results)):
            bytes_of = {b.name: b.elem.bytes for b in buffers if isinstance(b, Buffer)}
            least = sum(bytes_of[b] for s, b, _ in every.touched if s == stores and b in bytes_of)
            most = sum(prod(shapes[b]) * n for b, n in bytes_of.items())
            assert least <= found[total_name] <= most, (text, total_name)
            if name != "moving":  # there two loops give one index: as many as the array has
                assert found[total_name] == least, (text, total_name)


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_are_never_counted_short(seed: int) -> None:
    """Operations are exact; elements are at least those that are accessed, at most those there are."""
    case = generate(seed)
    sizes = case.sizes(Random(seed))
    for low in lowered(case, seed):

        def launch(name: str, outputs: list[Any], inputs: list[Any], low: Lowered = low) -> None:
            kernel = low.tensors.kernels[name]
            run(kernel, outputs, inputs)
            if not kernel.applied:
                compare(kernel, outputs, inputs)

        Interpreter(low.tensors.module, Recorder(), launch).call("f", case.arguments(sizes, seed))


def compare(kernel: Kernel, outputs: list[Any], inputs: list[Any]) -> None:
    pairs = list(zip(kernel.inputs, inputs, strict=True))
    totals = np.zeros(len(TOTALS), np.int64)
    run(counting_kernel(kernel, counts(kernel), "counting"), [totals], [v for p, v in pairs if isinstance(p, Var)])
    found = dict(zip(TOTALS, map(int, totals), strict=True))
    every = Every({p.name: int(v) if p.elem is Elem.I64 else None for p, v in pairs if isinstance(p, Var)})
    every.body(kernel.body)
    text = print_kernel(kernel)
    assert (found["flops"], found["flops64"]) == (every.flops[False], every.flops[True]), text
    arrays = {False: pairs, True: list(zip(kernel.results, outputs, strict=False))}
    for stores, name in ((False, "read"), (True, "written")):
        sizes = {p.name: p.elem.bytes for p, _ in arrays[stores] if isinstance(p, Buffer)}
        least = sum(sizes[b] for s, b, _ in every.touched if s == stores and b in sizes)
        most = sum(np.asarray(v).size * p.elem.bytes for p, v in arrays[stores] if isinstance(p, Buffer))
        assert least <= found[name] <= most, text


def test_blocks_of_rows_are_different_rows() -> None:
    """The rows of a block begin where the block does, and each block has as many."""
    text = """
    kernel blocks(y: out f32[64, 8], x: f32[64, 8]) {
      for b in 0..64 by 16 {
        for j in 0..8 {
          for i in b..b + 16 {
            y[i, j] = x[i, j] * 2.0f32
          }
        }
      }
    }"""
    assert count(text) == {"flops": 512, "flops64": 0, "integers": 0, "read": 2048, "written": 2048}


def test_kernels_of_a_program_are_counted_whole() -> None:
    source = Source("layer.tl", (PROGRAMS / "layer.tl").read_text())
    for kernel in kernels_of(source).values():
        assert counts(kernel).whole

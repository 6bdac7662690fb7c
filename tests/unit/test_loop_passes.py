"""What is not in a loop any more, in programs as people write them: checks, copies, divisions, products, loads."""

from __future__ import annotations

import pytest
from whole_program import both

from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.ir import Instr, Module
from tlc.ssa.loops import loops

SIEVE = """
fn main(n: i64 = 1000) {
  var prime = for[i < n] i >= 2
  var p = 2
  while p * p < n {
    if prime[p] {
      for multiple in p * p..n by p { prime[multiple] = false }
    }
    p += 1
  }
  var count = 0
  for i in 0..n { if prime[i] { count += 1 } }
  print("{count}")
}
"""

SPECTRAL_NORM = """
fn a(i: i64, j: i64) -> f64 = 1.0 / f64((i + j) * (i + j + 1) // 2 + i + 1)

fn main(n: i64 = 50) {
  var u: f64[n] = ones(n)
  var v: f64[n] = zeros(n)
  var w: f64[n] = zeros(n)
  for step in 0..10 {
    for i in 0..n {
      w[i] = 0.0
      for j in 0..n { w[i] += a(i, j) * u[j] }
    }
    for i in 0..n {
      var s = 0.0
      for j in 0..n { s += a(j, i) * w[j] }
      v[i] = s
    }
    for i in 0..n {
      var s = 0.0
      for j in 0..n { s += a(i, j) * v[j] }
      w[i] = s
    }
    for i in 0..n {
      var s = 0.0
      for j in 0..n { s += a(j, i) * w[j] }
      u[i] = s
    }
  }
  var uv = 0.0
  var vv = 0.0
  for i in 0..n {
    uv += u[i] * v[i]
    vv += v[i] * v[i]
  }
  print("{sqrt(uv / vv):.9f}")
}
"""

PRODUCT = """
fn product(a: f64[n, m], b: f64[m, p]) -> f64[n, p] {
  var c: f64[n, p] = zeros(n, p)
  for i in 0..n {
    for j in 0..p {
      var s = 0.0
      for k in 0..m { s += a[i, k] * b[k, j] }
      c[i, j] = s
    }
  }
  c
}

fn main(n: i64 = 6, m: i64 = 5, p: i64 = 7) {
  let c = product(for[i < n, k < m] f64(i - k), for[k < m, j < p] f64(k * j))
  print("{c}")
}
"""

INSERTION_SORT = """
fn sorted(values: i64[n]) -> i64[n] {
  var a = values
  for i in 1..n {
    let x = a[i]
    var j = i
    while j > 0 and a[j - 1] > x {
      a[j] = a[j - 1]
      j -= 1
    }
    a[j] = x
  }
  a
}

fn main(n: i64 = 12) {
  print("{sorted(for[i < n] i * 7 % 12)}")
}
"""

STENCIL = """
fn main(h: i64 = 8, w: i64 = 9, steps: i64 = 3) {
  var u: f64[h, w] = for[y < h, x < w] f64(y * x % 17)
  var v = u
  for t in 0..steps {
    for y in 1..h - 1 {
      for x in 1..w - 1 {
        v[y, x] = u[y, x] + 0.1 * (u[y - 1, x] + u[y + 1, x] + u[y, x - 1] + u[y, x + 1] - 4.0 * u[y, x])
      }
    }
    (u, v) = (v, u)
  }
  print("{u}")
}
"""

BINARY_SEARCH = """
fn find(x: i64[n], wanted: i64) -> i64 {
  var low = 0
  var high = n
  while low < high {
    let middle = (low + high) // 2
    if x[middle] < wanted { low = middle + 1 } else { high = middle }
  }
  low
}

fn main(n: i64 = 20) {
  let x = for[i < n] i * i
  var found = 0
  for k in 0..50 { found += find(x, k) }
  print("{found}")
}
"""

HISTOGRAM = """
fn main(n: i64 = 100, bins: i64 = 8) {
  var count = for[i < bins] 0
  for i in 0..n { count[i * 31 % bins] += 1 }
  var hash = for[i < 16] 0
  var state = 7
  for i in 0..n {
    state = state * 25214903917 + 11
    hash[state & 15] += 1
    hash[(state >> 7) % 16] += 1
  }
  print("{count} {hash}")
}
"""

GATHERED = """
fn main(n: i64 = 30) {
  let x = for[i < n] i * 5 % 7
  var y = for[i < n] 0
  var k = 0
  for i in 0..n {
    y[k] = x[i]
    k += 1
  }
  for i in 0..n by 3 { y[i] = y[i] + 1 }
  for i in 0..n { y[max(i - 1, 0)] += y[min(i + 1, n - 1)] }
  print("{y}")
}
"""

PROGRAMS = {
    "sieve": SIEVE,
    "spectral norm": SPECTRAL_NORM,
    "product": PRODUCT,
    "insertion sort": INSERTION_SORT,
    "stencil": STENCIL,
    "binary search": BINARY_SEARCH,
    "histogram": HISTOGRAM,
    "gathered": GATHERED,
}


def host(text: str, known: bool) -> Module:
    """The host module of a program; with `known`, for the defaults of its flags."""
    program = pipeline.front(Source("test.tl", text))
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    options = Options(2, verify=True, flags=flags if known else None)
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "memory")
    module = tensors.module
    assert isinstance(module, Module)
    return module


def in_loops(module: Module, innermost: bool = False) -> list[Instr]:
    """The instructions in the loops of a module, or in those that hold no other."""
    found: dict[Instr, None] = {}
    for f in module.functions.values():
        all_loops = loops(f.body)
        for loop in all_loops:
            if not innermost or all(other.parent is not loop for other in all_loops):
                found.update(dict.fromkeys(i for b in loop.blocks for i in b.instrs))
    return list(found)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_check_and_no_copy_is_in_a_loop(name: str, known: bool) -> None:
    assert [i for i in in_loops(host(PROGRAMS[name], known)) if i.op in ("check", "copy", "alloc")] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_print_what_they_mean(name: str) -> None:
    both(PROGRAMS[name])
    both(PROGRAMS[name], level=0)

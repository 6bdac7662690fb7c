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

STEPS = """
fn main(n: i64 = 30, m: i64 = 4) {
  var x = for[i < n] i * i
  for i in progress(1..n, "adding") { x[i] += x[i - 1] }
  for i in n - 1..-1 by -1 { x[i] -= 1 }
  for i in n - 2..0 by -2 { x[i] += x[i + 1] }
  assert m >= 0 and m < n, "a distance"
  for i in 0..n - m by 3 { x[i + m] += x[i] }
  for i in 0..n // 2 { (x[i], x[n - 1 - i]) = (x[n - 1 - i], x[2 * i + 1]) }
  for v in x { assert v > -1_000_000, "{v}" }
  var bits = for[b < 64] 0
  for i in 0..n { for b in 0..64 { bits[b] += (x[i] >> b) & 1 } }
  var i = 0
  while i < n and x[i] != 7 { i += 1 }
  var last = n
  while last > 0 {
    last -= 1
    if x[last] == 7 { break }
  }
  print("{x} {bits} {i} {last}")
}
"""

PROGRAMS = {
    "steps": STEPS,
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
    left = [i for i in in_loops(host(PROGRAMS[name], known)) if i.op in ("check", "copy", "alloc")]
    assert [i for i in left if i.attrs.get("kind") != "assert"] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_print_what_they_mean(name: str) -> None:
    both(PROGRAMS[name])
    both(PROGRAMS[name], level=0)


def integers(instrs: list[Instr], *ops: str) -> list[Instr]:
    return [i for i in instrs if i.op in ops and i.result.type.elem.is_int]


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", ["sieve", "product", "insertion sort", "stencil"])
def test_no_position_is_multiplied_or_divided_for_in_an_innermost_loop(name: str, known: bool) -> None:
    assert integers(in_loops(host(PROGRAMS[name], known), innermost=True), "mul", "floordiv", "mod", "iterations") == []


INVARIANT = """
fn main(n: i64 = 20, m: i64 = 30) {
  let x = for[i < n] f64(i)
  let y = for[j < m] f64(j)
  var z: f64[n] = zeros(n)
  for i in 0..n {
    for j in 0..m { z[i] += sqrt(x[i]) * y[j] / (x[i] + 1.0) }
  }
  print("{z}")
}
"""


def test_what_the_inner_loop_does_not_change_is_computed_and_loaded_before_it() -> None:
    inner = in_loops(host(INVARIANT, False), innermost=True)
    assert [i.op for i in inner if i.op in ("sqrt", "load")] == ["load"]  # y[j]; z[i] is handed on
    both(INVARIANT)


NOT_RUN = """
fn main(n: i64 = 0, k: i64 = 9, d: i64 = 0) {
  let x = for[i < 3] i
  var s = 0
  for i in 0..n { s += x[k] + i // d }
  print("{s}")
}
"""


def test_a_load_or_a_division_is_not_done_for_a_loop_that_does_not_run() -> None:
    assert both(NOT_RUN) == ["0"]
    assert both(NOT_RUN, {"n": 1}) == ["index 9 is out of range for a dimension of 3"]
    assert both(NOT_RUN, {"n": 1, "k": 2}) == ["division by zero"]
    assert both(NOT_RUN, {"n": 1, "k": 2, "d": 1}) == ["2"]


SHORT = """
fn main(s: i64 = 3) {
  var x = for[i < 4] f64(i * s)
  for i in 0..4 {
    for j in i + 1..4 { x[i] += x[j] * f64(i - j) }
  }
  print("{x}")
}
"""


def test_loops_of_a_few_iterations_are_gone() -> None:
    assert in_loops(host(SHORT, False)) == []
    both(SHORT)


STOPS_LATE = """
fn main(n: i64 = 5, m: i64 = 8) {
  var x = for[i < n] i
  for i in 0..m {
    if i > 3 { print("{i}") }
    x[i] = i * i
  }
  print("{x}")
}
"""


def test_a_loop_that_leaves_its_range_stops_there_and_not_before() -> None:
    assert both(STOPS_LATE) == ["4", "5", "index 5 is out of range for a dimension of 5"]
    assert both(STOPS_LATE, {"m": 5}) == ["4", "[ 0  1  4  9 16]"]


FALLING = """
fn turned(values: i64[n], last: i64) -> i64[n] {
  var x = values
  var low = 0
  var high = last
  while low < high {
    (x[low], x[high]) = (x[high], x[low])
    low += 1
    high -= 1
  }
  x
}

fn main(n: i64 = 6, last: i64 = 5) {
  print("{turned(for[i < n] i, last)}")
}
"""


def test_a_check_of_a_bound_that_falls_stands_before_the_loop() -> None:
    assert [i for i in in_loops(host(FALLING, False)) if i.op == "check"] == []
    assert both(FALLING) == ["[5 4 3 2 1 0]"]
    assert both(FALLING, {"last": 6}) == ["index 6 is out of range for a dimension of 6"]
    assert both(FALLING, {"n": 0}) == ["index 5 is out of range for a dimension of 0"]
    assert both(FALLING, {"last": -1}) == ["[0 1 2 3 4 5]"]


FLAT = """
fn main(n: i64 = 5, m: i64 = 7) {
  var x = for[k < n * m] f64(k)
  for i in 0..n {
    for j in 1..m { x[i * m + j] += x[i * m + j - 1] }
  }
  print("{x}")
}
"""


def test_positions_that_the_program_computes_are_tested_before_the_inner_loop() -> None:
    both(FLAT)
    assert [i for i in in_loops(host(FLAT, True)) if i.op == "check"] == []
    module = host(FLAT, False)
    inner = [loop for f in module.functions.values() for loop in loops(f.body)]
    checks = [sum(i.op == "check" for b in loop.blocks for i in b.instrs) for loop in inner if loop.depth == 2]
    assert sorted(checks)[0] == 0 and len(checks) == 2  # and one with checks, for when the test fails

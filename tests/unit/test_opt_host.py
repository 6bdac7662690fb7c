"""What is left of whole programs for the host: above all what is not there any more."""

from __future__ import annotations

from collections import Counter

import pytest
from differential import outcomes
from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.ssa.ir import Function, Module, walk
from tlc.ssa.loops import Loop, loops


def planned(text: str, level: int = 2) -> Module:
    """The host module after the memory plan, every stage verified."""
    program = pipeline.front(Source("test.tl", text))
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    stages = pipeline.middle(program, Options(level, verify=True, flags=flags))
    return next(value.module for name, _, value in stages if name == "memory")


def ops(function: Function) -> Counter[str]:
    return Counter(i.op for i in walk(function.body))


def ops_in(loop: Loop) -> Counter[str]:
    return Counter(i.op for b in loop.blocks for i in b.instrs)


def innermost(function: Function) -> list[Loop]:
    found = loops(function.body)
    return [x for x in found if not any(y.parent is x for y in found)]


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
fn main(n: i64 = 50) {
  var x = for[i < n] i * 7919 % 101
  x[3] = 5
  print(sorted(x))
}
"""


def test_an_element_that_was_read_for_the_condition_is_not_read_again() -> None:
    """`a[j - 1]` stands twice in the loop that moves elements up."""
    main = planned(INSERTION_SORT).functions["main"]
    (moving,) = [x for x in innermost(main) if x.depth == 2]
    assert ops_in(moving)["load"] == ops_in(moving)["store"] == 1


@pytest.mark.parametrize("text", [INSERTION_SORT], ids=["insertion sort"])
def test_no_loop_copies_or_allocates(text: str) -> None:
    for f in planned(text).functions.values():
        for loop in loops(f.body):
            assert not {"copy", "alloc", "free"} & ops_in(loop).keys()


def test_values_stored_in_a_loop_are_not_read_from_older_tensors() -> None:
    """A load beside a store may stand for one before it, but must not read the tensor as it was: that would be a copy a turn."""
    text = """
fn main(n: i64 = 20) {
  var x = for[i < n] i
  var s = 0
  for i in 1..n {
    s += x[i - 1]
    x[i] = s
    s += x[i - 1] * x[i]
  }
  print(s)
  print(x)
}
"""
    main = planned(text).functions["main"]
    (loop,) = loops(main.body)
    assert ops_in(loop)["load"] == 0  # what an iteration reads, the one before it stored
    assert "copy" not in ops(main)
    assert len({str(outcome) for _, outcome in outcomes(text)}) == 1


RECURSIONS = """
fn gcd(a: i64, b: i64) -> i64 = if b == 0 { a } else { gcd(b, a % b) }
fn total(n: i64) -> i64 = if n == 0 { 0 } else { n + total(n - 1) }
fn factorial(n: i32) -> i32 = if n == 0 { 1i32 } else { n * factorial(n - 1i32) }
fn find(x: i64[n], v: i64, low: i64, high: i64) -> i64 {
  if low >= high { return -1 }
  let middle = (low + high) // 2
  if x[middle] == v { middle } else if x[middle] < v { find(x, v, middle + 1, high) } else { find(x, v, low, middle) }
}
fn main() {
  let x = for[i < 100] 3 * i
  print("{gcd(1071, 462)} {total(100)} {factorial(20i32)} {find(x, 42, 0, 100)} {find(x, 43, 0, 100)} {x[99]}")
}
"""


@pytest.mark.parametrize("level", [0, 2])
def test_tail_calls_are_loops(level: int) -> None:
    module = planned(RECURSIONS, level)
    for name, f in module.functions.items():
        assert name == "main" or "call" not in ops(f)
    assert "copy" not in sum((ops(f) for f in module.functions.values()), Counter())


def test_tail_calls_give_what_recursion_gives() -> None:
    found = {str(outcome) for _, outcome in outcomes(RECURSIONS)}
    assert found == {"21 5050 -2102132736 14 -1 297"}


FORMS = """
fn a(n: i64) -> i64 = if n == 0 { 5 } else { a(n - 1) - 1 }
fn b(n: i64) -> i64 = if n == 0 { 0 } else { 0 + (b(n - 1) + 1) + 0 }
fn c(n: i64) -> i64 = if n == 0 { 0 } else { c(n - 1) + -n }
fn d(n: i64) -> i64 = if n == 0 { 7 } else { d(n - 1) * -1 }
fn e(n: i64) -> i64 = if n == 0 { 7 } else { 0 - e(n - 1) }
fn f(n: i64) -> i64 = if n == 0 { 7 } else { -f(n - 1) * 3 }
fn main(n: i64 = 3000001) { print(a(n), b(n), c(n), d(n), e(n), f(n)) }
"""


@pytest.mark.parametrize("level", [0, 1, 2])
def test_other_passes_do_not_decide_what_is_a_tail_call(level: int) -> None:
    """They write `x - 1` as `x + -1`, `x + -n` as `x - n` and `x * -1` as `-x`."""
    n = 3000001
    services = Recorder()
    Native(pipeline.build(pipeline.front(Source("test.tl", FORMS)), Options(level, flags={"n": n}), {}), services).run()
    f = 7 * pow(-3, n, 1 << 64) % (1 << 64)
    expected = (5 - n, n, -n * (n + 1) // 2, -7, -7, f - (1 << 64) if f >= 1 << 63 else f)
    assert services.lines == [" ".join(map(str, expected))]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_tail_calls_take_no_stack(level: int) -> None:
    text = "fn total(n: i64) -> i64 = if n == 0 { 0 } else { n + total(n - 1) }\nfn main() { print(total(30_000_000)) }\n"
    program, services = pipeline.front(Source("test.tl", text)), Recorder()
    Native(pipeline.build(program, Options(level, flags={}), {}), services).run()
    assert services.lines == [str(30_000_000 * 30_000_001 // 2)]


FIB = """
fn fib(n: i64) -> i64 = if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
fn main(n: i64 = 20) { print(fib(n)) }
"""


def test_a_frame_of_fib_does_the_work_of_several() -> None:
    """One of the two calls is a loop, the other is inlined twice and stands in the innermost of three loops."""
    fib = planned(FIB).functions["fib"]
    assert ops(fib)["call"] == 1
    assert max(loop.depth for loop in loops(fib.body)) == 3
    assert {str(outcome) for _, outcome in outcomes(FIB)} == {"6765"}


def test_a_remainder_is_checked_once() -> None:
    """That the divisor is not 0 is known from the branch before."""
    text = """
fn main(a: i64 = 1071, b: i64 = 462) {
  var x = a
  var y = b
  while y != 0 { (x, y) = (y, x % y) }
  print(x)
}
"""
    assert "check" not in ops(planned(text).functions["main"])

"""Which loops look at the stop flag, and that a long run hears it wherever it is."""

from __future__ import annotations

import threading
import time

import pytest
from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.opt.polls import polled
from tlc.ssa.ir import Function
from tlc.ssa.loops import loops


def polls(text: str, **flags: int) -> list[bool]:
    """Of each loop of `main`, outer ones first, whether it polls."""
    program = pipeline.front(Source("program.tl", text))
    options = Options(1, flags={f.name: f.default for f in program.flags if f.default is not None} | flags)
    tensors = next(value for stage, _, value in pipeline.middle(program, options) if stage == "memory")
    main: Function = tensors.module.functions["main"]
    return [loop.header in polled(tensors.module)["main"] for loop in loops(main.body)]


NEST = """
fn main(n: i64 = 10) {
  var total = 0
  for i in 0..n { for j in 0..1000 { total += i * j } }
  print(total)
}
"""


def test_a_short_loop_does_not_poll() -> None:
    assert polls(NEST, n=10) == [False, False]


def test_a_long_nest_polls_outside_only() -> None:
    assert polls(NEST, n=1_000_000) == [True, False]


def test_a_loop_with_an_unknown_end_polls() -> None:
    assert polls("fn main(n: i64 = 7) { var x = n\nwhile x != 1 { x = if x % 2 == 0 { x // 2 } else { 3 * x + 1 } }\nprint(x) }") == [True]


def test_a_while_loop_between_two_constants_does_not_poll() -> None:
    text = """
fn main(n: i64 = 9) {
  let p = for[i < n] (i * 7) % n
  var low = 0
  var high = p[4]
  var total = 0
  while low < high {
    total += p[high]
    (low, high) = (low + 1, high - 1)
  }
  print(total)
}
"""
    assert polls(text) == [False]  # `low` counts up from 0, and where p[high] was in range it is below 9
    assert polls(text.replace("p[high]", "high")) == [True]


def test_a_counter_that_may_wrap_polls() -> None:
    assert polls("fn main(n: i64 = 7) { var x = n\nwhile x > 5 { x += 3 }\nprint(x) }") == [True]


def test_a_loop_around_a_service_counts_it() -> None:
    assert polls("fn main() { for i in 0..100_000 { print(i) } }") == [True]
    assert polls("fn main() { for i in 0..100 { print(i) } }") == [False]


ENDLESS = {
    "loop": "fn main(n: i64 = 7) { var x = n\nwhile x != 1 { x = x * x + 4 }\nprint(x) }",
    "nest": "fn main() { var t = 0\nfor i in 0..1_000_000_000 { for j in 0..100_000 { t = (t ^ i) * 3 + j } }\nprint(t) }",
    "recursion": "fn fib(n: i64) -> i64 = if n < 2 { n } else { fib(n - 1) + fib(n - 2) }\nfn main(n: i64 = 70) { print(fib(n)) }",
    "tail call": "fn f(n: i64, x: i64) -> i64 = if x == 1 { n } else { f(n + 1, x * x + 4) }\nfn main(n: i64 = 7) { print(f(0, n)) }",
}


@pytest.mark.parametrize("host", pipeline.hosts())
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", ENDLESS)
def test_a_stop_is_heard(name: str, level: int, host: str) -> None:
    program = pipeline.front(Source("program.tl", ENDLESS[name]))
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    native = Native(pipeline.build(program, Options(level, flags=flags, host=host), {}), Recorder())
    timer = threading.Timer(0.1, native.interrupt)
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        native.run()
    assert time.monotonic() - began < 10

"""Unroll and jam changes no bit, whatever the extents; and where it happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ssa_services import Recorder

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source
from tlc.opt import passes
from tlc.opt.jam import jam
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.ssa.loops import loops

# Of each: whether its inner loop is there several times.
NESTS = {
    "product": (True, """
  for i in 0..n {
    for j in 0..p {
      var s = 0.0
      for k in 0..m { s += a[i, k] * b[k, j] }
      c[i, j] = s
    }
  }"""),
    "the index itself": (True, """
  for j in 0..p {
    var s = 0.5f32
    for k in 0..m { s += f32(j * k + 1) / (1.0 + b[k, j]) }
    c[0, j] = s * f32(j)
  }"""),
    "steps and a start": (True, """
  for j in 1..p by 2 {
    var s = -1.0f32
    var t = 2.0f32
    for k in 1..m by 3 {
      s -= b[k, j]
      t = t + s
    }
    c[0, j] = s
    c[n - 1, j] = t
  }"""),
    "what is handed on outside": (True, """
  var total = 0.0f32
  for j in 0..p {
    var s = total * 0.0f32
    s = 1.0
    for k in 0..m { s += b[k, j] * 0.37 }
    total = total * 0.5 + s
    c[0, j] = total
  }
  print(total)"""),
    "what is handed on inside": (False, """
  var total = 0.0f32
  for j in 0..p {
    for k in 0..m { total += b[k, j] }
    c[0, j] = total
  }"""),
    "reads what it wrote": (False, """
  for j in 0..p {
    var s = 0.0f32
    for k in 0..p { s += c[0, k] * b[0, j] }
    c[0, j] = s + 1.0
  }"""),
    "a triangle": (False, """
  for j in 0..p {
    var s = 0.0f32
    for k in 0..j { s += b[0, k] }
    c[0, j] = s
  }"""),
    "integers": (False, """
  for j in 0..p {
    var s = 0
    for k in 0..m { s += j * k }
    c[0, j] = f32(s)
  }"""),
}  # fmt: skip

EXTENTS = [(1, 1, 1), (2, 3, 4), (3, 5, 7), (2, 9, 8), (4, 2, 13), (1, 7, 3), (2, 4, 2), (7, 11, 25)]


def program(body: str) -> str:
    """The extents are answers of the clock."""
    return f"""fn main() {{
  let (n, m, p) = (i64(clock()), i64(clock()), i64(clock()))
  let a = for[i < n, k < m] f32(i * 7 + k * 3) * 0.1 - 0.4
  let b = for[k < m, j < p] f32(k * 5 - j * 2) * 0.3 + 0.7
  var c: f32[n, p] = full(0.25, n, p){body}
  print(c)
}}
"""


class Answers(Recorder):
    """Services whose clock gives numbers that the compiler does not know."""

    def __init__(self, answers: tuple[int, ...]) -> None:
        super().__init__()
        self.answers = list(answers)

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        assert name == "clock"
        return [np.float64(self.answers.pop(0))]


@pytest.mark.parametrize("name", NESTS)
def test_no_bit_changes(name: str) -> None:
    source = pipeline.front(Source("program.tl", program(NESTS[name][1])))
    module = next(value for stage, _, value in pipeline.middle(source, Options(flags={})) if stage == "ssa")
    ways = [(host, disable) for host in pipeline.hosts() for disable in ((), ("jam",))]
    codes = [(way, pipeline.build(source, Options(flags={}, host=way[0], disable=way[1]), {})) for way in ways]
    for extents in EXTENTS:
        meaning = Answers(extents)
        Interpreter(module, meaning).call("main", [])
        for way, code in codes:
            services = Answers(extents)
            Native(code, services).run()
            assert services.lines == meaning.lines, (way, extents)


def prepared(name: str) -> Module:
    """Host SSA before `jam`, as it comes there."""
    source = pipeline.front(Source("program.tl", program(NESTS[name][1])))
    module: Module = next(value for stage, _, value in pipeline.middle(source, Options(flags={})) if stage == "kernels").module
    level = passes.HOST_LEVELS[2]
    passes.run(module, level[: level.index("jam")], stage="host")
    return module


@pytest.mark.parametrize("name", NESTS)
def test_where_it_happens(name: str) -> None:
    module = prepared(name)
    before = len(loops(module.functions["main"].body))
    jam(module)
    after = len(loops(module.functions["main"].body))
    assert (after > before) == NESTS[name][0]

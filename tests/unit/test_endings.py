"""Comprehensions and reductions whose every element stops the program."""

from __future__ import annotations

import pytest
from whole_program import both

HEAD = """
fn number(i: i64) -> f32 { fail("number {i}") }
fn row(i: i64) -> f32[3] { fail("row {i}") }
fn pair(i: i64) -> (f32, i64) { fail("pair {i}") }
fn loss(x: f32[n]) -> f32 = sum(for[i] number(i) * x[i])
"""

BODIES = [
    "print(for[i < n] number(i))",
    "print(for[i < n] row(i))",
    "print(sum[i < n] number(i))",
    "print(argmax[i < n] number(i))",
    "print((for[i < n] pair(i))[1])",
    "print(for[i < n] 1 // (n - n))",
    "print(randint(key(1), n, n, n))",
    "var x = zeros(3)\n  let idx = for[i < n] i\n  x[idx] += number(1)\n  print(x)",
    "print(grad(loss)(ones(n)))",
]


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("body", BODIES)
def test_every_element_stops(body: str, level: int) -> None:
    assert len(both(f"{HEAD}\nfn main(n: i64 = 2) {{\n  {body}\n}}\n", level=level)) == 1


def test_no_element_stops_where_there_is_none() -> None:
    text = f"{HEAD}\nfn main(n: i64 = 0) {{\n  print(sum[i < n] number(i), for[i < n] number(i), for[i < n] row(i))\n}}\n"
    assert both(text) == ["0.0 [] []"]

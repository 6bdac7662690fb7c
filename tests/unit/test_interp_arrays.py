"""The interpreter's quick ways against its plain one: whole arrays, paths and updates in place change no value and no failure.

Each program runs element by element and over whole arrays, these also in boxes of a few elements; where nothing fails, the quick way
must not fall back on the plain one.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ssa_services import Recorder

from tlc.driver.options import Options
from tlc.driver.pipeline import front, interpret, middle
from tlc.frontend.source import Source
from tlc.ssa import interp, interp_grid, interp_paths
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Instr, Module
from tlc.ssa.world import Stop
from tlc.tensor.derivative import differentiate

HEAD = """
use random
fn data(seed: i64, n: i64) -> f32[n] = normal(key(seed), n)
fn grid(seed: i64, n: i64, m: i64) -> f32[n, m] = normal(key(seed), n, m)
"""

PROGRAMS = {
    "products": """
        fn main() {
          let (a, b) = (grid(1, 5, 40), grid(2, 40, 6))
          print(a @ b)
          print(for[i < 6, j < 5] sum[k] b[k, i] * a[j, k])
          print(for[o < 2, i < 3, j < 4] sum[p < 2, q < 3] a[i + p, j + q] * b[o + p, q])
          print(for[i < 5] sum[k] a[i, k] * (a[i, k] - b[k, i]))
        }""",
    "parts": """
        fn main() {
          let a = grid(1, 4, 4)
          let pick = [3, 0, 2]
          print(for[i < 4] a[i, i], for[i < 4, j < 4] a[3 - j, i], for[i < 4] a[2, i], for[j < 4] a[j, 1])
          print(a[pick], a[pick, 2], a[1..3, 2], for[i < 3] a[pick[i], i], for[i < 4] a[i])
          print(for[i < 2] for[j < 3] for[k < 2] a[j, i + k])
          print(for[i < 0, j < 3] a[i, j], for[i < 3, j < 0] a[i, j], for[i < 0, j < 9, k < 9] a[i, j], sum[i < 0, j < 9] a[i, j])
        }""",
    "reductions": """
        fn main() {
          let a = grid(3, 7, 50)
          print(sum(a), prod(a), max(a), min(a), argmax(a), argmin(a))
          print(sum(a, axis = 0), prod(a, axis = 1), max(a, axis = 0), argmin(a, axis = 1))
          print(for[i < 7] any[j] a[i, j] > 2.0, for[i < 7] all[j] a[i, j] > -1.0)
          print(for[i < 7] sum[j < 50] i * j, for[i < 7] max[j < 50] (j * 37 + i) % 50)
          let (p, q) = argmax[i < 7, j < 50] a[i, j]
          print(p, q)
          print(for[i < 7] sum[j < 50] exp(a[i, j] * a[6 - i, j]))
        }""",
    "branches": """
        fn sign_of(x: f32) -> i64 { if x > 0.5 { return 1 }; if x < -0.5 { return -1 }; 0 }
        fn main() {
          let x = data(4, 40)
          print(for[i < 40] sign_of(x[i]))
          print(for[i < 40] if i % 3 == 0 { x[i] } else { if i % 3 == 1 { x[i] * 2.0 } else { -x[i] } })
          print(for[i < 4, j < 5] if j <= i { sum[k < 10] x[i * 10 + k] * x[j] } else { -inf })
          print(for[i < 40] if x[i] > 0.0 and x[39 - i] < 0.0 { 1 } else { 0 })
        }""",
    "loops": """
        fn collatz(n: i64) -> i64 {
          var (k, steps) = (n, 0)
          while k != 1 { k = if k % 2 == 0 { k // 2 } else { 3 * k + 1 }; steps += 1 }
          steps
        }
        fn pairs(n: i64) -> i64 {
          var count = 0
          for i in 0..n {
            if i % 5 == 4 { continue }
            for j in i..n { if i * j > 30 { break }; count += j }
          }
          count
        }
        fn main() {
          print(for[i < 40] collatz(i + 1), for[i < 12] pairs(i))
          print(for[i < 9, j < 3] pairs(collatz(i + 1) % 7 + j))
        }""",
    "sums of branches": """
        fn main() {
          let (x, y) = (data(5, 60), data(6, 60))
          print(sum[i] if i % 2 == 0 { x[i] * y[i] } else { x[i] + y[i] })
          print(for[j < 3] sum[i] if (i + j) % 3 == 0 { x[i] } else { y[i] * y[i] })
          print(max[i] if x[i] > y[i] { x[i] } else { 0.0 })
          print(argmin[i] if i > 10 { x[i] } else { 9.0 })
        }""",
    "tensors on the way": """
        fn sorted(v: f32[n]) -> f32[n] {
          var x = v
          for i in 1..n {
            var j = i
            while j > 0 and x[j - 1] > x[j] {
              (x[j - 1], x[j]) = (x[j], x[j - 1])
              j -= 1
            }
          }
          x
        }
        fn norms(m: f32[r, c]) -> f32[r] {
          var best = for[i < r] 0.0
          for k in 0..c { if sum[i] m[i, k] > 0.0 { best = for[i < r] max(best[i], m[i, k]) } }
          best
        }
        fn main() {
          let a = grid(7, 9, 6)
          print(sorted(a))
          print(for[i < 9] sorted(a[i])[2])
          print(norms(for[b < 10, i < 3, j < 2] a[(b + i) % 9, j + i]))
          print(for[i < 9] reshape(a[i], 2, 3))
        }""",
    "derivatives": """
        fn bend(w: f32[n], x: f32[n]) -> f32 {
          var y = 0.0
          for i in 0..n { if x[i] > 0.0 { y += w[i] * x[i] * y + sin(w[i]) } else { y -= w[i] } }
          y
        }
        fn whole(w: f32[n, m], x: f32[n, m]) -> f32 = mean(for[i < n, j < m] tanh(w[i, j] * x[j % n, i]))
        fn main() {
          print(grad(whole)(grid(1, 3, 3), grid(2, 3, 3)))
          print(grad(bend)(data(3, 8), data(4, 8)))
          print(for[i < 9] grad(whole)(grid(i, 2, 2), grid(2, 2, 2)))
        }""",
    "random": """
        fn main() {
          print(uniform(key(1), 3, 4), randint(key(2), -5, 5, 20), permutation(key(3), 30), bernoulli(key(4), 0.3, 10))
          print(for[i < 3] normal(fold(key(5), i), 4))
        }""",
    "texts": """
        fn root(x: f32, i: i64) -> f32 { assert x >= 0.0, "element {i} is {x:.2f}"; sqrt(x) }
        fn main() {
          let x = data(8, 20)
          print(for[i < 20] root(abs(x[i]), i))
          print(for[i < 20] "{x[i]:.1f}" == "{i % 2}.0")
        }""",
}  # fmt: skip

STOPS = {
    "the least index of two": """
        fn main() { let x = [3, 1, 0, 5, -1]
          print(for[i < 5] x[x[i]]) }""",
    "in a branch": """
        fn f(i: i64) -> i64 { if i % 4 == 3 { fail("{i} is no good") }; i }
        fn main() { print(for[i < 40] f(i)) }""",
    "behind a loop": """
        fn f(i: i64) -> i64 { var k = 50 - i; while k > 20 { k -= 1 }; assert i < 30, "{i}, {k}"; 10 // (i - 25) }
        fn main() { print(for[i < 40] f(i)) }""",
    "in a sum": """
        fn main() { let x = data(1, 30)
          print(for[i < 10] sum[j < 30] if i * j > 100 { x[i * j] } else { x[j] }) }""",
    "division": """
        fn main() { print(for[i < 40] if i > 20 { i // (30 - i) } else { i % (i + 1) }) }""",
}  # fmt: skip


def test_boxes_are_all_indices_in_order() -> None:
    for extents in ((), (7,), (2, 3, 4), (3, 0), (0, 9), (1, 20), (20, 1)):
        for limit in (1, 5, 6, 100):
            found = [index for box in interp_grid.boxes(extents, limit) for index in itertools.product(*box)]
            assert found == list(np.ndindex(*extents))
            assert all(math.prod(map(len, box)) <= limit for box in interp_grid.boxes(extents, limit))
    assert list(interp_grid.boxes((0, 9), 5)) == [(range(0), range(9))]


def compiled(text: str, name: str) -> tuple[Module, str]:
    program = front(Source(f"{name}.tl", HEAD + text))
    assert program.main is not None
    module: Module = next(value for stage, _, value in middle(program, Options(flags={})) if stage == "ssa")
    differentiate(module)
    return module, program.main


def outcome(
    module: Module, main: str, whole: bool, monkeypatch: pytest.MonkeyPatch, limit: int = interp_grid.LIMIT
) -> tuple[list[str], int]:
    """The lines printed, a stop as the last, and how many elements were looked at one by one."""
    services = Recorder()
    singles = 0
    element = Interpreter.element

    def counting(*args: object) -> object:
        nonlocal singles
        singles += 1
        return element(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Interpreter, "element", counting)
        patch.setattr(interp, "FEW", 1)
        patch.setattr(interp, "LIMIT", limit)
        patch.setattr(interp_grid, "LIMIT", limit)
        try:
            Interpreter(module, services, whole=whole).call(main, [])
        except Stop as stop:
            services.lines.append(f"{stop.kind} at {stop.span}: {stop.message}")
    return services.lines, singles


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_arrays_give_what_single_elements_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, main = compiled(PROGRAMS[name], name)
    expected, singles = outcome(module, main, False, monkeypatch)
    assert expected
    assert singles > 20
    assert outcome(module, main, True, monkeypatch) == (expected, 0)
    for limit in (100, 7):
        assert outcome(module, main, True, monkeypatch, limit)[0] == expected


@pytest.mark.parametrize("name", STOPS)
def test_whole_arrays_stop_where_single_elements_stop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, main = compiled(STOPS[name], name)
    expected, _ = outcome(module, main, False, monkeypatch)
    assert len(expected) == 1
    for limit in (interp_grid.LIMIT, 7):
        assert outcome(module, main, True, monkeypatch, limit)[0] == expected


def test_an_element_that_never_ends_does_not_hide_an_earlier_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        fn f(i: i64) -> i64 { if i == 3 { fail("three") }; var k = i; while k >= 5 { k += 1 }; k }
        fn main() { print(for[i < 20] f(i)) }"""
    module, main = compiled(text, "endless")
    monkeypatch.setattr(interp_paths, "PATIENCE", 1000)
    (line,), _ = outcome(module, main, True, monkeypatch)
    assert line.endswith("three")


# ---------------------------------------------------------------- updates in place

NAMES = st.sampled_from("abc")
INDEX = st.integers(0, 2)


@st.composite
def blocks(draw: st.DrawFn, depth: int = 2) -> list[str]:
    """Statements on three variables, in a language that TL and Python can both be made of."""
    out: list[str] = []
    for _ in range(draw(st.integers(2, 6))):
        a, b, c, i, j = draw(NAMES), draw(NAMES), draw(NAMES), draw(INDEX), draw(INDEX)
        kinds = ["set", "set", "add", "copy", "copy", "swap", "call", "pick", "sum"] + (["if", "for"] if depth else [])
        match draw(st.sampled_from(kinds)):
            case "set":
                out.append(f"{a}[{i}] = {b}[{j}] + 1")
            case "add":
                out.append(f"{a}[{i}] += {b}[{j}] % 7")
            case "sum":
                out.append(f"{a}[{i}] = sum({b}) % 100")
            case "copy":
                out.append(f"{a} = keep({b})")
            case "swap":
                out.append(f"({a}, {b}) = (keep({b}), keep({c}))" if a != b else f"{a} = keep({c})")
            case "call":
                out.append(f"{a} = touch({b}, {i})")
            case "pick":
                out.append(f"{a} = pick({b}, {c}, {i})")
            case "if":
                out += [f"if {a}[{i}] > {b}[{j}]", *block(draw(blocks(depth - 1))), "else", *block(draw(blocks(depth - 1)))]
            case _:
                out += [f"for t{depth} in 0..{draw(st.integers(0, 3))}", *block(draw(blocks(depth - 1)))]
    return out


def block(lines: list[str]) -> list[str]:
    return ["{", *lines, "}"]


def in_tl(lines: list[str]) -> str:
    body = "\n".join(lines).replace("\n{", " {").replace("}\nelse", "} else").replace("keep", "")
    return f"""
        fn touch(x: i64[n], i: i64) -> i64[n] {{ var y = x; y[i] = 50; y[0] += y[i]; y }}
        fn pick(x: i64[n], y: i64[n], i: i64) -> i64[n] = if i == 0 {{ x }} else {{ y }}
        fn main() {{
          var (a, b, c) = ([1, 2, 3], [4, 5, 6], [7, 8, 9])
          {body}
          print(a, b, c)
        }}"""


def in_python(lines: list[str]) -> list[int]:
    """What is left in the variables."""

    def touch(x: list[int], i: int) -> list[int]:
        y = list(x)
        y[i] = 50
        y[0] += y[i]
        return y

    def pick(x: list[int], y: list[int], i: int) -> list[int]:
        return list(x if i == 0 else y)

    text, depth = [], 0
    for line in lines:
        depth += {"{": 1, "}": -1}.get(line, 0)
        if line not in ("{", "}"):
            head = line.startswith(("if", "for", "else"))
            text.append("  " * depth + re.sub(r"0\.\.(\d)", r"range(\1)", line) + ":" * head)
    values = {"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}
    exec("\n".join(text), {"keep": list, "touch": touch, "pick": pick}, values)
    return [n for v in "abc" for n in values[v]]


@settings(max_examples=100, deadline=None)
@given(blocks())
@example(["a[0] = b[0] + 1", "b = pick(a, c, 0)", "a[1] = c[1] + 1"])
@example(["a[0] = b[0] + 1", "b = keep(a)", "a[1] = c[1] + 1"])
def test_an_update_in_place_is_seen_by_nobody_else(lines: list[str]) -> None:
    module, main = compiled(in_tl(lines), "update")
    services = Recorder()
    Interpreter(module, services).call(main, [])
    (found,) = services.lines
    assert [int(n) for n in re.findall(r"-?\d+", found)] == in_python(lines), in_tl(lines)


def test_a_loop_copies_an_array_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    update = interp._OPS["update"]

    def counting(self: Interpreter, instr: Instr, operands: list[Any], frame: interp.Frame) -> Any:
        results = update(self, instr, operands, frame)
        copies.append(results[0] is not operands[0])
        return results

    monkeypatch.setitem(interp._OPS, "update", counting)
    text = """
        fn main() {
          var a = zeros(100)
          for i in 0..100 { if i % 3 == 0 { a[i] = 1.0 } else { a[i] = a[i // 2] + 1.0 } }
          for i in 0..99 { (a[i], a[i + 1]) = (a[i + 1], a[i]) }
          print(a[5])
        }"""
    module, main = compiled(text, "loop")
    Interpreter(module, Recorder()).call(main, [])
    assert len(copies) == 100 + 2 * 99
    assert sum(copies) == 1


def test_no_memory_has_a_place() -> None:
    text = "fn main(n: i64) {\n  let x = for[i < n] f32(i)\n  print(sum(x))\n}\n"
    program = front(Source("test.tl", text))
    with pytest.raises(Stop, match="there is not enough memory for a tensor") as stop:
        interpret(program, Options(flags={"n": 1 << 50}), Recorder())
    assert stop.value.kind == "memory" and text[stop.value.span.start :].startswith("for[i < n]")

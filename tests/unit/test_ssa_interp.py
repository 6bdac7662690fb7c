"""The interpreter: orders of sums, failures at the least index, whole arrays against single elements, deep recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ssa_random import modules
from ssa_services import Recorder

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.fma import fma32
from tlc.frontend.types import Elem
from tlc.ssa import interp, interp_grid
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.interp import MAX_CALLS, Interpreter, Stop
from tlc.ssa.ir import I64, Module, Type, Value
from tlc.ssa.text import parse_module
from tlc.ssa.verify import verify

F32, F64 = Type(Elem.F32), Type(Elem.F64)
VECTOR, MATRIX = Type(Elem.F32, 1), Type(Elem.F32, 2)


def run(module: Module, args: list[Any], name: str = "f", whole: bool = True) -> list[Any]:
    verify(module)
    interpreter = Interpreter(module, Recorder(), whole=whole)
    return interpreter.call(name, args)


@pytest.mark.parametrize("limit", [interp_grid.LIMIT, 3])
def test_whole_arrays_agree_with_single_elements(limit: int) -> None:
    """Branches and loops too, however few elements there are, and with boxes so small that there are many."""

    @settings(max_examples=150, deadline=None)
    @given(modules(), st.integers(-5, 9), st.floats(width=32))
    def agree(module: Module, n: int, a: float) -> None:
        args = [n, a, np.array([1.5, -2.0, 0.1], np.float32), np.array([[1.0, 2.0], [0.3, -0.0]])]
        name = list(module.functions)[1]
        whole, single = (run(module, args, name, w) for w in (True, False))
        for x, y in zip(whole, single, strict=True):
            assert x.dtype == y.dtype
            assert np.array_equal(x, y, equal_nan=True)
            assert np.array_equal(np.signbit(x), np.signbit(y)) or np.isnan(x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp, "FEW", 0)
        patch.setattr(interp, "LIMIT", limit)
        patch.setattr(interp_grid, "LIMIT", limit)
        agree()


def reduction(op: str, order: str, body: str = "load", type: Type = VECTOR) -> Module:
    module = Module()
    result = I64 if op.startswith("arg") else Type(type.elem)
    _, b = new_function("f", [("x", type), ("y", type)], [result], module)
    x, y = b.block.params

    def element(b: Builder, i: Value) -> Value:
        return b.op("mul", b.index(x, i), b.index(y, i)) if body == "product" else b.index(x, i)

    b.ret(b.reduce(op, [b.dim(x, 0)], element, order))
    return module


def vectors(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple((rng.normal(size=n) * 10.0 ** rng.integers(-6, 6, n)).astype(np.float32) for _ in "xy")  # type: ignore[return-value]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100])
def test_orders_of_sums(n: int, whole: bool) -> None:
    x, y = vectors(n, n)
    chain = np.float32(0)
    fused = np.float32(0)
    lanes = [np.float32(0)] * 16
    for p in range(n):
        chain = np.float32(chain + x[p])
        fused = fma32(x[p], y[p], fused)
        lanes[p % 16] = np.float32(lanes[p % 16] + x[p])
    for half in (8, 4, 2, 1):
        for lane in range(half):
            lanes[lane] = np.float32(lanes[lane] + lanes[lane + half])
    assert run(reduction("sum", "chain"), [x, y], whole=whole) == [chain]
    assert run(reduction("sum", "chain", "product"), [x, y], whole=whole) == [fused]
    assert run(reduction("sum", "lanes"), [x, y], whole=whole) == [lanes[0]]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("max", [1.0, np.nan, 3.0], np.nan),
        ("min", [1.0, np.nan, 3.0], np.nan),
        ("max", [-0.0, 0.0, -0.0], 0.0),
        ("min", [0.0, -0.0, 0.0], -0.0),
        ("max", [], -np.inf),
        ("argmax", [1.0, 3.0, 3.0], 1),
        ("argmax", [1.0, 3.0, np.nan, np.nan], 2),
        ("argmin", [2.0, 1.0, 1.0, np.nan], 3),
        ("argmin", [0.0, -0.0], 0),
        ("prod", [], 1.0),
        ("sum", [-0.0], 0.0),
    ],
)
def test_ties_nan_and_empty_ranges(op: str, x: list[float], expected: float, whole: bool) -> None:
    (found,) = run(reduction(op, "lanes"), [x, x], whole=whole)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.signbit(found) == np.signbit(expected)


def test_integer_sums_wrap() -> None:
    assert run(reduction("sum", "lanes", type=Type(Elem.I8, 1)), [[100, 100], [0, 0]]) == [-56]
    assert run(reduction("prod", "chain", type=Type(Elem.U8, 1)), [[16, 17], [0, 0]]) == [16]


def test_a_matrix_product_needs_no_cube() -> None:
    module = Module()
    _, b = new_function("f", [("x", MATRIX), ("y", MATRIX)], [MATRIX], module)
    x, y = b.block.params
    n, k, m = b.dim(x, 0), b.dim(x, 1), b.dim(y, 1)
    b.ret(
        b.tabulate(
            [n, m],
            lambda b, i, j: b.reduce("sum", [k], lambda b, c: b.op("mul", b.index(x, i, c), b.index(y, c, j)), "chain"),
        )
    )
    x_, y_ = np.random.default_rng(0).normal(size=(2, 500, 500)).astype(np.float32)
    (found,) = run(module, [x_, y_])
    assert np.allclose(found, x_ @ y_, atol=1e-3)


CHECKS = """
func @f(%x: i64[_]) -> i64[_] {
entry:
  %n = dim %x {axis = 0} : i64
  %y = tabulate %n {
    (%i: i64):
      %a = index %x, %i : i64
      %ten = const {value = 10} : i64
      %zero = const {value = 0} : i64
      %small = lt %a, %ten : bool
      check %small, %i, %a {kind = "assert", message = "at {0}: {1} is large"}
      %positive = ge %a, %zero : bool
      check %positive, %i, %a {kind = "assert", message = "at {0}: {1} is negative"}
      yield %a
  } : i64[_]
  return %y
}
"""


def test_the_least_index_that_fails_is_reported() -> None:
    module = parse_module(CHECKS)
    assert list(run(module, [[1, 2]])[0]) == [1, 2]
    with pytest.raises(Stop) as e:
        run(module, [[1, 2, -3, 4, 50]])
    assert (e.value.message, e.value.kind) == ("at 2: -3 is negative", "assert")
    assert str(e.value.span) == "<text>:13:7"


def test_a_check_in_an_empty_comprehension_does_not_fail() -> None:
    module = parse_module(
        """func @f(%n: i64, %c: bool, %x: f32[_]) -> f32[_] {
        entry:
          %y = tabulate %n { (%i: i64): check %c {kind = "assert", message = "no"} %a = index %x, %n : f32  yield %a } : f32[_]
          return %y
        }"""
    )
    assert run(module, [0, False, []])[0].shape == (0,)
    with pytest.raises(Stop, match="no"):
        run(module, [1, False, [1.0, 2.0]])


def test_a_ragged_reduction() -> None:
    module = Module()
    _, b = new_function("f", [("n", I64)], [Type(Elem.I64, 1)], module)
    b.ret(b.tabulate([b.block.params[0]], lambda b, i: b.reduce("sum", [i], lambda b, k: k)))
    assert list(run(module, [6])[0]) == [0, 0, 1, 3, 6, 10]


def test_rows_of_an_empty_comprehension_keep_their_length() -> None:
    module = Module()
    _, b = new_function("f", [("n", I64), ("x", MATRIX)], [MATRIX], module)
    n, x = b.block.params
    b.ret(b.tabulate([n], lambda b, i: b.index(x, i)))
    assert run(module, [0, np.ones((2, 3))])[0].shape == (0, 3)


def test_an_index_out_of_range_is_a_bug_of_the_compiler() -> None:
    module = parse_module("func @f(%x: f32[_], %i: i64) -> f32 {\nentry:\n  %a = index %x, %i : f32\n  return %a\n}")
    with pytest.raises(InternalError, match="out of range"):
        run(module, [[1.0], 1])


RECURSION = """
func @f(%n: i64) -> i64 {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %p = eq %n, %zero : bool
  branch %p, end(%zero), more
more:
  %m = sub %n, %one : i64
  %r = call %m {callee = "f"} : i64
  %s = add %r, %one : i64
  jump end(%s)
end(%t: i64):
  return %t
}
func @g(%n: i64) -> i64 {
entry:
  %zero = const {value = 0} : i64
  %one = const {value = 1} : i64
  %p = eq %n, %zero : bool
  branch %p, end(%one), more
more:
  %m = sub %n, %one : i64
  %s = reduce %one {op = "sum", order = "lanes"} {
    (%k: i64):
      %r = call %m {callee = "g"} : i64
      yield %r
  } : i64
  jump end(%s)
end(%t: i64):
  return %t
}
"""


def test_recursion_is_deep_and_ends_in_a_stop() -> None:
    module = parse_module(RECURSION)
    assert run(module, [20_000]) == [20_000]
    with pytest.raises(Stop) as e:
        run(module, [-1])
    assert (e.value.kind, str(e.value.span)) == ("recursion", "<text>:10:8")
    assert str(MAX_CALLS) in e.value.message
    assert run(module, [500], "g") == [1]
    with pytest.raises(Stop, match="comprehensions"):
        run(module, [-1], "g")


def test_a_loop_swaps_in_parallel() -> None:
    module = parse_module(
        """func @f(%n: i64, %a: i64, %b: i64) -> i64, i64 {
        entry:
          %zero = const {value = 0} : i64
          %one = const {value = 1} : i64
          jump head(%zero, %a, %b)
        head(%i: i64, %x: i64, %y: i64):
          %p = lt %i, %n : bool
          branch %p, body, done
        body:
          %j = add %i, %one : i64
          jump head(%j, %y, %x)
        done:
          return %x, %y
        }"""
    )
    assert run(module, [3, 1, 2]) == [2, 1]


def test_services() -> None:
    module = parse_module(
        """func @main(%n: i64) -> str, i64 {
        entry:
          %label = const {value = "epoch"} : str
          %p = progress_begin %label, %n : i64
          progress_tick %p, %n
          progress_end %p
          print %label
          %a, %b = extern %n {name = "twice"} : str, i64
          push %n {tape = 0}
          push %b {tape = 0}
          %c = pop {tape = 0} : i64
          return %a, %c
        }"""
    )
    verify(module)
    world = Recorder()
    assert Interpreter(module, world).call("main", [5]) == ["twice", 5]
    assert world.lines == ["epoch"]
    assert world.progress == [("begin", "epoch", 5), ("tick", 5), ("end",)]


def test_arguments_are_not_changed() -> None:
    module = parse_module(
        """func @f(%x: f32[_], %i: i64, %v: f32) -> f32[_] {
        entry:
          %y = update %x, %i, %v : f32[_]
          return %y
        }"""
    )
    x = np.zeros(2, np.float32)
    assert list(run(module, [x, 1, 5.0])[0]) == [0, 5]
    assert list(x) == [0, 0]


def test_grad_needs_a_hook() -> None:
    module = parse_module(
        """func @f(%x: f32) -> f32 {
        entry:
          return %x
        }
        func @df(%x: f32) -> f32, f32 {
        entry:
          %v, %g = grad %x {callee = "f", value = True, wrt = (0,)} : f32, f32
          return %v, %g
        }"""
    )
    with pytest.raises(InternalError, match="derivatives are expanded before"):
        run(module, [1.0], "df")
    assert Interpreter(module, Recorder(), grad=lambda instr, args: [args[0], np.float32(1)]).call("df", [2.0]) == [2.0, 1.0]

"""Flattening: every region is scalar afterwards, and the program computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ssa_random import modules
from ssa_services import Recorder

from tlc.frontend.types import Elem
from tlc.opt import passes
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import I64, Instr, Module, Region, Type, Value, walk
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.flatten import Note, flatten, is_flat

F64, VECTOR, MATRIX, COUNTS = Type(Elem.F64), Type(Elem.F64, 1), Type(Elem.F64, 2), Type(Elem.I64, 1)
ARGUMENTS: list[Any] = [3, 1.5, [0.5, -1.0, 2.0], [[1.0, 2.0, 3.0], [-0.0, 0.25, 1e300]]]


def comprehensions(region: Region) -> list[Instr]:
    """Those at the level of blocks, not the reductions that they hold."""
    return [i for b in region.blocks for i in b.instrs if i.regions]


def flat(module: Module) -> tuple[Module, list[Note]]:
    """A flattened copy, looked over."""
    module = parse_module(print_module(module))
    notes = flatten(module)
    verify(module)
    for f in module.functions.values():
        for i in comprehensions(f.body):
            assert is_flat(i), print_module(module)
    return module, notes


def call(module: Module, *args: Any) -> list[Any]:
    return Interpreter(module, Recorder()).call("f", args)


def agree(module: Module, *args: Any) -> tuple[Module, list[Note]]:
    changed, notes = flat(module)
    for was, now in zip(call(module, *args), call(changed, *args), strict=True):
        np.testing.assert_array_equal(now, was)
    return changed, notes


def function(params: list[tuple[str, Type]], results: list[Type]) -> tuple[Module, Builder, list[Value]]:
    module = Module()
    f, b = new_function("f", params, results, module)
    return module, b, f.params


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_programs_compute_the_same(data: st.DataObject) -> None:
    module = data.draw(modules())
    passes.run(module, ("inline", "simplify-cfg"))
    changed, _ = flat(module)
    for name in module.functions:
        was = Interpreter(module, Recorder()).call(name, ARGUMENTS)
        now = Interpreter(changed, Recorder()).call(name, ARGUMENTS)
        for a, b in zip(was, now, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5)


def test_flattening_again_changes_nothing() -> None:
    module, b, (x,) = function([("x", MATRIX)], [VECTOR])

    def row_norm(b: Builder, i: Value) -> Value:
        row = b.index(x, i)
        squares = b.reduce("sum", [b.dim(row, 0)], lambda b, j: b.op("mul", b.index(row, j), b.index(row, j)), "chain")
        return b.op("sqrt", squares)

    b.ret(b.tabulate([b.dim(x, 0)], row_norm))
    once, _ = agree(module, np.arange(6.0).reshape(2, 3))
    twice, _ = flat(once)
    assert print_module(twice) == print_module(once)


def test_an_invariant_loses_the_dimension() -> None:
    """A row that does not depend on the index is computed once, before the comprehension."""
    module, b, (x, w) = function([("x", VECTOR), ("w", VECTOR)], [VECTOR])

    def element(b: Builder, i: Value) -> Value:
        e = b.tabulate([b.dim(w, 0)], lambda b, j: b.op("exp", b.index(w, j)))
        total = b.reduce("sum", [b.dim(e, 0)], lambda b, j: b.index(e, j))
        return b.op("mul", b.index(x, i), total)

    b.ret(b.tabulate([b.dim(x, 0)], element))
    changed, _ = agree(module, [1.0, 2.0], [0.5, 0.25, 0.125])
    assert [i.op for i in comprehensions(changed.functions["f"].body)] == ["tabulate", "reduce", "tabulate"]
    assert all(len(i.operands) == 1 for i in comprehensions(changed.functions["f"].body))


def test_an_expensive_scalar_is_stored() -> None:
    module, b, (x, w) = function([("x", VECTOR), ("w", VECTOR)], [MATRIX])

    def row(b: Builder, i: Value) -> Value:
        e = b.op("exp", b.index(x, i))
        return b.tabulate([b.dim(w, 0)], lambda b, j: b.op("mul", e, b.index(w, j)))

    b.ret(b.tabulate([b.dim(x, 0)], row))
    changed, _ = agree(module, [1.0, 2.0], [0.5, 0.25, 0.125])
    ranks = [i.result.type.rank for i in comprehensions(changed.functions["f"].body)]
    assert ranks == [1, 2]


def test_update_scatter_and_reshape_of_rows() -> None:
    module, b, (x, p) = function([("x", MATRIX), ("p", COUNTS)], [Type(Elem.F64, 3), MATRIX, VECTOR])

    def element(b: Builder, i: Value) -> tuple[Value, ...]:
        row, at = b.index(x, i), b.index(p, i)
        changed = b.update(row, [at], b.const(10.0, F64))
        whole = b.update(x, [at], changed)

        def add(b: Builder, k: Value) -> tuple[Value, Value]:
            return b.index(p, k), b.index(changed, k)

        counted = b.scatter(row, [b.dim(p, 0)], add)
        last = b.index(b.reshape(counted, [b.i64(1), b.dim(row, 0)]), b.i64(0), b.i64(1))
        return whole, b.index(whole, at), last

    result = b.tabulate_many([b.dim(x, 0)], element)
    b.ret(*result.results)
    _, notes = agree(module, np.arange(9.0).reshape(3, 3), [2, 0, 0])
    assert not notes


def test_ragged_reductions_need_no_loop() -> None:
    module, b, (x,) = function([("x", VECTOR)], [VECTOR, F64])

    def below(b: Builder, i: Value) -> Value:
        return b.reduce("sum", [i], lambda b, k: b.op("mul", b.index(x, k), b.index(x, i)), "chain")

    rows = b.tabulate([b.dim(x, 0)], below)
    total = b.reduce("sum", [b.dim(x, 0)], lambda b, i: b.op("add", below(b, i), b.index(x, i)))
    b.ret(rows, total)
    _, notes = agree(module, [1.0, 2.0, 4.0, 8.0])
    assert not notes


def test_a_ragged_tensor_runs_as_a_loop() -> None:
    module, b, (x,) = function([("x", VECTOR)], [VECTOR])

    def element(b: Builder, i: Value) -> Value:
        front = b.tabulate([i], lambda b, k: b.op("exp", b.index(x, k)))
        return b.reduce("prod", [i], lambda b, k: b.index(front, k))

    b.ret(b.tabulate([b.dim(x, 0)], element))
    _, notes = agree(module, [0.5, 0.25, 0.125])
    assert [n.reason for n in notes] == ["an extent depends on the index"]


def escape(b: Builder, x: Value, i: Value) -> tuple[Builder, Value]:
    """How often x[i] doubles until it is 100: a loop in a region."""
    head, body, done = b.new_block("head", [I64, F64]), b.new_block("body"), b.new_block("done")
    b.jump(head, b.i64(0), b.index(x, i))
    b.move_to(head)
    k, v = head.params
    b.branch(b.op("lt", v, b.const(100.0, F64)), body, done)
    b.move_to(body)
    b.jump(head, b.op("add", k, b.i64(1)), b.op("add", v, v))
    b.move_to(done)
    return b, k


def test_a_loop_over_scalars_stays_in_its_region() -> None:
    module, b, (x,) = function([("x", VECTOR)], [COUNTS, I64])
    counts = b.tabulate([b.dim(x, 0)], lambda b, i: escape(b, x, i)[1])
    total = b.reduce("sum", [b.dim(x, 0)], lambda b, i: escape(b, x, i)[1])
    b.ret(counts, total)
    changed, notes = agree(module, [1.0, 30.0, 200.0])
    assert not notes
    assert len(changed.functions["f"].blocks) == 1


@pytest.mark.parametrize("order", ["chain", "lanes"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_reductions_under_control_flow_keep_their_order(op: str, order: str) -> None:
    module, b, (x,) = function([("x", MATRIX)], [Type(Elem.I64 if op.startswith("arg") else Elem.F64, 1)])

    def element(b: Builder, i: Value) -> Value:
        row = b.index(x, i)
        other, join = b.new_block("other"), b.new_block("join")
        b.branch(b.op("gt", b.index(row, b.i64(0)), b.const(0.0, F64)), other, join)
        b.move_to(other)
        b.jump(join)
        b.move_to(join)
        return b.reduce(op, [b.dim(row, 0)], lambda b, j: b.op("mul", b.index(row, j), b.index(row, j)), order)

    b.ret(b.tabulate([b.dim(x, 0)], element))
    _, notes = agree(module, np.random.default_rng(0).normal(size=(2, 37)))
    assert not notes


def test_a_tensor_under_control_flow_runs_as_a_loop() -> None:
    module, b, (x,) = function([("x", MATRIX)], [MATRIX])

    def row(b: Builder, i: Value) -> Value:
        then, join = b.new_block("then"), b.new_block("join", [VECTOR])
        here = b.index(x, i)
        b.branch(b.op("gt", b.index(here, b.i64(0)), b.const(0.0, F64)), then, join, (), [here])
        b.move_to(then)
        b.jump(join, b.tabulate([b.dim(here, 0)], lambda b, j: b.op("neg", b.index(here, j))))
        b.move_to(join)
        return join.params[0]

    b.ret(b.tabulate([b.dim(x, 0)], row))
    _, notes = agree(module, np.random.default_rng(0).normal(size=(3, 4)))
    assert len(notes) == 1


def checked(order: int = 1) -> Module:
    """`for[i, j] x[p[i], j]` with checks of both indices."""
    module, b, (x, p) = function([("x", MATRIX), ("p", COUNTS)], [MATRIX])

    def element(b: Builder, i: Value, j: Value) -> Value:
        at, bound = b.index(p, i), b.dim(x, 0)
        b.check(b.op("lt", at, bound), "index", "{0} at {1} is not below {2}", at, i, bound)
        return b.index(x, at, j)

    b.ret(b.tabulate([b.dim(p, 0), b.dim(x, 1)], element))
    return module


def test_a_check_is_made_before_and_reports_the_least_index() -> None:
    module = checked()
    agree(module, np.arange(6.0).reshape(2, 3), [1, 0, 1])
    changed, _ = flat(module)
    assert not any(i.op == "check" for c in comprehensions(changed.functions["f"].body) for i in walk(c.regions[0]))
    with pytest.raises(Stop, match="5 at 1 is not below 2"):
        call(changed, np.arange(6.0).reshape(2, 3), [1, 5, 7])


def test_a_check_of_no_elements_holds() -> None:
    agree(checked(), np.zeros((0, 3)), np.zeros(0, np.int64))


def test_a_check_that_does_not_depend_on_the_index_needs_no_reduction() -> None:
    module, b, (x, n) = function([("x", VECTOR), ("n", I64)], [VECTOR])

    def element(b: Builder, i: Value) -> Value:
        b.check(b.op("gt", n, b.i64(0)), "empty", "{0} is not positive", n)
        return b.op("div", b.index(x, i), b.op("convert", n, type=F64))

    b.ret(b.tabulate([b.dim(x, 0)], element))
    changed, _ = agree(module, [1.0, 2.0], 2)
    assert [i.op for i in comprehensions(changed.functions["f"].body)] == ["tabulate"]
    agree(module, [], 0)
    with pytest.raises(Stop, match="0 is not positive"):
        call(changed, [1.0], 0)


def test_what_a_check_guards_is_not_touched_without_elements() -> None:
    """An invariant leaves the comprehension, but its loads rely on the check, so on there being an element."""
    module, b, (x, y) = function([("x", VECTOR), ("y", VECTOR)], [VECTOR])

    def element(b: Builder, i: Value) -> Value:
        b.check(b.op("lt", b.i64(4), b.dim(y, 0)), "index", "too short")
        total = b.reduce("sum", [b.i64(5)], lambda b, k: b.index(y, k))
        return b.op("add", b.index(x, i), total)

    b.ret(b.tabulate([b.dim(x, 0)], element))
    agree(module, [], [1.0])
    agree(module, [1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0])

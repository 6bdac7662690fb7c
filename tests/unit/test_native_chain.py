"""Random SSA with comprehensions, through flattening, kernels and the memory plan to native code, against the interpreter of SSA."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from native_run import World
from ssa_random import F32, F64, modules

from tlc.backends.cpu import vectors
from tlc.backends.runtime.native import Native
from tlc.driver.options import Options
from tlc.driver.pipeline import machine_code
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, Value
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.tensor.flatten import flatten
from tlc.tensor.lower import lower
from tlc.tensor.memory import plan
from tlc.tensor.ownership import verify_ownership
from tlc.tensor.schedule import Target


def add_main(module: Module, n: int, a: float) -> None:
    """A `main` that calls the last function and prints what it gives."""

    def row(b: Builder, i: Value) -> Value:
        return b.op("sub", b.op("mul", b.convert(i, F32), b.const(0.7, F32)), b.const(a, F32))

    def cell(b: Builder, i: Value, j: Value) -> Value:
        return b.op("sub", b.convert(b.op("mul", i, j), F64), b.convert(j, F64))

    name = list(module.functions)[-1]
    _, b = new_function("main", [], [], module)
    v, w = b.tabulate([b.i64(3)], row), b.tabulate([b.i64(2), b.i64(2)], cell)
    results = b.call(name, [b.i64(n), b.const(a, F32), v, w])
    b.print(b.format((("hole", "", "leaf"), " ", ("hole", "", "leaf")), results))
    b.ret()


@settings(max_examples=20, deadline=None)
@given(modules(), st.integers(-3, 5), st.sampled_from([0.5, -2.0, 3.25]), st.sampled_from([vectors(), Target()]))
def test_the_whole_chain_keeps_every_bit(module: Module, n: int, a: float, target: Target) -> None:
    add_main(module, n, a)
    expected, found = World(), World()
    Interpreter(module, expected).call("main", [])
    module = parse_module(print_module(module))
    flatten(module)
    tensors = lower(module, target)
    takes = plan(module, tensors.kernels)
    verify(module, "host")
    verify_ownership(module, takes, tensors.kernels)
    Native(machine_code(tensors, Options(host="llvm"), {}), found).run()
    assert found.lines == expected.lines

"""The verifier finds each kind of broken SSA, and names function and instruction."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from ssa_random import modules

from tlc.frontend.diagnostics import InternalError
from tlc.ssa.ir import Block, Function, Module
from tlc.ssa.text import parse_module
from tlc.ssa.verify import verify

GOOD = """
func @f(%x: f32[_], %p: bool) -> f32 {
entry:
  %n = dim %x {axis = 0} : i64
  %s = reduce %n {op = "sum", order = "lanes"} {
    (%i: i64):
      %a = index %x, %i : f32
      yield %a
  } : f32
  branch %p, then, done(%s)
then:
  %t = neg %s : f32
  jump done(%t)
done(%r: f32):
  return %r
}
"""


@settings(max_examples=50, deadline=None)
@given(modules())
def test_random_modules_are_right(module: Module) -> None:
    verify(module)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("neg %s : f32", "neg %s : f64", "gives (f64), should give (f32)"),
        ("neg %s : f32", "neg %p : bool", "does not take bool"),
        ("neg %s : f32", "add %s, %n : f32", "should take one type"),
        ("neg %s : f32", "neg %s, %s : f32", "takes 2 operands, should take 1"),
        ("neg %s : f32", "neg %x : f32", "should take scalars"),
        ("neg %s : f32", "neg %s {a = 1} : f32", "attributes are ['a'], should be []"),
        ("neg %s : f32", "index %x, %s : f32", "indices are (f32), should be i64"),
        ("neg %s : f32", "index %x, %n, %n : f32", "2 indices for f32[_]"),
        ("neg %s : f32", "update %x, %n, %x : f32[_]", "the new part is f32[_], should be f32"),
        ("neg %s : f32", "const {value = 1} : f32", ""),
        ("neg %s : f32", "const {value = 300} : u8", "300 is no value of u8"),
        ("neg %s : f32", 'const {value = "a"} : f32', "'a' is no value of f32"),
        ("neg %s : f32", 'call %s {callee = "g"} : f32', "there is no function `g`"),
        ("neg %s : f32", 'call %s {callee = "f"} : f32', "takes (f32), should take (f32[_], bool)"),
        ("neg %s : f32", 'get {var = "v"} : f32', "an op of stage `cfg` in stage `ssa`"),
        ("neg %s : f32", "alloc : f32", "an op of stage `host` in stage `ssa`"),
        ("neg %s : f32", "neg %r : f32", "whose definition does not dominate it"),
        ("neg %s : f32", "neg %a : f32", "whose definition does not dominate it"),
        ("neg %s : f32", "neg %t : f32", "whose definition does not dominate it"),
        ("axis = 0", "axis = 1", "f32[_] has no axis 1"),
        ("yield %a", "yield %n", "gives (f32), should give (i64)"),
        ("yield %a", "yield %s", "whose definition does not dominate it"),
        ("yield %a", "yield %a, %a", "should yield one scalar"),
        ("yield %a", "return %a", "`return` in a nested region"),
        ("(%i: i64)", "(%i: f32)", "the region takes (f32), should take 1 indices of i64"),
        ('op = "sum"', 'op = "any"', "`any` does not take f32"),
        ('op = "sum"', 'op = "mean"', "there is no reducer `mean`"),
        ("done(%t)", "done(%x)", "passes to block `done` (f32[_]), should be (f32)"),
        ("done(%t)", "done", "passes to block `done` (), should be (f32)"),
        ("jump done(%t)", "jump entry", "goes to the entry block"),
        ("jump done(%t)", "yield %t", "`yield` in a function region"),
        ("branch %p", "branch %s", "needs one bool before its edges"),
        ("return %r", "return %x", "returns (f32[_]), should be (f32)"),
        ("  %a = index", '  %m = const {value = ""} : str\n      print %m\n      %a = index', "inside a region"),
    ],
)
def test_one_change_breaks_it(old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    verify(parse_module(GOOD))
    if not message:
        verify(parse_module(GOOD.replace(old, new)))  # an integer literal is a real's value too
        return
    with pytest.raises(InternalError) as e:
        verify(parse_module(GOOD.replace(old, new)))
    assert message in str(e.value)
    assert str(e.value).startswith("function f, ")


def _drop_use(f: Function) -> None:
    f.params[0].uses.clear()


def _foreign(f: Function) -> None:
    other = Block()
    f.blocks[-1].terminator.operands = (other.add_param(f.results[0]),)


def _twice(f: Function) -> None:
    f.body.blocks.append(f.blocks[-1])


def _lost_block(f: Function) -> None:
    f.blocks[1].region = None


def _stranger(f: Function) -> None:
    f.blocks[0].instrs[0].block = f.blocks[1]


def _no_terminator(f: Function) -> None:
    f.body.add(Block("loose"))


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (_drop_use, "counts uses"),
        (_foreign, "which is not in the function"),
        (_twice, "stands in two places"),
        (_lost_block, "goes to block `then` outside of its region"),
        (_stranger, "the instruction's block is another"),
        (_no_terminator, "the block has no terminator"),
    ],
)
def test_broken_structure(breaks: Callable[[Function], None], message: str) -> None:
    module = parse_module(GOOD)
    breaks(module.functions["f"])
    with pytest.raises(InternalError, match=message):
        verify(module)


def test_a_function_is_filed_under_its_name() -> None:
    module = parse_module(GOOD)
    module.functions["g"] = module.functions.pop("f")
    with pytest.raises(InternalError, match="filed under `g`"):
        verify(module)


def test_a_variable_has_one_type() -> None:
    text = 'func @f(%x: i64, %y: f32) {\nentry:\n  set %x {var = "v"}\n  set %y {var = "v"}\n  return\n}'
    with pytest.raises(InternalError, match="variable `v` is i64 elsewhere, f32 here"):
        verify(parse_module(text), "cfg")

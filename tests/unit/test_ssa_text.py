"""The text form of SSA: golden files round-trip, verify and run as their `#!` lines say; printing is a fixpoint; errors have places."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from ssa_random import modules
from ssa_services import Recorder

from tlc.frontend.diagnostics import CompileError
from tlc.ssa import formatting
from tlc.ssa.clone import clone_function
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import Module
from tlc.ssa.text import parse_module, print_function, print_module
from tlc.ssa.verify import verify

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "ssa").glob("*.ssa"))


def stage(text: str) -> str:
    return "cfg" if " get {" in text else "host" if " run " in text else "ssa"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden_text_round_trips_verifies_and_runs(path: Path) -> None:
    text = path.read_text()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    module = parse_module(text, str(path))
    assert print_module(module) == "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    verify(module, stage(text))

    def launch(kernel: str, outputs: list[np.ndarray], inputs: list[np.ndarray]) -> None:
        assert kernel == "double"
        outputs[0][...] = 2 * inputs[0]

    for line in comments:
        if line.startswith("#! "):
            call, _, expected = line[3:].partition(" = " if " = " in line.split("stops:")[0] else " stops: ")
            name, _, args = call.partition("(")
            try:
                results = Interpreter(module, Recorder(), launch).call(name, ast.literal_eval(f"({args[:-1]},)"))
                found = ", ".join(map(formatting.leaf, results))
            except Stop as e:
                found = e.message
            assert found == expected


def test_golden_files_exist() -> None:
    assert len(GOLDEN) >= 5


@settings(max_examples=100, deadline=None)
@given(modules())
def test_printing_parsing_printing_is_a_fixpoint(module: Module) -> None:
    text = print_module(module)
    again = parse_module(text)
    verify(again)
    assert print_module(again) == text


@settings(max_examples=40, deadline=None)
@given(modules())
def test_a_clone_prints_alike_and_shares_nothing(module: Module) -> None:
    text = print_module(module)
    copies = Module()
    for f in module.functions.values():
        copies.add(clone_function(f, f.name))
    verify(module)
    verify(copies)
    assert print_module(copies) == text


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("func @f() {\nentry:\n  %x = ad %y : i64\n  return\n}", "3:8", "there is no op `ad`"),
        ("func @f(%x: i64) {\nentry:\n  return %xx\n}", "3:10", "there is no value `%xx`"),
        ("func @f(%x: i46) {\nentry:\n  return\n}", "1:13", "there is no element type `i46`"),
        ("func @f() {\nentry:\n  jump nowhere\n}", "3:8", "there is no block `nowhere` in this region"),
        ("func @f(%x: i64, %x: i64) {\nentry:\n  return\n}", "1:18", "`%x` is defined twice"),
        ("func @f() {\nentry:\n  %x = const {value = 1}\n  return\n}", "4:3", "1 results have 0 types"),
        ("func @f() {\nentry:\n  return\n}\nfunc @f() {\nentry:\n  return\n}", "5:6", "function `f` is defined twice"),
        ("func @f() {\nentry:\n  return ?\n}", "3:10", "unexpected character `?`"),
        ('func @f() {\nentry:\n  %x = const {value = "\\x"} : str\n  return\n}', "3:23", "malformed string"),
        ("func @f() {\nentry:\n  return\n", "4:1", "expected a block's label or `}`, found `end of the text`"),
    ],
)
def test_errors_have_places(text: str, place: str, message: str) -> None:
    with pytest.raises(CompileError) as e:
        parse_module(text, "t.ssa")
    (diagnostic,) = e.value.diagnostics
    assert str(diagnostic.span) == f"t.ssa:{place}"
    assert diagnostic.message.startswith(message)


def test_near_names_are_offered() -> None:
    with pytest.raises(CompileError) as e:
        parse_module("func @f() {\nentry:\n  jum entry\n}")
    assert e.value.diagnostics[0].help == "did you mean `jump`?"


def test_broken_ssa_prints() -> None:
    module = parse_module("func @f(%x: i64) -> i64 {\nentry:\n  return %x\n}\nfunc @g(%y: i64) -> i64 {\nentry:\n  return %y\n}")
    f, g = module.functions.values()
    f.blocks[0].terminator.operands = (g.params[0],)
    assert "return %?y" in print_function(f)

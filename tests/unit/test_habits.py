"""What is proposed to people who come from NumPy, PyTorch or Python is TL: it parses, and the functions in it exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tlc.frontend import ast, modules
from tlc.frontend.ast import names_in
from tlc.frontend.check import habits
from tlc.frontend.check.builtins import BUILTINS
from tlc.frontend.check.callee import TRANSFORMS
from tlc.frontend.check.type_nodes import ELEMS
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.nesting import children
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

TABLES = {name: getattr(habits, name) for name in ("VALUES", "FUNCTIONS", "METHODS", "FIELDS", "ARGUMENTS", "TYPES")}
ROWS = [(f"{table}.{word}", help) for table, rows in TABLES.items() for word, help in rows.items()]

# How a piece of code may stand in a program: an expression, a statement, a definition, a type, a range.
FORMS = (
    "fn q() {{ {} }}",
    "{}",
    "fn q(x: {}) {{ }}",
    "fn q() {{ for i in {} {{ }} }}",
    "fn q() {{ f({}) }}",
    "{} = 0.0",
    "fn q() {} f32 = 0.0",
)
NOT_CALLED = {"f", "forward"}  # stand for a function of one's own


def parsed(code: str) -> ast.Module | None:
    """The code in the first form that it has. `...` stands for anything."""
    whole = re.sub(r"\.\.\. (\w+\[i\]) \.\.\.( \w+\[i\] \.\.\.)?", r"print(\1)", code).replace("...", "x")
    for form in FORMS:
        try:
            return parse(Source("help.tl", form.format(whole)))
        except CompileError:
            pass
    return None


def calls(node: ast.Node) -> Iterator[str]:
    """The functions that are called, `nn.mse` with their module."""
    if isinstance(node, ast.Call) and isinstance(node.callee, ast.Name | ast.Field):
        base = node.callee.base if isinstance(node.callee, ast.Field) else None
        yield ".".join([*(names_in(base) if base is not None else ()), node.callee.name])
    for child in children(node):
        yield from calls(child)


def exists(function: str) -> bool:
    if "." in function:
        module, name = function.split(".")
        node = modules.library(module)
        return node is not None and any(isinstance(d, ast.Function | ast.StructDef) and d.name == name for d in node.definitions)
    prelude = modules.library("prelude")
    assert prelude is not None
    known = {*BUILTINS, *TRANSFORMS, *ELEMS, *modules.reexported(), *NOT_CALLED}
    return function in known or any(isinstance(d, ast.Function) and d.name == function for d in prelude.definitions)


@pytest.mark.parametrize(("row", "help"), ROWS, ids=[row for row, _ in ROWS])
def test_what_a_row_proposes(row: str, help: str) -> None:
    assert help.count("`") % 2 == 0 and not help.endswith(".")
    for code in re.findall(r"`([^`]+)`", help):
        if code in ("->", "struct") or code.startswith("--"):
            continue
        module = parsed(code)
        assert module is not None, code
        for item in (*module.definitions, *module.stmts):
            for function in calls(item):
                assert exists(function), function

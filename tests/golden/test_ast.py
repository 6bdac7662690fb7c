"""Source to AST: the dump of tests/golden/ast, which parses back to the same tree."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases

from tlc.frontend.ast_text import dump
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

CASES = cases("golden/ast", "*.tl")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ast(case: Case, bless: bool) -> None:
    case.check(lambda source: dump(parse(source)), bless)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_dump_parses_to_the_same_tree(case: Case) -> None:
    module = parse(case.source)
    again = parse(Source("dump.tl", dump(module)))
    assert (again.definitions, again.stmts, again.doc) == (module.definitions, module.stmts, module.doc)

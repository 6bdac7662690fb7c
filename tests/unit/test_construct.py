"""SSA construction on text: `tests/golden/construct/*.ssa`; before and after compute the same."""

from __future__ import annotations

import pytest
from golden_runner import Case, cases
from ssa_services import Recorder

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import Source
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import walk
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify


@pytest.mark.parametrize("case", cases("golden/construct", "*.ssa"), ids=str)
def test_construct(case: Case, bless: bool) -> None:
    def run(source: Source) -> str:
        module = parse_module(source.text, source.path)
        verify(module, "cfg")
        arguments = [5, 2, 3][: len(module.functions["f"].params)]
        before = Interpreter(module, Recorder()).call("f", arguments)
        construct(module)
        verify(module)
        after = Interpreter(module, Recorder()).call("f", arguments)
        assert [v.tolist() for v in before] == [v.tolist() for v in after]
        assert not any(i.op in ("get", "set") for i in walk(module.functions["f"].body))
        return print_module(module)

    case.check(run, bless)


def test_reading_an_unassigned_variable_is_a_failure_of_the_compiler() -> None:
    module = parse_module('func @f() -> i64 {\nentry:\n  %x = get {var = "x"} : i64\n  return %x\n}\n')
    with pytest.raises(InternalError, match="`x` is read before it is assigned"):
        construct(module)

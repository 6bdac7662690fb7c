"""Lowering of typed programs: `tests/golden/lower/*.tl`. Every case verifies in both forms; all levels of optimization print the same."""

from __future__ import annotations

from typing import Any

import pytest
from golden_runner import Case, cases
from ssa_services import Recorder

from tlc.frontend.check import check
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.opt import passes
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import Module
from tlc.ssa.lower import lower
from tlc.ssa.text import print_function
from tlc.ssa.verify import verify
from tlc.tensor.derivative import differentiate

CASES = cases("golden/lower", "*.tl")


def compiled(source: Source) -> Program:
    return check(parse(source))


def output(module: Module, arguments: list[Any]) -> list[str]:
    """What `main` prints; where it stops, the message is the last line."""
    services = Recorder()
    try:
        Interpreter(module, services).call("main", arguments)
    except Stop as stop:
        services.lines.append(f"stops: {stop.message}")
    return services.lines


@pytest.mark.parametrize("case", CASES, ids=str)
def test_lower(case: Case, bless: bool) -> None:
    def run(source: Source) -> str:
        program = compiled(source)
        module = lower(program)
        verify(module, "cfg")
        return "\n".join(print_function(f) for name, f in module.functions.items() if "." not in name)

    case.check(run, bless)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_forms_print_the_same(case: Case) -> None:
    program = compiled(case.source)
    arguments = [flag.default for flag in program.flags]
    module = lower(program)
    has_grad = "grad" in case.path.stem
    expected = None if has_grad else output(module, arguments)
    construct(module)
    verify(module)
    if has_grad:
        differentiate(module)
        verify(module)
        expected = output(module, arguments)
    assert output(module, arguments) == expected
    for level, names in passes.LEVELS.items():
        passes.run(module, names, verify_each=True)
        assert output(module, arguments) == expected, f"level {level}"


def stops(text: str, *arguments: Any) -> str:
    """The message with which a program stops, which must be the same before and after optimization."""
    module = lower(compiled(Source("test.tl", text)))
    before = output(module, list(arguments))
    construct(module)
    passes.run(module, passes.LEVELS[2], verify_each=True)
    assert output(module, list(arguments)) == before
    return before[-1]


@pytest.mark.parametrize(
    "body, message",
    [
        ("print([1, 2, 3][n])", "stops: index 7 is out of range for a dimension of 3"),
        ("print(([1, 2, 3])[1..n])", "stops: slice 1..7 is out of range for a dimension of 3"),
        ("print(n // (n - 7))", "stops: division by zero"),
        ("print(n % (n - 7))", "stops: remainder of a division by zero"),
        ("print(max[i < n - 7] i)", "stops: `max` of nothing"),
        ('assert n < 5, "n is {n}"', "stops: n is 7"),
        ('fail("no {n}")', "stops: no 7"),
        ("for i in 0..n by n - 7 { print(i) }", "stops: the step of a range is 0"),
        ("print((for[i < n] i) as i64[3])", "stops: a value of shape [7] is not `i64[3]`, which is [3] here"),
        ("print(reshape(for[i < n] i, 2, 3))", "stops: cannot reshape 7 elements to `i64[2, 3]`, which has 6"),
    ],
)
def test_stops(body: str, message: str) -> None:
    assert stops(f"fn main(n: i64 = 7) {{\n  {body}\n}}\n", 7) == message


@pytest.mark.parametrize("lo", [-5, 0, 3, 2**63 - 4, -(2**63)])
@pytest.mark.parametrize("length", [-1, 0, 1, 7, 100])
@pytest.mark.parametrize("step", [1, -1, 2, -3, 2**62])
def test_ranges_have_the_numbers_of_python(lo: int, length: int, step: int) -> None:
    """At the ends of i64 too, where lo + step is no i64 any more."""
    hi = lo + length if step > 0 else lo - length
    if not -(2**63) <= hi < 2**63:
        return
    text = "fn main(lo: i64, hi: i64, step: i64) {\n  for i in lo..hi by step { print(i) }\n}\n"
    module = lower(compiled(Source("test.tl", text)))
    assert output(module, [lo, hi, step]) == [str(i) for i in range(lo, hi, step)]


def test_a_dimension_without_a_place_is_not_supported_yet() -> None:
    with pytest.raises(CompileError, match="E0940"):
        lower(compiled(Source("test.tl", ERRORS["E0940"].bad)))
    lower(compiled(Source("test.tl", ERRORS["E0940"].mend)))

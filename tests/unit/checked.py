"""For tests of the checker: programs as text, checked, printed or run."""

from __future__ import annotations

from ssa_services import Recorder

from tlc.frontend.check import check
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.frontend.typed_text import print_function
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.lower import lower
from tlc.ssa.verify import verify


def program(text: str) -> Program:
    return check(parse(Source("test.tl", text)))


def function(text: str, name: str) -> str:
    """A function of a checked program, as text."""
    return print_function(program(text).functions[name])


def diagnostics(text: str) -> list[Diagnostic]:
    """What the checker says about a program that parses."""
    module = parse(Source("test.tl", text))
    try:
        check(module)
    except CompileError as error:
        return error.diagnostics
    return []


def codes(text: str) -> list[str]:
    return [d.code for d in diagnostics(text)]


def run(text: str) -> list[str]:
    """The lines that a program prints, by the interpreter of unoptimized SSA. Without derivatives."""
    checked = program(text)
    assert checked.main is not None
    module = lower(checked)
    construct(module)
    verify(module)
    services = Recorder()
    Interpreter(module, services).call(checked.main, [f.default for f in checked.flags])
    return "\n".join(services.lines).splitlines()

"""Programs as machine IR: `tlc prog.mir` runs `f.main` by the processor, `tlc --interp prog.mir` by the interpreter of machine IR.

Before the functions stand the tables that code refers to by number (`backends/tables_text.py`), so what `tlc emit mir` prints runs.
Code before allocation gets its registers first. Kernels are no machine IR: a file that calls one cannot run.
"""

from __future__ import annotations

from tlc.backends.program import Executable, Tables
from tlc.backends.tables_text import take_tables
from tlc.backends.x86 import build
from tlc.backends.x86.ops import TARGET
from tlc.backends.x86.simulate import simulate
from tlc.driver.flags import UsageError
from tlc.driver.text_faults import fault, holds
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import Source
from tlc.regalloc.ir import Module, instructions
from tlc.regalloc.text import parse_module
from tlc.regalloc.verify import verify_module
from tlc.ssa.world import Services

MAIN = "f.main"


def read(source: Source) -> tuple[Module, Tables]:
    """The verified functions of a file and its tables. Raises `CompileError`."""
    tables, rest = take_tables(source)
    module = parse_module(rest.text, TARGET, source.path)
    holds(lambda: verify_module(module, TARGET), rest)
    if MAIN not in module.functions:
        raise UsageError(f"`{source.path}` has nothing to run: it has no function `@{MAIN}`")
    for f in module.functions.values():
        for inst in instructions(f):
            symbol = str(inst.attrs.get("symbol", ""))
            if symbol.startswith("k."):
                raise fault(f"the kernel `{symbol.removeprefix('k.')}` is not in this file", inst.span, source)
    return module, tables


def interpret(source: Source, services: Services) -> None:
    """Run it by the interpreter. What code must not do is a fault of the file."""
    module, tables = read(source)
    try:
        simulate(module, tables, services)
    except InternalError as error:
        raise fault(error.message, error.span, source) from None


def compiled(source: Source, registers: str, check: bool) -> Executable:
    """The file as machine code."""
    module, tables = read(source)
    return build.finish(module, tables, {}, registers, check)

"""The flags of a run are known before it is compiled: main's parameters become constants, and its dimensions with them."""

from __future__ import annotations

from collections.abc import Mapping

from tlc.frontend.typed import Program
from tlc.ssa.ir import Instr, Module


def specialize(module: Module, program: Program, values: Mapping[str, bool | int | float | str]) -> None:
    """Put constants for the parameters of `main` (all scalars), in place. `values` has one for each flag, by name."""
    assert program.main is not None
    main = module.functions[program.main]
    entry = main.body.entry
    constants = []
    for param, flag in zip(entry.params, program.flags, strict=True):
        constant = Instr("const", (), (param.type,), {"value": values[flag.name]}, span=main.span, names=(flag.name,))
        constant.block = entry
        param.replace_by(constant.result)
        constants.append(constant)
    entry.params = []
    entry.instrs[:0] = constants

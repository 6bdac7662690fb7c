"""The flags of a run are known before it is compiled: main's parameters become constants, and its dimensions with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tlc.ssa.ir import Instr, Module


def specialize(module: Module, main: str, names: Sequence[str], values: Mapping[str, bool | int | float | str]) -> None:
    """Put constants for the parameters of `main` (all scalars), in place. `names` are those of the flags, in order; `values` has one for
    each.
    """
    function = module.functions[main]
    entry = function.body.entry
    constants = []
    for param, name in zip(entry.params, names, strict=True):
        constant = Instr("const", (), (param.type,), {"value": values[name]}, span=function.span, names=(name,))
        constant.block = entry
        param.replace_by(constant.result)
        constants.append(constant)
    entry.params = []
    entry.instrs[:0] = constants

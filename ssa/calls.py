"""Who calls whom in a module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tlc.ssa.components import components as strongly_connected
from tlc.ssa.components import reachable
from tlc.ssa.ir import Function, Instr, Module, walk

CALLED = ("call",)
KEPT = ("call", "call_vjp")  # what stays in the derivative that is made of a function
DERIVED = ("grad", "jvp")
NAMED = ("call", *DERIVED, "call_vjp")  # a derivative is made of the functions that these name


def callee_of(instr: Instr) -> str:
    """The function that a `call`, `call_vjp`, `grad` or `jvp` names."""
    name = instr.attrs["callee"]
    assert isinstance(name, str)
    return name


def named(instr: Instr) -> tuple[str, ...]:
    """All functions that such an instruction names."""
    return (callee_of(instr), str(instr.attrs["rule"])) if instr.op == "call_vjp" else (callee_of(instr),)


def callees(function: Function, ops: Sequence[str] = CALLED) -> list[str]:
    """Names of the functions that instructions of a function name, in order of appearance, each once."""
    return list(dict.fromkeys(name for i in walk(function.body) if i.op in ops for name in named(i)))


def reached(module: Module, names: Iterable[str], ops: Sequence[str] = CALLED) -> dict[str, None]:
    """Functions and all that they name, directly or through others, in the order of finding them."""
    return reachable(names, lambda name: callees(module.functions[name], ops))


def recursive(module: Module) -> set[str]:
    """Functions that may call themselves, directly or through others."""
    direct = {name: callees(f) for name, f in module.functions.items()}
    return {name for name, called in direct.items() if name in reachable(called, direct.__getitem__)}


def components(module: Module) -> list[list[str]]:
    """The strongly connected components of the call graph, callees first."""
    return strongly_connected(module.functions, lambda name: callees(module.functions[name], NAMED))

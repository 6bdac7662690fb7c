"""Who calls whom in a module."""

from __future__ import annotations

from collections.abc import Iterable

from tlc.ssa.ir import Function, Module, walk


def callees(function: Function) -> list[str]:
    """Names of the functions that a function calls, in order of appearance."""
    return list(dict.fromkeys(str(i.attrs["callee"]) for i in walk(function.body) if i.op == "call"))


def reached(module: Module, names: Iterable[str]) -> set[str]:
    """Functions and all that they call, directly or through others."""
    out: set[str] = set()
    work = list(names)
    while work:
        name = work.pop()
        if name not in out:
            out.add(name)
            work += callees(module.functions[name])
    return out


def recursive(module: Module) -> set[str]:
    """Functions that may call themselves, directly or through others."""
    return {name for name, f in module.functions.items() if name in reached(module, callees(f))}

"""Who calls whom in a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tlc.ssa.ir import Function, Instr, Module, walk

CALLED = ("call",)
NAMED = ("call", "grad")  # a derivative is made of the function that it names


def callee_of(instr: Instr) -> str:
    """The function that a `call` or `grad` names."""
    name = instr.attrs["callee"]
    assert isinstance(name, str)
    return name


def callees(function: Function, ops: Sequence[str] = CALLED) -> list[str]:
    """Names of the functions that instructions of a function name, in order of appearance, each once."""
    return list(dict.fromkeys(callee_of(i) for i in walk(function.body) if i.op in ops))


def reached(module: Module, names: Iterable[str], ops: Sequence[str] = CALLED) -> dict[str, None]:
    """Functions and all that they name, directly or through others, in the order of finding them."""
    return _closure(names, lambda name: callees(module.functions[name], ops))


def recursive(module: Module) -> set[str]:
    """Functions that may call themselves, directly or through others."""
    direct = {name: callees(f) for name, f in module.functions.items()}
    return {name for name, called in direct.items() if name in _closure(called, direct.__getitem__)}


def _closure(names: Iterable[str], following: Callable[[str], list[str]]) -> dict[str, None]:
    out: dict[str, None] = {}
    work = list(names)
    while work:
        name = work.pop()
        if name not in out:
            out[name] = None
            work += following(name)
    return out


def components(module: Module) -> list[list[str]]:
    """The strongly connected components of the call graph, callees first (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in module.functions:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = []

        def enter(name: str, work: list[tuple[str, Iterator[str]]] = work) -> None:
            index[name] = low[name] = len(index)
            stack.append(name)
            work.append((name, iter(callees(module.functions[name], NAMED))))

        enter(root)
        while work:
            name, rest = work[-1]
            for callee in rest:
                if callee not in index:
                    enter(callee)
                    break
                if callee in stack:
                    low[name] = min(low[name], index[callee])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    found.append(stack[at:])
                    del stack[at:]
    return found

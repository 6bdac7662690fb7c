"""Opaque regions become scalar functions of the module.

A region with control flow (or with anything that has no scalar expression) cannot be part of a kernel as it is. It is
copied into a function whose parameters are the region's indices and whatever it reads from outside, one function for each yielded
value, and the kernel applies that function to every element.

    y = tabulate n { (i): .. branch p, a, b .. yield v }     f(i, x) { .. branch p, a, b .. return v }
                                                             y = tabulate n { (i): yield f(i, x) }
"""

from __future__ import annotations

from tlc.ssa.calls import KEPT, callee_of
from tlc.ssa.clone import clone_region
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Value, ret, walk
from tlc.ssa.liveness import free_values


def outline(module: Module, region: Region, value: Value, name: str) -> tuple[Function, list[Value]]:
    """Add a function that computes one value of a region (defined where it yields). Its last parameters are outside values: those given."""
    captured = list(free_values(region))
    if value not in captured and _is_outside(value, region):
        captured.append(value)
    holder = Block("captured")
    values: dict[Value, Value] = {v: holder.add_param(v.type, v.name) for v in captured}
    body = clone_region(region, values)
    entry = body.entry
    for v in captured:
        values[v].owner = entry
        entry.params.append(values[v])
    for block in body.blocks:
        if block.terminator.op == "yield":
            block.terminator = ret((values.get(value, value),), block.terminator.span)
    return module.add(Function(_fresh(module, name), body, (value.type,), entry.terminator.span)), captured


def may_stop(module: Module, instr: Instr) -> bool:
    """Whether an instruction that is no comprehension may stop the program."""
    return instr.op in ("check", "trap") or (instr.op in KEPT and can_fail(module, callee_of(instr)))


def can_fail(module: Module, function: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a call may stop the program: a check in the function or in one that it calls."""
    if function in seen:
        return False
    for instr in walk(module.functions[function].body):
        if instr.op in ("check", "trap", "extern"):
            return True
        if instr.op in KEPT and can_fail(module, callee_of(instr), seen | {function}):
            return True
    return False


def _is_outside(value: Value, region: Region) -> bool:
    return not any(value in b.params or any(value in i.results for i in b.instrs) for b in region.blocks)


def _fresh(module: Module, name: str) -> str:
    k = 0
    while f"{name}.{k}" in module.functions:
        k += 1
    return f"{name}.{k}"

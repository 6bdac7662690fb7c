"""Who calls whom in a file of C, and who may stop the program: that gives a status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.ssa.calls import callee_of
from tlc.ssa.components import reachable
from tlc.ssa.ir import Function, Instr, walk
from tlc.tensor.kernel.ir import Kernel


@dataclass(frozen=True)
class Callee:
    """A function that kernels apply: its name in C, and whether it may stop the program: then it gives a status, results by pointers."""

    name: str
    can_stop: bool


def can_stop(kernel: Kernel, callees: Mapping[str, Callee]) -> bool:
    """Whether a kernel gives a status."""
    return any(callees[f].can_stop for f in kernel.applied)


def may_stop(function: Function, functions: Mapping[str, Function], kernels: Mapping[str, Kernel]) -> bool:
    """Whether a call may end the program: a check, memory that is not there, or a call of what may."""
    return any(_stops(i) for name in reached([function.name], functions, kernels) for i in walk(functions[name].body))


def _stops(instr: Instr) -> bool:
    return instr.op in ("check", "alloc", "copy", "push") or (instr.op in ("index", "reshape") and bool(instr.result.type.rank))


def reached(names: Iterable[str], functions: Mapping[str, Function], kernels: Mapping[str, Kernel]) -> list[str]:
    """Functions, and those that they call, by kernels too."""

    def called(name: str) -> Iterator[str]:
        if name not in functions:
            raise InternalError(f"the function `{name}` is applied and not there", "C")
        for instr in walk(functions[name].body):
            if instr.op == "call":
                yield callee_of(instr)
            elif instr.op == "run":
                yield from kernels[str(instr.attrs["kernel"])].applied

    return list(reachable(names, called))


def returns_value(function: Function, callee: Callee) -> bool:
    return not callee.can_stop and len(function.results) == 1 and not function.results[0].rank

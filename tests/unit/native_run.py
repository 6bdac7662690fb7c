"""Runs a host module natively and in the interpreter, for tests that compare both."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ssa_services import Recorder

from tlc.backends.llvm.support import CHUNK
from tlc.backends.runtime.native import Native
from tlc.driver.options import Options
from tlc.driver.pipeline import hosts, machine_code
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import Function, Module, walk
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.ssa.world import Services
from tlc.tensor import memory
from tlc.tensor.kernel.interp import run as run_kernel
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.lower import Tensors
from tlc.tensor.ownership import verify_ownership
from tlc.tensor.taking import infer_consumed


class World(Recorder):
    """Externs give copies: the interpreter spoils what is freed."""

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        return deepcopy(super().extern(name, args))


Outcome = tuple[list[str], str]  # lines printed, and the message of a stop

OWN = [Options(host="x86", verify=True), Options(host="x86", registers="few", verify=True)] if "x86" in hosts() else []
LLVM = Options(host="llvm")
HOW = [*OWN, LLVM]


def planned(text: str, kernels: Mapping[str, Kernel]) -> Module:
    """The module of a text after the memory plan, verified in every way."""
    module = parse_module(text)
    verify(module, "host")
    takes = memory.plan(module, kernels)
    verify(module, "host")
    verify_ownership(module, takes, kernels)
    return module


def check_ownership(text: str, kernels: Mapping[str, Kernel]) -> None:
    """What the checker of the plan says of a text that is after it."""
    module = parse_module(text)
    verify_ownership(module, infer_consumed(module, kernels), kernels)


def ops(function: Function) -> list[str]:
    return [i.op for i in walk(function.body)]


def interpreted(text: str, kernels: Mapping[str, Kernel], plan: bool = False) -> Outcome:
    module = planned(text, kernels) if plan else parse_module(text)
    services = World()
    interpreter = Interpreter(module, services, lambda name, outputs, inputs: run_kernel(kernels[name], outputs, inputs))
    try:
        interpreter.call("main", [])
    except Stop as e:
        return services.lines, e.message
    return services.lines, ""


def natively(text: str, kernels: Mapping[str, Kernel], how: Options = LLVM) -> tuple[Outcome, Native]:
    services = World()
    program = native(planned(text, kernels), kernels, services, how)
    try:
        program.run()
    except Stop as e:
        return (services.lines, e.message), program
    return (services.lines, ""), program


def native(module: Module, kernels: Mapping[str, Kernel], services: Services, how: Options) -> Native:
    """A module after the memory plan, compiled and loaded."""
    return Native(machine_code(Tensors(module, dict(kernels), []), how, {}), services)


def same(text: str, kernels: Mapping[str, Kernel] | None = None) -> list[Native]:
    """All agree: the interpreter before and after the plan, and native code of each host; gives the native runs for more questions. Nothing
    leaks.
    """
    kernels = kernels or {}
    expected = interpreted(text, kernels)
    assert interpreted(text, kernels, plan=True) == expected, print_module(planned(text, kernels))
    programs = []
    for how in HOW:
        outcome, program = natively(text, kernels, how)
        assert outcome == expected, how
        if not expected[1]:
            assert program.context.tapes[::3] == program.context.tapes[1::3], "a tape is not empty"
            tapes = (CHUNK + 64) * sum(begin != 0 for begin in program.context.tapes[1::3])  # the first chunk of each is kept
            assert program.context.used == tapes, "buffers are left"
        programs.append(program)
    return programs

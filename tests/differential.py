"""One program run in every way that there is, in one process; each way gives an `Outcome`, and all must be the same.

    interp     the interpreter of unoptimized SSA: the meaning
    opt        the interpreter of SSA after the optimizer, the flattening and the derivatives
    kernels    the interpreter of host SSA, with kernels run by theirs
    planned    the same after the memory plan: the interpreter spoils what is freed, so a buffer that is used too long shows
    llvm       machine code, the host's functions by LLVM
    x86        machine code, the host's functions by the own backend (where this machine has it), every allocation proved
    x86 few    the same with three registers of each kind

All but the first are made at -O2 and at -O0. `on_gpu` has more ways, with kernels for a GPU:

    gpu kernels    the interpreter of host SSA, with kernels run by theirs, which looks for races
    gpu emulated   machine code of the same kernels as loops over their threads
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tlc.backends.runtime.native import Native
from tlc.driver.pipeline import Options, front, hosts, machine_code, middle
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import Module
from tlc.tensor.derivative import differentiate
from tlc.tensor.kernel.interp import run as run_kernel
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.verify import verify as verify_kernel
from tlc.tensor.lower import Tensors

LEVELS = (2, 0)


@dataclass(frozen=True)
class Outcome:
    """What a run printed, and why and where it stopped (empty if it did not)."""

    lines: tuple[str, ...]
    kind: str = ""
    message: str = ""
    place: str = ""

    def __str__(self) -> str:
        end = f"\nstop: {self.kind}: {self.message} at {self.place}" if self.kind else ""
        return "\n".join(self.lines) + end


class Recorder:
    """Services that keep what is printed. Programs of a test ask for nothing else."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, text: str) -> None:
        self.lines.append(text)

    def progress_begin(self, label: str, total: int) -> int:
        return 1

    def progress_tick(self, bar: int, at: int) -> None:
        pass

    def progress_note(self, bar: int, at: int, text: str) -> None:
        pass

    def progress_end(self, bar: int) -> None:
        pass

    def extern(self, name: str, args: list[Any]) -> list[Any]:
        raise AssertionError(f"the program asks for `{name}`")


def outcomes(text: str, verify: bool = False, path: str = "program.tl") -> Iterator[tuple[str, Outcome]]:
    """The ways by name, the interpreter first. Raises `CompileError` for a program that is none."""
    program = front(Source(path, text))
    assert program.main is not None, "the program has no main"
    flags = {f.name: f.default for f in program.flags if f.default is not None}
    yield "interp", _interpreted(program, Options(flags=flags, verify=verify))
    for level in LEVELS:
        for name, outcome in _compiled(program, Options(level, verify, (), flags)):
            yield f"{name} -O{level}", outcome


def on_gpu(text: str, path: str = "program.tl") -> Iterator[tuple[str, Outcome]]:
    """The ways with kernels for a GPU, at -O2, the interpreter of SSA first."""
    program = front(Source(path, text))
    options = Options(flags={f.name: f.default for f in program.flags if f.default is not None}, verify=True, device="cuda-emulated")
    yield "interp", _interpreted(program, options)
    for name, _, value in middle(program, options):
        match name:
            case "kernels":
                yield "gpu kernels", _interpret(value.module, program.main, value.kernels, races=True)
            case "memory":
                for kernel in value.kernels.values():
                    verify_kernel(kernel)
                yield "gpu emulated", _native(value, options)
                return


def disagreement(text: str, same: Callable[[Outcome, Outcome], bool] = Outcome.__eq__, verify: bool = False) -> str:
    """How two ways of running a program differ, as text that shows it; empty if they agree."""
    runs = outcomes(text, verify)
    _, first = next(runs)
    for way, outcome in runs:
        if not same(first, outcome):
            return f"--interp:\n{first}\n{way}:\n{outcome}\n"
    return ""


def _interpreted(program: Program, options: Options) -> Outcome:
    module = next(value for name, _, value in middle(program, options) if name == "ssa")
    differentiate(module)
    return _interpret(module, program.main)


def _compiled(program: Program, options: Options) -> Iterator[tuple[str, Outcome]]:
    for name, _, value in middle(program, options):
        match name:
            case "opt":
                yield "opt", _interpret(value, program.main)
            case "kernels" | "memory":
                yield name.replace("memory", "planned"), _interpret(value.module, program.main, value.kernels)
            case "llvm":
                for host in hosts():
                    for registers in ("all", "few") if host == "x86" else ("all",):
                        how = replace(options, host=host, registers=registers, verify=True)
                        yield host if registers == "all" else f"{host} {registers}", _native(value, how)


def _interpret(module: Module, main: str | None, kernels: dict[str, Kernel] | None = None, races: bool = False) -> Outcome:
    assert main is not None
    services = Recorder()

    def apply(name: str, values: list[Any]) -> Any:
        return Interpreter(module, services, launch).call(name, values)[0]

    def launch(name: str, outputs: list[Any], inputs: list[Any]) -> None:
        assert kernels is not None
        run_kernel(kernels[name], outputs, inputs, apply, races=races)

    return _outcome(services, lambda: Interpreter(module, services, launch if kernels else None).call(main, []))


def _native(tensors: Tensors, options: Options) -> Outcome:
    services = Recorder()
    native = Native(machine_code(tensors, options, {}), services)
    outcome = _outcome(services, native.run)
    if not outcome.kind:
        assert native.context.tapes[::3] == native.context.tapes[1::3], "a tape is not empty at the end"
    return outcome


def _outcome(services: Recorder, run: Callable[[], object]) -> Outcome:
    try:
        run()
    except Stop as stop:
        return Outcome(tuple(services.lines), stop.kind, stop.message, str(stop.span))
    return Outcome(tuple(services.lines))


__all__ = ["Outcome", "disagreement", "on_gpu", "outcomes"]

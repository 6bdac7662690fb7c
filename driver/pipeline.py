"""The compiler on one page: each stage is a function from the value of the one before.

`middle` is a generator of named stages, so that a command takes what it wants (`tlc emit ssa` stops at "ssa") and nothing after
it runs. A stage that works in place gives the same module on; whoever wants an earlier form prints it when it comes by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tlc.backends import cpu
from tlc.backends.llvm import host as llvm
from tlc.backends.llvm.ahead import Ahead
from tlc.backends.llvm.timing import DECLARE_CLOCK
from tlc.backends.program import Device, Executable, Store, Tables
from tlc.driver.options import Options
from tlc.driver.specialize import specialize
from tlc.driver.tuned import choices
from tlc.driver.watch import NOBODY, Watch
from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.opt import passes
from tlc.opt.inline import inline_in_place
from tlc.opt.traps import trap_derivatives, trap_program
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.ssa.lower import lower
from tlc.ssa.orders import factor, make_strict, settle_products
from tlc.ssa.text import print_module
from tlc.ssa.verify import verify
from tlc.ssa.world import Services
from tlc.tensor.accumulate import accumulate
from tlc.tensor.derivative import differentiate, differentiates
from tlc.tensor.flatten import flatten
from tlc.tensor.footprint_text import print_planned
from tlc.tensor.graph.text import print_graphs
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import print_kernels
from tlc.tensor.lower import Tensors
from tlc.tensor.lower import lower as lower_tensors
from tlc.tensor.memory import plan
from tlc.tensor.ownership import verify_ownership
from tlc.tensor.schedule import Target
from tlc.tensor.waits import put_waits

Stage = tuple[str, Callable[[], str], Any]  # its name, its text, its value
Made = Callable[[Kernel], None]


def front(source: Source) -> Program:
    """source -> AST -> typed AST. Raises `CompileError` with everything that is wrong."""
    return check(parse(source))


def middle(program: Program, options: Options, watch: Watch = NOBODY, made: Made | None = None) -> Iterator[Stage]:
    """typed AST -> SSA -> host SSA and kernels -> what a backend makes of them. `made` is told of kernels as soon as they are there."""
    with watch.stage("ssa"):
        module = lower(program)
    if options.strict:
        make_strict(module)
    yield "cfg", lambda: print_module(module), module
    with watch.stage("ssa"):
        construct(module)
        settle_products(module)
        if options.flags is not None:
            specialize(module, program.main or "main", [f.name for f in program.flags], options.flags)
    if options.verify:
        verify(module)
    yield "ssa", lambda: print_module(module), module
    yield from optimized(module, options, watch, made)


def optimized(module: Module, options: Options, watch: Watch = NOBODY, made: Made | None = None) -> Iterator[Stage]:
    """SSA, specialized to a run -> better SSA -> host SSA and kernels."""

    def step(stage: Callable[[Module], object]) -> None:
        with watch.stage(stage.__name__):
            stage(module)
        if options.verify:
            verify(module)

    def optimize(level: int) -> None:
        watch.passes(module, passes.chosen(passes.LEVELS, level, options.passes), options)

    differentiated = differentiates(module)
    if options.traps:
        step(inline_in_place)  # so that comprehensions hold no checks of their own
        watch.passes(module, passes.BEFORE_TRAPS, options)
        step(trap_program)
    watch.passes(module, passes.LEVELS[0], options)
    if not options.strict:
        step(factor)  # of what every level sees alike: it sets the order of sums
    optimize(2 if differentiated else options.level)  # a derivative follows the form of the code, which sets the order of its sums
    step(flatten)  # derivatives want scalar regions: one rule for a load then covers every comprehension
    step(differentiate)
    if options.traps:
        step(trap_derivatives)
    if options.strict:
        make_strict(module)  # the reductions that derivatives are made of
    elif differentiated:
        step(factor)  # and these
    optimize(options.level)
    step(flatten)  # what a lifted derivative brought
    optimize(options.level)  # that, and in one program of ten what a round of the passes leaves to the next
    step(accumulate)  # behind all that makes loops and sums simple
    yield "opt", lambda: print_module(module), module
    with watch.stage("kernels"):
        tensors = lower_tensors(module, target(options), watch.decisions, choices(options.tuned), made)
        watch.chosen(tensors.choices)
    yield "graph", lambda: print_graphs(tensors.graphs), tensors
    yield "kernels", lambda: print_kernels(tensors.kernels), tensors
    if options.device == "cuda-emulated" and not options.checked:
        tensors.kernels = {name: emulated(kernel) for name, kernel in tensors.kernels.items()}
    yield from planned(tensors, options, watch)


def target(options: Options) -> Target:
    """What schedules are made for."""
    gpu = options.device != "cpu"
    return replace(cpu.vectors(), flash=options.flash, gpu=gpu, tensor_cores=gpu and options.tensor_cores)


def planned(tensors: Tensors, options: Options, watch: Watch = NOBODY) -> Iterator[Stage]:
    """host SSA and kernels -> the same with buffers, and what the backends make of them."""
    module, kernels = tensors.module, tensors.kernels
    watch.passes(module, passes.chosen(passes.HOST_LEVELS, options.level, options.passes), options, "host")
    with watch.stage("memory"):
        takes = plan(module, kernels)
    if options.device == "cuda":
        put_waits(module, kernels)
    if options.verify:
        verify(module, "host")
        verify_ownership(module, takes, kernels)
    yield from backends(tensors, options, watch)


def backends(tensors: Tensors, options: Options, watch: Watch = NOBODY) -> Iterator[Stage]:
    """Host SSA with buffers, and the texts that backends make of it."""
    module, kernels = tensors.module, tensors.kernels
    yield "memory", lambda: print_planned(module, kernels), tensors
    yield "mir", lambda: own_text(tensors, options, watch, allocated=False), tensors
    yield "asm", lambda: own_text(tensors, options, watch, allocated=True), tensors
    yield "llvm", lambda: llvm.emit_llvm(module, kernels, options.host), tensors


def machine_code(tensors: Tensors, options: Options, store: Store, watch: Watch = NOBODY, begun: Ahead | None = None) -> Executable:
    """Host SSA with buffers, and its kernels, as machine code; objects that `store` has are not compiled again. `begun` has some of the
    kernels already.
    """
    found = device(tensors, options, watch)
    with begun or ahead(tensors.module, options, store) as kernels:
        return replace(host_code(tensors, kernels, options, store, watch), device=found)


def device(tensors: Tensors, options: Options, watch: Watch) -> Device | None:
    """What runs a program's kernels, if that is not the CPU. Raises `RuntimeStop` if there is no GPU, or no compiler for it."""
    if options.device == "cuda":
        from tlc.backends.cuda.device import Gpu

        with watch.stage("cuda"):
            return Gpu(tensors.kernels, tensors.module, each=options.checked or options.timed)
    if options.device == "cuda-emulated" and options.checked:
        from tlc.backends.runtime.checked import Checked

        return Checked(tensors.kernels, tensors.module)
    return None


def ahead(module: Module, options: Options, store: Store) -> Ahead:
    """What compiles kernels on other cores, and what a program with kernels needs."""
    others = []
    if options.host == "x86":
        from tlc.backends.x86 import build as own

        others = [own.support]
    return Ahead(store, others, *((llvm.definition(module), DECLARE_CLOCK) if options.timed else ()))


def host_code(tensors: Tensors, ahead: Ahead, options: Options, store: Store, watch: Watch) -> Executable:
    """What runs on the CPU: host functions and kernels. (Kernels for a GPU are calls of its driver.)"""
    module, kernels = tensors.module, tensors.kernels
    if options.host == "x86":
        from tlc.backends.x86 import build as own

        return own.build(module, kernels, ahead, store, options.registers, options.verify, watch, options.timed)
    from tlc.backends.llvm import jit  # loads LLVM

    with watch.stage("llvm"):
        tables = Tables()
        host = jit.compile_objects([(llvm.print_host(module, kernels, tables, options.timed), jit.Level.HOST)], store)
        return Executable({**host, **ahead.objects(llvm.alone(module, kernels))}, tables)


def own_text(tensors: Tensors, options: Options, watch: Watch, allocated: bool) -> str:
    """The host's functions as machine IR, or as machine code with its registers and source lines."""
    from tlc.backends.x86 import build as own

    if allocated:
        return own.assembly(tensors.module, tensors.kernels, options.registers, watch)
    return own.machine_ir(tensors.module, tensors.kernels, watch)


def hosts() -> tuple[str, ...]:
    """The hosts that this machine has."""
    return ("llvm",) if cpu.missing_for_own_code() else ("llvm", "x86")


def build(program: Program, options: Options, store: Store, watch: Watch = NOBODY) -> Executable:
    """`main` and what it needs as machine code. Kernels for the CPU are compiled while the rest is made."""
    with ahead(Module(), options, store) as kernels:
        for name, _, value in middle(program, options, watch, kernels.add if options.device == "cpu" else None):
            if name == "kernels":
                kernels.share()
            if name == "memory":
                return machine_code(value, options, store, watch, kernels)
    raise AssertionError("no program is without a memory plan")


def interpret(program: Program, options: Options, services: Services) -> None:
    """Run `main` by the interpreter of unoptimized SSA. Raises `Stop` or `RuntimeStop` where it ends early."""
    assert program.main is not None
    module = next(value for name, _, value in middle(program, options) if name == "ssa")
    if options.traps:
        inline_in_place(module)
        trap_program(module)
    differentiate(module)
    if options.traps:
        trap_derivatives(module)
    if options.strict:
        make_strict(module)
    Interpreter(module, services).call(program.main, [])

"""The compiler on one page: each stage is a function from the value of the one before.

`middle` is a generator of named stages, so that a command takes what it wants (`tlc emit ssa` stops at "ssa") and nothing after
it runs. A stage that works in place gives the same module on; whoever wants an earlier form prints it when it comes by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tlc.backends.llvm import jit
from tlc.backends.llvm.host import emit as emit_program
from tlc.backends.llvm.host import emit_llvm
from tlc.backends.llvm.program import Executable
from tlc.backends.llvm.target import host_target
from tlc.driver.options import Options
from tlc.driver.specialize import specialize
from tlc.frontend import ast_text, typed_text
from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.opt import passes
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module
from tlc.ssa.lower import lower
from tlc.ssa.orders import make_strict
from tlc.ssa.text import print_module
from tlc.ssa.verify import verify
from tlc.ssa.world import Services
from tlc.tensor.derivative import differentiate, differentiates
from tlc.tensor.flatten import flatten
from tlc.tensor.graph.text import print_graph
from tlc.tensor.kernel.text import print_kernels
from tlc.tensor.lower import lower as lower_tensors
from tlc.tensor.memory import plan
from tlc.tensor.ownership import verify_ownership


def front(source: Source) -> Program:
    """source -> AST -> typed AST. Raises `CompileError` with everything that is wrong."""
    return check(parse(source))


def middle(program: Program, options: Options) -> Iterator[tuple[str, Callable[[], str], Any]]:
    """typed AST -> SSA -> host SSA and kernels -> LLVM: each stage by name, with its text and its value."""

    def step(stage: Callable[[Module], object]) -> None:
        stage(module)
        if options.verify:
            verify(module)

    def optimize(level: int) -> None:
        passes.run(module, passes.LEVELS[level], options.verify, options.disable)

    def orders() -> None:
        if options.strict:
            make_strict(module)

    module = lower(program)
    orders()
    yield "cfg", lambda: print_module(module), module
    step(construct)
    if options.flags is not None:
        step(lambda m: specialize(m, program, options.flags or {}))
    yield "ssa", lambda: print_module(module), module
    optimize(2 if differentiates(module) else options.level)  # a derivative follows the form of the code, which sets the order of its sums
    step(flatten)  # derivatives want scalar regions: one rule for a load then covers every comprehension
    step(differentiate)
    orders()  # of the reductions that derivatives are made of
    optimize(options.level)
    step(flatten)  # what a lifted derivative brought
    optimize(options.level)
    yield "opt", lambda: print_module(module), module
    tensors = lower_tensors(module, host_target())
    yield "graph", lambda: "\n".join(map(print_graph, tensors.graphs)), tensors
    yield "kernels", lambda: print_kernels(tensors.kernels), tensors
    takes = plan(module, tensors.kernels)
    if options.verify:
        verify(module, "host")
        verify_ownership(module, takes, tensors.kernels)
    yield "memory", lambda: print_module(module), tensors
    yield "llvm", lambda: emit_llvm(module, tensors.kernels), tensors


def emit(source: Source, stage: str, options: Options) -> str:
    """The text of one stage, from `ast` on."""
    tree = parse(source)
    if stage == "ast":
        return ast_text.dump(tree)
    program = check(tree)
    if stage == "typed":
        return typed_text.print_program(program)
    return next(text() for name, text, _ in middle(program, options) if name == stage)


def build(program: Program, options: Options, store: jit.Store) -> Executable:
    """`main` and what it needs as machine code; objects that `store` has are not compiled again."""
    tensors = next(value for name, _, value in middle(program, options) if name == "llvm")
    return jit.build(emit_program(tensors.module, tensors.kernels), store)


def interpret(program: Program, options: Options, services: Services) -> None:
    """Run `main` by the interpreter of unoptimized SSA. Raises `Stop` or `RuntimeStop` where it ends early."""
    assert program.main is not None
    module = next(value for name, _, value in middle(program, options) if name == "ssa")
    differentiate(module)
    if options.strict:
        make_strict(module)
    Interpreter(module, services).call(program.main, [])

"""Programs as SSA: `tlc prog.ssa [--n 5]` runs `main`, whose parameters are flags; `tlc opt prog.ssa` prints it after passes.

The text may be of any stage: with variables (`get`, `set`), with comprehensions, or of the host, before or after the memory plan. What runs
kernels cannot be given so: they stand in another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tlc.driver import pipeline
from tlc.driver.flags import Flag, UsageError, Value
from tlc.driver.options import Options
from tlc.driver.specialize import specialize
from tlc.driver.text_faults import fault, holds
from tlc.driver.watch import NOBODY, Watch
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
from tlc.opt import passes
from tlc.ssa.construct import construct
from tlc.ssa.interp import Interpreter
from tlc.ssa.ir import Module, walk
from tlc.ssa.ops import ROWS
from tlc.ssa.text import parse_module, print_module
from tlc.ssa.verify import verify
from tlc.ssa.world import Services
from tlc.tensor.derivative import differentiate
from tlc.tensor.lower import Tensors

_PLANNED = ("alloc", "copy", "free", "split", "join")  # what the memory plan writes


def read(source: Source) -> tuple[Module, str]:
    """A verified module and its stage: `cfg` with variables, `host` with what stands only there, else `ssa`. Raises `CompileError`."""
    module = parse_module(source.text, source.path)
    stages = {ROWS[op].stage for op in _ops(module) if op in ROWS}
    stage = "cfg" if "cfg" in stages else "host" if "host" in stages else "ssa"
    holds(lambda: verify(module, stage), source)
    return module, stage


def flags(source: Source, module: Module) -> tuple[Flag, ...]:
    """The parameters of `main` as flags."""
    main = module.functions.get("main")
    if main is None:
        raise UsageError(f"`{source.path}` has nothing to run: it has no function `@main`")
    other = next((p for p in main.params if p.type.rank or p.type.elem is Elem.KEY), None)
    if other is not None:
        raise UsageError(f"`@main` of `{source.path}` cannot be run: its parameter `%{other.name}` is a `{other.type}`, no scalar")
    names = [p.name for p in main.params]
    return tuple(Flag(n if n and names.count(n) == 1 else f"p{k}", main.params[k].type.elem, None, "") for k, n in enumerate(names))


def stages(source: Source, module: Module, stage: str, options: Options, watch: Watch = NOBODY) -> Iterator[pipeline.Stage]:
    """What the compiler makes of a module that was read, in place, from its own stage on. `options.flags` are for the parameters of
    `main`.
    """
    _no_kernels(source, module)
    if stage == "cfg":
        construct(module)
    if options.flags:
        specialize(module, "main", list(options.flags), options.flags)
    if stage != "host":
        yield "ssa", lambda: print_module(module), module
        yield from pipeline.optimized(module, options, watch)
    elif any(op in _PLANNED for op in _ops(module)):
        yield from pipeline.backends(Tensors(module, {}, []), options, watch)
    else:
        yield from pipeline.planned(Tensors(module, {}, []), options, watch)


def interpret(source: Source, module: Module, stage: str, values: Mapping[str, Value], services: Services) -> None:
    """Run `main` of a file that was read by the interpreter, as the text stands."""
    _no_kernels(source, module)
    if stage != "host":
        differentiate(module)
    specialize(module, "main", list(values), values)
    Interpreter(module, services).call("main", [])


def optimize(source: Source, options: Options, watch: Watch) -> str:
    """The text after the passes that the options name, or after those of their level."""
    module, stage = read(source)
    if stage == "cfg":
        construct(module)
        stage = "ssa"
    levels = passes.HOST_LEVELS if stage == "host" else passes.LEVELS
    watch.passes(module, levels[options.level] if options.passes is None else options.passes, options, stage)
    return print_module(module)


def _ops(module: Module) -> Iterator[str]:
    return (i.op for f in module.functions.values() for i in walk(f.body))


def _no_kernels(source: Source, module: Module) -> None:
    for f in module.functions.values():
        for i in walk(f.body):
            if i.op in ("launch", "run"):
                help = "a file of SSA can be run while its comprehensions are still in it"
                raise fault(f"the kernel `{i.attrs['kernel']}` is not in this file", i.span, source, help)

"""What `tlc emit` prints: the texts of a program's stages, and of forms that no run needs (C, numba.cuda, PTX)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tlc.backends import cpu
from tlc.driver.options import Options
from tlc.driver.pipeline import middle, planned
from tlc.driver.watch import NOBODY, Watch
from tlc.frontend import ast_text, typed_text
from tlc.frontend.check import check
from tlc.frontend.parser import parse
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.ssa.ir import Module
from tlc.tensor.footprint_text import in_general
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.lower import Tensors
from tlc.tensor.lower import lower as lower_tensors


def early_text(source: Source, stage: str) -> str:
    """The text of `ast` or `typed`, which no option changes."""
    tree = parse(source)
    return ast_text.dump(tree) if stage == "ast" else typed_text.print_program(check(tree))


def stage_text(program: Program, stage: str, options: Options, title: str, watch: Watch = NOBODY) -> str:
    """The text of one stage, from `cfg` on. `title` names the program where it is not a form of this compiler's own."""
    if stage == "c":
        return _as_c(program, options, title)
    if stage in ("cuda", "ptx"):
        tensors = tensors_for_gpu(program, options)
        return kernels_for_gpu(tensors.kernels, stage, options.sm, title, tensors.module)
    text = next(text() for name, text, _ in middle(program, options, watch) if name == stage)
    return _memory_in_general(program, options) + text if stage == "memory" and options.flags else text


def _memory_in_general(program: Program, options: Options) -> str:
    """What `main` needs whatever its flags are, as comments."""
    tensors = next(value for name, _, value in middle(program, replace(options, flags=None)) if name == "memory")
    lines = in_general(tensors.module, program.main or "main", tensors.kernels)
    return "\n".join(("# For all flags:", *(f"# {line}".rstrip() for line in lines), "\n")) if lines else ""


def tensors_for_c(program: Program, options: Options) -> Tensors:
    """What the C backend prints: after the memory plan. Elementary functions stay calls, for there they have names."""
    module = next(value for name, _, value in middle(program, options) if name == "opt")
    tensors = lower_tensors(module, replace(cpu.vectors(), expands=False, flash=options.flash))
    next(planned(tensors, options))  # in place
    return tensors


def _as_c(program: Program, options: Options, title: str) -> str:
    """The kernels as C, and the functions that they apply."""
    from tlc.backends.c.unit import emit

    tensors = tensors_for_c(program, options)
    return emit(tensors.kernels, tensors.module, title)


def tensors_for_gpu(program: Program, options: Options) -> Tensors:
    """What a GPU runs, and the host of it, after the memory plan."""
    tensors: Tensors = next(value for name, _, value in middle(program, replace(options, device="cuda")) if name == "memory")
    return tensors


def kernels_for_gpu(kernels: Mapping[str, Kernel], stage: str, sm: int, title: str, module: Module | None = None) -> str:
    """Kernels for a GPU as numba.cuda (`cuda`), or as PTX (`ptx`) for an architecture."""
    from tlc.backends.cuda.emit import emit

    unit = emit(kernels, title, module=module)
    if stage == "cuda":
        return unit.text
    from tlc.backends.cuda import ptx

    return "\n".join(ptx.compile_unit(unit, sm))

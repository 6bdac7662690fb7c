"""A file of numba.cuda: kernels for a GPU as functions of Python, and what they need, each before its use.

What a kernel becomes is said in `backends/cuda/printer.py`. A kernel is one or more grids, and a function is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from tlc.backends.c.words import Names
from tlc.backends.cuda import words
from tlc.backends.cuda.helpers import Helpers
from tlc.backends.cuda.index import MOST
from tlc.backends.cuda.intrinsics import INTRINSICS
from tlc.backends.cuda.printer import Printer
from tlc.backends.cuda.procedure import Procedures
from tlc.backends.cuda.words import MEMORY
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.ssa.ir import Module
from tlc.tensor.kernel.grid import Grid, grids, is_gpu
from tlc.tensor.kernel.ir import Const, Kernel, Let
from tlc.tensor.kernel.scalars import value_of

_TYPE = re.compile(rf"\b({'|'.join(sorted({t for t in MEMORY.values() if t != 'bool'}))})\b")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Function:
    """A grid of a kernel as a function of Python. `parameters` are numba's types of the kernel's parameters, pointers with a star;
    `lets` stand before the grid in the kernel: the extents of its block loops may use them.
    """

    name: str
    kernel: Kernel
    lets: tuple[Let, ...]
    grid: Grid
    parameters: tuple[str, ...]
    text: str
    dynamic: int = 0  # bytes of shared memory that a launch asks for, beside what stands in the text


def dimensions(function: Function, scalars: Mapping[str, Any]) -> tuple[int, ...]:
    """How many blocks a launch has in each dimension, the innermost first, for values of the kernel's scalar parameters."""
    values = dict(scalars)
    for s in function.lets:
        values[s.var.name] = value_of(s.value, values)
    return tuple(int(value_of(b.stop, values)) for b in reversed(function.grid.blocks))


@dataclass(frozen=True)
class Unit:
    """A file, and its functions in order of the launches that each kernel makes."""

    text: str
    functions: tuple[Function, ...]


_HEAD = '''\
"""{title}

A function is one launch of a grid. It gets the results of its kernel, then its inputs: tensors as pointers to their elements in row-major
order, at addresses that are multiples of 16, extents and other scalars as themselves. {indices}
Reals round after every operation, in this order{but}.
"""
'''
_NARROW = "Extents, and sizes of tensors, are below 2^31."
_WIDE = "Indices have 64 bits."


def emit(kernels: Mapping[str, Kernel], title: str = "", wide: bool = False, module: Module | None = None) -> Unit:
    """The text of a file. The module has the functions that kernels apply, after the memory plan. Raises `CompileError` for what cannot be
    on a GPU yet.
    """
    helpers = Helpers()
    procedures = Procedures(module.functions if module else {}, helpers)
    helpers.imported("numba", "cuda")
    taken = words.names(frozenset(INTRINSICS))
    functions: list[Function] = []
    for kernel in kernels.values():
        functions += _functions(kernel, helpers, procedures, taken, wide or not _fits(kernel))
    code = [*helpers.texts.values(), *(f.text for f in functions)]
    helpers.imports["numba"].update(_TYPE.findall("".join(code)))
    there = set(_WORD.findall("".join(code)))
    used = {module: sorted(names & there) for module, names in sorted(helpers.imports.items())}
    imports = [f"from {module} import {', '.join(names)}" for module, names in used.items() if names]
    but = "; but `mma` adds in an order of its own" if any(name.startswith("mma_") for name in there) else ""
    top = _HEAD.format(title=title.replace('"""', "'''") or "Kernels of tlc.", indices=_WIDE if wide else _NARROW, but=but)
    parts = [top.rstrip("\n"), "\n".join(imports)]
    text = "\n\n".join(parts) + "".join(f"\n\n\n{t}" for t in code)
    return Unit(text + "\n", tuple(functions))


def _fits(kernel: Kernel) -> bool:
    """As far as is known, buffers have at most `MOST` elements."""
    return all(prod(int(e.value) for e in b.shape if isinstance(e, Const)) <= MOST for b in kernel.buffers)


def _functions(kernel: Kernel, helpers: Helpers, procedures: Procedures, names: Names, wide: bool) -> Iterator[Function]:
    if not is_gpu(kernel):
        raise InternalError("a kernel for a CPU is to become one for a GPU", f"kernel {kernel.name}")
    lets: list[Let] = []
    several = sum(isinstance(g, Grid) for g in grids(kernel)) > 1
    number = 0
    for part in grids(kernel):
        if isinstance(part, Let):
            lets.append(part)
        else:
            number += 1
            name = names.of(f"{kernel.name}_{number}" if several else kernel.name)
            printer = Printer(kernel, helpers, procedures, name, tuple(lets), part, wide)
            text = printer.run()
            yield Function(name, kernel, tuple(lets), part, printer.parameters, text, printer.dynamic)

"""Kernels as text: `tlc kernel.tk [--n 8]` runs every kernel of the file on data that is always the same and prints its outputs.

Scalar parameters are flags, one for all kernels that have it; 8 where it is not given (1 for reals, on for bools). Element k of an
input, counted in row-major order, is k modulo 10; of bools, whether k is odd. The interpreter runs first, which finds an index out of
range; then native code runs, and if it gives other bits, that is a fault of the compiler. With `--interp` only the interpreter runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tlc.driver import samples
from tlc.driver.flags import Flag, UsageError, Value
from tlc.driver.text_faults import fault, holds
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES
from tlc.frontend.source import NOWHERE, Source
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.interp import run as interpret
from tlc.tensor.kernel.ir import Buffer, Kernel, Var
from tlc.tensor.kernel.scalars import value_of
from tlc.tensor.kernel.text import parse_kernels
from tlc.tensor.kernel.verify import verify

Scalars = dict[str, Any]  # by the name of the parameter


def read(source: Source, natively: bool) -> dict[str, Kernel]:
    """The verified kernels of a file. Raises `CompileError`. Native code needs elementary functions (`exp`) written out, as the
    compiler does it.
    """
    kernels = parse_kernels(source.text, source.path)
    for kernel in kernels.values():
        holds(partial(verify, kernel, natively), source)
    return kernels


def flags(kernels: Mapping[str, Kernel]) -> tuple[Flag, ...]:
    """The scalar parameters of all kernels."""
    found: dict[str, Flag] = {}
    for kernel in kernels.values():
        for p in kernel.inputs:
            if isinstance(p, Var):
                own = samples.scalar_flag(p.name, p.elem, f"of {kernel.name}")
                flag = found.setdefault(p.name, own)
                if flag.elem is not own.elem:
                    raise UsageError(f"parameter `{p.name}` is a {flag.elem} in one kernel and a {own.elem} in another")
    return tuple(found.values())


def run(source: Source, kernels: Mapping[str, Kernel], values: Mapping[str, Value], natively: bool) -> list[str]:
    """Run every kernel; gives lines that say what came out. Raises `CompileError` where a kernel leaves its buffers."""
    out = []
    for kernel in kernels.values():
        if kernel.applied:
            raise fault(f"kernel `{kernel.name}` applies the function `{kernel.applied[0]}`, which is not in this file", NOWHERE, source)
        scalars = {p.name: DTYPES[p.elem].type(values[p.name]) for p in kernel.inputs if isinstance(p, Var)}
        inputs = [samples.numbers(_shape(p, scalars), p.elem) if isinstance(p, Buffer) else scalars[p.name] for p in kernel.inputs]
        outputs = [np.zeros(_shape(b, scalars), DTYPES[b.elem]) for b in kernel.outputs]
        again, unkind = ([o.copy() for o in outputs] for _ in range(2))
        try:
            interpret(kernel, outputs, inputs, races=True)
        except InternalError as error:
            raise fault(error.message, error.span, source) from None
        interpret(kernel, unkind, inputs, adverse=True)
        if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, unkind, strict=True)):
            why = "reads local memory before it is written, or is not parallel where it says so"
            raise fault(f"kernel `{kernel.name}` {why}", NOWHERE, source)
        if natively:
            from tlc.backends.runtime.kernel_run import run as run_natively

            run_natively(emulated(kernel), again, inputs)
            if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, again, strict=True)):
                raise InternalError("native code and the interpreter give different bits", f"kernel {kernel.name}")
        out += [f"{kernel.name}.{b.name} = {samples.text(o, b.elem)}" for b, o in zip(kernel.outputs, outputs, strict=True)]
    return out


def _shape(b: Buffer, scalars: Scalars) -> tuple[int, ...]:
    return samples.sized(f"buffer `{b.name}`", tuple(int(value_of(e, scalars)) for e in b.shape))

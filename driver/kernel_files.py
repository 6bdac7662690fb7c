"""Kernels as text: `tlc kernel.tk [--n 8]` runs every kernel of the file on data that is always the same and prints its outputs.

Scalar parameters are flags, one for all kernels that have it; 8 where it is not given (1 for reals, on for bools). Element k of an
input, counted in row-major order, is k modulo 10; of bools, whether k is odd. The interpreter runs first, which finds an index out of
range; then native code runs, and if it gives other bits, that is a fault of the compiler. With `--interp` only the interpreter runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from tlc.driver.flags import Flag, UsageError, Value
from tlc.driver.text_faults import fault, holds
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.source import NOWHERE, Source
from tlc.frontend.types import Elem
from tlc.ssa import formatting
from tlc.tensor.kernel.calls import applied
from tlc.tensor.kernel.interp import run as interpret
from tlc.tensor.kernel.ir import Buffer, Const, Expr, Kernel, Op, Var
from tlc.tensor.kernel.text import parse_kernels
from tlc.tensor.kernel.verify import verify

FILL = 10  # elements of inputs repeat after so many
MOST = 1 << 28  # elements of one buffer

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
                default: Value = True if p.elem is Elem.BOOL else 8 if p.elem.is_int or p.elem is Elem.KEY else 1.0
                elem = Elem.I64 if p.elem is Elem.KEY else p.elem
                flag = found.setdefault(p.name, Flag(p.name, elem, default, f"of {kernel.name}"))
                if flag.elem is not elem:
                    raise UsageError(f"parameter `{p.name}` is a {flag.elem} in one kernel and a {elem} in another")
    return tuple(found.values())


def run(source: Source, kernels: Mapping[str, Kernel], values: Mapping[str, Value], natively: bool) -> list[str]:
    """Run every kernel; gives lines that say what came out. Raises `CompileError` where a kernel leaves its buffers."""
    out = []
    for kernel in kernels.values():
        functions = applied(kernel)
        if functions:
            raise fault(f"kernel `{kernel.name}` applies the function `{functions[0]}`, which is not in this file", NOWHERE, source)
        scalars = {p.name: DTYPES[p.elem].type(values[p.name]) for p in kernel.inputs if isinstance(p, Var)}
        inputs = [_filled(p, scalars) if isinstance(p, Buffer) else scalars[p.name] for p in kernel.inputs]
        outputs = [np.zeros(_shape(b, scalars), DTYPES[b.elem]) for b in kernel.outputs]
        again, unkind = ([o.copy() for o in outputs] for _ in range(2))
        try:
            interpret(kernel, outputs, inputs)
        except InternalError as error:
            raise fault(error.message, error.span, source) from None
        interpret(kernel, unkind, inputs, adverse=True)
        if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, unkind, strict=True)):
            why = "reads local memory before it is written, or is not parallel where it says so"
            raise fault(f"kernel `{kernel.name}` {why}", NOWHERE, source)
        if natively:
            from tlc.backends.runtime.kernel_run import run as run_natively

            run_natively(kernel, again, inputs)
            if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, again, strict=True)):
                raise InternalError("native code and the interpreter give different bits", f"kernel {kernel.name}")
        out += [f"{kernel.name}.{b.name} = {_text(o, b.elem)}" for b, o in zip(kernel.outputs, outputs, strict=True)]
    return out


def _shape(b: Buffer, scalars: Scalars) -> tuple[int, ...]:
    shape = tuple(int(_value(e, scalars)) for e in b.shape)
    if any(e < 0 for e in shape) or prod(shape) > MOST:
        raise UsageError(f"buffer `{b.name}` would have the shape {list(shape)}: an extent is at least 0, all together at most {MOST}")
    return shape


def _value(e: Expr, scalars: Scalars) -> Any:
    match e:
        case Const():
            return DTYPES[e.elem].type(e.value)
        case Var():
            return scalars[e.name]
        case Op():
            return SCALAR_OPS[e.op].evaluate(e.elem, *(_value(a, scalars) for a in e.args))
    raise InternalError("an extent that loads", "kernel file")


def _filled(b: Buffer, scalars: Scalars) -> Any:
    shape = _shape(b, scalars)
    count = np.arange(prod(shape))
    return (count % 2 if b.elem is Elem.BOOL else count % FILL).astype(DTYPES[b.elem]).reshape(shape)


def _text(array: Any, elem: Elem) -> str:
    return formatting.render((("hole", "", "leaf"),), [formatting.marked(array if array.ndim else array[()], elem)])

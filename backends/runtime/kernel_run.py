"""One kernel, compiled by LLVM and run on arrays: for kernels that come as text and for tests of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tlc.backends.llvm import jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.runtime.native import Context
from tlc.frontend.foreign import C_TYPES
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import Buffer, Kernel

Array = np.ndarray[Any, Any]


def run(kernel: Kernel, outputs: Sequence[Array], inputs: Sequence[Any]) -> None:
    """Run a kernel that applies no functions into C-contiguous arrays, on one thread. Arguments are as the interpreter takes them."""
    loaded = jit.load(jit.compile_objects([(print_kernel(kernel), jit.Level.KERNEL)]).values())
    context = Context(threads=1)
    cells = [_stored(o, b.elem) for o, b in zip(outputs, kernel.outputs, strict=True)]
    types: list[Any] = [ctypes.c_void_p] * (1 + len(cells))
    values: list[Any] = [ctypes.addressof(context), *(c.ctypes.data for c in cells)]
    kept = []
    for p, v in zip(kernel.inputs, inputs, strict=True):
        if isinstance(p, Buffer):
            kept.append(_stored(v, p.elem))
            types.append(ctypes.c_void_p)
            values.append(kept[-1].ctypes.data)
        else:
            type, value = _argument(v, p.elem)
            types.append(type)
            values.append(value)
    ctypes.CFUNCTYPE(ctypes.c_int32, *types)(loaded.address(f"k.{kernel.name}"))(*values)
    for o, c, b in zip(outputs, cells, kernel.outputs, strict=True):
        if c is not o:
            o[...] = from_memory(c) if b.elem is Elem.BF16 else c


def _stored(array: Array, elem: Elem) -> Array:
    """As it lies in native memory."""
    return to_memory(array) if elem is Elem.BF16 else np.ascontiguousarray(array)


def _argument(value: Any, elem: Elem) -> tuple[Any, Any]:
    """A scalar as C passes it; a real of 16 bits travels as its bits."""
    if elem in (Elem.F16, Elem.BF16):
        return ctypes.c_uint16, int(to_memory(value) if elem is Elem.BF16 else np.float16(value).view(np.uint16))
    if elem in C_TYPES:
        return C_TYPES[elem], value.item()
    return ctypes.c_uint64, int(value)

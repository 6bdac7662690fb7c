"""For tests: kernels as C, by gcc, beside the LLVM kernel and the interpreter of kernels."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tlc.backends.c.unit import FLAGS, emit
from tlc.backends.context import SERVICES
from tlc.backends.llvm import host, jit
from tlc.backends.program import Tables
from tlc.backends.runtime.native import Context
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa.ir import Module
from tlc.tensor.kernel.interp import run
from tlc.tensor.kernel.ir import Buffer, Kernel, Var

Array = np.ndarray[Any, Any]
Apply = Callable[[str, list[Any]], Any]

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")

_SCALARS = {
    Elem.BOOL: ctypes.c_bool, Elem.I8: ctypes.c_int8, Elem.U8: ctypes.c_uint8, Elem.I32: ctypes.c_int32, Elem.U32: ctypes.c_uint32,
    Elem.I64: ctypes.c_int64, Elem.KEY: ctypes.c_uint64, Elem.F32: ctypes.c_float, Elem.F64: ctypes.c_double,
    Elem.F16: ctypes.c_uint16, Elem.BF16: ctypes.c_uint16, Elem.STR: ctypes.c_int64,
}  # fmt: skip


def library(text: str, *flags: str) -> ctypes.CDLL:
    """A file of C, compiled and loaded. Warnings are errors."""
    with tempfile.TemporaryDirectory() as folder:
        source, shared = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(text, encoding="utf-8")
        quiet = [f"-Wno-{w}" for w in ("tautological-compare", "maybe-uninitialized", "unused-but-set-variable")]
        command = ["gcc", *FLAGS, "-O2", "-Wall", "-Werror", *quiet, *flags, "-shared", "-fPIC", source, "-o", shared, "-lm"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{result.stderr}\n{text}"
        return ctypes.CDLL(str(shared))


def stored(array: Any, elem: Elem) -> Array:
    """An array as its elements lie in memory."""
    return np.ascontiguousarray(to_memory(array) if elem is Elem.BF16 else np.asarray(array, DTYPES[elem]))


def call(address: Any, kernel: Kernel, outputs: Sequence[Array], inputs: Sequence[Any], context: Any = None) -> int:
    """Call a kernel at an address with arrays of the interpreter; the outputs are written into. Gives the status, 0 if there is none."""
    types: list[Any] = [ctypes.c_void_p] if context is not None else []
    values: list[Any] = [ctypes.addressof(context)] if context is not None else []
    kept = [stored(o, b.elem) for o, b in zip(outputs, kernel.outputs, strict=True)]
    for a in kept:
        types.append(ctypes.c_void_p)
        values.append(a.ctypes.data)
    for p, v in zip(kernel.inputs, inputs, strict=True):
        if isinstance(p, Var):
            types.append(_SCALARS[p.elem])
            bits = stored(v, p.elem)
            values.append((bits.view(np.uint16) if p.elem is Elem.F16 else bits)[()].item())
        else:
            kept.append(stored(v, p.elem))
            types.append(ctypes.c_void_p)
            values.append(kept[-1].ctypes.data)
    gives = context is not None or kernel.can_fail
    status = ctypes.CFUNCTYPE(ctypes.c_int32 if gives else None, *types)(address)(*values)
    for o, a, b in zip(outputs, kept, kernel.outputs, strict=False):
        o[...] = from_memory(a) if b.elem is Elem.BF16 else a.reshape(o.shape)
    return status or 0


def same(a: Array, b: Array) -> bool:
    """Equal bits, those of a NaN aside."""
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    nan = np.isnan(a)
    return bool(np.array_equal(nan, np.isnan(b)) and a[~nan].tobytes() == b[~nan].tobytes())


class Ways:
    """Kernels in three ways. `launch` is one for the interpreter of SSA; it compares, and goes on with what C gives."""

    def __init__(self, kernels: Mapping[str, Kernel], module: Module | None = None, apply: Apply | None = None, limit: int = 4000) -> None:
        self.kernels, self.apply, self.limit = kernels, apply, limit
        self.text = emit(kernels, module)
        self.library = library(self.text)
        tables = Tables()
        alone = host.alone(module, kernels) if module is not None else kernels.values()
        texts = [("\n".join(map(host.print_kernel, alone)), jit.Level.KERNEL)]
        if module is not None:
            texts.append((host.print_host(module, kernels, tables), jit.Level.HOST))
        self.loaded = jit.load(jit.compile_objects(texts).values(), tables.foreign)
        self.context = Context(threads=1)
        self.service = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda slots: 0)  # the message of a stop is not asked for
        for k in range(len(SERVICES)):
            self.context.services[k] = ctypes.cast(self.service, ctypes.c_void_p).value
        self.seen: set[str] = set()
        self.compared = 0

    def library_text(self, name: str) -> bytes:
        """A text that the library holds."""
        return ctypes.string_at(_address(self.library, name))

    def launch(self, name: str, outputs: list[Array], inputs: list[Any]) -> None:
        kernel = self.kernels[name]
        by_c, status = self.one_way(outputs, inputs, lambda o, i: call(_address(self.library, name), kernel, o, i))
        by_llvm, other = self.one_way(outputs, inputs, lambda o, i: call(self.loaded.address(f"k.{name}"), kernel, o, i, self.context))
        assert status == other, name
        found = [("LLVM", by_llvm)]
        size = sum(np.size(a) for a in (*outputs, *inputs))
        if not status and name not in self.seen and size <= self.limit:
            self.seen.add(name)
            found.append(("the interpreter", self.one_way(outputs, inputs, lambda o, i: run(kernel, o, i, self.apply))[0]))
        for way, others in found:
            for b, mine, theirs in zip(kernel.outputs, by_c, others, strict=True):
                assert status or same(mine, theirs), f"{name}, {b.name}: C\n{mine}\n{way}\n{theirs}\n{self.text}"
        for o, mine in zip(outputs, by_c, strict=True):
            o[...] = mine
        self.compared += 1

    def one_way(self, outputs: list[Array], inputs: list[Any], way: Callable[[list[Array], list[Any]], int | None]) -> tuple[list[Array], int]:
        """Run on copies; arrays that are one stay one. (A part may begin where the whole does.)"""
        copies: dict[tuple[int, int], Array] = {}

        def copy(a: Any) -> Any:
            return copies.setdefault((a.ctypes.data, a.nbytes), a.copy()) if isinstance(a, np.ndarray) and a.ndim else a

        mine = [copies.setdefault((o.ctypes.data, o.nbytes), o.copy()) for o in outputs]
        return mine, way(mine, [copy(i) for i in inputs]) or 0


def _address(library: ctypes.CDLL, name: str) -> Any:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def arrays_of(kernel: Kernel, sizes: Mapping[str, int], seed: int = 0) -> tuple[list[Array], list[Any]]:
    """Outputs and inputs for a kernel whose scalars have these values: numbers of every kind."""
    random = np.random.default_rng(seed)

    def extent(e: Any) -> int:
        return int(sizes[e.name]) if isinstance(e, Var) else int(e.value)

    def make(b: Buffer) -> Array:
        return numbers(random, b.elem, tuple(map(extent, b.shape)))

    outputs = [make(b) for b in kernel.outputs]
    return outputs, [make(p) if isinstance(p, Buffer) else sizes[p.name] for p in kernel.inputs]


def numbers(random: np.random.Generator, elem: Elem, shape: tuple[int, ...]) -> Array:
    if elem is Elem.BOOL:
        return random.integers(0, 2, shape).astype(np.bool_)
    if elem.is_real:
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 65504.0, 1e-7, 0.5, 2.5, -3.5])
        x = np.where(random.random(shape) < 0.3, random.choice(special, shape), random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape))
        with np.errstate(over="ignore", invalid="ignore"):
            x = x.astype(np.float32 if elem is not Elem.F64 else np.float64)
        return from_memory(to_memory(x)) if elem is Elem.BF16 else x.astype(DTYPES[elem])
    info = np.iinfo(DTYPES[elem])
    small = random.integers(-4 if info.min else 0, 9, shape)
    wide = random.integers(info.min, info.max, shape, DTYPES[elem], endpoint=True)
    return np.where(random.random(shape) < 0.6, small.astype(DTYPES[elem]), wide)

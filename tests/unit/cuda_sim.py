"""For tests: emitted kernels in numba's simulator of CUDA, beside the interpreter of kernels. It runs in a process of its own.

A thread of the simulator is a thread of the system, so blocks are to be few and small. It has no intrinsics and no exchanges, and its
fused multiply-add rounds twice: here they are plain Python. Run as a program, the module reads jobs from a file and writes what came out.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tlc.backends.cuda.intrinsics import INTRINSICS, Assembly, Effect, Wide
from tlc.frontend.fma import fma32, fma64
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.kernel import matrices

Array = np.ndarray[Any, Any]

needs_simulator = pytest.mark.skipif(util.find_spec("numba") is None, reason="numba is not installed (the `cuda` or `peers` extra)")


@dataclass(frozen=True)
class Job:
    """A launch: a function of a file, its grid, its threads, and its arguments; arrays are flat, as they lie in memory. `dynamic`: bytes of
    shared memory that it asks for.
    """

    text: str
    function: str
    grid: tuple[int, ...]
    threads: int
    arguments: list[Any]
    dynamic: int = 0


def simulate(jobs: Sequence[Job], folder: Path) -> list[list[Any]]:
    """The arguments of each launch as it leaves them."""
    there, back = folder / "jobs", folder / "results"
    there.write_bytes(pickle.dumps(list(jobs)))
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, __file__, there, back], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = pickle.loads(back.read_bytes())
    return found


# ---------------------------------------------------------------- in the other process


def _integer(width: int, signed: bool) -> Callable[[Any], Any]:
    """Conversion to an integer: a Python one, in which nothing wraps before it is converted again, as in numba's 64 bits."""

    def convert(x: Any) -> Any:
        value = int(x) & ((1 << width) - 1)
        value -= (1 << width) if signed and value >> (width - 1) else 0
        return np.int64(value) if width == 64 and signed else np.uint64(value) if width == 64 else value

    return convert


def _bits(of: Any, to: Any) -> Callable[[Any], Any]:
    return lambda x: np.asarray(x, of).view(to)[()]


def _row(name: str, elem: Elem) -> Callable[..., Any]:
    evaluate = SCALAR_OPS[name].evaluate
    return lambda *args: evaluate(elem, *args)


def _of_elem(name: str, elem: Elem) -> Callable[..., Any]:
    types = {Elem.F32: np.float32, Elem.F64: np.float64}
    return lambda *args: types[elem](_row(name, elem)(*(types[elem](a) for a in args)))


LIBDEVICE: dict[str, Callable[..., Any]] = {
    "float_as_int": _bits(np.float32, np.int32), "int_as_float": _bits(np.int32, np.float32),
    "double_as_longlong": _bits(np.float64, np.int64), "longlong_as_double": _bits(np.int64, np.float64),
    "fmaf_rn": fma32, "fma_rn": fma64,
    "fmod": np.fmod, "fmodf": lambda a, b: np.float32(np.fmod(a, b)),
    "copysign": np.copysign, "copysignf": lambda a, b: np.float32(np.copysign(a, b)),
}  # fmt: skip
for _name, _op in {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "round", "fabs": "abs"}.items():
    LIBDEVICE[_name], LIBDEVICE[f"{_name}f"] = _of_elem(_op, Elem.F64), _of_elem(_op, Elem.F32)
for _name in ("mul", "div", "sqrt"):
    LIBDEVICE[f"d{_name}_rn"], LIBDEVICE[f"f{_name}_rn"] = _of_elem(_name, Elem.F64), _of_elem(_name, Elem.F32)

PLAIN: dict[str, Callable[..., Any]] = {
    "f32_of_f16": lambda x: np.float32(np.uint16(x).view(np.float16)),
    "f16_of_f32": lambda x: int(np.float32(x).astype(np.float16).view(np.uint16)),
    "f32_of_bf16": lambda x: np.float32(from_memory(np.uint16(x))),
    "bf16_of_f32": lambda x: int(to_memory(np.float32(x))),
}
for _name, _kind in INTRINSICS.items():
    if isinstance(_kind, Assembly) and _name not in PLAIN:
        PLAIN[_name] = _row(_name.split("_")[0], Elem(_name.split("_")[1]))
    elif isinstance(_kind, Wide):
        def _load(p: Any, i: Any, n: int = _kind.count) -> tuple[Any, ...]:
            assert i % n == 0
            return tuple(_flat(p)[i + k] for k in range(n))

        def _store(p: Any, i: Any, cells: Sequence[Any], n: int = _kind.count) -> None:
            assert i % n == 0 and len(cells) == n
            for k in range(n):
                _flat(p)[i + k] = cells[k]

        PLAIN[_name] = _store if _kind.stores else _load


def _copy(into: Any, at: int, p: Any, i: int, size: int) -> None:
    """At once."""
    n = 16 // into.itemsize
    assert at % n == 0 and size in (0, 16) and (not size or i % n == 0)
    for k in range(n):
        _flat(into)[at + k] = p[i + k] if size else 0


def _flat(p: Any) -> Any:
    """The elements of a pointer, or of an array."""
    return p.reshape(-1) if isinstance(p, np.ndarray) else p

TYPES = {
    **{f"{'' if signed else 'u'}int{width}": _integer(width, signed) for width in (8, 16, 32, 64) for signed in (True, False)},
    "float32": np.float32, "float64": np.float64,
}  # fmt: skip
_DTYPES = {f: np.dtype(f) for f in TYPES}


def _shared_array(simulator: Any) -> None:
    """Shared memory that takes an alignment. As before, an array is known by its place in the file."""

    def array(self: Any, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        if shape == 0:
            return np.frombuffer(self._dynshared.data, _dtype(dtype))
        caller = sys._getframe(1)
        return self._allocations.setdefault((caller.f_code.co_filename, caller.f_lineno), np.empty(shape, _dtype(dtype)))

    simulator.FakeCUDAShared.array = array
    simulator.FakeCUDALocal.array = lambda self, shape, dtype: np.empty(shape, _dtype(dtype))


def _dtype(convert: Any) -> Any:
    return _DTYPES[next(name for name, f in TYPES.items() if f is convert)]


class _Exchanges:
    """Exchanges between the threads of a block, all of which take part."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def brought(self, value: Any) -> list[Any]:
        """What each thread of the warp brings."""
        thread = threading.current_thread()
        me: int = thread.thread_id  # type: ignore[attr-defined]
        self.values[me] = value
        thread.syncthreads()  # type: ignore[attr-defined]
        found = [self.values[me - me % 32 + lane] for lane in range(32)]
        thread.syncthreads()  # type: ignore[attr-defined]
        return found

    def ldmatrix(self, transposed: bool) -> Callable[..., None]:
        def load(into: Any, at: int, source: Any, place: int) -> None:
            count = 16 // source.itemsize
            assert place % count == 0
            rows = self.brought(source.reshape(-1)[place : place + count].copy())
            mine = matrices.loaded(np.array(rows), transposed)[threading.current_thread().thread_id % 32]  # type: ignore[attr-defined]
            into.reshape(-1)[at : at + len(mine)] = mine

        return load

    def mma(self, elem: Elem) -> Callable[..., None]:
        def value(bits: Any) -> Any:
            return from_memory(bits) if elem is Elem.BF16 else bits.view(DTYPES[elem])

        def multiply(acc: Any, i: int, a: Any, j: int, b: Any, k: int) -> None:
            form = matrices.FORMS[elem]
            sums, x, y = (p.reshape(-1)[at : at + f.count] for p, at, f in ((acc, i, form.c), (a, j, form.a), (b, k, form.b)))
            brought = self.brought((sums.copy(), value(x.copy()), value(y.copy())))
            new = matrices.multiplied(elem, *(np.array(part) for part in zip(*brought, strict=True)))
            sums[:] = new[threading.current_thread().thread_id % 32]  # type: ignore[attr-defined]

        return multiply

    def between(self, source: Callable[[int, int], int]) -> Callable[..., Any]:
        def exchange(module: Any, mask: int, value: Any, lane: int) -> Any:
            thread = threading.current_thread()
            me: int = thread.thread_id  # type: ignore[attr-defined]
            other = source(me % 32, int(lane))
            return (*self.brought(value), value)[min(other, 32)]

        return exchange


def main(there: str, back: str) -> None:
    from numba import cuda
    from numba.cuda.simulator import kernelapi

    _shared_array(kernelapi)
    exchanges = _Exchanges()
    for name, source in {"shfl_xor_sync": lambda a, b: a ^ b, "shfl_down_sync": lambda a, b: a + b, "shfl_sync": lambda a, b: b}.items():
        setattr(kernelapi.FakeCUDAModule, name, exchanges.between(source))
    copies: dict[str, Callable[..., None]] = {"copy16": _copy, **{name: lambda: None for name, row in INTRINSICS.items() if isinstance(row, Effect)}}
    meetings = {"ldmatrix": exchanges.ldmatrix(False), "ldmatrix_trans": exchanges.ldmatrix(True)}
    intrinsics = PLAIN | copies | meetings | {f"mma_{elem}": exchanges.mma(elem) for elem in matrices.FORMS}
    assert set(intrinsics) == set(INTRINSICS)
    for module, names in (("numba.cuda.libdevice", LIBDEVICE), ("tlc.backends.cuda.ptx", intrinsics), ("simulated_types", {"cuda": cuda, **TYPES})):
        sys.modules[module] = ModuleType(module)
        vars(sys.modules[module]).update(names)
    out = []
    with np.errstate(all="ignore"):
        for job in pickle.loads(Path(there).read_bytes()):
            text = re.sub(r"launch_bounds=\d+", "", job.text).replace("from numba import", "from simulated_types import")
            names: dict[str, Any] = {}
            exec(compile(text, f"<{job.function}>", "exec"), names)
            names[job.function][job.grid, job.threads, 0, job.dynamic](*job.arguments)
            out.append(job.arguments)
    Path(back).write_bytes(pickle.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])

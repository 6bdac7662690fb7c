"""The one module that knows numba-cuda: emitted kernels become PTX, without a driver.

It has the functions of `INTRINSICS` by their names, made when they are asked for; emitted files import them from here. A machine without
the extra `cuda` can import this module only if nothing is compiled: `missing` says what there is to install.

PTX is kept in the cache folder by the text of its function, the versions of compiler and numba-cuda, and the architecture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tlc.backends.cuda.emit import Function, Unit
from tlc.backends.cuda.intrinsics import INTRINSICS, Assembly, Wide
from tlc.frontend import disk_cache
from tlc.ssa.world import RuntimeStop

PACKAGES = ("numba", "numba-cuda", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink")  # of the extra `cuda`
_CONSTRAINTS = {"float32": "f", "float64": "d", "uint16": "h"}
_ENTRY = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
_ENVIRONMENT = re.compile(r"^\.common \.global \.align 8 \.u64 \w+;\n", re.MULTILINE)  # of numba's host functions, for nothing here


def missing() -> list[str]:
    """The packages of the extra `cuda` that are not installed."""
    out = []
    for name in PACKAGES:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            out.append(name)
    return out


def compile_unit(unit: Unit, sm: int) -> list[str]:
    """The PTX of each function of a file for an architecture, as in `sm_90`. Raises `RuntimeStop` where the packages are missing."""
    lacking = missing()
    if lacking:
        why = f"kernels for GPUs are compiled by numba-cuda, and there is no {', '.join(lacking)}"
        raise RuntimeStop(f"{why}: install `tlc[cuda]`", "tools")
    loaded: dict[str, Any] = {}
    out = []
    for function in unit.functions:
        path = _path(unit, function, sm)
        kept = disk_cache.read(path)
        if kept is None:
            if not loaded:
                exec(compile(unit.text, "<kernels>", "exec"), loaded)
            text = _compile(loaded[function.name], function, sm)
            disk_cache.write(path, text.encode())
        else:
            text = kept.decode()
        out.append(text)
    return out


def _path(unit: Unit, function: Function, sm: int) -> Path:
    """Where the PTX of a function is kept. Device functions stand in the text of the file behind the imports, before all kernels."""
    before = unit.text[: unit.text.index(unit.functions[0].text)].partition("\n\n\n")[2]
    versions = [f"{name} {metadata.version(name)}" for name in ("tlc", *PACKAGES)]
    here = Path(__file__).read_text(encoding="utf-8")
    parts = [*versions, here, repr(INTRINSICS), str(sm), *function.parameters, before, function.text]
    return disk_cache.folder() / "ptx" / hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compile(dispatcher: Any, function: Function, sm: int) -> str:
    from numba import cuda, types

    signature = types.void(*(_type(t) for t in function.parameters))
    with _device_functions_for(divmod(sm, 10)):
        text, _ = cuda.compile_ptx(dispatcher.py_func, signature, cc=divmod(sm, 10), launch_bounds=function.grid.threads)
    (entry,) = _ENTRY.findall(text)
    return _ENVIRONMENT.sub("", str(text).replace(entry, function.name).replace("\0", ""))


@contextmanager
def _device_functions_for(capability: tuple[int, int]) -> Iterator[None]:
    """numba-cuda compiles device functions for the device that it finds, and fails where there is none: it is to take this capability."""
    from numba.cuda import dispatcher

    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


def _type(name: str) -> Any:
    from numba import types

    return types.CPointer(getattr(types, name[:-1])) if name.endswith("*") else getattr(types, name)


# ---------------------------------------------------------------- intrinsics


def __getattr__(name: str) -> Any:
    if name in INTRINSICS and util.find_spec("numba") is not None:
        return _intrinsic(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _intrinsic(name: str) -> Any:
    """A row as a function of numba."""
    from numba.cuda.extending import intrinsic

    row = INTRINSICS[name]
    make = _assembly(row) if isinstance(row, Assembly) else _store(row) if row.stores else _load(row)
    make.__name__ = name
    return intrinsic(make)


def _assembly(row: Assembly) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    result, operands = getattr(types, row.result), [getattr(types, t) for t in row.operands]
    constraints = ",".join([f"={_CONSTRAINTS[row.result]}", *(_CONSTRAINTS[t] for t in row.operands)])

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        type = ir.FunctionType(context.get_value_type(result), [a.type for a in args])
        return builder.call(ir.InlineAsm(type, row.text, constraints, side_effect=False), args)

    def one(_: Any, a: Any) -> Any:
        return result(*operands), code

    def two(_: Any, a: Any, b: Any) -> Any:
        return result(*operands), code

    return one if len(operands) == 1 else two


def _address(builder: Any, pointer: Any, index: Any, type: Any) -> Any:
    return builder.bitcast(builder.gep(pointer, [index]), type.as_pointer())


def _load(row: Wide) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        vector = ir.VectorType(args[0].type.pointee, row.count)
        value = builder.load(_address(builder, args[0], args[1], vector), align=16)
        cells = [builder.extract_element(value, ir.IntType(32)(k)) for k in range(row.count)]
        return context.make_tuple(builder, signature.return_type, cells)

    def load(_: Any, pointer: Any, index: Any) -> Any:
        return types.UniTuple(pointer.dtype, row.count)(pointer, types.int64), code

    return load


def _store(row: Wide) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        pointer, index, cells = args
        vector = ir.VectorType(pointer.type.pointee, row.count)
        value = ir.Constant(vector, ir.Undefined)
        for k in range(row.count):
            value = builder.insert_element(value, builder.extract_value(cells, k), ir.IntType(32)(k))
        builder.store(value, _address(builder, pointer, index, vector), align=16)
        return context.get_dummy_value()

    def store(_: Any, pointer: Any, index: Any, cells: Any) -> Any:
        return types.void(pointer, types.int64, types.UniTuple(pointer.dtype, row.count)), code

    return store

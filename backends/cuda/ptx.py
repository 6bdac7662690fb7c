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
from tlc.backends.cuda.intrinsics import INTRINSICS, Assembly, Copy, Effect, LoadMatrices, Mma, Wide
from tlc.frontend import disk_cache
from tlc.ssa.world import RuntimeStop

PACKAGES = ("numba", "numba-cuda", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-nvjitlink")  # of the extra `cuda`
_CONSTRAINTS = {"float32": "f", "float64": "d", "uint16": "h"}
_ENTRY = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
_VERSION = re.compile(r"^\.version \S+", re.MULTILINE)
_KNOWN = (90, ".version 7.8")  # up to this architecture no function needs more of PTX, and drivers know that since CUDA 11.8
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
    text = _ENVIRONMENT.sub("", str(text).replace(entry, function.name).replace("\0", ""))
    # the compiler writes its own version, which a driver that is older than the compiler refuses
    return _VERSION.sub(_KNOWN[1], text, count=1) if sm <= _KNOWN[0] else text


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

    make = _maker(INTRINSICS[name])
    make.__name__ = name
    return intrinsic(make)


def _maker(row: Assembly | Wide | LoadMatrices | Mma | Copy | Effect) -> Callable[..., Any]:
    match row:
        case Assembly():
            return _assembly(row)
        case Wide():
            return _store(row) if row.stores else _load(row)
        case LoadMatrices():
            return _load_matrices(row)
        case Mma():
            return _mma(row)
        case Copy():
            return _copy(row)
        case Effect():
            return _effect(row)


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


def _pointer(context: Any, builder: Any, type: Any, value: Any) -> Any:
    """Where the elements of an array begin, or what a pointer points to."""
    from numba import types

    return context.make_array(type)(context, builder, value).data if isinstance(type, types.Array) else value


def _vector(element: Any, count: int) -> tuple[Any, int, int]:
    """The vector that an access is of, its bytes, and how many elements one of its own holds: narrow ones go by words of 32 bits, for
    vectors of narrow ones would be several accesses.
    """
    from llvmlite import ir

    width = element.width if isinstance(element, ir.IntType) else {ir.FloatType(): 32, ir.DoubleType(): 64}[element]
    each = max(32 // width, 1)
    return ir.VectorType(ir.IntType(32) if each > 1 else element, count // each), count * width // 8, each


def _load(row: Wide) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0])
        element = pointer.type.pointee
        vector, size, each = _vector(element, row.count)
        value = builder.load(_address(builder, pointer, args[1], vector), align=size)
        words = [builder.extract_element(value, ir.IntType(32)(k)) for k in range(vector.count)]
        if each > 1:
            parts = [builder.lshr(w, w.type(element.width * k)) for w in words for k in range(each)]
            words = [builder.trunc(part, element) for part in parts]
        return context.make_tuple(builder, signature.return_type, words)

    def load(_: Any, pointer: Any, index: Any) -> Any:
        return types.UniTuple(pointer.dtype, row.count)(pointer, types.int64), code

    return load


def _store(row: Wide) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        array, index, cells = args
        pointer = _pointer(context, builder, signature.args[0], array)
        vector, size, each = _vector(pointer.type.pointee, row.count)
        parts = [builder.extract_value(cells, k) for k in range(row.count)]
        value = ir.Constant(vector, ir.Undefined)
        for k in range(vector.count):
            word = parts[each * k]
            if each > 1:
                word = builder.zext(word, vector.element)
                for n in range(1, each):
                    part = builder.zext(parts[each * k + n], vector.element)
                    word = builder.or_(word, builder.shl(part, part.type(pointer.type.pointee.width * n)))
            value = builder.insert_element(value, word, ir.IntType(32)(k))
        builder.store(value, _address(builder, pointer, index, vector), align=size)
        return context.get_dummy_value()

    def store(_: Any, pointer: Any, index: Any, cells: Any) -> Any:
        return types.void(pointer, types.int64, types.UniTuple(pointer.dtype, row.count)), code

    return store


_GLOBAL, _SHARED = 1, 3  # numbers of address spaces
_TOGETHER = ("convergent",)  # an attribute: the compiler may not move or copy it to where only some threads of a warp come


def _in_space(builder: Any, pointer: Any, space: int) -> Any:
    """An address in one address space, as an integer: of 32 bits in shared memory."""
    from llvmlite import ir

    cast = builder.addrspacecast(pointer, ir.PointerType(pointer.type.pointee, space))
    return builder.ptrtoint(cast, ir.IntType(32 if space == _SHARED else 64))


def _registers(builder: Any, pointer: Any, index: Any, count: int) -> list[Any]:
    """Pointers to so many registers of 32 bits, which lie in a local array from an index on."""
    from llvmlite import ir

    first = _address(builder, pointer, index, ir.IntType(32))
    return [builder.gep(first, [ir.IntType(32)(k)]) for k in range(count)]


def _load_matrices(row: LoadMatrices) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    word = ir.IntType(32)

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        into, source = (_pointer(context, builder, signature.args[k], args[k]) for k in (0, 2))
        shared = _in_space(builder, builder.gep(source, [args[3]]), _SHARED)
        type = ir.FunctionType(ir.LiteralStructType([word] * 4), [word])
        assembly = ir.InlineAsm(type, row.text, "=r,=r,=r,=r,r,~{memory}", side_effect=True)
        found = builder.call(assembly, [shared], attrs=_TOGETHER)
        for k, at in enumerate(_registers(builder, into, args[1], 4)):
            builder.store(builder.extract_value(found, k), at, align=2)
        return context.get_dummy_value()

    def load(_: Any, into: Any, at: Any, source: Any, place: Any) -> Any:
        return types.void(into, types.int64, source, types.int64), code

    return load


def _mma(row: Mma) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    word, real = ir.IntType(32), ir.FloatType()
    constraints = ",".join(["=f"] * row.acc + ["r"] * (row.a + row.b) + ["f"] * row.acc)

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        acc, a, b = (_pointer(context, builder, signature.args[k], args[k]) for k in (0, 2, 4))
        factors = [*_registers(builder, a, args[3], row.a), *_registers(builder, b, args[5], row.b)]
        sums = [builder.gep(acc, [builder.add(args[1], args[1].type(k))]) for k in range(row.acc)]
        operands = [builder.load(p, align=2) for p in factors] + [builder.load(p) for p in sums]
        type = ir.FunctionType(ir.LiteralStructType([real] * row.acc), [word] * len(factors) + [real] * row.acc)
        found = builder.call(ir.InlineAsm(type, row.text, constraints, side_effect=True), operands, attrs=_TOGETHER)
        for k, p in enumerate(sums):
            builder.store(builder.extract_value(found, k), p)
        return context.get_dummy_value()

    def multiply(_: Any, acc: Any, i: Any, a: Any, j: Any, b: Any, k: Any) -> Any:
        return types.void(acc, types.int64, a, types.int64, b, types.int64), code

    return multiply


def _copy(row: Copy) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        into = builder.gep(_pointer(context, builder, signature.args[0], args[0]), [args[1]])
        operands = [_in_space(builder, into, _SHARED), _in_space(builder, builder.gep(args[2], [args[3]]), _GLOBAL), args[4]]
        type = ir.FunctionType(ir.VoidType(), [x.type for x in operands])
        builder.call(ir.InlineAsm(type, row.text, "r,l,r,~{memory}", side_effect=True), operands)
        return context.get_dummy_value()

    def copy(_: Any, into: Any, at: Any, pointer: Any, place: Any, size: Any) -> Any:
        return types.void(into, types.int64, pointer, types.int64, types.int32), code

    return copy


def _effect(row: Effect) -> Callable[..., Any]:
    from llvmlite import ir
    from numba import types

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        builder.call(ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), row.text, "~{memory}", side_effect=True), [])
        return context.get_dummy_value()

    def effect(_: Any) -> Any:
        return types.void(), code

    return effect

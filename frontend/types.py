"""Types of TL. Immutable and hashable; dimensions are `Dim` polynomials."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass

if TYPE_CHECKING:
    from tlc.frontend.typed import StructDecl


class Elem(Enum):
    """Element types. `width` is bits of storage (a `key` is two 32-bit words, a `str` a 64-bit handle)."""

    BOOL = "bool"
    I8 = "i8"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U32 = "u32"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    STR = "str"
    KEY = "key"

    __hash__ = object.__hash__  # what `Enum` has is the name's, by way of Python

    @property
    def is_real(self) -> bool:
        return self in REALS

    @property
    def is_int(self) -> bool:
        return self in INTS

    @property
    def is_signed(self) -> bool:
        return self in (Elem.I8, Elem.I32, Elem.I64)

    @property
    def is_num(self) -> bool:
        return self in REALS or self in INTS

    @property
    def width(self) -> int:
        return _WIDTH[self]

    @property
    def bytes(self) -> int:
        return _WIDTH[self] // 8

    def __str__(self) -> str:
        return self.value


INTS = (Elem.I8, Elem.I32, Elem.I64, Elem.U8, Elem.U32)
REALS = (Elem.F16, Elem.BF16, Elem.F32, Elem.F64)
_WIDTH = {
    Elem.BOOL: 8, Elem.I8: 8, Elem.I32: 32, Elem.I64: 64, Elem.U8: 8, Elem.U32: 32,
    Elem.F16: 16, Elem.BF16: 16, Elem.F32: 32, Elem.F64: 64, Elem.STR: 64, Elem.KEY: 64,
}  # fmt: skip


@dataclass(frozen=True)
class TensorType:
    """A scalar (no dims) or a tensor."""

    elem: Elem
    dims: tuple[Dim, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dims)

    def __str__(self) -> str:
        return f"{self.elem}[{', '.join(map(str, self.dims))}]" if self.dims else str(self.elem)


@dataclass(frozen=True)
class StructType:
    """An instance of a struct, or an array of them: `dims` lead every leaf (`Block[L]` has dims `(L,)`).

    `args` are the values of the declaration's parameters, in order: a Dim or a Type each.
    """

    decl: StructDecl
    args: tuple[Dim | Type, ...] = ()
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        args = f"({', '.join(map(str, self.args))})" if self.args else ""
        dims = f"[{', '.join(map(str, self.dims))}]" if self.dims else ""
        return f"{self.decl.name}{args}{dims}"


@dataclass(frozen=True)
class TupleType:
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))}{',' if len(self.items) == 1 else ''})"


@dataclass(frozen=True)
class FunctionType:
    """The type of a parameter that takes a function."""

    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"fn({', '.join(map(str, self.params))}) -> {self.result}"


Type = TensorType | StructType | TupleType | FunctionType


def map_dims(type: Type, change: Callable[[Dim], Dim]) -> Type:
    """The type with other dimensions."""
    match type:
        case TensorType():
            return TensorType(type.elem, tuple(map(change, type.dims)))
        case StructType():
            args = (change(a) if isinstance(a, Dim) else map_dims(a, change) for a in type.args)
            return StructType(type.decl, tuple(args), tuple(map(change, type.dims)))
        case TupleType():
            return TupleType(tuple(map_dims(i, change) for i in type.items))
        case FunctionType():
            return FunctionType(tuple(map_dims(p, change) for p in type.params), map_dims(type.result, change))


UNIT = TupleType(())
BOOL = TensorType(Elem.BOOL)
I64 = TensorType(Elem.I64)
F32 = TensorType(Elem.F32)
F64 = TensorType(Elem.F64)
STR = TensorType(Elem.STR)
KEY = TensorType(Elem.KEY)

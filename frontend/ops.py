"""The scalar ops: one row each, read by the checker, the printers, the verifiers, the interpreters and the folder.

An op is polymorphic in its element type; the row says which element types it takes and what it gives. `evaluate` is the
meaning: it takes NumPy scalars or arrays of the operands' types (equal or broadcasting shapes) and gives the result in
the result's type, rounding once (a narrow real is computed in f32 and rounded then: `frontend/narrow_reals.py`). It is
total: whatever can fail is a `check` before it (`floordiv` and `mod` by zero give 0, shift counts are taken modulo the
width, a real converts to an integer by truncation, saturating, NaN to 0).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tlc.frontend import elementary
from tlc.frontend.fma import fma32, fma64
from tlc.frontend.narrow_reals import NARROW, rounded, wide
from tlc.frontend.records import dataclass
from tlc.frontend.types import INTS, REALS, Elem

Evaluate = Callable[..., Any]  # (result element type, *operands) -> NumPy scalar or array

DTYPES: dict[Elem, np.dtype[Any]] = {
    Elem.BOOL: np.dtype(np.bool_),
    Elem.I8: np.dtype(np.int8),
    Elem.I32: np.dtype(np.int32),
    Elem.I64: np.dtype(np.int64),
    Elem.U8: np.dtype(np.uint8),
    Elem.U32: np.dtype(np.uint32),
    Elem.F16: np.dtype(np.float16),
    Elem.BF16: np.dtype(np.float32),  # values of bf16, held in f32
    Elem.F32: np.dtype(np.float32),
    Elem.F64: np.dtype(np.float64),
    Elem.STR: np.dtype(object),
    Elem.KEY: np.dtype(np.uint64),
}

NUMS = INTS + REALS
BITS = (Elem.BOOL, *INTS)
ANY = tuple(Elem)


@dataclass(frozen=True)
class ScalarOp:
    """`takes`: element types of the (equal) operands, the condition of `select` aside. `gives`: `same` as the operands,
    `bool`, or `type` (the instruction says). `unit`: the value e with op(x, e) = x, where there is one for every x.
    """

    name: str
    arity: int
    takes: tuple[Elem, ...]
    gives: str
    evaluate: Evaluate
    commutative: bool = False
    symbol: str = ""  # the operator in source, where there is one
    elementary: bool = False  # expands into other ops by frontend/elementary.py
    instruction: bool = False  # an elementary one that kernels keep: many processors have it as an instruction


def _quiet(f: Callable[..., Any]) -> Evaluate:
    """`f` without NumPy's warnings, in the element type that is asked for. Python's operators are NumPy's, and quicker on scalars."""

    def evaluate(elem: Elem, *args: Any) -> Any:
        with np.errstate(all="ignore"):
            result, dtype = f(*args), DTYPES[elem]
            if isinstance(result, np.generic) and result.dtype is dtype:
                return result
            return np.asarray(result).astype(dtype, copy=False)[()]

    return evaluate


def _floordiv(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind == "f":
        return np.floor(a / b)
    safe = np.where(b == 0, np.ones_like(b), b)
    least = (a == np.iinfo(np.asarray(a).dtype).min) & (b == -1) if np.asarray(a).dtype.kind == "i" else np.False_
    return np.where(b == 0, np.zeros_like(a), np.where(least, a, np.floor_divide(a, np.where(least, np.ones_like(b), safe))))


def _mod(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind == "f":
        return np.where(np.isinf(b) & np.isfinite(a), np.where((a < 0) != (b < 0), np.where(a == 0, a, b), a), np.mod(a, b))
    safe = np.where((b == 0) | (b == -1 if np.asarray(b).dtype.kind == "i" else False), np.ones_like(b), b)
    return np.where(b == 0, np.zeros_like(a), np.mod(a, safe))


def _shl(a: Any, b: Any) -> Any:
    width = np.asarray(a).dtype.itemsize * 8
    return np.left_shift(a, np.asarray(b & (width - 1)).astype(np.asarray(a).dtype))


def _shr(a: Any, b: Any) -> Any:
    width = np.asarray(a).dtype.itemsize * 8
    return np.right_shift(a, np.asarray(b & (width - 1)).astype(np.asarray(a).dtype))


def _maximum(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind != "f":
        return np.maximum(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.maximum(a, b))


def _minimum(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind != "f":
        return np.minimum(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.minimum(a, b))


def _sign(a: Any) -> Any:
    return np.where(np.isnan(a), a, np.sign(a)) if np.asarray(a).dtype.kind == "f" else np.sign(a)


def _fma(elem: Elem, a: Any, b: Any, c: Any) -> Any:
    return fma64(a, b, c) if elem is Elem.F64 else fma32(a, b, c)


def _convert(elem: Elem, a: Any) -> Any:
    a = np.asarray(a)
    if elem.is_int and a.dtype.kind == "f":
        info = np.iinfo(DTYPES[elem])
        with np.errstate(all="ignore"):
            t = np.trunc(np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
            low, high = t <= float(info.min), t >= float(info.max)
            inside = np.where(low | high, 0.0, t).astype(DTYPES[elem])
        return np.where(low, info.min, np.where(high, info.max, inside)).astype(DTYPES[elem])[()]
    if elem is Elem.BOOL:
        return (a != 0)[()]
    with np.errstate(all="ignore"):
        return a.astype(DTYPES[elem])[()]


def _bitcast(elem: Elem, a: Any) -> Any:
    return np.ascontiguousarray(a).view(DTYPES[elem]).reshape(np.shape(a))[()]


def _round_half_even(a: Any) -> Any:
    return np.rint(a)


def _elementary(name: str) -> Evaluate:
    def evaluate(elem: Elem, *args: Any) -> Any:
        return elementary.expand(name, elementary.NumpyArith(), elem, *args)

    return evaluate


# name, operands, takes, gives, meaning
_ROWS = [
    ScalarOp("add", 2, NUMS, "same", _quiet(operator.add), commutative=True, symbol="+"),
    ScalarOp("sub", 2, NUMS, "same", _quiet(operator.sub), symbol="-"),
    ScalarOp("mul", 2, NUMS, "same", _quiet(operator.mul), commutative=True, symbol="*"),
    ScalarOp("div", 2, REALS, "same", _quiet(operator.truediv), symbol="/"),
    ScalarOp("floordiv", 2, NUMS, "same", _quiet(_floordiv), symbol="//"),
    ScalarOp("mod", 2, NUMS, "same", _quiet(_mod), symbol="%"),
    ScalarOp("neg", 1, NUMS, "same", _quiet(operator.neg), symbol="-"),
    ScalarOp("abs", 1, NUMS, "same", _quiet(operator.abs)),
    ScalarOp("sign", 1, NUMS, "same", _quiet(_sign)),
    ScalarOp("max", 2, NUMS, "same", _quiet(_maximum), commutative=True),
    ScalarOp("min", 2, NUMS, "same", _quiet(_minimum), commutative=True),
    ScalarOp("fma", 3, REALS, "same", _fma),
    ScalarOp("and", 2, BITS, "same", _quiet(operator.and_), commutative=True, symbol="&"),
    ScalarOp("or", 2, BITS, "same", _quiet(operator.or_), commutative=True, symbol="|"),
    ScalarOp("xor", 2, BITS, "same", _quiet(operator.xor), commutative=True, symbol="^"),
    ScalarOp("not", 1, BITS, "same", _quiet(operator.invert), symbol="~"),
    ScalarOp("shl", 2, INTS, "same", _quiet(_shl), symbol="<<"),
    ScalarOp("shr", 2, INTS, "same", _quiet(_shr), symbol=">>"),
    ScalarOp("eq", 2, ANY, "bool", _quiet(np.equal), commutative=True, symbol="=="),
    ScalarOp("ne", 2, ANY, "bool", _quiet(np.not_equal), commutative=True, symbol="!="),
    ScalarOp("lt", 2, NUMS, "bool", _quiet(operator.lt), symbol="<"),
    ScalarOp("le", 2, NUMS, "bool", _quiet(operator.le), symbol="<="),
    ScalarOp("gt", 2, NUMS, "bool", _quiet(operator.gt), symbol=">"),
    ScalarOp("ge", 2, NUMS, "bool", _quiet(operator.ge), symbol=">="),
    ScalarOp("select", 3, ANY, "same", _quiet(np.where)),
    ScalarOp("isnan", 1, REALS, "bool", _quiet(np.isnan)),
    ScalarOp("floor", 1, REALS, "same", _quiet(np.floor)),
    ScalarOp("ceil", 1, REALS, "same", _quiet(np.ceil)),
    ScalarOp("trunc", 1, REALS, "same", _quiet(np.trunc)),
    ScalarOp("round", 1, REALS, "same", _quiet(_round_half_even)),  # half to even
    ScalarOp("sqrt", 1, REALS, "same", _quiet(np.sqrt)),
    ScalarOp("convert", 1, (Elem.BOOL, *NUMS), "type", _convert),
    ScalarOp("bitcast", 1, (Elem.I32, Elem.I64, Elem.U32, Elem.F32, Elem.F64), "type", _bitcast),  # equal widths
    ScalarOp("key_make", 2, (Elem.U32,), "type", lambda elem, hi, lo: (np.uint64(hi) << np.uint64(32)) | np.uint64(lo)),
    ScalarOp("key_hi", 1, (Elem.KEY,), "type", lambda elem, k: np.asarray(np.asarray(k) >> np.uint64(32)).astype(np.uint32)[()]),
    ScalarOp("key_lo", 1, (Elem.KEY,), "type", lambda elem, k: np.asarray(np.asarray(k) & np.uint64(0xFFFFFFFF)).astype(np.uint32)[()]),
    *(ScalarOp(name, arity, REALS, "same", _elementary(name), elementary=True) for name, arity in elementary.FUNCTIONS.items()),
    *(ScalarOp(name, n, (Elem.I64,), "same", _elementary(name), elementary=True) for name, n in elementary.INTEGER_FUNCTIONS.items()),
    *(
        ScalarOp(name, n, takes, "same", _elementary(name), elementary=True, instruction=True)
        for takes, names in (
            ((Elem.I32,), elementary.WORD_FUNCTIONS),
            ((Elem.F32,), elementary.PAIR_FUNCTIONS),
            ((Elem.F32, Elem.F64), elementary.SCALE_FUNCTIONS),
        )
        for name, n in names.items()
    ),
]



def _with_narrow(row: ScalarOp) -> ScalarOp:
    """The row, computing narrow reals in f32. (To compare and convert them, NumPy needs no help.)"""
    if Elem.F16 not in row.takes or row.name == "select":
        return row

    def evaluate(elem: Elem, *args: Any) -> Any:
        if elem in NARROW:
            return rounded(row.evaluate(Elem.F32, *map(wide, args)), elem)
        return row.evaluate(elem, *args)

    return replace(row, evaluate=evaluate)


SCALAR_OPS: dict[str, ScalarOp] = {row.name: _with_narrow(row) for row in _ROWS}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


# ---------------------------------------------------------------- constants

Literal = bool | int | float | str


def literal(value: Any, elem: Elem) -> Literal:
    """A NumPy scalar as a constant."""
    if elem is Elem.BOOL:
        return bool(value)
    if elem is Elem.STR:
        return str(value)
    return float(value) if elem.is_real else int(value)


def bits(value: Literal, elem: Elem) -> bytes | Literal:
    """What tells constants apart: 0.0 is not -0.0, and one NaN is another."""
    return value if elem is Elem.STR else DTYPES[elem].type(value).tobytes()


def evaluate(op: str, elem: Elem, operands: Iterable[tuple[Literal, Elem]]) -> Literal:
    """The value of a scalar op of constants, by the meaning in its row; `elem` is the type of the result."""
    args = [v if e is Elem.STR else DTYPES[e].type(v) for v, e in operands]
    return literal(SCALAR_OPS[op].evaluate(elem, *args), elem)

"""What numba.cuda has no words for, as data: a row is a function of emitted kernels and what it becomes.

    max_f32(a, b)        one instruction of PTX: NaN if one operand is, and 0 is more than -0
    load4(p, i)          the four elements from `p[i]` on, by one access of 16 bytes; `p + i` is a multiple of those
    store4(p, i, a, ..)  stores them

`backends/cuda/ptx.py` makes functions of numba of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assembly:
    """Instructions of PTX without side effects: `$0` is the result, `$1`.. are the operands. Types are numba's."""

    result: str
    operands: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Wide:
    """An access to `count` neighbours at once."""

    count: int
    stores: bool


_NAN_OF_F64 = (  # PTX has no `max.NaN` of doubles; their sum is a NaN if one of them is
    "{{ .reg .pred p; .reg .f64 a, b; setp.nan.f64 p, $1, $2; add.f64 a, $1, $2; {op}.f64 b, $1, $2; selp.f64 $0, a, b, p; }}"
)

INTRINSICS: dict[str, Assembly | Wide] = {
    "max_f32":     Assembly("float32", ("float32", "float32"), "max.NaN.f32 $0, $1, $2;"),
    "min_f32":     Assembly("float32", ("float32", "float32"), "min.NaN.f32 $0, $1, $2;"),
    "max_f64":     Assembly("float64", ("float64", "float64"), _NAN_OF_F64.format(op="max")),
    "min_f64":     Assembly("float64", ("float64", "float64"), _NAN_OF_F64.format(op="min")),
    "f32_of_f16":  Assembly("float32", ("uint16",), "cvt.f32.f16 $0, $1;"),
    "f16_of_f32":  Assembly("uint16", ("float32",), "cvt.rn.f16.f32 $0, $1;"),
    "f32_of_bf16": Assembly("float32", ("uint16",), "mov.b32 $0, {0, $1};"),
    "bf16_of_f32": Assembly("uint16", ("float32",), "cvt.rn.bf16.f32 $0, $1;"),
    **{f"load{n}":  Wide(n, stores=False) for n in (2, 4, 8, 16)},
    **{f"store{n}": Wide(n, stores=True) for n in (2, 4, 8, 16)},
}  # fmt: skip

"""What numba.cuda has no words for, as data: a row is a function of emitted kernels and what it becomes.

    max_f32(a, b)        one instruction of PTX: NaN if one operand is, and 0 is more than -0
    load4(p, i)          the four elements from `p[i]` on, by one access of 16 bytes at most; `p + i` is a multiple of those
    store4(p, i, a, ..)  stores them
    ldmatrix(a, i, s, j)  four matrices of shared memory, of which a thread names the row that begins at `s[j]`, to its `a[i]`..
    copy16(s, i, p, j, n)  16 bytes from `p[j]` on are on their way to `s[i]`.., only the first `n` of them read and the others 0
    commit_copies()      those begun since the last time are a group; wait_copies_2() waits for all groups but the last two
    mma_bf16(c, i, a, j, b, k)  the product of the matrices of which a thread has `a[j]`.. and `b[k]`.. is added to `c[i]`..

`backends/cuda/ptx.py` makes functions of numba of the rows.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import GROUPS
from tlc.tensor.kernel.matrices import FORMS, register_elements


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


@dataclass(frozen=True)
class LoadMatrices:
    """Four matrices, whose rows the threads of a warp name, to registers; they are elements of arrays."""

    text: str


@dataclass(frozen=True)
class Mma:
    """`text` gets so many registers: those of the new accumulator, then those of a, b and the accumulator before."""

    acc: int
    a: int
    b: int
    text: str


@dataclass(frozen=True)
class Copy:
    """From global to shared memory, not waited for."""

    text: str


@dataclass(frozen=True)
class Effect:
    """What gets and gives nothing."""

    text: str


def _mma(elem: Elem) -> Mma:
    """The row of one type of factors: so many registers of 32 bits as its fragments ask for."""
    form, name = FORMS[elem], {Elem.F32: "tf32"}.get(elem, str(elem))
    acc, a, b = form.c.count, *(f.count // register_elements(elem) for f in (form.a, form.b))
    at, lists = 0, []
    for n in (acc, a, b, acc):
        lists.append(f"{{{', '.join(f'${k}' for k in range(at, at + n))}}}")
        at += n
    return Mma(acc, a, b, f"mma.sync.aligned.{form.name}.row.col.f32.{name}.{name}.f32 {', '.join(lists)};")


_LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
_NAN_OF_F64 = (  # PTX has no `max.NaN` of doubles; their sum is a NaN if one of them is
    "{{ .reg .pred p; .reg .f64 a, b; setp.nan.f64 p, $1, $2; add.f64 a, $1, $2; {op}.f64 b, $1, $2; selp.f64 $0, a, b, p; }}"
)

INTRINSICS: dict[str, Assembly | Wide | LoadMatrices | Mma | Copy | Effect] = {
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
    "ldmatrix":       LoadMatrices(_LDMATRIX.format("")),
    "ldmatrix_trans": LoadMatrices(_LDMATRIX.format(".trans")),
    **{f"mma_{elem}": _mma(elem) for elem in FORMS},
    "copy16":         Copy("cp.async.cg.shared.global [$0], [$1], 16, $2;"),
    "commit_copies":  Effect("cp.async.commit_group;"),
    **{f"wait_copies_{n}": Effect(f"cp.async.wait_group {n};") for n in range(GROUPS + 1)},
}  # fmt: skip

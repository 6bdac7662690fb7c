"""The matrices that tensor cores multiply, and which thread of a warp holds which of their elements.

    acc += a @ b         a: 16 x depth, b: depth x 8, acc: 16 x 8

The layouts are those of `mma.sync` in the PTX ISA. Lanes are in groups of four: lane `l` is member `l % 4` of group `l // 4`. A row or a
column of an element is a sum of what group, member and the bits of the element's number in its thread count for; `FORMS` says that once,
for the schedule, the interpreter, the executor and whoever prints.

    a of 16 bits, element 5 = 0b101 of lane 6 = 4 * 1 + 2:    row 1 * 1 + 0 = 1,    column 2 * 2 + (1 + 8) = 13

What is computed: an element is a chain of fused multiply-adds of f32 along the depth, begun with `acc`; products are exact. A tensor
core adds in an order of its own, and does not round to nearest: `error_bound` holds for both.

A factor of f32 is to be a number of tf32: an f32 whose last 13 bits are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import WARP, Const, Expr, const, op

MEMBERS = 4  # lanes of a group
ROW_BYTES = 16  # of a matrix that is loaded from shared memory
ROWS = 8
MATRICES = 4  # that one statement loads
TF32_REST = 13  # last bits of an f32 that a tf32 has not


@dataclass(frozen=True)
class Coordinate:
    """What group, member and the bits of the element's number, from the lowest one on, count for."""

    group: int
    member: int
    bits: tuple[int, ...]

    def of(self, lane: int, element: int) -> int:
        ones = sum(w for k, w in enumerate(self.bits) if element >> k & 1)
        return self.group * (lane // MEMBERS) + self.member * (lane % MEMBERS) + ones

    def expr(self, group: Expr, member: Expr, bits: Sequence[Expr]) -> Expr:
        """The same for a lane, and bits, that are known when the kernel runs."""
        return total([(self.group, group), (self.member, member), *zip(self.bits, bits, strict=True)])


@dataclass(frozen=True)
class Fragment:
    """What a thread holds of a matrix with so many rows and columns."""

    extents: tuple[int, int]
    row: Coordinate
    column: Coordinate

    @property
    def count(self) -> int:
        return 1 << len(self.row.bits)

    def bits(self, element: int) -> list[Expr]:
        """Those of the number of an element."""
        return [const(element >> k & 1) for k in range(len(self.row.bits))]

    def cells(self) -> tuple[Any, Any]:
        """Rows and columns, by lane and element."""
        both = ([[c.of(lane, e) for e in range(self.count)] for lane in range(WARP)] for c in (self.row, self.column))
        rows, columns = map(np.array, both)
        return rows, columns


@dataclass(frozen=True)
class Form:
    """An instruction: its name in PTX, the unit roundoff of a factor that is made of an f32, and its three matrices."""

    name: str
    depth: int
    roundoff: float
    a: Fragment
    b: Fragment
    c: Fragment


_ACC = Fragment((16, 8), Coordinate(1, 0, (0, 8)), Coordinate(0, 2, (1, 0)))
_A16 = Fragment((16, 16), Coordinate(1, 0, (0, 8, 0)), Coordinate(0, 2, (1, 0, 8)))
_B16 = Fragment((16, 8), Coordinate(0, 2, (1, 8)), Coordinate(1, 0, (0, 0)))
_A32 = Fragment((16, 8), Coordinate(1, 0, (8, 0)), Coordinate(0, 1, (0, 4)))
_B32 = Fragment((8, 8), Coordinate(0, 1, (4,)), Coordinate(1, 0, (0,)))

FORMS = {  # by the type of the factors
    Elem.F16:  Form("m16n8k16", 16, 0.0, _A16, _B16, _ACC),
    Elem.BF16: Form("m16n8k16", 16, 0.0, _A16, _B16, _ACC),
    Elem.F32:  Form("m16n8k8", 8, 2.0**-11, _A32, _B32, _ACC),
}  # fmt: skip


def error_bound(elem: Elem, depth: int) -> float:
    """How far a sum of `depth` products on tensor cores may be from the true one, as a multiple of the sum of their absolute values
    (under- and overflow aside).

    A factor that is rounded has the relative error `u` at most, and both together 2u + u^2. What the hardware does to a sum is not
    specified. It is observed to add products and accumulator aligned to the largest of them, with bits cut off (Fasi, Higham, Mikaitis and
    Pranesh 2021, "Numerical behavior of NVIDIA tensor cores"): each of them, and the sum, is off by less than 2^-23 of the largest. With
    blocks of four products and more that is less than depth + 2 * depth / 4 + 2 times 2^-23, where a chain that rounds to nearest has
    depth times 2^-24; we allow depth + 2 times 2^-22.
    """
    u = FORMS[elem].roundoff
    return 2 * u + u * u + (depth + 2) * 2.0**-22


def total(terms: Sequence[tuple[int, Expr]]) -> Expr:
    """A sum of multiples, folded."""
    out: Expr = const(0)
    for n, e in terms:
        if not n or e == const(0):
            continue
        term = const(n * int(e.value)) if isinstance(e, Const) else e if n == 1 else op("mul", e, const(n))
        out = term if out == const(0) else op("add", out, term)
    return out


# ---------------------------------------------------------------- what a warp does, over arrays


def gathered(fragment: Fragment, held: Any) -> Any:
    """The matrix that the lanes hold: `held[lane, element]`."""
    matrix = np.zeros(fragment.extents, held.dtype)
    matrix[fragment.cells()] = held
    return matrix


def multiplied(elem: Elem, acc: Any, a: Any, b: Any) -> Any:
    """What the lanes hold of the accumulator after `acc += a @ b`, each of the three given as `[lane, element]`."""
    form = FORMS[elem]
    fma = SCALAR_OPS["fma"].evaluate
    x, y, z = (gathered(f, held.astype(np.float32)) for f, held in ((form.a, a), (form.b, b), (form.c, acc)))
    for k in range(form.depth):
        z = fma(Elem.F32, *np.broadcast_arrays(x[:, k : k + 1], y[k], z))
    return z[form.c.cells()]


def loaded(rows: Any, transposed: bool) -> Any:
    """What the lanes get of four matrices whose rows they name: `rows[lane]` are elements of 16 bytes. `[lane, element]`."""
    matrices = rows.reshape(MATRICES, ROWS, -1)
    each = rows.shape[1] // MEMBERS  # elements of a register
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    groups = matrices.reshape(MATRICES, WARP, each)  # a row is that of a group, its registers those of the members
    return groups.transpose(1, 0, 2).reshape(WARP, MATRICES * each)


def register_elements(elem: Elem) -> int:
    """How many elements a register of 32 bits has."""
    return 4 // elem.bytes


def is_tf32(x: Any) -> bool:
    """Whether all f32 of an array are numbers of tf32 (a NaN is one)."""
    rest = x.astype(np.float32).view(np.uint32) & np.uint32((1 << TF32_REST) - 1)
    return bool(((rest == 0) | np.isnan(x)).all())


def to_tf32(x: Expr) -> Expr:
    """The nearest number of tf32, of two the one that is further from 0; what is beyond the greatest is infinite."""
    half, mask = (Const(n, Elem.U32) for n in (1 << TF32_REST - 1, (1 << 32) - (1 << TF32_REST)))
    bits = op("bitcast", x, elem=Elem.U32)
    rounded = op("bitcast", op("and", op("add", bits, half), mask), elem=Elem.F32)
    return op("select", op("isnan", x), Const(float("nan"), Elem.F32), rounded)

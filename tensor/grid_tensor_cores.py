"""The nest of products on a GPU's tensor cores (`--tensor-cores`). Its sums are not those of the CPU, bit for bit.

    y[i, j] = sum[k] a[i, k] * b[k, j]

    block of 128 x 128 elements {                       warp: 64 x 64 of them, as matrices of 16 x 8
      shared a[4, 128, 40], b[4, 32, 136]
      begin to copy the stages 0, 1, 2, of 32 k each
      for s in 0..k / 32 {
        wait for stage s; barrier
        begin to copy stage s + 3 to a[(s + 3) % 4], b[(s + 3) % 4]
        for k in 0..32 by 16 { four matrices of a; four times two of b; 32 products }
      }
      y[i, j] = ..
    }

Batches, convolutions and what becomes of the sums are as in `tensor/grid_products.py`. Two factors of one narrow type are staged as they
are, and copied past the registers (`cp.async`) if pieces of 16 bytes lie at multiples of those. Others go through registers, in two
halves as they do there: those of f32 are rounded to tf32 on their way, and a stage of them is half as deep. What is beyond the last k is 0.

A factor lies in shared memory as it does in global memory, along the reduction or along the tile, so that it is copied by 16 bytes.
`ldmatrix` loads both, and transposes what lies along the tile; but it cannot do so with 32 bits, of which a thread then loads its elements
alone. Shared memory has 32 banks of four bytes. The pads are such that what threads access at once lies in different ones: the eight
rows of a matrix are 20, 36 or 68 banks apart, so each begins four further; four rows of eight elements are 8 apart. Where four
threads store a row, eight of them store two rows that are four apart, for those are 16 banks from each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.types import Elem
from tlc.tensor.emit import Scope, plus, times
from tlc.tensor.graph.ir import Expr
from tlc.tensor.grid_products import BYTES, Cell, Group, Operand, Product, Tiles, can_copy, named
from tlc.tensor.kernel.ir import (
    WARP,
    Barrier,
    Buffer,
    CommitCopies,
    Const,
    Declare,
    For,
    If,
    Kind,
    Load,
    LoadMatrices,
    Mma,
    Space,
    Stmt,
    Store,
    Var,
    WaitCopies,
    const,
    op,
)
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.kernel.matrices import FORMS, MEMBERS, ROWS, to_tf32, total
from tlc.tensor.nests import Nest

COPIED = 4  # buffers for stages that are copied past the registers; a power of two, by which dividing is cheap
DEEP = 64  # bytes along the reduction that are in shared memory at once
# Warps of a block, that is how many the rows and the columns of a tile are divided among: with stages in registers, and past them. A larger
# part multiplies what it loads from shared memory more often, which a product is bound by, and takes more registers for its sums.
WARPS = {128: ((2, 4), (2, 2)), 64: ((2, 2), (2, 2)), 32: ((2, 1), (2, 1))}


def suits(p: Product) -> bool:
    """Whether tensor cores multiply and add such numbers."""
    return all(e.elem is Elem.F32 for e in p.factors)


def product(nest: Nest, p: Product) -> str:
    tiles = _Matrices(nest, p)
    tiles.write()
    warps = tiles.threads // WARP
    return f"tensor cores: {tiles.form.name} of {tiles.elem}, tiles of {p.side} by {p.side}, {warps} warps, {tiles.deep} deep"


def _staged(p: Product) -> tuple[tuple[Expr, Expr], Elem]:
    """The factors as they are staged, and the type of the matrices."""
    narrow = [e.args[0] if e.op == "convert" and e.args[0].elem in NARROW else e for e in p.factors]
    a, b = narrow
    return ((a, b), a.elem) if a.elem is b.elem else (p.factors, Elem.F32)


class _Matrices(Tiles):
    """A warp has a part of the tile, as matrices whose elements its threads hold together."""

    keeps_rows = True
    cuts = False

    def __init__(self, nest: Nest, p: Product) -> None:
        self.narrow, self.elem = _staged(p)
        self.form = FORMS[self.elem]
        if self.elem in NARROW and all(can_copy(nest, e, axes) for e, axes in zip(self.narrow, (p.rows, p.columns), strict=True)):
            self.buffers = COPIED
        self.warps = WARPS[p.side][self.buffers == COPIED]
        height, width = self.form.c.extents
        self.high = p.side // self.warps[0] // height  # matrices of rows that a warp has
        self.pairs = p.side // self.warps[1] // (2 * width)  # pairs of matrices of columns; it loads both of one at once
        super().__init__(nest, p, self.warps[0] * self.warps[1] * WARP, DEEP // self.elem.bytes)

    @property
    def together(self) -> int:
        return 2

    def factors(self) -> tuple[Expr, Expr]:
        return self.narrow

    def staged(self, value: KExpr) -> KExpr:
        return to_tf32(value) if self.elem is Elem.F32 else value

    def pad(self, o: Operand) -> int:
        return (BYTES if o.by_rows else 8 * self.elem.bytes) // self.elem.bytes

    def spread(self, number: KExpr, across: int) -> KExpr:
        if across != 4:
            return number
        odd, rest = op("mod", number, const(2)), op("mod", op("floordiv", number, const(2)), const(4))
        return total([(8, op("floordiv", number, const(8))), (4, odd), (1, rest)])

    def accumulators(self) -> Buffer:
        """The place of a thread in its warp, and of the warp's part in the tile."""
        bound = partial(self.nest.bound, self.thread)
        lane, warp = bound(op("mod", self.t, const(WARP))), bound(op("floordiv", self.t, const(WARP)))
        self.group, self.member = bound(op("floordiv", lane, const(MEMBERS))), bound(op("mod", lane, const(MEMBERS)))
        self.line = bound(op("mod", lane, const(ROWS)))  # which row of its matrix a thread names, and the bits of the matrix's number
        self.matrix = bound(op("mod", op("floordiv", lane, const(ROWS)), const(2))), bound(op("floordiv", lane, const(2 * ROWS)))
        down, across = self.warps
        row, column = (warp, const(0)) if across == 1 else (op(name, warp, const(across)) for name in ("floordiv", "mod"))
        self.top = named(self.nest, self.thread, times(row, const(self.p.side // down)))
        self.left = named(self.nest, self.thread, times(column, const(self.p.side // across)))
        return self.nest.local(self.thread, Elem.F32, self.high, 2 * self.pairs, self.form.c.count)

    # ------------------------------------------------------------ stages

    def go_through(self, operands: Sequence[Operand]) -> None:
        """Where they are copied past the registers, the three stages behind the one that is computed are on their way."""
        if self.buffers != COPIED:
            super().go_through(operands)
            return
        ahead = COPIED - 1
        body, stages, s = self.thread.body, self.stages(self.deep - 1), Var(self.nest.emitter.fresh("k"))

        def begin(scope: Scope, stage: KExpr) -> None:
            copies = [x for o in operands for x in o.copy(times(stage, const(self.deep)), self.half(scope, stage))]
            if isinstance(stage, Const) and isinstance(stages, Const):
                scope.body += copies if stage.value < stages.value else []
            else:
                scope.body.append(If(op("lt", stage, stages), tuple(copies)))
            scope.body.append(CommitCopies())

        for k in range(ahead):
            begin(self.thread, const(k))
        turn = Scope(body=[WaitCopies(ahead - 1), Barrier()])  # the stage is there; and nobody reads the one before it any more
        begin(turn, self.nest.bound(turn, plus(s, const(ahead))))
        turn.body += self.steps(operands, s, const(self.deep), Kind.UNROLL)
        body.append(For(s, const(0), stages, tuple(turn.body)))

    # ------------------------------------------------------------ products

    def steps(self, operands: Sequence[Operand], stage: KExpr, count: KExpr, kind: Kind) -> list[Stmt]:
        form, (a, b), scope = self.form, operands, Scope()
        half = self.half(scope, stage)
        x, y = self.held("left", self.high, form.a.count), self.held("right", self.pairs, 2 * form.b.count)

        def depth(k: Var) -> list[Stmt]:
            at = times(k, const(form.depth))
            rows = self.unroll(self.high, lambda m: self.load_rows(x, a, half, m, at))
            columns = self.unroll(self.pairs, lambda c: self.load_columns(y, b, half, c, at))
            products = self.unroll(self.high, lambda m: [self.unroll(self.pairs, lambda c: [self.multiply(x, y, m, c)])])
            return [Declare(x), Declare(y), rows, columns, products]

        return [*scope.body, self.unroll(self.deep // form.depth, depth)]

    def held(self, name: str, matrices: int, count: int) -> Buffer:
        """What a thread has of some matrices of a factor."""
        return Buffer(self.nest.emitter.fresh(name), self.elem, (const(matrices), const(count)), Space.LOCAL)

    def multiply(self, x: Buffer, y: Buffer, m: Var, c: Var) -> Stmt:
        def one(h: Var) -> list[Stmt]:
            acc = Load(self.acc, (m, plus(times(c, const(2)), h), const(0)))
            return [Mma(acc, Load(x, (m, const(0))), Load(y, (c, times(h, const(self.form.b.count)))))]

        return self.unroll(2, one)

    def load_rows(self, x: Buffer, o: Operand, half: KExpr, m: Var, k: KExpr) -> list[Stmt]:
        """The matrix of some rows: those of its registers are two in each direction."""
        low, f = plus(self.top, times(m, const(self.form.a.extents[0]))), self.form.a
        if self.elem is Elem.F32 and not o.by_rows:
            return self.load_alone(x, o, half, m, [(f.row.of(0, e), f.column.of(0, e)) for e in range(f.count)], (low, k))
        return [self.load(Load(x, (m, const(0))), o, half, (low, k), f.row.bits[-2:], f.column.bits[-2:])]

    def load_columns(self, y: Buffer, o: Operand, half: KExpr, c: Var, k: KExpr) -> list[Stmt]:
        """The matrices of two times eight columns: of each those of its registers are two along the reduction."""
        f, beside = self.form.b, self.form.b.extents[1]
        low = plus(self.left, times(c, const(2 * beside)))
        if self.elem is Elem.F32 and not o.by_rows:
            places = [(n * beside + f.column.of(0, e), f.row.of(0, e)) for n in range(2) for e in range(f.count)]
            return self.load_alone(y, o, half, c, places, (low, k))
        return [self.load(Load(y, (c, const(0))), o, half, (low, k), (f.column.bits[-1], beside), (f.row.bits[-1], 0))]

    def load(self, into: Load, o: Operand, half: KExpr, low: tuple[KExpr, KExpr], along: tuple[int, ...], down: tuple[int, ...]) -> Stmt:
        """Four matrices whose first element is at `low` in the tile and the stage; `along` and `down` say how far what the bits of a
        matrix's number stand for is away from there.
        """
        place, depth = (plus(at, total([*zip(weights, self.matrix, strict=True)])) for at, weights in zip(low, (along, down), strict=True))
        if o.by_rows:
            return LoadMatrices(into, Load(o.shared, (half, plus(place, self.line), depth)))
        return LoadMatrices(into, Load(o.shared, (half, plus(depth, self.line), place)), transposed=True)

    def load_alone(
        self, into: Buffer, o: Operand, half: KExpr, which: Var, places: Sequence[tuple[int, int]], low: tuple[KExpr, KExpr]
    ) -> list[Stmt]:
        """Elements of 32 bits that a thread loads itself: those of its group in the tile, of its member in the stage."""
        row, depth = plus(low[0], self.group), plus(low[1], self.member)
        loads = [Load(o.shared, (half, plus(depth, const(k)), plus(row, const(i)))) for i, k in places]
        return [Store(into, (which, const(e)), load) for e, load in enumerate(loads)]

    # ------------------------------------------------------------ what a thread has

    def rows(self, fill: Group, kind: Kind) -> list[Stmt]:
        f = self.form.c

        def line(m: Var, h: Var) -> Sequence[Stmt]:
            return fill((m, h), plus(plus(self.top, times(m, const(f.extents[0]))), f.row.expr(self.group, self.member, (const(0), h))))

        return [self.unroll(self.high, lambda m: [self.unroll(2, lambda h: line(m, h), kind)], kind)]

    def columns(self, fill: Group, kind: Kind) -> list[Stmt]:
        f = self.form.c

        def pair(n: Var) -> Sequence[Stmt]:
            first = f.column.expr(self.group, self.member, (const(0), const(0)))
            return fill((n,), plus(plus(self.left, times(n, const(f.extents[1]))), first))

        return [self.unroll(2 * self.pairs, pair, kind)]

    def cell(self, row: Cell, column: Cell, neighbour: KExpr) -> Cell:
        matrix, half = row
        return matrix, column[0], plus(times(half, const(2)), neighbour)

"""Groups of nodes that go through blocks of rows (`tensor/row_blocks.py`), on a GPU: no matrix between products is in global memory.

    s[i, j] = sum[c] q[i, c] * k[j, c]      block of 64 rows {                              16 x 16 threads, 4 rows of each
    m[i] = max[j] s[i, j]                     q of these rows to shared memory
    e[i, j] = exp(s[i, j] - m[i])      ->     for tiles of 64 columns { k to shared memory; s; m = max(m, s) }
    t[i] = sum[j] e[i, j]                     for tiles { k; s; e; t += e }
    y[i, c] = sum[j] e[i, j] * v[j, c]        for tiles { k, v; s; e to shared memory; y += e * v }
                                            }

The numbers of rows divide the work into passes: what needs a number of a row waits for it. Each pass goes through the matrices anew, tile
by tile, in registers: a product costs less than the memory of a matrix. Only where the scores of all columns fit the shared memory are they
kept from pass to pass. (Nothing is rescaled as numbers become known: that rounds otherwise than the sums that the nodes are.) Sums over
rows are made by a second grid, whose blocks are of columns and go through the rows, so that nobody adds to what another adds to.

A block has lines of one kind, and goes through those of the other kind, tile by tile:

    thread     has `tall` own lines side by side, by `wide` lines sixteen apart: so a thread has one of the sixteen sums of the order
               `lanes`, and what those of a row exchange in the end is its tree (as in `tensor/grid_rows.py`)
    operands   lie in shared memory line by line, at an odd number of 16 bytes from each other: threads side by side load without
               conflicts. What several nodes read is there once
    ahead      where there is room for two tiles of the operands that a block goes along, and those can be copied past the registers, the
               next one is on its way while one is computed. A tile begins with a barrier: it is there, and the one before has been read
    product    its matrix goes by shared memory, since a thread needs what others have; a thread adds up `tall` lines by some columns, each
               one chain over the lines that the block goes through

Tiles that a mask makes constant are skipped. Lines behind the last one are the last one again; they are neither added nor stored.

What a pass does, and by which tiles, is planned in `tensor/grid_block_plan.py`. Which lines a block has, and how they come to shared
memory, is in `tensor/grid_block_lines.py`. Here is what threads compute with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tlc.frontend.records import dataclass
from tlc.tensor.emit import Emitter, Scope, minus, plus, times
from tlc.tensor.graph.expand import expand
from tlc.tensor.graph.ir import Node, Tensor
from tlc.tensor.grid_block_lines import THREADS, Lines
from tlc.tensor.grid_block_plan import BYTES, SIDE, Plan, Staged, breadth, choice, each, odd, ways
from tlc.tensor.grid_nests import grid
from tlc.tensor.grid_threads import exchange
from tlc.tensor.kernel.ir import Barrier, Buffer, Const, Declare, If, Load, Space, Stmt, Store, Var, WaitCopies, const, op
from tlc.tensor.kernel.ir import Expr as KExpr
from tlc.tensor.nests import Nest, combine, unit
from tlc.tensor.row_blocks import Blocks, Role


@dataclass(eq=False)
class BlockGrids:
    """The nodes of a group, with elementary functions expanded, and where what they give lies."""

    group: Blocks
    nodes: Sequence[Node]
    emitter: Emitter
    stored: dict[Tensor, Buffer] = field(default_factory=dict)  # in global memory: results, and numbers that both grids need
    work: list[tuple[Tensor, Buffer]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self, top: Scope) -> None:
        choices = [choice(self.nodes, self.group.roles, self.group.depth, way) for way in ways(self.group.depth)]
        down = choices[1][0]
        second = {t for turn in down.passes for n in (*down.elements(turn), *down.products) for t in n.sources}
        for node, role in zip(self.nodes, self.group.roles, strict=True):
            for t in node.results:
                result = role in (Role.OUT, Role.DOWN) or (t in self.group.results and node.rank == self.group.depth + 1)
                if not result and not (node.rank == self.group.depth + 1 and t in second):
                    continue
                b = Buffer(self.emitter.fresh("y"), t.elem, tuple(map(self.emitter.extent, node.extents)))
                self.stored[t] = b
                if t not in self.group.results:
                    self.work.append((Tensor(f"{t.name}.block", t.elem, node.extents), b))
        for (plan, (tall, wide)), what in zip(choices, ("rows", "columns"), strict=True):
            self.emitter.seats.clear()
            self.emitter.made = dict(self.stored)
            if plan.passes:
                _Grid(self, plan, tall, wide).write(top)
                kept = ", whose scores are kept" if plan.kept() else ""
                self.notes.append(f"blocks of {tall * SIDE} {what} by tiles of {wide * SIDE}{kept}")


def block_grids(group: Blocks, expands: bool) -> BlockGrids:
    """The grids of a group, before they are written."""
    nodes = [expand(n) if expands else n for n in group.nodes]
    return BlockGrids(group, nodes, Emitter([e for n in nodes for e in (*n.roots, *n.domain)]))


class _Grid(Lines):
    """The blocks of one kind of lines, with what is done in them."""

    def __init__(self, blocks: BlockGrids, plan: Plan, tall: int, wide: int) -> None:
        super().__init__(blocks.emitter, plan, tall, wide)
        self.blocks, self.guards = blocks, [plan.shape[plan.way.along]]
        self.numbers: dict[Tensor, Buffer] = {}
        self.kept: dict[Node, Buffer] = {}  # scores, in shared memory too, where each thread has its own
        self.pool: Buffer | None = None  # the matrix of a product

    # ------------------------------------------------------------ the block

    def write(self, top: Scope) -> None:
        plan, nest, body = self.plan, self.nest, self.thread.body
        self.place(self.blocks.group.reach)
        for node in plan.numbers:
            for t in node.results:
                b = self.numbers[t] = nest.local(self.thread, t.elem, self.tall)
                self.emitter.made[t] = b
                self.emitter.seats[t] = lambda at: (self.r,)
        if plan.products:
            elem = plan.factors(plan.products[0])[0].elem
            shape = (const(self.wide * SIDE), const(odd(self.tall * SIDE, elem.bytes)))
            self.pool = Buffer(self.emitter.fresh("s"), elem, shape, Space.SHARED)
        for n in plan.kept():
            elem = n.results[0].elem
            shape = (const(plan.kept_lines(self.wide)), const(odd(self.tall * SIDE, elem.bytes)))
            self.kept[n] = Buffer(self.emitter.fresh("s"), elem, shape, Space.SHARED)
        for s in self.shared:
            if s.own:
                self.stage(self.thread, s, self.low, self.own)
        self.tell(0)
        for turn in plan.passes:
            if plan.reduced(turn) or plan.multiplied(turn):
                self.turn(turn)
            self.tell(turn + 1)
        shared = (*self.shared.values(), *self.kept.values(), *([self.pool] if self.pool else []))
        top.body.append(grid(self.b, self.total, [*self.before.body, *map(Declare, shared)], self.t, THREADS, body))

    # ------------------------------------------------------------ a pass

    def turn(self, turn: int) -> None:
        """Go through all tiles. Where there is room for two, the next one is copied while one is computed."""
        plan, nest = self.plan, self.nest
        reduced, multiplied = plan.reduced(turn), plan.multiplied(turn)
        staged = [s for s in plan.staged(turn) if not s.own]
        ahead, step = [s for s in staged if self.is_ahead(s)], self.wide * SIDE
        if ahead:
            if any(s in plan.staged(t) for t in range(turn) for s in ahead):
                self.thread.body.append(Barrier())  # nobody reads the last tile of a pass before any more
            self.begin(self.thread, ahead, self.first)
        accs: dict[Node, Buffer] = {}
        for n in reduced:
            accs[n] = self.cleared(n, self.tall)
        for n in multiplied:
            accs[n] = self.cleared(n, self.tall, each(plan.factors(n)[1].across))

        def tile(s: Scope, j: Var) -> None:
            if ahead:
                s.body += [WaitCopies(0), Barrier()]  # the tile is there; and nobody reads the one before it any more
                self.half = self.half_of(s, j)
                self.begin(s, ahead, plus(j, const(step)))
            else:
                for x in staged:
                    self.stage(s, x, j, self.other)
                if plan.made(turn):
                    s.body.append(Barrier())
            self.at = nest.bound(s, plus(j, self.x))
            sums = {n: self.score(s, n) if n in plan.made(turn) else self.again(s, n) for n in plan.scores(turn)}
            for n in plan.made(turn):
                if n in self.kept:
                    self.keep(s, n, sums[n])
            values = {t: nest.local(s, t.elem, self.wide, self.tall) for t in dict.fromkeys(plan.factors(n)[0] for n in multiplied)}
            self.element(s, plan.elements(turn), sums, reduced, accs, values)
            count: KExpr = const(self.wide * SIDE)
            if not self.even:
                count = nest.bound(s, op("min", count, minus(self.limit, j)))
            for k, n in enumerate(multiplied):
                tensor, other = plan.factors(n)
                if k or plan.way.product is Role.OUT:  # else it is there already
                    nest.unroll(s, self.wide, lambda x, w, tensor=tensor: self.put(x, values[tensor], w))  # type: ignore[misc]
                s.body.append(Barrier())
                self.multiply(s, n, other, accs[n], count)
                if n is not multiplied[-1]:
                    s.body.append(Barrier())
            if not ahead and (staged or multiplied):
                s.body.append(Barrier())

        start, stop = self.first, self.limit
        self.emitter.guarded(self.thread, self.guards, lambda g: self.emitter.loop(g, "j", start, stop, tile, step=step))
        for n in reduced:
            self.row(n, accs[n])
        for n in multiplied:
            self.finish(n, accs[n])

    def cleared(self, node: Node, *shape: int) -> Buffer:
        """Accumulators at their start."""
        r = node.reduction
        assert r is not None
        acc = self.nest.local(self.thread, r.terms[0].elem, *shape)
        self.clear(self.thread, acc, unit(r.op, acc.elem))
        return acc

    def clear(self, scope: Scope, acc: Buffer, value: Const) -> None:
        def level(s: Scope, at: tuple[KExpr, ...]) -> None:
            if len(at) == len(acc.shape):
                s.body.append(Store(acc, at, value))
            else:
                n = acc.shape[len(at)]
                assert isinstance(n, Const)
                self.nest.unroll(s, int(n.value), lambda x, k: level(x, (*at, k)))

        level(scope, ())

    def score(self, scope: Scope, node: Node) -> Buffer:
        """The tile of a product that makes a matrix: a thread loads some positions of the sum at once."""
        nest, r = self.nest, node.reduction
        assert r is not None
        operands = self.plan.operands(node)
        acc = nest.local(scope, r.terms[0].elem, self.tall, self.wide)
        self.clear(scope, acc, unit(r.op, acc.elem))
        across, together = operands[0].across, BYTES // acc.elem.bytes

        def steps(s: Scope, k: KExpr, count: int) -> None:
            parts: list[Buffer] = []
            for o in operands:
                part = nest.local(s, acc.elem, self.tall if o.own else self.wide, count)

                def line(x: Scope, n: Var, o: Staged = o, part: Buffer = part) -> None:
                    at = plus(times(self.y, const(self.tall)), n) if o.own else plus(self.x, times(n, const(SIDE)))
                    self.together(x, count, lambda y, c: y.body.append(Store(part, (n, c), self.cell(o, at, plus(k, c)))))

                nest.unroll(s, self.tall if o.own else self.wide, line)
                parts.append(part)

            def step(x: Scope, c: Var) -> None:
                def cell(y: Scope, r: Var, w: Var) -> None:
                    terms = [Load(p, (r if o.own else w, c)) for o, p in zip(operands, parts, strict=True)]
                    y.body.append(Store(acc, (r, w), combine("sum", Load(acc, (r, w)), terms, nest_step)))

                nest.unroll(x, self.tall, lambda y, r: nest.unroll(y, self.wide, lambda z, w: cell(z, r, w)))

            nest.unroll(s, count, step)

        nest_step = r.step
        whole = across // together  # counted one by one, so that a compiler sees what the places of the accesses are multiples of
        self.emitter.loop(scope, "k", const(0), const(whole), lambda s, k: steps(s, times(k, const(together)), together))
        if across % together:
            steps(scope, const(whole * together), across % together)
        return acc

    def keep(self, scope: Scope, node: Node, sums: Buffer) -> None:
        """Keep scores for the next passes."""
        self.cells(scope, lambda s, r, w, at: s.body.append(Store(self.kept[node], at, Load(sums, (r, w)))))

    def again(self, scope: Scope, node: Node) -> Buffer:
        """Scores that were kept."""
        kept = self.kept[node]
        sums = self.nest.local(scope, kept.elem, self.tall, self.wide)
        self.cells(scope, lambda s, r, w, at: s.body.append(Store(sums, (r, w), Load(kept, at))))
        return sums

    def cells(self, scope: Scope, fill: Callable[[Scope, KExpr, KExpr, tuple[KExpr, ...]], None]) -> None:
        """`fill` for each element of a thread, with the place where it is kept."""
        first = times(self.y, const(self.tall))

        def line(s: Scope, w: Var) -> None:
            at = plus(self.at, times(w, const(SIDE)))
            self.together(s, self.tall, lambda x, r: fill(x, r, w, (at, plus(first, r))))

        self.nest.unroll(scope, self.wide, line)

    def element(
        self,
        scope: Scope,
        nodes: Sequence[Node],
        sums: dict[Node, Buffer],
        reduced: Sequence[Node],
        accs: dict[Node, Buffer],
        values: dict[Tensor, Buffer],
    ) -> None:
        """What is done with each element of a thread: its matrices, the sums of its row, and what products will need."""

        def one(s: Scope, r: Var, w: Var) -> None:
            for n in nodes:
                inner = Scope(s)
                if n in sums:
                    inner.accs = (Load(sums[n], (r, w)),)
                self.nest_of(n, inner).store(inner)
                s.body += inner.body
            for n in reduced:
                inner = Scope(s)
                Nest(n, self.emitter, (), 0, inner).accumulate(inner, accs[n], (r,))
                behind = [] if self.inside else [op("lt", plus(self.at, times(w, const(SIDE))), self.other)]
                s.body += [If(behind[0], tuple(inner.body))] if behind else inner.body
            for t, b in values.items():
                s.body.append(Store(b, (w, r), self.emitter.variables[t]))
            for n in nodes:
                for t in n.results:
                    del self.emitter.variables[t]

        if self.plan.way.product is Role.OUT:  # numbers of rows are found once for all elements of a row
            self.own_lines(scope, lambda s, r: self.tile_lines(s, lambda x, w: one(x, r, w)))
            return
        first = next(iter(values.values()))

        def line(s: Scope, w: Var) -> None:
            self.own_lines(s, lambda x, r: one(x, r, w))
            self.put(s, first, w)  # line by line, so that few registers are held for it

        self.tile_lines(scope, line)

    def put(self, scope: Scope, values: Buffer, w: Var) -> None:
        """A thread's part of a line of a matrix to shared memory."""
        pool = self.pool
        assert pool is not None
        at, first = plus(self.x, times(w, const(SIDE))), times(self.y, const(self.tall))
        self.together(scope, self.tall, lambda s, r: s.body.append(Store(pool, (at, plus(first, r)), Load(values, (w, r)))))

    def multiply(self, scope: Scope, node: Node, other: Staged, acc: Buffer, count: KExpr) -> None:
        """A tile of a matrix times the lines that it went along."""
        nest, r, pool = self.nest, node.reduction, self.pool
        assert r is not None and pool is not None
        first = self.plan.factors(node)[0] in [e.data.tensor for e in r.terms[:1] if e.op == "load"]

        def step(s: Scope, j: Var) -> None:
            mine = nest.local(s, acc.elem, self.tall)
            theirs = nest.local(s, acc.elem, each(other.across))
            at = times(self.y, const(self.tall))
            self.together(s, self.tall, lambda x, r: x.body.append(Store(mine, (r,), Load(pool, (j, plus(at, r))))))
            self.columns(s, other.across, lambda x, c, at: x.body.append(Store(theirs, (c,), self.cell(other, j, at))))

            def cell(x: Scope, r: Var, c: Var) -> None:
                terms = [Load(mine, (r,)), Load(theirs, (c,))]
                x.body.append(Store(acc, (r, c), combine("sum", Load(acc, (r, c)), terms if first else terms[::-1], node_step)))

            nest.unroll(s, self.tall, lambda x, r: nest.unroll(x, each(other.across), lambda y, c: cell(y, r, c)))

        node_step = r.step
        self.emitter.loop(scope, "k", const(0), count, step)

    def columns(self, scope: Scope, across: int, fill: Callable[[Scope, KExpr, KExpr], None], stored: bool = False) -> None:
        """`fill` with the number and the place of each column of a product that a thread has, some side by side; where they are `stored`,
        only for those that there are.
        """
        count = each(across)
        together = next(n for n in (4, 2, 1) if count % n == 0 and across % n == 0)

        def group(s: Scope, g: KExpr) -> None:
            number = times(g, const(together))
            at = plus(times(g, const(SIDE * together)), times(self.x, const(together)))
            inner = Scope(s)
            self.together(inner, together, lambda x, l: fill(x, plus(number, l), plus(at, l)))
            whole = not stored or count * SIDE == across
            s.body += inner.body if whole else [If(op("lt", at, const(across)), tuple(inner.body))]

        if count == together:
            group(scope, const(0))
        else:
            self.nest.unroll(scope, count // together, group)

    # ------------------------------------------------------------ results

    def row(self, node: Node, acc: Buffer) -> None:
        """Numbers of rows, in every thread of a row."""
        r = node.reduction
        assert r is not None
        reducer = r.op
        self.nest.unroll(self.thread, self.tall, lambda s, r: exchange(self.emitter, s, acc, (r,), reducer))
        self.own_lines(self.thread, lambda s, r: self.number(s, node, (Load(acc, (r,)),)))

    def tell(self, turn: int) -> None:
        """What can be computed from numbers that are known before a pass."""
        for n in self.plan.numbers:
            if self.plan.roles[n] is Role.MAP and self.plan.turn[n] == turn:
                self.own_lines(self.thread, lambda s, r, n=n: self.number(s, n, ()))  # type: ignore[misc]

    def number(self, scope: Scope, node: Node, accs: tuple[KExpr, ...]) -> None:
        """Keep a number of a row, and store what others read."""
        scope.accs = accs
        stores: list[Stmt] = []
        for t, e in zip(node.results, node.outputs, strict=True):
            value = self.nest.bound(scope, self.emitter.emit(e, scope))
            scope.body.append(Store(self.numbers[t], (self.r,), value))
            if t in self.blocks.stored:
                stores.append(Store(self.blocks.stored[t], tuple(scope.lookup(k) for k in range(self.d + 1)), value))
        if stores:
            mine: KExpr = op("eq", self.x, const(0))
            if not self.full:
                mine = op("and", mine, op("lt", plus(self.line, self.r), self.own))
            scope.body.append(If(mine, tuple(stores)))

    def finish(self, node: Node, acc: Buffer) -> None:
        """The outputs of a product."""
        d, across = self.d, breadth(node, Role.OUT) or 0
        outputs = tuple(self.blocks.stored[t] for t in node.results)

        def line(s: Scope, r: Var) -> None:
            inner = Scope(s)
            inner.axes[d] = plus(self.line, r)

            def column(x: Scope, c: KExpr, at: KExpr) -> None:
                x.axes[d + 1] = at
                x.accs = (Load(acc, (r, c)),)
                Nest(node, self.emitter, outputs, 0, x).store(x)

            self.columns(inner, across, column, stored=True)
            s.body += inner.body if self.full else [If(op("lt", plus(self.line, r), self.own), tuple(inner.body))]

        self.nest.unroll(self.thread, self.tall, line)

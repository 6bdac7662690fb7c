"""From a node of the graph to a kernel: choose a loop nest (`tensor/nests.py`) and write it.

The choice looks at how each load moves along each axis: not at all (a scalar), by one element a step (a vector), or
otherwise (lane by lane).

    no reduction                    elementwise, the last axis in vectors; transposed, if only another axis reads vectors
    argmax, argmin                  search (`tensor/search_nests.py`)
    chain, or any free order        tile: v is the output axis along which no load is scattered and the store is contiguous, u the
      along an output axis          other axis along which most vectors stay the same (a product of matrices: v = j, u = i);
                                    with panels, if it is large, and by blocks (`tensor/blocked_nests.py`) where it goes down both operands;
                                    a matrix that is read once goes by rows: stream (`tensor/stream_nests.py`)
                                    where they are the vectors, turned (`tensor/turned_nests.py`) where the reduction goes along them
    lanes                           rows if the data lies along the last reduced axis, lanes if along an output axis, or, if that is far
                                    to walk down, by rows over panels (`stream_lanes`)
    free order (max, integers, ..)  rows or tile, alike

On a GPU: a product with some rows and columns is tiles (`tensor/grid_products.py`, on tensor cores
`tensor/grid_tensor_cores.py`), a reduction of few long rows has a block of threads for each (`tensor/grid_long.py`), another along the data
and a bundle are rows of sixteen threads (`tensor/grid_rows.py`), a group that goes through blocks of rows has grids of its own
(`tensor/grid_blocks.py`), and all else has a thread an element (`tensor/grid_nests.py`).

What cannot be a vector (a call, a string) is serial. Nothing here knows a matrix product: a convolution, a batched product and
a product with a vector are tiles by the same rule. First, axes that always go together become one (`collapse`).

A schedule changes no bit: the order of a reduction is a function of the node alone. What else could be done the same way is a knob
(`tensor/knobs.py`): the rules here turn them as they see fit, and a choice that was measured (`tlc tune`) otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial, reduce
from math import prod

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.reductions import LANES, ONE_BY_ONE
from tlc.tensor import grid_long, grid_nests, grid_products, grid_rows, grid_tensor_cores
from tlc.tensor.block_nests import ROWS, BlockNest, block_nest
from tlc.tensor.blocked_nests import Blocked, Side, even, is_worth_blocks, longer, piece
from tlc.tensor.bundle import Bundle
from tlc.tensor.collapse import collapse
from tlc.tensor.column_sums import COLUMN, ROW, Columns, is_long_walk
from tlc.tensor.emit import Emitter, Scope
from tlc.tensor.fuse import cost
from tlc.tensor.graph.expand import expand
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Expr, Node, Scalar, Tensor, View, axes_of, axis, const, load, op, walk
from tlc.tensor.grid_blocks import BlockGrids, block_grids
from tlc.tensor.kernel.ir import Buffer, Kernel
from tlc.tensor.knobs import Asked, Choice, Knobs
from tlc.tensor.nests import ALL_ROWS, BLOCK, FEW, GAP, Nest, Panels, Tile, dependent, outer_loops
from tlc.tensor.pack import along
from tlc.tensor.row_blocks import Blocks
from tlc.tensor.search_nests import columns_search, lanes_search, serial_search
from tlc.tensor.stream_nests import PANEL, READ, Stream, panel, stream, stream_lanes
from tlc.tensor.turned_nests import is_turned, turned
from tlc.tensor.window_nests import is_window, window

CROWDED = 2048  # bytes: rows that lie a multiple of this apart share few places of the first cache
CHAIN = 12  # additions from which on a term of a sum is waited for longer than it takes


@dataclass(frozen=True)
class Target:
    """What schedules depend on: the bytes of a vector register, how many there are, and the bytes of a core's own cache.

    `expands`: elementary functions become their arithmetic, for backends that have no functions to call. `plain`: neither tiles nor vectors
    nor threads, the loops that people would write. `flash`: a matrix between products lives by blocks of rows. `dots`: how many products of
    bytes one instruction adds to a sum (4, 2; 0: none); `pairs`: whether one does so with two products of `bf16`. `gpu`: kernels are grids
    of threads; `tensor_cores`: their products of f32 and of narrow reals go there, and change bits.
    """

    vector_bytes: int = 32
    registers: int = 16
    cache_bytes: int = 512 << 10
    expands: bool = True
    plain: bool = False
    flash: bool = True
    dots: int = 0
    pairs: bool = False
    gpu: bool = False
    tensor_cores: bool = False


@dataclass(frozen=True)
class Scheduled:
    """A kernel, the results that are its outputs, what the launch passes to its inputs in order, and the buffers that it works in: its
    last outputs, which nobody reads. `asked` are its knobs.
    """

    kernel: Kernel
    results: tuple[Tensor, ...]
    operands: tuple[Tensor | Scalar, ...]
    work: tuple[Tensor, ...] = ()
    asked: Mapping[str, Asked] = field(default_factory=dict)


RULES: Choice = {}  # every knob by its rule


def schedule(node: Node, name: str, target: Target, choice: Choice = RULES) -> Scheduled:
    """The kernel of a node. Its result depends neither on the target nor on the choice, only its speed does."""
    narrow = collapse(expand(node) if target.expands else node)
    return _Schedule(narrow, name, target, Knobs(target.registers, choice)).run(node)


def schedule_bundle(bundle: Bundle, name: str, target: Target, choice: Choice = RULES) -> Scheduled:
    """The kernel of a bundle: loops over its rows, and in them the nest of each node."""
    knobs = Knobs(target.registers, choice)
    nodes = [expand(n) if target.expands else n for n in bundle.nodes]
    emitter = Emitter([e for n in nodes for e in (*n.roots, *n.domain)])
    schedules = [_Schedule(n, name, target, knobs, emitter) for n in nodes]
    shapes = {t: n.extents for n in nodes for t in n.results}
    outputs = {t: Buffer(emitter.fresh("y"), t.elem, tuple(map(emitter.extent, shapes[t]))) for t in bundle.results}
    emitter.made = outputs | {t: outputs[home] for t, home in bundle.lent.items()}
    choices: list[str] = []

    def row(scope: Scope) -> None:
        before: Nest | None = None
        for s, behind in zip(schedules, [*nodes[1:], None], strict=True):
            # Its loops stand in the row's, or where there is one row alone and another node's numbers are in registers: never parallel.
            nest = Nest(s.node, emitter, tuple(map(emitter.made.get, s.node.results)), 0, scope, bundle.depth)
            if behind is not None and is_reduced_by(s.node, behind):
                before = nest
                continue
            choices.append(s.choose_in_row(nest, before))
            before = None

    top = Scope()
    if target.gpu:
        rows = grid_rows.Rows(emitter, nodes, emitter.made, bundle.depth)
        rows.write(top)
        choices.append("sixteen threads each" if rows.lanes == LANES else f"{rows.lanes} threads each")
    else:
        outer_loops(emitter, top, nodes, bundle.depth, [s.unit() for s in schedules], row)
    notes = (*(n for node in bundle.nodes for n in node.notes), "a row after the other: " + "; ".join(choices))
    operands = tuple(k if isinstance(k, Scalar) else k.tensor for k in emitter.inputs)
    kernel = Kernel(name, tuple(outputs.values()), tuple(emitter.inputs.values()), tuple(top.body), span=bundle.nodes[-1].span, notes=notes)
    return Scheduled(kernel, bundle.results, operands, asked=knobs.asked)


def schedule_columns(columns: Columns, name: str, target: Target, choice: Choice = RULES) -> Scheduled:
    """The kernel of sums down the same columns."""
    knobs = Knobs(target.registers, choice)
    nodes = [expand(n) if target.expands else n for n in columns.nodes]
    emitter = Emitter([e for n in nodes for e in (*n.roots, *n.domain)])
    schedules = [_Schedule(n, name, target, knobs, emitter) for n in nodes]
    top = Scope()
    nests = [Nest(s.node, emitter, s.outputs(), s.unit(), top) for s in schedules]
    note = schedules[0].one_walk(nests, schedules)
    operands = tuple(k if isinstance(k, Scalar) else k.tensor for k in emitter.inputs)
    work = [w for s in schedules for w in s.work]
    kernel = Kernel(
        name,
        (*(b for nest in nests for b in nest.outputs if b), *(buffer for _, buffer in work)),
        tuple(emitter.inputs.values()),
        tuple(top.body),
        work=len(work),
        span=columns.nodes[-1].span,
        notes=(*(n for node in columns.nodes for n in node.notes), note),
    )
    results = tuple(t for n in nodes for t in n.results)
    return Scheduled(kernel, results, operands, tuple(tensor for tensor, _ in work), knobs.asked)


def is_reduced_by(node: Node, behind: Node) -> bool:
    """Whether a node of a bundle is element-wise, and the next one reduces its rows in order: then one loop may do both."""
    r = behind.reduction
    if node.reduction or r is None or len(r.extents) != 1 or node.rank != behind.rank + 1 or not equal(node.extents[-1], r.extents[0]):
        return False
    here = tuple(axis(k) for k in range(node.rank))
    read = [e for e in walk(behind.roots) if e.op == "load" and e.data.tensor in node.results]
    return bool(read) and all(e.args == here and e.data.shape == e.data.tensor.shape for e in read)


def schedule_blocks(group: Blocks, name: str, target: Target, choice: Choice = RULES) -> Scheduled:
    """The kernel of a group of nodes that go through blocks of rows."""
    knobs = Knobs(target.registers, choice)
    top = Scope()
    nest: BlockNest | BlockGrids
    if target.gpu:
        nest = block_grids(group, target.expands)
        nest.run(top)
        blocks = ", ".join(nest.notes)
    else:
        nest = block_nest(group, target.vector_bytes // 4, target.expands, knobs)
        nest.run(top)
        blocks = f"blocks of {ROWS} rows"
    emitter = nest.emitter
    outputs = tuple(emitter.made[t] for t in group.results)
    reach = "all columns" if group.reach is None else f"columns up to {group.reach} right of the diagonal"
    notes = (*(n for node in group.nodes for n in node.notes), f"{blocks}, {reach}")
    operands = tuple(k if isinstance(k, Scalar) else k.tensor for k in emitter.inputs)
    kernel = Kernel(
        name,
        (*outputs, *(buffer for _, buffer in nest.work)),
        tuple(emitter.inputs.values()),
        tuple(top.body),
        work=len(nest.work),
        span=group.nodes[-1].span,
        notes=notes,
    )
    return Scheduled(kernel, group.results, operands, tuple(tensor for tensor, _ in nest.work), knobs.asked)


class _Schedule:
    def __init__(self, node: Node, name: str, target: Target, knobs: Knobs, emitter: Emitter | None = None) -> None:
        self.node = node
        self.name = name
        self.target = target
        self.knobs = knobs
        self.emitter = emitter or Emitter((*node.roots, *node.domain))
        self.loads = [e for e in walk(node.roots) if e.op == "load"]
        self.work: list[tuple[Tensor, Buffer]] = []

    def run(self, original: Node) -> Scheduled:
        node, emitter = self.node, self.emitter
        outputs = self.outputs()
        nest = Nest(node, emitter, outputs, self.unit())
        choice = self.choose(nest)
        operands = tuple(k if isinstance(k, Scalar) else k.tensor for k in emitter.inputs)
        kernel = Kernel(
            self.name,
            (*outputs, *(buffer for _, buffer in self.work)),
            tuple(emitter.inputs.values()),
            tuple(nest.top.body),
            self.aliases(list(emitter.inputs)),
            work=len(self.work),
            span=original.span,
            notes=(*original.notes, choice),
        )
        return Scheduled(kernel, node.results, operands, tuple(tensor for tensor, _ in self.work), self.knobs.asked)

    def outputs(self) -> tuple[Buffer, ...]:
        """A buffer for each output."""
        node = self.node
        shape = node.scatter.base.shape if node.scatter else node.extents
        return tuple(Buffer(self.emitter.fresh("y"), e.elem, tuple(map(self.emitter.extent, shape))) for e in node.outputs)

    def unit(self) -> int:
        """What a point of the domain costs, in fused multiply-adds: each element that is read or stored costs eight."""
        node, r = self.node, self.node.reduction
        if self.target.plain or self.calls() or Elem.STR in node.elems:
            return 0
        factor = self.knobs.ask("cost", 1)
        if r and len(r.terms) == 2:
            return factor
        return factor * (cost(r.terms if r else node.outputs) + 8 * (len(self.loads) + (0 if r else len(node.outputs))))

    # ------------------------------------------------------------ how loads move

    def scattered(self, k: int) -> int:
        """How many loads of the reduced terms are scattered along an axis."""
        return sum(along(k, e) == "scattered" for e in self.term_loads())

    def term_loads(self) -> list[Expr]:
        r = self.node.reduction
        return [e for e in walk(r.terms) if e.op == "load"] if r else self.loads

    # ------------------------------------------------------------ the choice

    def choose(self, nest: Nest) -> str:
        """Write the nest; gives a note for people."""
        node, r = self.node, self.node.reduction
        if self.target.gpu:
            return self.on_gpu(nest)
        if node.scatter:
            nest.scatter(self.base(), self.width(self.base()))
            return "scatter, one element after the other"
        if self.target.plain and (r is None or r.op not in ("argmax", "argmin")):
            return self.plain(nest)
        if r is None:
            width = self.width(node)
            a = self.turned_axis() if width > 1 else None
            if a is not None:
                width = max(4, width // 2)  # a register: more rows at once would fall into one set of the cache
                nest.transposed(a, width, self.knobs.ask("square", BLOCK))
                return f"transposition, {width} at once"
            nest.elementwise(width)
            return f"element by element, {width} at once"
        if is_window(node) and not self.target.plain:
            width = self.lanes_of(r.terms[0].elem) * self.knobs.ask("registers", 1)
            window(nest, width)
            return f"windows: {width} at once"
        tied = dependent(r.extents)
        free = [k for k in range(node.rank) if k not in tied]
        v = self.column_axis(free)
        if r.op in ("argmax", "argmin"):
            return self.search(nest, v)
        if r.order in ONE_BY_ONE and r.op in ("sum", "prod") and r.terms[0].elem.is_real:
            return self.tile(nest, v, free)
        last = len(node.domain) - 1
        calls = self.calls()
        if calls or v is None or (self.scattered(last), not self.is_short(v)) < (self.scattered(v), True):
            lanes, many = self.row_lanes(), self.at_once()
            nest.rows(lanes, None, many)
            return f"rows: {lanes} interleaved accumulators" + (f", {many * lanes} at once" if many > 1 else "")
        if r.op in ("sum", "prod") and r.terms[0].elem.is_real:
            width = self.lanes_of(r.terms[0].elem) * self.knobs.ask("registers", 1)
            if is_long_walk(node, self.target.cache_bytes):
                return self.one_walk([nest], [self])
            nest.lanes(v, width)
            return f"columns: {width} of axis {v} at once, sixteen accumulators each"
        return self.tile(nest, v, free)

    def search(self, nest: Nest, v: int | None) -> str:
        """Lanes along the reduction or along an output axis, where the data lies so."""
        node, r = self.node, self.node.reduction
        assert r is not None
        last, width = len(node.domain) - 1, self.lanes_of(r.terms[0].elem)
        if not (self.target.plain or self.calls() or r.terms[0].elem is Elem.BOOL):
            if len(r.extents) == 1 and not self.scattered(last) and (r.extents[0].value or width) >= width:
                width *= self.knobs.ask("registers", 4 if (r.extents[0].value or 0) >= 16 * width else 2)
                lanes_search(nest, width)
                return f"search, {width} lanes"
            if v is not None and not self.scattered(v) and (node.extents[v].value or width) >= width:
                width *= self.knobs.ask("registers", 1)
                columns_search(nest, v, width)
                return f"search, {width} of axis {v} at once"
        serial_search(nest)
        return "search, one element after the other"

    def plain(self, nest: Nest) -> str:
        """One loop an axis. Sixteen accumulators where the order of a sum has them."""
        r = self.node.reduction
        if r is None:
            nest.elementwise(1)
        elif r.order == "lanes" and r.op in ("sum", "prod") and r.terms[0].elem.is_real:
            nest.rows(self.row_lanes())
            return "sixteen interleaved accumulators"
        elif r.op in ("argmax", "argmin"):
            serial_search(nest)
        else:
            nest.tile(Tile(None, 1, None, 1))
        return "one element after the other"

    def on_gpu(self, nest: Nest) -> str:
        """Write a grid of threads."""
        if self.node.scatter:
            return grid_nests.scatter(nest, self.base())
        product = grid_products.as_product(self.node)
        if product is not None and self.target.tensor_cores and grid_tensor_cores.suits(product):
            return grid_tensor_cores.product(nest, product)
        if product is not None:
            return grid_products.product(nest, product)
        if grid_long.suits(self.node):
            note, work = grid_long.long_rows(nest)
            self.work += work
            return note
        if grid_rows.suits(self.node):
            buffers = {t: b for t, b in zip(self.node.results, nest.outputs, strict=True) if b is not None}
            grid_rows.Rows(self.emitter, [self.node], buffers, self.node.rank).write(nest.top)
            return "sixteen threads a result"
        return grid_nests.points(nest, self.plain)

    def choose_in_row(self, nest: Nest, before: Nest | None = None) -> str:
        """The same for a node in a row: all its reduced axes, or those beyond the row, are in loops of the nest. There `before` is
        computed, too.
        """
        if self.node.reduction is None:
            width = self.width(self.node) if nest.own else 1
            nest.elementwise(width)
            return f"{width} at once"
        lanes, many = self.row_lanes(), self.at_once(before)
        nest.rows(lanes, before, many)
        note = f"{lanes} accumulators" + (f" of {before.node.results[-1].name}, which is computed there" if before else "")
        return note + (f", {many * lanes} at once" if many > 1 else "")

    def at_once(self, before: Nest | None = None) -> int:
        """For how many vectors of accumulators a reduction along the data computes terms at once. If those are many operations, two
        registers wait for them together, as where elements are computed.
        """
        r = self.node.reduction
        assert r is not None
        outputs = before.node.outputs if before else ()
        fixed = r.op in ("sum", "prod") and r.terms[0].elem.is_real and len(r.terms) == 1
        if not fixed or self.target.plain or self.calls() or cost((*r.terms, *outputs)) < CHAIN:
            return 1
        return max(1, self.knobs.ask("registers", 2) * self.lanes_of(r.terms[0].elem) // LANES)

    def is_short(self, k: int) -> bool:
        """An output axis too short for a vector."""
        n = self.node.extents[k].value
        return n is not None and n < 8

    def row_lanes(self) -> int:
        r = self.node.reduction
        if r is not None and r.op in ("sum", "prod") and r.terms[0].elem.is_real:
            return LANES
        long = r is not None and r.op in ("max", "min") and r.terms[0].elem.is_real and (r.extents[-1].value or 0) >= 16 * LANES
        # Where any order will do, that is a good number too. A step of `max` waits long for the one before: long rows have more of them.
        return self.knobs.ask("lanes", max(LANES, 4 * self.lanes_of(r.terms[0].elem)) if r is not None and long else LANES)

    def lanes_of(self, elem: Elem) -> int:
        """Elements in a vector register."""
        return max(2, self.target.vector_bytes // elem.bytes)

    def width(self, node: Node) -> int:
        """How many elements of the last axis an element-wise nest computes at once: two registers, by rule, of its widest real or stored
        type. Where only steps on the way are that wide, as in `pow`, the others would have one and wait long for each other: four, where
        there are many.
        """
        if self.target.plain or Elem.STR in node.elems or "apply" in node.ops or not node.rank:
            return 1
        n = node.extents[-1].value
        if n is not None and n < 4:
            return 1
        stored = max(e.elem.bytes for e in (*node.outputs, *node.loads))
        widest = max((elem.bytes for elem in node.elems if elem.is_real), default=stored)
        rule = 4 if widest > stored and self.target.registers > 16 else 2
        return max(4, self.knobs.ask("registers", rule) * self.target.vector_bytes // max(widest, stored))

    def turned_axis(self) -> int | None:
        """The axis along which an element-wise node reads, if that is not the last one, along which it stores."""
        last = self.node.rank - 1

        def count(k: int, how: str) -> int:
            return sum(along(k, e) == how for e in self.loads)

        if not count(last, "scattered") or count(last, "contiguous"):
            return None
        long = [k for k in range(last) if (self.node.extents[k].value or 8) >= 8 and count(k, "contiguous")]
        return max(long, key=lambda k: count(k, "contiguous"), default=None)

    def calls(self) -> bool:
        return "apply" in self.node.ops

    def column_axis(self, free: list[int]) -> int | None:
        """The output axis for vectors: the fewest scattered loads, then more than a few elements, then a contiguous store."""
        candidates = [k for k in free if (self.node.extents[k].value or 8) >= 2]
        if not candidates or self.calls():
            return None
        return min(candidates, key=lambda k: (self.scattered(k), (self.node.extents[k].value or 8) < 4, k != self.node.rank - 1, -k))

    def tile(self, nest: Nest, v: int | None, free: list[int]) -> str:
        """A register tile over axis v (if vectors pay there) and the axis that reuses most."""
        node, r = self.node, self.node.reduction
        assert r is not None
        lanes = self.lanes_of(r.terms[0].elem)
        if v is not None and self.scattered(v) and not any(along(v, e) == "contiguous" for e in self.term_loads()):
            if is_turned(node, v, lanes) and not self.target.plain:
                nest.unit *= READ
                turned(nest, v, lanes)
                return f"squares of {lanes} rows of axis {v}, turned"
            v = None
        others = [k for k in free if k != v and (node.extents[k].value or 8) >= 2]
        vectors = [e for e in self.term_loads() if v is None or along(v, e) != "fixed"]
        rows = 6 if self.target.registers <= 16 else 12

        def worth(k: int) -> tuple[int, int, int]:
            return sum(k in axes_of([e]) for e in vectors), -min(node.extents[k].value or rows, rows), -k

        if self.calls():
            nest.tile(Tile(None, 1, None, 1))
            return "one element after the other"
        others.sort(key=worth)
        u = others[min(self.knobs.ask("reuse", 0), len(others) - 1)] if others else None
        if v is None:
            t = Tile(u, self.knobs.ask("height", 8) if u is not None else 1, None, 1)
        elif u is None and self.is_stream(v):
            nest.unit *= READ
            columns = panel(node.extents[v].value, self.knobs.ask("panel", PANEL))
            steps = self.knobs.ask("steps", self.target.registers // 2)  # a number of each is in a register, beside the sums
            stream(nest, Stream(v, lanes, steps, columns), self.sums())
            return f"rows of axis {len(node.domain) - 1} pass over panels of {columns} of axis {v}"
        elif u is None:
            t = Tile(None, 1, v, lanes * self.knobs.ask("registers", 4))
        else:
            n = node.extents[v].value
            rows, columns = self.knobs.ask("tile", (rows, 1 if n is not None and n <= lanes else 2))
            t = Tile(u, rows, v, columns * lanes, self.block(u, v, rows))
            sides = self.down_both(t)
            copies = self.knobs.ask("panels", 2 if sides and is_worth_blocks(node, *sides, self.target.cache_bytes) else int(self.pays(t)))
            if copies == 2 and sides:
                self.blocked(nest, *sides).write()
                return f"blocks: {t.rows} of axis {t.u} by {t.width} of axis {t.v}"
            if copies and self.may_copy():
                nest.tile(t, self.panels(t))
                return f"panels: {t.rows} of axis {t.u} by {t.width} of axis {t.v}"
        nest.tile(t)
        tall = f"{t.rows} of axis {t.u}" if t.u is not None else "1"
        return f"tile: {tall} by {f'{t.width} of axis {t.v}' if t.v is not None else '1'}"

    def one_walk(self, nests: Sequence[Nest], schedules: Sequence[_Schedule]) -> str:
        """Write sums down the same columns; gives a note for people."""
        columns = self.knobs.ask("panel", 2 * PANEL)
        sums = [s.sums(COLUMN) for s in schedules]
        width = self.lanes_of(sums[0].elem) * self.knobs.ask("registers", 1)
        stream_lanes(nests, Stream(COLUMN, width, self.knobs.ask("steps", 8), columns), sums)
        return f"rows of axis {ROW} pass over panels of {columns} of axis {COLUMN}, sixteen accumulators each"

    def is_stream(self, v: int) -> bool:
        """Whether the reduction is of products, of which one factor is a matrix of some size with its rows along axis v."""
        node, r = self.node, self.node.reduction
        assert r is not None
        long = all((n.value or PANEL) >= 64 for n in (node.extents[v], r.extents[-1]))
        matrix = any({v, len(node.domain) - 1} <= axes_of([e]) for e in self.term_loads())
        return long and matrix and len(r.terms) == 2 and not self.target.plain

    def sums(self, v: int | None = None) -> Buffer:
        """A buffer for the sums of a product in the making, as large as its output; or for sixteen sums of each element along axis v."""
        node, r = self.node, self.node.reduction
        assert r is not None
        shape = node.extents if v is None else (op("mul", node.extents[v], const(LANES)),)
        tensor = Tensor(f"{node.results[0].name}.sums", r.terms[0].elem, shape)
        buffer = Buffer(self.emitter.fresh("w"), tensor.elem, tuple(map(self.emitter.extent, shape)))
        self.work.append((tensor, buffer))
        return buffer

    def may_copy(self) -> bool:
        """Whether it is known how much room copies of the operands take."""
        return all(n.value for n in self.node.domain)

    def pays(self, t: Tile) -> bool:
        """Whether copies of the operands are cheap beside the product and rid it of long strides (each row of B in a page of its own)."""
        node, r = self.node, self.node.reduction
        assert r is not None and t.u is not None and t.v is not None
        m, n = (node.extents[k].value or 0 for k in (t.u, t.v))
        depth = prod(x.value or 0 for x in r.extents)
        return m >= 8 * t.rows and n >= 4 * t.width and depth * n * r.terms[0].elem.bytes > self.target.cache_bytes

    def down_both(self, t: Tile) -> tuple[Side, Side] | None:
        """The sides of a product of two matrices that are read down their columns; None for any other."""
        node, r = self.node, self.node.reduction
        assert r is not None and t.u is not None and t.v is not None
        if node.rank != 2 or len(r.extents) != 1 or len(r.terms) != 2 or r.quick or not self.may_copy():
            return None
        sides: list[Side] = []
        for k, tile in ((t.u, t.rows), (t.v, t.width)):
            sides += [
                Side(k, e, tile, k == t.v)
                for e in r.terms
                if e.op == "load" and along(k, e) == "contiguous" and along(node.rank, e) == "scattered" and axes_of([e]) == {k, node.rank}
            ]
        return (sides[0], sides[1]) if len(sides) == 2 else None

    def blocked(self, nest: Nest, rows: Side, columns: Side) -> Blocked:
        """The nest of a product by blocks, with the buffers that it needs."""
        r = self.node.reduction
        assert r is not None
        depth = r.extents[0].value or 0
        _, short = longer(self.node, rows, columns)
        tensor = Tensor(f"{short.load.data.tensor.name}.packed", short.load.elem, (const(short.room(short.extent(self.node), depth)),))
        packed = Buffer(self.emitter.fresh("w"), tensor.elem, tuple(map(self.emitter.extent, tensor.shape)))
        self.work.append((tensor, packed))
        return Blocked(nest, rows, columns, packed, None if piece(depth) == depth else self.sums())

    def panels(self, t: Tile) -> Panels:
        """Buffers for the loads that are contiguous along an axis of the tile and move with no other axis of the output."""
        r = self.node.reduction
        assert r is not None and t.u is not None and t.v is not None
        inner = set(range(self.node.rank, len(self.node.domain)))
        depth = reduce(partial(op, "mul"), r.extents)

        def buffers(loads: list[Expr], size: Expr) -> dict[Expr, Buffer]:
            out = {}
            for e in loads:
                tensor = Tensor(f"{e.data.tensor.name}.packed", e.elem, (size,))
                out[e] = Buffer(self.emitter.fresh("w"), e.elem, (self.emitter.extent(size),))
                self.work.append((tensor, out[e]))
            return out

        def own(k: int) -> list[Expr]:
            return [e for e in self.term_loads() if k in axes_of([e]) and axes_of([e]) <= {k} | inner]

        rows, columns = self.node.extents[t.u], self.node.extents[t.v]
        wide = op("mul", op("floordiv", op("add", columns, const(t.width - 1)), const(t.width)), const(t.width))
        crowded = (depth.value or 1) * r.terms[0].elem.bytes % CROWDED == 0
        along_rows = [e for e in own(t.u) if along(t.u, e) == "contiguous"]
        along_depth = [e for e in own(t.u) if e not in along_rows and along(len(self.node.domain) - 1, e) == "contiguous"]
        return Panels(
            buffers(along_rows, op("mul", rows, depth)),
            buffers([e for e in own(t.v) if along(t.v, e) == "contiguous"], op("mul", wide, depth)),
            buffers(along_depth if crowded else [], op("mul", rows, op("add", depth, const(GAP)))),
        )

    def block(self, u: int, v: int, rows: int) -> int:
        """How many rows of axis u pass every column before the next ones do. What they read of the operand takes up no more than a part of
        the cache, by rule a half, and together with what is written and read at the ends of tiles, the whole of it, but for a few tiles:
        lines that leave the cache before their rows are whole make many short trips to memory. Fewer, where the other operand fits there
        as well: then threads share the rows, and what follows row by row finds them in the cache of the core that made them.
        """
        r = self.node.reduction
        assert r is not None
        depth = prod(n.value or 512 for n in r.extents)
        terms = self.term_loads()
        row, column = (sum(e.elem.bytes * depth for e in terms if k in axes_of([e])) for k in (u, v))
        ends = [*self.node.outputs, *(e for e in self.loads if e not in terms and {u, v} <= axes_of([e]))]
        whole = row + sum(e.elem.bytes for e in ends) * (self.node.extents[v].value or 0)
        share = self.knobs.ask("share", 2)
        near = max(self.target.cache_bytes // max(whole, 1), FEW * rows)
        most = max(1, min(self.target.cache_bytes // share // max(row, 1), near) // rows) * rows if share else ALL_ROWS
        m, n = (self.node.extents[k].value or ALL_ROWS for k in (u, v))
        about = min(most, 8 * rows)
        if self.node.rank > 2 or m >= ALL_ROWS or column * n > self.target.cache_bytes // 2 or m < FEW * about:
            return most
        return even(m, -(-m // max(about, m // 8)), 1)

    def base(self) -> Node:
        """The copy of a scatter's base."""
        node = self.node
        assert node.scatter is not None
        base = node.scatter.base
        e = load(base, [axis(k) for k in range(base.rank)])
        return Node(node.results, base.shape, (e,))

    # ------------------------------------------------------------ aliasing

    def aliases(self, inputs: list[Scalar | View]) -> tuple[tuple[int, int], ...]:
        """Pairs of an output and an input that may share memory: the input is read only at the element that is stored, before that."""
        node = self.node
        shape = node.scatter.base.shape if node.scatter else node.extents
        here = tuple(axis(k) for k in range(len(shape)))
        inside = set(walk(node.reduction.terms)) if node.reduction else set()
        read = {e.data.tensor for e in node.loads} if node.scatter else set()
        out: list[tuple[int, int]] = []
        for o, result in enumerate(node.outputs):
            for k, view in enumerate(inputs):
                if isinstance(view, Scalar) or view.tensor.elem is not result.elem or any(k == i for _, i in out):
                    continue
                if sum(isinstance(w, View) and w.tensor is view.tensor for w in inputs) > 1 or view.shape != shape:
                    continue
                if view.tensor in node.wholes:
                    continue
                if node.scatter:
                    fine = view.tensor is node.scatter.base and view.tensor not in read
                else:
                    own = [e for e in node.loads if e.data == view]
                    fine = all(e.args == here and e not in inside for e in own)
                if fine:
                    out.append((o, k))
                    break
        return tuple(out)

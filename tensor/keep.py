"""What a block keeps on the tape for its reverse: the least bytes from which the reverse can compute what it needs.

A value that the reverse needs may be kept, or computed again from others. Which are best kept is a minimum cut of the graph that has an
edge from each value that is read to what is computed from it: between what cannot be computed again, which is the source, and what is
needed, the sink. To cut a value costs its bytes, and one more if it only moves elements: who reads it may as well read what is moved (Ford
and Fulkerson 1956; for derivatives: Chen et al. 2016; He and Yu 2023). Of all minimum cuts it is the one nearest to the sink, so nothing
else is computed again that saves nothing.

    x = ..                        kept: x, m.   again: c = sub x, m;  y = mul c, 2
    m = sum of x                  (x alone would do, but sums over many elements are not computed again)
    c = tabulate { sub x, m }
    y = tabulate { mul c, 2 }     needed: c, y

Computed again are parts of tensors, movement, and comprehensions that cost little for an element: arithmetic with a few elementary
functions, and short sums of products that were made in the block (not a layer, whose weights the reverse has) if the result is larger than
they are. So the scores of an attention are not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import prod

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.components import reachable
from tlc.ssa.ir import Block, Instr, Value
from tlc.ssa.liveness import reads
from tlc.tensor.extents import Extents
from tlc.tensor.scalar_code import cost_of, is_scalar, is_scalar_load, loaded

CHEAP = 64  # additions for an element of a comprehension, up to which it may be computed again
SHORT = 64  # terms of a sum of products, up to which it may be computed again
UNKNOWN = 64  # an extent that nobody knows

Graph = dict[int, dict[int, int]]  # node -> successor -> capacity
EVERYTHING = 1 << 62


def kept(needed: Iterable[Value], block: Block, is_free: Callable[[Value], bool], extents: Extents) -> tuple[Value, ...]:
    """The values to keep: all else that is needed can be computed from them by instructions of the block. `is_free`: the reverse has it."""
    return _Cut(block, is_free, extents).run(needed)


class _Cut:
    """Node 0 is the source, 1 the sink; value k comes in at 2k + 2 and goes out at 2k + 3."""

    def __init__(self, block: Block, is_free: Callable[[Value], bool], extents: Extents) -> None:
        self.block, self.is_free, self.extents = block, is_free, extents
        self.numbers: dict[Value, int] = {}
        self.graph: Graph = {0: {}, 1: {}}

    def run(self, needed: Iterable[Value]) -> tuple[Value, ...]:
        work = [v for v in needed if not self.is_free(v)]
        for v in work:
            self.edge(self.number(v) + 1, 1, EVERYTHING)
        seen = set(work)
        while work:
            v = work.pop()
            into = self.number(v)
            owner = v.owner
            self.edge(into, into + 1, self.bytes(v) + (isinstance(owner, Instr) and _is_movement(owner)))
            if not (isinstance(owner, Instr) and owner.block is self.block and self.is_cheap(owner)):
                self.edge(0, into, EVERYTHING)
                continue
            for read in reads(owner):
                if not self.is_free(read):
                    self.edge(self.number(read) + 1, into, EVERYTHING)
                    if read not in seen:
                        seen.add(read)
                        work.append(read)
        _saturate(self.graph)
        behind = reachable([1], lambda b: (a for a in self.graph[b] if self.graph[a][b]))  # where something is left on the way to the sink
        return tuple(v for v, k in self.numbers.items() if k not in behind and k + 1 in behind)

    def number(self, v: Value) -> int:
        return self.numbers.setdefault(v, 2 * len(self.numbers) + 2)

    def edge(self, a: int, b: int, capacity: int) -> None:
        self.graph.setdefault(a, {})[b] = capacity
        self.graph.setdefault(b, {}).setdefault(a, 0)

    def bytes(self, v: Value) -> int:
        sizes = (n if isinstance(n, int) else UNKNOWN for n in self.extents.all(v))
        return max(1, v.type.elem.bytes * prod(sizes))

    def is_cheap(self, instr: Instr) -> bool:
        """Whether an instruction may be done again."""
        match instr.op:
            case "index" | "reshape" | "dim":
                return True
            case "tabulate":
                return self.is_cheap_tabulate(instr)
            case op:
                return op in SCALAR_OPS

    def is_cheap_tabulate(self, instr: Instr) -> bool:
        """Whether an element costs little: arithmetic and loads, or the sum of few products in a result that is larger than its factors."""
        if len(instr.regions[0].blocks) > 1:
            return False
        total = 0
        for i in instr.regions[0].entry.instrs:
            if i.op == "reduce":
                length = self.extents.key(i.operands[0])
                if i.attrs["order"] != "chain" or len(i.operands) > 1 or not isinstance(length, int) or length > SHORT:
                    return False
                factors = [v for v in reads(instr) if v.type.rank]
                if any(map(self.is_free, factors)) or sum(map(self.bytes, factors)) > self.bytes(instr.result):
                    return False
            elif not (is_scalar(i) or loaded(i) is not None) or any(r.type.rank for r in i.results):
                return False
            else:
                total += cost_of(i)
        return total <= CHEAP


def _is_movement(instr: Instr) -> bool:
    """Whether a comprehension only moves elements, from places that follow from their indices (by those that are loaded, it gathers)."""
    if instr.op != "tabulate" or len(instr.regions[0].blocks) > 1:
        return False
    entry = instr.regions[0].entry
    loads = {i.result for i in entry.instrs if is_scalar_load(i)}
    return loads == set(entry.terminator.operands) and all(i.op != "index_if" for i in entry.instrs)


def _saturate(graph: Graph) -> None:
    """Send as much from node 0 to node 1 as goes, by shortest paths (Edmonds and Karp 1972); capacities become what is left of them."""
    while True:
        before = {0: 0}
        work = deque([0])
        while work and 1 not in before:
            a = work.popleft()
            for b, capacity in graph[a].items():
                if capacity and b not in before:
                    before[b] = a
                    work.append(b)
        if 1 not in before:
            return
        path, at = [], 1
        while at:
            path.append((before[at], at))
            at = before[at]
        amount = min(graph[a][b] for a, b in path)
        for a, b in path:
            graph[a][b] -= amount
            graph[b][a] += amount

"""What the grids of a group of nodes do (`tensor/grid_blocks.py`): in which pass, with what in shared memory, by which tiles.

A plan says for one way through the matrices what each pass reduces and multiplies, which scores it has to make for that, and which lines of
operands lie in shared memory. Tiles are the largest that fit the shared memory and the registers, and of which there are enough to keep a
GPU busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tlc.frontend.records import dataclass
from tlc.ssa.reductions import LANES
from tlc.tensor.graph.index import to_poly
from tlc.tensor.graph.ir import Expr, Node, Tensor, axes_of, axis, const, substitute, walk
from tlc.tensor.kernel.ir import SHARED
from tlc.tensor.pack import along
from tlc.tensor.row_blocks import Role

SIDE = LANES  # threads of a block: so many rows of so many columns
BYTES = 16  # of the widest access
BUSY = 96  # blocks that keep a GPU busy; where there are fewer, smaller ones make more
TALL = (8, 4, 2)  # own lines of a thread, and
WIDE = (4, 2, 1)  # lines of a tile
LIVE = 128  # numbers that a thread has in registers, at most
UNKNOWN = 1024  # lines, where that is known only at run time

_PRODUCTS = (Role.SCORES, Role.OUT, Role.DOWN)


def suits(nodes: Sequence[Node], roles: Sequence[Role], d: int) -> bool:
    """Whether a group has a grid: what is multiplied is of known width and fits, and no function is called."""
    for node, role in zip(nodes, roles, strict=True):
        if role in (Role.OUT, Role.DOWN) and any(e.op in ("apply", "whole") for e in walk(node.roots)):
            return False
        if role in _PRODUCTS and not breadth(node, role):
            return False
    return all(fitting(Plan(nodes, roles, d, way, False)) for way in ways(d))


def breadth(node: Node, role: Role) -> int | None:
    """How wide what a product multiplies with is."""
    extents = node.reduction.extents if role is Role.SCORES and node.reduction else node.extents
    value = extents[-1].value
    return value if value is None else int(value)


@dataclass(frozen=True)
class Way:
    """The axes of a matrix along which a block has its own lines, and along which it goes; and which products it makes."""

    own: int
    along: int
    product: Role


def ways(d: int) -> tuple[Way, Way]:
    return Way(d, d + 1, Role.OUT), Way(d + 1, d, Role.DOWN)


@dataclass(frozen=True)
class Staged:
    """Lines of an operand that are in shared memory: the number at line `axis(d)`, `axis(d + 1)` across."""

    value: Expr
    own: bool
    across: int


class Plan:
    """What one grid of a group computes, in passes. `keeps`: what a pass has multiplied is kept for the next ones."""

    def __init__(self, nodes: Sequence[Node], roles: Sequence[Role], d: int, way: Way, keeps: bool) -> None:
        self.nodes, self.way, self.d, self.keeps = nodes, way, d, keeps
        self.roles = dict(zip(nodes, roles, strict=True))
        self.matrices = {t: n for n in nodes if self.roles[n] in (Role.SCORES, Role.MAP) and n.rank == d + 2 for t in n.results}
        self.products = [n for n in nodes if self.roles[n] is way.product]
        self.numbers = [n for n in nodes if n.rank == d + 1]
        known: dict[Tensor, int] = {}  # the pass in which a matrix can be had, and before which a number of a row is
        self.turn: dict[Node, int] = {}
        for n in nodes:
            self.turn[n] = max((known[t] for t in n.sources if t in known), default=0)
            known |= dict.fromkeys(n.results, self.turn[n] + (self.roles[n] is Role.ROW))
        if way.product is Role.DOWN:  # all numbers are known
            self.numbers, self.turn = [], dict.fromkeys(nodes, 0)
        last = [self.turn[n] for n in (*self.products, *self.numbers)]
        self.passes = range(max(last, default=-1) + 1)

    def reduced(self, turn: int) -> list[Node]:
        return [n for n in self.numbers if self.roles[n] is Role.ROW and self.turn[n] == turn]

    def multiplied(self, turn: int) -> list[Node]:
        return [n for n in self.products if self.turn[n] == turn]

    def elements(self, turn: int) -> list[Node]:
        """The matrices that a pass goes through, in order."""
        wanted = {t for n in (*self.reduced(turn), *self.multiplied(turn)) for t in n.sources}
        out: list[Node] = []
        for n in reversed(self.nodes):
            if any(t in wanted and t in self.matrices for t in n.results):
                out.append(n)
                wanted |= set(n.sources)
        return out[::-1]

    def scores(self, turn: int) -> list[Node]:
        return [n for n in self.elements(turn) if self.roles[n] is Role.SCORES]

    def kept(self) -> list[Node]:
        """The scores that several passes want."""
        return [n for n in self.nodes if sum(n in self.scores(turn) for turn in self.passes) > 1] if self.keeps else []

    def made(self, turn: int) -> list[Node]:
        """The scores that a pass has to multiply."""
        before = [n for t in range(turn) for n in self.scores(t)]
        return [n for n in self.scores(turn) if not (self.keeps and n in before)]

    def factors(self, node: Node) -> tuple[Tensor, Staged]:
        """The matrix of a product, and what it is multiplied with."""
        r, d = node.reduction, self.d
        assert r is not None
        for term, other in (r.terms, r.terms[::-1]):
            if term.op == "load" and term.data.tensor in self.matrices:
                value = substitute(other, {d + 2: axis(d)})
                return term.data.tensor, Staged(value, False, breadth(node, Role.OUT) or 0)
        raise AssertionError("a product of no matrix")

    def operands(self, node: Node) -> tuple[Staged, Staged]:
        """The factors of scores, in order."""
        r, d = node.reduction, self.d
        assert r is not None
        out = []
        for e in r.terms:
            own = self.way.own in axes_of([e])
            line = self.way.own if own else self.way.along
            value = substitute(e, {line: axis(d), d + 2: axis(d + 1)})
            out.append(Staged(value, own, breadth(node, Role.SCORES) or 0))
        return out[0], out[1]

    def staged(self, turn: int) -> dict[Staged, None]:
        """What a pass has in shared memory."""
        operands = [s for n in self.made(turn) for s in self.operands(n)]
        return dict.fromkeys([*operands, *(self.factors(n)[1] for n in self.multiplied(turn))])

    @property
    def shape(self) -> tuple[Expr, ...]:
        """Of the matrices."""
        return next(n for n in self.nodes if self.roles[n] is Role.SCORES).extents

    def all_staged(self) -> dict[Staged, None]:
        """What is in shared memory in some pass."""
        return dict.fromkeys(s for turn in self.passes for s in self.staged(turn))

    def stages(self, tall: int, wide: int) -> int:
        """How many tiles have room at once for what is staged of them: two, if the next one can be copied while one is computed."""
        copied = [self.can_copy(s) for s in self.all_staged() if not s.own]
        return 2 if copied and all(copied) and self.bytes(tall, wide, 2) <= SHARED else 1

    def can_copy(self, s: Staged) -> bool:
        """Whether lines lie in pieces of 16 bytes, at positions that are surely multiples of those and need no look at memory."""
        e, count = s.value, BYTES // s.value.elem.bytes
        if e.op != "load" or e.guard is not None or s.across % count or along(self.d + 1, e) != "contiguous":
            return False
        if e.data.tensor in {t for n in self.nodes for t in n.results} or any(x.op in ("load", "apply") for x in walk(e.indices)):
            return False
        begin = substitute(e.indices[-1], {self.d + 1: const(0)})
        return (e.data.shape[-1].value or 1) % count == 0 and all(k % count == 0 for k in to_poly(begin).values())

    def bytes(self, tall: int, wide: int, stages: int = 1) -> int:
        """The shared memory of a block."""
        lines = {s: tall if s.own else wide * stages for s in self.all_staged()}
        size = sum(n * SIDE * stride(s) * s.value.elem.bytes for s, n in lines.items())
        matrices = [self.factors(n)[0].elem.bytes for n in self.products]
        size += max((wide * SIDE * odd(tall * SIDE, b) * b for b in matrices), default=0)
        kept = self.kept_lines(wide)
        return size + sum(kept * odd(tall * SIDE, b) * b for b in (n.results[0].elem.bytes for n in self.kept()))

    def kept_lines(self, wide: int) -> int:
        """Those of all tiles."""
        count = int(self.shape[self.way.along].value or 0)
        return -(-count // (wide * SIDE)) * wide * SIDE

    def live(self, tall: int, wide: int) -> int:
        """How many numbers a thread has at once, about."""
        words = [n.results[0].elem.bytes // 4 for n in self.nodes]
        most = 0
        for turn in self.passes:
            sums = sum(each(self.factors(n)[1].across) for n in self.multiplied(turn))
            most = max(most, tall * (wide * len(self.scores(turn)) + sums + len(self.numbers)))
        return most * max(words)


def fitting(plan: Plan) -> list[tuple[int, int]]:
    """Tiles, by lines of a thread: for each number of own lines the widest that fits."""
    out = []
    for tall in TALL:
        wide = next((w for w in (WIDE[:-1] if plan.keeps else WIDE) if plan.bytes(tall, w) <= SHARED and plan.live(tall, w) <= LIVE), None)
        if wide is not None:
            out.append((tall, wide))
    return out


def choice(nodes: Sequence[Node], roles: Sequence[Role], d: int, way: Way) -> tuple[Plan, tuple[int, int]]:
    """A plan and its tiles: the largest of which there are enough, of those that let scores be kept, if there are some."""
    plan = Plan(nodes, roles, d, way, True)
    tiles = fitting(plan) if plan.kept() and plan.shape[way.along].value is not None else []
    if not tiles:
        plan = Plan(nodes, roles, d, way, False)
        tiles = fitting(plan)
    *outer, own = (int(n.value or UNKNOWN) for n in (*plan.shape[:d], plan.shape[way.own]))
    large = (t for t in tiles if own > t[0] * SIDE // 2 and -(-own // (t[0] * SIDE)) * prod(outer) >= BUSY)
    return plan, next(large, tiles[-1])


def odd(count: int, size: int) -> int:
    """At least so many elements, an odd number of wide accesses."""
    together = BYTES // size
    return together * (-(-count // together) | 1)


def each(across: int) -> int:
    """How many columns of a product a thread has."""
    return -(-across // SIDE)


def stride(s: Staged) -> int:
    """From one line in shared memory to the next. A thread may load columns behind the last one, and does nothing with them."""
    return odd(each(s.across) * SIDE, s.value.elem.bytes)

"""Fusion: fewer kernels, less memory.

Three rewrites of a graph, repeated until neither applies; epilogues of reductions come first, so that a bias is added once and not
in each of its readers. A node only ever moves later, to where a consumer stands.

  inline   y = for i: f(x[i]);  z = for i: g(y[i])      becomes   z = for i: g(f(x[i]))
           An element-wise producer that the host does not need goes into every consumer, also into a reduction's terms, if it
           is free (affine movement), or cheap, or computed no more often there than before. Factors of a product are read many
           times each, so only affine movement goes into them.
  append   y = for i: sum[k] ..;  z = for i: g(y[i])    becomes   y, z = for i: sum[k] .., then g(acc)
           An element-wise consumer over the same extents joins its producer: the epilogue of a reduction, or two results that share
           their loads. y is no result any more if nobody else reads it; whoever reads it must stand behind z.
  share    y = for i: erf(x[i]) * x[i];  z = for i: erf(x[i]) * d[i]     becomes   y, z = for i: ..
           Two nodes over the same extents, neither of which needs the other, that compute the same elementary function of an element.

Requires: expressions in normal form. Preserves: the value of every kept tensor to the bit, and the order of effects. Neither
moves a load behind the place where the host takes that tensor over, which would turn an update in place into a copy. The notes of a
node say what became part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import Enum

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.graph.index import aligned, by_ranges, equal, flatten, slope, straightened, unflatten
from tlc.tensor.graph.ir import (
    Expr,
    Graph,
    Node,
    Reduction,
    Tensor,
    View,
    axes_of,
    axis,
    load,
    op,
    rebuild,
    substitute,
    transform,
    walk,
    zero,
)

CHEAP = 5  # in additions and loads: computing this again costs no more than reading it
LONG = 16  # elements of a row from which on what is the same for all counts once
LARGEST = 600  # expressions in a node; what is larger compiles slowly and spills
DEEPEST = 100  # levels of an expression: what prints kernels recurses over it
MOST_INPUTS = 24

_ELEMENTARY = frozenset(name for name, row in SCALAR_OPS.items() if row.elementary)
_COSTS = dict.fromkeys(_ELEMENTARY, 20) | {  # in additions; other scalar ops 1
    "div": 4, "sqrt": 4, "floordiv": 4, "mod": 4, "apply": 1000, "load": 1, "const": 0, "axis": 0, "scalar": 0, "acc": 0, "whole": 0,
    "dot2": 1, "dot4": 1, "fma2": 6, "fma2_normal": 1, "ldexp": 2,
}  # fmt: skip


class Obstacle(Enum):
    """Why a producer and a reader stay apart, as the end of a sentence about the producer."""

    REDUCTION = "it reduces, so its elements are not there one by one"
    SCATTER = "it scatters into a tensor"
    KEPT = "the host needs the tensor itself"
    STOPS = "it may stop the program, and what stops stays in order"
    GUARDED = "it calls a function, which a guarded read must not do"
    COSTLY = "to compute it in each reader costs more than to read it"
    FACTOR = "a factor of a product is read many times, so only movement goes into it"
    WHOLE = "it is read as a whole, by a function or a scatter"
    TAKEN = "what it reads is changed in place before the reader runs"
    READER_REDUCES = "the reader reduces it"
    EXTENTS = "the two run over different extents"
    ELSEWHERE = "it is read at other indices than it is computed at"
    BETWEEN = "another reader stands between"
    EFFECTS = "something acts on the world between"
    WANTED = "the host reads it before the reader runs"
    RATHER_INLINED = "what it ends in is stored anyway, and the reader costs little in its own readers"
    LARGE = "one kernel of both would be too large"


@dataclass(frozen=True)
class Place:
    """A node, for people: the name of its last result, and where it comes from."""

    name: str
    span: Span


@dataclass(frozen=True)
class Decision:
    """What became of a producer and a reader of it: `how` they became one, or what stands against either way."""

    producer: Place
    reader: Place
    how: str = ""  # "inlined", "appended", "shared", or "bundled" by tensor/bundle.py
    inline: Obstacle | None = None
    append: Obstacle | None = None


def fuse(graph: Graph, decisions: list[Decision] | None = None) -> Graph:
    """The fused graph. The given one is not changed. Every decision is added to `decisions`, if somebody asks for them."""
    fusion = _Fusion(replace(graph, nodes=[aligned(n) for n in graph.nodes]))
    while fusion.append_one(True) or fusion.inline_one() or fusion.append_one(False) or fusion.share_one():
        pass
    if decisions is not None:
        decisions += [*fusion.made, *fusion.apart()]
    return replace(fusion.graph, nodes=[aligned(straightened(n)) for n in fusion.graph.nodes])


def together(decisions: list[Decision], nodes: Sequence[Node]) -> None:
    """Nodes that fusion left apart run in one kernel after all, a row after the other."""
    places = {_place(n) for n in nodes}
    for k, d in enumerate(decisions):
        if not d.how and d.producer in places and d.reader in places:
            decisions[k] = replace(d, how="bundled")


def _place(node: Node) -> Place:
    return Place(node.results[-1].name, node.span)


@dataclass(eq=False)
class _Fusion:
    """The graph as it is, with who makes and who reads each tensor, and where in the order nodes stand."""

    graph: Graph
    made: list[Decision] = field(default_factory=list)
    at: dict[Node, int] = field(init=False)
    maker: dict[Tensor, Node] = field(init=False)
    users: dict[Tensor, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        self.kept = frozenset(self.graph.kept)
        self.become(self.graph.nodes)

    def become(self, nodes: list[Node]) -> None:
        """Other nodes."""
        self.graph.nodes = nodes
        self.at = {n: k for k, n in enumerate(nodes)}
        self.maker = {t: n for n in nodes for t in n.results}
        self.users = {}
        for n in nodes:
            for t in n.sources:
                self.users.setdefault(t, []).append(n)

    def readers(self, node: Node) -> list[Node]:
        """The nodes that read a result of a node, in order."""
        found = dict.fromkeys(n for t in node.results for n in self.users.get(t, ()) if n is not node)
        return sorted(found, key=self.at.__getitem__)

    def producers(self, node: Node) -> list[Node]:
        """The nodes of which a node reads a result, in order."""
        found = dict.fromkeys(self.maker[t] for t in node.sources if t in self.maker)
        return sorted(found, key=self.at.__getitem__)

    def passes_effects(self, node: Node, place: int) -> bool:
        """Whether a node that may stop the program would, at a later place, do so behind something that acts on the world."""
        return self.graph.may_stop(node) and any(self.graph.place(node) < k <= place for k in self.graph.effects)

    def apart(self) -> list[Decision]:
        """The pairs that are left, with what stands between them."""
        pairs = [(node, reader) for node in self.graph.nodes for reader in self.readers(node)]
        out = []
        for n, r in pairs:
            inline = self.against_inlining(n, self.readers(n)) or Obstacle.LARGE
            out.append(Decision(_place(n), _place(r), "", inline, self.against_appending(n, r)))
        return out

    # ------------------------------------------------------------ inline

    def inline_one(self) -> bool:
        for node in self.graph.nodes:
            readers = self.readers(node)
            if readers and self.against_inlining(node, readers) is None:
                new = {r: inlined(node, r) for r in readers}
                if all(_fits(n) for n in new.values()):
                    self.made += [Decision(_place(node), _place(r), "inlined") for r in readers]
                    self.become([new.get(n, n) for n in self.graph.nodes if n is not node])
                    return True
        return False

    def against_inlining(self, node: Node, readers: list[Node]) -> Obstacle | None:
        """What stands against computing a node in its readers, their size aside; None if nothing does."""
        if node.reduction:
            return Obstacle.REDUCTION
        if node.scatter:
            return Obstacle.SCATTER
        if not self.kept.isdisjoint(node.results):
            return Obstacle.KEPT
        if self.graph.may_stop(node):
            return Obstacle.STOPS
        free = is_movement(node)
        price = cost_of_each(node)
        if price >= _COSTS["apply"] and len(readers) > 1:
            return Obstacle.COSTLY
        for reader in readers:
            if not reads_by_loads(reader, node):
                return Obstacle.WHOLE
            if not self.graph.may_read_at(node, self.graph.place(reader)):
                return Obstacle.TAKEN
            for e in reader.loads:
                if e.data.tensor not in node.results:
                    continue
                if e.guard is not None and price >= _COSTS["apply"]:
                    return Obstacle.GUARDED
                if reader.reduction and has_factors(reader.reduction) and e in walk(reader.reduction.terms):
                    if not (free or (price <= CHEAP and is_read_once(e, reader))):
                        return Obstacle.FACTOR
                elif not (free or price <= CHEAP or (len(readers) == 1 and is_once(e, reader))):
                    return Obstacle.COSTLY
        return None

    # ------------------------------------------------------------ append

    def append_one(self, to_reductions: bool) -> bool:
        for reader in self.graph.nodes:
            if reader.reduction or reader.scatter:
                continue
            for node in self.producers(reader):
                if bool(node.reduction) == to_reductions and self.against_appending(node, reader) is None:
                    self.made.append(Decision(_place(node), _place(reader), "appended"))
                    self.append(node, reader)
                    return True
        return False

    def against_appending(self, node: Node, reader: Node) -> Obstacle | None:
        """What stands against computing a reader where a node ends; None if nothing does."""
        if reader.reduction or reader.scatter:
            return Obstacle.READER_REDUCES if reader.reduction else Obstacle.SCATTER
        if node.scatter:
            return Obstacle.SCATTER
        if not _same_extents(node, reader):
            return Obstacle.EXTENTS
        if not reads_by_loads(reader, node):
            return Obstacle.WHOLE
        if not self.graph.may_read_at(node, self.graph.place(reader)):
            return Obstacle.TAKEN
        here = tuple(axis(k) for k in range(reader.rank))
        if any(e.args != here or e.data.shape != e.data.tensor.shape for e in reader.loads if e.data.tensor in node.results):
            return Obstacle.ELSEWHERE
        others = [r for r in self.readers(node) if r is not reader]
        if any(self.at[r] < self.at[reader] for r in others):
            return Obstacle.BETWEEN
        is_stored = bool(others) or not self.kept.isdisjoint(node.results)
        if node.reduction and is_stored and self.is_rather_inlined(reader):
            return Obstacle.RATHER_INLINED
        place = self.graph.place(reader)
        if self.passes_effects(node, place):
            return Obstacle.EFFECTS
        if not self.graph.may_give_at(node, place):
            return Obstacle.WANTED
        fits = _fits(reader) and len(node.sources) + len(reader.sources) <= MOST_INPUTS and _depth(node) + _depth(reader) <= DEEPEST
        return None if fits else Obstacle.LARGE

    def is_rather_inlined(self, node: Node) -> bool:
        """Whether a node is cheap enough to be computed in each of its readers, and can be."""
        readers = self.readers(node)
        return bool(readers) and cost_of_each(node) <= CHEAP and self.against_inlining(node, readers) is None

    def append(self, node: Node, reader: Node) -> None:
        value = dict(zip(node.results, node.outputs, strict=True))

        def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
            if e.op == "load" and e.data.tensor in value:
                return value[e.data.tensor]
            return rebuild(e, args) if args else e

        outputs = transform(reader.outputs, change)
        stay = [k for k, t in enumerate(node.results) if t in self.kept or any(n is not reader for n in self.users.get(t, ()))]
        joined = replace(
            node,
            results=(*(node.results[k] for k in stay), *reader.results),
            outputs=(*(node.outputs[k] for k in stay), *outputs),
            span=reader.span,
            notes=(*node.notes, *reader.notes, _note(node, "computes", reader)),
            joined=(*node.joined, node.span, *reader.joined),
        )
        self.become([joined if n is reader else n for n in self.graph.nodes if n is not node])

    # ------------------------------------------------------------ share

    def share_one(self) -> bool:
        computed = [(n, found) for n in self.graph.nodes if not n.scatter and (found := _elementary(n))]
        for k, (late, functions) in enumerate(computed):
            for early, others in computed[:k]:
                if not functions.isdisjoint(others) and self.may_share(early, late):
                    self.made.append(Decision(_place(early), _place(late), "shared"))
                    self.become([_both(early, late) if n is late else n for n in self.graph.nodes if n is not early])
                    return True
        return False

    def may_share(self, early: Node, late: Node) -> bool:
        """Whether a node may be computed where a later one is, by the same loops."""
        if (early.reduction and late.reduction) or not _same_extents(early, late):
            return False
        place = self.graph.place(late)
        if any(self.at[r] <= self.at[late] for r in self.readers(early)) or len(early.sources) + len(late.sources) > MOST_INPUTS:
            return False
        return not self.passes_effects(early, place) and self.graph.may_run_at(early, place) and _fits(_both(early, late))


def _elementary(node: Node) -> set[Expr]:
    """The elementary functions that a node computes of each element."""
    if _ELEMENTARY.isdisjoint(node.ops):
        return set()
    return {e for e in walk(node.outputs) if e.op in _ELEMENTARY and any(x.op == "load" for x in e.below)}


def _both(early: Node, late: Node) -> Node:
    """One node with the results of two."""
    return replace(
        late,
        results=(*early.results, *late.results),
        outputs=(*early.outputs, *late.outputs),
        reduction=early.reduction or late.reduction,
        notes=(*early.notes, *late.notes, _note(early, "shares with", late)),
        joined=(*early.joined, early.span, *late.joined),
    )


def inlined(producer: Node, reader: Node) -> Node:
    """The reader with every load of the producer replaced by what is computed there."""
    value = dict(zip(producer.results, producer.outputs, strict=True))

    def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op != "load" or e.data.tensor not in value:
            return rebuild(e, args) if args else e
        view: View = e.data
        indices, guard = args[: len(view.shape)], args[len(view.shape) :]
        if view.shape != view.tensor.shape:
            indices = unflatten(flatten(indices, view.shape), view.tensor.shape)
        found = substitute(value[view.tensor], dict(enumerate(indices)))
        return under(guard[0], found) if guard else found

    new = by_ranges(reader, lambda roots, ranges: ranges.simplify_all(transform(roots, change)))
    notes = (*reader.notes, *producer.notes, _note(producer, "inlined into", reader))
    return replace(aligned(new), notes=notes, joined=(*producer.joined, producer.span, *reader.joined))


def under(guard: Expr, e: Expr) -> Expr:
    """What is computed where a guard holds, 0 elsewhere: no load in it happens there."""

    def change(x: Expr, args: tuple[Expr, ...]) -> Expr:
        if x.op != "load":
            return rebuild(x, args) if args else x
        rank = len(x.data.shape)
        own = args[rank:]
        return load(x.data.tensor, args[:rank], x.data.shape, op("and", guard, *own) if own else guard)

    guarded = transform([e], change)[0]
    return guarded if guarded.op == "load" else op("select", guard, guarded, zero(e.elem))


def _note(a: Node, how: str, b: Node) -> str:
    return f"{a.results[0].name} {how} {b.results[-1].name}"


# ---------------------------------------------------------------- what expressions cost


def cost(roots: tuple[Expr, ...]) -> int:
    """The price of computing expressions once, in additions. Index arithmetic is free."""
    return sum(map(_price, walk(roots)))


def _price(e: Expr) -> int:
    if e.op in ("add", "sub", "mul") and e.elem is Elem.I64:
        return 0
    return _COSTS.get(e.op, 1)


def cost_of_each(node: Node) -> int:
    """The price of an element of a node among those of a long row: what is the same for all of them, as their mean, is computed before, and
    costs no more than to read it.
    """
    last = node.rank - 1
    if last < 1 or (node.extents[last].value or LONG) < LONG:
        return cost(node.outputs)
    own: dict[Expr, None] = {}
    for e in walk(node.outputs):
        if (e.op == "axis" and e.data == last) or e.op == "apply" or any(a in own for a in e.args):
            own[e] = None
    return sum(map(_price, own)) + len({a for e in own for a in e.args if a not in own and _price(a)})


def is_movement(node: Node) -> bool:
    """Whether a node only moves elements, or gives a constant, with indices that are sums of axes and scalars."""
    for e in node.outputs:
        if e.op in ("const", "scalar"):
            continue
        if e.op != "load" or any(x.op in ("load", "apply") for x in e.below):
            return False
    return True


def is_once(e: Expr, node: Node) -> bool:
    """Whether a load reads each element at most once while its node runs (loops within which nothing changes aside).

    So it is if each index moves with one axis of its own, and the axes that do not occur are innermost.
    """
    seen: set[int] = set()
    for i in e.indices:
        own = axes_of([i])
        if len(own) > 1 or own & seen:
            return False
        if own:
            (k,) = own
            s = slope(i, k)
            if s is None or not s.value:
                return False
        seen |= own
    missing = set(range(len(node.domain))) - seen
    if node.reduction and node.reduction.order in ONE_BY_ONE:
        return not missing
    return missing == set(range(len(node.domain) - len(missing), len(node.domain)))


def has_factors(r: Reduction) -> bool:
    """Whether products are summed whose factors are better read than computed: those of reals in a chain, and of converted integers."""
    term = r.terms[0]
    return len(r.terms) == 2 or (r.op == "sum" and term.op == "mul" and term.elem.is_int and all(a.op == "convert" for a in term.args))


def is_read_once(e: Expr, node: Node) -> bool:
    """Whether a load moves with every axis of its node, so that no element of a factor is read twice."""
    return axes_of(e.indices) == set(range(len(node.domain))) and len(e.indices) == len(node.domain)


def reads_by_loads(reader: Node, node: Node) -> bool:
    """Whether a node reads another's results by loads only: neither as a whole tensor nor as the base of a scatter."""
    if reader.scatter and reader.scatter.base in node.results:
        return False
    return reader.wholes.isdisjoint(node.results)


def _same_extents(a: Node, b: Node) -> bool:
    return a.rank == b.rank and all(equal(m, n) for m, n in zip(a.extents, b.extents, strict=True))


def _fits(node: Node) -> bool:
    return len(walk(node.roots)) <= LARGEST and len(node.sources) <= MOST_INPUTS and _depth(node) <= DEEPEST


def _depth(node: Node) -> int:
    return max((e.depth for e in node.roots), default=0)

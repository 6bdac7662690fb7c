"""Blocks of rows: a matrix that exists only between products is never stored as a whole. Attention is derived from this.

    s[i, j] = sum[c] q[i, c] * k[j, c]  (-inf where j > i)          for blocks of rows i {
    m[i] = max[j] s[i, j]                                             s = .. for these rows, where j <= last i
    e[i, j] = exp(s[i, j] - m[i])                            ->       m, e, t, a = .. for these rows
    t[i] = sum[j] e[i, j];  a[i, j] = e[i, j] / t[i]                  y = a @ v for these rows }
    y[i, c] = sum[j] a[i, j] * v[j, c]

A group of nodes works on the same matrices [.., n, m], each of which only the group reads:

    scores  a product that makes a matrix          out   sum over j of a matrix times something: a row of the result for each row
    map     element by element                     down  sum over i of a matrix times something: added up from block to block
    row     a number for each row, reduced over j

What a block of rows needs of a matrix lies in a buffer of the work, so memory is linear in m. Where a matrix is read both by a group
and by what needs the result of the group (a derivative), its nodes are done twice, once in each group: two products
cost less than memory that grows with n * m. Numbers of rows are kept.

Where a mask makes a matrix constant beyond `j <= i + c`, and every reduction is indifferent to what becomes of that constant
(`exp(-inf)` is 0, which a sum does not see), columns that are beyond for every row of a block are skipped.

Requires: a fused graph of nodes that somebody needs. Preserves: every result to the bit, except that what is skipped is not multiplied
with 0: an infinite or NaN factor there is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from math import inf

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.reductions import ONE_BY_ONE
from tlc.tensor.graph.index import equal, poly_sum, to_poly
from tlc.tensor.graph.ir import Expr, Graph, Node, Tensor, axes_of, axis, rebuild, substitute, transform, walk
from tlc.tensor.graph.ir import load as load_of

MOST = 24  # nodes in a group
WIDE = 256  # elements of a row of what is multiplied up to which blocks of few rows are fast
SHORT = 64  # columns from which on a matrix is not stored


class Role(Enum):
    SCORES = "scores"
    MAP = "map"
    ROW = "row"
    OUT = "out"
    DOWN = "down"


@dataclass(frozen=True)
class Blocks:
    """Nodes over the rows of axis `depth`, in order, with their roles. `results` are what others read. With `reach`, what is more than
    so many columns right of the diagonal does not matter.
    """

    nodes: tuple[Node, ...]
    roles: tuple[Role, ...]
    depth: int
    results: tuple[Tensor, ...]
    reach: int | None

    @property
    def columns(self) -> Expr:
        """How many columns the matrices have."""
        return next(n for n, r in zip(self.nodes, self.roles, strict=True) if r is Role.SCORES).extents[self.depth + 1]

    def has(self, nodes: Sequence[Node]) -> Blocks:
        """The same group with its nodes as they are now."""
        by = {t: n for n in nodes for t in n.results}
        return replace(self, nodes=tuple(next(by[t] for t in n.results if t in by) for n in self.nodes))


Suits = Callable[[Sequence[Node], Sequence[Role], int], bool]  # nodes, their roles, and the axis of their rows


def find(graph: Graph, suits: Suits | None = None) -> tuple[Graph, list[Blocks]]:
    """The groups of a graph that suit a target, which may get nodes that do again what was done before."""
    banned: set[Tensor] = set()
    while True:
        plain = unmasked(graph.nodes)
        search = _Search(replace(graph, nodes=[plain.get(n, n) for n in graph.nodes], places=dict(graph.places)), banned, suits)
        again = search.run()
        if again is None:
            grouped = {n for g in search.found for n in g.nodes}
            old = {new: n for n, new in plain.items() if new not in grouped}
            search.graph.nodes = [old.get(n, n) for n in search.graph.nodes]
            return search.graph, search.found
        banned.add(again)


@dataclass
class _Group:
    depth: int
    rows: tuple[Expr, ...]  # the extents of the outer axes and of the rows
    columns: Expr
    members: dict[Node, Role]


class _Search:
    def __init__(self, graph: Graph, banned: set[Tensor], suits: Suits | None) -> None:
        self.graph = graph
        self.suits = suits
        self.banned = banned
        self.found: list[Blocks] = []
        self.taken: set[Tensor] = set()
        self.doubles: dict[Tensor, Tensor] = {}  # what is done again, and the result of the seed for which it was

    def run(self) -> Tensor | None:
        """Find the groups; gives the result of a node that had better not start one."""
        for node in list(self.graph.nodes):
            self.turn(node)
        taken = self.taken
        at = 0
        while at < len(self.graph.nodes):
            seed = self.graph.nodes[at]
            at += 1
            if seed.results[0] in taken | self.banned:
                continue
            group = self.start(seed)
            if group is None:
                continue
            for other in self.graph.nodes[at:]:
                more = self.start(other) if other.results[0] not in taken else None
                if more is not None and group.members.keys() & more.members.keys() and self.same_matrix(group, more):
                    union = replace(group, members=group.members | more.members)
                    if self.is_sound(union) and (self.pays(union) or not self.pays(group)):
                        group = union
            if not self.is_sound(group) or not self.pays(group):
                continue
            self.settle(group, seed)
            taken |= {t for n in group.members for t in n.results}
        late = next((first for t, first in self.doubles.items() if t not in taken), None)
        return late

    # ------------------------------------------------------------ turning

    def turn(self, node: Node) -> None:
        """A sum over rows of a matrix whose only reader turns it is made as it is read."""
        d = node.rank - 2
        if not _is_product(node) or len(node.results) != 1 or node.results[0] in self.graph.kept:
            return
        (result,) = node.results
        readers = [n for n in self.graph.nodes if result in n.sources]
        if len(readers) != 1 or readers[0].reduction or readers[0].scatter or len(readers[0].outputs) != 1 or readers[0].rank != node.rank:
            return
        (reader,) = readers
        (e,) = reader.outputs
        if e.op != "load" or e.data.tensor is not result or e.data.shape != result.shape or not _reads(e, (*range(d), d + 1, d), reader):
            return
        swap = {d: axis(d + 1), d + 1: axis(d)}
        turned = node.rebuilt(lambda e: substitute(e, swap))
        turned = replace(turned, results=reader.results, extents=reader.extents, notes=(*node.notes, *reader.notes))
        if self.start(turned) is None:
            return
        self.graph.nodes = [turned if n is reader else n for n in self.graph.nodes if n is not node]

    # ------------------------------------------------------------ growing

    def start(self, seed: Node) -> _Group | None:
        """A product that reads a matrix, and what makes that matrix."""
        r = seed.reduction
        if not _is_product(seed) or r is None:
            return None
        d = seed.rank - 2
        for term, other in (r.terms, r.terms[::-1]):
            if term.op != "load" or term.guard is not None or term.data.shape != term.data.tensor.shape or len(term.args) != seed.rank:
                continue
            outer = range(d)
            if _reads(term, (*outer, d, d + 2), seed) and d not in axes_of([other]):
                role, rows = Role.OUT, seed.extents[: d + 1]
            elif _reads(term, (*outer, d + 2, d), seed) and d not in axes_of([other]):
                role, rows = Role.DOWN, (*seed.extents[:d], r.extents[0])
            else:
                continue
            columns = r.extents[0] if role is Role.OUT else seed.extents[d]
            if columns.value is not None and columns.value < SHORT:
                continue
            group = _Group(d, rows, columns, {})
            if self.take(group, term.data.tensor, frozenset()) and Role.SCORES in group.members.values():
                group.members[seed] = role
                return group
        return None

    def take(self, group: _Group, tensor: Tensor, above: frozenset[Tensor]) -> bool:
        """Make the node of a tensor a member, and what it reads of the matrices; says whether it is one."""
        node = next((n for n in self.graph.nodes if tensor in n.results), None)
        if node is None or tensor in above or tensor in self.taken:
            return False
        if node in group.members:
            return True
        role = self.role(group, node)
        if role is None:
            return False
        read = _loaded(node.outputs) if role is Role.SCORES else _loaded(node.roots)
        inner = [t for t in read if self.take(group, t, above | set(node.results))]
        if node.rank == group.depth + 1 and not inner:
            return False
        group.members[node] = role
        return True

    def role(self, group: _Group, node: Node) -> Role | None:
        d = group.depth
        if node.scatter or "apply" in node.ops or not node.elems.isdisjoint((Elem.STR, Elem.KEY)):
            return None
        if node.rank not in (d + 1, d + 2) or not all(equal(a, b) for a, b in zip(node.extents[: d + 1], group.rows, strict=True)):
            return None
        r = node.reduction
        if node.rank == d + 2:
            if not equal(node.extents[d + 1], group.columns):
                return None
            if r is None:
                return Role.MAP
            if not _is_product(node):
                return None
            left, right = (axes_of([e]) for e in r.terms)
            apart = (d + 1 not in left and d not in right) or (d + 1 not in right and d not in left)
            return Role.SCORES if apart and all(e.op == "load" for e in r.terms) else None
        if r is None:
            return Role.MAP
        fine = len(r.extents) == 1 and len(r.terms) == 1 and r.op not in ("argmax", "argmin") and r.order not in ONE_BY_ONE
        return Role.ROW if fine and equal(r.extents[0], group.columns) else None

    def same_matrix(self, a: _Group, b: _Group) -> bool:
        pairs = zip((*a.rows, a.columns), (*b.rows, b.columns), strict=False)
        return a.depth == b.depth and all(equal(m, n) for m, n in pairs)

    # ------------------------------------------------------------ checking

    def ordered(self, group: _Group) -> list[Node]:
        return [n for n in self.graph.nodes if n in group.members]

    def is_sound(self, group: _Group) -> bool:
        """Whether the members may run together, where the last of them stood."""
        members = self.ordered(group)
        if len(members) > MOST:
            return False
        own = {t: group.members[n] for n in members for t in n.results}
        place = self.graph.place(members[-1])
        late = set(self.late(group))
        behind = {t for n in late for t in n.results}
        if any(behind & n.sources.keys() for n in members) or not all(self.may_wait(n, place) for n in late):
            return False
        for n in members:
            if not self.graph.may_run_at(n, place):
                return False
            kept = [t for t in n.results if t in self.graph.kept]
            if group.members[n] in (Role.SCORES, Role.MAP) and any(t.rank == group.depth + 2 for t in kept):
                return False
        return all(_reads_its_rows(n, role, own, group.depth) for n, role in group.members.items())

    def pays(self, group: _Group) -> bool:
        """Whether rows are reduced or masked in between, and what is multiplied is narrow: for products alone, large tiles and panels are
        better, and wide operands would be read from far for every block.
        """
        members = self.ordered(group)
        roles = [group.members[n] for n in members]
        if Role.ROW not in roles and reach(members, roles, group.depth) is None:
            return False
        if self.suits is not None and not self.suits(members, roles, group.depth):
            return False
        extents = [n.reduction.extents[0] if role is Role.SCORES and n.reduction else n.extents[-1] for n, role in group.members.items()]
        products = (Role.SCORES, Role.OUT, Role.DOWN)
        return all((e.value or 0) <= WIDE for e, role in zip(extents, group.members.values(), strict=True) if role in products)

    def late(self, group: _Group) -> list[Node]:
        """What stands before the last member, is none, and depends on the group."""
        members = self.ordered(group)
        behind = {t for n in members for t in n.results}
        out: list[Node] = []
        for n in self.graph.nodes[: self.graph.nodes.index(members[-1])]:
            if n not in group.members and behind & n.sources.keys():
                out.append(n)
                behind |= set(n.results)
        return out

    def may_wait(self, node: Node, place: int) -> bool:
        """Whether a node may run at a later place."""
        return not self.graph.may_stop(node) and self.graph.may_run_at(node, place)

    # ------------------------------------------------------------ settling

    def settle(self, group: _Group, seed: Node) -> None:
        """Make it a group; what others read of its matrices is done again for them."""
        members = self.ordered(group)
        matrices = {t for n in members if group.members[n] in (Role.SCORES, Role.MAP) for t in n.results if t.rank == group.depth + 2}
        others = [n for n in self.graph.nodes if n not in group.members]
        wanted = {t for n in others for t in n.sources} & matrices
        new: dict[Tensor, Tensor] = {}
        copies: list[Node] = []
        for n in reversed(members):
            if wanted & set(n.results):
                wanted |= set(n.sources) & matrices
        for n in members:
            if wanted & set(n.results):
                again = tuple(Tensor(t.name, t.elem, t.shape) for t in n.results)
                new |= dict(zip(n.results, again, strict=True))
                copies.append(replace(_reading(n, new), results=again, notes=(*n.notes, "done again")))
                for t in again:
                    self.graph.places[t] = self.graph.place(members[-1])
                    self.doubles[t] = seed.results[0]
        nodes: list[Node] = []
        late = self.late(group)
        for n in late:
            self.graph.places |= {t: max(self.graph.places.get(t, 0), self.graph.place(members[-1])) for t in n.results}
        for n in self.graph.nodes:
            if n not in late:
                nodes.append(n if n in group.members else _reading(n, new))
            if n is members[-1]:
                nodes += [*copies, *(_reading(x, new) for x in late)]
        self.graph.nodes = nodes
        read = {t for n in nodes if n not in group.members for t in n.sources} | set(self.graph.kept)
        results = tuple(t for n in members for t in n.results if t in read)
        roles = tuple(group.members[n] for n in members)
        self.found.append(Blocks(tuple(members), roles, group.depth, results, reach(members, roles, group.depth)))


def _is_product(node: Node) -> bool:
    """Whether a node of two axes or more is a chain of fused multiply-adds over one more axis."""
    r = node.reduction
    if r is None or node.scatter or node.rank < 2 or len(r.terms) != 2 or len(r.extents) != 1 or r.order != "chain":
        return False
    return not axes_of(r.extents) and r.terms[0].elem in (Elem.F32, Elem.F64)


def _reads(e: Expr, axes: Sequence[int], node: Node) -> bool:
    """Whether a load without a guard reads at these axes; one of extent 1 may be written as 0."""
    if len(e.args) != len(axes):
        return False
    return all(i is axis(k) or (i.value == 0 and node.domain[k].value == 1) for i, k in zip(e.args, axes, strict=True))


def _loaded(roots: Sequence[Expr]) -> list[Tensor]:
    return list(dict.fromkeys(e.data.tensor for e in walk(roots) if e.op == "load"))


def _reads_its_rows(node: Node, role: Role, own: Mapping[Tensor, Role], d: int) -> bool:
    """Whether a member reads matrices and numbers of its own rows only. What is made of a product of the matrix (`out`) may read what was
    made of another one: the same element, so that who has the one has the other, too.
    """
    row, column = {Role.OUT: (d, d + 2), Role.DOWN: (d + 2, d)}.get(role, (d, d + 1))
    inside = set(walk(node.reduction.terms)) if node.reduction else set()
    for e in node.loads:
        tensor: Tensor = e.data.tensor
        if tensor not in own:
            continue
        if e.data.shape != tensor.shape or (role is Role.SCORES and e in inside):
            return False
        if role in (Role.OUT, Role.DOWN) and e not in inside:
            same = len(tensor.shape) == node.rank and all(map(equal, tensor.shape, node.extents))
            if not (role is own[tensor] is Role.OUT and same and _reads(e, range(node.rank), node)):
                return False
            continue
        at = (*range(d), row, column) if tensor.rank == d + 2 else (*range(d), row)
        if not _reads(e, at, node):
            return False
    if role not in (Role.OUT, Role.DOWN):
        return True
    return node.reduction is not None and any(e.elem is node.reduction.terms[0].elem for e in node.outputs)


def _reading(node: Node, new: dict[Tensor, Tensor]) -> Node:
    """The node with loads of other tensors."""
    if not new.keys() & node.sources.keys():
        return node

    def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op == "load" and e.data.tensor in new:
            rank = len(e.data.shape)
            return load_of(new[e.data.tensor], args[:rank], e.data.shape, *args[rank:])
        return rebuild(e, args) if args else e

    roots = (*node.roots, *node.domain)
    changed = dict(zip(roots, transform(roots, change), strict=True))
    return node.rebuilt(lambda e: changed[e])


# ---------------------------------------------------------------- masks


def unmasked(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Products without the choices of factors that do not matter: where the product is not asked for, or the other factor is 0.

    s = select(m, sum of select(m, q, 1) * k, -inf)       d = select(m, .., 0);  sum of d * select(m, k, 1)
    """
    zeros: dict[Tensor, Expr] = {}
    out: dict[Node, Node] = {}
    for n in nodes:
        for t, e in zip(n.results, n.outputs, strict=True):
            mask = _where(e)
            if mask is not None:
                zeros[t] = mask
        r = n.reduction
        if r is None or not _is_product(n):
            continue
        masks = _asked_for(n.outputs)
        for e in _terms(r.terms):
            if e.op == "load" and e.data.tensor in zeros and e.data.shape == e.data.tensor.shape and e.guard is None:
                masks.add(substitute(zeros[e.data.tensor], dict(enumerate(e.args))))

        def plain(e: Expr, args: tuple[Expr, ...], masks: set[Expr] = masks) -> Expr:
            return args[1] if e.op == "select" and args[0] in masks else rebuild(e, args) if args else e

        terms = transform(r.terms, plain)
        if terms != r.terms:
            out[n] = replace(n, reduction=replace(r, terms=terms))
    return out


def _asked_for(outputs: Sequence[Expr]) -> set[Expr]:
    """The conditions under which alone outputs read the product: there is no use for it elsewhere."""
    found: dict[Expr, set[Expr]] = {}  # of what reads it
    for e in walk(outputs):
        readers = [a for a in e.args if a in found]
        if e.op == "acc":
            found[e] = set()
        elif e.op == "select" and readers == [e.args[1]]:
            found[e] = found[e.args[1]] | {e.args[0]}
        elif readers:
            found[e] = set.intersection(*(found[a] for a in readers))
    return set.intersection(*(found[e] for e in outputs if e in found)) if found else set()


def _where(root: Expr) -> Expr | None:
    """The condition outside of which an expression is 0."""
    found: dict[Expr, Expr | None] = {}
    for e in walk([root]):
        match e.op:
            case "select" if e.args[2].op == "const" and e.args[2].elem.is_real and e.args[2].data == 0:
                found[e] = e.args[0]
            case "mul":
                found[e] = next((m for m in map(found.get, e.args) if m is not None), None)
            case "div" | "neg":
                found[e] = found.get(e.args[0])
    return found.get(root)


def _terms(terms: Sequence[Expr]) -> list[Expr]:
    """Factors, and what a factor is where a condition holds."""
    return [x for e in terms for x in ((e, e.args[1]) if e.op == "select" else (e,))]


def reach(nodes: Sequence[Node], roles: Sequence[Role], d: int) -> int | None:
    """The c for which nothing beyond `j <= i + c` matters, if masks say so."""
    made = [n for n, role in zip(nodes, roles, strict=True) if role in (Role.SCORES, Role.MAP)]
    masks = [m for n in made for e in walk(n.outputs) if (m := _mask(e, d))]
    if not masks or min(c for c, _ in masks) < 0:
        return None
    values: dict[Tensor, float | None] = {}
    for n, role in zip(nodes, roles, strict=True):
        r = n.reduction
        if role in (Role.SCORES, Role.MAP):
            values |= {t: _beyond(e, values, d) for t, e in zip(n.results, n.outputs, strict=True) if t.rank == d + 2}
        elif r is not None:
            terms = [_beyond(e, values, d) for e in r.terms]
            neutral = {"sum": 0.0, "max": -inf, "min": inf}.get(r.op)
            if neutral is None or not any(t == neutral for t in terms):
                return None
    return max(c for c, _ in masks)


def _mask(e: Expr, d: int) -> tuple[int, Expr] | None:
    """A choice that is a constant where j > i + c: c and the constant."""
    if e.op != "select":
        return None
    cond, then, other = e.args
    if other.op == "const":
        known = [c for x in _conjuncts(cond) if (c := _within(x, d)) is not None]
        if known:
            return min(known), other
    if then.op == "const" and cond.op in ("lt", "le", "gt", "ge"):
        # j > i + c is the opposite of j <= i + c
        i_first = cond.args if cond.op in ("lt", "le") else cond.args[::-1]
        gap = poly_sum(to_poly(i_first[1]), {m: -k for m, k in to_poly(i_first[0]).items()})  # j - i - ..
        c = _offset(gap, d)
        if c is not None:
            return (c if cond.op in ("lt", "gt") else c - 1), then
    return None


def unmasked_inside(node: Node, d: int) -> Node:
    """The node for `j < i`, where all masks of a group that skips what is beyond the diagonal let through."""

    def plain(e: Expr, args: tuple[Expr, ...]) -> Expr:
        if e.op == "select" and _mask(e, d):
            return args[1] if all(_within(x, d) is not None for x in _conjuncts(e.args[0])) else rebuild(e, args)
        return rebuild(e, args) if args else e

    outputs = transform(node.outputs, plain)
    return node if outputs == node.outputs else replace(node, outputs=outputs)


def _conjuncts(e: Expr) -> list[Expr]:
    return [x for a in e.args for x in _conjuncts(a)] if e.op == "and" else [e]


def _within(e: Expr, d: int) -> int | None:
    """The c for which a comparison is j <= i + c."""
    if e.op not in ("lt", "le", "gt", "ge"):
        return None
    small, large = e.args if e.op in ("lt", "le") else e.args[::-1]
    c = _offset(poly_sum(to_poly(small), {m: -k for m, k in to_poly(large).items()}), d)  # j - i - c
    return None if c is None else c - (e.op in ("lt", "gt"))


def _offset(gap: dict[tuple[Expr, ...], int], d: int) -> int | None:
    """The c for which a polynomial is j - i - c."""
    rest = dict(gap)
    c = -rest.pop((), 0)
    return c if rest == {(axis(d + 1),): 1, (axis(d),): -1} else None


def _beyond(e: Expr, values: dict[Tensor, float | None], d: int) -> float | None:
    """What an expression is beyond the mask, if that is one number; all that is not known is finite."""
    match e.op:
        case "const":
            return float(e.data) if e.elem.is_real else None
        case "load":
            return values.get(e.data.tensor)
        case "select":
            mask = _mask(e, d)
            return _beyond(mask[1], values, d) if mask else None
    args = [_beyond(a, values, d) for a in e.args]
    match e.op, args:
        case (("sub" | "add"), [first, second]) if first == -inf and second != (inf if e.op == "add" else -inf):
            return -inf  # -inf and what is finite
        case "add", [first, second] if second == -inf and first != inf:
            return -inf
        case (("add" | "sub"), [first, second]) if first == 0 and second == 0:
            return 0.0
        case "exp", [first] if first == -inf:
            return 0.0
        case "mul", [first, second] if 0 in (first, second) and -inf not in (first, second):
            return 0.0  # 0 and what is finite
        case (("div" | "neg"), [first, *_]) if first == 0:
            return 0.0
        case "div", [first, second] if first == -inf and second is not None and 0 < second < inf:
            return -inf
        case "mul", [first, second] if -inf in (first, second) and any(x is not None and 0 < x < inf for x in (first, second)):
            return -inf
        case _:
            return None

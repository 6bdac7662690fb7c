"""The tensor graph: one shape of node. *For these indices, this scalar expression of loads at index expressions, reduced by
this operator, then finished by this expression.*

A `Node` iterates over its output axes (`extents`, numbered from 0). Without a reduction it stores `outputs`, scalar
expressions over the axes. With one, the reduced axes follow the output axes in number; `reduction.terms` is reduced over
them, and `outputs` may read the result as `acc` (`acc 0`; `argmax` gives one index a reduced axis: `acc 0`, `acc 1`, ...). With
a scatter, `outputs[0]` is added, in row-major order of the axes, to the element of the base at `scatter.targets`. Movement
(transpose, slice, pad, reshape, broadcast, gather) is nothing but loads at other indices.

Expressions are immutable and interned: equal expressions are one object, so sharing is kept, a comparison is `is`,
and every walk over an expression must remember what it has seen (a random number shares its parts twenty levels deep).
Build them with `const`, `axis`, `scalar`, `load`, `apply`, `acc` and `op`, which fold what is plain.

A `Tensor` is a value by identity: an input of the graph, or the result of one node. A load names the shape in which it reads the
tensor's cells (row-major), so that a reshape is a load with another shape and costs nothing. A `Scalar` is a value of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import inf
from typing import Any
from weakref import WeakValueDictionary

from tlc.frontend.ops import DTYPES, SCALAR_OPS, evaluate
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem


class Expr:
    """A scalar expression. `op` is a scalar op, or one of

    const   data is the value          axis    data is its number            scalar  data is a Scalar
    load    data is a View; of the args the first are the indices, one a dimension; a last one more is the guard, a bool: where it
            does not hold, nothing is read (the indices may lie out of range), and the value is 0
                                       apply   data is a function's name     whole   data is a Tensor; an argument of `apply` only
    acc     data is its number
    """

    __slots__ = ("__weakref__", "_below", "args", "data", "depth", "elem", "number", "op")

    def __init__(self, op: str, elem: Elem, args: tuple[Expr, ...], data: Any, number: int) -> None:
        self.op = op
        self.elem = elem
        self.args = args
        self.data = data
        self.number = number  # in order of creation: a deterministic order for sorting
        self.depth: int = 1 + max([a.depth for a in args]) if args else 1
        self._below: tuple[Expr, ...] | None = None if args else ()

    def __repr__(self) -> str:
        return f"<{self.op} {self.data if self.data is not None else ''}{self.args or ''}>"

    @property
    def below(self) -> tuple[Expr, ...]:
        """Every distinct expression in this one, operands before users. Passes walk over the same expressions again and again."""
        if self._below is None:
            found: dict[Expr, None] = {}
            stack = [(a, False) for a in reversed(self.args)]
            while stack:
                e, done = stack.pop()
                if done:
                    found[e] = None
                elif e not in found:
                    if e._below is not None:  # in this order too, but for what was found before
                        found.update(dict.fromkeys(e._below))
                        found[e] = None
                    else:
                        stack.append((e, True))
                        stack += [(a, False) for a in reversed(e.args)]
            self._below = tuple(found)
        return self._below

    @property
    def indices(self) -> tuple[Expr, ...]:
        """Of a load, where it reads."""
        return self.args[: len(self.data.shape)]

    @property
    def guard(self) -> Expr | None:
        """Of a load, the condition under which it reads, if it has one."""
        return self.args[-1] if len(self.args) > len(self.data.shape) else None

    @property
    def value(self) -> int | None:
        """The integer, if this is an integer constant."""
        if self.op != "const" or self.elem is not Elem.I64:
            return None
        assert isinstance(self.data, int)
        return self.data


@dataclass(frozen=True, eq=False)
class Scalar:
    """A value of the host that kernels take as an argument. Identity matters. `extent`: it is never negative."""

    name: str
    elem: Elem = Elem.I64
    extent: bool = False


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the host or the result of a node. Identity matters. `shape` is made of constants and scalars."""

    name: str
    elem: Elem
    shape: tuple[Expr, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class View:
    """A tensor's cells seen in a shape, which has as many cells as the tensor's own."""

    tensor: Tensor
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class Reduction:
    """`op` is a reducer, `order` one of ssa/ir.py; extents may read output axes and earlier reduced ones. `terms` is what is
    reduced: one expression, or the two factors of a product, which `step` adds to the sum: a fused multiply-add, or an op on words of
    several numbers. `quick` is an op that gives the same where a condition, which has no axes, holds.
    """

    op: str
    order: str
    extents: tuple[Expr, ...]
    terms: tuple[Expr, ...]
    step: str = "fma"
    quick: tuple[str, Expr] | None = None

    @property
    def roots(self) -> tuple[Expr, ...]:
        """Every expression that is evaluated, extents aside."""
        return self.terms + (self.quick[1:] if self.quick else ())

    def rebuilt(self, change: Callable[[Expr], Expr]) -> Reduction:
        """The reduction with every expression changed."""
        quick = (self.quick[0], change(self.quick[1])) if self.quick else None
        return replace(self, extents=tuple(map(change, self.extents)), terms=tuple(map(change, self.terms)), quick=quick)


@dataclass(frozen=True)
class Scatter:
    base: Tensor
    targets: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """See the module's text. One result an output; a node with a scatter has one result, of the base's shape."""

    results: tuple[Tensor, ...]
    extents: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    reduction: Reduction | None = None
    scatter: Scatter | None = None
    span: Span = NOWHERE
    notes: tuple[str, ...] = ()
    joined: tuple[Span, ...] = ()  # where the nodes stand that became part of this one

    @property
    def rank(self) -> int:
        return len(self.extents)

    @property
    def domain(self) -> tuple[Expr, ...]:
        """The extents of all axes, reduced ones last."""
        return self.extents + (self.reduction.extents if self.reduction else ())

    @property
    def roots(self) -> tuple[Expr, ...]:
        """Every expression that is evaluated, extents aside."""
        more = self.reduction.roots if self.reduction else ()
        return self.outputs + more + (self.scatter.targets if self.scatter else ())

    @cached_property
    def sources(self) -> Mapping[Tensor, None]:
        """The tensors that the node reads, in order. Passes ask it of every node again and again."""
        out: dict[Tensor, None] = {}
        for e in walk((*self.roots, *self.domain)):
            if e.op == "load":
                out[e.data.tensor] = None
            elif e.op == "whole":
                out[e.data] = None
        if self.scatter:
            out[self.scatter.base] = None
        return out

    @cached_property
    def loads(self) -> tuple[Expr, ...]:
        """Every distinct load, extents included."""
        return tuple([e for e in walk((*self.roots, *self.domain)) if e.op == "load"])

    @cached_property
    def wholes(self) -> frozenset[Tensor]:
        """The tensors that functions get."""
        return frozenset([e.data for e in walk(self.roots) if e.op == "whole"])

    @cached_property
    def ops(self) -> frozenset[str]:
        """The ops of the expressions that are evaluated, extents aside."""
        return frozenset([e.op for e in walk(self.roots)])

    @cached_property
    def elems(self) -> frozenset[Elem]:
        """Their types."""
        return frozenset([e.elem for e in walk(self.roots)])

    def rebuilt(self, change: Callable[[Expr], Expr]) -> Node:
        """The node with every expression changed."""
        r, s = self.reduction, self.scatter
        return Node(
            self.results,
            tuple(map(change, self.extents)),
            tuple(map(change, self.outputs)),
            r.rebuilt(change) if r else None,
            Scatter(s.base, tuple(map(change, s.targets))) if s else None,
            self.span,
            self.notes,
            self.joined,
        )


@dataclass(eq=False)
class Graph:
    """Nodes of one basic block in an order in which they can run. `kept` are the results that the host needs as tensors.

    `places` says where in the block each result came to be; `taken` where the host first takes a tensor over, to change it: a
    load that moves behind that place would cost a copy. `wanted` says where the host first reads a kept result in the block.
    `stopping` are the applied functions that may stop the program, `effects` the places in the block of what acts on the world
    or may stop: those keep their order.
    """

    name: str
    nodes: list[Node] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)
    places: dict[Tensor, int] = field(default_factory=dict)
    taken: dict[Tensor, int] = field(default_factory=dict)
    wanted: dict[Tensor, int] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    effects: list[int] = field(default_factory=list)

    def may_stop(self, node: Node) -> bool:
        """Whether an element of the node may stop the program."""
        return bool(self.stopping) and "apply" in node.ops and any(e.op == "apply" and e.data in self.stopping for e in walk(node.roots))

    def may_read_at(self, node: Node, place: int) -> bool:
        """Whether a node may read at a place in the block: a tensor that the host took over before would have to be copied."""
        return all(place <= self.taken.get(t, inf) for t in node.sources)

    def may_give_at(self, node: Node, place: int) -> bool:
        """Whether the host reads the kept results of a node only from a place on."""
        return all(place <= self.wanted.get(t, inf) for t in node.results if t in self.kept)

    def may_run_at(self, node: Node, place: int) -> bool:
        """Whether a node may run at a place, as far as what the host takes over and reads is concerned."""
        return self.may_read_at(node, place) and self.may_give_at(node, place)

    def place(self, node: Node) -> int:
        """Where a node runs: with the last of its results."""
        return max(self.places.get(t, 0) for t in node.results)


# ---------------------------------------------------------------- building expressions

_interned: WeakValueDictionary[Any, Expr] = WeakValueDictionary()
_numbers = iter(range(1 << 62))


def _intern(op: str, elem: Elem, args: tuple[Expr, ...] = (), data: Any = None, key: Any = None) -> Expr:
    k = (op, elem, args, data if key is None else key)
    found = _interned.get(k)
    if found is None:
        found = Expr(op, elem, args, data, next(_numbers))
        _interned[k] = found
    return found


def const(value: bool | int | float | str, elem: Elem = Elem.I64) -> Expr:
    """A constant, held in the precision of its type."""
    if elem is not Elem.STR:
        value = DTYPES[elem].type(value).item()
    return _intern("const", elem, (), value, repr(value))


def axis(number: int) -> Expr:
    return _intern("axis", Elem.I64, (), number)


def scalar(s: Scalar) -> Expr:
    return _intern("scalar", s.elem, (), s)


def whole(t: Tensor) -> Expr:
    return _intern("whole", t.elem, (), t)


def acc(number: int, elem: Elem) -> Expr:
    return _intern("acc", elem, (), number)


def load(tensor: Tensor, indices: Sequence[Expr], shape: Sequence[Expr] | None = None, guard: Expr | None = None) -> Expr:
    view = View(tensor, tensor.shape if shape is None else tuple(shape))
    assert len(view.shape) == len(indices), (tensor.name, len(view.shape), len(indices))
    if guard is not None and guard.op == "const":
        if not guard.data:
            return zero(tensor.elem)
        guard = None
    return _intern("load", tensor.elem, (*indices, *(() if guard is None else (guard,))), view)


def zero(elem: Elem) -> Expr:
    """What a load gives whose guard does not hold."""
    return const(False if elem is Elem.BOOL else 0.0 if elem.is_real else 0, elem)


def apply(function: str, elem: Elem, args: Sequence[Expr]) -> Expr:
    return _intern("apply", elem, tuple(args), function)


def op(name: str, *args: Expr, elem: Elem | None = None) -> Expr:
    """A scalar op; `elem` is needed where the row says `type`. Constants fold, and so do identities of integers."""
    row = SCALAR_OPS[name]
    if row.gives == "bool":
        elem = Elem.BOOL
    elif row.gives == "same":
        elem = args[-1].elem
    assert elem is not None, name
    known = [a.op == "const" and a.elem is not Elem.STR for a in args]
    if all(known) and elem not in (Elem.STR, Elem.KEY):
        return const(evaluate(name, elem, ((a.data, a.elem) for a in args)), elem)
    if name == "convert" and args[0].elem is elem:
        return args[0]
    if elem is Elem.I64 and len(args) == 2 and any(known):
        a, b = args
        match name, a.value, b.value:
            case ("add", 0, _):
                return b
            case ("add" | "sub", _, 0):
                return a
            case ("mul", 1, _):
                return b
            case ("mul" | "floordiv", _, 1):
                return a
            case ("mul", 0, _) | ("mul", _, 0):
                return const(0)
            case ("mod", _, 1):
                return const(0)
            case _:
                pass
    if name == "select" and args[0].op == "const":
        return args[1] if args[0].data else args[2]
    if elem is Elem.BOOL and name in ("and", "or"):
        for a, b in (args, args[::-1]):
            if a.op == "const":
                return b if a.data == (name == "and") else a
        if args[0] is args[1]:
            return args[0]
    return _intern(name, elem, tuple(args))


def rebuild(e: Expr, args: Sequence[Expr], view: View | None = None) -> Expr:
    """The same expression over other arguments."""
    if args == e.args and view is None:
        return e
    match e.op:
        case "load":
            v: View = view or e.data
            rank = len(e.data.shape)
            return load(v.tensor, args[:rank], v.shape, args[rank] if len(args) > rank else None)
        case "apply":
            return apply(str(e.data), e.elem, args)
        case "const" | "axis" | "scalar" | "whole" | "acc":
            return e
        case _:
            return op(e.op, *args, elem=e.elem)


# ---------------------------------------------------------------- walking expressions


def walk(roots: Sequence[Expr]) -> Collection[Expr]:
    """Every distinct expression under the roots, operands before users."""
    if len(roots) == 1:
        return (*roots[0].below, roots[0])
    found: dict[Expr, None] = {}
    for root in roots:
        if root not in found:
            found.update(dict.fromkeys(root.below))
            found[root] = None
    return found


def transform(roots: Sequence[Expr], change: Callable[[Expr, tuple[Expr, ...]], Expr]) -> tuple[Expr, ...]:
    """Rebuild expressions bottom up; `change` gets an expression and its changed arguments."""
    done: dict[Expr, Expr] = {}
    for e in walk(roots):
        done[e] = change(e, tuple(map(done.__getitem__, e.args)))
    return tuple(map(done.__getitem__, roots))


def substitute(e: Expr, axes: dict[int, Expr], accs: Sequence[Expr] = ()) -> Expr:
    """Replace axes, and results of the reduction where `accs` gives any."""

    def change(x: Expr, args: tuple[Expr, ...]) -> Expr:
        if x.op == "axis":
            number: int = x.data
            return axes.get(number, x)
        if x.op == "acc" and accs:
            which: int = x.data
            return accs[which]
        return rebuild(x, args) if args else x

    return transform([e], change)[0]


def axes_of(roots: Sequence[Expr]) -> frozenset[int]:
    """The numbers of the axes that expressions depend on."""
    return frozenset(e.data for e in walk(roots) if e.op == "axis")

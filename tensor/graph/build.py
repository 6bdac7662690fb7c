"""From one basic block of host SSA to a tensor graph.

Requires: flattened regions (`tensor/flatten.py`): they yield scalars and hold scalar instructions and reads of outside
tensors; at most one of the instructions is a `reduce`. What is not of that form is outlined (`tensor/outline.py`) and applied.

    y = tabulate n, 10 { (i, j):                          node y: f32[n, 10] = for i0 < n, i1 < 10
          s = reduce 784 {op = sum, order = chain}           sum chain i2 < 784 of mul(x[i0, i2], w[i2, i1])
                { (k): .. yield mul(x[i, k], w[k, j]) }      add(acc 0, b[i1])
          yield add(s, b[j]) }
    z = reshape y, n, 5, 2                                 no node: later loads of z are loads of y in another shape
    u = index z, 3                                         node u = for i0 < 5, i1 < 2: z[3, i0, i1]
"""

from __future__ import annotations

import re
from dataclasses import field

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.calls import callee_of
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Terminator, Value, const_of
from tlc.ssa.ops import ROWS
from tlc.ssa.reductions import product
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.graph.index import by_ranges
from tlc.tensor.graph.ir import (
    Expr,
    Graph,
    Node,
    Reduction,
    Scalar,
    Scatter,
    Tensor,
    View,
    acc,
    apply,
    axis,
    const,
    load,
    op,
    scalar,
    whole,
)
from tlc.tensor.outline import can_fail, outline

_RESERVED = re.compile(r"(i|t|acc)\d+")  # names of axes, lets and results in the text of graphs
_TAKES = ("update", "scatter", "push")  # instructions that take over their first operand


@dataclass(eq=False)
class Built:
    """A graph with what ties it to the host: the host's values of inputs (a scalar may be an extent that the host has to ask
    for) and of the results of nodes, and the instructions that the nodes replace, in order.
    """

    graph: Graph
    block: Block
    tensors: dict[Tensor, Value] = field(default_factory=dict)
    scalars: dict[Scalar, Key] = field(default_factory=dict)
    results: dict[Tensor, Value] = field(default_factory=dict)
    replaced: list[Instr] = field(default_factory=list)


def build(module: Module, function: Function, block: Block, extents: Extents) -> Built:
    """The graph of a block. May add outlined functions to the module."""
    return _Builder(module, function, block, extents).run()


class _Opaque(Exception):
    """A region is no scalar expression."""


class _Builder:
    def __init__(self, module: Module, function: Function, block: Block, extents: Extents) -> None:
        self.module = module
        self.function = function
        self.block = block
        self.extents = extents
        self.built = Built(Graph(f"{function.name}.{block.name}"), block)
        self.views: dict[Value, View] = {}
        self.leaves: dict[Key, Scalar] = {}
        self.readers: set[Instr] = set()  # instructions that became (part of) nodes

    def run(self) -> Built:
        for instr in self.block.instrs:
            match instr.op:
                case "tabulate" if all(r.type.rank == len(instr.operands) for r in instr.results):
                    self.node(instr, self.tabulate(instr))
                case "reduce":
                    self.node(instr, self.reduce(instr))
                case "scatter":
                    self.node(instr, self.scatter(instr))
                case "index" if instr.result.type.rank:
                    self.node(instr, self.part(instr))
                case "reshape" if instr.result.type.rank:
                    self.reshape(instr)
                case _:
                    pass
        graph = self.built.graph
        place = {instr: k for k, instr in enumerate(self.block.instrs)}
        stops = {t for node in graph.nodes if graph.may_stop(node) for t in node.results}
        effects = {place[v.owner] for t, v in self.built.results.items() if t in stops and isinstance(v.owner, Instr)}
        graph.effects = sorted(effects | {k for i, k in place.items() if i.op in ROWS and ROWS[i.op].effect != "none"})
        for t, v in self.built.results.items():
            if self.needed(v) or t in stops:
                graph.kept.append(t)
                graph.wanted[t] = min((place[u] for u in v.uses if isinstance(u, Instr) and u in place), default=len(place))
            if isinstance(v.owner, Instr):
                graph.places[t] = place[v.owner]
        for t, v in (*self.built.results.items(), *self.built.tensors.items()):
            taking = [place[u] for u in v.uses if isinstance(u, Instr) and u in place and u.op in _TAKES and u.operands[0] is v]
            if taking:
                graph.taken[t] = min(taking)
        return self.built

    def needed(self, v: Value) -> bool:
        """Whether something that is no node reads a value, itself or reshaped. A scalar comes to nodes from the host too."""
        return (v.type.rank == 0 and bool(v.uses)) or any(
            user not in self.readers or (isinstance(user, Instr) and user.op == "reshape" and self.needed(user.result)) for user in v.uses
        )

    # ------------------------------------------------------------ leaves

    def key(self, key: Key, extent: bool = False) -> Expr:
        """A host scalar, a constant where it is known."""
        if isinstance(key, int):
            return const(key)
        if isinstance(key, Value) and (value := const_of(key)) is not None:
            return const(value, key.type.elem)
        if key not in self.leaves:
            known = extent or isinstance(key, Axis) or self.is_extent(key)
            name = f"{key.tensor.name or 't'}.{key.axis}" if isinstance(key, Axis) else key.name or "s"
            elem = key.type.elem if isinstance(key, Value) else Elem.I64
            leaf = Scalar(self.unique(name), elem, known)
            self.leaves[key] = leaf
            self.built.scalars[leaf] = key
        return scalar(self.leaves[key])

    def is_extent(self, key: Key) -> bool:
        """Whether this block iterates over the value, so that it is not negative."""
        return isinstance(key, Value) and any(
            isinstance(u, Instr) and u.block is self.block and u.op in ("tabulate", "reduce", "scatter") and _is_extent(u, key)
            for u in key.uses
        )

    def unique(self, name: str) -> str:
        name = "".join(c if c.isalnum() or c in "_." else "_" for c in name).strip(".") or "v"
        if name[0].isdigit() or _RESERVED.fullmatch(name):
            name = f"v{name}"
        taken = {s.name for s in self.built.scalars} | {t.name for t in (*self.built.tensors, *self.built.results)}
        if name not in taken:
            return name
        k = 1
        while f"{name}_{k}" in taken:
            k += 1
        return f"{name}_{k}"

    def extent(self, value: Value) -> Expr:
        return self.key(self.extents.key(value), extent=True)

    def view(self, value: Value) -> View:
        """A tensor of the host: a result of a node, or an input."""
        if value not in self.views:
            tensor = Tensor(self.unique(value.name or "x"), value.type.elem, tuple(self.key(k) for k in self.extents.all(value)))
            self.built.tensors[tensor] = value
            self.views[value] = View(tensor, tensor.shape)
        return self.views[value]

    def itself(self, value: Value) -> Tensor:
        """A tensor of the host for who cannot read it in another shape: a reshaped one becomes an input of its own."""
        view = self.view(value)
        if view.shape != view.tensor.shape:
            tensor = Tensor(self.unique(value.name or "x"), value.type.elem, view.shape)
            self.built.tensors[tensor] = value
            self.views[value] = View(tensor, tensor.shape)
        return self.views[value].tensor

    # ------------------------------------------------------------ instructions

    def node(self, instr: Instr, node: Node) -> None:
        self.built.graph.nodes.append(by_ranges(node, lambda roots, ranges: ranges.simplify_all(roots)))
        self.built.replaced.append(instr)
        self.readers.add(instr)

    def results(self, instr: Instr, shape: tuple[Expr, ...]) -> tuple[Tensor, ...]:
        out = []
        for v in instr.results:
            t = Tensor(self.unique(v.name or "y"), v.type.elem, shape)
            self.built.results[t] = v
            if shape:
                self.views[v] = View(t, shape)
            out.append(t)
        return tuple(out)

    def tabulate(self, instr: Instr) -> Node:
        extents = tuple(map(self.extent, instr.operands))
        region = _Region(self, instr.regions[0], [axis(k) for k in range(len(extents))])
        outputs = region.yielded()
        return Node(self.results(instr, extents), extents, outputs, region.reduction, span=instr.span)

    def reduce(self, instr: Instr) -> Node:
        outer = _Region(self, None, [])
        outer.reduce(instr)
        outputs = tuple(acc(k, v.type.elem) for k, v in enumerate(instr.results))
        return Node(self.results(instr, ()), (), outputs, outer.reduction, span=instr.span)

    def scatter(self, instr: Instr) -> Node:
        base, *ns = instr.operands
        extents = tuple(map(self.extent, ns))
        region = _Region(self, instr.regions[0], [axis(k) for k in range(len(extents))])
        *targets, value = region.yielded()
        tensor = self.itself(base)
        (result,) = self.results(instr, tensor.shape)
        return Node((result,), extents, (value,), region.reduction, Scatter(tensor, tuple(targets)), instr.span)

    def part(self, instr: Instr) -> Node:
        view = self.view(instr.operands[0])
        lead = [self.key(i) for i in instr.operands[1:]]
        shape = view.shape[len(lead) :]
        e = load(view.tensor, [*lead, *(axis(k) for k in range(len(shape)))], view.shape)
        return Node(self.results(instr, shape), shape, (e,), span=instr.span)

    def reshape(self, instr: Instr) -> None:
        """Later loads read the source's cells; the instruction stays for those who need the tensor itself."""
        x, *ns = instr.operands
        self.views[instr.result] = View(self.view(x).tensor, tuple(map(self.extent, ns)))
        self.readers.add(instr)

    def outlined(self, region: Region, value: Value, indices: list[Expr], known: dict[Value, Expr]) -> Expr:
        """An application of a function that computes one value of a region."""
        function, captured = outline(self.module, region, value, f"{self.function.name}.region")
        args = list(indices)
        for v in captured:
            if v.type.rank:
                args.append(whole(self.itself(v)))
            else:
                args.append(known.get(v) or self.key(v))
        return self.applied(function.name, function.results[0].elem, args)

    def applied(self, function: str, elem: Elem, args: list[Expr]) -> Expr:
        if can_fail(self.module, function):
            self.built.graph.stopping.add(function)
        return apply(function, elem, args)


class _Region:
    """The translation of one region to expressions over the axes of a node."""

    def __init__(self, builder: _Builder, region: Region | None, indices: list[Expr]) -> None:
        self.builder = builder
        self.region = region
        self.indices = indices
        self.values: dict[Value, Expr] = {}
        self.reduction: Reduction | None = None

    def yielded(self) -> tuple[Expr, ...]:
        region = self.region
        assert region is not None
        before = set(self.builder.readers)
        try:
            return self.straight(region, self.indices)
        except _Opaque:
            self.builder.readers = before
            self.reduction = None
        return tuple(self.builder.outlined(region, v, self.indices, {}) for v in _end(region).operands)

    def straight(self, region: Region, indices: list[Expr]) -> tuple[Expr, ...]:
        if len(region.blocks) != 1:
            raise _Opaque
        self.values.update(zip(region.entry.params, indices, strict=True))
        for instr in region.entry.instrs:
            self.instr(instr)
        end = region.entry.terminator
        if end.op != "yield":
            raise _Opaque
        return tuple(self.value(v) for v in end.operands)

    def value(self, v: Value) -> Expr:
        return self.values.get(v) or self.builder.key(v)

    def instr(self, instr: Instr) -> None:
        match instr.op:
            case "const":
                value = instr.attrs["value"]
                assert isinstance(value, bool | int | float | str)
                self.values[instr.result] = const(value, instr.result.type.elem)
            case "index" if instr.result.type.rank == 0:
                self.builder.readers.add(instr)
                view = self.builder.view(instr.operands[0])
                self.values[instr.result] = load(view.tensor, [self.value(v) for v in instr.operands[1:]], view.shape)
            case "index_if":
                self.builder.readers.add(instr)
                cond, tensor, *indices = instr.operands
                view = self.builder.view(tensor)
                self.values[instr.result] = load(view.tensor, [self.value(v) for v in indices], view.shape, self.value(cond))
            case "dim":
                number = instr.attrs["axis"]
                assert isinstance(number, int)
                self.builder.readers.add(instr)
                self.values[instr.result] = self.builder.view(instr.operands[0]).shape[number]
            case "stop_grad" | "barrier" if instr.result.type.rank == 0:
                self.values[instr.result] = self.value(instr.operands[0])
            case "reduce":
                self.reduce(instr)
            case "call" if len(instr.results) == 1 and all(v.type.rank == 0 for v in (*instr.operands, instr.result)):
                args = [self.value(v) for v in instr.operands]
                self.values[instr.result] = self.builder.applied(callee_of(instr), instr.result.type.elem, args)
            case name if name in SCALAR_OPS:
                args = [self.value(v) for v in instr.operands]
                self.values[instr.result] = op(name, *args, elem=instr.result.type.elem)
            case _:
                raise _Opaque

    def reduce(self, instr: Instr) -> None:
        if self.reduction is not None:
            raise _Opaque
        extents = tuple(self.values.get(v) or self.builder.extent(v) for v in instr.operands)
        region = instr.regions[0]
        indices = [axis(len(self.indices) + k) for k in range(len(extents))]
        inner = _Region(self.builder, region, indices)
        inner.values = dict(self.values)
        inner.reduction = Reduction("", "", (), ())  # a nested one is opaque
        before = set(self.builder.readers)
        (yielded,) = _end(region).operands
        fused = product(instr, yielded)
        terms = fused.operands if fused else (yielded,)
        try:
            inner.straight(region, indices)
            exprs = tuple(map(inner.value, terms))
        except _Opaque:
            self.builder.readers = before
            exprs = tuple(self.builder.outlined(region, v, indices, self.values) for v in terms)
        self.reduction = Reduction(str(instr.attrs["op"]), str(instr.attrs["order"]), extents, exprs)
        for k, v in enumerate(instr.results):
            self.values[v] = acc(k, v.type.elem)


def _end(region: Region) -> Terminator:
    (end,) = (b.terminator for b in region.blocks if b.terminator.op == "yield")
    return end


def _is_extent(instr: Instr, value: Value) -> bool:
    skip = 1 if instr.op == "scatter" else 0
    return value in instr.operands[skip:]

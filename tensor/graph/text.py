"""The text form of graphs (`.tg`): `print_graph` and its inverse `parse_graph`.

    graph main.entry {
      scalar n: i64 extent
      input x: f32[n, 784]
      input w: f32[784, 10]
      view x.v0: x[n, 28, 28]
      node y: f32[n, 10] = for i0 < n, i1 < 10 {
        let t0 = x[i0, i1]
        sum chain i2 < 784 of x[i0, i2], w[i2, i1]
        yield max(acc0, 0.0f32) * t0
      }
      keep y
    }

Expressions are written as in kernels (`tensor/kernel/text.py`); `acc0` is the result of the reduction. A `view` is a
tensor's memory in another shape. `let` names what is used more than once. A node with several results has them separated
by commas; `x[e if c]` is a guarded load; `scatter base at e, e` stands before `yield` in one that scatters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field

from tlc.frontend.records import dataclass
from tlc.frontend.source import Source
from tlc.frontend.types import Elem
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
    walk,
    whole,
)
from tlc.tensor.kernel import ir as kernel
from tlc.tensor.kernel.text import Parser, print_expr

# ---------------------------------------------------------------- printing


def print_graph(graph: Graph) -> str:
    """The graph as text that `parse_graph` reads back."""
    p = _Printer()
    nodes = [line for node in graph.nodes for line in p.node(node)]
    made = {t for node in graph.nodes for t in node.results}
    inputs = dict.fromkeys(t for node in graph.nodes for t in node.sources if t not in made)
    for t in (*inputs, *graph.kept):
        p.shape(t.shape)
    lines = [f"scalar {s.name}: {s.elem}{' extent' if s.extent else ''}" for s in p.scalars]
    lines += [f"input {t.name}: {t.elem}{p.shape(t.shape)}" for t in inputs]
    lines += nodes
    lines += [f"keep {t.name}" for t in graph.kept]
    return "\n".join([f"graph {graph.name} {{", *(f"  {line}" for line in lines), "}"]) + "\n"


def print_graphs(graphs: Iterable[Graph]) -> str:
    return "\n".join(map(print_graph, graphs))


@dataclass(eq=False)
class _Printer:
    scalars: dict[Scalar, None] = field(default_factory=dict)
    views: dict[View, str] = field(default_factory=dict)
    lets: dict[Expr, str] = field(default_factory=dict)

    def shape(self, extents: tuple[Expr, ...]) -> str:
        return f"[{', '.join(self.text(e) for e in extents)}]"

    def node(self, node: Node) -> Iterator[str]:
        self.lets = {}
        uses: dict[Expr, int] = {}
        roots = (*node.roots, *node.domain)
        for e in walk(roots):
            for a in e.args:
                uses[a] = uses.get(a, 0) + 1
        known = dict(self.views)
        before: list[str] = []
        after: list[str] = []  # what reads the result of the reduction
        late: set[Expr] = set()
        for e in walk(roots):
            if e.op == "acc" or any(a in late for a in e.args):
                late.add(e)
            if uses.get(e, 0) > 1 and e.args:
                text = self.text(e)
                self.lets[e] = f"t{len(self.lets)}"
                (after if e in late else before).append(f"  let {self.lets[e]} = {text}")
        results = ", ".join(f"{t.name}: {t.elem}{self.shape(t.shape)}" for t in node.results)
        body = [*before]
        if node.reduction:
            r = node.reduction
            terms = ", ".join(map(self.text, r.terms))
            step = f" by {r.step}" if r.step != "fma" else ""
            quick = f" or {r.quick[0]} if {self.text(r.quick[1])}" if r.quick else ""
            body.append(f"  {r.op} {r.order} {self.axes(r.extents, node.rank)} of {terms}{step}{quick}")
        body += after
        if node.scatter:
            body.append(f"  scatter {node.scatter.base.name} at {', '.join(map(self.text, node.scatter.targets))}")
        body.append(f"  yield {', '.join(map(self.text, node.outputs))}")
        made = {v: name for v, name in self.views.items() if v not in known}
        yield from (f"view {name}: {v.tensor.name}{self.shape(v.shape)}" for v, name in made.items())
        yield f"node {results} = for {self.axes(node.extents, 0)} {{".replace("for  {", "{")
        yield from body
        yield "}"

    def axes(self, extents: tuple[Expr, ...], start: int) -> str:
        return ", ".join(f"i{start + k} < {self.text(e)}" for k, e in enumerate(extents))

    def text(self, e: Expr) -> str:
        return print_expr(self.convert(e))

    def convert(self, e: Expr) -> kernel.Expr:
        """The same expression as a kernel's, for its printer."""
        if e in self.lets:
            return kernel.Var(self.lets[e], e.elem)
        match e.op:
            case "const":
                return kernel.Const(e.data, e.elem)
            case "axis":
                return kernel.Var(f"i{e.data}")
            case "acc":
                return kernel.Var(f"acc{e.data}", e.elem)
            case "scalar":
                self.scalars[e.data] = None
                return kernel.Var(e.data.name, e.elem)
            case "load":
                guard = None if e.guard is None else self.convert(e.guard)
                return kernel.Load(self.buffer(e.data), tuple(self.convert(a) for a in e.indices), guard)
            case "apply":
                args = tuple(kernel.Buffer(a.data.name, a.elem, ()) if a.op == "whole" else self.convert(a) for a in e.args)
                return kernel.Apply(e.data, e.elem, args)
            case _:
                return kernel.Op(e.op, e.elem, tuple(self.convert(a) for a in e.args))

    def buffer(self, v: View) -> kernel.Buffer:
        name = v.tensor.name
        if v.shape != v.tensor.shape:
            name = self.views.setdefault(v, f"{name}.v{len(self.views)}")
        return kernel.Buffer(name, v.tensor.elem, ())


# ---------------------------------------------------------------- parsing


def parse_graph(text: str, path: str = "<graph>") -> Graph:
    """The graph of a text; raises `CompileError` at the first mistake."""
    return _Parser(Source(path, text)).graph()


class _Parser(Parser):
    """The kernels' parser of expressions; `convert` turns those into the graph's."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.scalars: dict[str, Scalar] = {}
        self.views: dict[str, View] = {}
        self.lets: dict[str, Expr] = {}

    def lookup(self, name: str) -> kernel.Var | kernel.Buffer:
        """Axes need no declaration: a `let` may read one of the reduction that stands below it."""
        return kernel.Var(name) if re.fullmatch(r"i\d+", name) else super().lookup(name)

    def graph(self) -> Graph:
        self.expect("graph")
        graph = Graph(self.ident())
        self.expect("{")
        while not self.eat("}"):
            if self.eat("scalar"):
                name = self.ident()
                self.expect(":")
                elem = self.elem()
                self.scalars[name] = Scalar(name, elem, self.eat("extent"))
                self.names[name] = kernel.Var(name, elem)
            elif self.eat("input"):
                self.declare()
            elif self.eat("view"):
                name = self.ident()
                self.expect(":")
                source = self.views[self.ident()].tensor
                self.define(name, View(source, self.exprs()))
            elif self.eat("keep"):
                graph.kept.append(self.views[self.ident()].tensor)
            else:
                self.expect("node")
                graph.nodes.append(self.node())
        return graph

    def declare(self) -> Tensor:
        name = self.ident()
        self.expect(":")
        elem = self.elem()
        shape = self.exprs()
        tensor = Tensor(name, elem, shape)
        self.define(name, View(tensor, shape))
        return tensor

    def define(self, name: str, view: View) -> None:
        self.views[name] = view
        self.names[name] = kernel.Buffer(name, view.tensor.elem, ())

    def exprs(self) -> tuple[Expr, ...]:
        return tuple(map(self.convert, self.indices()))

    def some(self) -> tuple[Expr, ...]:
        out = [self.convert(self.expr())]
        while self.eat(","):
            out.append(self.convert(self.expr()))
        return tuple(out)

    def axes(self) -> tuple[Expr, ...]:
        """`i0 < n, i1 < m`: the extents; a comparison binds looser, so an extent is read above it."""
        out = []
        while self.token.text.startswith("i") and self.tokens[self.position + 1].text == "<":
            self.take()
            self.expect("<")
            out.append(self.convert(self.expr(2)))
            self.eat(",")
        return tuple(out)

    def node(self) -> Node:
        results = [self.declare()]
        while self.eat(","):
            results.append(self.declare())
        self.expect("=")
        extents = self.axes() if self.eat("for") else ()
        self.expect("{")
        self.lets = {}
        reduction: Reduction | None = None
        scatter: Scatter | None = None
        while not self.eat("yield"):
            if self.eat("let"):
                name = self.ident()
                self.expect("=")
                self.lets[name] = self.convert(self.expr())
                self.names[name] = kernel.Var(name, self.lets[name].elem)
            elif self.eat("scatter"):
                base = self.views[self.ident()].tensor
                self.expect("at")
                scatter = Scatter(base, self.some())
            else:
                name, order = self.ident(), self.ident()
                reduced = self.axes()
                self.expect("of")
                terms = self.some()
                step = self.ident() if self.eat("by") else "fma"
                quick: tuple[str, Expr] | None = None
                if self.eat("or"):
                    other = self.ident()
                    self.expect("if")
                    quick = (other, self.convert(self.expr()))
                reduction = Reduction(name, order, reduced, terms, step, quick)
                elem = Elem.I64 if name.startswith("arg") else reduction.terms[0].elem
                for k in range(len(reduced) if name.startswith("arg") else 1):
                    self.names[f"acc{k}"] = kernel.Var(f"acc{k}", elem)
        outputs = self.some()
        self.expect("}")
        return Node(tuple(results), extents, outputs, reduction, scatter)

    def convert(self, e: kernel.Expr) -> Expr:
        match e:
            case kernel.Const():
                return const(e.value, e.elem)
            case kernel.Var(name, elem):
                if name in self.lets:
                    return self.lets[name]
                if name in self.scalars:
                    return scalar(self.scalars[name])
                if name.startswith("acc"):
                    return acc(int(name[3:]), elem)
                return axis(int(name[1:]))
            case kernel.Load():
                view = self.views[e.buffer.name]
                guard = None if e.guard is None else self.convert(e.guard)
                return load(view.tensor, tuple(map(self.convert, e.indices)), view.shape, guard)
            case kernel.Apply():
                args = [whole(self.views[a.name].tensor) if isinstance(a, kernel.Buffer) else self.convert(a) for a in e.args]
                return apply(e.function, e.elem, args)
            case kernel.Op():
                return op(e.op, *map(self.convert, e.args), elem=e.elem)

"""The verifier of graphs: `verify(graph)` raises `InternalError` at the first broken property.

 1. A node reads only inputs and results of nodes before it; a tensor is the result of one node; kept tensors are results.
 2. A node has one output a result, of the result's element type. Without a scatter the result's shape is the node's extents; with
    one it is the base's, there is one index a dimension, and base, value and result have one element type, a number.
 3. Axes are numbered below the number of extents. Extents are `i64`; those of output axes read no axis, those of reduced ones
    only axes before them. Shapes of tensors and views are made of constants and scalars.
 4. `acc` is read only by the outputs of a node with a reduction, and has the type that the reducer gives.
 5. A reducer fits its terms: `any` and `all` reduce bools, the others numbers; two terms only for sums of reals of order `chain`.
 6. A load has one `i64` index a dimension, and perhaps a guard, a bool that is no constant. `whole` is an argument of an `apply`. Ops
    have operands as their rows say.
"""

from __future__ import annotations

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.ssa.typerules import ORDERS, REDUCERS
from tlc.tensor.graph.index import equal
from tlc.tensor.graph.ir import Expr, Graph, Node, Tensor, axes_of, walk


def verify(graph: Graph) -> None:
    """Raise `InternalError` unless the graph has every property of this module's docstring."""
    made = {t: k for k, node in enumerate(graph.nodes) for t in node.results}
    check = _Checker(graph)
    check.that(len(made) == sum(len(n.results) for n in graph.nodes), "a tensor is made twice")
    for t in graph.kept:
        check.that(t in made, f"`{t.name}` is kept and not made")
    for k, node in enumerate(graph.nodes):
        check.node = node
        for t in node.sources:
            check.that(made.get(t, -1) < k, f"`{t.name}` is read before it is made")
        check.run(node)


class _Checker:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.node: Node | None = None

    def that(self, holds: bool, message: str) -> None:
        if not holds:
            from tlc.tensor.graph.text import print_graph

            name = f", node {self.node.results[0].name}" if self.node else ""
            raise InternalError(f"{message}\n{print_graph(self.graph)}", f"graph {self.graph.name}{name}")

    def run(self, node: Node) -> None:
        self.that(len(node.results) == len(node.outputs) > 0, "there is not one output a result")
        shape = node.scatter.base.shape if node.scatter else node.extents
        for t, e in zip(node.results, node.outputs, strict=True):
            self.that(t.elem is e.elem, f"`{t.name}` is a {t.elem} and its value a {e.elem}")
            same = len(t.shape) == len(shape) and all(equal(a, b) for a, b in zip(t.shape, shape, strict=True))
            self.that(same, f"`{t.name}` has not the shape of what is computed")
            self.shape(t.shape)
        for k, n in enumerate(node.domain):
            self.that(n.elem is Elem.I64, "an extent is not an i64")
            below = 0 if k < node.rank else k
            self.that(all(a < below for a in axes_of([n])), "an extent reads an axis that is not before it")
        self.reduction(node)
        if node.scatter:
            base = node.scatter.base
            self.that(len(node.results) == 1 and base.elem is node.results[0].elem and base.elem.is_num, "a scatter into another type")
            self.that(len(node.scatter.targets) == base.rank, "a scatter without one index a dimension")
        wholes = {a for e in walk(node.roots) if e.op == "apply" for a in e.args if a.op == "whole"}
        for e in walk((*node.roots, *node.domain)):
            self.expr(node, e, wholes)

    def reduction(self, node: Node) -> None:
        r = node.reduction
        inside = [e for e in walk((*(r.terms if r else ()), *node.domain)) if e.op == "acc"]
        self.that(not inside, "`acc` is read inside of the reduction")
        accs = [e for e in walk(node.outputs) if e.op == "acc"]
        if r is None:
            self.that(not accs, "`acc` is read without a reduction")
            return
        self.that(r.op in REDUCERS and r.order in ORDERS, f"no reduction {r.op} {r.order}")
        self.that(bool(r.extents), "a reduction over nothing")
        elems = {e.elem for e in r.terms}
        self.that(len(elems) == 1, "factors of different types")
        (elem,) = elems
        self.that(elem is Elem.BOOL if r.op in ("any", "all") else elem.is_num, f"`{r.op}` of a {elem}")
        fused = len(r.terms) == 2 and r.op == "sum" and r.order == "chain"
        self.that(len(r.terms) == 1 or fused, "two terms that are not a product")
        for step in (r.step, r.quick[0] if r.quick else r.step) if fused else ():
            row = SCALAR_OPS.get(step)
            self.that(row is not None and row.arity == 3 and elem in row.takes, f"`{step}` does not add products of {elem}")
        self.that(fused or (r.step, r.quick) == ("fma", None), "a step without a product")
        self.that(r.quick is None or not axes_of(r.quick[1:]), "a choice of ops that depends on an axis")
        search = r.op in ("argmax", "argmin")
        gives, count = (Elem.I64, len(r.extents)) if search else (elem, 1)
        self.that(all(e.elem is gives and e.data < count for e in accs), f"`acc` is not the result of `{r.op}`")

    def shape(self, shape: tuple[Expr, ...]) -> None:
        plain = all(e.op in ("const", "scalar") or e.op in SCALAR_OPS for e in walk(shape))
        self.that(plain, "a shape is not made of constants and scalars")

    def expr(self, node: Node, e: Expr, wholes: set[Expr]) -> None:
        match e.op:
            case "axis":
                self.that(e.data < len(node.domain), f"there is no axis {e.data}")
            case "load":
                tensor: Tensor = e.data.tensor
                self.that(len(e.indices) == len(e.data.shape) >= len(e.args) - 1, f"`{tensor.name}` has not one index a dimension")
                self.that(all(i.elem is Elem.I64 for i in e.indices), f"an index of `{tensor.name}` is not an i64")
                self.that(e.guard is None or e.guard.elem is Elem.BOOL, f"the guard of a load of `{tensor.name}` is not a bool")
                self.shape(e.data.shape)
            case "whole":
                self.that(e in wholes, f"`{e.data.name}` is read as a whole")
            case "const" | "scalar" | "acc" | "apply":
                pass
            case _:
                row = SCALAR_OPS.get(e.op)
                self.that(row is not None and len(e.args) == row.arity, f"`{e.op}` with {len(e.args)} operands")
                operands = e.args[1:] if e.op == "select" else e.args
                self.that(len({a.elem for a in operands}) == 1, f"`{e.op}` of different types")
                self.that(row is not None and operands[0].elem in row.takes, f"`{e.op}` of a {operands[0].elem}")

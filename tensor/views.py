"""Parts of tensors that are read where they lie.

    y[i, j] = sum[k] x[i, k] * m[row, k, j]         `row` is a scalar of the host

reads one part of `m`, at the index `row`; so the kernel is given that part, and what it does no longer depends on `row`:

    v = m[row]                                      a `view` of the host: an address, no elements are moved
    y[i, j] = sum[k] x[i, k] * v[k, j]

Then layers that do the same thing share a kernel, and a result that is stored in place of the part can be written over it, element
by element. A node that does no more than give such a part, or a leading slice `x[a..b]`, is a view as well, and no kernel.

A load with a guard stays as it is: where the guard does not hold, its index may lie anywhere. So does a load of what a node of the same
graph makes: they may become one kernel, in which there is no such tensor yet.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from tlc.frontend.records import dataclass
from tlc.tensor.graph.ir import Expr, Graph, Node, Tensor, axis, load, rebuild, transform

_HOST = ("add", "sub", "mul")  # what the host computes to find where a part begins


@dataclass(frozen=True)
class Part:
    """The elements of `base` from the one at the leading indices `start` on, in row-major order, in `shape`."""

    base: Tensor
    start: tuple[Expr, ...]
    shape: tuple[Expr, ...]


def find_parts(graph: Graph) -> tuple[Graph, dict[Tensor, Part]]:
    """The graph with parts of tensors as tensors of their own, and what these are."""
    finder = _Finder(graph)
    nodes = [finder.node(n) for n in graph.nodes]
    taken = dict(graph.taken)
    taken.update({t: taken[p.base] for t, p in finder.parts.items() if p.base in taken})
    return replace(graph, nodes=nodes, taken=taken), finder.parts


def as_part(node: Node) -> Part | None:
    """What a node gives, if that is a run of another tensor's elements at leading indices or in a leading slice."""
    if node.reduction is not None or node.scatter is not None or len(node.outputs) != 1 or not node.rank:
        return None
    (e,) = node.outputs
    if e.op != "load" or e.guard is not None or e.data.shape != e.data.tensor.shape:
        return None
    tensor: Tensor = e.data.tensor
    lead = tensor.rank - node.rank
    if lead < 0 or not all(map(_on_host, e.indices[:lead])):
        return None
    first, *rest = e.indices[lead:]
    if rest != [axis(k) for k in range(1, node.rank)] or node.extents[1:] != tensor.shape[lead + 1 :]:
        return None
    if first is axis(0):
        return Part(tensor, e.indices[:lead], node.extents)
    offset = [a for a in first.args if a is not axis(0)]
    if first.op == "add" and len(offset) == 1 and _on_host(offset[0]):
        return Part(tensor, (*e.indices[:lead], offset[0]), node.extents)
    return None


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.parts: dict[Tensor, Part] = {}
        self.known: dict[tuple[Tensor, tuple[Expr, ...]], Tensor] = {}
        self.names = {t.name for n in graph.nodes for t in (*n.results, *n.sources)}
        self.made = {t for n in graph.nodes for t in n.results}

    def node(self, node: Node) -> Node:
        if not any(e.indices and _on_host(e.indices[0]) for e in node.loads):
            return node

        def change(e: Expr, args: tuple[Expr, ...]) -> Expr:
            e = rebuild(e, args) if args else e
            return self.load(e) if e.op == "load" else e

        roots = (*node.roots, *node.domain)
        changed = dict(zip(roots, transform(roots, change), strict=True))
        return node if all(new is old for old, new in changed.items()) else node.rebuilt(changed.__getitem__)

    def load(self, e: Expr) -> Expr:
        """The same element, read in a part of the tensor where the first indices are the host's."""
        tensor: Tensor = e.data.tensor
        if e.guard is not None or e.data.shape != tensor.shape or tensor in self.made:
            return e
        start = tuple(takewhile(_on_host, e.indices))
        lead = len(start)
        if lead == tensor.rank or all(i.op == "const" for i in start):
            return e
        if (tensor, start) not in self.known:
            part = Tensor(self.unique(tensor.name), tensor.elem, tensor.shape[lead:])
            self.known[tensor, start] = part
            self.parts[part] = Part(tensor, start, part.shape)
        return load(self.known[tensor, start], e.indices[lead:])

    def unique(self, name: str) -> str:
        found, k = f"{name}.part", 1
        while found in self.names:
            k += 1
            found = f"{name}.part{k}"
        self.names.add(found)
        return found


def _on_host(e: Expr) -> bool:
    """Whether the host can compute an index before a kernel runs."""
    return e.op in ("const", "scalar") or (e.op in _HOST and all(map(_on_host, e.args)))

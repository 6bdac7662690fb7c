"""The interpreter of graphs: every node evaluated over whole index arrays, with reductions in the order of `ssa/reductions.py`.

It knows nothing of loops, vectors and tiles, so it is what fusion and schedules are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.ssa.reductions import fold, fold_product
from tlc.tensor.graph.ir import Expr, Graph, Node, Scalar, Tensor, axes_of, walk

Array = np.ndarray[Any, Any]
Applied = Callable[[str, list[Any]], Any]


def run(graph: Graph, inputs: Mapping[Tensor | Scalar, Any], apply: Applied | None = None) -> dict[Tensor, Array]:
    """The value of every tensor that the graph makes."""
    state = _Run(dict(inputs), apply)
    out: dict[Tensor, Array] = {}
    for node in graph.nodes:
        for t, value in zip(node.results, state.node(node), strict=True):
            state.values[t] = out[t] = value
    return out


class _Run:
    def __init__(self, values: dict[Any, Any], apply: Applied | None) -> None:
        self.values = values
        self.apply = apply

    def node(self, node: Node) -> list[Array]:
        extents = [int(self.eval([n], {})[0]) for n in node.extents]
        grid: dict[int, Any] = {k: _index(k, n, len(extents)) for k, n in enumerate(extents)}
        accs: list[Any] = []
        if node.reduction and axes_of(node.reduction.extents):
            flat = [self.reduce(node, {k: np.int64(i) for k, i in enumerate(at)}, ()) for at in np.ndindex(*extents)]
            accs = [np.array([row[k] for row in flat]).reshape(extents) for k in range(len(flat[0]) if flat else 1)]
        elif node.reduction:
            accs = self.reduce(node, grid, tuple(extents))
        values = self.eval(node.outputs, grid, accs)
        if node.scatter:
            return [self.scatter(node, grid, tuple(extents), values[0])]
        return [
            np.array(np.broadcast_to(v, extents)).astype(DTYPES[e.elem], copy=False) for v, e in zip(values, node.outputs, strict=True)
        ]

    def reduce(self, node: Node, outer: dict[int, Any], shape: tuple[int, ...]) -> list[Any]:
        """The results of the reduction over output indices of a shape (their arrays broadcast to it)."""
        r = node.reduction
        assert r is not None
        rank = len(shape)
        extents: list[int] = []
        if axes_of(r.extents) - set(outer):
            raise InternalError("an extent reads a reduced axis", "graph interpreter")
        for n in r.extents:
            extents.append(int(self.eval([n], outer)[0]))
        grid = {k: np.reshape(v, (*np.shape(v), *([1] * len(extents)))) for k, v in outer.items()}
        for k, extent in enumerate(extents):
            grid[node.rank + k] = _index(rank + k, extent, rank + len(extents))
        full = (*shape, *extents)
        count = int(np.prod(extents))
        terms = [np.broadcast_to(t, full).reshape(*shape, count) for t in self.eval(r.terms, grid)]
        elem = r.terms[0].elem
        if len(terms) == 1:
            total = fold(r.op, r.order, elem, terms[0])
        elif r.step == "fma":
            total = fold_product(elem, *terms)
        else:
            total = np.zeros(shape, DTYPES[elem])
            for k in range(count):
                total = SCALAR_OPS[r.step].evaluate(elem, terms[0][..., k], terms[1][..., k], total)
        if r.op in ("argmax", "argmin"):
            return list(np.unravel_index(total, extents)) if count else [np.zeros(shape, np.int64) for _ in extents]
        return [total]

    def scatter(self, node: Node, grid: dict[int, Any], extents: tuple[int, ...], value: Any) -> Array:
        assert node.scatter is not None
        out = np.array(self.values[node.scatter.base])
        targets = [np.broadcast_to(t, extents) for t in self.eval(node.scatter.targets, grid)]
        value = np.broadcast_to(value, extents)
        for at in np.ndindex(*extents):
            place = tuple(int(t[at]) for t in targets)
            out[place] = SCALAR_OPS["add"].evaluate(node.results[0].elem, out[place], value[at])
        return out

    def eval(self, roots: Sequence[Expr], grid: dict[int, Any], accs: Sequence[Any] = ()) -> list[Any]:
        """Expressions over arrays of indices."""
        done: dict[Expr, Any] = {}
        for e in walk(roots):
            args = [done[a] for a in e.args]
            match e.op:
                case "const":
                    done[e] = e.data if e.elem is Elem.STR else DTYPES[e.elem].type(e.data)
                case "axis":
                    done[e] = grid[e.data]
                case "scalar":
                    done[e] = DTYPES[e.elem].type(self.values[e.data])
                case "acc":
                    done[e] = accs[e.data]
                case "whole":
                    done[e] = self.values[e.data]
                case "load":
                    shape = [int(self.eval([n], {})[0]) for n in e.data.shape]
                    array = np.asarray(self.values[e.data.tensor]).reshape(shape)
                    if e.guard is not None:
                        done[e] = self.guarded(e, array, args)
                        continue
                    if not all(np.all((i >= 0) & (i < n)) for i, n in zip(args, shape, strict=True)):
                        raise InternalError(f"an index of `{e.data.tensor.name}` is out of range", "graph interpreter")
                    done[e] = array[tuple(args)] if args else array[()]
                case "apply":
                    done[e] = self.applied(e, args)
                case _:
                    done[e] = SCALAR_OPS[e.op].evaluate(e.elem, *args)
        return [done[r] for r in roots]

    def guarded(self, e: Expr, array: Array, args: list[Any]) -> Any:
        """A load where its guard holds, 0 elsewhere."""
        *indices, guard = np.broadcast_arrays(*args)
        out = np.zeros(guard.shape, array.dtype)
        at = tuple(i[guard] for i in indices)
        if not all(np.all((i >= 0) & (i < n)) for i, n in zip(at, array.shape, strict=True)):
            raise InternalError(f"a guarded index of `{e.data.tensor.name}` is out of range", "graph interpreter")
        out[guard] = array[at]
        return out[()]

    def applied(self, e: Expr, args: list[Any]) -> Any:
        if self.apply is None:
            raise InternalError(f"no host functions are given for `{e.data}`", "graph interpreter")
        scalars = [k for k, a in enumerate(e.args) if a.op != "whole"]
        shape = np.broadcast_shapes(*(np.shape(args[k]) for k in scalars))
        spread = {k: np.broadcast_to(args[k], shape) for k in scalars}
        out = np.empty(shape, DTYPES[e.elem])
        for at in np.ndindex(*shape):
            out[at] = self.apply(str(e.data), [spread[k][at] if k in spread else a for k, a in enumerate(args)])
        return out[()]


def _index(k: int, extent: int, rank: int) -> Array:
    """The indices of an axis, along dimension k of an array of some rank."""
    return np.arange(extent, dtype=np.int64).reshape([-1 if d == k else 1 for d in range(rank)])

"""Lowering of reductions: `reduce` with a region, and the little arithmetic around it.

`mean` is `sum` divided by the number of elements. `min`, `max`, `argmax`, `argmin` and `mean` of nothing stop the program.
A range that uses an earlier index of the same reduction (`sum[i < n, k < i]`) becomes a reduction inside a reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tlc.frontend import typed as t
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import DTYPES
from tlc.frontend.records import field_names
from tlc.frontend.types import F32 as SOURCE_F32
from tlc.frontend.types import I64 as SOURCE_I64
from tlc.frontend.types import Elem, TensorType
from tlc.frontend.types import Type as SourceType
from tlc.ssa.ir import BOOL, I64, Type, Value
from tlc.ssa.lower_state import Leaves, ssa_types

if TYPE_CHECKING:
    from tlc.ssa.lower import FunctionLowering

F32 = Type(Elem.F32)
NEEDS_ONE = ("min", "max", "mean", "argmax", "argmin")  # what has no value for an empty range
ARG = ("argmax", "argmin")


def lower_reduce(fn: FunctionLowering, e: t.Reduce, inside: Callable[[], Value] | None = None, guard: bool = True) -> Leaves:
    """`inside` computes what is reduced where that is not the body. Without `guard` an empty range does not stop: `max` is the least
    value then and `min` the greatest.
    """
    split = _dependent(e.ranges)
    if split:
        return _ragged(fn, e, split, guard)
    bounds = [fn.bounds(r) for r in e.ranges]
    extents = tuple(n for _, n in bounds)
    if guard and e.op in NEEDS_ONE:
        zero = fn.const(0, span=e.span)
        some = fn.all([fn.op("gt", n, zero, type=BOOL, span=e.span) for n in extents], e.span)
        fn.check("empty", some, f"`{e.op}` of nothing", span=e.span)
    op = "sum" if e.op == "mean" else e.op
    content = inside or (lambda: _term(fn, e.body, op))
    region = fn.index_region(e.ranges, [lo for lo, _ in bounds], e.body.span, lambda: (content(),))
    results = fn.emit("reduce", extents, _accumulators(e), {"op": op, "order": e.order}, (region,), e.span)
    if e.op == "mean":
        return (_rounded(fn, _quotient(fn, results[0], extents, e), e),)
    if e.op in ARG:  # the region counts from 0, the source from `lo`
        return tuple(r if lo is None else fn.op("add", lo, r, span=e.span) for r, (lo, _) in zip(results, bounds, strict=True))
    return (_rounded(fn, results[0], e),)


# ---------------------------------------------------------------- narrow reals


def _accumulators(e: t.Reduce) -> tuple[Type, ...]:
    """The types that a reduction accumulates in: narrow reals in f32."""
    if e.op in ARG:
        return (I64,) * len(e.ranges)
    (body,) = ssa_types(e.body.type)
    return (F32,) if body.elem in NARROW else ssa_types(e.type)


def _term(fn: FunctionLowering, body: t.Expr, op: str) -> Value:
    """What is reduced, in the type that accumulates. A product that feeds a sum is not rounded."""
    if isinstance(body, t.Do) and body.value is not None:
        for s in body.stmts:
            fn.stmt(s)
        return _term(fn, body.value, op)
    if op == "sum" and isinstance(body, t.Op) and body.op == "mul":
        return fn.op("mul", *(_wide(fn, fn.scalar(a)) for a in body.args), span=body.span)
    return _wide(fn, fn.scalar(body))


def _wide(fn: FunctionLowering, value: Value) -> Value:
    return fn.op("convert", value, type=F32) if value.type.elem in NARROW else value


def _rounded(fn: FunctionLowering, value: Value, e: t.Reduce) -> Value:
    """The result in the type of the reduction."""
    (type,) = ssa_types(e.type)
    return value if value.type == type else fn.op("convert", value, type=type, span=e.span)


# ---------------------------------------------------------------- the rest


def _quotient(fn: FunctionLowering, total: Value, extents: tuple[Value, ...], e: t.Reduce) -> Value:
    count = extents[0]
    for n in extents[1:]:
        count = fn.op("mul", count, n, span=e.span)
    return fn.op("div", total, fn.op("convert", count, type=total.type, span=e.span), span=e.span)


# ---------------------------------------------------------------- ranges that depend on earlier indices


def _ragged(fn: FunctionLowering, e: t.Reduce, split: int, guard: bool) -> Leaves:
    """A reduction of reductions. Rows may be empty as long as there is any element at all."""
    count = None
    if e.op == "mean" or (guard and e.op in NEEDS_ONE):
        one = t.Const(type=SOURCE_I64, span=e.span, value=1)
        (count,) = lower_reduce(fn, replace(e, op="sum", type=SOURCE_I64, body=one))
        fn.check("empty", fn.op("gt", count, fn.const(0, span=e.span), type=BOOL, span=e.span), f"`{e.op}` of nothing", span=e.span)
    if e.op in ARG:
        return _ragged_position(fn, e, split)
    (total,) = _nested(fn, e, "sum" if e.op == "mean" else e.op, e.op, split)
    if e.op == "mean":
        assert count is not None
        total = fn.op("div", total, fn.op("convert", count, type=total.type, span=e.span), span=e.span)
    return (_rounded(fn, total, e),)


def _nested(fn: FunctionLowering, e: t.Reduce, inner_op: str, outer_op: str, split: int) -> Leaves:
    """The reduction of each row, reduced; not rounded to a narrow type. `argmax` and `argmin` may stand outside only."""
    row = _row(e, inner_op, split)
    outer_op = "sum" if outer_op == "mean" else outer_op
    type = e.type if outer_op in ARG else row.type
    return lower_reduce(fn, replace(e, op=outer_op, ranges=e.ranges[:split], body=row, type=type), lambda: _only(fn, row), guard=False)


def _row(e: t.Reduce, op: str, split: int) -> t.Reduce:
    """The reduction of one row, in the type that accumulates."""
    return replace(e, op=op, ranges=e.ranges[split:], type=_wide_type(e.body.type))


def _only(fn: FunctionLowering, row: t.Reduce) -> Value:
    (value,) = lower_reduce(fn, row, guard=False)
    return value


def _ragged_position(fn: FunctionLowering, e: t.Reduce, split: int) -> Leaves:
    """The first of the best rows and in it the first of the best elements. An empty row looks like one whose best is the worst number;
    where the best of all is that number, the row is the first that is not empty.
    """
    op = e.op.removeprefix("arg")
    outer, row = e.ranges[:split], _row(e, op, split)
    found = _nested(fn, e, op, e.op, split)
    _bind(fn, outer, found)
    best = _only(fn, row)
    worst = fn.const(_worst(op, best.type.elem), best.type, e.span)
    one = t.Const(type=SOURCE_I64, span=e.span, value=1)
    first = _nested(fn, replace(e, body=one, op="argmax"), "max", "argmax", split)
    none = fn.op("eq", best, worst, type=BOOL, span=e.span)
    chosen = tuple(fn.op("select", none, a, b, type=b.type, span=e.span) for a, b in zip(first, found, strict=True))
    _bind(fn, outer, chosen)
    return (*chosen, *lower_reduce(fn, replace(row, op=e.op, type=SOURCE_I64), guard=False))


def _bind(fn: FunctionLowering, ranges: tuple[t.Range, ...], indices: Leaves) -> None:
    """Let the indices of these ranges be known numbers from here on."""
    for r, index in zip(ranges, indices, strict=True):
        fn.declare(r.local, (index,))


def _worst(op: str, elem: Elem) -> int | float:
    """What `max` (or `min`) of nothing is."""
    if elem.is_real:
        return -math.inf if op == "max" else math.inf
    info = np.iinfo(DTYPES[elem])
    return int(info.min if op == "max" else info.max)


def _wide_type(type: SourceType) -> SourceType:
    """The source type of what is not rounded yet."""
    return SOURCE_F32 if isinstance(type, TensorType) and type.elem in NARROW else type


def _dependent(ranges: tuple[t.Range, ...]) -> int:
    """The position of the first range that uses an earlier index, or 0."""
    earlier: set[t.Local | DimVar] = set()
    for k, r in enumerate(ranges):
        if any(name in earlier for end in (r.lo, r.hi) for name in _mentions(end)):
            return k
        earlier |= {r.local, *(r.local.dim.atoms() if r.local.dim else ())}
    return 0


def _mentions(tree: object) -> Iterator[t.Local | DimVar]:
    """All locals and dimension variables that a typed tree speaks of."""
    if isinstance(tree, t.Local):
        yield tree
    elif isinstance(tree, Dim):
        yield from tree.atoms()
    elif isinstance(tree, tuple):
        for item in tree:
            yield from _mentions(item)
    elif isinstance(tree, (t.Expr, t.Stmt, t.Range, t.Hole, t.IndexStep)):
        for name in field_names(type(tree)):
            if name not in ("span", "type"):
                yield from _mentions(getattr(tree, name))

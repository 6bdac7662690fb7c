"""Lowering of reductions: `reduce` with a region, and the little arithmetic around it.

`mean` is `sum` divided by the number of elements. `min`, `max`, `argmax`, `argmin` and `mean` of nothing stop the program.
A range that uses an earlier index of the same reduction (`sum[i < n, k < i]`) becomes a reduction inside a reduction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

from tlc.frontend import typed as t
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.types import F32 as SOURCE_F32
from tlc.frontend.types import I64 as SOURCE_I64
from tlc.frontend.types import Elem, TensorType
from tlc.frontend.types import Type as SourceType
from tlc.ssa.ir import BOOL, Type, Value
from tlc.ssa.lower_state import Leaves, ssa_types

if TYPE_CHECKING:
    from tlc.ssa.lower import FunctionLowering

F32 = Type(Elem.F32)
NEEDS_ONE = ("min", "max", "mean", "argmax", "argmin")  # what has no value for an empty range
NESTS = ("sum", "prod", "any", "all")  # what may be reduced row by row, rows of unequal length too


def lower_reduce(fn: FunctionLowering, e: t.Reduce) -> Leaves:
    split = _dependent(e.ranges)
    if split:
        return _ragged(fn, e, split)
    bounds = [fn.bounds(r) for r in e.ranges]
    extents = tuple(n for _, n in bounds)
    if e.op in NEEDS_ONE:
        zero = fn.const(0, span=e.span)
        some = fn.all([fn.op("gt", n, zero, type=BOOL, span=e.span) for n in extents], e.span)
        fn.check("empty", some, f"`{e.op}` of nothing", span=e.span)
    op = "sum" if e.op == "mean" else e.op
    region = fn.index_region(e.ranges, [lo for lo, _ in bounds], e.body.span, lambda: (_term(fn, e.body, op),))
    results = fn.emit("reduce", extents, _accumulators(e), {"op": op, "order": e.order}, (region,), e.span)
    if e.op == "mean":
        return (_rounded(fn, _quotient(fn, results[0], extents, e), e),)
    if e.op in ("argmax", "argmin"):  # the region counts from 0, the source from `lo`
        return tuple(r if lo is None else fn.op("add", lo, r, span=e.span) for r, (lo, _) in zip(results, bounds, strict=True))
    return (_rounded(fn, results[0], e),)


# ---------------------------------------------------------------- narrow reals


def _accumulators(e: t.Reduce) -> tuple[Type, ...]:
    """The types that a reduction accumulates in: narrow reals in f32."""
    (body,) = ssa_types(e.body.type)
    return (F32,) if body.elem in NARROW and e.op not in ("argmax", "argmin") else ssa_types(e.type)


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


def _ragged(fn: FunctionLowering, e: t.Reduce, split: int) -> Leaves:
    if e.op == "mean":
        one = t.Const(type=SOURCE_I64, span=e.span, value=1)
        count = fn.expr(replace(e, op="sum", type=SOURCE_I64, body=one))[0]
        total = fn.expr(replace(e, op="sum", type=_wide_type(e.type)))[0]
        fn.check("empty", fn.op("gt", count, fn.const(0, span=e.span), type=BOOL, span=e.span), "`mean` of nothing", span=e.span)
        return (_rounded(fn, fn.op("div", total, fn.op("convert", count, type=total.type, span=e.span), span=e.span), e),)
    if e.op not in NESTS:
        later = e.ranges[split]
        message = f"the range of `{later.local.name}` in `{e.op}` depends on an earlier index: not supported yet"
        raise CompileError([Diagnostic("E0941", message, later.local.span, help=f"write `{e.op}` of an `{e.op}` with a range each")])
    inner = replace(e, ranges=e.ranges[split:], type=_wide_type(e.type))
    return lower_reduce(fn, replace(e, ranges=e.ranges[:split], body=inner))


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
    elif is_dataclass(tree) and isinstance(tree, (t.Expr, t.Stmt, t.Range, t.Hole, t.IndexStep)):
        for f in fields(tree):
            if f.name not in ("span", "type"):
                yield from _mentions(getattr(tree, f.name))

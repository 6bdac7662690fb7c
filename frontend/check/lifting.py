"""Lifting: a function of small values applied to larger ones.

`over_structs` goes field by field over structs and tuples, `over_dims` adds a comprehension over the extra leading
dimensions, aligned at the right:

    linear(l, x)      l: Linear(784, 10), x: f32[64, 784], for a parameter x: f32[I]
                      for[i < 64] linear(l, x[i])
    x + b             x: f32[64, 10], b: f32[10]
                      for[i < 64, j < 10] x[i, j] + b[j]

Both are the loop that the language says; what becomes of it is a matter of later stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tlc.frontend import typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import INDEX_NAMES, Bindings, comp, extent_range, index, int_const, part, read
from tlc.frontend.check.cells import Mismatch, dims_help, is_real, unify
from tlc.frontend.check.dimension import dims_of_value
from tlc.frontend.check.pending import PendingCall
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.signature import is_tree
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import KEY, StructType, TupleType, Type

Make = Callable[[list[typed.Expr]], typed.Expr]


@dataclass(frozen=True)
class Operand:
    """A value and how it fits: `rank` is that of the parameter, None where the parameter takes any value whole. `name` is for people."""

    value: typed.Expr
    rank: int | None
    name: str
    is_key: bool = False

    @property
    def extra(self) -> tuple[Dim, ...]:
        """The dimensions to lift over."""
        if self.rank is None:
            return ()
        dims = dims_of_value(self.value)
        return dims[: len(dims) - self.rank]


def fold_key(body: Body, key: typed.Expr, data: typed.Expr, span: Span) -> typed.Expr:
    """`fold(key, data)` of an `i64`."""
    return PendingCall(body.session.helper("random", "fold_in"), {}, (key, data), (), type=KEY, span=span)


# ---------------------------------------------------------------- dimensions


def over_dims(body: Body, operands: Sequence[Operand], make: Make, span: Span, what: str, place: Span | None = None) -> typed.Expr:
    """`make` of the operands, lifted over their extra dimensions. An error points at `place`."""
    extras = [o.extra for o in operands]
    if not any(extras):
        return make([o.value for o in operands])
    dims = align(operands, place or span, what)
    binds = Bindings()
    kept = binds.keep_all([o.value for o in operands], [o.name for o in operands])
    locals = [body.index(_index_name(k), span, Dim.const(0), d) for k, d in enumerate(dims)]
    inner: list[typed.Expr] = []
    for o, value, extra in zip(operands, kept, extras, strict=True):
        reads = tuple(read(i, span) for i in locals[len(locals) - len(extra) :])
        inner.append(index(value, reads) if extra or not o.is_key else _fold_all(body, value, locals, span))
    result = make(inner)
    return binds.wrap(comp([extent_range(i, d, span) for i, d in zip(locals, dims, strict=True)], dims, result, span))


def _fold_all(body: Body, key: typed.Expr, indices: Sequence[typed.Local], span: Span) -> typed.Expr:
    """The key of an element: folded with each index."""
    for i in indices:
        key = fold_key(body, key, read(i, span), span)
    return key


def align(operands: Sequence[Operand], span: Span, what: str) -> tuple[Dim, ...]:
    """The common extra dimensions, aligned at the right. Raises Failed where two disagree."""
    longest = max(operands, key=lambda o: len(o.extra))
    for o in operands:
        for k in range(1, len(o.extra) + 1):
            a, b = longest.extra[-k], o.extra[-k]
            if a != b:
                raise shape_error(longest, o, a, b, span, what)
    return longest.extra


def shape_error(a: Operand, b: Operand, m: Dim, n: Dim, span: Span, what: str) -> Failed:
    labels = [Label(a.value.span, f"this is `{a.value.type}`"), Label(b.value.span, f"this is `{b.value.type}`")]
    labels += [Label(v.span, f"`{v.name}` comes from here") for v in dict.fromkeys((*m.atoms(), *n.atoms())) if v.span.source.text]
    help = dims_help(m, n)
    if (m.value == 1) != (n.value == 1):
        help = "a dimension of size 1 does not stretch; take the element with an index, or use a comprehension"
    elif b.extra and b.extra == a.extra[: len(b.extra)]:
        help = "dimensions are aligned at the right, with the last; to align them at the left use indices: `for[i, j] x[i, j] - y[i]`"
    message = f"the dimensions of {what} do not agree: `{a.value.type}` and `{b.value.type}`"
    return fail("E0302", message, span, f"`{m}` is not `{n}`", tuple(labels), help)


def _index_name(k: int) -> str:
    return INDEX_NAMES[k % len(INDEX_NAMES)]


# ---------------------------------------------------------------- structs


def over_structs(
    body: Body, operands: Sequence[Operand], make: Make, span: Span, what: str, real: bool, place: Span | None = None
) -> typed.Expr:
    """`make` for each leaf of the structs (or tuples) among the operands; the others are the same for every leaf.

    With `real`, leaves that are not real pass through from the first struct. If each leaf gives a tuple, the result is a tuple of structs.
    """
    which = [k for k, o in enumerate(operands) if is_tree(o.value.type)]
    first = operands[which[0]]
    for k in which[1:]:
        _same_struct(first, operands[k], place or span, what)
    for k, o in enumerate(operands):
        if k not in which and o.rank is not None and len(dims_of_value(o.value)) != o.rank:
            kind = "struct" if isinstance(first.value.type, StructType) else "tuple"
            message = f"beside a {kind}, the other operands of {what} must fit its numbers: `{o.value.type}` does not"
            labels = (Label(first.value.span, f"this is `{first.value.type}`"),)
            raise fail("E0404", message, o.value.span, f"this is `{o.value.type}`", labels)
    binds = Bindings()
    kept = binds.keep_all([o.value for o in operands], [o.name for o in operands])
    leaves: list[typed.Expr] = []

    def visit(type: Type, parts: list[typed.Expr]) -> None:
        if is_tree(type):
            for k in range(_part_count(type)):
                inner = [part(p, k) for p in parts]
                if isinstance(type, StructType) and type.decl.fields[k].hidden:
                    leaves.append(inner[0])
                else:
                    visit(inner[0].type, inner)
            return
        if real and not is_real(type):
            leaves.append(parts[0])
            return
        values = list(kept)
        for k, p in zip(which, parts, strict=True):
            values[k] = p
        for k, o in enumerate(operands):
            if o.is_key and k not in which:
                values[k] = fold_key(body, values[k], int_const(len(leaves), span), span)
        result = make(values)
        leaves.append(binds.keep(result, "leaf") if isinstance(result.type, TupleType) else result)

    visit(first.value.type, [kept[k] for k in which])
    changed = [e for e in leaves if isinstance(e.type, TupleType)]
    if not changed:
        return binds.wrap(_rebuild(first.value.type, list(leaves), span, what))
    width = len(changed[0].type.items) if isinstance(changed[0].type, TupleType) else 0
    columns = [[part(e, k) if isinstance(e.type, TupleType) else e for e in leaves] for k in range(width)]
    items = tuple(_rebuild(first.value.type, column, span, what) for column in columns)
    return binds.wrap(typed.Tuple(items, type=TupleType(tuple(i.type for i in items)), span=span))


def _same_struct(a: Operand, b: Operand, span: Span, what: str) -> None:
    try:
        unify(a.value.type, b.value.type)
    except Mismatch as m:
        labels = (Label(a.value.span, f"this is `{a.value.type}`"), Label(b.value.span, f"this is `{b.value.type}`"))
        raise fail("E0404", f"the structs of {what} differ", span, "", labels, m.help, (m.reason,) if m.reason else ()) from None


def _part_count(type: Type) -> int:
    if isinstance(type, TupleType):
        return len(type.items)
    assert isinstance(type, StructType)
    return len(type.decl.fields)


def _rebuild(type: Type, leaves: list[typed.Expr], span: Span, what: str) -> typed.Expr:
    """A value of the type from its leaves, which are taken from the front of the list."""
    match type:
        case TupleType():
            return typed.Tuple(tuple(_rebuild(t, leaves, span, what) for t in type.items), type=type, span=span)
        case StructType():
            return typed.Struct(tuple(_rebuild(t, leaves, span, what) for t in typed.field_types(type)), type=type, span=span)
        case _:
            leaf = leaves.pop(0)
            try:
                unify(type, leaf.type)
            except Mismatch as m:
                message = f"{what} gives `{leaf.type}` for a leaf of type `{type}`"
                raise fail("E0404", message, span, "", (), m.help, ("applied to a struct, the result has the leaf's type",)) from None
            return leaf

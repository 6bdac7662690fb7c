"""Random numbers: `key split fold normal uniform randint bernoulli`, as calls of the library's functions of a key and a counter.

normal(k, n, m)     for[i < n, j < m] normal_f32(k, i * m + j)
split(k)            (fold_in(k, 0), fold_in(k, 1))
fold(k, "a", i)     fold_in(fold_in(k, hash of "a"), i)
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.apply import argument
from tlc.frontend.check.arguments import need_key, split_arguments
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, add, dim_value, int_const, op, over
from tlc.frontend.check.cells import Cell, Mismatch, could_be, elem_of, tensor, unify_elem
from tlc.frontend.check.dimension import need_i64
from tlc.frontend.check.lifting import fold_key
from tlc.frontend.check.pending import PendingCall, PendingRandom
from tlc.frontend.check.report import fail
from tlc.frontend.check.subscripts import as_i64, integers
from tlc.frontend.check.tensors import extents
from tlc.frontend.dims import Dim
from tlc.frontend.source import Span
from tlc.frontend.types import BOOL, F32, I64, INTS, KEY, REALS, STR, Elem, TensorType, TupleType


def take_key(body: Body, node: ast.Expr, name: str) -> typed.Expr:
    """The key of a call that uses it up."""
    key = need_key(argument(body, node), f"`{name}`")
    keys.use(body, key, node.span)
    return key


def make_key(body: Body, node: ast.Call) -> typed.Expr:
    """`key(seed)`"""
    positional, _ = split_arguments(node, "key")
    if len(positional) != 1:
        raise fail("E0401", "`key` takes one seed", node.span)
    seed = need_i64(argument(body, positional[0]), "the seed of `key`")
    return PendingCall(body.session.helper("random", "make_key"), {}, (seed,), (), type=KEY, span=node.span)


def split(body: Body, node: ast.Call) -> typed.Expr:
    """`split(k)`: a pair; `split(k, n)`: a `key[n]`."""
    positional, _ = split_arguments(node, "split")
    if not 1 <= len(positional) <= 2:
        raise fail("E0401", "`split` takes a key and perhaps a number", node.span)
    binds = Bindings()
    key = binds.keep(take_key(body, positional[0], "split"), "k")
    span = node.span
    if len(positional) == 1:
        pair = tuple(fold_key(body, key, int_const(k, span), span) for k in range(2))
        return binds.wrap(typed.Tuple(pair, type=TupleType((KEY, KEY)), span=span))
    dims = extents(body, positional[1:], binds, "split")
    return binds.wrap(over(dims, span, lambda i: fold_key(body, key, i[0], span)))


def fold(body: Body, node: ast.Call) -> typed.Expr:
    """`fold(k, data, ...)`: a new key for each data; strings are hashed now."""
    positional, _ = split_arguments(node, "fold")
    if len(positional) < 2:
        raise fail("E0401", "`fold` takes a key and data", node.span, help='`fold(k, "dropout", step)`')
    key = need_key(argument(body, positional[0]), "`fold`")
    for n in positional[1:]:
        data = argument(body, n)
        if data.type == STR:
            if not (isinstance(data, typed.Const) and isinstance(data.value, str)):
                raise fail("E0701", "a string in `fold` must be a literal", n.span)
            data = int_const(fnv1a(data.value), n.span)
        elif not could_be(data.type, INTS) or not isinstance(data.type, TensorType) or data.type.dims:
            raise fail("E0701", f"`fold` takes integers and strings, found `{data.type}`", n.span)
        else:
            integers(data, "the data of `fold`")
            data = as_i64(data)
        key = fold_key(body, key, data, node.span)
    return key


def fnv1a(text: str) -> int:
    """The 64-bit FNV-1a hash of the text's UTF-8 (Fowler, Noll, Vo), as an `i64`."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % (1 << 64)
    return h - (1 << 64) if h >> 63 else h


# ---------------------------------------------------------------- numbers at counters


def _counter(indices: tuple[typed.Expr, ...], dims: tuple[Dim, ...], span: Span) -> typed.Expr:
    """The row-major position of an element."""
    out: typed.Expr = int_const(0, span)
    for i, d in zip(indices, dims, strict=True):
        scaled = out if isinstance(out, typed.Const) and out.value == 0 else op("mul", (out, dim_value(d, span)), I64, span)
        out = add(scaled, i, span)
    return out


def _real(name: str) -> Callable[[Body, ast.Call], typed.Expr]:
    def make(body: Body, node: ast.Call) -> typed.Expr:
        positional, _ = split_arguments(node, name)
        if not positional:
            raise fail("E0401", f"`{name}` takes a key and dimensions", node.span)
        binds = Bindings()
        key = binds.keep(take_key(body, positional[0], name), "k")
        dims = extents(body, positional[1:], binds, name)
        type = tensor(Cell(REALS, Elem.F32))
        span = node.span
        return binds.wrap(over(dims, span, lambda i: PendingRandom(name, key, _counter(i, dims, span), type=type, span=span)))

    return make


normal = _real("normal")
uniform = _real("uniform")


def randint(body: Body, node: ast.Call) -> typed.Expr:
    """`randint(k, lo, hi, n, ...)`"""
    positional, _ = split_arguments(node, "randint")
    if len(positional) < 3:
        raise fail("E0401", "`randint` takes a key, the least number and the end of the range", node.span)
    binds = Bindings()
    key = binds.keep(take_key(body, positional[0], "randint"), "k")
    lo = binds.keep(need_i64(argument(body, positional[1]), "the start of `randint`"), "lo")
    hi = binds.keep(need_i64(argument(body, positional[2]), "the end of `randint`"), "hi")
    dims = extents(body, positional[3:], binds, "randint")
    decl = body.session.helper("random", "randint_at")
    span = node.span
    return binds.wrap(over(dims, span, lambda i: PendingCall(decl, {}, (key, _counter(i, dims, span), lo, hi), (), type=I64, span=span)))


def bernoulli(body: Body, node: ast.Call) -> typed.Expr:
    """`bernoulli(k, p, n, ...)`: true with probability `p`."""
    positional, _ = split_arguments(node, "bernoulli")
    if len(positional) < 2:
        raise fail("E0401", "`bernoulli` takes a key and a probability", node.span)
    binds = Bindings()
    key = binds.keep(take_key(body, positional[0], "bernoulli"), "k")
    p = binds.keep(argument(body, positional[1]), "p")
    try:
        if not isinstance(p.type, TensorType) or p.type.dims:
            raise Mismatch()
        unify_elem(Elem.F32, elem_of(p.type))
    except Mismatch:
        raise fail("E0402", f"the probability of `bernoulli` is an `f32`, found `{p.type}`", p.span) from None
    dims = extents(body, positional[2:], binds, "bernoulli")
    span = node.span

    def element(i: tuple[typed.Expr, ...]) -> typed.Expr:
        return op("lt", (PendingRandom("uniform", key, _counter(i, dims, span), type=F32, span=span), p), BOOL, span)

    return binds.wrap(over(dims, span, element))

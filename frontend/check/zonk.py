"""The end of inference in a function: open element types get their defaults, literals their final form, pending calls their instances.

After this no `Cell` and no pending node is left. The tree is rebuilt, because typed nodes are immutable; a part that does not change
is shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tlc.frontend import typed
from tlc.frontend.check.build import str_const
from tlc.frontend.check.cells import NEVER, Cell, elem_of
from tlc.frontend.check.dimension import dim_of
from tlc.frontend.check.leaves import layout, named_leaves
from tlc.frontend.check.outline import close
from tlc.frontend.check.pending import (
    Closed,
    Outline,
    PendingCall,
    PendingCheckpoint,
    PendingConst,
    PendingGrad,
    PendingJvp,
    PendingLayout,
    PendingRandom,
)
from tlc.frontend.check.report import Failed, fail, unsupported
from tlc.frontend.dims import Dim
from tlc.frontend.narrow_reals import NARROW, nearest
from tlc.frontend.ops import DTYPES
from tlc.frontend.records import field_names
from tlc.frontend.types import UNIT, Elem, FunctionType, StructType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.instances import Instance
    from tlc.frontend.check.session import Session


class Zonk:
    """One function's tree made final."""

    def __init__(self, session: Session, instance: Instance) -> None:
        self.session = session
        self.instance = instance
        self.locals: dict[int, typed.Local] = {}
        self.types: dict[int, tuple[Type, Type]] = {}
        self.closed: dict[int, tuple[Outline, Closed]] = {}

    # ------------------------------------------------------------ nodes

    def expr(self, e: typed.Expr) -> typed.Expr:
        out = self.node(e)
        assert isinstance(out, typed.Expr)
        return out

    def node(self, node: Any) -> Any:
        """Rebuild any typed node (or a tuple of them, a type, a local, a plain value)."""
        rebuild = _REBUILD.get(type(node))
        return rebuild(self, node) if rebuild is not None else node

    def _items(self, nodes: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self.node(n) for n in nodes]) if nodes else nodes

    def _parts(self, node: Any) -> Any:
        """A node whose fields are rebuilt one by one."""
        changed = {}
        for name in field_names(type(node)):
            old = getattr(node, name)
            rebuild = _REBUILD.get(type(old))
            if rebuild is not None:
                new = rebuild(self, old)
                if new is not old:
                    changed[name] = new
        out = _replace(node, changed)
        if isinstance(out, typed.Expr) and isinstance(out.type, TensorType) and out.type.elem is Elem.STR and out.type.dims:
            raise unsupported("a tensor of strings", out.span)
        return out

    def _call(self, e: PendingCall) -> typed.Expr:
        types = {p: self.type(t) for p, t in e.types.items()}
        functions = {name: self.close(f) for name, f in e.functions}
        args = self.node(e.args)
        ref = self.session.instances.request(e.decl, types, functions, self.instance, e.span)
        captures = tuple(c for f in functions.values() for c in f.captures)
        return typed.Call(ref, args + captures, type=self.type(e.type), span=e.span)

    def _grad(self, e: PendingGrad) -> typed.Expr:
        closed = self.close(e.function)
        return typed.Grad(closed.ref, self.node(e.args) + closed.captures, e.wrt, e.many, e.value, type=self.type(e.type), span=e.span)

    def _jvp(self, e: PendingJvp) -> typed.Expr:
        closed = self.close(e.function)
        args = self.node(e.args) + closed.captures
        return typed.Jvp(closed.ref, args, self.node(e.tangents), e.wrt, type=self.type(e.type), span=e.span)

    def _checkpoint(self, e: PendingCheckpoint) -> typed.Expr:
        closed = self.close(e.function)
        return typed.Call(closed.ref, self.node(e.args) + closed.captures, again=True, type=self.type(e.type), span=e.span)

    def _const(self, e: PendingConst) -> typed.Expr:
        type = self.type(e.type)
        assert isinstance(type, TensorType)
        try:
            value = fit(e.value, type.elem, e)
        except Failed as failure:
            self.session.report(failure)
            value = 0
        return typed.Const(value, type=type, span=e.span)

    def _random(self, e: PendingRandom) -> typed.Expr:
        type = self.type(e.type)
        assert isinstance(type, TensorType)
        drawn = TensorType(Elem.F32) if type.elem in NARROW else type
        decl = self.session.helper("random", f"{e.name}_{drawn}")
        ref = self.session.instances.request(decl, {}, {}, self.instance, e.span)
        call = typed.Call(ref, (self.expr(e.key), self.expr(e.counter)), type=drawn, span=e.span)
        return call if drawn == type else typed.Op("convert", (call,), type=type, span=e.span)

    def _layout(self, e: PendingLayout) -> typed.Expr:
        type = self.type(e.of)
        for name, leaf in named_leaves(type):
            if leaf.elem is Elem.STR:
                where = "" if isinstance(type, TensorType) else f", and `{name}` of `{type}` is text"
                raise fail("E0411", f"`{e.service}` takes numbers, bools and keys{where}", e.span, f"this is `{type}`")
        return str_const(layout(type), e.span)

    def _op(self, e: typed.Op) -> typed.Expr:
        type = self.type(e.type)
        assert isinstance(type, TensorType)
        args = self.node(e.args)
        if e.op == "convert" and args[0].type == type:
            return args[0]  # type: ignore[no-any-return]
        checked = e.op in ("floordiv", "mod") and type.elem.is_int and not _not_zero(args[1])
        return typed.Op(e.op, args, checked, type=type, span=e.span)

    def close(self, outline: Outline) -> Closed:
        found = self.closed.get(id(outline))
        if found is None:
            found = self.closed[id(outline)] = (outline, close(self, outline))
        return found[1]

    # ------------------------------------------------------------ types and locals

    def local(self, local: typed.Local) -> typed.Local:
        found = self.locals.get(local.uid)
        if found is None:
            type = self.type(local.type)
            dim = local.dim if type == typed_i64 else None
            found = typed.Local(local.name, type, local.mutable, dim, local.span, local.uid)
            self.locals[local.uid] = found
        return found

    def type(self, type: Type) -> Type:
        found = self.types.get(id(type))
        if found is None:
            found = self.types[id(type)] = (type, final_type(type))
        return found[1]


typed_i64 = TensorType(Elem.I64)


def _with_subclasses(*classes: type) -> Iterator[type]:
    for cls in classes:
        yield cls
        yield from _with_subclasses(*cls.__subclasses__())


# By class, how what may stand in a typed tree is rebuilt; whatever else does stays.
_REBUILD: dict[type, Callable[[Zonk, Any], Any]] = {
    **dict.fromkeys(
        _with_subclasses(typed.Expr, typed.Stmt, typed.Range, typed.Hole, typed.PartStep, typed.IndexStep),
        Zonk._parts,
    ),
    **dict.fromkeys((TensorType, StructType, TupleType, FunctionType), Zonk.type),
    tuple: Zonk._items,
    typed.Local: Zonk.local,
    PendingCall: Zonk._call,
    PendingGrad: Zonk._grad,
    PendingJvp: Zonk._jvp,
    PendingCheckpoint: Zonk._checkpoint,
    PendingConst: Zonk._const,
    PendingRandom: Zonk._random,
    PendingLayout: Zonk._layout,
    typed.Op: Zonk._op,
}


def _not_zero(divisor: typed.Expr) -> bool:
    """Whether a divisor is a constant other than zero."""
    term = dim_of(divisor)
    return term is not None and term.value is not None and term.value != 0


def _replace(node: Any, changed: dict[str, Any]) -> Any:
    """`dataclasses.replace`, faster: the classes are frozen and have no hooks."""
    if not changed:
        return node
    out = object.__new__(type(node))
    out.__dict__.update(node.__dict__)
    out.__dict__.update(changed)
    return out


def final_type(type: Type) -> Type:
    """The type with its open element types fixed, for good."""
    if type is NEVER:
        return UNIT
    match type:
        case TensorType():
            elem = elem_of(type)
            if isinstance(elem, Cell):
                elem.link = elem.default
                elem = elem.link
            return type if elem is type.elem else TensorType(elem, type.dims)  # type: ignore[arg-type]
        case StructType():
            args = tuple(a if isinstance(a, Dim) else final_type(a) for a in type.args)
            same = all(a is b for a, b in zip(args, type.args, strict=True))
            return type if same else StructType(type.decl, args, type.dims)
        case TupleType():
            items = tuple(final_type(i) for i in type.items)
            return type if all(a is b for a, b in zip(items, type.items, strict=True)) else TupleType(items)
        case FunctionType():
            return FunctionType(tuple(final_type(p) for p in type.params), final_type(type.result))


def fit(value: int | float, elem: Elem, e: typed.Expr) -> int | float:
    """A literal as a value of its element type. Raises Failed if it does not fit."""
    if elem.is_real:
        if isinstance(value, int) and abs(value) > 1 << 1000:
            raise fail("E0305", f"the number does not fit into `{elem}`", e.span)
        out = float(value)
        rounded = nearest(out, elem)
        if math.isinf(rounded) and math.isfinite(out):
            raise fail("E0305", f"the number is too large for `{elem}`", e.span, help="write it with the suffix `f64`")
        return rounded
    assert isinstance(value, int)
    info = np.iinfo(DTYPES[elem])
    if not info.min <= value <= info.max:
        raise fail("E0305", f"`{value}` does not fit into `{elem}`", e.span, f"an `{elem}` is from {info.min} to {info.max}")
    return value


def fits(value: int | float, elem: Elem) -> bool:
    """Whether an integer literal is a value of the element type; a real literal is one of every real type."""
    if elem.is_real or isinstance(value, float):
        return True
    info = np.iinfo(DTYPES[elem])
    return bool(info.min <= value <= info.max)

"""Closure conversion: a function value that is passed on becomes a function of its own (Appel 1992, chapter 10).

`fn(x) => x * scale` in `integrate(fn(x) => x * scale, 0.0, 1.0)` becomes `f(x, scale) = x * scale`, and the instance of
`integrate` that calls it takes `scale` as a further parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tlc.frontend import typed
from tlc.frontend.check.build import dim_value, read
from tlc.frontend.check.pending import Closed, Outline
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import field_names
from tlc.frontend.typed import leaf_types
from tlc.frontend.types import I64, Type

if TYPE_CHECKING:
    from tlc.frontend.check.zonk import Zonk


_NODES = (typed.Expr, typed.Stmt, typed.Range, typed.Hole, typed.IndexStep)


def close(zonk: Zonk, outline: Outline) -> Closed:
    """The function for an outline, and its captures as expressions where the outline stands."""
    params = tuple(zonk.local(p) for p in outline.params)
    body = zonk.expr(outline.body)
    direct = _direct(zonk, params, body)
    if direct is not None:
        return direct
    captures, bound = _free_locals(params, body)
    known = bound | {a for local in (*params, *captures) for a in _bare(local)}
    dims = [d for d in _needed_dims(body) if d not in known]
    extra = [typed.Local(d.name, I64, dim=Dim.var(d), span=body.span) for d in dims]
    span = body.span
    values = tuple(read(c, span) for c in captures) + tuple(dim_value(Dim.var(d), span) for d in dims)
    inner = {c.uid: typed.Local(c.name, c.type, False, c.dim, c.span) for c in captures if c.mutable}
    if inner:
        body = _rename(body, inner)
    function_params = (*params, *(inner.get(c.uid, c) for c in captures), *extra)
    ref = zonk.session.instances.add_outlined(zonk.instance, outline.name, function_params, body)
    return Closed(ref, values)


def _direct(zonk: Zonk, params: tuple[typed.Local, ...], body: typed.Expr) -> Closed | None:
    """The function itself, where the body is a call of it with exactly these parameters and then captured variables. One whose derivative
    is not that of its body is called.
    """
    if not isinstance(body, typed.Call) or len(body.args) < len(params):
        return None
    if body.again or body.callee in zonk.session.instances.ruled:
        return None
    if not all(isinstance(a, typed.Read) for a in body.args):
        return None
    locals = [a.local for a in body.args if isinstance(a, typed.Read)]
    if locals[: len(params)] != list(params) or any(p in locals[len(params) :] for p in params):
        return None
    return Closed(body.callee, body.args[len(params) :])


def walk(node: Any) -> Iterator[Any]:
    """Every typed node of a tree, parents first."""
    work = [node]
    while work:
        node = work.pop()
        if isinstance(node, tuple):
            work += reversed(node)
        elif isinstance(node, _NODES):
            yield node
            work += [getattr(node, name) for name in reversed(field_names(type(node))) if name not in ("span", "type")]


def _free_locals(params: tuple[typed.Local, ...], body: typed.Expr) -> tuple[list[typed.Local], set[DimVar]]:
    """The locals of the surroundings that the body reads, and the atoms that the body itself binds."""
    bound = set(params)
    atoms: set[DimVar] = set()
    read_: dict[typed.Local, None] = {}
    for node in walk(body):
        match node:
            case typed.Let() | typed.For() | typed.Range():
                bound.add(node.local)
                atoms.update(a for a in (node.local.dim.atoms() if node.local.dim is not None else ()) if node.local.dim == Dim.var(a))
            case typed.Read():
                read_[node.local] = None
            case typed.Call() | typed.Extern() | typed.Foreign() | typed.Cast():
                atoms.update(_bare_type(node.type))
            case typed.If():  # where sides of unknown lengths meet
                atoms.update(_bare_type(node.type) - _bare_type(node.then.type) - _bare_type(node.other.type))
            case _:
                pass
    return [r for r in read_ if r not in bound], atoms


def _needed_dims(body: typed.Expr) -> list[DimVar]:
    """The atoms whose value the body needs."""
    out: dict[DimVar, None] = {}
    for node in walk(body):
        if isinstance(node, typed.DimValue):
            out.update(dict.fromkeys(node.dim.atoms()))
        elif isinstance(node, typed.Cast | typed.Reshape):
            for leaf in leaf_types(node.type):
                for d in leaf.dims:
                    out.update(dict.fromkeys(d.atoms()))
    return list(out)


def _bare(local: typed.Local) -> set[DimVar]:
    atoms = _bare_type(local.type)
    if local.dim is not None and isinstance(local.dim.atom, DimVar):
        atoms.add(local.dim.atom)
    return atoms


def _bare_type(type: Type) -> set[DimVar]:
    return {d.atom for leaf in leaf_types(type) for d in leaf.dims if isinstance(d.atom, DimVar)}


def _rename(node: Any, table: dict[int, typed.Local]) -> Any:
    """Replace locals. A captured `var` is captured by value, so inside it is immutable."""
    if isinstance(node, tuple):
        return tuple(_rename(n, table) for n in node)
    if isinstance(node, typed.Local):
        return table.get(node.uid, node)
    if isinstance(node, _NODES):
        out = object.__new__(type(node))
        out.__dict__.update({k: (v if k in ("span", "type") else _rename(v, table)) for k, v in node.__dict__.items()})
        return out
    return node

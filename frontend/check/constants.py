"""Constants: `const N = 4 * 16`. A scalar is evaluated now; any other initializer stands for itself at each use.

An initializer made of literals alone, without a declared type, stays open like the literal it is: `const G = 9.81` is `f32` or `f64` as
its use wants. It is computed in `f64` (`i64`), then rounded where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tlc.frontend import typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import bool_const, str_const
from tlc.frontend.check.cells import Cell, Mismatch, elem_of, tensor, unify
from tlc.frontend.check.dimension import BodyContext
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import ConstEntity, Kind, Scope
from tlc.frontend.check.signature import as_type
from tlc.frontend.check.zonk import final_type, fit
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.source import Span
from tlc.frontend.types import BOOL, STR, UNIT, Elem, TensorType

if TYPE_CHECKING:
    from tlc.frontend.check.session import Session


class NotConstant(Exception):
    """The expression is not a scalar that can be evaluated now."""


def constant_value(session: Session, entity: ConstEntity) -> bool | int | float | str | None:
    """The value of a constant, or None if it is not a scalar. Raises Failed."""
    if entity.state == "busy":
        raise fail("E0206", f"the constant `{entity.node.name}` depends on itself", entity.node.name_span)
    if entity.state == "broken":
        raise Failed
    if entity.state == "new":
        entity.state = "busy"
        try:
            _evaluate_entity(session, entity)
            entity.state = "done"
        except Failed:
            entity.state = "broken"
            raise
    return entity.value


def _evaluate_entity(session: Session, entity: ConstEntity) -> None:
    body = Body(session, entity.module, Scope(None, Kind.FUNCTION), returns=False, pure=True)
    value = _initializer(body, entity)
    try:
        result = evaluate(value)
    except NotConstant:
        return
    assert isinstance(value.type, TensorType)
    entity.value = result
    elem = elem_of(value.type)
    if isinstance(elem, Cell):
        entity.type = tensor(Cell(elem.allowed))
    else:
        entity.type = final_type(value.type)


def _initializer(body: Body, entity: ConstEntity) -> typed.Expr:
    value = body.expr(entity.node.value)
    if value.type == UNIT:
        raise fail("E0503", "a constant needs a value", entity.node.value.span)
    if entity.node.type is not None:
        declared = as_type(BodyContext(body).type(entity.node.type))
        try:
            unify(declared, value.type)
        except Mismatch as m:
            message = f"the constant is declared `{declared}`, its value is `{value.type}`"
            raise fail("E0301", message, entity.node.value.span, help=m.help, notes=(m.reason,) if m.reason else ()) from None
    return value


def constant_expression(body: Body, entity: ConstEntity, span: Span) -> typed.Expr:
    """A constant where it is used."""
    with body.session.expansions.inside("constants", span):
        value = constant_value(body.session, entity)
        if value is None or entity.type is None:
            inner = Body(body.session, entity.module, Scope(None, Kind.FUNCTION), returns=False, pure=True)
            return _initializer(inner, entity)
    if isinstance(value, bool):
        return bool_const(value, span)
    if isinstance(value, str):
        return str_const(value, span)
    assert isinstance(entity.type, TensorType)
    elem = elem_of(entity.type)
    return PendingConst(value, type=tensor(Cell(elem.allowed) if isinstance(elem, Cell) else elem), span=span)


# ---------------------------------------------------------------- evaluation


def evaluate(e: typed.Expr) -> bool | int | float | str:
    """The value of a scalar expression of literals and ops. Raises NotConstant, and Failed for a division by zero."""
    if e.type in (BOOL, STR) and isinstance(e, typed.Const):
        return e.value
    value = _value(e)
    if isinstance(value, str):
        return value
    if isinstance(value, np.bool_ | bool):
        return bool(value)
    return int(value) if isinstance(value, np.integer) else float(value)


def _value(e: typed.Expr, locals: Mapping[typed.Local, Any] = MappingProxyType({})) -> Any:
    match e:
        case PendingConst() | typed.Const():
            if isinstance(e.value, str):
                return e.value
            return _dtype(e)(e.value if isinstance(e.value, bool) else fit(e.value, _elem(e), e))
        case typed.Op():
            args = [_value(a, locals) for a in e.args]
            if e.op in ("floordiv", "mod") and _elem(e).is_int and args[1] == 0:
                raise fail("E0305", "division by zero", e.span)
            return SCALAR_OPS[e.op].evaluate(_elem(e), *_alike(args))
        case typed.If():
            return _value(e.then if _value(e.cond, locals) else e.other, locals)
        case typed.Read() if e.local in locals:
            return locals[e.local]
        case typed.Do() if e.value is not None:
            found = dict(locals)
            for s in e.stmts:
                if not isinstance(s, typed.Let) or s.local.mutable:
                    raise NotConstant
                found[s.local] = _value(s.value, found)
            return _value(e.value, found)
        case _:
            raise NotConstant


def _alike(args: list[Any]) -> list[Any]:
    """Operands of one type: while a type is open, an integer literal beside a real one is a real."""
    if any(isinstance(a, np.floating) for a in args) and any(isinstance(a, np.integer) for a in args):
        return [np.float64(a) if isinstance(a, np.integer) else a for a in args]
    return args


def _elem(e: typed.Expr) -> Elem:
    """The element type of a scalar; open reals are `f64` while constants are computed."""
    if not isinstance(e.type, TensorType) or e.type.dims:
        raise NotConstant
    elem = elem_of(e.type)
    if isinstance(elem, Cell):
        return Elem.F64 if elem.default.is_real else elem.default
    assert isinstance(elem, Elem)
    return elem


def _dtype(e: typed.Expr) -> Any:
    return DTYPES[_elem(e)].type

"""The parameters of `main` as command-line flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tlc.frontend import typed
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import FunctionDecl
from tlc.frontend.check.signature import Parameter
from tlc.frontend.records import dataclass
from tlc.frontend.types import REALS, UNIT, Elem, TensorType

if TYPE_CHECKING:
    from tlc.frontend.check.session import Session

FLAG_ELEMS = (Elem.BOOL, Elem.I8, Elem.I32, Elem.I64, Elem.U8, Elem.U32, *REALS, Elem.STR)


@dataclass(frozen=True)
class Main:
    ref: typed.FunctionRef
    flags: tuple[typed.Flag, ...]


def make_main(session: Session, decl: FunctionDecl) -> Main:
    """The instance of `main` and its flags. Raises Failed."""
    sig = decl.signature
    assert sig is not None
    if sig.type_params:
        raise fail("E0801", "`main` has no type parameters", decl.node.name_span)
    flags: list[typed.Flag] = []
    wrong = sig.result != UNIT
    if wrong:
        assert decl.node.result is not None
        session.report(fail("E0803", "`main` has no result", decl.node.result.span, "nobody could take it", help="print the value"))
    for p in sig.params:
        try:
            flags.append(_flag(session, decl, p))
        except Failed as e:
            session.report(e)
            wrong = True
    if wrong:
        raise Failed
    return Main(session.instances.request(decl, {}, {}, None, decl.node.name_span), tuple(flags))


def _flag(session: Session, decl: FunctionDecl, p: Parameter) -> typed.Flag:
    """A parameter with its default. Raises Failed."""
    from tlc.frontend.check.body import Body
    from tlc.frontend.check.cells import Mismatch, unify
    from tlc.frontend.check.constants import NotConstant, evaluate
    from tlc.frontend.check.scope import Kind, Scope
    from tlc.frontend.check.zonk import fit

    if not isinstance(p.type, TensorType) or p.type.dims or p.type.elem not in FLAG_ELEMS:
        message = f"a parameter of `main` is a flag, and `{p.type}` cannot be one"
        raise fail("E0801", message, p.span, help="flags are numbers, `bool` and `str`")
    if p.name == "help":
        raise fail("E0801", "`--help` prints the flags and cannot be one", p.span, help="rename the parameter")
    value: bool | int | float | str | None = None
    if p.default is not None:
        body = Body(session, decl.module, Scope(None, Kind.FUNCTION), returns=False, pure=True)
        default = body.expr(p.default)
        try:
            unify(p.type, default.type)
            value = evaluate(default)
        except Mismatch as m:
            message = f"the default of `{p.name}` is `{default.type}`, the flag is `{p.type}`"
            raise fail("E0301", message, p.default.span, help=m.help) from None
        except NotConstant:
            message = f"the default of the flag `{p.name}` is not a constant"
            raise fail("E0801", message, p.default.span, help="leave the default out: the flag is then required") from None
        if not isinstance(value, bool | str):
            value = fit(value, p.type.elem, default)
    return typed.Flag(p.name, p.type, value, p.doc)

"""Reading the arguments of builtins, which have no signature."""

from __future__ import annotations

from tlc.frontend import ast, typed
from tlc.frontend.check.apply import argument, count
from tlc.frontend.check.body import Body
from tlc.frontend.check.cells import elem_of
from tlc.frontend.check.habits import argument_help
from tlc.frontend.check.pending import PendingConst
from tlc.frontend.check.report import fail
from tlc.frontend.types import Elem, TensorType


def split_arguments(node: ast.Call, name: str, named: tuple[str, ...] = ()) -> tuple[list[ast.Expr], dict[str, ast.Expr]]:
    """Arguments by position, and those by name that the builtin knows."""
    positional: list[ast.Expr] = []
    by_name: dict[str, ast.Expr] = {}
    for a in node.args:
        if not a.name:
            positional.append(a.value)
        elif a.name not in named:
            raise fail("E0401", f"`{name}` has no parameter `{a.name}`", a.span, help=argument_help(a.name, named))
        elif a.name in by_name:
            raise fail("E0401", f"`{a.name}` is given twice", a.span)
        else:
            by_name[a.name] = a.value
    return positional, by_name


def values(body: Body, node: ast.Call, name: str, low: int, high: int | None = None) -> list[typed.Expr]:
    """The values of positional arguments, of which there are `low` to `high` (None: any number)."""
    positional, _ = split_arguments(node, name)
    if len(positional) < low or (high is not None and len(positional) > high):
        wanted = count(low) if low == high else f"at least {count(low)}" if high is None else f"{low} to {count(high)}"
        raise fail("E0401", f"`{name}` takes {wanted}, {len(positional)} are given", node.span)
    return body.each(positional, lambda a: argument(body, a))


def literal_int(e: typed.Expr, what: str) -> int:
    """An integer that must be a literal (or a constant)."""
    if isinstance(e, PendingConst | typed.Const) and isinstance(e.value, int) and not isinstance(e.value, bool):
        return e.value
    help = "it decides the shape, so it is known when the program is compiled"
    raise fail("E0401", f"{what} must be a literal integer", e.span, help=help)


def need_tensor(e: typed.Expr, what: str) -> TensorType:
    if not isinstance(e.type, TensorType):
        raise fail("E0402", f"{what} takes a tensor, found `{e.type}`", e.span)
    return e.type


def need_key(e: typed.Expr, what: str) -> typed.Expr:
    if not (isinstance(e.type, TensorType) and not e.type.dims and elem_of(e.type) is Elem.KEY):
        raise fail("E0402", f"{what} takes a `key`, found `{e.type}`", e.span, help="a key is made of a seed: `key(0)`")
    return e

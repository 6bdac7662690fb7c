"""Strings with interpolations, and `print`."""

from __future__ import annotations

import re

from tlc.frontend import ast, typed
from tlc.frontend.check.arguments import split_arguments
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import str_const, unit
from tlc.frontend.check.cells import NEVER, Cell, elem_of
from tlc.frontend.check.report import fail
from tlc.frontend.typed import leaf_types
from tlc.frontend.types import STR, UNIT, Elem, Type


def text(body: Body, node: ast.Str) -> typed.Expr:
    """A string literal."""
    if all(isinstance(p, str) for p in node.pieces):
        return str_const("".join(p for p in node.pieces if isinstance(p, str)), node.span)
    return typed.Format(tuple(body.each(node.pieces, lambda p: p if isinstance(p, str) else _hole(body, p))), type=STR, span=node.span)


def _hole(body: Body, node: ast.Hole) -> typed.Hole:
    value = printable(body, node.expr)
    _check_spec(value.type, node.spec, node)
    return typed.Hole(value, node.spec)


def text_of(body: Body, node: ast.Expr) -> typed.Expr:
    """An expression that must be a `str`."""
    value = body.expr(node)
    if value.type != STR:
        raise fail("E0301", f"a string is wanted, found `{value.type}`", node.span, help='write it into a string: `"{...}"`')
    return value


def printable(body: Body, node: ast.Expr) -> typed.Expr:
    value = body.expr(node)
    if value.type == UNIT or value.type is NEVER:
        raise fail("E0503", "this has no value to print", node.span)
    return value


def _check_spec(type: Type, spec: str, node: ast.Hole) -> None:
    """A format specification must suit every leaf. Element types that are still open are taken for their default."""
    if not spec:
        return
    if re.search(r"\d{5}", spec):
        raise fail("E0313", f"the format `{spec}` asks for more than 9999 characters", node.span)
    for leaf in leaf_types(type):
        found = elem_of(leaf)
        elem = found.default if isinstance(found, Cell) else found
        assert isinstance(elem, Elem)
        sample: object = 1.5 if elem.is_real else 1 if elem.is_int else True if elem is Elem.BOOL else "x"
        try:
            format(sample, spec)
        except ValueError as e:
            raise fail("E0313", f"the format `{spec}` does not suit `{elem}`", node.span, str(e).lower()) from None


def print_(body: Body, node: ast.Call) -> typed.Expr:
    """`print(a, b)`: its arguments with blanks between, and a newline. `print(a, end = "")` ends with another text."""
    body.act("print", node.span)
    args, named = split_arguments(node, "print", ("end",))
    pieces: list[str | typed.Hole] = []
    for value in body.each(args, lambda a: printable(body, a)):
        if pieces:
            pieces.append(" ")
        pieces.append(typed.Hole(value, ""))
    if "end" in named:
        pieces.append(typed.Hole(text_of(body, named["end"]), ""))
        whole = typed.Format(tuple(pieces), type=STR, span=node.span)
        return typed.Extern("put", (whole,), type=UNIT, span=node.span)
    first = pieces[0] if len(pieces) == 1 else None
    if isinstance(first, typed.Hole) and first.value.type == STR:
        value = first.value
    elif not pieces:
        value = str_const("", node.span)
    else:
        value = typed.Format(tuple(pieces), type=STR, span=node.span)
    return unit((typed.Print(value, span=node.span),), node.span, UNIT)


def fail_(body: Body, node: ast.Call) -> typed.Expr:
    """`fail("message")`"""
    if len(node.args) != 1 or node.args[0].name:
        raise fail("E0401", "`fail` takes one message", node.span)
    message = text_of(body, node.args[0].value)
    return unit((typed.Fail("fail", message, span=node.span),), node.span, NEVER)

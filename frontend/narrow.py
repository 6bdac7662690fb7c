"""What the grammar takes in too widely, brought back to the language.

An LALR(1) grammar cannot tell a type argument from an expression, a range from an argument, or a target from a value
until it has read them. It reads the wider thing; the actions call these functions, which build the narrower node or
`stop` with a diagnostic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import NoReturn

from tlc.frontend import ast
from tlc.frontend.diagnostics import Diagnostic, Label
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source, Span
from tlc.frontend.tokens import Token

# What the parser hands over where the tree will hold only some of it.
Wide = ast.Expr | ast.Wild | ast.Progress | ast.RangeExpr

_LOOSER_THAN_ARITHMETIC = ("==", "!=", "<", "<=", ">", ">=", "and", "or")


class Stop(Exception):
    """A mistake that an action found; carries its diagnostic. The parser goes on with the next definition."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def stop(code: str, message: str, span: Span, label: str = "", help: str = "", labels: tuple[Label, ...] = ()) -> NoReturn:
    raise Stop(Diagnostic(code, message, span, label, labels, (), help))


@dataclass
class Context:
    """What the actions of one parse share. `strays`: the `?` and the `progress(range)` that no type and no `for` has taken yet."""

    source: Source
    strays: dict[int, ast.Wild | ast.Progress] = field(default_factory=dict)

    def leave(self, node: ast.Wild | ast.Progress) -> None:
        """A node that something around it must take."""
        self.strays[id(node)] = node

    def take(self, node: object) -> None:
        self.strays.pop(id(node), None)


def stray(node: ast.Wild | ast.Progress) -> Diagnostic:
    """What to say of a node that nothing took."""
    if isinstance(node, ast.Wild):
        return Diagnostic("E0112", f"`?{node.name}` stands outside a type", node.span, "only a dimension of a type can be unknown")
    help = "for i in progress(a..b, label) { ... }"
    return Diagnostic("E0111", "`progress` of a range stands outside a `for`", node.span, "a range is not a value", help=help)


# ---------------------------------------------------------------- types


def dimension(context: Context, e: ast.Expr | ast.Wild) -> ast.Expr | ast.Wild:
    """A dimension in a type's brackets."""
    context.take(e)
    return e


def type_argument(context: Context, e: ast.Expr | ast.Wild) -> ast.TypeArg:
    """The type that an expression in a type's parentheses spells, or the expression itself as a dimension term."""
    match e:
        case ast.Wild():
            return dimension(context, e)
        case ast.Name() | ast.Field() if name := _dotted_name(e):
            return ast.TypeName(span=e.span, name=name, args=None, dims=())
        case ast.Call() if name := _dotted_name(e.callee):
            for argument in e.args:
                if argument.name:
                    help = "give them in the order of the struct's parameters"
                    stop("E0115", "the arguments of a type have no names", argument.span, help=help)
            return ast.TypeName(span=e.span, name=name, args=tuple(type_argument(context, a.value) for a in e.args), dims=())
        case ast.Subscript():
            base = type_argument(context, e.base)
            if isinstance(base, ast.TypeName) and not base.dims:
                return ast.TypeName(span=e.span, name=base.name, args=base.args, dims=tuple(_no_slice(context, item) for item in e.items))
        case ast.TupleExpr():
            return ast.TupleTypeNode(span=e.span, items=tuple(_type(context, item) for item in e.items))
    return e


def _type(context: Context, e: ast.Expr) -> ast.TypeNode:
    node = type_argument(context, e)
    if not isinstance(node, ast.TypeNode):
        stop("E0101", "expected a type, found an expression", e.span)
    return node


def _no_slice(context: Context, item: ast.Expr | ast.SliceNode | ast.Ellipsis) -> ast.Expr | ast.Wild:
    if isinstance(item, ast.SliceNode | ast.Ellipsis):
        stop("E0101", "a dimension cannot be a slice", item.span, help="`?` stands for a dimension that only the run knows")
    return dimension(context, item)


def _dotted_name(e: ast.Expr) -> str:
    """`nn.Linear` as one string, or empty."""
    if isinstance(e, ast.Name):
        return e.name
    if isinstance(e, ast.Field):
        base = _dotted_name(e.base)
        return base and f"{base}.{e.name}"
    return ""


# ---------------------------------------------------------------- definitions, statements, expressions


def check_function(name: Token, params: Sequence[ast.Param], body: ast.Expr | None, extern: bool) -> None:
    """Parameters have types (only an anonymous function's may lack them); `extern` functions, and they alone, have no body."""
    for param in params:
        if param.type is None:
            help = f"write `{param.name}: f32`, say"
            if param.name in ("self", "this"):
                help = "a function takes a struct as any other parameter: write `m: Model`"
            stop("E0113", f"the parameter `{param.name}` has no type", param.span, "expected `:` and a type after it", help)
    if extern and body:
        stop("E0113", "an `extern` function has no body", body.span, "its body is outside the language")
    if not extern and not body:
        help = "`= expression` or `{ ... }` follows the head, on the same line"
        stop("E0113", f"the function `{name.text}` has no body", name.span, help=help)


def check_assignable(e: Wide, op: str) -> None:
    """A variable, a path of fields and indices from one, or, with `=`, a tuple of these."""
    if isinstance(e, ast.TupleExpr) and not op:
        for item in e.items:
            check_assignable(item, op)
        return
    root = e
    while isinstance(root, ast.Field | ast.Subscript):
        root = root.base
    if not isinstance(root, ast.Name):
        stop("E0110", "this cannot be assigned", e.span, "not a variable or a part of one", "`==` compares" if not op else "")


def check_arithmetic(context: Context, e: Wide | None) -> None:
    """The ends of a range are arithmetic: what binds more loosely needs parentheses."""
    loose = (isinstance(e, ast.Binary) and e.op in _LOOSER_THAN_ARITHMETIC) or (isinstance(e, ast.Unary) and e.op == "not")
    if isinstance(e, ast.Binary | ast.Unary) and loose and not _parenthesized(context, e):
        place = e.op_span if isinstance(e, ast.Binary) else e.span
        stop("E0111", f"the end of a range is arithmetic, not `{e.op}`", place, help="put it in parentheses if that is meant")


def refuse_not(context: Context, op: Token, operand: Wide) -> None:
    """`a + not b` would take all that follows into the `not`; nobody means that."""
    if isinstance(operand, ast.Unary) and operand.op == "not" and not _parenthesized(context, operand):
        stop("E0101", f"`not` binds more loosely than `{op.text}`", operand.span, help=f"put it in parentheses: `{op.text} (not ...)`")


def _parenthesized(context: Context, e: ast.Binary | ast.Unary) -> bool:
    """Parentheses leave no node, but they belong to the span of what they hold."""
    if isinstance(e, ast.Binary):
        return e.span.start < e.left.span.start
    return context.source.text[e.span.start] == "("


def call(context: Context, callee: ast.Expr, args: Sequence[ast.Argument], span: Span) -> ast.Call | ast.Progress:
    """A call, or `progress` of a range, which a `for` must take. No other call may have a range for an argument."""
    seen: dict[str, ast.Argument] = {}
    ranges = []
    for argument in args:
        if argument.name in seen:
            first = Label(seen[argument.name].span, "given here first")
            stop("E0115", f"the argument `{argument.name}` is given twice", argument.span, labels=(first,))
        if argument.name:
            seen[argument.name] = argument
        elif seen:
            stop("E0115", "an argument by position after one by name", argument.span, help="arguments by position come first")
        if isinstance(argument.value, ast.RangeExpr):
            ranges.append(argument)
    if not ranges:
        return ast.Call(span=span, callee=callee, args=tuple(args))
    of_progress = isinstance(callee, ast.Name) and callee.name == "progress"
    if not of_progress or len(ranges) > 1 or ranges[0] is not args[0] or len(args) > 3:
        help = "a range stands after `in`, in a subscript, or in `progress(a..b, label)` after `in`"
        stop("E0111", "a range is not a value", ranges[-1].span, "no argument can be a range", help)
    texts: dict[str, ast.Expr] = {}
    for name, argument in zip(("label", "note"), args[1:], strict=False):
        if argument.name not in ("", "label", "note"):
            stop("E0115", f"`progress` has no parameter `{argument.name}`", argument.span, help="`progress(range, label, note)`")
        texts[argument.name or name] = argument.value
    assert isinstance(ranges[0].value, ast.RangeExpr)
    node = ast.Progress(span=span, range=ranges[0].value, label=texts.get("label"), note=texts.get("note"))
    context.leave(node)
    return node

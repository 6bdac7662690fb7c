"""The AST as text: TL again, with every operator in parentheses, one statement a line. Parsing it gives the same tree.

    fn loss(m: Mlp, x: f32[B, 784]) -> f32 =
      (mean(logits(m, x)) + (2.0 * sum[k] (x[0, k] ** 2)))

So precedence and lifting of newlines can be read off, and the printer and the parser check each other.
"""

from __future__ import annotations

import re

from tlc.frontend import ast
from tlc.frontend.tokens import REDUCERS

INDENT = "  "

_ESCAPES = {"\\": "\\\\", '"': '\\"', "{": "{{", "}": "}}", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def dump(module: ast.Module) -> str:
    """The text of a module: its definitions, then its statements."""
    parts = [_doc(module.doc) + "\n" if module.doc else ""]
    parts += [definition(d) + "\n" for d in module.definitions]
    parts += [statement(s) + "\n" for s in module.stmts]
    return "".join(parts)


def _doc(text: str, indent: str = "") -> str:
    return "".join(f"{indent}## {line}".rstrip() + "\n" for line in text.split("\n")) if text else ""


def _indented(text: str) -> str:
    return "\n".join(INDENT + line if line else line for line in text.split("\n"))


# ---------------------------------------------------------------- definitions


def definition(node: ast.Definition) -> str:
    match node:
        case ast.Use():
            return f"use {node.path} as {node.alias}"
        case ast.ConstDef():
            return _doc(node.doc) + f"const {node.name}{_annotation(node.type)} = {expression(node.value)}"
        case ast.StructDef():
            params = f"({', '.join(map(_variable, node.params))})" if node.params else ""
            fields = "".join(_indented(_doc(f.doc) + f"{f.name}: {type_text(f.type)},") + "\n" for f in node.fields if f.type)
            return _doc(node.doc) + f"struct {node.name}{params} {{\n{fields}}}"
        case ast.Function():
            return _function(node)


def _function(node: ast.Function) -> str:
    rule = f"@vjp({expression(node.rule)})\n" if node.rule else ""
    extern = "extern " if node.extern else ""
    variables = f"[{', '.join(map(_variable, node.type_vars))}]" if node.type_vars else ""
    if any(p.doc for p in node.params):
        params = "\n" + "".join(_indented(_doc(p.doc) + _param(p) + ",") + "\n" for p in node.params)
    else:
        params = ", ".join(map(_param, node.params))
    result = f" -> {type_text(node.result)}" if node.result else ""
    head = f"{_doc(node.doc)}{rule}{extern}fn {node.name}{variables}({params}){result}"
    match node.body:
        case None:
            return head
        case ast.Block():
            return f"{head} {block(node.body)}"
        case body:
            return f"{head} =\n{_indented(expression(body))}"


def _variable(node: ast.TypeVariable) -> str:
    return f"{node.name}: {node.bound}" if node.bound else node.name


def _param(node: ast.Param) -> str:
    default = f" = {expression(node.default)}" if node.default else ""
    return f"{node.name}{_annotation(node.type)}{default}"


def _annotation(node: ast.TypeNode | None) -> str:
    return f": {type_text(node)}" if node else ""


# ---------------------------------------------------------------- types


def type_text(node: ast.TypeNode) -> str:
    match node:
        case ast.TypeName():
            args = f"({', '.join(map(_term, node.args))})" if node.args is not None else ""
            dims = f"[{', '.join(map(_term, node.dims))}]" if node.dims else ""
            return f"{node.name}{args}{dims}"
        case ast.TupleTypeNode():
            return _tuple([type_text(item) for item in node.items])
        case ast.FunctionTypeNode():
            result = f" -> {type_text(node.result)}" if node.result else ""
            return f"fn({', '.join(map(type_text, node.params))}){result}"


def _term(node: ast.TypeArg) -> str:
    match node:
        case ast.Wild():
            return f"?{node.name}"
        case ast.TypeName() | ast.TupleTypeNode() | ast.FunctionTypeNode():
            return type_text(node)
        case _:
            return expression(node)


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


# ---------------------------------------------------------------- statements


def block(node: ast.Block) -> str:
    if not node.stmts:
        return "{}"
    return "{\n" + "".join(_indented(statement(s)) + "\n" for s in node.stmts) + "}"


def statement(node: ast.Stmt) -> str:
    match node:
        case ast.Binding():
            word = "var" if node.mutable else "let"
            return f"{word} {_target(node.target)}{_annotation(node.type)} = {expression(node.value)}"
        case ast.Assignment():
            return f"{expression(node.target)} {node.op}= {expression(node.value)}"
        case ast.ExprStmt():
            return expression(node.expr)
        case ast.While():
            return f"while {expression(node.cond)} {block(node.body)}"
        case ast.For():
            return f"for {_target(node.target)} in {_sequence(node.sequence)} {block(node.body)}"
        case ast.Break():
            return "break"
        case ast.Continue():
            return "continue"
        case ast.Return():
            return f"return {expression(node.value)}" if node.value else "return"
        case ast.Assert():
            return f"assert {expression(node.cond)}" + (f", {expression(node.message)}" if node.message else "")


def _target(node: ast.Target) -> str:
    return node.name or _tuple([_target(item) for item in node.items])


def _sequence(node: ast.RangeExpr | ast.Progress | ast.Expr) -> str:
    match node:
        case ast.RangeExpr():
            step = f" by {expression(node.step)}" if node.step else ""
            return f"{expression(node.lo)}..{expression(node.hi)}{step}"
        case ast.Progress():
            label = f", {expression(node.label)}" if node.label else ""
            note = f", note = {expression(node.note)}" if node.note else ""
            return f"progress({_sequence(node.range)}{label}{note})"
        case _:
            return expression(node)


# ---------------------------------------------------------------- expressions


def expression(node: ast.Expr) -> str:
    """What needs no parentheses as an operand of `**` or of a postfix is printed bare, all else in parentheses."""
    match node:
        case ast.Number():
            return _number(node)
        case ast.Bool():
            return "true" if node.value else "false"
        case ast.Str():
            return '"' + "".join(map(_piece, node.pieces)) + '"'
        case ast.Name():
            return node.name
        case ast.Unary():
            return f"({node.op}{' ' if node.op == 'not' else ''}{expression(node.operand)})"
        case ast.Binary():
            return f"({expression(node.left)} {node.op} {expression(node.right)})"
        case ast.As():
            return f"({expression(node.value)} as {type_text(node.type)})"
        case ast.Call():
            return f"{expression(node.callee)}({', '.join(map(_argument, node.args))})"
        case ast.Field():
            return f"{expression(node.base)}.{node.name}"
        case ast.Subscript():
            blank = " " if isinstance(node.base, ast.Name) and node.base.name in REDUCERS else ""  # `sum[` would begin a reduction
            return f"{expression(node.base)}{blank}[{', '.join(map(_item, node.items))}]"
        case ast.Comprehension():
            return f"({node.op}[{', '.join(map(_index, node.indices))}] {expression(node.body)})"
        case ast.Lambda():
            return f"(fn({', '.join(map(_param, node.params))}) => {expression(node.body)})"
        case ast.IfExpr():
            return _if(node)
        case ast.Block():
            return block(node)
        case ast.TupleExpr():
            return _tuple([expression(item) for item in node.items])
        case ast.ListExpr():
            return f"[{', '.join(map(expression, node.items))}]"


def _if(node: ast.IfExpr) -> str:
    head = f"if {expression(node.cond)} {block(node.then)}"
    match node.other:
        case None:
            return head
        case ast.Block():
            return f"{head} else {block(node.other)}"
        case other:
            return f"{head} else {_if(other)}"


def _number(node: ast.Number) -> str:
    if isinstance(node.value, float) and node.value.is_integer() and node.suffix and abs(node.value) < 2**53:
        return f"{int(node.value)}{node.suffix}"
    text = repr(node.value)
    mantissa, mark, exponent = text.partition("e")
    if mark and "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}{mark}{exponent}{node.suffix}"


def _piece(piece: str | ast.Hole) -> str:
    if isinstance(piece, ast.Hole):
        spec = f":{piece.spec}" if piece.spec else ""
        text = _one_line(expression(piece.expr))
        blank = " " if text.startswith("{") else ""  # `{{` is a brace
        return f"{{{blank}{text}{spec}}}"
    return "".join(_character(c) for c in piece)


def _one_line(text: str) -> str:
    """Blocks inside a string: `{ a; b }`."""
    text = re.sub(r"\{\n\s*", "{ ", text)
    text = re.sub(r"\n\s*\}", " }", text)
    return re.sub(r"\n\s*", "; ", text)


def _character(c: str) -> str:
    return _ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}")


def _argument(node: ast.Argument) -> str:
    return f"{node.name} = {expression(node.value)}" if node.name else expression(node.value)


def _item(node: ast.Expr | ast.SliceNode | ast.Ellipsis) -> str:
    match node:
        case ast.Ellipsis():
            return "..."
        case ast.SliceNode(lo=None, hi=None):
            return ":"
        case ast.SliceNode():
            return (expression(node.lo) if node.lo else "") + ".." + (expression(node.hi) if node.hi else "")
        case _:
            return expression(node)


def _index(node: ast.IndexRange) -> str:
    if node.hi is None:
        return node.name
    if node.lo is None:
        return f"{node.name} < {expression(node.hi)}"
    return f"{node.name} in {expression(node.lo)}..{expression(node.hi)}"

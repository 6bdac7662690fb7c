"""What to say of a name that means nothing, and of a call of what is no function.

In this order a help is looked for: a name of the program that is nearly the same, a habit from another language (`habits.py`), any
other near name.
"""

from __future__ import annotations

import re

from tlc.frontend import ast, modules
from tlc.frontend.check import habits
from tlc.frontend.check.body import Body
from tlc.frontend.check.builtins import BUILTINS
from tlc.frontend.check.callee import TRANSFORMS
from tlc.frontend.check.reductions import NAMES as REDUCERS
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import FunctionDecl, Poisoned, near
from tlc.frontend.check.type_nodes import ELEMS
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.source import Span
from tlc.frontend.types import STR, StructType, TensorType

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")  # between the words of a struct's name
SHORT = 60  # the longest text of the source that a help repeats


def unknown_name(body: Body, name: str, span: Span) -> Failed:
    """A name that is read."""
    if any(isinstance(s, ast.Binding) and s.target.name == name for s in body.module.node.stmts):
        help = "functions do not see the variables of a script: pass it, or make it a `const`"
        return fail("E0201", f"`{name}` is a variable of the script", span, help=help)
    return fail("E0201", f"unknown name `{name}`", span, help=_help(body, name, habits.VALUES))


def unknown_function(body: Body, node: ast.Expr, path: list[str]) -> Failed:
    """A name that is called: `f`, or `np.f`, of which the first part is unknown or is no module."""
    first, last = path[0], path[-1]
    if len(path) == 1:
        help = _help(body, first, habits.FUNCTIONS)
        if not help and first in SCALAR_OPS:
            help = f"the operation `{first}` has an operator"
        return fail("E0201", f"unknown function `{first}`", node.span, help=help)
    if isinstance(body.module.names.get(first), Poisoned):
        return Failed()
    if first in body.module.names:
        help = habits.METHODS.get(last) or habits.FIELDS.get(last, "")
        return fail("E0403", f"`{first}` has no method `{last}`", node.span, help=help)
    span = _leftmost(node)
    if first not in habits.PACKAGES and first not in modules.library_names():
        return unknown_name(body, first, span)
    if _always_there(body, last):
        help = f"`{last}` is always there: write `{last}(...)`"
    elif first in modules.library_names() and body.session.member(first, last):
        help = f"write `use {first}` at the top of the file"
    else:
        help = habits.FUNCTIONS.get(last, "") or (_packaged(body, last) if first in habits.PACKAGES else "")
    return fail("E0201", f"unknown name `{first}`", span, help=help)


def no_function(body: Body, node: ast.Call) -> Failed:
    """A call of a value: a method of another language, a struct as a layer, or a number."""
    callee = node.callee
    if not isinstance(callee, ast.Field):
        value = body.expr(callee)
        return fail("E0403", f"this is a value of type `{value.type}`, not a function", callee.span, "it is called here")
    base = body.expr(callee.base)
    if isinstance(base.type, StructType) and callee.name in {f.name for f in base.type.decl.fields}:
        field = body.expr(callee)
        label = f"this is `{field.type}`"
        help = _layer(body, callee, field.type, node) or habits.METHODS.get(callee.name, "")
        return fail("E0403", f"the field `{callee.name}` is no function", callee.span, label, help=help)
    help = ""
    if base.type == STR and callee.name not in habits.METHODS:
        help = "a text is printed, compared and put into other texts: `\"{x}\"`; `io.encode` gives its bytes"
    elif _always_there(body, callee.name) or isinstance(body.module.names.get(callee.name), FunctionDecl):
        help = f"there are no methods: write `{_turned(callee, node)}`"
    else:
        table = habits.METHODS | (habits.FUNCTIONS if isinstance(base.type, TensorType) else {})
        help = habits.METHODS.get(callee.name) or table.get(callee.name) or "there are no methods: functions stand before their arguments"
    return fail("E0403", f"`{base.type}` has no method `{callee.name}`", callee.name_span, help=help)


# ---------------------------------------------------------------- helps


def _help(body: Body, name: str, table: dict[str, str]) -> str:
    own = [*body.scope.all_names(), *body.module.names]
    prelude = body.session.prelude
    others = [*own, *BUILTINS, *TRANSFORMS, *ELEMS, *modules.reexported(), *(prelude.names if prelude is not None else ())]
    if name in modules.library_names():
        return f"write `use {name}` at the top of the file"
    return near(name, own, 0.8) or table.get(name) or near(name, others)


def _always_there(body: Body, name: str) -> bool:
    """A function that needs no module."""
    prelude = body.session.prelude
    known = name in BUILTINS or name in TRANSFORMS or name in modules.reexported()
    return known or (prelude is not None and isinstance(prelude.names.get(name), FunctionDecl))


def _packaged(body: Body, name: str) -> str:
    """For `torch.nn.functional.cross_entropy`: the module of the library that has it."""
    found = [m for m in modules.library_names() if m != "prelude" and body.session.member(m, name)]
    return f"write `{found[0]}.{name}(...)`, with `use {found[0]}` at the top of the file" if found else ""


def _turned(callee: ast.Field, node: ast.Call) -> str:
    """`x.sum(dim=0)` as `sum(x, axis = 0)`."""
    args = [_text(callee.base.span)]
    for a in node.args:
        name = "axis" if a.name in ("dim", "axes") or (not a.name and callee.name in REDUCERS) else a.name
        args.append(f"{name} = {_text(a.value.span)}" if name else _text(a.value.span))
    text = f"{callee.name}({', '.join(args)})"
    return text if len(text) <= SHORT and "\n" not in text else f"{callee.name}(...)"


def _layer(body: Body, callee: ast.Field, type: object, node: ast.Call) -> str:
    """`m.hidden(x)` as `nn.linear(m.hidden, x)`: the function that has the struct's name in small letters, `lstm_cell` of `LstmCell`."""
    if not isinstance(type, StructType):
        return ""
    *module, name = type.decl.name.split(".")
    spellings = (name.lower(), _WORD.sub("_", name).lower())

    def known(name: str) -> bool:
        return body.session.member(module[0], name) if module else isinstance(body.module.names.get(name), FunctionDecl)

    function = next((".".join([*module, s]) for s in spellings if known(s)), "f")
    args = ", ".join(_text(s) for s in (callee.span, *(a.value.span for a in node.args)))
    return f"a struct holds data, and functions take it: `{function}({args})`"


def _text(span: Span) -> str:
    return span.source.text[span.start : span.end]


def _leftmost(node: ast.Expr) -> Span:
    while isinstance(node, ast.Field):
        node = node.base
    return node.span

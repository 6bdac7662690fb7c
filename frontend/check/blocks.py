"""Blocks and `if`: where statements end in a value, and where paths end for good.

A block is checked for its value or for its effect. One whose end is never reached (`return`, `fail`, an endless loop) has the type `NEVER`,
which fits every wanted type.
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.body import Body, expression
from tlc.frontend.check.build import do, read, unit
from tlc.frontend.check.cells import NEVER, Mismatch, elem_of, tensor, unify, unify_elem
from tlc.frontend.check.flexible import renewed
from tlc.frontend.check.operators import compare_help
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import Kind
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import with_dims
from tlc.frontend.types import BOOL, UNIT, TensorType, Type


def diverges(s: typed.Stmt) -> bool:
    """Whether the code behind this statement is never reached."""
    match s:
        case typed.Return() | typed.Break() | typed.Continue() | typed.Fail():
            return True
        case typed.Eval():
            return s.expr.type is NEVER
        case typed.While():
            return isinstance(s.cond, typed.Const) and s.cond.value is True and not _breaks(s.body)
        case _:
            return False


def _breaks(e: typed.Expr | typed.Stmt | None) -> bool:
    """Whether a `break` of the loop around is inside (not of a loop further inside)."""
    match e:
        case typed.Break():
            return True
        case typed.Do():
            return any(_breaks(s) for s in e.stmts) or _breaks(e.value)
        case typed.If():
            return _breaks(e.then) or _breaks(e.other)
        case typed.Eval():
            return _breaks(e.expr)
        case typed.Let() | typed.Assign():
            return _breaks(e.value)
        case _:
            return False


@expression(ast.Block)
def block_value(body: Body, node: ast.Block) -> typed.Expr:
    """A block for its value."""
    return check_block(body, node, value=True)


def check_block(body: Body, node: ast.Block, value: bool, kind: Kind = Kind.BLOCK) -> typed.Expr:
    """A block in a scope of its own. Errors of its statements are reported one by one; if the last fails, so does the block."""
    with body.inside(kind):
        return check_statements(body, node, value)


def check_statements(body: Body, node: ast.Block, value: bool) -> typed.Expr:
    """The statements of a block in the present scope."""
    stmts: list[typed.Stmt] = []
    failed = False
    last = node.stmts[-1] if value and node.stmts and isinstance(node.stmts[-1], ast.ExprStmt) else None
    for s in node.stmts:
        if s is last:
            break
        try:
            stmts += body.stmt(s)
        except Failed as e:
            body.session.report(e)
            failed = True
    if last is not None:
        return _with_value(body, stmts, last, node.span, failed)
    if any(diverges(s) for s in stmts):
        return unit(stmts, node.span, NEVER)
    if failed and value:
        raise Failed
    if value:
        where = node.stmts[-1].span if node.stmts else node.span
        raise fail("E0503", "a value is wanted here, and the block has none", where, help="the last expression of a block is its value")
    return unit(stmts, node.span, UNIT)


def _with_value(body: Body, stmts: list[typed.Stmt], last: ast.ExprStmt, span: Span, failed: bool) -> typed.Expr:
    value = body.expr(last.expr)
    if failed and value.type == UNIT:
        raise Failed
    if value.type is NEVER or any(diverges(s) for s in stmts):
        return unit((*stmts, typed.Eval(value, span=value.span)), span, NEVER)
    if value.type == UNIT:
        return unit((*stmts, typed.Eval(value, span=value.span)), span, UNIT)
    return typed.Do(tuple(stmts), value, type=value.type, span=span) if stmts else value


# ---------------------------------------------------------------- if


def condition(body: Body, node: ast.Expr, what: str) -> typed.Expr:
    """A scalar bool."""
    cond = body.expr(node)
    if isinstance(cond.type, TensorType) and not cond.type.dims:
        try:
            unify(BOOL, cond.type)
            return cond
        except Mismatch:
            pass
    help = compare_help(cond)
    if what == "assert" and isinstance(node, ast.TupleExpr) and len(node.items) == 2:
        help = 'there are no parentheses: `assert c, "message"`'
    if isinstance(cond.type, TensorType) and cond.type.dims:
        help = "reduce it with `any(...)` or `all(...)`"
        help += "; element by element, `where(c, a, b)` chooses" if what == "if" else ""
    raise fail("E0312", f"the condition of `{what}` must be a scalar `bool`, found `{cond.type}`", node.span, help=help)


Check = Callable[[], typed.Expr]


def sides(body: Body, checks: tuple[Check, Check]) -> list[typed.Expr]:
    """Both sides of an `if`: each begins with what is known before it; a key that one of them uses is used behind."""
    ends: list[keys.Keys] = []
    known = {uid: f.now for uid, f in body.flexible.items()}
    out: list[typed.Expr] = []
    for check in checks:
        with keys.branch(body, ends, out):
            out.append(check())
        for uid, now in known.items():
            body.flexible[uid].now = now
    keys.join(body, ends)
    return out


@expression(ast.IfExpr)
def if_value(body: Body, node: ast.IfExpr) -> typed.Expr:
    """`if` for its value."""
    if node.other is None:
        last = node.then.stmts[-1] if node.then.stmts else None
        if isinstance(last, ast.ExprStmt) and not isinstance(last.expr, ast.Call | ast.IfExpr | ast.Block):
            raise fail("E0503", "`if` without `else` has no value", node.span, help="add `else { ... }`")
        return if_statement(body, node)
    cond = condition(body, node.cond, "if")
    otherwise = node.other
    then, other = sides(body, (lambda: check_block(body, node.then, value=True), lambda: body.expr(otherwise)))
    value = _joined(body, cond, then, other, node.span)
    after = renewed(body, node, node.span)
    if not after or value.type is NEVER:
        return value
    if value.type == UNIT:
        return unit((typed.Eval(value, span=node.span), *after), node.span, UNIT)
    local = body.local("value", value.type, node.span)
    return do((typed.Let(local, value, span=node.span), *after), read(local, node.span))


def _joined(body: Body, cond: typed.Expr, then: typed.Expr, other: typed.Expr, span: Span) -> typed.Expr:
    if then.type is NEVER and other.type is NEVER:
        return typed.If(cond, as_unit(then), as_unit(other), type=NEVER, span=span)
    if then.type is NEVER or other.type is NEVER:
        wanted = other.type if then.type is NEVER else then.type
        return typed.If(cond, ending(then, wanted), ending(other, wanted), type=wanted, span=span)
    if (then.type == UNIT) != (other.type == UNIT):
        none, some = (then, other) if then.type == UNIT else (other, then)
        labels = (Label(last_span(some), f"this side is `{some.type}`"),)
        raise fail("E0503", "one side of `if` has a value, the other has none", last_span(none), "this has none", labels)
    try:
        unify(then.type, other.type)
    except Mismatch as m:
        type = _unknown_lengths(then.type, other.type, span)
        if type is None:
            raise _sides_differ(then, other, m) from None
        local = body.local("value", type, span)  # its dimensions have their values from here on
        return do((typed.Let(local, typed.If(cond, then, other, type=type, span=span), span=span),), read(local, span))
    return typed.If(cond, then, other, type=then.type, span=span)


def _unknown_lengths(then: Type, other: Type, span: Span) -> Type | None:
    """The type of both sides where they differ in dimensions that only the run knows: `?` once more. None where they differ in others."""
    if not isinstance(then, TensorType) or not isinstance(other, TensorType) or len(then.dims) != len(other.dims):
        return None
    try:
        unify_elem(elem_of(then), elem_of(other))
    except Mismatch:
        return None
    dims = []
    for a, b in zip(then.dims, other.dims, strict=True):
        if a != b and not any(isinstance(d.atom, DimVar) and d.atom.name == "?" for d in (a, b)):
            return None
        dims.append(a if a == b else Dim.var(DimVar("?", span)))
    return with_dims(tuple(dims), tensor(elem_of(then)))


def _sides_differ(then: typed.Expr, other: typed.Expr, m: Mismatch) -> Failed:
    labels = (Label(last_span(then), f"this side is `{then.type}`"), *m.origins())
    message = "the sides of `if` have different types"
    return fail("E0301", message, last_span(other), f"this side is `{other.type}`", labels, m.help, m.notes)


def last_span(e: typed.Expr) -> Span:
    """The place of the value of a block."""
    return last_span(e.value) if isinstance(e, typed.Do) and e.value is not None else e.span


def if_statement(body: Body, node: ast.IfExpr) -> typed.Expr:
    """`if` for its effect."""
    cond = condition(body, node.cond, "if")
    then, other = sides(body, (lambda: check_block(body, node.then, value=False), lambda: _otherwise(body, node)))
    type = NEVER if then.type is NEVER and other.type is NEVER else UNIT
    return typed.If(cond, as_unit(then), as_unit(other), type=type, span=node.span)


def _otherwise(body: Body, node: ast.IfExpr) -> typed.Expr:
    """The other side of an `if` for its effect."""
    if node.other is None:
        return unit((), node.span, UNIT)
    if isinstance(node.other, ast.IfExpr):
        return if_statement(body, node.other)
    return check_block(body, node.other, value=False)


def as_unit(e: typed.Expr) -> typed.Expr:
    """A block for its effect, as a node of the unit type, diverging or not."""
    return ending(e, UNIT) if e.type is NEVER else e


def ending(e: typed.Expr, wanted: Type) -> typed.Expr:
    """A block that never ends, said to have the wanted type."""
    if e.type is not NEVER:
        return e
    match e:
        case typed.Do():
            return typed.Do(e.stmts, e.value and ending(e.value, wanted), type=wanted, span=e.span)
        case typed.If():
            return typed.If(e.cond, ending(e.then, wanted), ending(e.other, wanted), type=wanted, span=e.span)
        case _:
            return typed.Do((typed.Eval(e, span=e.span),), None, type=wanted, span=e.span)

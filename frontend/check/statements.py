"""Statements: bindings, loops, jumps, assertions. Assignments have `assign.py`, blocks and `if` have `blocks.py`."""

from __future__ import annotations

from tlc.frontend import ast, typed
from tlc.frontend.check import keys
from tlc.frontend.check.blocks import as_unit, check_block, check_statements, condition, ending, if_statement
from tlc.frontend.check.body import Body, Loop, statement
from tlc.frontend.check.build import Bindings, dim_value, do, index, int_const, part, read, unit
from tlc.frontend.check.callee import function_of, open_function
from tlc.frontend.check.cells import NEVER, Mismatch, Pattern
from tlc.frontend.check.dimension import BodyContext, dim_of, is_i64, need_i64
from tlc.frontend.check.flexible import Flexible, renewed
from tlc.frontend.check.printing import text_of
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import DimensionName, FunctionName, Kind, Poisoned, Variable
from tlc.frontend.check.signature import Bindings as Bound
from tlc.frontend.check.signature import as_type, finish, match, substitute
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.types import UNIT, StructType, TensorType, TupleType, Type

# ---------------------------------------------------------------- whole bodies


def function_value(body: Body, node: ast.Function) -> typed.Expr:
    """The body of a function, fitted to its result."""
    assert node.body is not None and body.result is not None
    body.declared = node.result.span if node.result is not None else None
    body.main = node.name == "main"
    if body.result == UNIT:
        if isinstance(node.body, ast.Block):
            body.tail = node.body.stmts[-1] if node.body.stmts and not body.main else None
            return check_block(body, node.body, value=False, kind=Kind.BLOCK)
        value = body.expr(node.body)
        if value.type not in (UNIT, NEVER):
            help = f"write `-> {value.type}`" if not body.main else "print the value"
            raise fail("E0406", f"`{node.name}` has no result, but its body is a `{value.type}`", node.body.span, help=help)
        return value
    value = body.expr(node.body)
    if value.type is NEVER:
        return value
    return fit_result(body, value)


def fit_result(body: Body, value: typed.Expr) -> typed.Expr:
    """The value as the result of the function around."""
    assert body.result is not None
    if value.type == UNIT:
        help = "`if` without `else` has no value" if isinstance(last_value(value), typed.If) else ""
        message = f"a value of type `{body.result}` is wanted here"
        raise fail("E0503", message, last_value(value).span, "this has none", _declared_here(body), help)
    binds = Bound()
    try:
        match(body.result, value.type, binds, body.fresh)
        finish(binds, body.fresh)
    except Mismatch as m:
        labels = _declared_here(body)
        where = value.value.span if isinstance(value, typed.Do) and value.value is not None else value.span
        message = f"the result is `{body.result}`, found `{value.type}`"
        help = m.help or _reduced(body.result, value.type)
        raise fail("E0406", message, where, f"this is `{value.type}`", (*labels, *m.origins(where)), help, m.notes) from None
    return value


def _declared_here(body: Body) -> tuple[Label, ...]:
    return (Label(body.declared, "the result is declared here"),) if body.declared is not None else ()


def _reduced(wanted: Pattern, found: Type) -> str:
    """The help where a scalar is wanted and a tensor found."""
    reals = isinstance(wanted, TensorType) and isinstance(found, TensorType) and not wanted.dims and found.dims
    return "reduce it, with `mean(...)` or `sum(...)`" if reals else ""


def last_value(e: typed.Expr) -> typed.Expr:
    """What a block ends with."""
    if isinstance(e, typed.Do):
        if e.value is not None:
            return last_value(e.value)
        if e.stmts and isinstance(e.stmts[-1], typed.Eval):
            return last_value(e.stmts[-1].expr)
    return e


def script_value(body: Body, block: ast.Block) -> typed.Expr:
    """The top-level statements of a script."""
    return check_statements(body, block, value=False)


# ---------------------------------------------------------------- let and var


@statement(ast.Binding)
def binding(body: Body, node: ast.Binding) -> list[typed.Stmt]:
    try:
        return _binding(body, node)
    except Failed:
        poison(body, node.target)
        raise


def poison(body: Body, target: ast.Target) -> None:
    """Names whose value could not be checked."""
    if target.name:
        body.bind(target.name, Poisoned())
    for item in target.items:
        poison(body, item)


def _binding(body: Body, node: ast.Binding) -> list[typed.Stmt]:
    if node.type is None and node.target.name:
        function = function_of(body, node.value)
        if function is not None:
            if node.mutable:
                raise fail("E0407", "a function cannot be stored in a `var`", node.value.span, help="name it with `let`")
            function, copies = function.captured(body)
            body.bind(node.target.name, FunctionName(function))
            return copies
    if node.type is not None and open_function(body, node.value) is not None:
        value = body.expr(ast.As(node.value, node.type, span=node.value.span))
    else:
        value = body.expr(node.value)
    if value.type in (UNIT, NEVER):
        raise fail("E0503", "this has no value to bind", node.value.span)
    binds = Bindings()
    if node.type is not None:
        value, flexible = _declared(body, node, value, binds)
        if flexible is not None:
            return [*binds.stmts, *_bind_flexible(body, node, value, flexible)]
    if node.target.name:
        return [*binds.stmts, *_bind_name(body, node.target, value, node)]
    whole = binds.keep(value, "pair")
    stmts: list[typed.Stmt] = list(binds.stmts)
    for target, item in zip(node.target.items, items_of(whole, len(node.target.items), node.target.span), strict=True):
        stmts += _bind_target(body, target, item, node)
    return stmts


def _bind_target(body: Body, target: ast.Target, value: typed.Expr, node: ast.Binding) -> list[typed.Stmt]:
    if target.name:
        return _bind_name(body, target, value, node)
    stmts: list[typed.Stmt] = []
    for t, item in zip(target.items, items_of(value, len(target.items), target.span), strict=True):
        stmts += _bind_target(body, t, item, node)
    return stmts


def _bind_name(body: Body, target: ast.Target, value: typed.Expr, node: ast.Binding) -> list[typed.Stmt]:
    dim: Dim | None = None
    if not node.mutable and is_i64(value.type):
        dim = dim_of(value)
        if dim is None:
            dim = Dim.var(DimVar(target.name, target.span))
    local = body.local(target.name, value.type, target.span, node.mutable, dim)
    body.declare(local)
    keys.bound(body, local, value)
    return [typed.Let(local, value, span=node.span)]


def _declared(body: Body, node: ast.Binding, value: typed.Expr, binds: Bindings) -> tuple[typed.Expr, Flexible | None]:
    """The value as the declared type; dimension names that the type introduces are bound. A `var` with `?` is flexible."""
    assert node.type is not None
    context = BodyContext(body)
    pattern = context.type(node.type)
    bound = Bound()
    try:
        match(pattern, value.type, bound, context.bindable)
        finish(bound, context.bindable)
    except Mismatch as m:
        labels = (Label(node.type.span, f"`{pattern}` is declared here"), *m.origins(node.type.span))
        message = f"the value is `{value.type}`, not `{pattern}`"
        raise fail("E0301", message, node.value.span, f"this is `{value.type}`", labels, m.help, m.notes) from None
    binds.stmts += context.binds.stmts
    for name, atom in context.introduced.items():
        body.bind(name, DimensionName(bound.dims[atom]))
    if not node.mutable or not context.wilds:
        return value, None
    known = Bound(dims={a: d for a, d in bound.dims.items() if a not in context.wilds})
    return value, Flexible(substitute(pattern, known), frozenset(context.wilds), value.type)


def _bind_flexible(body: Body, node: ast.Binding, value: typed.Expr, flexible: Flexible) -> list[typed.Stmt]:
    """`var x: f32[?] = e`"""
    if not node.target.name:
        raise fail("E0311", "a type with `?` declares one variable", node.target.span)
    local = body.declare(body.local(node.target.name, flexible.pattern, node.target.span, mutable=True))
    body.flexible[local.uid] = flexible
    return [typed.Let(local, value, span=node.span)]


def items_of(value: typed.Expr, count: int, span: Span) -> list[typed.Expr]:
    """The items of a tuple, or the rows of a tensor whose first dimension is known, to destructure."""
    type = value.type
    match type:
        case TupleType():
            found: int | None = len(type.items)
            items = [part(value, k) for k in range(len(type.items))]
        case TensorType() | StructType() if type.dims:
            found = type.dims[0].value
            if found is None:
                raise fail("E0311", f"`{type}` cannot be destructured: its first dimension is not a constant", span)
            items = [index(value, (int_const(k, span),)) for k in range(found if found == count else 0)]
        case _:
            raise fail("E0311", f"`{type}` cannot be destructured", span, help="a tuple or a tensor of known length can")
    if found != count:
        raise fail("E0311", f"{count} names for {found} values", span, f"the value is `{type}`")
    return items


# ---------------------------------------------------------------- expressions for their effect


@statement(ast.ExprStmt)
def expression_statement(body: Body, node: ast.ExprStmt) -> list[typed.Stmt]:
    if isinstance(node.expr, ast.IfExpr):
        value = if_statement(body, node.expr)
        after = renewed(body, node.expr, node.span)
        return [typed.Eval(value, span=node.span), *([] if value.type is NEVER else after)]
    if isinstance(node.expr, ast.Block):
        value = check_block(body, node.expr, value=False)
    else:
        value = body.expr(node.expr)
    if value.type is not NEVER and value.type != UNIT:
        help = "bind it with `let`, assign it, or `return` it"
        if node is body.tail:
            help = f"if it is the result, write `-> {value.type}` behind the parameters"
        elif isinstance(node.expr, ast.Binary) and node.expr.op == "==":
            help = "`=` assigns"
        raise fail("E0502", f"this value of type `{value.type}` is not used", node.span, help=help)
    return [typed.Eval(value, span=node.span)]


@statement(ast.Assert)
def assertion(body: Body, node: ast.Assert) -> list[typed.Stmt]:
    cond = condition(body, node.cond, "assert")
    source = node.cond.span
    default = ast.Str((f"assertion failed: {source.source.text[source.start : source.end]}",), span=node.span)
    message = text_of(body, node.message if node.message is not None else default)
    stop = unit((typed.Fail("assert", message, span=node.cond.span),), node.span, UNIT)
    return [typed.Eval(typed.If(cond, unit((), node.span, UNIT), stop, type=UNIT, span=node.span), span=node.span)]


# ---------------------------------------------------------------- jumps


@statement(ast.Return)
def return_(body: Body, node: ast.Return) -> list[typed.Stmt]:
    if not body.returns:
        kind = body.scope.innermost(Kind.COMPREHENSION, Kind.LAMBDA)
        message = f"`return` cannot stand in {'a comprehension' if kind is Kind.COMPREHENSION else 'an anonymous function'}"
        help = "its value is its last expression"
        if kind is None:
            message, help = "`return` stands in a function", "a script ends with its last statement"
        raise fail("E0505", message, node.span, help=help)
    assert body.result is not None
    if node.value is None:
        if body.result != UNIT:
            raise fail("E0503", f"`return` needs a value: the result is `{body.result}`", node.span, "", _declared_here(body))
        return [typed.Return(None, span=node.span)]
    value = body.expr(node.value)
    if body.result == UNIT:
        help = f"write `-> {value.type}` behind its parameters" if not body.main else "print the value"
        raise fail("E0406", "this function has no result to return", node.value.span, help=help)
    return [typed.Return(ending(fit_result(body, value), as_type(body.result)), span=node.span)]


@statement(ast.Break)
def break_(body: Body, node: ast.Break) -> list[typed.Stmt]:
    if not body.loops:
        raise fail("E0504", "`break` outside a loop", node.span)
    body.loops[-1].broken = True
    body.keys.leaving.update(body.keys.used)
    return [typed.Break(span=node.span)]


@statement(ast.Continue)
def continue_(body: Body, node: ast.Continue) -> list[typed.Stmt]:
    if not body.loops:
        raise fail("E0504", "`continue` outside a loop", node.span)
    body.keys.going_on.update(body.keys.used)
    return [typed.Continue(span=node.span)]


# ---------------------------------------------------------------- loops


def _loop_body(body: Body, block: ast.Block, before: list[typed.Stmt], index: str = "", mark: keys.Mark | None = None) -> typed.Expr:
    """The body of a loop in the present scope, with statements in front. The mark was made before the loop's variable."""
    before = [*before, *renewed(body, block, block.span)]
    body.loops.append(Loop())
    try:
        with keys.repeated(body, "loop", index, mark or keys.Mark()):
            inside = as_unit(check_block(body, block, value=False))
    finally:
        body.loops.pop()
    if not before:
        return inside
    if isinstance(inside, typed.Do):
        return typed.Do((*before, *inside.stmts), inside.value, type=UNIT, span=inside.span)
    return unit((*before, typed.Eval(inside, span=inside.span)), inside.span, UNIT)


@statement(ast.While)
def while_(body: Body, node: ast.While) -> list[typed.Stmt]:
    before = renewed(body, node.body, node.cond.span)  # the condition sees what the body assigns
    cond = condition(body, node.cond, "while")
    loop = typed.While(do(before, cond), _loop_body(body, node.body, []), span=node.span)
    return [loop, *renewed(body, node.body, node.span)]


@statement(ast.For)
def for_(body: Body, node: ast.For) -> list[typed.Stmt]:
    with body.inside():
        try:
            sequence = node.sequence
            if isinstance(sequence, ast.Progress):
                label = text_of(body, sequence.label) if sequence.label is not None else text_of(body, ast.Str(("",), span=sequence.span))
                loop = _for_range(body, node, sequence.range, label, sequence.note)
            elif isinstance(sequence, ast.RangeExpr):
                loop = _for_range(body, node, sequence)
            else:
                loop = _for_rows(body, node, sequence)
            return [*loop, *renewed(body, node.body, node.span)]
        except Failed as e:
            body.session.report(e)
            poison(body, node.target)
            _loop_body(body, node.body, [])
            raise Failed from None


def _for_range(
    body: Body, node: ast.For, r: ast.RangeExpr, label: typed.Expr | None = None, said: ast.Expr | None = None
) -> list[typed.Stmt]:
    """A loop over a range; `label` and `said` are the label and the note of a progress bar."""
    if label is not None and body.pure:
        raise fail("E0507", "`progress` cannot stand in a comprehension", node.sequence.span)
    lo = need_i64(body.expr(r.lo), "the start of a range")
    hi = need_i64(body.expr(r.hi), "the end of a range")
    step = need_i64(body.expr(r.step), "the step of a range") if r.step is not None else int_const(1, r.span)
    if not node.target.name:
        raise fail("E0311", "the numbers of a range cannot be destructured", node.target.span)
    by = dim_of(step)
    if by is not None and by.value == 0:
        raise fail("E0305", "the step of a range cannot be 0", step.span)
    first, last = dim_of(lo), dim_of(hi)
    forward = by is not None and by.value is not None and by.value > 0
    backward = by is not None and by.value is not None and by.value < 0
    one = Dim.const(1)
    if backward and first is not None and last is not None:
        first, last = last + one, first + one
    known = forward or backward
    mark = keys.Mark()
    note = None
    if said is not None:
        before = renewed(body, node.body, said.span)  # it sees what the body assigned, but not the number of the loop
        with keys.repeated(body, "loop", "", mark):
            note = do(before, text_of(body, said))
    local = body.index(node.target.name, node.target.span, first if known else None, last if known else None)
    body.declare(local)
    return [typed.For(local, lo, hi, step, _loop_body(body, node.body, [], local.name, mark), label, note, span=node.span)]


def _for_rows(body: Body, node: ast.For, sequence: ast.Expr) -> list[typed.Stmt]:
    binds = Bindings()
    whole = body.expr(sequence)
    type = whole.type
    if not isinstance(type, TensorType | StructType) or not type.dims:
        raise fail("E0301", f"`for` needs a range or a tensor, found `{type}`", sequence.span, help="a range is written `0..n`")
    whole = binds.let(whole, "rows") if isinstance(whole, typed.Read) and whole.local.mutable else binds.keep(whole, "rows")
    mark = keys.Mark()
    counter = body.index("row", node.target.span, Dim.const(0), type.dims[0])
    row = index(whole, (read(counter, node.target.span),))
    fake = ast.Binding(False, node.target, None, sequence, span=node.target.span)
    if node.target.name:
        before = _bind_name(body, node.target, row, fake)
    else:
        inner = Bindings()
        kept = inner.keep(row, "row")
        before = [*inner.stmts, *_bind_target(body, node.target, kept, fake)]
    inside = _loop_body(body, node.body, before, "", mark)
    span = node.span
    loop = typed.For(counter, int_const(0, span), dim_value(type.dims[0], span), int_const(1, span), inside, None, span=span)
    return [*binds.stmts, loop]


def variable(body: Body, name: str) -> typed.Local | None:
    """The local that a name leads to."""
    found = body.scope.lookup(name)
    return found.local if isinstance(found, Variable) else None

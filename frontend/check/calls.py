"""Calls: of functions, of structs (construction), of element types (conversion), of builtins."""

from __future__ import annotations

from tlc.frontend import ast, typed
from tlc.frontend.check.apply import argument, call
from tlc.frontend.check.body import Body, expression
from tlc.frontend.check.build import Bindings, bool_const, over
from tlc.frontend.check.builtins import BUILTINS, conversion, scalar_call
from tlc.frontend.check.callee import function_of, path_of
from tlc.frontend.check.cells import Mismatch, dims_help, known_elem
from tlc.frontend.check.derivatives import ByParameters
from tlc.frontend.check.dimension import extent_of
from tlc.frontend.check.functions import FunctionValue
from tlc.frontend.check.limits import check_size
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import FunctionDecl, Poisoned, StructEntity, TypeName, field_help
from tlc.frontend.check.signature import Bindings as Bound
from tlc.frontend.check.signature import as_type, finish, known, match, struct_pattern, substitute
from tlc.frontend.check.type_nodes import ELEMS
from tlc.frontend.check.unknown import no_function, unknown_function
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import DimVar
from tlc.frontend.source import Span
from tlc.frontend.types import StructType, TensorType


@expression(ast.Call)
def call_expression(body: Body, node: ast.Call) -> typed.Expr:
    if isinstance(node.callee, ast.Name):
        found = body.scope.lookup(node.callee.name)
        if isinstance(found, TypeName):
            return _convert_to(body, node, found)
        if found is None:
            special = _special(body, node, node.callee.name)
            if special is not None:
                return special
    fn = function_of(body, node.callee)
    if fn is not None:
        return _call(body, fn, node)
    made = function_of(body, node)
    if made is not None:
        raise fail("E0407", f"`{made.name}` is a function, not a value", node.span, help=f"call it: `{made.name}(...)`")
    path = path_of(body, node.callee)
    if path is not None:
        entity = body.session.entity(body.module, path, node.callee.span)
        if isinstance(entity, StructEntity):
            return construct(body, entity, node.args, node.span)
        if isinstance(entity, Poisoned):
            raise Failed
        if entity is None:
            raise unknown_function(body, node.callee, path)
    raise no_function(body, node)


def _special(body: Body, node: ast.Call, name: str) -> typed.Expr | None:
    """A call of what the compiler itself knows, unless the program has a definition of that name."""
    entity = body.module.names.get(name)
    if entity is not None and not (body.module.trusted and name in BUILTINS and not isinstance(entity, FunctionDecl)):
        return None
    if name in ELEMS and name != "key":
        return conversion(body, ELEMS[name], node)
    if name.startswith("__") and body.module.trusted:
        return scalar_call(body, name[2:], node)
    if name in BUILTINS:
        return BUILTINS[name](body, node)
    return None


def _convert_to(body: Body, node: ast.Call, found: TypeName) -> typed.Expr:
    elem = known_elem(found.type) if isinstance(found.type, TensorType) and not found.type.dims else None
    if elem is None:
        raise fail("E0403", f"`{found.type}` converts nothing", node.callee.span)
    return conversion(body, elem, node)


def _call(body: Body, fn: FunctionValue, node: ast.Call) -> typed.Expr:
    """A call; of a derivative, `wrt` is not for the function."""
    args = node.args
    if isinstance(fn, ByParameters) and any(a.name == "wrt" for a in args):
        wrt = next(a.value for a in args if a.name == "wrt")
        names = wrt.items if isinstance(wrt, ast.TupleExpr) else (wrt,)
        if not all(isinstance(n, ast.Name) for n in names):
            raise fail("E0601", "`wrt` takes the name of a parameter, or a tuple of names", wrt.span)
        fn = fn.by(tuple(n.name for n in names if isinstance(n, ast.Name)), isinstance(wrt, ast.TupleExpr))
        args = tuple(a for a in args if a.name != "wrt")
    return call(body, fn, args, node.span)


# ---------------------------------------------------------------- structs


def _maker(entity: StructEntity) -> str:
    """The function beside the struct that makes one: `nn.init_linear(k, I, O)`."""
    for name, f in entity.module.names.items():
        if name != entity.node.name.lower() and not name.startswith(("init", "make", "new")):
            continue
        result = f.signature.result if isinstance(f, FunctionDecl) and f.signature is not None else None
        if isinstance(f, FunctionDecl) and isinstance(result, StructType) and result.decl is entity.decl and not result.dims:
            return f"`{f.name}({', '.join(p.name for p in f.node.params)})` makes one"
    return ""


def construct(body: Body, entity: StructEntity, args: tuple[ast.Argument, ...], span: Span) -> typed.Expr:
    """`Linear(w = ..., b = ...)`. A dimension may be given by name too, as a claim, and must be if no field determines it."""
    decl = entity.decl
    if entity.broken:
        raise Failed
    pattern = struct_pattern(decl)
    dims = frozenset(p for p in decl.params if isinstance(p, DimVar))
    binds = Bound()
    before = Bindings()
    given: dict[str, typed.Expr] = {}
    fields = {f.name: f for f in decl.visible}
    params = {p.name: p for p in dims}
    for k, a in enumerate(args):
        name = a.name or (list(fields)[k] if k < len(fields) else "")
        if name in params:
            claim = extent_of(body, body.expr(a.value), before, name)[1]
            found = binds.dims.setdefault(params[name], claim)
            if found != claim:
                message = f"`{name}` of this `{decl.name}` is `{found}`, not `{claim}`"
                raise fail("E0402", message, a.value.span, help=dims_help(found, claim))
            continue
        if name not in fields:
            labels = (Label(decl.span, "declared here"),)
            if not a.name:
                raise fail("E0401", f"`{decl.name}` has {len(fields)} fields, {len(args)} are given", a.span, "one too many", labels)
            raise fail("E0310", f"`{decl.name}` has no field `{a.name}`", a.span, "", labels, field_help(a.name, list(fields)))
        if name in given:
            raise fail("E0401", f"the field `{name}` is given twice", a.span)
        value = argument(body, a.value)
        given[name] = value
        f = fields[name]
        try:
            match(f.type, value.type, binds, dims)
        except Mismatch as m:
            labels = (Label(f.span, f"`{f.name}: {f.type}` is wanted"),)
            message = f"the field `{name}` of `{decl.name}` must be `{known(f.type, binds)}`, found `{value.type}`"
            help = m.help or _maker(entity)
            raise fail("E0402", message, a.value.span, f"this is `{value.type}`", labels, help, m.notes) from None
    missing = [n for n in fields if n not in given]
    if missing:
        labels = (Label(decl.span, "declared here"),)
        raise fail("E0401", f"`{decl.name}` needs {', '.join(f'`{n}`' for n in missing)}", span, "", labels, _maker(entity))
    try:
        finish(binds, dims)
    except Mismatch as m:
        raise fail("E0402", f"the fields of `{decl.name}` do not agree", span, m.reason, (), m.help) from None
    for p in decl.params:
        if isinstance(p, DimVar) and p not in binds.dims:
            help = f"give it by name: `{decl.name}(..., {p.name} = ...)`"
            labels = (Label(p.span, "declared here"),)
            raise fail("E0401", f"no field determines the dimension `{p.name}` of `{decl.name}`", span, "", labels, help)
    type = as_type(substitute(pattern, binds))
    check_size(type, span)
    names = list(fields)
    if list(given) == names:
        values = [given[n] for n in names]
    else:
        values = [before.keep(given[n], n) for n in given]
        order = list(given)
        values = [values[order.index(n)] for n in names]
    assert isinstance(type, StructType)
    for f, t in zip(decl.fields, typed.field_types(type), strict=True):
        if f.hidden:
            assert isinstance(t, TensorType)
            values.append(over(t.dims, span, lambda _: bool_const(False, span)))
    return before.wrap(typed.Struct(tuple(values), type=type, span=span))

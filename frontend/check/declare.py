"""Filling a module's scope: structs, constants, functions and used modules, in an order that lets each see the others.

First every name is entered, then fields and signatures are read, so definitions may stand in any order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tlc.frontend import ast, foreign, typed
from tlc.frontend.check.flags import Main, make_main
from tlc.frontend.check.limits import MAX_DEPTH, MAX_LEAVES, is_large
from tlc.frontend.check.lost import lost
from tlc.frontend.check.misspelt import misspelt
from tlc.frontend.check.own_rules import check_rule
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import ConstEntity, Entity, FunctionDecl, ModuleScope, Poisoned, StructEntity
from tlc.frontend.check.signature import Parameter, Signature, as_type, dim_terms, dims_of_type, struct_pattern
from tlc.frontend.check.type_nodes import SignatureContext, StructContext
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar, linear
from tlc.frontend.source import Span
from tlc.frontend.typed import StructField, TypeParam
from tlc.frontend.types import I64, UNIT, Elem, StructType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.session import Session

BOUNDS = ("float", "int", "num", "any", "tree")


def fill(session: Session, scope: ModuleScope) -> None:
    """Enter all definitions of a file."""
    places: dict[str, Span] = {}
    for node in scope.node.definitions:
        name, span = (node.alias, node.span) if isinstance(node, ast.Use) else (node.name, node.name_span)
        if isinstance(node, ast.Function) and node.name == "main" and scope is not session.root:
            continue  # the `main` of a used file is ignored
        if name in places:
            label = Label(places[name], f"`{name}` is first defined here")
            session.report(fail("E0202", f"`{name}` is defined twice", span, "defined again", labels=(label,)))
            continue
        places[name] = span
        try:
            scope.names[name] = _enter(session, scope, node)
        except Failed as e:
            session.report(e)
            scope.names[name] = Poisoned()
    if scope.node.stmts and scope is not session.root:
        session.report(fail("E0208", "a used file has definitions only, no statements", scope.node.stmts[0].span))
    for entity in list(scope.names.values()):
        if isinstance(entity, StructEntity) and entity.module is scope:
            _fields(session, entity)
    for entity in list(scope.names.values()):
        if isinstance(entity, StructEntity) and entity.module is scope and not entity.broken:
            _check_struct(session, entity)
        elif isinstance(entity, FunctionDecl) and entity.module is scope:
            entity.declare(partial(_reported_signature, session, entity), later=scope.trusted)  # of a library, few are asked for


def main(session: Session, scope: ModuleScope) -> Main | None:
    """The entry of the program: `main`, or the top-level statements, or None."""
    found = scope.names.get("main")
    if scope.node.stmts:
        if isinstance(found, FunctionDecl):
            help = "move the statements into `main`"
            session.report(fail("E0802", "a file has either a `main` or top-level statements", scope.node.stmts[0].span, help=help))
            return None
        try:
            return session.instances.script(scope)
        except Failed as e:
            session.report(e)
            return None
    if not isinstance(found, FunctionDecl) or found.signature is None:
        return None
    try:
        return make_main(session, found)
    except Failed as e:
        session.report(e)
        return None


def _enter(session: Session, scope: ModuleScope, node: ast.Definition) -> Entity:
    match node:
        case ast.Use():
            return session.use(scope, node)
        case ast.ConstDef():
            return ConstEntity(scope.qualified(node.name), node, scope)
        case ast.StructDef():
            params = tuple(_struct_param(p) for p in node.params)
            decl = typed.StructDecl(scope.qualified(node.name), params, node.name_span, node.doc)
            return StructEntity(decl, node, scope)
        case ast.Function():
            return FunctionDecl(scope.qualified(node.name), node, scope)


def _struct_param(p: ast.TypeVariable) -> DimVar | TypeParam:
    if not p.bound:
        return DimVar(p.name, p.span)
    return _type_param(p)


def _type_param(p: ast.TypeVariable) -> TypeParam:
    if p.bound not in BOUNDS:
        raise fail(
            "E0205", f"`{p.bound}` is no bound of a type parameter", p.span, help="the bounds are " + ", ".join(f"`{b}`" for b in BOUNDS)
        )
    return TypeParam(p.name, p.bound, p.span)


# ---------------------------------------------------------------- structs


def _fields(session: Session, entity: StructEntity) -> None:
    context = StructContext(session, entity.module, entity.decl.params)
    names: dict[str, Span] = {p.name: p.span for p in entity.node.params}
    for f in entity.node.fields:
        if f.name in names:
            label = Label(names[f.name], "first here")
            session.report(fail("E0202", f"`{entity.decl.name}` has two members `{f.name}`", f.span, labels=(label,)))
            entity.broken = True
            continue
        names[f.name] = f.span
        try:
            assert f.type is not None
            type = as_type(context.type(f.type))
            entity.decl.fields.append(StructField(f.name, type, f.span, f.doc))
        except Failed as e:
            session.report(e)
            entity.broken = True


def _check_struct(session: Session, entity: StructEntity) -> None:
    """A struct does not hold itself; a dimension that no field determines gets a field of its own."""
    if _holds(entity.decl, entity.decl):
        session.report(fail("E0206", f"the struct `{entity.decl.name}` holds itself", entity.decl.span))
        entity.broken = True
        return
    if is_large(struct_pattern(entity.decl)):
        if not any(is_large(f.type) for f in entity.decl.fields):
            span = entity.decl.span
            session.report(fail("E0114", "this struct has too many parts", span, f"more than {MAX_LEAVES} tensors, or {MAX_DEPTH} levels"))
        entity.broken = True
        return
    bare = _bare_dims(entity.decl)
    for p in entity.decl.params:
        if isinstance(p, DimVar) and p not in bare:
            type = TensorType(Elem.BOOL, (Dim.var(p), Dim.const(0)))
            entity.decl.fields.append(StructField(f"({p.name})", type, p.span, hidden=True))


def _holds(inner: typed.StructDecl, wanted: typed.StructDecl) -> bool:
    """Whether a struct lies in the fields of another, however deep."""
    seen: set[typed.StructDecl] = set()
    pending = [inner]
    while pending:
        found = [d for f in pending.pop().fields for d in _structs_in(f.type) if d not in seen]
        seen.update(found)
        pending += found
    return wanted in seen


def _structs_in(type: Type | TypeParam) -> list[typed.StructDecl]:
    match type:
        case StructType():
            return [type.decl] + [d for a in type.args if not isinstance(a, Dim) for d in _structs_in(a)]
        case TupleType():
            return [d for i in type.items for d in _structs_in(i)]
        case _:
            return []


def _bare_dims(decl: typed.StructDecl) -> set[DimVar]:
    """The atoms that are alone as a dimension of some leaf."""
    out: set[DimVar] = set()

    def go(type: Type | TypeParam) -> None:
        match type:
            case TensorType():
                out.update(d.atom for d in type.dims if isinstance(d.atom, DimVar))
            case TupleType():
                for i in type.items:
                    go(i)
            case StructType():
                out.update(d.atom for d in type.dims if isinstance(d.atom, DimVar))
                determined = _bare_dims(type.decl) if type.decl is not decl else set()
                for p, a in zip(type.decl.params, type.args, strict=True):
                    if not isinstance(a, Dim):
                        go(a)
                    elif p in determined and isinstance(a.atom, DimVar):
                        out.add(a.atom)
            case _:
                pass

    for f in decl.fields:
        go(f.type)
    return out


# ---------------------------------------------------------------- functions


def _reported_signature(session: Session, entity: FunctionDecl) -> Signature | None:
    """None if it is wrong, which is reported."""
    try:
        return _signature(session, entity)
    except Failed as e:
        session.report(e)
        return None


def _signature(session: Session, entity: FunctionDecl) -> Signature:
    node = entity.node
    type_params = tuple(_type_param(p) for p in node.type_vars)
    own: dict[str, DimVar] = {}
    for p in node.params:
        if isinstance(p.type, ast.TypeName) and p.type.name == "i64" and p.type.args is None and not p.type.dims:
            own[p.name] = DimVar(p.name, p.span)
    context = SignatureContext(session, entity.module, type_params, own)
    names: dict[str, Span] = {}
    params: list[Parameter] = []
    wrong = False
    for p in node.params:
        try:
            if p.name in names:
                raise fail("E0202", f"two parameters are named `{p.name}`", p.span, labels=(Label(names[p.name], "first here"),))
            names[p.name] = p.span
            assert p.type is not None
            type = context.params[p.name] = context.parameter(p.type)
            params.append(Parameter(p.name, type, p.span, p.default, own.get(p.name), p.doc))
        except Failed as e:
            session.report(e)
            wrong = True
    for name, atom in context.variables.items():
        if name in names and not wrong:
            labels = (Label(names[name], "the parameter"),)
            help = "a parameter that is a dimension is an `i64`; otherwise rename one"
            raise fail("E0202", f"`{name}` is both a parameter and a dimension", atom.span, "", labels, help)
    context.in_result = True
    context.shared = {}
    result = context.type(node.result) if node.result is not None else UNIT
    if wrong:
        raise Failed
    in_types: set[DimVar] = set()
    for q in params:
        if q.type is not None and q.type != I64:
            in_types.update(dims_of_type(q.type))
    in_types.update(dims_of_type(result))
    if node.extern and not entity.module.trusted:
        _check_foreign(node, params, result)
    dims = tuple(context.variables.values())
    _determined(params, dims)
    _known_result(result, params, frozenset(context.fresh))
    if not entity.module.trusted:  # who uses a library could do nothing about a warning
        constants = {name: None for name, e in entity.module.names.items() if isinstance(e, ConstEntity)}
        for found in (*misspelt(node, dims, {**constants, **own, **context.variables}), *lost(node)):
            session.report(found)
    sig = Signature((*type_params, *context.extra_types), tuple(params), result, tuple(context.fresh), dims, frozenset(in_types))
    if node.rule is not None:
        check_rule(sig, node)
    return sig


def _check_foreign(node: ast.Function, params: list[Parameter], result: Type | TypeParam) -> None:
    """A function of the C library: there is one of this name, and what passes are scalars of C."""
    if foreign.address(node.name) is None:
        raise fail("E0409", f"the C library has no function `{node.name}`", node.name_span)
    places = [(p.type, p.span) for p in params]
    if node.result is not None:
        places.append((result, node.result.span))
    for type, span in places:
        if not isinstance(type, TensorType) or type.dims or type.elem not in foreign.C_TYPES:
            help = "it takes and gives " + ", ".join(map(str, foreign.C_TYPES))
            raise fail("E0410", f"a `{type}` cannot pass to or from a function of C", span, help=help)


def _determined(params: list[Parameter], dims: tuple[DimVar, ...]) -> None:
    """The arguments determine every dimension variable: it stands alone, or in a term whose other variables are known."""
    terms = [d for p in params if p.type is not None for d in dim_terms(p.type)]
    known = {p.dim for p in params if p.dim is not None} | {d.atom for d in terms}
    changed = True
    while changed:
        found = {a for t in terms for a in t.atoms() if a not in known and linear(t, a) and all(b == a or b in known for b in t.atoms())}
        known |= found
        changed = bool(found)
    for v in dims:
        if v not in known and any(v in t.atoms() for t in terms):
            help = f"give a parameter the dimension `{v.name}` alone, or take it as an `i64` parameter"
            raise fail("E0306", f"no argument determines the dimension `{v.name}`", v.span, help=help)


def _known_result(result: Type | TypeParam, params: list[Parameter], fresh: frozenset[DimVar]) -> None:
    """Every dimension of a result is one that the caller can know."""
    known = {d for p in params if p.type is not None for d in dims_of_type(p.type)} | {p.dim for p in params if p.dim is not None}
    for d in dims_of_type(result):
        if d not in known and d not in fresh:
            help = f"take `{d.name}` as an `i64` parameter, or write `?{d.name}` for a dimension that only the run knows"
            same = next((p for p in params if p.name == d.name), None)
            if same is not None:
                help = f"the parameter `{d.name}` is `{same.type}`; a dimension is an `i64`"
            raise fail("E0306", f"nothing determines the dimension `{d.name}` of the result", d.span, help=help)

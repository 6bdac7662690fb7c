"""Instances: a definition with element types, types and functions for its variables, each checked once.

A dimension is never part of an instance: the struct that stands for `P: tree` gets fresh dimension variables, and
plain functions have exactly one instance. The key of an instance is what it was made from, with dimensions erased.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tlc.frontend import ast, typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.cells import NEVER, Pattern, tensor
from tlc.frontend.check.flags import Main
from tlc.frontend.check.functions import FunctionParameter
from tlc.frontend.check.limits import MAX_DEPTH, MAX_LEAVES, is_large
from tlc.frontend.check.own_rules import own_rule
from tlc.frontend.check.pending import Closed
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import (
    DimensionName,
    FunctionDecl,
    FunctionName,
    Kind,
    ModuleScope,
    Scope,
    TypeName,
    Variable,
)
from tlc.frontend.check.signature import Bindings, dims_of_type, substitute
from tlc.frontend.check.statements import function_value, script_value
from tlc.frontend.check.zonk import Zonk
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import FunctionRef, Local, TypeParam
from tlc.frontend.types import UNIT, Elem, FunctionType, StructType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.session import Session

# What stands for a type parameter in a body that nobody calls, the first and the second time; of `any` almost nothing may be assumed.
REPRESENTATIVES = {
    "float": (Elem.F32, Elem.F32), "int": (Elem.I64, Elem.I64), "num": (Elem.F32, Elem.I64), "any": (Elem.BOOL, Elem.BOOL),
}  # fmt: skip


@dataclass(eq=False)
class Instance:
    """An instance that was asked for. `depth` counts the instances of generic functions that led to it; `note` goes with its errors."""

    ref: FunctionRef
    decl: FunctionDecl | None
    types: dict[TypeParam, Type]
    functions: dict[str, Closed]
    depth: int = 0
    outlined: int = 0
    note: str = ""


class Instances:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.by_key: dict[object, FunctionRef] = {}
        self.functions: dict[str, typed.Function] = {}
        self.taken: set[str] = set()
        self.ruled: set[FunctionRef] = set()  # those with a derivative of their own
        self.queue: deque[Instance] = deque()

    # ------------------------------------------------------------ asking for instances

    def request(
        self,
        decl: FunctionDecl,
        types: dict[TypeParam, Type],
        functions: dict[str, Closed],
        caller: Instance | None,
        span: Span,
        note: str = "",
    ) -> FunctionRef:
        """The instance of a definition; it is checked later."""
        assert decl.signature is not None
        key = (decl, tuple(erase(types[p]) for p in decl.signature.type_params), tuple((n, _closed_key(f)) for n, f in functions.items()))
        ref = self.by_key.get(key)
        if ref is None:
            parts = [_short(types[p]) for p in decl.signature.type_params] + [f.ref.name for f in functions.values()]
            ref = self.by_key[key] = FunctionRef(self._unique(decl.name + (f"[{', '.join(parts)}]" if parts else "")))
            if decl.node.rule is not None:
                self.ruled.add(ref)
            depth = (caller.depth if caller is not None else 0) + (1 if parts else 0)
            # Endless instances may double a type, or nest it deeper: that is seen here before the type itself is too large.
            if depth > MAX_DEPTH or any(is_large(t, MAX_LEAVES // 2, MAX_DEPTH // 2) for t in types.values()):
                raise fail("E0408", f"more than {MAX_DEPTH} instances of generic functions ask for one another here", span)
            self.queue.append(Instance(ref, decl, types, functions, depth, note=note))
        return ref

    def request_representative(self, decl: FunctionDecl) -> None:
        """Have a definition checked though nobody calls it (yet). Bodies over functions or trees wait for an instance."""
        sig = decl.signature
        if sig is None or any(isinstance(p.type, FunctionType) for p in sig.params) or any(p.bound == "tree" for p in sig.type_params):
            return
        for k in range(2 if any(p.bound == "num" for p in sig.type_params) else 1):
            types: dict[TypeParam, Type] = {p: tensor(REPRESENTATIVES[p.bound][k]) for p in sig.type_params}
            stands = (f"`{p.name}` is `{t}` here, which `{p.bound}` allows" for p, t in types.items() if k > 0 or p.bound == "any")
            self.request(decl, types, {}, None, decl.node.name_span, "; ".join(stands))

    def add_outlined(self, instance: Instance, name: str, params: tuple[Local, ...], body: typed.Expr) -> FunctionRef:
        """A function that an anonymous one became; it is final."""
        instance.outlined += 1
        ref = FunctionRef(self._unique(f"{instance.ref.name}.{name}"))
        self.functions[ref.name] = typed.Function(ref, params, body.type, body, body.span)
        return ref

    def script(self, scope: ModuleScope) -> Main:
        """The top-level statements of a script, as its `main`."""
        span = scope.node.stmts[0].span.to(scope.node.stmts[-1].span)
        body = Body(self.session, scope, Scope(None, Kind.FUNCTION), returns=False)
        value = script_value(body, ast.Block(scope.node.stmts, span=span))
        ref = self.reserve_main()
        self.add_main(ref, value, span, scope.node.doc)
        return Main(ref, ())

    def reserve_main(self) -> FunctionRef:
        """The name of what a program does that has no `main` of its own, or does not run it."""
        return FunctionRef(self._unique("main"))

    def add_main(self, ref: FunctionRef, value: typed.Expr, span: Span, doc: str) -> None:
        """The function of that name: no parameters, no result."""
        self._finish(Instance(ref, None, {}, {}), (), UNIT, value, span, doc)

    def _unique(self, name: str) -> str:
        unique, k = name, 2
        while unique in self.taken:
            unique, k = f"{name}#{k}", k + 1
        self.taken.add(unique)
        return unique

    # ------------------------------------------------------------ checking them

    def run(self) -> None:
        """Check every instance that was asked for, and those that they ask for."""
        while self.queue:
            instance = self.queue.popleft()
            said = len(self.session.diagnostics)
            try:
                self._check(instance)
            except Failed as e:
                self.session.report(e)
            if instance.note:
                found = self.session.diagnostics[said:]
                self.session.diagnostics[said:] = [replace(d, notes=(*d.notes, instance.note)) for d in found]

    def _check(self, instance: Instance) -> None:
        decl = instance.decl
        assert decl is not None
        self.session.expansions.reset()
        sig = decl.signature
        assert sig is not None and sig.result is not None
        node = decl.node
        binds = Bindings(types={p: freshen(t) for p, t in instance.types.items()})
        scope = Scope(None, Kind.FUNCTION)
        for p in sig.type_params:
            scope.names[p.name] = TypeName(binds.types[p])
        for d in sig.dims:
            scope.names[d.name] = DimensionName(Dim.var(d))
        body = Body(self.session, decl.module, scope, substitute(sig.result, binds), frozenset(sig.fresh))
        body.natural.update(sig.dims)
        params: list[Local] = []
        captured: list[Local] = []
        for q in sig.params:
            assert q.type is not None
            type = substitute(q.type, binds)
            if isinstance(type, FunctionType):
                closed = instance.functions[q.name]
                locals = tuple(Local(f"{q.name}.{k}", freshen(c.type), span=q.span) for k, c in enumerate(closed.captures))
                captured += locals
                scope.names[q.name] = FunctionName(FunctionParameter(q.name, type, closed.ref, locals))
                continue
            local = Local(q.name, type, False, Dim.var(q.dim) if q.dim is not None else None, q.span)
            params.append(local)
            scope.names[q.name] = Variable(local)
            body.natural.update(dims_of_type(type))
        if node.body is None:
            self._foreign(instance, decl, tuple(params), body)
            return
        value = function_value(body, node)
        rule = self._rule(instance, params, body)
        self._finish(instance, (*params, *captured), body.result or UNIT, value, node.name_span, node.doc, rule)

    def _rule(self, instance: Instance, params: Sequence[Local], of: Body) -> FunctionRef | None:
        """The instance's own derivative, where its definition has one."""
        decl = instance.decl
        assert decl is not None
        if decl.node.rule is None:
            return None
        assert of.result is not None
        body = Body(self.session, decl.module, Scope(None, Kind.FUNCTION), returns=False)
        body.natural.update(of.natural)
        takes, value = own_rule(body, decl, params, _as_type(of.result))
        ref = FunctionRef(self._unique(f"{instance.ref.name}.vjp"))
        self._finish(replace(instance, ref=ref), takes, value.type, value, decl.node.rule.span, "")
        return ref

    def _foreign(self, instance: Instance, decl: FunctionDecl, params: tuple[Local, ...], body: Body) -> None:
        assert body.result is not None
        args = tuple(typed.Read(p, type=p.type, span=p.span) for p in params)
        type, span = _as_type(body.result), decl.node.span
        call = typed.Foreign(decl.node.name, args, type=type, span=span)
        self._finish(instance, params, body.result, call, decl.node.name_span, decl.node.doc, self._rule(instance, params, body))

    def _finish(
        self,
        instance: Instance,
        params: tuple[Local, ...],
        result: Pattern,
        value: typed.Expr,
        span: Span,
        doc: str,
        rule: FunctionRef | None = None,
    ) -> None:
        zonk = Zonk(self.session, instance)
        final = tuple(zonk.local(p) for p in params)
        type = zonk.type(_as_type(result))
        body = zonk.expr(value)
        if value.type is NEVER and isinstance(body, typed.Do):
            body = typed.Do(body.stmts, None, type=type, span=body.span)
        self.functions[instance.ref.name] = typed.Function(instance.ref, final, type, body, span, doc, rule)

    # ------------------------------------------------------------ the result

    def reachable(self, main: str | None) -> dict[str, typed.Function]:
        """The functions that `main` reaches (all, for a library), callees first where there is no recursion."""
        out: dict[str, typed.Function] = {}
        seen: set[str] = set()
        for root in [main] if main is not None else list(self.functions):
            stack: list[tuple[str, list[str]]] = []
            if root not in seen:
                seen.add(root)
                stack.append((root, callees(self.functions[root])))
            while stack:
                name, rest = stack[-1]
                if not rest:
                    out[name] = self.functions[name]
                    stack.pop()
                    continue
                callee = rest.pop(0)
                if callee not in seen:
                    seen.add(callee)
                    stack.append((callee, callees(self.functions[callee])))
        return out


def callees(f: typed.Function) -> list[str]:
    """The functions that a function mentions, in order, each once, and its rule."""
    from tlc.frontend.check.outline import walk

    found = [n.callee.name for n in walk(f.body) if isinstance(n, typed.Call | typed.Grad | typed.Jvp)]
    return list(dict.fromkeys(found + ([f.rule.name] if f.rule is not None else [])))


def erase(type: Type) -> object:
    """A type without its dimensions: a key."""
    match type:
        case TensorType():
            return (type.elem, len(type.dims))
        case StructType():
            return (type.decl, tuple(None if isinstance(a, Dim) else erase(a) for a in type.args), len(type.dims))
        case TupleType():
            return tuple(erase(i) for i in type.items)
        case FunctionType():
            return ("fn", tuple(erase(p) for p in type.params), erase(type.result))


def freshen(type: Type) -> Type:
    """The type with a fresh dimension variable for each of its dimensions."""
    match type:
        case TensorType():
            return TensorType(type.elem, tuple(_fresh(d, "d") for d in type.dims))
        case StructType():
            args = tuple(_fresh(a, p.name) if isinstance(a, Dim) else freshen(a) for a, p in zip(type.args, type.decl.params, strict=True))
            return StructType(type.decl, args, tuple(_fresh(d, "d") for d in type.dims))
        case TupleType():
            return TupleType(tuple(freshen(i) for i in type.items))
        case FunctionType():
            return type


def _fresh(dim: Dim, name: str) -> Dim:
    atom = dim.atom
    return Dim.var(DimVar(atom.name if isinstance(atom, DimVar) else name))


def _closed_key(f: Closed) -> object:
    return (f.ref.name, tuple(erase(c.type) for c in f.captures))


def _short(type: Type) -> str:
    """A type in the name of an instance."""
    match type:
        case TensorType():
            return str(type.elem) + ("[" + ", ".join("_" * len(type.dims)) + "]" if type.dims else "")
        case StructType():
            return type.decl.name + ("[" + ", ".join("_" * len(type.dims)) + "]" if type.dims else "")
        case TupleType():
            return f"({', '.join(_short(i) for i in type.items)})"
        case FunctionType():
            return "fn"


def _as_type(pattern: Pattern) -> Type:
    assert not isinstance(pattern, TypeParam)
    return pattern

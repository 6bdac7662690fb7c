"""Function values: what can be called, passed to a parameter of function type, or differentiated.

    DefinedFunction      a definition
    FunctionParameter    a parameter of function type inside an instance
    Closure              an anonymous function: its body is checked where it is called, for the arguments it gets
    Derivative           `grad(f)`, `value_and_grad(f)` and their kin (in `derivatives.py`)

`apply.py` fits arguments to a value's signature, lifting where needed, and calls `emit` with arguments that fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from tlc.frontend import ast, typed
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import do, read
from tlc.frontend.check.dimension import BodyContext, dim_of, is_i64
from tlc.frontend.check.pending import Outline, PendingCall, PendingLayout
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import DimensionName, FunctionDecl, Kind, Scope, Variable
from tlc.frontend.check.signature import Bindings as Bound
from tlc.frontend.check.signature import Parameter, Signature, substitute
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.typed import FunctionRef, Local, TypeParam
from tlc.frontend.types import STR, FunctionType, TensorType, Type


@dataclass
class Site:
    """A call whose arguments fit: `args` for the parameters that are values, `functions` for those of function type."""

    binds: Bound
    args: list[typed.Expr]
    functions: list[tuple[str, Outline]]
    span: Span


class FunctionValue(ABC):
    name: str

    @property
    def is_service(self) -> bool:
        """Whether the run time does it. Then it uses up no key, and is called once."""
        return False

    @property
    def usage(self) -> str:
        """How it is called, in words, where its parameters alone do not say so."""
        return ""

    @abstractmethod
    def signature(self, body: Body) -> Signature:
        """What it takes. Raises Failed if the definition is wrong (and was reported)."""

    @abstractmethod
    def emit(self, body: Body, site: Site) -> typed.Expr:
        """The call."""

    def captured(self, body: Body) -> tuple[FunctionValue, list[typed.Stmt]]:
        """This value as a `let` names it: variables that it captures are copied by the statements."""
        return self, []

    def default_scope(self, body: Body) -> FunctionDecl | None:
        """The definition whose module the default values of parameters belong to."""
        return None


@dataclass(frozen=True)
class DefinedFunction(FunctionValue):
    """A definition. `said` is what the program says of the result, for a service that gives what is asked for (`is_open`)."""

    decl: FunctionDecl
    said: Type | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.decl.name

    @property
    def is_service(self) -> bool:
        return self.decl.is_service

    @property
    def is_open(self) -> bool:
        """Whether no argument says what the result is: `data.npy(path) as f32[n, 3]`."""
        sig = self.decl.signature
        result = sig.result if sig is not None and self.decl.is_service else None
        return sig is not None and isinstance(result, TypeParam) and result not in [p.type for p in sig.params]

    def signature(self, body: Body) -> Signature:
        if self.decl.signature is None:
            raise Failed
        return self.decl.signature

    def emit(self, body: Body, site: Site) -> typed.Expr:
        sig = self.signature(body)
        assert sig.result is not None
        for d in sig.fresh:
            site.binds.dims[d] = Dim.var(DimVar(d.name, site.span))
        if self.is_open and isinstance(sig.result, TypeParam):
            site.binds.types[sig.result] = self._open(site.span)
        result = substitute(sig.result, site.binds)
        for p in sig.type_params:
            if p not in site.binds.types:
                raise fail("E0405", f"nothing fixes the type parameter `{p.name}` of `{self.name}`", site.span)
        if self.decl.is_service:
            return self._service(body, sig, site, result)
        return PendingCall(self.decl, dict(site.binds.types), tuple(site.args), tuple(site.functions), type=result, span=site.span)

    def _open(self, span: Span) -> Type:
        """The type that is said of the result, with dimensions that the run finds out; what is said of them is checked behind."""
        if isinstance(self.said, TensorType):
            return TensorType(self.said.elem, tuple(Dim.var(DimVar("?", span)) for _ in self.said.dims))
        message = f"nothing says what `{self.name}` gives"
        if self.said is not None:
            message = f"`{self.name}` gives a tensor, `{self.said}` is none"
        raise fail("E0405", message, span, help=f"say it: `{self.name}(...) as f32[n, 3]`")

    def _service(self, body: Body, sig: Signature, site: Site, result: Type) -> typed.Expr:
        """A call of a service of the run time. It stands where the program calls it, so that this is the place where it may stop; what a
        type parameter stands for is told to it in front of the arguments.
        """
        body.act(self.name, site.span)
        layouts = tuple(PendingLayout(site.binds.types[p], self.name, type=STR, span=site.span) for p in sig.type_params)
        return typed.Extern(self.decl.name, (*layouts, *site.args), type=result, span=site.span)

    def default_scope(self, body: Body) -> FunctionDecl | None:
        return self.decl


@dataclass(frozen=True)
class FunctionParameter(FunctionValue):
    """`type` is in terms of the instance; `captures` are locals of the instance."""

    name: str
    type: FunctionType
    ref: FunctionRef
    captures: tuple[Local, ...]

    def signature(self, body: Body) -> Signature:
        params = tuple(Parameter(f"#{k + 1}", p) for k, p in enumerate(self.type.params))
        return Signature((), params, self.type.result)

    def emit(self, body: Body, site: Site) -> typed.Expr:
        captures = tuple(read(c, site.span) for c in self.captures)
        return typed.Call(self.ref, (*site.args, *captures), type=self.type.result, span=site.span)


@dataclass(frozen=True)
class Closure(FunctionValue):
    node: ast.Lambda
    scope: Scope
    sig: Signature
    introduced: dict[str, DimVar]
    name: str = "fn"

    @staticmethod
    def make(body: Body, node: ast.Lambda) -> Closure:
        context = BodyContext(body)
        params = []
        for p in node.params:
            type = context.parameter(p.type) if p.type is not None else None
            if isinstance(type, FunctionType):
                raise fail("E0407", "an anonymous function takes no functions", p.span)
            params.append(Parameter(p.name, type, p.span, p.default))
        dims = (*context.introduced.values(), *context.wilds)
        return Closure(node, body.scope, Signature((), tuple(params), None, dims=dims), dict(context.introduced))

    def signature(self, body: Body) -> Signature:
        return self.sig

    def emit(self, body: Body, site: Site) -> typed.Expr:
        stmts: list[typed.Stmt] = []
        deep = body.session.expansions.inside("anonymous functions", site.span)
        with deep, body.inside(Kind.LAMBDA, self.scope), body.no_escape(pure=False):
            for name, atom in self.introduced.items():
                body.bind(name, DimensionName(site.binds.dims[atom]))
            for p, value in zip(self.sig.params, site.args, strict=True):
                dim: Dim | None = None
                if is_i64(value.type):
                    dim = dim_of(value)
                    dim = dim if dim is not None else Dim.var(DimVar(p.name, p.span))
                local = body.local(p.name, value.type, p.span, dim=dim)
                body.declare(local)
                stmts.append(typed.Let(local, value, span=value.span))
            result = body.expr(self.node.body)
        return do(stmts, result)

    def captured(self, body: Body) -> tuple[FunctionValue, list[typed.Stmt]]:
        scope = self.scope.snapshot()  # what is bound later under the same names is not meant
        stmts: list[typed.Stmt] = []
        for name in ast.names_in(self.node.body):
            found = scope.lookup(name)
            if isinstance(found, Variable) and found.local.mutable:
                copy = body.local(name, found.local.type, self.node.span)
                stmts.append(typed.Let(copy, read(found.local, self.node.span), span=self.node.span))
                scope.names[name] = Variable(copy)
        return replace(self, scope=scope), stmts

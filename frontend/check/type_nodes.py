"""From type nodes to types. Where a type stands decides what an unknown dimension name means, so there is a context a place:
signatures introduce dimension variables, fields of structs refuse them, types inside a body introduce them for the rest of the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tlc.frontend import ast
from tlc.frontend.check import habits
from tlc.frontend.check.cells import Pattern, tensor
from tlc.frontend.check.limits import has_many_terms
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import ConstEntity, Entity, FunctionDecl, ModuleScope, Namespace, Poisoned, StructEntity, near
from tlc.frontend.check.signature import as_type, param_type
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.typed import TypeParam, instantiate
from tlc.frontend.types import UNIT, Elem, FunctionType, StructType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.session import Session

ELEMS: dict[str, Elem] = {e.value: e for e in Elem}


def kind_of(entity: Entity) -> str:
    """What a definition is, for people."""
    match entity:
        case ConstEntity():
            return "a constant"
        case FunctionDecl():
            return "a function"
        case Namespace():
            return "a module"
        case _:
            return "a struct"


class TypeContext:
    """How names in a type are read. The base class knows constants, structs and nothing else."""

    def __init__(self, session: Session, module: ModuleScope) -> None:
        self.session = session
        self.module = module

    # ------------------------------------------------------------ what places differ in

    def type_variable(self, name: str) -> Pattern | None:
        """A type parameter in scope."""
        return None

    def known_dim(self, name: str, span: Span) -> Dim | None:
        """A dimension name in scope, constants aside."""
        return None

    def unknown_dim(self, name: str, span: Span) -> Dim:
        help = near(name, [n for n, e in self.module.names.items() if isinstance(e, ConstEntity)])
        raise fail("E0306", f"unknown dimension `{name}`", span, "neither a constant nor a parameter", help=help)

    def wild(self, name: str, span: Span, hint: str = "?") -> Dim:
        raise fail("E0306", "`?` cannot stand here", span)

    def anonymous_type(self, parameter: TypeParam, span: Span) -> Type:
        """What stands for a type parameter of a struct that is named without arguments."""
        raise fail("E0205", f"the type parameter `{parameter.name}` of the struct must be given", span)

    # ------------------------------------------------------------ types

    def type(self, node: ast.TypeNode) -> Pattern:
        match node:
            case ast.TypeName():
                return self._named(node)
            case ast.TupleTypeNode():
                return TupleType(tuple(as_type(self.type(i)) for i in node.items))
            case ast.FunctionTypeNode():
                raise fail("E0407", "functions are passed, never stored", node.span, help="a function type is that of a parameter alone")

    def parameter(self, node: ast.TypeNode) -> Pattern:
        """The type of a parameter, which may be a function of values."""
        if not isinstance(node, ast.FunctionTypeNode):
            return self.type(node)
        result = as_type(self.type(node.result)) if node.result is not None else UNIT
        return FunctionType(tuple(as_type(self.type(p)) for p in node.params), result)

    def _named(self, node: ast.TypeName) -> Pattern:
        dims = tuple(self.dim(d) for d in node.dims)
        for d, place in zip(dims, node.dims, strict=True):
            if d.value is not None and d.value < 0:
                raise fail("E0306", "a dimension cannot be negative", place.span)
        if node.name in ELEMS:
            elem = ELEMS[node.name]
            if node.args is not None:
                raise fail("E0205", f"`{node.name}` takes no arguments", node.span, help=f"dimensions stand in brackets: `{node.name}[n]`")
            return tensor(elem, dims)
        variable = self.type_variable(node.name)
        if variable is not None:
            return self._variable(variable, dims, node)
        entity = self.session.entity(self.module, node.name.split("."), node.span)
        if isinstance(entity, Poisoned) or (isinstance(entity, StructEntity) and entity.broken):
            raise Failed
        if not isinstance(entity, StructEntity):
            message = f"the type `{node.name}` is unknown"
            if entity is not None:
                message = f"`{node.name}` is {kind_of(entity)}, not a type"
            names = [*ELEMS, *(n for n, e in self.module.names.items() if isinstance(e, StructEntity))]
            help = habits.TYPES.get(node.name.rsplit(".", 1)[-1]) or near(node.name, names)
            raise fail("E0205", message, node.span, help=help)
        return self._struct(entity, node, dims)

    def _variable(self, variable: Pattern, dims: tuple[Dim, ...], node: ast.TypeName) -> Pattern:
        if node.args is not None:
            raise fail("E0205", f"the type parameter `{node.name}` takes no arguments", node.span)
        if isinstance(variable, TensorType):
            return TensorType(variable.elem, dims + variable.dims)
        if not dims:
            return variable
        if isinstance(variable, StructType):
            return StructType(variable.decl, variable.args, dims + variable.dims)
        if isinstance(variable, TypeParam):
            return tensor(variable, dims)
        raise fail("E0205", f"there is no array of `{node.name}`, which is `{variable}`", node.span)

    def _struct(self, entity: StructEntity, node: ast.TypeName, dims: tuple[Dim, ...]) -> StructType:
        params = entity.decl.params
        if node.args is None:
            args = tuple(self.wild("", node.span, p.name) if isinstance(p, DimVar) else self.anonymous_type(p, node.span) for p in params)
            return StructType(entity.decl, args, dims)
        if len(node.args) != len(params):
            names = ", ".join(p.name for p in params)
            help = f"write `{entity.decl.name}({names})`" if params else f"write `{entity.decl.name}`"
            raise fail("E0205", f"`{entity.decl.name}` has {len(params)} parameters, not {len(node.args)}", node.span, help=help)
        return StructType(entity.decl, tuple(self._argument(p, a) for p, a in zip(params, node.args, strict=True)), dims)

    def _argument(self, param: DimVar | TypeParam, arg: ast.TypeArg) -> Dim | Type:
        if isinstance(param, DimVar):
            if isinstance(arg, ast.Wild):
                return self.wild(arg.name, arg.span, param.name)
            if isinstance(arg, ast.TypeName) and not arg.dims and arg.args is None:
                *path, name = arg.name.split(".")
                base: ast.Expr | None = None
                for p in path:
                    base = ast.Name(p, span=arg.span) if base is None else ast.Field(base, p, arg.span, span=arg.span)
                return self.dim(ast.Name(name, span=arg.span) if base is None else ast.Field(base, name, arg.span, span=arg.span))
            if isinstance(arg, ast.TypeName | ast.TupleTypeNode | ast.FunctionTypeNode):
                raise fail("E0205", f"a dimension is wanted for `{param.name}`, a type is given", arg.span)
            return self.dim(arg)
        if not isinstance(arg, ast.TypeName | ast.TupleTypeNode | ast.FunctionTypeNode):
            raise fail("E0205", f"a type is wanted for `{param.name}`", arg.span)
        return as_type(self.type(arg))

    # ------------------------------------------------------------ dimensions

    def dim(self, node: ast.Expr | ast.Wild) -> Dim:
        match node:
            case ast.Wild():
                return self.wild(node.name, node.span)
            case ast.Number(value=int()) if node.suffix in ("", "i64"):
                if node.value < 0:
                    raise fail("E0306", "a dimension cannot be negative", node.span)
                return Dim.const(int(node.value))
            case ast.Name():
                return self._dim_name(node)
            case ast.Binary(op="+" | "-" | "*" | "//"):
                return self._dim_binary(node)
            case ast.Unary(op="-"):
                return -self.dim(node.operand)
            case _:
                return self.other_dim(node)

    def _dim_name(self, node: ast.Name) -> Dim:
        known = self.known_dim(node.name, node.span)
        if known is not None:
            return known
        entity = self.session.entity(self.module, [node.name], node.span)
        if isinstance(entity, ConstEntity):
            return self._const(entity, node.span)
        if isinstance(entity, Poisoned):
            raise Failed
        return self.unknown_dim(node.name, node.span)

    def _dim_binary(self, node: ast.Binary) -> Dim:
        a, b = self.dim(node.left), self.dim(node.right)
        match node.op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                if has_many_terms(a, b):
                    raise fail("E0306", "this dimension term is too large", node.span, help="give a part of it a name with `let`")
                return a * b
            case _:
                if b.value == 0:
                    raise fail("E0306", "a dimension is divided by zero", node.span)
                return a // b

    def other_dim(self, node: ast.Expr) -> Dim:
        """Any other expression: a constant of a module, or an error."""
        if isinstance(node, ast.Field) and isinstance(node.base, ast.Name):
            entity = self.session.entity(self.module, [node.base.name], node.span)
            if isinstance(entity, Namespace):
                member = self.session.entity(self.module, [node.base.name, node.name], node.span)
                if isinstance(member, ConstEntity):
                    return self._const(member, node.span)
        help = "a dimension is made of integers and immutable `i64` names with `+ - * //`"
        raise fail("E0306", "this is no dimension term", node.span, help=help)

    def _const(self, entity: ConstEntity, span: Span) -> Dim:
        value = self.session.constant(entity)
        if value is None:
            help = "such a constant is made of numbers, operators and other constants"
            message = f"the compiler does not know the value of `{entity.node.name}`, so it cannot be a dimension"
            raise fail("E0306", message, span, help=help)
        if not isinstance(value, int) or isinstance(value, bool):
            raise fail("E0306", f"the constant `{entity.node.name}` is no integer, so it cannot be a dimension", span)
        return Dim.const(value)


class SignatureContext(TypeContext):
    """Types of parameters and results: unknown names are dimension variables."""

    def __init__(self, session: Session, module: ModuleScope, type_params: tuple[TypeParam, ...], own: dict[str, DimVar]) -> None:
        super().__init__(session, module)
        self.types = {p.name: p for p in type_params}
        self.own = own  # the `i64` parameters
        self.variables: dict[str, DimVar] = {}
        self.fresh: list[DimVar] = []  # of the result, known only when the program runs
        self.extra_types: list[TypeParam] = []
        self.in_result = False
        self.shared: dict[str, DimVar] = {}
        self.params: dict[str, Pattern] = {}  # those before this place: `l.I` is a dimension of the struct `l`

    def type_variable(self, name: str) -> Pattern | None:
        p = self.types.get(name)
        return param_type(p) if p is not None else None

    def known_dim(self, name: str, span: Span) -> Dim | None:
        atom = self.own.get(name) or self.variables.get(name)
        return Dim.var(atom) if atom is not None else None

    def unknown_dim(self, name: str, span: Span) -> Dim:
        atom = self.variables[name] = DimVar(name, span)
        return Dim.var(atom)

    def wild(self, name: str, span: Span, hint: str = "?") -> Dim:
        if name and name in self.shared:
            return Dim.var(self.shared[name])
        atom = DimVar(name or hint, span)
        if name:
            self.shared[name] = atom
        if self.in_result:
            self.fresh.append(atom)
        elif name:
            self.variables[name] = atom
        else:
            self.variables[f"?{len(self.variables)}"] = atom
        return Dim.var(atom)

    def other_dim(self, node: ast.Expr) -> Dim:
        base = self._type_of(node.base) if isinstance(node, ast.Field) else None
        if not isinstance(node, ast.Field) or not isinstance(base, StructType):
            return super().other_dim(node)
        named = {p.name: a for p, a in zip(base.decl.params, base.args, strict=True) if isinstance(a, Dim)}
        if node.name not in named:
            raise fail("E0306", f"`{base.decl.name}` has no dimension `{node.name}`", node.span, help=near(node.name, list(named)))
        return named[node.name]

    def _type_of(self, node: ast.Expr) -> Pattern | None:
        """The type of a parameter, or of a field of one; leading dimensions of struct arrays are left out."""
        if isinstance(node, ast.Name):
            return self.params.get(node.name)
        base = self._type_of(node.base) if isinstance(node, ast.Field) else None
        if not isinstance(node, ast.Field) or not isinstance(base, StructType):
            return None
        return next((instantiate(f.type, base) for f in base.decl.fields if f.name == node.name), None)

    def anonymous_type(self, parameter: TypeParam, span: Span) -> Type:
        if self.in_result:
            return super().anonymous_type(parameter, span)
        p = TypeParam(parameter.name, parameter.bound, span)
        self.extra_types.append(p)
        return param_type(p)


class StructContext(TypeContext):
    """Field types: constants and the struct's parameters."""

    def __init__(self, session: Session, module: ModuleScope, params: tuple[DimVar | TypeParam, ...]) -> None:
        super().__init__(session, module)
        self.params = {p.name: p for p in params}

    def type_variable(self, name: str) -> Pattern | None:
        p = self.params.get(name)
        return param_type(p) if isinstance(p, TypeParam) else None

    def known_dim(self, name: str, span: Span) -> Dim | None:
        p = self.params.get(name)
        return Dim.var(p) if isinstance(p, DimVar) else None

    def wild(self, name: str, span: Span, hint: str = "?") -> Dim:
        raise fail("E0306", "the dimensions of a field must be given", span, help="name the struct's arguments: `Linear(I, O)`")

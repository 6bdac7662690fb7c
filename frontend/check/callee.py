"""Which function an expression means: a name, an anonymous function, or `grad(f)` and its kin. None if it is a value."""

from __future__ import annotations

from collections.abc import Callable

from tlc.frontend import ast
from tlc.frontend.check.body import Body
from tlc.frontend.check.derivatives import DIRECTIONAL, Checkpoint, Derivative, jvp, vjp
from tlc.frontend.check.functions import Closure, DefinedFunction, FunctionValue
from tlc.frontend.check.jacobians import hessian, jacobian
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.scope import Entity, FunctionDecl, FunctionName, Poisoned
from tlc.frontend.types import FunctionType

Transform = Callable[[Body, ast.Call], FunctionValue]


def function_of(body: Body, node: ast.Expr) -> FunctionValue | None:
    """The function that an expression means, or None. Raises Failed for a transformation that is used wrongly."""
    match node:
        case ast.Lambda():
            return Closure.make(body, node)
        case ast.Name():
            found = body.scope.lookup(node.name)
            if isinstance(found, FunctionName):
                return found.value
            if isinstance(found, Poisoned):
                raise Failed
            if found is not None:
                return None
            return _entity(body.session.entity(body.module, [node.name], node.span))
        case ast.Field():
            path = path_of(body, node)
            return _entity(body.session.entity(body.module, path, node.span)) if path is not None else None
        case ast.Call(callee=ast.Name()) if transform(body, node) is not None:
            found_transform = transform(body, node)
            assert found_transform is not None
            return found_transform(body, node)
        case _:
            return None


def _entity(entity: Entity | None) -> FunctionValue | None:
    if isinstance(entity, Poisoned):
        raise Failed
    return DefinedFunction(entity) if isinstance(entity, FunctionDecl) else None


def open_function(body: Body, node: ast.Expr) -> DefinedFunction | None:
    """The function of a call whose result is what the program says it is, if this is one."""
    fn = function_of(body, node.callee) if isinstance(node, ast.Call) and isinstance(node.callee, ast.Field) else None
    return fn if isinstance(fn, DefinedFunction) and fn.is_open else None


def path_of(body: Body, node: ast.Expr) -> list[str] | None:
    """`nn.linear` as a path, if it begins with a name that no local hides."""
    match node:
        case ast.Name():
            return [node.name] if body.scope.lookup(node.name) is None else None
        case ast.Field():
            base = path_of(body, node.base)
            return [*base, node.name] if base is not None else None
        case _:
            return None


# ---------------------------------------------------------------- grad and its kin


def transform(body: Body, node: ast.Call) -> Transform | None:
    """The transformation of functions that a call names, unless a definition of the program has taken the name."""
    if not isinstance(node.callee, ast.Name) or body.scope.lookup(node.callee.name) is not None:
        return None
    found = TRANSFORMS.get(node.callee.name)
    return found if found is not None and node.callee.name not in body.module.names else None


def _of(body: Body, node: ast.Call) -> FunctionValue:
    """The function inside `grad(f)`."""
    assert isinstance(node.callee, ast.Name)
    name = node.callee.name
    if len(node.args) != 1 or node.args[0].name:
        wrt = any(a.name in ("wrt", "argnums") for a in node.args)
        example = DIRECTIONAL[name][1] if name in DIRECTIONAL else f"{name}(f)(x, y, wrt = y)"
        help = f"the parameter is named with the arguments: `{example}`" if wrt else f"the arguments follow: `{name}(f)(x)`"
        raise fail("E0603", f"`{name}` takes one function", node.span, help=help)
    fn = function_of(body, node.args[0].value)
    if fn is None:
        found = body.expr(node.args[0].value).type  # a name that is unknown is reported as that
        help = f"the arguments follow: `{name}(f)(x)`" if isinstance(node.args[0].value, ast.Call) else ""
        raise fail("E0603", f"`{name}` takes a function", node.args[0].span, f"this is `{found}`", help=help)
    return fn


def _transform(make: Callable[[FunctionValue], FunctionValue]) -> Transform:
    return lambda body, node: make(_of(body, node))


def _checkpoint(body: Body, node: ast.Call) -> FunctionValue:
    of = _of(body, node)
    for p in of.signature(body).params:
        if isinstance(p.type, FunctionType):
            help = f"give it that function: `checkpoint(fn(x) => {of.name}(f, x))(x)`"
            raise fail("E0603", f"`{of.name}` takes the function `{p.name}`, and `checkpoint` no functions that do", node.span, help=help)
    return Checkpoint(of)


TRANSFORMS: dict[str, Transform] = {
    "grad": _transform(Derivative),
    "value_and_grad": _transform(lambda f: Derivative(f, value=True)),
    "jvp": _transform(jvp),
    "vjp": _transform(vjp),
    "jacobian": _transform(jacobian),
    "hessian": _transform(hessian),
    "checkpoint": _checkpoint,
}

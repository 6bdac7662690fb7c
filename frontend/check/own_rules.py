"""`@vjp(g)` above a function: `g(args.., y, dy)` gives the gradients of its real parameters, one alone or a tuple of several.

For each instance of the function there is one of a function that calls `g` and hands its gradients out leaf by leaf, as `typed.Function`
has it: so the rule is checked with the function, called or not, and may be generic or lift as in any call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tlc.frontend import ast, typed
from tlc.frontend.check.apply import apply, count
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import Bindings, read
from tlc.frontend.check.callee import function_of
from tlc.frontend.check.cells import Mismatch, has_real, is_real, unify
from tlc.frontend.check.derivatives import leaves
from tlc.frontend.check.functions import FunctionValue
from tlc.frontend.check.report import Failed, fail
from tlc.frontend.check.signature import Signature
from tlc.frontend.diagnostics import Label
from tlc.frontend.source import Span
from tlc.frontend.typed import Local
from tlc.frontend.types import FunctionType, TupleType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.scope import FunctionDecl


def check_rule(sig: Signature, node: ast.Function) -> None:
    """What the signature of a function with a rule must allow. Raises Failed."""
    assert node.rule is not None
    for p in sig.params:
        if isinstance(p.type, FunctionType):
            message = f"`{node.name}` takes the function `{p.name}`, so it cannot have a rule of its own"
            help = "what the function reads would have no gradient"
            raise fail("E0604", message, node.rule.span, labels=(Label(p.span, "declared here"),), help=help)


def own_rule(body: Body, decl: FunctionDecl, params: Sequence[Local], result: Type) -> tuple[tuple[Local, ...], typed.Expr]:
    """The parameters and the body of the function that gives the gradients, for an instance with these. Raises Failed."""
    node = decl.node.rule
    assert node is not None
    span = node.span
    fn = function_of(body, node)
    if fn is None:
        found = body.expr(node).type  # a name that is unknown is reported as that
        raise fail("E0604", "`@vjp` takes a function", span, f"this is `{found}`")
    real = [p for p in params if has_real(p.type)]
    if not real or not has_real(result):
        lacks = "has no real parameter" if not real else "gives nothing real"
        raise fail("E0604", f"`{decl.name}` {lacks}, so it has no derivative", span)
    own = [Local(p.name, p.type, False, p.dim, p.span) for p in params]
    y, dy = Local("y", result, span=span), Local("dy", result, span=span)
    takes = (*own, y, dy)
    sig = fn.signature(body)
    if len(sig.params) != len(takes) or any(isinstance(p.type, FunctionType) for p in sig.params):
        raise _wrong_parameters(decl, fn, sig, takes, span)
    try:
        gradients = apply(body, fn, [read(i, span) for i in takes], {}, span)
    except Failed as e:
        d = e.diagnostic
        if d is None or d.span != span:
            raise
        message = f"`{fn.name}` cannot be the rule of `{decl.name}`: {d.message}"
        raise fail("E0604", message, span, d.label, d.labels, notes=d.notes) from None
    wanted = real[0].type if len(real) == 1 else TupleType(tuple(p.type for p in real))
    try:
        unify(wanted, gradients.type)
    except Mismatch as m:
        of = ", ".join(f"`{p.name}`" for p in real)
        help = m.help or (f"for {'all of these as a tuple' if len(real) > 1 else 'this alone'}, in their types: {of}")
        message = f"`{fn.name}` must give `{wanted}`, the gradient{'s' * (len(real) > 1)} by {of}, and gives `{gradients.type}`"
        raise fail("E0604", message, span, labels=(Label(decl.node.name_span, "the rule of this function"),), help=help) from None
    binds = Bindings()
    items = tuple(leaf for leaf in leaves(binds.keep(gradients, "gradients")) if is_real(leaf.type))
    return takes, binds.wrap(typed.Tuple(items, type=TupleType(tuple(i.type for i in items)), span=span))


def _wrong_parameters(decl: FunctionDecl, fn: FunctionValue, sig: Signature, takes: Sequence[Local], span: Span) -> Failed:
    wanted = ", ".join(f"{p.name}: {p.type}" for p in takes)
    message = f"`{fn.name}` cannot be the rule of `{decl.name}`: it takes {count(len(sig.params))}, and should take {len(takes)}"
    labels = (Label(decl.node.name_span, "the rule of this function"),)
    help = f"a rule takes the parameters, the result `y` and the gradient `dy` by it: `({wanted})`"
    return fail("E0604", message, span, labels=labels, help=help)

"""The functions that the compiler itself knows, one row each: what takes any rank, reads types, acts on the world or says an op."""

from __future__ import annotations

from collections.abc import Callable

from tlc.frontend import ast, typed
from tlc.frontend.check.arguments import values
from tlc.frontend.check.body import Body
from tlc.frontend.check.build import op
from tlc.frontend.check.operators import scalar_op
from tlc.frontend.check.printing import fail_, print_
from tlc.frontend.check.randoms import bernoulli, fold, make_key, normal, randint, split, uniform
from tlc.frontend.check.reductions import NAMES, norm, reduce_call, spread
from tlc.frontend.check.report import fail
from tlc.frontend.check.tensors import concat, conversion, full, length, ones, pad, ranks, reshape, stack, zeros
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import F64, KEY, Elem, TensorType

Builtin = Callable[[Body, ast.Call], typed.Expr]


def stop_grad(body: Body, node: ast.Call) -> typed.Expr:
    """`stop_grad(x)`: the value, a constant to derivatives."""
    (x,) = values(body, node, "stop_grad", 1, 1)
    return typed.StopGrad(x, type=x.type, span=node.span)


def clock(body: Body, node: ast.Call) -> typed.Expr:
    """`clock()`: seconds, of a clock that never goes back."""
    values(body, node, "clock", 0, 0)
    body.act("clock", node.span)
    return typed.Extern("clock", (), type=F64, span=node.span)


def scalar_call(body: Body, name: str, node: ast.Call) -> typed.Expr:
    """`__op(...)` in the standard library: a row of the table of scalar ops, or of `TRUSTED`."""
    if name in TRUSTED:
        return TRUSTED[name](body, node)
    args = values(body, node, f"__{name}", 1)
    if name.startswith("bitcast_"):
        target = Elem(name.removeprefix("bitcast_"))
        type = TensorType(target)
        return op("bitcast", tuple(args), type, node.span)
    row = SCALAR_OPS.get(name)
    if row is None:
        raise fail("E0201", f"there is no operation `__{name}`", node.callee.span)
    if len(args) != row.arity:
        raise fail("E0401", f"`__{name}` takes {row.arity} operands", node.span)
    if name == "key_make":
        return op(name, tuple(args), KEY, node.span)
    if name in ("key_hi", "key_lo"):
        return op(name, tuple(args), TensorType(Elem.U32), node.span)
    if name in ("bitcast", "convert"):
        raise fail("E0201", f"`__{name}` needs its target", node.callee.span, help=f"`__{name}_u32(x)`")
    return scalar_op(body, name, args, node.span, node.callee.span, f"`__{name}`")


BUILTINS: dict[str, Builtin] = {
    "print": print_,
    "fail": fail_,
    "clock": clock,
    "stop_grad": stop_grad,
    "len": length,
    "zeros": zeros,
    "ones": ones,
    "full": full,
    "reshape": reshape,
    "concat": concat,
    "stack": stack,
    "pad": pad,
    "norm": norm,
    "variance": spread,
    "std": spread,
    "key": make_key,
    "split": split,
    "fold": fold,
    "normal": normal,
    "uniform": uniform,
    "randint": randint,
    "bernoulli": bernoulli,
    **dict.fromkeys(NAMES, reduce_call),
}

TRUSTED: dict[str, Builtin] = {"ranks": ranks}  # what only the standard library may call, as `__name(...)`

__all__ = ["BUILTINS", "conversion", "scalar_call"]

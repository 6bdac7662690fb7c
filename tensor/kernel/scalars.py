"""What scalar expressions over a kernel's parameters are worth, such as the extents of its buffers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.tensor.kernel.ir import Buffer, Const, Expr, Op, Var


def value_of(e: Expr, scalars: Mapping[str, Any]) -> Any:
    """The value of an expression that loads nothing, as a NumPy scalar. `scalars` are those of the parameters, by name."""
    match e:
        case Const():
            return DTYPES[e.elem].type(e.value)
        case Var():
            return scalars[e.name]
        case Op():
            return SCALAR_OPS[e.op].evaluate(e.elem, *(value_of(a, scalars) for a in e.args))
    raise InternalError("an extent that loads", "kernel")


def bytes_of(b: Buffer, scalars: Mapping[str, Any]) -> int:
    """How many bytes the elements of a buffer take."""
    return b.elem.bytes * prod(int(value_of(n, scalars)) for n in b.shape)

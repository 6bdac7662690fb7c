"""What a kernel calls in the host module."""

from __future__ import annotations

from collections.abc import Iterator

from tlc.tensor.kernel.grid import is_gpu
from tlc.tensor.kernel.ir import (
    Apply,
    CopyAsync,
    Exchange,
    Expr,
    For,
    If,
    Kernel,
    Let,
    LoadMatrices,
    Mma,
    Stmt,
    Store,
    statements,
    subexpressions,
)


def applied(kernel: Kernel) -> list[str]:
    """Names of the functions that a kernel applies, in order of appearance."""
    calls = (e for s in statements(kernel.body) for root in expressions(s) for e in subexpressions(root))
    return list(dict.fromkeys(e.function for e in calls if isinstance(e, Apply)))


def may_end_run(kernel: Kernel) -> bool:
    """Whether the host has to look at the status of a kernel: a function may stop the program, and so may the driver of a GPU."""
    return bool(applied(kernel)) or is_gpu(kernel)


def expressions(s: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, those of statements in it not included."""
    match s:
        case For():
            yield from (s.start, s.stop, *([] if s.work is None else [s.work]))
        case Let():
            yield s.value
        case Store():
            yield from (*s.indices, s.value)
        case If():
            yield s.cond
        case Exchange():
            yield from (s.value, s.lane)
        case LoadMatrices():
            yield from (s.into, s.row)
        case Mma():
            yield from (s.acc, s.a, s.b)
        case CopyAsync():
            yield from (s.into, s.source)
        case _:
            pass

"""What a kernel calls in the host module."""

from __future__ import annotations

from collections.abc import Iterator

from tlc.tensor.kernel.ir import Apply, Expr, For, If, Kernel, Let, Stmt, Store, statements
from tlc.tensor.kernel.verify import subexpressions


def applied(kernel: Kernel) -> list[str]:
    """Names of the functions that a kernel applies, in order of appearance."""
    calls = (e for s in statements(kernel.body) for root in expressions(s) for e in subexpressions(root))
    return list(dict.fromkeys(e.function for e in calls if isinstance(e, Apply)))


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
        case _:
            pass

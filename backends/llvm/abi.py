"""How native functions are called.

A function of the host module takes the context and then its parameters: a scalar as itself, a tensor as a pointer and
its extents (`i64` each). It gives `{ i32 status, results.. }`; a status other than 0 means that the run has stopped
and why stands in the context. A kernel takes the context, then outputs and inputs (a pointer or a scalar each) and gives the status alone.
"""

from __future__ import annotations

from tlc.backends.llvm.scalar import register
from tlc.ssa.ir import Type


def function_symbol(name: str) -> str:
    return f'@"f.{name}"'


def kernel_symbol(name: str) -> str:
    return f'@"k.{name}"'


def parts(type: Type) -> tuple[str, ...]:
    """The LLVM types of a value: one for a scalar, pointer and extents for a tensor."""
    return ("ptr",) + ("i64",) * type.rank if type.rank else (register(type.elem),)


def result_type(results: tuple[Type, ...]) -> str:
    return "{ " + ", ".join(("i32", *(p for r in results for p in parts(r)))) + " }"

"""How native functions are called.

A function of the host module takes the context and then its parameters: a scalar as itself, a tensor as a pointer and
its extents (`i64` each). It gives `{ i32 status, results.. }`; a status other than 0 means that the run has stopped
and why stands in the context. A kernel takes the context, then outputs and inputs (a pointer or a scalar each) and gives the status alone.
A foreign function is one of the C ABI.
"""

from __future__ import annotations

from tlc.backends.llvm.scalar import register
from tlc.frontend.types import Elem
from tlc.ssa.ir import Type
from tlc.tensor.kernel.ir import Kernel, Var


def function_symbol(name: str) -> str:
    return f'@"f.{name}"'


def kernel_symbol(name: str) -> str:
    return f'@"k.{name}"'


def parts(type: Type) -> tuple[str, ...]:
    """The LLVM types of a value: one for a scalar, pointer and extents for a tensor."""
    return ("ptr",) + ("i64",) * type.rank if type.rank else (register(type.elem),)


def parameter_types(kernel: Kernel) -> list[str]:
    """The LLVM types of what a kernel takes behind the context."""
    return [register(p.elem) if isinstance(p, Var) else "ptr" for p in kernel.parameters]


def kernel_declaration(kernel: Kernel) -> str:
    return f"declare i32 {kernel_symbol(kernel.name)}({', '.join(['ptr', *parameter_types(kernel)])})"


def result_type(results: tuple[Type, ...]) -> str:
    return "{ " + ", ".join(("i32", *(p for r in results for p in parts(r)))) + " }"


def c_param(elem: Elem) -> str:
    """A type, with the extension to a register that the C ABI asks for behind it."""
    extension = "" if elem.is_real or elem.width > 32 else " signext" if elem.is_signed else " zeroext"
    return register(elem) + extension


def c_result(elem: Elem | None) -> str:
    """The same for a result: the extension stands before the type."""
    return "void" if elem is None else " ".join(reversed(c_param(elem).split()))

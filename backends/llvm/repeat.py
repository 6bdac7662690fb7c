"""A kernel called again and again with the same arguments, as LLVM IR: `void r.NAME(ptr context, ptr slots, i64 times)`.

An argument lies in a slot of 64 bits, as a pointer or as the scalar's bits from the lowest on; so one signature does for all kernels, and
what a call costs from outside is shared by many.
"""

from __future__ import annotations

from tlc.backends.llvm.abi import kernel_declaration, kernel_symbol, parameter_types
from tlc.tensor.kernel.ir import Kernel


def repeated_symbol(name: str) -> str:
    return f"r.{name}"


def print_repeated(kernel: Kernel) -> str:
    """The function that repeats a kernel, which stands in another text."""
    types = parameter_types(kernel)
    lines = [
        kernel_declaration(kernel),
        f'define void @"{repeated_symbol(kernel.name)}"(ptr %ctx, ptr %slots, i64 %times) nounwind {{',
        "entry:",
    ]
    for k, t in enumerate(types):
        lines += [f"  %at{k} = getelementptr i8, ptr %slots, i64 {8 * k}", f"  %p{k} = load {t}, ptr %at{k}"]
    args = ", ".join(["ptr %ctx", *(f"{t} %p{k}" for k, t in enumerate(types))])
    lines += [
        "  br label %again",
        "again:",
        "  %n = phi i64 [0, %entry], [%next, %again]",
        f"  call i32 {kernel_symbol(kernel.name)}({args})",
        "  %next = add i64 %n, 1",
        "  %more = icmp slt i64 %next, %times",
        "  br i1 %more, label %again, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join([*lines, ""])

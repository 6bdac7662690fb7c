"""Kernels for a GPU on the side of the host, as LLVM IR: `k.NAME` puts its name and its arguments into 64-bit slots and calls the launcher
of the context, which gives the status.

    slots   bytes of the name | the name, 8 bytes a slot | outputs, then inputs: an address or the bits of a scalar each
"""

from __future__ import annotations

from tlc.backends.context import offset
from tlc.backends.llvm.abi import kernel_symbol
from tlc.backends.llvm.scalar import register
from tlc.frontend.types import Elem
from tlc.tensor.kernel.ir import Kernel, Var


def print_launch(kernel: Kernel) -> str:
    """The definition that stands for a kernel."""
    types = ["ptr" for _ in kernel.outputs] + [register(p.elem) if isinstance(p, Var) else "ptr" for p in kernel.inputs]
    bools = [isinstance(p, Var) and p.elem is Elem.BOOL for p in (*kernel.outputs, *kernel.inputs)]
    name = kernel.name.encode()
    words = [len(name), *(int.from_bytes(name[k : k + 8], "little") for k in range(0, len(name), 8))]
    params = ", ".join(["ptr %ctx", *(f"{t} %a{k}" for k, t in enumerate(types))])
    lines = [f"\ndefine i32 {kernel_symbol(kernel.name)}({params}) nounwind {{"]
    lines.append(f"  %slots = alloca [{len(words) + len(types)} x i64], align 8")
    for k in range(len(words) + len(types)):
        lines.append(f"  %s{k} = getelementptr i64, ptr %slots, i64 {k}")
    for k, word in enumerate(words):
        lines.append(f"  store i64 {word}, ptr %s{k}")
    for k, (type, is_bool) in enumerate(zip(types, bools, strict=True)):
        slot = f"%s{len(words) + k}"
        lines.append(f"  store i64 0, ptr {slot}")
        if is_bool:
            lines += [f"  %b{k} = zext {type} %a{k} to i64", f"  store i64 %b{k}, ptr {slot}"]
        else:
            lines.append(f"  store {type} %a{k}, ptr {slot}")
    lines += [
        f"  %launch.at = getelementptr i8, ptr %ctx, i64 {offset('launch')}",
        "  %launch = load ptr, ptr %launch.at",
        "  %status = call i32 %launch(ptr %slots)",
        "  ret i32 %status",
        "}",
    ]
    return "\n".join(lines) + "\n"

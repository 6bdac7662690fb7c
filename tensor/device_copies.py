"""Copies of tensors where kernels run beside the host: a kernel like any other, so that nobody waits and no page moves.

    %c = copy %x : f32[_,_]

    %n = dim %x {axis = 0} : i64
    %m = dim %x {axis = 1} : i64
    %count = mul %n, %m : i64
    %b = alloc %n, %m : f32[_,_]
    %c = run %b, %x, %count {kernel = "copy_4"} : f32[_,_]

The kernel takes all elements in row-major order for one axis, and their bits for a number: there is one for each size of an element.
"""

from __future__ import annotations

from functools import cache

from tlc.frontend.types import Elem
from tlc.ssa.ir import I64, Instr, Value
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import parse_kernel

_WORDS = {1: Elem.U8, 2: Elem.F16, 4: Elem.U32, 8: Elem.I64}
_KERNEL = """
kernel copy_SIZE(y: out WORD[n], x: WORD[n], n: i64) {
  block b in 0..(n + 255) // 256 {
    thread t in 0..256 {
      let i = b * 256 + t
      if i < n {
        y[i] = x[i]
      }
    }
  }
}
"""


@cache
def copy_kernel(size: int) -> Kernel:
    """Copies elements of so many bytes."""
    return parse_kernel(_KERNEL.replace("SIZE", str(size)).replace("WORD", str(_WORDS[size])), "a copy")


def copied_there(copy: Instr) -> list[Instr]:
    """What does the work of a `copy` of a tensor, whose result is replaced."""
    (source,) = copy.operands
    dims = [Instr("dim", (source,), (I64,), {"axis": k}, span=copy.span) for k in range(source.type.rank)]
    products: list[Instr] = []
    count: Value = dims[0].result
    for d in dims[1:]:
        products.append(Instr("mul", (count, d.result), (I64,), span=copy.span))
        count = products[-1].result
    room = Instr("alloc", tuple(d.result for d in dims), (copy.result.type,), span=copy.span)
    name = copy_kernel(source.type.elem.bytes).name
    run = Instr("run", (room.result, source, count), (copy.result.type,), {"kernel": name}, span=copy.span, names=(copy.result.name,))
    copy.result.replace_by(run.result)
    copy.operands = ()
    out = [*dims, *products, room, run]
    for i in out:
        i.block = copy.block
    return out

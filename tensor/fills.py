"""Tensors of one constant are filled where they are needed, and never copied.

    %z = launch %n {"zeros"} : f32[_]               %z = launch %n {"zeros"}
    jump head(%a, %z)                               jump head(%a, %z)
    ..                                              ..
    body:                                           body:
      jump other(%z)                                  %z2 = launch %n {"zeros"};  jump other(%z2)

Adjoints begin with zeros, in every step of training, and so do sums over loops; equal ones are one value by now, outside of the
loop, and who changes it would get a copy of what is kept for that alone. To fill a buffer costs half of what copying one does.

Requires  host SSA before the memory plan. Works in place. A reader that changes nothing goes on reading the one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from tlc.ssa.ir import Function, Instr, Terminator, User, Value, drop
from tlc.tensor.kernel.ir import Buffer, Const, Kernel, Store, statements
from tlc.tensor.taking import Consumed, taken_operands


def fill_again(function: Function, kernels: Mapping[str, Kernel], consumed: Consumed) -> None:
    """Let each who takes a tensor of one constant fill a buffer of its own: that is cheaper than a copy, and nothing is kept for it."""
    for block in list(function.blocks):
        for launch in list(block.instrs):
            if launch.op != "launch" or len(launch.results) != 1 or not _is_fill(kernels.get(str(launch.attrs["kernel"]))):
                continue
            value = launch.result
            alone = sum(value.uses.values()) == 1
            for user in list(value.uses):
                assert isinstance(user, Instr | Terminator)
                home = user.block
                assert home is not None
                if not (alone and home is block) and _takes_all(user, value, consumed):
                    at = home.instrs.index(user) if isinstance(user, Instr) else len(home.instrs)
                    again = [_filled(launch) for v in user.operands if v is value]
                    home.instrs[at:at] = again
                    for i in again:
                        i.block = home
                    new = iter(again)
                    user.operands = tuple(next(new).result if v is value else v for v in user.operands)
            if not value.uses:
                block.instrs.remove(launch)
                drop(launch)


def _is_fill(kernel: Kernel | None) -> bool:
    """Whether a kernel gives every element of its one output the same constant."""
    if kernel is None or not kernel.outputs[0].shape or any(isinstance(i, Buffer) for i in kernel.inputs):
        return False
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    return bool(stores) and all(isinstance(s.value, Const) and s.value == stores[0].value for s in stores)


def _takes_all(user: User, value: Value, consumed: Consumed) -> bool:
    """Whether a user takes a value over wherever it reads it, and on each path."""
    if isinstance(user, Terminator):
        return user.op in ("jump", "return")
    assert isinstance(user, Instr)
    return user.op != "free" and all(k in taken_operands(user, consumed) for k, v in enumerate(user.operands) if v is value)


def _filled(launch: Instr) -> Instr:
    return Instr("launch", launch.operands, (launch.result.type,), dict(launch.attrs), span=launch.span, names=(launch.result.name,))

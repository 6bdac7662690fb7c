"""The tapes of reverse mode: stacks of values, one for each level of derivatives.

`push` puts a value on the tape that its attribute `tape` numbers, `pop` takes the last one off. What a derivative
saves is on a tape that the code it was made of does not touch: the derivative of a derivative runs through the tape of level 0 while
that of level 1 grows, and back.
"""

from __future__ import annotations

from collections.abc import Iterable

from tlc.ssa.calls import reached
from tlc.ssa.ir import Attr, Function, Instr, Module, walk

TAPES = 8  # levels that a program may have; one more is an error of its derivative


def on_tape(number: int) -> dict[str, Attr]:
    """The attributes of a `push` or `pop`."""
    return {"tape": number}


def tape_of(instr: Instr) -> int:
    """The number of the tape that a `push` or `pop` touches."""
    number = instr.attrs["tape"]
    assert isinstance(number, int)
    return number


def tapes(function: Function) -> set[int]:
    """The numbers of the tapes that a function's own code touches."""
    return {tape_of(i) for i in walk(function.body) if i.op in ("push", "pop")}


def touching(module: Module, names: Iterable[str]) -> frozenset[str]:
    """Of these functions, those that touch a tape, by calls too."""
    own = {name for name, f in module.functions.items() if tapes(f)}
    return frozenset(name for name in names if own and not own.isdisjoint(reached(module, [name])))

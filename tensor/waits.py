"""Where the host waits for a device: kernels run beside the host until somebody needs what they make.

Requires  host SSA after the memory plan. Works in place.
Makes     an `extern` of `WAIT` before the host's own code touches a tensor while kernels may be running. Services wait by themselves.

    %y = run %b, %x {kernel = "map_0"}      the kernel begins
    extern {name = "device.wait"}
    %z = store %y, %j, %v                   the host writes

What the host need not touch is left to the device: a `copy` is a kernel (`tensor/device_copies.py`), the numbers that kernels give are read
together (`tensor/late_numbers.py`), and a single `load` copies that element only. These are externs of `LOAD`, which wait too. Loops
and functions that begin no kernel are the host's own.

A loop that begins many kernels has a `MARK` at its end: what it begins in a turn is likely to come again (`backends/cuda/stretches.py`).

One bit is enough: whether kernels may be running. It is set by a `run`, cleared by what waits, and joined where paths meet. Two rules keep
waits out of hot code. A loop that touches tensors and begins no kernel is entered with a wait, so that it needs none inside. A function
from which no `run` is reached has none at all: who calls it waits before, if it touches a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tlc.ssa.calls import callee_of, reached
from tlc.ssa.cfg import predecessors, reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Module, walk
from tlc.ssa.loops import Loop, loops
from tlc.ssa.world import LOAD, MARK, WAIT
from tlc.tensor.device_copies import copied_there, copy_kernel
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.late_numbers import put_off

MANY = 8  # kernels
_TOUCH = frozenset({"load", "store", "copy", "index", "update"})


def put_waits(module: Module, kernels: dict[str, Kernel], main: str = "main") -> None:
    """Put waits where they have to be, as few as paths allow. No kernel runs when `main` begins. Kernels that copy are added."""
    begins = {name for name in module.functions if _holds(module, name, lambda i: i.op == "run")}
    touches = {name for name in module.functions if name not in begins and _holds(module, name, _touches)}
    for name in begins:
        _Waits(module.functions[name], kernels, begins, touches).put(running=name != main)


def _holds(module: Module, name: str, what: Callable[[Instr], bool]) -> bool:
    """Whether a function or one that it calls has such an instruction."""
    return any(what(i) for f in reached(module, [name]) for i in walk(module.functions[f].body))


def _touches(i: Instr) -> bool:
    """Whether the host's code reads or writes elements."""
    if i.op == "reshape":
        return (not i.operands[0].type.rank) != (not i.result.type.rank)  # a number and its tensor: one is made of the other
    return i.op in _TOUCH and bool(i.operands[0].type.rank)


class _Waits:
    """The waits of one function. `begins` are the functions that begin kernels, `touches` the others that touch tensors."""

    def __init__(self, function: Function, kernels: dict[str, Kernel], begins: set[str], touches: set[str]) -> None:
        self.function, self.kernels, self.begins, self.touches = function, kernels, begins, touches
        self.before = predecessors(function.body)
        quiet = list(self.quiet_loops())
        self.ends = {block for loop in quiet for block in self.before[loop.header] if block not in loop}
        self.quiet = {block for loop in quiet for block in loop.blocks}

    def put(self, running: bool) -> None:
        order = reverse_postorder(self.function.body)
        for block in order:
            if block not in self.quiet:
                self.move_to_device(block)
                put_off(block)
        after: dict[Block, bool] = dict.fromkeys(order, False)
        entering: dict[Block, bool] = {}
        changed = True
        while changed:
            changed = False
            for block in order:
                first = running and block is self.function.body.entry
                entering[block] = first or any(after.get(b, False) for b in self.before[block])
                now = self.after(block, entering[block])
                changed |= now != after[block]
                after[block] = now
        for block in order:
            self.put_into(block, entering[block])
        for loop in self.long_loops():
            for block in self.before[loop.header]:
                if block in loop:
                    block.instrs.append(_told(block, MARK, None))

    def move_to_device(self, block: Block) -> None:
        """What is not for the host's code to do: to copy, and to read single elements."""
        instrs: list[Instr] = []
        for i in block.instrs:
            if i.op == "copy" and i.result.type.rank:
                kernel = copy_kernel(i.result.type.elem.bytes)
                self.kernels[kernel.name] = kernel
                instrs += copied_there(i)
                continue
            if i.op == "load":
                i.op, i.attrs = "extern", {"name": LOAD}
            instrs.append(i)
        block.instrs[:] = instrs

    def long_loops(self) -> list[Loop]:
        """The innermost loops that begin many kernels. A function that begins some may begin many."""
        found = [loop for loop in loops(self.function.body) if sum(map(self.begun, loop.blocks)) >= MANY]
        return [loop for loop in found if not any(other is not loop and other.header in loop for other in found)]

    def begun(self, block: Block) -> int:
        return sum(MANY if i.op == "call" else 1 for i in block.instrs if self.starts(i))

    def quiet_loops(self) -> Iterator[Loop]:
        """The outermost loops that touch tensors and begin no kernel."""
        found: list[Loop] = []
        for loop in loops(self.function.body):
            instrs = [i for b in loop.blocks for i in b.instrs]
            inner = any(loop.header in outer for outer in found)
            if not inner and any(map(self.needs, instrs)) and not any(map(self.starts, instrs)):
                found.append(loop)
                yield loop

    def needs(self, i: Instr) -> bool:
        """Whether no kernel may be running when this is done."""
        return _touches(i) or (i.op == "call" and callee_of(i) in self.touches)

    def starts(self, i: Instr) -> bool:
        """Whether kernels may be running after this."""
        return i.op == "run" or (i.op == "call" and callee_of(i) in self.begins)

    def waits(self, i: Instr) -> bool:
        """Whether no kernel is running after this, though nothing was put before it."""
        return i.op == "extern" or (i.op == "format" and any(v.type.rank for v in i.operands))

    def after(self, block: Block, running: bool) -> bool:
        """Whether kernels may be running at the end of a block that has all its waits."""
        for i in block.instrs:
            running = self.step(i, running)
        return running and block not in self.ends

    def step(self, i: Instr, running: bool) -> bool:
        return self.starts(i) or (running and not self.needs(i) and not self.waits(i))

    def put_into(self, block: Block, running: bool) -> None:
        instrs: list[Instr] = []
        for i in block.instrs:
            if running and self.needs(i):
                instrs.append(_told(block, WAIT, i))
            instrs.append(i)
            running = self.step(i, running)
        if running and block in self.ends:
            instrs.append(_told(block, WAIT, None))
        block.instrs[:] = instrs


def _told(block: Block, name: str, before: Instr | None) -> Instr:
    """What tells the device something, before an instruction or at the end of a block."""
    told = Instr("extern", (), (), {"name": name}, span=block.terminator.span if before is None else before.span)
    told.block = block
    return told

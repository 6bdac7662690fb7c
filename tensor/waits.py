"""Where the host waits for a device: kernels run beside the host until somebody needs what they make.

Requires  host SSA after the memory plan. Works in place.
Makes     an `extern` of `WAIT` before the host's own code touches a tensor while kernels may be running. Services wait by themselves, and
          so do kernels that give a number to the host (`backends/cuda/device.py`).

    %y = run %b, %x {kernel = "map_0"}      the kernel begins
    extern {name = "device.wait"}
    %v = load %y, %i                        the host reads

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
from tlc.ssa.world import WAIT

_TOUCH = frozenset({"load", "store", "copy", "index", "update"})


def put_waits(module: Module, main: str = "main") -> None:
    """Put waits where they have to be, as few as paths allow. No kernel runs when `main` begins."""
    begins = {name for name in module.functions if _holds(module, name, lambda i: i.op == "run")}
    touches = {name for name in module.functions if name not in begins and _holds(module, name, _touches)}
    for name in begins:
        _Waits(module.functions[name], begins, touches).put(running=name != main)


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

    def __init__(self, function: Function, begins: set[str], touches: set[str]) -> None:
        self.function, self.begins, self.touches = function, begins, touches
        self.before = predecessors(function.body)
        self.ends = {block for loop in self.quiet_loops() for block in self.before[loop.header] if block not in loop}

    def put(self, running: bool) -> None:
        order = reverse_postorder(self.function.body)
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
        if i.op == "run":
            return all(r.type.rank for r in i.results)
        return i.op == "call" and callee_of(i) in self.begins

    def waits(self, i: Instr) -> bool:
        """Whether no kernel is running after this, though nothing was put before it."""
        return i.op in ("run", "extern") or (i.op == "format" and any(v.type.rank for v in i.operands))

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
                instrs.append(_wait(block, i))
            instrs.append(i)
            running = self.step(i, running)
        if running and block in self.ends:
            instrs.append(_wait(block, None))
        block.instrs[:] = instrs


def _wait(block: Block, before: Instr | None) -> Instr:
    wait = Instr("extern", (), (), {"name": WAIT}, span=block.terminator.span if before is None else before.span)
    wait.block = block
    return wait

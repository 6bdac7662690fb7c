"""Numbers that kernels give to the host, where kernels run beside it: each is made in a buffer of one element, and read when it is needed.

    %s = run %b, %x {kernel = "sum_0"} : f32
    %t = run %c, %y {kernel = "sum_1"} : f32
    %u = add %s, %t : f32
    %z = run %d, %u {kernel = "map_2"} : f32[_]

    %p = alloc %one : f32[_]
    %q = run %p, %x {kernel = "sum_0"} : f32[_]
    %r = alloc %one : f32[_]
    %v = run %r, %y {kernel = "sum_1"} : f32[_]
    %s, %t = extern %q, %zero, %v, %zero {name = "device.load"} : f32, f32
    free %q
    free %v
    %u = add %s, %t : f32
    %z = run %d, %u {kernel = "map_2"} : f32[_]

So the host waits once for all numbers that it has asked for, and not where it computes with them: what only makes numbers of numbers is put
off with them. They are read at the end of their block at the latest.

Requires  host SSA after the memory plan. Works in place, block by block.
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.ir import I64, Block, Instr, Type, Value, drop
from tlc.ssa.world import LOAD


def put_off(block: Block) -> None:
    """Read the numbers of a block late."""
    if any(i.op == "run" and not all(r.type.rank for r in i.results) for i in block.instrs):
        _Late(block).run()


class _Late:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.out: list[Instr] = []
        self.made: list[tuple[Value, Value]] = []  # a number, and the buffer that has it
        self.waiting: list[Instr] = []  # what computes with them
        self.late: set[Value] = set()
        self.zero, self.one = (Instr("const", (), (I64,), {"value": n}, span=block.terminator.span) for n in (0, 1))

    def run(self) -> None:
        for i in self.block.instrs:
            waits = not self.late.isdisjoint(i.operands)
            if waits and i.op in SCALAR_OPS:
                self.waiting.append(i)
                self.late.update(i.results)
                continue
            if waits:
                self.read()
            self.out.append(self.started(i) if i.op == "run" else i)
        self.read()
        self.block.instrs[:] = [self.zero, self.one, *self.out]
        for i in self.block.instrs:
            i.block = self.block

    def started(self, run: Instr) -> Instr:
        """A `run` whose results are all tensors."""
        if all(r.type.rank for r in run.results):
            return run
        types = tuple(r.type if r.type.rank else Type(r.type.elem, 1) for r in run.results)
        before = run.operands[: len(types)]
        rooms = list(before)
        for k, r in enumerate(run.results):
            if not r.type.rank:
                self.out.append(Instr("alloc", (self.one.result,), (types[k],), span=run.span, names=(r.name,)))
                rooms[k] = self.out[-1].result
        names = tuple(r.name for r in run.results)
        new = Instr("run", (*rooms, *run.operands[len(types) :]), types, dict(run.attrs), span=run.span, names=names)
        for old, now in zip(run.results, new.results, strict=True):
            if old.type.rank:
                old.replace_by(now)
            else:
                self.made.append((old, now))
                self.late.add(old)
        drop(run)
        places = {room.owner for room, r in zip(before, run.results, strict=True) if not r.type.rank and not room.uses}
        self.out[:] = [i for i in self.out if i not in places]  # what was to hold a number
        return new

    def read(self) -> None:
        """Wait for what was made, and do what had to wait."""
        if self.made:
            numbers, buffers = zip(*self.made, strict=True)
            operands = tuple(v for buffer in buffers for v in (buffer, self.zero.result))
            names = tuple(n.name for n in numbers)
            span = self.made[0][1].owner.span if isinstance(self.made[0][1].owner, Instr) else self.block.terminator.span
            load = Instr("extern", operands, tuple(n.type for n in numbers), {"name": LOAD}, span=span, names=names)
            for number, value in zip(numbers, load.results, strict=True):
                number.replace_by(value)
            self.out += [load, *(Instr("free", (buffer,)) for buffer in buffers)]
        self.out += self.waiting
        self.made, self.waiting = [], []
        self.late.clear()

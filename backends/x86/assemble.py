"""Allocated machine IR as machine code.

A function is emitted block by block in the order of the list. Every other thing that needs to know where code ends up is settled
behind that, for a function at a time:

- A jump takes 2 bytes where it reaches, else 5 or 6. All begin short; those that do not reach grow until none does, which ends
  because none shrinks.
- A block that holds nothing but a jump is left out: who goes there goes on at once. A jump to what follows is none, and a branch is
  turned round where what it prefers follows.
- Failures stand behind the function: `check` jumps there, and the way on falls through.
- A short block that ends in a branch is copied to where a jump would lead there: a loop whose test stands at its end is entered by a
  test, and one whose test stands at its beginning goes round with one jump instead of two.
- What loops jump back to begins at a rounded address, unless the padding would run in every iteration.
- Constants of reals lie behind all functions, each once.

The frame, from rsp upwards: words that calls pass (`outgoing`), slots, a word to align it, the registers that the function must give
back. It is fixed after the prologue; r15 is never touched. At calls rsp is a multiple of 16.

    push rbx                      prologue: what it writes of the callee's registers
    sub rsp, 16
    ...
    xor eax, eax                  the run goes on
    add rsp, 16
    pop rbx
    ret
    ...                           failures: site and values into the context
    mov dword ptr [r15 + 4], 1    why
    mov eax, 1                    the run has stopped: passed on by every caller
    add rsp, 16
    ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from itertools import accumulate, pairwise

import numpy as np

from tlc.backends.context import Reason, offset
from tlc.backends.x86.code import Code, Link, Relocation
from tlc.backends.x86.emit import EMIT
from tlc.backends.x86.emitter import MOV32_I, MOV_I, R15, RAX, RSP, Label
from tlc.backends.x86.forms import CONDITIONS, FORMS, Form, Memory, Value, encode, text
from tlc.backends.x86.ops import ROWS
from tlc.backends.x86.registers import CALLEE_SAVED
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.regalloc.ir import Block, Function, Inst, Module, Reg, instructions
from tlc.regalloc.target import Kind
from tlc.ssa.formatting import shortest

PUSH, POP, RET = FORMS["push", "o64", 32], FORMS["pop", "o64", 32], FORMS["ret", "", 32]
ADD, ADD_LONG = FORMS["add", "m,i8", 64], FORMS["add", "m,i", 64]
SUB, SUB_LONG = FORMS["sub", "m,i8", 64], FORMS["sub", "m,i", 64]

_NOPS = [bytes.fromhex(x) for x in (
    "", "90", "6690", "0F1F00", "0F1F4000", "0F1F440000", "660F1F440000", "0F1F8000000000", "0F1F840000000000", "660F1F840000000000",
)]  # fmt: skip
_LOGICAL = frozenset(("and", "or", "xor"))  # leave no carry and no overflow, as `test` does
_RESULTS = _LOGICAL | {"add", "sub", "neg"}  # say if their result is 0
FUNCTION_ALIGNMENT = 16
SHORT = 3  # instructions with the branch
# Where an iteration begins: a multiple of the first, by at most as many bytes as the second, with and without code that runs through them.
PADDING = ((16, 7), (32, 31))


@dataclass
class Line:
    """For a listing: an instruction, where it begins and ends, in words, and the machine IR that it came from; or a label, and the block
    that it begins, if it does.
    """

    start: int
    end: int
    text: str
    inst: Inst | None
    label: str = ""
    block: Block | None = None


@dataclass
class Listing:
    """What `assemble` did, a function at a time, for people."""

    functions: dict[str, list[Line]] = field(default_factory=dict)
    frames: dict[str, str] = field(default_factory=dict)


def assemble(module: Module, listing: Listing | None = None) -> Code:
    """Encode all functions. They must be allocated, their parallel moves resolved."""
    assembler = _Assembler(listing)
    for f in module.functions.values():
        assembler.function(f)
    return assembler.finish()


# A place in the raw code of a function, in which jumps and paddings take no bytes: the offset, and how many of those come before.
_Place = tuple[int, int]
_ALIGN = -2  # in place of a condition
_ALWAYS = -1


class _Assembler:
    """Implements `emitter.Emitter`."""

    def __init__(self, listing: Listing | None) -> None:
        self.code = Code(b"")
        self.done = bytearray()
        self.listing = listing
        self.following: Block | None = None
        # What the flags are of: a comparison; the value of a register, in a width, and whether they are those of `test`.
        self.compared: tuple[Form, tuple[Value, ...]] | None = None
        self.result: tuple[int, int, bool] | None = None
        self.constants: dict[bytes, list[int]] = {}  # where their displacements are
        self.calls: list[tuple[int, str]] = []

    # ------------------------------------------------------------ a function

    def function(self, f: Function) -> None:
        if not f.allocated:
            raise InternalError("not allocated", f"encoding {f.name}")
        self.f = f
        self.raw = bytearray()
        self.jumps: list[tuple[int, int, Label]] = []  # offset in the raw code, condition, where to
        self.labels: list[_Place | None] = []
        self.fields: list[tuple[int, int, bytes | str, Link]] = []  # what the four bytes before an offset refer to: a constant, a symbol
        self.lines: list[tuple[int, int, Span]] = []
        self.record: list[tuple[int, int, str, Inst | None, Label]] | None = None if self.listing is None else []
        self.names: dict[Label, str] = {}
        self.taken: dict[str, int] = {}
        self.begins: dict[Label, Block] = {}
        self.behind: list[Callable[[], None]] = []
        self.inst: Inst | None = None
        self.forget()
        self.cold: dict[str, Label] = {}
        self.stopped = self.label("stopped")
        self.frame()
        blocks = self.layout()
        self.prologue()
        span = NOWHERE
        for k, block in enumerate(blocks):
            self.following = blocks[k + 1] if k + 1 < len(blocks) else None
            self.begin(block, k)
            copy = self.copies.get(block)
            for inst in block.insts if copy is None else [*block.insts[:-1], *copy.insts]:
                self.inst = inst
                if inst.span is not span:
                    span = inst.span
                    self.lines.append((len(self.raw), len(self.jumps), span))
                try:
                    EMIT[inst.op](self, inst)
                except InternalError as e:
                    raise InternalError(str(e), f"encoding {f.name}, `{inst.op}` at {inst.span}") from None
        self.following = None
        for emit in self.behind:
            emit()
        self.endings()
        self.place()

    def frame(self) -> None:
        """Where things lie relative to rsp."""
        f, written, calls = self.f, set[str](), False
        for inst in instructions(self.f):
            for o in inst.operands:
                if o.is_def and type(o.place) is Reg:
                    written.add(o.place.name)
            if inst.clobbers:
                written.update(r.name for r in inst.clobbers)
                calls = calls or ROWS[inst.op].kind is Kind.CALL
        self.saved = [r.number for r in CALLEE_SAVED if r.name in written]
        size = 8 * (f.outgoing + f.slots)
        if calls:  # the return address and the registers that are saved lie above
            size += (size + 8 + 8 * len(self.saved)) % 16
        self.size = size
        self.slots = 8 * f.outgoing
        self.incoming = size + 8 * len(self.saved) + 8

    def layout(self) -> list[Block]:
        """The blocks that are emitted; `ahead` says where those lead to that are not."""
        ahead: dict[Block, Block] = {}
        for block in self.f.blocks[1:]:
            if block.insts[-1].op == "jump" and all(_is_nothing(i) for i in block.insts[:-1]):
                ahead[block] = block.insts[-1].targets[0][0]
        self.ahead: dict[Block, Block] = {}
        for block in ahead:
            to, seen = block, {block}
            while to in ahead:
                to = ahead[to]
                if to in seen:  # a loop of nothing stays
                    to = block
                    break
                seen.add(to)
            if to is not block:
                self.ahead[block] = to
        self.starts: dict[Block, Label] = {}
        out = [b for b in self.f.blocks if b not in self.ahead]
        self.copies: dict[Block, Block] = {}  # what stands in place of a block's jump
        for b, after in zip(out, [*out[1:], None], strict=True):
            if b.terminator.op == "jump":
                to = self.ahead.get(b.successors[0], b.successors[0])
                if to is not after and _is_short(to):
                    self.copies[b] = to
        self.where_iterations_begin(out)
        return out

    def where_iterations_begin(self, out: list[Block]) -> None:
        position = {b: k for k, b in enumerate(out)}
        self.heads = set[Block]()
        self.entered = set[Block]()  # those that the block before runs into
        for k, b in enumerate(out):
            for target in self.copies.get(b, b).successors:
                to = self.ahead.get(target, target)
                if position[to] <= k and to.depth <= b.depth and not to.cold:
                    self.heads.add(to)
                elif position[to] == k + 1:
                    self.entered.add(to)
        for before, b in pairwise(out):
            if b in self.entered and before.depth >= b.depth:  # the padding would run in every iteration
                self.heads.discard(b)

    def begin(self, block: Block, k: int) -> None:
        if block in self.heads and k:
            self.jumps.append((len(self.raw), _ALIGN, 0 if block in self.entered else 1))
        self.bind(self.block(block))

    def prologue(self) -> None:
        for number in self.saved:
            self.put(PUSH, number)
        if self.size:
            self.put(SUB if self.size < 128 else SUB_LONG, RSP, self.size)

    def leave(self) -> None:
        if self.size:
            self.put(ADD if self.size < 128 else ADD_LONG, RSP, self.size)
        for number in reversed(self.saved):
            self.put(POP, number)
        self.put(RET)

    def endings(self) -> None:
        """How a run that stops leaves the function: the reason, then the status."""
        self.inst = None
        reason = Memory(R15, None, 1, offset("reason"))
        for name, value in (("poll", Reason.STOPPED), ("check", Reason.CHECK)):
            if name in self.cold:
                self.bind(self.cold[name])
                self.put(MOV_I[32], reason, int(value))
                if name == "poll" and "check" in self.cold:
                    self.jump(None, self.stopped)
        if self.cold or any(to == self.stopped for _, condition, to in self.jumps if condition != _ALIGN):
            self.bind(self.stopped)
            self.put(MOV32_I, RAX, 1)
            self.leave()

    # ------------------------------------------------------------ what `emit` asks for

    def put(self, form: Form, *operands: Value) -> None:
        if self.record is not None:
            self.note(text(form, *operands))
        self.raw += encode(form, *operands)
        if form.flags:
            self.compared = self.result = None
            if form.name in _RESULTS and type(operands[0]) is int:
                self.result = operands[0], form.widths[0], form.name in _LOGICAL
        else:
            self.written(operands)

    def written(self, operands: tuple[Value, ...]) -> None:
        """What the flags tell of a register is not true any more when it is written."""
        if self.compared is not None and operands[0] in self.compared[1]:
            self.compared = None
        if self.result is not None and operands[0] == self.result[0]:
            self.result = None

    def forget(self) -> None:
        """Nothing is known about the flags."""
        self.compared = self.result = None

    def compare(self, form: Form, *operands: Value) -> None:
        if self.compared != (form, operands):
            self.put(form, *operands)
            if not any(isinstance(o, Memory) for o in operands):
                self.compared = form, operands

    def tells(self, register: int, width: int, equality: bool) -> bool:
        if self.result is None or self.result[0] != register:
            return False
        _, of, logical = self.result
        return (equality and of <= width and of >= 32) or (logical and of == width)  # 32 bits clear those above

    def constant(self, form: Form, *operands: Value, data: bytes) -> None:
        if self.record is not None:
            self.note(text(form, *operands, symbol=_constant_text(data)))
        self.raw += encode(form, *operands)
        self.written(operands)
        self.fields.append((len(self.raw), len(self.jumps), data, Link.ADDRESS))

    def call(self, symbol: str) -> None:
        self.note(f"call {symbol}")
        self.forget()
        self.raw += b"\xe8\0\0\0\0"
        self.fields.append((len(self.raw), len(self.jumps), symbol, Link.CALL))

    def jump(self, condition: int | None, to: Label) -> None:
        if self.record is not None:
            self.note("jmp" if condition is None else f"j{CONDITIONS[condition]}", to)
        self.jumps.append((len(self.raw), _ALWAYS if condition is None else condition, to))

    def note(self, words: str, label: Label = -1) -> None:
        """Into the listing; a label behind words is where they jump to, without words it is here."""
        if self.record is not None:
            self.record.append((len(self.raw), len(self.jumps), words, self.inst, label))

    def label(self, name: str = "") -> Label:
        self.labels.append(None)
        if self.record is not None:
            name = name or "l"
            count = self.taken[name] = self.taken.get(name, -1) + 1
            self.names[len(self.labels) - 1] = f"{name}.{count}" if count else name
        return len(self.labels) - 1

    def bind(self, label: Label) -> None:
        self.note("", label)
        self.forget()
        self.labels[label] = len(self.raw), len(self.jumps)

    def block(self, block: Block) -> Label:
        block = self.ahead.get(block, block)
        if block not in self.starts:
            self.starts[block] = self.label(block.name)
            self.begins[self.starts[block]] = block
        return self.starts[block]

    def follows(self, block: Block) -> bool:
        return self.ahead.get(block, block) is self.following

    def later(self, emit: Callable[[], None]) -> None:
        inst = self.inst

        def behind() -> None:
            self.inst = inst
            if inst is not None:
                self.lines.append((len(self.raw), len(self.jumps), inst.span))
            emit()

        self.behind.append(behind)

    def poll_failed(self) -> Label:
        return self.ending("poll")

    def check_failed(self) -> Label:
        return self.ending("check")

    def ending(self, name: str) -> Label:
        if name not in self.cold:
            self.cold[name] = self.label(f"{name}_failed")
        return self.cold[name]

    # ------------------------------------------------------------ where things end up

    def place(self) -> None:
        """Settle the jumps of a function and append it to what is done."""
        start = -(-len(self.done) // FUNCTION_ALIGNMENT) * FUNCTION_ALIGNMENT
        self.done += b"\xcc" * (start - len(self.done))
        self.code.symbols[self.f.name] = start
        sizes = self.sizes()
        before = [0, *accumulate(sizes)]

        out, last = self.done, 0
        for k, (raw, condition, label) in enumerate(self.jumps):
            out += self.raw[last:raw]
            last, size = raw, sizes[k]
            if condition == _ALIGN:
                out += _padding(size)
                continue
            at, n = self.at(label)
            distance = at + before[n] - (raw + before[k + 1])
            if size == 2:
                out += bytes((0xEB if condition == _ALWAYS else 0x70 + condition, distance & 0xFF))
            else:
                out += b"\xe9" if condition == _ALWAYS else bytes((0x0F, 0x80 + condition))
                out += distance.to_bytes(4, "little", signed=True)
        out += self.raw[last:]

        for raw, n, what, link in self.fields:
            at = start + raw + before[n] - 4
            if isinstance(what, bytes):
                self.constants.setdefault(what, []).append(at)
            elif link is Link.CALL:
                self.calls.append((at, what))
            else:
                self.code.relocations.append(Relocation(at, link, what))
        self.code.lines += [(start + raw + before[n], span) for raw, n, span in self.lines]
        if self.record is not None:
            self.list(start, before)

    def at(self, label: Label) -> _Place:
        place = self.labels[label]
        if place is None:
            raise InternalError("a jump to a label that is nowhere", f"encoding {self.f.name}")
        return place

    def sizes(self) -> list[int]:
        """Of every jump and padding."""
        jumps = self.jumps
        sizes = [2] * len(jumps)
        targets = [(0, 0) if condition == _ALIGN else self.at(label) for _, condition, label in jumps]
        grown = True
        while grown:
            grown = False
            total = 0
            for k, (raw, condition, which) in enumerate(jumps):
                if condition == _ALIGN:
                    to, most = PADDING[which]
                    size = -(raw + total) % to
                    sizes[k] = size if size <= most else 0
                total += sizes[k]
            before = [0, *accumulate(sizes)]
            for k, (raw, condition, _) in enumerate(jumps):
                if sizes[k] == 2 and condition != _ALIGN:
                    at, n = targets[k]
                    if not -128 <= at + before[n] - raw - before[k + 1] < 128:
                        sizes[k] = 5 if condition == _ALWAYS else 6
                        grown = True
        return sizes

    def finish(self) -> Code:
        """Put the constants behind the functions, and fill in what refers to places within the code."""
        out = self.done
        for data in sorted(self.constants, key=lambda d: -len(d)):
            out += b"\xcc" * (-len(out) % len(data))
            for at in self.constants[data]:
                self.refer(at, len(out))
            out += data
        for at, symbol in self.calls:
            if symbol in self.code.symbols:
                self.refer(at, self.code.symbols[symbol])
            else:
                self.code.relocations.append(Relocation(at, Link.CALL, symbol))
        self.code.relocations.sort(key=lambda r: r.at)
        self.code.text = bytes(out)
        return self.code

    def refer(self, at: int, to: int) -> None:
        self.done[at : at + 4] = (to - at - 4).to_bytes(4, "little", signed=True)

    def list(self, start: int, before: list[int]) -> None:
        assert self.listing is not None and self.record is not None
        places = [start + raw + before[n] for raw, n, *_ in self.record] + [len(self.done)]
        lines: list[Line] = []
        for k, (_, _, words, inst, label) in enumerate(self.record):
            name = self.names.get(label, "")
            if words:
                lines.append(Line(places[k], places[k + 1], f"{words} {name}".rstrip(), inst))
            else:
                lines.append(Line(places[k], places[k], "", None, name, self.begins.get(label)))
        self.listing.functions[self.f.name] = lines
        saved = ", ".join(r.name for r in CALLEE_SAVED if r.number in self.saved)
        self.listing.frames[self.f.name] = f"{self.size} bytes of frame, {self.f.slots} slots" + f", saves {saved}" * bool(saved)


def _is_short(block: Block) -> bool:
    """Whether to copy a block is better than to jump there: the branch behind it goes on at once."""
    if block.cold or len(block.terminator.targets) != 2 or len(block.insts) > SHORT:
        return False
    return all(ROWS[i.op].kind in (Kind.NORMAL, Kind.MOVE, Kind.TERMINATOR) for i in block.insts)


def _is_nothing(inst: Inst) -> bool:
    return inst.op == "move" and inst.operands[0].place == inst.operands[1].place


def _padding(size: int) -> bytes:
    out = b""
    while size > 9:
        out += _NOPS[9]
        size -= 9
    return out + _NOPS[size]


def _constant_text(data: bytes) -> str:
    """A real by its value, a mask by its bits."""
    match len(data):
        case 4:
            return shortest(np.frombuffer(data, np.float32)[0])
        case 8:
            return shortest(np.frombuffer(data, np.float64)[0])
    return f"0x{int.from_bytes(data, 'little'):0{2 * len(data)}x}"

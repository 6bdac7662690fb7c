"""What selection of one function works with: the words of its values as virtual registers, and the instructions written so far.

Selection goes backwards, over blocks in postorder and over instructions from the last to the first (as Cranelift's does). So when it
comes to an instruction it has seen all that reads its results: what nobody asked for is not written, and a consumer may
have taken a producer into itself, an address into a load or a comparison into a branch, which then is not asked for either.
The machine instructions of one SSA instruction are written forwards into `now`.

A constant is not a value of the program: whoever cannot take it as an immediate gets an instruction that makes it right before,
outside of all loops if it is long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tlc.backends.program import Site, Tables
from tlc.backends.x86.abi import word, words
from tlc.backends.x86.ops import ROWS as MACHINE_ROWS
from tlc.backends.x86.ops import Address, build, convention
from tlc.backends.x86.parts import Part, Parts, wrapped
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem
from tlc.opt.conditions import END, Place
from tlc.opt.facts import ZERO, Facts
from tlc.opt.ranges import WHOLE
from tlc.regalloc import ir
from tlc.regalloc.ir import Bank, Fixed, Inst, Reg, VReg
from tlc.ssa.dominance import dominance
from tlc.ssa.ir import Block, Function, Instr, Terminator, Value, const_of
from tlc.ssa.loops import Loop, loops
from tlc.ssa.ops import ROWS
from tlc.tensor.kernel.calls import may_end_run
from tlc.tensor.kernel.ir import Kernel

# What may write to the memory of tensors, or give it back: no load is delayed past these.
WRITES = frozenset({"store", "update", "call", "run", "alloc", "copy", "free", "extern", "foreign", "push", "pop", "index", "reshape"})

# What is written whether or not somebody reads a result. (`copy`, `index` and `reshape` make buffers, which are freed.)
ACTING = frozenset({"store", "update", *(name for name, row in ROWS.items() if row.effect != "none")})

Division = tuple[Block, Elem, Part, Part]
Pairs = Sequence[tuple[VReg, Reg]]
Targets = Sequence[tuple[ir.Block, tuple[VReg, ...]]]


def outgoing(word: int) -> Address:
    return Address(offset=8 * word, area="outgoing")


def incoming(word: int) -> Address:
    return Address(offset=8 * word, area="incoming")


def fits(value: int) -> bool:
    """Whether an instruction can hold the number: 32 bits, extended by their sign."""
    return -(1 << 31) <= value < 1 << 31


class Selector:
    """One function. Mutable."""

    def __init__(self, function: Function, kernels: Mapping[str, Kernel], tables: Tables) -> None:
        self.ssa, self.kernels, self.tables = function, kernels, tables
        self.out = ir.Function(f"f.{function.name}", span=function.span)
        self.parts = Parts(function)
        self.tree = dominance(function.body)
        self.loop_of: dict[Block, Loop] = {b: loop for loop in loops(function.body, self.tree) for b in loop.blocks}
        self.registers: dict[Part, VReg] = {}  # words that somebody asked for
        self.constants: dict[tuple[object, ...], VReg] = {}  # long ones, by value and loop
        self.before_loop: dict[Block, list[Inst]] = {}  # what makes them, at the end of these blocks
        self.epoch: dict[Instr | Terminator, int] = {}  # how many instructions of the block before it may write memory
        self.divisions: dict[Division, list[Instr]] = {}  # by variables, of the same numbers in one block
        self.forced: set[Instr] = set()  # what is written though nobody asked for its result itself
        self._stopping: dict[str, bool] = {}
        self.facts = Facts()
        self.now: list[Inst] = []
        self.block: Block = function.body.entry
        self.here: Instr | Terminator | None = None
        self.span: Span = NOWHERE
        self.extents: dict[Part, list[Block]] = {}  # words that are extents, and where tensors with them are made
        self._survey()

    def _survey(self) -> None:
        """Note of every block what later questions are about."""
        for block in self.parts.order:
            count = 0
            for v in (*block.params, *(r for i in block.instrs for r in i.results)):
                for k in range(1, 1 + v.type.rank):
                    self.extents.setdefault(self.parts.of(v, k), []).append(block)
            for i in block.instrs:
                self.epoch[i] = count
                count += i.op in WRITES
                if i.op in ("floordiv", "mod"):
                    self.divisions.setdefault(self.division(i), []).append(i)
            self.epoch[block.terminator] = count

    # ------------------------------------------------------------ words

    def reg(self, value: Value, k: int = 0) -> VReg:
        """A register with a word of a value, for an instruction written next."""
        literal = self.parts.literal(value, k)
        if literal is not None:
            return self.constant(literal, value.type.elem if not value.type.rank else Elem.I64)
        part = self.parts.of(value, k)
        found = self.registers.get(part)
        if found is None:
            found = self.registers[part] = self.new(words(part[0].type)[part[1]].bank, part[0].name)
        return found

    def result(self, instr: Instr, k: int = 0, word: int = 0) -> VReg:
        """The register that a result of the instruction being selected goes to."""
        return self.reg(instr.results[k], word)

    def asked(self, value: Value, k: int = 0) -> bool:
        """Whether somebody behind reads the word from its register."""
        return self.parts.of(value, k) in self.registers

    def needed(self, instr: Instr) -> bool:
        """Whether an instruction acts on something, or makes a word that somebody asked for."""
        if instr.op in ACTING or instr in self.forced:
            return True
        return any(
            part in self.registers and self.parts.of(*part) == part
            for part in ((r, k) for r in instr.results for k in range(1 + r.type.rank))
        )

    def new(self, bank: Bank = Bank.INT, name: str = "") -> VReg:
        return self.out.new(bank, name)

    # ------------------------------------------------------------ constants

    def immediate(self, value: Value) -> int | None:
        """The value as an integer that an instruction can hold, if it is one."""
        literal = self.parts.literal(value)
        if literal is None or value.type.elem.is_real:
            return None
        number = self.number(literal, value.type.elem)
        return number if fits(number) else None

    def number(self, literal: bool | int | float | str, elem: Elem) -> int:
        """A constant as a signed number of its width in a register."""
        if isinstance(literal, str):
            return self.tables.string(literal)
        if elem.width == 8:
            return int(literal)
        return wrapped(int(literal), Elem.I32 if elem.width == 32 else Elem.I64)

    def constant(self, literal: bool | int | float | str, elem: Elem) -> VReg:
        """A register with a constant."""
        if elem.is_real:
            return self.real(float(literal), word(elem).width)
        return self.integer(self.number(literal, elem), word(elem).width)

    def integer(self, number: int, width: int = 64) -> VReg:
        """A register with an integer. What an instruction can hold is made where it is read."""
        if fits(number):
            return self.make("mov_i", imm=number, w=width)
        return self._long((number, width), lambda: self.make("mov_i", imm=number, w=width))

    def real(self, value: float, width: int) -> VReg:
        bits = real_bits(value, width)
        return self._long((bits, width, "real"), lambda: self.make("fconst", bits=bits, w=width))

    def _long(self, key: tuple[object, ...], make: Callable[[], VReg]) -> VReg:
        """A constant that is better made once, before the outermost loop around."""
        loop = self.loop_of.get(self.block)
        if loop is None:
            return make()
        while loop.parent is not None:
            loop = loop.parent
        before = self.tree.immediate[loop.header]
        while before in self.loop_of:  # a loop may be left for the header of the next
            before = self.tree.immediate[before]
        found = self.constants.get((*key, loop.header))
        if found is None:
            now, self.now = self.now, self.before_loop.setdefault(before, [])
            found = self.constants[*key, loop.header] = make()
            self.now = now
        return found

    # ------------------------------------------------------------ producers

    def producer(self, value: Value, *ops: str) -> Instr | None:
        """The instruction that computes a scalar, if it is one of these ops."""
        maker = self.parts.maker(value)
        return maker if maker is not None and maker.op in ops else None

    def only_here(self, value: Value) -> bool:
        """Whether a value is read once in the program: then its reader may compute it."""
        while sum(value.uses.values()) == 1 and not self.asked(value):
            source = self.parts.source(value)
            if source is None:
                return self.parts.of(value)[0] is value  # not so of a parameter that is another value
            value = source
        return False

    def dies(self, value: Value) -> bool:
        """Whether nothing behind reads the value, as far as is known: then its register may be written over."""
        part = self.parts.of(value)
        if part in self.registers:
            return False
        block = part[0].block
        return block is not None and self.loop_of.get(block) is self.loop_of.get(self.block)

    def memory(self, value: Value, width: int) -> Instr | None:
        """The load that gives this value, if its reader may read the memory in its place."""
        load = self.producer(value, "load")
        if load is None or load.block is not self.block or not self.only_here(value) or load.result.type.elem.width < width:
            return None
        assert self.here is not None
        narrow = load.result.type.elem in (Elem.F16, Elem.BF16)
        return load if not narrow and self.epoch[load] == self.epoch[self.here] else None

    def division(self, instr: Instr) -> Division:
        """What divisions have in common that one instruction computes."""
        assert instr.block is not None
        a, b = instr.operands
        return instr.block, a.type.elem, self.parts.of(a), self.parts.of(b)

    def low(self, value: Value, width: int) -> Value:
        """A value with the same low bits, before what only clears bits above them."""
        while True:
            maker = self.producer(value, "and", "mod")
            if maker is None or not maker.result.type.elem.is_int or maker.result.type.elem.width < width:
                return value
            x, y = maker.operands
            if maker.op == "and" and self.immediate(x) is not None:
                x, y = y, x
            imm, mask = self.immediate(y), (1 << width) - 1
            if imm is None or not (imm & mask == mask if maker.op == "and" else imm > mask and imm & (imm - 1) == 0):
                return value
            value = x

    # ------------------------------------------------------------ what is known of numbers

    def range(self, value: Value) -> tuple[int, int]:
        """What an integer lies between here, both ends included."""
        literal = self.parts.literal(value)
        if literal is not None:
            return int(literal), int(literal)
        return self.facts.ranges.at(value, self.where()) or WHOLE[value.type.elem]

    def at_least(self, value: Value, bound: int) -> bool:
        """Whether an integer is known not to lie below a bound here."""
        if self.parts.literal(value) is not None or self.range(value)[0] >= bound:
            return self.range(value)[0] >= bound
        return self.facts.proved(self.facts.form(value).more(-bound), self.where())

    def not_zero(self, value: Value) -> bool:
        """Whether an integer is known not to be 0 here."""
        if self.at_least(value, 1):
            return True
        for c in self.facts.conditions.about(value, self.where()):  # the value may be a part of a side only
            if c.op == "ne" and ((c.a is value and const_of(c.b) == 0) or (c.b is value and const_of(c.a) == 0)):
                return True
        return self.facts.proved(ZERO.plus(self.facts.form(value), -1).more(-1), self.where())

    def where(self) -> Place:
        """The place of the SSA instruction being selected."""
        return self.facts.place(self.here) if isinstance(self.here, Instr) else (self.block, END)

    # ------------------------------------------------------------ places

    def depth(self, block: Block) -> int:
        """How many loops a block stands in."""
        loop = self.loop_of.get(block)
        return 0 if loop is None else loop.depth

    def goes_back(self, target: Block) -> bool:
        """Whether a jump from here to a block closes a loop."""
        return self.tree.dominates(target, self.block)

    # ------------------------------------------------------------ instructions

    @contextmanager
    def writing(self, user: Instr | Terminator | None) -> Iterator[list[Inst]]:
        """What is written meanwhile belongs to an SSA instruction, or to the beginning of the function."""
        self.now, self.here = [], user
        self.span = self.ssa.span if user is None else user.span
        yield self.now

    def ins(
        self,
        op: str,
        *operands: VReg,
        mem: Address | None = None,
        late: tuple[VReg, ...] = (),
        targets: Targets = (),
        **attrs: Any,
    ) -> None:
        """Write an instruction with operands in the order of its row; then the registers of the address and those for a failure."""
        self.now.append(build(op, *operands, mem=mem, late=late, targets=targets, span=self.span, **attrs))

    def make(self, op: str, *uses: VReg, mem: Address | None = None, **attrs: Any) -> VReg:
        """Write an instruction with one definition and give that."""
        result = self.new(MACHINE_ROWS[op].operands[0].bank or uses[0].bank)
        self.ins(op, result, *uses, mem=mem, **attrs)
        return result

    def copy(self, to: VReg, value: VReg) -> None:
        self.ins("move", to, value)

    def fixed(self, op: str, defs: Pairs = (), uses: Pairs = (), mem: Address | None = None, **attrs: Any) -> None:
        """Write an instruction whose operands are all in given registers."""
        at = [[(v, Fixed(r)) for v, r in pairs] for pairs in (defs, uses)]
        self.now.append(convention(op, at[0], at[1], mem, self.span, **attrs))

    def needs(self, words: int) -> None:
        """Calls pass so many words of the frame."""
        self.out.outgoing = max(self.out.outgoing, words)

    def may_stop(self, kernel: Kernel) -> bool:
        """Whether a kernel says how it ended: one that calls functions, or is one of a GPU."""
        if kernel.name not in self._stopping:
            self._stopping[kernel.name] = may_end_run(kernel)
        return self._stopping[kernel.name]

    # ------------------------------------------------------------ failures

    def site(self, kind: str, message: str, values: tuple[Elem, ...], span: Span) -> int:
        """The number of a place where a run can stop."""
        self.tables.sites.append(Site(kind, message, values, span))
        return len(self.tables.sites) - 1

    def fault(self, what: str) -> InternalError:
        return InternalError(what, f"x86 selection, {self.ssa.name} at {self.span}")


def real_bits(value: float, width: int) -> int:
    """The bits of a real constant. A literal of `f32` is one already, so packing it rounds nothing."""
    kind = "d" if width == 64 else "f"
    try:
        data = struct.pack("<" + kind, value)
    except OverflowError:
        data = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return int.from_bytes(data, "little")

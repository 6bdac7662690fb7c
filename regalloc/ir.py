"""Machine IR, on one page: what selection makes, what the allocator changes, what the encoder writes down.

A `Function` is a list of `Block`s, the first its entry. A block has parameters (while the code is in SSA form) and
instructions, the last of which is a terminator. An instruction is an op of a target (`regalloc/target.py`), operands that are
registers, attributes that are not, and registers that it destroys.

Registers. Before allocation an operand names a virtual register (`VReg`); the allocator gives it a `place`: a machine register
(`Reg`) or a word of the frame (`Slot`). Both stay on the operand, so that a checker can follow the virtual register
through the places, and a dump can show both.

Constraints say where an operand may live:
  ANY        a register or a slot (what x86 can read from memory, and what only a failure needs)
  REGISTER   a register
  Fixed(r)   just that register (division, calls)
  Reuse(k)   a definition in the place of use k (x86 writes over its first operand)

Time. An instruction reads its early uses, then writes. A *late* use is read until the end, so no definition shares its register; an
*early* definition is written before the uses are read, so it shares no register with them. Uses are early and definitions are
late unless they say otherwise.

    check.64 %i, %n, late %i any, late %n any {cc = "ae", site = 3}     two uses to compare, two to report on failure

Side exits. A check, a poll of the stop flag and a call leave the function where they fail; they are no terminators, so blocks
stay long. What the failing path reads are late uses, in any place: they cost no register.

Parallel moves. `pmove` defines k registers by k others at once. Block parameters become these (`regalloc/destruct.py`); after
allocation they become a sequence (`regalloc/moves.py`).

Mutable; identity matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import Enum

from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span

Attr = object  # bool | int | float | str | Mem | tuple of those; the op's row says which


class Bank(Enum):
    """What a register holds: an integer or an address, or a real."""

    INT = "i"
    REAL = "r"


@dataclass(frozen=True, eq=False)
class Reg:
    """A register of the machine; `number` is its number in encodings. Each exists once, so identity is equality, and fast."""

    name: str
    bank: Bank
    number: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Slot:
    """A word of 8 bytes in the frame, numbered from 0."""

    number: int

    def __str__(self) -> str:
        return f"slot{self.number}"


Place = Reg | Slot


class VReg:
    """A virtual register. `name` is a hint for text, not an identity."""

    __slots__ = ("bank", "name", "number")

    def __init__(self, number: int, bank: Bank, name: str = "") -> None:
        self.number, self.bank, self.name = number, bank, name

    def __repr__(self) -> str:
        return f"%{self.number}"


@dataclass(frozen=True)
class Any:
    """A register or a slot."""


@dataclass(frozen=True)
class Register:
    """Some register."""


@dataclass(frozen=True)
class Fixed:
    """One register. It need not be allocatable."""

    reg: Reg


@dataclass(frozen=True)
class Reuse:
    """The place of an operand of the same instruction, by its position among the operands: a use, early, REGISTER."""

    operand: int


Constraint = Any | Register | Fixed | Reuse
ANY, REGISTER = Any(), Register()


@dataclass(eq=False)
class Operand:
    """A virtual register in an instruction. `late` of a use: read to the end; of a definition: not written before the end (the
    defaults are an early use and a late definition).
    """

    vreg: VReg
    is_def: bool
    constraint: Constraint = REGISTER
    late: bool = False
    place: Place | None = None  # set by the allocator


def use(vreg: VReg, constraint: Constraint = REGISTER, late: bool = False) -> Operand:
    return Operand(vreg, False, constraint, late)


def define(vreg: VReg, constraint: Constraint = REGISTER, late: bool = True) -> Operand:
    return Operand(vreg, True, constraint, late)


@dataclass(frozen=True)
class Mem:
    """An address: `[base + index * scale + offset]`. `base` and `index` are positions among the instruction's operands (uses in
    registers); `area` in place of a base names a part of the memory that code always reaches.
    """

    base: int | None = None
    index: int | None = None
    scale: int = 1
    offset: int = 0
    area: str = ""  # "" | "context" | "incoming" (words that the caller passed) | "outgoing" (words that calls pass and get back)


class Inst:
    """`defs = op uses {attrs}`. Operands in the order of the op's row, definitions first.

    A terminator's `targets` are its successors with the virtual registers that each takes as arguments.
    """

    __slots__ = ("attrs", "clobbers", "op", "operands", "span", "targets")

    def __init__(
        self,
        op: str,
        operands: list[Operand] | None = None,
        attrs: dict[str, Attr] | None = None,
        clobbers: tuple[Reg, ...] = (),
        targets: list[tuple[Block, tuple[VReg, ...]]] | None = None,
        span: Span = NOWHERE,
    ) -> None:
        self.op = op
        self.operands = operands or []
        self.attrs: dict[str, Attr] = attrs or {}
        self.clobbers = clobbers
        self.targets = targets or []
        self.span = span

    @property
    def defs(self) -> list[Operand]:
        return [o for o in self.operands if o.is_def]

    @property
    def uses(self) -> list[Operand]:
        return [o for o in self.operands if not o.is_def]

    def __repr__(self) -> str:
        return f"<{self.op} {self.operands} {self.attrs}>"


class Block:
    """`depth` is how many loops it stands in; `cold` marks what hardly ever runs. The allocator weighs by them, the layout orders by
    them.
    """

    __slots__ = ("cold", "depth", "insts", "name", "params")

    def __init__(self, name: str = "", depth: int = 0, cold: bool = False) -> None:
        self.name, self.depth, self.cold = name, depth, cold
        self.params: list[VReg] = []
        self.insts: list[Inst] = []

    @property
    def terminator(self) -> Inst:
        return self.insts[-1]

    @property
    def successors(self) -> list[Block]:
        return [b for b, _ in self.insts[-1].targets]

    def __repr__(self) -> str:
        return f"<block {self.name}>"


@dataclass(eq=False)
class Function:
    """`slots`: words of the frame that the allocator took. `outgoing`: words that its calls need for what registers do not hold."""

    name: str
    blocks: list[Block] = field(default_factory=list)
    vregs: int = 0  # the next number of a virtual register
    slots: int = 0
    outgoing: int = 0
    allocated: bool = False
    span: Span = NOWHERE

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    def new(self, bank: Bank, name: str = "") -> VReg:
        v = VReg(self.vregs, bank, name)
        self.vregs += 1
        return v


@dataclass(eq=False)
class Module:
    functions: dict[str, Function] = field(default_factory=dict)


def instructions(function: Function) -> Iterator[Inst]:
    for block in function.blocks:
        yield from block.insts

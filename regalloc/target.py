"""What the text form, the verifier, the interpreter and the allocator need to know of a machine. A new machine fills these
tables and changes nothing in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from tlc.frontend.records import dataclass
from tlc.regalloc.ir import REGISTER, Bank, Constraint, Inst, Reg


class Kind(Enum):
    NORMAL = "normal"
    MOVE = "move"  # one definition in any place, one use in any place; copies
    PMOVE = "pmove"  # the same for k definitions and k uses, all at once
    CALL = "call"  # may leave the function, and destroys registers: all its operands are in registers of the convention
    EXIT = "exit"  # may leave the function: behind the row's operands, late uses in any place that the failing path reads
    TERMINATOR = "terminator"


@dataclass(frozen=True)
class Spec:
    """What an operand of an op must be. Without a bank it is of either one (moves)."""

    bank: Bank | None
    is_def: bool
    constraint: Constraint = REGISTER
    late: bool = False


@dataclass(frozen=True)
class Row:
    """An op of a machine. `operands` are those that every such instruction has, definitions first; registers of an address (`mem`) stand
    behind them, then what is `variadic`. `evaluate` is its meaning for the interpreter (`regalloc/interp.py`): it takes the machine,
    the instruction and the values of its uses, and gives a tuple of the values of its definitions; of a terminator with targets, the
    number of the target.
    """

    name: str
    operands: tuple[Spec, ...]
    evaluate: Callable[..., Any]
    attrs: tuple[str, ...] = ()
    kind: Kind = Kind.NORMAL
    widths: tuple[int, ...] = ()  # what the attribute `w` may be
    targets: int = 0  # of a terminator: how many
    variadic: bool = False  # more operands stand behind the row's
    clobbers: tuple[Reg, ...] = ()
    remat: bool = False  # no uses, no effect: repeating it is as good as keeping its result
    pure: bool = False  # without effect: unused, it may go
    commutes: bool = False  # the use that the definition overwrites may change places with the next use


@dataclass(frozen=True)
class MachineEnv:
    """The registers that the allocator may give out, in the order of preference, those that a function must save, and one of
    each bank that it may use between any two instructions (for moves from memory to memory and for cycles).
    """

    allocatable: Mapping[Bank, tuple[Reg, ...]]
    callee_saved: frozenset[Reg]
    scratch: Mapping[Bank, Reg]


@dataclass(frozen=True)
class Domain:
    """What an attribute may be: in words, and as a test of its value in an instruction."""

    words: str
    holds: Callable[[Any, Inst], bool]


@dataclass(frozen=True)
class Target:
    """`domains` has an entry for every attribute of `rows`, but `mem` and `w`."""

    name: str
    rows: Mapping[str, Row]
    domains: Mapping[str, Domain]
    registers: Mapping[str, Reg]  # by name, all of them
    env: MachineEnv
    few: MachineEnv  # three registers of each bank: for tests

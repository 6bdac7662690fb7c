"""What the text form, the verifier, the interpreter and the allocator need to know of a machine. A new machine fills these
tables and changes nothing in this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tlc.regalloc.ir import REGISTER, Bank, Constraint, Reg


class Kind(Enum):
    NORMAL = "normal"
    MOVE = "move"  # one definition in any place, one use in any place; copies
    PMOVE = "pmove"  # the same for k definitions and k uses, all at once
    CALL = "call"  # operands by the signature, after those of the row
    EXIT = "exit"  # may leave the function: behind the row's operands, late uses in any place that the failing path reads
    TERMINATOR = "terminator"


@dataclass(frozen=True)
class Spec:
    """What an operand of an op must be."""

    bank: Bank
    is_def: bool
    constraint: Constraint = REGISTER
    late: bool = False


@dataclass(frozen=True)
class Row:
    """An op of a machine. `operands` are those that every such instruction has, definitions first; registers of an address (`mem`) stand
    behind them. `evaluate` is its meaning for the interpreter: it takes the machine, the instruction and the values of its uses,
    and gives the values of its definitions.
    """

    name: str
    operands: tuple[Spec, ...]
    evaluate: Callable[..., Any]
    attrs: tuple[str, ...] = ()
    kind: Kind = Kind.NORMAL
    clobbers: tuple[Reg, ...] = ()
    remat: bool = False  # no uses, no effect: repeating it is as good as keeping its result
    pure: bool = False  # without effect: unused, it may go


@dataclass(frozen=True)
class MachineEnv:
    """The registers that the allocator may give out, in the order of preference, those that a function must save, and one of
    each bank that it may use between any two instructions (for moves from memory to memory and for cycles).
    """

    allocatable: Mapping[Bank, tuple[Reg, ...]]
    callee_saved: frozenset[Reg]
    scratch: Mapping[Bank, Reg]


@dataclass(frozen=True)
class Target:
    name: str
    rows: Mapping[str, Row]
    registers: Mapping[str, Reg]  # by name, all of them
    env: MachineEnv
    few: MachineEnv  # three registers of each bank: for tests

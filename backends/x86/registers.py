"""The registers of x86-64 and what this compiler uses them for.

r15 holds the context, always; rsp is the stack. r11 and xmm15 are free between and within instructions: the encoder and the
allocator take them where a value has no register. All others hold values.

Own functions and C agree on who keeps what: rbx, rbp and r12 to r14 outlive calls, no vector register does.
"""

from __future__ import annotations

from tlc.regalloc.ir import Bank, Reg
from tlc.regalloc.target import MachineEnv

_NAMES = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{k}" for k in range(8, 16)))

INT = tuple(Reg(name, Bank.INT, k) for k, name in enumerate(_NAMES))
REAL = tuple(Reg(f"xmm{k}", Bank.REAL, k) for k in range(16))
REGISTERS: dict[str, Reg] = {r.name: r for r in (*INT, *REAL)}

(RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15) = INT

CONTEXT, STACK, SCRATCH, REAL_SCRATCH = R15, RSP, R11, REAL[15]

CALLEE_SAVED = (RBX, RBP, R12, R13, R14)
CALLER_SAVED = (RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11, *REAL)

# Where arguments and results travel in calls of own functions; those of C take the same for arguments, rax and xmm0 for a result.
INT_ARGUMENTS = (RDI, RSI, RDX, RCX, R8, R9)
REAL_ARGUMENTS = REAL[:8]
INT_RESULTS = (RDX, RCX, RSI, RDI, R8, R9, R10)  # rax says how the call ended
REAL_RESULTS = REAL[:8]

ENV = MachineEnv(
    {Bank.INT: (RAX, RCX, RDX, RSI, RDI, R8, R9, R10, RBX, RBP, R12, R13, R14), Bank.REAL: REAL[:15]},
    frozenset(CALLEE_SAVED),
    {Bank.INT: SCRATCH, Bank.REAL: REAL_SCRATCH},
)
FEW = MachineEnv({Bank.INT: (RAX, RCX, RDX), Bank.REAL: REAL[:3]}, frozenset(CALLEE_SAVED), ENV.scratch)


def low(number: int, width: int) -> str:
    """The name of the low part of an integer register, as assemblers write it."""
    if number >= 8:
        return f"r{number}" + {64: "", 32: "d", 16: "w", 8: "b"}[width]
    name = _NAMES[number]
    match width:
        case 64:
            return name
        case 32:
            return "e" + name[1:]
        case 16:
            return name[1:]
    return name[1:] + "l" if number >= 4 else name[1] + "l"

"""Who takes tensors over: the instructions and functions that get a buffer, not only a look at it. See `tensor/memory.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tlc.ssa.calls import callee_of
from tlc.ssa.ir import Instr, Module, User, Value
from tlc.tensor.kernel.ir import Kernel

Consumed = dict[str, tuple[bool, ...]]  # function -> for each parameter: the function takes it over


def taken_operands(user: Instr, consumed: Consumed) -> tuple[int, ...]:
    """Positions of the tensors that an instruction takes over (edges and returns take all of theirs)."""
    match user.op:
        case "update" | "store" | "push" | "split":
            positions: Iterable[int] = (0,)
        case "join":
            positions = (0, 1)
        case "reshape" | "stop_grad" if user.result.type.rank:
            positions = (0,)
        case "call":
            takes = consumed[callee_of(user)]
            positions = (k for k, taken in enumerate(takes) if taken)
        case "run":
            positions = range(len(user.results))
        case _:
            positions = ()
    return tuple(k for k in positions if user.operands[k].type.rank)


def infer_consumed(module: Module, kernels: Mapping[str, Kernel]) -> Consumed:
    """Which parameters each function takes over: those that something in it takes. Functions that kernels apply borrow all."""
    borrowing = {name for kernel in kernels.values() for name in kernel.applied}
    consumed: Consumed = {name: (False,) * len(f.params) for name, f in module.functions.items()}
    changed = True
    while changed:
        changed = False
        for name, f in module.functions.items():
            if name in borrowing:
                continue
            now = tuple(p.type.rank > 0 and _is_taken(p, consumed) for p in f.params)
            changed |= now != consumed[name]
            consumed[name] = now
    return consumed


def _is_taken(value: Value, consumed: Consumed) -> bool:
    def takes(user: User) -> bool:
        return not isinstance(user, Instr) or any(user.operands[k] is value for k in taken_operands(user, consumed))

    return any(map(takes, value.uses))

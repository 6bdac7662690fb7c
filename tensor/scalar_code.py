"""The instructions of which regions of comprehensions are made: which are scalar code, what they load, and what they cost."""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.calls import KEPT
from tlc.ssa.ir import Instr, Value

CALL_COST = 1000
ELEMENTARY_COST = 20

# fmt: off
COSTS = {  # in additions; elementary functions by their own row
    "div": 4, "sqrt": 4, "floordiv": 4, "mod": 4, "const": 0, "index": 2, "index_if": 3, "call": CALL_COST, "call_vjp": CALL_COST,
}
# fmt: on
_SAME = ("stop_grad", "barrier")  # the operand itself


def is_scalar(instr: Instr) -> bool:
    """Ops on scalars without an effect, which may be computed anywhere and again."""
    return instr.op in SCALAR_OPS or instr.op in ("const", "format") or (instr.op in _SAME and instr.result.type.rank == 0)


def loaded(instr: Instr) -> tuple[Value, ...] | None:
    """The tensor and the indices of a load, guarded or not, of part of a tensor or of a scalar; None for other instructions."""
    match instr.op:
        case "index":
            return instr.operands
        case "index_if":
            return instr.operands[1:]
    return None


def is_scalar_load(instr: Instr) -> bool:
    """A load of one element, guarded or not."""
    return instr.op == "index_if" or (instr.op == "index" and instr.result.type.rank == 0)


def is_scalar_call(instr: Instr) -> bool:
    return instr.op in KEPT and all(v.type.rank == 0 for v in (*instr.operands, *instr.results))


def is_straight(instr: Instr) -> bool:
    """A reduction whose region is one block of scalar ops and full loads."""
    blocks = instr.regions[0].blocks
    return len(blocks) == 1 and all(is_scalar(i) or is_scalar_load(i) for i in blocks[0].instrs)


def cost_of(instr: Instr) -> int:
    row = SCALAR_OPS.get(instr.op)
    return ELEMENTARY_COST if row is not None and row.elementary else COSTS.get(instr.op, 1)

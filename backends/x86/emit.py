"""Machine IR after allocation as instructions of the processor: one function an op, total over `ROWS`. Here are calls and ends; what
compares stands in `emit_comparisons.py`, the rest in `emit_integers.py` and `emit_reals.py`.

An op may take several instructions; between them r11 and xmm15 are free, and so are the flags at its beginning and end. What it
writes before it has read all of its uses shares no register with those: a definition in the place of a use keeps to the rows' `Reuse`,
and where a definition is written early, the code looks whether a use stands in its place. Though no op reads flags that another
set, a comparison that would set them to what they are already is left out.
"""

from __future__ import annotations

from tlc.backends.context import SERVICES, offset
from tlc.backends.x86 import emit_comparisons, emit_integers, emit_reals
from tlc.backends.x86.emit_comparisons import goto
from tlc.backends.x86.emitter import (
    NE,
    R15,
    RAX,
    TEST,
    XOR32,
    Emit,
    Emitter,
)
from tlc.backends.x86.forms import FORMS, Memory
from tlc.backends.x86.ops import ROWS
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.ir import Inst

CALL_M = FORMS["call", "a64", 32]


def _status(e: Emitter) -> None:
    e.put(TEST[32], RAX, RAX)
    e.jump(NE, e.stopped)


def _call(e: Emitter, i: Inst) -> None:
    e.call(str(i.attrs["symbol"]))
    _status(e)


def _call_c(e: Emitter, i: Inst) -> None:
    symbol = str(i.attrs["symbol"])
    if symbol.startswith("service."):
        e.put(CALL_M, Memory(R15, None, 1, offset("services") + 8 * SERVICES.index(symbol[len("service.") :])))
    else:
        e.call(symbol)
    if i.attrs["checked"]:
        _status(e)


def _jump(e: Emitter, i: Inst) -> None:
    goto(e, i.targets[0][0])


def _ret(e: Emitter, i: Inst) -> None:
    e.put(XOR32, RAX, RAX)
    e.leave()


def _nothing(e: Emitter, i: Inst) -> None:
    """The frame is there already, and parameters are where the caller put them."""


def _pmove(e: Emitter, i: Inst) -> None:
    raise InternalError("`pmove` must have become moves", "encoding")


def _trap(e: Emitter, i: Inst) -> None:
    e.put(FORMS["ud2", "", 32])


EMIT: dict[str, Emit] = {
    **emit_comparisons.EMIT,
    **emit_integers.EMIT,
    **emit_reals.EMIT,
    "pmove": _pmove, "enter": _nothing, "call": _call, "call_c": _call_c,
    "jump": _jump, "ret": _ret, "trap": _trap,
}  # fmt: skip

assert set(EMIT) == set(ROWS), f"not of one table: {set(EMIT) ^ set(ROWS)}"

"""Random host SSA, selected and run by the interpreter of machine IR: the same bits, or the same stop in the same place.

Nothing of the allocator or the encoder takes part. `TLC_FUZZ=1000 python -m pytest tests/unit/test_x86_select_random.py` tries more.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import host_random
import numpy as np
import pytest
from ssa_services import Recorder

from tlc.backends.context import FIELDS, Reason, offset
from tlc.backends.program import Tables
from tlc.backends.x86.ops import TARGET
from tlc.backends.x86.select import select
from tlc.frontend.types import Elem
from tlc.opt import passes
from tlc.regalloc.interp import Machine, run
from tlc.regalloc.verify import verify
from tlc.ssa import formatting
from tlc.ssa.builder import Builder, new_function
from tlc.ssa.interp import Interpreter, Stop
from tlc.ssa.ir import Module, Type, Value
from tlc.tensor.memory import plan

COUNT = int(os.environ.get("TLC_FUZZ", "12"))
CONTEXT = offset(FIELDS[-1].name) + FIELDS[-1].bits // 8 * FIELDS[-1].count
SIGNED, UNSIGNED = struct.Struct("<q"), struct.Struct("<Q")

Arguments = tuple[int, float, list[int], list[float]]
ARGUMENTS: list[Arguments] = [
    (3, 1.5, [4, -1, 7], [0.5, -1.0, 2.0, 8.0]),
    (-1, -0.0, [0, 1, 1, 2], [float("inf"), float("nan"), 1.0]),
]


def meaning(module: Module, arguments: Arguments) -> object:
    try:
        i, a, x, y = Interpreter(module, Recorder()).call("f", list(arguments))
    except Stop as stop:
        return stop.kind, stop.message
    return int(i), bits([a]), [int(v) for v in x], bits(y)


def bits(values: Any) -> bytes:
    return np.asarray([np.nan if np.isnan(v) else v for v in values], np.float64).tobytes()


def with_main(module: Module, arguments: Arguments) -> None:
    """A `main` that makes the arguments, calls `f` and gives the results to a service."""
    _, b = new_function("main", [], [], module)
    n, a, x, y = arguments
    given = [b.i64(n), b.const(a, Type(Elem.F64)), array(b, x, Elem.I64), array(b, y, Elem.F64)]
    b.extern("out", b.call("f", given), [])
    b.ret()


def array(b: Builder, values: list[Any], elem: Elem) -> Value:
    out = b.emit("alloc", [b.i64(len(values))], [Type(elem, 1)]).result
    for k, v in enumerate(values):
        out = b.emit("store", [out, b.i64(k), b.const(v, Type(elem))], [Type(elem, 1)]).result
    return out


def selected(module: Module, arguments: Arguments) -> object:
    """The results of `f` from the code selected for it, or why it stopped."""
    with_main(module, arguments)
    tables = Tables()
    code = select(module, {}, tables)
    for f in code.functions.values():
        verify(f, TARGET)
    out: list[object] = []

    def alloc(m: Machine, given: dict[str, int]) -> dict[str, int]:
        return {"rax": m.memory.add(bytearray(given["rsi"]))}

    def memcpy(m: Machine, given: dict[str, int]) -> dict[str, int]:
        for k in range(given["rdx"]):
            m.write(given["rdi"] + k, 1, m.read(given["rsi"] + k, 1))
        return {"rax": given["rdi"]}

    def extern(m: Machine, given: dict[str, int]) -> dict[str, int]:
        number, i, a, x, x_n, y, y_n = (m.read(given["rdi"] + 8 * k, 8) for k in range(7))
        assert number == 0
        ints = [signed(m.read(x + 8 * k, 8)) for k in range(x_n)]
        reals = [real(m.read(y + 8 * k, 8)) for k in range(y_n)]
        out.append((signed(i), bits([real(a)]), ints, bits(reals)))
        return {"rax": 0}

    outside = {"tlc.alloc": alloc, "tlc.free": lambda m, given: {}, "memcpy": memcpy, "service.extern": extern}
    context = bytearray(CONTEXT)
    if not run(code, TARGET, "f.main", context, outside):
        (result,) = out
        return result
    assert struct.unpack_from("<i", context, offset("reason")) == (int(Reason.CHECK),)
    site = tables.sites[SIGNED.unpack_from(context, offset("site"))[0]]
    words = [UNSIGNED.unpack_from(context, offset("values") + 8 * k)[0] for k in range(len(site.values))]
    assert all(e in (Elem.I64, Elem.F64) for e in site.values)
    values = [np.int64(signed(w)) if e is Elem.I64 else np.float64(real(w)) for w, e in zip(words, site.values, strict=True)]
    return site.kind, formatting.fill(site.message, values)


def signed(word: int) -> int:
    return int(SIGNED.unpack(UNSIGNED.pack(word))[0])


def real(word: int) -> float:
    return float(struct.unpack("<d", UNSIGNED.pack(word))[0])


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_selection_keeps_the_meaning(level: int, arguments: Arguments) -> None:
    for seed in range(COUNT):
        module = host_random.module(seed)
        passes.run(module, passes.HOST_LEVELS[level], stage="host")
        plan(module)
        expected = meaning(module, arguments)
        assert selected(module, arguments) == expected, f"seed {seed}"

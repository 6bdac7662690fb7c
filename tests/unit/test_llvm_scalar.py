"""Every scalar op as LLVM code, scalar and vector, for every element type, against the row's `evaluate`, bit for bit."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

from tlc.backends import cpu
from tlc.backends.llvm import jit, narrow, scalar
from tlc.frontend.elementary import PROMISING
from tlc.frontend.narrow_reals import from_memory, rounded, to_memory
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import Elem

LANES = 8
UNSUPPORTED = (Elem.STR,)


class Body:
    """The instructions of one test function."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def ins(self, text: str) -> str:
        self.lines.append(f"  %v{len(self.lines)} = {text}")
        return f"%v{len(self.lines) - 1}"


def function(name: str, op: str, result: Elem, operands: list[Elem], lanes: int) -> str:
    """`name(out, in.., n)` applies the op to n groups of `lanes` elements."""
    body = Body()
    args = []
    for k, elem in enumerate(operands):
        p = body.ins(f"getelementptr {scalar.storage(elem)}, ptr %p{k}, i64 %i")
        x = body.ins(f"load {scalar.storage(elem, lanes)}, ptr {p}, align 1")
        if elem is Elem.BOOL:
            x = body.ins(f"trunc {scalar.storage(elem, lanes)} {x} to {scalar.register(elem, lanes)}")
        args.append((x, elem))
    y = scalar.emit(body, op, result, tuple(args), lanes)
    if result is Elem.BOOL:
        y = body.ins(f"zext {scalar.register(result, lanes)} {y} to {scalar.storage(result, lanes)}")
    q = body.ins(f"getelementptr {scalar.storage(result)}, ptr %out, i64 %i")
    params = ", ".join(f"ptr %p{k}" for k in range(len(operands)))
    return "\n".join([
        f"define void @{name}(ptr %out, {params}, i64 %n) {{",
        "entry:\n  br label %loop",
        "loop:\n  %i = phi i64 [0, %entry], [%next, %loop]",
        *body.lines,
        f"  store {scalar.storage(result, lanes)} {y}, ptr {q}, align 1",
        f"  %next = add i64 %i, {lanes}",
        "  %more = icmp slt i64 %next, %n",
        "  br i1 %more, label %loop, label %done",
        "done:\n  ret void\n}",
    ])  # fmt: skip


def samples(elem: Elem, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Special and random values of a type."""
    dtype = DTYPES[elem]
    if elem is Elem.BF16:
        return np.asarray(rounded(samples(Elem.F32, rng), elem))
    if elem is Elem.BOOL:
        return np.array([False, True])
    if elem.is_real:
        tiny, big = np.finfo(dtype).tiny, np.finfo(dtype).max
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, tiny, -tiny, tiny / 4, big, -big, 3.0, -7.25,
                   2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 127.0, 128.0, -129.0, 255.5, 256.0, 0.1]  # fmt: skip
        with np.errstate(over="ignore"):
            return np.concatenate([np.array(special, dtype), (rng.standard_normal(34) * 10.0 ** rng.integers(-3, 6, 34)).astype(dtype)])
    info = np.iinfo(dtype)
    special = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 31, 32, 33, 64]
    special += [-1, -2, -3, -7] if info.min < 0 else []
    anything = rng.integers(info.min, info.max, 17, dtype=dtype, endpoint=True)
    return np.concatenate([np.array(special, dtype), anything, rng.integers(0, 100, 10).astype(dtype)])


def cases() -> list[tuple[str, Elem, tuple[Elem, ...]]]:
    """(op, result, operands) for each op and type."""
    out: list[tuple[str, Elem, tuple[Elem, ...]]] = []
    for name, row in SCALAR_OPS.items():
        if name in PROMISING:  # `test_words.py` and `test_elementary.py` have values of which the promise is true
            continue
        for elem in row.takes:
            if elem in UNSUPPORTED or (name == "div" and not elem.is_real):
                continue
            operands = (Elem.BOOL, elem, elem) if name == "select" else (elem,) * row.arity
            if row.gives == "same":
                results: tuple[Elem, ...] = (elem,)
            elif row.gives == "bool":
                results = (Elem.BOOL,)
            elif name == "convert":
                results = tuple(e for e in row.takes if e not in UNSUPPORTED)
            elif name == "bitcast":
                results = tuple(e for e in row.takes if e.width == elem.width)
            else:
                results = (Elem.KEY,) if name == "key_make" else (Elem.U32,)
            out += [(name, r, operands) for r in results]
    return out


CASES = cases()


@pytest.fixture(scope="module", params=["as this CPU does", "as any CPU can"])
def compiled(request: pytest.FixtureRequest) -> jit.Loaded:
    """All functions; also with f16 converted by integer arithmetic, as on a CPU without instructions for it, and without any for whole ops."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "as any CPU can":
            patch.setattr(narrow, "converts_f16", lambda: False)
            patch.setattr(scalar, "native", lambda *_: None)
        return compiled_functions()


def compiled_functions() -> jit.Loaded:
    text = []
    for k, (name, result, operands) in enumerate(CASES):
        for lanes in (1, LANES):
            text.append(function(f"f{k}_{lanes}", name, result, list(operands), lanes))
    return jit.load([jit.compile_object("\n".join(text), jit.Level.KERNEL)])


@pytest.mark.parametrize("lanes", [1, LANES])
def test_every_op_agrees_with_evaluate(compiled: jit.Loaded, lanes: int) -> None:
    rng = np.random.default_rng(7)
    wrong = []
    for k, (name, result, operands) in enumerate(CASES):
        columns = [samples(e, rng) for e in operands]
        if len(columns) == 2:
            columns = [g.ravel() for g in np.meshgrid(*columns, indexing="ij")]
        elif len(columns) == 3:
            columns = [rng.choice(c, 4096) for c in columns]
        n = len(columns[0])
        padded = -(-n // LANES) * LANES
        args = [np.ascontiguousarray(np.resize(c, padded)) for c in columns]
        out = np.zeros(padded, np.uint16 if result is Elem.BF16 else DTYPES[result])
        stored = [to_memory(a) if e is Elem.BF16 else a for a, e in zip(args, operands, strict=True)]
        f = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(args)), ctypes.c_int64)(compiled.address(f"f{k}_{lanes}"))
        f(out.ctypes.data, *(a.ctypes.data for a in stored), padded)
        out = from_memory(out) if result is Elem.BF16 else out
        expected = np.asarray(SCALAR_OPS[name].evaluate(result, *args)).astype(DTYPES[result], copy=False)
        if not same_bits(out, expected):
            i = int(np.nonzero([not same_bits(out[j : j + 1], expected[j : j + 1]) for j in range(padded)])[0][0])
            wrong.append(f"{name}: {operands} -> {result} at {[a[i] for a in args]}: {out[i]!r}, expected {expected[i]!r}")
    assert not wrong, "\n".join(wrong)


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Equal bits; any NaN equals any NaN."""
    if a.dtype.kind != "f":
        return bool((a == b).all())
    view = {2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    return bool(((a.view(view) == b.view(view)) | (np.isnan(a) & np.isnan(b))).all())


def test_a_product_and_a_sum_are_not_contracted() -> None:
    product = "fmul <8 x float> %v1, %v3"
    text = function("f", "mul", Elem.F32, [Elem.F32, Elem.F32], LANES)
    assert product in text
    text = text.replace(product, f"{product}\n  %w = fadd <8 x float> %v4, %v1")
    text = text.replace("store <8 x float> %v4", "store <8 x float> %w")
    assert "vfmadd" not in jit.assembly(text, jit.Level.KERNEL) and "vfmadd" not in jit.assembly(text, jit.Level.HOST)


@pytest.mark.parametrize(("op", "instruction", "needs"), [("ldexp", "vscalef", "avx512f"), ("max", "vrange", "avx512dq"), ("min", "vrange", "avx512dq")])
@pytest.mark.parametrize("elem", [Elem.F32, Elem.F64], ids=str)
def test_ops_that_are_instructions(op: str, instruction: str, needs: str, elem: Elem) -> None:
    if needs not in cpu.features():
        pytest.skip(f"this processor has no {instruction}")
    code = jit.assembly(function("f", op, elem, [elem, elem], 512 // elem.width), jit.Level.KERNEL)
    assert len(re.findall(rf"{instruction}p[sd]\t", code)) == 1

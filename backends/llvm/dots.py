"""`dot2`, `dot4` and `fma2_normal` in LLVM: sums of products of the parts of words, by the instructions that this CPU has for them.

    dot4          vpdpbusd of AVX512-VNNI or AVX-VNNI
    dot2          vpmaddwd, which every x86 has, and an addition (of which LLVM may make the vpdpwssd of VNNI)
    fma2_normal   vdpbf16ps of AVX512-BF16: fused multiply-adds of the higher halves, then of the lower ones; subnormal numbers count as 0

An instruction takes a register of words: shorter vectors are filled up, longer ones cut. Where there is none, the op is its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Protocol

from tlc.backends import cpu

QUAD = 4  # words in 128 bits


class Lines(Protocol):
    """Where instructions go, as in `scalar.py`."""

    def ins(self, text: str) -> str: ...


def dotted(lines: Lines, op: str, operands: Sequence[str], word: str, lanes: int) -> str | None:
    """The op, of words of an LLVM type, on vectors of `lanes` words (one: scalars); None where this CPU has no instruction."""
    most = _words(op)
    if not most or lanes & (lanes - 1):
        return None
    size = min(most, max(QUAD, lanes))
    if lanes == 1:
        words = [lines.ins(f"insertelement <{size} x {word}> poison, {word} {x}, i64 0") for x in operands]
        return lines.ins(f"extractelement <{size} x {word}> {_INSTRUCTIONS[op](lines, words, size)}, i64 0")
    made = []
    for first in range(0, lanes, size):
        words = [_picked(lines, x, word, lanes, first, size) for x in operands]
        made.append(_INSTRUCTIONS[op](lines, words, size))
    while len(made) > 1:
        type, both = f"<{lanes // len(made)} x {word}>", _numbers(range(2 * lanes // len(made)))
        made = [lines.ins(f"shufflevector {type} {a}, {type} {b}, {both}") for a, b in zip(made[::2], made[1::2], strict=True)]
    return _picked(lines, made[0], word, max(size, lanes), 0, lanes)


@cache
def _words(op: str) -> int:
    """How many words the widest instruction for an op takes; 0 if there is none."""
    has = cpu.features()
    if (op == "dot4" and not has & cpu.VNNI) or op == "fma2" or (op == "fma2_normal" and not has >= cpu.PAIRS):
        return 0
    wide = {"avx512bw", "avx512vl"} | ({"avx512_vnni"} if op == "dot4" else set())
    return next((words for words, needs in ((16, wide), (8, {"avx2"}), (QUAD, {"sse2"})) if has >= needs), 0)


def _dot4(lines: Lines, x: Sequence[str], size: int) -> str:
    """The instruction has the unsigned bytes first."""
    signed, unsigned, c = x
    type, bytes_ = f"<{size} x i32>", f"<{4 * size} x i8>"
    s, u = (lines.ins(f"bitcast {type} {w} to {bytes_}") for w in (signed, unsigned))
    return lines.ins(f"call {type} @llvm.x86.avx512.vpdpbusd.{32 * size}({type} {c}, {bytes_} {u}, {bytes_} {s})")


def _dot2(lines: Lines, x: Sequence[str], size: int) -> str:
    a, b, c = x
    type, halves = f"<{size} x i32>", f"<{2 * size} x i16>"
    p, q = (lines.ins(f"bitcast {type} {w} to {halves}") for w in (a, b))
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[size]
    return lines.ins(f"add {type} {c}, {lines.ins(f'call {type} @llvm.x86.{name}({halves} {p}, {halves} {q})')}")


def _fma2(lines: Lines, x: Sequence[str], size: int) -> str:
    a, b, c = x
    type, pairs = f"<{size} x float>", f"<{2 * size} x bfloat>"
    p, q = (lines.ins(f"bitcast {type} {w} to {pairs}") for w in (a, b))
    return lines.ins(f"call {type} @llvm.x86.avx512bf16.dpbf16ps.{32 * size}({type} {c}, {pairs} {p}, {pairs} {q})")


_INSTRUCTIONS: dict[str, Callable[[Lines, Sequence[str], int], str]] = {"dot2": _dot2, "dot4": _dot4, "fma2_normal": _fma2}


def _picked(lines: Lines, x: str, word: str, lanes: int, first: int, count: int) -> str:
    """So many lanes from one on; those behind the last are undefined."""
    if lanes == count:
        return x
    picks = [k if k < lanes else None for k in range(first, first + count)]
    return lines.ins(f"shufflevector <{lanes} x {word}> {x}, <{lanes} x {word}> poison, {_numbers(picks)}")


def _numbers(picks: Iterable[int | None]) -> str:
    """The constant operand of a shuffle."""
    numbers = [f"i32 {'poison' if k is None else k}" for k in picks]
    return f"<{len(numbers)} x i32> <{', '.join(numbers)}>"

"""Ops that this CPU has an instruction for which LLVM would not select, or not in as few steps.

    dot4          vpdpbusd of AVX512-VNNI or AVX-VNNI
    dot2          vpmaddwd, which every x86 has, and an addition (of which LLVM may make the vpdpwssd of VNNI)
    fma2_normal   vdpbf16ps of AVX512-BF16: fused multiply-adds of the higher halves, then of the lower ones; subnormal numbers count as 0
    ldexp         vscalefps, vscalefpd of AVX-512
    max, min      vrangeps, vrangepd of AVX512-DQ, which know that -0 comes before 0, and a NaN where one is

An instruction takes a register of numbers: shorter vectors are filled up, longer ones cut. Where there is none, the op is its arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Protocol

from tlc.backends import cpu
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem


class Lines(Protocol):
    """Where instructions go, as in `scalar.py`."""

    def ins(self, text: str) -> str: ...


@dataclass(frozen=True)
class Instruction:
    """How an op is printed on registers of `bits`, the widest first, for what the CPU must have; `word` is LLVM's type of an operand."""

    registers: Sequence[tuple[int, frozenset[str]]]
    word: str
    print: Callable[[Lines, Sequence[str], int], str]  # of vectors of so many words


def native(lines: Lines, op: str, elem: Elem, operands: Sequence[str], lanes: int) -> str | None:
    """The op on vectors of `lanes` numbers (one: scalars) by its instruction; None where this CPU has none."""
    row = _INSTRUCTIONS.get((op, elem))
    most = _words(op, elem)
    if row is None or not most or lanes & (lanes - 1):
        return None
    size = min(most, max(128 // elem.width, lanes))
    if lanes == 1:
        words = [lines.ins(f"insertelement <{size} x {row.word}> poison, {row.word} {x}, i64 0") for x in operands]
        return lines.ins(f"extractelement <{size} x {row.word}> {row.print(lines, words, size)}, i64 0")
    made = []
    for first in range(0, lanes, size):
        words = [_picked(lines, x, row.word, lanes, first, size) for x in operands]
        made.append(row.print(lines, words, size))
    while len(made) > 1:
        type, both = f"<{lanes // len(made)} x {row.word}>", _numbers(range(2 * lanes // len(made)))
        made = [lines.ins(f"shufflevector {type} {a}, {type} {b}, {both}") for a, b in zip(made[::2], made[1::2], strict=True)]
    return _picked(lines, made[0], row.word, max(size, lanes), 0, lanes)


@cache
def _words(op: str, elem: Elem) -> int:
    """How many words the widest register for an op takes; 0 if there is none."""
    row, has = _INSTRUCTIONS.get((op, elem)), cpu.features()
    return next((bits // elem.width for bits, needs in row.registers if has >= needs), 0) if row else 0


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


def _masked(lines: Lines, name: str, operands: Sequence[str], word: str, size: int) -> str:
    """An instruction of AVX-512 on all lanes; the widest ones say how they round, too (4: as usual)."""
    bits, type = size * (32 if word == "float" else 64), f"<{size} x {word}>"
    all_lanes = "i16 -1" if size == 16 else "i8 -1"
    rest = ", ".join([*operands, f"{type} zeroinitializer", all_lanes, *(["i32 4"] if bits == 512 else [])])
    return lines.ins(f"call {type} @llvm.x86.avx512.mask.{name}.{'ps' if word == 'float' else 'pd'}.{bits}({rest})")


def _scaled(lines: Lines, x: Sequence[str], size: int, word: str) -> str:
    return _masked(lines, "scalef", [f"<{size} x {word}> {w}" for w in x], word, size)


def _extremum(lines: Lines, x: Sequence[str], size: int, word: str, which: int) -> str:
    """The instruction leaves out a NaN (`which`, 0: the least, 1: the greatest; 4: with its sign)."""
    type = f"<{size} x {word}>"
    found = _masked(lines, "range", [*(f"{type} {w}" for w in x), f"i32 {4 + which}"], word, size)
    unordered = lines.ins(f"fcmp uno {type} {x[0]}, {x[1]}")
    return lines.ins(f"select <{size} x i1> {unordered}, {type} splat ({word} 0x7FF8000000000000), {type} {found}")


def _registers(narrow: Iterable[str], wide: Iterable[str]) -> tuple[tuple[int, frozenset[str]], ...]:
    """What registers of 512 and of fewer bits need, the latter both of the two."""
    return (512, frozenset(wide)), (256, frozenset({*narrow, *wide})), (128, frozenset({*narrow, *wide}))


_PLAIN = ((512, frozenset({"avx512bw", "avx512vl"})), (256, frozenset({"avx2"})), (128, frozenset({"sse2"})))
_WORDS = tuple((bits, needs | {vnni}) for bits, needs in _PLAIN for vnni in sorted(cpu.VNNI) if bits < 512 or vnni == "avx512_vnni")
_PAIRS = tuple((bits, needs | cpu.PAIRS) for bits, needs in _PLAIN)
_REALS = {Elem.F32: "float", Elem.F64: "double"}

_INSTRUCTIONS: dict[tuple[str, Elem], Instruction] = {
    ("dot2", Elem.I32): Instruction(_PLAIN, "i32", _dot2),
    ("dot4", Elem.I32): Instruction(_WORDS, "i32", _dot4),
    ("fma2_normal", Elem.F32): Instruction(_PAIRS, "float", _fma2),
    **{("ldexp", e): Instruction(_registers({"avx512vl"}, {"avx512f"}), w, partial(_scaled, word=w)) for e, w in _REALS.items()},
    **{
        (op, e): Instruction(_registers({"avx512vl"}, {"avx512dq"}), w, partial(_extremum, word=w, which=which))
        for which, op in enumerate(("min", "max"))
        for e, w in _REALS.items()
    },
}


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

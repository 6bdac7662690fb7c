"""The encoder against two disassemblers that share no code with it: every form, with every register in every operand, every kind of address
and the immediates at the edges, reads back as the text that the same table prints.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import capstone
import pytest

from tlc.backends.x86.forms import FORMS, RIP, Form, Memory, Value, encode, text
from tlc.frontend.diagnostics import InternalError

BASES = (None, *range(16))
INDICES = (None, *(k for k in range(16) if k != 4))
OFFSETS = (0, 1, -1, 127, 128, -128, -129, 2**31 - 1, -(2**31))
# Every base with every index, scale and offset: for one form of each kind of prefix.
THOROUGH = {("mov", "r,m", 64), ("add", "m,i8", 32), ("mov", "m,r", 8), ("vaddsd", "x,v,y", 64), ("shlx", "r,m,w", 32)}

Case = tuple[Form, tuple[Value, ...]]


def addresses(thorough: bool) -> Iterator[Memory]:
    if thorough:
        for base, index, scale, offset in product(BASES, INDICES, (1, 2, 4, 8), OFFSETS):
            if index is not None or scale == 1:
                yield Memory(base, index, scale, offset)
        return
    for base in BASES:
        for offset in (0, 8, -129):
            yield Memory(base, None, 1, offset)
    for base, index in product((None, 0, 4, 5, 8, 12, 13), (0, 5, 8, 12, 13, 15)):
        yield Memory(base, index, 4, 16)
    yield Memory(RIP, None, 1, 0x1234)


def immediates(form: Form) -> list[int]:
    bits = 8 * form.immediate
    return [0, 1, -1, 5, (1 << (bits - 1)) - 1, -(1 << (bits - 1))]


def choices(form: Form, k: int, kind: str, thorough: bool) -> list[Value]:
    if kind == "i":
        return list(immediates(form))
    registers: list[Value] = [] if kind == "a" else list(range(16))
    return registers + (list(addresses(thorough)) if kind in "mya" else [])


def cases(key: tuple[str, str, int]) -> Iterator[Case]:
    """Each operand through all it may be while the others stay, twice; and all registers against all."""
    form = FORMS[key]
    all_choices = [choices(form, k, kind, key in THOROUGH) for k, kind in enumerate(form.kinds)]
    if not all_choices:
        yield form, ()
        return
    for others in (0, 9):
        for k, options in enumerate(all_choices):
            for value in options:
                rest = [c[min(others, len(c) - 1)] for c in all_choices]
                rest[k] = value
                yield form, tuple(rest)
    registers = [c[:16] if kind != "i" else c[:1] for kind, c in zip(form.kinds, all_choices, strict=True)]
    for values in product(*registers[:2]):
        yield form, (*values, *(c[3 % len(c)] for c in registers[2:]))


@cache
def every_case() -> list[Case]:
    return [case for key in FORMS for case in cases(key)]


PREDICATES = ["eq", "lt", "le", "unord", "neq", "nlt", "nle", "ord"]


def normal(words: str) -> str:
    """Without what only looks different."""
    return re.sub(r"\s+", " ", words.strip().lower())


def test_every_form_reads_back() -> None:
    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    disassembler.skipdata = False
    wrong = []
    every = every_case()
    parts = [encode(form, *operands) for form, operands in every]
    found = _decode(disassembler, parts)
    for (form, operands), data, (size, words) in zip(every, parts, found, strict=True):
        if size != len(data) or not same(words, form, operands):
            wrong.append(f"{form} {operands}: {data.hex()} is `{words}`, should be `{text(form, *operands)}`")
    assert len(every) > 100_000
    assert not wrong, "\n".join([*wrong[:20], f"{len(wrong)} in all"])


def _decode(disassembler: Any, parts: list[bytes]) -> list[tuple[int, str]]:
    """One instruction of each, as many as the bytes say."""
    out = []
    for data in parts:
        first = next(disassembler.disasm_lite(data, 0), None)
        out.append((0, "nothing") if first is None else (first[1], f"{first[2]} {first[3]}"))
    return out


def same(words: str, form: Form, operands: tuple[Value, ...]) -> bool:
    return canonical(words, form) == canonical(text(form, *operands), form)


def canonical(words: str, form: Form) -> str:
    words = normal(words)
    if form.name.startswith("vcmp"):
        for k, predicate in enumerate(PREDICATES):
            words = re.sub(rf"^vcmp{predicate}(s[sd]) (.*)$", rf"vcmp\1 \2, {k}", words)
    if form.immediate and not form.name.startswith("vblendv"):  # -1 and 0xff are one immediate
        head, comma, last = words.rpartition(" ")
        mask = (1 << 8 * form.immediate) - 1
        words = f"{head}{comma}{int(last, 0) & mask}"
    return words


OBJDUMP = shutil.which("objdump")


@pytest.mark.skipif(OBJDUMP is None, reason="no objdump")
def test_objdump_agrees(tmp_path: Path) -> None:
    """A second opinion, on every form with a few operands each."""
    chosen = every_case()[::10]
    path = tmp_path / "code.bin"
    path.write_bytes(b"".join(encode(form, *operands) for form, operands in chosen))
    command = [str(OBJDUMP), "-D", "-z", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn", "-w", str(path)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [m[1] for m in re.finditer(r"^\s*[0-9a-f]+:\s*(.*)$", listing, re.MULTILINE)]
    assert len(found) == len(chosen)
    for (form, operands), words in zip(chosen, found, strict=True):
        assert loose(words, form) == loose(text(form, *operands), form), (str(form), operands, words)


def loose(words: str, form: Form) -> str:
    """What both agree on: names, registers, addresses, the low bits of numbers."""
    words = re.sub(r"\s*#.*$", "", words.lower()).replace(" ptr ", " ")
    words = re.sub(r"\b(byte|word|dword|qword|xmmword) ", "", words)
    words = canonical(words.replace(",", ", "), form) if form.immediate or form.name.startswith("vcmp") else words
    words = re.sub(r"ds:(0x[0-9a-f]+)", r"[\1]", words).replace("+riz*1", "").replace("riz*1", "").replace("movabs", "mov")
    words = re.sub(r"0x[0-9a-f]+|\b\d+\b", lambda m: str(int(m[0], 0) & 0xFFFF_FFFF), words)
    words = re.sub(r"\*1\b", "", words.replace(" ", "").replace("+0]", "]"))
    return re.sub(r"-(\d+)\]", lambda m: f"+{-int(m[1]) & 0xFFFF_FFFF}]", words)


def test_what_cannot_be_encoded_is_refused() -> None:
    mov, add, lea = FORMS["mov", "r,m", 64], FORMS["add", "m,i8", 64], FORMS["lea", "r,a", 64]
    with pytest.raises(InternalError, match="no such address"):
        encode(mov, 0, Memory(0, 4))  # rsp as an index
    with pytest.raises(InternalError, match="no such address"):
        encode(mov, 0, Memory(0, None, 1, 2**31))
    with pytest.raises(InternalError, match="no such address"):
        encode(mov, 0, Memory(0, 1, 3))
    with pytest.raises(InternalError, match="immediate 256"):
        encode(add, 0, 256)
    with pytest.raises(InternalError, match="register 3"):
        encode(lea, 0, 3)
    with pytest.raises(InternalError, match="an address as operand r"):
        encode(mov, Memory(0), 0)


def test_known_bytes() -> None:
    """From the manual, by hand: the traps of ModRM and SIB, and the prefix of the low bytes."""
    mov, byte = FORMS["mov", "r,m", 64], FORMS["mov", "m,r", 8]
    assert encode(mov, 0, Memory(4)).hex() == "488b0424"  # rsp: SIB
    assert encode(mov, 0, Memory(12)).hex() == "498b0424"  # r12: SIB
    assert encode(mov, 0, Memory(5)).hex() == "488b4500"  # rbp: a displacement
    assert encode(mov, 0, Memory(13)).hex() == "498b4500"  # r13: a displacement
    assert encode(mov, 0, Memory(RIP)).hex() == "488b0500000000"
    assert encode(byte, Memory(0), 6).hex() == "408830"  # sil
    assert encode(byte, Memory(0), 2).hex() == "8810"  # dl
    assert encode(FORMS["vaddsd", "x,v,y", 64], 0, 1, 2).hex() == "c5f358c2"
    assert encode(FORMS["vaddsd", "x,v,y", 64], 0, 1, 10).hex() == "c4c17358c2"

"""The instructions of the processor, one row a form: what `encode` turns into bytes and `text` into the words of an assembler.

A row is a name, operands, and the encoding as Intel's manual writes it ("Intel 64 and IA-32 Architectures Software Developer's
Manual", volume 2):

    add   r,m     03 /r              opcode, then ModRM with the register in its middle
    add   m,i     81 /0 iz           ModRM with a digit in the middle, then an immediate
    vaddsd x,v,y  VEX.F2.0F 58 /r    a VEX prefix in place of the older ones

Operands: r an integer register and m one or memory, x and y the same for vectors; a memory alone; v and w a register in the VEX
prefix (a vector, an integer); z a vector in the upper half of the last byte; o an integer register in the opcode; i an immediate (`ib`,
`iw`, `id`, `io` have 1, 2, 4, 8 bytes; `iz` is as wide as the operands, at most 4). A number behind a letter is the width of that operand
where it is not that of the instruction.

A row stands for several widths. 16 bits have the prefix 66, 64 bits REX.W; 8 bits have the opcode below (bit 0 clear), which is how
the older instructions are laid out. `VEX.W` means that 64 bits have VEX.W.

Traps, which `encode` knows and the tests sweep over: rsp and r12 as a base need a SIB byte; rbp and r13 as a base need a displacement;
rsp is no index; the low bytes of rsp, rbp, rsi and rdi need a REX prefix.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from tlc.backends.x86.registers import REGISTERS, low
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass

RIP = -1  # as a base: an address relative to the end of the instruction


class Memory(NamedTuple):
    """An address in terms of register numbers."""

    base: int | None
    scaled: int | None = None  # the index
    scale: int = 1
    offset: int = 0


Value = int | Memory  # a register's number, an immediate, an address


@dataclass(frozen=True, eq=False)
class Form:
    """One instruction in one width. `kinds` and `widths` are of its operands."""

    name: str
    kinds: str
    widths: tuple[int, ...]
    opcode: bytes  # with the escape bytes 0F, 0F 38, 0F 3A in front; of VEX alone
    digit: int = 0  # in the middle of ModRM, where no register is
    modrm: bool = True
    prefix: int = 0  # a prefix that is part of the opcode, 0 for none
    wide: bool = False  # REX.W or VEX.W
    vex: int = 0  # the opcode map of a VEX instruction
    immediate: int = 0  # bytes
    flags: bool = True  # changes them

    def __str__(self) -> str:
        return f"{self.name} {','.join(k + str(w) for k, w in zip(self.kinds, self.widths, strict=True))}"


# name, operands, encoding, widths
_ALU = ("add", "or", "adc", "sbb", "and", "sub", "xor", "cmp")
_ALL, _WORDS, _16 = (8, 16, 32, 64), (32, 64), (16, 32, 64)

_ROWS: list[tuple[str, str, str, tuple[int, ...]]] = [
    *((name, "r,m", f"{8 * k + 3:02X} /r", _ALL) for k, name in enumerate(_ALU)),
    *((name, "m,r", f"{8 * k + 1:02X} /r", _ALL) for k, name in enumerate(_ALU)),
    *((name, "m,i", f"81 /{k} iz", _ALL) for k, name in enumerate(_ALU)),
    *((name, "m,i8", f"83 /{k} ib", _16) for k, name in enumerate(_ALU)),
    ("mov",     "r,m",     "8B /r",     _ALL),
    ("mov",     "m,r",     "89 /r",     _ALL),
    ("mov",     "m,i",     "C7 /0 iz",  _ALL),
    ("mov",     "o,i",     "B8 +r id",  (32,)),
    ("movabs",  "o,i",     "B8 +r io",  (64,)),
    ("movzx",   "r,m8",    "0F B6 /r",  _WORDS),
    ("movzx",   "r,m16",   "0F B7 /r",  _WORDS),
    ("movsx",   "r,m8",    "0F BE /r",  _WORDS),
    ("movsx",   "r,m16",   "0F BF /r",  _WORDS),
    ("movsxd",  "r,m32",   "63 /r",     (64,)),
    ("xchg",    "m,r",     "87 /r",     _ALL),
    ("lea",     "r,a",     "8D /r",     _WORDS),
    ("test",    "m,r",     "85 /r",     _ALL),
    ("test",    "m,i",     "F7 /0 iz",  _ALL),
    ("not",     "m",       "F7 /2",     _ALL),
    ("neg",     "m",       "F7 /3",     _ALL),
    ("mul",     "m",       "F7 /4",     _ALL),
    ("imul",    "m",       "F7 /5",     _ALL),
    ("div",     "m",       "F7 /6",     _ALL),
    ("idiv",    "m",       "F7 /7",     _ALL),
    ("imul",    "r,m",     "0F AF /r",  _16),
    ("imul",    "r,m,i8",  "6B /r ib",  _16),
    ("imul",    "r,m,i",   "69 /r iz",  _16),
    ("shl",     "m,i8",    "C1 /4 ib",  _ALL),
    ("shr",     "m,i8",    "C1 /5 ib",  _ALL),
    ("sar",     "m,i8",    "C1 /7 ib",  _ALL),
    ("shlx",    "r,m,w",   "VEX.66.0F38.W F7 /r", _WORDS),
    ("sarx",    "r,m,w",   "VEX.F3.0F38.W F7 /r", _WORDS),
    ("shrx",    "r,m,w",   "VEX.F2.0F38.W F7 /r", _WORDS),
    ("rorx",    "r,m,i8",  "VEX.F2.0F3A.W F0 /r ib", _WORDS),
    ("cdq",     "",        "99",        (32,)),
    ("cqo",     "",        "99",        (64,)),
    ("push",    "o64",     "50 +r",     (32,)),  # 64 bits without a prefix
    ("pop",     "o64",     "58 +r",     (32,)),
    ("call",    "a64",     "FF /2",     (32,)),
    ("ret",     "",        "C3",        (32,)),
    ("ud2",     "",        "0F 0B",     (32,)),
    ("int3",    "",        "CC",        (32,)),
]  # fmt: skip

# Conditions by their number in opcodes.
CONDITIONS = ("o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g")
for _k, _c in enumerate(CONDITIONS):
    _ROWS.append((f"set{_c}", "m8", f"0F {0x90 + _k:02X} /0", (32,)))
    _ROWS.append((f"cmov{_c}", "r,m", f"0F {0x40 + _k:02X} /r", _WORDS))

# Scalars of f32 and f64: the prefix and the last letters of the name.
_SCALAR = ((32, "F3", "ss"), (64, "F2", "sd"))
_PACKED = ((32, "NP", "ps"), (64, "66", "pd"))
for _w, _p, _s in _SCALAR:
    for _name, _opcode in (("add", 0x58), ("mul", 0x59), ("sub", 0x5C), ("min", 0x5D), ("div", 0x5E), ("max", 0x5F), ("sqrt", 0x51)):
        _ROWS.append((f"v{_name}{_s}", "x,v,y", f"VEX.{_p}.0F {_opcode:02X} /r", (_w,)))
    _ROWS += [
        (f"vcmp{_s}", "x,v,y,i8", f"VEX.{_p}.0F C2 /r ib", (_w,)),
        (f"vmov{_s}", "x,a", f"VEX.{_p}.0F 10 /r", (_w,)),  # two registers would keep the upper half
        (f"vmov{_s}", "a,x", f"VEX.{_p}.0F 11 /r", (_w,)),
        (f"vcvtsi2{_s}", "x,v,m32", f"VEX.{_p}.0F 2A /r", (_w,)),
        (f"vcvtsi2{_s}", "x,v,m64", f"VEX.{_p}.0F.W1 2A /r", (_w,)),
        (f"vcvtt{_s}2si", "r32,y", f"VEX.{_p}.0F 2C /r", (_w,)),
        (f"vcvtt{_s}2si", "r64,y", f"VEX.{_p}.0F.W1 2C /r", (_w,)),
        (f"vround{_s}", "x,v,y,i8", f"VEX.66.0F3A {0x0A if _w == 32 else 0x0B:02X} /r ib", (_w,)),
        (f"vfmadd213{_s}", "x,v,y", "VEX.66.0F38.W A9 /r", (_w,)),
        (f"vfmadd231{_s}", "x,v,y", "VEX.66.0F38.W B9 /r", (_w,)),
    ]
for _w, _p, _s in _PACKED:
    _ROWS += [
        (f"vmova{_s}", "x128,y128", f"VEX.{_p}.0F 28 /r", (_w,)),
        (f"vucomi{_s.replace('p', 's')}", "x,y", f"VEX.{_p}.0F 2E /r", (_w,)),
        (f"vblendv{_s}", "x128,v128,y128,z128", f"VEX.66.0F3A {0x4A if _w == 32 else 0x4B:02X} /r is4", (_w,)),
    ]
    for _name, _opcode in (("and", 0x54), ("andn", 0x55), ("or", 0x56), ("xor", 0x57)):
        _ROWS.append((f"v{_name}{_s}", "x128,v128,y128", f"VEX.{_p}.0F {_opcode:02X} /r", (_w,)))
_ROWS += [
    ("vcvtsd2ss", "x32,v32,y64", "VEX.F2.0F 5A /r", (32,)),
    ("vcvtss2sd", "x64,v64,y32", "VEX.F3.0F 5A /r", (64,)),
    ("vmovd", "x32,m32", "VEX.66.0F 6E /r", (32,)),
    ("vmovd", "m32,x32", "VEX.66.0F 7E /r", (32,)),
    ("vmovq", "x64,m64", "VEX.66.0F.W1 6E /r", (64,)),
    ("vmovq", "m64,x64", "VEX.66.0F.W1 7E /r", (64,)),
    ("vcvtph2ps", "x128,y64", "VEX.66.0F38 13 /r", (32,)),
    ("vcvtps2ph", "y64,x128,i8", "VEX.66.0F3A 1D /r ib", (32,)),
]

# What leaves the flags alone; vector instructions do, but for `vucomi`.
_KEEPS_FLAGS = re.compile(r"mov.*|lea|cmov.*|set.*|sh[lr]x|sarx|rorx|push|pop|not|v(?!ucomi).*")

_PREFIXES = {"NP": 0, "66": 0x66, "F3": 0xF3, "F2": 0xF2}
_MAPS = {"0F": 1, "0F38": 2, "0F3A": 3}


def _form(name: str, operands: str, encoding: str, width: int) -> Form:
    parsed = [re.fullmatch(r"([a-z])(\d*)", o) for o in operands.split(",") if o]
    kinds = "".join(m[1] for m in parsed if m)
    widths = tuple(int(m[2] or width) for m in parsed if m)
    opcode, prefix, vex, digit, modrm, immediate = b"", 0, 0, 0, False, 0
    wide = width == 64
    for word in encoding.split():
        if word.startswith("VEX."):
            fields = word.split(".")
            prefix, vex = _PREFIXES[fields[1]], _MAPS[fields[2]]
            wide = fields[3:] == ["W1"] or (fields[3:] == ["W"] and width == 64)
        elif word.startswith("/"):
            modrm, digit = True, 0 if word == "/r" else int(word[1:])
        elif word.startswith("i"):
            immediate = {"ib": 1, "iw": 2, "id": 4, "io": 8, "iz": min(width // 8, 4), "is4": 1}[word]
        elif word != "+r":
            opcode += bytes.fromhex(word)
    if not vex and width == 16:
        prefix = 0x66
    if not vex and width == 8:
        opcode = opcode[:-1] + bytes([opcode[-1] & 0xFE])
    flags = not _KEEPS_FLAGS.fullmatch(name)
    return Form(name, kinds, widths, opcode, digit, modrm, prefix, wide, vex, immediate, flags)


# By name, operands as rows write them, and width.
FORMS: dict[tuple[str, str, int], Form] = {
    (name, operands, w): _form(name, operands, encoding, w) for name, operands, encoding, widths in _ROWS for w in widths
}

assert len(FORMS) == sum(len(widths) for *_, widths in _ROWS), "a form is declared twice"


@lru_cache(1 << 16)
def encode(form: Form, *operands: Value) -> bytes:
    """The bytes of an instruction. An address relative to rip gets a displacement of 0: who asks for it fills it in."""
    reg, opcode, rm, vector, last, rex = form.digit, form.opcode, 0, 0, b"", 0
    memory: Memory | None = None
    for kind, width, value in zip(form.kinds, form.widths, operands, strict=True):
        if kind == "i":
            last = _immediate(form, value)
        elif isinstance(value, Memory):
            if kind not in "mya":
                raise InternalError(f"an address as operand {kind} of {form}", "encoding")
            memory = value
        else:
            if not 0 <= value < 16 or kind == "a":
                raise InternalError(f"register {value} in {form}", "encoding")
            if width == 8 and value >= 4 and kind in "rm":
                rex |= 0x40  # without a prefix these numbers are ah, ch, dh, bh
            match kind:
                case "r" | "x":
                    reg = value
                case "m" | "y":
                    rm = value
                case "v" | "w":
                    vector = value
                case "z":
                    last = bytes([value << 4])
                case "o":
                    rm = value
                    opcode = opcode[:-1] + bytes([opcode[-1] | value & 7])
    x, tail = 0, b""
    if memory is not None:
        rm, x, tail = _address(memory, reg)
    elif form.modrm:
        tail = bytes([0xC0 | (reg & 7) << 3 | rm & 7])
    r, b = reg >> 3, rm >> 3
    if form.vex:
        return _vex(form, r, x, b, vector) + opcode + tail + last
    rex |= form.wide << 3 | r << 2 | x << 1 | b
    front = bytes([form.prefix]) if form.prefix else b""
    return front + (bytes([0x40 | rex]) if rex else b"") + opcode + tail + last


def _immediate(form: Form, value: Value) -> bytes:
    bits = 8 * form.immediate
    if not isinstance(value, int) or not -(1 << (bits - 1)) <= value < 1 << bits:
        raise InternalError(f"immediate {value} in {form}", "encoding")
    return (value & ((1 << bits) - 1)).to_bytes(form.immediate, "little")


def _address(memory: Memory, reg: int) -> tuple[int, int, bytes]:
    """The base (for its top bit), the top bit of the index, and ModRM, SIB and displacement."""
    base, index, scale, offset = memory
    middle = (reg & 7) << 3
    if base == RIP:
        return 0, 0, bytes([middle | 5]) + offset.to_bytes(4, "little", signed=True)
    if index == 4 or scale not in (1, 2, 4, 8) or not -(2**31) <= offset < 2**31:
        raise InternalError(f"no such address: {memory}", "encoding")
    if base is None:  # SIB without a base has a displacement of 32 bits
        sib = {1: 0, 2: 0x40, 4: 0x80, 8: 0xC0}[scale] | ((4 if index is None else index) & 7) << 3 | 5
        return 0, (index or 0) >> 3, bytes([middle | 4, sib]) + offset.to_bytes(4, "little", signed=True)
    if offset == 0 and base & 7 != 5:
        mod, displacement = 0x00, b""
    elif -128 <= offset < 128:
        mod, displacement = 0x40, offset.to_bytes(1, "little", signed=True)
    else:
        mod, displacement = 0x80, offset.to_bytes(4, "little", signed=True)
    if index is None and base & 7 != 4:
        return base, 0, bytes([mod | middle | base & 7]) + displacement
    sib = {1: 0, 2: 0x40, 4: 0x80, 8: 0xC0}[scale] | ((4 if index is None else index) & 7) << 3 | base & 7
    return base, (index or 0) >> 3, bytes([mod | middle | 4, sib]) + displacement


def _vex(form: Form, r: int, x: int, b: int, vector: int) -> bytes:
    """Two bytes where they are enough."""
    low = (~vector & 15) << 3 | {0: 0, 0x66: 1, 0xF3: 2, 0xF2: 3}[form.prefix]
    if not x and not b and form.vex == 1 and not form.wide:
        return bytes([0xC5, (r ^ 1) << 7 | low])
    return bytes([0xC4, (r ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | form.vex, form.wide << 7 | low])


# ---------------------------------------------------------------- text

_SIZES = {8: "byte", 16: "word", 32: "dword", 64: "qword", 128: "xmmword"}
_NAMES = [r.name for r in REGISTERS.values()][:16]


def text(form: Form, *operands: Value, symbol: str = "") -> str:
    """An instruction as assemblers write it; `symbol` is what an address relative to rip stands for."""
    words = []
    for kind, width, value in zip(form.kinds, form.widths, operands, strict=True):
        if isinstance(value, Memory):
            size = "" if form.name == "lea" else f"{_SIZES[width]} ptr "
            words.append(size + memory_text(value, symbol))
        elif kind == "i":
            words.append(number(value))
        elif kind in "xyvz":
            words.append(f"xmm{value}")
        else:
            words.append(low(value, width))
    return f"{form.name} {', '.join(words)}".rstrip()


def number(value: int) -> str:
    """Small numbers in decimal, others in hexadecimal."""
    return str(value) if -10 < value < 10 else hex(value)


def memory_text(memory: Memory, symbol: str = "") -> str:
    base, index, scale, offset = memory
    terms = []
    if base is not None:
        terms.append("rip" if base == RIP else _NAMES[base])
    if index is not None:
        terms.append(_NAMES[index] + (f"*{scale}" if scale > 1 else ""))
    if symbol:
        terms.append(symbol)
    out = " + ".join(terms)
    if not terms:
        return f"[{number(offset % 2**64)}]"
    return f"[{out}{f' + {number(offset)}' if offset > 0 else f' - {number(-offset)}' if offset else ''}]"

"""What each op of x86 means, in Python: the definition that the interpreter of machine IR runs and the encoder is tested against.

A register holds 64 bits as an `int` (a real: the bits of its low lane). Bits that an op leaves undefined are filled with
`GARBAGE`, so that code which relies on them differs from native code instead of agreeing by luck.

Each function takes the machine (`regalloc/interp.py`), the instruction and the values of its uses, and gives the values of its
definitions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from tlc.backends.context import Reason, offset
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.fma import fma32, fma64
from tlc.regalloc.ir import Inst

GARBAGE = 0xA5C3_96E1_A5C3_96E1
ALL = 2**64 - 1

Values = tuple[int, ...]
Meaning = Callable[..., Any]  # (machine, instruction, values of the uses) -> values of the definitions


class Machine(Protocol):
    """What meanings need of the interpreter."""

    context: int  # its address

    def address(self, inst: Inst, values: Values) -> int:
        """Where the attribute `mem` points to."""
        ...

    def read(self, address: int, size: int) -> int: ...

    def write(self, address: int, size: int, value: int) -> None: ...

    def call(self, inst: Inst, values: Values) -> Values:
        """Call a function of the module by the convention; its failure leaves this function too."""
        ...

    def call_outside(self, inst: Inst, values: Values) -> Values:
        """Call a function from outside by its symbol."""
        ...

    def stack_left(self) -> bool:
        """Whether another frame fits."""
        ...

    def leave(self) -> NoReturn:
        """Leave the function: the run has stopped."""
        ...


# ---------------------------------------------------------------- values


def unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def upper_undefined(value: int, width: int) -> int:
    """A result of `width` bits; the bits above are anything."""
    mask = (1 << width) - 1
    return (value & mask) | (GARBAGE & ALL & ~mask)


def width(inst: Inst, name: str = "w") -> int:
    w = inst.attrs[name]
    assert isinstance(w, int)
    return w


def immediate(inst: Inst) -> int:
    value = inst.attrs["imm"]
    assert isinstance(value, int)
    return value


def real(bits: int, w: int) -> Any:
    """A NumPy scalar from the bits of a register."""
    data = struct.pack("<Q", bits)
    return np.frombuffer(data, np.float64 if w == 64 else np.float32)[0]


def bits(value: Any, w: int) -> int:
    """The bits of a real in a register; those above a float are undefined."""
    with np.errstate(all="ignore"):
        data = (np.float64 if w == 64 else np.float32)(value).tobytes()
    return int.from_bytes(data, "little") if w == 64 else upper_undefined(int.from_bytes(data, "little"), 32)


# ---------------------------------------------------------------- conditions

CONDITIONS: dict[str, Callable[[int, int, int], bool]] = {
    "eq": lambda a, b, w: unsigned(a, w) == unsigned(b, w),
    "ne": lambda a, b, w: unsigned(a, w) != unsigned(b, w),
    "lt": lambda a, b, w: signed(a, w) < signed(b, w),
    "le": lambda a, b, w: signed(a, w) <= signed(b, w),
    "gt": lambda a, b, w: signed(a, w) > signed(b, w),
    "ge": lambda a, b, w: signed(a, w) >= signed(b, w),
    "b":  lambda a, b, w: unsigned(a, w) < unsigned(b, w),
    "be": lambda a, b, w: unsigned(a, w) <= unsigned(b, w),
    "a":  lambda a, b, w: unsigned(a, w) > unsigned(b, w),
    "ae": lambda a, b, w: unsigned(a, w) >= unsigned(b, w),
}  # fmt: skip

# Of reals. `n..` is the negation, so it holds where one of them is not a number.
REAL_CONDITIONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq":  lambda a, b: bool(a == b),
    "ne":  lambda a, b: bool(a != b),
    "lt":  lambda a, b: bool(a < b),
    "le":  lambda a, b: bool(a <= b),
    "gt":  lambda a, b: bool(a > b),
    "ge":  lambda a, b: bool(a >= b),
    "nlt": lambda a, b: not a < b,
    "nle": lambda a, b: not a <= b,
    "ngt": lambda a, b: not a > b,
    "nge": lambda a, b: not a >= b,
    "uno": lambda a, b: bool(np.isnan(a) or np.isnan(b)),
    "ord": lambda a, b: not (np.isnan(a) or np.isnan(b)),
}  # fmt: skip

def _cc(inst: Inst) -> Callable[[int, int, int], bool]:
    return CONDITIONS[str(inst.attrs["cc"])]


def _memory(m: Machine, i: Inst, values: Values) -> int:
    """What the attribute `mem` points to, `w` bits."""
    return m.read(m.address(i, values), width(i) // 8)


# How the operands of a comparison stand, by the suffix of the op: given the instruction, all uses, and the uses from the compared
# ones on.
TESTS: dict[str, Callable[[Machine, Inst, Values, Values], bool]] = {
    "":    lambda m, i, all, v: _cc(i)(v[0], v[1], width(i)),
    "_i":  lambda m, i, all, v: _cc(i)(v[0], immediate(i), width(i)),
    "_m":  lambda m, i, all, v: _cc(i)(v[0], _memory(m, i, all), width(i)),
    "_mi": lambda m, i, all, v: _cc(i)(_memory(m, i, all), immediate(i), width(i)),
    "_t":  lambda m, i, all, v: _cc(i)(v[0] & v[1], 0, width(i)),
    "_ti": lambda m, i, all, v: _cc(i)(v[0] & immediate(i), 0, width(i)),
    "_f":  lambda m, i, all, v: REAL_CONDITIONS[str(i.attrs["cc"])](real(v[0], width(i)), real(v[1], width(i))),
}  # fmt: skip


def branch(test: str) -> Meaning:
    return lambda m, i, v: 0 if TESTS[test](m, i, v, v) else 1


def setting(test: str) -> Meaning:
    return lambda m, i, v: (int(TESTS[test](m, i, v, v)),)


def choice(test: str) -> Meaning:
    """The second value where the condition holds, else the first."""

    def meaning(m: Machine, i: Inst, v: Values) -> Values:
        return (upper_undefined(v[1 if TESTS[test](m, i, v, v[2:]) else 0], width(i, "vw")),)

    return meaning


def real_choice(test: str) -> Meaning:
    """The same of reals; what compares reals chooses in their width."""
    of = "w" if test == "_f" else "vw"
    return lambda m, i, v: (upper_undefined(v[1 if TESTS[test](m, i, v, v[2:]) else 0], width(i, of)),)


def check(test: str) -> Meaning:
    """Fails where the condition holds."""

    def meaning(m: Machine, i: Inst, v: Values) -> Values:
        if TESTS[test](m, i, v, v):
            fail(m, i, v)
        return ()

    return meaning


def fail(m: Machine, i: Inst, v: Values) -> NoReturn:
    """Write down why, and leave."""
    slots = i.attrs["slots"]
    assert isinstance(slots, tuple)
    late = list(v[len(v) - sum(s is None for s in slots) :])
    for k, s in enumerate(slots):
        m.write(m.context + offset("values") + 8 * k, 8, unsigned(late.pop(0) if s is None else s, 64))
    m.write(m.context + offset("site"), 8, _site(i))
    m.write(m.context + offset("reason"), 4, int(Reason.CHECK))
    m.leave()


def _site(i: Inst) -> int:
    site = i.attrs["site"]
    assert isinstance(site, int)
    return site


def check_stack(m: Machine, i: Inst, v: Values) -> Values:
    """Who stops a run makes the stack seem full, too: so this is a poll as well."""
    if not m.stack_left():
        poll(m, i, v)
        fail(m, i, v)
    return ()


def poll(m: Machine, i: Inst, v: Values) -> Values:
    if m.read(m.context + offset("stop"), 4):
        m.write(m.context + offset("reason"), 4, int(Reason.STOPPED))
        m.leave()
    return ()


# ---------------------------------------------------------------- integers


def binary(f: Callable[[int, int, int], int]) -> Meaning:
    """`f` of two values and the width."""
    return lambda m, i, v: (upper_undefined(f(v[0], v[1], width(i)), width(i)),)


def with_immediate(f: Callable[[int, int, int], int]) -> Meaning:
    return lambda m, i, v: (upper_undefined(f(v[0], immediate(i), width(i)), width(i)),)


def with_memory(f: Callable[[int, int, int], int]) -> Meaning:
    return lambda m, i, v: (upper_undefined(f(v[0], _memory(m, i, v), width(i)), width(i)),)


def to_memory(f: Callable[[int, int, int], int]) -> Meaning:
    """The word in memory becomes `f` of itself and the first value."""

    def meaning(m: Machine, i: Inst, v: Values) -> Values:
        address, w = m.address(i, v), width(i)
        m.write(address, w // 8, unsigned(f(m.read(address, w // 8), v[0], w), w))
        return ()

    return meaning




def to_memory_immediate(f: Callable[[int, int, int], int]) -> Meaning:
    def meaning(m: Machine, i: Inst, v: Values) -> Values:
        address, w = m.address(i, v), width(i)
        m.write(address, w // 8, unsigned(f(m.read(address, w // 8), immediate(i), w), w))
        return ()

    return meaning


def shift_right(a: int, count: int, w: int) -> int:
    return unsigned(a, w) >> (count & (w - 1))


def shift_left(a: int, count: int, w: int) -> int:
    return a << (count & (w - 1))


def shift_arithmetic(a: int, count: int, w: int) -> int:
    return signed(a, w) >> (count & (w - 1))


def unary(f: Callable[[int], int]) -> Meaning:
    return lambda m, i, v: (upper_undefined(f(v[0]), width(i)),)


def mov_i(m: Machine, i: Inst, v: Values) -> Values:
    return (upper_undefined(immediate(i), width(i)),)


def move(m: Machine, i: Inst, v: Values) -> Values:
    return v


def sx(m: Machine, i: Inst, v: Values) -> Values:
    return (upper_undefined(signed(v[0], width(i, "from")), width(i)),)


def zx(m: Machine, i: Inst, v: Values) -> Values:
    return (unsigned(v[0], width(i, "from")),)


def divide(read: Callable[[int, int], int]) -> Meaning:
    def meaning(m: Machine, i: Inst, v: Values) -> Values:
        w = width(i)
        a, b = read(v[0], w), read(v[1], w)
        if b == 0 or (b == -1 and a == -(1 << (w - 1))):
            raise InternalError(f"`{i.op}` of {a} by {b} traps", f"machine code at {i.span}")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return upper_undefined(quotient, w), upper_undefined(a - quotient * b, w)

    return meaning


def multiply_high(m: Machine, i: Inst, v: Values) -> Values:
    w = width(i)
    product = unsigned(v[0], w) * unsigned(v[1], w)
    return upper_undefined(product >> w, w), upper_undefined(product, w)


# ---------------------------------------------------------------- memory


def lea(m: Machine, i: Inst, v: Values) -> Values:
    return (upper_undefined(m.address(i, v), width(i)),)


def load(m: Machine, i: Inst, v: Values) -> Values:
    w = width(i)
    value = m.read(m.address(i, v), w // 8)
    return (unsigned(signed(value, w), 64) if i.attrs["ext"] == "s" else value,)


def store(m: Machine, i: Inst, v: Values) -> Values:
    m.write(m.address(i, v), width(i) // 8, unsigned(v[0], width(i)))
    return ()


def store_i(m: Machine, i: Inst, v: Values) -> Values:
    m.write(m.address(i, v), width(i) // 8, unsigned(immediate(i), width(i)))
    return ()


def fload(m: Machine, i: Inst, v: Values) -> Values:
    return (upper_undefined(m.read(m.address(i, v), width(i) // 8), width(i)),)


# ---------------------------------------------------------------- reals


def _quiet(f: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args)

    return quiet


def real_op(f: Callable[..., Any]) -> Meaning:
    """`f` of NumPy scalars of the op's width."""
    f = _quiet(f)
    return lambda m, i, v: (bits(f(*(real(x, width(i)) for x in v)), width(i)),)


def real_op_memory(f: Callable[..., Any]) -> Meaning:
    f = _quiet(f)
    return lambda m, i, v: (bits(f(real(v[0], width(i)), real(_memory(m, i, v), width(i))), width(i)),)


def real_bits(f: Callable[[int, int], int]) -> Meaning:
    return lambda m, i, v: (upper_undefined(f(v[0], v[1]), width(i)),)


def sign_bit(f: Callable[[int, int], int]) -> Meaning:
    """`f` of the bits and the mask of the sign."""
    return lambda m, i, v: (upper_undefined(f(v[0], 1 << (width(i) - 1)), width(i)),)


def sqrt(a: Any) -> Any:
    return np.sqrt(a)


_ROUND: dict[str, Callable[[Any], Any]] = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "even": np.rint}


def fround(m: Machine, i: Inst, v: Values) -> Values:
    return (bits(_ROUND[str(i.attrs["mode"])](real(v[0], width(i))), width(i)),)


def fma(a: int, b: int, c: int) -> Meaning:
    """a * b + c of the uses at these positions, rounded once."""

    def meaning(m: Machine, i: Inst, v: Values) -> Values:
        w = width(i)
        return (bits((fma64 if w == 64 else fma32)(*(real(v[k], w) for k in (a, b, c))), w),)

    return meaning


def fconst(m: Machine, i: Inst, v: Values) -> Values:
    value = i.attrs["bits"]
    assert isinstance(value, int)
    return (upper_undefined(value, width(i)),)


def fmask(m: Machine, i: Inst, v: Values) -> Values:
    holds = REAL_CONDITIONS[str(i.attrs["cc"])](real(v[0], width(i)), real(v[1], width(i)))
    return (upper_undefined(ALL if holds else 0, width(i)),)


def int_to_f(m: Machine, i: Inst, v: Values) -> Values:
    w, source = width(i), np.int64(signed(v[0], width(i, "from")))
    return (bits(source.astype(np.float64 if w == 64 else np.float32), w),)


def f_to_int(m: Machine, i: Inst, v: Values) -> Values:
    """Truncates; what does not fit gives the least integer."""
    w = width(i)
    x = float(real(v[0], width(i, "from")))
    least = -(1 << (w - 1))
    fits = np.isfinite(x) and least <= int(x) <= -least - 1
    return (upper_undefined(int(x) if fits else least, w),)


def f_to_f(m: Machine, i: Inst, v: Values) -> Values:
    """To the width of the op from the other one."""
    return (bits(real(v[0], 96 - width(i)), width(i)),)


def bits_to_f(m: Machine, i: Inst, v: Values) -> Values:
    return (upper_undefined(v[0], width(i)),)


def f16_to_f(m: Machine, i: Inst, v: Values) -> Values:
    half = np.frombuffer(struct.pack("<H", unsigned(v[0], 16)), np.float16)[0]
    return (bits(np.float32(half), 32),)


def f_to_f16(m: Machine, i: Inst, v: Values) -> Values:
    with np.errstate(all="ignore"):
        return (upper_undefined(int.from_bytes(np.float16(real(v[0], 32)).tobytes(), "little"), 16),)


# ---------------------------------------------------------------- calls and ends


def enter(m: Machine, i: Inst, v: Values) -> NoReturn:
    raise InternalError("`enter` below the beginning", "machine code")  # the interpreter gives its definitions


def call(m: Machine, i: Inst, v: Values) -> Values:
    return m.call(i, v)


def call_c(m: Machine, i: Inst, v: Values) -> Values:
    return m.call_outside(i, v)


def jump(m: Machine, i: Inst, v: Values) -> int:
    return 0


def trap(m: Machine, i: Inst, v: Values) -> NoReturn:
    raise InternalError("reached what cannot be reached", f"machine code at {i.span}")

"""Every scalar op, selected for x86 and run, gives what its row in `frontend/ops.py` says: random and special values of every type."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from tlc.backends.program import Tables
from tlc.backends.x86.abi import arguments, results
from tlc.backends.x86.meaning import GARBAGE
from tlc.backends.x86.ops import ROWS
from tlc.backends.x86.select import select
from tlc.frontend.narrow_reals import NARROW, nearest, rounded
from tlc.frontend.ops import DTYPES, SCALAR_OPS
from tlc.frontend.types import INTS, REALS, Elem
from tlc.regalloc import ir
from tlc.ssa.builder import new_function
from tlc.ssa.ir import Module, Type

MASK = 2**64 - 1
Values = tuple[int, ...]

# ---------------------------------------------------------------- running


class Outside:
    """What meanings ask of a machine, for code without memory: addresses (of `lea`) and the C library's `fmod`."""

    def address(self, inst: ir.Inst, values: Values) -> int:
        mem, defs = inst.attrs["mem"], len(inst.defs)
        assert isinstance(mem, ir.Mem)
        base, index = (0 if k is None else values[k - defs] for k in (mem.base, mem.index))
        return (base + index * mem.scale + mem.offset) & MASK

    def call_outside(self, inst: ir.Inst, values: Values) -> Values:
        elem = {"c.fmod.f64.f64.f64": Elem.F64, "c.fmodf.f32.f32.f32": Elem.F32}[str(inst.attrs["symbol"])]
        with np.errstate(all="ignore"):
            return (register(np.fmod(*(scalar(v, elem) for v in values)), elem),)


def run(function: ir.Function, given: dict[ir.Reg, int]) -> dict[ir.Reg, int]:
    """Run code without branches by the meanings of its instructions."""
    (block,) = function.blocks
    values: dict[ir.VReg, int] = {}
    for inst in block.insts:
        if inst.op == "enter":
            values |= {o.vreg: given[fixed(o)] for o in inst.operands}
        elif inst.op == "ret":
            return {fixed(o): values[o.vreg] for o in inst.operands}
        else:
            made = ROWS[inst.op].evaluate(Outside(), inst, tuple(values[o.vreg] for o in inst.uses))
            values |= dict(zip((o.vreg for o in inst.defs), made, strict=True))
    raise AssertionError("no `ret`")


def fixed(operand: ir.Operand) -> ir.Reg:
    assert isinstance(operand.constraint, ir.Fixed)
    return operand.constraint.reg


def register(value: Any, elem: Elem) -> int:
    """A scalar in a register; the bits above it are anything, but those above a bool."""
    if elem.is_real:
        wide = np.float64 if elem is Elem.F64 else np.float32
        return above(int.from_bytes(wide(value).tobytes(), "little"), 64 if elem is Elem.F64 else 32)
    return int(value) if elem is Elem.BOOL else above(int(value), elem.width)


def above(bits: int, width: int) -> int:
    mask = (1 << width) - 1
    return (bits & mask) | (GARBAGE & MASK & ~mask)


def scalar(bits: int, elem: Elem) -> Any:
    if elem is Elem.BOOL:
        assert bits in (0, 1), f"a bool is {bits:#x}"
    dtype = np.dtype(np.float32) if elem in NARROW else DTYPES[elem]
    value = np.frombuffer(bits.to_bytes(8, "little"), dtype, 1)[0]
    return np.float16(value) if elem is Elem.F16 else value


# ---------------------------------------------------------------- values

SPECIAL_REALS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-3, 2.0**23 + 0.5, float("inf"), float("-inf"), float("nan"),
    2.0**-149, -(2.0**-126), 127.5, 128.0, -129.0, 255.9, 2.0**31 - 1, 2.0**31, -(2.0**31), 2.0**32 - 1, 2.0**32, 2.0**63, -(2.0**63), 3e38,
    -3e38, 1e300, 5e-324, 700.0, -745.2,
)  # fmt: skip


def values(elem: Elem, rng: random.Random, count: int = 8) -> list[Any]:
    kind = DTYPES[elem].type
    if elem is Elem.BOOL:
        return [np.bool_(False), np.bool_(True)]
    with np.errstate(all="ignore"):
        if elem is Elem.BF16:
            return [rounded(np.float32(v), elem) for v in (*SPECIAL_REALS, *(rng.gauss(0, 50) for _ in range(count)))]
        if elem.is_real:
            return [kind(v) for v in (*SPECIAL_REALS, *(rng.gauss(0, 50) for _ in range(count)))]
    if elem is Elem.STR:
        return [np.int64(3), np.int64(4)]
    least, most = (-(1 << elem.width - 1), (1 << elem.width - 1) - 1) if elem.is_signed else (0, (1 << elem.width) - 1)
    special = {least, least + 1, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, most - 1, most}
    chosen = sorted(v for v in special if least <= v <= most)
    return [
        kind(v) for v in (*chosen, *(rng.randint(least, most) for _ in range(count)), *(rng.randint(0, min(99, most)) for _ in range(3)))
    ]


def same(a: Any, b: Any, elem: Elem) -> bool:
    if elem.is_real and np.isnan(a) and np.isnan(b):
        return True
    return bool(np.asarray(a).tobytes() == np.asarray(b).tobytes())


# ---------------------------------------------------------------- the test


def cases() -> list[tuple[str, tuple[Elem, ...], Elem]]:
    """Every op on every element type: operand types and the result's."""
    out: list[tuple[str, tuple[Elem, ...], Elem]] = []
    for row in SCALAR_OPS.values():
        for elem in row.takes:
            operands = (Elem.BOOL, elem, elem) if row.name == "select" else (elem,) * row.arity
            match row.name:
                case "convert":
                    out += [(row.name, operands, to) for to in (Elem.BOOL, *INTS, *REALS)]
                case "bitcast":
                    out += [(row.name, operands, to) for to in row.takes if to.width == elem.width]
                case "key_make":
                    out.append((row.name, operands, Elem.KEY))
                case "key_hi" | "key_lo":
                    out.append((row.name, operands, Elem.U32))
                case _:
                    out.append((row.name, operands, Elem.BOOL if row.gives == "bool" else elem))
    return out


def check(op: str, operands: tuple[Elem, ...], result: Elem, constants: dict[int, Any], rng: random.Random) -> None:
    """Select the op, some operands constant, and run it on values of the others."""
    module = Module()
    _, b = new_function("f", [("", Type(e)) for e in operands], [Type(result)], module)
    args = list(b.block.params)
    for k, c in constants.items():
        args[k] = b.const(c.item() if hasattr(c, "item") else c, Type(operands[k]))
    b.ret(b.emit(op, args, [Type(result)]).result)
    function = select(module, {}, Tables()).functions["f.f"]
    places = arguments(tuple(map(Type, operands)))[0]
    ((place,), _) = results((Type(result),), 0)
    tuples = list(product(*([constants[k]] if k in constants else values(e, rng, 4) for k, e in enumerate(operands))))
    for tuple_ in rng.sample(tuples, min(len(tuples), 250)):
        given = {r: register(v, e) for r, v, e in zip(places, tuple_, operands, strict=True) if isinstance(r, ir.Reg)}
        assert isinstance(place, ir.Reg)
        found = scalar(run(function, given)[place], result)
        expected = SCALAR_OPS[op].evaluate(
            result, *(np.array(v, object)[()] if e is Elem.STR else v for v, e in zip(tuple_, operands, strict=True))
        )
        assert same(found, expected, result), f"{op}{tuple_} : {result} is {found!r}, should be {expected!r}"


@pytest.mark.parametrize(("op", "operands", "result"), cases(), ids=lambda v: str(v) if not isinstance(v, tuple) else str(v[-1]))
def test_op(op: str, operands: tuple[Elem, ...], result: Elem) -> None:
    rng = random.Random(f"{op} {operands} {result}")
    if SCALAR_OPS[op].arity == 3:
        for k in range(12):
            tuple_ = {j: rng.choice(values(e, rng)) for j, e in enumerate(operands) if j != k % 3}
            if Elem.STR not in operands:
                check(op, operands, result, tuple_, rng)
    check(op, operands, result, {}, rng) if SCALAR_OPS[op].arity < 3 else None


DIVISORS = (1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 25, 64, 100, 125, 127, 641, 1000, 65537, 10**6, 2**31 - 1, 10**9 + 7, 2**40 + 1, 2**62, 2**63 - 1,
            -1, -2, -3, -7, -10, 0)  # fmt: skip


@pytest.mark.parametrize("elem", INTS)
@pytest.mark.parametrize("op", ["floordiv", "mod", "mul", "add", "sub", "and", "shl", "shr", "max", "lt"])
def test_constant_operand(op: str, elem: Elem) -> None:
    """Constants become immediates, shifts and multiplications."""
    rng = random.Random(f"{op} {elem}")
    for c in DIVISORS:
        info = np.iinfo(DTYPES[elem])
        if info.min <= c <= info.max:
            check(op, (elem, elem), Elem.BOOL if op == "lt" else elem, {1: DTYPES[elem].type(c)}, rng)
            if op not in ("floordiv", "mod"):
                check(op, (elem, elem), Elem.BOOL if op == "lt" else elem, {0: DTYPES[elem].type(c)}, rng)


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_division_of_numbers_in_a_known_range(op: str) -> None:
    """What is known of a dividend or a divisor chooses cheaper instructions, at the ends of the range too."""
    rng = random.Random(op)
    i64, result = Type(Elem.I64), results((Type(Elem.I64),), 0)[0][0]
    assert isinstance(result, ir.Reg)
    for mask, offset, divisor in product(
        (1, 3, 127, 2**31 - 1, 2**32 - 1, 2**40 - 1), (0, -2, -(2**20)), (2, 3, 10, 127, 2**31, 2**32 + 1, 2**63 - 1, None)
    ):
        module = Module()
        _, b = new_function("f", [("", i64), ("", i64)], [i64], module)
        x, y = b.block.params
        dividend = b.op("add", b.op("and", x, b.i64(mask)), b.i64(offset))
        by = b.op("add", b.op("and", y, b.i64(1023)), b.i64(1)) if divisor is None else b.i64(divisor)
        b.ret(b.op(op, dividend, by))
        function = select(module, {}, Tables()).functions["f.f"]
        for n in (0, mask, *(rng.getrandbits(64) for _ in range(6))):
            m = rng.getrandbits(64)
            a, d = (n & mask) + offset, (m & 1023) + 1 if divisor is None else divisor
            places = arguments((i64, i64))[0]
            given = {r: v for r, v in zip(places, (n, m), strict=True) if isinstance(r, ir.Reg)}
            assert scalar(run(function, given)[result], Elem.I64) == (a // d if op == "floordiv" else a % d), (a, d)


@pytest.mark.parametrize("of", REALS)
@pytest.mark.parametrize("chosen", REALS)
def test_a_choice_by_reals_of_another_width(of: Elem, chosen: Elem) -> None:
    rng = random.Random(f"{of} {chosen}")
    types = (Type(of), Type(of), Type(chosen), Type(chosen))
    for op in ("lt", "ne"):
        module = Module()
        _, b = new_function("f", [("", t) for t in types], [Type(chosen)], module)
        p, q, x, y = b.block.params
        b.ret(b.op("select", b.op(op, p, q), x, y))
        function = select(module, {}, Tables()).functions["f.f"]
        places, result = arguments(types)[0], results((Type(chosen),), 0)[0][0]
        for _ in range(40):
            given = [rng.choice(values(t.elem, rng)) for t in types]
            found = run(function, {r: register(v, t.elem) for r, v, t in zip(places, given, types, strict=True) if isinstance(r, ir.Reg)})
            assert isinstance(result, ir.Reg)
            holds = SCALAR_OPS[op].evaluate(Elem.BOOL, *given[:2])
            assert same(scalar(found[result], chosen), given[2 if holds else 3], chosen), (op, given)


@pytest.mark.parametrize("elem", REALS)
@pytest.mark.parametrize("op", ["max", "min", "mul", "lt"])
def test_constant_real_operand(op: str, elem: Elem) -> None:
    """Of zeros the sign decides, and NaN wins, whatever the constant is."""
    rng = random.Random(f"{op} {elem}")
    for c in (0.0, -0.0, 1.5, -2.0, float("inf"), float("nan")):
        constant = rounded(np.float32(c), elem) if elem is Elem.BF16 else DTYPES[elem].type(c)
        for k in (0, 1):
            check(op, (elem, elem), Elem.BOOL if op == "lt" else elem, {k: constant}, rng)


@pytest.mark.parametrize("elem", REALS)
def test_literals_are_rounded_as_their_type(elem: Elem) -> None:
    check("add", (elem, elem), elem, {1: DTYPES[elem].type(nearest(0.1, elem))}, random.Random(1))

"""Every op does on the processor what its row says in Python: random values, in random registers and slots that the row allows, a
definition in the place of a use as often as may be.

Bits that an op leaves undefined are those that differ when the interpreter fills them otherwise; they are not compared.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator

import pytest
from mir_run import DATA, context, field, interpreted, native, word

from tlc.backends.x86 import meaning
from tlc.backends.x86.ops import ROWS, TARGET, Address, place
from tlc.backends.x86.registers import CONTEXT, REGISTERS
from tlc.frontend.diagnostics import InternalError
from tlc.regalloc.ir import Any, Bank, Block, Fixed, Function, Inst, Module, Operand, Reg, Reuse, Slot, VReg
from tlc.regalloc.target import Kind, Row
from tlc.regalloc.text import print_function
from tlc.regalloc.verify import verify

SLOTS = 6
POOL = 64  # words that addresses point into
EDGES = [0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e10, -1e10, 1e300, 5e-324, 1e-40, math.inf, -math.inf, math.nan, 3e9, 2.0**63, -(2.0**63), 1e-310]

# In a test of their own below, or they do nothing by themselves.
ELSEWHERE = {"enter", "call", "call_c", "ret", "trap", "jump", "pmove", "poll", "check_stack"}


def an_int(rng: random.Random) -> int:
    match rng.randrange(4):
        case 0:
            return rng.choice(EDGES)
        case 1:
            return rng.getrandbits(64)
        case 2:
            return (rng.getrandbits(32) << 32) | (rng.choice(EDGES) & 0xFFFF_FFFF)
    return (rng.choice(EDGES) + rng.randrange(-2, 3)) % 2**64


def a_real(rng: random.Random, w: int) -> int:
    value = rng.choice(REALS) if rng.random() < 0.7 else rng.uniform(-1000, 1000)
    if w == 64:
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    try:
        low = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        low = 0x7F7F_FFFF
    return low | rng.getrandbits(32) << 32


def variants(row: Row) -> Iterator[dict[str, object]]:
    """All widths, conditions and modes; the rest is random."""
    out: list[dict[str, object]] = [{}]
    for name in row.attrs:
        match name:
            case "w":
                options: list[object] = list(row.widths)
            case "cc":
                options = list(meaning.REAL_CONDITIONS if row.name.endswith("_f") or row.name in ("fset", "fchoose", "fmask") else meaning.CONDITIONS)
            case "mode":
                options = ["floor", "ceil", "trunc", "even"]
            case "ext":
                options = ["s", "z"]
            case "vw":
                options = [8, 32, 64] if not row.name.startswith("f") else [32, 64]
            case "from":
                options = [8, 16, 32, 64] if row.name in ("sx", "zx") else [32, 64]
            case _:
                continue
        out = [{**attrs, name: option} for attrs in out for option in options]
    if row.name == "sx":
        out = [a for a in out if a["from"] <= a["w"]]  # type: ignore[operator]
    return iter(out)


class Case:
    """One instruction between loads of its uses and stores of its definitions, in blocks that a main function runs through."""

    def __init__(self, row: Row, attrs: dict[str, object], rng: random.Random, f: Function) -> None:
        self.row, self.rng, self.f = row, rng, f
        self.attrs = dict(attrs)
        self.w = int(attrs.get("w", 64))  # type: ignore[call-overload]
        self.words: list[int] = []  # what uses hold
        self.operands: list[Operand] = []
        self.out = 0  # the word where results go
        self.addresses: set[int] = set()  # positions of operands that are bases
        for spec in row.operands:
            bank = spec.bank or rng.choice(list(Bank))
            if row.kind is Kind.MOVE and self.operands:
                bank = self.operands[0].vreg.bank
            self.operands.append(Operand(f.new(bank), spec.is_def, spec.constraint, spec.late))
        if "mem" in row.attrs:
            self.memory()
        if "imm" in row.attrs:
            self.attrs["imm"] = self.immediate()
        if "bits" in row.attrs:
            self.attrs["bits"] = a_real(rng, self.w) % 2**self.w
        if row.kind is Kind.EXIT:
            slots: list[int | None] = [rng.choice([None, None, an_int(rng), -1]) for _ in range(rng.randrange(4))]
            self.attrs |= {"site": rng.randrange(1000), "slots": tuple(slots)}
            for s in slots:
                if s is None:
                    self.operands.append(Operand(f.new(rng.choice(list(Bank))), False, Any(), True))
        self.twins()
        self.places()

    def memory(self) -> None:
        rng, f = self.rng, self.f
        scale, index = rng.choice([1, 2, 4, 8]), f.new(Bank.INT) if rng.random() < 0.6 else None
        offset = 8 * rng.randrange(16) + rng.choice([0, 0, 1, 3])
        if rng.random() < 0.7 and self.row.name != "lea":
            address = Address(f.new(Bank.INT), index, scale, offset + rng.choice([0, 8 * POOL]))
        else:
            address = Address(None, index, scale, DATA + offset, "context" if self.row.name != "lea" else "")
        first = len(self.operands)
        mem = self.attrs["mem"] = place(address, self.operands)
        if mem.base is not None:
            self.addresses.add(first)
        self.index = mem.index

    def immediate(self) -> int:
        rng, w = self.rng, self.w
        if self.row.name in ("shl_i", "shr_i", "sar_i"):
            return rng.randrange(w)
        if self.row.name == "mov_i" and w == 64:
            return an_int(rng)
        value = rng.choice([0, 1, -1, 5, 127, 128, -128, -129, 255, 2**31 - 1, -(2**31), rng.getrandbits(31)])
        return meaning.signed(value, w) if w < 64 else value

    def twins(self) -> None:
        """The same register in two uses, now and then."""
        uses = [k for k, o in enumerate(self.operands) if not o.is_def and not isinstance(o.constraint, Fixed)]
        for k in uses:
            o = self.operands[k]
            others = [j for j in uses if j < k and self.operands[j].vreg.bank is o.vreg.bank and not {j, k} & self.special()]
            if others and self.rng.random() < 0.2:
                o.vreg = self.operands[self.rng.choice(others)].vreg

    def special(self) -> set[int]:
        return self.addresses | ({self.index} if "mem" in self.row.attrs and self.index is not None else set())

    def places(self) -> None:
        """Distinct registers for distinct values; a late definition may take that of an early use."""
        rng = self.rng
        free = {bank: [r for r in REGISTERS.values() if r.bank is bank and r in TARGET.env.allocatable[bank]] for bank in Bank}
        for registers in free.values():
            rng.shuffle(registers)
        slots = list(range(SLOTS))
        fixed = {o.constraint.reg for o in self.operands if isinstance(o.constraint, Fixed)}
        chosen: dict[VReg, Reg | Slot] = {}
        early: set[Reg] = set()
        needs = {o.vreg for o in self.operands if not isinstance(o.constraint, (Any, Fixed))}
        for o in self.operands:
            if o.is_def:
                continue
            if isinstance(o.constraint, Fixed):
                o.place = o.constraint.reg
            elif o.vreg in chosen:
                o.place = chosen[o.vreg]
            elif o.vreg not in needs and rng.random() < 0.4:
                o.place = chosen[o.vreg] = Slot(slots.pop())
            else:
                o.place = chosen[o.vreg] = next(r for r in free[o.vreg.bank] if r not in fixed and r not in chosen.values())
            if isinstance(o.place, Reg) and not o.late:
                early.add(o.place)
        late = {o.place for o in self.operands if not o.is_def and o.late}
        taken: set[object] = set()
        for o in self.operands:
            if not o.is_def:
                continue
            if isinstance(o.constraint, Fixed):
                o.place = o.constraint.reg
            elif isinstance(o.constraint, Reuse):
                o.place = self.operands[o.constraint.operand].place
            elif isinstance(o.constraint, Any) and rng.random() < 0.5:
                o.place = Slot(slots.pop())
            else:
                options = [r for r in free[o.vreg.bank] if r not in taken and r not in late and r not in fixed]
                shared = [r for r in options if r in early]
                o.place = rng.choice(shared) if shared and rng.random() < 0.6 else rng.choice(options)
            taken.add(o.place)

    def value(self, position: int) -> int:
        o, rng = self.operands[position], self.rng
        if "mem" in self.row.attrs and position == self.index:
            return rng.randrange(8)
        if o.vreg.bank is Bank.REAL or self.row.name == "bits_to_f":
            w = self.attrs.get("from", 96 - self.w if self.row.name == "f_to_f" else self.w) if self.row.name in ("f_to_int", "f_to_f") else self.w
            return a_real(rng, 64 if w == 64 else 32)
        return an_int(rng)

    def emit(self, block: Block, first_in: int, first_out: int, done: Block) -> None:
        """Inputs from and outputs to words of the context from these on; then to `done`."""
        put = block.insts.append
        loads: dict[VReg, int] = {}
        registers = []
        for k, o in enumerate(self.operands):
            if o.is_def or o.vreg in loads:
                continue
            loads[o.vreg] = k
            if k in self.addresses:
                pool = Address(None, None, 1, DATA, "context")
                registers.append(_at(Inst("lea", [Operand(o.vreg, True, late=True)], {"w": 64}), o, pool))
                continue
            self.words.append(self.value(k))
            at = Address(None, None, 1, DATA + 8 * (first_in + len(self.words) - 1), "context")
            op = "fload" if o.vreg.bank is Bank.REAL else "load"
            attrs: dict[str, object] = {"w": 64} if op == "fload" else {"w": 64, "ext": "z"}
            if isinstance(o.place, Slot):  # through the scratch register, before registers are filled
                scratch = TARGET.env.scratch[o.vreg.bank]
                put(_at(Inst(op, [Operand(o.vreg, True, late=True)], attrs), Operand(o.vreg, True, place=scratch), at))
                put(Inst("move", [Operand(o.vreg, True, Any(), True, o.place), Operand(o.vreg, False, Any(), False, scratch)]))
            else:
                registers.append(_at(Inst(op, [Operand(o.vreg, True, late=True)], attrs), o, at))
        block.insts += registers
        inst = Inst(self.row.name, self.operands, self.attrs, self.row.clobbers)
        if self.row.kind is Kind.TERMINATOR:
            then, other = Block("then"), Block("other")
            for b, bit in ((then, 1), (other, 2)):
                b.insts = [_at(Inst("store_i", [], {"w": 64, "imm": bit}), None, Address(None, None, 1, DATA + 8 * first_out, "context"))]
                b.insts.append(Inst("jump", targets=[(done, ())]))
            inst.targets = [(then, ()), (other, ())]
            put(inst)
            order = [then, other] if self.rng.random() < 0.5 else [other, then]
            self.f.blocks += [block, *order] if self.rng.random() < 0.7 else [order[0], block, order[1]]
            return
        put(inst)
        for k, o in enumerate(o for o in self.operands if o.is_def):
            at = Address(None, None, 1, DATA + 8 * (first_out + k), "context")
            source = Operand(o.vreg, False, place=o.place)
            if isinstance(o.place, Slot):
                scratch = TARGET.env.scratch[o.vreg.bank]
                put(Inst("move", [Operand(o.vreg, True, Any(), True, scratch), Operand(o.vreg, False, Any(), False, o.place)]))
                source.place = scratch
            store = Inst("fstore" if o.vreg.bank is Bank.REAL else "store", [source], {"w": 64})
            store.attrs["mem"] = place(at, store.operands)
            put(store)
        put(Inst("jump", targets=[(done, ())]))
        self.f.blocks.append(block)


def _at(inst: Inst, to: Operand | None, address: Address) -> Inst:
    if to is not None:
        inst.operands[0].place = to.place
    inst.attrs["mem"] = place(address, inst.operands)
    return inst


def whole(cases: list[tuple[Row, dict[str, object]]], rng: random.Random) -> tuple[Module, bytearray, list[Case]]:
    """A function of all cases, one behind the other, and the context with their inputs."""
    f = Function("f.main", slots=SLOTS, allocated=True)
    start = Block("start")
    f.blocks.append(start)
    words = {k: rng.getrandbits(64) for k in range(2 * POOL + 64)}
    at, built = 4 * POOL, []
    block = Block("case")
    start.insts.append(Inst("jump", targets=[(block, ())]))
    for row, attrs in cases:
        case = Case(row, attrs, rng, f)
        done = Block("case")
        case.emit(block, at, at + 8, done)
        words |= {at + k: w for k, w in enumerate(case.words)}
        case.out = at + 8
        built.append(case)
        at += 12
        block = done
    block.insts.append(Inst("ret"))
    f.blocks.append(block)
    return Module({"f.main": f}), context(words), built


def compare(module: Module, data: bytearray, cases: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    verify(module.functions["f.main"], TARGET, ssa=False)
    by_garbage = []
    for garbage in (meaning.GARBAGE, ~meaning.GARBAGE % 2**64):
        monkeypatch.setattr(meaning, "GARBAGE", garbage)
        by_garbage.append(bytearray(data))
        assert interpreted(module, by_garbage[-1]) == 0
        monkeypatch.undo()
    found = bytearray(data)
    assert native(module, found) == 0
    for case in cases:
        for k in range(max(1, sum(o.is_def for o in case.operands))):
            n = case.out + k
            one, other, real = word(by_garbage[0], n), word(by_garbage[1], n), word(found, n)
            defined = ~(one ^ other) % 2**64
            if one & defined != real & defined and not both_nan(one, real, case):
                block = next(b for b in module.functions["f.main"].blocks if any(i.operands is case.operands for i in b.insts))
                f = Function("f.case", [block], allocated=True)
                values = [hex(w) for w in case.words]
                raise AssertionError(f"{case.row.name} of {values}: {real:#x}, should be {one:#x}\n{print_function(f, TARGET)}")
    for n in range(2 * POOL + 64):  # what ops did to memory
        one, other = word(by_garbage[0], n), word(by_garbage[1], n)
        defined = ~(one ^ other) % 2**64
        assert one & defined == word(found, n) & defined, n


ROUNDING = {"fadd", "fsub", "fmul", "fdiv", "fmin", "fmax", "fsqrt", "fround", "fma", "fma_acc", "f_to_f", "f16_to_f", "f_to_f16"}


def both_nan(a: int, b: int, case: Case) -> bool:
    """Arithmetic does not tell the bits of what is not a number."""
    match case.row.name.removesuffix("_m"):
        case "f_to_f16":
            return all(x & 0x7C00 == 0x7C00 and x & 0x3FF != 0 for x in (a, b))
        case "f16_to_f":
            return all(math.isnan(float(meaning.real(x, 32))) for x in (a, b))
        case name if name in ROUNDING:
            return all(math.isnan(float(meaning.real(x, case.w))) for x in (a, b))
    return False


NORMAL = [row for row in ROWS.values() if row.name not in ELSEWHERE and row.kind is not Kind.EXIT]


@pytest.mark.parametrize("row", NORMAL, ids=lambda row: row.name)
def test_op(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(row.name)
    wanted = list(variants(row))
    cases = [(row, attrs) for attrs in wanted * max(1, 120 // len(wanted))]
    for start in range(0, len(cases), 200):
        part = cases[start : start + 200]
        if row.name not in ("idiv", "udiv"):
            compare(*whole(part, rng), monkeypatch)
            continue
        fine = 0
        for case in part:  # one at a time: those that trap are left out
            try:
                compare(*whole([case], rng), monkeypatch)
                fine += 1
            except InternalError as e:
                assert "traps" in str(e)
                monkeypatch.undo()
        assert fine > len(part) // 2


EXITS = [row for row in ROWS.values() if row.kind is Kind.EXIT and row.name not in ELSEWHERE]


@pytest.mark.parametrize("row", EXITS, ids=lambda row: row.name)
def test_check(row: Row) -> None:
    """A check that fails tells the context the same as in Python; one that holds lets the function go on."""
    rng = random.Random(row.name)
    ended = set()
    for attrs in [*variants(row)] * 3:
        module, data, (case,) = whole([(row, attrs)], rng)
        verify(module.functions["f.main"], TARGET, ssa=False)
        expected, found = bytearray(data), bytearray(data)
        status = interpreted(module, expected)
        assert native(module, found) == status, print_function(module.functions["f.main"], TARGET)
        ended.add(status)
        for name, size in (("reason", 4), ("site", 8)):
            assert field(found, name, size) == field(expected, name, size)
        if status:
            assert field(found, "site") == case.attrs["site"]
            values = field(expected, "values", 128), field(found, "values", 128)
            assert values[0] == values[1], print_function(module.functions["f.main"], TARGET)
    assert ended == {0, 1}


def test_every_op_is_tested() -> None:
    assert {row.name for row in (*NORMAL, *EXITS)} | ELSEWHERE == set(ROWS)
    assert CONTEXT.name == "r15"

"""The verifier of machine IR: what must hold, each property checked where its number stands in the code.

Structure
 1. A function has a block, a block has instructions, and only the last of them is a terminator.
 2. Nothing jumps to the entry, and the entry has no parameters. Only its first instruction may be `enter`.
 3. A terminator has as many targets as its row says, all in the function; each gets as many arguments as the block has parameters, of the
    same banks. Other instructions have none.
 4. A number stands for one virtual register, and is below the function's count. A frame has fewer words and a block stands in fewer
    loops than any compiler makes.

Instructions
 5. The op has a row. The operands are those of the row (definition or use, bank, constraint, time), then the registers of the address, then
    what is variadic. Definitions stand before uses.
 6. An address: its registers are integers, used early, in registers, base before index; it has a base or an area, not both; the
    scale is 1, 2, 4 or 8 and the offset has 32 bits.
 7. What is variadic: behind an exit, late uses in any place, as many as `slots` has None; of a `pmove`, k definitions and k uses in any
    place, of the same banks; of others, operands in fixed registers, and only definitions at `enter`, only uses at a terminator.
 8. The attributes are those of the row, each in its domain; `w` is a width of the row.
 9. A fixed register is of its operand's bank. At one time it holds one value: two early uses of it read the same virtual register, two
    definitions are never in one, and neither a definition nor a late use is in one that the instruction destroys. A reused operand is
    an early use in a register.
10. A call of a function of the module passes what its `enter` takes, and takes what all its `ret`s give.

Values
11. Before allocation: on every path to a use its virtual register has been defined. (With one definition each, definitions dominate
    uses. After it, what needed no move has none, so a place may hold a register that is defined under another name.)
12. In SSA form a virtual register is defined once, parameters included.

Allocation
13. Before it no operand has a place. After it every operand has one of its bank, which its constraint allows: `Register` a register,
    `Fixed` that one, `Reuse` the place of the use. Slots are below the function's count. No block has parameters and no `pmove` is left.

Whether each place holds the right value is for the checker (`regalloc/checker.py`). A violation is a bug of the compiler: `InternalError`
names the function and the instruction and has its text.
"""

from __future__ import annotations

from typing import NoReturn

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import NOWHERE, Span
from tlc.regalloc.ir import ANY, REGISTER, Bank, Block, Fixed, Function, Inst, Mem, Module, Operand, Reg, Register, Reuse, Slot, VReg
from tlc.regalloc.target import Kind, Row, Target
from tlc.regalloc.text import AREAS, print_function, print_inst, print_vreg

ENTER = "enter"
_WORDS, _DEPTH = 1 << 20, 1000


def verify_module(module: Module, target: Target, ssa: bool = True) -> None:
    """Check every property above; raises `InternalError` at the first violation."""
    for name, f in module.functions.items():
        if f.name != name:
            raise InternalError(f"filed under `{name}`", f"function {f.name}")
        verify(f, target, ssa)
    for f in module.functions.values():
        for block in f.blocks:
            for inst in block.insts:
                if inst.op == "call":  # 10
                    _call(f, inst, module, target)


def verify(function: Function, target: Target, ssa: bool = True) -> None:
    """Check one function, without what its calls pass; `ssa`: before phi destruction."""
    try:
        _Verifier(function, target, ssa and not function.allocated).run()
    except _Violation as v:
        raise InternalError(f"{v.message}\n\n{print_function(function, target)}", f"function {function.name}, {v.where}", v.span) from None


class _Violation(Exception):
    def __init__(self, message: str, where: str, span: Span = NOWHERE) -> None:
        self.message, self.where, self.span = message, where, span


def _fixed(operands: list[Operand]) -> set[Reg]:
    return {o.constraint.reg for o in operands if isinstance(o.constraint, Fixed)}


def _call(f: Function, inst: Inst, module: Module, target: Target) -> None:
    where = f"function {f.name}, `{print_inst(inst, target)}`"
    callee = module.functions.get(str(inst.attrs["symbol"]))
    if callee is None:
        raise InternalError(f"there is no function `{inst.attrs['symbol']}`", where)
    first = callee.entry.insts[0]
    missing = _fixed(first.operands if first.op == ENTER else []) - _fixed(inst.uses)
    if missing:
        raise InternalError(f"passes nothing in {', '.join(sorted(map(str, missing)))}", where)
    for block in callee.blocks:
        if block.terminator.op == "ret":
            missing = _fixed(inst.defs) - _fixed(block.terminator.operands)
            if missing:
                raise InternalError(f"gets nothing in {', '.join(sorted(map(str, missing)))}", where)


class _Verifier:
    def __init__(self, function: Function, target: Target, ssa: bool) -> None:
        self.f, self.target, self.ssa = function, target, ssa
        self.vregs: dict[int, VReg] = {}
        self.defined: set[VReg] = set()

    def fail(self, message: str, where: Inst | Block) -> NoReturn:
        text = f"`{print_inst(where, self.target)}` at {where.span}" if isinstance(where, Inst) else f"block `{where.name}`"
        raise _Violation(message, text, where.span if isinstance(where, Inst) else NOWHERE)

    def run(self) -> None:
        f = self.f
        if not f.blocks:  # 1
            raise _Violation("has no block", "nowhere")
        if not 0 <= f.slots < _WORDS or not 0 <= f.outgoing < _WORDS or any(not 0 <= b.depth < _DEPTH for b in f.blocks):  # 4
            raise _Violation("has too many words or loops", "frame and blocks")
        own = set(f.blocks)
        for block in f.blocks:
            self.block(block, own)
        if not f.allocated:
            self.paths()

    def block(self, block: Block, own: set[Block]) -> None:
        entry = self.f.entry
        if not block.insts:  # 1
            self.fail("is empty", block)
        if block.params and (block is entry or self.f.allocated):  # 2, 13
            self.fail("has parameters", block)
        for v in block.params:
            self.known(v, block)
            self.define(v, block)
        for k, inst in enumerate(block.insts):
            row = self.target.rows.get(inst.op)
            if row is None:  # 5
                self.fail(f"there is no op `{inst.op}`", inst)
            if (row.kind is Kind.TERMINATOR) != (k == len(block.insts) - 1):  # 1
                self.fail("a terminator within a block" if row.kind is Kind.TERMINATOR else "a block ends without a terminator", inst)
            if inst.op == ENTER and (block is not entry or k):  # 2
                self.fail("is not the first instruction of the entry", inst)
            self.operands(inst, row)
            self.attributes(inst, row)
            self.registers(inst)
            if self.f.allocated:
                self.places(inst, row)
            elif any(o.place is not None for o in inst.operands):  # 13
                self.fail("has places before allocation", inst)
            self.targets(inst, row, own)

    def targets(self, inst: Inst, row: Row, own: set[Block]) -> None:
        """3."""
        if len(inst.targets) != row.targets:
            self.fail(f"has {len(inst.targets)} targets, should have {row.targets}", inst)
        for target, args in inst.targets:
            if target not in own:
                self.fail(f"goes to `{target.name}` outside of the function", inst)
            if target is self.f.entry:  # 2
                self.fail("goes to the entry", inst)
            for v in args:
                self.known(v, inst)
            if [v.bank for v in args] != [p.bank for p in target.params]:
                self.fail(f"passes {_banks(args)} to `{target.name}`, should pass {_banks(target.params)}", inst)

    def known(self, v: VReg, where: Inst | Block) -> None:
        """4."""
        if self.vregs.setdefault(v.number, v) is not v:
            self.fail(f"{print_vreg(v)} and {print_vreg(self.vregs[v.number])} have one number", where)
        if not 0 <= v.number < self.f.vregs:
            self.fail(f"{print_vreg(v)} has a number of {self.f.vregs} or more", where)

    def define(self, v: VReg, where: Inst | Block) -> None:
        if self.ssa and v in self.defined:  # 12
            self.fail(f"{print_vreg(v)} is defined twice", where)
        self.defined.add(v)

    # ------------------------------------------------------------ instructions

    def operands(self, inst: Inst, row: Row) -> None:
        operands = inst.operands
        for o in operands:
            self.known(o.vreg, inst)
            if o.is_def:
                self.define(o.vreg, inst)
        kinds = [o.is_def for o in operands]
        if kinds != sorted(kinds, reverse=True):  # 5
            self.fail("a definition behind a use", inst)
        fixed = len(row.operands)
        if len(operands) < fixed:
            self.fail(f"has {len(operands)} operands, should have {fixed}", inst)
        for k, (o, spec) in enumerate(zip(operands, row.operands, strict=False)):
            if o.is_def != spec.is_def or spec.bank not in (None, o.vreg.bank):
                self.fail(f"operand {k} is {_say(o.is_def, o.vreg.bank)}, should be {_say(spec.is_def, spec.bank)}", inst)
            if (o.constraint, o.late) != (spec.constraint, spec.late):
                self.fail(f"operand {k} is not where and when its row says", inst)
        if row.kind is Kind.MOVE and operands[0].vreg.bank is not operands[1].vreg.bank:
            self.fail("moves between banks", inst)
        behind = self.address(inst, row, fixed) if "mem" in row.attrs else fixed
        rest = operands[behind:] if row.kind is not Kind.CALL else [o for k, o in enumerate(operands) if not self.in_address(inst, k)]
        if rest and not row.variadic:  # 5
            self.fail(f"has {len(operands)} operands, should have {behind}", inst)
        if row.variadic:
            self.variadic(inst, row, rest)

    def in_address(self, inst: Inst, position: int) -> bool:
        mem = inst.attrs.get("mem")
        return isinstance(mem, Mem) and position in (mem.base, mem.index)

    def address(self, inst: Inst, row: Row, first: int) -> int:
        """6. Where the operands behind the address begin."""
        mem = inst.attrs.get("mem")
        if not isinstance(mem, Mem):
            self.fail("has no address", inst)
        if row.kind is Kind.CALL:  # behind the definitions
            first = len(inst.defs)
        for position in (mem.base, mem.index):
            if position is None:
                continue
            if position != first or position >= len(inst.operands):
                self.fail(f"the address has operand {position} as a register, should have {first}", inst)
            o = inst.operands[position]
            if o.is_def or o.vreg.bank is not Bank.INT or o.late or o.constraint != REGISTER:
                self.fail("a register of the address is not an early use of an integer in a register", inst)
            first += 1
        if mem.scale not in (1, 2, 4, 8) or not -(2**31) <= mem.offset < 2**31:
            self.fail("no such scale or offset", inst)
        if mem.area not in ("", *AREAS) or (mem.area and mem.base is not None):
            self.fail("the address has no area or base, or both", inst)
        return first

    def variadic(self, inst: Inst, row: Row, rest: list[Operand]) -> None:
        """7."""
        match row.kind:
            case Kind.EXIT:
                if any(o.is_def or not o.late or o.constraint != ANY for o in rest):
                    self.fail("what it reports is not a late use in any place", inst)
                slots = inst.attrs.get("slots")
                if not isinstance(slots, tuple) or sum(s is None for s in slots) != len(rest):
                    self.fail(f"reports {len(rest)} registers, should report as many as `slots` has None", inst)
            case Kind.PMOVE:
                defs, uses = inst.defs, inst.uses
                if [o.vreg.bank for o in defs] != [o.vreg.bank for o in uses] or any(o.constraint != ANY for o in rest):
                    self.fail("does not move as many registers, of the same banks, to and from any place", inst)
            case _:
                if any(not isinstance(o.constraint, Fixed) for o in rest):
                    self.fail("an operand is in no fixed register", inst)
                wrong = True if row.kind is Kind.TERMINATOR else False if inst.op == ENTER else None
                if any(o.is_def is wrong for o in rest):
                    self.fail("a definition or a use where there is none", inst)

    def attributes(self, inst: Inst, row: Row) -> None:
        """8."""
        if set(inst.attrs) != set(row.attrs):
            self.fail(f"has attributes {sorted(inst.attrs)}, should have {sorted(row.attrs)}", inst)
        for name in row.attrs:
            value = inst.attrs[name]
            if name == "w":
                if type(value) is not int or value not in row.widths:
                    self.fail(f"width {value} is none of {row.widths}", inst)
            elif name != "mem":
                domain = self.target.domains[name]
                if not domain.holds(value, inst):
                    self.fail(f"`{name}` is {value!r}, should be {domain.words}", inst)

    def registers(self, inst: Inst) -> None:
        """9."""
        reads: dict[Reg, VReg] = {}
        writes: set[Reg] = set()
        for o in inst.operands:
            match o.constraint:
                case Fixed(reg):
                    if reg.bank is not o.vreg.bank:
                        self.fail(f"{print_vreg(o.vreg)} is not of the bank of {reg}", inst)
                    if (o.is_def or o.late) and reg in inst.clobbers:
                        self.fail(f"{print_vreg(o.vreg)} is in {reg}, which is destroyed", inst)
                    if o.is_def:
                        if reg in writes:
                            self.fail(f"two definitions in {reg}", inst)
                        writes.add(reg)
                    elif reads.setdefault(reg, o.vreg) is not o.vreg:
                        self.fail(f"two values in {reg}", inst)
                case Reuse(k):
                    used = inst.operands[k] if k < len(inst.operands) else None
                    if not o.is_def or used is None or used.is_def or used.late or used.constraint != REGISTER:
                        self.fail("a reused operand is not an early use in a register", inst)

    # ------------------------------------------------------------ allocation

    def places(self, inst: Inst, row: Row) -> None:
        """13."""
        if row.kind is Kind.PMOVE:
            self.fail("is left after allocation", inst)
        for o in inst.operands:
            match o.place:
                case None:
                    self.fail(f"{print_vreg(o.vreg)} has no place", inst)
                case Slot(number):
                    if not 0 <= number < self.f.slots:
                        self.fail(f"{o.place} is not below {self.f.slots}", inst)
                case Reg():
                    if o.place.bank is not o.vreg.bank:
                        self.fail(f"{print_vreg(o.vreg)} is in {o.place} of the other bank", inst)
            match o.constraint:
                case Register():
                    holds = isinstance(o.place, Reg)
                case Fixed(reg):
                    holds = o.place == reg
                case Reuse(k):
                    holds = o.place == inst.operands[k].place
                case _:
                    holds = True
            if not holds:
                self.fail(f"{print_vreg(o.vreg)} is in {o.place}, which its constraint forbids", inst)

    # ------------------------------------------------------------ values

    def paths(self) -> None:
        """11: what is defined on every path to a block, as sets of numbers in an integer."""
        f = self.f
        given: dict[Block, int] = {}
        for block in f.blocks:
            bits = 0
            for v in block.params:
                bits |= 1 << v.number
            for inst in block.insts:
                for o in inst.operands:
                    if o.is_def:
                        bits |= 1 << o.vreg.number
            given[block] = bits
        before: dict[Block, int] = {f.entry: 0}
        work = [f.entry]
        while work:
            block = work.pop()
            out = before[block] | given[block]
            for to in block.successors:
                old = before.get(to)
                new = out if old is None else old & out
                if new != old:
                    before[to] = new
                    work.append(to)
        for block, known in before.items():
            bits = known
            for v in block.params:
                bits |= 1 << v.number
            for inst in block.insts:
                for o in inst.operands:
                    if not o.is_def:
                        self.read(o.vreg, bits, inst)
                for o in inst.operands:
                    if o.is_def:
                        bits |= 1 << o.vreg.number
                for _, args in inst.targets:
                    for v in args:
                        self.read(v, bits, inst)

    def read(self, v: VReg, bits: int, inst: Inst) -> None:
        if not bits >> v.number & 1:
            self.fail(f"{print_vreg(v)} is not defined on every path to here", inst)


def _banks(vregs: tuple[VReg, ...] | list[VReg]) -> str:
    return f"({', '.join(v.bank.value for v in vregs)})"


def _say(is_def: bool, bank: Bank | None) -> str:
    return ("a definition" if is_def else "a use") + (f" of a register of {bank.name.lower()}" if bank else "")

"""A toy machine with an op for each thing that register allocation has to respect, an evaluator of its code before and after
allocation, and random functions for it.

The evaluator is unkind: what an instruction destroys, and the scratch registers at each instruction, get values that were never seen. Two
runs agree if they leave the same trace: everything that stores, checks, calls and the return saw.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from tlc.regalloc.ir import (
    ANY,
    REGISTER,
    Bank,
    Block,
    Constraint,
    Fixed,
    Function,
    Inst,
    Operand,
    Place,
    Reg,
    Reuse,
    VReg,
)
from tlc.regalloc.target import Kind, MachineEnv, Row, Spec, Target

I = tuple(Reg(f"i{k}", Bank.INT, k) for k in range(10))
R = tuple(Reg(f"r{k}", Bank.REAL, k) for k in range(7))
SAVED = I[5:8]
CALLER_SAVED = (*I[:5], I[8], *R)
RESERVED = I[9]
SCRATCH = {Bank.INT: I[8], Bank.REAL: R[6]}

ENV = MachineEnv({Bank.INT: I[:8], Bank.REAL: R[:6]}, frozenset(SAVED), SCRATCH)
FEW = MachineEnv({Bank.INT: I[:3], Bank.REAL: R[:3]}, frozenset(SAVED), SCRATCH)
FOUR = MachineEnv({Bank.INT: (*I[:3], I[5]), Bank.REAL: R[:4]}, frozenset(SAVED), SCRATCH)

MASK = 2**32 - 1


def _spec(text: str) -> tuple[Spec, ...]:
    """`d i`, `u i any`, `d i over 1`, `u i late`, `d i early`, `u i in i0`, separated by commas."""
    specs: list[Spec] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        words = part.split()
        is_def = words[0] == "d"
        bank = Bank(words[1])
        rest = words[2:]
        constraint: Constraint = REGISTER
        if "any" in rest:
            constraint = ANY
        if "over" in rest:
            constraint = Reuse(int(rest[rest.index("over") + 1]))
        if "in" in rest:
            constraint = Fixed(next(r for r in (*I, *R) if r.name == rest[rest.index("in") + 1]))
        specs.append(Spec(bank, is_def, constraint, "late" in rest if not is_def else "early" not in rest))
    return tuple(specs)


def _row(name: str, spec: str, evaluate: object, **more: object) -> Row:
    return Row(name, _spec(spec), evaluate, **more)  # type: ignore[arg-type]


def _mix(*values: int) -> int:
    total = 17
    for v in values:
        total = (total * 31 + v) & MASK
    return total


_ROWS = (
    _row("const", "d i", lambda i: (i.attrs["imm"],), attrs=("imm",), remat=True, pure=True),
    _row("rconst", "d r", lambda i: (i.attrs["imm"],), attrs=("imm",), remat=True, pure=True),
    _row("add", "d i, u i, u i any", lambda i, a, b: ((a + b) & MASK,), pure=True),
    _row("sub", "d i over 1, u i, u i any", lambda i, a, b: ((a - b) & MASK,), pure=True),
    _row("xor", "d i over 1, u i, u i any", lambda i, a, b: (a ^ b,), pure=True, commutes=True),
    _row("sel", "d i over 1, u i, u i any, u i, u i any", lambda i, x, y, a, b: (y if a < b else x,), pure=True),
    _row("div", "d i in i0, d i in i2, u i in i0, u i any late", lambda i, a, b: (a // (b | 1), a % (b | 1)), pure=True),
    _row("shift", "d i over 1, u i, u i in i1", lambda i, a, b: ((a << (b & 7)) & MASK,), pure=True),
    _row("pair", "d i early, d i, u i, u i", lambda i, a, b: (_mix(a, b), _mix(b, a))),
    _row("put", "u i, u i, u i", lambda i, *v: ()),
    _row("hold", "u i late, u i any late", lambda i, *v: ()),
    _row("check", "u i, u i any", lambda i, *v: (), kind=Kind.EXIT, variadic=True),
    _row("radd", "d r, u r, u r any", lambda i, a, b: (_mix(a, b),), pure=True),
    _row("rfma", "d r over 1, u r, u r, u r any", lambda i, a, b, c: (_mix(a ^ b, c),), pure=True, commutes=True),
    _row("rsel", "d r, u r, u r, u i, u i any", lambda i, x, y, a, b: (y if a < b else x,), pure=True),
    _row("toreal", "d r, u i any", lambda i, a: (_mix(a, 1),), pure=True),
    _row("toint", "d i, u r any", lambda i, a: (_mix(a, 2),), pure=True),
    _row("move", "", None, kind=Kind.MOVE, pure=True, variadic=True),
    _row("pmove", "", None, kind=Kind.PMOVE, pure=True, variadic=True),
    _row("enter", "", None, variadic=True),
    _row("call", "", None, kind=Kind.CALL, variadic=True, clobbers=CALLER_SAVED),
    _row("br", "u i, u i any", lambda i, a, b: 0 if a < b else 1, kind=Kind.TERMINATOR, targets=2),
    _row("jump", "", lambda i: 0, kind=Kind.TERMINATOR, targets=1),
    _row("ret", "", None, kind=Kind.TERMINATOR, variadic=True),
)
ROWS = {row.name: row for row in _ROWS}
TARGET = Target("toy", ROWS, {}, {r.name: r for r in (*I, *R)}, ENV, FEW)


def make(op: str, *vregs: VReg, late: Iterable[VReg] = (), targets: Iterable[tuple[Block, tuple[VReg, ...]]] = (), **attrs: int) -> Inst:
    """An instruction by its row. `move` and `pmove`: definitions, then as many uses."""
    row = ROWS[op]
    if op in ("move", "pmove"):
        half = len(vregs) // 2
        operands = [Operand(v, k < half, ANY, k < half) for k, v in enumerate(vregs)]
    else:
        operands = [Operand(v, s.is_def, s.constraint, s.late) for v, s in zip(vregs, row.operands, strict=True)]
    operands += [Operand(v, False, ANY, True) for v in late]
    return Inst(op, operands, dict(attrs), row.clobbers, list(targets))


def fixed(op: str, defs: Iterable[tuple[VReg, Reg]] = (), uses: Iterable[tuple[VReg, Reg]] = ()) -> Inst:
    """`enter`, `call`, `ret`."""
    operands = [Operand(v, True, Fixed(r), True) for v, r in defs]
    gone = {o.constraint.reg for o in operands if isinstance(o.constraint, Fixed)}
    operands += [Operand(v, False, Fixed(r)) for v, r in uses]
    return Inst(op, operands, {}, tuple(r for r in ROWS[op].clobbers if r not in gone))


# ---------------------------------------------------------------- running


class Garbage(Exception):
    """Something was read that nobody wrote."""


def run(function: Function, arguments: list[int], fuel: int = 400) -> list[tuple[object, ...]]:
    """The trace of a run. Ends at `ret`, or when `fuel` instructions (moves, constants and jumps are not counted) are used up."""
    state: dict[object, int] = {}
    trace: list[tuple[object, ...]] = []
    block = function.entry
    idle, used = 0, fuel  # blocks since the last instruction that was counted: a loop of jumps ends too
    allocated = function.allocated

    def key(operand: Operand) -> object:
        return operand.place if allocated else operand.vreg

    def read(operand: Operand) -> int:
        try:
            return state[key(operand)]
        except KeyError:
            raise Garbage(f"{operand.vreg} in {operand.place}") from None

    while True:
        for inst in block.insts:
            row = ROWS[inst.op]
            if allocated and row.kind is Kind.MOVE and inst.operands[1].place not in state:
                state.pop(inst.operands[0].place, None)  # moves may carry what nobody will read
                continue
            values = [read(o) for o in inst.operands if not o.is_def]
            if row.kind in (Kind.MOVE, Kind.PMOVE):
                results: tuple[int, ...] = tuple(values)
            elif inst.op == "enter":
                results = tuple(arguments[: len(inst.defs)])
            elif inst.op == "call":
                trace.append(("call", *values))
                results = tuple(_mix(k, *values) for k in range(len(inst.defs)))
            elif inst.op == "ret":
                trace.append(("ret", *values))
                return trace
            elif row.kind is Kind.TERMINATOR:
                taken = row.evaluate(inst, *values)
                successor, given = inst.targets[taken]
                if inst.op == "br":
                    trace.append(("br", taken))
                    fuel -= 1
                passed = [state[a] for a in given]
                if not allocated:
                    state.update(zip(successor.params, passed, strict=True))
                block = successor
                idle, used = idle + 1 if fuel == used else 0, fuel
                if fuel <= 0 or idle > 200:
                    return trace
                break
            else:
                if not row.remat:
                    fuel -= 1
                if inst.op in ("put", "check", "hold"):
                    trace.append((inst.op, *values))
                count = len(row.operands) - sum(s.is_def for s in row.operands)
                results = row.evaluate(inst, *values[:count])
            if allocated and row.kind is not Kind.MOVE and not row.remat:
                for reg in (*inst.clobbers, *SCRATCH.values()):
                    state.pop(reg, None)
            for operand, value in zip(inst.defs, results, strict=True):
                state[key(operand)] = value
        else:
            raise AssertionError("a block without a terminator")


# ---------------------------------------------------------------- random functions


def random_function(rng: random.Random, blocks: int = 6, size: int = 8, values: int = 6) -> Function:
    """A function in SSA form with any shape of control flow. `size` instructions a block, `values` parameters a block at most."""
    f = Function("f")
    made = [Block(f"b{k}", rng.choice((0, 0, 1, 1, 2)), rng.random() < 0.15) for k in range(blocks)]
    made[0].depth, made[0].cold = 0, False
    f.blocks = made
    shape: list[list[int]] = []
    for k in range(blocks):
        way = rng.random()
        if way < 0.12 and k:
            shape.append([])
        elif way < 0.4:
            shape.append([rng.randrange(1, blocks)] if blocks > 1 else [])
        else:
            # Mostly forward, so that all blocks are reached; sometimes back or twice the same.
            near = min(blocks - 1, k + 1)
            shape.append([near if near else 0, rng.randrange(1, blocks)] if blocks > 1 else [])
        rng.shuffle(shape[k])
    shape = [[s for s in successors if s] for successors in shape]
    dominators = _dominators(shape)
    for k, block in enumerate(made):
        if k:
            block.params = [f.new(rng.choice((Bank.INT, Bank.INT, Bank.REAL))) for _ in range(rng.randrange(values + 1))]
    defined: dict[int, list[VReg]] = {}
    for k in sorted(range(blocks), key=lambda b: len(dominators[b])):
        block = made[k]
        known = [v for d in sorted(dominators[k] - {k}) for v in defined.get(d, [])] + block.params
        at = len(known)
        if k == 0:
            ints, reals = [f.new(Bank.INT) for _ in range(3)], [f.new(Bank.REAL) for _ in range(2)]
            block.insts.append(fixed("enter", list(zip((*ints, *reals), (I[1], I[2], I[4], R[0], R[1]), strict=True))))
            known += ints + reals
        for _ in range(rng.randrange(size + 1)):
            block.insts.append(_random_inst(f, rng, block, known))
        targets = [(made[s], tuple(_pick(f, rng, block, known, p.bank) for p in made[s].params)) for s in shape[k]]
        if not targets:
            out = [_pick(f, rng, block, known, Bank.INT) for _ in range(2)]
            block.insts.append(fixed("ret", uses=list(zip(out, (I[2], I[1]), strict=True))))
        elif len(targets) == 1:
            block.insts.append(make("jump", targets=targets))
        else:
            a, b = _pick(f, rng, block, known, Bank.INT), _pick(f, rng, block, known, Bank.INT)
            block.insts.append(make("br", a, b, targets=targets))
        defined[k] = known[at:] + block.params
    return f


def _dominators(shape: list[list[int]]) -> list[set[int]]:
    every = set(range(len(shape)))
    dominators = [{0} if k == 0 else set(every) for k in range(len(shape))]
    changed = True
    while changed:
        changed = False
        for k in range(1, len(shape)):
            before = [dominators[p] for p in range(len(shape)) if k in shape[p]]
            new = {k} | (set.intersection(*before) if before else every)
            if new != dominators[k]:
                dominators[k] = new
                changed = True
    # Unreached blocks are dominated by all; they may use nothing but their own.
    return [d if k == 0 or len(d) < len(shape) or k in _reached(shape) else {k} for k, d in enumerate(dominators)]


def _reached(shape: list[list[int]]) -> set[int]:
    seen, work = {0}, [0]
    while work:
        for s in shape[work.pop()]:
            if s not in seen:
                seen.add(s)
                work.append(s)
    return seen


def _pick(f: Function, rng: random.Random, block: Block, known: list[VReg], bank: Bank) -> VReg:
    """A value of a bank: a recent one, any, or a new constant."""
    fitting = [v for v in known if v.bank is bank]
    if not fitting or rng.random() < 0.04:
        v = f.new(bank)
        block.insts.append(make("const" if bank is Bank.INT else "rconst", v, imm=rng.randrange(100)))
        known.append(v)
        return v
    return rng.choice(fitting[-4:] if rng.random() < 0.4 else fitting)


_OPS = ("add", "sub", "xor", "sel", "div", "shift", "pair", "put", "hold", "check", "radd", "rfma", "rsel", "toreal", "toint", "move")


def _random_inst(f: Function, rng: random.Random, block: Block, known: list[VReg]) -> Inst:

    def pick(bank: Bank) -> VReg:
        return _pick(f, rng, block, known, bank)

    def new(bank: Bank) -> VReg:
        v = f.new(bank)
        known.append(v)
        return v

    way = rng.random()
    if way < 0.08:
        arguments = [(pick(Bank.INT), r) for r in I[: rng.randrange(4)]] + [(pick(Bank.REAL), r) for r in R[: rng.randrange(3)]]
        results = [(new(Bank.INT), r) for r in I[2 : 2 + rng.randrange(3)]] + [(new(Bank.REAL), r) for r in R[: rng.randrange(2)]]
        return fixed("call", results, arguments)
    if way < 0.16:
        bank = rng.choice(tuple(Bank))
        return make("const" if bank is Bank.INT else "rconst", new(bank), imm=rng.randrange(100))
    op = rng.choice(_OPS)
    if op == "move":
        source = pick(rng.choice(tuple(Bank)))
        return make("move", new(source.bank), source)
    row = ROWS[op]
    uses = [pick(s.bank) for s in row.operands if not s.is_def and s.bank]
    late = [pick(rng.choice(tuple(Bank))) for _ in range(rng.randrange(3))] if row.variadic else []
    defs = [new(s.bank) for s in row.operands if s.is_def and s.bank]
    return make(op, *defs, *uses, late=late)


def places(function: Function) -> list[Place]:
    """All places that a function uses, in order of appearance."""
    found = (o.place for b in function.blocks for i in b.insts for o in i.operands if o.place is not None)
    return list(dict.fromkeys(found))

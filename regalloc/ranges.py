"""Live ranges as bitsets over program points, and all that the allocator asks about a function.

Instruction `i` (counted through the whole function) has three points, a bit each:

    3i      before    moves into the places that the instruction wants come behind this point
    3i + 1  early     its early uses are read; what it overwrites (Reuse) is there already
    3i + 2  late      its late uses are read, its definitions written, its clobbers gone

A range is the Python integer of all points where a virtual register holds a value that is needed later. Two registers interfere if the AND
of their ranges is not 0: no interference graph is built. Moves happen between points: "at boundary q" means after point q - 1, before
point q, all moves of a boundary at once. There is none between early and late.

Constraints turn into copies and into points that machine registers are taken at:

    use of %v, Fixed(r)     %v need live only up to `before`; a copy r <- %v at boundary 3i + 1; r is taken at `early`
    def of %v, Fixed(r)     r is taken at `late`; a copy %v <- r at boundary 3i + 3, where the range of %v begins
    def of %d, Reuse(%u)    a copy %d <- %u at boundary 3i + 1; %d begins at `early`, %u need live only up to `before`
    move, pmove             copies at boundary 3i + 1; the instruction goes away
    clobber r               r is taken at `late`

Worked example, `%p` dying in the division (x86: dividend and quotient in rax, remainder in rdx):

    2: %q (rax), %r (rdx) = idiv %p (rax), late %b      rax taken at 7 and 8, rdx at 8
    3: ret %q (rdx)                                      rdx taken at 10

    %p lives up to 6, copied to rax at boundary 7; %b is live at 7 and 8; %q begins and ends at 9, copied from rax at 9, to rdx at 10.

A copy whose two sides get one place costs nothing; that is what the allocator tries to reach. Copies of a value that is cheap to make
again (`remat`, Briggs, Cooper, Torczon 1992) are no uses: the value is made anew in the place wanted.

A record is what a use or definition costs when the value is in the frame: the points that it needs, the price, and
whether it needs a register at all.
"""

from __future__ import annotations

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.regalloc.ir import ANY, Any, Bank, Block, Fixed, Function, Inst, Operand, Reg, Register, Reuse, VReg
from tlc.regalloc.liveness import bits, solve
from tlc.regalloc.target import Kind, Target

# Points that a use or definition needs [lo, hi), what it costs in the frame, whether it needs a register.
Record = tuple[int, int, float, bool]

# What a use or definition costs if the value is in the frame, relative to one load or store there.
MEMORY_OPERAND = 0.6  # the load is part of the instruction, or the value is a constant that is made again
COLD = 1 / 1024  # how often a cold block runs, relative to another of its depth


@dataclass(frozen=True)
class Copy:
    """`target <- source` at a boundary; at most one of them is a machine register."""

    boundary: int
    target: VReg | Reg
    source: VReg | Reg
    weight: float


class Ranges:
    """See `analyse`. Lists are indexed by the number of a virtual register, or of a block or instruction in order."""

    def __init__(self, function: Function, target: Target) -> None:
        self.function = function
        self.target = target
        self.blocks: list[Block] = function.blocks
        self.insts: list[Inst] = []
        self.first: list[int] = []  # number of the first instruction of each block; one more at the end
        self.block_of: list[int] = []  # block of each instruction
        self.frequency: list[float] = []  # of each block
        self.successors: list[list[int]] = []
        self.predecessors: list[list[int]] = []
        self.live_in: list[int] = []  # bits are numbers of virtual registers
        self.vregs: list[VReg | None] = [None] * function.vregs
        self.segments: list[list[tuple[int, int]]] = [[] for _ in range(function.vregs)]  # [from, to), descending
        self.records: list[list[Record]] = [[] for _ in range(function.vregs)]  # descending by points
        self.copies: list[Copy] = []
        self.taken: dict[Reg, int] = {}  # points at which instructions take machine registers
        self.remat: dict[int, Inst] = {}  # number of a virtual register -> the instruction that makes its value again
        # The boundaries of definitions, their frequency, and whether a copy defines there (else an instruction before).
        self.defs: list[list[tuple[int, float, bool]]] = [[] for _ in range(function.vregs)]
        self.gone: set[int] = set()  # instructions that need not be written: moves, unused constants
        self.shared: dict[Operand, Operand] = {}  # early uses of what a Reuse overwrites: read from the definition's place
        self.pressure: dict[Bank, int] = dict.fromkeys(Bank, 0)

    def bits(self, number: int) -> int:
        mask = 0
        for lo, hi in self.segments[number]:
            mask |= (1 << hi) - (1 << lo)
        return mask


def analyse(function: Function, target: Target) -> Ranges:
    """Requires code without block parameters. Swaps the uses of instructions that commute where that saves a copy."""
    ranges = Ranges(function, target)
    _number(ranges)
    related = _constants(ranges)
    rows, remat = target.rows, ranges.remat

    def counts(inst: Inst, operand: Operand) -> bool:
        return operand.vreg.number not in remat or not _copies(rows[inst.op].kind, inst, operand)

    liveness = solve(function, counts) if remat else solve(function)
    ranges.live_in = [liveness.live_in[b] for b in ranges.blocks]
    if ranges.live_in[0]:
        names = ", ".join(str(ranges.vregs[n]) for n in bits(ranges.live_in[0]))
        raise InternalError(f"{names}: used before any definition", function.name)
    for k in range(len(ranges.blocks) - 1, -1, -1):
        _scan(ranges, k, liveness.live_out[ranges.blocks[k]], related)
    return ranges


def _number(ranges: Ranges) -> None:
    index = {block: k for k, block in enumerate(ranges.blocks)}
    ranges.predecessors = [[] for _ in ranges.blocks]
    for k, block in enumerate(ranges.blocks):
        ranges.first.append(len(ranges.insts))
        ranges.insts += block.insts
        ranges.block_of += [k] * len(block.insts)
        ranges.frequency.append(10.0 ** min(block.depth, 8) * (COLD if block.cold else 1.0))
        following = [index[s] for s in block.successors]
        ranges.successors.append(following)
        for s in following:
            ranges.predecessors[s].append(k)
    ranges.first.append(len(ranges.insts))


def _constants(ranges: Ranges) -> set[tuple[int, int]]:
    """Find what can be made again, and the pairs (target, source) of pmoves. What is read late is not made again: it would need a
    register beside those of the instruction, mostly to report a failure that never comes.
    """
    rows, vregs = ranges.target.rows, ranges.vregs
    defined: dict[int, Inst | None] = {}
    reported: set[int] = set()
    related: set[tuple[int, int]] = set()
    for inst in ranges.insts:
        row = rows[inst.op]
        for operand in inst.operands:
            n = operand.vreg.number
            if operand.late and not operand.is_def:
                reported.add(n)
            if operand.is_def:
                vregs[n] = operand.vreg
                single = row.remat and n not in defined and not isinstance(operand.constraint, Fixed)
                defined[n] = inst if single else None
        if row.kind is Kind.PMOVE:
            related.update(zip((o.vreg.number for o in inst.defs), (o.vreg.number for o in inst.uses), strict=True))
    ranges.remat = {n: inst for n, inst in defined.items() if inst is not None and n not in reported}
    return related


def _copies(kind: Kind, inst: Inst, operand: Operand) -> bool:
    """Is the use but copied elsewhere before the instruction?"""
    if kind is Kind.MOVE or kind is Kind.PMOVE or isinstance(operand.constraint, Fixed):
        return True
    for other in inst.operands:
        if not other.is_def:
            return False
        if isinstance(other.constraint, Reuse) and inst.operands[other.constraint.operand].vreg is operand.vreg:
            return not operand.late and isinstance(operand.constraint, Any | Register)
    return False


def _scan(ranges: Ranges, k: int, live_out: int, related: set[tuple[int, int]]) -> None:
    """One block, backward."""
    rows, insts, segments, records, defs = ranges.target.rows, ranges.insts, ranges.segments, ranges.records, ranges.defs
    copies, taken, remat, frequency = ranges.copies, ranges.taken, ranges.remat, ranges.frequency[k]
    vregs, highest = ranges.vregs, [ranges.pressure[Bank.INT], ranges.pressure[Bank.REAL]]
    first, last = ranges.first[k], ranges.first[k + 1] - 1
    end = dict.fromkeys(bits(live_out), 3 * last + 3)
    live = [0, 0]  # by "is it real": a dictionary by bank costs more than all else here
    real = Bank.REAL
    for n in end:
        vreg = vregs[n]
        assert vreg is not None
        live[vreg.bank is real] += 1
    _note(highest, live)

    for i in range(last, first - 1, -1):
        inst = insts[i]
        row = rows[inst.op]
        base = 3 * i
        if inst.clobbers:
            late = 1 << (base + 2)
            for reg in inst.clobbers:
                taken[reg] = taken.get(reg, 0) | late
        if row.kind is Kind.MOVE or row.kind is Kind.PMOVE:
            ranges.gone.add(i)
            pairs = list(zip(inst.defs, inst.uses, strict=True))
            for target, _ in pairs:
                n = target.vreg.number
                if n in end:
                    _open(segments[n], base + 1, end[n])
                    records[n].append((base + 1, base + 2, frequency, False))
                    defs[n].append((base + 1, frequency, True))
            needed = [t.vreg.number in end for t, _ in pairs]
            for target, _ in pairs:
                if end.pop(target.vreg.number, None) is not None:
                    live[target.vreg.bank is real] -= 1
            for is_needed, (target, source) in zip(needed, pairs, strict=True):
                n = source.vreg.number
                if is_needed:
                    copies.append(Copy(base + 1, target.vreg, source.vreg, frequency))
                    if n not in remat:
                        records[n].append((base, base + 1, frequency, False))
                # The source of a copy that nobody needs is live too: the equations of liveness say so in the blocks before.
                if n not in remat and n not in end:
                    end[n] = base + 1
                    live[source.vreg.bank is real] += 1
            _note(highest, live)
            continue

        if row.remat:
            n = inst.operands[0].vreg.number
            if n in remat and n not in end:
                ranges.gone.add(i)
                continue
        if row.commutes:
            _commute(inst, end, related, remat)
        reused: Operand | None = None
        overwriting: Operand | None = None
        for operand in inst.operands:
            if not operand.is_def:
                break
            vreg = operand.vreg
            n = vreg.number
            constraint = operand.constraint
            until = end.pop(n, None)
            if until is not None:
                live[vreg.bank is real] -= 1
            if isinstance(constraint, Fixed):
                reg = constraint.reg
                taken[reg] = taken.get(reg, 0) | 1 << (base + 2)
                if until is not None:
                    if i == last:
                        raise InternalError("a terminator defines a register", f"{ranges.function.name}, `{inst.op}`")
                    _open(segments[n], base + 3, until)
                    copies.append(Copy(base + 3, vreg, reg, frequency))
                    records[n].append((base + 3, base + 4, frequency, False))
                    defs[n].append((base + 3, frequency, True))
                continue
            start = base + 2
            if isinstance(constraint, Reuse):
                start = base + 1
                reused, overwriting = inst.operands[constraint.operand], operand
                copies.append(Copy(base + 1, vreg, reused.vreg, frequency))
            elif not operand.late:
                start = base + 1
            _open(segments[n], start, base + 3 if until is None else until)
            if n in remat:
                continue
            records[n].append((start, base + 3, frequency, constraint is not ANY))
            if until is not None:
                defs[n].append((base + 3, frequency, False))

        for operand in inst.operands:
            if operand.is_def:
                continue
            vreg = operand.vreg
            n = vreg.number
            constraint = operand.constraint
            if isinstance(constraint, Fixed):
                reg = constraint.reg
                taken[reg] = taken.get(reg, 0) | (3 if operand.late else 1) << (base + 1)
                copies.append(Copy(base + 1, reg, vreg, frequency))
                if n in remat:
                    continue
                records[n].append((base, base + 1, frequency, False))
                until = base + 1
            elif reused is not None and vreg is reused.vreg and not operand.late:
                assert overwriting is not None
                ranges.shared[operand] = overwriting
                if n in remat:
                    continue
                if operand is reused:
                    records[n].append((base, base + 1, frequency, False))
                until = base + 1
            elif operand.late:
                until = base + 3
                needs = constraint is not ANY
                price = frequency
                if not needs:
                    price = frequency * MEMORY_OPERAND if row.kind is not Kind.EXIT else 0.0
                records[n].append((base + 1, base + 3, price, needs))
            else:
                until = base + 2
                needs = constraint is not ANY
                price = frequency * MEMORY_OPERAND if n in remat or not needs else frequency
                records[n].append((base + 1, base + 2, price, needs))
            known = end.get(n)
            if known is None:
                live[vreg.bank is real] += 1
                end[n] = until
            elif known < until:
                end[n] = until
        _note(highest, live)

    start = 3 * first
    for n, until in end.items():
        _open(segments[n], start, until)
    ranges.pressure[Bank.INT], ranges.pressure[Bank.REAL] = highest


def _note(highest: list[int], live: list[int]) -> None:
    highest[0] = max(highest[0], live[0])
    highest[1] = max(highest[1], live[1])


def _open(segments: list[tuple[int, int]], start: int, until: int) -> None:
    """Put a segment before those that are there; one that touches becomes part of it."""
    if segments and segments[-1][0] == until:
        segments[-1] = (start, segments[-1][1])
    else:
        segments.append((start, until))


def _commute(inst: Inst, end: dict[int, int], related: set[tuple[int, int]], remat: dict[int, Inst]) -> None:
    """Let the definition overwrite the use that dies here; if both do, the one that a pmove brings the definition to.

    `%d = and %a, %b` with %a live behind it and %b not: `and %b, %a` needs no copy of %a.
    """
    d = inst.operands[0]
    assert isinstance(d.constraint, Reuse)
    x = inst.operands[d.constraint.operand]
    y = inst.operands[d.constraint.operand + 1]
    n, m = x.vreg.number, y.vreg.number
    if n in remat or m in remat:  # which use is a copy was settled before
        return
    x_dies, y_dies = n not in end, m not in end
    if y_dies and (not x_dies or ((m, d.vreg.number) in related and (n, d.vreg.number) not in related)):
        x.vreg, y.vreg = y.vreg, x.vreg

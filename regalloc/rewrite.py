"""From pieces in registers to places of operands and moves between instructions.

What a bundle's pieces do not cover is in its slot, or nowhere if the value can be made again. A value that changes place at a boundary, or
from the end of a block to the start of its successor, is moved there; copies (see `ranges.py`) are moves too; all of one
boundary are one parallel move.

Stores. A value is written once and read often, so its slot, once right, stays right. Two ways to get it right, the cheaper is
taken: a store behind each definition, after which nothing needs to be stored; or a store wherever the value goes from a
register to the slot, except where it came from the slot to this register just before.

On edges. No edge is critical: moves of an edge stand at the start of its target if that has one predecessor, or before
the terminator of its source, which reads nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tlc.frontend.source import Span
from tlc.regalloc.assign import Assignment, Bundle, slots
from tlc.regalloc.ir import ANY, Fixed, Inst, Operand, Place, Reg, Slot, VReg, define, use
from tlc.regalloc.liveness import bits
from tlc.regalloc.moves import Transfer, sequence
from tlc.regalloc.ranges import Ranges
from tlc.regalloc.stats import Stats
from tlc.regalloc.target import Kind, MachineEnv

Source = Place | Inst


def _runs(points: int) -> Iterator[tuple[int, int]]:
    """The runs [lo, hi) of a set of points."""
    at = 0
    while points:
        low = (points & -points).bit_length() - 1
        points >>= low
        length = (points & ~(points + 1)).bit_length()
        yield at + low, at + low + length
        points >>= length
        at += low + length


class Split:
    """A value with more than one place: points and the register there, and what holds everywhere else."""

    __slots__ = ("elsewhere", "frame", "parts", "points", "rest", "runs", "starts", "vreg")

    def __init__(self, vreg: VReg, points: int, parts: list[tuple[int, Reg]], rest: int) -> None:
        self.vreg, self.points, self.parts, self.rest = vreg, points, parts, rest
        # The parts again as runs, ascending, to look up single points: a bit of a long integer costs its whole length.
        runs = sorted((lo, hi, reg.number, reg) for part, reg in parts for lo, hi in _runs(part))
        self.starts = [run[0] for run in runs]
        self.runs = [(run[1], run[3]) for run in runs]
        self.elsewhere: Source | None = None  # its slot, or the instruction that makes it again
        self.frame: Slot | None = None  # its slot

    def at(self, point: int) -> Source:
        k = bisect_right(self.starts, point) - 1
        if k >= 0 and point < self.runs[k][0]:
            return self.runs[k][1]
        assert self.elsewhere is not None
        return self.elsewhere


class Rewriter:
    def __init__(self, ranges: Ranges, assignment: Assignment, env: MachineEnv, stats: Stats) -> None:
        self.ranges = ranges
        self.env = env
        self.stats = stats
        self.whole: list[Reg | None] = [None] * len(ranges.vregs)
        self.split: dict[int, Split] = {}
        self.moves: dict[int, list[Transfer]] = {}
        self.at_end: dict[int, list[Transfer]] = {}
        self.starts = {3 * first: k for k, first in enumerate(ranges.first[:-1])}  # first points of blocks
        self.start_points = 0
        for q in self.starts:
            self.start_points |= 1 << q
        self.assignment = assignment
        self.op = next(row.name for row in ranges.target.rows.values() if row.kind is Kind.MOVE)
        self.spare: Slot | None = None

    def run(self) -> None:
        self._places()
        stored = self._stores()
        self._copies(stored)
        self._transitions(stored)
        self._edges(stored)
        self._write()

    # ------------------------------------------------------------ places

    def _places(self) -> None:
        ranges = self.ranges
        spilled: list[Bundle] = []
        for bundle in self.assignment.bundles:
            pieces = bundle.pieces
            if len(pieces) == 1 and pieces[0].points == bundle.points:
                for n in bundle.vregs:
                    self.whole[n] = pieces[0].reg
                continue
            in_frame = False
            for n in bundle.vregs:
                points = ranges.bits(n)
                vreg = ranges.vregs[n]
                assert vreg is not None
                parts: list[tuple[int, Reg]] = []
                rest = points
                for piece in pieces:
                    common = piece.points & points
                    if common:
                        assert piece.reg is not None
                        parts.append((common, piece.reg))
                        rest &= ~common
                if not rest and len({reg for _, reg in parts}) == 1:
                    self.whole[n] = parts[0][1]
                    continue
                self.split[n] = split = Split(vreg, points, parts, rest)
                if n not in ranges.remat:
                    in_frame |= rest != 0
                else:
                    split.elsewhere = ranges.remat[n]
                    # Uses in any place that got no register: the value must be somewhere.
                    in_frame |= any(rest >> lo & 1 for lo, _, _, needs in ranges.records[n] if not needs)
            if in_frame:
                spilled.append(bundle)
        given, self.stats.slots = slots(self.assignment, spilled)
        for bundle in spilled:
            self.stats.spilled += 1
            for n in bundle.vregs:
                if n in self.split:
                    split = self.split[n]
                    split.frame = Slot(given[bundle.number])
                    split.elsewhere = split.elsewhere or split.frame

    def at(self, vreg: VReg, point: int) -> Source:
        reg = self.whole[vreg.number]
        return reg if reg is not None else self.split[vreg.number].at(point)

    def _add(self, boundary: int, target: Place, source: Source, made: VReg, read: VReg) -> None:
        if target != source:
            self.moves.setdefault(boundary, []).append(Transfer(target, source, made, read))

    # ------------------------------------------------------------ stores

    def _stores(self) -> set[int]:
        """The values that are stored behind their definitions; all others that have a slot are stored on the way to it."""
        ranges = self.ranges
        stored: set[int] = set()
        for n, split in self.split.items():
            if not (split.rest and isinstance(split.elsewhere, Slot)):
                continue
            once = sum(f for _, f, _ in ranges.defs[n])
            ways = sum(self._frequency(q) for q in self._falls(split))
            for q in bits(split.rest & self.start_points):
                k = self.starts[q]
                for p in ranges.predecessors[k]:
                    if split.at(3 * ranges.first[p + 1] - 1) != split.elsewhere:
                        ways += min(ranges.frequency[k], ranges.frequency[p])
            if once <= ways:
                stored.add(n)
        return stored

    def _frequency(self, boundary: int) -> float:
        return self.ranges.frequency[self.ranges.block_of[boundary // 3]]

    def _falls(self, split: Split) -> list[int]:
        """The boundaries within blocks at which a value goes from a register to its slot, and the slot does not have it yet."""
        defs = self.ranges.defs[split.vreg.number]
        found: list[int] = []
        for q in bits(split.rest & ~(split.rest << 1) & (split.points << 1) & ~self.start_points):
            if any(b == q and copied for b, _, copied in defs):
                continue
            for points, _ in split.parts:
                if points >> (q - 1) & 1:
                    # The run of this register up to here: from the slot, then nothing is to be stored?
                    below = ((1 << q) - 1) & ~points
                    start = below.bit_length()
                    loaded = start not in self.starts and start > 0 and split.rest >> (start - 1) & 1
                    if not loaded or any(start <= b < q for b, _, _ in defs):
                        found.append(q)
                    break
        return found

    # ------------------------------------------------------------ moves

    def _copies(self, stored: set[int]) -> None:
        remat = self.ranges.remat
        for copy in self.ranges.copies:
            q = copy.boundary
            source: Source
            if isinstance(copy.source, Reg):
                source = copy.source
            elif copy.source.number in remat:
                source = remat[copy.source.number]
            else:
                source = self.at(copy.source, q - 1)
            target = copy.target if isinstance(copy.target, Reg) else self.at(copy.target, q)
            if isinstance(copy.source, VReg) and copy.source.number in stored and self.split[copy.source.number].frame == target:
                continue  # it is there already
            read = copy.target if isinstance(copy.source, Reg) else copy.source
            assert isinstance(read, VReg) and not isinstance(target, Inst)
            made = copy.target if isinstance(copy.target, VReg) else read
            self._add(q, target, source, made, read)

    def _transitions(self, stored: set[int]) -> None:
        ranges = self.ranges
        for n, split in self.split.items():
            vreg = split.vreg
            for points, reg in split.parts:
                for q in bits(points & ~(points << 1) & (split.points << 1) & ~self.start_points):
                    if any(b == q and copied for b, _, copied in ranges.defs[n]):
                        continue
                    assert q % 3 != 2
                    self._add(q, reg, split.at(q - 1), vreg, vreg)
            slot = split.frame
            if not split.rest or slot is None:
                continue
            if isinstance(split.elsewhere, Inst):
                for lo, _, _, needs in ranges.records[n]:
                    if split.rest >> lo & 1 and not needs:
                        self._add(lo, slot, split.elsewhere, vreg, vreg)
            elif n in stored:
                for q, _, copied in ranges.defs[n]:
                    self._store(split, slot, q, copied)
            else:
                for fall in self._falls(split):
                    # The last boundary at which the value can be stored: none is between early and late.
                    q = fall - 1 if fall % 3 == 2 else fall
                    self._store(split, slot, q, any(b == q and copied for b, _, copied in ranges.defs[n]))

    def _store(self, split: Split, slot: Slot, boundary: int, copied: bool) -> None:
        """Write the value to its slot at a boundary, from where it is before; from where it comes if a copy defines it here."""
        vreg = split.vreg
        if not split.points >> boundary & 1:
            return
        for transfer in self.moves.get(boundary, ()):
            if transfer.made is vreg and transfer.target != slot:
                self._add(boundary, slot, transfer.source, vreg, transfer.read)
                return
            if transfer.made is vreg:
                return
        # A copy without a move has both its sides in one place.
        self._add(boundary, slot, split.at(boundary if copied else boundary - 1), vreg, vreg)

    def _edges(self, stored: set[int]) -> None:
        ranges = self.ranges
        mask = 0
        for n in self.split:
            mask |= 1 << n
        if not mask:
            return
        for k, following in enumerate(ranges.successors):
            end = 3 * ranges.first[k + 1] - 1
            for s in following:
                start = 3 * ranges.first[s]
                found: list[Transfer] = []
                for n in bits(ranges.live_in[s] & mask):
                    split = self.split[n]
                    source, target = split.at(end), split.at(start)
                    if source == target or isinstance(target, Inst) or (n in stored and isinstance(target, Slot)):
                        continue
                    found.append(Transfer(target, source, split.vreg, split.vreg))
                if found:
                    if len(following) == 1:
                        self.at_end.setdefault(k, []).extend(found)
                    else:
                        self.moves.setdefault(start, []).extend(found)

    # ------------------------------------------------------------ writing

    def _write(self) -> None:
        ranges = self.ranges
        written: set[Reg] = set()
        for k, block in enumerate(ranges.blocks):
            result: list[Inst] = []
            last = ranges.first[k + 1] - 1
            for i in range(ranges.first[k], last + 1):
                inst = ranges.insts[i]
                base = 3 * i
                for boundary in (base, base + 1):
                    if boundary in self.moves:
                        self._emit(result, self.moves[boundary], inst.span)
                if i == last and k in self.at_end:
                    self._emit(result, self.at_end[k], inst.span)
                if i in ranges.gone:
                    continue
                if self._place(inst, base):
                    result.append(inst)
            block.insts = result
            for inst in result:
                for operand in inst.operands:
                    if operand.is_def and isinstance(operand.place, Reg):
                        written.add(operand.place)
        order = [r for regs in self.env.allocatable.values() for r in regs if r in self.env.callee_saved]
        order += sorted((r for r in self.env.callee_saved if r not in order), key=lambda r: (r.bank.value, r.number))
        self.stats.saved = tuple(r for r in order if r in written)
        if self.spare is not None:
            self.stats.slots = self.spare.number + 1

    def _place(self, inst: Inst, base: int) -> bool:
        """Set the places of the operands; False for an instruction that makes a value again and is not wanted here."""
        for operand in inst.operands:
            constraint = operand.constraint
            if isinstance(constraint, Fixed):
                operand.place = constraint.reg
                continue
            if operand in self.ranges.shared:
                definition = self.ranges.shared[operand]
                place = self.at(definition.vreg, base + 1)
            elif operand.is_def:
                place = self.at(operand.vreg, base + 2)
                if isinstance(place, Inst):
                    return False
            else:
                place = self.at(operand.vreg, base + (2 if operand.late else 1))
            operand.place = self.split[operand.vreg.number].frame if isinstance(place, Inst) else place
            assert operand.place is not None
        return True

    def _emit(self, result: list[Inst], transfers: list[Transfer], span: Span) -> None:
        for t in sequence(transfers, self.env.scratch, self._spare):
            if isinstance(t.source, Inst):
                made = t.source
                before = made.operands[0]
                operand = Operand(t.read, True, before.constraint, before.late, t.target)
                result.append(Inst(made.op, [operand], dict(made.attrs), made.clobbers, span=span))
                self.stats.remats += 1
                continue
            written, read = define(t.made, ANY), use(t.read, ANY)
            written.place, read.place = t.target, t.source
            result.append(Inst(self.op, [written, read], span=span))
            if isinstance(t.target, Slot):
                self.stats.stores += 1
            elif isinstance(t.source, Slot):
                self.stats.loads += 1
            else:
                self.stats.moves += 1

    def _spare(self) -> Slot:
        """A slot of its own, for values of a cycle."""
        if self.spare is None:
            self.spare = Slot(self.stats.slots)
        return self.spare

"""Which register holds which value where: a queue of pieces of live ranges, by their sets of points.

Bundles. Values that a copy joins and whose ranges are disjoint become one bundle, the hottest copies first: what coalescing is in a
colouring allocator. A loop's parameter, its next value and its initial value so get one place and no move.

The queue. Bundles come longest first, while registers are still free over long distances. For each:

  assign   a register none of whose points are taken: those that copies ask for first, then caller-saved ones, then callee-saved ones
           (which cost a save and a restore, unless another piece pays already)
  evict    a register whose holders are all cheaper for their length: they go back to the queue
  region   the register for which it pays best to keep the value there only in the blocks where it is free; the rest of the bundle
           is a piece of its own and goes back to the queue
  local    within a block: the register that is free over the most costly run of uses; what is left and right of it, as before
  minimal  nothing but the points of single instructions that demand a register; these evict anything but each other

At last, a short stay in the frame between two registers is bridged where one of them is free (`_fill`). What no piece covers is in
the frame. All values of a bundle share the slot, so a copy between them costs nothing there either.

    Example: 13 registers, a loop with 14 values of which one is only used behind it. All are live in the loop, and the one with the
    lowest cost by length is the one that finds no register or is evicted. `region` finds that it pays to hold it outside of
    the loop: one store before, one load behind, none within.

Termination: a piece evicts only what has a smaller weight; a split makes pieces with fewer points; minimal pieces never come again,
except those that a wider minimal piece of the same instruction evicts.

Sources: the queue, evictions and region splits after LLVM's greedy allocator (Olesen 2011) and regalloc2 (Fallin 2022); prices by loop
depth after Chaitin (1982). Sets of points as integers are our own: a function of 5,000 instructions has sets of 2 KiB, an AND takes
100 ns, and cutting a range at a loop, a block or a call is an AND too.
"""

from __future__ import annotations

from dataclasses import field
from heapq import heappop, heappush

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.regalloc.ir import Bank, Reg, VReg
from tlc.regalloc.liveness import bits
from tlc.regalloc.ranges import Copy, Ranges, Record
from tlc.regalloc.target import MachineEnv

MINIMAL = 1e30  # the weight of pieces that must not be evicted; wider ones have more


@dataclass(eq=False)
class Bundle:
    """Values that never live at the same time and are copied to each other. `pieces` are those that have a register."""

    number: int
    bank: Bank
    vregs: list[int]
    points: int  # all points of its values
    pieces: list[Piece] = field(default_factory=list)


@dataclass(eq=False)
class Piece:
    """A part of a bundle that wants one register. `cost`: what its records cost if it gets none. `records` ascending."""

    number: int
    bundle: Bundle
    points: int
    records: list[Record]
    cost: float
    weight: float  # cost by length; `MINIMAL` and more for minimal ones
    lo: int  # its first point
    hi: int  # behind its last
    solid: bool  # without holes
    reg: Reg | None = None

    def covers(self, point: int) -> bool:
        return self.lo <= point < self.hi and (self.solid or self.points >> point & 1 == 1)


@dataclass
class Register:
    """A register while it is given out: the points taken by instructions, by anything, and the pieces in it."""

    reg: Reg
    fixed: int
    taken: int
    saved: bool  # callee-saved and not yet paid for
    holders: dict[int, Piece] = field(default_factory=dict)


class Assignment:
    """See the module. `bundle_of` is by the number of a virtual register; None for those without a range."""

    def __init__(self, ranges: Ranges, env: MachineEnv) -> None:
        self.ranges = ranges
        self.env = env
        self.bundle_of: list[Bundle | None] = [None] * len(ranges.vregs)
        self.bundles: list[Bundle] = []
        self.registers: dict[Bank, list[Register]] = {}
        self.by_reg: dict[Reg, Register] = {}
        self.made = 0
        self.queue: list[tuple[int, int, Piece]] = []
        self.partners: list[list[Copy]] = [[] for _ in ranges.vregs]  # copies of a virtual register with another bundle or a register
        self.together: dict[int, list[Copy]] = {}  # copies by boundary, where there are several

    # ------------------------------------------------------------ set-up

    def run(self) -> None:
        ranges = self.ranges
        for bank, regs in self.env.allocatable.items():
            # Caller-saved ones first; among each, the order of preference of the machine.
            ordered = [r for r in regs if r not in self.env.callee_saved] + [r for r in regs if r in self.env.callee_saved]
            self.registers[bank] = []
            for reg in ordered:
                taken = ranges.taken.get(reg, 0)
                entry = Register(reg, taken, taken, reg in self.env.callee_saved)
                self.registers[bank].append(entry)
                self.by_reg[reg] = entry
        self._bundles()
        for bundle in self.bundles:
            records = [r for v in bundle.vregs for r in ranges.records[v]]
            records.sort()
            self._enqueue(self._piece(bundle, bundle.points, _joined(records)))
        while self.queue:
            self._allocate(heappop(self.queue)[2])
        for bundle in self.bundles:
            if len(bundle.pieces) > 1:
                self._fill(bundle)

    def _bundles(self) -> None:
        ranges = self.ranges
        bundle_of = self.bundle_of
        for n, segments in enumerate(ranges.segments):
            if segments:
                vreg = ranges.vregs[n]
                assert vreg is not None
                bundle_of[n] = Bundle(n, vreg.bank, [n], ranges.bits(n))
        for copy in sorted(ranges.copies, key=lambda c: (-c.weight, c.boundary)):
            target, source = copy.target, copy.source
            if not (isinstance(target, VReg) and isinstance(source, VReg)):
                continue
            a, b = bundle_of[target.number], bundle_of[source.number]
            if a is None or b is None or a is b or source.number in ranges.remat or a.points & b.points:
                continue
            if len(a.vregs) < len(b.vregs):
                a, b = b, a
            for n in b.vregs:
                bundle_of[n] = a
            a.vregs += b.vregs
            a.points |= b.points
        for copy in ranges.copies:
            self.together.setdefault(copy.boundary, []).append(copy)
            target, source = copy.target, copy.source
            if isinstance(source, VReg) and source.number in ranges.remat:
                continue
            if isinstance(target, Reg):
                assert isinstance(source, VReg)
                self.partners[source.number].append(copy)
            elif isinstance(source, Reg):
                self.partners[target.number].append(copy)
            elif bundle_of[target.number] is not bundle_of[source.number]:
                self.partners[target.number].append(copy)
                self.partners[source.number].append(copy)
        seen: set[int] = set()
        for bundle in bundle_of:
            if bundle is not None and bundle.number not in seen:
                seen.add(bundle.number)
                self.bundles.append(bundle)

    def _piece(self, bundle: Bundle, points: int, records: list[Record]) -> Piece:
        cost = 0.0
        for record in records:
            cost += record[2]
        lo, hi, count = (points & -points).bit_length() - 1, points.bit_length(), points.bit_count()
        self.made += 1
        return Piece(self.made, bundle, points, records, cost, cost / count, lo, hi, count == hi - lo)

    def _enqueue(self, piece: Piece) -> None:
        # Longest first; minimal ones at once, the widest first.
        length = piece.points.bit_count()
        heappush(self.queue, (-length if piece.weight < MINIMAL else -(1 << 62) - length, piece.number, piece))

    # ------------------------------------------------------------ one piece

    def _allocate(self, piece: Piece) -> None:
        registers = self.registers[piece.bundle.bank]
        points = piece.points
        hints = self._hints(piece)
        for reg in hints:
            entry = self.by_reg.get(reg)
            if entry is not None and not entry.taken & points and not (entry.saved and piece.cost <= 2.0):
                self._take(piece, entry)
                return
        dear: Register | None = None
        free: Register | None = None
        avoid: set[Reg] | None = None
        for entry in registers:
            if not entry.taken & points:
                if entry.saved and piece.weight < MINIMAL:
                    dear = dear or entry
                    continue
                if avoid is None:
                    avoid = self._written(piece)
                if entry.reg not in avoid:
                    free = entry
                    break
                free = free or entry
        if free is not None:
            self._take(piece, free)
            return
        # Saving a callee-saved register costs a store and a load where the function runs once.
        if dear is not None and self._worth_saving(piece):
            self._take(piece, dear)
            return
        if dear is None and self._evict(piece):
            return
        self._split(piece)

    def _worth_saving(self, piece: Piece) -> bool:
        return piece.cost > 2.0

    def _take(self, piece: Piece, entry: Register) -> None:
        piece.reg = entry.reg
        entry.taken |= piece.points
        entry.holders[piece.number] = piece
        entry.saved = False
        piece.bundle.pieces.append(piece)

    def _release(self, piece: Piece, entry: Register) -> None:
        piece.reg = None
        entry.taken ^= piece.points
        del entry.holders[piece.number]
        piece.bundle.pieces.remove(piece)

    def _hints(self, piece: Piece) -> list[Reg]:
        """The registers that copies of the piece would like, the most valuable first."""
        wanted: dict[Reg, float] = {}
        for n in piece.bundle.vregs:
            for copy in self.partners[n]:
                boundary = copy.boundary
                is_target = isinstance(copy.target, VReg) and copy.target.number == n
                if not piece.covers(boundary if is_target else boundary - 1):
                    continue
                other = copy.source if is_target else copy.target
                reg = other if isinstance(other, Reg) else self._register_at(other.number, boundary - 1 if is_target else boundary)
                if reg is not None:
                    wanted[reg] = wanted.get(reg, 0.0) + copy.weight
        for other_piece in piece.bundle.pieces:
            # A part of the same bundle in the same register needs no move at their border.
            if other_piece.reg is not None:
                wanted[other_piece.reg] = wanted.get(other_piece.reg, 0.0) + 1.0
        if len(wanted) < 2:
            return list(wanted)
        return sorted(wanted, key=lambda r: (-wanted[r], r.number))

    def _written(self, piece: Piece) -> set[Reg]:
        """The registers that other copies write when the piece is copied. In one of them it would have to be read before that: in a
        circle of moves, mostly.
        """
        found: set[Reg] = set()
        for n in piece.bundle.vregs:
            for copy in self.partners[n]:
                if copy.source is not self.ranges.vregs[n] or not piece.covers(copy.boundary - 1):
                    continue
                for other in self.together[copy.boundary]:
                    if other is not copy:
                        target = other.target
                        reg = target if isinstance(target, Reg) else self._register_at(target.number, copy.boundary)
                        if reg is not None:
                            found.add(reg)
        return found

    def _register_at(self, number: int, point: int) -> Reg | None:
        bundle = self.bundle_of[number]
        if bundle is not None:
            for piece in bundle.pieces:
                if piece.covers(point):
                    return piece.reg
        return None

    # ------------------------------------------------------------ when the queue is empty

    def _fill(self, bundle: Bundle) -> None:
        """Where a value goes from a register to the frame and from there to a register, within a block, and the first or the second
        is free all the while, it stays there.
        """
        ranges = self.ranges
        covered = 0
        for piece in bundle.pieces:
            covered |= piece.points
        rest = bundle.points & ~covered
        while rest:
            lo = (rest & -rest).bit_length() - 1
            run = rest >> lo
            block = ranges.block_of[lo // 3]
            end = 3 * ranges.first[block + 1]
            hi = min(lo + (run & ~(run + 1)).bit_length(), end)  # the ones from its lowest bit on
            points = (1 << hi) - (1 << lo)
            rest &= ~points
            if hi == end or lo == 3 * ranges.first[block]:
                continue
            before = next((p for p in bundle.pieces if p.covers(lo - 1)), None)
            behind = next((p for p in bundle.pieces if p.covers(hi)), None)
            if before is None or behind is None:
                continue
            # No piece begins between early and late.
            for piece in (before, behind) if lo % 3 != 2 else (before,):
                assert piece.reg is not None
                entry = self.by_reg[piece.reg]
                if not entry.taken & points:
                    piece.points |= points
                    piece.lo, piece.hi, piece.solid = min(piece.lo, lo), max(piece.hi, hi), False
                    entry.taken |= points
                    break

    # ------------------------------------------------------------ eviction

    def _evict(self, piece: Piece) -> bool:
        best: tuple[float, Register, list[Piece]] | None = None
        points, lo, hi = piece.points, piece.lo, piece.hi
        for entry in self.registers[piece.bundle.bank]:
            if entry.fixed & points:
                continue
            limit = piece.weight if best is None else best[0]
            worst = 0.0
            victims: list[Piece] = []
            for holder in entry.holders.values():
                if holder.lo < hi and lo < holder.hi and holder.points & points:
                    if holder.weight >= limit:
                        break
                    worst = max(worst, holder.weight)
                    victims.append(holder)
            else:
                best = (worst, entry, victims)
        if best is None:
            return False
        _, entry, victims = best
        for victim in victims:
            self._release(victim, entry)
            self._enqueue(victim)
        self._take(piece, entry)
        return True

    # ------------------------------------------------------------ splitting

    def _split(self, piece: Piece) -> None:
        if piece.weight >= MINIMAL:
            i = piece.lo // 3
            names = ", ".join(str(self.ranges.vregs[n]) for n in piece.bundle.vregs)
            raise InternalError(f"no register for {names}", f"{self.ranges.function.name}, `{self.ranges.insts[i].op}`")
        if piece.cost == 0.0:
            return
        blocks = self._blocks(piece)
        if len(blocks) > 1:
            if not self._region(piece, blocks):
                self._by_blocks(piece, blocks)
        else:
            self._trimmed(piece, piece.records)

    def _blocks(self, piece: Piece) -> list[int]:
        """The blocks that a piece has points in."""
        ranges = self.ranges
        found: list[int] = []
        points = piece.points
        k = ranges.block_of[piece.lo // 3]
        while True:
            found.append(k)
            end = 3 * ranges.first[k + 1]
            rest = points >> end
            if not rest:
                return found
            k = ranges.block_of[(end + (rest & -rest).bit_length() - 1) // 3]

    def _mask(self, k: int) -> int:
        """The points of a block."""
        first = self.ranges.first
        return (1 << 3 * first[k + 1]) - (1 << 3 * first[k])

    def _costs(self, piece: Piece) -> dict[int, float]:
        """What the records of a piece cost, by block."""
        costs: dict[int, float] = {}
        block_of = self.ranges.block_of
        for lo, _, cost, _ in piece.records:
            k = block_of[lo // 3]
            costs[k] = costs.get(k, 0.0) + cost
        return costs

    def _region(self, piece: Piece, blocks: list[int]) -> bool:
        """Keep the piece in a register in the blocks where one is free, if that pays for the moves at their borders."""
        ranges = self.ranges
        frequency, first = ranges.frequency, ranges.first
        points = piece.points
        costs = self._costs(piece)
        around: dict[int, list[tuple[int, float]]] = {k: [] for k in blocks}
        for k in blocks:
            if points >> (3 * first[k + 1] - 1) & 1:
                for s in ranges.successors[k]:
                    if s != k and points >> 3 * first[s] & 1:
                        f = min(frequency[k], frequency[s])
                        around[k].append((s, f))
                        around[s].append((k, f))
        best = 0.0
        choice: tuple[Register, set[int]] | None = None
        for entry in self.registers[piece.bundle.bank]:
            conflict = (entry.taken & points) >> piece.lo
            at = piece.lo
            busy: set[int] = set()
            gain = piece.cost - 2.0 if entry.saved else piece.cost
            while conflict:
                k = ranges.block_of[(at + (conflict & -conflict).bit_length() - 1) // 3]
                busy.add(k)
                gain -= costs.get(k, 0.0)
                end = 3 * first[k + 1]
                conflict >>= end - at
                at = end
            if gain <= best or len(busy) == len(blocks):
                continue
            if busy:
                gain -= _prune(busy, costs, around)
            if gain > best and len(busy) < len(blocks):
                best, choice = gain, (entry, busy)
        if choice is None:
            return False
        entry, busy = choice
        if not busy:  # a callee-saved register that was too dear before, and is still the best
            self._take(piece, entry)
            return True
        rest = 0
        for k in blocks:
            if k in busy:
                rest |= points & self._mask(k)
        block_of = ranges.block_of
        inside = [r for r in piece.records if block_of[r[0] // 3] not in busy]
        outside = [r for r in piece.records if block_of[r[0] // 3] in busy]
        self._take(self._piece(piece.bundle, points ^ rest, inside), entry)
        self._enqueue(self._piece(piece.bundle, rest, outside))
        return True

    def _by_blocks(self, piece: Piece, blocks: list[int]) -> None:
        """A piece for each block that uses it."""
        grouped: dict[int, list[Record]] = {k: [] for k in blocks}
        for record in piece.records:
            grouped[self.ranges.block_of[record[0] // 3]].append(record)
        for records in grouped.values():
            self._trimmed(piece, records)

    def _trimmed(self, piece: Piece, records: list[Record]) -> None:
        """A piece from the first record to the last; none if nothing demands a register and it would save nothing."""
        if not records:
            return
        lo, hi = records[0][0], max(r[1] for r in records)
        points = piece.points & ((1 << hi) - (1 << lo))
        part = self._piece(piece.bundle, points, records)
        if points == piece.points:
            self._local(part)
        elif part.cost > 0.0:
            self._enqueue(part)

    def _local(self, piece: Piece) -> None:
        """Within a block: a register over the run of records where one is free that saves most."""
        records = piece.records
        frequency = self.ranges.frequency[self.ranges.block_of[piece.lo // 3]]
        best = frequency  # a load in front of the run
        choice: tuple[Register, int, int] | None = None
        if len(records) > 1:
            for entry in self.registers[piece.bundle.bank]:
                if entry.saved and piece.cost <= 2.0:
                    continue
                taken = entry.taken & piece.points
                start = 0
                gain = 0.0
                for at, (lo, hi, cost, _) in enumerate(records):
                    if at > start and taken & ((1 << hi) - (1 << records[start][0])):
                        start, gain = at, 0.0
                    if at == start and taken & ((1 << hi) - (1 << lo)):
                        start, gain = at + 1, 0.0
                        continue
                    gain += cost
                    if gain > best and at > start:
                        best, choice = gain, (entry, start, at + 1)
        if choice is None:
            self._minimal(piece)
            return
        entry, a, b = choice
        lo, hi = records[a][0], max(r[1] for r in records[a:b])
        points = piece.points & ((1 << hi) - (1 << lo))
        self._take(self._piece(piece.bundle, points, records[a:b]), entry)
        for others in (records[:a], records[b:]):
            # What only reports a value in the same instruction may find it in the frame.
            side = [r for r in others if r[3] or not points & ((1 << r[1]) - (1 << r[0]))]
            if side:
                left, right = side[0][0], max(r[1] for r in side)
                part = piece.points & ((1 << right) - (1 << left)) & ~points
                self._enqueue(self._piece(piece.bundle, part, side))

    def _minimal(self, piece: Piece) -> None:
        """Pieces of just the points that demand a register, and of those where a constant would like one: a memory operand is
        no choice for what is not in memory.
        """
        if piece.bundle.vregs[0] in self.ranges.remat:
            for lo, hi, _, needs in piece.records:
                points = piece.points & ((1 << hi) - (1 << lo))
                if not needs and points != piece.points:
                    self._enqueue(self._piece(piece.bundle, points, [(lo, hi, _, needs)]))
        at: tuple[int, int] | None = None
        found: list[tuple[int, int]] = []
        for lo, hi, _, needs in piece.records:
            if not needs:
                continue
            if at is not None and lo < at[1]:
                at = (at[0], max(at[1], hi))
                found[-1] = at
            else:
                at = (lo, hi)
                found.append(at)
        for lo, hi in found:
            points = piece.points & ((1 << hi) - (1 << lo))
            part = self._piece(piece.bundle, points, [])
            part.weight = MINIMAL * points.bit_count()
            self._enqueue(part)


def _prune(busy: set[int], costs: dict[int, float], around: dict[int, list[tuple[int, float]]]) -> float:
    """Add the blocks to `busy` that do not pay for the moves at their borders: having the value in a register there saves less than it
    costs to bring it in and out. Gives what the borders that remain and the blocks that were added cost.
    """
    loss = 0.0
    work = {other for k in sorted(busy) for other, _ in around[k]} - busy
    queue = sorted(work)
    borders: dict[int, float] = {}
    while queue:
        k = queue.pop()
        work.discard(k)
        outer = inner = 0.0
        for other, f in around[k]:
            if other in busy:
                outer += f
            else:
                inner += f
        cost = costs.get(k, 0.0)
        if cost + inner <= outer:
            busy.add(k)
            borders.pop(k, None)
            loss += cost
            for other, _ in around[k]:
                if other not in busy and other not in work:
                    work.add(other)
                    queue.append(other)
        else:
            borders[k] = outer
    return loss + sum(borders.values())


def _joined(records: list[Record]) -> list[Record]:
    """Several demands of one instruction (twice the same register, or read early and late) become one. Ascending, as given."""
    joined: list[Record] = []
    for record in records:
        if record[3]:
            for k in range(len(joined) - 1, -1, -1):
                lo, hi, cost, needs = joined[k]
                if hi <= record[0]:
                    break
                if needs:
                    joined[k] = (lo, max(hi, record[1]), cost + record[2], True)
                    break
            else:
                k = -1
            if k >= 0 and joined[k][3] and joined[k][1] > record[0]:
                continue
        joined.append(record)
    return joined


def slots(assignment: Assignment, spilled: list[Bundle]) -> tuple[dict[int, int], int]:
    """Slots for bundles that need one, by number of the bundle, and how many slots that takes: the first that is free."""
    taken: list[int] = []
    given: dict[int, int] = {}
    for bundle in spilled:
        for k, points in enumerate(taken):
            if not points & bundle.points:
                taken[k] |= bundle.points
                given[bundle.number] = k
                break
        else:
            given[bundle.number] = len(taken)
            taken.append(bundle.points)
    return given, len(taken)


__all__ = ["Assignment", "Bundle", "Piece", "bits", "slots"]

"""Between which constants an integer lies: value range propagation (Harrison 1977; Patterson, "Accurate static branch prediction
by value range propagation", 1995), on demand.

A range is `(low, high)`, both included, in unbounded integers; an op whose exact result may leave its type has the whole type
for its range. A range belongs to a value where that is defined; `at` narrows it by the comparisons known at a place
(`opt/conditions.py`), and operands are narrowed so at the op that reads them.

The parameters of a loop's header are a fixpoint, and so are those of any block that an edge goes back to in reverse postorder (what
runs a loop backward may jump into its middle): from what the loop is entered with, ranges grow until the edges back bring nothing
new; a bound that grows twice jumps to the next of a few round numbers (widening), and when all is stable two more sweeps take back
what that overshot (narrowing).

    head(%i):  enters with 0, comes back with %i + 1 from where %i < 100
      0..0,  0..1,  0..127 (widened): %i + 1 in 1..100 where %i < 100;  narrowed: 0..100, and 0..99 in the body

Assumptions, beyond arithmetic. An extent is at most 2**48: more elements fit into no memory. What starts near zero and
changes by small constants only (a counter) stays within 2**56: to count on takes longer than anyone waits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import isqrt

from tlc.frontend.types import INTS, Elem
from tlc.opt.conditions import END, MIRRORED, Conditions, Place, comparisons
from tlc.ssa.ir import Block, Instr, Value, const_of, same_value

Range = tuple[int, int]

EXTENT = 1 << 48  # the greatest extent
COUNT = 1 << 56  # how far a counter counts
STEP = 16  # the greatest constant by which a counter changes
WHOLE: dict[Elem, Range] = {
    Elem.BOOL: (0, 1),
    **{e: (-(1 << e.width - 1), (1 << e.width - 1) - 1) if e.is_signed else (0, (1 << e.width) - 1) for e in INTS},
}
# Where a bound that grows rests: at few places, for each costs a round; what is tighter comes by narrowing.
_HIGHS = [0, (1 << 8) - 1, (1 << 16), 1 << 24, (1 << 31) - 1, (1 << 32) - 1, EXTENT, COUNT, (1 << 63) - 1]
_LOWS = [-(1 << 63), -COUNT, -EXTENT, -(1 << 31), -(1 << 16), -1, 0]
DEPTH = 90  # values that one question may look through


def join(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def meet(a: Range, b: Range) -> Range | None:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else None


class Ranges:
    """The ranges of the integers and bools of one function; a snapshot. None is the range of what is never computed."""

    def __init__(self, conditions: Conditions, assumed: frozenset[Value] = frozenset()) -> None:
        self.conditions = conditions
        self.assumed = assumed  # what is taken to be as small as an extent, for the sake of the argument
        self._known: dict[Value, Range | None] = {}
        self._trial: dict[Value, Range | None] = {}  # of what a fixpoint is being sought for
        self._places: dict[tuple[Value, Block, int], Range | None] = {}
        self._steady: dict[Value, bool] = {}
        self._depth = 0

    # ------------------------------------------------------------ questions

    def of(self, value: Value) -> Range | None:
        """The range of a value where it is defined."""
        if value in self._known:
            return self._known[value]
        if value in self._trial:
            return self._trial[value]
        if value.type.rank or value.type.elem not in WHOLE:
            return None if value.type.rank else (0, 0)
        constant = const_of(value)
        if constant is not None:
            assert isinstance(constant, int)
            found = self._known[value] = int(constant), int(constant)
            return found
        if self._trial or self._depth > DEPTH:
            return WHOLE[value.type.elem]  # not part of the fixpoint, or too far away: what is said of it must hold anyway
        if self._is_looped(value):
            self._solve(value)
        else:
            self._depth += 1
            self._known[value] = self._find(value)
            self._depth -= 1
        return self._known[value]

    def at(self, value: Value, place: Place) -> Range | None:
        """The range of a value at a place that its definition dominates."""
        if self._trial:
            return self._narrowed(value, place)
        key = (value, *place)
        if key not in self._places:
            self._places[key] = self._narrowed(value, place)
        return self._places[key]

    def exact(self, instr: Instr) -> bool:
        """Whether the result of an integer op is what the op gives in unbounded integers."""
        if instr.op == "mul" and self._strided(instr.result) is not None:
            return True
        return self._apply(instr, exact=True) is not None

    # ------------------------------------------------------------ values

    def _find(self, value: Value) -> Range | None:
        owner, whole = value.owner, WHOLE[value.type.elem]
        if isinstance(owner, Instr):
            if owner.op == "dim":
                return 0, EXTENT
            if owner.op not in MEANING:
                return whole
            strided = self._strided(value) if owner.op == "mul" else None
            return strided or self._apply(owner)
        region = owner.region
        if region is None:
            return whole
        if owner is region.entry:
            return self._index(value, owner, region.parent) if isinstance(region.parent, Instr) else whole
        return self._param(value, owner)

    def _index(self, value: Value, entry: Block, holder: Instr) -> Range | None:
        extent = holder.operands[len(holder.operands) - len(entry.params) + entry.params.index(value)]
        known = self.at(extent, self.conditions.before(holder))
        return None if known is None or known[1] <= 0 else (0, min(known[1] - 1, COUNT))

    def _strided(self, value: Value) -> Range | None:
        """How far a range by steps goes: from 0 to its length."""
        strides = stride(value, self.conditions)
        if strides is None:
            return None
        assert isinstance(value.owner, Instr)
        place = self.conditions.before(value.owner)
        lo, hi, step = (self.at(v, place) for v in strides)
        if lo is None or hi is None or step is None or not fits((hi[0] - lo[1], hi[1] - lo[0]), WHOLE[Elem.I64]):
            return None
        return (0, max(hi[1] - 1 - lo[0], 0)) if step[0] > 0 else (min(hi[0] + 1 - lo[1], 0), 0) if step[1] < 0 else None

    def _apply(self, instr: Instr, exact: bool = False) -> Range | None:
        """The range of a scalar op; with `exact`, None if the op may wrap."""
        meaning = MEANING.get(instr.op)
        if meaning is None:
            return None  # nothing exact about it
        whole = WHOLE[instr.result.type.elem]
        if any(v.type.rank or v.type.elem not in WHOLE for v in instr.operands):
            return None if exact else whole
        place = self.conditions.before(instr)
        ranges = []
        for v in instr.operands:
            r = self.at(v, place)
            if r is None:
                return None
            ranges.append(r)
        found = meaning(whole, *ranges)
        if found is not None and whole[0] <= found[0] and found[1] <= whole[1]:
            return found
        return None if exact else whole

    def _param(self, value: Value, block: Block) -> Range | None:
        """What the edges bring."""
        return self._brought(self.conditions.into(block), block.params.index(value))

    # ------------------------------------------------------------ loops

    def _is_looped(self, value: Value) -> bool:
        """Whether a value is a parameter of a block that an edge goes back to: each cycle has one."""
        block = value.owner
        if isinstance(block, Instr) or block.region is None or block is block.region.entry:
            return False
        return bool(self._back(block))

    def _back(self, block: Block) -> list[Block]:
        """From where edges go back to a block."""
        number = self.conditions.number
        return [source for source, _ in self.conditions.into(block) if number(source) >= number(block)]

    def _solve(self, param: Value) -> None:
        """The fixpoint for a parameter of a header and for all that it depends on: each is computed again when what it reads has
        changed, in the order of the program.
        """
        readers = self._slice(param)
        order = sorted(readers, key=self._order)
        number = {v: k for k, v in enumerate(order)}
        trial: dict[Value, Range | None] = dict.fromkeys(order)
        changes = dict.fromkeys(order, 0)
        self._trial = trial
        work = list(range(len(order)))
        waiting = set(work)
        while work:
            k = heappop(work)
            waiting.discard(k)
            v = order[k]
            new, old = self._find(v), trial[v]
            if old is not None and new is not None:
                new = join(old, new)
            if new == old:
                continue
            if old is not None and new is not None and self._is_looped(v):
                changes[v] += 1
                new = _widened(old, new, self._limit(v)) if changes[v] > 1 else new
            trial[v] = new
            for reader in readers[v]:
                j = number[reader]
                if j not in waiting:
                    waiting.add(j)
                    heappush(work, j)
        for _ in range(2):
            for v in order:
                new, old = self._find(v), trial[v]
                trial[v] = None if new is None or old is None else meet(new, old)
        self._trial = {}
        self._known.update(trial)

    def _limit(self, param: Value) -> Range:
        """How far a parameter that is looped may go."""
        block, whole = param.owner, WHOLE[param.type.elem]
        assert isinstance(block, Block) and block.region is not None
        tree = self.conditions.tree(block.region)
        if not all(tree.dominates(block, source) for source in self._back(block)):
            return whole  # a cycle that is entered elsewhere too
        edges = [(s, e) for s, e in self.conditions.into(block) if not tree.dominates(block, s)]
        entering = self._brought(edges, block.params.index(param))
        if entering is None or not fits(entering, (-EXTENT, EXTENT)) or not self.steady(param):
            return whole
        return max(whole[0], -COUNT), min(whole[1], COUNT)

    def _slice(self, param: Value) -> dict[Value, list[Value]]:
        """All that a parameter depends on and that is not known yet, each with those that read it."""
        readers: dict[Value, list[Value]] = {param: []}
        work = [param]
        while work:
            v = work.pop()
            for read in self._reads(v):
                if read in self._known or read.type.rank or read.type.elem not in WHOLE or const_of(read) is not None:
                    continue
                if read not in readers:
                    readers[read] = []
                    work.append(read)
                readers[read].append(v)
        return readers

    def _reads(self, value: Value) -> Iterator[Value]:
        """What the range of a value is made of."""
        owner = value.owner
        if isinstance(owner, Instr):
            reads = [(v, owner.block) for v in owner.operands] if owner.op in MEANING else []
        elif owner.region is not None and owner is not owner.region.entry:
            k = owner.params.index(value)
            reads = [(source.terminator.args(edge)[k], source) for source, edge in self.conditions.into(owner)]
        else:
            reads = []
        for v, block in reads:
            yield v
            if block is not None:
                yield from self.conditions.compared_with(v, block)

    def _order(self, value: Value) -> tuple[int, int, int]:
        """The place of a definition in the order of the program; of values that regions around define first."""
        owner = value.owner
        block = value.block
        if block is None or block.region is None:
            return 0, 0, 0
        position = self.conditions.position(owner) + 1 if isinstance(owner, Instr) else 0
        return self.conditions.depth(block), self.conditions.number(block), position

    def _brought(self, edges: list[tuple[Block, int]], k: int) -> Range | None:
        """The range of what some edges bring to the parameter at position k."""
        found: Range | None = None
        for source, edge in edges:
            t = source.terminator
            r = self.at(t.args(edge)[k], (source, END))
            if r is not None and t.op == "branch":
                r = self._on_edge(t.args(edge)[k], r, t.own[0], edge == 0, source)
            if r is not None:
                found = r if found is None else join(found, r)
        return found

    def _on_edge(self, value: Value, known: Range, cond: Value, truth: bool, source: Block) -> Range | None:
        """The range of what a branch itself passes: its condition is known."""
        now: Range | None = known
        for op, a, b in comparisons(cond, truth):
            if now is not None and value in (a, b):
                other = self.at(b if value is a else a, (source, END))
                if other is not None:
                    now = _compared(now, op if value is a else MIRRORED[op], other)
        return now

    # ------------------------------------------------------------ places

    def _narrowed(self, value: Value, place: Place) -> Range | None:
        now = self.of(value)
        if now is None or const_of(value) is not None:
            return now
        if value in self.assumed:
            now = meet(now, (-EXTENT, EXTENT)) or now
        if value.type.elem is Elem.BOOL:
            known = self.conditions.truth(value, place)
            return now if known is None else meet(now, (int(known), int(known)))
        for c in self.conditions.about(value, place):
            for op, a, b in ((c.op, c.a, c.b), (MIRRORED[c.op], c.b, c.a)):
                if a is b or now is None:
                    continue
                other = self._against(b, c.place)
                now = None if other is None else self._told(value, now, op, a, other)
        return self._extent(value, now, place)

    def _against(self, value: Value, place: Place) -> Range | None:
        """The range of the other side of a comparison: only comparisons with constants narrow it, or there would be no end."""
        now = self.of(value)
        if const_of(value) is not None:
            return now
        if now is not None and value in self.assumed:
            now = meet(now, (-EXTENT, EXTENT)) or now
        for c in self.conditions.about(value, place):
            constant = const_of(c.b if c.a is value else c.a)
            if now is not None and isinstance(constant, int) and value in (c.a, c.b):
                now = _compared(now, c.op if c.a is value else MIRRORED[c.op], (constant, constant))
        return self._extent(value, now, place)

    def _extent(self, value: Value, now: Range | None, place: Place) -> Range | None:
        if now is not None and now[1] > EXTENT and value.type.elem is Elem.I64 and self.conditions.is_extent(value, place):
            return meet(now, (now[0], EXTENT))
        return now

    def _told(self, value: Value, now: Range, op: str, a: Value, other: Range) -> Range | None:
        """What `a op other` tells of a value that `a` is, or is made of."""
        if a is value:
            return _compared(now, op, other)
        owner = a.owner
        if not isinstance(owner, Instr) or not self._plain(owner):
            return now
        match owner.op:
            case "convert" if owner.operands[0] is value:
                return _compared(now, op, other) if fits(now, WHOLE[a.type.elem]) else now
            case "add" | "sub":
                x, y = owner.operands
                sign = 1 if owner.op == "add" else -1
                shift = const_of(y) if x is value else const_of(x) if y is value and sign == 1 else None
                if isinstance(shift, int) and fits((now[0] + sign * shift, now[1] + sign * shift), WHOLE[a.type.elem]):
                    return _compared(now, op, (other[0] - sign * shift, other[1] - sign * shift))
            case "mul" if owner.operands[0] is value and owner.operands[1] is value:
                if now[0] >= 0 and now[1] ** 2 <= WHOLE[a.type.elem][1] and op in ("lt", "le", "eq"):
                    most = other[1] - (op == "lt")
                    return meet(now, (0, isqrt(most))) if most >= 0 else None
        return now

    def _plain(self, owner: Instr) -> bool:
        return all(v.type.rank == 0 and v.type.elem.is_int for v in owner.operands)

    # ------------------------------------------------------------ counters

    def steady(self, param: Value) -> bool:
        """Whether a parameter of a loop's header comes back changed by small constants only, on any way round."""
        if param not in self._steady:
            self._steady[param] = self._changes_little(param)
        return self._steady[param]

    def _changes_little(self, param: Value) -> bool:
        header = param.owner
        assert isinstance(header, Block) and header.region is not None
        tree = self.conditions.tree(header.region)
        seen = {param}
        work = [s.terminator.args(e)[header.params.index(param)] for s, e in self.conditions.into(header) if tree.dominates(header, s)]
        while work:
            v = work.pop()
            if v in seen:
                continue
            seen.add(v)
            owner = v.owner
            if isinstance(owner, Block):
                if owner.region is not header.region or not tree.dominates(header, owner):
                    return False
                work += [s.terminator.args(e)[owner.params.index(v)] for s, e in self.conditions.into(owner)]
                continue
            match owner.op:
                case "select":
                    work += owner.operands[1:]
                case "add" | "sub":
                    x, y = owner.operands
                    by = const_of(y)
                    if by is None and owner.op == "add":
                        x, by = y, const_of(x)
                    if not isinstance(by, int) or abs(by) > STEP:
                        return False
                    work.append(x)
                case _:
                    return False
        return True


def fits(a: Range, whole: Range) -> bool:
    return whole[0] <= a[0] and a[1] <= whole[1]


def stride(value: Value, conditions: Conditions) -> tuple[Value, Value, Value] | None:
    """`(lo, hi, step)` of a product `k * step` where `0 <= k < iterations(lo, hi, step)`: so `lo + k * step` lies in `lo..hi`."""
    owner = value.owner
    if not isinstance(owner, Instr) or owner.op != "mul" or value.type.elem is not Elem.I64:
        return None
    for k, step in (owner.operands, owner.operands[::-1]):
        if isinstance(k.owner, Instr):
            continue
        for c in conditions.about(k, conditions.before(owner)):
            count = c.b.owner
            if c.op == "lt" and c.a is k and isinstance(count, Instr) and count.op == "iterations" and _starts_at_zero(k, conditions):
                first, last, by = count.operands
                if same_value(by, step):
                    return first, last, by
    return None


def _starts_at_zero(k: Value, conditions: Conditions) -> bool:
    """Whether a parameter of a loop's header enters with 0 and comes back as itself and 1."""
    header = k.owner
    if not isinstance(header, Block) or header.region is None or header is header.region.entry:
        return False
    for source, edge in conditions.into(header):
        passed = source.terminator.args(edge)[header.params.index(k)]
        owner = passed.owner
        if conditions.tree(header.region).dominates(header, source):
            if not isinstance(owner, Instr) or owner.op != "add" or k not in owner.operands or 1 not in map(const_of, owner.operands):
                return False
        elif const_of(passed) != 0:
            return False
    return True


def _compared(now: Range, op: str, other: Range) -> Range | None:
    """What is left of a range of which `op other` holds."""
    low, high = now
    match op:
        case "lt":
            high = min(high, other[1] - 1)
        case "le":
            high = min(high, other[1])
        case "gt":
            low = max(low, other[0] + 1)
        case "ge":
            low = max(low, other[0])
        case "eq":
            low, high = max(low, other[0]), min(high, other[1])
        case "ne" if other[0] == other[1]:
            low, high = low + (low == other[0]), high - (high == other[0])
    return (low, high) if low <= high else None


def _widened(old: Range, new: Range, limit: Range) -> Range:
    """A bound that grew goes on to the next round number."""
    low, high = new
    if low < old[0]:
        low = max(limit[0], _LOWS[bisect_right(_LOWS, low) - 1])
    if high > old[1]:
        high = min(limit[1], _HIGHS[bisect_left(_HIGHS, high)])
    return low, high


# ---------------------------------------------------------------- what ops do to ranges


def _corners(f: Callable[[int, int], int], a: Range, b: Range) -> Range:
    values = [f(x, y) for x in a for y in b]
    return min(values), max(values)


def _floordiv(whole: Range, a: Range, b: Range) -> Range:
    if b[0] > 0 or b[1] < 0:
        return _corners(lambda x, y: x // y, a, b)
    most = max(abs(a[0]), abs(a[1]))
    return -most, most


def _mod(whole: Range, a: Range, b: Range) -> Range:
    if b[0] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1)
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _and(whole: Range, a: Range, b: Range) -> Range:
    masks = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(masks)) if masks else whole


def _or(whole: Range, a: Range, b: Range) -> Range:
    if a[0] < 0 or b[0] < 0:
        return whole
    return max(a[0], b[0]), (1 << max(a[1], b[1]).bit_length()) - 1


def _xor(whole: Range, a: Range, b: Range) -> Range:
    return (0, _or(whole, a, b)[1]) if a[0] >= 0 and b[0] >= 0 else whole


def _not(whole: Range, a: Range) -> Range:
    if whole == (0, 1):
        return 1 - a[1], 1 - a[0]
    return (-1 - a[1], -1 - a[0]) if whole[0] < 0 else whole


def _shift(f: Callable[[int, int], int]) -> Callable[[Range, Range, Range], Range]:
    def shifted(whole: Range, a: Range, b: Range) -> Range:
        width = (whole[1] - whole[0]).bit_length()
        if b[0] >= 0 and b[1] < width:
            return _corners(f, a, b)
        return whole[0] - 1, whole[1] + 1  # the count is taken modulo the width: nothing exact can be said

    return shifted


def _select(whole: Range, c: Range, a: Range, b: Range) -> Range:
    return a if c == (1, 1) else b if c == (0, 0) else join(a, b)


def _abs(whole: Range, a: Range) -> Range:
    return (a[0], a[1]) if a[0] >= 0 else (0 if a[1] >= 0 else -a[1], max(-a[0], a[1]))


def _iterations(whole: Range, lo: Range, hi: Range, step: Range) -> Range:
    return 0, max(hi[1] - lo[0], lo[1] - hi[0], 0)


def _comparison(op: str) -> Callable[[Range, Range, Range], Range]:
    def decided(whole: Range, a: Range, b: Range) -> Range:
        return compare(op, a, b)

    return decided


def compare(op: str, a: Range, b: Range) -> Range:
    """The range of a comparison of two ranges."""
    match op:
        case "lt":
            return (1, 1) if a[1] < b[0] else (0, 0) if a[0] >= b[1] else (0, 1)
        case "le":
            return (1, 1) if a[1] <= b[0] else (0, 0) if a[0] > b[1] else (0, 1)
        case "gt" | "ge":
            return compare(MIRRORED[op], b, a)
        case "eq":
            return (1, 1) if a == b and a[0] == a[1] else (0, 0) if meet(a, b) is None else (0, 1)
        case "ne":
            low, high = compare("eq", a, b)
            return 1 - high, 1 - low
    raise AssertionError(op)


# The exact result, before it is wrapped; an op that is not here gives anything of its type.
MEANING: dict[str, Callable[..., Range]] = {
    "add": lambda whole, a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda whole, a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda whole, a, b: _corners(lambda x, y: x * y, a, b),
    "neg": lambda whole, a: (-a[1], -a[0]),
    "abs": _abs,
    "max": lambda whole, a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda whole, a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "floordiv": _floordiv,
    "mod": _mod,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "not": _not,
    "shl": _shift(lambda x, y: x << y),
    "shr": _shift(lambda x, y: x >> y),
    "select": _select,
    "convert": lambda whole, a: a,
    "iterations": _iterations,
    **{op: _comparison(op) for op in ("lt", "le", "gt", "ge", "eq", "ne")},
}

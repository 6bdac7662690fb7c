"""What is known of `i64` values without running the program: linear forms and bounds.

A value is seen as a sum of atoms with integer coefficients and a constant (`linear`). Some atoms are bounded:

  an index of a region     0 <= i < extent
  the counter of a loop    lo <= i < hi     in the body of `for i in lo..hi` (or of a `while` of that form)
  an extent (`dim`)        0 <= n
  a remainder              0 <= a % n < n        where n is positive
  a quotient               that of the bounds of a, in `a // c` by a positive constant

and a branch on the way tells its condition (`if i > 0 { x[i - 1] }`); where a region runs, its extents are positive. From `i != n` follows
`i <= n - 1` once `i <= n` is known.

`not_negative` proves that a form is >= 0: an index with a negative coefficient is replaced by its greatest value, one with a
positive coefficient by its least, those of inner regions first; what remains must be a constant >= 0 and extents
with positive coefficients. If that fails, what is left of the form beyond one known condition is tried.

Wrapping. Forms speak of integers, the program of i64. Extents, indices of regions and counters that start small are
*small*: far below 2**63, because counting there, or storing that much, takes too long; small combinations of them do
not wrap. Any other atom is used only where the arithmetic on it is proved not to wrap (`exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tlc.opt.rewrite import const_of
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into
from tlc.ssa.ir import I64, Block, Instr, Region, Value

SMALL = 1 << 16  # the greatest coefficient in a form, and
SMALL_CONSTANT = 1 << 40  # the greatest constant
STEPS = 24  # replacements that one proof may take
DEPTH = 6  # ops that one form may look through


@dataclass(frozen=True)
class Linear:
    """`constant + sum of coefficient * atom`; coefficients are not zero."""

    terms: tuple[tuple[Value, int], ...]
    constant: int

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        out = dict(self.terms)
        for atom, c in other.terms:
            out[atom] = out.get(atom, 0) + factor * c
        return Linear(tuple((a, c) for a, c in out.items() if c), self.constant + factor * other.constant)

    def replace(self, atom: Value, by: Linear) -> Linear:
        rest = Linear(tuple((a, c) for a, c in self.terms if a is not atom), self.constant)
        return rest.plus(by, dict(self.terms)[atom])

    @property
    def is_small(self) -> bool:
        return abs(self.constant) <= SMALL_CONSTANT and all(abs(c) <= SMALL for _, c in self.terms)


ZERO, ONE = Linear((), 0), Linear((), 1)


def itself(value: Value) -> Linear:
    return Linear(((value, 1),), 0)


# What a comparison says: these forms are >= 0.
COMPARISONS: dict[str, Callable[[Linear, Linear], list[Linear]]] = {
    "le": lambda x, y: [y.plus(x, -1)],
    "ge": lambda x, y: [x.plus(y, -1)],
    "lt": lambda x, y: [y.plus(x, -1).plus(ONE, -1)],
    "gt": lambda x, y: [x.plus(y, -1).plus(ONE, -1)],
    "eq": lambda x, y: [x.plus(y, -1), y.plus(x, -1)],
}
NEGATED = {"le": "gt", "ge": "lt", "lt": "ge", "gt": "le", "ne": "eq"}


@dataclass(frozen=True)
class Bounds:
    """`low <= value <= high`, both ends included; None where nothing is known. `small`: see the module."""

    low: Linear | None
    high: Linear | None
    small: bool


class Facts:
    """Facts about one function; a snapshot."""

    def __init__(self) -> None:
        self.trees: dict[Region, Dominance] = {}

    def holds(self, cond: Value, at: Block) -> bool:
        """Whether a bool is proved to be true whenever control is in block `at`."""
        return _Proof(self, at).holds(cond)

    def decided(self, cond: Value, at: Block) -> bool | None:
        """The value that a comparison is proved to have whenever control is in block `at`; None if neither is proved."""
        owner = cond.owner
        if not isinstance(owner, Instr) or owner.op not in (*COMPARISONS, "ne", "and", "or"):
            return None
        proof = _Proof(self, at)
        return True if proof.holds(cond) else False if proof.fails(cond) else None

    def within(self, index: Value, extent: Value | int, at: Block) -> bool:
        """Whether `0 <= index < extent` is proved wherever control is in block `at`."""
        proof = _Proof(self, at)
        form = proof.form(index)
        last = (Linear((), extent) if isinstance(extent, int) else proof.form(extent)).plus(ONE, -1)
        return proof.not_negative(form) and proof.not_negative(last.plus(form, -1))

    def conditions(self, at: Block) -> list[tuple[Value, bool]]:
        """Bools whose value is known in a block: branches on the way to it, and on the way to the regions around it."""
        found: list[tuple[Value, bool]] = []
        block: Block | None = at
        while block is not None and block.region is not None:
            tree, into = self.tree(block.region), edges_into(block.region)
            while block in tree.immediate:
                if len(into[block]) == 1:
                    source, edge = into[block][0]
                    if source.terminator.op == "branch":
                        found.append((source.terminator.own[0], edge == 0))
                if tree.immediate[block] is block:
                    break
                block = tree.immediate[block]
            parent = block.region.parent if block.region is not None else None
            block = parent.block if isinstance(parent, Instr) else None
        return found

    def tree(self, region: Region) -> Dominance:
        if region not in self.trees:
            self.trees[region] = dominance(region)
        return self.trees[region]

    def dominates(self, a: Block, b: Block) -> bool:
        """Whether every way to b leads through a; b may lie in a region inside a's."""
        inside: Block | None = b
        while inside is not None and inside.region is not a.region:
            parent = inside.region.parent if inside.region is not None else None
            inside = parent.block if isinstance(parent, Instr) else None
        if inside is None or a.region is None:
            return False
        return self.tree(a.region).dominates(a, inside)


class _Proof:
    """A proof for one place."""

    def __init__(self, facts: Facts, at: Block) -> None:
        self.facts, self.at = facts, at
        self.known: dict[Value, Bounds | None] = {}
        self.assumed: list[Linear] = []  # forms that are >= 0 here
        self.differ: list[Linear] = []  # forms that are not 0 here
        for holder in holders(at):
            self.assumed += [self.form(extent).plus(ONE, -1) for extent in extents(holder)]
        for cond, truth in facts.conditions(at):
            self.assume(cond, truth)
        self.sharpen()

    def assume(self, cond: Value, truth: bool) -> None:
        owner = cond.owner
        if not isinstance(owner, Instr) or len(owner.operands) != 2:
            return
        a, b = owner.operands
        if owner.op == ("and" if truth else "or"):
            self.assume(a, truth)
            self.assume(b, truth)
        elif a.type == I64 and owner.op in (COMPARISONS if truth else NEGATED):
            op = owner.op if truth else NEGATED[owner.op]
            self.assumed += COMPARISONS[op](self.form(a), self.form(b))
        elif a.type == I64 and owner.op == ("ne" if truth else "eq"):
            self.differ.append(self.form(a).plus(self.form(b), -1))

    def sharpen(self) -> None:
        """What is >= 0 and not 0 is >= 1."""
        left = self.differ
        while left:
            self.differ, left = left, []
            for form in self.differ:
                side = next((f for f in (form, ZERO.plus(form, -1)) if self.not_negative(f)), None)
                if side is None:
                    left.append(form)
                else:
                    self.assumed.append(side.plus(ONE, -1))
            if len(left) == len(self.differ):
                return

    def holds(self, cond: Value) -> bool:
        if const_of(cond) is True:
            return True
        owner = cond.owner
        if not isinstance(owner, Instr) or len(owner.operands) != 2:
            return False
        a, b = owner.operands
        if owner.op == "and":
            return self.holds(a) and self.holds(b)
        if owner.op == "or":
            return self.holds(a) or self.holds(b)
        if a.type != I64:
            return False
        x, y = self.form(a), self.form(b)
        if owner.op == "ne":
            return any(self.not_negative(f) for op in ("lt", "gt") for f in COMPARISONS[op](x, y))
        return owner.op in COMPARISONS and all(self.not_negative(f) for f in COMPARISONS[owner.op](x, y))

    def fails(self, cond: Value) -> bool:
        """Whether a bool is proved to be false."""
        owner = cond.owner
        if not isinstance(owner, Instr) or len(owner.operands) != 2:
            return False
        a, b = owner.operands
        if owner.op == "and":
            return self.fails(a) or self.fails(b)
        if owner.op == "or":
            return self.fails(a) and self.fails(b)
        if a.type != I64:
            return False
        x, y = self.form(a), self.form(b)
        if owner.op == "eq":
            return any(self.not_negative(f) for op in ("lt", "gt") for f in COMPARISONS[op](x, y))
        return owner.op in NEGATED and all(self.not_negative(f) for f in COMPARISONS[NEGATED[owner.op]](x, y))

    def not_negative(self, form: Linear) -> bool:
        return self.bounded(form) or any(self.bounded(form.plus(known, -1)) for known in self.assumed)

    def bounded(self, form: Linear) -> bool:
        least = self.least(form)
        return least is not None and least.constant >= 0 and all(c > 0 and is_extent(a) for a, c in least.terms)

    def least(self, form: Linear) -> Linear | None:
        """A form that is not above this one, with bounded atoms replaced by their bounds; None where numbers grow too large."""
        for _ in range(STEPS):
            if not form.is_small:
                return None
            step = self.step(form)
            if step is None:
                break
            form = step
        return form

    def step(self, form: Linear) -> Linear | None:
        """The form with one bounded atom replaced by its bound, those of inner regions first."""
        for atom, c in sorted(form.terms, key=lambda t: -depth(t[0])):
            bounds = None if is_extent(atom) else self.bounds(atom)
            if bounds is not None:
                by = bounds.high if c < 0 else bounds.low
                if by is not None:
                    return form.replace(atom, by)
        return None

    # ------------------------------------------------------------ forms

    def form(self, value: Value) -> Linear:
        """The linear form of a value, or the value itself where the form may wrap."""
        form = linear(value)
        return form if self.exact(form) else itself(value)

    def exact(self, form: Linear) -> bool:
        """Whether computing the form in i64 gives its value."""
        if not form.is_small:
            return False
        if all(self.is_small(a) for a, _ in form.terms):
            return True
        if len(form.terms) != 1 or form.terms[0][1] != 1:
            return False
        atom = form.terms[0][0]
        bounds = self.bounds(atom)
        if form.constant < 0:  # an atom >= 0 less a constant
            return bounds is not None and bounds.low is not None and self.not_negative(bounds.low)
        return form.constant == 0 or (form.constant == 1 and bounds is not None and bounds.high is not None)

    def is_small(self, atom: Value) -> bool:
        bounds = self.bounds(atom)
        return bounds is not None and bounds.small

    # ------------------------------------------------------------ bounds

    def bounds(self, value: Value) -> Bounds | None:
        if value not in self.known:
            self.known[value] = None  # a bound in terms of itself is none
            self.known[value] = self.find(value)
        return self.known[value]

    def find(self, value: Value) -> Bounds | None:
        owner = value.owner
        if value.type != I64:
            return None
        if isinstance(owner, Instr):
            match owner.op:
                case "dim":
                    return Bounds(ZERO, None, True)
                case "mod":
                    return self.remainder(owner.operands[1])
                case "floordiv":
                    return self.quotient(*owner.operands)
            return None
        region = owner.region
        if region is not None and isinstance(region.parent, Instr) and owner is region.entry:
            return self.index(value, owner, region.parent)
        return self.counter(value, owner) if region is not None and owner is not region.entry else None

    def index(self, value: Value, entry: Block, holder: Instr) -> Bounds:
        return Bounds(ZERO, self.form(extents(holder)[entry.params.index(value)]).plus(ONE, -1), True)

    def remainder(self, divisor: Value) -> Bounds | None:
        high = self.form(divisor).plus(ONE, -1)
        return Bounds(ZERO, high, all(self.is_small(a) for a, _ in high.terms)) if self.not_negative(high) else None

    def quotient(self, dividend: Value, divisor: Value) -> Bounds | None:
        c = const_of(divisor)
        if not isinstance(c, int) or c <= 0:
            return None
        form = self.form(dividend)
        low = ZERO if self.not_negative(form) else None
        below = self.least(ZERO.plus(form, -1))
        high = ZERO.plus(below, -1) if below is not None else form
        if all(k % c == 0 for _, k in high.terms):
            high = Linear(tuple((a, k // c) for a, k in high.terms), high.constant // c)
        elif low is None:
            return None
        return Bounds(low, high, low is not None and all(self.is_small(a) for a, _ in high.terms))

    def counter(self, value: Value, header: Block) -> Bounds | None:
        """A loop's counter, seen from the body: it starts at lo, adds 1 on every way back to the header, and the header goes
        on into the body only if it is below hi.
        """
        t = header.terminator
        if t.op != "branch" or not isinstance(t.own[0].owner, Instr) or header.region is None:
            return None
        test, body = t.own[0].owner, t.targets[0]
        if test.op != "lt" or test.operands[0] is not value or not self.facts.dominates(body, self.at):
            return None
        into = edges_into(header.region)
        if len(into[body]) != 1:
            return None
        low: Linear | None = None
        k = header.params.index(value)
        for source, edge in into[header]:
            passed = source.terminator.args(edge)[k]
            if self.facts.dominates(body, source):
                if linear(passed) != Linear(((value, 1),), 1):
                    return None
            elif low is not None:
                return None
            else:
                low = self.form(passed)
        if low is None:
            return None
        return Bounds(low, self.form(test.operands[1]).plus(ONE, -1), all(self.is_small(a) for a, _ in low.terms))


def linear(value: Value, limit: int = DEPTH) -> Linear:
    """The linear form of an `i64`, as if nothing wrapped."""
    known = const_of(value)
    if known is not None and value.type == I64:
        return Linear((), int(known))
    owner = value.owner
    if isinstance(owner, Instr) and limit and value.type == I64:
        parts = [linear(v, limit - 1) for v in owner.operands] if owner.op in ("add", "sub", "neg", "mul") else []
        match owner.op:
            case "add":
                return parts[0].plus(parts[1])
            case "sub":
                return parts[0].plus(parts[1], -1)
            case "neg":
                return ZERO.plus(parts[0], -1)
            case "mul" if not parts[1].terms:
                return ZERO.plus(parts[0], parts[1].constant)
            case "mul" if not parts[0].terms:
                return ZERO.plus(parts[1], parts[0].constant)
    return itself(value)


def holders(at: Block) -> Iterator[Instr]:
    """The instructions whose regions are around a block, inner ones first."""
    region = at.region
    while region is not None and isinstance(region.parent, Instr):
        yield region.parent
        region = region.parent.block.region if region.parent.block is not None else None


def extents(holder: Instr) -> list[Value]:
    """The extents of a region's indices. While the region runs they are positive, so an extent `max(n, 0)` is `n`."""
    found = list(holder.operands[len(holder.operands) - len(holder.regions[0].entry.params) :])
    for k, extent in enumerate(found):
        if isinstance(extent.owner, Instr) and extent.owner.op == "max":
            a, b = extent.owner.operands
            found[k] = a if const_of(b) == 0 else b if const_of(a) == 0 else extent
    return found


def is_extent(value: Value) -> bool:
    return isinstance(value.owner, Instr) and value.owner.op == "dim"


def depth(value: Value) -> int:
    """How many regions are around the definition of a value."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.block
    count = 0
    while block is not None and block.region is not None and isinstance(block.region.parent, Instr):
        count += 1
        block = block.region.parent.block
    return count

"""What is known of integers without running the program: linear forms, and proofs that they are not negative.

A value is seen as a sum of atoms with integer coefficients and a constant (`form`); a value whose arithmetic may wrap is an
atom itself (`opt/ranges.py` says whether it may). A question such as `i < n` asks whether a form, `n - 1 - i`, is never
negative at a place. It is not if the ranges of its atoms say so. Otherwise an atom is taken out of it with the help of a
fact, another form that is never negative there:

  conditions     what branches on the way and checks that passed say (`opt/conditions.py`); of `i != n` once `i <= n` is proved
  definitions    max(a, b) >= a    a % n <= n - 1    4 * (a // 4) <= a    a & m <= m    and the like
  indices        i <= n - 1 in a region over n; where a region runs, its extents are positive
  loops          a counter that only grows is never below its start; two counters keep in step; a test at the end of a loop that
                 holds on entry holds in every iteration

    n - 1 - (j - 1) >= 0  where n > i in the loop around, and j comes from i and goes down:
    n - j   minus the fact  i - j >= 0   leaves  n - i,   minus the fact  n - i - 1 >= 0   leaves  1

That is Fourier and Motzkin's elimination, led by the goal: each step subtracts a multiple of one fact, so that one atom
falls out; the search is bounded in depth and in steps. A parameter where paths meet, and a `select`, are proved for each side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from tlc.frontend.types import Elem
from tlc.opt.conditions import END, OPPOSITE, Condition, Conditions, Place, comparisons
from tlc.opt.ranges import WHOLE, Range, Ranges, fits, stride
from tlc.ssa.dominance import Dominance
from tlc.ssa.ir import Block, Instr, Region, Value, const_of

STEPS = 80  # facts that one proof may try
DEPTH = 5  # facts that may stand on one another in a proof
TERMS = 6  # atoms that a form in a proof may have
LARGEST = 1 << 70  # the greatest number in a form
LOOK = 8  # ops that a form is looked through


class Linear:
    """`constant + sum of coefficient * atom`; coefficients are not zero. Immutable."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[Value, int], constant: int) -> None:
        self.terms = terms
        self.constant = constant

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        out = dict(self.terms)
        for atom, c in other.terms.items():
            total = out.get(atom, 0) + factor * c
            if total:
                out[atom] = total
            else:
                del out[atom]
        return Linear(out, self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        return Linear({a: factor * c for a, c in self.terms.items()}, factor * self.constant) if factor else ZERO

    def more(self, constant: int) -> Linear:
        return Linear(self.terms, self.constant + constant)

    @property
    def key(self) -> tuple[frozenset[tuple[Value, int]], int]:
        return frozenset(self.terms.items()), self.constant

    def __repr__(self) -> str:
        return " + ".join([str(self.constant), *(f"{c}*%{a.name}" for a, c in self.terms.items())])


ZERO = Linear({}, 0)


def itself(value: Value) -> Linear:
    return Linear({value: 1}, 0)


# What a comparison says: these forms are >= 0.
COMPARISONS: dict[str, Callable[[Linear, Linear], list[Linear]]] = {
    "le": lambda x, y: [y.plus(x, -1)],
    "ge": lambda x, y: [x.plus(y, -1)],
    "lt": lambda x, y: [y.plus(x, -1).more(-1)],
    "gt": lambda x, y: [x.plus(y, -1).more(-1)],
    "eq": lambda x, y: [x.plus(y, -1), y.plus(x, -1)],
}


class Facts:
    """Facts about one function; a snapshot. `forget` after instructions moved between blocks. `assumed`: see `Ranges`."""

    def __init__(self, assumed: frozenset[Value] = frozenset()) -> None:
        self.conditions = Conditions()
        self.assumed = assumed
        self._heights: dict[Block, int] = {}
        self.forget()

    def forget(self) -> None:
        """Let go of what was found out about values; the graph of blocks is still the same."""
        self.ranges = Ranges(self.conditions, self.assumed)
        self._forms: dict[Value, Linear] = {}
        self._definitions: dict[Value, list[Linear]] = {}
        self._loops: dict[Value, list[Linear]] = {}
        self._told: dict[Condition, list[Linear]] = {}
        self._tests: dict[Block, list[Linear]] = {}
        self._asking: set[Value] = set()

    # ------------------------------------------------------------ questions

    def holds(self, cond: Value, at: Block | Instr | Place) -> bool:
        """Whether a bool is proved to be true whenever control comes to a block, or to an instruction."""
        return self._proved(cond, True, self.place(at))

    def decided(self, cond: Value, at: Block | Instr | Place) -> bool | None:
        """The value that a bool is proved to have there; None if neither is proved."""
        place = self.place(at)
        known = self.ranges.at(cond, place)
        if known is not None and known[0] == known[1]:
            return bool(known[0])
        return True if self._proved(cond, True, place) else False if self._proved(cond, False, place) else None

    def within(self, index: Value, extent: Value | int, at: Block | Instr | Place) -> bool:
        """Whether `0 <= index < extent` is proved there."""
        place, form = self.place(at), self.form(index)
        last = (Linear({}, extent) if isinstance(extent, int) else self.form(extent)).more(-1)
        return self.proved(form, place) and self.proved(last.plus(form, -1), place)

    def proved(self, form: Linear, place: Place) -> bool:
        """Whether a form is never negative at a place."""
        return Proof(self, place).not_negative(form)

    def place(self, at: Block | Instr | Place) -> Place:
        """A place; of a block its beginning, of an instruction what is before it."""
        return at if isinstance(at, tuple) else self.conditions.before(at) if isinstance(at, Instr) else (at, 0)

    def height(self, value: Value) -> int:
        """Rank of an atom in the search: what is defined inside and below comes first."""
        block = value.block
        if block is None or block.region is None:
            return 0  # in the making
        if block not in self._heights:
            around = sum(1 for _ in holders(block))
            for k, b in enumerate(block.region.blocks):
                self._heights[b] = around * 1_000_000 + 2 * k
        return self._heights[block] + isinstance(value.owner, Instr)

    def tree(self, region: Region) -> Dominance:
        return self.conditions.tree(region)

    def dominates(self, a: Block, b: Block) -> bool:
        """Whether every way to b leads through a; b may lie in a region inside a's."""
        return self.conditions.holds_from((a, 0), (b, 0))

    def _proved(self, cond: Value, truth: bool, place: Place) -> bool:
        known = const_of(cond)
        if known is not None:
            return known is truth
        if self.ranges.at(cond, place) == (int(truth), int(truth)):
            return True
        owner = cond.owner
        if not isinstance(owner, Instr):
            return False
        if owner.op == "not" and cond.type.elem is Elem.BOOL:
            return self._proved(owner.operands[0], not truth, place)
        if owner.op in ("and", "or") and cond.type.elem is Elem.BOOL:
            every = all if (owner.op == "and") is truth else any
            return every(self._proved(v, truth, place) for v in owner.operands)
        if owner.op not in OPPOSITE or not owner.operands[0].type.elem.is_int:
            return False
        op = owner.op if truth else OPPOSITE[owner.op]
        x, y = map(self.form, owner.operands)
        if op == "ne":
            return any(self.proved(f, place) for way in ("lt", "gt") for f in COMPARISONS[way](x, y))
        return all(self.proved(f, place) for f in COMPARISONS[op](x, y))

    # ------------------------------------------------------------ forms

    def form(self, value: Value, limit: int = LOOK) -> Linear:
        """The linear form of an integer, or the value itself where the arithmetic may wrap."""
        if value not in self._forms:
            found = self._form(value, limit) if limit else itself(value)
            if not limit:
                return found  # seen from elsewhere there may be more to see
            self._forms[value] = found
        return self._forms[value]

    def _form(self, value: Value, limit: int) -> Linear:
        known = const_of(value)
        if known is not None:
            return Linear({}, int(known)) if value.type.elem.is_int else itself(value)
        owner = value.owner
        if not isinstance(owner, Instr) or value.type.rank or not value.type.elem.is_int:
            return itself(value)
        match owner.op:
            case "add" | "sub" | "neg" | "mul" | "shl" if self.ranges.exact(owner):
                parts = [self.form(v, limit - 1) for v in owner.operands]
                return _combined(owner.op, parts) or itself(value)
            case "convert" if owner.operands[0].type.elem.is_int and self.ranges.exact(owner):
                return self.form(owner.operands[0], limit - 1)
            case "max" | "min":
                chosen = self._chosen(owner)
                if chosen is not None:
                    return self.form(chosen, limit - 1)
            case "select":
                known_cond = self.ranges.at(owner.operands[0], self.conditions.before(owner))
                if known_cond in ((0, 0), (1, 1)):
                    return self.form(owner.operands[1 if known_cond == (1, 1) else 2], limit - 1)
        return itself(value)

    def _chosen(self, owner: Instr) -> Value | None:
        """The operand that a `max` or `min` always is, by their ranges."""
        place = self.conditions.before(owner)
        for v, w in (owner.operands, owner.operands[::-1]):
            a, b = self.ranges.at(v, place), self.ranges.at(w, place)
            if a is not None and b is not None and (a[0] >= b[1] if owner.op == "max" else a[1] <= b[0]):
                return v
        return None

    # ------------------------------------------------------------ facts

    def about(self, atom: Value, place: Place) -> Iterator[Linear]:
        """Forms with the atom in them that are never negative at a place: loops, definitions, conditions."""
        yield from self.conditional(atom, place)
        yield from self.definition(atom)
        yield from self.loop(atom)

    def conditional(self, atom: Value, place: Place) -> Iterator[Linear]:
        for c in self.conditions.about(atom, place):
            for form in self.told(c):
                if atom in form.terms:
                    yield form
            if c.op == "ne":
                difference = self.form(c.a).plus(self.form(c.b), -1)
                if atom in difference.terms and atom not in self._asking:
                    self._asking.add(atom)
                    for side in (difference, difference.times(-1)):
                        if self.proved(side, place):
                            yield side.more(-1)
                    self._asking.discard(atom)
        owner = atom.owner
        if isinstance(owner, Block) and (holder := _holder(owner)) is not None:
            yield self.form(extents(holder)[owner.params.index(atom)]).plus(itself(atom), -1).more(-1)
        for holder in holders(place[0]):
            for extent in extents(holder):
                form = self.form(extent)
                if atom in form.terms:
                    yield form.more(-1)

    def told(self, c: Condition) -> list[Linear]:
        """What a condition says as forms."""
        if c not in self._told:
            found: list[Linear] = []
            self._told[c] = found
            if c.op in COMPARISONS:
                found += COMPARISONS[c.op](self.form(c.a), self.form(c.b))
                if c.op == "lt" and isinstance(c.b.owner, Instr):
                    found += self._below(c.a, c.b.owner, c.place)
        return self._told[c]

    def _below(self, a: Value, bound: Instr, place: Place) -> Iterator[Linear]:
        """What `a < bound` says beyond itself."""
        low = self.ranges.at(a, place)
        if low is None:
            return
        match bound.op:
            case "max":
                for x, y in (bound.operands, bound.operands[::-1]):
                    least = const_of(y)
                    if isinstance(least, int) and low[0] >= least:  # a < max(x, y) and not a < y
                        yield from COMPARISONS["lt"](self.form(a), self.form(x))
            case "iterations" if low[0] >= 0:
                first, last, step = bound.operands
                by, ends = const_of(step), [self.ranges.at(v, place) for v in (first, last)]
                if isinstance(by, int) and by and ends[0] is not None and ends[1] is not None:
                    whole = WHOLE[Elem.I64]
                    if fits((ends[1][0] - ends[0][1], ends[1][1] - ends[0][0]), whole):  # first + a * by is a number of the range
                        at = self.form(first).plus(self.form(a), by)
                        yield from COMPARISONS["lt" if by > 0 else "gt"](at, self.form(last))

    def definition(self, atom: Value) -> list[Linear]:
        """What the op that computes an atom says of it."""
        if atom not in self._definitions:
            self._definitions[atom] = []  # a fact that rests on itself is none
            owner = atom.owner
            if isinstance(owner, Instr) and owner.op in _DEFINITIONS and not any(v.type.rank for v in owner.operands):
                self._definitions[atom] = [f for f in _DEFINITIONS[owner.op](self, owner) if atom in f.terms]
        return self._definitions[atom]

    def loop(self, atom: Value) -> list[Linear]:
        """What a loop says of a parameter of its header: the sides on which it never passes what it began with, and counters in step."""
        if atom not in self._loops:
            self._loops[atom] = []
            owner = atom.owner
            if isinstance(owner, Block) and owner.region is not None and owner is not owner.region.entry and atom.type.elem.is_int:
                self._loops[atom] = self._looped(atom, owner)
        return self._loops[atom]

    def _looped(self, atom: Value, header: Block) -> list[Linear]:
        k, here = header.params.index(atom), itself(atom)
        start, back = self._ways(header)
        if start is None or not back:
            return []
        first = self.form(start[k])
        steps = [(self.form(args[k]).plus(here, -1), place) for args, place in back]
        found: list[Linear] = []
        if all(self.proved(step, place) for step, place in steps):
            found.append(here.plus(first, -1))
        if all(self.proved(step.times(-1), place) for step, place in steps):
            found.append(first.plus(here, -1))
        found += [f for f in self._tested(header) if atom in f.terms]
        stride = _constant_step([step for step, _ in steps])
        if stride:
            for other, begin in zip(header.params, start, strict=True):
                if other is atom or other.type != atom.type:
                    continue
                j = header.params.index(other)
                by = _constant_step([self.form(args[j]).plus(itself(other), -1) for args, _ in back])
                if by and begin is not atom:  # by * (atom - first) = stride * (other - begin)
                    same = here.plus(first, -1).times(by).plus(itself(other).plus(self.form(begin), -1), -stride)
                    found += [same, same.times(-1)]
        return found

    def _tested(self, header: Block) -> list[Linear]:
        """What a loop with its test at the end says of its header's parameters: the test of the one way back, if it holds on entry too."""
        if header not in self._tests:
            self._tests[header] = []
            self._tests[header] = list(self._test_at_end(header))
        return self._tests[header]

    def _test_at_end(self, header: Block) -> Iterator[Linear]:
        assert header.region is not None
        tree = self.tree(header.region)
        edges = self.conditions.into(header)
        back = [(s, e) for s, e in edges if tree.dominates(header, s)]
        if len(back) != 1 or back[0][0].terminator.op != "branch":
            return
        latch, edge = back[0]
        params = {a: p for a, p in zip(latch.terminator.args(edge), header.params, strict=True) if const_of(a) is None}
        for op, a, b in comparisons(latch.terminator.own[0], edge == 0):
            sides = [params.get(v, v) for v in (a, b)]
            if op not in COMPARISONS or not all(self._stands_outside(v, header) for v in sides):
                continue
            forms = COMPARISONS[op](*map(self._side, sides))
            for source, e in edges:
                if source is not latch:
                    given = dict(zip(header.params, source.terminator.args(e), strict=True))
                    entering = [_replaced(f, {p: self.form(given[p]) for p in f.terms if p in given}) for f in forms]
                    if not all(self.proved(f, (source, END)) for f in entering):
                        break
            else:
                yield from forms

    def _side(self, value: Value) -> Linear:
        known = const_of(value)
        return itself(value) if known is None else Linear({}, int(known))

    def _stands_outside(self, value: Value, header: Block) -> bool:
        """Whether a value is a parameter of the header or the same in all iterations."""
        if const_of(value) is not None:
            return True
        home = value.block
        return value.owner is header or (home is not None and home is not header and self.dominates(home, header))

    def _ways(self, header: Block) -> tuple[tuple[Value, ...] | None, list[tuple[tuple[Value, ...], Place]]]:
        """What a loop is entered with (None if there are several entries), and what its back edges pass."""
        assert header.region is not None
        tree = self.tree(header.region)
        start: list[tuple[Value, ...]] = []
        back: list[tuple[tuple[Value, ...], Place]] = []
        for source, edge in self.conditions.into(header):
            args = source.terminator.args(edge)
            if tree.dominates(header, source):
                back.append((args, (source, END)))
            else:
                start.append(args)
        return (start[0] if len(start) == 1 else None), back


class Proof:
    """A proof at one place. `accept` is shown every form that is left when facts are used up or too many, and every one on the way:
    it may note those that would do if they were tested (`opt/loop_checks.py`).
    """

    def __init__(self, facts: Facts, place: Place, accept: Callable[[Linear], bool] = lambda form: False) -> None:
        self.facts = facts
        self.place = place
        self.accept = accept
        self.steps = STEPS
        self.tried: set[object] = set()

    def not_negative(self, form: Linear) -> bool:
        return self._prove(form, self.place, DEPTH)

    def _prove(self, goal: Linear, place: Place, depth: int) -> bool:
        if self._bounded(goal, place) or self.accept(goal):
            return True
        key = (goal.key, place)
        if not depth or self.steps <= 0 or len(goal.terms) > TERMS or key in self.tried or abs(goal.constant) > LARGEST:
            return False
        self.tried.add(key)
        for atom in sorted(goal.terms, key=self.facts.height, reverse=True):
            for fact in self.facts.about(atom, place):
                rest = _without(goal, atom, fact)
                if rest is None:
                    continue
                self.steps -= 1
                if self._prove(rest, place, depth - 1):
                    return True
                if self.steps <= 0:
                    return False
            if self._by_sides(goal, atom, place, depth - 1):
                return True
        return False

    def _bounded(self, goal: Linear, place: Place) -> bool:
        """Whether the ranges of the atoms alone say so."""
        least = goal.constant
        for atom, c in goal.terms.items():
            r: Range | None = self.facts.ranges.at(atom, place)
            if r is None:
                return False
            least += c * (r[0] if c > 0 else r[1])
        return least >= 0

    def _by_sides(self, goal: Linear, atom: Value, place: Place, depth: int) -> bool:
        """A proof for each value that a parameter where paths meet, a `select`, `max` or `min` may have."""
        owner = atom.owner
        if isinstance(owner, Instr):
            sides = {"select": owner.operands[1:], "max": owner.operands, "min": owner.operands}.get(owner.op, ())
            return bool(sides) and all(self._prove(_replaced(goal, {atom: self.facts.form(v)}), place, depth) for v in sides)
        region = owner.region
        if region is None or owner is region.entry:
            return False
        tree = self.facts.tree(region)
        edges = self.facts.conditions.into(owner)
        if len(edges) > 3 or any(tree.dominates(owner, source) for source, _ in edges):
            return False
        if not all(self._stands_before(a, owner) for a in goal.terms):
            return False
        for source, edge in edges:
            args = source.terminator.args(edge)
            by = {p: self.facts.form(args[k]) for k, p in enumerate(owner.params) if p in goal.terms}
            if not self._prove(_replaced(goal, by), (source, END), depth):
                return False
        return True

    def _stands_before(self, atom: Value, block: Block) -> bool:
        """Whether an atom has one value on all the edges into a block and in it."""
        if isinstance(atom.owner, Block):
            return self.facts.dominates(atom.owner, block)
        home = atom.owner.block
        return home is not None and home is not block and self.facts.dominates(home, block)


def _without(goal: Linear, atom: Value, fact: Linear) -> Linear | None:
    """The goal less a multiple of the fact so that the atom falls out; None if the fact pulls the other way.

    Where the goal has to be multiplied for that, `k * goal >= 1 - k` is enough: the goal is a whole number.
    """
    g, f = goal.terms[atom], fact.terms[atom]
    if (g > 0) != (f > 0):
        return None
    common = gcd(g, f)
    k, m = abs(f) // common, abs(g) // common
    return goal.times(k).more(k - 1).plus(fact, -m) if k > 1 else goal.plus(fact, -m)


def _replaced(form: Linear, by: dict[Value, Linear]) -> Linear:
    out = Linear({a: c for a, c in form.terms.items() if a not in by}, form.constant)
    for atom, other in by.items():
        out = out.plus(other, form.terms[atom])
    return out


def _combined(op: str, parts: list[Linear]) -> Linear | None:
    match op:
        case "add":
            return parts[0].plus(parts[1])
        case "sub":
            return parts[0].plus(parts[1], -1)
        case "neg":
            return parts[0].times(-1)
        case "mul" if not parts[1].terms:
            return parts[0].times(parts[1].constant)
        case "mul" if not parts[0].terms:
            return parts[1].times(parts[0].constant)
        case "shl" if not parts[1].terms and 0 <= parts[1].constant < 64:
            return parts[0].times(1 << parts[1].constant)
    return None


def _constant_step(steps: list[Linear]) -> int:
    """The constant that all of these are; 0 if they are none."""
    return steps[0].constant if not any(s.terms for s in steps) and len({s.constant for s in steps}) == 1 else 0


# ---------------------------------------------------------------- definitions


def _quotient(facts: Facts, quotient: Linear, a: Value, c: int) -> list[Linear]:
    """c * q <= a <= c * q + c - 1."""
    scaled, dividend = quotient.times(c), facts.form(a)
    return [dividend.plus(scaled, -1), scaled.more(c - 1).plus(dividend, -1)]


def _floordiv(facts: Facts, owner: Instr) -> list[Linear]:
    a, b = owner.operands
    here = itself(owner.result)
    divisor, place = facts.ranges.at(b, facts.conditions.before(owner)), facts.conditions.before(owner)
    if divisor is None or divisor[0] <= 0:
        return []
    if divisor[0] == divisor[1]:
        return _quotient(facts, here, a, divisor[0])
    dividend = facts.ranges.at(a, place)
    return [facts.form(a).plus(here, -1)] if dividend is not None and dividend[0] >= 0 else []


def _mod(facts: Facts, owner: Instr) -> list[Linear]:
    a, b = owner.operands
    here, place = itself(owner.result), facts.conditions.before(owner)
    found: list[Linear] = []
    last = facts.form(b).more(-1)
    if facts.proved(last, place):
        found += [last.plus(here, -1), here]
        dividend = facts.ranges.at(a, place)
        if dividend is not None and dividend[0] >= 0:
            found.append(facts.form(a).plus(here, -1))
    return found


def _shr(facts: Facts, owner: Instr) -> list[Linear]:
    a, b = owner.operands
    by = const_of(b)
    whole = WHOLE[owner.result.type.elem]
    if not isinstance(by, int) or not 0 <= by < (whole[1] - whole[0]).bit_length():
        return []
    return _quotient(facts, itself(owner.result), a, 1 << by)


def _and(facts: Facts, owner: Instr) -> list[Linear]:
    found = []
    for v in owner.operands:
        mask = facts.ranges.at(v, facts.conditions.before(owner))
        if owner.result.type.elem.is_int and mask is not None and mask[0] >= 0:
            found.append(facts.form(v).plus(itself(owner.result), -1))
    return found


def _max(facts: Facts, owner: Instr) -> list[Linear]:
    return [itself(owner.result).plus(facts.form(v), -1) for v in owner.operands] if owner.result.type.elem.is_int else []


def _min(facts: Facts, owner: Instr) -> list[Linear]:
    return [facts.form(v).plus(itself(owner.result), -1) for v in owner.operands] if owner.result.type.elem.is_int else []


def _mul(facts: Facts, owner: Instr) -> list[Linear]:
    """a * b >= a where a >= 0 and b >= 1 (or b is a); of the numbers of a range by steps, how far they go from the first."""
    place, here = facts.conditions.before(owner), itself(owner.result)
    if not facts.ranges.exact(owner):
        return []
    found = []
    for a, b in (owner.operands, owner.operands[::-1]):
        low, factor = facts.ranges.at(a, place), facts.ranges.at(b, place)
        if low is not None and factor is not None and low[0] >= 0 and (factor[0] >= 1 or a is b):
            found.append(here.plus(facts.form(a), -1))
    strides = stride(owner.result, facts.conditions)
    if strides is not None:
        first, last, step = strides
        way, length = facts.ranges.at(step, place), facts.form(last).plus(facts.form(first), -1)
        if way is not None and way[0] > 0:
            found += [length.more(-1).plus(here, -1), here]
        elif way is not None and way[1] < 0:
            found += [here.plus(length, -1).more(-1), here.times(-1)]
    return found


# What an op says of its result, as forms that are never negative; of other ops the range is all that is known.
_DEFINITIONS: dict[str, Callable[[Facts, Instr], list[Linear]]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "shr": _shr,
    "and": _and,
    "max": _max,
    "min": _min,
    "mul": _mul,
}


# ---------------------------------------------------------------- regions


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


def _holder(block: Block) -> Instr | None:
    """The instruction whose indices a block's parameters are."""
    region = block.region
    return region.parent if region is not None and block is region.entry and isinstance(region.parent, Instr) else None

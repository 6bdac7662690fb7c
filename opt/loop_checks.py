"""Checks leave loops: what holds in the first iteration, or for the whole range of a counter, is tested once before the loop.

Requires host SSA (no regions in its functions) before the memory plan; preserves every value, the order of effects, and where, with which
message and after which output a program stops. The pass itself removes no check: it makes known before the loop what
`checks`, which runs next, needs to prove those inside. For a check in a loop it looks for a proof that gets as far as a
form of values from outside of the loop (`opt/facts.py`): if that is not negative, the check cannot fail in any iteration.

  early      The check is sure to come in the first iteration with nothing but pure ops before it, and the form is what it asks
             there: the check of the first iteration is put before the loop, behind the loop's first test (rotation).

             while low < high { check high < n; ..; low += 1; high -= 1 }         high only falls
             if low < high { check high < n; do { .. } while low < high }

  versions   Otherwise the forms are tested before the loop. If all are not negative the loop runs that needs no checks, else a
             copy of it with all of them, which does what was written, up to the stop. (As in "loop predication" and "versioning".)

             for i in 0..k { check i < n; .. }
             if k <= n { for i in 0..k { .. } } else { for i in 0..k { check i < n; .. } }

Numbers from outside of which nothing is known may make the sums of the loop wrap; then it is tested as well that they are small.

Outer loops come first, as long as a copy is not too large: a test outside is cheaper than one before each inner loop.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.opt.checks import conjuncts
from tlc.opt.conditions import END, Place
from tlc.opt.facts import COMPARISONS, Facts, Linear, Proof
from tlc.opt.licm import hoist_scalars
from tlc.opt.loop_shape import copy_loop, definitions, enter_by_one_block, is_outside, may_rotate, region_of, rotate
from tlc.opt.ranges import EXTENT, WHOLE, fits
from tlc.ssa.clone import clone_instr
from tlc.ssa.ir import BOOL, I64, Block, Function, Instr, Module, Value, branch, const_of, jump
from tlc.ssa.loops import Loop, loops
from tlc.ssa.ops import effect
from tlc.ssa.repair import rejoin

LIMIT = 120  # instructions of a loop that gets two versions
TESTS = 8  # forms that are tested before a loop
WIDE = 3  # numbers that are tested to be small
_ARITHMETIC = ("add", "sub", "mul", "neg", "lt", "le", "gt", "ge")


def loop_checks(module: Module) -> None:
    """Make known before the loops of every function what their checks need."""
    for f in module.functions.values():
        if any(map(_has_check, loops(f.body))):
            hoist_scalars(f, _has_check)  # what a check compares is then a value from outside where it can be
            _function(f)


def _has_check(loop: Loop) -> bool:
    return any(i.op == "check" for b in loop.blocks for i in b.instrs)


def _function(f: Function) -> None:
    done: set[Block] = set()  # latches of loops that were seen to
    copied: set[Instr] = set()  # checks that stand before their loops too
    while True:
        facts = Facts()
        for loop in loops(f.body, facts.tree(f.body)):
            if loop.latches[0] in done or not _has_check(loop):
                continue
            if _Checks(loop, facts, done, copied).run():
                break  # the graph changed
        else:
            return


@dataclass(frozen=True)
class _Need:
    """What a check needs to be known before the loop. `early`: it is what the check itself asks in the first iteration."""

    check: Instr
    forms: tuple[Linear, ...]
    bools: tuple[Value, ...]  # conditions of values from outside
    early: bool


class _Checks:
    def __init__(self, loop: Loop, facts: Facts, done: set[Block], copied: set[Instr]) -> None:
        self.loop, self.facts, self.done, self.copied = loop, facts, done, copied
        self.blocks = set(loop.blocks)

    def run(self) -> bool:
        """Whether something was changed."""
        self.done.add(self.loop.latches[0])
        sure = self.sure_to_come()
        needs = [n for b in self.loop.blocks for i in b.instrs if i.op == "check" and (n := self.need(i, i in sure)) is not None]
        needs = [n for n in needs if n.forms or n.bools]
        early = {n.check for n in needs if n.early and n.check not in self.copied}
        while sure and sure[-1] not in early:
            sure.pop()
        if sure:  # those before them too: the first to fail is still the first
            self.done.discard(self.loop.latches[0])  # come again, with what is known then
            self.copied.update(sure)
            self.put_before(sure)
            return True
        if sum(len(b.instrs) for b in self.loop.blocks) > LIMIT:
            return False
        return self.versions(needs, []) or self.by_assumption(len(needs))

    def by_assumption(self, already: int) -> bool:
        """Try again with numbers from outside taken to be small: that is one more thing to test before the loop."""
        place = self.entrance()
        wide = [v for v in self.read_from_outside() if place is not None and not self.is_narrow(v, place)]
        if not wide or len(wide) > WIDE:
            return False
        left = [i for b in self.loop.blocks for i in b.instrs if i.op == "check" and not self.facts.holds(i.operands[0], i)]
        self.facts = Facts(frozenset(wide))
        needs = [n for i in left if (n := self.need(i, False)) is not None]
        return len(needs) > already and self.versions(needs, wide)

    def read_from_outside(self) -> list[Value]:
        """The `i64` from outside that the loop computes with."""
        operands = [v for b in self.loop.blocks for i in b.instrs if i.op in _ARITHMETIC for v in i.operands]
        return list(dict.fromkeys(v for v in operands if v.type == I64 and const_of(v) is None and is_outside(v, self.blocks)))

    def is_narrow(self, value: Value, place: Place) -> bool:
        r = self.facts.ranges.at(value, place)
        return r is None or fits(r, (-EXTENT, EXTENT))

    # ------------------------------------------------------------ what is needed

    def need(self, check: Instr, sure: bool) -> _Need | None:
        """What a check needs; None if nothing from outside of the loop would do."""
        forms: list[Linear] = []
        bools: list[Value] = []
        early = sure
        place = self.facts.conditions.before(check)
        for cond in conjuncts(check.operands[0]):
            if self.facts.holds(cond, check):
                continue
            goals = self.goals(cond)
            if goals is None:
                owner = cond.owner
                if is_outside(cond, self.blocks) or (isinstance(owner, Instr) and all(is_outside(v, self.blocks) for v in owner.operands)):
                    bools.append(cond)
                    continue
                return None
            for goal in goals:
                rest = self.rest(goal, place)
                if not rest:
                    return None
                early = early and [r.key for r in rest] == [self.first(goal).key]
                forms += rest
        return _Need(check, tuple(forms), tuple(bools), early)

    def goals(self, cond: Value) -> list[Linear] | None:
        """The forms that must not be negative for a condition to hold."""
        owner = cond.owner
        if not isinstance(owner, Instr) or owner.op not in COMPARISONS or not owner.operands[0].type.elem.is_int:
            return None
        return COMPARISONS[owner.op](*map(self.facts.form, owner.operands))

    def rest(self, goal: Linear, place: Place) -> list[Linear]:
        """Forms of values from outside that, not being negative, prove the goal everywhere in the loop; none if there are none."""
        found: list[Linear] = []

        def accept(form: Linear) -> bool:
            if not form.terms or not all(is_outside(v, self.blocks) for v in form.terms) or not all(a.type == I64 for a in form.terms):
                return False
            found.append(form)
            return True

        return found if Proof(self.facts, place, accept).not_negative(goal) else []

    def first(self, form: Linear) -> Linear:
        """What a form is in the first iteration."""
        out = Linear({}, form.constant)
        starts = self.starts()
        for atom, c in form.terms.items():
            out = out.plus(self.facts.form(starts.get(atom, atom)), c)
        return out

    def starts(self) -> dict[Value, Value]:
        outside = [(s, e) for s, e in self.facts.conditions.into(self.loop.header) if s not in self.blocks]
        if len(outside) != 1:
            return {}
        source, edge = outside[0]
        return dict(zip(self.loop.header.params, source.terminator.args(edge), strict=True))

    # ------------------------------------------------------------ early

    def sure_to_come(self) -> list[Instr]:
        """The checks that the first iteration comes to with only pure ops and other such checks before, at most behind the loop's test."""
        found: list[Instr] = []
        for block in (self.loop.header, *self.behind_the_test()):
            for instr in block.instrs:
                if instr.op == "check":
                    found.append(instr)
                elif effect(instr.op) != "none":
                    return found
        return found

    def behind_the_test(self) -> list[Block]:
        inside = [b for b in self.loop.header.terminator.targets if b in self.blocks]
        simple = may_rotate(self.loop) and not inside[0].params and len(self.facts.conditions.into(inside[0])) == 1
        return inside if simple else []

    def put_before(self, checks: list[Instr]) -> None:
        """Copies of checks, with the values of the first iteration, before the loop."""
        copied, values = self.upto(checks), self.starts()
        if may_rotate(self.loop):
            enter = rotate(self.loop)
            body = enter.terminator.targets[0]
            values.update(zip(body.params, enter.terminator.args(0), strict=True))
        else:
            enter = enter_by_one_block(self.loop)
        for instr in copied:
            enter.append(clone_instr(instr, values))

    def upto(self, checks: list[Instr]) -> list[Instr]:
        """The checks and what of the loop they are computed from, in order."""
        wanted: set[Instr] = set(checks)
        work = list(checks)
        while work:
            for v in work.pop().operands:
                owner = v.owner
                if isinstance(owner, Instr) and owner.block in self.blocks and owner not in wanted:
                    wanted.add(owner)
                    work.append(owner)
        return [i for b in self.loop.blocks for i in b.instrs if i in wanted]

    # ------------------------------------------------------------ versions

    def versions(self, needs: list[_Need], wide: list[Value]) -> bool:
        """Make two versions of the loop, if what is needed can be tested. `wide` are numbers that must be small for that."""
        forms = list({form.key: form for n in needs for form in n.forms}.values())
        bools = list(dict.fromkeys(b for n in needs for b in n.bools))
        place = self.entrance()
        if place is None or not needs or len(forms) + len(bools) > TESTS or not all(self.tested(form, place) for form in forms):
            return False
        before, header = enter_by_one_block(self.loop), self.loop.header
        args, span = before.terminator.args(0), before.terminator.span
        blocks, values = copy_loop(self.loop)
        self.done.add(blocks[self.loop.latches[0]])
        self.done.update(blocks[b] for b in self.loop.blocks)  # its inner loops neither
        variables = definitions(self.loop, [(blocks, values)])
        if wide:  # sums are computed where it is known that they do not wrap
            small, between = _Tests(before), Block("small")
            region_of(self.loop).add(between)
            before.terminator = branch(small.all([c for v in wide for c in small.small(v)]), between, blocks[header], (), args, span)
            before = between
            before.terminator = jump(header, args, span)
        tests = _Tests(before, span)
        conds = [tests.form(*self.sides(form, place)) for form in forms] + [tests.again(b, self.blocks) for b in bools]
        if conds:
            before.terminator = branch(tests.all(conds), header, blocks[header], args, args, span)
        rejoin(region_of(self.loop), variables)
        return True

    def entrance(self) -> Place | None:
        outside = [s for s, _ in self.facts.conditions.into(self.loop.header) if s not in self.blocks]
        return (outside[0], END) if len(outside) == 1 else None

    def tested(self, form: Linear, place: Place) -> bool:
        """Whether the form can be tested without wrapping, and may be not negative at all."""
        most = form.constant
        for atom, c in form.terms.items():
            r = self.facts.ranges.at(atom, place)
            if r is None:
                return False
            most += c * (r[1] if c > 0 else r[0])
        more, less, _ = self.sides(form, place)
        return most >= 0 and all(self.fits(side, place) for side in (more, less))

    def fits(self, form: Linear, place: Place) -> bool:
        """Whether no part of a sum of positive multiples leaves i64."""
        low = high = form.constant
        for atom, c in form.terms.items():
            r = self.facts.ranges.at(atom, place)
            if r is None:
                return False
            low, high = low + min(0, c * r[0]), high + max(0, c * r[1])
        return fits((min(low, form.constant), max(high, form.constant)), WHOLE[Elem.I64])

    def sides(self, form: Linear, place: Place) -> tuple[Linear, Linear, bool]:
        """The form as `more >= less`, or `more > less` where that is the same without its constant; coefficients are positive."""
        more = Linear({a: c for a, c in form.terms.items() if c > 0}, 0)
        less = Linear({a: -c for a, c in form.terms.items() if c < 0}, 0)
        constant, strict = (form.constant + 1, True) if form.constant < 0 else (form.constant, False)
        if constant > 0 and self.fits(more.more(constant), place):
            return more.more(constant), less, strict
        if constant:
            return more, less.more(-constant), strict
        return more, less, strict


class _Tests:
    """Computes at the end of a block whether forms are not negative."""

    def __init__(self, block: Block, span: Span | None = None) -> None:
        self.block = block
        self.span = span or block.terminator.span

    def op(self, name: str, a: Value, b: Value, type: object = I64) -> Value:
        return self.block.append(Instr(name, (a, b), (BOOL if type is BOOL else I64,), {}, (), self.span)).result

    def constant(self, value: int) -> Value:
        return self.block.append(Instr("const", (), (I64,), {"value": value}, (), self.span)).result

    def sum(self, form: Linear) -> Value:
        total: Value | None = None
        for atom, c in form.terms.items():
            part = atom if c == 1 else self.op("mul", atom, self.constant(c))
            total = part if total is None else self.op("add", total, part)
        if total is None:
            return self.constant(form.constant)
        return self.op("add", total, self.constant(form.constant)) if form.constant else total

    def form(self, more: Linear, less: Linear, strict: bool) -> Value:
        return self.op("gt" if strict else "ge", self.sum(more), self.sum(less), BOOL)

    def all(self, conds: list[Value]) -> Value:
        total = conds[0]
        for c in conds[1:]:
            total = self.op("and", total, c, BOOL)
        return total

    def small(self, value: Value) -> list[Value]:
        """Whether a number is as small as an extent."""
        return [self.op("ge", value, self.constant(-EXTENT), BOOL), self.op("le", value, self.constant(EXTENT), BOOL)]

    def again(self, cond: Value, blocks: set[Block]) -> Value:
        """A condition of the loop that is made of values from outside, computed here."""
        if isinstance(cond.owner, Instr) and cond.owner.block in blocks:
            values: dict[Value, Value] = {}
            for v in cond.owner.operands:
                if isinstance(v.owner, Instr) and v.owner.block in blocks:  # a constant
                    values[v] = self.block.append(clone_instr(v.owner, {})).result
            return self.block.append(clone_instr(cond.owner, values)).result
        return cond

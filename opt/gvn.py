"""Global value numbering: values that are equal on every run of the program become one value, conditions that are known become constants.

Requires SSA; preserves the graph of blocks and the order of effects. What has regions is not looked into and not shared (`opt/cse.py` does
that, before the tensor stage), so this pass is for what is left to the host.

Numbering is optimistic (Click, "Global code motion, global value numbering", 1995; the sweeps are Simpson's, 1996): all values are
assumed equal to whatever they look like, and sweeps in reverse postorder split them until nothing changes. A sweep begins
with an empty table from keys to values; the first value with a key gives its number to all that have the same key.

  an op            op, attributes, type, numbers of the operands; commutative operands in one order, `a > b` as `b < a`
  a parameter      the number of what it is given, if all edges agree (edges not seen yet agree with everything), else its
                   block and the numbers that the edges give; so two counters that run alike are one
  load of a store  `load (store %x, %i, %v), %i` is `%v`; beside the store, `load (store %x, %i, %v), %j` with i - j a constant that is not
                   zero has the number of `load %x, %j`
  stop_grad        that of its operand

Then a walk down the dominator tree (Briggs, Cooper and Simpson, 1997) replaces each value by one with its number that is there already. No
tensor is read later than it was: an element is taken from an earlier `load` or from what was stored, never from a tensor that
something wrote over since, which would cost a copy. What makes a tensor (`store`) is not shared for the same reason.

The walk also knows what branches and checks on the way decided, by numbers and with the opposite of each comparison, and gives
a later `check` that must hold away, and a `branch` or `select` its constant:

    entry:  %p = eq %b, %0                              entry:  %p = eq %b, %0
            branch %p, done, more                               branch %p, done, more
    more:   %q = ne %b, %0                      ->      more:   %r = mod %a, %b
            check %q;  %r = mod %a, %b                          %y = store %x, %i, %r
            %y = store %x, %i, %r;  %s = load %y, %i            (%s is %r)
"""

from __future__ import annotations

from tlc.frontend.ops import COMPARISONS, SCALAR_OPS, bits
from tlc.frontend.records import dataclass
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.dominance import dominance
from tlc.ssa.edit import edges_into, remove_params
from tlc.ssa.ir import BOOL, Block, Function, Instr, Module, Region, Value, const_of, drop

Key = tuple[object, ...]

NUMBERED = {*SCALAR_OPS, "const", "load", "dim", "format"}
MIRRORED = {"gt": "lt", "ge": "le"}  # a > b is b < a
CHAIN = 16  # stores that a load may be looked through
SWEEPS = 8  # afterwards loads are not looked through; after four times as many the function stays as it is (two or three are usual)

_COMMUTATIVE = {name for name, row in SCALAR_OPS.items() if row.commutative}


def gvn(module: Module) -> None:
    """Number the values of every function's own blocks, and replace what is there already."""
    for f in module.functions.values():
        numbers = _Numbers(f.body)
        numbers.solve()
        _Replace(f, numbers).run()


class _Numbers:
    """The numbers of the values of one region; a value of a region around has its own."""

    def __init__(self, region: Region) -> None:
        self.order = reverse_postorder(region)
        self.into = edges_into(region)
        place = {b: k for k, b in enumerate(self.order)}
        self.cyclic = any(place[t] <= place[b] for b in self.order for t in b.terminator.targets)
        self.numbers: dict[Value, int] = {}
        self.offsets: dict[int, tuple[int, int]] = {}  # of a sum with a constant: the number of the rest, the constant
        self.constants: dict[int, int] = {}  # the numbers that are integer constants
        self.ids: dict[Value, int] = {}  # the number that a value has if it is the first with its key
        self.heads: dict[Instr, tuple[object, ...]] = {}  # the part of a key that no number changes
        self.forward = True  # whether loads are looked through stores

    def solve(self) -> None:
        for count in range(4 * SWEEPS):
            self.forward = count < SWEEPS
            if not self.sweep():
                return
        self.numbers.clear()  # each value has its own number: right, and of no use

    def sweep(self) -> bool:
        """Number everything once more; whether that has to be repeated."""
        table: dict[Key, int] = {}
        self.offsets = {}
        numbers, changed, first = self.numbers, False, not self.numbers
        for block in self.order:
            if block is not self.order[0]:
                for k, p in enumerate(block.params):
                    new = self.param(block, k, p, table)
                    if numbers.get(p) != new:
                        numbers[p] = new
                        changed = True
            for instr in block.instrs:
                if len(instr.results) == 1:
                    v = instr.results[0]
                    new = self.instr(instr, v, table)
                    if numbers.get(v) != new:
                        numbers[v] = new
                        changed = True
        return changed and not (first and not self.cyclic)

    def own(self, value: Value) -> int:
        return self.ids.setdefault(value, len(self.ids))

    def of(self, value: Value) -> int:
        """The number of a value; what was not numbered (results of calls, parameters of the entry) has its own."""
        number = self.numbers.get(value)
        return self.own(value) if number is None else number

    def param(self, block: Block, k: int, p: Value, table: dict[Key, int]) -> int:
        given: list[int | None] = []
        for source, edge in self.into[block]:
            v = source.terminator.args(edge)[k]
            number = self.numbers.get(v)
            if number is None and self.is_fixed(v):
                number = self.own(v)
            given.append(number)
        known = {n for n in given if n is not None}
        if len(known) == 1:
            return known.pop()
        return table.setdefault(("param", block, *given), self.own(p))

    def is_fixed(self, v: Value) -> bool:
        """Whether a value has its own number from the start."""
        owner = v.owner
        if isinstance(owner, Instr):
            return len(owner.results) != 1 or owner.block is None or owner.block.region is not self.order[0].region
        return owner is self.order[0] or owner.region is not self.order[0].region

    def instr(self, instr: Instr, v: Value, table: dict[Key, int]) -> int:
        op = instr.op
        if op == "stop_grad":
            return self.of(instr.operands[0])
        if op not in NUMBERED:
            return self.own(v)
        if op == "load":
            return self.load(self.walk_up(instr.operands[0], instr.operands[1]), instr, table)
        head = self.heads.get(instr)
        if head is None:
            head = self.heads[instr] = _head(instr)
        if op == "const":
            number = table.setdefault(head, self.own(v))
            value = instr.attrs["value"]
            if isinstance(value, int):
                self.constants[number] = value
            return number
        operands = [self.of(x) for x in instr.operands]
        if op == "dim":
            operands = [self.of(shaped_like(instr.operands[0]))]
        elif op in MIRRORED or (op in _COMMUTATIVE and operands[0] > operands[1]):
            operands.reverse()
        number = table.setdefault((*head, *operands), self.own(v))
        if op in ("add", "sub"):
            self.note_offset(instr, number)
        return number

    def note_offset(self, instr: Instr, number: int) -> None:
        a, b = (self.of(x) for x in instr.operands)
        if instr.op == "add" and a in self.constants:
            a, b = b, a
        if b in self.constants:
            rest, more = self.offsets.get(a, (a, 0))
            c = self.constants[b]
            self.offsets[number] = rest, more + (c if instr.op == "add" else -c)

    # ------------------------------------------------------------ elements

    def walk_up(self, x: Value, place: Value) -> tuple[Value, Value | None]:
        """The earliest tensor that has the same element at a place, and the value stored there where that is known."""
        at = self.of(place)
        for _ in range(CHAIN if self.forward else 0):
            owner = x.owner
            if not isinstance(owner, Instr) or owner.op != "store":
                break
            stored = self.of(owner.operands[1])
            if stored == at:
                return x, owner.operands[2]
            if not self.differ(stored, at):
                break
            x = owner.operands[0]
        return x, None

    def differ(self, a: int, b: int) -> bool:
        """Whether two places are proved not to be the same."""
        if a in self.constants and b in self.constants:
            return self.constants[a] != self.constants[b]
        (x, c), (y, d) = self.offsets.get(a, (a, 0)), self.offsets.get(b, (b, 0))
        return x == y and (c - d) % (1 << 64) != 0

    def load(self, found: tuple[Value, Value | None], instr: Instr, table: dict[Key, int]) -> int:
        x, stored = found
        if stored is not None:
            return self.of(stored)
        return table.setdefault(("load", self.of(x), self.of(instr.operands[1])), self.own(instr.result))


def shaped_like(x: Value) -> Value:
    """The first tensor of a chain of updates: all have its shape."""
    while isinstance(x.owner, Instr) and x.owner.op in ("store", "update"):
        x = x.owner.operands[0]
    return x


def _head(instr: Instr) -> tuple[object, ...]:
    """What is compared beside the operands; a constant by its bits: 0.0 is not -0.0."""
    if instr.op == "const":
        value, elem = const_of(instr.result), instr.result.type.elem
        assert value is not None
        return ("const", elem, bits(value, elem))
    return (MIRRORED.get(instr.op, instr.op), instr.result.type, *(instr.attrs[k] for k in sorted(instr.attrs)))


@dataclass(frozen=True)
class _Scope:
    """What is there at a place: values by number, and what is known of comparisons and other bools."""

    values: dict[int, Value]
    facts: dict[Key, bool]


class _Replace:
    def __init__(self, function: Function, numbers: _Numbers) -> None:
        self.region = function.body
        self.numbers = numbers
        self.dead: list[Instr] = []

    def run(self) -> None:
        children = dominance(self.region).children()
        gone: dict[Block, set[int]] = {}
        work = [(self.region.entry, _Scope({}, {}))]
        while work:
            block, around = work.pop()
            scope = _Scope(dict(around.values), dict(around.facts))
            into = self.numbers.into[block]
            if len(into) == 1 and into[0][0].terminator.op == "branch":
                source, edge = into[0]
                self.learn(source.terminator.own[0], edge == 0, scope)
            for k, p in enumerate(block.params):
                if self.known(p, scope):
                    gone.setdefault(block, set()).add(k)
            block.instrs = [i for i in block.instrs if self.keep(i, scope)]
            if block.terminator.op == "branch":
                self.decide(block, scope)
            work += [(child, scope) for child in reversed(children[block])]
        for instr in reversed(self.dead):
            drop(instr)
        for block, positions in gone.items():
            remove_params(block, positions, edges_into(self.region)[block])

    # ------------------------------------------------------------ values

    def known(self, v: Value, scope: _Scope) -> bool:
        """Replace a value by one that is there already; else it is there from now on."""
        other = scope.values.setdefault(self.numbers.of(v), v)
        if other is v:
            return False
        if const_of(other) is not None:
            other.name = other.name if other.name == v.name else ""  # one name for all the uses of a number would mislead
        else:
            other.name = other.name or v.name
        v.replace_by(other)
        return True

    def keep(self, instr: Instr, scope: _Scope) -> bool:
        """Whether an instruction is still needed; what it says or gives is known from here on."""
        if instr.op == "check":
            if self.truth(instr.operands[0], scope) is not True:
                self.learn(instr.operands[0], True, scope)
                return True
        elif instr.op in NUMBERED or instr.op == "stop_grad":
            if instr.op == "select" and (side := self.truth(instr.operands[0], scope)) is not None:
                scope.values[self.numbers.of(instr.result)] = instr.operands[1 if side else 2]
            if not self.known(instr.result, scope):
                return True
        else:
            for r in instr.results:
                scope.values.setdefault(self.numbers.of(r), r)
            return True
        self.dead.append(instr)
        return False

    def decide(self, block: Block, scope: _Scope) -> None:
        """Give a branch the constant that its condition is known to be (`simplify-cfg` takes the side)."""
        t = block.terminator
        truth = self.truth(t.own[0], scope)
        if truth is not None and const_of(t.own[0]) is None:
            constant = block.append(Instr("const", (), (BOOL,), {"value": truth}, (), t.span))
            t.operands = (constant.result, *t.operands[1:])

    # ------------------------------------------------------------ bools

    def learn(self, cond: Value, truth: bool, scope: _Scope) -> None:
        scope.facts[self.numbers.of(cond),] = truth
        instr = cond.owner
        if not isinstance(instr, Instr):
            return
        if instr.op == ("and" if truth else "or"):
            for v in instr.operands:
                self.learn(v, truth, scope)
        elif instr.op == "not":
            self.learn(instr.operands[0], not truth, scope)
        elif instr.op in COMPARISONS:
            key, plain = self.comparison(instr)
            scope.facts[key] = truth == plain
            op, a, b = key
            if op == "eq" and truth == plain:
                scope.facts["lt", a, b] = scope.facts["lt", b, a] = False
            elif op == "lt" and truth == plain:
                scope.facts["lt", b, a] = scope.facts["eq", min(a, b), max(a, b)] = False

    def truth(self, cond: Value, scope: _Scope) -> bool | None:
        """The value of a bool where it is known."""
        instr = cond.owner
        known = scope.facts.get((self.numbers.of(cond),))
        if known is not None or not isinstance(instr, Instr):
            return known
        if instr.op == "const":
            return const_of(cond) is True
        if instr.op in ("and", "or"):
            sides = [self.truth(v, scope) for v in instr.operands]
            ends = instr.op == "or"  # the value that one side alone settles
            return ends if ends in sides else None if None in sides else not ends
        if instr.op == "not":
            inner = self.truth(instr.operands[0], scope)
            return None if inner is None else not inner
        if instr.op in COMPARISONS:
            key, plain = self.comparison(instr)
            op, a, b = key
            if a == b and not instr.operands[0].type.elem.is_real:
                return (op == "eq") == plain
            known = scope.facts.get(key)
            return None if known is None else known == plain
        return None

    def comparison(self, instr: Instr) -> tuple[tuple[str, int, int], bool]:
        """A comparison as `eq`, `lt` (or `le`, of reals) of numbers, and whether it says that or the opposite."""
        op = instr.op
        a, b = (self.numbers.of(v) for v in instr.operands)
        if op in MIRRORED:
            op, a, b = MIRRORED[op], b, a
        if op in ("eq", "ne"):
            return ("eq", min(a, b), max(a, b)), op == "eq"
        if op == "le" and not instr.operands[0].type.elem.is_real:
            return ("lt", b, a), False
        return (op, a, b), True

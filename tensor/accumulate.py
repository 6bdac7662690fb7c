"""A sum that a loop builds from zeros, row by row, and that is then added to another one, is built upon that one instead.

    zeros = tabulate [n, m] { 0.0 };  jump head(n, zeros)             jump head(n, g)
    head(t, d):  branch (ne t 0), body, done                          head(t, d):  branch (ne t 0), body, done
    body:        r = add t, -1                                        body:        r = add t, -1
                 p = index d, r                                  ->                p = index d, r
                 q = tabulate [m] { add (index p), y }                             q = tabulate [m] { add (index p), (add y, 0.0) }
                 jump head(r, update d, r, q)                                      jump head(r, update d, r, q)
    done:        s = tabulate [n, m] { add (index g), (index d) }     done:        d instead of s

So the gradient of a network with a loop over its layers, summed over parts of a batch, is summed in one place: each kernel that makes the
part of a layer adds it to what is there already.

Every row is met once: the loop has no other way out, and its counter goes through all rows, up or down by one. So `0 + y` was added to `g`,
and is now: `y + 0.0` is that, also where y is -0.

Requires: SSA, flat. Preserves: every value to the bit.
"""

from __future__ import annotations

from tlc.ssa.builder import Builder
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import Block, Function, Instr, Module, Value, const_of, erase
from tlc.ssa.loops import Loop, loops
from tlc.tensor.extents import Extents, Key


def accumulate(module: Module) -> None:
    """Do this wherever it can be done. The module is changed in place."""
    for function in module.functions.values():
        tree = dominance(function.body)
        found = loops(function.body, tree)
        if found:
            _Accumulation(function, module, tree, found).run()


class _Accumulation:
    def __init__(self, function: Function, module: Module, tree: Dominance, found: list[Loop]) -> None:
        self.module, self.tree, self.loops = module, tree, found
        self.extents = Extents(function)
        self.into = edges_into(function.body)

    def run(self) -> None:
        for loop in self.loops:
            entries = [e for e in self.into[loop.header] if e[0] not in loop]
            if len(entries) != 1 or len(loop.latches) != 1 or not self.leaves_by_test(loop):
                continue
            for k, param in enumerate(loop.header.params):
                if param.type.rank > 1 and param.type.elem.is_real:
                    self.param(loop, k, *entries[0])

    def leaves_by_test(self, loop: Loop) -> bool:
        """Whether the test in the header is the only way out."""
        t = loop.header.terminator
        return t.op == "branch" and t.targets[0] in loop and loop.exits() == [(loop.header, t.targets[1])]

    def param(self, loop: Loop, k: int, source: Block, edge: int) -> None:
        """Let parameter `k` of a header start from what its last value is added to, if that is all that becomes of it."""
        d = loop.header.params[k]
        zeros, step = source.terminator.args(edge)[k], _passed(loop, d)
        if not _is_zeros(zeros) or not isinstance(step.owner, Instr) or step.owner.op != "update" or len(step.owner.operands) != 3:
            return
        whole, row, made = step.owner.operands
        parts = [u for u in d.uses if isinstance(u, Instr) and u is not step.owner and u.op == "index" and u.operands[1:] == (row,)]
        sums = [u for u in d.uses if isinstance(u, Instr) and u is not step.owner and u not in parts]
        if whole is not d or len(step.uses) != 1 or len(d.uses) != 3 or len(parts) != 1 or len(sums) != 1:
            return
        if not self.meets_all_rows(row, loop, self.extents.of(d, 0)):
            return
        added = _added_to(parts[0].result, made)
        total = _tabulate_of(sums[0])
        start = None if total is None or total.block in loop.blocks else _added_to(d, total.result)
        if added is None or total is None or start is None or len(parts[0].result.uses) != 1 or len(made.uses) != 1:
            return
        (plus, y), (_, other) = added, start
        g = _whole(other, total)
        if g is None or not self.is_there(g, source) or self.extents.all(g) != self.extents.all(d):
            return
        b = Builder.before(plus, self.module)
        again = b.op("add", y, b.const(0.0, y.type))
        plus.operands = tuple(again if v is y else v for v in plus.operands)
        args = source.terminator.args(edge)
        redirect(source, edge, loop.header, (*args[:k], g, *args[k + 1 :]))
        total.result.replace_by(d)
        erase(total)

    def is_there(self, g: Value, block: Block) -> bool:
        """Whether a value is defined where a block ends."""
        home = g.block
        return home is not None and self.tree.dominates(home, block)

    # ------------------------------------------------------------ counters

    def meets_all_rows(self, row: Value, loop: Loop, rows: Key) -> bool:
        """Whether a value is each of the first `rows` numbers in one round: `i` of i = 0, 1, .. or `t - 1` of t = rows, .., 1."""
        if self.counts_up(row, loop, rows):
            return True
        test = loop.header.terminator.own[0].owner
        if not isinstance(test, Instr) or test.op != "ne" or const_of(test.operands[1]) != 0 or not _is_moved(row, test.operands[0], -1):
            return False
        trip = test.operands[0]
        return trip in loop.header.params and _is_moved(_passed(loop, trip), trip, -1) and self.is_number(self.started(loop, trip), rows)

    def counts_up(self, i: Value, loop: Loop, rows: Key) -> bool:
        """Whether a loop runs for i = 0, 1, .. below the number of rows."""
        test = loop.header.terminator.own[0].owner
        if i not in loop.header.params or len(loop.latches) != 1 or not isinstance(test, Instr) or test.op != "lt":
            return False
        limit = self.extents.key(test.operands[1])
        return test.operands[0] is i and limit == rows and _is_moved(_passed(loop, i), i, 1) and const_of(self.started(loop, i)) == 0

    def is_number(self, value: Value, rows: Key) -> bool:
        """Whether a value is the number of rows: itself, or the counter of a loop over all of them, behind that loop."""
        if self.extents.key(value) == rows:
            return True
        loop = next((x for x in self.loops if value in x.header.params), None)
        return loop is not None and self.leaves_by_test(loop) and self.counts_up(value, loop, rows)

    def started(self, loop: Loop, param: Value) -> Value:
        """What a loop gets for a parameter of its header when it is entered; the parameter itself where that may be several things."""
        entries = [e for e in self.into[loop.header] if e[0] not in loop]
        source, edge = entries[0]
        return source.terminator.args(edge)[loop.header.params.index(param)] if len(entries) == 1 else param


def _passed(loop: Loop, param: Value) -> Value:
    """What the loop's one way back passes for a parameter of its header."""
    end = loop.latches[0].terminator
    return end.args(end.targets.index(loop.header))[loop.header.params.index(param)]


def _is_moved(value: Value, start: Value, by: int) -> bool:
    """Whether a value is another one plus a constant."""
    owner = value.owner
    return isinstance(owner, Instr) and owner.op == "add" and owner.operands[0] is start and const_of(owner.operands[1]) == by


def _is_zeros(value: Value) -> bool:
    owner = value.owner
    if not isinstance(owner, Instr) or owner.op != "tabulate" or len(owner.results) != 1 or len(owner.regions[0].blocks) != 1:
        return False
    number = const_of(owner.regions[0].entry.terminator.operands[0])
    return isinstance(number, float) and str(number) == "0.0"


def _tabulate_of(instr: Instr) -> Instr | None:
    """The tabulate in whose region an instruction stands, if it has one block and one result."""
    region = instr.block.region if instr.block is not None else None
    owner = region.parent if region is not None and len(region.blocks) == 1 else None
    return owner if isinstance(owner, Instr) and owner.op == "tabulate" and len(owner.results) == 1 else None


def _added_to(tensor: Value, result: Value) -> tuple[Instr, Value] | None:
    """If a result is an element of a tensor, read once, plus something: the `add`, and the something."""
    owner = result.owner
    if not isinstance(owner, Instr) or owner.op != "tabulate" or len(owner.results) != 1 or len(owner.regions[0].blocks) != 1:
        return None
    entry = owner.regions[0].entry
    plus = entry.terminator.operands[0].owner
    if not isinstance(plus, Instr) or plus.op != "add" or plus.block is not entry:
        return None
    for read, other in (plus.operands, plus.operands[::-1]):
        if _whole(read, owner) is tensor and len(read.uses) == 1 and other is not read:
            return plus, other
    return None


def _whole(read: Value, tabulate: Instr) -> Value | None:
    """The tensor of which a value is the element at the indices of a tabulate."""
    owner = read.owner
    params = tuple(tabulate.regions[0].entry.params)
    return owner.operands[0] if isinstance(owner, Instr) and owner.op == "index" and owner.operands[1:] == params else None

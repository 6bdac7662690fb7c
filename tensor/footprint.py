"""How much memory a planned function holds at each point, as a formula of its extents.

Requires  host SSA after the memory plan (`tensor/memory.py`). Changes nothing.
Gives     for each function its buffers, what it puts on tapes, and its peak: the largest sum, over the points of the function, of the
          buffers that it owns there and of what lies on the tapes; buffers of its callers and of what it calls are not among them.

A size is a polynomial of extents (`frontend/dims.py`) with the bytes of an element as coefficient. Sums that are larger for some extents
and smaller for others cannot be compared, so a peak is the maximum of one formula or of several.

What lies on a tape. A `pop` takes back the last value of its type that was pushed and not taken back yet, one of its name if there is one,
if each loop runs once. If loops around the push, but not around the pop, run `n` times together, then `n` times
that value lies there in between; in the loops themselves, before a round has pushed its own, one time less. A loop over a
range whose ends do not change runs `(end - start) / step` times; how often another runs is a symbol of the formula. A value that is
popped is the function's again.

    loop over i < n:  %x = alloc ..; push %x        n times the bytes of %x behind the loop,
    loop:             %y = pop; ..; free %y         until its reverse has popped them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from tlc.frontend.dims import Dim, DimVar, Monomial
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.ssa.cfg import postorder, successors
from tlc.ssa.ir import Block, Function, Instr, Type, Value, number_of
from tlc.ssa.loops import Loop, loops
from tlc.ssa.tape import tape_of
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.taking import Consumed, taken_operands

HEADER = 64  # bytes before the elements of a buffer (`backends/llvm/support.py`)
CHUNK = 1 << 20  # bytes of a piece of a tape
FORMULAS = 8  # of which a peak is the maximum; of more, two are joined
ZERO, ONE = Dim.const(0), Dim.const(1)


@dataclass
class Buffer:
    """Memory from where it is made to where it is given up. `over` are the kernels that write over what lies in it, `end` how it ends:
    `freed`, `returned`, `taped`, `passed` (to a parameter of a function or a block).
    """

    value: Value
    how: str  # the op that makes it, `parameter` for one of a block or function
    size: Dim
    span: Span
    over: list[Span] = field(default_factory=list)
    end: str = ""
    last: Span | None = None


@dataclass(frozen=True)
class Taped:
    """A tensor that is put on a tape `times` times. `span` is what needs it again: the code whose derivative reads it."""

    value: Value
    size: Dim
    times: Dim
    span: Span


@dataclass(frozen=True)
class Held:
    """What makes up a sum: `times` buffers of one size; without a value the tape's own."""

    value: Value | None
    size: Dim
    times: Dim = ONE
    taped: bool = False


@dataclass(frozen=True)
class Peak:
    """A sum that no other exceeds for all extents, and where it is reached."""

    bytes: Dim
    span: Span
    held: tuple[Held, ...]

    @property
    def number(self) -> int | None:
        """The bytes that the allocator counts, with its headers, where all extents are known."""
        total = 0
        for h in self.held:
            size, times = h.size.value, h.times.value
            if size is None or times is None:
                return None
            total += times * allocated(size)
        return total


@dataclass
class Footprint:
    """`symbols` says what the names in formulas stand for, where they are not those of the source."""

    function: Function
    buffers: list[Buffer]
    taped: list[Taped]
    peaks: list[Peak]
    symbols: dict[str, str]


def allocated(size: int) -> int:
    """What the allocator takes for a buffer."""
    return (size + HEADER + 63) & -64


def footprint(function: Function, consumed: Consumed) -> Footprint:
    """The memory of a planned function; `consumed` says which parameters functions take over."""
    return _Walk(function, consumed).run()


@dataclass
class _Matched:
    """What is pushed in one block and popped in another."""

    push: Instr
    pop: Instr
    times: Dim

    @property
    def value(self) -> Value:
        return self.push.operands[0]

    @property
    def record(self) -> int:
        """Bytes of the tape itself."""
        return 8 * (1 + self.value.type.rank)


class _Walk:
    def __init__(self, function: Function, consumed: Consumed) -> None:
        self.function, self.consumed = function, consumed
        self.extents = Extents(function)
        self.loops = loops(function.body)
        self.order = _running(function, self.loops)
        self.names: dict[Key | Loop, Dim] = {}
        self.symbols: dict[str, str] = {}
        self.popped: dict[Value, Value] = {}  # what was pushed, by what is popped
        self.behind = _reached(self.order, {loop.header: loop for loop in self.loops})
        self.pairs: list[_Matched] = []
        self._match()
        self.buffers: dict[Value, Buffer] = {}  # by the value that owns one now
        self.all: list[Buffer] = []
        self.peaks: list[Peak] = []

    def run(self) -> Footprint:
        at_entry: dict[Block, dict[Value, Dim]] = {}
        start = [p for p, taken in zip(self.function.params, self.consumed[self.function.name], strict=True) if p.type.rank and taken]
        at_entry[self.function.body.entry] = {p: self.size(p) for p in start}
        for block in self.order:
            owned = dict(at_entry[block])
            for v in owned:
                if isinstance(v.owner, Block) and v.owner is block:
                    self.made(v, "parameter", block.instrs[0].span if block.instrs else block.terminator.span)
            tape, done = self.tape(block), False
            for instr in block.instrs:
                if instr.op in ("push", "pop") and not done:
                    tape, done = self.tape(block, done=True), True
                self.step(instr, owned)
                if instr.op not in ("push", "pop", "free") and (instr.results or instr.op == "call"):
                    self.point(owned, tape, instr.span)
            self.leave(block, owned, at_entry)
        taped = [Taped(m.value, self.size(m.value), m.times, _reader(m.pop).span) for m in self.pairs if m.value.type.rank]
        return Footprint(self.function, self.all, taped, self.peaks, self.symbols)

    # ------------------------------------------------------------ what is owned

    def step(self, instr: Instr, owned: dict[Value, Dim]) -> None:
        match instr.op:
            case "alloc" | "copy" | "index" | "extern" | "call" | "pop":
                for r in (r for r in instr.results if r.type.rank):
                    owned[r] = self.size(r)
                    self.made(r, instr.op, instr.span)
                if instr.op == "call":
                    for k in taken_operands(instr, self.consumed):
                        self.given_up(instr.operands[k], "passed", instr.span, owned)
            case "free" | "push":
                if instr.operands[0].type.rank:
                    self.given_up(instr.operands[0], "freed" if instr.op == "free" else "taped", instr.span, owned)
            case "run":
                for operand, result in zip(instr.operands, instr.results, strict=False):
                    if result.type.rank:
                        again = operand in instr.operands[len(instr.results) :]
                        self.moved(operand, result, owned, instr.span if again else None)
            case "update" | "store" | "reshape" | "stop_grad" | "join" if instr.result.type.rank:
                if instr.operands[0].type.rank:
                    self.moved(instr.operands[0], instr.result, owned)
                else:
                    owned[instr.result] = self.size(instr.result)
                    self.made(instr.result, instr.op, instr.span)
            case "split":
                self.moved(instr.operands[0], instr.results[0], owned)
            case _:
                pass

    def moved(self, old: Value, new: Value, owned: dict[Value, Dim], over: Span | None = None) -> None:
        """A value's buffer belongs to another value from now on. Parts belong to what they are of."""
        if old not in owned:
            return
        owned[new] = owned.pop(old)
        if (buffer := self.buffers.get(old)) is not None:
            self.buffers[new] = buffer
            if over is not None:
                buffer.over.append(over)

    def made(self, value: Value, how: str, span: Span) -> None:
        buffer = Buffer(value, how, self.size(value), span)
        self.buffers[value] = buffer
        self.all.append(buffer)

    def given_up(self, value: Value, how: str, span: Span, owned: dict[Value, Dim]) -> None:
        owned.pop(value, None)
        if value in self.buffers:
            self.buffers[value].end, self.buffers[value].last = how, span

    def leave(self, block: Block, owned: dict[Value, Dim], at_entry: dict[Block, dict[Value, Dim]]) -> None:
        end = block.terminator
        for target, args in end.edges:
            here = dict(owned)
            for p, v in zip(target.params, args, strict=True):
                if p.type.rank:
                    here.pop(v, None)
                    here[p] = self.size(p)
            at_entry.setdefault(target, here)
        for v in (v for v in end.operands if v in owned):
            self.buffers[v].end, self.buffers[v].last = ("returned" if end.op == "return" else "passed"), end.span

    # ------------------------------------------------------------ sums

    def point(self, owned: Mapping[Value, Dim], tape: list[Held], span: Span) -> None:
        """Note the sum at a point, unless another is never smaller."""
        held = (*(Held(v, size) for v, size in owned.items()), *tape)
        total = summed(h.size * h.times for h in held)
        if not any(_never_more(total, p.bytes) for p in self.peaks):
            self.peaks = [p for p in self.peaks if not _never_more(p.bytes, total)] + [Peak(total, span, held)]
            if len(self.peaks) > FORMULAS:
                first, second, *rest = self.peaks
                self.peaks = [Peak(_both(first.bytes, second.bytes), second.span, second.held), *rest]

    def tape(self, block: Block, done: bool = False) -> list[Held]:
        """What lies on tapes in a block, before or after its own pushes and pops."""
        held: list[Held] = []
        records: list[Dim] = []
        for m in self.pairs:
            times = self.times_at(m, block, done)
            if times is not None:
                held += [Held(m.value, self.size(m.value), times, True)] * (m.value.type.rank > 0)
                records.append(Dim.const(m.record) * times)
        if records:
            number = summed(records).value
            chunks = -(-number // (CHUNK - HEADER)) if number else 1
            held.append(Held(None, Dim.const(CHUNK), Dim.const(chunks), True))
        return held

    def times_at(self, m: _Matched, block: Block, done: bool) -> Dim | None:
        """How often what a block pushes lies on the tape in another block."""
        pushes, pops = m.push.block, m.pop.block
        assert pushes is not None and pops is not None
        forward, back = _apart(self.loops, pushes, pops), _apart(self.loops, pops, pushes)
        one_less = m.times - ONE
        if block is pushes:
            return m.times if done else one_less if forward else None
        if block is pops:
            return m.times if not done else one_less if back else None
        if forward and block in forward:
            return m.times if block in self.behind[pushes] else one_less
        if back and block in back:
            return m.times if pops in self.behind[block] else one_less
        return m.times if block in self.behind[pushes] and pops in self.behind[block] else None

    def _match(self) -> None:
        """Find the push of each pop."""
        waiting: list[Instr] = []
        for block in self.order:
            for instr in block.instrs:
                if instr.op == "push":
                    waiting.append(instr)
                elif instr.op == "pop":
                    alike = [i for i in waiting if (tape_of(i), i.operands[0].type) == (tape_of(instr), instr.result.type)]
                    named = [i for i in alike if i.operands[0].name == instr.result.name]
                    if alike:
                        push = (named or alike)[-1]
                        waiting.remove(push)
                        self.popped[instr.result] = push.operands[0]
                        self.pairs.append(_Matched(push, instr, ONE))
        for m in self.pairs:
            assert m.push.block is not None and m.pop.block is not None
            m.times = self.times(m.push.block, m.pop.block)

    def times(self, block: Block, other: Block) -> Dim:
        """How often a block runs for each time that the other one's loops around both do."""
        product = ONE
        for loop in self.loops:
            if block in loop and other not in loop:
                trips = self.trips(loop)
                product = product * (trips + ONE if block is loop.header else trips)
        return product

    def trips(self, loop: Loop) -> Dim:
        """How often the body of a loop runs."""
        if loop not in self.names:
            found = self._counted(loop)
            if found is None:
                span = loop.header.terminator.span
                found = self.symbol("rounds", f"how often the loop at {span} runs")
            self.names[loop] = found
        return self.names[loop]

    def _counted(self, loop: Loop) -> Dim | None:
        end = loop.header.terminator
        if end.op != "branch" or not isinstance(end.own[0].owner, Instr) or end.own[0].owner.op != "lt":
            return None
        counter, limit = end.own[0].owner.operands
        if counter not in loop.header.params or len(loop.latches) != 1 or end.targets[0] not in loop or _made_in(limit, loop):
            return None
        k = loop.header.params.index(counter)
        step = _argument(loop.latches[0], loop.header, k)
        outside = [b for b in self.order if loop.header in successors(b) and b not in loop]
        if len(outside) != 1 or step is None or not isinstance(step.owner, Instr) or step.owner.op != "add":
            return None
        start, by = _argument(outside[0], loop.header, k), number_of(step.owner.operands[1])
        if start is None or by is None or by < 1 or step.owner.operands[0] is not counter:
            return None
        return (self.term(limit) - self.term(start) + Dim.const(by - 1)) // Dim.const(by)

    # ------------------------------------------------------------ formulas

    def size(self, value: Value) -> Dim:
        """The bytes of a tensor's elements."""
        value = self.popped.get(value, value)
        product = Dim.const(value.type.elem.bytes)
        for k in range(value.type.rank):
            product = product * self.key(self.extents.of(value, k))
        return product

    def key(self, key: Key) -> Dim:
        if isinstance(key, int):
            return Dim.const(key)
        if isinstance(key, Axis) and key.tensor in self.popped:
            return self.key(self.extents.of(self.popped[key.tensor], key.axis))
        if isinstance(key, Value):
            return self.term(key)
        if key not in self.names:
            owner = key.tensor.owner
            where = f" of {owner.span}" if isinstance(owner, Instr) else ""
            self.names[key] = self.symbol(key.tensor.name or "n", f"extent {key.axis} of the tensor %{key.tensor.name}{where}")
        return self.names[key]

    def term(self, value: Value) -> Dim:
        """An `i64` as a polynomial of what the function does not compute by sums and products."""
        owner = value.owner
        if isinstance(owner, Instr):
            known = number_of(value)
            if known is not None:
                return Dim.const(known)
            if owner.op in ("add", "sub", "mul") and value.type == Type(value.type.elem):
                a, b = map(self.term, owner.operands)
                return a + b if owner.op == "add" else a - b if owner.op == "sub" else a * b
            if owner.op == "dim":
                axis = owner.attrs["axis"]
                assert isinstance(axis, int)
                return self.key(self.extents.of(owner.operands[0], axis))
            if owner.op == "max" and 0 in map(number_of, owner.operands):  # an extent
                return self.term(next(v for v in owner.operands if number_of(v) != 0))
        if value not in self.names:
            where = f"at {owner.span}" if isinstance(owner, Instr) else "" if owner is self.function.body.entry else "of a loop"
            self.names[value] = self.symbol(value.name or "n", where and f"a number that is computed {where}")
        return self.names[value]

    def symbol(self, name: str, meaning: str) -> Dim:
        taken = {str(d) for d in self.names.values()}
        found, k = name, 1
        while found in taken:
            k += 1
            found = f"{name}{k}"
        if meaning:
            self.symbols[found] = meaning
        return Dim.var(DimVar(found))


# ---------------------------------------------------------------- helpers


def summed(parts: Iterable[Dim]) -> Dim:
    terms: dict[Monomial, int] = {}
    for d in parts:
        for m, c in d.terms:
            terms[m] = terms.get(m, 0) + c
    return Dim.of(terms)


def _both(a: Dim, b: Dim) -> Dim:
    """A sum that neither exceeds."""
    terms = dict(a.terms)
    for m, c in b.terms:
        terms[m] = max(c, terms.get(m, 0))
    return Dim.of(terms)


def _never_more(a: Dim, b: Dim) -> bool:
    """Whether the first is at most the second for all extents, as far as coefficients tell."""
    return all(c >= 0 for _, c in (b - a).terms)


def _reader(pop: Instr) -> Instr:
    """What reads a value first when it is taken back."""
    here = pop
    while True:
        readers = [u for u in here.result.uses if isinstance(u, Instr) and u.op not in ("dim", "free")]
        if not readers:
            return here
        if readers[0].op != "reshape":
            return readers[0]
        here = readers[0]


def _running(function: Function, found: list[Loop]) -> list[Block]:
    """Blocks in an order in which they could run: a reverse postorder in which what is behind a loop comes after all of it."""
    innermost = {b: loop for loop in found for b in loop.blocks}

    def ways(block: Block) -> list[Block]:
        loop = innermost.get(block)
        return sorted(successors(block), key=lambda s: loop is not None and s in loop)

    return postorder(function.body, ways)[::-1]


def _apart(found: list[Loop], block: Block, other: Block) -> Loop | None:
    """The outermost loop around a block that is not around the other."""
    return next((loop for loop in found if block in loop and other not in loop), None)


def _reached(order: list[Block], headers: Mapping[Block, Loop]) -> dict[Block, set[Block]]:
    """The blocks behind each, without going back to a loop's beginning."""
    behind: dict[Block, set[Block]] = {}
    for block in reversed(order):
        behind[block] = set()
        for s in successors(block):
            if not (s in headers and block in headers[s]):
                behind[block] |= {s} | behind.get(s, set())
    return behind


def _made_in(value: Value, loop: Loop) -> bool:
    home = value.block
    return home is not None and home in loop and number_of(value) is None


def _argument(source: Block, target: Block, k: int) -> Value | None:
    edges = [e for e, t in enumerate(source.terminator.targets) if t is target]
    return source.terminator.args(edges[0])[k] if len(edges) == 1 else None

"""The reverse sweep over a function: from a function to one that computes its gradient.

The function runs as it is; then every block has a reverse block, and those run in the opposite order. A reverse block
takes the adjoints of what is live behind its block and passes on the adjoints of what is live before it.

    entry(%x):  .. jump head(0, %x)             entry, head, body, exit as before; the rounds are counted (by i)
    head(i, y): branch (lt i n), body, exit     exit:         .. jump head'(1.0, i)
    body:       z = sin y; jump head(i+1, z)    head'(dy, k): branch (ne k 0), body'(dy, k - 1), entry'(dy)
    exit:       return y                        body'(dz, k): y = pop; dy = mul dz, (cos y); jump head'(dy, k)
                                                entry'(dx):   return dx

A value that the reverse needs is read directly where it still is what it was: its definition dominates the end, and no loop
around the definition is around the use. (The reverse of a loop that is left from several blocks has several ways in: it is no natural loop,
but runs again and again all the same.) Otherwise the block that needs it pushes it on the tape at its own end, and its
reverse block pops it at its start; so pushes and pops match on every path. A block outside of loops runs once at most, so
a scalar that it needs is kept in a variable instead: what has no loop has no tape. What is cheap is computed again (`keep.py`).

Where a block was entered from, its reverse goes on. A loop with one way in and one way back goes back as often as it went round, so its
reverse counts down, and has its counters for free. How often that was is saved, unless it is the limit of the loop's test, and the reverse
has that. Every other block with several ways in notes which one was taken (`origin`).

Only adjoints of active values exist (`derivative_activity.py`).

A comprehension whose region loops or calls, and whose result is active, runs as a loop first, so that its iterations have a tape. So does
a sum whose range depends on the element, where the derivative by what it reads is no sum over a rectangle.

Calls. What is still a call here is recursive, and its derivative has two parts (`reverse_parts`): one computes what the function does and
leaves on the tape what the other will need; that takes it, and turns adjoints of the results into adjoints of the arguments. What was
called last is reversed first, so one tape serves them all.

    %y = call %x {"f"}        %y = call %x {"f.forward"}     ..     dx = call dy {"f.backward"}

Levels. A derivative of a derivative meets `push` and `pop`. They are values' ways through a tape, and have adjoints that go the way back,
through the same tape, which is empty by then. What this sweep saves itself goes to a tape of its own: `tape` counts the levels.

Method: Griewank and Walther 2008, chapters 3 to 6; Siskind and Pearlmutter 2008 for derivatives of derivatives.
Requires: SSA, flat. The function given is consumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.opt.sink import SINGULAR
from tlc.ssa.builder import Builder
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import cycles, successors
from tlc.ssa.clone import clone_instr
from tlc.ssa.components import reachable
from tlc.ssa.construct import construct
from tlc.ssa.dominance import dominance
from tlc.ssa.edit import edges_into, remove_unreachable
from tlc.ssa.ir import BOOL, I64, Attr, Block, Function, Instr, Module, Region, Terminator, Type, Value, const_of, number_of
from tlc.ssa.liveness import reads
from tlc.ssa.loops import loops
from tlc.ssa.lower_state import zero_of
from tlc.ssa.tape import on_tape
from tlc.tensor.derivative_activity import Activity, activity, adjoint_liveness
from tlc.tensor.derivative_branches import differentiate_branches
from tlc.tensor.derivative_region import differentiate_region, unknown_service
from tlc.tensor.derivative_rules import At, by_own_rule, partial
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.keep import kept
from tlc.tensor.reversible import (
    count_trips,
    even_steps,
    expose_loops,
    note_origins,
    parts_late,
    reaching,
    single_exit,
    split_critical_edges,
)


class Calls(Protocol):
    """The functions that a function to differentiate calls."""

    @property
    def module(self) -> Module:
        """Holds them."""

    @property
    def tape(self) -> int:
        """The tape of this level: what is differentiated touches none from here on."""

    @property
    def touching(self) -> frozenset[str]:
        """Functions that touch a tape."""

    def parts(self, callee: str, wrt: tuple[int, ...], seeds: tuple[int, ...], /) -> tuple[str, str]:
        """The names of both parts of a derivative: of the results `seeds` by the parameters `wrt`."""


@dataclass(frozen=True)
class NoCalls:
    """For a function that calls nobody, and has no loop."""

    module: Module
    tape: int = 0
    touching: frozenset[str] = field(default_factory=frozenset)

    def parts(self, callee: str, wrt: tuple[int, ...], seeds: tuple[int, ...], /) -> tuple[str, str]:
        raise AssertionError(callee)


def reverse(function: Function, wrt: tuple[int, ...], value: bool, calls: Calls, known: Mapping[tuple[Value, int], Key]) -> None:
    """Turn a function with one real result into one that returns that (if `value`) and its gradients by the parameters `wrt`.

    `known` says which extents of parameters are equal or constant.
    """
    sweep = _Reverse(function, wrt, (0,), calls, known, None)
    head = function.results if value else ()
    function.results = (*head, *(v.type for v in sweep.wrt))
    if sweep.exit is not None:  # else it never returns: neither does its gradient
        sweep.value = value
        sweep.run()


def reverse_parts(function: Function, name: str, wrt: tuple[int, ...], seeds: tuple[int, ...], calls: Calls) -> Function:
    """Turn a function into the first part of its derivative, and give the second: from adjoints of the results `seeds` to those of the
    parameters `wrt`. Between them stands what the first leaves on the tape.
    """
    entry = Block("entry")
    for k in seeds:
        entry.add_param(function.results[k], "seed")
    second = Function(name, Region([entry]), tuple(function.params[k].type for k in wrt), function.span)
    sweep = _Reverse(function, wrt, seeds, calls, {}, second)
    if sweep.exit is None:
        entry.terminator = Terminator("unreachable", (), (), function.span)
    else:
        sweep.run()
    return second


class _Reverse:
    """`second` is the function that gets the reverse blocks; None where they go on behind the function's exit."""

    def __init__(
        self,
        function: Function,
        wrt: tuple[int, ...],
        seeds: tuple[int, ...],
        calls: Calls,
        known: Mapping[tuple[Value, int], Key],
        second: Function | None,
    ) -> None:
        self.function, self.seeds, self.calls, self.known, self.second = function, seeds, calls, known, second
        self.module, self.value = calls.module, False
        self.wrt = [function.params[k] for k in wrt]
        self.variables: list[str] = []
        remove_unreachable(function.body)
        self.exit = single_exit(function)
        while self.exit and expose_loops(self._activity(), function, self.module):
            self.exit = single_exit(function)
        split_critical_edges(function)
        self.trips = count_trips(function) if self.exit else {}
        self.origin = note_origins(function, self.trips) if self.exit else {}

    @property
    def results(self) -> list[Value]:
        """The values whose adjoints are given."""
        assert self.exit is not None
        return [self.exit.terminator.operands[k] for k in self.seeds]

    def _activity(self) -> Activity:
        return activity(self.function, self.wrt, self.results, self.calls.touching, self.second is not None)

    def run(self) -> None:
        assert self.exit is not None
        body = self.function.body
        self.tree = dominance(body)
        self.loops = loops(body, self.tree)
        self.cycles = cycles(body)
        self.extents = Extents(self.function, self.known)
        self.active = self._activity()
        self.blocks = reaching(self.exit)
        self.into = edges_into(body)
        results = self.results
        self.live = adjoint_liveness(self.blocks, self.active, results)
        self.behind_work = self._behind_work()
        self.blocks = [b for b in self.blocks if b is self.exit or any(s in self.behind_work for s in b.terminator.targets)]
        self.reverses = self._reverse_blocks()
        self.adjoints: dict[Block, dict[Value, Value]] = {b: {} for b in self.blocks}
        for b in self.blocks:
            for v in self.live.live_out[b]:
                param = self.reverses[b].add_param(v.type, f"d_{v.name}" if v.name else "")
                self.extents.declare_alike(param, v)
                self.adjoints[b][v] = param
        self.counters = {b: {h: self.reverses[b].add_param(I64, "trip") for h in self._headers(b)} for b in self.blocks}
        for b in self.blocks:
            parts_late(b)
            _Sweep(self, b).run(results)
        if self.variables:
            construct(Module({self.function.name: self.function}))

    def _reverse_blocks(self) -> dict[Block, Block]:
        """The reverse of every block; of the exit, itself, where the reverse goes on behind it."""
        body = self.function.body if self.second is None else self.second.body
        last = self.exit if self.second is None else self.second.body.entry
        assert last is not None
        return {b: last if b is self.exit else body.add(Block(f"{b.name}_reverse")) for b in self.blocks}

    def _headers(self, block: Block) -> list[Block]:
        """The headers of the loops around a block whose rounds are counted."""
        return [loop.header for loop in self.loops if block in loop and loop.header in self.trips]

    def _behind_work(self) -> set[Block]:
        """Blocks before which, on some path to them, adjoints change: the reverse goes on where they were entered from."""
        found: set[Block] = set()
        for b in self.blocks:
            works = any(map(self.active.works, b.instrs))
            found.update(s for s in b.terminator.targets if works or any(p in self.active for p in s.params))
        return set(reachable(found, successors))

    def new_variable(self, type: Type) -> str:
        """A variable that is zero at first: on paths that do not set it, nobody reads it."""
        name = f"saved{len(self.variables)}"
        self.variables.append(name)
        zero = Instr("const", (), (type,), {"value": zero_of(type.elem)})
        start = Instr("set", zero.results, (), {"var": name})
        entry = self.function.body.entry
        zero.block = start.block = entry
        entry.instrs[0:0] = [zero, start]
        return name

    def is_direct(self, v: Value, block: Block) -> bool:
        """Whether the reverse of `block` finds `v` as it was when the block ran."""
        home = v.block
        assert self.exit is not None and home is not None
        if self.second is not None:
            return False
        return self.tree.dominates(home, self.exit) and not any(home in cycle and block in cycle for cycle in self.cycles)


class _Sweep:
    """The reverse of one block. Fulfils `derivative_region.Sweep`."""

    def __init__(self, of: _Reverse, block: Block) -> None:
        self.of, self.block = of, block
        self.b = Builder(of.reverses[block], of.module, of.function.span)
        self.sums: dict[Value, list[Value]] = {v: [d] for v, d in of.adjoints[block].items()}
        self.counted = {of.trips[h]: trip for h, trip in of.counters[block].items()}  # and what steps evenly with them
        self._count_steps()
        self.known: dict[Value, Value] = dict(self.counted)
        self.needed: dict[Value, Value] = {}  # values that the reverse does not have, and what stands for them until `_restore`
        self.saved: list[Instr] = []  # at the end of the block: pushes, and variables that are set
        self.restored: list[Instr] = []  # at the start of its reverse
        self.extent_values: dict[Key, Value] = {}

    def run(self, results: Sequence[Value]) -> None:
        if self.block is self.of.exit:
            seeds = [self.b.const(1.0, v.type) for v in results] if self.of.second is None else self.of.second.params
            for v, seed in zip(results, seeds, strict=True):
                self.of.extents.declare_alike(seed, v)
                self.add(v, seed)
        instrs = list(self.block.instrs)  # the exit's reverse is appended to it
        for instr in reversed(instrs):
            if self.of.active.works(instr):
                self.b.span = instr.span.of_derivative()
                self._instr(instr)
        self.b.span = self.of.function.span.of_derivative()
        self._leave(results)
        self._restore()
        for instr in self.saved:
            self.block.append(instr)
        start = self.of.reverses[self.block]
        for instr in self.restored:
            instr.block = start
        start.instrs[0:0] = reversed(self.restored)

    # ------------------------------------------------------------ values of the forward sweep

    def _count_steps(self) -> None:
        """What a loop adds a constant to in each round follows from the number of the round, if its start is known here."""
        for header, trip in self.of.counters[self.block].items():
            for v, (start, step) in even_steps(header, self.of.into[header]).items():
                if v not in self.counted and self._is_free(start):
                    number = number_of(start)
                    begin = self.b.i64(number) if number is not None else self.counted.get(start, start)
                    self.counted[v] = self.b.op("add", begin, self.b.op("mul", trip, self.b.i64(step)))

    def forward(self, value: Value) -> Value:
        """A value of the function, in its reverse."""
        if value in self.known:
            return self.known[value]
        owner = value.owner
        if const_of(value) is not None and isinstance(owner, Instr):
            here = self.b.insert(clone_instr(owner, {})).result
        elif self.of.is_direct(value, self.block):
            here = value
        elif (limit := self._limit_of(value)) is not None:
            here = self.b.op("max", self.forward(limit), self.b.i64(0))
        else:
            here = self.needed[value] = Block().add_param(value.type, value.name)  # what stands for it is known at the end
            self.of.extents.declare_alike(here, value)
        self.known[value] = here
        return here

    def _limit_of(self, value: Value) -> Value | None:
        """The limit of a loop that is over here, if a value counts its rounds from 0 to that, and the reverse has it."""
        loop = next((x for x in self.of.loops if self.of.trips.get(x.header) is value), None)
        if loop is None or self.block in loop:
            return None
        end = loop.header.terminator
        if end.op != "branch" or loop.exits() != [(loop.header, end.targets[1])]:
            return None
        test = end.own[0].owner
        if not isinstance(test, Instr) or test.op != "lt" or test.operands[0] is not value or not self._is_free(test.operands[1]):
            return None
        return test.operands[1]

    def _restore(self) -> None:
        """Make what the sweep needs of the forward sweep: from the tape, or computed again where it is first read."""
        keep = kept(self.needed, self.block, self._is_free, self.of.extents)
        here = {**self.counted, **{v: self._restored(v) for v in keep}}
        again: dict[Instr, Instr] = {}

        def find(v: Value) -> None:
            owner = v.owner
            if v in here or (self._is_free(v) and not const_of(v) is not None):
                return
            assert isinstance(owner, Instr), v
            if owner not in again:
                for read in reads(owner):
                    find(read)
                again[owner] = clone_instr(owner, here)
                here.update(zip(owner.results, again[owner].results, strict=True))

        for v in self.needed:
            find(v)
        for v, stand_in in self.needed.items():
            stand_in.replace_by(here[v])
        start = self.of.reverses[self.block]
        for copy in reversed(again.values()):
            users = [k for k, i in enumerate(start.instrs) if not reads(i).keys().isdisjoint(copy.results)]
            copy.block = start
            start.instrs.insert(min(users, default=len(start.instrs)), copy)

    def _is_free(self, v: Value) -> bool:
        return const_of(v) is not None or v in self.counted or self.of.is_direct(v, self.block)

    def _restored(self, value: Value) -> Value:
        """A value that the block saves at its end."""
        if value.type.rank or self.of.second is not None or any(self.block in cycle for cycle in self.of.cycles):
            tape = self.of.calls.tape
            save = Instr("push", (value,), (), on_tape(tape), (), self.b.span)
            restore = Instr("pop", (), (value.type,), on_tape(tape), (), self.b.span, (value.name,))
        else:
            variable = self.of.new_variable(value.type)
            save = Instr("set", (value,), (), {"var": variable}, (), self.b.span)
            restore = Instr("get", (), (value.type,), {"var": variable}, (), self.b.span, (value.name,))
        self.saved.append(save)
        here = self._shaped(restore.result, value) if value.type.rank else restore.result
        self.restored.append(restore)
        return here

    def _shaped(self, restored: Value, value: Value) -> Value:
        """What comes off the tape, with its extents: later stages do not see what was put there."""
        made: list[Instr] = []
        extents: list[Value] = []
        for axis, key in enumerate(self.of.extents.all(value)):
            tensor, at = restored, axis
            match key:
                case int(number):
                    made.append(Instr("const", (), (I64,), {"value": number}))
                case Value() if self.of.is_direct(key, self.block):
                    extents.append(key)
                    continue
                case Axis(of, k) if of is not value and self.of.is_direct(of, self.block):
                    tensor, at = of, k
            if not isinstance(key, int):
                made.append(Instr("dim", (tensor,), (I64,), {"axis": at}))
            extents.append(made[-1].result)
        shaped = Instr("reshape", (restored, *extents), (value.type,), {}, (), self.b.span, (value.name,))
        self.restored += [shaped, *reversed(made)]
        self.of.extents.declare_alike(shaped.result, value)
        return shaped.result

    def is_active(self, value: Value) -> bool:
        return value in self.of.active

    def key(self, extent: Value) -> Key:
        return self.of.extents.key(extent)

    def key_of(self, tensor: Value, axis: int) -> Key:
        return self.of.extents.of(tensor, axis)

    def extent(self, tensor: Value, axis: int) -> Value:
        """An extent of a tensor of the function."""
        key = self.of.extents.of(tensor, axis)
        if key not in self.extent_values:
            self.extent_values[key] = self._extent(key)
        return self.extent_values[key]

    def _extent(self, key: Key) -> Value:
        match key:
            case int(number):
                return self.b.i64(number)
            case Axis(of, axis):
                if self.of.is_direct(of, self.block):
                    return self.b.dim(of, axis)
                dim = Builder(self.block, self.of.module, self.b.span).dim(of, axis)
                return self.forward(dim)
            case value:
                return self.forward(value)

    # ------------------------------------------------------------ adjoints

    def add(self, of: Value, contribution: Value) -> None:
        if of in self.of.active:
            self.sums.setdefault(of, []).append(contribution)

    def current(self, of: Value) -> Value | None:
        """The adjoint so far; None for zero."""
        parts = self.sums.get(of, [])
        if len(parts) > 1:
            parts[:] = [self._total(of, parts)]
        return parts[0] if parts else None

    def replace(self, of: Value, adjoint: Value) -> None:
        self.sums[of] = [adjoint]

    def reverse(self, function: Function, wrt: tuple[int, ...]) -> None:
        reverse(function, wrt, False, NoCalls(Module({function.name: function})), {})

    def zeros(self, of: Value) -> Value:
        return self._zeros(of, range(of.type.rank))

    def _zeros(self, of: Value, axes: range) -> Value:
        zero = Type(of.type.elem)
        if not axes:
            return self.b.const(0.0, zero)
        return self.b.tabulate([self.extent(of, k) for k in axes], lambda b, *_: b.const(0.0, zero))

    def _total(self, of: Value, parts: list[Value]) -> Value:
        def added(b: Builder, *at: Value) -> Value:
            total = b.index(parts[0], *at)
            for p in parts[1:]:
                total = b.op("add", total, b.index(p, *at))
            return total

        if not of.type.rank:
            return added(self.b)
        return self.b.tabulate([self.extent(of, k) for k in range(of.type.rank)], added)

    def _leave(self, results: Sequence[Value]) -> None:
        """Pass the adjoints on to the reverse of where the block was entered from."""
        edges = [(p, k) for p, k in self.of.into[self.block] if p in self.of.reverses]
        if self.block not in self.of.behind_work:
            gradients = []
            for v in self.of.wrt:
                d = self.current(v)
                gradients.append(self.zeros(v) if d is None else d)
            self.b.ret(*(results if self.of.value else ()), *gradients)
            return
        targets = [(self.of.reverses[p], self._passed(p, k)) for p, k in edges]
        if len(targets) == 1:
            self.b.jump(targets[0][0], *targets[0][1])
            return
        if self.block in self.of.trips:
            (outside,) = (t for t, (p, _) in zip(targets, edges, strict=True) if self.block not in self.of.counters[p])
            (again,) = (t for t in targets if t is not outside)
            later = self.b.op("ne", self.forward(self.of.trips[self.block]), self.b.i64(0))
            self.b.branch(later, again[0], outside[0], again[1], outside[1])
            return
        origin = self.forward(self.of.origin[self.block])
        numbers = [self.of.into[self.block].index(e) for e in edges]
        while len(targets) > 2:
            rest = self.b.new_block(self.b.block.name)
            target, args = targets.pop()
            self.b.branch(self.b.op("eq", origin, self.b.i64(numbers.pop())), target, rest, args)
            self.b.move_to(rest)
        (zero, zero_args), (one, one_args) = targets
        from_one = origin if origin.type == BOOL else self.b.op("eq", origin, self.b.i64(numbers[1]))
        self.b.branch(from_one, one, zero, one_args, zero_args)

    def _passed(self, p: Block, edge: int) -> list[Value]:
        """The adjoints of what is live behind `p`, as far as this block and its parameters tell; then the rounds of the loops around it."""
        args = dict(zip(self.block.params, p.terminator.args(edge), strict=True))
        passed = []
        for v in self.of.live.live_out[p]:
            sources = [v] * (v in self.of.live.live_in[self.block]) + [param for param, arg in args.items() if arg is v]
            shaped = sources[0] if sources else v  # what this block has: `v` itself may be behind another edge
            parts = [d for d in map(self.current, sources) if d is not None]
            if not parts:
                passed.append(self.zeros(shaped))
            else:
                passed.append(parts[0] if len(parts) == 1 else self._total(shaped, parts))
        return passed + [self._round_of(h) for h in self.of.counters[p]]

    def _round_of(self, header: Block) -> Value:
        """Which round of a loop a block ran in that jumped here: back to its header, from one of the loop to another, or out of it."""
        trip = self.forward(self.of.trips[header])
        return self.b.op("sub", trip, self.b.i64(1)) if self.block is header else trip

    # ------------------------------------------------------------ instructions

    def _instr(self, instr: Instr) -> None:
        given = [self.current(r) if r in self.of.active else None for r in instr.results]
        for r in instr.results:
            self.sums.pop(r, None)
        if all(d is None for d in given) and not self._reaches_tape(instr):
            return
        d = given[0] if given else None
        match instr.op:
            case op if op in SCALAR_OPS and d is not None:
                for k, operand in enumerate(instr.operands):
                    rule = partial(instr, k)
                    if rule is not None and operand in self.of.active:
                        self.add(operand, self._of_path(instr, d, rule(At(self.b, instr, d, self.forward))))
            case "tabulate" if len(instr.regions[0].blocks) > 1:
                differentiate_branches(self, instr, given)
            case "tabulate" | "reduce":
                differentiate_region(self, instr, given)
            case "scatter" if d is not None:
                differentiate_region(self, instr, given)
                self.add(instr.operands[0], d)
            case "index" if d is not None:
                self._index(instr, d)
            case "index_if" if d is not None:
                self._index_if(instr, d)
            case "update" if d is not None:
                self._update(instr, d)
            case "reshape" if d is not None:
                x = instr.operands[0]
                self.add(x, self.b.reshape(d, [self.extent(x, k) for k in range(x.type.rank)]))
            case "barrier" if d is not None:
                self.add(instr.operands[0], d)
            case "call_vjp":
                self._call_vjp(instr, given)
            case "call":
                self._call(instr, given)
            case "push":
                self.add(instr.operands[0], self._popped(instr))
            case "pop":
                back = self.zeros(instr.result) if d is None else d
                self.b.emit("push", (back,), attrs=dict(instr.attrs))
            case "foreign" | "extern":
                raise unknown_service(instr)
            case op:
                raise InternalError(f"no derivative of `{op}`", "derivatives", instr.span)

    def _call_vjp(self, instr: Instr, given: Sequence[Value | None]) -> None:
        """The rule's gradients are added. Of what runs again, all adjoints come back with what the sweep adds to them (`ssa/rules.py`)."""
        adjoints = [self.zeros(r) if d is None else d for r, d in zip(instr.results, given, strict=True) if r.type.elem.is_real]
        if not instr.attrs["again"]:
            for v, g in by_own_rule(self.b, instr, adjoints, self.forward):
                self.add(v, g)
            return
        operands = [v if v.type == I64 else self.b.barrier(v) for v in map(self.forward, instr.operands)]
        so_far = [self._so_far(v) for v in instr.operands if v.type.elem.is_real]
        wrt = tuple(k for k, v in enumerate(instr.operands) if v in self.of.active)
        attrs: dict[str, Attr] = {"callee": instr.attrs["rule"], "value": False, "wrt": wrt}
        totals = self.b.insert(
            Instr("grad", (*operands, *adjoints, *so_far), tuple(instr.operands[k].type for k in wrt), attrs, (), instr.span)
        ).results
        for k, total in zip(wrt, totals, strict=True):
            self.replace(instr.operands[k], total)

    def _so_far(self, of: Value) -> Value:
        """The adjoint that a value has already; -0, to which anything can be added without a change, where it has none."""
        current = self.current(of) if of in self.of.active else None
        if current is not None:
            return current
        zero = self.b.const(-0.0, Type(of.type.elem))
        if not of.type.rank:
            return zero
        return self.b.tabulate([self.extent(of, k) for k in range(of.type.rank)], lambda b, *_: zero)

    def _reaches_tape(self, instr: Instr) -> bool:
        """Whether an instruction has a part in the sweep even if no adjoint of its results is known."""
        return instr.op in ("push", "pop") or (instr.op == "call" and callee_of(instr) in self.of.calls.touching)

    def _call(self, instr: Instr, given: Sequence[Value | None]) -> None:
        """The call is of the first part from now on, and the second is called here."""
        wrt = tuple(k for k, v in enumerate(instr.operands) if v in self.of.active)
        seeds = tuple(k for k, r in enumerate(instr.results) if r in self.of.active)
        forward, backward = self.of.calls.parts(callee_of(instr), wrt, seeds)
        instr.set("callee", forward)
        adjoints = [given[k] for k in seeds]
        sent = [self.zeros(instr.results[k]) if d is None else d for k, d in zip(seeds, adjoints, strict=True)]
        operands = [instr.operands[k] for k in wrt]
        for v, d in zip(operands, self.b.call(backward, sent, [v.type for v in operands]), strict=True):
            self.of.extents.declare_alike(d, v)
            self.add(v, d)

    def _popped(self, push: Instr) -> Value:
        """The adjoint of a value that was pushed."""
        (value,) = push.operands
        back = self.b.emit("pop", (), [value.type], dict(push.attrs)).result
        self.of.extents.declare_alike(back, value)
        return back

    def _of_path(self, instr: Instr, d: Value, contribution: Value) -> Value:
        """Where the path taken reads no result of an op, its adjoint is zero, and an infinite derivative makes no NaN of that. (Only
        then is it left out: an adjoint that is zero may have a derivative itself.)
        """
        if self.block is self.of.exit or instr.op not in SINGULAR:
            return contribution
        zero = self.b.const(0.0, contribution.type)
        nothing = self.b.op("and", self.b.op("eq", d, self.b.const(0.0, d.type)), self.b.op("isnan", contribution))
        return self.b.op("select", nothing, zero, contribution)

    def _index(self, instr: Instr, d: Value) -> None:
        """The part's adjoint is added in place."""
        x, *indices = instr.operands
        at = [self.forward(i) for i in indices]
        whole = self.current(x)
        if whole is None:
            self.replace(x, self.b.update(self.zeros(x), at, d))
            return
        part = self.b.index(whole, *at)
        self.replace(x, self.b.update(whole, at, self._total(instr.result, [part, d])))

    def _index_if(self, instr: Instr, d: Value) -> None:
        """The element's adjoint is added, once or not at all."""
        cond, tensor, *indices = instr.operands
        once, at = self.b.convert(self.forward(cond), I64), [self.forward(i) for i in indices]
        whole = self.current(tensor)
        into = self.zeros(tensor) if whole is None else whole
        self.replace(tensor, self.b.scatter(into, [once], lambda b, _: (*at, d)))

    def _update(self, instr: Instr, d: Value) -> None:
        x, *indices, part = instr.operands
        at = [self.forward(i) for i in indices]
        if part in self.of.active:
            self.add(part, self.b.index(d, *at))
        if x in self.of.active:
            self.add(x, self.b.update(d, at, self._zeros(x, range(len(at), x.type.rank))))

"""The memory plan: tensors as values become buffers with owners.

Requires  host SSA: every comprehension is a `launch`. Works in place.
Makes     `alloc`, `run`, `copy` and `free` explicit. Afterwards every tensor value has one owner, is read only while it
          is alive, and is freed, moved or returned exactly once on every path (`tensor/ownership.py` checks that and shares no code).

A value is owned by where it was made until something takes it over: `update`, `store`, `reshape` and `push` take their first
operand, an edge takes what it passes, `return` what it returns. Who takes a value that dies there gets the buffer itself; who
takes one that is read later gets a copy. So in

    head(%a: i64[_], %i: i64):
      %b = update %a, %i, %x : i64[_]
      jump head(%b, %j)

`%a` dies in the update and `%b` in the jump: one buffer, no copy, however long the loop. Parameters of a function are borrowed, and
copied by who takes them, unless the function takes one somewhere: then it owns it and the caller gives it up, or a
copy if it reads it later (`a = sort_part(a, lo, hi)` copies nothing).

A `launch` writes into new buffers, or over an input that dies there, where the kernel allows it. `dim` reads the extents,
which live in registers, not the buffer; so it does not keep one alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tlc.ssa.cfg import predecessors, reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Module, Terminator, User, Value
from tlc.ssa.liveness import Values, liveness
from tlc.tensor.extents import Extents, Key
from tlc.tensor.kernel.calls import applied
from tlc.tensor.kernel.ir import Buffer, Kernel

Consumed = dict[str, tuple[bool, ...]]  # function -> for each parameter: the function takes it over


def plan(module: Module, kernels: Mapping[str, Kernel] | None = None) -> Consumed:
    """Give every tensor of the module a buffer, in place. The result says which parameters each function takes over."""
    kernels = kernels or {}
    consumed = infer_consumed(module, kernels)
    for function in module.functions.values():
        _Planner(function, kernels, consumed).run()
    return consumed


# ---------------------------------------------------------------- who takes what


def taken_operands(user: Instr, consumed: Consumed) -> tuple[int, ...]:
    """Positions of the tensors that an instruction takes over (edges and returns take all of theirs)."""
    match user.op:
        case "update" | "store" | "push":
            positions: Iterable[int] = (0,)
        case "reshape" | "stop_grad" if user.result.type.rank:
            positions = (0,)
        case "call":
            takes = consumed[str(user.attrs["callee"])]
            positions = (k for k, taken in enumerate(takes) if taken)
        case "run":
            positions = range(len(user.results))
        case _:
            positions = ()
    return tuple(k for k in positions if user.operands[k].type.rank)


def infer_consumed(module: Module, kernels: Mapping[str, Kernel]) -> Consumed:
    """Which parameters each function takes over: those that something in it takes. Functions that kernels apply borrow all."""
    borrowing = {name for kernel in kernels.values() for name in applied(kernel)}
    consumed: Consumed = {name: (False,) * len(f.params) for name, f in module.functions.items()}
    changed = True
    while changed:
        changed = False
        for name, f in module.functions.items():
            if name in borrowing:
                continue
            now = tuple(p.type.rank > 0 and _is_taken(p, consumed) for p in f.params)
            changed |= now != consumed[name]
            consumed[name] = now
    return consumed


def _is_taken(value: Value, consumed: Consumed) -> bool:
    def takes(user: User) -> bool:
        return not isinstance(user, Instr) or any(user.operands[k] is value for k in taken_operands(user, consumed))

    return any(map(takes, value.uses))


# ---------------------------------------------------------------- the plan of one function


def tensor_reads(user: User) -> Values:
    """The tensors whose buffers an instruction or terminator needs."""
    if isinstance(user, Instr) and user.op == "dim":
        return {}
    return {v: None for v in user.operands if v.type.rank}


@dataclass
class _Planner:
    function: Function
    kernels: Mapping[str, Kernel]
    consumed: Consumed
    borrowed: set[Value] = field(default_factory=set)
    extents: dict[Value, tuple[Key, ...]] = field(default_factory=dict)

    def run(self) -> None:
        extents = Extents(self.function)
        self.extents = {v: extents.all(v) for v in _values(self.function) if v.type.rank}
        takes = self.consumed[self.function.name]
        self.borrowed = {p for p, taken in zip(self.function.params, takes, strict=True) if p.type.rank and not taken}
        live = liveness(self.function.body, tensor_reads)
        arrivals = {b: len(p) for b, p in predecessors(self.function.body).items()}
        for block in reverse_postorder(self.function.body):
            self.block(block, live.live_out[block])
        for block in reverse_postorder(self.function.body):
            if block in live.live_in:
                self.edges(block, live.live_in, live.live_out[block], arrivals)

    def owned(self, value: Value) -> bool:
        return value.type.rank > 0 and value not in self.borrowed

    def block(self, block: Block, live_out: Values) -> None:
        after: dict[Instr, Values] = {}  # what is alive behind each instruction
        live = dict(live_out)
        live.update(tensor_reads(block.terminator))
        for instr in reversed(block.instrs):
            after[instr] = dict(live)
            for r in instr.results:
                live.pop(r, None)
            live.update(tensor_reads(instr))
        planned: list[Instr] = [_free(p) for p in block.params if self.owned(p) and p not in live]
        for instr in block.instrs:
            self.instruction(instr, after[instr], planned)
        block.instrs = planned
        for instr in planned:
            instr.block = block

    def instruction(self, instr: Instr, after: Values, planned: list[Instr]) -> None:
        """Append the instruction with the copies before it and the frees behind it."""
        if instr.op == "launch":
            self.launched(instr, after, planned)
        reads, moved = tensor_reads(instr), self.take(instr, after, planned)
        planned.append(instr)
        dying = [v for v in (*reads, *instr.results) if self.owned(v) and v not in after and v not in moved]
        planned += [_free(v) for v in dying]

    def take(self, instr: Instr, after: Values, planned: list[Instr]) -> Values:
        """Make sure that what the instruction takes over is its own: the values that it takes themselves."""
        moved: Values = {}
        operands = list(instr.operands)
        taken = taken_operands(instr, self.consumed)
        for k in taken:
            v = operands[k]
            shared = instr.op != "run" and instr.operands.count(v) > 1  # `run` was given its buffers knowingly
            if self.owned(v) and v not in after and v not in moved and not shared:
                moved[v] = None
            else:
                operands[k] = _copied(v, planned)
        instr.operands = tuple(operands)
        return moved

    def launched(self, launch: Instr, after: Values, planned: list[Instr]) -> None:
        """Turn a `launch` into a `run` into new buffers or over inputs that die."""
        kernel = self.kernels.get(str(launch.attrs["kernel"]))
        count = sum(r.type.rank for r in launch.results)
        extents, inputs = launch.operands[:count], launch.operands[count:]
        buffers: list[Value] = []
        for position, result in enumerate(launch.results):
            mine, extents = extents[: result.type.rank], extents[result.type.rank :]
            over = self.overwritten(kernel, position, inputs, after, buffers) if kernel and result.type.rank else None
            if over is None:
                new = Instr("alloc", mine, (result.type,), span=launch.span, names=(result.name,))
                planned.append(new)
                over = new.result
            elif self.extents[over] != self.extents[result]:  # the kernel reads it through a `reshape`
                new = Instr("reshape", (over, *mine), (result.type,), span=launch.span, names=(over.name,))
                planned.append(new)
                inputs = tuple(new.result if v is over else v for v in inputs)
                over = new.result
            buffers.append(over)
        launch.op, launch.operands = "run", (*buffers, *inputs)

    def overwritten(self, kernel: Kernel, position: int, inputs: tuple[Value, ...], after: Values, chosen: list[Value]) -> Value | None:
        """An input that dies here and that the kernel lets the output at `position` write over."""
        allowed = {i for o, i in kernel.may_alias if o == position}
        output = kernel.outputs[position]
        for i in sorted(allowed):
            v, buffer = inputs[i], kernel.inputs[i]
            fits = isinstance(buffer, Buffer) and buffer.elem.width == output.elem.width and buffer.shape == output.shape
            alone = all(j in allowed for j, other in enumerate(inputs) if other is v)
            if fits and alone and self.owned(v) and v not in after and v not in chosen and v.type.elem.width == output.elem.width:
                return v
        return None

    def edges(self, block: Block, live_in: Mapping[Block, Values], live_out: Values, arrivals: Mapping[Block, int]) -> None:
        """Give each edge, and a return, what it takes; free what dies there."""
        end = block.terminator
        if end.op == "return":
            planned: list[Instr] = []
            values, _ = self.passed(end.own, {}, planned)
            _append(block, planned)
            end.operands = values
            return
        alive = {v: None for v in (*live_out, *end.operands) if self.owned(v)}
        edges: list[tuple[Block, tuple[Value, ...]]] = []
        for target, passed in end.edges:
            planned = []
            args, moved = self.passed(passed, live_in[target], planned)
            frees = [_free(v) for v in alive if v not in live_in[target] and v not in moved]
            if end.op == "jump":
                _append(block, planned + frees)
            elif not planned and arrivals[target] == 1:
                _prepend(target, frees)
            elif planned or frees:
                edges.append((_split(block, target, args, planned + frees), ()))
                continue
            edges.append((target, args))
        if end.edges:
            block.terminator = Terminator(end.op, end.own, tuple(edges), end.span)

    def passed(self, args: tuple[Value, ...], alive: Values, planned: list[Instr]) -> tuple[tuple[Value, ...], Values]:
        """What an edge passes, copied where it is read later, borrowed or passed twice; and what it takes itself."""
        moved: Values = {}
        out = []
        for v in args:
            if not v.type.rank:
                out.append(v)
            elif self.owned(v) and v not in alive and v not in moved:
                moved[v] = None
                out.append(v)
            else:
                out.append(_copied(v, planned))
        return tuple(out), moved


def _values(function: Function) -> Iterator[Value]:
    for block in function.blocks:
        yield from block.params
        for instr in block.instrs:
            yield from instr.results


def _free(value: Value) -> Instr:
    return Instr("free", (value,))


def _copied(value: Value, planned: list[Instr]) -> Value:
    copy = Instr("copy", (value,), (value.type,), names=(value.name,))
    planned.append(copy)
    return copy.result


def _append(block: Block, instrs: list[Instr]) -> None:
    for i in instrs:
        block.append(i)


def _prepend(block: Block, instrs: list[Instr]) -> None:
    for i in instrs:
        i.block = block
    block.instrs[:0] = instrs


def _split(block: Block, target: Block, args: tuple[Value, ...], instrs: list[Instr]) -> Block:
    """A block of its own on an edge."""
    assert block.region is not None
    between = block.region.add(Block(f"{block.name}_{target.name}"))
    _append(between, instrs)
    between.terminator = Terminator("jump", (), ((target, args),), block.terminator.span)
    return between

"""The memory plan: tensors as values become buffers with owners.

Requires  host SSA: every comprehension is a `launch`. Works in place.
Makes     `alloc`, `run`, `copy`, `free`, `split` and `join` explicit. Afterwards every tensor value has one owner, is read only while it
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

A `view` borrows the buffer of what it looks at: reading it is reading that, and who takes it gets a copy. If the other is changed
while the view is still read, the view is copied, not the other. A tensor of one constant is filled again instead of copied.

A result that is only made to become a part of a tensor is written there. Of

    %d = view %w, %row, %n : f32[_]             the old part
    %y = launch %n, %d, %x {"plus"} : f32[_]
    %v = update %w, %row, %y : f32[_,_]

nothing is copied: `%w` is split, the kernel writes into its part, over what it reads there, and the two are joined.

    %rest, %p = split %w, %row : f32[_,_], f32[_]
    %y = run %p, %p, %x {"plus"} : f32[_]
    %v = join %rest, %y : f32[_,_]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.ssa.cfg import predecessors, reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Module, Terminator, User, Value, drop, same_value
from tlc.ssa.liveness import Values, liveness
from tlc.tensor.extents import Extents, Key
from tlc.tensor.fills import fill_again
from tlc.tensor.kernel.ir import Buffer, Kernel
from tlc.tensor.taking import Consumed, infer_consumed, taken_operands


def plan(module: Module, kernels: Mapping[str, Kernel] | None = None) -> Consumed:
    """Give every tensor of the module a buffer, in place. The result says which parameters each function takes over."""
    kernels = kernels or {}
    consumed = infer_consumed(module, kernels)
    for function in module.functions.values():
        fill_again(function, kernels, consumed)
    for function in module.functions.values():
        _Planner(function, kernels, consumed).run()
    return consumed


# ---------------------------------------------------------------- the plan of one function


def tensor_reads(user: User) -> Values:
    """The tensors whose buffers an instruction or terminator needs."""
    return {_looked_at(v): None for v in _tensors(user)}


def _tensors(user: User) -> Values:
    """The tensors that an instruction or terminator reads, views among them."""
    if isinstance(user, Instr) and user.op == "dim":
        return {}
    return {v: None for v in user.operands if v.type.rank}


def _is_view(value: Value) -> bool:
    return isinstance(value.owner, Instr) and value.owner.op == "view"


def _looked_at(value: Value) -> Value:
    """The tensor in whose buffer the elements of a value lie."""
    while _is_view(value):
        assert isinstance(value.owner, Instr)
        value = value.owner.operands[0]
    return value


def _keep_views(function: Function, borrowed: Collection[Value], consumed: Consumed) -> None:
    """Copy the views that are read by who takes over what they look at, or after that, if what they look at itself is not."""
    views = [v for v in _values(function) if _is_view(v)]
    if not views:
        return
    lost: Values = {}

    def take(taken: Iterable[Value], after: Values, beside: Values) -> None:
        gone = {v for v in taken if v not in after and v not in borrowed}
        lost.update({v: None for v in views if (v in after or v in beside) and _looked_at(v) in gone})

    live = liveness(function.body, _tensors)
    for block in live.live_out:
        for target, args in block.terminator.edges:
            take((a for a in args if a.type.rank), live.live_in[target], {})
        after = {**live.live_out[block], **_tensors(block.terminator)}
        for instr in reversed(block.instrs):
            take((instr.operands[k] for k in taken_operands(instr, consumed)), after, _tensors(instr))
            for r in instr.results:
                after.pop(r, None)
            after.update(_tensors(instr))
    for v in lost:
        view = v.owner
        assert isinstance(view, Instr) and view.block is not None
        copy = Instr("copy", (), (v.type,), span=view.span, names=(v.name,))
        v.replace_by(copy.result)
        copy.operands, copy.block = (v,), view.block
        view.block.instrs.insert(view.block.instrs.index(view) + 1, copy)


def _stored(block: Block, after: Mapping[Instr, Values], owned: Callable[[Value], bool]) -> dict[Value, Instr]:
    """The results of launches that are made for one `update` alone, by which they become a part of a tensor that dies there and that
    nobody else needs from the launch on.
    """
    place: dict[Value, int] = {r: k for k, i in enumerate(block.instrs) for r in i.results}
    at = {i: k for k, i in enumerate(block.instrs)}
    found: dict[Value, Instr] = {}
    for update in block.instrs:
        if update.op != "update" or len(update.operands) < 3:
            continue
        x, *indices, v = update.operands
        launch = v.owner
        if launch not in at or launch.op != "launch" or not v.type.rank or v.uses != {update: 1} or not owned(x) or x in after[update]:
            continue
        between = block.instrs[at[launch] + 1 : at[update]]
        if all(place.get(y, -1) < at[launch] for y in (x, *indices)) and not any(x in tensor_reads(i) for i in between):
            found[v] = update
    return found


@dataclass
class _Planner:
    function: Function
    kernels: Mapping[str, Kernel]
    consumed: Consumed
    borrowed: set[Value] = field(default_factory=set)
    stored: dict[Value, Instr] = field(default_factory=dict)  # results of launches, and the updates that they are made for
    extents: dict[Value, tuple[Key, ...]] = field(default_factory=dict)

    def run(self) -> None:
        takes = self.consumed[self.function.name]
        self.borrowed = {p for p, taken in zip(self.function.params, takes, strict=True) if p.type.rank and not taken}
        _keep_views(self.function, self.borrowed, self.consumed)
        self.borrowed.update(v for v in _values(self.function) if _is_view(v))
        extents = Extents(self.function)
        self.extents = {v: extents.all(v) for v in _values(self.function) if v.type.rank}
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
        self.stored = _stored(block, after, self.owned)
        planned: list[Instr] = [_free(p) for p in block.params if self.owned(p) and p not in live]
        for instr in block.instrs:
            self.instruction(instr, after[instr], planned)
        unread = [i for i in planned if i.op == "view" and not i.result.uses]  # of what was written over
        for instr in unread:
            drop(instr)
        block.instrs = [i for i in planned if i not in unread]
        for instr in block.instrs:
            instr.block = block

    def instruction(self, instr: Instr, after: Values, planned: list[Instr]) -> None:
        """Append the instruction with the copies before it and the frees behind it."""
        if instr.op == "launch":
            self.launched(instr, after, planned)
        elif instr.op == "update" and instr.operands[-1] in self.stored:
            self.joined(instr)
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
                operands[k] = _copied(v, planned, instr.span)
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
            if result in self.stored:
                inputs, part = self.part(kernel, position, self.stored[result], inputs, planned)
                if part is None:
                    del self.stored[result]
                else:
                    self.extents[part] = self.extents[result]
                    over = part
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
        output = kernel.outputs[position]
        allowed = _overwritable(kernel, position)
        for i in sorted(allowed):
            v = inputs[i]
            alone = all(other is v and j in allowed for j, other in enumerate(inputs) if _looked_at(other) is v)
            if alone and self.owned(v) and v not in after and v not in chosen and v.type.elem.width == output.elem.width:
                return v
        return None

    def part(
        self, kernel: Kernel | None, position: int, update: Instr, inputs: tuple[Value, ...], planned: list[Instr]
    ) -> tuple[tuple[Value, ...], Value | None]:
        """The inputs of the launch, and the part of a tensor that an `update` would fill with the output at `position`, split from the
        rest; None for the part if the kernel reads the tensor in another way than each element before it is written.
        """
        x, *indices, v = update.operands
        same = {i for i, other in enumerate(inputs) if _looked_at(other) is x}
        allowed = _overwritable(kernel, position) if kernel else frozenset()
        if not same <= allowed or not all(self.is_part(inputs[i], x, indices, v) for i in same):
            return inputs, None
        split = Instr("split", (x, *indices), (x.type, v.type), span=update.span, names=(x.name, v.name))
        planned.append(split)
        rest, part = split.results
        update.operands = (rest, *indices, v)
        return tuple(part if i in same else other for i, other in enumerate(inputs)), part

    def is_part(self, view: Value, x: Value, indices: list[Value], v: Value) -> bool:
        """Whether a view shows what an `update` of `x` at the indices by `v` replaces."""
        owner = view.owner
        if not isinstance(owner, Instr) or owner.op != "view" or owner.operands[0] is not x or self.extents[view] != self.extents[v]:
            return False
        start = owner.operands[1 : len(owner.operands) - view.type.rank]
        return len(start) == len(indices) and all(map(same_value, start, indices))

    def joined(self, update: Instr) -> None:
        """Make of an `update` whose part is in its place already the end of the split."""
        update.op, update.operands = "join", (update.operands[0], update.operands[-1])

    def edges(self, block: Block, live_in: Mapping[Block, Values], live_out: Values, arrivals: Mapping[Block, int]) -> None:
        """Give each edge, and a return, what it takes; free what dies there."""
        end = block.terminator
        if end.op == "return":
            planned: list[Instr] = []
            values, moved = self.passed(end.own, {}, planned, end.span)
            _append(block, planned + [_free(v) for v in tensor_reads(end) if self.owned(v) and v not in moved])
            end.operands = values
            return
        alive = {v: None for v in (*live_out, *tensor_reads(end)) if self.owned(v)}
        edges: list[tuple[Block, tuple[Value, ...]]] = []
        for target, passed in end.edges:
            planned = []
            args, moved = self.passed(passed, live_in[target], planned, end.span)
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

    def passed(self, args: tuple[Value, ...], alive: Values, planned: list[Instr], span: Span) -> tuple[tuple[Value, ...], Values]:
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
                out.append(_copied(v, planned, span))
        return tuple(out), moved


def _overwritable(kernel: Kernel, position: int) -> frozenset[int]:
    """The inputs over which the kernel may write its output at `position`."""
    output = kernel.outputs[position]
    of_its_shape = (
        i for i, b in enumerate(kernel.inputs) if isinstance(b, Buffer) and b.elem.width == output.elem.width and b.shape == output.shape
    )
    return frozenset(i for i in of_its_shape if (position, i) in kernel.may_alias)


def _values(function: Function) -> Iterator[Value]:
    for block in function.blocks:
        yield from block.params
        for instr in block.instrs:
            yield from instr.results


def _free(value: Value) -> Instr:
    return Instr("free", (value,))


def _copied(value: Value, planned: list[Instr], span: Span) -> Value:
    copy = Instr("copy", (value,), (value.type,), span=span, names=(value.name,))
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

"""Interchange of a comprehension with the control flow of its body, where all elements take the same way through it.

    Y = tabulate [b] {                            X = tabulate [b] { x = ..; yield x };  jump head(0, X)
      x = ..;  jump head(0, x)                    head(l, X):  branch (lt l, n), body, exit
      head(l, x):  branch (lt l, n), body, exit   body:        X1 = tabulate [b] { x = index X, b; x1 = ..; yield x1 }
      body:        x1 = ..;  jump head(l + 1, x1)              jump head(l + 1, X1)
      exit:        yield (mul x, 2) }             exit:        Y = tabulate [b] { x = index X, b; yield (mul x, 2) }

So a network with a loop over its layers, written for one example, applies every layer to the whole batch at once.

A value is uniform if it is computed from nothing that depends on the indices; parameters of blocks are so where all that is passed to
them is. Branches on uniform values become branches of the code around, and so do the uniform instructions, once instead of once for each
element. What varies becomes, block by block, one comprehension, which `tensor/distribute.py` takes apart next; what later ones need of it
has the indices for its first dimensions.

Without elements nothing of the body may run (it may loop forever, or load what a check of an element would have refused), so where their
number is not known, a branch jumps over it.

What each element puts on a tape, all put there together: `push` of a tensor of it, and `pop` of that. So the gradient of a loop, applied to
a batch, is a loop over the batch's gradients. A tape on which all put the same stays as it is.

A tensor of each element that a loop changes in place, at indices that are the same for all, has these indices first and those of the
elements behind them, so that the update changes a row of it (`tensor/in_place.py`).

Not done where elements may take different ways, where they call what touches a tape, one element after the other, or where a loop
changes a tensor of each element at indices of its own, which would become a new tensor of all elements in each iteration. Where a loop
changes one and the elements are known to be few, a loop over them costs less than a kernel for each change.

Requires: flat comprehensions inside the region. Method: Blelloch 1990; map-loop interchange of Henriksen et al. 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.clone import clone_instr
from tlc.ssa.edit import edges_into
from tlc.ssa.ir import BOOL, Attr, Block, Instr, Module, Region, Terminator, Type, User, Value, drop, erase, is_positive, number_of, walk
from tlc.ssa.liveness import reads
from tlc.tensor.extents import extent
from tlc.tensor.in_place import READS, changed_in_place
from tlc.tensor.loops import Shapes, put_last, split_behind
from tlc.tensor.outline import may_stop
from tlc.tensor.scalar_code import is_scalar

FEW = 16  # elements
ORDERED = frozenset({"extern", "print"})  # what elements do one after the other
TAPE = ("push", "pop")


def interchange(instr: Instr, module: Module, taped: frozenset[str]) -> bool:
    """Replace a tabulate whose region has control flow by that control flow around smaller ones; False where that cannot be.

    `taped` are the functions that touch a tape.
    """
    work = _Interchange(instr, module, taped)
    if not work.possible():
        return False
    work.run()
    return True


class _Interchange:
    def __init__(self, instr: Instr, module: Module, taped: frozenset[str]) -> None:
        self.instr, self.module, self.taped = instr, module, taped
        self.region = instr.regions[0]
        self.params = tuple(self.region.entry.params)
        self.order = reverse_postorder(self.region)
        self.varying, self.tapes = _varying(self.order, self.params)
        self.turned: dict[Value, int] = {}  # what is changed in place -> how many of its axes come before those of the elements
        self.whole: dict[Value, Value] = {}  # what varies -> a tensor of it for all elements
        self.cheap: dict[Value, bool] = {}
        self.users: dict[Value, list[User]] = {}

    def possible(self) -> bool:
        """Whether all elements take the same way, and change no tensor in place but at indices that all have."""
        if len(self.order) == 1 or edges_into(self.region)[self.region.entry]:
            return False
        if any(i.op in ORDERED or (i.op == "call" and callee_of(i) in self.taped) for i in walk(self.region)):
            return False
        if any(v in self.varying for b in self.order for v in b.terminator.own if b.terminator.op != "yield"):
            return False
        turned = changed_in_place(self.region, self.order, self.varying)
        if turned is None or (turned and self.has_few()):
            return False
        self.turned = turned
        return True

    def has_few(self) -> bool:
        """Whether there are few elements, as far as is known."""
        known = [n for n in map(number_of, self.instr.operands) if n is not None]
        return len(known) == len(self.instr.operands) and prod(known) < FEW

    def varies(self, instr: Instr) -> bool:
        return (instr.op in TAPE and instr.attrs["tape"] in self.tapes) or any(v in self.varying for v in (instr.results or reads(instr)))

    def run(self) -> None:
        instr = self.instr
        for b in self.order:
            for user in (*b.instrs, b.terminator):
                for v in reads(user):
                    self.users.setdefault(v, []).append(user)
        start = instr.block
        assert start is not None and start.region is not None
        done = split_behind(instr, "done")
        start.instrs.pop()
        first = self.beyond_nothing(start, done)
        blocks = {self.region.entry: first}
        for old in self.order[1:]:
            new = blocks[old] = start.region.add(Block(old.name))
            for p in old.params:
                if p in self.varying:
                    self.whole[p] = new.add_param(self.type_of(p), p.name)
                else:
                    p.replace_by(new.add_param(p.type, p.name))
        for old in self.order:
            self.block(old, blocks, done)
        for r in instr.results:
            r.replace_by(done.add_param(r.type, r.name))
        drop(instr)
        put_last(done)

    def beyond_nothing(self, start: Block, done: Block) -> Block:
        """The block that begins the body: the one where the comprehension stood, or where there may be no elements, one behind a branch."""
        b = Builder(start, self.module, self.instr.span)
        doubtful = [n for n in self.instr.operands if not is_positive(n)]
        if not doubtful:
            return start
        shapes = Shapes(self.instr, b)
        nothing = [shapes.zeros(k) for k in range(len(self.instr.results))]
        some = b.every([b.op("gt", n, b.i64(0)) for n in doubtful])
        first = b.new_block("some")
        b.branch(some, first, done, (), nothing)
        return first

    def type_of(self, v: Value) -> Type:
        return Type(v.type.elem, v.type.rank + len(self.params))

    # ------------------------------------------------------------ one block

    def block(self, old: Block, blocks: dict[Block, Block], done: Block) -> None:
        """The new block: uniform instructions as they are, and comprehensions of what stands between."""
        new, end = blocks[old], old.terminator
        piece: list[Instr] = []
        for i in list(old.instrs):
            if i.op == "push" and self.varies(i):
                (v,) = i.operands
                tensor = self.piece(new, piece, (v,))[v]
                piece = []
                new.append(Instr("push", (tensor,), (), dict(i.attrs), (), i.span))
                continue
            if i.op == "pop" and self.varies(i):
                self.whole[i.result] = self.popped(new, i)
                continue
            if i.op == "update" and i.result in self.turned:
                before, *indices, part = i.operands
                whole = self.piece(new, piece, (part, before) if before in self.varying else (part,))
                piece = []
                b = Builder(new, self.module, i.span)
                rows = self.rows(b, before, whole, len(indices))
                self.whole[i.result] = b.update(rows, indices, whole[part], hint=i.result.name)
                continue
            if self.varies(i):
                piece.append(i)
                continue
            if not _is_total(i) and any(may_stop(self.module, p) for p in piece):
                self.piece(new, piece, ())  # it may rely on what is checked there
                piece = []
            old.instrs.remove(i)
            new.append(i)
        edges: list[tuple[Block, tuple[tuple[Value, Value | None], ...]]]
        if end.op == "yield":
            edges = [(done, tuple((v, None) for v in end.operands))]
        else:
            edges = [(blocks[t], tuple(zip(args, t.params, strict=True))) for t, args in end.edges]
        several = [(a, p) for _, args in edges for a, p in args if p is None or p in self.varying]  # where each element has its own
        whole = self.piece(new, piece, tuple(dict.fromkeys(a for a, p in several if a in self.varying or p not in self.turned)))
        at = Builder(new, self.module, end.span)

        def passed(a: Value, p: Value | None) -> Value:
            if p is None:
                return self.unturned(at, whole[a], self.turned[a]) if a in self.turned else whole[a]
            if p in self.turned:
                return self.rows(at, a, whole, self.turned[p])
            return whole[a] if p in self.varying else a

        given = tuple((target, tuple(passed(a, p) for a, p in args)) for target, args in edges)
        new.terminator = Terminator("jump", (), given, end.span) if end.op == "yield" else Terminator(end.op, end.own, given, end.span)

    # ------------------------------------------------------------ tensors that are changed in place

    def rows(self, b: Builder, v: Value, whole: Mapping[Value, Value], first: int) -> Value:
        """A tensor of each element, or one that is the same for all, as it is changed in place. `whole`: what varies, of all elements."""
        if v in self.turned:
            return whole[v]
        before = len(self.params) if v in self.varying else 0
        tensor = whole[v] if before else v
        own = [extent(b, tensor, before + k) for k in range(v.type.rank)]

        def element(b: Builder, *at: Value) -> Value:
            behind = at[first + len(self.params) :]
            return b.index(tensor, *at[first : first + before], *at[:first], *behind)

        return b.tabulate([*own[:first], *self.instr.operands, *own[first:]], element)

    def unturned(self, b: Builder, rows: Value, first: int) -> Value:
        """The same with the axes of the elements first again."""
        count = len(self.params)
        own = [extent(b, rows, k) for k in range(rows.type.rank) if not first <= k < first + count]

        def element(b: Builder, *at: Value) -> Value:
            mine, own = at[:count], at[count:]
            return b.index(rows, *own[:first], *mine, *own[first:])

        return b.tabulate([*self.instr.operands, *own], element)

    def read_rows(self, instr: Instr, values: dict[Value, Value]) -> None:
        """Let a copy of an instruction, and what is in its regions, read what is changed in place where it lies."""
        mine = tuple(values[p] for p in self.params)
        for i in (instr, *(x for region in instr.regions for x in walk(region))):
            at = READS.get(i.op, -1)
            if at < 0 or i.operands[at] not in self.turned:
                continue
            v, given = i.operands[at], i.operands[at + 1 :]
            first, rows = self.turned[v], self.whole[v]
            if len(given) >= first:
                i.operands = (*i.operands[:at], rows, *given[:first], *mine, *given[first:])
                continue
            b = Builder.before(i, self.module)
            own = [*range(len(given), first), *range(first + len(mine), rows.type.rank)]

            def element(b: Builder, *more: Value, rows: Value = rows, given: tuple[Value, ...] = given, first: int = first) -> Value:
                own = (*given, *more)
                return b.index(rows, *own[:first], *mine, *own[first:])

            part = b.tabulate([extent(b, rows, k) for k in own], element)
            values.update({old: part for old, new in values.items() if new is i.result})
            i.result.replace_by(part)
            erase(i)

    # ------------------------------------------------------------ comprehensions

    def piece(self, new: Block, instrs: Sequence[Instr], passed: Sequence[Value]) -> dict[Value, Value]:
        """A comprehension of some instructions; gives tensors of what the block passes on."""
        inside: set[User] = set(instrs)
        kept = [r for i in instrs for r in i.results if not self.is_cheap(r) and any(u not in inside for u in self.users.get(r, ()))]
        own = [v for v in passed if v not in self.whole and v not in kept]
        mine: dict[Value, Value] = {}
        if kept or own or any(may_stop(self.module, i) for i in instrs):
            entry = Block()
            values = {p: entry.add_param(p.type, p.name) for p in self.params}
            b = Builder(entry, self.module, self.instr.span)
            for i in instrs:
                for v in reads(i):
                    if v not in self.turned:
                        self.have(b, v, values)
                self.read_rows(b.insert(clone_instr(i, values)), values)
            yields = [self.have(b, v, values) for v in (*kept, *own)] or [b.const(False, BOOL)]
            b.yield_(*yields)
            types = tuple(map(self.type_of, yields))
            names = tuple(v.name for v in (*kept, *own)) or ("",)
            at = instrs[0].span if instrs else self.instr.span
            made = new.append(Instr("tabulate", self.instr.operands, types, {}, (Region([entry]),), at, names)).results
            self.whole |= dict(zip(kept, made, strict=False))
            mine = dict(zip(own, made[len(kept) :], strict=False))
        return {v: mine.get(v) or self.whole[v] for v in passed}

    def popped(self, new: Block, instr: Instr) -> Value:
        """What all elements take from the tape, with its extents."""
        b = Builder(new, self.module, instr.span)
        value = b.emit("pop", (), [self.type_of(instr.result)], dict(instr.attrs), names=[instr.result.name]).result
        rest = [b.dim(value, axis) for axis in range(len(self.params), value.type.rank)]
        return b.reshape(value, [*self.instr.operands, *rest], hint=instr.result.name)

    def have(self, b: Builder, v: Value, values: dict[Value, Value]) -> Value:
        """A value at the element that a comprehension is at: read, or if it is cheap, computed again."""
        if v not in self.varying or v in values:
            return values.get(v, v)
        if v in self.whole:
            values[v] = b.index(self.whole[v], *(values[p] for p in self.params), hint=v.name)
            return values[v]
        assert isinstance(v.owner, Instr)
        for o in v.owner.operands:
            self.have(b, o, values)
        b.insert(clone_instr(v.owner, values))
        return values[v]

    def is_cheap(self, v: Value) -> bool:
        """Parts of outer tensors, and scalars of indices alone: rather computed again than stored."""
        if v not in self.cheap:
            owner = v.owner
            self.cheap[v] = v not in self.varying or v in self.params
            if isinstance(owner, Instr) and not self.cheap[v]:
                row = SCALAR_OPS.get(owner.op)
                fine = owner.op == "index" or (row is not None and not row.elementary)
                self.cheap[v] = fine and all(map(self.is_cheap, owner.operands))
        return self.cheap[v]


def _varying(order: Sequence[Block], params: Sequence[Value]) -> tuple[set[Value], set[Attr]]:
    """What depends on the indices, where the way through the blocks does not, and the tapes that have some of it: a fixpoint. All that
    comes off such a tape varies.
    """
    pushed, popped = ({i.attrs["tape"] for b in order for i in b.instrs if i.op == op} for op in TAPE)
    varying, tapes = set(params), popped - pushed  # of what was put there before nothing is known
    count = -1
    while count != len(varying) + len(tapes):
        count = len(varying) + len(tapes)
        for block in order:
            for instr in block.instrs:
                if not varying.isdisjoint(reads(instr)) or (instr.op == "pop" and instr.attrs["tape"] in tapes):
                    varying.update(instr.results)
                    if instr.op == "push":
                        tapes.add(instr.attrs["tape"])
            for target, args in block.terminator.edges:
                varying.update(p for p, a in zip(target.params, args, strict=True) if a in varying)
    return varying, tapes


def _is_total(instr: Instr) -> bool:
    """Whether an instruction may run whatever was checked before."""
    return instr.op == "dim" or (is_scalar(instr) and instr.op not in ("floordiv", "mod"))

"""A piece of a distributed comprehension: code of its region that is copied to a new place, with what it is computed from.

    region of tabulate [b]:                    a piece over [b] that needs %r:
      %n = dim x, 1                              %s = index R, b         (%s was stored: a load of its own piece)
      %s = reduce sum [k] { .. }                 %c = mul %s, 2.0
      %r = add (mul %s, 2.0), (index x, b, 0)    %r = add %c, (index x, b, 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tlc.ssa.builder import Builder
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.ir import Block, Instr, Region, Terminator, Value, yield_
from tlc.tensor.scalar_code import loaded

if TYPE_CHECKING:
    from tlc.tensor.distribute import Distribution


class Piece:
    """Code of the old region that is copied to a new place. `values` maps what has been copied."""

    def __init__(self, of: Distribution, b: Builder, values: dict[Value, Value]) -> None:
        self.of = of
        self.b = b
        self.values = values

    def need(self, *wanted: Value) -> tuple[Value, ...]:
        """Scalars of the region as values here, what they are computed from being copied first, in its old order."""
        of = self.of
        work = [v for v in wanted if self._unknown(v)]
        needed: set[Instr] = set()
        while work:
            v = work.pop()
            owner = v.owner
            assert isinstance(owner, Instr), f"{v} is no value of the comprehension's entry"
            if owner in needed:
                continue
            needed.add(owner)
            reads = of.views[v].prefix if v in of.views else of.reads(owner)
            work += [o for o in reads if self._unknown(o)]
        if needed:
            span = self.b.span
            for instr in of.entry.instrs:
                if instr in needed:
                    self.copy(instr)
            self.b.span = span  # what is made from these stands where it stood
        return tuple(self._known(v) for v in wanted)

    def whole(self, v: Value) -> Value:
        """A value of the region here, be it a tensor."""
        if not v.type.rank:
            return self.need(v)[0]
        view = self.of.view(v)
        return self.b.index(view.base, *self.need(*view.prefix))

    def _unknown(self, v: Value) -> bool:
        return v in self.of.inside and v not in self.values and v not in self.of.outer

    def _known(self, v: Value) -> Value:
        return self.values.get(v) or self.of.outer.get(v, v)

    def copy(self, instr: Instr) -> None:
        """One instruction whose scalar operands are known here. A load goes to the tensor that its view is of."""
        of = self.of
        self.b.span = instr.span
        if instr.results and all(r in of.views for r in instr.results):
            for r in instr.results:  # stored values: each a load
                view = of.views[r]
                self.values[r] = self.b.index(view.base, *map(self._known, view.prefix), hint=r.name)
            return
        if loaded(instr) is not None:
            self._load(instr)
            return
        if instr.op == "reduce":
            new = self.reduce(instr, [self._known(v) for v in instr.operands])
            self.values.update(zip(instr.results, new, strict=True))
            return
        operands = tuple(map(self._known, instr.operands))
        types, names = tuple(r.type for r in instr.results), tuple(r.name for r in instr.results)
        copy = self.b.insert(Instr(instr.op, operands, types, dict(instr.attrs), (), instr.span, names))
        self.values.update(zip(instr.results, copy.results, strict=True))

    def _load(self, instr: Instr) -> None:
        tensor, *own = loaded(instr) or ()
        view = self.of.view(tensor)
        indices = (*map(self._known, view.prefix), *map(self._known, own))
        if instr.op == "index_if":
            self.values[instr.result] = self.b.index_if(self._known(instr.operands[0]), view.base, *indices, hint=instr.result.name)
        else:
            self.values[instr.result] = self.b.index(view.base, *indices, hint=instr.result.name)

    def reduce(self, instr: Instr, extents: Sequence[Value]) -> tuple[Value, ...]:
        """A flat reduction that stood in the region."""
        inner = instr.regions[0]

        def body(b: Builder, *indices: Value) -> tuple[Value, ...]:
            return Piece(self.of, b, dict(self.values)).inline(inner, indices)

        op, order = instr.attrs["op"], instr.attrs["order"]
        assert isinstance(op, str) and isinstance(order, str)
        names = [p.name for p in inner.entry.params]
        return self.b.reduce_many(op, extents, body, order, names, [r.name for r in instr.results]).results

    def inline(self, region: Region, indices: Sequence[Value]) -> tuple[Value, ...]:
        """The body of a flat region at given indices, here; gives what it yields.

        Blocks of an opaque region come along, and the builder ends in a last block that takes what they yield.
        """
        self.values.update(zip(region.entry.params, indices, strict=True))
        blocks = reverse_postorder(region)
        if len(blocks) == 1:
            for instr in blocks[0].instrs:
                self.copy(instr)
            return tuple(map(self._known, blocks[0].terminator.operands))
        here = self.b.block.region
        assert here is not None
        copies = {blocks[0]: self.b.block}
        for block in blocks[1:]:
            copies[block] = here.add(Block(block.name))
            for p in block.params:
                self.values[p] = copies[block].add_param(p.type, p.name)
        types = next(b.terminator for b in blocks if b.terminator.op == "yield").operands
        last = here.add(Block("last"))
        results = tuple(last.add_param(v.type) for v in types)
        for block in blocks:
            self.b.move_to(copies[block])
            for instr in block.instrs:
                self.copy(instr)
            t = block.terminator
            if t.op == "yield":
                self.b.jump(last, *map(self._known, t.operands))
            else:
                self._edges(t, copies)
        self.b.move_to(last)
        return results

    def end(self, t: Terminator, copies: dict[Block, Block], wanted: list[int]) -> None:
        """The terminator of a block; a `yield` gives the wanted values only."""
        if t.op == "yield":
            self.b.end(yield_(self.need(*(t.operands[k] for k in wanted)), t.span))
        else:
            self.need(*(v for v in t.operands if v.owner is not None and self._in_entry(v)))
            self._edges(t, copies)

    def _in_entry(self, v: Value) -> bool:
        return isinstance(v.owner, Instr) and v.owner.block is self.of.entry

    def _edges(self, t: Terminator, copies: dict[Block, Block]) -> None:
        edges = tuple((copies[block], tuple(map(self._known, args))) for block, args in t.edges)
        self.b.end(Terminator(t.op, tuple(map(self._known, t.own)), edges, t.span))

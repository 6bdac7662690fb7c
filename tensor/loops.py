"""Running a comprehension as the loop that defines it: what is left where flattening does not apply.

    Y = tabulate [i < n, j < m] { .. yield v }

    zeros = tabulate [i, j] { 0 };  jump head(0, zeros)
    head(i, out):  branch (lt i, n), body, done
    body:          row = tabulate [j < m] { .. }       # the body itself where there is one index
                   jump head(add i, 1, update out, i, row)
    done:          uses of Y read out

Only the first index becomes a loop; what remains is flattened again. `out` is updated in place by the memory plan.
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.clone import clone_instr
from tlc.ssa.ir import I64, Block, Function, Instr, Module, Region, Terminator, Type, Value, drop, jump
from tlc.ssa.lower_state import zero_of
from tlc.tensor.extents import Axis, Extents


def split_behind(instr: Instr, name: str) -> Block:
    """Cut a block in two behind an instruction: the new block gets the rest and the terminator, and the old one needs another."""
    block = instr.block
    assert block is not None and block.region is not None
    at = block.instrs.index(instr) + 1
    rest = block.region.add(Block(name))
    for moved in block.instrs[at:]:
        rest.append(moved)
    del block.instrs[at:]
    end = block.terminator
    rest.terminator = Terminator(end.op, end.own, end.edges, end.span)
    return rest


def run_as_loop(instr: Instr, module: Module) -> list[Block]:
    """Replace a tabulate by a loop over its first index; gives the blocks that have something new in them."""
    assert instr.op == "tabulate"
    block = instr.block
    assert block is not None
    done = split_behind(instr, "done")
    block.instrs.pop()
    b = Builder(block, module, instr.span)
    shapes = Shapes(instr, b)
    outs = [shapes.zeros(k) for k in range(len(instr.results))]

    head, latch = b.new_block("head"), b.new_block("latch")
    i = head.add_param(I64, instr.regions[0].entry.params[0].name)
    state = [head.add_param(r.type, r.name) for r in instr.results]
    rows = [latch.add_param(Type(r.type.elem, r.type.rank - 1)) for r in instr.results]
    b.jump(head, b.i64(0), *outs)
    body = _body(instr, i, latch)
    b.move_to(head)
    b.branch(b.op("lt", i, instr.operands[0]), body[0], done)
    b.move_to(latch)
    new = []
    for k, (out, row) in enumerate(zip(state, rows, strict=True)):
        made = out if shapes.known(k) else _first_makes(b, i, out, [*instr.operands, *_dims_behind(b, row, len(instr.operands) - 1)])
        new.append(b.update(made, [i], row))
    b.jump(head, b.op("add", i, b.i64(1)), *new)
    for old, value in zip(instr.results, state, strict=True):
        old.replace_by(value)
    drop(instr)
    put_last(done)
    return [*body, done]


def put_last(block: Block) -> None:
    """Behind all blocks of its region, so that the text reads in the order of running."""
    assert block.region is not None
    block.region.blocks.remove(block)
    block.region.blocks.append(block)


def _body(instr: Instr, i: Value, latch: Block) -> list[Block]:
    """The region with `i` for its first index, as blocks beside the comprehension that jump to `latch`."""
    region, outer = instr.regions[0], latch.region
    assert outer is not None
    first, *rest = region.entry.params
    if rest:
        body = outer.add(Block("body"))
        region.entry.params = rest
        first.replace_by(i)
        types = tuple(Type(r.type.elem, r.type.rank - 1) for r in instr.results)
        names = tuple(r.name for r in instr.results)
        instr.regions = ()
        inner = body.append(Instr("tabulate", instr.operands[1:], types, {}, (region,), instr.span, names))
        body.terminator = jump(latch, inner.results, instr.span)
        return [body]
    region.entry.params = []
    first.replace_by(i)
    blocks = reverse_postorder(region)
    instr.regions = (Region([b for b in region.blocks if b not in blocks]),)
    for block in blocks:
        outer.add(block)
        if block.terminator.op == "yield":
            block.terminator = Terminator("jump", (), ((latch, block.terminator.operands),), block.terminator.span)
    blocks[0].name = blocks[0].name or "body"
    return blocks


def _dims_behind(b: Builder, row: Value, first: int) -> list[Value]:
    return [b.dim(row, k) for k in range(first, row.type.rank)]


def _zeros(b: Builder, type: Type, extents: list[Value]) -> Value:
    return b.tabulate(extents, lambda b, *_: b.const(zero_of(type.elem), Type(type.elem)))


def _first_makes(b: Builder, i: Value, out: Value, extents: list[Value]) -> Value:
    """`out`, or in the first iteration, which is the first to know all extents, new zeros."""
    make, join = b.new_block("make"), b.new_block("join", [out.type])
    b.branch(b.op("eq", i, b.i64(0)), make, join, (), (out,))
    b.move_to(make)
    b.jump(join, _zeros(b, out.type, extents))
    b.move_to(join)
    return join.params[0]


class Shapes:
    """The extents of the results, where they can be computed before the loop."""

    def __init__(self, instr: Instr, b: Builder) -> None:
        self.instr = instr
        self.b = b
        self.inside = _defined(instr.regions[0])
        self.extents = Extents(_function(b.block))
        self.ends = [block.terminator for block in instr.regions[0].blocks if block.terminator.op == "yield"]
        self.copies: dict[Value, Value] = {}
        self.shapes = [self._shape(k) for k in range(len(instr.results))]

    def known(self, k: int) -> bool:
        return self.shapes[k] is not None

    def zeros(self, k: int) -> Value:
        type = self.instr.results[k].type
        nothing = [self.b.i64(0)] * type.rank
        return _zeros(self.b, type, self.shapes[k] or nothing)

    def _shape(self, k: int) -> list[Value] | None:
        shape = list(self.instr.operands)
        for axis in range(self.instr.results[k].type.rank - len(shape)):
            n = self._extent(k, axis)
            if n is None:
                return None
            shape.append(n)
        return shape

    def _extent(self, k: int, axis: int) -> Value | None:
        for end in self.ends:
            match self.extents.of(end.operands[k], axis):
                case int(number):
                    return self.b.i64(number)
                case Value() as value:
                    found = self._before(value)
                case Axis(tensor, at):
                    found = None if tensor in self.inside else self.b.dim(tensor, at)
            if found is not None:
                return found
        return None

    def _before(self, value: Value) -> Value | None:
        """A scalar of the region that does not depend on its indices, computed before it."""
        if value not in self.inside:
            return value
        if value in self.copies:
            return self.copies[value]
        owner = value.owner
        if not isinstance(owner, Instr) or not (owner.op in SCALAR_OPS or owner.op in ("const", "dim")):
            return None
        for operand in owner.operands:
            before = self._before(operand)
            if before is None:
                return None
            self.copies[operand] = before
        self.b.insert(clone_instr(owner, self.copies))
        return self.copies[value]


def _defined(region: Region) -> set[Value]:
    found: set[Value] = set()
    for block in region.blocks:
        found.update(block.params)
        for instr in block.instrs:
            found.update(instr.results)
            for inner in instr.regions:
                found |= _defined(inner)
    return found


def _function(block: Block) -> Function:
    region = block.region
    while region is not None:
        parent = region.parent
        if isinstance(parent, Function):
            return parent
        assert parent is not None and parent.block is not None
        region = parent.block.region
    raise AssertionError("a block in no function")

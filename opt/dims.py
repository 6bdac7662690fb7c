"""Extents: `dim` of a tensor whose making is in sight becomes the value that it was made with.

Requires SSA; preserves the graph. So a loop that updates the parameters of a model knows that their shapes never change,
and extents become constants where a flag of `main` makes them so.

    dim (tabulate %n, %m {..}) 1          = %m           dim (index %x, %i) 0        = dim %x 1
    dim (tabulate %n {.. yield %t}) 1     = dim %t 0     dim (update %x ..) k        = dim %x k   (scatter, stop_grad and copy alike)
    dim (launch %n, %m, ..) 1             = %m           (the extents of each result in order)
    dim (reshape %x, %n, %m) 1            = %m           dim of a block parameter    = that of what every edge passes, if all agree
    max(dim .., 0)                        = dim ..       (an extent is not negative)

Parameters are looked through optimistically: while a parameter is being looked at, meeting it again says nothing against
the others. That is right because a wrong guess would need an edge from outside of the cycle that disagrees, and all of
those are looked at.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass
from tlc.opt.regions import regions
from tlc.ssa.edit import edges_into, insert_before
from tlc.ssa.ir import I64, Block, Function, Instr, Module, Value, const_of, erase, walk

SAME_SHAPE = ("update", "store", "scatter", "stop_grad", "barrier", "copy")
BUDGET = 400  # steps that one question may take, so that a web of parameters cannot take forever


@dataclass(frozen=True)
class Extent:
    """An extent that nothing more is known of."""

    tensor: Value
    axis: int


@dataclass(frozen=True)
class Known:
    """A constant."""

    value: int


Source = Extent | Known | Value  # what an extent is; None stands for "agrees with anything"


def dims(module: Module) -> None:
    """Resolve every `dim` of the module as far as it goes."""
    for f in module.functions.values():
        edges: dict[Block, list[tuple[Block, int]]] = {}
        for region in regions(f.body):
            edges.update(edges_into(region))
        for instr in list(walk(f.body)):
            if instr.op == "dim":
                _replace(instr, _Question(edges).ask(instr.operands[0], _axis(instr)))
            elif instr.op == "max" and instr.result.type == I64:
                _drop_max(instr)


def _axis(instr: Instr) -> int:
    axis = instr.attrs["axis"]
    assert isinstance(axis, int)
    return axis


def _replace(instr: Instr, source: Source | None) -> None:
    match source:
        case None:
            return
        case Known(value):
            new = insert_before(instr, Instr("const", (), (I64,), {"value": value}, (), instr.span)).result
        case Extent(tensor, axis):
            if tensor is instr.operands[0] and axis == instr.attrs["axis"]:
                return
            new = insert_before(instr, Instr("dim", (tensor,), (I64,), {"axis": axis}, (), instr.span)).result
        case _:
            new = source
    new.name = new.name or instr.result.name
    instr.result.replace_by(new)
    erase(instr)


def _drop_max(instr: Instr) -> None:
    for a, b in (instr.operands, instr.operands[::-1]):
        if const_of(b) == 0 and isinstance(a.owner, Instr) and a.owner.op == "dim":
            instr.result.replace_by(a)
            erase(instr)
            return


class _Question:
    """One question after an extent. `asking` holds the parameters that are being looked at."""

    def __init__(self, edges: dict[Block, list[tuple[Block, int]]]) -> None:
        self.edges = edges
        self.asking: set[Extent] = set()
        self.steps = 0

    def ask(self, tensor: Value, axis: int) -> Source | None:
        self.steps += 1
        here = Extent(tensor, axis)
        owner = tensor.owner
        if self.steps > BUDGET:
            return here
        if isinstance(owner, Block):
            return self.param(here, owner)
        if owner.op in SAME_SHAPE:
            return self.ask(owner.operands[0], axis)
        if owner.op == "index":
            return self.ask(owner.operands[0], axis + len(owner.operands) - 1)
        if owner.op == "view":
            return self.value(owner.operands[len(owner.operands) - tensor.type.rank + axis])
        if owner.op == "reshape":
            return self.value(owner.operands[1 + axis])
        if owner.op == "tabulate":
            rank = len(owner.operands)
            return self.value(owner.operands[axis]) if axis < rank else self.yielded(here, owner, axis - rank)
        if owner.op == "launch":
            before = owner.results[: owner.results.index(tensor)]
            return self.value(owner.operands[sum(r.type.rank for r in before) + axis])
        return here

    def value(self, extent: Value) -> Source | None:
        """The source of an `i64` that is used as an extent."""
        known = const_of(extent)
        if known is not None:
            return Known(int(known))
        if isinstance(extent.owner, Instr) and extent.owner.op == "dim":
            return self.ask(extent.owner.operands[0], _axis(extent.owner))
        return extent

    def param(self, here: Extent, block: Block) -> Source | None:
        """What all edges into the block agree on."""
        if here in self.asking:
            return None
        incoming = self.edges.get(block, [])
        if not incoming:
            return here
        self.asking.add(here)
        k = block.params.index(here.tensor)
        answers = {self.ask(source.terminator.args(edge)[k], here.axis) for source, edge in incoming} - {None}
        self.asking.discard(here)
        return answers.pop() if len(answers) == 1 else here if answers else None

    def yielded(self, here: Extent, tabulate: Instr, axis: int) -> Source | None:
        """An extent of what the region yields, if it is known outside of the region."""
        k = tabulate.results.index(here.tensor)
        (region,) = tabulate.regions
        answers = {self.ask(b.terminator.operands[k], axis) for b in region.blocks if b.terminator.op == "yield"} - {None}
        if len(answers) != 1:
            return here
        (answer,) = answers
        inner = answer.tensor if isinstance(answer, Extent) else answer
        if isinstance(inner, Value) and _inside(inner, tabulate):
            return here
        return answer


def same_extent(extent: Value, tensor: Value, axis: int) -> bool:
    """Whether an `i64` is an extent of a tensor, as far as what makes the two tells."""
    question = _Question({})
    return question.value(extent) == question.ask(tensor, axis)


class Sizes:
    """How many elements tensors of a function have: a number, or for tensors of rank 1 the value that is their extent. A snapshot."""

    def __init__(self, function: Function) -> None:
        self._edges: dict[Block, list[tuple[Block, int]]] = {}
        for region in regions(function.body):
            self._edges.update(edges_into(region))

    def of(self, tensor: Value) -> int | Value | None:
        """None where it is not known."""
        total = 1
        for axis in range(tensor.type.rank):
            match _Question(self._edges).ask(tensor, axis):
                case Known(value):
                    total *= value
                case Value() as value if tensor.type.rank == 1:
                    return value
                case Extent(source, at) if tensor.type.rank == 1:
                    dim = (u for u in source.uses if isinstance(u, Instr) and u.op == "dim" and u.attrs["axis"] == at)
                    found = next(dim, None)
                    return None if found is None else found.result
                case _:
                    return None
        return total


def _inside(value: Value, instr: Instr) -> bool:
    """Whether a value is defined in a region of the instruction."""
    block = value.block
    while block is not None and block.region is not None:
        parent = block.region.parent
        if parent is instr:
            return True
        block = parent.block if isinstance(parent, Instr) else None
    return False

"""Which comparisons of integers are known to hold at a place: those of branches on the way to it, and of checks that passed.

A place is a block and how many of its instructions are behind (`Place`); a comparison that a branch decides holds from the first
place of the block that only this branch enters, one that a `check` asks from behind the check, and both hold wherever that place
dominates. A condition `a and b` that is true gives both, `a or b` that is false the opposites of both.

    entry:  branch (0 < i and i < n), inner, exit
    inner:  check (i < m); ...                       # from here: 0 < i, i < n, i < m

Checks are used even where they are about to be removed: what is proved with their help holds until the first of them would
fail, and a check that is removed for good reason does not fail.
"""

from __future__ import annotations

from collections.abc import Iterator

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into
from tlc.ssa.ir import Block, Instr, Region, Value, const_of

Place = tuple[Block, int]  # a block, and how many of its instructions are behind

END = 1 << 60  # the place at the end of any block
THROUGH = 3  # ops that a comparison is looked through for what else it tells of
OPPOSITE = {"le": "gt", "ge": "lt", "lt": "ge", "gt": "le", "ne": "eq", "eq": "ne"}
MIRRORED = {"le": "ge", "ge": "le", "lt": "gt", "gt": "lt", "ne": "ne", "eq": "eq"}
_TRANSPARENT = ("add", "sub", "mul", "neg", "convert", "shl")


@dataclass(frozen=True, eq=False)
class Condition:
    """`a op b` holds where `place` dominates."""

    op: str
    a: Value
    b: Value
    place: Place


class Conditions:
    """The comparisons known in the regions of one function. A snapshot of the graph of blocks and of the checks, made region by region as
    they are asked for; instructions may move, as long as blocks stay.
    """

    def __init__(self) -> None:
        self._trees: dict[Region, Dominance] = {}
        self._into: dict[Region, dict[Block, list[tuple[Block, int]]]] = {}
        self._about: dict[Region, dict[Value, list[Condition]]] = {}
        self._known: dict[tuple[Value, Block], list[Condition]] = {}
        self._bools: dict[Region, dict[Value, list[tuple[bool, Place]]]] = {}
        self._made: dict[Region, dict[Value, list[Place]]] = {}
        self._positions: dict[Block, dict[Instr, int]] = {}
        self._numbers: dict[Region, dict[Block, int]] = {}

    def about(self, value: Value, at: Place) -> list[Condition]:
        """The conditions that hold at a place and in which the value occurs, perhaps inside sums and products."""
        found: list[Condition] = []
        for block, position in self._places(at):
            found += [c for c in self._known_in(value, block) if c.place[0] is not block or c.place[1] <= position]
        return found

    def _known_in(self, value: Value, block: Block) -> list[Condition]:
        """The conditions of the block's region about a value that are known in the block, or from some place of it on."""
        known = self._known.get((value, block))
        if known is None:
            assert block.region is not None
            tree = self.tree(block.region)
            every = self._conditions(block.region).get(value, ())
            known = self._known[value, block] = [c for c in every if c.place[0] is block or tree.dominates(c.place[0], block)]
        return known

    def truth(self, cond: Value, at: Place) -> bool | None:
        """What a bool itself is known to be at a place."""
        for region in _around(at[0]):
            self._conditions(region)
            for truth, place in self._bools[region].get(cond, ()):
                if self.holds_from(place, at):
                    return truth
        return None

    def is_extent(self, value: Value, at: Place) -> bool:
        """Whether a tensor with this extent, or `max` of it and something, was made before a place."""
        for region in _around(at[0]):
            self._conditions(region)
            if any(self.holds_from(place, at) for place in self._made[region].get(value, ())):
                return True
        return False

    def compared_with(self, value: Value, block: Block) -> Iterator[Value]:
        """The sides of every comparison in which a value occurs and that may be known in a block."""
        for region in _around(block):
            for c in self._conditions(region).get(value, ()):
                yield c.a
                yield c.b

    def depth(self, block: Block) -> int:
        """How many regions are around a block's."""
        return sum(1 for _ in _around(block))

    def number(self, block: Block) -> int:
        """The place of a block in reverse postorder; unreachable ones come last."""
        assert block.region is not None
        if block.region not in self._numbers:
            self._numbers[block.region] = {b: k for k, b in enumerate(self.tree(block.region).order)}
        return self._numbers[block.region].get(block, END)

    def tree(self, region: Region) -> Dominance:
        if region not in self._trees:
            self._trees[region] = dominance(region)
        return self._trees[region]

    def into(self, block: Block) -> list[tuple[Block, int]]:
        """The edges into a block: who jumps, and by which edge."""
        region = block.region
        assert region is not None
        if region not in self._into:
            self._into[region] = edges_into(region)
        return self._into[region].get(block, [])

    def position(self, instr: Instr) -> int:
        """The number of an instruction in its block; the order of what is left does not change when others are removed."""
        block = instr.block
        assert block is not None
        if block not in self._positions:
            self._positions[block] = {i: k for k, i in enumerate(block.instrs)}
        return self._positions[block].get(instr, 0)

    def _places(self, at: Place) -> Iterator[Place]:
        """A place and those of the comprehensions around it, inner ones first."""
        while True:
            yield at
            region = at[0].region
            if region is None or not isinstance(region.parent, Instr) or region.parent.block is None:
                return
            at = self.before(region.parent)

    def before(self, instr: Instr) -> Place:
        assert instr.block is not None
        return instr.block, self.position(instr)

    def holds_from(self, a: Place, b: Place) -> bool:
        """Whether every way to place b leads through place a; b may lie in a region inside a's."""
        block, position = b
        while block.region is not a[0].region:
            parent = block.region.parent if block.region is not None else None
            if not isinstance(parent, Instr) or parent.block is None:
                return False
            block, position = parent.block, self.position(parent)
        if block is a[0]:
            return a[1] <= position
        assert block.region is not None
        return self.tree(block.region).dominates(a[0], block)

    # ------------------------------------------------------------ collecting

    def _conditions(self, region: Region) -> dict[Value, list[Condition]]:
        if region not in self._about:
            about: dict[Value, list[Condition]] = {}
            self._about[region], self._bools[region], self._made[region] = about, {}, {}
            for block in region.blocks:
                for instr in block.instrs:
                    for v in made_extents(instr):
                        owner = v.owner
                        for part in (v, *(owner.operands if isinstance(owner, Instr) and owner.op == "max" else ())):
                            self._made[region].setdefault(part, []).append((block, self.position(instr) + 1))
                for cond, truth, position in self._decided(block):
                    place = (block, position)
                    self._bools[region].setdefault(cond, []).append((truth, place))
                    for op, a, b in comparisons(cond, truth):
                        condition = Condition(op, a, b, place)
                        for v in dict.fromkeys((*_inside(a, THROUGH), *_inside(b, THROUGH))):
                            about.setdefault(v, []).append(condition)
        return self._about[region]

    def _decided(self, block: Block) -> Iterator[tuple[Value, bool, int]]:
        """The bools that are known from some place of a block on: by the one edge into it, and by its checks. Back edges into the
        header of a loop do not count: whoever comes by one has been here before, and what the branch read is made outside.
        """
        assert block.region is not None
        tree = self.tree(block.region)
        edges = [(source, edge) for source, edge in self.into(block) if not tree.dominates(block, source)]
        if len(edges) == 1:
            source, edge = edges[0]
            if source.terminator.op == "branch" and source.terminator.targets[0] is not source.terminator.targets[1]:
                yield source.terminator.own[0], edge == 0, 0
        for instr in block.instrs:
            if instr.op == "check":
                yield instr.operands[0], True, self.position(instr) + 1


def made_extents(instr: Instr) -> tuple[Value, ...]:
    """The extents with which an instruction makes tensors."""
    match instr.op:
        case "tabulate" | "alloc":
            return instr.operands
        case "launch":
            return instr.operands[: sum(r.type.rank for r in instr.results)]
        case "reshape":
            return instr.operands[1:]
    return ()


def comparisons(cond: Value, truth: bool) -> Iterator[tuple[str, Value, Value]]:
    """The comparisons of integers that hold if a bool has this value."""
    owner = cond.owner
    if not isinstance(owner, Instr):
        return
    if owner.op == "not" and cond.type.elem is Elem.BOOL:
        yield from comparisons(owner.operands[0], not truth)
    elif owner.op == ("and" if truth else "or") and cond.type.elem is Elem.BOOL:
        for v in owner.operands:
            yield from comparisons(v, truth)
    elif owner.op in OPPOSITE and owner.operands[0].type.elem.is_int:
        a, b = owner.operands
        yield (owner.op if truth else OPPOSITE[owner.op]), a, b


def _inside(value: Value, limit: int) -> Iterator[Value]:
    """A value, and what it is a sum or product of."""
    if const_of(value) is not None:
        return
    yield value
    owner = value.owner
    if limit and isinstance(owner, Instr) and owner.op in _TRANSPARENT:
        for v in owner.operands:
            if v.type.elem.is_int:
                yield from _inside(v, limit - 1)


def _around(block: Block) -> Iterator[Region]:
    """The region of a block and those around it, inner ones first."""
    region = block.region
    while region is not None:
        yield region
        parent = region.parent
        region = parent.block.region if isinstance(parent, Instr) and parent.block is not None else None

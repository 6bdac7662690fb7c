"""The SSA form, on one page.

A `Module` holds `Function`s; a function's body is a `Region`; a region is a list of `Block`s, the first its entry. A block has
parameters (what other compilers write as phis: the jump that enters a block passes their values), instructions and
one terminator. Scalars and tensors are values alike. A comprehension is the instruction `tabulate` or `reduce`
with a region of its own, whose entry block's parameters are the indices and whose terminator is `yield`; a region
reads values of the blocks around it.

Block parameters stand for phis because regions, functions and blocks then take their inputs in one way, a parallel
move is visible at the edge that makes it, and inlining, cloning and derivatives need no case for phis.

A type is an element type and a rank. Extents are values of a program (`dim`), never part of the type, so no pass
changes a type.

Mutable; identity matters. Operands are changed only through `User.operands` and `User.replace`, which keep `Value.uses`.

Order of real sums. `reduce` has `order`:
  chain   one accumulator, from zero, in row-major order of the indices; if the body is a product
          `mul(a, b)`, the accumulation is `fma(a, b, acc)`;
  lanes   sixteen accumulators from zero; the element at row-major position p is added to accumulator p mod 16; then
          acc[l] += acc[l + 8] for l < 8, then 4, 2, 1; a product is rounded before it is added;
  strict  one accumulator, from zero, in row-major order, and a product is rounded before it is added (`--strict-fp`).
Integer sums wrap, so their order is free; max and min are IEEE 754-2019 maximum and minimum (NaN wins, -0 < +0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tlc.frontend.ops import Literal
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem

Attr = object  # bool | int | float | str | tuple of those; see the op's row in ssa/ops.py


@dataclass(frozen=True)
class Type:
    elem: Elem
    rank: int = 0

    def __str__(self) -> str:
        return str(self.elem) + ("[" + ",".join("_" * self.rank) + "]" if self.rank else "")


BOOL, I64, STR, KEY = Type(Elem.BOOL), Type(Elem.I64), Type(Elem.STR), Type(Elem.KEY)


class Value:
    """A result of an instruction or a parameter of a block. `owner` is that instruction or block."""

    __slots__ = ("name", "owner", "type", "uses")

    def __init__(self, type: Type, owner: Instr | Block, name: str = "") -> None:
        self.type = type
        self.owner = owner
        self.name = name  # a hint for text, not an identity
        self.uses: dict[User, int] = {}  # user -> how many of its operands; insertion-ordered

    @property
    def block(self) -> Block | None:
        """Where it is made; None for the result of an instruction that is in no block."""
        return self.owner.block if isinstance(self.owner, Instr) else self.owner

    def __repr__(self) -> str:
        return f"<%{self.name or '?'}: {self.type}>"

    def replace_by(self, other: Value) -> None:
        """Every use of this value reads the other one from now on."""
        for user in list(self.uses):
            user.replace(self, other)


_changes = [0]


def changes() -> int:
    """How often operands or attributes of anything were set so far. As long as this stays the same, no instruction or terminator was made,
    changed or dropped.
    """
    return _changes[0]


class User:
    """What has operands: an instruction or a terminator."""

    __slots__ = ("_operands", "span")

    def __init__(self, operands: tuple[Value, ...], span: Span) -> None:
        self._operands = operands
        self.span = span
        _changes[0] += 1
        for v in operands:
            v.uses[self] = v.uses.get(self, 0) + 1

    @property
    def operands(self) -> tuple[Value, ...]:
        return self._operands

    @operands.setter
    def operands(self, new: tuple[Value, ...]) -> None:
        for v in self._operands:
            v.uses.pop(self, None)
        self._operands = new
        _changes[0] += 1
        for v in new:
            v.uses[self] = v.uses.get(self, 0) + 1

    def replace(self, old: Value, new: Value) -> None:
        self.operands = tuple([new if v is old else v for v in self._operands])


class Instr(User):
    """`results = op operands {attrs} regions`. The row of `op` in `ssa/ops.py` says what these must be."""

    __slots__ = ("attrs", "block", "op", "regions", "results")

    def __init__(
        self,
        op: str,
        operands: tuple[Value, ...] = (),
        types: tuple[Type, ...] = (),
        attrs: dict[str, Attr] | None = None,
        regions: tuple[Region, ...] = (),
        span: Span = NOWHERE,
        names: tuple[str, ...] = (),
    ) -> None:
        self.op = op
        self.results = tuple([Value(t, self, names[i] if i < len(names) else "") for i, t in enumerate(types)])
        self.attrs: dict[str, Attr] = attrs or {}
        self.regions = regions
        self.block: Block | None = None
        for r in regions:
            r.parent = self
        super().__init__(operands, span)

    @property
    def result(self) -> Value:
        (only,) = self.results
        return only

    def set(self, name: str, value: Attr) -> None:
        """Give it another attribute."""
        _changes[0] += 1
        self.attrs[name] = value

    def __repr__(self) -> str:
        return f"<{self.op} {self.results} {self.operands}>"


class Terminator(User):
    """The end of a block: `jump`, `branch`, `return`, `yield` or `unreachable`.

    `operands` are the condition of a branch (or the values returned or yielded), then the arguments of each edge in
    order; `counts[k]` is how many edge k passes.
    """

    __slots__ = ("block", "counts", "op", "targets")

    def __init__(
        self,
        op: str,
        operands: tuple[Value, ...] = (),
        edges: tuple[tuple[Block, tuple[Value, ...]], ...] = (),
        span: Span = NOWHERE,
    ) -> None:
        self.op = op
        self.targets = tuple([b for b, _ in edges])
        self.counts = tuple([len(args) for _, args in edges])
        self.block: Block | None = None
        super().__init__((*operands, *[v for _, args in edges for v in args]), span)

    @property
    def own(self) -> tuple[Value, ...]:
        """Operands that are not arguments of an edge."""
        return self.operands[: len(self.operands) - sum(self.counts)]

    def args(self, edge: int) -> tuple[Value, ...]:
        start = len(self.operands) - sum(self.counts[edge:])
        return self.operands[start : start + self.counts[edge]]

    @property
    def edges(self) -> tuple[tuple[Block, tuple[Value, ...]], ...]:
        return tuple([(b, self.args(k)) for k, b in enumerate(self.targets)])

    def __repr__(self) -> str:
        return f"<{self.op} {self.own} {[b.name for b in self.targets]}>"


def jump(target: Block, args: tuple[Value, ...] = (), span: Span = NOWHERE) -> Terminator:
    return Terminator("jump", (), ((target, args),), span)


def branch(
    cond: Value, then: Block, other: Block, then_args: tuple[Value, ...] = (), other_args: tuple[Value, ...] = (), span: Span = NOWHERE
) -> Terminator:
    return Terminator("branch", (cond,), ((then, then_args), (other, other_args)), span)


def ret(values: tuple[Value, ...], span: Span = NOWHERE) -> Terminator:
    return Terminator("return", values, (), span)


def yield_(values: tuple[Value, ...], span: Span = NOWHERE) -> Terminator:
    return Terminator("yield", values, (), span)


def unreachable(span: Span = NOWHERE) -> Terminator:
    return Terminator("unreachable", (), (), span)


class Block:
    __slots__ = ("_terminator", "instrs", "name", "params", "region")

    def __init__(self, name: str = "") -> None:
        self.name = name  # a hint for text
        self.params: list[Value] = []
        self.instrs: list[Instr] = []
        self._terminator: Terminator | None = None
        self.region: Region | None = None

    def add_param(self, type: Type, name: str = "") -> Value:
        v = Value(type, self, name)
        self.params.append(v)
        return v

    def append(self, instr: Instr) -> Instr:
        instr.block = self
        self.instrs.append(instr)
        return instr

    @property
    def terminator(self) -> Terminator:
        assert self._terminator is not None, f"block {self.name} has no terminator"
        return self._terminator

    @terminator.setter
    def terminator(self, t: Terminator) -> None:
        if self._terminator is not None:
            self._terminator.operands = ()
        t.block = self
        self._terminator = t

    @property
    def terminated(self) -> bool:
        return self._terminator is not None

    def __repr__(self) -> str:
        return f"<block {self.name}>"


class Region:
    """Blocks with one entry (the first). `parent` is the instruction that holds it, or the function."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: list[Block] | None = None) -> None:
        self.blocks: list[Block] = []
        self.parent: Instr | Function | None = None
        for b in blocks or []:
            self.add(b)

    def add(self, block: Block) -> Block:
        block.region = self
        self.blocks.append(block)
        return block

    @property
    def entry(self) -> Block:
        return self.blocks[0]


@dataclass(eq=False)
class Function:
    """Parameters are those of the entry block. `doc_types` keeps the source's types of parameters for dumps."""

    name: str
    body: Region
    results: tuple[Type, ...]
    span: Span = NOWHERE

    def __post_init__(self) -> None:
        self.body.parent = self

    @property
    def params(self) -> list[Value]:
        return self.body.entry.params

    @property
    def blocks(self) -> list[Block]:
        return self.body.blocks


@dataclass(eq=False)
class Module:
    """Functions by name. `settled` has the `changes` there were when a pass ran: if there are no more, it need not run again."""

    functions: dict[str, Function] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)

    def add(self, f: Function) -> Function:
        assert f.name not in self.functions, f.name
        self.functions[f.name] = f
        return f


def erase(instr: Instr) -> None:
    """Remove an instruction without uses from its block, its regions' uses with it."""
    assert instr.block is not None
    assert not any(r.uses for r in instr.results), instr
    instr.block.instrs.remove(instr)
    drop(instr)


def drop(instr: Instr) -> None:
    """Let go of the operands of an instruction that was taken out of its block, and of all in its regions."""
    instr.operands = ()
    for region in instr.regions:
        for block in region.blocks:
            drop_block(block)


def drop_block(block: Block) -> None:
    """Let go of the operands of everything in a block that was taken out of its region."""
    for i in block.instrs:
        drop(i)
    if block.terminated:
        block.terminator.operands = ()


def const_of(value: Value) -> Literal | None:
    """The constant that a value is, if it is one."""
    owner = value.owner
    if isinstance(owner, Instr) and owner.op == "const":
        literal = owner.attrs["value"]
        assert isinstance(literal, bool | int | float | str)
        return literal
    return None


def same_value(a: Value, b: Value) -> bool:
    """Whether two values are one, or one constant."""
    known = const_of(a)
    return a is b or (known is not None and a.type == b.type and known == const_of(b))


def number_of(value: Value) -> int | None:
    """The integer that a value is known to be."""
    number = const_of(value)
    return number if isinstance(number, int) else None


def is_positive(extent: Value) -> bool:
    """Whether an extent is known to be."""
    return (number_of(extent) or 0) > 0


def walk(region: Region) -> Iterator[Instr]:
    """Every instruction, those in nested regions after the one that holds them. Each region is looked at when the walk comes to it."""
    for block in region.blocks:
        for instr in block.instrs:
            yield instr
            if instr.regions:
                for inner in instr.regions:
                    yield from walk(inner)

"""Where lowering stands in a function: the block that is being filled, the variables and the dimensions in scope.

`ssa/lower.py` walks the typed tree; everything here is what it needs to say "append this instruction" without
thinking of blocks, and to find the value of a dimension term.

Dimension variables. `dims` maps the `uid` of each `DimVar` in scope to where its value is: an `i64` value, or a tensor and
the axis whose extent it is. The `dim` instruction is made where the term is needed, so a type that nobody reads costs
nothing. Branches, loop bodies and regions are scopes: what is first seen inside is forgotten behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.dims import Dim, DimQuotient, DimVar, linear
from tlc.frontend.narrow_reals import nearest
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.typed import Local, leaf_types
from tlc.frontend.types import Elem, TensorType
from tlc.frontend.types import Type as SourceType
from tlc.ssa.edit import remove_unreachable
from tlc.ssa.ir import BOOL, I64, Attr, Block, Instr, Region, Terminator, Type, Value, yield_

Leaves = tuple[Value, ...]  # a value of the source language: its leaves in the order of `leaf_types`


class Diverged(Exception):
    """The code behind this point is never reached: the block has its terminator. Caught where paths meet."""


@dataclass(frozen=True)
class Extent:
    """A dimension variable whose value is the extent of a tensor."""

    tensor: Value
    axis: int


@dataclass
class Loop:
    """A loop around the present statement. `progress` is the token of its progress bar."""

    latch: Block
    exit: Block
    progress: Value | None = None
    broken: bool = False


@cache
def leaves_of(type: SourceType) -> tuple[TensorType, ...]:
    return tuple(leaf_types(type))


def ssa_type(type: TensorType) -> Type:
    return Type(type.elem, type.rank)


@cache
def ssa_types(type: SourceType) -> tuple[Type, ...]:
    return tuple(map(ssa_type, leaves_of(type)))


@cache
def _dims_of(type: SourceType) -> tuple[tuple[Dim, DimVar | None, int, int], ...]:
    """The dimensions of a type that are no constants, each with the variable that it may be, and the first place that has it: which leaf,
    which axis.
    """
    places: dict[Dim, tuple[int, int]] = {}
    for k, leaf in enumerate(leaves_of(type)):
        for axis, dim in enumerate(leaf.dims):
            if dim.value is None:
                places.setdefault(dim, (k, axis))
    return tuple((dim, dim.atom if isinstance(dim.atom, DimVar) else None, *place) for dim, place in places.items())


class State:
    """The state of lowering one function."""

    def __init__(self) -> None:
        self.region = Region()
        self.block = Block("entry")
        self.region.add(self.block)
        self.values: dict[int, Leaves] = {}  # immutable locals
        self.variables: dict[int, tuple[str, ...]] = {}  # mutable locals: the variable of each leaf
        self.dims: dict[int, Value | Extent] = {}
        self.terms: dict[int, list[tuple[Dim, Extent]]] = {}  # compound dimensions in which variables without a value were seen
        self.loops: list[Loop] = []
        self.taken: dict[str, int] = {}  # how many variables of a name there are

    # ------------------------------------------------------------ instructions

    def emit(
        self,
        op: str,
        operands: tuple[Value, ...] = (),
        types: tuple[Type, ...] = (),
        attrs: dict[str, Attr] | None = None,
        regions: tuple[Region, ...] = (),
        span: Span = NOWHERE,
        names: tuple[str, ...] = (),
    ) -> Leaves:
        return self.block.append(Instr(op, operands, types, attrs, regions, span, names)).results

    def op(self, op: str, *operands: Value, type: Type | None = None, span: Span = NOWHERE) -> Value:
        """A scalar op; its type is that of the first operand unless given."""
        return self.emit(op, operands, (type or operands[0].type,), span=span)[0]

    def const(self, value: bool | int | float | str, type: Type = I64, span: Span = NOWHERE) -> Value:
        """A constant, rounded to its type."""
        if type.elem.is_real:
            value = nearest(float(value), type.elem)
        return self.emit("const", (), (type,), {"value": value}, span=span)[0]

    def check(self, kind: str, cond: Value, message: str, *values: Value, span: Span) -> None:
        self.emit("check", (cond, *values), (), {"kind": kind, "message": message}, span=span)

    def all(self, conditions: list[Value], span: Span) -> Value:
        """The conjunction of one or more conditions."""
        first, *rest = conditions
        for c in rest:
            first = self.op("and", first, c, span=span)
        return first

    # ------------------------------------------------------------ control flow

    def start(self, block: Block) -> None:
        """From here on, instructions go to the end of this new block."""
        self.block = self.region.add(block)

    def end(self, terminator: Terminator) -> None:
        assert not self.block.terminated, self.block
        self.block.terminator = terminator

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is learnt about dimensions inside is forgotten behind it."""
        saved, terms = dict(self.dims), {uid: list(found) for uid, found in self.terms.items()}
        try:
            yield
        finally:
            self.dims, self.terms = saved, terms

    def nested(self, names: tuple[str, ...], span: Span, build: Callable[[Leaves], Leaves]) -> Region:
        """A region with `i64` parameters of these names that yields what `build` gives for them."""
        outer = self.region, self.block, self.loops
        self.region, self.loops = Region(), []
        entry = Block("entry")
        params = tuple(entry.add_param(I64, n) for n in names)
        self.start(entry)
        with self.scope():
            try:
                values = build(params)
                self.end(yield_(values, span))
            except Diverged:
                pass
        region = self.region
        remove_unreachable(region)
        self.region, self.block, self.loops = outer
        return region

    # ------------------------------------------------------------ variables

    def declare(self, local: Local, values: Leaves) -> None:
        """Bind an immutable local, or set a variable."""
        if local.mutable:
            self.assign(local, values)
            return
        self.values[local.uid] = values
        for v in values:
            v.name = v.name or local.name
        if local.dim is not None and isinstance(local.dim.atom, DimVar):
            self.dims[local.dim.atom.uid] = values[0]

    def assign(self, local: Local, values: Leaves) -> None:
        for variable, value in zip(self.leaves(local), values, strict=True):
            self.set(variable, value, local.span)

    def leaves(self, local: Local) -> tuple[str, ...]:
        """The names of the variables that hold the leaves of a mutable local."""
        if local.uid not in self.variables:
            count = self.taken[local.name] = self.taken.get(local.name, 0) + 1
            base = local.name if count == 1 else f"{local.name}~{count}"
            leaves = leaves_of(local.type)
            single = isinstance(local.type, TensorType)
            self.variables[local.uid] = (base,) if single else tuple(f"{base}/{k}" for k in range(len(leaves)))
        return self.variables[local.uid]

    def set(self, variable: str, value: Value, span: Span) -> None:
        self.emit("set", (value,), (), {"var": variable}, span=span)

    def get(self, variable: str, type: Type, span: Span) -> Value:
        return self.emit("get", (), (type,), {"var": variable}, span=span, names=(variable.split("/", 1)[0].split("~", 1)[0],))[0]

    def read(self, local: Local, span: Span) -> Leaves:
        if not local.mutable:
            return self.values[local.uid]
        types = ssa_types(local.type)
        return tuple(self.get(v, t, span) for v, t in zip(self.leaves(local), types, strict=True))

    # ------------------------------------------------------------ dimensions

    def learn(self, type: SourceType, values: Leaves) -> None:
        """Note the extents of these values as the meaning of bare dimension variables not seen before."""
        for dim, bare, leaf, axis in _dims_of(type):
            if bare is not None:
                if bare.uid not in self.dims:
                    self.dims[bare.uid] = Extent(values[leaf], axis)
            else:
                for atom in dim.atoms():
                    if atom.uid not in self.dims:
                        self.terms.setdefault(atom.uid, []).append((dim, Extent(values[leaf], axis)))

    def knows(self, dim: Dim) -> bool:
        return all(a.uid in self.dims for a in dim.atoms())

    def is_extent(self, dim: Dim, tensor: Value, axis: int) -> bool:
        """Whether the term is by definition the extent of this axis."""
        return isinstance(dim.atom, DimVar) and self.dims.get(dim.atom.uid) == Extent(tensor, axis)

    def extent(self, tensor: Value, axis: int, span: Span) -> Value:
        return self.emit("dim", (tensor,), (I64,), {"axis": axis}, span=span)[0]

    def dim(self, dim: Dim, span: Span) -> Value:
        """The value of a dimension term, computed from what is in scope."""
        total: Value | None = None
        for monomial, coefficient in dim.terms:
            factors = [self.const(abs(coefficient), span=span)] if abs(coefficient) != 1 or not monomial else []
            factors += [self._atom(a, span) for a, power in monomial for _ in range(power)]
            product = factors[0]
            for f in factors[1:]:
                product = self.op("mul", product, f, span=span)
            if total is None:
                total = product if coefficient > 0 else self.op("neg", product, span=span)
            else:
                total = self.op("add" if coefficient > 0 else "sub", total, product, span=span)
        return self.const(0, span=span) if total is None else total

    def _atom(self, atom: DimVar | DimQuotient, span: Span) -> Value:
        if isinstance(atom, DimQuotient):
            return self.op("floordiv", self.dim(atom.num, span), self.dim(atom.den, span), span=span)
        where = self.dims.get(atom.uid)
        if where is None:
            where = self._solved(atom, span)
        if where is None:
            raise CompileError(
                [
                    Diagnostic(
                        "E0940",
                        f"the value of the dimension `{atom}` cannot be found at run time: not supported yet",
                        atom.span if span is NOWHERE else span,
                        notes=(f"no argument has `{atom}` in one of its dimensions",),
                        help=f"pass `{atom}` as an `i64` parameter",
                    )
                ]
            )
        if isinstance(where, Extent):
            value = self.extent(where.tensor, where.axis, span)
            value.name = atom.name if atom.name.isidentifier() else ""
            return value
        return where

    def _solved(self, atom: DimVar, span: Span, busy: frozenset[DimVar] = frozenset()) -> Value | None:
        """The variable from a compound dimension in which all else is known: of `2 * n + m` the extent less m, divided by 2."""
        busy |= {atom}
        for term, extent in self.terms.get(atom.uid, []):
            split = linear(term, atom)
            if split is None or any(a in busy for a in term.atoms() if a != atom):
                continue
            for other in term.atoms():
                if other != atom and other.uid not in self.dims:
                    self._solved(other, span, busy)
            if all(a == atom or a.uid in self.dims for a in term.atoms()):
                factor, rest = split
                left = self.op("sub", self.extent(extent.tensor, extent.axis, span), self.dim(rest, span), span=span)
                value = self.dims[atom.uid] = self.op("floordiv", left, self.dim(factor, span), span=span)
                return value
        return None

    def dims_agree(self, found: list[Value], wanted: list[Value], span: Span) -> Value:
        """Whether all of these `i64`s agree, pairwise (at least one pair)."""
        return self.all([self.op("eq", f, w, type=BOOL, span=span) for f, w in zip(found, wanted, strict=True)], span)

    def in_range(self, index: Value, extent: Value, span: Span) -> Value:
        """`0 <= index < extent`."""
        zero = self.const(0, span=span)
        return self.all([self.op("ge", index, zero, type=BOOL, span=span), self.op("lt", index, extent, type=BOOL, span=span)], span)


def zero_of(elem: Elem) -> bool | int | float | str:
    """The zero of an element type, as the attribute of a `const`."""
    if elem is Elem.BOOL:
        return False
    if elem is Elem.STR:
        return ""
    return 0.0 if elem.is_real else 0

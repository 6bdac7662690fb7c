"""Strength reduction: a product with the counter of a loop becomes a sum that goes along with the counter.

Requires host SSA before the memory plan, behind `licm`; preserves every value (integers wrap, so sums and products of them may be
arranged anew at will) and the graph. Positions of loads and stores, and products, are seen as polynomials of counters (parameters of the
loop's header that every way back changes by the same invariant) and of values from outside. Those that differ by a constant only
are one group:

  a group in which a counter is multiplied      gets a parameter of the header that starts at its first value and grows by
    (Allen, Cocke and Kennedy 1981)             the counter's step times the factor; its members are that, plus a constant
  a group of positions without such a product   is computed once; its other members add a constant to the first

    head(%k):  %row = mul %k, %n                  %n2 = ...;  jump head(%zero, %j)
               %at = add %row, %j           ->    head(%k, %at):  load %b, %at
               load %b, %at                                       %next = add %at, %n;  jump head(.., %next)

A position plus a constant costs nothing: an address has room for it. The order of additions of reals is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.opt.loop_shape import enter_by_one_block, is_outside
from tlc.opt.polynomials import Monomial, Polynomial, Polynomials, wrapped
from tlc.ssa.dominance import Dominance, dominance
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import I64, Block, Function, Instr, Module, Value, const_of, erase
from tlc.ssa.loops import Loop, loops

MOST = 6  # new parameters of one header: each takes a register


def strength(module: Module) -> None:
    """Reduce products with counters in the loops of every function, innermost loops first."""
    for f in module.functions.values():
        _function(f)


def _function(f: Function) -> None:
    done: set[Block] = set()
    while True:
        tree = dominance(f.body)
        left = sorted((loop for loop in loops(f.body, tree) if loop.header not in done), key=lambda loop: -loop.depth)
        blocks = len(f.blocks)
        for loop in left:
            done.add(loop.header)
            _Reduction(loop, tree).run()
            if len(f.blocks) != blocks:
                break
        else:
            return


@dataclass(frozen=True)
class _Counter:
    """A parameter of the header, what it starts with, and by what each way back changes it."""

    start: Value
    step: Value


@dataclass
class _Group:
    """Values of a loop that differ by constants. Each is a value and the constant of its polynomial."""

    polynomial: Polynomial  # without a constant
    members: list[tuple[Value, int]] = field(default_factory=list)


class _Reduction:
    def __init__(self, loop: Loop, tree: Dominance) -> None:
        self.loop, self.tree = loop, tree
        self.blocks = set(loop.blocks)
        self.polynomials = Polynomials(self.blocks)

    def run(self) -> None:
        region = self.loop.header.region
        assert region is not None
        self.into = edges_into(region)[self.loop.header]
        self.outside = [(s, e) for s, e in self.into if s not in self.blocks]
        self.back = [(s, e) for s, e in self.into if s in self.blocks]
        if len(self.outside) != 1:
            return
        self.counters = dict(self._counters())
        if not self.counters:
            return
        groups = self._groups()
        products = [g for g in groups if self._is_product(g)]
        room = MOST
        for group in sorted(products, key=lambda g: not any(map(_is_position, g.members))):
            group.members = [(v, c) for v, c in group.members if v.uses]
            if group.members and room:  # what only led to positions has gone with them
                self._reduce(group)
                room -= 1
        for group in groups:
            if group not in products and len(group.polynomial) > 1:
                self._share(group)

    # ------------------------------------------------------------ finding

    def _counters(self) -> Iterator[tuple[Value, _Counter]]:
        (source, edge) = self.outside[0]
        for k, param in enumerate(self.loop.header.params):
            if param.type != I64:
                continue
            steps = [self._step(s.terminator.args(e)[k], param) for s, e in self.back]
            first = steps[0]
            if first is not None and all(s is first or (s is not None and const_of(s) == const_of(first) is not None) for s in steps):
                yield param, _Counter(source.terminator.args(edge)[k], first)

    def _step(self, passed: Value, param: Value) -> Value | None:
        owner = passed.owner
        if isinstance(owner, Instr) and owner.op == "add" and param in owner.operands:
            by = owner.operands[1] if owner.operands[0] is param else owner.operands[0]
            return by if by is not param and is_outside(by, self.blocks) else None
        return None

    def _groups(self) -> list[_Group]:
        found: dict[object, _Group] = {}
        for block in self.loop.blocks:
            for instr in block.instrs:
                if len(instr.results) != 1 or instr.result.type != I64 or not self._is_wanted(instr):
                    continue
                polynomial = dict(self.polynomials.of(instr.result))
                constant = polynomial.pop((), 0)
                if not polynomial or not all(self._is_plain(m) for m in polynomial) or not any(self._counter_in(m) for m in polynomial):
                    continue
                key = frozenset(polynomial.items())
                found.setdefault(key, _Group(polynomial)).members.append((instr.result, constant))
        return list(found.values())

    def _is_wanted(self, instr: Instr) -> bool:
        if instr.op not in ("add", "sub", "mul", "shl"):
            return False
        return instr.op in ("mul", "shl") or _is_position((instr.result, 0))

    def _is_plain(self, monomial: Monomial) -> bool:
        """Whether a product is of values from outside and of one counter at most."""
        return all(v in self.counters or is_outside(v, self.blocks) for v in monomial) and sum(v in self.counters for v in monomial) <= 1

    def _counter_in(self, monomial: Monomial) -> Value | None:
        return next((v for v in monomial if v in self.counters), None)

    def _is_product(self, group: _Group) -> bool:
        """Whether a counter is multiplied, by something that an address does not multiply by for nothing."""
        return any(self._counter_in(m) is not None and (len(m) > 1 or abs(c) != 1) for m, c in group.polynomial.items())

    # ------------------------------------------------------------ changing

    def _reduce(self, group: _Group) -> None:
        before, header = enter_by_one_block(self.loop), self.loop.header
        least = min((c for _, c in group.members), key=abs)
        outside = Emitter(before)
        start = outside.polynomial({**group.polynomial, (): least}, {p: c.start for p, c in self.counters.items()})
        step = outside.sum([
            outside.polynomial({tuple(v for v in m if v is not counter): c}, {}, self.counters[counter].step)
            for m, c in group.polynomial.items() if (counter := self._counter_in(m)) is not None
        ])  # fmt: skip
        param = header.add_param(I64, group.members[0][0].name)
        redirect(before, 0, header, (*before.terminator.args(0), start))
        for source, edge in self.back:
            inside = Emitter(source)
            redirect(source, edge, header, (*source.terminator.args(edge), inside.sum([param, inside.constant_near(step)])))
        for value, constant in group.members:
            _replace(value, param, constant - least)

    def _share(self, group: _Group) -> None:
        (first, base), *others = group.members
        assert isinstance(first.owner, Instr) and first.owner.block is not None
        for value, constant in others:
            assert isinstance(value.owner, Instr) and value.owner.block is not None
            if first in value.owner.operands or not self.tree.dominates(first.owner.block, value.owner.block):
                continue
            _replace(value, first, constant - base)


def _is_position(member: tuple[Value, int]) -> bool:
    """Whether a value is the position of a load or store."""
    value = member[0]
    return any(isinstance(u, Instr) and u.op in ("load", "store") and u.operands[1] is value for u in value.uses)


def _sweep(instr: Instr) -> None:
    """Remove an instruction that nobody reads, and what only it read."""
    if any(r.uses for r in instr.results) or (instr.op not in SCALAR_OPS and instr.op != "const") or instr.block is None:
        return
    operands = dict.fromkeys(instr.operands)
    erase(instr)
    instr.block = None
    for v in operands:
        if isinstance(v.owner, Instr):
            _sweep(v.owner)


def _replace(value: Value, by: Value, more: int) -> None:
    """Let all read `by + more` instead of a value, computed in its place."""
    instr = value.owner
    assert isinstance(instr, Instr) and instr.block is not None
    if not more:
        value.replace_by(by)
        _sweep(instr)
        return
    block = instr.block
    at = block.instrs.index(instr)
    constant = Instr("const", (), (I64,), {"value": wrapped(more)}, (), instr.span)
    total = Instr("add", (by, constant.result), (I64,), {}, (), instr.span, (value.name,))
    for k, new in enumerate((constant, total)):
        new.block = block
        block.instrs.insert(at + k, new)
    value.replace_by(total.result)
    _sweep(instr)


class Emitter:
    """Computes polynomials at the end of a block."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.span = block.terminator.span

    def constant(self, value: int) -> Value:
        return self.block.append(Instr("const", (), (I64,), {"value": wrapped(value)}, (), self.span)).result

    def constant_near(self, value: Value) -> Value:
        """A constant of this block instead of one of another; other values stay."""
        known = const_of(value)
        here = isinstance(value.owner, Instr) and value.owner.block is self.block
        return value if known is None or here else self.constant(int(known))

    def op(self, name: str, a: Value, b: Value) -> Value:
        known = const_of(a), const_of(b)
        if known[0] is not None and known[1] is not None:
            x, y = int(known[0]), int(known[1])
            return self.constant(x + y if name == "add" else x * y)
        for v, other in ((a, known[1]), (b, known[0])):
            if other == (0 if name == "add" else 1):
                return self.constant_near(v)
        if name == "mul" and 0 in known:
            return self.constant(0)
        operands = (self.constant_near(a), self.constant_near(b))  # a constant of the loop does not stand before it
        return self.block.append(Instr(name, operands, (I64,), {}, (), self.span)).result

    def sum(self, values: list[Value]) -> Value:
        total = values[0] if values else self.constant(0)
        for v in values[1:]:
            total = self.op("add", total, v)
        return total

    def polynomial(self, polynomial: Polynomial, values: dict[Value, Value], factor: Value | None = None) -> Value:
        """The value of a polynomial, times a factor if there is one, with some of its atoms replaced."""
        parts = []
        for monomial, c in polynomial.items():
            product = self.constant(c)
            for v in (*monomial, *((factor,) if factor is not None else ())):
                product = self.op("mul", values.get(v, v), product)
            parts.append(product)
        return self.sum(parts)

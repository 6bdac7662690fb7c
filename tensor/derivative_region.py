"""Reverse mode of one comprehension: what `tabulate`, `reduce` and `scatter` contribute to the adjoints of what they read.

Requires flat or reducing regions (`tensor/flatten.py`). A region is scalar straight-line code over a context of indices (those of the
tabulate, then those of the reduce in it). Every group of equal loads `x[e1, .., er]` contributes, for each point of the context,
the adjoint of the load at `x[e1, .., er]`. The form of that sum depends on the indices:

  each e is an index of the context,           tabulate over x's dimensions; the indices that x does not use
  with the same extent as x's dimension        are reduced in it                             (matrix products, sums, transposes)
  each other e is c i + rest, with an index    the same, at the i that solves it; where there is none, a guard keeps the seed
  of its own and a constant c > 0              from being read                       (convolutions, pooling, shifts: `tensor/solve.py`)
  each index of the context is some e          tabulate over x's dimensions, 0 where a computed e differs      (y[b, label[b]])
  else                                         scatter                                                                (gathers)

A load with a guard contributes where the guard holds.

    y = tabulate [b, o] { reduce chain [k] { mul (x b k), (w k o) } }
    w: k and o are used, b is missing      dw = tabulate [k, o] { reduce chain [b] { mul (dy b o), (x b k) } }
    x: b and k are used, o is missing      dx = tabulate [b, k] { reduce chain [o] { mul (dy b o), (w k o) } }

Scalars of the region are computed again in each contribution; an expensive one that the comprehension yields is read from
its result. Max and min give all to the first element that attains them, whose index is computed again (`argmax`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.ssa.builder import Builder
from tlc.ssa.ir import I64, Attr, Function, Instr, Region, Type, Value, drop_block
from tlc.ssa.orders import order_of_product
from tlc.tensor.derivative_point import NONE, Indices, Point, Root
from tlc.tensor.derivative_rules import partial
from tlc.tensor.extents import Key
from tlc.tensor.factors import KNOWN, others
from tlc.tensor.region_form import RegionForm
from tlc.tensor.scalar_code import loaded
from tlc.tensor.solve import solve

Body = Callable[[Builder, Indices], Value]
Group = tuple[Value, tuple[Value, ...], Value | None]  # a tensor, indices and the guard of equal loads; or a scalar


class Sweep(Protocol):
    """The reverse sweep around a comprehension, at one place of it."""

    b: Builder

    def forward(self, value: Value, /) -> Value: ...

    def is_active(self, value: Value, /) -> bool: ...

    def key(self, extent: Value, /) -> Key: ...

    def key_of(self, tensor: Value, axis: int, /) -> Key: ...

    def extent(self, tensor: Value, axis: int, /) -> Value: ...

    def zeros(self, of: Value, /) -> Value: ...

    def current(self, of: Value, /) -> Value | None: ...

    def replace(self, of: Value, adjoint: Value, /) -> None: ...

    def add(self, of: Value, contribution: Value, /) -> None: ...

    def reverse(self, function: Function, wrt: tuple[int, ...], /) -> None:
        """Turn another function into its gradient."""


def unknown(what: str, span: Span, help: str = "") -> CompileError:
    return CompileError([Diagnostic("E0960", f"the derivative of {what} is not known", span, help=help)])


def unknown_service(instr: Instr) -> CompileError:
    """Of a `foreign` or `extern`, which nobody can look into."""
    name = instr.attrs["symbol" if instr.op == "foreign" else "name"]
    return unknown(f"`{name}`", instr.span, "what calls it can have a rule of its own: `@vjp(rule)` above a function")


def differentiate_region(sweep: Sweep, instr: Instr, seeds: Sequence[Value | None]) -> None:
    """Add the contributions of a comprehension, given the adjoints of its results (None for zero)."""
    RegionAdjoint(sweep, instr, seeds).run()


@dataclass(frozen=True)
class Context:
    """The points of a sum: indices with extents that are values of the sweep. `value` is the summand, `place` an index of the tensor."""

    indices: tuple[Value, ...]
    extents: tuple[Value, ...]
    value: Summand
    place: Callable[[Value], Body]


class Summand(Protocol):
    """What a point contributes. With a guard, 0 where it does not hold: there the `doubtful` indices may be out of range."""

    def __call__(self, b: Builder, values: Indices, guard: Value | None = None, doubtful: frozenset[Value] = NONE, /) -> Value: ...


class RegionAdjoint(RegionForm):
    """The reverse of one comprehension, at one place of a sweep."""

    def __init__(self, sweep: Sweep, instr: Instr, seeds: Sequence[Value | None]) -> None:
        super().__init__(instr)
        self.sweep, self.seeds = sweep, seeds
        self.stored = self._stored()
        self.at_best: dict[Value, Value] = {}  # inner index -> its value at the extreme element, by outer indices
        self.shared: dict[Value, tuple[Value, tuple[Value, ...]]] = {}  # value -> its adjoint as a tensor, and the indices of that
        self.roots = self._roots()

    # ------------------------------------------------------------ what is given

    def _stored(self) -> dict[Value, Value]:
        """Expensive values that the comprehension yields -> its result."""
        if self.instr.op != "tabulate" or self.reduction is not None:
            return {}
        ends = self.instr.regions[0].entry.terminator.operands
        return {v: r for v, r in zip(ends, self.instr.results, strict=True) if isinstance(v.owner, Instr) and is_expensive(v.owner)}

    def _roots(self) -> list[Root]:
        ends = self.instr.regions[0].entry.terminator.operands
        if self.instr.op == "scatter":
            (into,) = self.seeds
            assert into is not None
            whole = into
            *places, value = ends
            return [Root(value, lambda p: p.load(whole, *(p.forward(i) for i in places)))]
        if self.reduction is None:
            return [Root(v, self._result(d)) for v, d in zip(ends, self.seeds, strict=True) if d is not None]
        (seed,) = self.seeds
        assert seed is not None
        (element,) = self.reduction.regions[0].entry.terminator.operands
        given = self._result(seed)
        match self.reduction.attrs["op"]:
            case "sum":
                return [Root(element, given)]
            case "prod":
                return [Root(element, self._prod(element, given))]
            case "max" | "min" as op:
                self._find_best("argmax" if op == "max" else "argmin")
                return [Root(element, given)]
        raise AssertionError(self.reduction.attrs["op"])

    def _result(self, seed: Value) -> Callable[[Point], Value]:
        """The adjoint of a result at the outer indices."""
        return lambda p: p.load(seed, *(p.values[i] for i in self.outer))

    def _again(self, op: str, element: Callable[[Point], Value], types: Sequence[Type]) -> list[Value]:
        """Another reduction over the same elements: a tensor over the outer indices (a scalar where there are none)."""
        assert self.reduction is not None
        reduction = self.reduction

        def reduced(b: Builder, values: Indices) -> tuple[Value, ...]:
            point = Point(self, b, values)
            extents = [point.forward(n) for n in reduction.operands]

            def body(b: Builder, *inner: Value) -> Value:
                return element(Point(self, b, {**point.values, **dict(zip(self.inner, inner, strict=True))}))

            attrs: dict[str, Attr] = {"op": op, "order": "lanes"}
            return b.emit("reduce", extents, types, attrs, [b.region(len(extents), body, _names(self.inner))]).results

        if not self.outer:
            return list(reduced(self.sweep.b, {}))
        extents = [self.sweep.forward(n) for n in self.outer.values()]
        tabulated = self.sweep.b.tabulate_many(
            extents, lambda b, *outer: reduced(b, dict(zip(self.outer, outer, strict=True))), _names(self.outer)
        )
        return list(tabulated.results)

    def _find_best(self, op: str) -> None:
        """The indices of the first extreme element. From here on, the inner indices stand for them."""
        assert self.reduction is not None
        (element,) = self.reduction.regions[0].entry.terminator.operands
        self.at_best = dict(zip(self.inner, self._again(op, lambda p: p.forward(element), [I64] * len(self.inner)), strict=True))

    def _prod(self, element: Value, given: Callable[[Point], Value]) -> Callable[[Point], Value]:
        """The product of the other elements."""
        known: list[Value] = []
        for op, of, type in KNOWN:
            known += self._again(op, lambda p, of=of: of(p.b, p.forward(element)), [type or element.type])  # type: ignore[misc]

        def seed(p: Point) -> Value:
            here = [p.values[i] for i in self.outer]
            return p.b.op("mul", given(p), others(p.b, p.forward(element), *(p.load(k, *here) for k in known)))

        return seed

    # ------------------------------------------------------------ contributions

    def run(self) -> None:
        """Dense contributions come first: where another has the same adjoint (`add` gives both operands one), it reads theirs."""
        groups = list(self._loads(self.instrs).items())
        groups += [((scalar, (), None), [scalar]) for scalar in self._free_scalars()]
        groups.sort(key=lambda group: len({*group[0][1]} & {*self.outer, *self.inner}), reverse=True)
        for group, targets in groups:
            self._contribute(group, targets)

    def _loads(self, instrs: Iterable[Instr]) -> dict[Group, list[Value]]:
        """Loads of active tensors, by tensor, indices and guard."""
        found: dict[Group, list[Value]] = {}
        for i in instrs:
            read = loaded(i)
            if read is not None and self.sweep.is_active(read[0]):
                found.setdefault((read[0], read[1:], i.operands[0] if i.op == "index_if" else None), []).append(i.result)
        return found

    def _free_scalars(self) -> list[Value]:
        read = [v for i in self.instrs if loaded(i) is None for v in i.operands]
        read += [root.value for root in self.roots]
        return list(dict.fromkeys(v for v in read if v not in self.inside and self.sweep.is_active(v)))

    def _contribute(self, group: Group, targets: list[Value]) -> None:
        if not self.reaches(targets):
            return
        base, places, guard = group
        context = self._context(base, places, targets)
        used = self._projections(base, places, context)
        missing = [i for i in context.indices if i not in used.values()]
        computed = [axis for axis in range(base.type.rank) if axis not in used]
        if not computed:
            self._sum(base, context, used, missing, targets, guard)
        elif not missing:
            self._one_hot(base, places, context, used, computed, guard)
        elif not self._solved(group, targets):
            self._scatter(base, places, context, guard)

    def _solved(self, group: Group, targets: list[Value]) -> bool:
        """Contribute by solving the places for indices of the context, if that can be done. Of an extreme, the inner indices are of the
        context here, and a point counts if it is the first extreme.
        """
        base, places, guard = group
        if self.inner and not all(map(self.is_uniform, self.inner.values())):
            return False
        full = self._full(targets)
        direct = self._projections(base, places, full)
        solution = solve(places, full.indices, lambda i, v: i in self.computed_from(v), self._extent_number, direct)
        if solution is None:
            return False
        missing = [i for i in full.indices if i not in solution.indices]
        if self.at_best and any(self._extent_number(i) is None for i in missing if i in self.inner):
            return False  # each element of the tensor would look at a whole row
        extents = dict(zip(full.indices, full.extents, strict=True))
        doubtful = frozenset(solution.solved)

        def body(b: Builder, *at: Value) -> Value:
            def term(b: Builder, *more: Value) -> Value:
                values = {**dict(zip(missing, more, strict=True)), **solution.projected(at)}
                point = Point(self, b, values)
                holds = solution.apply(b, point, at, extents)
                values = {**point.values, **dict(zip(places, at, strict=True))}
                for inner, best in self.at_best.items():
                    found = b.index_if(b.every(holds), best, *(values[i] for i in self.outer))
                    holds.append(b.op("eq", found, values[inner]))
                if guard is not None:
                    holds.append(Point(self, b, values, b.every(holds), doubtful).forward(guard))
                return full.value(b, values, b.every(holds), doubtful)

            if not missing:
                return term(b)
            return _sum(b, [extents[i] for i in missing], term, _names(missing))

        own = [self.sweep.extent(base, axis) for axis in range(base.type.rank)]
        self.sweep.add(base, self.sweep.b.tabulate(own, body, [v.name for v in places]))
        return True

    def _full(self, targets: list[Value]) -> Context:
        """The context of all indices."""
        before = Point(self, self.sweep.b, {})
        every = {**self.outer, **self.inner}
        return Context(tuple(every), tuple(before.forward(n) for n in every.values()), self._value(targets), self._place)

    def _extent_number(self, index: Value) -> int | None:
        """The extent of an index of the context, if it is a known number."""
        key = self.sweep.key({**self.outer, **self.inner}[index])
        return key if isinstance(key, int) else None

    def _same_adjoint(self, targets: list[Value]) -> Value:
        """A value of the region with the same adjoint: what the target is just added to, as far as that goes."""
        value = targets[0]
        while len(targets) == 1 and not any(root.value is value for root in self.roots):
            users = [(i, k) for i in self.instrs for k, v in enumerate(i.operands) if v is value]
            if len(users) != 1 or (users[0][0].op, users[0][1]) not in (("add", 0), ("add", 1), ("sub", 0)):
                break
            value = users[0][0].result
        return value

    def reaches(self, targets: Iterable[Value]) -> bool:
        """Whether a root depends on one of these."""
        reached = self.relevant(targets)
        return any(root.value in reached for root in self.roots)

    def relevant(self, targets: Iterable[Value]) -> set[Value]:
        """What depends on these values, through derivatives that are not zero."""
        found = set(targets)
        for i in self.instrs:
            if i.op in SCALAR_OPS and any(v in found and partial(i, k) for k, v in enumerate(i.operands)):
                found.add(i.result)
            elif i.op == "call_vjp" and any(v in found for v in i.operands):
                found.update(r for r in i.results if r.type.elem.is_real)
        return found

    def _context(self, base: Value, places: tuple[Value, ...], targets: list[Value]) -> Context:
        """The points over which the adjoints of `targets` are summed."""
        value, place = self._value(targets), self._place
        outer = tuple(self.outer)
        outer_extents = tuple(self.sweep.forward(n) for n in self.outer.values())
        if self.at_best or not self.inner:
            return Context(outer, outer_extents, value, place)
        if all(self.is_uniform(n) for n in self.inner.values()):
            before = Point(self, self.sweep.b, {})
            inner_extents = tuple(before.forward(n) for n in self.inner.values())
            return Context((*outer, *self.inner), (*outer_extents, *inner_extents), value, place)
        return self._rectangular(base, places, value, Context(outer, outer_extents, value, place))

    def _value(self, targets: list[Value]) -> Summand:
        same = self._same_adjoint(targets)

        def value(b: Builder, values: Indices, guard: Value | None = None, doubtful: frozenset[Value] = NONE) -> Value:
            point = Point(self, b, values, guard, doubtful)
            if same in self.shared:
                tensor, indices = self.shared[same]
                return point.load(tensor, *(values[i] for i in indices))
            return point.only_if(point.adjoint(targets))

        return value

    def _place(self, v: Value) -> Body:
        return lambda b, values: Point(self, b, values).forward(v)

    def _rectangular(self, base: Value, places: tuple[Value, ...], value: Summand, outer: Context) -> Context:
        """Where the extent of a reduction depends on outer indices, an equal sum over a rectangle.

        If the tensor is read at no inner index, the inner sum comes first. If it is read at the inner index itself, that
        index runs over the tensor's whole dimension, and is 0 outside: as a reduction over one element or none, because
        the element may not exist.
        """
        if not any(self.depends(v, self.inner) for v in places):
            summed = self.sweep.b.tabulate(
                outer.extents, lambda b, *at: self._inner_sum(b, dict(zip(outer.indices, at, strict=True)), value), _names(outer.indices)
            )
            return Context(outer.indices, outer.extents, self._read(summed, outer.indices), outer.place)
        inner = {i: self.sweep.extent(base, places.index(i)) for i in self.inner}
        indices = (*outer.indices, *inner)

        def guarded(b: Builder, *at: Value) -> Value:
            values = dict(zip(indices, at, strict=True))
            point = Point(self, b, values)
            exists = [b.op("lt", values[i], point.forward(n)) for i, n in self.inner.items()]
            once = b.op("convert", b.every(exists), type=I64)
            return b.reduce("sum", [once], lambda b, _: value(b, dict(point.values)))

        padded = self.sweep.b.tabulate([*outer.extents, *inner.values()], guarded, _names(indices))
        return Context(indices, (*outer.extents, *inner.values()), self._read(padded, indices), outer.place)

    def _read(self, tensor: Value, indices: Sequence[Value]) -> Summand:
        """The elements of a tensor."""

        def value(b: Builder, values: Indices, guard: Value | None = None, doubtful: frozenset[Value] = NONE) -> Value:
            return Point(self, b, values, guard, doubtful).load(tensor, *(values[i] for i in indices))

        return value

    def _inner_sum(self, b: Builder, values: Indices, value: Summand) -> Value:
        point = Point(self, b, values)
        extents = [point.forward(n) for n in self.inner.values()]
        return _sum(b, extents, lambda b, *at: value(b, {**point.values, **dict(zip(self.inner, at, strict=True))}), _names(self.inner))

    def _projections(self, base: Value, places: tuple[Value, ...], context: Context) -> dict[int, Value]:
        """Axes of the tensor that an index of the context runs through, once and completely."""
        used: dict[int, Value] = {}
        extents = dict(zip(context.indices, context.extents, strict=True))
        original = {**self.outer, **self.inner}
        for axis, v in enumerate(places):
            if v in extents and v not in used.values():
                wanted = self.sweep.key_of(base, axis)
                if wanted in (self.sweep.key(original[v]), self.sweep.key(extents[v])):
                    used[axis] = v
        return used

    def _sum(
        self, base: Value, context: Context, used: dict[int, Value], missing: list[Value], targets: list[Value], guard: Value | None
    ) -> None:
        extents = dict(zip(context.indices, context.extents, strict=True))
        rest = [extents[i] for i in missing]

        def term(b: Builder, values: Indices) -> Value:
            return context.value(b, values, None if guard is None else context.place(guard)(b, values))

        def body(b: Builder, *at: Value) -> Value:
            values = {used[axis]: i for axis, i in enumerate(at)}
            if not missing:
                return term(b, values)
            return _sum(b, rest, lambda b, *more: term(b, {**values, **dict(zip(missing, more, strict=True))}), _names(missing))

        if not base.type.rank:
            self.sweep.add(base, body(self.sweep.b))
            return
        names = _names(used[axis] for axis in range(base.type.rank))
        own = [self.sweep.extent(base, axis) for axis in range(base.type.rank)]
        region = self.sweep.b.region(len(own), body, names)
        copied = self._copied(region, base)
        if copied is not None:
            drop_block(region.entry)
            self.sweep.add(base, copied)
            return
        contribution = self.sweep.b.emit("tabulate", own, [base.type], {}, [region]).result
        self.sweep.add(base, contribution)
        if not missing and guard is None:
            self.shared.setdefault(self._same_adjoint(targets), (contribution, tuple(used[axis] for axis in range(base.type.rank))))

    def _copied(self, region: Region, base: Value) -> Value | None:
        """The tensor whose elements a region just yields, if it has the shape of `base`."""
        (value,) = region.entry.terminator.operands
        owner = value.owner
        if not isinstance(owner, Instr) or owner.op != "index" or owner.operands[1:] != tuple(region.entry.params):
            return None
        source = owner.operands[0]
        same = all(self.sweep.key_of(source, k) == self.sweep.key_of(base, k) for k in range(base.type.rank))
        return source if same and len(region.entry.instrs) == 1 else None

    def _one_hot(
        self,
        base: Value,
        places: tuple[Value, ...],
        context: Context,
        used: dict[int, Value],
        computed: list[int],
        guard: Value | None,
    ) -> None:
        def body(b: Builder, *at: Value) -> Value:
            values = {i: at[axis] for axis, i in used.items()}
            hits = [b.op("eq", at[axis], context.place(places[axis])(b, dict(values))) for axis in computed]
            if guard is not None:
                hits.append(context.place(guard)(b, dict(values)))
            here = b.every(hits)
            return b.op("select", here, context.value(b, dict(values)), b.const(0.0, Type(base.type.elem)))

        own = [self.sweep.extent(base, axis) for axis in range(base.type.rank)]
        names = [used[axis].name if axis in used else "" for axis in range(base.type.rank)]
        self.sweep.add(base, self.sweep.b.tabulate(own, body, names))

    def _scatter(self, base: Value, places: tuple[Value, ...], context: Context, guard: Value | None) -> None:
        """Where a guard does not hold, 0 is added to the first element; nothing is, where there is none."""
        extents = context.extents if guard is None else self._if_any(base, context.extents)

        def body(b: Builder, *at: Value) -> tuple[Value, ...]:
            values = dict(zip(context.indices, at, strict=True))
            where = [context.place(v)(b, dict(values)) for v in places]
            if guard is None:
                return (*where, context.value(b, dict(values)))
            holds = context.place(guard)(b, dict(values))
            return (*(b.op("select", holds, v, b.i64(0)) for v in where), context.value(b, dict(values), holds))

        into = self.sweep.current(base)
        into = self.sweep.zeros(base) if into is None else into
        self.sweep.replace(base, self.sweep.b.scatter(into, extents, body, names=_names(context.indices)))

    def _if_any(self, base: Value, extents: Sequence[Value]) -> tuple[Value, ...]:
        """Extents that are 0 where a tensor has no element."""
        b = self.sweep.b
        some = b.every([b.op("gt", self.sweep.extent(base, axis), b.i64(0)) for axis in range(base.type.rank)])
        return (b.op("select", some, extents[0], b.i64(0)), *extents[1:])


def is_expensive(instr: Instr) -> bool:
    """Whether a value is rather read from memory than computed again. With `max`, what it was computed from need not be kept."""
    row = SCALAR_OPS.get(instr.op)
    if instr.op == "call_vjp":
        return True
    return row is not None and (row.elementary or instr.op in ("div", "sqrt", "max", "min"))


def _names(indices: Iterable[Value]) -> list[str]:
    return [i.name for i in indices]


def _sum(b: Builder, extents: Sequence[Value], body: Callable[..., Value], names: Sequence[str]) -> Value:
    """A sum whose order follows from its body: that of a product, else lanes."""
    region = b.region(len(extents), body, names)
    (element,) = region.entry.terminator.operands
    owner = element.owner
    product = owner if isinstance(owner, Instr) and owner.op == "mul" and owner.block is region.entry else None
    attrs: dict[str, Attr] = {"op": "sum", "order": "lanes" if product is None else order_of_product(product)}
    return b.emit("reduce", extents, [element.type], attrs, [region]).result

"""Distribution of one comprehension over the statements of its body: one level of flattening.

    Y = tabulate [b < B] {                          T = tabulate [b, j] { .. }
      t = tabulate [j < m] { .. }                   R = tabulate [b] { reduce [k] { .. } }
      r = reduce [k < n] { .. }          becomes    Y = tabulate [b] { s = add (index R, b), (index T, b, 0); yield s }
      s = add r, (index t, 0)
      yield s }

Requires: the comprehensions inside the region are flat already (`tensor/flatten.py` goes from the inside out).
Ensures: the pieces that come out are flat, and stand where the comprehension stood.

What becomes of the values of the region:

  a scalar        is computed again in each piece that needs it, or if it is expensive, gets a piece of its own
  a row view      `index x, b` is no instruction any more: a `View` remembers the tensor and the leading indices
  a tensor        gets a piece over the indices that it depends on (invariants lose the dimension and leave the
                  comprehension), and is a view of the result from then on
  a `check`       looks at all elements first: see `_check`
  control flow    stays in the piece, which becomes an opaque region of scalars

A piece that leaves a dimension out runs also where that dimension is 0 and the comprehension has no element at all. What was known only
because there is an element (a check passed, an index of the comprehension exists) is not known there, so a piece whose loads are not proved
to be in range where it stands gets extents of 0 in that case (`_guard`).

Whatever does not fit raises `NotDistributable`, and the comprehension runs as a loop (`tensor/loops.py`).
Method: Blelloch 1990; Henriksen et al. 2017 (Futhark), sections on map distribution and fission.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.opt.facts import Facts
from tlc.ssa.builder import Builder
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.each import for_each
from tlc.ssa.ir import BOOL, I64, Block, Instr, Module, Region, Terminator, Type, Value, const_of, is_positive, same_value, walk, yield_
from tlc.ssa.liveness import free_values
from tlc.ssa.recipe import closed, watched_by
from tlc.tensor.extents import extent, known_extent
from tlc.tensor.opaque import expand_reductions
from tlc.tensor.outline import can_fail, may_stop
from tlc.tensor.piece import Piece
from tlc.tensor.scalar_code import CALL_COST, COSTS, cost_of, is_scalar, is_scalar_call, is_scalar_load, is_straight, loaded

EXPENSIVE = 12  # a scalar that costs more is stored rather than computed once an element of an inner comprehension
BIGGEST = (1 << 63) - 1


class NotDistributable(Exception):
    """This comprehension must run as a loop. The message says why, for `--explain-fusion`."""

    def __init__(self, reason: str, span: Span) -> None:
        super().__init__(reason)
        self.reason, self.span = reason, span


@dataclass(frozen=True)
class View:
    """The part of an outside tensor at leading indices, which are scalars of the region."""

    base: Value
    prefix: tuple[Value, ...] = ()


Axes = frozenset[int]  # positions of indices of the comprehension
Load = tuple[Value, tuple[Value, ...]]  # a tensor outside, and leading indices
NO_AXES: Axes = frozenset()


class Distribution:
    """The distribution of `instr` (a tabulate, reduce or scatter). `pieces` is the block of what comes out, in no region."""

    def __init__(self, instr: Instr, module: Module, taped: frozenset[str]) -> None:
        self.instr = instr
        self.module = module
        self.taped = taped  # functions that touch a tape, which no kernel does
        self.region = instr.regions[0]
        self.entry = self.region.entry
        self.params = tuple(self.entry.params)
        self.extents = instr.operands[len(instr.operands) - len(self.params) :]
        self.pieces = Block("pieces")
        self.b = Builder(self.pieces, module, instr.span)
        self.inside = {v for block in self.region.blocks for v in (*block.params, *(r for i in block.instrs for r in i.results))}
        self.views: dict[Value, View] = {}
        self.outer: dict[Value, Value] = {}  # values of the region that are computed before it
        self.axes: dict[Value, Axes] = {p: frozenset((k,)) for k, p in enumerate(self.params)}
        self.costs: dict[Value, int] = {}
        self.checked = False  # whether a check stood above: what is below may rely on it, so on there being an element
        self.facts = Facts()

    def run(self) -> tuple[Value, ...]:
        """Fill `pieces`; gives the values that stand for the results of the instruction."""
        for instr in self.entry.instrs:
            self.b.span = instr.span
            self._entry_instr(instr)
        self.b.span = self.instr.span
        others = [b for b in reverse_postorder(self.region) if b is not self.entry]
        for block in others:
            self._admit(block)
        match self.instr.op:
            case "tabulate":
                return self._tabulated(others)
            case "reduce" | "scatter":
                return self._consumed(others)
        raise AssertionError(self.instr.op)

    # ------------------------------------------------------------ the entry block

    def _entry_instr(self, instr: Instr) -> None:
        match instr.op:
            case "index":
                self._set_view(instr.result, self.view(instr.operands[0]), instr.operands[1:])
            case "index_if":
                reads = self.reads(instr)
                self.axes[instr.result] = self.axes_of(reads)
                self.costs[instr.result] = min(CALL_COST, COSTS["index_if"] + sum(self.costs.get(v, 0) for v in reads))
            case "dim":
                self._dim(instr)
            case "tabulate":
                self._inner_tabulate(instr)
            case "reduce":
                self._inner_reduce(instr)
            case "scatter":
                self._inner_scatter(instr)
            case "update":
                self._inner_update(instr)
            case "reshape":
                self._inner_reshape(instr)
            case "stop_grad" | "barrier" if instr.result.type.rank:
                view = self.view(instr.operands[0])
                self._set_view(instr.result, View(self.b.op(instr.op, view.base), view.prefix))
            case "check":
                self._check(instr)
            case "trap":
                self._trap(instr)
            case "call" if callee_of(instr) in self.taped:
                raise NotDistributable("the derivative of a recursion has a tape", instr.span)
            case "call" | "call_vjp" if is_scalar_call(instr) and may_stop(self.module, instr):
                self._call(instr)
            case "call_vjp" if not is_scalar_call(instr):
                self._call_vjp(instr)
            case _ if is_scalar(instr) or is_scalar_call(instr):
                axes = self.axes_of(instr.operands)
                cost = min(CALL_COST, sum(self.costs.get(v, 0) for v in instr.operands) + cost_of(instr))
                for r in instr.results:
                    self.axes[r] = axes
                    self.costs[r] = cost
            case _:
                raise NotDistributable(f"`{instr.op}` has no form over whole arrays", instr.span)

    def _call(self, instr: Instr) -> None:
        """A call that may stop the program happens here, once for each element, whoever needs its results."""
        if not instr.results:
            raise NotDistributable("a call without a result may stop the program", instr.span)

        def body(b: Builder, *indices: Value) -> tuple[Value, ...]:
            piece = Piece(self, b, dict(zip(self.params, indices, strict=True)))
            piece.need(*instr.operands)
            piece.copy(instr)
            return tuple(piece.values[r] for r in instr.results)

        stored = self.b.tabulate_many(list(self.extents), body, self._names(self.params), [r.name for r in instr.results])
        for old, new in zip(instr.results, stored.results, strict=True):
            self._set_view(old, View(new), self.params)
        self.checked = True

    def _call_vjp(self, instr: Instr) -> None:
        """One call over whole arrays, which has a derivative of its own as well."""
        axes = self.axes_of(instr.operands)
        own, own_extents = self._own(axes)
        varies = [bool(self.axes_of((v,))) for v in instr.operands]
        if any(v and x.type == I64 for x, v in zip(instr.operands, varies, strict=True)) and any(r.type.rank for r in instr.results):
            raise NotDistributable("an extent may depend on the index", instr.span)
        maybe_none = any(not is_positive(self.extents[k]) for k in range(len(self.params)) if k not in axes)
        rows = [v.owner for v in instr.operands if isinstance(v.owner, Instr) and v.owner.op == "index"]
        loads = [*self._loads(instr.operands), *map(self._load, rows)]
        if self._guard(axes, loads) is not None or (maybe_none and can_fail(self.module, callee_of(instr))):
            raise NotDistributable("a call with a derivative of its own may stop where there is no element", instr.span)
        larger = bool(instr.attrs["again"])
        operands = [*own_extents]
        operands += [self._argument(v, axes if more else NO_AXES, larger) for v, more in zip(instr.operands, varies, strict=True)]
        attrs = for_each(self.module, instr, len(own), varies) if own else dict(instr.attrs)
        types = tuple(Type(r.type.elem, r.type.rank + len(own)) for r in instr.results)
        names = tuple(r.name for r in instr.results)
        new = self.b.insert(Instr("call_vjp", tuple(operands), types, attrs, (), instr.span, names))
        for old, value in zip(instr.results, new.results, strict=True):
            self._set_view(old, View(value), own)

    def _argument(self, value: Value, axes: Axes, larger: bool) -> Value:
        """A value of the region for all elements, led by the dimensions of these axes; if `larger`, they may be more than there are
        elements: a tensor that is read at the indices themselves is passed as it is.
        """
        if value.type.rank:
            view = self.view(value)
            return view.base if larger and list(view.prefix) == self._own(axes)[0] else self.over(value, axes)
        if not axes:
            return self.invariant(value, "an argument")
        own, own_extents = self._own(axes)
        return self.b.tabulate(
            own_extents, lambda b, *at: Piece(self, b, dict(zip(own, at, strict=True))).need(value), self._names(own), value.name
        )

    def reads(self, instr: Instr) -> tuple[Value, ...]:
        """The scalars that a copy of an instruction reads: the leading indices of a view in place of the view."""
        if instr.op == "index_if":
            cond, tensor, *indices = instr.operands
            return (cond, *self.view(tensor).prefix, *indices)
        return instr.operands

    def view(self, tensor: Value) -> View:
        """Where a tensor of the region lies."""
        return self.views.get(tensor) or View(self.outer.get(tensor, tensor))

    def _set_view(self, value: Value, view: View, more: Sequence[Value] = ()) -> None:
        self.views[value] = View(view.base, (*view.prefix, *more))
        self.axes[value] = self.axes_of((*view.prefix, *more))
        self.costs[value] = min(CALL_COST, COSTS["index"] + sum(self.costs.get(v, 0) for v in (*view.prefix, *more)))

    def _dim(self, instr: Instr) -> None:
        axis = instr.attrs["axis"]
        assert isinstance(axis, int)
        view = self.view(instr.operands[0])
        self.outer[instr.result] = extent(self.b, view.base, axis + len(view.prefix))
        self.axes[instr.result] = NO_AXES

    def axes_of(self, values: Iterable[Value]) -> Axes:
        return frozenset().union(*(self.axes.get(v, NO_AXES) for v in values))

    def invariant(self, value: Value, what: str) -> Value:
        """An `i64` that is the same for all elements, computed before the comprehension."""
        if self.axes_of((value,)):
            raise NotDistributable(f"{what} depends on the index", self.instr.span)
        loads = self._loads((value,))
        guard = self._guard(NO_AXES, loads) if loads else None
        if guard is None:
            (outside,) = Piece(self, self.b, self.outer).need(value)
            return outside
        some = self.b.op("convert", guard, type=I64)
        return self.b.reduce("sum", [some], lambda b, _: Piece(self, b, {}).need(value)[0], names=["nought"])

    # ------------------------------------------------------------ pieces

    def _own(self, axes: Axes) -> tuple[list[Value], list[Value]]:
        """Indices of the comprehension and their extents, for the axes of a piece."""
        order = sorted(axes)
        return [self.params[k] for k in order], [self.extents[k] for k in order]

    def _names(self, params: Sequence[Value]) -> list[str]:
        return [p.name for p in params]

    def _scalars(self, instr: Instr) -> list[Value]:
        """What a piece for an inner comprehension needs of the region: scalars that it reads, and indices of the views that it reads."""
        found: dict[Value, None] = dict.fromkeys(instr.operands)
        found.update(free_values(instr.regions[0]))
        out: dict[Value, None] = {}
        for v in found:
            if v in self.views:
                if v.type.rank == 0:
                    out[v] = None
                else:
                    out.update(dict.fromkeys(self.views[v].prefix))
            elif v in self.inside:
                out[v] = None
        return list(out)

    def _inner_tabulate(self, instr: Instr) -> None:
        scalars = self._scalars(instr)
        for v in scalars:
            self._store_if_expensive(v)
        axes = self.axes_of(scalars)
        own, own_extents = self._own(axes)
        inner = [self.invariant(v, "an extent") for v in instr.operands]
        inner = self._only_if(self._guard(axes, self._loads((*scalars, *instr.operands), instr.regions[0])), self.b, inner)

        def body(b: Builder, *indices: Value) -> tuple[Value, ...]:
            piece = Piece(self, b, dict(zip(own, indices, strict=False)))
            piece.need(*scalars)
            return piece.inline(instr.regions[0], indices[len(own) :])

        hints = [r.name for r in instr.results]
        params = [*own, *instr.regions[0].entry.params]
        result = self.b.tabulate_many([*own_extents, *inner], body, self._names(params), hints)
        for old, new in zip(instr.results, result.results, strict=True):
            self._set_view(old, View(new), own)

    def _inner_reduce(self, instr: Instr) -> None:
        scalars = self._scalars(instr)
        axes = self.axes_of(scalars)
        own, own_extents = self._own(axes)
        guard = self._guard(axes, self._loads((*scalars, *instr.operands), instr.regions[0]))

        def copy(b: Builder, indices: Sequence[Value]) -> tuple[Value, ...]:
            piece = Piece(self, b, dict(zip(own, indices, strict=True)))
            piece.need(*scalars)
            extents = [piece.values.get(v, self.outer.get(v, v)) for v in instr.operands]
            return piece.reduce(instr, self._only_if(guard, b, extents))

        if axes:
            hints = [r.name for r in instr.results]
            new = self.b.tabulate_many(own_extents, lambda b, *indices: copy(b, indices), self._names(own), hints).results
            for old, value in zip(instr.results, new, strict=True):
                self._set_view(old, View(value), own)
        else:
            for old, value in zip(instr.results, copy(self.b, ()), strict=True):
                self.outer[old] = value
                self.axes[old] = NO_AXES

    def _store_if_expensive(self, value: Value) -> None:
        if self.costs.get(value, 0) <= EXPENSIVE or (value in self.views and not self.views[value].prefix):
            return
        if value in self.views and all(self.costs.get(v, 0) == 0 for v in self.views[value].prefix):
            return
        axes = self.axes_of((value,))
        own, own_extents = self._own(axes)
        if own:
            stored = self.b.tabulate(
                self._only_if(self._guard(axes, self._loads((value,))), self.b, own_extents),
                lambda b, *indices: Piece(self, b, dict(zip(own, indices, strict=True))).need(value),
                self._names(own),
                value.name,
            )
            self._set_view(value, View(stored), own)
        elif not self.checked and value not in self.views and self._proved(self._loads((value,))):
            self.outer[value] = self.invariant(value, "a scalar")

    def _guard(self, axes: Axes, loads: Iterable[Load]) -> Value | None:
        """For a piece over these axes with these loads, if it may run where the comprehension has no elements and must not load there:
        whether there are elements.
        """
        missing = [self.extents[k] for k in range(len(self.params)) if k not in axes]
        missing = [n for n in missing if not is_positive(n)]
        return self._any(missing) if missing and (self.checked or not self._proved(loads)) else None

    def _loads(self, values: Iterable[Value], region: Region | None = None) -> list[Load]:
        """What is loaded to compute scalars of the entry block, and by an inner region."""
        inner = list(walk(region)) if region is not None else []
        work = [*values, *(v for i in inner for v in i.operands)]
        found = [self._load(i) for i in inner if is_scalar_load(i)]
        seen: set[Value] = set()
        while work:
            v = work.pop()
            if v in seen or v in self.outer or v not in self.inside:
                continue
            seen.add(v)
            if v in self.views:
                view = self.views[v]
                work += view.prefix
                if v.type.rank == 0:
                    found.append((view.base, view.prefix))
            elif isinstance(v.owner, Instr):
                if loaded(v.owner) is not None:
                    found.append(self._load(v.owner))
                work += v.owner.operands
                for r in v.owner.regions:
                    found += self._loads((), r)
        return found

    def _load(self, instr: Instr) -> Load:
        tensor, *indices = loaded(instr) or ()
        view = self.view(tensor)
        return view.base, (*view.prefix, *indices)

    def _proved(self, loads: Iterable[Load]) -> bool:
        """Whether loads are in range where the comprehension stands, whether or not it has elements."""
        return all(self._within(i, base, k) for base, indices in loads for k, i in enumerate(indices))

    def _within(self, index: Value, base: Value, axis: int) -> bool:
        index = self.outer.get(index, index)
        found = known_extent(base, axis)
        known = [r for u in base.uses if isinstance(u, Instr) for r in u.results if _is_dim(r, base, axis)]
        extents = known if found is None else [found]
        owner = index.owner
        if isinstance(owner, Block) and owner.region is not None and isinstance(owner.region.parent, Instr):
            holder = owner.region.parent
            runs = holder.operands[len(holder.operands) - len(owner.params) + owner.params.index(index)]
            if any(same_value(runs, n) for n in extents) or _is_dim(runs, base, axis):
                return True
        assert self.instr.block is not None
        return any(self.facts.within(index, n, self.instr.block) for n in extents if not self._is_new(n))

    def _is_new(self, value: Value) -> bool:
        """Whether a value is made by the pieces, of which nothing is known while they stand nowhere."""
        return isinstance(value.owner, Instr) and value.owner.block is self.pieces

    def _only_if(self, guard: Value | None, b: Builder, extents: list[Value]) -> list[Value]:
        """Extents of an inner comprehension, which has no elements unless the guard holds."""
        if guard is None or not extents:
            return extents
        return [b.op("select", guard, extents[0], b.i64(0)), *extents[1:]]

    def _any(self, extents: Sequence[Value]) -> Value:
        """Whether none of the extents is zero."""
        return self.b.every([self.b.op("gt", n, self.b.i64(0)) for n in extents])

    def over(self, tensor: Value, axes: Axes) -> Value:
        """A tensor of the region as a whole one, led by the dimensions of these axes."""
        view = self.view(tensor)
        own, own_extents = self._own(axes)
        if list(view.prefix) == own and self._leads(view.base, own_extents):
            return view.base
        rest = [extent(self.b, view.base, len(view.prefix) + k) for k in range(tensor.type.rank)]
        rest = self._only_if(self._guard(axes, [*self._loads(view.prefix), (view.base, view.prefix)]), self.b, rest)

        def body(b: Builder, *indices: Value) -> Value:
            piece = Piece(self, b, dict(zip(own, indices, strict=False)))
            return b.index(view.base, *piece.need(*view.prefix), *indices[len(own) :])

        return self.b.tabulate([*own_extents, *rest], body, self._names(own), tensor.name)

    def _leads(self, base: Value, extents: Sequence[Value]) -> bool:
        """Whether these are the first extents of a tensor."""
        for k, wanted in enumerate(extents):
            found = known_extent(base, k)
            if not (found is not None and same_value(found, wanted)) and not _is_dim(wanted, base, k):
                return False
        return True

    def _inner_scatter(self, instr: Instr) -> None:
        x = instr.operands[0]
        scalars = self._scalars(instr)
        axes = self.axes_of((*scalars, *self.view(x).prefix))
        own, own_extents = self._own(axes)
        inner = [self.invariant(v, "an extent") for v in instr.operands[1:]]
        inner = self._only_if(self._guard(axes, self._loads((*scalars, *instr.operands[1:]), instr.regions[0])), self.b, inner)

        def body(b: Builder, *indices: Value) -> tuple[Value, ...]:
            piece = Piece(self, b, dict(zip(own, indices, strict=False)))
            piece.need(*scalars)
            return (*indices[: len(own)], *piece.inline(instr.regions[0], indices[len(own) :]))

        names = self._names([*own, *instr.regions[0].entry.params])
        op = instr.attrs["op"]
        assert isinstance(op, str)
        result = self.b.scatter(self.over(x, axes), [*own_extents, *inner], body, op, names, instr.result.name)
        self._set_view(instr.result, View(result), own)

    def _inner_update(self, instr: Instr) -> None:
        """Every element is the new one at the indices and the old one elsewhere."""
        x, *at, part = instr.operands
        old, new = self.view(x), self.view(part) if part.type.rank else None
        scalars = [*old.prefix, *at, *(new.prefix if new else (part,))]
        axes = self.axes_of(scalars)
        own, own_extents = self._own(axes)
        rest = [extent(self.b, old.base, len(old.prefix) + k) for k in range(x.type.rank)]
        loads = [*self._loads(scalars), (old.base, old.prefix), *([(new.base, new.prefix)] if new else [])]
        rest = self._only_if(self._guard(axes, loads), self.b, rest)

        def body(b: Builder, *indices: Value) -> Value:
            piece = Piece(self, b, dict(zip(own, indices, strict=False)))
            here = indices[len(own) :]
            inside = b.const(True, BOOL)
            for k, i in enumerate(piece.need(*at)):
                hit = b.op("eq", here[k], i)
                inside = b.op("and", inside, hit) if k else hit
            was = b.index(old.base, *piece.need(*old.prefix), *here)
            if new is None:
                (now,) = piece.need(part)
            else:
                now = b.index(new.base, *piece.need(*new.prefix), *here[len(at) :])
            return b.op("select", inside, now, was)

        result = self.b.tabulate([*own_extents, *rest], body, self._names(own), instr.result.name)
        self._set_view(instr.result, View(result), own)

    def _inner_reshape(self, instr: Instr) -> None:
        x, *extents = instr.operands
        view = self.view(x)
        axes = self.axes_of(view.prefix)
        own, own_extents = self._own(axes)
        whole = self.over(x, axes)
        shape = [*own_extents, *(self.invariant(n, "an extent") for n in extents)]
        if shape:
            shape = self._only_if(self._guard(axes, [(view.base, view.prefix)]), self.b, shape)
        result = self.b.reshape(whole, shape, instr.result.name)
        self._set_view(instr.result, View(result), own)

    def _check(self, instr: Instr) -> None:
        """A check of every element, before all of them.

        The least failing element (by its row-major position) is a `reduce`; the values of the message are computed
        again at that element. That happens inside a `reduce` over one element if any failed and over none if not, so nothing is
        loaded at an index that is not there. A condition that is the same for all elements needs no `reduce`.
        """
        cond, *values = instr.operands
        self.checked = True
        if not self.axes_of((cond,)) and not self._loads((cond,)):
            holds = self.invariant(cond, "a condition")
            some = [n for n in self.extents if not is_positive(n)]
            ok = self.b.op("or", holds, self.b.op("not", self._any(some))) if some else holds
            first = None
        else:

            def position(b: Builder, *indices: Value) -> Value:
                (c,) = Piece(self, b, dict(zip(self.params, indices, strict=True))).need(cond)
                flat = indices[0]
                for i, n in zip(indices[1:], self.extents[1:], strict=True):
                    flat = b.op("add", b.op("mul", flat, n), i)
                return b.op("select", c, b.i64(BIGGEST), flat)

            first = self.b.reduce("min", self.extents, position, names=self._names(self.params), hint="first")
            ok = self.b.op("eq", first, self.b.i64(BIGGEST))
        failed = self.b.op("convert", self.b.op("not", ok), type=I64)
        at_first = [self._at(first, failed, v, instr) for v in values]
        attrs = instr.attrs
        self.b.emit("check", (ok, *at_first), (), dict(attrs))

    def _trap(self, instr: Instr) -> None:
        """A trap of every element, before all of them, which watches all that these watch. If it fails, the recipes are run, one after the
        other.
        """
        cond, *others = instr.operands
        watched, values = others[: watched_by(instr)], others[watched_by(instr) :]
        scalars = [v for v in watched if not v.type.rank and v not in self.views]
        self.checked = True

        def holds(b: Builder, *indices: Value) -> Value:
            ok, *tests = Piece(self, b, dict(zip(self.params, indices, strict=True))).need(cond, *scalars)
            return b.every([ok, *(b.finite(v) if v.type.elem.is_real else v for v in tests)])

        def look(b: Builder, *indices: Value) -> tuple[Value, ...]:
            piece = Piece(self, b, dict(zip(self.params, indices, strict=True)))
            b.emit("trap", (b.const(False, BOOL), *map(piece.whole, values)), (), {**instr.attrs, "watched": 0})
            return (b.const(True, BOOL),)

        whole = dict.fromkeys(self.view(v).base for v in watched if v not in scalars)
        if scalars or const_of(cond) is not True:
            whole[self.b.tabulate(self.extents, holds, self._names(self.params), "ok")] = None
        cold = Block("recipe")
        Builder(cold, None, instr.span).tabulate_many(list(self.extents), look, self._names(self.params))
        recipe, captured = closed(cold)
        self.b.emit("trap", (self.b.const(True, BOOL), *whole, *captured), (), {"recipe": recipe, "watched": len(whole)})

    def _at(self, first: Value | None, failed: Value, value: Value, instr: Instr) -> Value:
        """A value of a failed check, at the first element that fails (at any where `first` is None)."""
        if not self.axes_of((value,)) and not self._loads((value,)):
            return self.invariant(value, "a value")
        if value.type.elem not in (Elem.BOOL,) and not value.type.elem.is_num:
            raise NotDistributable("a check shows a text of its element", instr.span)

        def body(b: Builder, nought: Value) -> Value:
            flat = nought if first is None else b.op("add", first, nought)
            indices: list[Value] = []
            for n in reversed(self.extents[1:]):
                indices.insert(0, b.op("mod", flat, n))
                flat = b.op("floordiv", flat, n)
            (v,) = Piece(self, b, dict(zip(self.params, [flat, *indices], strict=True))).need(value)
            return v

        return self.b.reduce("any" if value.type == BOOL else "sum", [failed], body, names=["nought"])

    # ------------------------------------------------------------ control flow

    def _admit(self, block: Block) -> None:
        """Whether a block behind the entry may stay in an opaque region; row views in it are remembered."""
        for p in block.params:
            if p.type.rank:
                raise NotDistributable("a tensor depends on control flow", self.instr.span)
        for instr in block.instrs:
            match instr.op:
                case "index" if instr.result.type.rank:
                    self._set_view(instr.result, self.view(instr.operands[0]), instr.operands[1:])
                case "dim":
                    self._dim(instr)
                case "index" | "index_if" | "check":
                    pass
                case "reduce" if is_straight(instr):
                    pass
                case "call" if callee_of(instr) in self.taped:
                    raise NotDistributable("the derivative of a recursion has a tape", instr.span)
                case _ if is_scalar(instr) or is_scalar_call(instr):
                    pass
                case _:
                    raise NotDistributable(f"`{instr.op}` under control flow", instr.span)

    def _yields(self) -> list[Terminator]:
        return [b.terminator for b in self.region.blocks if b.terminator.op == "yield"]

    def _tabulated(self, others: list[Block]) -> tuple[Value, ...]:
        """The results: scalars together in one piece, which has the effects of control flow too, then tensors each as a whole."""
        every = frozenset(range(len(self.params)))
        ends = self._yields()
        results: dict[int, Value] = {}
        scalars: list[int] = []
        tensors: dict[int, Value] = {}
        for k, old in enumerate(self.instr.results):
            value = ends[0].operands[k] if len(ends) == 1 else None
            if old.type.rank == len(self.params):
                if value is not None and value in self.views and self._is_whole(value):
                    results[k] = self.views[value].base
                else:
                    scalars.append(k)
            elif value is None or any(v.block in others for v in self.view(value).prefix):
                raise NotDistributable("a tensor depends on control flow", self.instr.span)
            else:
                tensors[k] = value
        if scalars:
            types = [self.instr.results[k].type for k in scalars]
            region = self._scalar_region(others, scalars)
            piece = self.b.emit("tabulate", self.extents, types, {}, [region], [self.instr.results[k].name for k in scalars])
            results.update(zip(scalars, piece.results, strict=True))
        elif any(may_stop(self.module, i) for block in others for i in block.instrs):
            region = self._scalar_region(others, [])
            _yield_nothing(region)
            self.b.emit("tabulate", self.extents, [Type(Elem.BOOL, len(self.params))], {}, [region])
        results.update((k, self.over(value, every)) for k, value in tensors.items())
        return tuple(results[k] for k in range(len(self.instr.results)))

    def _is_whole(self, value: Value) -> bool:
        view = self.views[value]
        return view.prefix == self.params and self._leads(view.base, self.extents)

    def _scalar_region(self, others: list[Block], wanted: list[int]) -> Region:
        """A region of the same indices that yields the wanted scalars of the old one."""
        entry = Block()
        region = Region([entry])
        values = {p: entry.add_param(p.type, p.name) for p in self.params}
        piece = Piece(self, Builder(entry, self.module, self.instr.span), dict(values))
        copies = {self.entry: entry}
        for block in others:
            copies[block] = region.add(Block(block.name))
            for p in block.params:
                piece.values[p] = copies[block].add_param(p.type, p.name)
        piece.need(*self._needed_from_entry(others))
        piece.end(self.entry.terminator, copies, wanted)
        for block in others:
            at = Piece(self, Builder(copies[block], self.module, self.instr.span), piece.values)
            for instr in block.instrs:
                if instr.results and (instr.results[0].type.rank or instr.results[0] in self.outer):
                    continue  # a view or an extent
                at.copy(instr)
            at.end(block.terminator, copies, wanted)
        expand_reductions(region, self.module)
        return region

    def _needed_from_entry(self, others: list[Block]) -> list[Value]:
        """Scalars of the entry block that the blocks behind it read."""
        found: dict[Value, None] = {}
        for block in others:
            for instr in block.instrs:
                read = [*instr.operands, *(v for r in instr.regions for v in free_values(r))]
                for v in read:
                    found.update(dict.fromkeys(self.views[v].prefix if v in self.views and v.type.rank else (v,)))
            found.update(dict.fromkeys(v for v in block.terminator.operands if v.type.rank == 0))
        mine = set(self.params) | {r for i in self.entry.instrs for r in i.results}
        return [v for v in found if v in mine and v.type.rank == 0]

    def _consumed(self, others: list[Block]) -> tuple[Value, ...]:
        """A reduce or scatter keeps only a straight-line region."""
        assert not others, "opaque regions of reductions are tabulated first"
        region = self._scalar_region([], list(range(len(self.entry.terminator.operands))))
        kept = self.instr.operands[: len(self.instr.operands) - len(self.params)]
        types = [r.type for r in self.instr.results]
        names = [r.name for r in self.instr.results]
        return self.b.emit(self.instr.op, (*kept, *self.extents), types, dict(self.instr.attrs), [region], names).results


def _yield_nothing(region: Region) -> None:
    """A region for its effects alone: what it yields is a constant."""
    for block in region.blocks:
        if block.terminator.op == "yield":
            constant = Instr("const", (), (BOOL,), {"value": False}, span=block.terminator.span)
            block.append(constant)
            block.terminator = yield_((constant.result,), block.terminator.span)


def _is_dim(value: Value, tensor: Value, axis: int) -> bool:
    owner = value.owner
    return isinstance(owner, Instr) and owner.op == "dim" and owner.operands[0] is tensor and owner.attrs["axis"] == axis

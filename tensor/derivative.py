"""Derivatives: every `grad` instruction becomes a call of a function made for it.

    %l, %dw = grad %w, %x {callee = "loss", value = True, wrt = (0,)}
    %l, %dw = call %w, %x {callee = "loss.value_and_grad[0]"}

Requires: SSA, optimized and flat, where no side of a branch was speculated whose derivative may be infinite (`opt/if_convert.py`).
Afterwards there is no `grad`, and no `stop_grad`, which means nothing then; the new functions are flat and are inlined like any others.

A callee is copied, told which extents of its arguments are equal at this call (so that it knows which index runs through which
dimension), inlined, optimized, flattened and handed to the reverse sweep:

    tensor/reverse.py               blocks, branches, loops, calls, the tapes
    tensor/derivative_activity.py   what has an adjoint
    tensor/derivative_region.py     comprehensions
    tensor/derivative_branches.py   comprehensions with branches
    tensor/derivative_rules.py      scalar ops, one row each

A `jvp` becomes a call as well, of a function that computes tangents beside its values (`tensor/forward.py`).

Callees are done before their callers, so a `grad` inside of what is differentiated is a call already, and inlined.
Calls with the same callee, arguments to differentiate by and equalities of extents share a function.

A `call_vjp` (`ssa/rules.py`) is not inlined into what is differentiated. What it runs again for a gradient is a `grad` in the reverse
sweep, which is expanded there, where the extents are known.

What is recursive stays a call, and its derivative is made in two parts (`reverse_parts`), once for each set of arguments and results
that take part. A part calls the parts of others, itself among them, so they are named when they are asked for and made afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property

from tlc.frontend.diagnostics import CompileError, Diagnostic, Label
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.opt import passes
from tlc.opt.sink import sink
from tlc.ssa.builder import Builder
from tlc.ssa.calls import DERIVED, KEPT, NAMED, callee_of, callees, components, reached
from tlc.ssa.clone import clone_function
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import Function, Instr, Module, Value, erase, walk
from tlc.ssa.orders import accumulate_wide
from tlc.ssa.rules import make_call, make_calls, make_pushed
from tlc.ssa.tape import TAPES, tapes, touching
from tlc.tensor.derivative_region import unknown
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.flatten import flatten_function
from tlc.tensor.forward import forward
from tlc.tensor.reverse import reverse, reverse_parts
from tlc.tensor.scalar_code import is_scalar_call

# What makes a callee clean; no if-conversion, which may speculate what has an infinite derivative.
TIDY = ("fold", "dims", "fold", "cse", "dce", "simplify-cfg")
SIMPLIFY = ("inline", "simplify-cfg", *TIDY, "checks", "dce", "simplify-cfg")

Equalities = tuple[tuple[object, ...], ...]  # for each argument the classes of its extents (of its value, for an `i64`)


def differentiates(module: Module) -> bool:
    """Whether there is a `grad` or `jvp` to expand."""
    return any(i.op in DERIVED for f in module.functions.values() for i in walk(f.body))


def differentiate(module: Module) -> None:
    """Expand every `grad` and `jvp` of a module, in place."""
    _Derivatives(module).run()
    accumulate_wide(module)


class _Derivatives:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.made: dict[tuple[object, ...], str] = {}
        self.parts: dict[Parts, tuple[str, str]] = {}
        self.forwards: dict[tuple[str, tuple[int, ...]], str] = {}  # a function and what it is differentiated by -> its name
        self.wanted: list[tuple[tuple[str, tuple[int, ...]], str]] = []  # of those the named ones, which are to be made
        self.touching: frozenset[str] = frozenset()  # functions with tapes, when it was last asked for
        self.names = set(module.functions)

    def run(self) -> None:
        for component in components(self.module):
            for name in component:
                function = self.module.functions[name]
                self._shapes(function)
                found = [i for i in walk(function.body) if i.op in DERIVED]
                if not found:
                    continue
                for instr in found:
                    if callee_of(instr) in component:
                        raise CompileError([Diagnostic("E0961", f"`{name}` differentiates itself: not supported yet", instr.span)])
                self._expand_all(function, {})
        for function in self.module.functions.values():
            _drop_stop_grads(function)
            make_calls(function)

    def _expand_all(self, function: Function, known: Mapping[tuple[Value, int], Key]) -> None:
        """Every `grad` and `jvp` of a function."""
        found = [i for i in walk(function.body) if i.op in DERIVED]
        if found:
            extents = Extents(function, known)
            for instr in found:
                try:
                    if instr.op == "jvp":
                        self._expand_forward(instr)
                    else:
                        self._expand(instr, extents)
                except CompileError as e:
                    raise CompileError([_asked(d, instr.span) for d in e.diagnostics]) from None

    def _expand(self, instr: Instr, extents: Extents) -> None:
        equalities = _equalities(instr.operands, extents)
        key = (callee_of(instr), instr.attrs["wrt"], instr.attrs["value"], equalities)
        if key not in self.made:
            wrt = instr.attrs["wrt"]
            assert isinstance(wrt, tuple)
            word = "value_and_grad" if instr.attrs["value"] else "grad"
            self.made[key] = self.named(f"{callee_of(instr)}.{word}[{','.join(map(str, wrt))}]")
            self._make(instr, self.made[key], equalities)
        _call_instead(instr, self.made[key])

    def _expand_forward(self, instr: Instr) -> None:
        wrt = instr.attrs["wrt"]
        assert isinstance(wrt, tuple)
        self.touching = touching(self.module, self.module.functions)
        _call_instead(instr, self.jvp(callee_of(instr), wrt))
        new: list[Function] = []
        while self.wanted:
            key, name = self.wanted.pop()
            new.append(self._make_forward(*key, name))
        self._tidy(new)
        for made in new:
            self._expand_all(made, {})

    def _make_forward(self, callee: str, wrt: tuple[int, ...], name: str) -> Function:
        scratch = self._copy(callee, name)
        passes.run(scratch, SIMPLIFY)
        function = scratch.functions[name]
        forward(function, wrt, self)
        return self.module.add(function)

    def _copy(self, callee: str, name: str) -> Module:
        """A copy of a function under another name, and copies of all that it calls."""
        function = clone_function(self.module.functions[callee], name)
        called = reached(self.module, callees(function, KEPT), KEPT)
        return Module({name: function, **{other: clone_function(self.module.functions[other], other) for other in called}})

    # what a forward sweep asks: `forward.Calls`

    def jvp(self, callee: str, wrt: tuple[int, ...], /) -> str:
        key = (callee, wrt)
        if key not in self.forwards:
            self.forwards[key] = self.named(f"{callee}.jvp[{','.join(map(str, wrt))}]")
            self.wanted.append((key, self.forwards[key]))
        return self.forwards[key]

    def pushed(self, instr: Instr, wrt: tuple[int, ...], /) -> str:
        name = make_pushed(self.module, instr, wrt)
        self.names.add(name)
        return name

    def _make(self, instr: Instr, name: str, equalities: Equalities) -> None:
        wrt, value = instr.attrs["wrt"], instr.attrs["value"]
        assert isinstance(wrt, tuple) and isinstance(value, bool)
        scratch = self._copy(callee_of(instr), name)
        function = scratch.functions[name]
        known = _state(function, equalities)
        passes.run(scratch, SIMPLIFY)
        if _no_tape(function):
            passes.run(scratch, SIMPLIFY)
        sink(scratch)  # what a side alone reads has no adjoint on the other
        flatten_function(function, scratch, known)
        self._adopt(scratch)
        passes.run(scratch, TIDY)
        calls = _Calls(self, scratch, instr)
        reverse(function, tuple(k for k in wrt if isinstance(k, int)), value, calls, known)
        del scratch.functions[name]  # what it is now calls what is not there
        new = [self.module.add(function)]
        while calls.wanted:
            new += self._make_parts(calls.wanted.pop(), calls)
        self._tidy(new)
        for made in new:
            self._expand_all(made, known if made is function else {})

    def _shapes(self, function: Function) -> None:
        """Write down at each `call_vjp` what is known of the extents of its results."""
        for instr in [i for i in walk(function.body) if i.op == "call_vjp"]:
            instr.set("shapes", _shapes_of(self.module.functions[callee_of(instr)]))

    def _make_parts(self, wanted: Parts, calls: _Calls) -> list[Function]:
        """Both parts of the derivative of a function that is called."""
        forward, backward = self.parts[wanted]
        first = clone_function(calls.module.functions[wanted.callee], forward)
        flatten_function(first, calls.module, {})
        self._adopt(calls.module)
        passes.run(Module({**calls.module.functions, forward: first}), TIDY)
        second = reverse_parts(first, backward, wanted.wrt, wanted.seeds, calls)
        return [self.module.add(first), self.module.add(second)]

    def _adopt(self, scratch: Module) -> None:
        """What flattening made of lifted calls (`ssa/each.py`) is called by the derivatives."""
        for name, function in scratch.functions.items():
            if name not in self.names:
                self.names.add(name)
                self.module.add(clone_function(function, name))

    def _tidy(self, new: list[Function]) -> None:
        """Simplify new functions. What they call, which tells what their calls may do, stays as it is."""
        made = {f.name: f for f in new}
        called = [name for name in reached(self.module, made, NAMED) if name not in made]
        passes.run(Module({**made, **{name: clone_function(self.module.functions[name], name) for name in called}}), TIDY)

    def named(self, wanted: str) -> str:
        """A name that no function has, or is about to have."""
        name, count = wanted, 1
        while name in self.names:
            count += 1
            name = f"{wanted}~{count}"
        self.names.add(name)
        return name


def _asked(d: Diagnostic, span: Span) -> Diagnostic:
    """What cannot be differentiated, at the place that asks for it, and then where it stands."""
    if span == d.span or any(label.span == span for label in d.labels):
        return d
    return replace(d, span=span, label="this derivative needs it", labels=(Label(d.span, d.label or "it stands here"), *d.labels))


def _call_instead(instr: Instr, callee: str) -> None:
    """A call of what was made for a `grad` or `jvp`, in its place."""
    types, names = tuple(r.type for r in instr.results), tuple(r.name for r in instr.results)
    call = insert_before(instr, Instr("call", instr.operands, types, {"callee": callee}, (), instr.span, names))
    for old, new in zip(instr.results, call.results, strict=True):
        old.replace_by(new)
    erase(instr)


def _shapes_of(function: Function) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """What each extent of each result is, as attribute `shapes` of a `call_vjp` has it."""
    exits = [b.terminator for b in function.blocks if b.terminator.op == "return"]
    extents, positions = Extents(function), {p: k for k, p in enumerate(function.params)}

    def known(k: int, axis: int) -> tuple[int, ...]:
        keys = {extents.of(e.operands[k], axis) for e in exits}
        match keys.pop() if len(keys) == 1 else None:
            case int(number):
                return (number,)
            case Axis(of, at) if of in positions:
                return (positions[of], at)
            case Value() as value if value in positions:
                return (positions[value], -1)
        return ()

    return tuple(tuple(known(k, axis) for axis in range(t.rank)) for k, t in enumerate(function.results))


def _no_tape(function: Function) -> bool:
    """Scalar code in comprehensions is run again for a gradient anyhow: what else would be is called. Whether there was such."""
    found = [i for i in walk(function.body) if i.op == "call_vjp" and i.attrs["again"] and is_scalar_call(i) and _in_region(i, function)]
    for instr in found:
        make_call(instr)
    return bool(found)


def _in_region(instr: Instr, function: Function) -> bool:
    return instr.block is not None and instr.block.region is not function.body


@dataclass(frozen=True)
class Parts:
    """What the two parts of a derivative are made for: the results `seeds` of a function by its parameters `wrt`, on a tape."""

    callee: str
    wrt: tuple[int, ...]
    seeds: tuple[int, ...]
    tape: int


@dataclass
class _Calls:
    """The calls of what is differentiated, in a module of its own, for one `grad`. Fulfils `reverse.Calls`."""

    of: _Derivatives
    module: Module
    instr: Instr
    wanted: list[Parts] = field(default_factory=list)  # named, and to be made

    @cached_property
    def tape(self) -> int:
        level = max((t for f in self.module.functions.values() for t in tapes(f)), default=-1) + 1
        if level == TAPES:
            raise unknown(f"a derivative of loops or recursive functions, {TAPES} deep,", self.instr.span)
        return level

    @cached_property
    def touching(self) -> frozenset[str]:
        return touching(self.module, self.module.functions)

    def parts(self, callee: str, wrt: tuple[int, ...], seeds: tuple[int, ...], /) -> tuple[str, str]:
        key = Parts(callee, wrt, seeds, self.tape)
        if key not in self.of.parts:
            what = f"[{','.join(map(str, wrt))}]"
            self.of.parts[key] = self.of.named(f"{callee}.forward{what}"), self.of.named(f"{callee}.backward{what}")
            self.wanted.append(key)
        return self.of.parts[key]


def _drop_stop_grads(function: Function) -> None:
    for instr in [i for i in walk(function.body) if i.op == "stop_grad"]:
        instr.result.replace_by(instr.operands[0])
        erase(instr)


def _equalities(operands: tuple[Value, ...], extents: Extents) -> Equalities:
    """For each argument, what is known of its extents: a constant, or the number of the class of extents that it equals."""
    numbers: dict[Key, int] = {}

    def known(key: Key) -> object:
        return key if isinstance(key, int) else f"n{numbers.setdefault(key, len(numbers))}"

    keys: list[tuple[Key, ...]] = [(extents.key(v),) if _is_count(v) else extents.all(v) for v in operands]
    return tuple(tuple(map(known, k)) for k in keys)


def _is_count(value: Value) -> bool:
    return value.type.rank == 0 and value.type.elem.is_int and value.type.elem.width == 64


def _state(function: Function, equalities: Equalities) -> dict[tuple[Value, int], Key]:
    """Write down in a function what is known of its parameters, and give it: extents and counts that are constants become so, and
    each extent the `dim` of the first of its class.
    """
    b = Builder(function.body.entry)
    b.position = 0
    params = list(zip(function.params, equalities, strict=True))
    classes: dict[object, Key] = {}
    for param, (of_value, *_) in (entry for entry in params if _is_count(entry[0])):
        classes.setdefault(of_value, of_value if isinstance(of_value, int) else param)
        if isinstance(of_value, int):
            param.replace_by(b.i64(of_value))
    known: dict[tuple[Value, int], Key] = {}
    for param, of_extents in (entry for entry in params if not _is_count(entry[0])):
        for axis, of_extent in enumerate(of_extents):
            classes.setdefault(of_extent, of_extent if isinstance(of_extent, int) else Axis(param, axis))
            known[param, axis] = classes[of_extent]
    for dim in [i for i in walk(function.body) if i.op == "dim"]:
        here = dim.attrs["axis"]
        assert isinstance(here, int)
        match known.get((dim.operands[0], here)):
            case int(number):
                dim.result.replace_by(b.i64(number))
            case Axis(first, at) if first is not dim.operands[0]:
                dim.result.replace_by(b.dim(first, at))
            case Value() as count:
                dim.result.replace_by(count)
    return known

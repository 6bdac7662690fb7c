"""Derivatives: every `grad` instruction becomes a call of a function made for it.

    %l, %dw = grad %w, %x {callee = "loss", value = True, wrt = (0,)}
    %l, %dw = call %w, %x {callee = "loss.value_and_grad[0]"}

Requires: SSA, optimized and flat, where no side of a branch was speculated whose derivative may be infinite (`opt/if_convert.py`).
Afterwards there is no `grad`, and no `stop_grad`, which means nothing then; the new functions are flat and are inlined like any others.

A callee is copied, told which extents of its arguments are equal at this call (so that it knows which index runs through which
dimension), inlined, optimized, flattened and handed to the reverse sweep:

    tensor/reverse.py            blocks, branches, loops, the tape
    tensor/derivative_region.py  comprehensions
    tensor/derivative_rules.py   scalar ops, one row each

Callees are done before their callers, so a `grad` inside of what is differentiated is a call already, and inlined.
Calls with the same callee, arguments to differentiate by and equalities of extents share a function.
"""

from __future__ import annotations

from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.opt import passes
from tlc.opt.sink import sink
from tlc.ssa.builder import Builder
from tlc.ssa.calls import callee_of, callees, components, reached
from tlc.ssa.clone import clone_function
from tlc.ssa.ir import Function, Instr, Module, Value, drop, erase, walk
from tlc.ssa.orders import accumulate_wide
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.flatten import flatten_function
from tlc.tensor.reverse import reverse

# What makes a callee clean; no if-conversion, which may speculate what has an infinite derivative.
TIDY = ("fold", "dims", "fold", "cse", "dce", "simplify-cfg")
SIMPLIFY = ("inline", "simplify-cfg", *TIDY, "checks", "dce", "simplify-cfg")

Equalities = tuple[tuple[object, ...], ...]  # for each argument the classes of its extents (of its value, for an `i64`)


def differentiates(module: Module) -> bool:
    """Whether there is a `grad` to expand."""
    return any(i.op == "grad" for f in module.functions.values() for i in walk(f.body))


def differentiate(module: Module) -> None:
    """Expand every `grad` of a module, in place."""
    _Derivatives(module).run()
    accumulate_wide(module)


class _Derivatives:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.made: dict[tuple[object, ...], str] = {}

    def run(self) -> None:
        for component in components(self.module):
            for name in component:
                function = self.module.functions[name]
                found = [i for i in walk(function.body) if i.op == "grad"]
                if not found:
                    continue
                extents = Extents(function)
                for instr in found:
                    if callee_of(instr) in component:
                        raise CompileError([Diagnostic("E0961", f"`{name}` differentiates itself: not supported yet", instr.span)])
                    self._expand(instr, extents)
        for function in self.module.functions.values():
            _drop_stop_grads(function)

    def _expand(self, instr: Instr, extents: Extents) -> None:
        equalities = _equalities(instr.operands, extents)
        key = (callee_of(instr), instr.attrs["wrt"], instr.attrs["value"], equalities)
        if key not in self.made:
            self.made[key] = self._make(instr, equalities)
        types = tuple(r.type for r in instr.results)
        names = tuple(r.name for r in instr.results)
        call = Instr("call", instr.operands, types, {"callee": self.made[key]}, (), instr.span, names)
        block = instr.block
        assert block is not None
        call.block = block
        block.instrs[block.instrs.index(instr)] = call
        for old, new in zip(instr.results, call.results, strict=True):
            old.replace_by(new)
        drop(instr)

    def _make(self, instr: Instr, equalities: Equalities) -> str:
        wrt, value = instr.attrs["wrt"], instr.attrs["value"]
        assert isinstance(wrt, tuple) and isinstance(value, bool)
        name = self._name(f"{callee_of(instr)}.{'value_and_grad' if value else 'grad'}[{','.join(map(str, wrt))}]")
        function = clone_function(self.module.functions[callee_of(instr)], name)
        known = _state(function, equalities)
        scratch = Module({name: function})
        for other in reached(self.module, callees(function)):
            scratch.functions[other] = clone_function(self.module.functions[other], other)
        passes.run(scratch, SIMPLIFY)
        sink(scratch)  # what a side alone reads has no adjoint on the other
        flatten_function(function, scratch, known)
        passes.run(scratch, TIDY)
        reverse(function, tuple(k for k in wrt if isinstance(k, int)), value, scratch, known)
        passes.run(scratch, TIDY)
        self.module.add(function)
        return name

    def _name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.module.functions:
            count += 1
            name = f"{wanted}~{count}"
        return name


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

"""`--trap-nan`: checks that stop the program where it first makes a NaN, or makes an infinity of finite numbers.

    y = log x            y = log x;  check (y is no worse than x) "`log` of {0} gives {1}", x, y

A number is finite, infinite or NaN, and no operation may give what is worse than all of its operands. So what the program writes down
itself, and what it reads, may be infinite or NaN: a mask of `-inf` and what is computed with it. But `-inf - -inf`, the NaN of a row
that is masked as a whole, is made there. A sum is looked at as a whole: it is no worse than its elements. What a derivative computes for
a side of a `select` alone is looked at where that is chosen (a rule divides by zero and drops the result); the program's own choices by
`where` compute both sides, and both count.

Values keep their bits: a comprehension is left as it is. Before it stands a reduction that computes the same and says whether all is well;
if not, a recipe (`ssa/recipe.py`) looks at the elements in order and stops with what is to be said of the first that fails:

    y = tabulate n {                ok = reduce all n { (i): a = exp (index x, i); .. yield (a and the quotient are no worse) }
      (i): a = exp (index x, i)     trap ok, x, s, n {recipe = "tabulate n { (i): a = exp (index x, i)
           yield div a, s }                                    check (a is no worse) "`exp` of {0} gives {1} at [{2}]", .. }"}
                                    y = tabulate n { .. }

So a comprehension costs one kernel, however much is checked in it. A recipe may find nothing: that a sum is not finite is reason enough to
look, and its elements may be infinite themselves. Where whole arrays are computed for each element (a lifted call), the same is done inside
and flattened like all that stands there. A region that calls a function has checks beside it: recipes know no functions.

The same is done twice: to what the program says, before anything is folded, and to what derivatives add to it, whose spans say so.

Requires SSA, where regions call only what stays a call. The program computes everything twice or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.calls import NAMED, callee_of, reached
from tlc.ssa.clone import clone_region
from tlc.ssa.construct import construct_region
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import BOOL, I64, Block, Function, Instr, Module, Region, Type, Value, drop_block, walk
from tlc.ssa.recipe import closed
from tlc.ssa.reductions import product

# Ops that never give a real that is worse than their operands.
HARMLESS = frozenset({
    *("neg", "abs", "sign", "max", "min", "select", "floor", "ceil", "trunc", "round", "tanh", "erf", "bitcast"),
})  # fmt: skip
assert set(SCALAR_OPS) >= HARMLESS, f"no ops: {sorted(HARMLESS - set(SCALAR_OPS))}"

Which = Callable[[Instr], bool]


def trap_program(module: Module) -> None:
    """Check what the program computes."""
    _trap(module, lambda i: not i.span.derivative)


def trap_derivatives(module: Module) -> None:
    """Check what derivatives compute beside what they differentiate."""
    _trap(module, lambda i: i.span.derivative)


def _trap(module: Module, which: Which) -> None:
    applied = [callee_of(i) for f in module.functions.values() for i in _inner(f) if i.op == "call"]
    elements = reached(module, applied)  # functions that comprehensions call: kernels, which cannot run recipes
    for function in module.functions.values():
        traps = _Traps(which)
        if function.name in elements:
            traps.check(function.body, ())
        else:
            traps.guard(function.body, ())


def _inner(function: Function) -> Iterator[Instr]:
    """What stands in the regions of comprehensions."""
    return (i for b in function.blocks for outer in b.instrs for r in outer.regions for i in walk(r))


class _Traps:
    """Adds checks to the blocks of a function, or of a copied region. `indices` are always those of the comprehensions around."""

    def __init__(self, which: Which) -> None:
        self.which = which
        self.unrounded: set[Instr] = set()  # products that a sum adds without rounding them
        self.variables = 0  # names the variables of regions

    def guard(self, region: Region, indices: Sequence[Value]) -> None:
        """Have scalars checked, and comprehensions looked at by recipes."""
        for block in region.blocks:
            for instr in list(block.instrs):
                if not instr.regions:
                    self._scalar(instr, indices)
                    continue
                if self._has_checks(instr.regions[0]):
                    self._comprehension(instr, indices)
                if self._is_total(instr):
                    self._guard_total(instr, indices)

    def check(self, region: Region, indices: Sequence[Value]) -> None:
        """Check everything where it stands, each element of a comprehension in a copy of it."""
        for block in region.blocks:
            for instr in list(block.instrs):
                if not instr.regions:
                    self._scalar(instr, indices)
                    continue
                if self._has_checks(instr.regions[0]):
                    insert_before(instr, self._shadow(instr, indices))
                if self._is_total(instr):
                    self._total(Builder.behind(instr), instr, indices)

    def _comprehension(self, instr: Instr, indices: Sequence[Value]) -> None:
        region = instr.regions[0]
        inside = list(walk(region))
        if any(i.op in NAMED for i in inside):
            insert_before(instr, self._shadow(instr, indices))
        elif instr.op == "tabulate" and any(r.type.rank for i in inside for r in i.results):
            self.guard(region, (*indices, *region.entry.params))
        else:
            b = Builder.before(instr)
            ok = self._well(instr, b)
            if ok is not None:
                self._recipe(b, ok, lambda cold: cold.append(self._shadow(instr, indices)))

    def _guard_total(self, instr: Instr, indices: Sequence[Value]) -> None:
        b = Builder.behind(instr)
        self._recipe(b, _finite(b, instr.result), lambda cold: self._total(Builder(cold, None, instr.span), instr, indices))

    def _recipe(self, b: Builder, ok: Value, look: Callable[[Block], object]) -> None:
        """Unless `ok`, do what `look` puts into a block."""
        cold = Block("recipe")
        look(cold)
        recipe, captured = closed(cold)
        b.emit("trap", (ok, *captured), (), {"recipe": recipe})

    # ------------------------------------------------------------ what is checked

    def _is_dangerous(self, instr: Instr) -> bool:
        if instr.op not in SCALAR_OPS or instr.op in HARMLESS or not instr.result.type.elem.is_real or not self.which(instr):
            return False
        return instr.op != "convert" or instr.operands[0].type.elem.is_real

    def _is_total(self, instr: Instr) -> bool:
        return instr.op == "reduce" and instr.attrs["op"] in ("sum", "prod") and instr.result.type.elem.is_real and self.which(instr)

    def _has_checks(self, region: Region) -> bool:
        return any(self._is_dangerous(i) or self._is_total(i) for i in walk(region))

    def _copy(self, instr: Instr) -> Region:
        values: dict[Value, Value] = {}
        copy = clone_region(instr.regions[0], values)
        self.unrounded.update(i for i in (values[p.result].owner for p in _products(instr)) if isinstance(i, Instr))
        return copy

    def _shadow(self, instr: Instr, indices: Sequence[Value]) -> Instr:
        """A comprehension that makes the checks of another."""
        copy = self._copy(instr)
        self.check(copy, (*indices, *copy.entry.params))
        _yield_instead(copy, lambda b: b.const(True, BOOL))
        extents = _extents(instr)
        return Instr("tabulate", extents, (Type(BOOL.elem, len(extents)),), {}, (copy,), instr.span)

    def _well(self, instr: Instr, b: Builder) -> Value | None:
        """At `b`, whether all that is checked in a comprehension holds, or more; None if nothing is."""
        copy = self._copy(instr)
        straight = len(copy.blocks) == 1
        self.variables += 1
        variable = f"well~{self.variables}"
        found: list[Value] = []

        def note(b: Builder, holds: Value) -> None:
            if not straight:
                b.set(variable, b.op("and", b.get(variable, BOOL), holds))
            found.append(holds)

        for block in copy.blocks:
            for inner in list(block.instrs):
                if not inner.regions:
                    if self._is_checked(inner):
                        note(*self._holds(inner))
                    continue
                before = Builder.before(inner)
                if self._has_checks(inner.regions[0]) and (well := self._well(inner, before)) is not None:
                    note(before, well)
                if self._is_total(inner):
                    behind = Builder.behind(inner)
                    note(behind, _finite(behind, inner.result))
        if not found:
            for block in copy.blocks:
                drop_block(block)
            return None
        if straight:
            _yield_instead(copy, lambda b: b.every(found))
        else:
            start = Builder(copy.entry, None, b.span)
            start.position = 0
            start.set(variable, start.const(True, BOOL))
            _yield_instead(copy, lambda b: b.get(variable, BOOL))
            construct_region(copy)
        return b.emit("reduce", _extents(instr), [BOOL], {"op": "all", "order": "lanes"}, [copy], ["well"]).result

    # ------------------------------------------------------------ checks

    def _is_checked(self, instr: Instr) -> bool:
        return self._is_dangerous(instr) and instr not in self.unrounded

    def _holds(self, instr: Instr) -> tuple[Builder, Value]:
        """Whether a scalar is no worse than what it is made of, and where that is known."""
        last, needed = _chosen(instr) if instr.span.derivative else (instr, [])
        b = Builder.behind(last)
        b.span = instr.span
        holds = _no_worse(b, instr.result, [v for v in instr.operands if v.type.elem.is_real])
        for cond, side in needed:
            holds = b.op("or", holds, b.op("not", cond) if side else cond)
        return b, holds

    def _scalar(self, instr: Instr, indices: Sequence[Value]) -> None:
        if self._is_checked(instr):
            b, holds = self._holds(instr)
            said = [f"{{{k}}}" for k in range(len(instr.operands))]
            what = f"`{_said(instr)}` of {', '.join(said[:-1])}{' and ' * (len(said) > 1)}{said[-1]} gives {{{len(said)}}}"
            _check(b, holds, what, (*instr.operands, instr.result), indices)

    def _total(self, b: Builder, instr: Instr, indices: Sequence[Value]) -> None:
        """At `b`: a sum or product is no worse than the worst of its elements. They are looked at only where it is not finite."""
        values: dict[Value, Value] = {}
        region = clone_region(instr.regions[0], values)
        factors = {values[p.result]: tuple(values.get(v, v) for v in p.operands) for p in _products(instr)}
        for block in region.blocks:
            if block.terminator.op == "yield":
                (element,) = block.terminator.operands
                inner = Builder(block, None, instr.span)
                inner.yield_(_badness(inner, factors.get(element, (element,))))
        finite = _finite(b, instr.result)
        extents = [b.op("select", finite, b.i64(0), n) for n in instr.operands]
        worst = b.emit("reduce", extents, [I64], {"op": "max", "order": instr.attrs["order"]}, [region]).result
        of_finite = b.op("or", finite, b.op("gt", worst, b.i64(0)))
        of_infinite = b.op("or", b.op("eq", instr.result, instr.result), b.op("ne", worst, b.i64(1)))
        op = f"`{instr.attrs['op']}`"
        _check(b, of_finite, f"{op} of finite numbers gives {{0}}", (instr.result,), indices)
        _check(b, of_infinite, f"{op} of infinities gives {{0}}", (instr.result,), indices)


def _check(b: Builder, holds: Value, what: str, values: tuple[Value, ...], indices: Sequence[Value]) -> None:
    """Stop unless it holds, and say what, with a place for each of the values, at these indices of comprehensions."""
    where = ", ".join(f"{{{len(values) + k}}}" for k in range(len(indices)))
    of = "in the derivative of this, " if b.span.derivative else ""
    b.check(holds, "finite", f"{of}{what}{f' at [{where}]' if where else ''}", *values, *indices)


def _yield_instead(region: Region, what: Callable[[Builder], Value]) -> None:
    """Let a region yield something else."""
    for block in region.blocks:
        if block.terminator.op == "yield":
            b = Builder(block, None, block.terminator.span)
            b.yield_(what(b))


def _extents(instr: Instr) -> tuple[Value, ...]:
    """Those of a comprehension."""
    return instr.operands[len(instr.operands) - len(instr.regions[0].entry.params) :]


def _said(instr: Instr) -> str:
    """An op as the source writes it."""
    return str(instr.result.type) if instr.op == "convert" else SCALAR_OPS[instr.op].symbol or instr.op


def _products(instr: Instr) -> list[Instr]:
    """The products that a sum adds without rounding them."""
    ends = [b.terminator.operands[0] for b in instr.regions[0].blocks if b.terminator.op == "yield"] if instr.op == "reduce" else []
    return [p for p in (product(instr, v) for v in ends) if p is not None]


def _chosen(instr: Instr) -> tuple[Instr, list[tuple[Value, bool]]]:
    """The last of the selects in the same block which alone, through other ops, read a value, and what each must choose for it."""
    last, needed = instr, list[tuple[Value, bool]]()
    at = instr
    while len(at.results) == 1 and len(at.result.uses) == 1:
        (user,) = at.result.uses
        if not isinstance(user, Instr) or user.op not in SCALAR_OPS or user.block is not instr.block:
            break
        if user.op == "select":
            if user.operands.count(at.result) > 1 or user.operands[0] is at.result:
                break
            needed.append((user.operands[0], user.operands[1] is at.result))
            last = user
        at = user
    return last, needed


def _finite(b: Builder, v: Value) -> Value:
    return b.op("lt", b.op("abs", v), b.const(math.inf, v.type))


def _no_worse(b: Builder, result: Value, operands: Sequence[Value]) -> Value:
    """Whether a result is finite; or infinite, as an operand is or worse; or NaN as an operand."""
    holds = _finite(b, result)
    if not operands:
        return holds
    worst = b.op("abs", operands[0])
    for v in operands[1:]:
        worst = b.op("max", worst, b.op("abs", v))  # NaN wins
    infinite = b.op("eq", b.op("abs", result), b.const(math.inf, result.type))
    of_infinite = b.op("eq", worst, b.const(math.inf, worst.type))
    return b.op("or", b.op("or", holds, b.op("ne", worst, worst)), b.op("and", infinite, of_infinite))


def _badness(b: Builder, values: Sequence[Value]) -> Value:
    """0 of finite numbers, 1 if one is infinite, 2 if one is NaN."""
    number = b.every(b.op("eq", v, v) for v in values)
    finite = b.every(_finite(b, v) for v in values)
    return b.op("select", finite, b.i64(0), b.op("select", number, b.i64(1), b.i64(2)))

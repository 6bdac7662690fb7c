"""`--trap-nan`: checks that stop the program where it first makes an infinity or NaN of finite numbers.

    y = log x            y = log x;  check (finite y or not finite x) "`log` of {0} gives {1}", x, y

What the program writes down itself, and what it reads, may be infinite: a mask of `-inf`, and what is computed with it. A sum is looked at
as a whole: its elements were finite. What a derivative computes for a side of a `select` alone is looked at where that is chosen (a rule
divides by zero and drops the result); the program's own choices by `where` compute both sides, and both count.

Values keep their bits: a comprehension is left as it is, and one beside it computes the same for nothing but its checks.

    y = tabulate n { (i): .. exp (index x, i) .. }        tabulate n { (i): .. e = exp a; check .. at [i]; yield true }
                                                          y = tabulate n { (i): .. }      as it was

The same is done twice: to what the program says, before anything is folded, and to what derivatives add to it, whose spans say so.

Requires SSA, where regions call only what stays a call. The program computes everything twice or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tlc.frontend.ops import SCALAR_OPS
from tlc.ssa.builder import Builder
from tlc.ssa.clone import clone_region
from tlc.ssa.edit import insert_before
from tlc.ssa.ir import BOOL, Instr, Module, Region, Terminator, Type, Value, walk
from tlc.ssa.reductions import product

# Ops that give a finite real for finite operands; any other may not.
FINITE = frozenset({
    *("neg", "abs", "sign", "max", "min", "select", "floor", "ceil", "trunc", "round", "floordiv"),
    *("sin", "cos", "tanh", "erf", "bitcast"),
})  # fmt: skip
assert set(SCALAR_OPS) >= FINITE, f"no ops: {sorted(FINITE - set(SCALAR_OPS))}"

Which = Callable[[Instr], bool]


def trap_program(module: Module) -> None:
    """Check what the program computes."""
    _trap(module, lambda i: not i.span.derivative)


def trap_derivatives(module: Module) -> None:
    """Check what derivatives compute beside what they differentiate."""
    _trap(module, lambda i: i.span.derivative)


def _trap(module: Module, which: Which) -> None:
    for function in module.functions.values():
        _Traps(which).blocks(function.body, ())


class _Traps:
    """Adds checks to the blocks of a function, or of a copied region."""

    def __init__(self, which: Which) -> None:
        self.which = which
        self.unrounded: set[Instr] = set()  # products that a sum adds without rounding them

    def blocks(self, region: Region, indices: tuple[Value, ...]) -> None:
        """Check everything in a region's own blocks. `indices` are those of the comprehensions around."""
        for block in region.blocks:
            for instr in list(block.instrs):
                if instr.regions:
                    self._shadow(instr, indices)
                    self._total(instr, indices)
                elif self._is_dangerous(instr) and instr not in self.unrounded:
                    self._scalar(instr, indices)

    def _is_dangerous(self, instr: Instr) -> bool:
        if instr.op not in SCALAR_OPS or instr.op in FINITE or not instr.result.type.elem.is_real or not self.which(instr):
            return False
        return instr.op != "convert" or instr.operands[0].type.elem.is_real

    def _has_checks(self, region: Region) -> bool:
        return any(self._is_dangerous(i) or (self.which(i) and _is_sum(i)) for i in walk(region))

    def _shadow(self, instr: Instr, indices: tuple[Value, ...]) -> None:
        """Beside a comprehension, one that makes its checks."""
        region = instr.regions[0]
        if not self._has_checks(region):
            return
        values: dict[Value, Value] = {}
        copy = clone_region(region, values)
        self.unrounded.update(i for i in (values[p.result].owner for p in _products(instr)) if isinstance(i, Instr))
        self.blocks(copy, (*indices, *copy.entry.params))
        for block in copy.blocks:
            if block.terminator.op == "yield":
                span = block.terminator.span
                true = block.append(Instr("const", (), (BOOL,), {"value": True}, (), span))
                block.terminator = Terminator("yield", true.results, (), span)
        extents = instr.operands[len(instr.operands) - len(region.entry.params) :]
        insert_before(instr, Instr("tabulate", extents, (Type(BOOL.elem, len(extents)),), {}, (copy,), instr.span))

    # ------------------------------------------------------------ what is checked

    def _scalar(self, instr: Instr, indices: tuple[Value, ...]) -> None:
        last, needed = _chosen(instr) if instr.span.derivative else (instr, [])
        b = Builder.behind(last)
        b.span = instr.span
        operands = [v for v in instr.operands if v.type.elem.is_real]
        holds = _finite(b, instr.result)
        for v in operands:
            holds = b.op("or", holds, b.op("not", _finite(b, v)))
        for cond, side in needed:
            holds = b.op("or", holds, b.op("not", cond) if side else cond)
        said = [f"{{{k}}}" for k in range(len(instr.operands))]
        what = f"`{_said(instr)}` of {', '.join(said[:-1])}{' and ' * (len(said) > 1)}{said[-1]} gives {{{len(said)}}}"
        self._check(b, holds, what, [*instr.operands, instr.result], indices)

    def _total(self, instr: Instr, indices: tuple[Value, ...]) -> None:
        """A sum or product of finite elements is finite."""
        if not _is_sum(instr) or not self.which(instr):
            return
        values: dict[Value, Value] = {}
        region = clone_region(instr.regions[0], values)
        factors = {values[p.result]: tuple(values.get(v, v) for v in p.operands) for p in _products(instr)}
        for block in region.blocks:
            if block.terminator.op == "yield":
                (element,) = block.terminator.operands
                b = Builder(block, None, instr.span)
                b.yield_(b.every([_finite(b, v) for v in factors.get(element, (element,))]))
        b = Builder.behind(instr)
        every = b.emit("reduce", instr.operands, [BOOL], {"op": "all", "order": instr.attrs["order"]}, [region]).result
        holds = b.op("or", _finite(b, instr.result), b.op("not", every))
        self._check(b, holds, f"`{instr.attrs['op']}` of finite numbers gives {{0}}", [instr.result], indices)

    def _check(self, b: Builder, holds: Value, what: str, values: list[Value], indices: tuple[Value, ...]) -> None:
        """`what` has a place for each of the values."""
        where = ", ".join(f"{{{len(values) + k}}}" for k in range(len(indices)))
        of = "in the derivative of this, " if b.span.derivative else ""
        message = f"{of}{what}{f' at [{where}]' if where else ''}"
        b.check(holds, "finite", message, *values, *indices)


def _said(instr: Instr) -> str:
    """An op as the source writes it."""
    return str(instr.result.type) if instr.op == "convert" else SCALAR_OPS[instr.op].symbol or instr.op


def _is_sum(instr: Instr) -> bool:
    return instr.op == "reduce" and instr.attrs["op"] in ("sum", "prod") and instr.result.type.elem.is_real


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

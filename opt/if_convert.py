"""If-conversion: a branch around a few cheap scalar ops becomes `select`, so that regions are straight-line code.

Requires SSA. Every op that is not a `check` is total, so both sides may be computed. A side is converted if it holds only
ops of the table and few of them, and if what differs behind the branch are scalars.

    block:  branch %c, then, else                block:  %a = add %x, %y
    then:   %a = add %x, %y;  jump join(%a)  ->          %s = select %c, %a, %x
    else:   jump join(%x)                                jump join(%s)

Derivatives (LANGUAGE: `where` differentiates both sides, `if` one). The side not taken gets a zero adjoint; where an op multiplies it by a
derivative that may be infinite, 0 * inf would make a NaN of it. So while the module still has a `grad` to expand, only
ops whose derivative is finite everywhere are converted, and others that one side alone reads go there first (`opt/sink.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from tlc.opt.regions import all_regions
from tlc.opt.sink import sink
from tlc.ssa.calls import DERIVED
from tlc.ssa.edit import edges_into, remove_unreachable
from tlc.ssa.ir import Block, Instr, Module, Region, Value, const_of, jump, walk

LIMIT = 6  # ops on a side

# Integer and bool ops, comparisons, and what has derivatives of 0, 1 and -1 only.
LINEAR = frozenset({
    "const", "dim", "add", "sub", "neg", "max", "min", "select", "convert", "floor", "ceil", "trunc", "round", "sign", "isnan",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "shl", "shr", "bitcast", "key_make", "key_hi", "key_lo",
})  # fmt: skip
CHEAP = LINEAR | {"mul", "abs", "fma"}


def if_convert(module: Module) -> None:
    """Convert what is cheap in every region."""
    differentiates = any(i.op in DERIVED for f in module.functions.values() for i in walk(f.body))
    allowed = LINEAR if differentiates else CHEAP
    if differentiates:
        sink(module)
    for region in all_regions(module):
        while convert_region(region, lambda side: len(side.instrs) <= LIMIT and all(is_cheap(i, allowed) for i in side.instrs)):
            pass


def convert_region(
    region: Region, may_move: Callable[[Block], bool], before: Callable[[Block, Value, bool], None] = lambda side, cond, truth: None
) -> bool:
    """Convert one branch of a region, if there is one to convert. `may_move`: whether the instructions of a side may run whatever the
    condition is, once `before` has prepared them, which is told the condition and for which truth of it they stood.
    """
    into = edges_into(region)
    for block in region.blocks:
        t = block.terminator
        if t.op != "branch":
            continue
        sides = [_side(target, args, into, may_move) for target, args in t.edges]
        for join in (t.targets[0], t.targets[1], *(s.join for s in sides if s)):
            then, other = (_Side(join, args) if target is join else s for (target, args), s in zip(t.edges, sides, strict=True))
            if then and other and then.join is join and other.join is join and _scalars_differ(then.args, other.args):
                for side, truth in ((then, True), (other, False)):
                    if side.block is not None:
                        before(side.block, t.own[0], truth)
                        side.args = side.block.terminator.args(0)
                _convert(block, then, other)
                remove_unreachable(region)
                return True
    return False


class _Side:
    """One side of a branch: the block it runs through, if any, and what it passes to the join."""

    def __init__(self, join: Block, args: tuple[Value, ...], block: Block | None = None) -> None:
        self.join, self.args, self.block = join, args, block


def _side(
    target: Block, args: tuple[Value, ...], into: dict[Block, list[tuple[Block, int]]], may_move: Callable[[Block], bool]
) -> _Side | None:
    t = target.terminator
    if len(into[target]) != 1 or t.op != "jump" or args or not may_move(target):
        return None
    return _Side(t.targets[0], t.args(0), target)


def is_cheap(instr: Instr, allowed: frozenset[str]) -> bool:
    """Whether an op may be computed in vain."""
    real = any(v.type.elem.is_real for v in (*instr.results, *instr.operands))
    return instr.op in allowed or ((instr.op in CHEAP or _is_shift(instr)) and not real) or _is_scaling(instr)


def _is_scaling(instr: Instr) -> bool:
    """A real times or divided by a constant: the derivative is a finite number."""
    if instr.op not in ("mul", "div") or not instr.result.type.elem.is_real:
        return False
    known = [const_of(v) for v in (instr.operands if instr.op == "mul" else instr.operands[1:])]
    return any(isinstance(c, float) and 1e-30 < abs(c) < 1e30 for c in known)


def _is_shift(instr: Instr) -> bool:
    """A division by a power of two is a shift, its remainder a mask."""
    divisor = const_of(instr.operands[1]) if instr.op in ("floordiv", "mod") else None
    return isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0


def _scalars_differ(then: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return all(a is b or a.type.rank == 0 for a, b in zip(then, other, strict=True))


def _convert(block: Block, then: _Side, other: _Side) -> None:
    t = block.terminator
    (cond,) = t.own
    for side in (then, other):
        if side.block is not None:
            for i in side.block.instrs:
                block.append(i)
            side.block.instrs = []
    args = []
    for a, b in zip(then.args, other.args, strict=True):
        args.append(a if a is b else block.append(Instr("select", (cond, a, b), (a.type,), {}, (), t.span)).result)
    block.terminator = jump(then.join, tuple(args), t.span)

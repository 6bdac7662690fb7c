"""Rewrites of reductions of reals: how their sums accumulate.

`accumulate_wide`: a sum or product of `f16` or `bf16` accumulates in f32 and is rounded at its end; a product that feeds a sum is not
rounded. Lowering writes them so; derivatives make new reductions, so this is done again behind them.

    s = reduce n {op = "sum", order = "chain"} {(i): .. yield (mul a, b)} : f16
    t = reduce n {op = "sum", order = "chain"} {(i): .. yield (mul (convert a), (convert b))} : f32;  s = convert t : f16

`factor`: what does not depend on the indices of a sum of products leaves it, so that the sum is a chain of fused multiply-adds.

    s = reduce n {op = "sum", order = "lanes"} {(k): .. yield (div (mul a, b), c)}
    t = reduce n {op = "sum", order = "chain"} {(k): .. yield (mul a, b)};  s = div t, c

A product that is 0 under a condition becomes one of factors that are.

    yield (select c, (mul a, b), 0)       ->      yield (mul (select c, a, 0), (select c, b, 0))

`make_strict`: every reduction in the order `strict`, for `--strict-fp`.
"""

from __future__ import annotations

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Block, Instr, Module, Type, Value, erase, walk
from tlc.ssa.reductions import product

F32 = Type(Elem.F32)
_FREE = ("const", "dim", "convert", "sqrt", "neg", "mul", "add", "sub", "div")  # what stands in a factor, and cannot stop


def accumulate_wide(module: Module) -> None:
    """Widen every sum and product of narrow reals, in place. Preserves everything else."""
    for function in module.functions.values():
        for instr in list(walk(function.body)):
            if instr.op == "reduce" and instr.attrs["op"] in ("sum", "prod") and instr.result.type.elem in NARROW:
                _widen(instr, module)


def make_strict(module: Module) -> None:
    """Give every reduction the order `strict`, in place."""
    for function in module.functions.values():
        for instr in walk(function.body):
            if instr.op == "reduce":
                instr.attrs["order"] = "strict"


def factor(module: Module) -> None:
    """Take divisors and factors that do not depend on the indices out of sums of products of f32 and f64, in place."""
    for function in module.functions.values():
        for instr in list(walk(function.body)):
            bare: Instr | None = instr
            while bare is not None and bare.op == "reduce" and bare.attrs["op"] == "sum" and bare.attrs["order"] != "strict":
                bare = _factored(bare, module)


def _factored(instr: Instr, module: Module) -> Instr | None:
    """The sum without its last factor or divisor, if it has one."""
    (region,) = instr.regions
    if len(region.blocks) != 1 or instr.result.type.elem not in (Elem.F32, Elem.F64):
        return None
    (block,) = region.blocks
    if block.terminator.op != "yield":  # every element stops
        return None
    (old,) = block.terminator.operands
    outer = _own(old, block)
    if outer is not None and outer.op == "select":
        _chosen(instr, outer, block, module)
    if outer is None or outer.op not in ("mul", "div"):
        return None
    first, second = outer.operands
    sides = [(first, second)] if outer.op == "div" else [(first, second), (second, first)]
    for inner, other in sides:
        product_of = _own(inner, block)
        if product_of is None or product_of.op not in ("mul", "div") or not _invariant(other, block):
            continue
        if product_of.op == "div" and not _invariant(product_of.operands[1], block):
            continue
        b = Builder.before(instr, module)
        b.span = instr.span
        outside = _copied(other, block, b)
        block.terminator.replace(old, inner)
        attrs = {**instr.attrs, "order": "chain" if product_of.op == "mul" else "lanes"}
        bare = b.insert(Instr("reduce", instr.operands, (instr.result.type,), attrs, (region,), instr.span))
        instr.regions = ()
        instr.result.replace_by(b.op(outer.op, bare.result, outside))
        erase(instr)
        return bare
    return None


def _chosen(instr: Instr, choice: Instr, block: Block, module: Module) -> None:
    """A sum of products that are 0 under a condition is a sum of products of factors that are."""
    cond, value, other = choice.operands
    made, nothing = _own(value, block), other.owner
    if made is None or made.op != "mul" or not isinstance(nothing, Instr) or nothing.op != "const" or nothing.attrs["value"] != 0:
        return
    b = Builder(block, module, choice.span)
    factors = [b.op("select", cond, x, other) for x in made.operands]
    block.terminator.replace(choice.result, b.op("mul", *factors))
    instr.attrs["order"] = "chain"


def _own(v: Value, block: Block) -> Instr | None:
    """The instruction of a block that makes a value."""
    return v.owner if isinstance(v.owner, Instr) and v.owner.block is block else None


def _invariant(v: Value, block: Block) -> bool:
    """Whether a value is the same for all indices of a block, and can be computed outside of it."""
    if v.owner is block:
        return False
    made = _own(v, block)
    return made is None or (made.op in _FREE and all(_invariant(x, block) for x in made.operands))


def _copied(v: Value, block: Block, b: Builder) -> Value:
    """An invariant value, computed again where a builder stands."""
    made = _own(v, block)
    if made is None:
        return v
    operands = tuple(_copied(x, block, b) for x in made.operands)
    return b.insert(Instr(made.op, operands, tuple(r.type for r in made.results), dict(made.attrs), (), made.span)).result


def _widen(instr: Instr, module: Module) -> None:
    (region,) = instr.regions
    for block in region.blocks:
        if block.terminator.op == "yield":
            (old,) = block.terminator.operands
            fused = product(instr, old)
            b = Builder(block, module, instr.span)
            new = b.op("mul", *(b.convert(v, F32) for v in fused.operands)) if fused else b.convert(old, F32)
            block.terminator.replace(old, new)
            if fused and not fused.result.uses:
                erase(fused)
    b = Builder.before(instr, module)
    b.span = instr.span
    wide = b.insert(Instr("reduce", instr.operands, (F32,), dict(instr.attrs), (region,), instr.span))
    instr.regions = ()
    instr.result.replace_by(b.convert(wide.result, instr.result.type))
    erase(instr)

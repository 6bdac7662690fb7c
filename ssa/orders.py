"""Rewrites of reductions of reals: how their sums accumulate.

`accumulate_wide`: a sum or product of `f16` or `bf16` accumulates in f32 and is rounded at its end; a product that feeds a sum is not
rounded. Lowering writes them so; derivatives make new reductions, so this is done again behind them.

    s = reduce n {op = "sum", order = "chain"} {(i): .. yield (mul a, b)} : f16
    t = reduce n {op = "sum", order = "chain"} {(i): .. yield (mul (convert a), (convert b))} : f32;  s = convert t : f16

`make_strict`: every reduction in the order `strict`, for `--strict-fp`.
"""

from __future__ import annotations

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder
from tlc.ssa.ir import Instr, Module, Type, erase, walk
from tlc.ssa.reductions import product

F32 = Type(Elem.F32)


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

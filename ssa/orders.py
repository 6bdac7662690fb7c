"""Rewrites of reductions of reals: how their sums accumulate.

`accumulate_wide`: a sum or product of `f16` or `bf16` accumulates in f32 and is rounded at its end; a product that feeds a sum is not
rounded. Lowering writes them so; derivatives make new reductions, so this is done again behind them.

    s = reduce n {op = "sum", order = "chain"} {(i): .. yield (mul a, b)} : f16
    t = reduce n {op = "sum", order = "chain"} {(i): .. yield (mul (convert a), (convert b))} : f32;  s = convert t : f16

`settle_products`: which sums of products are a chain. Where the factors run over different indices of the comprehensions around the
sum, as in a product of matrices, a schedule reads each of them once for many results, and computes many results at once. Where both run
over the same ones, as in a dot product or in the sums of rows of products, nothing is shared, and the sum itself has to be cut up.

    y = tabulate m {(i): reduce n {op = "sum", order = "chain"} {(k): .. yield (mul (index a, i, k), (index b, k))}}     stays
    y = tabulate m {(i): reduce n {op = "sum", order = "chain"} {(k): .. yield (mul (index a, i, k), (index b, i, k))}}  has order "lanes"

`factor`: what does not depend on the indices of a sum of products leaves it, so that the sum is a chain of fused multiply-adds.

    s = reduce n {op = "sum", order = "lanes"} {(k): .. yield (div (mul a, b), c)}
    t = reduce n {op = "sum", order = "chain"} {(k): .. yield (mul a, b)};  s = select (lt 0, n), (div t, c), 0

A product that is 0 under a condition becomes one of factors that are.

    yield (select c, (mul a, b), 0)       ->      yield (mul (select c, a, 0), (select c, b, 0))

`make_strict`: every reduction in the order `strict`, for `--strict-fp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.types import Elem
from tlc.ssa.builder import Builder
from tlc.ssa.components import reachable
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Type, Value, erase, is_positive, walk
from tlc.ssa.liveness import reads
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
                instr.set("order", "strict")


def settle_products(module: Module) -> None:
    """Give the sums of products of reals that are written as a `chain` the order that they have, in place. For SSA before inlining: the
    order of a sum follows from the function in which it is written, wherever that is called.
    """
    for function in module.functions.values():
        for instr in walk(function.body):
            if instr.op == "reduce" and len(instr.regions[0].blocks) == 1 and instr.regions[0].entry.terminator.op == "yield":
                fused = product(instr, instr.regions[0].entry.terminator.operands[0])
                if fused is not None:
                    instr.set("order", order_of_product(fused))


def order_of_product(factors: Instr) -> str:
    """The order of a sum of products, given the `mul` that it sums, in the one block of its region: `lanes` if both factors depend on the
    same indices around the sum, and an element of a tensor is read for all of them; `chain` if not.
    """
    block = factors.block
    assert block is not None
    first, second = (_outer_indices(v, block) for v in factors.operands)
    if first != second:
        return "chain"
    read = [i.result for i in block.instrs if i.op in ("index", "index_if") and not i.result.type.rank]
    return "lanes" if not first or any(_outer_indices(v, block) == first for v in read) else "chain"


def _outer_indices(value: Value, inside: Block) -> set[Value]:
    """The indices of the comprehensions around a block, the entry of a region, on which a value in it depends. What is computed outside of
    all comprehensions, or in one that is a part of the value, has none.
    """
    found: set[Value] = set()

    def behind(v: Value) -> Iterable[Value]:
        block = v.block
        assert block is not None
        if block.region is None or isinstance(block.region.parent, Function) or v.owner is inside:
            return ()  # a block without a region is one of a function in the making
        if isinstance(v.owner, Instr):
            return reads(v.owner)
        if block is block.region.entry:
            found.add(v)
            return ()
        return _arriving(block, block.region)

    reachable([value], behind)
    return found


def _arriving(block: Block, region: Region) -> list[Value]:
    """What may decide the parameters of a block: what is passed to it, and the conditions of the region's branches."""
    ends = [b.terminator for b in region.blocks if b.terminated]
    passed = [x for t in ends for target, args in t.edges if target is block for x in args]
    return passed + [t.own[0] for t in ends if t.op == "branch"]


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
        attrs = {**instr.attrs, "order": order_of_product(product_of) if product_of.op == "mul" else "lanes"}
        bare = b.insert(Instr("reduce", instr.operands, (instr.result.type,), attrs, (region,), instr.span))
        instr.regions = ()
        instr.result.replace_by(_or_nothing(b, instr.operands, b.op(outer.op, bare.result, outside)))
        erase(instr)
        return bare
    return None


def _or_nothing(b: Builder, extents: Sequence[Value], total: Value) -> Value:
    """A total, which over nothing is 0: what stands outside of the sum may be negative, infinite or NaN."""
    unsure = [n for n in extents if not is_positive(n)]
    if not unsure:
        return total
    zero = b.i64(0)
    return b.op("select", b.every([b.op("lt", zero, n) for n in unsure]), total, b.const(0.0, total.type))


def _chosen(instr: Instr, choice: Instr, block: Block, module: Module) -> None:
    """A sum of products that are 0 under a condition is a sum of products of factors that are."""
    cond, value, other = choice.operands
    made, nothing = _own(value, block), other.owner
    if made is None or made.op != "mul" or not isinstance(nothing, Instr) or nothing.op != "const" or nothing.attrs["value"] != 0:
        return
    if order_of_product(made) != "chain":
        return
    b = Builder(block, module, choice.span)
    factors = [b.op("select", cond, x, other) for x in made.operands]
    block.terminator.replace(choice.result, b.op("mul", *factors))
    instr.set("order", "chain")


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
            made = _own(old, block)
            factors = made if made is not None and made.op == "mul" and instr.attrs["op"] == "sum" else None
            b = Builder(block, module, instr.span)
            new = b.op("mul", *(b.convert(v, F32) for v in factors.operands)) if factors else b.convert(old, F32)
            block.terminator.replace(old, new)
            if factors and not factors.result.uses:
                erase(factors)
    b = Builder.before(instr, module)
    b.span = instr.span
    wide = b.insert(Instr("reduce", instr.operands, (F32,), dict(instr.attrs), (region,), instr.span))
    instr.regions = ()
    instr.result.replace_by(b.convert(wide.result, instr.result.type))
    erase(instr)

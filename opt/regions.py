"""What several passes ask: all regions of a module, the products that a `chain` sum does not round, what calls may do."""

from __future__ import annotations

from collections.abc import Iterator

from tlc.ssa.calls import NAMED
from tlc.ssa.ir import Instr, Module, Region, Terminator
from tlc.ssa.ops import effect


def regions(region: Region) -> Iterator[Region]:
    """The region and every region inside it, outer ones first. A pass may change a region when it is given it: what is inside is
    looked for afterwards.
    """
    yield region
    for block in region.blocks:
        for instr in block.instrs:
            for inner in instr.regions:
                yield from regions(inner)


def all_regions(module: Module) -> Iterator[Region]:
    """Every region of every function, outer ones first."""
    for f in module.functions.values():
        yield from regions(f.body)


def fused_product(instr: Instr) -> bool:
    """Whether the instruction is the product that a `chain` sum accumulates by `fma`: it is not rounded, so it may
    neither be shared with an equal product nor folded.
    """
    if instr.op != "mul" or not instr.result.type.elem.is_real or instr.block is None:
        return False
    region = instr.block.region
    parent = region.parent if region is not None else None
    if not isinstance(parent, Instr) or parent.op != "reduce" or parent.attrs["op"] != "sum" or parent.attrs["order"] != "chain":
        return False
    return any(
        isinstance(u, Terminator) and u.op == "yield" and u.block is not None and u.block.region is region for u in instr.result.uses
    )


class Effects:
    """What calls may do: the effect of a function is the greatest of its instructions' and its callees'."""

    ORDER = ("none", "check", "io")

    def __init__(self, module: Module) -> None:
        self.of: dict[str, int] = dict.fromkeys(module.functions, 0)
        changed = True
        while changed:
            changed = False
            for f in module.functions.values():
                worst = self.of_region(f.body) if self.of[f.name] < len(self.ORDER) - 1 else self.of[f.name]
                if worst > self.of[f.name]:
                    self.of[f.name] = worst
                    changed = True

    def of_region(self, region: Region) -> int:
        return max((self.of_instr(i) for b in region.blocks for i in b.instrs), default=0)

    def of_instr(self, instr: Instr) -> int:
        if instr.op in NAMED:
            callee = instr.attrs["callee"]
            assert isinstance(callee, str)
            own = self.of.get(callee, self.ORDER.index("io"))  # of a function of another module nothing is known
        else:
            own = self.ORDER.index(effect(instr.op))
        return max([own, *(self.of_region(r) for r in instr.regions)]) if instr.regions else own

    def removable(self, instr: Instr) -> bool:
        """Whether the instruction does nothing but compute its results."""
        return self.of_instr(instr) == 0

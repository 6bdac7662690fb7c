"""Common subexpressions: what was computed on every path to here is not computed again.

Requires SSA; preserves the graph. Value numbering over the dominator tree (Briggs, Cooper and Simpson, "Value numbering", 1997): a walk
down the tree carries a table from keys to values; an instruction whose key is in the table is replaced. A region starts
with the table of its place, so it reuses what the blocks around it computed. Keys:

  an op without effect   op, attributes, result types, operands (of a commutative op in a fixed order)
  tabulate, reduce       also the text of the region, its own values numbered; its constants count by their values
  check                  its condition: what was checked need not be checked again

A constant as an operand counts by its value, and constants are shared inside a region only, so that a region keeps
its own constants and a kernel does not get them as arguments. An `update` is not shared: two owners of one tensor would cost a copy.
The product that a `chain` sum accumulates by `fma` keeps its place (`opt/regions.py`).

    %a = mul %x, %y          %a = mul %x, %y
    %b = mul %y, %x    ->    %c = add %a, %a
    %c = add %a, %b
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS, bits
from tlc.opt.regions import Effects, fused_product
from tlc.ssa.dominance import dominance
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Value, const_of, erase

Key = tuple[object, ...]
Table = dict[Key, tuple[Value, ...]]

_COMMUTATIVE = {name for name, row in SCALAR_OPS.items() if row.commutative}

SHARED = {*SCALAR_OPS, "const", "index", "index_if", "dim", "reshape", "stop_grad", "tabulate", "reduce"}


def cse(module: Module) -> None:
    """Share common subexpressions in every function."""
    effects = Effects(module)
    for f in module.functions.values():
        _Numbering(effects).region(f.body, {})


class _Numbering:
    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.numbers: dict[Value, int] = {}  # equal constants have one number
        self.constants: dict[Key, int] = {}

    def region(self, region: Region, table: Table) -> None:
        children = dominance(region).children()
        added: list[Key] = []  # to the table, by the blocks on the way down to this one
        work: list[Block | int] = [region.entry]
        while work:
            block = work.pop()
            if isinstance(block, int):  # all below a block is done: back to what was known before it
                for old in added[block:]:
                    del table[old]
                del added[block:]
                continue
            work.append(len(added))
            for instr in list(block.instrs):
                for inner in instr.regions:
                    self.region(inner, table)
                if (key := self.shared(instr, region, table)) is not None:
                    added.append(key)
            work += reversed(children[block])

    def shared(self, instr: Instr, region: Region, table: Table) -> Key | None:
        """Replace an instruction that is in the table; gives the key of one that is new there."""
        key = self.key(instr, region)
        if key is None:
            return None
        known = table.get(key)
        if known is None:
            table[key] = instr.results
            return key
        for old, new in zip(instr.results, known, strict=True):
            if instr.op != "const":
                new.name = new.name or old.name
            elif new.name != old.name:
                new.name = ""  # one name for all the uses of a number would mislead
            old.replace_by(new)
        erase(instr)
        return None

    def key(self, instr: Instr, region: Region) -> Key | None:
        """The key of an instruction, None if it is not shared."""
        if instr.op == "check":
            return ("check", self.number(instr.operands[0]))
        if instr.op not in SHARED or fused_product(instr) or (instr.regions and not self.effects.removable(instr)):
            return None
        key = self.text(instr, {})
        return (*key, id(region)) if instr.op == "const" else key

    def text(self, instr: Instr, local: dict[object, int]) -> Key:
        """The meaning of an instruction; `local` numbers the values and blocks of the regions that are being described."""
        if local:
            operands = [self.operand(v, local) for v in instr.operands]
        else:
            numbers = self.numbers
            operands = [numbers.get(v) or self.number(v) for v in instr.operands]
        if len(operands) == 2 and operands[0] > operands[1] and instr.op in _COMMUTATIVE:
            operands.reverse()
        if instr.op == "const":
            known = const_of(instr.result)
            assert known is not None
            attrs: object = bits(known, instr.result.type.elem)
        else:
            attrs = tuple(sorted(instr.attrs.items())) if instr.attrs else ()
        types = tuple([x for r in instr.results for x in (r.type.elem, r.type.rank)])
        regions = tuple([self.region_text(r, local) for r in instr.regions]) if instr.regions else ()
        return (instr.op, types, attrs, *operands, *regions)

    def region_text(self, region: Region, local: dict[object, int]) -> Key:
        for block in region.blocks:
            local[block] = len(local)
            for p in block.params:
                local[p] = len(local)
        blocks: list[object] = []
        for block in region.blocks:
            for instr in block.instrs:
                if instr.op != "const":
                    for r in instr.results:
                        local[r] = len(local)
        for block in region.blocks:
            blocks.append(tuple(p.type for p in block.params))
            blocks += [self.text(i, local) for i in block.instrs if i.op != "const"]
            blocks.append(self.terminator(block.terminator, local))
        return tuple(blocks)

    def terminator(self, t: Terminator, local: dict[object, int]) -> Key:
        return (t.op, tuple(self.operand(v, local) for v in t.operands), t.counts, tuple(local[b] for b in t.targets))

    def operand(self, value: Value, local: dict[object, int]) -> int:
        """The number of a value; those of regions that are being described are negative."""
        return -1 - local[value] if value in local else self.number(value)

    def number(self, value: Value) -> int:
        """The positive number of a value."""
        number = self.numbers.get(value)
        if number is None:
            number = len(self.numbers) + 1
            known = const_of(value)
            if known is not None:
                number = self.constants.setdefault((value.type, bits(known, value.type.elem)), number)
            self.numbers[value] = number
        return number

"""Simplification of the graph of blocks, in functions and regions alike.

Requires SSA; preserves every value's meaning and the order of effects. Until nothing changes:

  branch        on a constant, or with two edges that are one, is a jump; on `not %c` it is one on `%c` with its edges swapped
  unreachable   a block that no path reaches is removed
  parameter     a parameter that every edge gives the same value (or itself) is that value
  merge         a block whose only successor has no other predecessor continues with it
  thread        an empty block that only jumps on is skipped by those that jump to it
                (not the latch of a loop: it keeps the loop's one back edge)

    a:  jump b(%x)                       a:  ...
    b(%p):  ... %p ...; jump c    ->         ... %x ...; jump c
"""

from __future__ import annotations

from tlc.opt.regions import all_regions
from tlc.ssa.dominance import dominance
from tlc.ssa.edit import edges_into, redirect, remove_params, remove_unreachable
from tlc.ssa.ir import Block, Instr, Module, Region, Terminator, Value, const_of, jump


def simplify_cfg(module: Module) -> None:
    """Simplify every region of the module."""
    for region in all_regions(module):
        simplify_region(region)


def simplify_region(region: Region) -> None:
    steps = (settle_branches, remove_unreachable, remove_equal_params, merge_chains, thread_jumps)
    while len(region.blocks) > 1 and any(step(region) for step in steps):
        pass


def settle_branches(region: Region) -> bool:
    """Make jumps of branches that are none, and look through `not`."""
    changed = False
    for block in region.blocks:
        t = block.terminator
        if t.op != "branch":
            continue
        (cond,) = t.own
        then, other = t.edges
        known = const_of(cond)
        if known is not None or then == other:
            block.terminator = jump(*(other if known is False else then), t.span)
            changed = True
        elif isinstance(cond.owner, Instr) and cond.owner.op == "not":
            block.terminator = Terminator("branch", cond.owner.operands, (other, then), t.span)
            changed = True
    return changed


def remove_equal_params(region: Region) -> bool:
    """Replace parameters that have one value on every path."""
    changed = False
    into = edges_into(region)
    for block in region.blocks[1:]:
        for k in reversed(range(len(block.params))):
            param = block.params[k]
            given: dict[Value, None] = {source.terminator.args(edge)[k]: None for source, edge in into[block]}
            given.pop(param, None)
            if len(given) == 1:
                param.replace_by(next(iter(given)))
                remove_params(block, {k}, into[block])
                changed = True
    return changed


def merge_chains(region: Region) -> bool:
    """Join a block with its only successor where that has no other predecessor."""
    changed = False
    into = edges_into(region)
    for block in list(region.blocks):
        while block in into and block.terminator.op == "jump":
            (target,) = block.terminator.targets
            if target is block or target is region.entry or len(into[target]) != 1:
                break
            _merge(block, target)
            region.blocks.remove(target)
            del into[target]
            for k, after in enumerate(block.terminator.targets):
                into[after] = [(block, k) if (b is target and e == k) else (b, e) for b, e in into[after]]
            changed = True
    return changed


def _merge(block: Block, target: Block) -> None:
    for param, value in zip(target.params, block.terminator.args(0), strict=True):
        param.replace_by(value)
    for i in target.instrs:
        block.append(i)
    target.instrs = []
    t = target.terminator
    block.terminator = Terminator(t.op, t.own, t.edges, t.span)
    t.operands = ()


def thread_jumps(region: Region) -> bool:
    """Let jumps to an empty block go where it jumps to."""
    changed = False
    tree = dominance(region)
    for block in region.blocks[1:]:
        t = block.terminator
        if block.instrs or t.op != "jump" or t.targets[0] is block or tree.dominates(t.targets[0], block):
            continue
        if any(user is not t for p in block.params for user in p.uses):
            continue
        (target,) = t.targets
        for source, edge in edges_into(region)[block]:
            values = dict(zip(block.params, source.terminator.args(edge), strict=True))
            redirect(source, edge, target, tuple(values.get(a, a) for a in t.args(0)))
            changed = True
    if changed:
        remove_unreachable(region)
    return changed

"""Inlining: every call of a function that is not recursive is replaced by the function's body.

Requires SSA. Afterwards calls go only to functions that can reach themselves; functions that `main` no longer needs are removed.
Kernels are made of regions, and a region can be flattened and fused only if no call hides its work: so there is no limit by size.

Callees are done before their callers (the strongly connected components of the call graph, Tarjan 1972, come out in that
order), so each body is copied once a call. A callee of one block is spliced in; of a larger one, the block of the call
is split: the first part goes on into the callee's entry, each `return` jumps to the second part, whose parameters are
the results. Spans are those of the callee: a failing `check` points at its own source.

    block:  %r = call %x {callee = "f"}            block:  <entry of f>; branch %c, a, b
            return %r                         ->   a:      jump rest(%u)
                                                   b:      jump rest(%v)
                                                   rest(%r):  return %r
"""

from __future__ import annotations

from collections.abc import Iterator

from tlc.opt.regions import regions
from tlc.ssa.clone import clone_blocks
from tlc.ssa.edit import remove_unreachable
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Terminator, drop_block, erase, jump, walk


def inline(module: Module) -> None:
    """Inline what is not recursive, then remove what is not needed."""
    recursive: set[str] = set()
    for component in components(module):
        if len(component) > 1 or component[0] in callees(module.functions[component[0]], ("call",)):
            recursive.update(component)
        for name in component:
            _inline_into(module.functions[name], module, recursive)
    remove_unused(module)


def callees(function: Function, ops: tuple[str, ...] = ("call", "grad")) -> list[str]:
    """The functions that a function names, in textual order, each once."""
    found: dict[str, None] = {}
    for i in walk(function.body):
        if i.op in ops:
            found[_callee(i)] = None
    return list(found)


def components(module: Module) -> list[list[str]]:
    """The strongly connected components of the call graph, callees first (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in module.functions:
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = []

        def enter(name: str, work: list[tuple[str, Iterator[str]]] = work) -> None:
            index[name] = low[name] = len(index)
            stack.append(name)
            work.append((name, iter(callees(module.functions[name]))))

        enter(root)
        while work:
            name, rest = work[-1]
            for callee in rest:
                if callee not in index:
                    enter(callee)
                    break
                if callee in stack:
                    low[name] = min(low[name], index[callee])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    found.append(stack[at:])
                    del stack[at:]
    return found


def remove_unused(module: Module) -> None:
    """Remove the functions that `main` does not reach (all are kept in a module without `main`)."""
    if "main" not in module.functions:
        return
    needed = {"main": None}
    work = ["main"]
    while work:
        for name in callees(module.functions[work.pop()]):
            if name not in needed:
                needed[name] = None
                work.append(name)
    for name, f in list(module.functions.items()):
        if name not in needed:
            for block in f.blocks:
                drop_block(block)
            del module.functions[name]


def _callee(instr: Instr) -> str:
    name = instr.attrs["callee"]
    assert isinstance(name, str)
    return name


def _inline_into(function: Function, module: Module, recursive: set[str]) -> None:
    for region in regions(function.body):
        work = list(region.blocks)
        while work:
            block = work.pop()
            call = next((i for i in block.instrs if i.op == "call" and _callee(i) not in recursive), None)
            if call is not None:
                work.append(inline_call(call, module.functions[_callee(call)]))
        remove_unreachable(region)


def inline_call(call: Instr, callee: Function) -> Block:
    """Put a copy of the callee's body in place of the call; the block that holds what stood behind it."""
    block = call.block
    assert block is not None and block.region is not None
    copies = clone_blocks(callee.blocks, {})
    at = block.instrs.index(call)
    entry = copies[0]
    for param, argument in zip(entry.params, call.operands, strict=True):
        param.replace_by(argument)
    if len(copies) == 1 and entry.terminator.op == "return":
        for result, value in zip(call.results, entry.terminator.operands, strict=True):
            result.replace_by(value)
        for i in entry.instrs:
            i.block = block
        block.instrs[at:at] = entry.instrs
        entry.terminator.operands = ()
        erase(call)
        return block
    rest = _split_behind(block, at)
    for result, param in zip(call.results, (rest.add_param(r.type, r.name) for r in call.results), strict=True):
        result.replace_by(param)
    erase(call)
    for copy in copies:
        t = copy.terminator
        if t.op == "return":
            copy.terminator = jump(rest, t.operands, t.span)
    for i in entry.instrs:
        block.append(i)
    t = entry.terminator
    block.terminator = Terminator(t.op, t.own, t.edges, t.span)
    t.operands = ()
    _insert_behind(block.region, block, [*copies[1:], rest])
    return rest


def _split_behind(block: Block, at: int) -> Block:
    """Move what stands behind an instruction, and the terminator, to a new block in no region yet."""
    rest = Block("rest")
    for i in block.instrs[at + 1 :]:
        rest.append(i)
    del block.instrs[at + 1 :]
    t = block.terminator
    rest.terminator = Terminator(t.op, t.own, t.edges, t.span)
    return rest


def _insert_behind(region: Region, block: Block, new: list[Block]) -> None:
    at = region.blocks.index(block) + 1
    for b in new:
        b.region = region
    region.blocks[at:at] = new

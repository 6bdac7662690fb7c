"""Inlining: a call of a function that is not recursive is replaced by the function's body, with one exception.

Requires SSA. Afterwards calls go only to functions that can reach themselves, and to large scalar ones; functions that `main` no longer
needs are removed. Kernels are made of regions, and a region can be flattened and fused only if no call hides its work: so in
regions, and where tensors are passed, there is no limit by size.

The cost model. What the host calls with scalars for a scalar costs a few nanoseconds as a call, and as a copy it costs the
compiler every pass again. So such a function stays one if it has no comprehension, more than `LARGE` instructions (the
call is then no tenth of its time) and would be copied more than once. (The generator of random numbers is one: a program that
splits a key eight times would else have eight copies of it, half of its host code.) What a derivative is made of is inlined
whole, because a derivative follows the form of the code.

`inline_small` is for the host after the tensor stage, where a recursion that became a loop is a function like any other.

Callees are done before their callers (the strongly connected components of the call graph, Tarjan 1972, come out in that
order), so each body is copied once a call, and the body of what is called once is moved. A callee of one block is spliced in; of a
larger one, the block of the call is split: the first part goes on into the callee's entry, each `return` jumps to the second part,
whose parameters are the results. Spans are those of the callee: a failing `check` points at its own source.

    block:  %r = call %x {callee = "f"}            block:  <entry of f>; branch %c, a, b
            return %r                         ->   a:      jump rest(%u)
                                                   b:      jump rest(%v)
                                                   rest(%r):  return %r
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tlc.opt.regions import regions
from tlc.ssa.calls import DERIVED, NAMED, callee_of, callees, components, named, reached
from tlc.ssa.clone import clone_blocks
from tlc.ssa.edit import remove_unreachable
from tlc.ssa.ir import Block, Function, Instr, Module, Region, Terminator, drop_block, erase, jump, walk

LARGE = 40  # instructions, constants aside


def inline(module: Module) -> None:
    """Inline what is not recursive or large, then remove what is not needed."""
    _Inlining(module).run()
    remove_unused(module)


def inline_in_place(module: Module) -> None:
    """The same, where what the standard library computes stands in the program that calls it: there a message should point."""
    _Inlining(module, in_place=True).run()
    remove_unused(module)


def remove_unused(module: Module) -> None:
    """Remove the functions that `main` does not reach (all are kept in a module without `main`)."""
    if "main" not in module.functions:
        return
    needed = reached(module, ["main"], NAMED)
    for name, f in list(module.functions.items()):
        if name not in needed:
            for block in f.blocks:
                drop_block(block)
            del module.functions[name]


SMALL = 24  # instructions, constants aside


def inline_small(module: Module) -> None:
    """Inline the calls of small functions that are not recursive (any more: `tail-calls` makes loops of some)."""
    small: set[str] = set()
    for component in components(module):
        for name in component:
            f = module.functions[name]
            work = list(f.blocks)
            while work:
                block = work.pop()
                call = next((i for i in block.instrs if i.op == "call" and callee_of(i) in small), None)
                if call is not None:
                    work.append(inline_call(call, module.functions[callee_of(call)]))
            if len(component) == 1 and name not in callees(f, NAMED) and weight(f) <= SMALL:
                small.add(name)


class _Inlining:
    def __init__(self, module: Module, in_place: bool = False) -> None:
        self.module = module
        self.in_place = in_place
        self.order = components(module)
        self.stay: set[str] = set()  # functions whose calls stay wherever they stand
        self.large: set[str] = set()  # functions whose calls stay in the host's own code
        self.copies = _copies(module, self.order)
        self.whole = _differentiated(module)
        self.uses = Counter(name for f in module.functions.values() for name in _names(f.body))

    def run(self) -> None:
        for component in self.order:
            if len(component) > 1 or component[0] in callees(self.module.functions[component[0]]):
                self.stay.update(component)
            for name in component:
                f = self.module.functions[name]
                for region in regions(f.body):
                    self.into(region, self.stay if region is not f.body or name in self.whole else self.stay | self.large)
                if self.copies[name] > 1 and is_scalar(f) and weight(f) > LARGE:
                    self.large.add(name)

    def into(self, region: Region, stay: set[str]) -> None:
        """Inline the calls of one region, and those that a body brings along."""
        work = list(region.blocks)
        while work:
            block = work.pop()
            call = next((i for i in block.instrs if i.op == "call" and callee_of(i) not in stay), None)
            if call is None:
                continue
            at = region.blocks.index(block)
            rest = inline_call(call, self.module.functions[callee_of(call)], self.in_place, self.is_last(callee_of(call)))
            work += region.blocks[at : region.blocks.index(rest) + 1] if self.large else [rest]
        remove_unreachable(region)

    def is_last(self, name: str) -> bool:
        """Whether nobody needs a function when the call at hand is inlined; it is no longer in the module then."""
        self.uses[name] -= 1
        if self.uses[name] or "main" not in self.module.functions:
            self.uses.update(_names(self.module.functions[name].body))
            return False
        self.module.functions.pop(name)
        return True


def _names(region: Region) -> Iterator[str]:
    """The functions that the instructions of a region name, as often as they do."""
    return (name for i in walk(region) if i.op in NAMED for name in named(i))


def weight(function: Function) -> int:
    """How many instructions a function has, constants aside."""
    return sum(i.op != "const" for i in walk(function.body))


def is_scalar(function: Function) -> bool:
    """Whether a function has neither tensors nor comprehensions."""
    values = [p for b in function.blocks for p in b.params] + [r for i in walk(function.body) for r in i.results]
    return all(v.type.rank == 0 for v in values) and not any(i.regions for i in walk(function.body))


def _copies(module: Module, order: list[list[str]]) -> dict[str, int]:
    """How many copies of each function inlining would leave: one for each path of calls to it."""
    called = {name for f in module.functions.values() for name in callees(f, NAMED)}
    copies = {name: int(name == "main" or name not in called) for name in module.functions}
    for component in reversed(order):
        for name in component:
            for i in walk(module.functions[name].body):
                for callee in named(i) if i.op in NAMED else ():
                    if callee not in component:
                        copies[callee] += copies[name]
    return copies


def _differentiated(module: Module) -> dict[str, None]:
    """The functions that a derivative is made of."""
    return reached(module, [callee_of(i) for f in module.functions.values() for i in walk(f.body) if i.op in DERIVED], NAMED)


def inline_call(call: Instr, callee: Function, in_place: bool = False, last: bool = False) -> Block:
    """Put a copy of the callee's body in place of the call, or the body itself if this is the `last` that needs it. Gives the block that
    holds what stood behind the call.
    """
    block = call.block
    assert block is not None and block.region is not None
    copies = callee.blocks if last else clone_blocks(callee.blocks, {})
    for i in walk(Region(copies)):
        if i.span.source.library and (in_place or i.op in ("check", "extern", "call")):  # what may stop, or brings such
            i.span = call.span if in_place and i.op != "check" else i.span.called_from(call.span)
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

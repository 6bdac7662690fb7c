"""What makes a function reversible, before `tensor/reverse.py` makes its reverse blocks.

A reverse goes on where a block was entered from. So the function gets one exit, and no critical edge (from a block with several successors
to one with several predecessors); loops with one way in and one way back count their rounds, and every other block with several ways in
notes which was taken. Comprehensions that no rule differentiates as a whole become loops, and parts of tensors are taken late.

    entry: .. jump head(0, %x)                       entry: .. jump head(0, %x)
    head(i, y): branch (lt i n), body, exit   ->     head(i, y): ..              i counts the rounds, for it starts at 0 and steps by 1
    a: branch c, b, d    b: jump d                   a: branch c, b, a_d         a_d: jump d(false)     b: jump d(true)     d(origin):

Requires: SSA. Preserves: values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tlc.ssa.builder import Builder
from tlc.ssa.cfg import postorder, predecessors
from tlc.ssa.components import reachable
from tlc.ssa.edit import edges_into, redirect
from tlc.ssa.ir import BOOL, I64, Block, Function, Instr, Module, Terminator, Value, const_of, number_of, walk
from tlc.ssa.liveness import reads
from tlc.ssa.loops import loops
from tlc.tensor.derivative_activity import Activity
from tlc.tensor.loops import run_as_loop
from tlc.tensor.region_form import RegionForm


def single_exit(function: Function) -> Block | None:
    """The one block that returns; a new one where there are several, None where there is none."""
    exits = [b for b in function.blocks if b.terminator.op == "return"]
    if len(exits) <= 1:
        return exits[0] if exits else None
    out = Block("exit")
    params = tuple(out.add_param(t) for t in function.results)
    out.terminator = Terminator("return", params, (), function.span)
    for b in exits:
        b.terminator = Terminator("jump", (), ((out, b.terminator.operands),), b.terminator.span)
    return function.body.add(out)


def expose_loops(active: Activity, function: Function, module: Module) -> bool:
    """Run active comprehensions that have no derivative as a whole as loops, whose tape is that of the function."""
    tabulates = [i for b in function.blocks for i in b.instrs if i.op == "tabulate" and any(r in active for r in i.results)]
    found = [i for i in tabulates if _must_loop(i, active)]
    for instr in found:
        run_as_loop(instr, module)
    return bool(found)


def _must_loop(instr: Instr, active: Activity) -> bool:
    """Whether elements run loops or calls, or read along ranges of their own."""
    region = instr.regions[0]
    return bool(loops(region)) or any(i.op == "call" for i in walk(region)) or RegionForm(instr).is_ragged(active.__contains__)


def parts_late(block: Block) -> None:
    """Take each part of a tensor right before it is needed, so that the reverse adds its adjoint as soon as that is known, and not, as for
    the layers of a model, those of all at the end. Not beyond a change of the tensor, which would have to copy it; and before what is made
    for its first reader element by element, whose reverse computes some of that again.
    """
    for part in [i for i in block.instrs if i.op == "index" and i.result.type.rank]:
        at = block.instrs.index(part)
        later = block.instrs[at + 1 :]
        users = (i for i in later if part.result in reads(i))
        changes = (i for i in later if i.op not in ("index", "tabulate", "reduce") and part.operands[0] in reads(i))
        stops = [i for i in (next(users, None), next(changes, None)) if i is not None]
        stops += [v.owner for i in stops for v in reads(i) if isinstance(v.owner, Instr) and _is_elementwise(v.owner)]
        to = min((block.instrs.index(i) for i in stops if i in later), default=at)
        block.instrs.insert(to, part)
        del block.instrs[at]


def _is_elementwise(instr: Instr) -> bool:
    return instr.op == "tabulate" and not any(i.op == "reduce" for i in walk(instr.regions[0]))


def split_critical_edges(function: Function) -> None:
    """Afterwards a block with several successors is the only predecessor of each."""
    into = edges_into(function.body)
    for b in list(function.blocks):
        for source, edge in into[b]:
            if len(into[b]) > 1 and len(source.terminator.targets) > 1:
                middle = function.body.add(Block(f"{source.name}_{b.name}"))
                middle.terminator = Terminator("jump", (), ((b, source.terminator.args(edge)),), source.terminator.span)
                redirect(source, edge, middle, ())


def count_trips(function: Function) -> dict[Block, Value]:
    """For the header of every loop with one way in and one way back: a parameter that counts how often it was gone back to."""
    trips: dict[Block, Value] = {}
    into = edges_into(function.body)
    for loop in loops(function.body):
        header, edges = loop.header, into[loop.header]
        if len(edges) != 2 or len(loop.latches) != 1:
            continue
        steps = even_steps(header, edges)
        found = next((v for v, (start, step) in steps.items() if step == 1 and const_of(start) == 0), None)
        if found is None:
            found = header.add_param(I64, "trip")
            for source, edge in edges:
                at = Builder(source)
                new = at.op("add", found, at.i64(1)) if source in loop else at.i64(0)
                redirect(source, edge, header, (*source.terminator.args(edge), new))
        trips[header] = found
    return trips


def even_steps(header: Block, edges: Sequence[tuple[Block, int]]) -> dict[Value, tuple[Value, int]]:
    """Parameters of the header of a loop with one way in and one way back to which each round adds a constant: their start, and that."""
    found: dict[Value, tuple[Value, int]] = {}
    for k, v in enumerate(header.params):
        ends = [source.terminator.args(edge)[k] for source, edge in edges]
        for start, after in (ends, ends[::-1]):
            step = _step(v, after) if v.type == I64 else None
            if step is not None and start is not v:
                found[v] = start, step
    return found


def _step(v: Value, after: Value) -> int | None:
    """What is added to a value to make another, if that is a constant."""
    owner = after.owner
    if not isinstance(owner, Instr) or owner.op not in ("add", "sub"):
        return None
    a, b = owner.operands if owner.op == "sub" or owner.operands[0] is v else owner.operands[::-1]
    by = number_of(b)
    if a is not v or by is None:
        return None
    return by if owner.op == "add" else -by


def note_origins(function: Function, trips: Mapping[Block, Value]) -> dict[Block, Value]:
    """A parameter of every other block with several edges into it that says which one was taken: a bool for two, else a number."""
    origins: dict[Block, Value] = {}
    for b, edges in edges_into(function.body).items():
        if len(edges) > 1 and b not in trips:
            type = BOOL if len(edges) == 2 else I64
            for number, (source, edge) in enumerate(edges):
                at = Builder(source)
                mark = at.const(bool(number) if type == BOOL else number, type)
                redirect(source, edge, b, (*source.terminator.args(edge), mark))
            origins[b] = b.add_param(type, "origin")
    return origins


def reaching(exit: Block) -> list[Block]:
    """Blocks from which the exit is reached, those nearer to it first (loops aside)."""
    assert exit.region is not None
    into = predecessors(exit.region)
    found = reachable([exit], into.__getitem__)
    return [b for b in postorder(exit.region) if b in found]

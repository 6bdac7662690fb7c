"""Selection: host SSA (after the memory plan) becomes machine IR of x86-64, still in SSA form.

Requires  host SSA. `legalize` changes it in place first.
Preserves the meaning that the LLVM host gives it (`backends/llvm/function.py`), down to the bits.

A scalar is a register, a tensor the address of its buffer and its extents. Selection goes backwards through each function
(`selector.py` says why), one SSA instruction at a time:

    scalar ops               `scalars.py`, with `divide.py`, `convert.py` and `narrow.py`
    comparisons              `conditions.py`: one instruction with the branch, check or choice that they decide
    elements and buffers     `memory.py`, `addresses.py`
    calls                    `calls.py`, by the convention in `abi.py`

    head(%i: i64, %s: i64):                          head(i, s):   br_i.64 i {cc = "lt", imm = 100} body, exit
      %c = lt %i, %n : bool                   ->     body:         s' = add_m.64 s, [x + i * 8]
      branch %c, body, exit                                        i' = add_i.64 i {imm = 1}
    body:                                                          poll
      %x.i = load %x, %i;  %s2 = add %s, %x.i ..                   jump head(i', s')

A failing check leaves the function from where it stands (a side exit), so blocks stay long. A loop looks at the stop flag before its jumps
back, if it may run long (`opt/polls.py`); a recursive function at its entry compares the stack with its limit, which a stop lowers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from tlc.backends.context import VALUES
from tlc.backends.program import Tables
from tlc.backends.x86 import calls, memory
from tlc.backends.x86.conditions import compare, conjuncts, disjuncts
from tlc.backends.x86.layout import layout
from tlc.backends.x86.legalize import legalize
from tlc.backends.x86.narrow import to_bits
from tlc.backends.x86.parts import Part
from tlc.backends.x86.prune import prune
from tlc.backends.x86.scalars import select_scalar
from tlc.backends.x86.selector import Selector, Targets
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.opt.polls import polled
from tlc.regalloc import ir
from tlc.regalloc.ir import VReg
from tlc.ssa.calls import recursive
from tlc.ssa.ir import Block, Instr, Module, Terminator, User, Value
from tlc.ssa.ops import ROWS as SSA_ROWS
from tlc.tensor.kernel.ir import Kernel


def select(module: Module, kernels: Mapping[str, Kernel], tables: Tables) -> ir.Module:
    """Machine IR of every function, under the name `f.NAME`; its blocks stand in the order of the code. Rows are appended to `tables`."""
    legalize(module)
    again, polls = recursive(module), polled(module)
    made = [_Selection(Selector(f, kernels, tables), polls[f.name], f.name in again).run() for f in module.functions.values()]
    return ir.Module({f.name: f for f in made})


@dataclass
class _Selection:
    """One function, its blocks on the way to machine IR. Jumps back to the headers in `polls` look at the stop flag."""

    s: Selector
    polls: Collection[Block]
    recurses: bool
    blocks: dict[Block, ir.Block] = field(default_factory=dict)
    more: dict[Block, list[ir.Block]] = field(default_factory=dict)  # what a block goes on in, where it branches on several conditions
    words: dict[Block, list[Part]] = field(default_factory=dict)  # those of its parameters that are words of their own
    steps: dict[Block, list[Instr]] = field(default_factory=dict)  # what is computed at its end, see `_steps`

    def run(self) -> ir.Function:
        s, order = self.s, self.s.parts.order
        self.steps = _steps(s)
        moved = {i for found in self.steps.values() for i in found}
        for block in order:
            self.blocks[block] = ir.Block(block.name, s.depth(block), block.terminator.op == "unreachable")
            words = [(p, k) for p in block.params for k in range(calls.count_words(p.type))]
            self.words[block] = [word for word in words if s.parts.of(*word) == word]
        for block in reversed(order):
            self.block(block, moved)
        for block in order[1:]:
            self.blocks[block].params = [s.reg(*word) for word in self.words[block]]
        region = order[0].region
        assert region is not None
        s.out.blocks = [made for b in layout(region, s.loop_of) for made in (self.blocks[b], *self.more[b])]
        prune(s.out)
        return s.out

    def block(self, block: Block, moved: Collection[Instr]) -> None:
        """Write a block from its end to its beginning."""
        s = self.s
        s.block, self.more[block] = block, []
        with s.writing(block.terminator) as end:
            self.terminator(block.terminator)
        chunks = [end]
        for instr in (*reversed(self.steps.get(block, ())), *(i for i in reversed(block.instrs) if i not in moved)):
            if s.needed(instr):
                with s.writing(instr) as chunk:
                    _instruction(s, instr)
                chunks.append(chunk)
        end[:0] = s.before_loop.pop(block, [])
        if block is s.ssa.body.entry:
            with s.writing(None) as chunk:
                self.entry()
            chunks.append(chunk)
        self.blocks[block].insts = [i for chunk in reversed(chunks) for i in chunk]

    def entry(self) -> None:
        s = self.s
        calls.enter(s, s.ssa)
        if self.recurses:
            site = s.site("recursion", f"the recursion of `{s.ssa.name}` is too deep", (), s.ssa.span)
            s.ins("check_stack", site=site, slots=())

    def terminator(self, end: Terminator) -> None:
        s = self.s
        targets = [(self.blocks[target], self.passed(target, args)) for target, args in end.edges]
        if any(t in self.polls and s.goes_back(t) for t in end.targets):
            s.ins("poll")
        match end.op:
            case "jump":
                s.ins("jump", targets=targets)
            case "branch":
                self.branch(end.own[0], targets)
            case "return":
                calls.give_back(s, s.ssa, end.own)
            case "unreachable":
                s.ins("trap")
            case _:
                raise s.fault(f"`{end.op}` in host code")

    def passed(self, target: Block, args: tuple[Value, ...]) -> tuple[VReg, ...]:
        """The words that an edge passes: those of the target's parameters that are words of their own."""
        given = dict(zip(target.params, args, strict=True))
        return tuple(self.s.reg(given[p], k) for p, k in self.words[target])

    def branch(self, cond: Value, targets: Targets) -> None:
        """A branch; on a conjunction or a disjunction one for each condition, in blocks of their own."""
        s = self.s
        conditions, either = conjuncts(s, cond), False
        if len(conditions) == 1:
            conditions = disjuncts(s, cond)
            either = len(conditions) > 1
        (then, other), first = targets, s.now
        for c in conditions[:-1]:
            following = ir.Block(s.block.name, s.depth(s.block))
            compare(s, "br", (), c, targets=[then, (following, ())] if either else [(following, ()), other])
            self.more[s.block].append(following)
            s.now = following.insts
        compare(s, "br", (), conditions[-1], targets=targets)
        s.now = first


# ---------------------------------------------------------------- steps


def _steps(s: Selector) -> dict[Block, list[Instr]]:
    """Counters' next values, by the block at whose end they are computed.

    What adds a constant, is passed on by the jumps of one block and is otherwise read in addresses only, which add the constant themselves,
    stands at the end of that block, so that it may write over the counter.
    """
    out: dict[Block, list[Instr]] = {}
    for block in s.parts.order:
        for i in block.instrs:
            if i.op in ("add", "sub") and i.result.type.elem.is_int and s.immediate(i.operands[1]) is not None:
                readers = [u for u in i.result.uses if not _takes_address(u, i)]
                last = {u.block for u in readers if isinstance(u, Terminator) and i.result not in u.own}
                if len(readers) == len(last) == 1:
                    (end,) = last
                    if end is not None and s.loop_of.get(end) is s.loop_of.get(block):
                        out.setdefault(end, []).append(i)
    return out


def _takes_address(user: User, counter: Instr) -> bool:
    if not isinstance(user, Instr) or user.op not in ("load", "store"):
        return False
    return user.operands.count(counter.result) == 1 == user.operands.index(counter.result)


# ---------------------------------------------------------------- instructions


def _instruction(s: Selector, instr: Instr) -> None:
    if instr.op in SCALAR_OPS:
        select_scalar(s, instr)
    else:
        FORMS[instr.op](s, instr)


def _check(s: Selector, instr: Instr) -> None:
    """Each condition of a conjunction leaves on its own; the values of the message are read where it fails only."""
    cond, *values = instr.operands
    if len(values) > VALUES:
        raise s.fault(f"a check with {len(values)} values")
    site = s.site(str(instr.attrs["kind"]), str(instr.attrs["message"]), tuple(v.type.elem for v in values), instr.span)
    slots = tuple(memory.constant_bits(s, v) for v in values)
    late = []
    for v, bits in zip(values, slots, strict=True):
        if bits is None:
            late.append(to_bits(s, s.reg(v), v.type.elem) if v.type.elem in NARROW else s.reg(v))
    for c in conjuncts(s, cond):
        compare(s, "check", (), c.negated, tuple(late), site=site, slots=slots)


def _impossible(s: Selector, instr: Instr) -> None:
    raise s.fault(f"`{instr.op}` makes nothing that could be asked for")


FORMS: dict[str, Callable[[Selector, Instr], None]] = {
    "const":          _impossible,
    "dim":            _impossible,
    "stop_grad":      _impossible,
    "check":          _check,
    "trap":           calls.op_trap,
    "call":           calls.call,
    "run":            calls.run,
    "foreign":        calls.foreign,
    "extern":         calls.op_extern,
    "format":         calls.op_format,
    "print":          lambda s, i: calls.service(s, "print", None, i),
    "progress_begin": lambda s, i: calls.service(s, "progress_begin", None, i),
    "progress_end":   lambda s, i: calls.service(s, "progress_end", None, i),
    "progress_due":   calls.op_due,
    "progress_note":  lambda s, i: calls.service(s, "progress_note", None, i),
    "progress_tick":  calls.op_tick,
    "push":           calls.op_push,
    "pop":            calls.op_pop,
    "index":          memory.op_index,
    "update":         memory.op_update,
    "load":           memory.op_load,
    "store":          memory.op_store,
    "reshape":        memory.op_reshape,
    "view":           memory.op_view,
    "split":          memory.op_split,
    "join":           lambda s, i: None,
    "alloc":          memory.op_alloc,
    "copy":           memory.op_copy,
    "free":           memory.op_free,
}  # fmt: skip

# Ops of earlier stages: none reaches a host backend.
GONE = frozenset({"tabulate", "reduce", "scatter", "index_if", "grad", "jvp", "call_vjp", "barrier", "get", "set", "launch"})

_unselected = set(SSA_ROWS) ^ (set(FORMS) | GONE)
assert not _unselected, f"ops of host SSA that x86 does not select, or forms without an op: {sorted(_unselected)}"

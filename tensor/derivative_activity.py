"""Which values have adjoints, and where these are alive.

A value is active if it depends on what is differentiated by and the result depends on it, both through derivatives that are not
constantly zero (Griewank and Walther 2008, chapter 6). An instruction takes part in the reverse sweep if a result of it is active; or if it
puts a real number on a tape or takes one, in code that is a derivative itself: an adjoint then goes the other way.

Tapes. A function that is differentiated may push values and pop them later: then it was made by reverse mode. Every `pop` depends on what
was pushed. If that is known to matter to nobody (no pushed value is varied, no popped one useful), reals on tapes are constants; else
all real ones have adjoints, so that what one function pushes and another pops has one for both. A call of a function that touches a
tape is taken to matter.

    v -> push .. pop -> w        reverse:  d(w) is pushed where w was popped, and popped where v was pushed:  d(v) += d(w)
"""

from __future__ import annotations

from collections.abc import Sequence

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import postorder
from tlc.ssa.components import reachable
from tlc.ssa.ir import Block, Function, Instr, Terminator, User, Value
from tlc.ssa.liveness import Liveness, Values, liveness_of, reads
from tlc.tensor.derivative_rules import partial


@dataclass(frozen=True)
class Activity:
    """A snapshot of one function. `touching`: functions that read or write tapes; `taped`: whether reals on tapes have adjoints."""

    values: Values
    touching: frozenset[str]
    taped: bool

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    def works(self, instr: Instr) -> bool:
        """Whether an instruction has a part in the reverse sweep."""
        match instr.op:
            case "push":
                return self.taped and instr.operands[0].type.elem.is_real
            case "pop":
                return self.taped and instr.result.type.elem.is_real
            case "call" if callee_of(instr) in self.touching:
                return True
        return any(r in self.values for r in instr.results)


def inputs(instr: Instr) -> list[Value]:
    """Values whose adjoints an instruction contributes to."""
    if instr.op in SCALAR_OPS:
        return [v for k, v in enumerate(instr.operands) if partial(instr, k) is not None]
    if instr.op in ("stop_grad", "dim", "const", "pop"):
        return []
    return [v for v in reads(instr) if v.type.elem.is_real]


def activity(function: Function, wrt: Sequence[Value], results: Sequence[Value], touching: frozenset[str], part: bool) -> Activity:
    """What is active between `wrt` and `results` (values that the function returns).

    `part`: the function is one part of a derivative, whose other part pops what it pushes; so all on its tapes matters.
    """
    blocks = postorder(function.body)[::-1]
    instrs = [i for b in blocks for i in b.instrs]
    calls = [i for i in instrs if i.op == "call" and callee_of(i) in touching]
    everything = bool(calls) or (part and any(i.op in ("push", "pop") for i in instrs))
    pushed = [i.operands[0] for i in instrs if i.op == "push" and i.operands[0].type.elem.is_real]
    popped = [i.result for i in instrs if i.op == "pop" and i.result.type.elem.is_real]
    varied: Values = dict.fromkeys(v for v in wrt if v.type.elem.is_real)
    if everything:
        varied.update(dict.fromkeys([*popped, *(r for i in calls for r in i.results if r.type.elem.is_real)]))
    changed = True
    while changed:
        before = len(varied)
        for b in blocks:
            for i in b.instrs:
                if any(v in varied for v in inputs(i)):
                    varied.update(dict.fromkeys(r for r in i.results if r.type.elem.is_real))
            for target, args in b.terminator.edges:
                varied.update({p: None for p, a in zip(target.params, args, strict=True) if a in varied})
        if any(v in varied for v in pushed):
            varied.update(dict.fromkeys(popped))
        changed = len(varied) != before
    sources: dict[Value, list[Value]] = {}
    for b in blocks:
        for target, args in b.terminator.edges:
            for p, a in zip(target.params, args, strict=True):
                sources.setdefault(p, []).append(a)
    for p in popped:
        sources[p] = pushed
    work = [v for v in results if v in varied]
    if everything:
        work += [v for v in (*pushed, *popped, *(o for i in calls for o in inputs(i))) if v in varied]

    def from_which(v: Value) -> list[Value]:
        found = sources[v] if v in sources else inputs(v.owner) if isinstance(v.owner, Instr) else []
        return [x for x in found if x in varied]

    active = reachable(work, from_which)
    return Activity(active, touching, everything or any(p in active for p in popped))


def adjoint_liveness(blocks: Sequence[Block], activity: Activity, results: Sequence[Value]) -> Liveness:
    """Active values that are live into and out of each block, counting only uses that contribute to their adjoints.

    `results` are those that have one of the values that the function returns.
    """

    def contributing(user: User) -> Values:
        found: Sequence[Value] = ()
        if isinstance(user, Instr) and activity.works(user):
            found = inputs(user)
        elif isinstance(user, Terminator) and user.op == "return":
            found = results
        return {v: None for v in found if v in activity}

    def on_edge(target: Block, args: tuple[Value, ...]) -> list[Value]:
        return [a for p, a in zip(target.params, args, strict=True) if p in activity and a in activity]

    return liveness_of(blocks, contributing, on_edge)

"""Unroll and jam: the inner loops of several iterations of an outer one run together (Callahan, Carr and Kennedy 1990).

An inner loop that sums reals is a chain: each addition waits for the one before, and the order of the additions is the program's
meaning. The chains of different iterations of the outer loop have nothing to do with each other, so `LANES` of them go side by side,
and what does not depend on the outer index is computed and loaded once for all.

    for j in 0..n {                          for j in 0..n - 3 by 4 {
      var s = 0.0                              var (s0, s1, s2, s3) = (0.0, 0.0, 0.0, 0.0)
      for k in 0..m {                          for k in 0..m {
        s += a[i, k] * b[k, j]        ->         s0 += a[i, k] * b[k, j]; s1 += a[i, k] * b[k, j + 1]; ...
      }                                        }
      c[i, j] = s                              c[i, j] = s0; c[i, j + 1] = s1; ...
    }                                        }
                                             then the loop as it was, for the up to three that are left

The outer loop is blocks H (its test), perhaps one before the inner loop, h and b (the inner loop), and one behind it. Done where

- nothing before or in the inner loop has an effect, can stop, or reads what outer iterations hand on (but for the index);
- the number of inner iterations does not depend on the outer index;
- the inner loop has a real that it adds to in every iteration, depends on the outer index, and is small.

Requires host SSA with the tests at the heads of loops, before the memory plan: tensors are values, so no load can meet a store.
Preserves every value and the order of effects.
"""

from __future__ import annotations

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.opt.conditions import END
from tlc.opt.iterations import Iterations
from tlc.ssa.clone import Values, clone_instr
from tlc.ssa.edit import redirect
from tlc.ssa.ir import I64, Block, Function, Instr, Module, Value, branch, const_of, jump
from tlc.ssa.loops import Loop

LANES = 4
LARGEST = 16  # instructions of the inner loop that are made for each lane
CHAINS = 2  # parameters of the inner loop that there are for each lane
FEWEST = 8  # iterations that either loop may have at most for this to pay

_LEAST = -(1 << 63)
_PURE = ("const", "load", "dim")


@dataclass
class Nest:
    """Two loops of the right form. `before` is empty where H goes straight to h. The index moves by `step` up to `stop`."""

    head: Block
    before: Block | None
    test: Block
    body: Block
    behind: Block
    index: Value
    step: int
    stop: Value
    varying: set[Value]  # what depends on the outer index, up to the end of the inner loop


def jam(module: Module) -> None:
    for function in module.functions.values():
        iterations = Iterations(function)
        for loop in iterations.loops:
            nest = _nest(loop, iterations)
            if nest is not None and _pays(nest, loop, iterations):
                _Jam(function, nest, [source for source, _ in iterations.conditions.into(loop.header) if source not in loop]).run()


# ---------------------------------------------------------------- finding


def _nest(loop: Loop, iterations: Iterations) -> Nest | None:
    inside = [inner for inner in iterations.loops if inner.parent is loop]
    if len(inside) != 1 or any(other.parent is inside[0] for other in iterations.loops):
        return None
    (inner,) = inside
    if len(inner.blocks) != 2 or len(loop.latches) != 1:
        return None
    head, test, body, behind = loop.header, inner.header, inner.blocks[1], loop.latches[0]
    start = _goes_on(head, loop)
    if start is None or _goes_on(test, inner) is not body or test.terminator.targets[1] is not behind or body.terminator.op != "jump":
        return None
    before = start if start is not test else None
    if before is not None and (before.terminator.op != "jump" or before.terminator.targets[0] is not test):
        return None
    blocks = {head, test, body, behind} | ({before} if before is not None else set())
    if behind.terminator.op != "jump" or blocks != set(loop.blocks) or any(b.params for b in (before, body) if b is not None):
        return None
    found = _counter(head, behind, iterations)
    if found is None:
        return None
    index, step, stop = found
    early = [instr for b in (head, before, test, body) if b is not None for instr in b.instrs]
    carried = set(head.params) - {index}
    pure = all(i.op in SCALAR_OPS or i.op in _PURE for i in early) and all(
        i.op in SCALAR_OPS or i.op in _PURE or i.op == "store" for i in behind.instrs
    )
    entry = (before or head).terminator
    passed = (*entry.args(entry.targets.index(test)), *body.terminator.args(0))
    if not pure or any(v in carried for i in early for v in i.operands) or any(v in carried for v in passed):
        return None
    varying = _varying(index, early, test, entry.args(entry.targets.index(test)), body.terminator.args(0))
    return Nest(head, before, test, body, behind, index, step, stop, varying) if test.terminator.own[0] not in varying else None


def _goes_on(header: Block, loop: Loop) -> Block | None:
    """Where a header that tests goes on in its loop; if the test fails, it leaves it."""
    t = header.terminator
    return t.targets[0] if t.op == "branch" and t.targets[0] in loop and t.targets[1] not in loop else None


def _counter(head: Block, latch: Block, iterations: Iterations) -> tuple[Value, int, Value] | None:
    """The index of the outer loop, its step and where it stops, where adding `LANES` steps cannot wrap."""
    test = head.terminator.own[0].owner
    if not isinstance(test, Instr) or test.op != "lt" or test.operands[0] not in head.params:
        return None
    index, stop = test.operands
    owner = latch.terminator.args(0)[head.params.index(index)].owner
    if index.type != I64 or not isinstance(owner, Instr) or owner.op != "add" or owner.operands[0] is not index:
        return None
    step = const_of(owner.operands[1])
    made = stop.block
    reach = iterations.ranges.at(stop, (head, END))
    if not isinstance(step, int) or step < 1 or reach is None or reach[0] - LANES * step < _LEAST or made is None:
        return None
    outside = const_of(stop) is not None or (made is not head and iterations.tree.dominates(made, head))
    return (index, step, stop) if outside else None


def _varying(index: Value, early: list[Instr], test: Block, first: tuple[Value, ...], again: tuple[Value, ...]) -> set[Value]:
    varying = {index}
    size = 0
    while len(varying) != size:
        size = len(varying)
        varying |= {p for p, a, b in zip(test.params, first, again, strict=True) if a in varying or b in varying}
        varying |= {r for i in early if any(v in varying for v in i.operands) for r in i.results}
    return varying


def _pays(nest: Nest, loop: Loop, iterations: Iterations) -> bool:
    if sum(instr.results[0] in nest.varying for b in (nest.test, nest.body) for instr in b.instrs) > LARGEST:
        return False
    again = nest.body.terminator.args(0)
    each = [(p, v) for p, v in zip(nest.test.params, again, strict=True) if p in nest.varying]
    chains = [p for p, v in each if p.type.elem.is_real and _adds(v, p)]
    inner = next(i for i in iterations.loops if i.header is nest.test)
    trips = [n for n in (iterations.most(loop), iterations.most(inner)) if n is not None]
    return bool(chains) and len(each) <= CHAINS and not any(p.type.rank for p, _ in each) and all(n >= FEWEST for n in trips)


def _adds(value: Value, to: Value) -> bool:
    return isinstance(value.owner, Instr) and value.owner.op in ("add", "sub", "fma") and to in value.owner.operands


# ---------------------------------------------------------------- making


class _Jam:
    """Writes the loop of `LANES` iterations before the one that there is. `lanes[k]` maps old values to those of lane k."""

    def __init__(self, function: Function, nest: Nest, entries: list[Block]) -> None:
        self.function, self.nest, self.entries = function, nest, entries
        self.lanes: list[Values] = [{} for _ in range(LANES)]

    def run(self) -> None:
        n = self.nest
        head, before, test, body, behind = (Block(b.name) for b in (n.head, n.before or n.head, n.test, n.body, n.behind))
        params = {p: head.add_param(p.type, p.name) for p in n.head.params}
        known, beyond = const_of(n.stop), (LANES - 1) * n.step
        if known is not None:
            end = self.constant(head, int(known) - beyond)
        else:
            end = self.scalar(head, "sub", n.stop, self.constant(head, beyond))
        more = head.append(Instr("lt", (params[n.index], end), (n.head.terminator.own[0].type,), span=n.head.terminator.span)).result
        head.terminator = branch(more, before, n.head, (), tuple(params.values()), n.head.terminator.span)
        index = params[n.index]
        for k, lane in enumerate(self.lanes):
            lane[n.index] = self.scalar(before, "add", index, self.constant(before, k * n.step)) if k else index
        self.copy([*n.head.instrs, *(n.before.instrs if n.before is not None else ())], before)
        entry = (n.before or n.head).terminator
        first, again = entry.args(entry.targets.index(n.test)), n.body.terminator.args(0)
        before.terminator = jump(test, self.spread(first), entry.span)
        for p in n.test.params:
            shared = None if p in n.varying else test.add_param(p.type, p.name)
            for lane in self.lanes:
                lane[p] = shared or test.add_param(p.type, p.name)
        self.copy(n.test.instrs, test)
        cond = n.test.terminator.own[0]
        test.terminator = branch(self.lanes[0].get(cond, cond), body, behind, span=n.test.terminator.span)
        self.copy(n.body.instrs, body)
        body.terminator = jump(test, self.spread(again), n.body.terminator.span)
        out = tuple(params.values())
        carried = n.varying | set(n.head.params) | set(n.behind.params)
        once = dict(self.lanes[0])
        for lane in self.lanes:
            here = once | lane
            here.update((p, v) for p, v in zip(n.head.params, out, strict=True) if p is not n.index)
            here.update((p, here.get(v, v)) for p, v in zip(n.behind.params, n.test.terminator.args(1), strict=True))
            for instr in n.behind.instrs:
                if any(v in carried for v in instr.operands):
                    carried.update(instr.results)
                    behind.append(clone_instr(instr, here))
                elif lane is self.lanes[0]:
                    behind.append(clone_instr(instr, once))
                    here.update((r, once[r]) for r in instr.results)
            out = tuple(here.get(v, v) for v in n.behind.terminator.args(0))
        behind.terminator = jump(head, out, n.behind.terminator.span)
        for source in dict.fromkeys(self.entries):
            for k, (target, args) in enumerate(source.terminator.edges):
                if target is n.head:
                    redirect(source, k, head, args)
        blocks = self.function.body.blocks
        at = blocks.index(n.head)
        self.function.body.blocks = blocks[:at]
        for block in (head, before, test, body, behind):
            self.function.body.add(block)
        self.function.body.blocks += blocks[at:]

    def copy(self, instrs: list[Instr] | tuple[Instr, ...], to: Block) -> None:
        """Copies: for each lane what depends on the index, the rest once."""
        for instr in instrs:
            if any(r in self.nest.varying for r in instr.results):
                for lane in self.lanes:
                    to.append(clone_instr(instr, lane))
            else:
                to.append(clone_instr(instr, self.lanes[0]))
                for lane in self.lanes[1:]:
                    lane.update((r, self.lanes[0][r]) for r in instr.results)

    def spread(self, args: tuple[Value, ...]) -> tuple[Value, ...]:
        """What the parameters of the inner loop are given, in their order."""
        out: list[Value] = []
        for p, v in zip(self.nest.test.params, args, strict=True):
            out += [lane.get(v, v) for lane in (self.lanes if p in self.nest.varying else self.lanes[:1])]
        return tuple(out)

    def constant(self, block: Block, value: int) -> Value:
        return block.append(Instr("const", (), (I64,), {"value": value})).result

    def scalar(self, block: Block, op: str, a: Value, b: Value) -> Value:
        return block.append(Instr(op, (a, b), (I64,), span=self.nest.head.terminator.span)).result


__all__ = ["jam"]

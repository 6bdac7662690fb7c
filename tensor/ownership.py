"""Checks a memory plan by following owners along every path; shares no code with the planner.

At each point there is a set of live buffers, named by the values that own them. Along every path:

 1. An instruction reads only tensors that are alive: owned and not given up yet, borrowed from the caller, or a view of one that is alive.
 2. What takes a tensor over (`update`, `store`, `reshape`, `push`, `run`, `split`, `free`, an edge, `return`, a parameter that its function
    takes) takes one that is owned, and takes it once; afterwards it is dead.
 3. An instruction that writes over a tensor does not read it otherwise, but where a kernel says that it may.
 4. Where paths join, the same values are owned on each.
 5. At a `return` nothing is left.
 6. No `launch` remains.
 7. What a `split` gives is nobody's business until it is joined: the rest is left alone, kernels run into the part and may read it
    there, and `join` puts the two of one `split` together.

`dim` reads no buffer, so it may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from tlc.frontend.diagnostics import InternalError
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Module, Terminator, Value
from tlc.ssa.text import print_function
from tlc.tensor.kernel.ir import Kernel

_MAKES = ("split", "join", "alloc", "copy", "index", "call", "extern", "pop", "run", "update", "store", "reshape", "stop_grad")


def verify_ownership(module: Module, takes: Mapping[str, tuple[bool, ...]], kernels: Mapping[str, Kernel] | None = None) -> None:
    """Check every function; `takes` says which parameters it owns. Raises `InternalError`."""
    for function in module.functions.values():
        _Checker(function, takes, kernels or {}).run()


class _Checker:
    def __init__(self, function: Function, takes: Mapping[str, tuple[bool, ...]], kernels: Mapping[str, Kernel]) -> None:
        self.function, self.takes, self.kernels = function, takes, kernels
        pairs = list(zip(function.params, takes[function.name], strict=True))
        self.borrowed = {p for p, taken in pairs if p.type.rank and not taken}
        self.views: dict[Value, Value] = {}  # and what they look at
        self.halves: dict[Value, Instr] = {}  # what splits gave and kernels made of it
        self.at_entry: dict[Block, dict[Value, None]] = {function.body.entry: {p: None for p, taken in pairs if p.type.rank and taken}}

    def fail(self, message: str, where: object) -> None:
        raise InternalError(f"{message}\n\n{print_function(self.function)}", f"memory plan of {self.function.name}, {where!r}")

    def run(self) -> None:
        for block in reverse_postorder(self.function.body):
            owned = dict(self.at_entry[block])
            for instr in block.instrs:
                self.step(instr, owned)
            self.leave(block.terminator, owned)

    def read(self, value: Value, owned: dict[Value, None], where: object) -> None:
        root = self.root(value)
        if value.type.rank and root not in owned and root not in self.borrowed:
            self.fail(f"%{value.name} is read but not alive", where)
        split = self.halves.get(root)
        if split is not None:
            allowed = ("join",) if root is split.results[0] else ("join", "run")
            if not isinstance(where, Instr) or where.op not in allowed:
                self.fail(f"%{value.name} is read while it is split", where)

    def root(self, value: Value) -> Value:
        """What a view looks at; of others themselves."""
        while value in self.views:
            value = self.views[value]
        return value

    def give_up(self, value: Value, owned: dict[Value, None], where: object) -> None:
        if value not in owned:
            self.fail(f"%{value.name} is taken but not owned", where)
        del owned[value]

    def step(self, instr: Instr, owned: dict[Value, None]) -> None:
        if instr.op == "launch":
            self.fail("a launch without a plan", instr)
        if instr.op == "dim":
            return
        for v in instr.operands:
            self.read(v, owned, instr)
        if instr.op == "view":
            self.views[instr.result] = instr.operands[0]
            return
        if instr.op == "join" and [self.halves.get(v) for v in instr.operands] != 2 * [self.halves.get(instr.operands[0], instr)]:
            self.fail("two are joined that were not split", instr)
        taken = self.taken(instr)
        for k in taken:
            v = instr.operands[k]
            again = [j for j, other in enumerate(instr.operands) if self.root(other) is v and j != k]
            itself = all(instr.operands[j] is v for j in again)
            if again and not (itself and instr.op == "run" and self.may_write_over(instr, k, again)):
                self.fail(f"%{v.name} is taken and used otherwise", instr)
        for k in taken:
            self.give_up(instr.operands[k], owned, instr)
        for k, r in enumerate(instr.results):
            if r.type.rank:
                split = instr if instr.op == "split" else self.halves.get(instr.operands[k]) if instr.op == "run" else None
                if split is not None:
                    self.halves[r] = split
                if instr.op not in _MAKES:
                    self.fail(f"`{instr.op}` makes no buffer", instr)
                owned[r] = None

    def taken(self, instr: Instr) -> list[int]:
        if instr.op in ("free", "push", "update", "store", "split"):
            positions = [0]
        elif instr.op == "join":
            positions = [0, 1]
        elif instr.op in ("reshape", "stop_grad"):
            positions = [0] if instr.result.type.rank else []
        elif instr.op == "run":
            positions = list(range(len(instr.results)))
        elif instr.op == "call":
            positions = [k for k, taken in enumerate(self.takes[callee_of(instr)]) if taken]
        else:
            positions = []
        return [k for k in positions if instr.operands[k].type.rank]

    def may_write_over(self, run: Instr, output: int, others: list[int]) -> bool:
        kernel = self.kernels[str(run.attrs["kernel"])]
        inputs = len(run.results)
        return all(j >= inputs and (output, j - inputs) in kernel.may_alias for j in others)

    def leave(self, end: Terminator, owned: dict[Value, None]) -> None:
        for v in end.operands:
            self.read(v, owned, end)
        if end.op == "return":
            for v in end.operands:
                if v.type.rank:
                    self.give_up(v, owned, end)
            if owned:
                self.fail(f"{[v.name for v in owned]} are never freed", end)
        for target, args in end.edges:
            here = dict(owned)
            for v in args:
                if v.type.rank:
                    self.give_up(v, here, end)
            here.update({p: None for p in target.params if p.type.rank})
            if self.at_entry.setdefault(target, here).keys() != here.keys():
                odd = self.at_entry[target].keys() ^ here.keys()
                self.fail(f"{[v.name for v in odd]} are owned on one path to {target.name} and not on another", end)

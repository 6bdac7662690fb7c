"""The reverse sweep over a function: from a function to one that computes its gradient.

The function runs as it is; then every block has a reverse block, and those run in the opposite order. A reverse block
takes the adjoints of what is live behind its block and passes on the adjoints of what is live before it.

    entry(%x):  .. jump head(0, %x)             entry, head, body, exit as before, but `head` notes from where it came
    head(i, y): branch (lt i n), body, exit     exit:   .. jump head'(1.0)
    body:       z = sin y; jump head(i+1, z)    head'(dy):  from = pop; branch from, body'(dy), entry'(dy)
    exit:       return y                        body'(dz):  y = pop; dy = mul dz, (cos y); jump head'(dy)
                                                entry'(dx): return dx

A value that the reverse needs is read directly where it still is what it was: its definition dominates the end, and no loop
around the definition is around the use. Otherwise the block that needs it pushes it on the tape at its own end, and its
reverse block pops it at its start; so pushes and pops match on every path. A block outside of loops runs once at most, so
a scalar that it needs is kept in a variable instead: what has no loop has no tape.

Only adjoints of active values exist: those that depend on an argument that is asked for, and that the result depends on
(Griewank and Walther 2008, chapters 3 to 6).

A comprehension whose region loops, and whose result is active, runs as a loop first, so that its iterations have a tape.

Requires: SSA, flat, without calls on active values. The function given is consumed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tlc.frontend.ops import SCALAR_OPS
from tlc.opt.sink import SINGULAR
from tlc.ssa.builder import Builder
from tlc.ssa.cfg import postorder
from tlc.ssa.clone import clone_instr
from tlc.ssa.construct import construct
from tlc.ssa.dominance import dominance
from tlc.ssa.edit import edges_into, redirect, remove_unreachable
from tlc.ssa.ir import BOOL, I64, Block, Function, Instr, Module, Terminator, Type, Value, walk
from tlc.ssa.liveness import reads
from tlc.ssa.loops import loops
from tlc.ssa.lower_state import zero_of
from tlc.tensor.derivative_branches import differentiate_branches
from tlc.tensor.derivative_region import differentiate_region, unsupported
from tlc.tensor.derivative_rules import At, partial
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.loops import run_as_loop

Values = dict[Value, None]  # an ordered set


def reverse(function: Function, wrt: tuple[int, ...], value: bool, module: Module, known: Mapping[tuple[Value, int], Key]) -> None:
    """Turn a function with one real result into one that returns that (if `value`) and its gradients by the parameters `wrt`.

    `known` says which extents of parameters are equal or constant.
    """
    _Reverse(function, wrt, value, module, known).run()


class _Reverse:
    def __init__(
        self, function: Function, wrt: tuple[int, ...], value: bool, module: Module, known: Mapping[tuple[Value, int], Key]
    ) -> None:
        self.function, self.value, self.module, self.known = function, value, module, known
        taped = next((i for i in walk(function.body) if i.op in ("push", "pop")), None)
        if taped is not None:  # its tape and ours would be one, and a value that is pushed is not seen to be active
            raise unsupported("the gradient of a loop", taped.span)
        self.wrt = [function.params[k] for k in wrt]
        self.variables: list[str] = []
        remove_unreachable(function.body)
        self.exit = _single_exit(function)
        while self.exit and _expose_loops(_active(function, self.wrt, self.exit), function, module):
            self.exit = _single_exit(function)
        _split_critical_edges(function)
        self.origin = _note_origins(function) if self.exit else {}

    def run(self) -> None:
        if self.exit is None:  # it never returns: neither does its gradient
            self.function.results = self._results()
            return
        body = self.function.body
        self.tree = dominance(body)
        self.loops = loops(body, self.tree)
        self.extents = Extents(self.function, self.known)
        self.active = _active(self.function, self.wrt, self.exit)
        self.blocks = _reaching(self.exit)
        self.into = edges_into(body)
        self.live_in, self.live_out = _adjoint_liveness(self.blocks, self.active)
        self.behind_work = self._behind_work()
        self.blocks = [b for b in self.blocks if b is self.exit or any(s in self.behind_work for s in b.terminator.targets)]
        self.reverses = {b: body.add(Block(f"{b.name}_reverse")) if b is not self.exit else b for b in self.blocks}
        self.adjoints: dict[Block, dict[Value, Value]] = {b: {} for b in self.blocks}
        for b in self.blocks:
            for v in self.live_out[b]:
                param = self.reverses[b].add_param(v.type, f"d_{v.name}" if v.name else "")
                self.extents.declare_alike(param, v)
                self.adjoints[b][v] = param
        result = self.exit.terminator.operands[0]
        for b in self.blocks:
            _Sweep(self, b).run(result)
        self.function.results = self._results()
        if self.variables:
            construct(Module({self.function.name: self.function}))

    def _behind_work(self) -> set[Block]:
        """Blocks before which, on some path to them, adjoints change: the reverse goes on where they were entered from."""
        found: set[Block] = set()
        for b in self.blocks:
            works = any(r in self.active for i in b.instrs for r in i.results)
            found.update(s for s in b.terminator.targets if works or any(p in self.active for p in s.params))
        work = list(found)
        while work:
            for s in work.pop().terminator.targets:
                if s not in found:
                    found.add(s)
                    work.append(s)
        return found

    def _results(self) -> tuple[Type, ...]:
        head = self.function.results if self.value else ()
        return (*head, *(v.type for v in self.wrt))

    def new_variable(self, type: Type) -> str:
        """A variable that is zero at first: on paths that do not set it, nobody reads it."""
        name = f"saved{len(self.variables)}"
        self.variables.append(name)
        zero = Instr("const", (), (type,), {"value": zero_of(type.elem)})
        start = Instr("set", zero.results, (), {"var": name})
        entry = self.function.body.entry
        zero.block = start.block = entry
        entry.instrs[0:0] = [zero, start]
        return name

    def is_direct(self, v: Value, block: Block) -> bool:
        """Whether the reverse of `block` finds `v` as it was when the block ran."""
        home = _home(v)
        assert self.exit is not None
        return self.tree.dominates(home, self.exit) and not any(home in loop and block in loop for loop in self.loops)


class _Sweep:
    """The reverse of one block. Fulfils `derivative_region.Sweep`."""

    def __init__(self, of: _Reverse, block: Block) -> None:
        self.of, self.block = of, block
        self.b = Builder(of.reverses[block], of.module, of.function.span)
        self.sums: dict[Value, list[Value]] = {v: [d] for v, d in of.adjoints[block].items()}
        self.known: dict[Value, Value] = {}
        self.saved: list[Instr] = []  # at the end of the block: pushes, and variables that are set
        self.restored: list[Instr] = []  # at the start of its reverse
        self.extent_values: dict[Key, Value] = {}

    def run(self, result: Value) -> None:
        if self.block is self.of.exit and result in self.of.active:
            self.sums[result] = [self.b.const(1.0, result.type)]
        instrs = list(self.block.instrs)  # the exit's reverse is appended to it
        for instr in reversed(instrs):
            if any(r in self.of.active for r in instr.results):
                self.b.span = instr.span
                self._instr(instr)
        self.b.span = self.of.function.span
        self._leave(result)
        for instr in self.saved:
            self.block.append(instr)
        start = self.of.reverses[self.block]
        for instr in self.restored:
            instr.block = start
        start.instrs[0:0] = reversed(self.restored)

    # ------------------------------------------------------------ values of the forward sweep

    def forward(self, value: Value) -> Value:
        """A value of the function, in its reverse."""
        if value in self.known:
            return self.known[value]
        owner = value.owner
        if isinstance(owner, Instr) and owner.op == "const":
            here = self.b.insert(clone_instr(owner, {})).result
        elif self.of.is_direct(value, self.block):
            here = value
        else:
            here = self._restored(value)
        self.known[value] = here
        return here

    def _restored(self, value: Value) -> Value:
        """A value that the block saves at its end."""
        if value.type.rank or any(self.block in loop for loop in self.of.loops):
            save = Instr("push", (value,), (), {}, (), self.b.span)
            restore = Instr("pop", (), (value.type,), {}, (), self.b.span, (value.name,))
        else:
            variable = self.of.new_variable(value.type)
            save = Instr("set", (value,), (), {"var": variable}, (), self.b.span)
            restore = Instr("get", (), (value.type,), {"var": variable}, (), self.b.span, (value.name,))
        self.saved.append(save)
        self.restored.append(restore)
        if value.type.rank:
            self.of.extents.declare_alike(restore.result, value)
        return restore.result

    def is_active(self, value: Value) -> bool:
        return value in self.of.active

    def key(self, extent: Value) -> Key:
        return self.of.extents.key(extent)

    def key_of(self, tensor: Value, axis: int) -> Key:
        return self.of.extents.of(tensor, axis)

    def extent(self, tensor: Value, axis: int) -> Value:
        """An extent of a tensor of the function."""
        key = self.of.extents.of(tensor, axis)
        if key not in self.extent_values:
            self.extent_values[key] = self._extent(key)
        return self.extent_values[key]

    def _extent(self, key: Key) -> Value:
        match key:
            case int(number):
                return self.b.i64(number)
            case Axis(of, axis):
                if self.of.is_direct(of, self.block):
                    return self.b.dim(of, axis)
                dim = Builder(self.block, self.of.module, self.b.span).dim(of, axis)
                return self.forward(dim)
            case value:
                return self.forward(value)

    # ------------------------------------------------------------ adjoints

    def add(self, of: Value, contribution: Value) -> None:
        if of in self.of.active:
            self.sums.setdefault(of, []).append(contribution)

    def current(self, of: Value) -> Value | None:
        """The adjoint so far; None for zero."""
        parts = self.sums.get(of, [])
        if len(parts) > 1:
            parts[:] = [self._total(of, parts)]
        return parts[0] if parts else None

    def replace(self, of: Value, adjoint: Value) -> None:
        self.sums[of] = [adjoint]

    def reverse(self, function: Function, wrt: tuple[int, ...]) -> None:
        reverse(function, wrt, False, Module({function.name: function}), {})

    def zeros(self, of: Value) -> Value:
        return self._zeros(of, range(of.type.rank))

    def _zeros(self, of: Value, axes: range) -> Value:
        zero = Type(of.type.elem)
        if not axes:
            return self.b.const(0.0, zero)
        return self.b.tabulate([self.extent(of, k) for k in axes], lambda b, *_: b.const(0.0, zero))

    def _total(self, of: Value, parts: list[Value]) -> Value:
        def added(b: Builder, *at: Value) -> Value:
            total = b.index(parts[0], *at)
            for p in parts[1:]:
                total = b.op("add", total, b.index(p, *at))
            return total

        if not of.type.rank:
            return added(self.b)
        return self.b.tabulate([self.extent(of, k) for k in range(of.type.rank)], added)

    def _leave(self, result: Value) -> None:
        """Pass the adjoints on to the reverse of where the block was entered from."""
        edges = [(p, k) for p, k in self.of.into[self.block] if p in self.of.reverses]
        if self.block not in self.of.behind_work:
            gradients = []
            for v in self.of.wrt:
                d = self.current(v)
                gradients.append(self.zeros(v) if d is None else d)
            self.b.ret(*((result,) if self.of.value else ()), *gradients)
            return
        targets = [(self.of.reverses[p], self._passed(p, k)) for p, k in edges]
        if len(targets) == 1:
            self.b.jump(targets[0][0], *targets[0][1])
            return
        origin = self.forward(self.of.origin[self.block])
        numbers = [self.of.into[self.block].index(e) for e in edges]
        while len(targets) > 2:
            rest = self.b.new_block(self.b.block.name)
            target, args = targets.pop()
            self.b.branch(self.b.op("eq", origin, self.b.i64(numbers.pop())), target, rest, args)
            self.b.move_to(rest)
        (zero, zero_args), (one, one_args) = targets
        from_one = origin if origin.type == BOOL else self.b.op("eq", origin, self.b.i64(numbers[1]))
        self.b.branch(from_one, one, zero, one_args, zero_args)

    def _passed(self, p: Block, edge: int) -> list[Value]:
        """The adjoints of what is live behind `p`, as far as this block and its parameters tell."""
        args = dict(zip(self.block.params, p.terminator.args(edge), strict=True))
        passed = []
        for v in self.of.live_out[p]:
            parts: list[Value] = []
            for source in [v] * (v in self.of.live_in[self.block]) + [param for param, arg in args.items() if arg is v]:
                d = self.current(source)
                if d is not None:
                    parts.append(d)
            if not parts:
                passed.append(self.zeros(v))
            else:
                passed.append(parts[0] if len(parts) == 1 else self._total(v, parts))
        return passed

    # ------------------------------------------------------------ instructions

    def _instr(self, instr: Instr) -> None:
        given = [self.current(r) if r in self.of.active else None for r in instr.results]
        for r in instr.results:
            self.sums.pop(r, None)
        if all(d is None for d in given):
            return
        (d, *_) = given
        match instr.op:
            case op if op in SCALAR_OPS and d is not None:
                for k, operand in enumerate(instr.operands):
                    rule = partial(instr, k)
                    if rule is not None and operand in self.of.active:
                        self.add(operand, self._of_path(instr, d, rule(At(self.b, instr, d, self.forward))))
            case "tabulate" if len(instr.regions[0].blocks) > 1:
                differentiate_branches(self, instr, given)
            case "tabulate" | "reduce":
                differentiate_region(self, instr, given)
            case "scatter" if d is not None:
                differentiate_region(self, instr, given)
                self.add(instr.operands[0], d)
            case "index" if d is not None:
                self._index(instr, d)
            case "index_if" if d is not None:
                self._index_if(instr, d)
            case "update" if d is not None:
                self._update(instr, d)
            case "reshape" if d is not None:
                x = instr.operands[0]
                self.add(x, self.b.reshape(d, [self.extent(x, k) for k in range(x.type.rank)]))
            case "call":
                raise unsupported("a recursive function", instr.span)
            case "push" | "pop":
                raise unsupported("the gradient of a loop", instr.span)
            case op:
                raise unsupported(f"`{op}`", instr.span)

    def _of_path(self, instr: Instr, d: Value, contribution: Value) -> Value:
        """Where the path taken reads no result of an op, its adjoint is zero, and an infinite derivative makes no NaN of that."""
        if self.block is self.of.exit or instr.op not in SINGULAR:
            return contribution
        zero = self.b.const(0.0, contribution.type)
        return self.b.op("select", self.b.op("eq", d, self.b.const(0.0, d.type)), zero, contribution)

    def _index(self, instr: Instr, d: Value) -> None:
        """The part's adjoint is added in place."""
        x, *indices = instr.operands
        at = [self.forward(i) for i in indices]
        whole = self.current(x)
        if whole is None:
            self.replace(x, self.b.update(self.zeros(x), at, d))
            return
        part = self.b.index(whole, *at)
        self.replace(x, self.b.update(whole, at, self._total(instr.result, [part, d])))

    def _index_if(self, instr: Instr, d: Value) -> None:
        """The element's adjoint is added, once or not at all."""
        cond, tensor, *indices = instr.operands
        once, at = self.b.convert(self.forward(cond), I64), [self.forward(i) for i in indices]
        whole = self.current(tensor)
        into = self.zeros(tensor) if whole is None else whole
        self.replace(tensor, self.b.scatter(into, [once], lambda b, _: (*at, d)))

    def _update(self, instr: Instr, d: Value) -> None:
        x, *indices, part = instr.operands
        at = [self.forward(i) for i in indices]
        if part in self.of.active:
            self.add(part, self.b.index(d, *at))
        if x in self.of.active:
            self.add(x, self.b.update(d, at, self._zeros(x, range(len(at), x.type.rank))))


# ---------------------------------------------------------------- the graph


def _home(v: Value) -> Block:
    home = v.owner.block if isinstance(v.owner, Instr) else v.owner
    assert home is not None
    return home


def _single_exit(function: Function) -> Block | None:
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


def _expose_loops(active: Values, function: Function, module: Module) -> bool:
    """Run active comprehensions with loops in their regions as loops themselves, whose tape is that of the function."""
    tabulates = [i for b in function.blocks for i in b.instrs if i.op == "tabulate" and any(r in active for r in i.results)]
    found = [i for i in tabulates if loops(i.regions[0])]
    for instr in found:
        run_as_loop(instr, module)
    return bool(found)


def _split_critical_edges(function: Function) -> None:
    """Afterwards a block with several successors is the only predecessor of each."""
    into = edges_into(function.body)
    for b in list(function.blocks):
        for source, edge in into[b]:
            if len(into[b]) > 1 and len(source.terminator.targets) > 1:
                middle = function.body.add(Block(f"{source.name}_{b.name}"))
                middle.terminator = Terminator("jump", (), ((b, source.terminator.args(edge)),), source.terminator.span)
                redirect(source, edge, middle, ())


def _note_origins(function: Function) -> dict[Block, Value]:
    """A parameter of every block with several edges into it that says which one was taken: a bool for two, else a number."""
    origins: dict[Block, Value] = {}
    for b, edges in edges_into(function.body).items():
        if len(edges) > 1:
            type = BOOL if len(edges) == 2 else I64
            for number, (source, edge) in enumerate(edges):
                at = Builder(source)
                mark = at.const(bool(number) if type == BOOL else number, type)
                redirect(source, edge, b, (*source.terminator.args(edge), mark))
            origins[b] = b.add_param(type, "origin")
    return origins


def _reaching(exit: Block) -> list[Block]:
    """Blocks from which the exit is reached, those nearer to it first (loops aside)."""
    assert exit.region is not None
    into = edges_into(exit.region)
    found, work = {exit}, [exit]
    while work:
        for p, _ in into[work.pop()]:
            if p not in found:
                found.add(p)
                work.append(p)
    return [b for b in postorder(exit.region) if b in found]


# ---------------------------------------------------------------- what has an adjoint


def _inputs(instr: Instr) -> list[Value]:
    """Values whose adjoints an instruction contributes to."""
    if instr.op in SCALAR_OPS:
        return [v for k, v in enumerate(instr.operands) if partial(instr, k) is not None]
    if instr.op in ("stop_grad", "dim", "const", "pop"):
        return []
    return [v for v in reads(instr) if v.type.elem.is_real]


def _active(function: Function, wrt: list[Value], exit: Block) -> Values:
    """Values that depend on `wrt` and on which the result depends, both through derivatives that are not constantly zero."""
    blocks = postorder(function.body)[::-1]
    varied: Values = dict.fromkeys(v for v in wrt if v.type.elem.is_real)
    changed = True
    while changed:
        before = len(varied)
        for b in blocks:
            for i in b.instrs:
                if any(v in varied for v in _inputs(i)):
                    varied.update(dict.fromkeys(r for r in i.results if r.type.elem.is_real))
            for target, args in b.terminator.edges:
                varied.update({p: None for p, a in zip(target.params, args, strict=True) if a in varied})
        changed = len(varied) != before
    sources: dict[Value, list[Value]] = {}
    for b in blocks:
        for target, args in b.terminator.edges:
            for p, a in zip(target.params, args, strict=True):
                sources.setdefault(p, []).append(a)
    active: Values = {}
    work = [v for v in exit.terminator.operands if v in varied]
    while work:
        v = work.pop()
        if v in active:
            continue
        active[v] = None
        found = _inputs(v.owner) if isinstance(v.owner, Instr) else sources.get(v, [])
        work += [x for x in found if x in varied]
    return active


def _adjoint_liveness(blocks: list[Block], active: Values) -> tuple[dict[Block, Values], dict[Block, Values]]:
    """Active values that are live into and out of each block, counting only uses that contribute to their adjoints."""
    used: dict[Block, Values] = {}
    for b in blocks:
        defined: Values = dict.fromkeys(b.params)
        used[b] = {}
        for i in b.instrs:
            if any(r in active for r in i.results):
                used[b].update({v: None for v in _inputs(i) if v in active and v not in defined})
            defined.update(dict.fromkeys(i.results))
        if b.terminator.op == "return":
            used[b].update({v: None for v in b.terminator.operands if v in active and v not in defined})
    own = {b: {*b.params, *(r for i in b.instrs for r in i.results)} for b in blocks}
    live_in: dict[Block, Values] = {b: dict(used[b]) for b in blocks}
    live_out: dict[Block, Values] = {b: {} for b in blocks}
    changed = True
    while changed:
        changed = False
        for b in blocks:
            out = live_out[b]
            size = len(out)
            for target, args in b.terminator.edges:
                if target in live_in:
                    out.update(live_in[target])
                    out.update({a: None for p, a in zip(target.params, args, strict=True) if p in active and a in active})
            if len(out) != size:
                changed = True
                live_in[b].update({v: None for v in out if v not in own[b]})
    return live_in, live_out

"""Tensor instructions become launches of kernels: `lower(module, target)`.

For each basic block: a graph is built (`tensor/graph/build.py`), fused (`tensor/fuse.py`), and each node is scheduled to a kernel
(`tensor/schedule.py`); what is but a part of a tensor becomes a view of it (`tensor/views.py`).
A launch stands where the last of the instructions stood whose results it gives.

Requires: flattened regions; no `grad`. Ensures: no `tabulate`, `reduce`, `scatter`, `index_if` or partial `index` is left; `index` and
`update` of the host, `dim` and `reshape` stay. Kernels that do the same thing are one kernel. Outlined functions are
added to the module and lowered too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field, replace

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.ssa.builder import Builder
from tlc.ssa.ir import I64, Function, Instr, Module, Type, Value, erase, walk
from tlc.ssa.ops import effect
from tlc.tensor import grid_block_plan
from tlc.tensor.alike import Leaf, form
from tlc.tensor.bundle import Bundle, bundles
from tlc.tensor.column_sums import Columns, in_one_walk
from tlc.tensor.endings import end_regions
from tlc.tensor.extents import Axis, Extents, Key
from tlc.tensor.fuse import Decision, fuse, together
from tlc.tensor.graph.build import Built, build
from tlc.tensor.graph.ir import Expr, Graph, Node, Scalar, Tensor
from tlc.tensor.guard import branch_guards, branch_traps, watch
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.rename import renamed
from tlc.tensor.kernel.verify import verify
from tlc.tensor.knobs import ByRule, Choice, Choices, choice_text, turned
from tlc.tensor.outline import can_fail
from tlc.tensor.pack import pack
from tlc.tensor.row_blocks import Blocks
from tlc.tensor.row_blocks import find as find_blocks
from tlc.tensor.schedule import RULES, Scheduled, Target, schedule, schedule_blocks, schedule_bundle, schedule_columns
from tlc.tensor.views import Part, as_part, find_parts

Work = Node | Bundle | Columns | Blocks  # what becomes one kernel


@dataclass(eq=False)
class Tensors:
    """The module with launches, the kernels by name, and the fused graphs of its blocks. `places` are those in the source that a kernel
    computes, `works` what it was made of, `choices` how its knobs stand, if not by the rules.
    """

    module: Module
    kernels: dict[str, Kernel]
    graphs: list[Graph]
    places: dict[str, dict[Span, None]] = field(default_factory=dict)
    works: dict[str, Work] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)


def lower(
    module: Module,
    target: Target = Target(),  # noqa: B008 (immutable)
    decisions: list[Decision] | None = None,
    choices: Choices = ByRule(),  # noqa: B008 (has no state)
    made: Callable[[Kernel], None] | None = None,
) -> Tensors:
    """Replace the tensor instructions of every function; the module is changed in place. What fusion decided is added to `decisions`.
    `made` is called with each kernel that applies no function, as soon as it is there.
    """
    state = _Lowering(module, target, decisions, choices, made)
    done: set[str] = set()
    while rest := [f for name, f in module.functions.items() if name not in done]:
        for f in rest:
            done.add(f.name)
            state.function(f)
    for f in module.functions.values():
        _drop_barriers(f)
    return Tensors(module, state.kernels, state.graphs, state.places, state.works, state.chosen)


def _drop_barriers(function: Function) -> None:
    """What they kept apart is in different launches now, and those are not shared."""
    for instr in [i for i in walk(function.body) if i.op == "barrier"]:
        instr.result.replace_by(instr.operands[0])
        erase(instr)


class _Lowering:
    def __init__(
        self,
        module: Module,
        target: Target,
        decisions: list[Decision] | None,
        choices: Choices,
        made: Callable[[Kernel], None] | None,
    ) -> None:
        self.module = module
        self.target = target
        self.decisions = decisions
        self.choices = choices
        self.made = made
        self.kernels: dict[str, Kernel] = {}
        self.names: dict[Kernel, str] = {}  # kernels without their names
        self.alike: dict[Hashable, tuple[str, Scheduled, tuple[Leaf, ...]]] = {}  # by the form of a node
        self.places: dict[str, dict[Span, None]] = {}
        self.works: dict[str, Work] = {}
        self.chosen: dict[str, Choice] = {}
        self.graphs: list[Graph] = []

    def function(self, function: Function) -> None:
        end_regions(function, self.module)
        watch(function, self.module)
        resolve_extents(function)
        extents = Extents(function)
        blocks = [build(self.module, function, block, extents) for block in function.blocks]
        current: dict[Value, Value] = {}
        for built in blocks:
            fused, parts = find_parts(fuse(built.graph, self.decisions))
            groups = list[Blocks]()
            if self.target.flash and not self.target.plain:
                suits = grid_block_plan.suits if self.target.gpu else None
                fused, groups = find_blocks(replace(fused, nodes=live_nodes(fused)), suits)
            left = {t for g in groups for n in g.nodes for t in n.results}
            built.graph = fused if self.target.gpu else pack(fused, left, self.target.dots, self.target.pairs)
            if built.graph.nodes:
                self.graphs.append(built.graph)
            _Block(self, built, groups, parts, current).run()
        branch_guards(function, self.module)
        branch_traps(function, self.module, self.cannot_stop)
        for instr in walk(function.body):
            if instr.op in ("tabulate", "reduce", "scatter"):
                raise InternalError(f"`{instr.op}` at {instr.span} is not flat", f"tensor lowering, function {function.name}")

    def cannot_stop(self, instr: Instr) -> bool:
        """Whether an instruction of the host only computes."""
        if instr.op == "launch":
            return not self.kernels[str(instr.attrs["kernel"])].can_fail
        return effect(instr.op) == "none"

    def kernel(self, work: Work) -> tuple[str, Scheduled]:
        """The name of a kernel, and what a launch passes to it."""
        if self.decisions is not None and not isinstance(work, Node):
            together(self.decisions, work.nodes)
        name, scheduled = self.kernel_of_node(work) if isinstance(work, Node) else self.own_kernel(work)
        self.places.setdefault(name, {}).update({s: None for n in nodes_of(work) for s in (*n.joined, n.span)})
        return name, scheduled

    def kernel_of_node(self, node: Node) -> tuple[str, Scheduled]:
        """The same: that of a node that is alike, where there was one. (One that works in buffers has names for these of its own.)"""
        key, leaves = form(node)
        if key not in self.alike:
            name, scheduled = self.own_kernel(node)
            if not scheduled.work:
                self.alike[key] = name, scheduled, leaves
            return name, scheduled
        name, scheduled, others = self.alike[key]
        here = dict(zip(others, leaves, strict=True))
        return name, replace(scheduled, results=node.results, operands=tuple(here[x] for x in scheduled.operands))

    def own_kernel(self, work: Work) -> tuple[str, Scheduled]:
        """The same, of a work for itself."""
        scheduled = chosen(work, self.target, self.choices)
        nameless = scheduled.kernel
        name = self.names.setdefault(nameless, f"{_what(work)}_{len(self.kernels)}")
        if name not in self.kernels:
            kernel = replace(nameless, name=name, can_fail=any(can_fail(self.module, f) for f in nameless.applied))
            kernel = renamed(kernel, _source_names(scheduled))
            verify(kernel, expanded=self.target.expands)
            self.kernels[name] = kernel
            self.works[name] = work
            if self.made is not None and not kernel.applied:
                self.made(kernel)
            if choice := turned(scheduled.asked):
                self.chosen[name] = choice
        return name, scheduled


def nodes_of(work: Work) -> tuple[Node, ...]:
    return (work,) if isinstance(work, Node) else work.nodes


def scheduled_as(work: Work, target: Target, choice: Choice = RULES) -> Scheduled:
    """The nameless kernel of what becomes one, with knobs as they are chosen."""
    match work:
        case Node():
            return schedule(work, "", target, choice)
        case Bundle():
            return schedule_bundle(work, "", target, choice)
        case Columns():
            return schedule_columns(work, "", target, choice)
        case Blocks():
            return schedule_blocks(work, "", target, choice)


def chosen(work: Work, target: Target, choices: Choices) -> Scheduled:
    """The nameless kernel of what becomes one: by the rules, or as it was chosen for what is that by the rules. A note says so."""
    by_rule = scheduled_as(work, target)
    choice = choices.choice(by_rule.kernel, by_rule.asked)
    if not choice:
        return by_rule
    tuned = scheduled_as(work, target, choice)
    differs = choice_text(turned(tuned.asked))
    if not differs:
        return by_rule
    return replace(tuned, kernel=replace(tuned.kernel, notes=(*tuned.kernel.notes, f"tuned: {differs}")))


def _source_names(scheduled: Scheduled) -> dict[str, str]:
    """What the parameters of a kernel are called in the source: those of the first node that becomes it."""
    kernel = scheduled.kernel
    own = zip(kernel.parameters, (*scheduled.results, *scheduled.work, *scheduled.operands), strict=True)
    return {parameter.name: value.name for parameter, value in own}


def _what(node: Work) -> str:
    if not isinstance(node, Node):
        return {Bundle: "rows", Columns: "columns", Blocks: "blocks"}[type(node)]
    if node.scatter:
        return "scatter"
    if node.reduction is None:
        return "map"
    return "product" if len(node.reduction.terms) == 2 else node.reduction.op


class _Block:
    """The launches of one block. `current` maps values that were replaced, in any block, to what stands for them."""

    def __init__(
        self, lowering: _Lowering, built: Built, groups: list[Blocks], parts: dict[Tensor, Part], current: dict[Value, Value]
    ) -> None:
        self.lowering = lowering
        self.built = built
        self.groups = groups
        self.parts = parts
        self.current = current
        self.instrs = list(built.block.instrs)  # as they were when the graph was built
        self.made: dict[Tensor, Value] = {}
        self.dims: dict[Scalar, Value] = {}  # launches are made in order, so what one asked for stands before the next

    def run(self) -> None:
        graph = self.built.graph
        nodes = sorted(live_nodes(graph), key=graph.place)  # a node may stand earlier without a result that nobody needs
        for work in nodes if self.lowering.target.plain else self.works(nodes):
            part = as_part(work) if isinstance(work, Node) else None
            if part is None:
                self.launch(work)
            elif isinstance(work, Node):
                self.give(work.results[0], self.view(self.before(work), part))
        for instr in reversed(self.instrs):
            if instr in self.built.replaced or (instr.op == "reshape" and not instr.result.uses):
                for r in instr.results:
                    if r in self.current:
                        r.replace_by(self.current[r])
                erase(instr)

    def works(self, nodes: Sequence[Node]) -> Iterator[Work]:
        """Nodes, bundles and groups in the order in which they run: a group where its last node stands."""
        group_of = {t: g for g in self.groups for n in g.nodes for t in n.results}
        left = {id(g): len(g.nodes) for g in self.groups}
        before: list[Node] = []
        for node in nodes:
            group = group_of.get(node.results[0])
            if group is None:
                before.append(node)
                continue
            left[id(group)] -= 1
            if not left[id(group)]:
                yield from self.neighbours(before, nodes)
                before = []
                yield group.has(nodes)
        yield from self.neighbours(before, nodes)

    def neighbours(self, nodes: Sequence[Node], everything: Sequence[Node]) -> Iterator[Work]:
        """Nodes in their order, those together that go well together."""
        target, works = self.lowering.target, bundles(self.built.graph, nodes, everything)
        yield from works if target.gpu else in_one_walk(self.built.graph, works, target.cache_bytes)

    def launch(self, work: Work) -> None:
        name, scheduled = self.lowering.kernel(work)
        made = (*scheduled.results, *scheduled.work)
        b = self.before(work if isinstance(work, Node) else work.nodes[-1])
        operands = [self.value(b, n) for t in made for n in t.shape]
        operands += [self.tensor(b, x) if isinstance(x, Tensor) else self.scalar(b, x) for x in scheduled.operands]
        types = tuple(Type(t.elem, t.rank) for t in made)
        names = tuple(self.built.results[t].name if t in self.built.results else t.name for t in made)
        results = b.emit("launch", operands, types, {"kernel": name}, names=names).results
        for t, new in zip(scheduled.results, results, strict=False):  # what it works in comes last
            self.give(t, new)

    def before(self, node: Node) -> Builder:
        """Where a node runs."""
        b = Builder.before(self.instrs[self.built.graph.place(node)], self.lowering.module)
        b.span = node.span
        return b

    def give(self, t: Tensor, new: Value) -> None:
        """From here on, `t` is this value of the host."""
        self.made[t] = new
        if t in self.built.results:
            self.current[self.built.results[t]] = new

    def view(self, b: Builder, part: Part) -> Value:
        if not part.start and part.shape == part.base.shape:
            return self.tensor(b, part.base)
        operands = [self.tensor(b, part.base), *(self.value(b, e) for e in (*part.start, *part.shape))]
        return b.emit("view", operands, [Type(part.base.elem, len(part.shape))], names=[part.base.name]).result

    # ------------------------------------------------------------ values of the host

    def now(self, v: Value) -> Value:
        return self.current.get(v, v)

    def tensor(self, b: Builder, t: Tensor) -> Value:
        """The value of a tensor; a part of one is looked up where it is first read."""
        if t in self.parts and t not in self.made:
            self.made[t] = self.view(b, self.parts[t])
        return self.made[t] if t in self.made else self.now(self.built.tensors[t])

    def scalar(self, b: Builder, s: Scalar) -> Value:
        key = self.built.scalars[s]
        if isinstance(key, Axis):
            if s not in self.dims:
                self.dims[s] = b.dim(self.now(key.tensor), key.axis)
            return self.dims[s]
        assert isinstance(key, Value)
        return self.now(key)

    def value(self, b: Builder, e: Expr) -> Value:
        """An extent on the host."""
        match e.op:
            case "const":
                return b.const(e.data, I64)
            case "scalar":
                return self.scalar(b, e.data)
            case _:
                return b.op(e.op, *(self.value(b, a) for a in e.args))


def resolve_extents(function: Function) -> None:
    """Every `dim` of which something is known becomes that value."""
    extents = Extents(function)
    for instr in list(walk(function.body)):
        if instr.op != "dim":
            continue
        key: Key = extents.key(instr.result)
        if isinstance(key, Value) and key is not instr.result:
            instr.result.replace_by(key)


def live_nodes(graph: Graph) -> list[Node]:
    """The nodes whose results somebody needs, each without the outputs that nobody needs."""
    needed = set(graph.kept)
    out: list[Node] = []
    for node in reversed(graph.nodes):
        wanted = [k for k, t in enumerate(node.results) if t in needed]
        if not wanted:
            continue
        lean = node
        if len(wanted) < len(node.results):
            lean = replace(node, results=tuple(node.results[k] for k in wanted), outputs=tuple(node.outputs[k] for k in wanted))
        out.append(lean)
        needed.update(lean.sources)
    return out[::-1]

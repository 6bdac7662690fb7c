"""From graph expressions to kernel expressions, inside loops that are being built.

A `Scope` is a list of statements that still grows: the body of a loop. An expression is emitted into the outermost scope in which all
its axes are bound, as a `Let` if it is used more than once or from further in; that is loop-invariant code motion for free. Index
arithmetic is not bound but repeated, so that a backend sees how an address depends on the loop variables.

What reads memory may leave a loop that might not run only as far as a guard: its index may be in range only inside. A guard is a
scope around such loops that becomes `if extents > 0 { .. }` when a load was moved out of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem
from tlc.tensor.graph.ir import Expr, Scalar, Tensor, View, walk
from tlc.tensor.kernel.ir import GRAIN, Apply, Buffer, Const, For, If, Kind, Let, Load, Op, Stmt, Var, const, op
from tlc.tensor.kernel.ir import Expr as KExpr

Seat = Callable[[tuple[KExpr, ...]], tuple[KExpr, ...]]

LEVELS = 64  # of an expression of a kernel, at most: what is deeper is bound in steps
ACC = -1  # stands for the results of a reduction among the axes that an expression depends on


@dataclass(eq=False)
class Scope:
    """The body of a loop (or of the kernel). `axes` and `accs` are bound here. `optional`: it might never run; `guard`: no load leaves;
    `looped`: a loop is around.
    """

    parent: Scope | None = None
    optional: bool = False
    guard: bool = False
    looped: bool = False
    axes: dict[int, KExpr] = field(default_factory=dict)
    accs: tuple[KExpr, ...] = ()
    body: list[Stmt] = field(default_factory=list)
    memo: dict[Expr, KExpr] = field(default_factory=dict)

    @property
    def is_looped(self) -> bool:
        """Whether a loop is around."""
        return self.looped or (self.parent is not None and self.parent.is_looped)

    def binds(self, needs: frozenset[int]) -> bool:
        return not needs.isdisjoint(self.axes) or (bool(self.accs) and ACC in needs)

    def lookup(self, k: int) -> KExpr:
        scope: Scope | None = self
        while scope is not None:
            if k in scope.axes:
                return scope.axes[k]
            scope = scope.parent
        raise AssertionError(f"axis {k} is not bound")

    def acc(self, k: int) -> KExpr:
        scope: Scope | None = self
        while scope is not None:
            if scope.accs:
                return scope.accs[k]
            scope = scope.parent
        raise AssertionError("no reduction is done here")


class Emitter:
    """The state of one kernel under construction: its names, parameters, and what is known of its expressions."""

    def __init__(self, roots: Sequence[Expr]) -> None:
        self.names: dict[str, int] = {}
        self.inputs: dict[Scalar | View, Var | Buffer] = {}
        self.made: dict[Tensor, Buffer] = {}  # what the kernel itself has made before it reads it,
        self.variables: dict[Tensor, KExpr] = {}  # and what of that is a variable
        self.seats: dict[Tensor, Seat] = {}  # where in its buffer an element of what is made lies, if not at its indices
        self.multiples: dict[Var, int] = {}  # a number of which a variable is a multiple
        self.uses: dict[Expr, int] = {}
        self.needs: dict[Expr, frozenset[int]] = {}
        self.memory: dict[Expr, bool] = {}  # reads memory or calls
        self.moved = 0  # loads that were moved out of a loop that might never run
        self.learn(roots)

    def learn(self, roots: Sequence[Expr]) -> None:
        for e in walk(roots):
            if e in self.needs:
                continue
            own = frozenset((e.data,)) if e.op == "axis" else frozenset((ACC,)) if e.op == "acc" else frozenset()
            self.needs[e] = own.union(*(self.needs[a] for a in e.args))
            self.memory[e] = e.op in ("load", "apply") or any(self.memory[a] for a in e.args)
            for a in e.args:
                self.uses[a] = self.uses.get(a, 0) + 1
        for e in roots:
            self.uses[e] = self.uses.get(e, 0) + 1

    def fresh(self, base: str) -> str:
        n = self.names.get(base, 0)
        self.names[base] = n + 1
        return f"{base}{n}"

    def seated(self, tensor: Tensor, indices: tuple[KExpr, ...]) -> tuple[KExpr, ...]:
        """Where in its buffer an element lies."""
        return self.seats[tensor](indices) if tensor in self.seats else indices

    def is_multiple(self, e: KExpr, of: int) -> bool:
        """Whether an extent is known to be a multiple of a number."""
        return e.value % of == 0 if isinstance(e, Const) else isinstance(e, Var) and self.multiples.get(e, 1) % of == 0

    # ------------------------------------------------------------ parameters

    def scalar(self, s: Scalar) -> Var:
        if s not in self.inputs:
            self.inputs[s] = Var(self.fresh("n" if s.elem is Elem.I64 else "s"), s.elem)
        found = self.inputs[s]
        assert isinstance(found, Var)
        return found

    def buffer(self, view: View) -> Buffer:
        if view.tensor in self.made:
            return self.made[view.tensor]
        if view not in self.inputs:
            name = self.fresh("x")
            self.inputs[view] = Buffer(name, view.tensor.elem, tuple(self.extent(n) for n in view.shape))
        found = self.inputs[view]
        assert isinstance(found, Buffer)
        return found

    def extent(self, e: Expr) -> KExpr:
        """An expression over constants and scalars, which stands wherever it is used: it is no value of some scope."""
        match e.op:
            case "const":
                return Const(e.data, e.elem)
            case "scalar":
                return self.scalar(e.data)
            case _:
                return op(e.op, *map(self.extent, e.args), elem=e.elem)

    # ------------------------------------------------------------ expressions

    def emit(self, e: Expr, scope: Scope) -> KExpr:
        """The kernel's expression for e at the end of a scope, with whatever it needs emitted before."""
        if e not in self.needs:
            self.learn([e])
        if e.depth > LEVELS and e not in self.home(e, scope).memo:
            for part in e.below:
                if part.depth % LEVELS == 0:
                    self.within(part, scope)
        return self.within(e, scope)

    def home(self, e: Expr, scope: Scope) -> Scope:
        """The outermost scope in which an expression may be bound."""
        needs, memory = self.needs[e], self.memory[e]
        while scope.parent is not None and not scope.binds(needs) and not (memory and scope.guard):
            self.moved += memory and scope.optional
            scope = scope.parent
        return scope

    def within(self, e: Expr, scope: Scope) -> KExpr:
        """The same of an expression of few levels, or of which what lies deeper is bound."""
        if e.op == "load" and e.data.tensor in self.variables:
            return self.variables[e.data.tensor]
        home = self.home(e, scope)
        if e in home.memo:
            return home.memo[e]
        match e.op:
            case "const":
                return Const(e.data, e.elem)
            case "axis":
                return home.lookup(e.data)
            case "acc":
                return home.acc(e.data)
            case "scalar":
                return self.scalar(e.data)
            case "load":
                guard = None if e.guard is None else self.within(e.guard, home)
                indices = tuple([self.within(a, home) for a in e.indices])
                value: KExpr = Load(self.buffer(e.data), self.seated(e.data.tensor, indices), guard)
            case "apply":
                value = Apply(str(e.data), e.elem, tuple([self.argument(a, home) for a in e.args]))
            case _:
                value = op(e.op, *[self.within(a, home) for a in e.args], elem=e.elem)
        if is_arithmetic(e) or (home is scope and self.uses[e] == 1 and e.depth % LEVELS):
            return value
        var = Var(self.fresh("t"), e.elem)
        home.body.append(Let(var, value))
        home.memo[e] = var
        return var

    def argument(self, e: Expr, scope: Scope) -> KExpr | Buffer:
        if e.op == "whole":
            tensor: Tensor = e.data
            return self.buffer(View(tensor, tensor.shape))
        return self.within(e, scope)

    # ------------------------------------------------------------ statements

    def loop(
        self,
        scope: Scope,
        base: str,
        start: KExpr,
        stop: KExpr,
        fill: Callable[[Scope, Var], None],
        *,
        kind: Kind = Kind.SERIAL,
        step: int = 1,
        width: int = 0,
        work: Callable[[], KExpr] | None = None,
    ) -> None:
        """A loop at the end of a scope; `fill` writes its body, given the variable. Nothing is made of a loop that never runs. With
        `work`, what an iteration costs, its iterations may run at once: it is parallel if no loop is around.
        """
        if isinstance(start, Const) and isinstance(stop, Const) and start.value >= stop.value:
            return
        var = Var(self.fresh(base))
        inner = Scope(scope, optional=not (isinstance(start, Const) and isinstance(stop, Const)), looped=True)
        fill(inner, var)
        cost = work() if work is not None and not scope.is_looped else None
        if cost is not None and _is_small(start, stop, step, cost):
            cost = None
        kind = kind if cost is None else Kind.PARALLEL
        scope.body.append(For(var, start, stop, tuple(inner.body), kind, step, width, cost))

    def guarded(self, scope: Scope, extents: Sequence[Expr], fill: Callable[[Scope], None]) -> None:
        """Loops over extents that may be 0: what reads memory is moved out of them no further than here, under a condition."""
        unknown = [n for n in extents if n.value is None]
        inner = Scope(scope, guard=bool(unknown))
        before = self.moved
        fill(inner)
        if unknown and self.moved > before:
            cond: KExpr | None = None
            for n in unknown:
                positive = op("gt", self.emit(n, scope), const(0))
                cond = positive if cond is None else op("and", cond, positive)
            assert cond is not None
            scope.body.append(If(cond, tuple(inner.body)))
        else:
            scope.body.extend(inner.body)


def _is_small(start: KExpr, stop: KExpr, step: int, cost: KExpr) -> bool:
    """Whether a loop is known to cost less than two threads are worth."""
    if not (isinstance(start, Const) and isinstance(stop, Const) and isinstance(cost, Const)):
        return False
    return (int(stop.value) - int(start.value)) // step * int(cost.value) < 4 * GRAIN


def is_arithmetic(e: Expr) -> bool:
    """Index arithmetic, which costs nothing in an address."""
    return e.elem is Elem.I64 and e.op in ("add", "sub", "mul")


def plus(a: KExpr, b: KExpr) -> KExpr:
    """a + b of indices, folded."""
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) + int(b.value))
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    return op("add", a, b)


def minus(a: KExpr, b: KExpr) -> KExpr:
    """a - b, folded; (b + c) - b = c."""
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) - int(b.value))
    if isinstance(a, Op) and a.op == "add" and a.args[0] == b:
        return a.args[1]
    return a if isinstance(b, Const) and b.value == 0 else op("sub", a, b)


def times(a: KExpr, b: KExpr) -> KExpr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) * int(b.value))
    if isinstance(a, Const) and a.value == 1:
        return b
    return a if isinstance(b, Const) and b.value == 1 else op("mul", a, b)


def rounded_down(n: KExpr, to: int) -> KExpr:
    """The greatest multiple that is not more than an extent."""
    if isinstance(n, Const):
        return const(int(n.value) // to * to)
    return op("mul", op("floordiv", n, const(to)), const(to))

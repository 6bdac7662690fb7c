"""The typed AST -> SSA in its first form: control flow is blocks, variables are still read and written (`get`, `set`).

What becomes of the source:

  a struct or tuple            its leaves, in signatures too
  an immutable local           the values it was bound to
  a `var`                      one variable a leaf, read by `get`, written by `set`
  an assignment to a part      `get`, `update` of one leaf, `set`
  `if`                         two branches that pass their values to the parameters of the block behind
  `while`, `for`               a header, a body, a latch, an exit
  a comprehension, reduction   `tabulate` or `reduce` with a region
  whatever can stop            a `check`; all other instructions are total
  a dimension term             arithmetic on `dim` instructions and `i64` values in scope (`lower_state.py`)

Worked example:

  fn f(n: i64) -> i64 {            entry(%n):
    var s = 0                        set %0 {var = "s"};  jump head(%0)
    for i in 0..n { s += i }       head(%i):    branch (lt %i, %n), body, exit
    s                              body:        set (add (get {var = "s"}), %i) {var = "s"};  jump latch
  }                                latch:       jump head(add %i, %1)
                                   exit:        return (get {var = "s"})

`construct` then removes the variables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tlc.frontend import typed as t
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.source import Span
from tlc.frontend.types import StructType, TensorType, TupleType
from tlc.frontend.types import Type as SourceType
from tlc.ssa.edit import remove_unreachable
from tlc.ssa.ir import BOOL, STR, Block, Function, Module, Region, Type, Value, branch, jump, ret, unreachable
from tlc.ssa.lower_loops import for_loop, while_loop
from tlc.ssa.lower_reduce import lower_reduce
from tlc.ssa.lower_state import Diverged, Leaves, State, leaves_of, ssa_type, ssa_types, zero_of
from tlc.ssa.rules import attributes, make_objectives, settle

ROWS_BY_SELECT = 16  # a literal of up to so many rows is one `tabulate` that selects; beyond, a chain of updates

MESSAGES = {
    "floordiv": "division by zero",
    "mod": "remainder of a division by zero",
    "index": "index {0} is out of range for a dimension of {1}",
    "slice": "slice {0}..{1} is out of range for a dimension of {2}",
    "extent": "a dimension cannot be negative, and this one is {0}",
}


def lower(program: t.Program) -> Module:
    """Every function of the program. Raises CompileError for what is not supported yet."""
    module = Module()
    for f in program.functions.values():
        module.add(FunctionLowering(program).function(f))
    make_objectives(module)
    settle(module)
    return module


class FunctionLowering(State):
    """One function. `expr` gives the leaves of an expression's value; `stmt` gives nothing."""

    def __init__(self, program: t.Program) -> None:
        super().__init__()
        self.program = program

    def function(self, f: t.Function) -> Function:
        leaves = {p: tuple(self.block.add_param(ssa_type(l), p.name) for l in leaves_of(p.type)) for p in f.params}
        for p, values in leaves.items():
            self.declare(p, values)
        for p, values in leaves.items():
            self.learn(p.type, values)
        try:
            values = self.expr(f.body)
            self.end(ret(values, f.span))
        except Diverged:
            pass
        remove_unreachable(self.region)
        return Function(f.ref.name, self.region, ssa_types(f.result), f.span)

    # ------------------------------------------------------------ expressions

    def expr(self, e: t.Expr) -> Leaves:
        values = self._expr(e)
        scalar = isinstance(e.type, TensorType) and not e.type.dims  # as most are; there is nothing to learn from one
        if len(values) != (1 if scalar else len(leaves_of(e.type))):
            raise InternalError(f"{type(e).__name__} of type {e.type} has {len(values)} leaves", f"lower, at {e.span}")
        if not scalar:
            self.learn(e.type, values)
        return values

    def scalar(self, e: t.Expr) -> Value:
        (value,) = self.expr(e)
        return value

    def _expr(self, e: t.Expr) -> Leaves:
        match e:
            case t.Const():
                return (self.const(e.value, ssa_types(e.type)[0], e.span),)
            case t.Read():
                return self.read(e.local, e.span)
            case t.DimValue():
                return (self.dim(e.dim, e.span),)
            case t.Op():
                return (self._op(e),)
            case t.Call():
                return self._call(e)
            case t.Grad():
                return self._grad(e)
            case t.Jvp():
                return self._jvp(e)
            case t.StopGrad():
                return tuple(self.emit("stop_grad", (v,), (v.type,), span=e.span)[0] for v in self.expr(e.arg))
            case t.Extern():
                return self._extern(e)
            case t.Foreign():
                return self.emit("foreign", self._args(e.args), ssa_types(e.type), {"symbol": e.symbol}, span=e.span)
            case t.Comp():
                return self._comp(e)
            case t.Reduce():
                return lower_reduce(self, e)
            case t.Index():
                return self._index(e)
            case t.Reshape():
                return self._reshape(e)
            case t.Rows():
                return self._rows(e)
            case t.Struct():
                return self._args(e.fields)
            case t.Tuple():
                return self._args(e.items)
            case t.Part():
                start, end = part_slice(e.base.type, e.index)
                return self.expr(e.base)[start:end]
            case t.If():
                return self._if(e)
            case t.Do():
                return self._do(e)
            case t.Cast():
                return self._cast(e)
            case t.Format():
                return self._format(e)
        raise InternalError(f"no lowering of {type(e).__name__}", f"lower, at {e.span}")

    def _args(self, args: tuple[t.Expr, ...]) -> Leaves:
        return tuple(v for a in args for v in self.expr(a))

    def _op(self, e: t.Op) -> Value:
        args = tuple(self.scalar(a) for a in e.args)
        if e.checked:
            zero = self.const(zero_of(args[1].type.elem), args[1].type, e.span)
            self.check("division", self.op("ne", args[1], zero, type=BOOL, span=e.span), MESSAGES[e.op], span=e.span)
        return self.op(e.op, *args, type=ssa_types(e.type)[0], span=e.span)

    def _call(self, e: t.Call) -> Leaves:
        """A callee with a rule for its derivative keeps that; it is not run again."""
        callee, args = self.program.functions[e.callee.name], self._args(e.args)
        results = ssa_types(callee.result)
        differentiable = any(v.type.elem.is_real for v in args) and any(x.elem.is_real for x in results)
        if differentiable and (e.again or callee.rule is not None):
            rule = callee.rule.name if callee.rule is not None else None
            return self.emit("call_vjp", args, results, attributes(e.callee.name, rule), span=e.span)
        return self.emit("call", args, results, {"callee": e.callee.name}, span=e.span)

    def _grad(self, e: t.Grad) -> Leaves:
        """The instruction gives a gradient for each real leaf; the others keep the primal's value."""
        args = [self.expr(a) for a in e.args]
        starts = [sum(map(len, args[:k])) for k in range(len(args))]
        wanted = [(starts[k] + j, v) for k in e.wrt for j, v in enumerate(args[k])]
        positions = tuple(p for p, v in wanted if v.type.elem.is_real)
        operands = tuple(v for a in args for v in a)
        head = ssa_types(self.program.functions[e.callee.name].result) if e.value else ()
        types = head + tuple(operands[p].type for p in positions)
        results = self.emit("grad", operands, types, {"callee": e.callee.name, "wrt": positions, "value": e.value}, span=e.span)
        gradients = dict(zip(positions, results[len(head) :], strict=True))
        return results[: len(head)] + tuple(gradients.get(p, v) for p, v in wanted)

    def _jvp(self, e: t.Jvp) -> Leaves:
        """The leaves of the value, then those of its tangent."""
        args = [self.expr(a) for a in e.args]
        starts = [sum(map(len, args[:k])) for k in range(len(args))]
        positions = tuple(starts[k] + j for k in e.wrt for j, v in enumerate(args[k]) if v.type.elem.is_real)
        tangents = [v for x in e.tangents for v in self.expr(x) if v.type.elem.is_real]
        value = ssa_types(self.program.functions[e.callee.name].result)
        types = (*value, *(x for x in value if x.elem.is_real))
        operands = (*(v for a in args for v in a), *tangents)
        results = self.emit("jvp", operands, types, {"callee": e.callee.name, "wrt": positions}, span=e.span)
        rest = iter(results[len(value) :])
        return (*results[: len(value)], *(next(rest) if v.type.elem.is_real else v for v in results[: len(value)]))

    def _if(self, e: t.If) -> Leaves:
        cond = self.scalar(e.cond)
        then, other, join = Block("then"), Block("else"), Block("join")
        results = tuple(join.add_param(x) for x in ssa_types(e.type))
        self.end(branch(cond, then, other, span=e.span))
        reached = False
        for block, side in ((then, e.then), (other, e.other)):
            self.start(block)
            with self.scope():
                try:
                    values = self.expr(side)
                    self.end(jump(join, values, side.span))
                    reached = True
                except Diverged:
                    pass
        if not reached:
            raise Diverged
        self.start(join)
        return results

    def _do(self, e: t.Do) -> Leaves:
        for s in e.stmts:
            self.stmt(s)
        if e.value is not None:
            return self.expr(e.value)
        if leaves_of(e.type):  # the checker knows that its end is never reached
            self.end(unreachable(e.span))
            raise Diverged
        return ()

    # ------------------------------------------------------------ tensors

    def bounds(self, r: t.Range) -> tuple[Value | None, Value]:
        """The offset of a range (None for zero) and its extent, `max(hi - lo, 0)`."""
        zero = isinstance(r.lo, t.Const) and r.lo.value == 0
        lo = None if zero else self.scalar(r.lo)
        hi = self.scalar(r.hi)
        length = hi if lo is None else self.op("sub", hi, lo, span=r.hi.span)
        return lo, self.op("max", length, self.const(0, span=r.hi.span), span=r.hi.span)

    def index_region(self, ranges: tuple[t.Range, ...], lows: list[Value | None], span: Span, body: Callable[[], Leaves]) -> Region:
        """A region over these ranges: each index is its parameter plus the range's low end."""

        def build(params: Leaves) -> Leaves:
            for r, lo, p in zip(ranges, lows, params, strict=True):
                self.declare(r.local, (p if lo is None else self.op("add", lo, p, span=r.lo.span),))
            return body()

        return self.nested(tuple(r.local.name for r in ranges), span, build)

    def _comp(self, e: t.Comp) -> Leaves:
        bounds = [self.bounds(r) for r in e.ranges]
        region = self.index_region(e.ranges, [lo for lo, _ in bounds], e.body.span, lambda: self.expr(e.body))
        return self.emit("tabulate", tuple(n for _, n in bounds), ssa_types(e.type), regions=(region,), span=e.span)

    def _index(self, e: t.Index) -> Leaves:
        base = self.expr(e.base)
        indices = tuple(self.scalar(i) for i in e.indices)
        self.check_indices(base, indices, e.checked, [i.span for i in e.indices])
        types = ssa_types(e.type)
        return tuple(self.emit("index", (b, *indices), (x,), span=e.span)[0] for b, x in zip(base, types, strict=True))

    def check_indices(self, base: Leaves, indices: Leaves, checked: tuple[bool, ...], spans: list[Span], first: int = 0) -> None:
        """The leading dimensions of all leaves are the same: one check an index serves them all. `first` is the axis of the first index."""
        for axis, (index, wanted, span) in enumerate(zip(indices, checked, spans, strict=True), first):
            if wanted and base:
                extent = self.extent(base[0], axis, span)
                self.check("index", self.in_range(index, extent, span), MESSAGES["index"], index, extent, span=span)

    def _extern(self, e: t.Extern) -> Leaves:
        """A tensor whose extents the type knows gets them from there: no later stage sees the shapes of what a service gives."""
        results = self.emit("extern", self._args(e.args), ssa_types(e.type), {"name": e.name}, span=e.span)
        shaped: list[Value] = []
        for leaf, value in zip(leaves_of(e.type), results, strict=True):
            if leaf.dims and all(map(self.knows, leaf.dims)):
                extents = [self.dim(d, e.span) for d in leaf.dims]
                shaped += self.emit("reshape", (value, *extents), (value.type,), span=e.span)
            else:
                shaped.append(value)
        return tuple(shaped)

    def _reshape(self, e: t.Reshape) -> Leaves:
        (base,) = self.expr(e.base)
        (target,) = leaves_of(e.type)
        extents = tuple(self.dim(d, e.span) for d in target.dims)
        if e.checked:
            found = self._product([self.extent(base, k, e.span) for k in range(base.type.rank)], e.span)
            wanted = self._product(list(extents), e.span)
            said = ", ".join("-1" if k == e.found else str(d) for k, d in enumerate(target.dims))
            message = f"cannot reshape {{0}} elements to `{target.elem}[{said}]`, which has {{1}}"
            if e.found is not None:
                message = f"cannot reshape {{0}} elements to `{target.elem}[{said}]`: they do not divide evenly"
            self.check("reshape", self.op("eq", found, wanted, type=BOOL, span=e.span), message, found, wanted, span=e.span)
        return self.emit("reshape", (base, *extents), (ssa_type(target),), span=e.span)

    def _product(self, factors: list[Value], span: Span) -> Value:
        total = factors[0] if factors else self.const(1, span=span)
        for f in factors[1:]:
            total = self.op("mul", total, f, span=span)
        return total

    def _rows(self, e: t.Rows) -> Leaves:
        items = [self.expr(i) for i in e.items]
        return tuple(self._stack(leaf, e.span) for leaf in zip(*items, strict=True))

    def _stack(self, items: Leaves, span: Span) -> Value:
        """The values along a new first dimension."""
        first = items[0]
        result = Type(first.type.elem, first.type.rank + 1)
        scalar = Type(first.type.elem)
        count = self.const(len(items), span=span)
        extents = (count, *(self.extent(first, k, span) for k in range(first.type.rank)))
        names = ("row", *(f"j{k}" for k in range(first.type.rank)))

        def element(item: Value, inner: Leaves) -> Value:
            return self.emit("index", (item, *inner), (scalar,), span=span)[0] if inner else item

        def select(params: Leaves) -> Leaves:
            row, inner = params[0], params[1:]
            chosen = element(items[-1], inner)
            for k in reversed(range(len(items) - 1)):
                here = self.op("eq", row, self.const(k, span=span), type=BOOL, span=span)
                chosen = self.op("select", here, element(items[k], inner), chosen, type=chosen.type, span=span)
            return (chosen,)

        def zero(_: Leaves) -> Leaves:
            return (self.const(zero_of(first.type.elem), scalar, span),)

        if len(items) <= ROWS_BY_SELECT:
            return self.emit("tabulate", extents, (result,), regions=(self.nested(names, span, select),), span=span)[0]
        (stack,) = self.emit("tabulate", extents, (result,), regions=(self.nested(names, span, zero),), span=span)
        for k, item in enumerate(items):
            (stack,) = self.emit("update", (stack, self.const(k, span=span), item), (result,), span=span)
        return stack

    def _cast(self, e: t.Cast) -> Leaves:
        """Dimensions that the argument's type does not already show are compared when the program runs."""
        values = self.expr(e.arg)
        for value, found, wanted in zip(values, leaves_of(e.arg.type), leaves_of(e.type), strict=True):
            axes = [k for k, (f, w) in enumerate(zip(found.dims, wanted.dims, strict=True)) if f != w]
            self.learn(TensorType(wanted.elem, wanted.dims), (value,))
            axes = [k for k in axes if not self.is_extent(wanted.dims[k], value, k)]
            if not axes:
                continue
            shape = [self.extent(value, k, e.span) for k in range(value.type.rank)]
            asked = [self.dim(wanted.dims[k], e.span) for k in axes]
            same = self.dims_agree([shape[k] for k in axes], asked, e.span)
            holes = dict(zip(axes, range(len(shape), len(shape) + len(asked)), strict=True))
            is_shape = ", ".join(f"{{{k}}}" for k in range(len(shape)))
            must = ", ".join(f"{{{holes[k]}}}" if k in holes else f"{{{k}}}" for k in range(len(shape)))
            message = f"a value of shape [{is_shape}] is not `{wanted}`, which is [{must}] here"
            if not isinstance(e.type, TensorType):  # one that has no elements stands for a dimension that no field determines
                is_here, must_be = f"[{is_shape}]", f"[{must}]"
                if wanted.dims[-1].value == 0:
                    is_here, must_be = f"{{{axes[0]}}}", f"{{{holes[axes[0]]}}}"
                message = f"the value is no `{e.type}`: a part is {is_here} where it must be {must_be}"
            self.check("cast", same, message, *shape, *asked, span=e.span)
        return values

    # ------------------------------------------------------------ text

    def _format(self, e: t.Format) -> Leaves:
        template: list[object] = []
        values: list[Value] = []
        for piece in e.pieces:
            if isinstance(piece, str):
                template.append(piece)
            else:
                values += self.expr(piece.value)
                template.append(("hole", piece.spec, layout(piece.value.type)))
        return self.emit("format", tuple(values), (STR,), {"template": tuple(template)}, span=e.span)

    # ------------------------------------------------------------ statements

    def stmt(self, s: t.Stmt) -> None:
        match s:
            case t.Let():
                self.declare(s.local, self.expr(s.value))
            case t.Assign():
                self._assign(s)
            case t.Eval():
                self.expr(s.expr)
            case t.While():
                while_loop(self, s)
            case t.For():
                for_loop(self, s)
            case t.Break() | t.Continue():
                loop = self.loops[-1]
                loop.broken |= isinstance(s, t.Break)
                self.end(jump(loop.exit if isinstance(s, t.Break) else loop.latch, (), s.span))
                raise Diverged
            case t.Return():
                values = () if s.value is None else self.expr(s.value)
                for loop in reversed(self.loops):
                    if loop.progress is not None:
                        self.emit("progress_end", (loop.progress,), span=s.span)
                self.end(ret(values, s.span))
                raise Diverged
            case t.Fail():
                message = self.scalar(s.message)
                self.check(s.kind, self.const(False, BOOL, s.span), "{0}", message, span=s.span)
                self.end(unreachable(s.span))
                raise Diverged
            case t.CheckRange():
                lo, hi, extent = self.scalar(s.lo), self.scalar(s.hi), self.scalar(s.extent)
                ends = ((self.const(0, span=s.span), lo), (lo, hi), (hi, extent))
                inside = self.all([self.op("le", a, b, type=BOOL, span=s.span) for a, b in ends], s.span)
                self.check("slice", inside, MESSAGES["slice"], lo, hi, extent, span=s.span)
            case t.CheckExtent():
                extent = self.scalar(s.extent)
                natural = self.op("le", self.const(0, span=s.span), extent, type=BOOL, span=s.span)
                self.check("extent", natural, MESSAGES["extent"], extent, span=s.span)
            case t.Print():
                self.emit("print", (self.scalar(s.text),), span=s.span)
            case _:
                raise InternalError(f"no lowering of {type(s).__name__}", f"lower, at {s.span}")

    def _assign(self, s: t.Assign) -> None:
        """The value first, then the path. Parts narrow the leaves; the indices of all steps together lead every leaf that is left."""
        new = self.expr(s.value)
        variables, types, at = self.leaves(s.local), ssa_types(s.local.type), s.local.type
        start, end = 0, len(variables)
        indices: Leaves = ()
        for step in s.path:
            if isinstance(step, t.PartStep):
                a, b = part_slice(at, step.index)
                start, end = start + a, start + b
                at = part_type(at, step.index)
            else:
                more = tuple(self.scalar(i) for i in step.indices)
                if any(step.checked) and start < end:
                    base = self.get(variables[start], types[start], s.span)
                    self.check_indices((base,), more, step.checked, [i.span for i in step.indices], len(indices))
                indices += more
                at = without_leading(at, len(more))
        for variable, kind, value in zip(variables[start:end], types[start:end], new, strict=True):
            if indices:
                old = self.get(variable, kind, s.span)
                (value,) = self.emit("update", (old, *indices, value), (kind,), span=s.span)  # noqa: PLW2901
            self.set(variable, value, s.span)


# ---------------------------------------------------------------- types of parts


@cache
def part_type(type: SourceType, index: int) -> SourceType:
    """The type of a field of a struct (with the dimensions of a struct array) or of an item of a tuple."""
    if isinstance(type, TupleType):
        return type.items[index]
    assert isinstance(type, StructType)
    return t.field_type(type, index)


@cache
def part_slice(type: SourceType, index: int) -> tuple[int, int]:
    """Which leaves of a value are those of a part."""
    counts = [len(leaves_of(part_type(type, k))) for k in range(index + 1)]
    return sum(counts[:-1]), sum(counts)


def without_leading(type: SourceType, count: int) -> SourceType:
    """The type of an element of a tensor or of a struct array."""
    if isinstance(type, TensorType):
        return TensorType(type.elem, type.dims[count:])
    assert isinstance(type, StructType)
    return StructType(type.decl, type.args, type.dims[count:])


def layout(type: SourceType) -> object:
    """How the leaves of a value are arranged in print: see `format` in `ssa/ops.py`."""
    if isinstance(type, TupleType):
        return ("tuple", tuple(map(layout, type.items)))
    if isinstance(type, StructType):
        names = tuple("" if f.hidden else f.name for f in type.decl.fields)
        return ("struct", type.decl.name, names, tuple(map(layout, t.field_types(type))))
    return "leaf"

"""The verifier of kernels: `verify(kernel)` raises `InternalError` with the kernel's text at the first broken property.

 1. Names of variables and buffers are unique in the kernel; a variable or buffer is used only where it is in scope, and with
    the element type, shape and space with which it was bound.
 2. A buffer has as many indices as its rank, each an `i64`. Global buffers are parameters, of shapes over constants and
    scalar parameters; local ones are declared, of constant positive extents.
 3. An op has a row in `frontend/ops.py`; number and types of its operands and its result follow that row. With
    `expanded=True` no op is elementary, but for those that processors have as instructions.
 4. A stored value has the buffer's element type, a condition is a bool. Only outputs and local buffers are stored to.
 5. Bounds of loops are `i64`, steps positive. An unroll loop has constant bounds. A vector loop has a positive width, step 1, and a body of
    lets, stores and nested unroll loops or conditions that hold no other loop; if its bounds are constant, they span at most the width.
    A parallel loop stands in no other loop, says what an iteration costs, uses no local buffer from outside, and is in no kernel
    that can fail.
 6. Indices of local buffers load nothing. (Where they become constants when unroll loops are written out and vector loops are vectors, the
    buffer can live in registers, else on the stack.)
 7. `may_alias` names positions of an output that is a result and an input buffer of one element type, each at most once.
 8. The guard of a load is a bool, and its buffer is global.
 9. A kernel with block loops is for a GPU: see `tensor/kernel/grid.py`. No other has thread loops, shared buffers, barriers, exchanges,
    matrices of a warp or copies to shared memory.
"""

from __future__ import annotations

from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.types import Elem
from tlc.tensor.kernel import grid
from tlc.tensor.kernel.ir import (
    Apply,
    Barrier,
    Buffer,
    CommitCopies,
    Const,
    CopyAsync,
    Declare,
    Exchange,
    Expr,
    For,
    If,
    Kernel,
    Kind,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Op,
    Space,
    Stmt,
    Store,
    Var,
    WaitCopies,
    expressions,
    subexpressions,
)
from tlc.tensor.kernel.text import print_expr, print_kernel


def verify(kernel: Kernel, expanded: bool = False) -> None:
    """Raise `InternalError` unless the kernel has every property of this module's docstring."""
    _Verifier(kernel, expanded).run()


class _Verifier:
    def __init__(self, kernel: Kernel, expanded: bool) -> None:
        self.kernel = kernel
        self.expanded = expanded
        self.seen: set[str] = set()
        self.scope: dict[str, Var | Buffer] = {}
        self.depth = 0  # loops around

    def fail(self, message: str) -> InternalError:
        return InternalError(f"{message}\n{print_kernel(self.kernel)}", f"kernel {self.kernel.name}")

    def check(self, ok: bool, message: str) -> None:
        """For what a kernel has few of: a message costs more than to look."""
        if not ok:
            raise self.fail(message)

    def run(self) -> None:
        k = self.kernel
        for p in k.inputs:
            if isinstance(p, Var):
                self.bind(p)
        for b in k.buffers:
            self.check(b.space is Space.GLOBAL, f"parameter `{b.name}` is not global")
            for e in b.shape:
                self.expr(e)
                self.check(e.elem is Elem.I64, f"an extent of `{b.name}` is not an i64")
                self.check(all(not isinstance(x, Load | Apply) for x in subexpressions(e)), f"an extent of `{b.name}` loads")
            self.bind(b)
        used: set[int] = set()
        for o, i in k.may_alias:
            self.check(o < len(k.results) and i < len(k.inputs), f"alias({o}, {i}) is out of range")
            source = k.inputs[i]
            self.check(isinstance(source, Buffer) and source.elem is k.outputs[o].elem, f"alias({o}, {i}) joins different element types")
            self.check(i not in used and ~o not in used, f"alias({o}, {i}) repeats a position")
            used |= {i, ~o}
        self.gpu = grid.is_gpu(k)
        self.body(k.body, vector=False)
        if self.gpu:
            try:
                grid.check(k)
            except InternalError as error:
                raise self.fail(error.message) from None

    def bind(self, x: Var | Buffer) -> None:
        self.check(x.name not in self.seen, f"`{x.name}` is bound twice")
        self.seen.add(x.name)
        self.scope[x.name] = x

    # ---------------------------------------------------------------- statements

    def body(self, body: tuple[Stmt, ...], vector: bool) -> None:
        before = dict(self.scope)
        for s in body:
            self.stmt(s, vector)
        self.scope = before

    def stmt(self, s: Stmt, vector: bool) -> None:
        match s:
            case For():
                self.loop(s, vector)
            case Let():
                self.expr(s.value)
                self.check(s.value.elem is s.var.elem, f"`{s.var.name}` is bound to a {s.value.elem}")
                self.bind(s.var)
            case Store():
                self.access(s.buffer, s.indices)
                self.expr(s.value)
                self.check(s.value.elem is s.buffer.elem, f"a {s.value.elem} is stored to `{s.buffer.name}`")
                writable = s.buffer.space is not Space.GLOBAL or s.buffer in self.kernel.outputs
                self.check(writable, f"`{s.buffer.name}` is stored to and is not an output")
            case If():
                self.expr(s.cond)
                self.check(s.cond.elem is Elem.BOOL, "a condition is not a bool")
                self.body(s.then, vector)
                self.body(s.other, vector)
            case Declare():
                self.check(not vector, f"`{s.buffer.name}` is declared in a vector loop")
                space = s.buffer.space
                self.check(space is not Space.GLOBAL, f"`{s.buffer.name}` is declared and global")
                self.check(space is Space.LOCAL or self.gpu, f"`{s.buffer.name}` is shared in a kernel without blocks")
                positive = all(isinstance(e, Const) and e.value > 0 for e in s.buffer.shape)
                self.check(positive, f"{space.value} `{s.buffer.name}` has an extent that is not a positive constant")
                self.bind(s.buffer)
            case Barrier():
                self.check(self.gpu, "a barrier stands in a kernel without blocks")
            case Exchange():
                self.check(self.gpu, f"the exchange `{s.var.name}` stands in a kernel without blocks")
                self.expr(s.value)
                self.expr(s.lane)
                self.check(s.lane.elem is Elem.I64 and s.var.elem is s.value.elem, f"the exchange `{s.var.name}` has other types")
                self.bind(s.var)
            case LoadMatrices() | Mma():
                self.check(self.gpu, "matrices are loaded or multiplied in a kernel without blocks")
                for e in expressions(s):
                    self.expr(e)
            case CopyAsync() | CommitCopies() | WaitCopies():
                self.check(self.gpu and not vector, "copies to shared memory stand in a kernel without blocks, or in a vector loop")
                for e in expressions(s):
                    self.expr(e)

    def loop(self, s: For, vector: bool) -> None:
        self.expr(s.start)
        self.expr(s.stop)
        name = s.var.name
        self.check(s.var.elem is Elem.I64 and s.start.elem is Elem.I64 and s.stop.elem is Elem.I64, f"loop `{name}` is not over i64")
        self.check(s.step >= 1, f"loop `{name}` has step {s.step}")
        fixed = isinstance(s.start, Const) and isinstance(s.stop, Const)
        match s.kind:
            case Kind.UNROLL:
                self.check(fixed, f"unroll loop `{name}` has bounds that are not constant")
            case Kind.VECTOR:
                self.check(s.width >= 1 and s.step == 1, f"vector loop `{name}` has width {s.width} and step {s.step}")
                self.check(not vector, f"vector loop `{name}` stands in a vector loop")
                if isinstance(s.start, Const) and isinstance(s.stop, Const):
                    self.check(s.stop.value - s.start.value <= s.width, f"vector loop `{name}` spans more than its width")
            case _:
                self.check(not vector, f"loop `{name}` stands in a vector loop")
                self.check(s.kind is not Kind.THREAD or self.gpu, f"thread loop `{name}` stands in a kernel without blocks")
        before = dict(self.scope)
        if s.kind is Kind.PARALLEL:
            self.check(not self.depth and not self.kernel.can_fail, f"parallel loop `{name}` stands in a loop or may fail")
            self.check(s.work is not None and s.work.elem is Elem.I64, f"parallel loop `{name}` does not say what it costs")
            self.scope = {n: b for n, b in before.items() if not isinstance(b, Buffer) or b.space is Space.GLOBAL}
        if s.work is not None:
            self.expr(s.work)
            self.check(s.kind is Kind.PARALLEL, f"loop `{name}` is not parallel and says what it costs")
        self.bind(s.var)
        self.depth += 1
        self.body(s.body, vector or s.kind is Kind.VECTOR)
        self.depth -= 1
        self.scope = before

    # ---------------------------------------------------------------- expressions

    def is_bound(self, x: Var | Buffer) -> bool:
        """Whether a variable or buffer is in scope as it is used."""
        bound = self.scope.get(x.name)
        return bound is x or bound == x

    def access(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        if not self.is_bound(b):
            raise self.fail(f"buffer `{b.name}` is not in scope as it is used")
        if len(indices) != len(b.shape):
            raise self.fail(f"`{b.name}` has rank {len(b.shape)} and {len(indices)} indices")
        for i in indices:
            self.expr(i)
            if i.elem is not Elem.I64:
                raise self.fail(f"an index of `{b.name}` is not an i64: {print_expr(i)}")
            if b.space is Space.LOCAL and any(isinstance(x, Load | Apply) for x in subexpressions(i)):
                raise self.fail(f"an index of local `{b.name}` loads: {print_expr(i)}")

    def expr(self, e: Expr) -> None:
        match e:
            case Op():
                for a in e.args:
                    self.expr(a)
                self.op(e)
            case Const():
                kind = bool if e.elem is Elem.BOOL else float if e.elem.is_real else int
                if type(e.value) is not kind:
                    raise self.fail(f"the constant {e.value!r} is not a {e.elem}")
            case Var():
                if not self.is_bound(e):
                    raise self.fail(f"`{e.name}: {e.elem}` is not in scope")
            case Load():
                self.access(e.buffer, e.indices)
                if e.guard is not None:
                    self.expr(e.guard)
                    if e.guard.elem is not Elem.BOOL or e.buffer.space is not Space.GLOBAL:
                        raise self.fail(f"a guard is a bool, for a load of a global buffer: {print_expr(e)}")
            case Apply():
                for x in e.args:
                    if not isinstance(x, Buffer):
                        self.expr(x)
                    elif not (self.is_bound(x) and x.space is Space.GLOBAL):
                        raise self.fail(f"`{x.name}` is not a global buffer in scope")

    def op(self, e: Op) -> None:
        row = SCALAR_OPS.get(e.op)
        if row is None:
            raise self.fail(f"`{e.op}` is not an op")
        if len(e.args) != row.arity:
            raise self.fail(f"`{e.op}` has {len(e.args)} operands")
        if self.expanded and row.elementary and not row.instruction:
            raise self.fail(f"`{e.op}` was not expanded")
        operands = e.args[1:] if e.op == "select" else e.args
        if e.op == "select" and e.args[0].elem is not Elem.BOOL:
            raise self.fail("the condition of a select is not a bool")
        takes = operands[0].elem
        for a in operands:
            if a.elem is not takes:
                raise self.fail(f"operands of different types: {print_expr(e)}")
        if takes not in row.takes:
            raise self.fail(f"`{e.op}` does not take a {takes}: {print_expr(e)}")
        if row.gives == "same" and e.elem is not takes:
            raise self.fail(f"the result is not a {takes}: {print_expr(e)}")
        if row.gives == "bool" and e.elem is not Elem.BOOL:
            raise self.fail(f"the result is not a bool: {print_expr(e)}")

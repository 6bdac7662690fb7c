"""Other names for the parameters of a kernel: kernels are compared under names that say nothing, and shown under those of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tlc.tensor.kernel.ir import (
    Apply,
    Barrier,
    Buffer,
    CommitCopies,
    CopyAsync,
    Declare,
    Exchange,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    LoadMatrices,
    Mma,
    Op,
    Stmt,
    Store,
    Var,
    WaitCopies,
    statements,
)


def renamed(kernel: Kernel, wanted: Mapping[str, str]) -> Kernel:
    """The kernel with parameters renamed as wanted, with a number behind what would otherwise be there twice."""
    bound = [x for x in statements(kernel.body) if isinstance(x, For | Let | Declare | Exchange)]
    taken = {x.buffer.name if isinstance(x, Declare) else x.var.name for x in bound}
    names: dict[str, str] = {}
    for p in kernel.parameters:
        base = wanted.get(p.name, p.name)
        name, k = base, 1
        while name in taken:
            k += 1
            name = f"{base}_{k}"
        taken.add(name)
        names[p.name] = name
    return _Renaming(names).kernel(kernel)


class _Renaming:
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.buffers: dict[int, Buffer] = {}  # renamed ones by the `id` of what is a parameter: its loads share it

    def kernel(self, k: Kernel) -> Kernel:
        self.buffers = {id(b): self.buffer(b) for b in k.buffers}
        inputs = tuple(self.buffer(p) if isinstance(p, Buffer) else self.var(p) for p in k.inputs)
        return replace(k, outputs=tuple(map(self.buffer, k.outputs)), inputs=inputs, body=self.body(k.body))

    def var(self, v: Var) -> Var:
        return Var(self.names[v.name], v.elem) if v.name in self.names else v

    def buffer(self, b: Buffer) -> Buffer:
        if b.name not in self.names:
            return b
        return self.buffers.get(id(b)) or replace(b, name=self.names[b.name], shape=tuple(map(self.expr, b.shape)))

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(self.stmt, body))

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For():
                work = None if s.work is None else self.expr(s.work)
                return For(s.var, self.expr(s.start), self.expr(s.stop), self.body(s.body), s.kind, s.step, s.width, work)
            case Let():
                return Let(s.var, self.expr(s.value))
            case Store():
                return Store(self.buffer(s.buffer), tuple(map(self.expr, s.indices)), self.expr(s.value))
            case If():
                return If(self.expr(s.cond), self.body(s.then), self.body(s.other))
            case Exchange():
                return replace(s, value=self.expr(s.value), lane=self.expr(s.lane))
            case LoadMatrices():
                return replace(s, into=self.load(s.into), row=self.load(s.row))
            case Mma():
                return Mma(self.load(s.acc), self.load(s.a), self.load(s.b))
            case CopyAsync():
                return CopyAsync(self.load(s.into), self.load(s.source))
            case Declare() | Barrier() | CommitCopies() | WaitCopies():
                return s

    def load(self, e: Load) -> Load:
        guard = None if e.guard is None else self.expr(e.guard)
        return Load(self.buffer(e.buffer), tuple(map(self.expr, e.indices)), guard)

    def expr(self, e: Expr) -> Expr:
        match e:
            case Op():
                return Op(e.op, e.elem, tuple(map(self.expr, e.args)))
            case Var():
                return self.var(e)
            case Load():
                return self.load(e)
            case Apply():
                return replace(e, args=tuple(self.buffer(a) if isinstance(a, Buffer) else self.expr(a) for a in e.args))
            case _:
                return e

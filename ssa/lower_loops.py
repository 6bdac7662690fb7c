"""Lowering of `while` and `for`.

A range by 1 or -1 counts in its own index; any other range, and one with a progress bar, counts its iterations
from 0 and computes `lo + count * step`, so that neither the count nor the index can pass the end of `i64`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tlc.frontend import typed as t
from tlc.frontend.source import Span
from tlc.ssa.ir import BOOL, I64, Block, Value, branch, jump
from tlc.ssa.lower_state import Diverged, Loop

if TYPE_CHECKING:
    from tlc.ssa.lower import FunctionLowering


def while_loop(fn: FunctionLowering, s: t.While) -> None:
    head, body, exit = Block("head"), Block("body"), Block("exit")
    forever = isinstance(s.cond, t.Const) and s.cond.value is True
    fn.end(jump(head, (), s.span))
    fn.start(head)
    loop = Loop(head, exit)
    with fn.scope():
        if forever:
            fn.end(jump(body, (), s.cond.span))
        else:
            fn.end(branch(fn.scalar(s.cond), body, exit, span=s.cond.span))
        _body(fn, loop, body, s.body)
    if forever and not loop.broken:
        raise Diverged
    fn.start(exit)


def for_loop(fn: FunctionLowering, s: t.For) -> None:
    lo, hi, step = fn.scalar(s.lo), fn.scalar(s.hi), fn.scalar(s.step)
    known = s.step.value if isinstance(s.step, t.Const) else None
    if s.label is not None or known not in (1, -1):
        _counted(fn, s, lo, hi, step, known)
        return
    head, body, latch, exit = Block("head"), Block("body"), Block("latch"), Block("exit")
    index = head.add_param(I64, s.local.name)
    fn.end(jump(head, (lo,), s.span))
    fn.start(head)
    inside = fn.op("lt" if known == 1 else "gt", index, hi, type=BOOL, span=s.span)
    fn.end(branch(inside, body, exit, span=s.span))
    with fn.scope():
        _body(fn, Loop(latch, exit), body, s.body, s.local, index)
    fn.start(latch)
    fn.end(jump(head, (fn.op("add", index, step, span=s.span),), s.span))
    fn.start(exit)


def _counted(fn: FunctionLowering, s: t.For, lo: Value, hi: Value, step: Value, known: object) -> None:
    count = _iterations(fn, lo, hi, step, known, s.span)
    progress: Value | None = None
    if s.label is not None:
        (progress,) = fn.emit("progress_begin", (fn.scalar(s.label), count), (I64,), span=s.span, names=("progress",))
    head, body, latch, exit = Block("head"), Block("body"), Block("latch"), Block("exit")
    k = head.add_param(I64, "count")
    zero, one = fn.const(0, span=s.span), fn.const(1, span=s.span)
    fn.end(jump(head, (zero,), s.span))
    fn.start(head)
    fn.end(branch(fn.op("lt", k, count, type=BOOL, span=s.span), body, exit, span=s.span))
    fn.start(body)
    index = fn.op("add", lo, fn.op("mul", k, step, span=s.span), span=s.span)
    with fn.scope():
        _body(fn, Loop(latch, exit, progress), None, s.body, s.local, index)
    fn.start(latch)
    after = fn.op("add", k, one, span=s.span)
    if progress is not None and s.note is not None:
        _note(fn, s.note, progress, after)
    elif progress is not None:
        fn.emit("progress_tick", (progress, after), span=s.span)
    fn.end(jump(head, (after,), s.span))
    fn.start(exit)
    if progress is not None:
        fn.emit("progress_end", (progress,), span=s.span)


def _note(fn: FunctionLowering, note: t.Expr, progress: Value, done: Value) -> None:
    """Make the note and show it, if that is due."""
    show, shown = Block("show"), Block("shown")
    (due,) = fn.emit("progress_due", (progress,), (BOOL,), span=note.span)
    fn.end(branch(due, show, shown, span=note.span))
    fn.start(show)
    fn.emit("progress_note", (progress, done, fn.scalar(note)), span=note.span)
    fn.end(jump(shown, (), note.span))
    fn.start(shown)


def _body(
    fn: FunctionLowering, loop: Loop, block: Block | None, body: t.Expr, local: t.Local | None = None, index: Value | None = None
) -> None:
    """The body of a loop, from `block` (or from here) to the latch."""
    if block is not None:
        fn.start(block)
    if local is not None and index is not None:
        fn.declare(local, (index,))
    fn.loops.append(loop)
    try:
        fn.expr(body)
        fn.end(jump(loop.latch, (), body.span))
    except Diverged:
        pass
    fn.loops.pop()


def _iterations(fn: FunctionLowering, lo: Value, hi: Value, step: Value, known: object, span: Span) -> Value:
    """How often `for i in lo..hi by step` runs: going up by 1 it is max(hi - lo, 0)."""
    zero = fn.const(0, span=span)
    if known == 1:
        return fn.op("max", fn.op("sub", hi, lo, span=span), zero, span=span)
    if known is None:
        fn.check("range", fn.op("ne", step, zero, type=BOOL, span=span), "the step of a range is 0", span=span)
    return fn.op("iterations", lo, hi, step, span=span)

"""Inlining of recursive functions into themselves, to a small depth.

Requires SSA; preserves every value and the order of effects, and how deep a recursion may go within a small factor. A small function
that that calls itself spends much of its time on the call: saving registers, looking at the stack's limit and at the stop flag,
testing whether the callee stopped. With its body in place of each of its calls, a frame does the work of several; what the calls
share (a test `n < 2` of `n - 1`) becomes visible to the other passes. `SIZE` bounds what is small, `ROOM` what it may grow to;
a function with many calls reaches it after one round or none. (What gcc calls recursive inlining.)

    func @fib(%n) {                          func @fib(%n) {
      branch %n < 2, join(%n), more            branch %n < 2, join(%n), more
    more:                             ->     more:                                  (and so for the other call)
      %a = call %n - 1 {"fib"}                 branch %n - 1 < 2, rest(%n - 1), deeper
      %b = call %n - 2 {"fib"}               deeper:
      jump join(%a + %b)                       %c = call %n - 1 - 1 {"fib"} ...
"""

from __future__ import annotations

from tlc.opt.inline import inline_call, weight
from tlc.ssa.clone import clone_function
from tlc.ssa.ir import Function, Instr, Module

SIZE = 24  # instructions of a function that is small; constants are none
ROOM = 120  # instructions that it may grow to
ROUNDS = 2


def inline_recursion(module: Module) -> None:
    """Inline the calls of small functions to themselves."""
    for f in module.functions.values():
        calls = self_calls(f)
        size = weight(f)
        if not calls or size > SIZE:
            continue
        once = clone_function(f, f.name)
        total = size
        for _ in range(ROUNDS):
            total += len(calls) * size
            if total > ROOM:
                break
            for call in calls:
                inline_call(call, once)
            calls = self_calls(f)


def self_calls(f: Function) -> list[Instr]:
    """The calls of a function to itself, those in comprehensions aside."""
    return [i for b in f.blocks for i in b.instrs if i.op == "call" and i.attrs["callee"] == f.name]

"""Timed kernels, as LLVM IR: `k.NAME` becomes a function that looks at the clock, calls the kernel, looks again and adds to the
kernel's row of the table (`backends/timing.py`), the operations and bytes of the call too. Both hosts call `k.NAME` and see no
difference; a program that is not timed has nothing of it.

The support makes the services timed in the same way and has the entry `tlc.timed`. A timed call that runs in another
one is taken out of the other's time. Requires: kernels are called by the program's own thread only (no parallel loop applies a function).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import Template

from tlc.backends.context import SERVICES, offset
from tlc.backends.llvm.abi import kernel_symbol, parameter_types
from tlc.backends.llvm.kernel import print_kernel
from tlc.backends.program import ENTRY
from tlc.backends.timing import (
    AMOUNTS,
    CALLS,
    FIRST_KERNEL,
    FIRST_SERVICE,
    HOOK,
    INNER,
    KERNEL_WORDS,
    PROCESSOR,
    SERVICE_WORDS,
    SPENT,
    TIMED_ENTRY,
    WALL,
)
from tlc.tensor.kernel.counts import counting_kernel, counts
from tlc.tensor.kernel.ir import Kernel, Var

DECLARE_CLOCK = "\ndeclare i64 @tlc.clock()\n"

# What is around a timed call: $CALL defines %status.
_AROUND = """  %table.at = getelementptr i8, ptr $CTX
  %table = load ptr, ptr %table.at
  %row = getelementptr i8, ptr %table, i64 $ROW
  %outer = load i64, ptr %table
  store i64 0, ptr %table
  %start = call i64 @tlc.clock()
  $CALL
  %end = call i64 @tlc.clock()
  %all = sub i64 %end, %start
  %inner = load i64, ptr %table
  %own = sub i64 %all, %inner
  %around = add i64 %outer, %all
  store i64 %around, ptr %table
  %calls.at = getelementptr i8, ptr %row, i64 $CALLS
  %calls = load i64, ptr %calls.at
  %calls.new = add i64 %calls, 1
  store i64 %calls.new, ptr %calls.at
  %spent.at = getelementptr i8, ptr %row, i64 $SPENT
  %spent = load i64, ptr %spent.at
  %spent.new = add i64 %spent, %own
  store i64 %spent.new, ptr %spent.at
"""

assert INNER == 0

# Who looks on sees the first call, and then each that is as many as all before it.
_WITNESSED = """  %hook.table.at = getelementptr i8, ptr %ctx, i64 $PROFILE
  %hook.table = load ptr, ptr %hook.table.at
  %hook.at = getelementptr i8, ptr %hook.table, i64 $HOOK
  %hook = load ptr, ptr %hook.at
  %hook.none = icmp eq ptr %hook, null
  br i1 %hook.none, label %run, label %count
count:
  %past.at = getelementptr i8, ptr %hook.table, i64 $PAST
  %past = load i64, ptr %past.at
  %with = add i64 %past, 1
  %both = and i64 %past, %with
  %look = icmp eq i64 %both, 0
  br i1 %look, label %tell, label %run
tell:
$SLOTS
  call void %hook(i64 $NUMBER, ptr %slots)
  br label %run
run:
"""


def print_timed(kernel: Kernel, number: int) -> str:
    """The definition of a kernel that counts in row `number`. Needs `DECLARE_CLOCK`."""
    inside = replace(kernel, name=f"{kernel.name}.inside")
    amounts = counting_kernel(kernel, counts(kernel), f"{kernel.name}.amounts")
    types = parameter_types(kernel)
    args = [f"{t} %p{k}" for k, t in enumerate(types)]
    scalars = [a for a, p in zip(args, kernel.parameters, strict=True) if isinstance(p, Var)]
    call = f"%status = call i32 {kernel_symbol(inside.name)}({', '.join(['ptr %ctx', *args])})"
    row = 8 * (FIRST_KERNEL + KERNEL_WORDS * number)
    lines = [
        f"define i32 {kernel_symbol(kernel.name)}({', '.join(['ptr %ctx', *args])}) noinline nounwind {{",
        _witnessed(args, number, row),
        _around(call, f"%ctx, i64 {offset('profile')}", row).rstrip("\n"),
        f"  %totals = getelementptr i8, ptr %row, i64 {8 * AMOUNTS}",
        f"  call i32 {kernel_symbol(amounts.name)}({', '.join(['ptr %ctx', 'ptr %totals', *scalars])})",
        "  ret i32 %status",
        "}",
    ]
    return "\n".join([print_kernel(inside), print_kernel(amounts), *lines, ""])


def _witnessed(args: Sequence[str], number: int, row: int) -> str:
    """What tells the hook: a slot of 64 bits an argument."""
    slots = [f"  %slots = alloca [{len(args)} x i64], align 8"]
    for k, arg in enumerate(args):
        slots += [f"  %slot{k} = getelementptr i64, ptr %slots, i64 {k}", f"  store i64 0, ptr %slot{k}", f"  store {arg}, ptr %slot{k}"]
    profile, past = offset("profile"), row + 8 * CALLS
    text = Template(_WITNESSED).substitute(PROFILE=profile, HOOK=8 * HOOK, PAST=past, NUMBER=number, SLOTS="\n".join(slots))
    return text.rstrip("\n")


def _around(call: str, context: str, row: int) -> str:
    return Template(_AROUND).substitute(CALL=call, CTX=context, ROW=row, CALLS=8 * CALLS, SPENT=8 * SPENT)


def _service(number: int) -> str:
    """A service that counts: it gets no context, so the support keeps where the table is."""
    call = f"%function = load ptr, ptr getelementptr (i8, ptr @services, i64 {8 * number})\n  %status = call i32 %function(ptr %slots)"
    text = _around(call, "@table, i64 0", 8 * (FIRST_SERVICE + SERVICE_WORDS * number))
    return f"define internal i32 @service.{number}(ptr %slots) nounwind {{\n{text}  ret i32 %status\n}}\n"


def _replace_service(number: int) -> str:
    return f"""
  %at.{number} = getelementptr i8, ptr %ctx, i64 {offset("services") + 8 * number}
  %function.{number} = load ptr, ptr %at.{number}
  store ptr %function.{number}, ptr getelementptr (i8, ptr @services, i64 {8 * number})
  store ptr @service.{number}, ptr %at.{number}"""


_TEXT = """
declare i32 @clock_gettime(i32, ptr)
declare i32 @$ENTRY(ptr)

@table = internal global ptr null
@services = internal global [$SERVICES x ptr] zeroinitializer

define i64 @tlc.clock() noinline nounwind {
  %now = call i64 @clock(i32 1)
  ret i64 %now
}

; 1: the clock on the wall, 3: how long this thread had a processor
define internal i64 @clock(i32 %which) nounwind {
  %now = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 %which, ptr %now)
  %seconds = load i64, ptr %now
  %rest.at = getelementptr i8, ptr %now, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}

define i32 @$TIMED(ptr %ctx) noinline nounwind {
  %profile.at = getelementptr i8, ptr %ctx, i64 $PROFILE
  %profile = load ptr, ptr %profile.at
  store ptr %profile, ptr @table
$REPLACED
  %processor.at = getelementptr i8, ptr %profile, i64 $PROCESSOR
  %wall.at = getelementptr i8, ptr %profile, i64 $WALL
  %before = call i64 @clock(i32 3)
  %start = call i64 @tlc.clock()
  %status = call i32 @$ENTRY(ptr %ctx)
  %end = call i64 @tlc.clock()
  %after = call i64 @clock(i32 3)
  %wall = sub i64 %end, %start
  store i64 %wall, ptr %wall.at
  %processor = sub i64 %after, %before
  store i64 %processor, ptr %processor.at
  ret i32 %status
}
"""


def support() -> str:
    """The clock, the timed services and the entry."""
    count = len(SERVICES)
    text = Template(_TEXT).substitute(
        ENTRY=ENTRY,
        TIMED=TIMED_ENTRY,
        SERVICES=count,
        PROFILE=offset("profile"),
        WALL=8 * WALL,
        PROCESSOR=8 * PROCESSOR,
        REPLACED="".join(map(_replace_service, range(count))),
    )
    return "\n".join([text, *map(_service, range(count))])

"""The pool of threads, as LLVM IR: `tlc.parallel(ctx, part, env, count, work)` runs `part(env, first, last)` over all of `0..count`.

The iterations are cut into chunks by what they cost (`work` an iteration), never by how many threads there are; threads claim
chunks as they come free, so a core that somebody else uses takes fewer. Results do not depend on who ran what.

One 64-bit word holds the state: a generation (one a call), and the first and the last chunk not yet claimed. The thread that calls
claims from below, the others from above (a chunk tends to stay with the core that ran its neighbours in the call before). A claim
is a compare-and-swap of the whole word, so nobody claims a chunk of another call; only who has claimed reads what the call is about,
and the call cannot end before that chunk is done.

    word:  generation (32 bits) | high (16) | low (16)          chunks low .. high - 1 are free

A thread without work looks for some for a while (calls come close together in a step of training) and then sleeps on the generation (a
futex). Threads start with the first call that has work for them, and end with the run (`tlc.disband`).
"""

from __future__ import annotations

import platform
from string import Template

from tlc.backends.context import WORKERS, offset
from tlc.tensor.kernel.ir import GRAIN

SHARES = 32  # chunks of a call that is neither so short that they would cost less than a grain,
COARSE = 8  # nor so long that they would cost more than so many
CHUNKS = 1 << 12  # of one call, at most
PATIENCE = 20_000  # looks for work before sleep: about 0.4 ms
STACK = 8 << 20  # bytes of the stack of a thread: local buffers of a kernel lie there, and what the system gives may be less

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 202)  # number of the system call
_PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}.get(platform.machine(), "")
_DECLARE = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}.get(platform.machine(), "")

_TEXT = """
$DECLARE
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)

define void @tlc.parallel(ptr %ctx, ptr %part, ptr %env, i64 %count, i64 %work) nounwind {
entry:
  %threads.at = getelementptr i8, ptr %ctx, i64 $threads
  %threads = load i64, ptr %threads.at
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %cut, label %alone
alone:
  call void %part(ptr %env, i64 0, i64 %count)
  ret void
cut:
  %least = call i64 @llvm.smax.i64(i64 %work, i64 1)
  %cost = mul i64 %count, %least
  %share = udiv i64 %cost, $SHARES
  %light = call i64 @llvm.smin.i64(i64 %share, i64 $COARSE)
  %aim = call i64 @llvm.smax.i64(i64 %light, i64 $GRAIN)
  %wanted = udiv i64 %aim, %least
  %some = call i64 @llvm.smax.i64(i64 %wanted, i64 1)
  %rest = add i64 %count, ${CHUNKS_LESS_ONE}
  %few = udiv i64 %rest, $CHUNKS
  %size = call i64 @llvm.smax.i64(i64 %some, i64 %few)
  %less = sub i64 %size, 1
  %sum = add i64 %count, %less
  %chunks = udiv i64 %sum, %size
  %shared = icmp ugt i64 %chunks, 1
  br i1 %shared, label %ready, label %alone
ready:
  %workers.at = getelementptr i8, ptr %ctx, i64 $workers
  %workers = load i64, ptr %workers.at
  %none = icmp eq i64 %workers, 0
  br i1 %none, label %begin, label %publish
begin:
  call void @tlc.enlist(ptr %ctx, i64 %threads)
  br label %publish
publish:
  %part.at = getelementptr i8, ptr %ctx, i64 $pool_part
  store ptr %part, ptr %part.at
  %env.at = getelementptr i8, ptr %ctx, i64 $pool_env
  store ptr %env, ptr %env.at
  %size.at = getelementptr i8, ptr %ctx, i64 $pool_size
  store i64 %size, ptr %size.at
  %count.at = getelementptr i8, ptr %ctx, i64 $pool_count
  store i64 %count, ptr %count.at
  %done.at = getelementptr i8, ptr %ctx, i64 $pool_done
  store atomic i64 0, ptr %done.at monotonic, align 8
  call void @tlc.announce(ptr %ctx, i64 %chunks)
  %word.at = getelementptr i8, ptr %ctx, i64 $pool_word
  br label %look
look:
  %word = load atomic i64, ptr %word.at acquire, align 8
  %low = and i64 %word, 65535
  %shifted = lshr i64 %word, 16
  %high = and i64 %shifted, 65535
  %free = icmp ult i64 %low, %high
  br i1 %free, label %claim, label %wait
claim:
  %next = add i64 %word, 1
  %pair = cmpxchg ptr %word.at, i64 %word, i64 %next acq_rel acquire, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  call void @tlc.chunk(ptr %ctx, i64 %low)
  br label %look
wait:
  %turn = phi i64 [0, %look], [%after, %again]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %end, label %more
more:
  $PAUSE
  %after = add i64 %turn, 1
  %bits = and i64 %after, 1023
  %long = icmp eq i64 %bits, 0
  br i1 %long, label %yield, label %again
yield:
  call i32 @sched_yield()
  br label %again
again:
  br label %wait
end:
  ret void
}

define internal void @tlc.chunk(ptr %ctx, i64 %number) nounwind {
  %part.at = getelementptr i8, ptr %ctx, i64 $pool_part
  %part = load ptr, ptr %part.at
  %env.at = getelementptr i8, ptr %ctx, i64 $pool_env
  %env = load ptr, ptr %env.at
  %size.at = getelementptr i8, ptr %ctx, i64 $pool_size
  %size = load i64, ptr %size.at
  %count.at = getelementptr i8, ptr %ctx, i64 $pool_count
  %count = load i64, ptr %count.at
  %first = mul i64 %number, %size
  %end = add i64 %first, %size
  %last = call i64 @llvm.smin.i64(i64 %end, i64 %count)
  call void %part(ptr %env, i64 %first, i64 %last)
  %done.at = getelementptr i8, ptr %ctx, i64 $pool_done
  atomicrmw add ptr %done.at, i64 1 acq_rel, align 8
  ret void
}

; A new generation with so many chunks; wakes who sleeps.
define internal void @tlc.announce(ptr %ctx, i64 %chunks) nounwind {
entry:
  %word.at = getelementptr i8, ptr %ctx, i64 $pool_word
  %old = load atomic i64, ptr %word.at monotonic, align 8
  %generation = lshr i64 %old, 32
  %following = add i64 %generation, 1
  %top = shl i64 %following, 32
  %high = shl i64 %chunks, 16
  %new = or i64 %top, %high
  atomicrmw xchg ptr %word.at, i64 %new seq_cst, align 8
  %sleepers.at = getelementptr i8, ptr %ctx, i64 $pool_sleepers
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %any = icmp ne i64 %sleepers, 0
  br i1 %any, label %wake, label %end
wake:
  %generation.at = getelementptr i8, ptr %word.at, i64 4
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %generation.at, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %end
end:
  ret void
}

define internal ptr @tlc.worker(ptr %ctx) nounwind {
entry:
  %word.at = getelementptr i8, ptr %ctx, i64 $pool_word
  %generation.at = getelementptr i8, ptr %word.at, i64 4
  %quit.at = getelementptr i8, ptr %ctx, i64 $pool_quit
  %sleepers.at = getelementptr i8, ptr %ctx, i64 $pool_sleepers
  br label %look
look:
  %turn = phi i64 [0, %entry], [0, %run], [0, %missed], [0, %awake], [%after, %idle]
  %word = load atomic i64, ptr %word.at acquire, align 8
  %low = and i64 %word, 65535
  %shifted = lshr i64 %word, 16
  %high = and i64 %shifted, 65535
  %free = icmp ult i64 %low, %high
  br i1 %free, label %claim, label %none
claim:
  %less = sub i64 %word, 65536
  %pair = cmpxchg ptr %word.at, i64 %word, i64 %less acq_rel acquire, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %missed
missed:
  br label %look
run:
  %number = sub i64 %high, 1
  call void @tlc.chunk(ptr %ctx, i64 %number)
  br label %look
none:
  %quit = load atomic i64, ptr %quit.at acquire, align 8
  %over = icmp ne i64 %quit, 0
  br i1 %over, label %end, label %on
on:
  %after = add i64 %turn, 1
  %tired = icmp ugt i64 %after, $PATIENCE
  br i1 %tired, label %sleep, label %idle
idle:
  $PAUSE
  br label %look
sleep:
  %wide = lshr i64 %word, 32
  %seen = trunc i64 %wide to i32
  atomicrmw add ptr %sleepers.at, i64 1 seq_cst, align 8
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %generation.at, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  br label %awake
awake:
  atomicrmw sub ptr %sleepers.at, i64 1 seq_cst, align 8
  br label %look
end:
  ret ptr null
}

; Start threads, as many as can be had.
define internal void @tlc.enlist(ptr %ctx, i64 %threads) nounwind cold noinline {
entry:
  %attributes = alloca [16 x i64], align 16
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK)
  %quit.at = getelementptr i8, ptr %ctx, i64 $pool_quit
  store atomic i64 0, ptr %quit.at release, align 8
  %more = sub i64 %threads, 1
  %wanted = call i64 @llvm.smin.i64(i64 %more, i64 $WORKERS)
  %list = getelementptr i8, ptr %ctx, i64 $pool_threads
  br label %next
next:
  %k = phi i64 [0, %entry], [%k1, %started]
  %enough = icmp eq i64 %k, %wanted
  br i1 %enough, label %end, label %start
start:
  %bytes = shl i64 %k, 3
  %slot = getelementptr i8, ptr %list, i64 %bytes
  %status = call i32 @pthread_create(ptr %slot, ptr %attributes, ptr @tlc.worker, ptr %ctx)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %started, label %end
started:
  %k1 = add i64 %k, 1
  br label %next
end:
  call i32 @pthread_attr_destroy(ptr %attributes)
  %workers.at = getelementptr i8, ptr %ctx, i64 $workers
  store i64 %k, ptr %workers.at
  %no = icmp eq i64 %k, 0
  br i1 %no, label %single, label %done
single:
  %threads.at = getelementptr i8, ptr %ctx, i64 $threads
  store i64 1, ptr %threads.at
  br label %done
done:
  ret void
}

; Let all threads end, and wait for them.
define void @tlc.disband(ptr %ctx) nounwind {
entry:
  %quit.at = getelementptr i8, ptr %ctx, i64 $pool_quit
  store atomic i64 1, ptr %quit.at release, align 8
  call void @tlc.announce(ptr %ctx, i64 0)
  %workers.at = getelementptr i8, ptr %ctx, i64 $workers
  %workers = load i64, ptr %workers.at
  %list = getelementptr i8, ptr %ctx, i64 $pool_threads
  br label %next
next:
  %k = phi i64 [0, %entry], [%k1, %join]
  %enough = icmp eq i64 %k, %workers
  br i1 %enough, label %end, label %join
join:
  %bytes = shl i64 %k, 3
  %slot = getelementptr i8, ptr %list, i64 %bytes
  %thread = load i64, ptr %slot
  call i32 @pthread_join(i64 %thread, ptr null)
  %k1 = add i64 %k, 1
  br label %next
end:
  store i64 0, ptr %workers.at
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
"""

_NAMES = (
    *("threads", "workers", "pool_word", "pool_part", "pool_env", "pool_size", "pool_count", "pool_done", "pool_sleepers", "pool_quit"),
    "pool_threads",
)  # fmt: skip


def pool(grain: int = GRAIN) -> str:
    """The text, with the least that threads claim at once."""
    return Template(_TEXT).substitute(
        {name: offset(name) for name in _NAMES},
        GRAIN=grain,
        COARSE=COARSE * grain,
        SHARES=SHARES,
        CHUNKS=CHUNKS,
        CHUNKS_LESS_ONE=CHUNKS - 1,
        PATIENCE=PATIENCE,
        STACK=STACK,
        WORKERS=WORKERS,
        FUTEX=_FUTEX,
        PAUSE=_PAUSE,
        DECLARE=_DECLARE,
    )


POOL = pool()
DECLARE_POOL = "\ndeclare void @tlc.parallel(ptr, ptr, ptr, i64, i64)\n"

"""The run-time support that is part of every program, as LLVM IR: memory, the tapes, the clock of progress.

Memory. A buffer is preceded by a header of 64 bytes: a link and its size. Freed buffers wait in lists by size class (a hash of
the exact size, so a list nearly always holds one size), most recent first. A step of training frees and allocates the same sizes
again and again, so after the first one it asks the C library for nothing. When more than `SPARE` bytes and more than the
program uses lie in the lists, they are given back before new memory is asked for. Where a device computes, the context says whom to ask;
and the lists are in order of addresses, so that a step which begins with the same buffers in use as another gets the same ones.

A tape of reverse mode is a stack of 8-byte slots in chunks, themselves buffers. (A chunk may have been a tensor that a kernel of a device
still reads: it is waited for.)
"""

from __future__ import annotations

import re
from string import Template

from tlc.backends.context import CLASSES, SERVICES, offset

SPARE = 256 << 20
CHUNK = 1 << 20
LARGE = 4 << 20  # bytes of a buffer for which the kernel is asked for large pages: they miss the TLB less, and are faulted in faster
HUGE_PAGES = 14  # MADV_HUGEPAGE of Linux; where it means nothing, nothing comes of it
FAR = 512  # buffers of a list among which another one finds its place
TICK = 100_000_000  # nanoseconds between calls of the progress service

assert CLASSES == 1024

_TEXT = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare i32 @clock_gettime(i32, ptr)

define ptr @tlc.alloc(ptr %ctx, i64 %bytes) nounwind {
entry:
  %huge = icmp ugt i64 %bytes, 281474976710656
  br i1 %huge, label %none, label %fits
none:
  ret ptr null
fits:
  %most = add i64 %bytes, 127
  %size = and i64 %most, -64
  %class = call ptr @tlc.class(ptr %ctx, i64 %size)
  %used.at = getelementptr i8, ptr %ctx, i64 $used
  %cached.at = getelementptr i8, ptr %ctx, i64 $cached
  br label %search
search:
  %link = phi ptr [%class, %fits], [%block, %other]
  %block = load ptr, ptr %link
  %end = icmp eq ptr %block, null
  br i1 %end, label %fresh, label %look
look:
  %size.at = getelementptr i8, ptr %block, i64 8
  %its = load i64, ptr %size.at
  %same = icmp eq i64 %its, %size
  br i1 %same, label %take, label %other
other:
  br label %search
take:
  %next = load ptr, ptr %block
  store ptr %next, ptr %link
  %c0 = load i64, ptr %cached.at
  %c1 = sub i64 %c0, %size
  store i64 %c1, ptr %cached.at
  br label %give
fresh:
  %u = load i64, ptr %used.at
  %c = load i64, ptr %cached.at
  %many = icmp ugt i64 %c, $SPARE
  %more = icmp ugt i64 %c, %u
  %trim = and i1 %many, %more
  br i1 %trim, label %back, label %ask
back:
  call void @tlc.trim(ptr %ctx)
  br label %ask
ask:
  %new = call ptr @tlc.ask(ptr %ctx, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %retry, label %made
retry:
  call void @tlc.trim(ptr %ctx)
  %again = call ptr @tlc.ask(ptr %ctx, i64 %size)
  %gone = icmp eq ptr %again, null
  br i1 %gone, label %none, label %made
made:
  %it = phi ptr [%new, %ask], [%again, %retry]
  %new.size.at = getelementptr i8, ptr %it, i64 8
  store i64 %size, ptr %new.size.at
  %mallocs.at = getelementptr i8, ptr %ctx, i64 $mallocs
  %m0 = load i64, ptr %mallocs.at
  %m1 = add i64 %m0, 1
  store i64 %m1, ptr %mallocs.at
  %large = icmp uge i64 %size, $LARGE
  br i1 %large, label %advise, label %give
advise:
  %start = ptrtoint ptr %it to i64
  %up = add i64 %start, 4095
  %page = and i64 %up, -4096
  %page.at = inttoptr i64 %page to ptr
  %rest = sub i64 %size, 4096
  %ignored = call i32 @madvise(ptr %page.at, i64 %rest, i32 $HUGE_PAGES)
  br label %give
give:
  %chosen = phi ptr [%block, %take], [%it, %made], [%it, %advise]
  %u0 = load i64, ptr %used.at
  %u1 = add i64 %u0, %size
  store i64 %u1, ptr %used.at
  %peak.at = getelementptr i8, ptr %ctx, i64 $peak
  %p0 = load i64, ptr %peak.at
  %higher = icmp ugt i64 %u1, %p0
  %p1 = select i1 %higher, i64 %u1, i64 %p0
  store i64 %p1, ptr %peak.at
  %data = getelementptr i8, ptr %chosen, i64 64
  ret ptr %data
}

define void @tlc.free(ptr %ctx, ptr %data) nounwind {
entry:
  %block = getelementptr i8, ptr %data, i64 -64
  %size.at = getelementptr i8, ptr %block, i64 8
  %size = load i64, ptr %size.at
  %class = call ptr @tlc.class(ptr %ctx, i64 %size)
  %allocate.at = getelementptr i8, ptr %ctx, i64 $allocate
  %allocate = load ptr, ptr %allocate.at
  %library = icmp eq ptr %allocate, null
  br i1 %library, label %put, label %seek
seek:
  %link = phi ptr [%class, %entry], [%next, %further]
  %passed = phi i64 [0, %entry], [%passed1, %further]
  %next = load ptr, ptr %link
  %end = icmp eq ptr %next, null
  br i1 %end, label %put, label %look
look:
  %lower = icmp ult ptr %next, %block
  br i1 %lower, label %further, label %put
further:
  %passed1 = add i64 %passed, 1
  %far = icmp eq i64 %passed1, $FAR
  br i1 %far, label %put, label %seek
put:
  %before = phi ptr [%class, %entry], [%link, %seek], [%link, %look], [%next, %further]
  %first = load ptr, ptr %before
  store ptr %first, ptr %block
  store ptr %block, ptr %before
  %used.at = getelementptr i8, ptr %ctx, i64 $used
  %u0 = load i64, ptr %used.at
  %u1 = sub i64 %u0, %size
  store i64 %u1, ptr %used.at
  %cached.at = getelementptr i8, ptr %ctx, i64 $cached
  %c0 = load i64, ptr %cached.at
  %c1 = add i64 %c0, %size
  store i64 %c1, ptr %cached.at
  ret void
}

define internal ptr @tlc.ask(ptr %ctx, i64 %size) nounwind cold noinline {
entry:
  %allocate.at = getelementptr i8, ptr %ctx, i64 $allocate
  %allocate = load ptr, ptr %allocate.at
  %none = icmp eq ptr %allocate, null
  br i1 %none, label %library, label %device
library:
  %new = call ptr @aligned_alloc(i64 64, i64 %size)
  ret ptr %new
device:
  %shared = call ptr %allocate(i64 %size)
  ret ptr %shared
}

define internal void @tlc.give(ptr %ctx, ptr %block) nounwind cold noinline {
entry:
  %release.at = getelementptr i8, ptr %ctx, i64 $release
  %release = load ptr, ptr %release.at
  %none = icmp eq ptr %release, null
  br i1 %none, label %library, label %device
library:
  call void @free(ptr %block)
  ret void
device:
  call void %release(ptr %block)
  ret void
}

define internal ptr @tlc.class(ptr %ctx, i64 %size) alwaysinline nounwind {
  %units = lshr i64 %size, 6
  %mixed = mul i64 %units, -7046029254386353131
  %class = lshr i64 %mixed, 54
  %byte = shl i64 %class, 3
  %lists = getelementptr i8, ptr %ctx, i64 $classes
  %list = getelementptr i8, ptr %lists, i64 %byte
  ret ptr %list
}

define void @tlc.trim(ptr %ctx) nounwind cold noinline {
entry:
  br label %class
class:
  %k = phi i64 [0, %entry], [%k1, %emptied]
  %byte = shl i64 %k, 3
  %lists = getelementptr i8, ptr %ctx, i64 $classes
  %list = getelementptr i8, ptr %lists, i64 %byte
  %first = load ptr, ptr %list
  store ptr null, ptr %list
  br label %block
block:
  %at = phi ptr [%first, %class], [%next, %one]
  %end = icmp eq ptr %at, null
  br i1 %end, label %emptied, label %one
one:
  %next = load ptr, ptr %at
  call void @tlc.give(ptr %ctx, ptr %at)
  br label %block
emptied:
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, 1024
  br i1 %more, label %class, label %done
done:
  %cached.at = getelementptr i8, ptr %ctx, i64 $cached
  store i64 0, ptr %cached.at
  ret void
}

define ptr @tlc.push(ptr %ctx, i64 %tape, i64 %bytes) nounwind {
entry:
  %of.tape = mul i64 %tape, 24
  %tapes = getelementptr i8, ptr %ctx, i64 $tapes
  %tape.at = getelementptr i8, ptr %tapes, i64 %of.tape
  %end.at = getelementptr i8, ptr %tape.at, i64 16
  %top = load i64, ptr %tape.at
  %end = load i64, ptr %end.at
  %next = add i64 %top, %bytes
  %fits = icmp ule i64 %next, %end
  br i1 %fits, label %here, label %grow
here:
  store i64 %next, ptr %tape.at
  %p = inttoptr i64 %top to ptr
  ret ptr %p
grow:
  %chunk = call ptr @tlc.alloc(ptr %ctx, i64 $CHUNK)
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %fail, label %safe
fail:
  ret ptr null
safe:
  %wait.at = getelementptr i8, ptr %ctx, i64 $wait
  %wait = load ptr, ptr %wait.at
  %beside = icmp ne ptr %wait, null
  br i1 %beside, label %settle, label %link
settle:
  %status = call i32 %wait(ptr null)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %link
link:
  %begin.at = getelementptr i8, ptr %tape.at, i64 8
  %begin = load i64, ptr %begin.at
  store i64 %top, ptr %chunk
  %c8 = getelementptr i8, ptr %chunk, i64 8
  store i64 %begin, ptr %c8
  %c16 = getelementptr i8, ptr %chunk, i64 16
  store i64 %end, ptr %c16
  %base = ptrtoint ptr %chunk to i64
  %new.begin = add i64 %base, 64
  %new.end = add i64 %base, $CHUNK
  store i64 %new.begin, ptr %begin.at
  store i64 %new.end, ptr %end.at
  %new.top = add i64 %new.begin, %bytes
  store i64 %new.top, ptr %tape.at
  %q = inttoptr i64 %new.begin to ptr
  ret ptr %q
}

define ptr @tlc.pop(ptr %ctx, i64 %tape, i64 %bytes) nounwind {
entry:
  %of.tape = mul i64 %tape, 24
  %tapes = getelementptr i8, ptr %ctx, i64 $tapes
  %tape.at = getelementptr i8, ptr %tapes, i64 %of.tape
  %begin.at = getelementptr i8, ptr %tape.at, i64 8
  %top = load i64, ptr %tape.at
  %begin = load i64, ptr %begin.at
  %empty = icmp eq i64 %top, %begin
  br i1 %empty, label %back, label %here
back:
  %chunk.at = sub i64 %begin, 64
  %chunk = inttoptr i64 %chunk.at to ptr
  %old.top = load i64, ptr %chunk
  %c8 = getelementptr i8, ptr %chunk, i64 8
  %old.begin = load i64, ptr %c8
  store i64 %old.begin, ptr %begin.at
  %c16 = getelementptr i8, ptr %chunk, i64 16
  %old.end = load i64, ptr %c16
  %end.at = getelementptr i8, ptr %tape.at, i64 16
  store i64 %old.end, ptr %end.at
  call void @tlc.free(ptr %ctx, ptr %chunk)
  br label %here
here:
  %from = phi i64 [%top, %entry], [%old.top, %back]
  %at = sub i64 %from, %bytes
  store i64 %at, ptr %tape.at
  %p = inttoptr i64 %at to ptr
  ret ptr %p
}

define zeroext i1 @tlc.due(ptr %ctx) nounwind {
entry:
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %ticked.at = getelementptr i8, ptr %ctx, i64 $ticked
  %last = load i64, ptr %ticked.at
  %passed = sub i64 %now, %last
  %due = icmp sge i64 %passed, $TICK
  br i1 %due, label %show, label %quiet
quiet:
  ret i1 false
show:
  store i64 %now, ptr %ticked.at
  ret i1 true
}

define i32 @tlc.tick(ptr %ctx, i64 %bar, i64 %at) nounwind {
entry:
  %slots = alloca [2 x i64]
  %due = call zeroext i1 @tlc.due(ptr %ctx)
  br i1 %due, label %show, label %quiet
quiet:
  ret i32 0
show:
  store i64 %bar, ptr %slots
  %second = getelementptr i8, ptr %slots, i64 8
  store i64 %at, ptr %second
  %service.at = getelementptr i8, ptr %ctx, i64 $tick_service
  %service = load ptr, ptr %service.at
  %status = call i32 %service(ptr %slots)
  ret i32 %status
}
"""

_NAMES = ("used", "peak", "cached", "mallocs", "classes", "tapes", "ticked", "wait", "allocate", "release")

SUPPORT = Template(_TEXT).substitute(
    {name: offset(name) for name in _NAMES},
    SPARE=SPARE,
    CHUNK=CHUNK,
    LARGE=LARGE,
    FAR=FAR,
    HUGE_PAGES=HUGE_PAGES,
    TICK=TICK,
    tick_service=offset("services") + 8 * SERVICES.index("progress_tick"),
)

INTERNAL_SUPPORT = re.sub(r"^define (?!internal)", "define internal ", SUPPORT, flags=re.MULTILINE)
"""A copy for an object that is linked with another that has them too."""

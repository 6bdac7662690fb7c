"""LLVM work on several cores: forked helpers compile a part of the texts and hand the machine code back through pipes.

llvmlite lets only one thread into LLVM at a time, so threads gain nothing; a forked child has everything loaded and costs a few
milliseconds. Texts of kernels are cut into pieces of about `PIECE` characters, for which LLVM takes 0.1 to 0.2 seconds: the cut depends
on the text alone, so the pieces are the same on every machine, and the cache finds them again. They go to the helpers by size,
the largest first.

A helper that dies, for whatever reason, has done nothing: what did not come back is compiled here. There are no helpers where other
threads of Python run, as a fork copies what they hold, nor where there is only one core or little to do.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

PIECE = 100_000  # characters of LLVM text
MOST = 4  # processes, this one included
CLOCK = "@tlc.clock("


def pieces(text: str) -> Iterator[str]:
    """A text of kernels, cut behind kernels into pieces that are not small. A kernel is its internal parts and then a function that is
    not. Kernels that count their time (`backends/llvm/timing.py`) call each other, so they stay together.
    """
    begin = at = 0
    whole = CLOCK in text
    while not whole and (define := text.find("\ndefine i32 ", at)) >= 0:
        at = text.index("\n}\n", define) + 3
        if at - begin >= PIECE and len(text) - at >= PIECE // 2:
            yield text[begin:at]
            begin = at
    yield text[begin:]


def shared_out(work: Sequence[T], sizes: Sequence[int], do: Callable[[T], bytes]) -> list[bytes]:
    """`do` of everything, in order, by this process and its helpers."""
    parts = _parts(sizes)
    done: dict[int, bytes] = {}
    pipes: list[tuple[int, int]] = []  # process and what it writes to
    try:
        for part in parts[1:]:
            pipes.append(_helper(part, work, do, [pipe for _, pipe in pipes]))
        for k in parts[0]:
            done[k] = do(work[k])
    finally:
        for process, pipe in pipes:
            done |= _answer(pipe)
            os.waitpid(process, 0)
    return [done[k] if k in done else do(w) for k, w in enumerate(work)]


def _parts(sizes: Sequence[int]) -> list[list[int]]:
    """Who does what: this process first. Sizes are in characters."""
    count = min(len(os.sched_getaffinity(0)), MOST, len(sizes), sum(sizes) // PIECE)
    if count < 2 or threading.active_count() > 1 or not hasattr(os, "fork"):
        return [list(range(len(sizes)))]
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        least = loads.index(min(loads))
        parts[least].append(k)
        loads[least] += sizes[k]
    return parts


def _helper(part: list[int], work: Sequence[T], do: Callable[[T], bytes], others: Iterable[int]) -> tuple[int, int]:
    """A child that does a part; gives its number and the pipe to read from. Nobody but the parent can read from a pipe, that of another
    helper neither: so a helper whose parent is gone ends where it writes.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    status = 1
    try:  # nothing of the parent may run or be written here
        for pipe in (reading, *others):
            os.close(pipe)
        answer = pickle.dumps({k: do(work[k]) for k in part})
        with os.fdopen(writing, "wb") as file:
            file.write(answer)
        status = 0
    finally:
        os._exit(status)


def _answer(pipe: int) -> dict[int, bytes]:
    """What a helper has done; nothing if it died."""
    with os.fdopen(pipe, "rb") as file:
        data = file.read()
    try:
        answer: dict[int, bytes] = pickle.loads(data)
    except Exception:
        return {}
    return answer

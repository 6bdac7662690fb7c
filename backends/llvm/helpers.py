"""Work on several cores: forked helpers take jobs from queues, beside this process, and hand what they made back through pipes.

llvmlite lets only one thread into LLVM at a time, so threads gain nothing; a forked child has everything loaded and costs a few
milliseconds. It knows the jobs that were there when it was forked, so jobs that come one by one go to helpers in batches: a batch
waits until a helper is free, that is, until the last one has ended. A queue is a pipe with the numbers of the jobs of a batch, the
costly first: whoever is free reads the next one, this process too when it comes for the results.

A helper that dies, for whatever reason, has done nothing: what did not come back is done here. There are no helpers where other
threads of Python run, as a fork copies what they hold, nor where there is only one core or little to do.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from typing import Any, Generic, TypeVar

from tlc.frontend.records import dataclass

T = TypeVar("T")

MOST = 4  # processes, this one included
WORTH = 0.05  # seconds of work for which a helper is started
_NUMBER = struct.Struct("=H")  # of a job, in a queue; a pipe gives as many bytes as are asked for, if it has them
_ROOM = 1 << 14  # jobs: a pipe holds their numbers before anybody reads


@dataclass
class Work(Generic[T]):
    """Jobs, and the helpers that do them. As a context it leaves no helper behind where an error comes before `results`."""

    jobs: list[Callable[[], T]] = field(default_factory=list)
    waiting: dict[int, float] = field(default_factory=dict)  # the next batch: the numbers of jobs, and what they cost
    done: dict[int, T] = field(default_factory=dict)
    queues: list[int] = field(default_factory=list)  # what jobs are read from
    helpers: list[tuple[int, int]] = field(default_factory=list)  # process, and what it writes to
    prepare: Callable[[], object] = bool  # called before the first helper starts: for what each would load again

    def add(self, job: Callable[[], T], cost: float) -> None:
        """A job that takes about `cost` seconds. A helper may begin at once."""
        self.waiting[len(self.jobs)] = cost
        self.jobs.append(job)
        if sum(self.waiting.values()) >= WORTH and self._busy() < _spare():
            self._start(1)

    def share(self, here: int = 0) -> None:
        """Nothing more comes for a while: what waits goes to helpers, but for so many jobs that are left to this process."""
        self._start(min(_spare(), len(self.waiting) - here, int(sum(self.waiting.values()) / WORTH)))

    def results(self) -> list[T]:
        """What the jobs gave, in their order: this process joins in."""
        with self:
            self.share(here=1)
            for k in self._taken():
                self.done[k] = self.jobs[k]()
            for _, pipe in self.helpers:
                self.done |= _answer(pipe)
        return [self.done[k] if k in self.done else job() for k, job in enumerate(self.jobs)]

    def __enter__(self) -> Work[T]:
        return self

    def __exit__(self, *_: object) -> None:
        for process, pipe in self.helpers:
            os.close(pipe)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        for queue in self.queues:
            os.close(queue)
        self.helpers, self.queues = [], []

    def _busy(self) -> int:
        """Helpers that have not answered."""
        pipes = [pipe for _, pipe in self.helpers]
        return len(pipes) - len(select.select(pipes, [], [], 0)[0])

    def _start(self, count: int) -> None:
        """Give the batch to so many new helpers, which read from the older queues as well; or to fewer, or none, where the system
        refuses more pipes or processes.
        """
        if count <= 0 or len(self.waiting) > _ROOM:
            return
        if not self.queues:
            self.prepare()
        try:
            queue, writing = os.pipe()
        except OSError:
            return
        order = sorted(self.waiting, key=lambda k: -self.waiting[k])
        os.write(writing, b"".join(map(_NUMBER.pack, order)))
        os.close(writing)
        self.queues.append(queue)
        self.waiting = {}
        spare = _spare()
        with suppress(OSError):
            for _ in range(count):
                self.helpers.append(self._helper(spare))

    def _taken(self) -> Iterator[int]:
        """Jobs from the queues, the newest first, until they are empty."""
        for queue in reversed(self.queues):
            while number := os.read(queue, _NUMBER.size):
                yield _NUMBER.unpack(number)[0]

    def _helper(self, spare: int) -> tuple[int, int]:
        """A child that does jobs; gives its number and the pipe to read from. Nobody but the parent can read from a pipe, that of another
        helper neither: so a helper whose parent is gone ends where it writes.
        """
        reading, writing = os.pipe()
        try:
            process = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            raise
        if process:
            os.close(writing)
            return process, reading
        status = 1
        try:  # nothing of the parent may run or be written here
            gc.disable()  # to look at all that the parent has made would copy it
            others = [pipe for _, pipe in self.helpers]
            if len(others) >= spare:
                select.select([others[-spare]], [], [])  # until that helper has answered: there are not more at work than cores
            for pipe in (reading, *others):
                os.close(pipe)
            answer = pickle.dumps({k: self.jobs[k]() for k in self._taken()})
            with os.fdopen(writing, "wb") as file:
                file.write(answer)
            status = 0
        finally:
            os._exit(status)


def _spare() -> int:
    """How many helpers there may be at once: none where a fork could harm, else one for each core but the one of this process."""
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return 0
    return min(len(os.sched_getaffinity(0)), MOST) - 1


def _answer(pipe: int) -> dict[int, Any]:
    """What a helper has done; nothing if it died."""
    with os.fdopen(os.dup(pipe), "rb") as file:
        data = file.read()
    try:
        answer: dict[int, Any] = pickle.loads(data)
    except Exception:
        return {}
    return answer

"""Launches that come again and again, as graphs of the driver: a step of training is started by a few calls.

A stretch is what the host starts between two moments at which it waits, or ends a turn of a loop that begins many kernels. While one goes
by, `k.NAME` starts each kernel and writes it down (`backends/llvm/stretch.py`). When it comes a second time, the same kernels for the same
extents and on the same buffers, it becomes a graph. From then on it is expected where it came before:

    expected      the host's launch is compared with the next one of the graph, and nothing is started
    the last      starts the graph
    other scalars (a rate, the number of a step): the graph's launch gets them, for this start and later ones
    another       the ones that were held back are started, each by itself, then this; and here the graph is not expected again

So a graph runs only when all of its launches were asked for, with what they were asked for; what is expected is a guess that costs time
when it is wrong, and no more. A step that begins with the same buffers in use takes the same ones (`backends/llvm/support.py`). Where the
results of a step are the operands of the next, two sets of buffers alternate, and so do two graphs: what comes after the last stretch and
the last long one is remembered.

Who waits, copies, or frees memory calls `cut` before, which starts what was held back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from tlc.backends.cuda.driver import Driver, Launch, Params
from tlc.backends.llvm.launch import Record
from tlc.backends.llvm.stretch import CHANGE, EXPECTED, GRAPH, LAUNCH_GRAPH, LOG, LOG_END, SET_ARGUMENTS
from tlc.frontend.records import dataclass
from tlc.ssa.world import RuntimeStop

ROOM = 1 << 15  # words of the log: a stretch that does not fit is none
LEAST = 8  # launches of a graph: fewer are as soon started
KNOWN = 64  # stretches that are remembered, beside graphs
GRAPHS = 32  # that are made, at most
MISS, MOST = 4, 16  # a wrong guess weighs as much as four right ones; with so much more of it a graph is not expected any more
BORED, PAUSE, LOOK = 256, 512, 64  # after so many stretches without a graph, of so many only the first ones are looked at

Words = ctypes.Array[ctypes.c_uint64]


@dataclass(eq=False)
class Stretch:
    """Launches one after the other, by their places in `words`: of each the address of its record, its arguments, its nodes. Behind them
    stands what starts the graph, if it is one.
    """

    launches: list[tuple[int, Record]]
    words: Words | None = None
    graph: int = 0
    wrong: int = 0  # how much wrong guesses weigh

    @property
    def begin(self) -> int:
        assert self.words is not None
        return ctypes.addressof(self.words)

    @property
    def end(self) -> int:
        at, last = self.launches[-1]
        return self.begin + 8 * (at + last.size)


class Stretches:
    """The stretches of a program's run, and their part of its table. Methods that give a status give the driver's."""

    def __init__(self, driver: Driver, table: Words) -> None:
        self.driver, self.table = driver, table
        self.log: Words = (ctypes.c_uint64 * ROOM)()
        self.records: dict[int, Record] = {}
        self.known: dict[tuple[int, ...], Stretch] = {}  # by records and buffers; graphs are in `graphs`
        self.graphs: dict[tuple[int, ...], Stretch] = {}
        self.most = GRAPHS
        self.idle = 0  # stretches since the last graph
        self.after: dict[tuple[Stretch | None, Stretch | None], Stretch] = {}
        table[LOG_END] = ctypes.addressof(self.log) + ctypes.sizeof(self.log)
        table[CHANGE] = driver.address(SET_ARGUMENTS)
        self.reset()

    def reset(self) -> None:
        """A run begins."""
        self.before: tuple[Stretch | None, Stretch | None] = None, None  # the last long stretch, and the last
        self.expect(None)

    def enter(self, record: Record) -> None:
        """Let the host start a kernel itself."""
        self.records[record.address] = record
        record.enter(self.table)

    def expect(self, graph: Stretch | None, kept: int = 0) -> None:
        """Expect a graph; if there is none, write into the log, behind so many words."""
        self.expected = graph
        self.table[EXPECTED], self.table[GRAPH] = (graph.begin, graph.graph) if graph else (0, 0)
        self.table[LOG] = 0 if graph else ctypes.addressof(self.log) + 8 * kept

    @property
    def written(self) -> int | None:
        """Words in the log; None if they are too many."""
        return (self.table[LOG] - ctypes.addressof(self.log)) // 8 if self.table[LOG] else None

    # ------------------------------------------------------------ what comes

    def cut(self) -> int:
        """Here a stretch ends, if anything was started: what was held back is started, and the next one is expected, if it is known."""
        at, status = self.table[EXPECTED], 0
        if self.expected is not None and at == self.expected.begin:
            return 0
        if self.expected is not None and at != self.expected.end:
            status = self.leave()
        if self.expected is None and self.written == 0:
            return status
        self.idle = 0 if self.expected else self.idle + 1
        ended = self.expected or (self.learned() if self.idle <= BORED or self.idle % PAUSE < LOOK else None)
        if ended is not None:
            self.after[self.before] = ended
        if self.expected is not None:
            self.expected.wrong = max(self.expected.wrong - 1, 0)
        self.before = ended if ended is None or len(ended.launches) >= LEAST else self.before[0], ended
        coming = self.after.get(self.before)
        self.expect(coming if coming and coming.graph and coming.wrong < MOST else None)
        return status

    def leave(self) -> int:
        """What is expected does not come: start what was held back, as the log has it then."""
        graph = self.expected
        assert graph is not None and graph.words is not None
        graph.wrong += MISS
        self.after.pop(self.before, None)
        held, status = (self.table[EXPECTED] - graph.begin) // 8, 0
        for at, record in graph.launches:
            for launch, params in _launches(record, graph.words, at) if at < held else ():
                status = status or self.driver.start(launch, params)
        ctypes.memmove(self.log, graph.words, 8 * held)
        self.expect(None, held)
        return status

    def takes(self, record: Record, words: Words) -> tuple[bool, int]:
        """Whether a launch is what is expected, and is not to be started now; and the status."""
        status = self.cut() if self.expected is not None and self.table[EXPECTED] == self.expected.end else 0
        graph = self.expected
        if graph is None or status:
            return False, status
        assert graph.words is not None
        place = (self.table[EXPECTED] - graph.begin) // 8
        its = graph.words[place : place + record.size]
        if its[0] != record.address or any(its[1 + k] != words[k] for k in record.buffers):
            return False, self.leave()
        for k, word in enumerate(words, place + 1):
            graph.words[k] = word
        for node, (launch, params) in zip(its[record.told :], _launches(record, graph.words, place), strict=True):
            status = status or self.driver.change(graph.graph, node, launch, params)
        self.table[EXPECTED] += 8 * record.size
        if self.table[EXPECTED] == graph.end:
            status = status or self.driver.start_graph(graph.graph)
        return True, status

    def note(self, record: Record, words: Words) -> None:
        """Write down a launch that the host did not start itself."""
        place = self.written
        if place is None or place + record.size > ROOM:
            self.table[LOG] = 0
            return
        self.log[place : place + record.told] = [record.address, *words]
        self.table[LOG] += 8 * record.size

    # ------------------------------------------------------------ what is known

    def learned(self) -> Stretch | None:
        """The stretch that the log has; a graph, if it is not the first of its kind. None if it is too long."""
        if self.written is None:
            return None
        words = self.log[: self.written]
        launches = list(self.parsed(words))
        key = tuple(words[at + k] for at, r in launches for k in (0, *(1 + b for b in r.buffers)))
        if key in self.graphs:
            return self.graphs[key]
        found = self.known.pop(key, None)
        if found is not None and len(launches) >= LEAST and len(self.graphs) < self.most and self.build(found, words):
            self.graphs[key], self.idle = found, 0
            return found
        if len(self.known) == KNOWN:
            self.known.pop(next(iter(self.known)))
        if len(self.after) > 2 * (KNOWN + GRAPHS):
            self.after.clear()
        self.known[key] = found or Stretch(launches)
        return self.known[key]

    def parsed(self, words: Sequence[int]) -> Iterator[tuple[int, Record]]:
        at = 0
        while at < len(words):
            record = self.records[words[at]]
            yield at, record
            at += record.size

    def build(self, stretch: Stretch, words: Sequence[int]) -> bool:
        """Make a graph of a stretch; gives whether the driver did. One that has no room for it is not asked again, and one that tells of
        the failure of a kernel tells it to who waits, too.
        """
        end = [0, 0, self.driver.address(LAUNCH_GRAPH), self.driver.stream.value or 0]
        stretch.words = (ctypes.c_uint64 * (len(words) + len(end)))(*words, *end)
        grids = [grid for at, record in stretch.launches for grid in _launches(record, stretch.words, at)]
        try:
            stretch.graph, nodes = self.driver.graph(grids)
        except RuntimeStop:
            self.most = len(self.graphs)
            return False
        stretch.words[len(words) + 1] = stretch.graph
        places = (at + k for at, record in stretch.launches for k in range(record.told, record.size))
        for place, node in zip(places, nodes, strict=True):
            stretch.words[place] = node
        return True


def _launches(record: Record, words: Words, at: int) -> list[tuple[Launch, Params]]:
    """The grids that a record stands for, with the arguments behind a place."""
    first, count = ctypes.addressof(words) + 8 * (at + 1), len(record.kernel.parameters)
    params = (ctypes.c_void_p * count)(*(first + 8 * k for k in range(count)))
    return [(Launch(*part), params) for part in record.parts]

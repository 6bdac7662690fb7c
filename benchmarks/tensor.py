"""Work on tensors beside NumPy, PyTorch, torch.compile, JAX and ONNX Runtime: `python benchmarks/tensor.py [--rows PATTERN] [--threads N]`.

A row is one function on arrays of one size: a product of matrices, a softmax of rows, an attention, forward or forward and backward. Ours
is a program of `tensor/`, which repeats its work natively and takes the time by `clock()`; a peer's is in `tensor_peers.py` and is timed in
Python. Each contestant is a process of its own, on the same cores, that lives through all rows and is stopped (SIGSTOP) while it is not
its turn: pools of threads that spin would take the cores from each other. They take turns, some samples each; a sample is the mean of as
many runs as last some milliseconds. All start from the same numbers, and elements of their results are compared, to single precision.

Printed are the median and the minimum of the samples in ms, the ratio of the fastest peer to ours by both, and how near ours (by the
minimum) comes to the roofline: the least time that the row's multiplications and additions take at the peak of this machine, or its
operands and results at the bandwidth of the cache or memory that holds them, both measured in the same run (`driver/roofline.py`).
Elementary functions count as nothing there. What is not installed is left out, and so is what a peer does not have.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beside import thread_counts
from tensor_peers import PEERS, Turn, shown

if TYPE_CHECKING:
    from tlc.driver.roofline import Machine

Clock = Callable[[], float]

FOLDER = Path(__file__).with_name("tensor")
OURS = "tlc"
SAMPLE = 0.004  # seconds of one sample at the roofline, about
LONG = 0.05  # seconds at the roofline from which on a turn has fewer samples
TOLERANCE, NARROW = 1e-4, 1e-2  # of the largest element; where a peer gives a narrow result


@dataclass(frozen=True)
class Row:
    """A program of `tensor/` with its flags; what it computes at least, and the bytes of its operands and results; and what it is to
    reach: a ratio to the fastest peer, or a share of the roofline.
    """

    name: str
    work: str
    flags: Mapping[str, Any]
    operations: float
    bytes: float
    ratio: float = 1.0
    share: float = 0.85
    size: Mapping[str, Any] = field(default_factory=dict)  # what is constant in the program


def product(m: int, k: int, n: int, how: str = "nn", **target: float) -> Row:
    name = f"{m}x{k}x{n}" + (f" {how}" if how != "nn" else "")
    flags = {"m": m, "k": k, "n": n, "turn_a": how[0] == "t", "turn_b": how[1] == "t"}
    return Row(name, "product", flags, 2 * m * k * n, 4 * (m * k + k * n + m * n), **target)


def batched(b: int, m: int, k: int, n: int) -> Row:
    flags = {"batch": b, "m": m, "k": k, "n": n}
    return Row(f"{b} of {m}x{k}x{n}", "batched", flags, 2 * b * m * k * n, 4 * b * (m * k + k * n + m * n), 1.25)


def narrow(elem: str, n: int) -> Row:
    """A product whose operands have narrow elements, and which sums in f32 or i32. The peak of f32 is no bound for those that instructions
    add several at once.
    """
    flags = {"elem": elem, "m": n, "k": n, "n": n}
    return Row(f"{elem} {n}x{n}x{n}", "narrow", flags, 2 * n**3, n * n * (4 + 2 * (1 if elem == "i8" else 2)), share=math.inf)


def rows(what: str, backward: bool, arrays: int) -> Row:
    """`arrays`: how many of the size of the input are read or written at least."""
    size = {"shape": (4096, 1024)}
    name = f"{what} f+b" if backward else what
    return Row(name, "rows", {"what": what, "backward": backward}, 0, arrays * 4 * 4096 * 1024, 1.2, size=size)


def attention(length: int, backward: bool) -> Row:
    heads, size = 8, 64
    operations = 2 * heads * length * length * size * (3.5 if backward else 1)  # two products of a half each; five more backward
    flags = {"heads": heads, "length": length, "size": size, "backward": backward}
    name = f"attention {length}" + (" f+b" if backward else "")
    return Row(name, "attention", flags, operations, 4 * heads * length * size * (8 if backward else 4), 1.35 if length > 2048 else 1.5)


def vectors(what: str, k: int, n: int, operations: int) -> Row:
    return Row(f"{what} {k}x{n}", "vectors", {"what": what, "k": k, "n": n}, operations * k * n, 4 * k * n, 1.2)


ROWS = (
    *(product(n, n, n) for n in (256, 512, 1024, 2048)),
    *(product(1024, 1024, 1024, how) for how in ("nt", "tn", "tt")),
    product(128, 784, 256),
    product(1000, 37, 513, ratio=1.25),
    product(256, 10, 128, ratio=1.25),
    batched(64, 64, 64, 32),
    batched(64, 64, 32, 64),
    *(narrow(elem, 512) for elem in ("bf16", "f16", "i8")),
    *(rows(what, backward, arrays) for what, forward, both in (
        ("gelu_erf", 2, 5), ("gelu_tanh", 2, 5), ("gelu_residual", 3, 6), ("softmax", 2, 5), ("layernorm", 2, 5),
    ) for backward, arrays in ((False, forward), (True, both))),
    *(attention(length, backward) for length in (512, 2048, 4096) for backward in (False, True)),
    vectors("vector_matrix", 768, 3072, 2),
    vectors("vector_matrix", 4096, 4096, 2),
    vectors("matrix_vector", 768, 3072, 2),
    vectors("matrix_vector", 768, 50257, 2),
    vectors("dot", 4096, 1024, 2),
    vectors("argmax", 1024, 4096, 1),
)  # fmt: skip


# ---------------------------------------------------------------- a contestant's process


class Ours:
    """Our programs, compiled for the flags of a row."""

    def __init__(self, threads: int, clock: Clock) -> None:
        self.threads, self.clock = threads, clock
        self.made: dict[tuple[str, int, int], Any] = {}

    def samples(self, row: Row, samples: int, repeats: int) -> dict[str, list[float]]:
        from tlc.backends.runtime.native import Native
        from tlc.backends.runtime.services import WorldServices
        from tlc.driver import pipeline
        from tlc.driver.cache import Cache
        from tlc.driver.options import Options
        from tlc.frontend.source import Source

        lines: list[str] = []
        marks: list[float] = []
        cpu = self.clock is time.process_time

        class Lines(WorldServices):
            def print(self, text: str) -> None:
                lines.append(text)
                if cpu and text.startswith("time"):
                    marks.append(time.process_time())

        key = (row.name, samples, repeats)
        if key not in self.made:
            path = FOLDER / f"{row.work}.tl"
            program = pipeline.front(Source(str(path), path.read_text(encoding="utf-8")))
            options = Options(flags={**row.flags, "samples": samples, "repeats": repeats})
            self.made = {key: pipeline.build(program, options, Cache())}  # what another row had goes
        Native(self.made[key], Lines(), self.threads).run()
        words = [line.split() for line in lines]
        found = {kind: [float(word) for name, word in words if name == kind] for kind in ("time", "value")}
        if cpu:  # from one print to the next; what stands before the first is no sample
            found["time"] = [(b - a) / repeats * 1e3 for a, b in itertools.pairwise(marks)]
        return found


class Peer:
    def __init__(self, name: str, threads: int, clock: Clock) -> None:
        self.peer, self.clock = PEERS[name](threads), clock
        self.row: Row | None = None
        self.turn: Turn | None = None

    def samples(self, row: Row, samples: int, repeats: int) -> dict[str, list[float]]:
        if row is not self.row:
            self.row, self.turn = row, None
            self.turn = self.peer.turn(row.work, {**row.flags, **row.size})
            if self.turn is not None:
                self.turn()
        if self.turn is None:
            return {}
        times = []
        for _ in range(samples):
            start = self.clock()
            for _ in range(repeats):
                results = self.turn()
            times.append((self.clock() - start) / repeats * 1e3)
        return {"time": times, "value": shown(results)}


def contestant(name: str, threads: int, clock: Clock) -> None:
    """Answer the lines of the process that asks, until it closes them."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        one = Ours(threads, clock) if name == OURS else Peer(name, threads, clock)
    except ModuleNotFoundError as missing:
        answers.write(json.dumps({"missing": missing.name}) + "\n")
        return
    answers.write("{}\n")
    by_name = {row.name: row for row in ROWS}
    for line in sys.stdin:
        row, samples, repeats = json.loads(line)
        answers.write(json.dumps(one.samples(by_name[row], samples, repeats)) + "\n")


class Contestant:
    """The process of one, from outside: stopped but for its turns."""

    def __init__(self, name: str, python: str, threads: int, cpus: str, cpu: bool) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")} | thread_counts(threads)
        command = ["taskset", "-c", cpus, python, __file__, "--contestant", name, "--threads", str(threads)]
        command += ["--cpu"] if cpu else []
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.missing = self.answer().get("missing")
        self.halt(True)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.name} ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def halt(self, halted: bool) -> None:
        if not self.missing:
            self.process.send_signal(signal.SIGSTOP if halted else signal.SIGCONT)

    def samples(self, row: Row, samples: int, repeats: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.halt(False)
        print(json.dumps([row.name, samples, repeats]), file=self.process.stdin, flush=True)
        found = self.answer()
        self.halt(True)
        return found

    def close(self) -> None:
        self.halt(False)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# ---------------------------------------------------------------- the run


def measured(row: Row, contestants: Sequence[Contestant], least: float, turns: int) -> tuple[dict[str, list[float]], list[str]]:
    """The samples of each contestant in ms, and whose results differ from ours."""
    repeats, samples = max(1, round(SAMPLE / max(least, 1e-7))), 2 if least > LONG else 5
    times: dict[str, list[float]] = {}
    differ: list[str] = []
    expected: list[float] = []
    taking_part = []
    tolerance = NARROW if row.work == "narrow" else TOLERANCE
    for one in contestants:  # who has this row, and to warm up
        found = one.samples(row, samples, repeats)
        if not found:
            continue
        taking_part.append(one)
        expected = expected or found["value"]
        largest = max(map(abs, expected))
        close = [math.isclose(a, b, rel_tol=0, abs_tol=tolerance * largest) for a, b in zip(expected, found["value"], strict=True)]
        differ += [] if all(close) else [one.name]
    for _ in range(turns):
        for one in taking_part:
            times.setdefault(one.name, []).extend(one.samples(row, samples, repeats)["time"])
    return times, differ


def table(row: Row, times: Mapping[str, Sequence[float]], differ: Sequence[str], least: float) -> dict[str, Any]:
    """Print one row; gives it for `--json`."""
    medians = {name: statistics.median(t) for name, t in times.items()}
    minima = {name: min(t) for name, t in times.items()}
    found: dict[str, Any] = {"row": row.name, "median": medians, "min": minima, "runs": len(times[OURS]), "differ": list(differ)}
    share = least * 1e3 / minima[OURS]
    found["share"] = share
    text = f"{row.name:20} {medians[OURS]:9.3f} {minima[OURS]:9.3f}  {share:5.0%}"
    peers = [name for name in times if name != OURS]
    verdict = ""
    if peers:
        by_median, by_minimum = (min(peers, key=lambda p: m[p]) for m in (medians, minima))
        found["ratio"] = [medians[by_median] / medians[OURS], minima[by_minimum] / minima[OURS]]
        text += f"  {found['ratio'][0]:5.2f} {found['ratio'][1]:5.2f}  "
        text += "  ".join(f"{name} {medians[name]:.3f} {minima[name]:.3f}" for name in peers)
        reached = max(found["ratio"]) >= 0.95 * row.ratio if row.ratio == 1 else max(found["ratio"]) >= row.ratio
        verdict = "" if reached or share >= row.share else f"  < {row.ratio}"
    print(text + verdict + "".join(f"  {name} DIFFERS" for name in differ), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Times work on tensors beside the peers.")
    parser.add_argument("--rows", default="*", help="only the rows whose name this pattern matches, such as 'softmax*'")
    parser.add_argument("--threads", type=int, default=1, help="threads of each contestant (default 1)")
    parser.add_argument("--turns", type=int, default=4, help="turns of each contestant, of five samples each (default 4)")
    parser.add_argument("--peer", action="append", choices=sorted(PEERS), help="only beside this peer; may stand more than once")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    parser.add_argument("--cpu", action="store_true", help="time of the processor, not of the clock: for one thread on a busy machine")
    parser.add_argument("--json", default="", help="write the figures to this file")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contestant:
        contestant(args.contestant, args.threads, time.process_time if args.cpu else time.perf_counter)
        return
    from tlc.driver.cache import Cache
    from tlc.driver.roofline import measure

    chosen = [row for row in ROWS if fnmatch.fnmatch(row.name, args.rows)]
    cpus = sorted(os.sched_getaffinity(0))[: args.threads]
    os.sched_setaffinity(0, cpus)
    machine = measure(args.threads, Cache())
    all_ = [Contestant(OURS, sys.executable, args.threads, ",".join(map(str, cpus)), args.cpu)]
    all_ += [Contestant(name, args.python, args.threads, ",".join(map(str, cpus)), args.cpu) for name in args.peer or PEERS]
    try:
        found = report(all_, chosen, machine, args.threads, args.turns)
    finally:
        for one in all_:
            one.close()
    if args.json:
        limits = {"peak": machine.peak, "bandwidth": {level.name: level.bandwidth for level in machine.levels}}
        Path(args.json).write_text(json.dumps({"threads": args.threads, "limits": limits, "rows": found}, indent=1) + "\n")


def report(all_: Sequence[Contestant], chosen: Sequence[Row], machine: Machine, threads: int, turns: int) -> list[dict[str, Any]]:
    """Measure and print all rows."""
    for one in all_:
        if one.missing:
            print(f"{one.name}: {one.missing} is not installed", file=sys.stderr)
    contestants = [one for one in all_ if not one.missing]
    levels = ", ".join(f"{level.name} {level.bandwidth / 1e9:.1f}" for level in machine.levels)
    print(f"{threads} thread{'s' * (threads > 1)}: peak {machine.peak / 1e9:.1f} GFLOP/s; GB/s: {levels}")
    print(f"{'ms':20} {'median':>9} {'minimum':>9}   roof  fastest peer / tlc")
    found = []
    for row in chosen:
        least = max(row.operations / machine.peak, row.bytes / machine.level(row.bytes).bandwidth)
        times, differ = measured(row, contestants, least, turns)
        found.append(table(row, times, differ, least))
    return found


if __name__ == "__main__":
    main()

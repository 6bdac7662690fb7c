"""Random scalar programs by every way of running them: `PYTHONPATH=tests python tests/fuzz/compare_scalars.py --programs 20000 --seed 0`.

    interp                   the interpreter of unoptimized SSA: the meaning
    llvm, x86 at -O2, -O0    machine code
    x86 few                  the same with three registers of each kind, of every eighth batch

Of every 64th batch the form after each pass and every allocation of registers is proved as well.

All in one process. A program that differs is made smaller, as long as it differs in the same way, and printed.
"""

from __future__ import annotations

import argparse
import gc
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from differential import Outcome, Recorder
from fuzz_scalars import Batch, generate

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.source import Source
from tlc.frontend.typed import Program
from tlc.ssa.interp import Interpreter, Stop

WAYS = (("llvm", "all"), ("x86", "all"))
FEW = ("x86", "few")
LEVELS = (2, 0)
PATIENCE = 20  # seconds for a program that is being made smaller

Run = tuple[int, tuple[float, ...]]  # which program, and the answers of `clock`
Runner = Callable[[Run], Outcome]


@dataclass(frozen=True)
class Difference:
    """A way in which a program of a batch differs from its meaning, or in which it cannot be compiled (then `run` is None)."""

    way: str
    run: Run | None
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.way}, run {self.run}\n--interp:\n{self.expected}\n{self.way}:\n{self.found}\n"


class Answers(Recorder):
    """Services whose clock says what it is told, and then 0."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[float] = []

    def extern(self, name: str, args: list[object]) -> list[object]:
        assert name == "clock", name
        return [np.float64(self.answers.pop(0) if self.answers else 0.0)]


class Fault(Exception):
    """The compiler failed, on some way."""

    def __init__(self, way: str, text: str) -> None:
        super().__init__(text)
        self.way = way


@contextmanager
def faults_of(way: str) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        raise Fault(way, "".join(traceback.format_exception(e, limit=-3))) from e


def runner(services: Answers, run: Callable[[], object]) -> Runner:
    def once(which: Run) -> Outcome:
        services.lines, services.answers = [], list(which[1])
        try:
            run()
        except Stop as stop:
            return Outcome(tuple(services.lines), stop.kind, stop.message, str(stop.span))
        return Outcome(tuple(services.lines))

    return once


def interpreted(program: Program) -> Runner:
    module = next(value for name, _, value in pipeline.middle(program, Options(flags={})) if name == "ssa")
    services = Answers()
    interpreter = Interpreter(module, services)
    return runner(services, lambda: interpreter.call("main", []))


def compiled(
    program: Program, ways: Sequence[tuple[str, str]], levels: Sequence[int], store: dict[str, bytes], verify: bool
) -> Iterator[tuple[str, Runner]]:
    """The ways by name. Raises `Fault` where the compiler fails."""
    for level in levels:
        with faults_of(f"middle -O{level}"):
            tensors = next(value for name, _, value in pipeline.middle(program, Options(level, verify, flags={})) if name == "memory")
        for host, registers in ways:
            name = f"{host}{' few' * (registers == 'few')} -O{level}"
            with faults_of(name):
                code = pipeline.machine_code(tensors, Options(level, verify, flags={}, host=host, registers=registers), store)
            services = Answers()
            native = Native(code, services)
            yield name, runner(services, native.run)
            native.close()


def differences(
    text: str,
    runs: Sequence[Run],
    ways: Sequence[tuple[str, str]],
    levels: Sequence[int] = LEVELS,
    store: dict[str, bytes] | None = None,
    verify: bool = False,
) -> list[Difference]:
    """Where a way's outcomes are not those of the interpreter. With `verify` every pass and every allocation is proved too."""
    program = pipeline.front(Source("program.tl", text))
    if program.main is None:
        return []
    meaning = interpreted(program)
    expected = [meaning(run) for run in runs]
    found: list[Difference] = []
    try:
        for name, way in compiled(program, ways, levels, {} if store is None else store, verify):
            for run, right in zip(runs, expected, strict=True):
                outcome = way(run)
                if outcome != right:
                    found.append(Difference(name, run, str(right), str(outcome)))
    except Fault as e:
        found.append(Difference(e.way, None, "", str(e)))
    return found


# ---------------------------------------------------------------- making smaller


def reduced(text: str, fails: Callable[[str], bool]) -> str:
    """Without the lines, or the blocks in braces, that it fails without too."""
    lines = text.splitlines()
    size = len(lines)
    while size:
        k = 0
        while k < len(lines):
            for end in _ends(lines, k, size):
                shorter = lines[:k] + lines[end:]
                if fails("\n".join(shorter) + "\n"):
                    lines = shorter
                    break
            else:
                k += 1
        size = size // 4
    return "\n".join(lines) + "\n"


def _ends(lines: list[str], start: int, size: int) -> Iterator[int]:
    """Where pieces that begin at a line and hold whole blocks may end, the longest first; and the two lines of a block's head alone are none."""
    depth, ends = 0, []
    for k in range(start, min(len(lines), start + max(size, 1) * 4)):
        depth += lines[k].count("{") - lines[k].count("}")
        if depth < 0:
            break
        if depth == 0:
            ends.append(k + 1)
    yield from ends[:: -max(1, len(ends) // 4)] if size > 1 else ends[:1]


def smaller(batch: Batch, difference: Difference) -> tuple[str, Run | None]:
    """One program of the batch as small as it comes, and the run in which it differs. What has no end any more ends by an alarm."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    host, _, level = difference.way.partition(" -O")
    ways = [] if host == "middle" else [(host.split()[0], "few" if "few" in host else "all")]
    levels = (int(level),)

    def fails(text: str, runs: Sequence[Run]) -> bool:
        signal.alarm(PATIENCE)
        try:
            found = differences(text, runs, ways, levels)
        except (CompileError, KeyboardInterrupt):
            return False
        finally:
            signal.alarm(0)
        return any((d.run is None) == (difference.run is None) and d.way == difference.way for d in found)

    numbers = range(len(batch.programs)) if difference.run is None else [difference.run[0]]
    for number in numbers:
        alone = Batch((batch.programs[number],))
        runs = [(0, (0.0, *difference.run[1][1:]))] if difference.run is not None else alone.runs
        if fails(alone.text, runs):
            text = reduced(alone.text, lambda t, runs=runs: fails(t, runs))  # type: ignore[misc]
            return text, runs[0]
    return batch.text, difference.run


# ---------------------------------------------------------------- campaigns


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares random scalar programs by every way of running them.")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each makes a batch")
    parser.add_argument("--faults", type=int, default=5, help="stop after so many")
    parser.add_argument("--whole", action="store_true", help="do not make programs smaller")
    args = parser.parse_args()
    store: dict[str, bytes] = {}
    gc.freeze()
    gc.disable()  # the graphs of a program are many objects that live as long as each other
    done = faults = 0
    begin = time.monotonic()
    seed = args.seed
    while done < args.programs and faults < args.faults:
        batch = generate(seed)
        ways = (*WAYS, FEW) if seed % 8 == 0 else WAYS
        found = differences(batch.text, batch.runs, ways, LEVELS, store, verify=seed % 64 == 32)
        for difference in list({(d.way, d.run is None): d for d in found}.values())[:2]:
            faults += 1
            print(f"seed {seed}: {difference}", flush=True)
            if not args.whole:
                text, run = smaller(batch, difference)
                print(f"run {run}\n{text}", flush=True)
        if seed % 4 == 3:
            gc.collect()
        done += len(batch.programs)
        seed += 1
        if seed % 10 == 0:
            print(f"{done} programs, {faults} faults, {(time.monotonic() - begin) / done:.3f} s a program, next seed {seed}", flush=True)
    print(f"{done} programs, {len(WAYS) * len(LEVELS)} ways beside the interpreter, {faults} faults")


if __name__ == "__main__":
    main()

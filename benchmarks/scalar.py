"""Scalar programs beside C and numba: `python benchmarks/scalar.py [--only NAME] [--rounds N] [--json FILE]`.

Each program of `scalar/` is written in TL, in C and for numba, as one would write it there: the same algorithm, the same element
types, the sizes constants. A program prepares its data and then times its work by itself, with a clock around it: TL by `clock()`, C by
`clock_gettime`, numba from outside the compiled call. All run in this process (numba in one beside it), in rounds in which each contestant
has one turn, so what else the machine does meets all alike; before the first round each ran once. Every turn's result is checked: integers
are equal, reals agree to twelve digits (gcc fuses multiplications and additions, the others do not).

    x86, llvm    TL by its own backend and by LLVM
    -O1 ... -O3  C by `gcc -march=native`; `scalar` is `-O2 -fno-tree-vectorize`
    numba        without the time of compiling

The first table has the median of the rounds in ms, the second the ratios that have a target, by medians and by minima. The third has the
times of compiling, the least of some tries, with everything loaded and the standard library cached: `front` is text to typed AST, `middle`
up to host SSA after the memory plan, then each backend up to machine code in memory. numba's is its first call less a later one.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import itertools
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tlc.backends.runtime.native import Native
from tlc.backends.runtime.services import WorldServices
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.source import Source

FOLDER = Path(__file__).with_name("scalar")
PROGRAMS = (
    "nbody", "spectral_norm", "fannkuch", "mandelbrot", "sieve", "collatz",
    "fib", "matmul", "insertion_sort", "edit_distance", "histogram", "hash",
)  # fmt: skip
GCC = {"O1": ("-O1",), "O2": ("-O2",), "scalar": ("-O2", "-fno-tree-vectorize"), "O3": ("-O3",)}
HOSTS = ("x86", "llvm")
TARGETS = (("x86", "scalar", 1.25), ("llvm", "O2", 1.05))  # contestant, by whom, the most that the geometric mean of ratios may be
WORST = 2.0  # of one program, for our own backend
COMPILE = 0.25  # seconds, for our own backend

Turn = Callable[[], tuple[float, float]]  # does the work once: the result and the seconds


@dataclass
class Compiled:
    """A program in TL on its way to running: `seconds` by stage."""

    turn: Turn
    seconds: dict[str, float]


@dataclass
class Figures:
    """Of one program. `times` by contestant in order of the rounds, `compiling` by stage."""

    times: dict[str, list[float]] = field(default_factory=dict)
    compiling: dict[str, float] = field(default_factory=dict)


# ---------------------------------------------------------------- contestants


class Lines(WorldServices):
    """The world, except that what is printed is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def print(self, text: str) -> None:
        self.lines.append(text)


def compile_tl(name: str, host: str) -> Compiled:
    path = FOLDER / f"{name}.tl"
    marks = [time.perf_counter()]
    program = pipeline.front(Source(str(path), path.read_text(encoding="utf-8")))
    marks.append(time.perf_counter())
    options = Options(flags={}, host=host)
    tensors = next(value for stage, _, value in pipeline.middle(program, options) if stage == "memory")
    marks.append(time.perf_counter())
    services = Lines()
    native = Native(pipeline.machine_code(tensors, options, {}), services)
    marks.append(time.perf_counter())

    def turn() -> tuple[float, float]:
        native.run()
        result, seconds = map(float, services.lines.pop().split())
        return result, seconds

    stages = ("front", "middle", host)
    return Compiled(turn, {stage: b - a for stage, a, b in zip(stages, marks, marks[1:], strict=False)})


def compile_c(name: str, flags: Sequence[str], folder: Path) -> Turn:
    library = folder / f"{name}{''.join(flags)}.so"
    command = ["gcc", *flags, "-march=native", "-shared", "-fPIC", "-o", str(library), str(FOLDER / f"{name}.c"), "-lm"]
    subprocess.run(command, check=True)
    bench = ctypes.CDLL(str(library)).bench
    bench.restype, bench.argtypes = ctypes.c_double, (ctypes.POINTER(ctypes.c_double),)

    def turn() -> tuple[float, float]:
        seconds = ctypes.c_double()
        result = bench(ctypes.byref(seconds))
        return float(result), seconds.value

    return turn


_numbers = itertools.count()


def fresh_numba(name: str) -> Turn:
    """A module made anew, so its functions are not compiled yet; under a new name, because numba's symbols have it."""
    spec = importlib.util.spec_from_file_location(f"{name}_{next(_numbers)}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a recursive function finds itself there
    spec.loader.exec_module(module)

    def turn() -> tuple[float, float]:
        data = module.prepare()
        start = time.perf_counter()
        result = module.run(*data)
        return float(result), time.perf_counter() - start

    return turn


class Numba:
    """A process for numba: it shares LLVM with us, where options hold for a whole process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()  # so that the end of that process is heard here
        self.compile("fannkuch")  # what a process pays once

    def compile(self, name: str) -> tuple[float, float]:
        """The seconds of the first call, which compiles, and of a second one."""
        self.connection.send(name)
        first, later = self.connection.recv()
        return first, later

    def turn(self) -> tuple[float, float]:
        self.connection.send("")
        result, seconds = self.connection.recv()
        return result, seconds


def _serve(connection: Connection) -> None:
    turn: Turn | None = None
    while True:
        try:
            name = connection.recv()
        except EOFError:  # the measuring process has ended
            return
        if name:
            turn = fresh_numba(name)
            connection.send((turn()[1], turn()[1]))
        else:
            assert turn is not None
            connection.send(turn())


# ---------------------------------------------------------------- measuring


def measure(name: str, hosts: Sequence[str], numba: Numba | None, rounds: int, tries: int, folder: Path) -> Figures:
    figures = Figures()
    turns: dict[str, Turn] = {}
    for host in hosts:
        compiled = [compile_tl(name, host) for _ in range(tries)]
        for stage in compiled[0].seconds:
            least = min(c.seconds[stage] for c in compiled)
            figures.compiling[stage] = min(figures.compiling.get(stage, math.inf), least)
        turns[host] = compiled[-1].turn
    for level, flags in GCC.items():
        turns[level] = compile_c(name, flags, folder)
    if numba is not None:
        figures.compiling["numba"] = min(first - later for first, later in (numba.compile(name) for _ in range(tries)))
        turns["numba"] = numba.turn
    expected = turns["O1"]()[0]
    figures.times = {contestant: [] for contestant in turns}
    for k in range(rounds + 1):
        for contestant, turn in turns.items():
            result, seconds = turn()
            if not math.isclose(result, expected, rel_tol=0 if expected.is_integer() and name != "matmul" else 1e-12):
                sys.exit(f"{name}: {contestant} gives {result!r}, gcc -O1 gives {expected!r}")
            if k:
                figures.times[contestant].append(seconds)
    return figures


def has_host(host: str) -> bool:
    """Whether `tlc` has this backend here."""
    return host in pipeline.hosts()


# ---------------------------------------------------------------- tables


def ratio(figures: Figures, of: str, by: str, summary: Callable[[list[float]], float]) -> float:
    return summary(figures.times[of]) / summary(figures.times[by])


def print_times(found: dict[str, Figures]) -> None:
    contestants = list(next(iter(found.values())).times)
    print(f"{'median, ms':16}" + "".join(f"{c:>9}" for c in contestants))
    for name, figures in found.items():
        print(f"{name:16}" + "".join(f"{statistics.median(figures.times[c]) * 1e3:9.2f}" for c in contestants))


def print_ratios(found: dict[str, Figures]) -> None:
    contestants = list(next(iter(found.values())).times)
    pairs = [(of, by) for of in HOSTS for by in ("O1", "scalar", "O2", "O3", "numba") if of in contestants and by in contestants]
    print(f"\n{'median (least)':16}" + "".join(f"{f'{of} / {by}':>15}" for of, by in pairs))
    for name, figures in found.items():
        cells = (f"{ratio(figures, of, by, statistics.median):.2f} ({ratio(figures, of, by, min):.2f})" for of, by in pairs)
        print(f"{name:16}" + "".join(f"{cell:>15}" for cell in cells))
    cells = (" ".join(f"{geometric_mean(found, of, by, s):.2f}" for s in (statistics.median, min)) for of, by in pairs)
    print(f"{'geometric mean':16}" + "".join(f"{'{} ({})'.format(*cell.split()):>15}" for cell in cells))
    for of, by, most in TARGETS:
        if of in contestants:
            mean = geometric_mean(found, of, by, statistics.median)
            print(f"target: {of} / {by} at most {most:.2f}: {mean:.2f}, {'met' if mean <= most else 'missed'}")
    if "x86" in contestants:
        worst = max(found, key=lambda name: ratio(found[name], "x86", "scalar", statistics.median))
        most = ratio(found[worst], "x86", "scalar", statistics.median)
        print(f"target: no program above {WORST:.2f}: {worst} {most:.2f}, {'met' if most <= WORST else 'missed'}")


def geometric_mean(found: dict[str, Figures], of: str, by: str, summary: Callable[[list[float]], float]) -> float:
    return statistics.geometric_mean(ratio(figures, of, by, summary) for figures in found.values())


def print_compiling(found: dict[str, Figures], hosts: Sequence[str]) -> None:
    stages = list(next(iter(found.values())).compiling)
    heads = [*stages, *(f"all {host}" for host in hosts)]
    print(f"\n{'compiling, ms':16}" + "".join(f"{head:>9}" for head in heads))
    for name, figures in found.items():
        cells = [figures.compiling[s] for s in stages] + [total(figures, host) for host in hosts]
        print(f"{name:16}" + "".join(f"{cell * 1e3:9.1f}" for cell in cells))
    if "x86" in hosts:
        slow = [name for name, figures in found.items() if total(figures, "x86") >= min(COMPILE, figures.compiling.get("numba", COMPILE))]
        print(f"target: x86 below {COMPILE * 1e3:.0f} ms and below numba: {'missed by ' + ', '.join(slow) if slow else 'met'}")


def total(figures: Figures, host: str) -> float:
    return sum(figures.compiling[stage] for stage in ("front", "middle", host))


def main() -> None:
    parser = argparse.ArgumentParser(description="Scalar programs beside C and numba.")
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="this program; can be given more than once")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contestant (default 15)")
    parser.add_argument("--tries", type=int, default=3, help="how often each program is compiled (default 3)")
    parser.add_argument("--host", action="append", choices=HOSTS, help="this host; can be given more than once")
    parser.add_argument("--no-numba", action="store_true", help="leave numba out")
    parser.add_argument("--json", type=Path, help="write all figures there, times in seconds")
    args = parser.parse_args()
    hosts = [host for host in args.host or HOSTS if has_host(host)]
    for host in set(args.host or HOSTS) - set(hosts):
        print(f"`--host {host}` is not there on this machine and is left out")
    numba = Numba() if not args.no_numba and importlib.util.find_spec("numba") is not None else None
    if numba is None:
        print("numba is left out" if args.no_numba else "numba is not installed and is left out")
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # as `tlc` does
    for host in hosts:
        compile_tl("matmul", host)  # what a process pays once: the standard library, the parser's tables, LLVM
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="tlc-scalar-") as folder:
        for name in args.only or PROGRAMS:
            found[name] = measure(name, hosts, numba, args.rounds, args.tries, Path(folder))
            print(f"\r{name:20}", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    print_times(found)
    print_ratios(found)
    print_compiling(found, hosts)
    if args.json:
        document: dict[str, Any] = {name: {"times": f.times, "compiling": f.compiling} for name, f in found.items()}
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

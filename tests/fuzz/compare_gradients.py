"""Random gradients beside finite differences: `PYTHONPATH=tests python tests/fuzz/compare_gradients.py --programs 2000 --seed 0`.

Each program of `fuzz_gradients.py` runs in two ways or three:

    plain      derivatives of SSA as it was lowered, by the interpreter
    optimized  derivatives of optimized and flattened code, as they are compiled, by the interpreter
    native     the same as machine code, of every so many programs

A gradient must agree with central differences, forward mode with the gradient, a hessian with differences of gradients and with its
transpose; and the ways with each other. Differences are made in the first way.

Whether a function is smooth at a place is seen from its values at x - H, x - h, x, x + h, x + H, with H = 4 h: of a smooth function the second
difference f(x + H) - 2 f(x) + f(x - H) is H^2 f'', so it falls to a sixteenth from H to h, and at a kink only to a quarter. Where it does not
fall, or where the two central differences differ, nothing follows.

All in one process. A program that fails is made smaller, as long as it fails in the same way, and printed.
"""

from __future__ import annotations

import argparse
import gc
import re
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

import numpy as np
from compare_scalars import reduced
from differential import Recorder
from fuzz_gradients import STEPS, generate_gradient

from tlc.backends.runtime.native import Native
from tlc.driver import pipeline
from tlc.driver.options import Options
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.source import Source
from tlc.ssa.interp import Interpreter, Stop
from tlc.tensor.derivative import differentiate

CLOSE = 1e-5  # relative difference of a gradient and a central difference
EQUAL = 1e-9  # of what rounding alone makes different
SMOOTH = 1e-4  # relative difference of the two central differences
PATIENCE = 20  # seconds of computing for a program, and for one that is being made smaller

Lines = tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    way: str
    what: str

    @property
    def kind(self) -> str:
        """What stays the same while a program is made smaller."""
        return f"{self.way} {self.what.split()[0]}"

    def __str__(self) -> str:
        return f"{self.way}: {self.what}"


def plain(text: str) -> Lines:
    program = pipeline.front(Source("program.tl", text))
    module = next(value for name, _, value in pipeline.middle(program, Options(flags={})) if name == "ssa")
    differentiate(module)
    return _run(lambda services: Interpreter(module, services).call("main", []))


def optimized(text: str) -> Lines:
    program = pipeline.front(Source("program.tl", text))
    module = next(value for name, _, value in pipeline.middle(program, Options(2, True, flags={})) if name == "opt")
    return _run(lambda services: Interpreter(module, services).call("main", []))


def native(text: str) -> Lines:
    program = pipeline.front(Source("program.tl", text))
    code = pipeline.build(program, Options(2, True, flags={}), {})

    def run(services: Recorder) -> None:
        loaded = Native(code, services)
        try:
            loaded.run()
            assert loaded.context.tapes[::3] == loaded.context.tapes[1::3], "a tape is not empty at the end"
        finally:
            loaded.close()

    return _run(run)


WAYS: dict[str, Callable[[str], Lines]] = {"plain": plain, "optimized": optimized, "native": native}


def _run(run: Callable[[Recorder], object]) -> Lines:
    services = Recorder()
    try:
        run(services)
    except Stop as stop:
        return (*"\n".join(services.lines).splitlines(), f"stop {stop.message}")
    return tuple("\n".join(services.lines).splitlines())


# ---------------------------------------------------------------- what was printed


def records(lines: Lines) -> list[tuple[str, str, list[float]]]:
    """Words, names and numbers; a tensor may take several lines."""
    found: list[tuple[str, str, list[float]]] = []
    for line in lines:
        match = re.match(r"(value|forward|stop) |(gradient|slope|hessian|turn) (\S+) ", line)
        word, rest = (None, line) if match is None else (match[1] or match[2], line[match.end() :])
        numbers = [float(x) for x in re.findall(r"-?(?:\d[\d.]*(?:e[+-]?\d+)?|inf|nan)", rest)] if word != "stop" else []
        if match is None and found:
            found[-1][2].extend(numbers)
        elif match is not None:
            found.append((match[1] or match[2], match[3] or "", numbers))
    return found


@dataclass
class Checked:
    """How many numbers were compared, and how many places were not smooth."""

    compared: int = 0
    rough: int = 0


def faults(lines: Lines, counts: Checked) -> Iterator[str]:
    """What the lines of one way contradict."""
    gradients: dict[str, list[float]] = {}
    slopes: dict[str, list[list[float]]] = {}
    hessians: dict[str, list[float]] = {}
    for word, name, numbers in records(lines):
        match word:
            case "value" if not isfinite(numbers[0]):
                return
            case "gradient":
                gradients[name] = numbers
            case "slope" | "turn":
                slopes.setdefault(f"{word} {name}", []).append(numbers)
            case "hessian":
                hessians[name] = numbers
            case "forward":
                along, square = numbers
                counts.compared += 1
                if not _close(along, square, EQUAL, 1.0) and all(map(isfinite, (along, square))):
                    yield f"forward mode gives {along!r}, the gradient {square!r}"
    for name, gradient in gradients.items():
        for k, values in enumerate(slopes.get(f"slope {name}", [])):
            yield from compared(f"gradient of {name}, element {k}", gradient[k], values, counts)
    for name, matrix in hessians.items():
        rows = slopes.get(f"turn {name}", [])
        n = len(rows)
        for j, values in enumerate(rows):
            turns = [values[p * n : (p + 1) * n] for p in range(5)]  # the gradient at five places
            for i in range(n):
                yield from compared(f"hessian of {name}, element ({i}, {j})", matrix[i * n + j], [t[i] for t in turns], counts)
                if not _close(matrix[i * n + j], matrix[j * n + i], 1e-8, 1.0):
                    yield f"hessian of {name} is not symmetric: {matrix[i * n + j]!r} and {matrix[j * n + i]!r}"


def compared(what: str, found: float, values: list[float], counts: Checked) -> Iterator[str]:
    """Whether a derivative is that of a function with these values at x - H, x - h, x, x + h, x + H."""
    if not all(map(isfinite, values)):
        return
    far, near, here, more, most = values
    wide, narrow = (most - far) / (2 * STEPS[0]), (more - near) / (2 * STEPS[1])
    bend, bend_near = abs(most - 2 * here + far), abs(more - 2 * here + near)
    noise = 1e-12 * max(map(abs, values)) + 1e-14
    rough = bend_near > bend / 8 + 4 * noise or not _close(wide, narrow, SMOOTH, max(1.0, *map(abs, values)))
    if rough:
        counts.rough += 1
        return
    counts.compared += 1
    allowed = CLOSE * max(1.0, abs(narrow)) + noise / STEPS[1] + abs(wide - narrow)
    if not abs(found - narrow) <= allowed:
        yield f"{what}: {found!r}, by differences {narrow!r}"


def _close(a: float, b: float, relative: float, least: float) -> bool:
    return abs(a - b) <= relative * max(least, abs(a), abs(b)) or a == b or (a != a and b != b)


def disagreement(a: Lines, b: Lines) -> str:
    """Where two ways print different numbers; differences of differences by rounding aside."""
    parts = [[r for r in records(lines) if r[0] not in ("slope", "turn")] for lines in (a, b)]
    for (word, name, x), (_, _, y) in zip(*parts, strict=False):
        if len(x) != len(y):
            return f"{word} {name} has {len(x)} numbers and {len(y)}"
        if not np.allclose(x, y, rtol=1e-7, atol=1e-7, equal_nan=True):
            return f"{word} {name}: {x} and {y}"
    ends = [lines[-1] if lines and lines[-1].startswith("stop") else "" for lines in (a, b)]
    return "" if ends[0] == ends[1] else f"end: {ends[0]!r} and {ends[1]!r}"


def examine(text: str, short: str, ways: tuple[str, ...], counts: Checked) -> list[Fault]:
    """What is wrong with the derivatives of a program, which is `short` without differences. Raises `CompileError` where it is no program."""
    pipeline.front(Source("program.tl", text))
    found: list[Fault] = []
    printed: dict[str, Lines] = {}
    for way in ways:
        try:
            printed[way] = WAYS[way](text if way == ways[0] else short)
        except KeyboardInterrupt:
            raise
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            found.append(Fault(way, f"{type(e).__name__}-{last.name}: {e}"))
            continue
        found += [Fault(way, what) for what in faults(printed[way], counts)]
        first = next(iter(printed))
        different = disagreement(printed[first], printed[way]) if way != first else ""
        if different:
            found.append(Fault(way, f"differs from {first}: {different}"))
    return found


def smaller(text: str, fault: Fault) -> str:
    ways = (fault.way,) if "differs" not in fault.what else ("plain", fault.way)

    def fails(shorter: str) -> bool:
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
        try:
            return any(f.kind == fault.kind for f in examine(shorter, shorter, ways, Checked()))
        except (CompileError, KeyboardInterrupt):
            return False
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return reduced(text, fails)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares random gradients with finite differences.")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--native", type=int, default=16, help="every so many programs run as machine code too")
    parser.add_argument("--faults", type=int, default=5, help="stop after so many")
    parser.add_argument("--whole", action="store_true", help="do not make programs smaller")
    args = parser.parse_args()
    signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    counts, slow = Checked(), 0
    kinds: Counter[str] = Counter()
    begin = time.process_time()
    gc.freeze()
    for seed in range(args.seed, args.seed + args.programs):
        program = generate_gradient(seed)
        ways = ("plain", "optimized", *(("native",) if seed % args.native == 0 else ()))
        signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
        try:
            found = examine(program.tl, program.py, ways, counts)
        except KeyboardInterrupt:
            slow += 1
            continue
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        for fault in list({f.kind: f for f in found}.values())[:2]:
            kinds[fault.kind] += 1
            print(f"seed {seed}: {fault}", flush=True)
            if not args.whole:
                print(smaller(program.tl, fault), flush=True)
        if kinds.total() >= args.faults:
            break
        if seed % 50 == 49:
            done = seed + 1 - args.seed
            spent = (time.process_time() - begin) / done
            print(f"{done} done, {counts.compared} numbers, {counts.rough} not smooth, {slow} too slow, {spent:.2f} s each", flush=True)
    print(f"{counts.compared} numbers compared, {counts.rough} places not smooth, {slow} programs too slow, {kinds.total()} faults")


if __name__ == "__main__":
    main()

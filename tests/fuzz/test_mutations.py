"""Programs that are nearly right: each program of `programs/` with a character, word, line or name removed, doubled or exchanged.

Whatever it is then, the compiler gives diagnostics (status 3) or goes on to LLVM's text (status 0): never a traceback, a hang, or
memory without end. A test does a few mutations a program; by hand, more, from other seeds:

    python tests/fuzz/test_mutations.py --mutations 200 --seed 7 [program ...]

A text that breaks the compiler is kept in the temporary folder.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tlc.driver.options import Options
from tlc.driver.pipeline import front, middle
from tlc.driver.render import render_all, to_json
from tlc.frontend.diagnostics import CompileError
from tlc.frontend.errors import ERRORS
from tlc.frontend.lexer import tokenize
from tlc.frontend.source import Source
from tlc.frontend.types import Elem

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "programs").glob("*.tl"))
SECONDS = 60  # for one mutation, on a busy machine
MEMORY = 2 << 30  # bytes beside those that the process has

Mutation = Callable[[random.Random, str], str]


# ---------------------------------------------------------------- mutations


def _edit(choose: random.Random, text: str, spans: list[tuple[int, int]]) -> str:
    """One of these pieces removed, doubled, or exchanged with another."""
    if not spans:
        return text
    a, b = choose.choice(spans)
    match choose.randrange(3):
        case 0:
            return text[:a] + text[b:]
        case 1:
            return text[:b] + text[a:b] + text[b:]
        case _:
            (a, b), (c, d) = sorted([(a, b), choose.choice(spans)])
            return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:] if b <= c else text


def character(choose: random.Random, text: str) -> str:
    at = choose.randrange(len(text))
    if choose.random() < 0.2:
        return text[:at] + choose.choice('()[]{}.,:;=+-*/<>?"#0x\n\\') + text[at + 1 :]
    return _edit(choose, text, [(at, at + 1), (max(0, at - 1), at)])


def word(choose: random.Random, text: str) -> str:
    return _edit(choose, text, [(t.span.start, t.span.end) for t in tokenize(Source("m.tl", text)).tokens])


def line(choose: random.Random, text: str) -> str:
    starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
    return _edit(choose, text, list(pairwise(starts)))


def name(choose: random.Random, text: str) -> str:
    """A name becomes another name, number or operator of the program; the text stays well-formed more often than not."""
    tokens = tokenize(Source("m.tl", text)).tokens
    names = [t for t in tokens if t.type == "NAME"]
    if not names:
        return text
    kind = choose.choice(["NAME", "NAME", "NUMBER", "OPERATOR"])
    operators = {"PLUS", "MINUS", "STAR", "SLASH", "FLOORDIV", "AT", "LT", "EQ", "AND", "POWER", "PERCENT"}
    places = [t for t in tokens if (t.type in operators if kind == "OPERATOR" else t.type == kind)] or names
    target = choose.choice(places)
    others = [t.text for t in (places if kind == "OPERATOR" else [*names, *(t for t in tokens if t.type == "NUMBER")])]
    return text[: target.span.start] + choose.choice(others) + text[target.span.end :]


MUTATIONS: tuple[Mutation, ...] = (character, word, line, name, name)


def mutate(choose: random.Random, text: str) -> str:
    for _ in range(choose.choice([1, 1, 1, 2, 3])):
        text = choose.choice(MUTATIONS)(choose, text) or "\n"
    return text


# ---------------------------------------------------------------- compiling


def compile_text(path: Path, text: str) -> str:
    """`refused`, or `compiled` where the text is still a program. Anything but diagnostics is an exception."""
    try:
        program = front(Source(str(path), text))
        if program.main is None:
            return "library"
        flags = {f.name: f.default if f.default is not None else _sample(f.type.elem) for f in program.flags}
        for stage, show, _ in middle(program, Options(flags=flags)):
            if stage == "llvm":
                show()
        return "compiled"
    except CompileError as error:
        assert error.diagnostics
        for d in error.diagnostics:
            assert d.code in ERRORS, d.code
            assert to_json(d)
        assert render_all(error.diagnostics, color=True)
        return "refused"


def _sample(elem: Elem) -> bool | int | float | str:
    """A value for a flag that is required."""
    return False if elem is Elem.BOOL else "text" if elem is Elem.STR else 2.5 if elem.is_real else 3


class TooLong(Exception):
    pass


@contextmanager
def limits() -> Iterator[None]:
    """Time and memory for what is inside. Too much of them is an exception."""

    def stop(signum: int, frame: object) -> None:
        raise TooLong

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    handler = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def run(path: Path, count: int, seed: int) -> tuple[Counter[str], list[tuple[str, str]]]:
    """How the mutations of a program ended, and the texts on which the compiler failed, each with its traceback."""
    text = path.read_text(encoding="utf-8")
    choose = random.Random(f"{path.stem} {seed}")
    ends: Counter[str] = Counter()
    failures: list[tuple[str, str]] = []
    for _ in range(count):
        mutated = mutate(choose, text)
        try:
            with limits():
                ends[compile_text(path, mutated)] += 1
        except Exception:
            ends["failed"] += 1
            failures.append((mutated, traceback.format_exc(limit=-6)))
    return ends, failures


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_mutations(path: Path) -> None:
    _, failures = run(path, 20, seed=1)
    for mutated, why in failures:
        pytest.fail(f"{why}\n{mutated}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="names of programs; all if there are none")
    parser.add_argument("--mutations", type=int, default=200, help="how many a program")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for path in PROGRAMS:
        if args.programs and path.stem not in args.programs:
            continue
        ends, failures = run(path, args.mutations, args.seed)
        print(f"{path.stem:20}", ", ".join(f"{n} {end}" for end, n in sorted(ends.items())), flush=True)
        for k, (mutated, why) in enumerate(failures):
            kept = Path(tempfile.gettempdir(), f"mutation_{path.stem}_{args.seed}_{k}.tl")
            kept.write_text(mutated, encoding="utf-8")
            print(f"{kept}\n{why}", flush=True)


if __name__ == "__main__":
    main()

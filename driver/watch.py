"""What the compiler says about its own work, on standard error: the program after passes (`--dump-after`), times (`--time-passes`),
figures (`--stats`) and what became one kernel (`--explain-fusion`).

A `Watch` runs the passes and times the stages; `NOBODY` watches nothing and costs nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from tlc.driver.fusion_report import fusion_report
from tlc.driver.options import Options
from tlc.frontend.records import dataclass
from tlc.opt import passes
from tlc.ssa.ir import Module, walk
from tlc.ssa.text import print_module
from tlc.tensor.fuse import Decision
from tlc.tensor.knobs import Choice, choice_text

ALL = "all"  # as a name of a pass: after each


@dataclass
class Watch:
    """Mutable: `times` adds up by name, `sizes` has a row for each run of a pass."""

    dump_after: Sequence[str] = ()
    timing: bool = False
    counting: bool = False
    decisions: list[Decision] | None = None  # of fusion, for who asks for them
    choices: dict[str, Choice] = field(default_factory=dict)  # how knobs of kernels stand that were tuned
    times: dict[str, tuple[int, float]] = field(default_factory=dict)  # runs, seconds
    sizes: list[tuple[str, int, int]] = field(default_factory=list)  # pass, instructions before and after
    figures: list[tuple[str, Mapping[str, int]]] = field(default_factory=list)  # of functions, by their backend

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage."""
        start = time.perf_counter()
        yield
        self._add(name, time.perf_counter() - start)

    def passes(self, module: Module, names: Sequence[str], options: Options, stage: str = "ssa") -> None:
        """Run passes with what the options ask for."""
        size = _size(module) if self.counting else 0

        def after(name: str, module: Module) -> None:
            nonlocal size
            if self.counting:
                before, size = size, _size(module)
                self.sizes.append((name, before, size))
            if name in self.dump_after or ALL in self.dump_after:
                print(f"# ---- after {name}\n{print_module(module)}", file=sys.stderr)

        report = passes.run(module, names, options.verify, options.disable, after, stage)
        for name, seconds in report.times:
            self._add(name, seconds)

    def chosen(self, choices: Mapping[str, Choice]) -> None:
        """Remember how kernels were tuned, beside what was fused."""
        if self.decisions is not None:
            self.choices.update(choices)

    def note(self, function: str, figures: Mapping[str, int]) -> None:
        """Remember what a backend says about a function."""
        if self.counting:
            self.figures.append((function, figures))

    def say(self) -> None:
        """Print what was asked for."""
        if self.decisions is not None:
            print("\n".join(fusion_report(self.decisions)), file=sys.stderr)
            if self.choices:
                tuned = ", ".join(f"{name} ({choice_text(choice)})" for name, choice in self.choices.items())
                print(f"tuned for this processor: {tuned}", file=sys.stderr)
        if self.times:
            total = sum(seconds for _, seconds in self.times.values())
            rows = [(name, str(runs), f"{1000 * spent:.1f}", f"{100 * spent / total:.0f}%") for name, (runs, spent) in self.times.items()]
            _table(("stage or pass", "runs", "ms", "share"), [*rows, ("all", "", f"{1000 * total:.1f}", "")])
        if self.sizes:
            _table(("pass", "before", "after"), [(name, str(before), str(after)) for name, before, after in self.sizes])
        if self.figures:
            heads = list(self.figures[0][1])
            _table(("function", *heads), [(name, *(str(row[head]) for head in heads)) for name, row in self.figures])

    def _add(self, name: str, seconds: float) -> None:
        if self.timing:
            runs, before = self.times.get(name, (0, 0.0))
            self.times[name] = runs + 1, before + seconds


NOBODY = Watch()


def _size(module: Module) -> int:
    """Instructions of a module, those in regions too."""
    return sum(1 for f in module.functions.values() for _ in walk(f.body))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns: the first to the left, the others to the right."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    for row in [head, *rows]:
        first, *rest = (cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True)))
        print("  ".join([first, *rest]).rstrip(), file=sys.stderr)

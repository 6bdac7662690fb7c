"""`tlc tune`: run a program, then its kernels under other schedules on what they were given, and remember for this processor what is
faster (`driver/tuned.py`). Results keep their bits: whatever gives others is refused as a fault of the compiler.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tlc.driver import flags as flag
from tlc.driver import timed_run, whole_file
from tlc.driver.flags import Flag, UsageError
from tlc.driver.request import OK, Request, checked, main_flags, read_source
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

if TYPE_CHECKING:
    from tlc.backends.runtime.progress import ProgressBar
    from tlc.backends.runtime.witness import Call
    from tlc.driver.options import Options
    from tlc.driver.profile import Place
    from tlc.tensor.lower import Tensors, Work
    from tlc.tensor.schedule import Scheduled, Target
    from tlc.tensor.tune import Found

FORMAT = "tlc tune 1"
SMALL = 0.002  # a kernel with a smaller share of what all kernels take is not worth the time
LEAST = 1.0  # seconds that a kernel may take, however small its share of the budget, and
HALF = 0.5  # the part of what is left that it may take, however large, if others wait

FLAGS = (
    Flag("budget", Elem.F64, 60.0, "seconds to try schedules for, the run of the program aside"),
    Flag("kernel", Elem.STR, "", "try this kernel alone; `tlc profile` and `tlc emit kernels` have the names"),
    timed_run.JSON,
)


@dataclass(frozen=True)
class Kernel:
    """A kernel of the run: how often it was called, the seconds that took, and what it was given."""

    name: str
    places: tuple[Place, ...]
    calls: int
    seconds: float
    call: Call | None
    work: Work


@dataclass(frozen=True)
class Row:
    """What became of a kernel: what was found, or why nothing was looked for."""

    kernel: Kernel
    found: Found | None
    why: str = ""


def tune(request: Request) -> int:
    """`tlc tune [--budget SECONDS] [--kernel NAME] [--json FILE] prog.tl [flags of main]`"""
    own, path, args = timed_run.words(request, "tune", FLAGS)
    if request.flags["device"] != "cpu":
        raise UsageError("`tlc tune` measures schedules for the CPU: leave out `--device`")
    budget = float(own["budget"])
    if not budget > 0:
        raise UsageError(f"`--budget` needs a number of seconds, found {own['budget']}")
    source = read_source(path)
    timed_run.check_writable(own, "json")
    program = checked(request, source)
    values = main_flags(path, program, args, "tune")
    if values is None:
        return OK
    from tlc.driver import pipeline, tuned

    tuned.check_writable()
    options = replace(request.options(values), timed=True, tuned=False)
    tensors = next(value for name, _, value in pipeline.middle(program, options) if name == "memory")
    wanted = str(own["kernel"])
    if wanted and wanted not in tensors.works:
        hint = flag.near(wanted, tensors.works) or f"; there are {', '.join(tensors.works) or 'none'}"
        raise UsageError(f"`--kernel`: `{path}` has no kernel `{wanted}`{hint}")
    ran = _run(request, tensors, options, path)
    if wanted:
        ran = [k for k in ran if k.name == wanted]
        if not ran:
            raise UsageError(f"`--kernel`: the program did not run `{wanted}`")
    rows, stopped = _try(ran, pipeline.target(options), request.threads, budget)
    sys.stdout.flush()
    print("\n" + "\n".join(_table(rows)), flush=True)
    if own["json"]:
        whole_file.write_json(str(own["json"]), _json(rows, path, args))
    if stopped is not None:
        raise stopped
    return OK


# ---------------------------------------------------------------- the run


def _run(request: Request, tensors: Tensors, options: Options, path: str) -> list[Kernel]:
    """Run the program; gives the kernels that it ran, by the time that they took."""
    from tlc.backends.llvm.host import timed_kernels
    from tlc.backends.runtime.native import Native
    from tlc.backends.runtime.services import WorldServices
    from tlc.backends.runtime.witness import Witness
    from tlc.backends.timing import HOOK, TIMED_ENTRY, Table
    from tlc.driver import pipeline
    from tlc.driver.profile import places
    from tlc.tensor.lower import scheduled_as
    from tlc.tensor.tune import needed_inputs

    executable = timed_run.executable(tensors, options, timed_run.store(request))
    names = timed_kernels(tensors.module)
    kernels = [tensors.kernels[name] for name in names]
    target = pipeline.target(options)
    witness = Witness(kernels, [needed_inputs(tensors.works[n], scheduled_as(tensors.works[n], target)) for n in names])
    table = Table(len(names))
    table.words[HOOK] = witness.address
    services = WorldServices()
    try:
        native = Native(executable, services, request.threads, TIMED_ENTRY)
        native.context.profile = table.address
        native.run()
        native.close()
    finally:
        services.close()
    ran = []
    for number, name in enumerate(names):
        row = table.kernel(number)
        if row.calls:
            where = places(list(tensors.places.get(name, {})), path)
            ran.append(Kernel(name, where, row.calls, row.spent / 1e9, witness.calls.get(number), tensors.works[name]))
    return sorted(ran, key=lambda k: -k.seconds)


# ---------------------------------------------------------------- the search


def _try(ran: Sequence[Kernel], target: Target, threads: int, budget: float) -> tuple[list[Row], KeyboardInterrupt | None]:
    """Look for choices, for what takes most first, and remember each as soon as it is found; a row for each kernel, and what ended the
    search early.
    """
    from tlc.backends.runtime.progress import ProgressBar
    from tlc.driver.tuned import Tuned
    from tlc.tensor.lower import scheduled_as

    total = sum(k.seconds for k in ran) or 1.0
    worth = [k for k in ran if k.seconds >= SMALL * total]
    kept = Tuned()
    bar = ProgressBar("tune", len(worth), unit="kernels")
    end = time.monotonic() + budget
    rows: list[Row] = []
    stopped = None
    try:
        for done, kernel in enumerate(worth):
            now = time.monotonic()
            rest = sum(k.seconds for k in worth[done:]) or 1.0
            part = min(kernel.seconds / rest, HALF) if done + 1 < len(worth) else 1.0
            until = now + max((end - now) * part, min(LEAST, end - now))
            scheduled = scheduled_as(kernel.work, target)
            why = "the time was up" if now >= end else _obstacle(kernel, scheduled)
            found = None if why else _found(kernel, scheduled, target, threads, until, partial(_say, bar, done, kernel.name))
            if found is not None:
                kept.keep(scheduled.kernel, found.choice)
            rows.append(Row(kernel, found, why))
            bar.update(done + 1)
    except KeyboardInterrupt as error:
        stopped = error
    finally:
        bar.close()
    rows += [Row(kernel, None, "stopped by Ctrl-C") for kernel in worth[len(rows) :]]
    rows += [Row(kernel, None, "it takes little time") for kernel in ran[len(worth) :]]
    return rows, stopped


def _say(bar: ProgressBar, done: int, name: str, text: str) -> None:
    bar.update(done, f"{name}: {text}")


def _found(kernel: Kernel, scheduled: Scheduled, target: Target, threads: int, until: float, say: Callable[[str], None]) -> Found:
    from tlc.backends.runtime.trials import Trials
    from tlc.tensor import tune

    def late() -> bool:
        return time.monotonic() >= until

    assert kernel.call is not None
    trials = Trials(scheduled, kernel.call, threads, late)
    return tune.tune(kernel.work, target, trials, lambda knob: knob != "cost" or threads > 1, say, late)


def _obstacle(kernel: Kernel, scheduled: Scheduled) -> str:
    """Why nothing can be tried, empty if something can."""
    from tlc.tensor.tune import depends_on_itself

    if kernel.call is None:
        return "what it was given is not known"
    if scheduled.kernel.applied:
        return "it calls functions of the program"
    if any(p.elem is Elem.STR for p in (*scheduled.kernel.inputs, *scheduled.kernel.outputs)):
        return "it works on text"
    if not scheduled.asked:
        return "there is one way to do it"
    if depends_on_itself(kernel.work):
        return "its indices come from what it computes itself"
    if kernel.call.missing:
        return f"its indices take up {kernel.call.missing / 1e6:.0f} MB"
    return ""


# ---------------------------------------------------------------- what is printed


def _table(rows: Sequence[Row]) -> list[str]:
    """A line a kernel, the one that takes most first, and what to expect of the whole."""
    from tlc.driver.profile_table import lines_text, time_text
    from tlc.tensor.knobs import choice_text

    before, after = _whole(rows)
    total = before or 1.0
    cells = [("kernel", "share", "by rule", "best", "ratio", "choice", "lines")]
    small = [row for row in rows if row.kernel.seconds < SMALL * total]
    for row in rows:
        k, found = row.kernel, row.found
        if row in small:
            continue
        if found is None:
            cells.append((k.name, f"{k.seconds / total:.1%}", "", "", "", f"not tried: {row.why}", lines_text(k.places)))
            continue
        choice = choice_text(found.choice) or "as the rules have it"
        times = (time_text(found.by_rule), time_text(found.best), f"{found.ratio:.2f}")
        cells.append((k.name, f"{k.seconds / total:.1%}", *times, choice, lines_text(k.places)))
    widths = [max(len(c[k]) for c in cells) for k in range(len(cells[0]))]
    right = (False, True, True, True, True, False, False)
    lines = ["  ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in zip(c, widths, right, strict=True)).rstrip() for c in cells]
    if small:
        lines.append(f"{len(small)} more take {sum(r.kernel.seconds for r in small) / total:.1%} together")
    better = sum(bool(r.found and r.found.choice) for r in rows)
    if not any(row.found for row in rows):
        return [*lines, "", "nothing was tried"]
    if not better:
        return [*lines, "", "the rules are best"]
    count = f"{better} kernel{'s' if better > 1 else ''} tuned"
    return [*lines, "", f"{count}: {time_text(before)} in kernels, {time_text(after)} expected with the choices"]


def _whole(rows: Sequence[Row]) -> tuple[float, float]:
    """What all kernels took in the run, and what they should take now."""
    before = sum(row.kernel.seconds for row in rows)
    return before, before - sum(r.kernel.seconds * (1 - 1 / r.found.ratio) for r in rows if r.found is not None)


def _json(rows: Sequence[Row], path: str, args: Sequence[str]) -> dict[str, Any]:
    before, after = _whole(rows)
    return {
        "format": FORMAT,
        "program": path,
        "arguments": list(args),
        "kernel_seconds": before,
        "expected_kernel_seconds": after,
        "kernels": [_row_json(row) for row in rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    k, found = row.kernel, row.found
    return {
        "name": k.name,
        "lines": [place.to_json() for place in k.places],
        "calls": k.calls,
        "seconds": k.seconds,
        "not_tried": row.why or None,
        "by_rule_seconds": found.by_rule if found else None,
        "best_seconds": found.best if found else None,
        "ratio": found.ratio if found else None,
        "choice": dict(found.choice) if found else None,
    }

"""A training step of ours beside those of the peers, for the scripts that say what a step is.

Each contestant runs in a process of its own, on the same cores, and they take turns. A figure is the median of the medians that the
processes print, in ms, with the least step of all and the most memory that a process held (compilers included). The ratios are the peer's
median by ours, and its least step by ours. Where the contestants also print the loss they end with, it has to be ours. A peer that is not
installed is left out.

Where a virtual machine's cores lie may change from turn to turn: two of them may be one core, or far from each other, and a step on two
threads then takes half as long again. So before each turn the peak of fused multiply-adds and the rate at which memory passes from core
to core are measured, and the least of each is printed beside the best. Where these differ, medians mix what cannot be compared; the least
steps are from the best turns of each contestant, which come closest to the same machine.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Step = Callable[[int], object]  # does step i of a round, and waits for its end; may give the loss


@dataclass(frozen=True)
class Figures:
    """What one process said: times of a step in ms; the loss, where it says one; its greatest resident memory in MB."""

    median: float
    least: float
    loss: float | None
    memory: float


@dataclass(frozen=True)
class Work:
    """What a step does: so many tokens, and the multiplications and additions that they take at least (0: memory bounds it)."""

    tokens: int
    operations: float = 0.0


def main(
    script: str, what: str, peers: Mapping[str, Callable[..., Step]], rounds: int, steps: int,
    work: Callable[[Mapping[str, int]], Work] | None = None, **sizes: int,
) -> None:  # fmt: skip
    """The command of `script`; beside it lies `NAME.tl`, our program. `sizes` are flags of the command, of the program and parameters of
    the peers, each of which makes its step, given the number of threads and the sizes.
    """
    parser = argparse.ArgumentParser(description=f"Times {what} beside PyTorch and JAX.")
    parser.add_argument("--turns", type=int, default=3, help="processes of each contestant (default 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each contestant (default 1)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    parser.add_argument("--peer", choices=sorted(peers), help="only time this peer, in this process")
    parser.add_argument("--only", help="the contestants that run, with commas between (default: all)")
    for name, default in {"rounds": rounds, "steps": steps, **sizes}.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"(default {default})")
    args = parser.parse_args()
    sizes = {name: getattr(args, name) for name in sizes}
    if args.peer:
        made = peers[args.peer](args.threads, **({"steps": args.steps, **sizes} if sizes else {}))
        _time(made, args.rounds, args.steps)
        return
    flags = [word for name in ("rounds", "steps", *sizes) for word in (f"--{name}", str(getattr(args, name)))]
    commands = {"tlc": [sys.executable, "-m", "tlc", "--threads", str(args.threads), str(Path(script).with_suffix(".tl")), *flags]}
    commands |= {name: [args.python, script, "--peer", name, "--threads", str(args.threads), *flags] for name in peers}
    if args.only:
        wanted = args.only.split(",")
        if unknown := [name for name in wanted if name not in commands]:
            parser.error(f"there is no contestant {', '.join(unknown)}; there are {', '.join(commands)}")
        commands = {name: commands[name] for name in wanted}
    compare(commands, args.threads, args.turns, work(sizes) if work else None)


def compare(commands: Mapping[str, list[str]], threads: int, turns: int, work: Work | None) -> None:
    """Run the commands in turns, on the first `threads` processors, and print their figures beside those of the first that runs: ours,
    unless that was not asked for.
    """
    env = {**os.environ, **thread_counts(threads), "JAX_PLATFORMS": "cpu"}
    if threads == 1:
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    pinned = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))]
    found: dict[str, list[Figures]] = {}
    states: list[tuple[float, float]] = []
    for _ in range(turns):
        for name, command in commands.items():
            states.append(_state(pinned, threads))
            figures = _run([*pinned, *command], env)
            if figures is not None:
                found.setdefault(name, []).append(figures)
    if not found:
        sys.exit("no contestant is installed")
    peaks, passed = zip(*states, strict=True)
    print(f"before the turns: {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s", end="")
    print(f", {min(passed):.0f} to {max(passed):.0f} GB/s from core to core" if threads > 1 else "")
    _print(found, work, max(peaks))


def _print(found: Mapping[str, list[Figures]], work: Work | None, peak: float) -> None:
    """The table, ours first. `peak`: of this machine, in GFLOP/s."""
    us, ours = next(iter(found.items()))
    loss = ours[0].loss
    middle, first = statistics.median(f.median for f in ours), min(f.least for f in ours)
    width = max(8, *map(len, found))
    print(f"{'':{width}} {'median':>9} {'least':>9} {'memory':>8} {f'median / {us}':>14} {f'least / {us}':>13}")
    for name, all_figures in found.items():
        median, least = statistics.median(f.median for f in all_figures), min(f.least for f in all_figures)
        memory = max(f.memory for f in all_figures)
        rate = f" {work.tokens / median * 1e3:6.0f} tokens/s" if work else ""
        if work and work.operations:
            rate += f"  {work.operations / least / 1e6 / peak:4.0%} of the peak"
        print(f"{name:{width}} {median:6.3f} ms {least:6.3f} ms {memory:5.0f} MB {median / middle:14.2f} {least / first:13.2f}{rate}")
        for f in all_figures:
            if loss is not None and f.loss is not None and not math.isclose(f.loss, loss, rel_tol=1e-3):
                sys.exit(f"the results differ: {name} ends with a loss of {f.loss}, {us} with {loss}")


def _state(pinned: list[str], threads: int) -> tuple[float, float]:
    """How these processors are now: GFLOP/s, and GB/s from core to core."""
    text = (
        "from tlc.driver.cache import Cache; from tlc.driver.roofline import state; "
        f"now = state({threads}, Cache()); print(now.peak / 1e9, now.passed / 1e9)"
    )
    said = subprocess.run([*pinned, sys.executable, "-c", text], check=True, capture_output=True, text=True)
    peak, passed = map(float, said.stdout.split())
    return peak, passed


def thread_counts(threads: int) -> dict[str, str]:
    """What tells the libraries of the peers how many threads they have, in the environment."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))


def _run(command: list[str], env: Mapping[str, str]) -> Figures | None:
    """None for a peer that is not installed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            message = err.read()
            if "No module named" in message:
                return None
            sys.exit(f"{' '.join(command)} failed:\n{message}")
        median, least, *loss = map(float, out.read().split())
    return Figures(median, least, loss[0] if loss else None, usage.ru_maxrss / 1024)


def _time(step: Step, rounds: int, steps: int) -> None:
    """Print the median and the least time of a step in ms, over rounds, as our program does, and the last loss, if there is one."""
    for i in range(steps):
        step(i)
    times = []
    loss: object = None
    for _ in range(rounds):
        start = time.perf_counter()
        for i in range(steps):
            loss = step(i)
        times.append((time.perf_counter() - start) / steps * 1e3)
    print(statistics.median(times), min(times), *([] if loss is None else [float(loss)]))  # type: ignore[arg-type]

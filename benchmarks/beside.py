"""A training step of ours beside those of the peers, for the scripts that say what a step is.

Each contestant runs in a process of its own, on the same cores, and they take turns. A figure is the median of the medians that the
processes print, in ms, with the least step of all; the ratio is the peer's median by ours. A peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Step = Callable[[int], object]  # does step i of a round, and waits for its end


def main(script: str, what: str, peers: Mapping[str, Callable[[int], Step]], rounds: int, steps: int) -> None:
    """The command of `script`; beside it lies `NAME.tl`, our program. A peer makes its step, given the number of threads."""
    parser = argparse.ArgumentParser(description=f"Times {what} beside PyTorch and JAX.")
    parser.add_argument("--turns", type=int, default=3, help="processes of each contestant (default 3)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each contestant (default 1)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the peers (default: this one)")
    parser.add_argument("--peer", choices=sorted(peers), help="only time this peer, in this process")
    args = parser.parse_args()
    if args.peer:
        _time(peers[args.peer](args.threads), rounds, steps)
        return
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(args.threads))
    env = {**os.environ, **counts, "JAX_PLATFORMS": "cpu"}
    if args.threads == 1:
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[: args.threads]))
    program = [str(Path(script).with_suffix(".tl")), "--rounds", str(rounds), "--steps", str(steps)]
    commands = {"tlc": [sys.executable, "-m", "tlc", "--threads", str(args.threads), *program]}
    commands |= {name: [args.python, script, "--peer", name, "--threads", str(args.threads)] for name in peers}
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(args.turns):
        for name, command in commands.items():
            done = subprocess.run(["taskset", "-c", cpus, *command], env=env, capture_output=True, text=True, check=False)
            if done.returncode and "No module named" in done.stderr:
                continue  # a peer that is not installed
            done.check_returncode()
            median, least = map(float, done.stdout.split())
            found.setdefault(name, []).append((median, least))
    ours = statistics.median(m for m, _ in found["tlc"])
    print(f"{'':8} {'median':>9} {'least':>9}   median / tlc")
    for name, figures in found.items():
        median, least = statistics.median(m for m, _ in figures), min(b for _, b in figures)
        print(f"{name:8} {median:6.3f} ms {least:6.3f} ms   {median / ours:.2f}")


def _time(step: Step, rounds: int, steps: int) -> None:
    """Print the median and the least time of a step in ms, over rounds, as our program does."""
    for i in range(steps):
        step(i)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for i in range(steps):
            step(i)
        times.append((time.perf_counter() - start) / steps * 1e3)
    print(statistics.median(times), min(times))

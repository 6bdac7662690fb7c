"""Launches that come again, on the side of the host, as LLVM IR: what `k.NAME` compares and writes down (`backends/cuda/stretches.py`).

What is started is written into the log, if there is one. If something is expected, nothing is started and nothing logged: this launch is
what is expected, on the same buffers, or leads to the launcher. Its nodes get scalars that are others than before. The last one starts the
graph.

    log        for each launch: its record, its arguments, room for its nodes; the pointer in the table becomes null when it is full
    expected   the same, with the nodes of the graph, one a grid; and behind the last: 0 | graph | function that starts it | stream
    node       how the driver takes a launch: function | blocks in x, y, z, threads in x, y, z, shared memory (32 bits) | arguments | null
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

NUMBER, EXPECTED, LOG, LOG_END, GRAPH, CHANGE, FIRST = range(7)  # places in a table; records begin at the last
LAUNCH, LAUNCH_GRAPH, SET_ARGUMENTS = CALLS = ("cuLaunchKernel", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams")
NODE = 7  # words of a node's launch


def at(name: str, pointer: str, word: int) -> str:
    return f"  %{name}.at = getelementptr i64, ptr {pointer}, i64 {word}"


def load(name: str, pointer: str, word: int, type: str = "ptr") -> list[str]:
    """A word behind a pointer, as a register of that name."""
    return [at(name, pointer, word), f"  %{name} = load {type}, ptr %{name}.at"]


def follow(slots: Sequence[str], buffers: Collection[int], grids: int, first_grid: int, grid_words: int) -> list[str]:
    """If something is expected, this is it, or go on at `slow`; otherwise at `fresh`. `slots` hold the arguments, some of them `buffers`;
    `%params` points to them, and the record has its grids from a place on.
    """
    lines = [
        *load("expected", "%table", EXPECTED),
        "  %no.graph = icmp eq ptr %expected, null",
        "  br i1 %no.graph, label %fresh, label %follow",
        "follow:",
        "  %its.record = load ptr, ptr %expected",
        "  %its.own = icmp eq ptr %its.record, %record",
        "  br i1 %its.own, label %arguments, label %slow",
        "arguments:",
    ]
    unlike = {True: "0", False: "0"}
    for k, slot in enumerate(slots):
        lines += [
            *load(f"its{k}", "%expected", 1 + k, "i64"),
            f"  %word{k} = load i64, ptr {slot}",
            f"  %differs.{k} = xor i64 %its{k}, %word{k}",
            f"  %unlike{k} = or i64 {unlike[k in buffers]}, %differs.{k}",
        ]
        unlike[k in buffers] = f"%unlike{k}"
    lines += [
        f"  %its.buffers = icmp eq i64 {unlike[True]}, 0",
        "  br i1 %its.buffers, label %scalars, label %slow",
        "scalars:",
        f"  %same = icmp eq i64 {unlike[False]}, 0",
        "  br i1 %same, label %matched, label %change",
        "change:",
        *(f"  store i64 %word{k}, ptr %its{k}.at" for k in range(len(slots))),
        *load("executable", "%table", GRAPH),
        *load("changer", "%table", CHANGE),
    ]
    for n in range(grids):
        lines += [*load(f"node{n}", "%expected", 1 + len(slots) + n), *_node(n, first_grid + n * grid_words)]
        lines += checked(f"change{n}", SET_ARGUMENTS, f"%changer(ptr %executable, ptr %node{n}, ptr %launch.node)")
    return [
        *lines,
        "  br label %matched",
        "matched:",
        at("then", "%expected", 1 + len(slots) + grids),
        "  %then.record = load ptr, ptr %then.at",
        "  %complete = icmp eq ptr %then.record, null",
        "  br i1 %complete, label %whole, label %held",
        "whole:",
        *load("graph", "%then.at", 1),
        *load("graph.start", "%then.at", 2),
        *load("graph.stream", "%then.at", 3),
        *checked("whole", LAUNCH_GRAPH, "%graph.start(ptr %graph, ptr %graph.stream)"),
        "  br label %held",
        "held:",
        "  store ptr %then.at, ptr %expected.at",
        "  ret i32 0",
        "fresh:",
    ]


def _node(n: int, grid: int) -> list[str]:
    """A grid of the record, as a node has it."""
    lines = [*load(f"node.function{n}", "%record", grid), f"  store ptr %node.function{n}, ptr %launch.node"]
    for k, word in enumerate((1, 2, 3, 4, None, None, 5)):  # blocks, threads, shared memory
        if word is not None:
            lines += load(f"node{n}.{k}", "%record", grid + word, "i32")
        lines.append(f"  %launch{n}.{k}.at = getelementptr i32, ptr %launch.node, i64 {2 + k}")
        lines.append(f"  store i32 {'1' if word is None else f'%node{n}.{k}'}, ptr %launch{n}.{k}.at")
    lines += [at(f"node{n}.params", "%launch.node", 5), f"  store ptr %params, ptr %node{n}.params.at"]
    return [*lines, at(f"node{n}.extra", "%launch.node", 6), f"  store ptr null, ptr %node{n}.extra.at"]


def checked(name: str, function: str, call: str) -> list[str]:
    """A call of the driver; if it fails, the record has the status and which it was, and the launcher says so."""
    return [
        f"  %{name}.said = call i32 {call}",
        f"  %{name}.well = icmp eq i32 %{name}.said, 0",
        f"  br i1 %{name}.well, label %{name}.done, label %{name}.fails",
        f"{name}.fails:",
        f"  %{name}.code = zext i32 %{name}.said to i64",
        f"  %{name}.told = or i64 %{name}.code, {CALLS.index(function) << 32}",
        f"  store i64 %{name}.told, ptr %status.at",
        "  br label %slow",
        f"{name}.done:",
    ]


def write_down(slots: Sequence[str], grids: int) -> list[str]:
    """Write what was started into the log, and return."""
    lines = [
        *load("log", "%table", LOG),
        "  %no.log = icmp eq ptr %log, null",
        "  br i1 %no.log, label %started, label %room",
        "room:",
        at("log.next", "%log", 1 + len(slots) + grids),
        *load("log.end", "%table", LOG_END),
        "  %full = icmp ugt ptr %log.next.at, %log.end",
        "  br i1 %full, label %no.more, label %write",
        "no.more:",
        "  store ptr null, ptr %log.at",
        "  br label %started",
        "write:",
        "  store ptr %record, ptr %log",
    ]
    for k, slot in enumerate(slots):
        lines += [at(f"log{k}", "%log", 1 + k), f"  %log{k} = load i64, ptr {slot}", f"  store i64 %log{k}, ptr %log{k}.at"]
    return [*lines, "  store ptr %log.next.at, ptr %log.at", "  br label %started", "started:", "  ret i32 0"]

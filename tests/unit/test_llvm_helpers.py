"""LLVM work by forked helpers: the same machine code, whatever becomes of a helper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tlc.backends.llvm import helpers, jit
from tlc.backends.llvm.kernel import print_kernel
from tlc.tensor.kernel.text import parse_kernel

KERNEL = """
kernel NAME(y: out f32[n], x: f32[n], n: i64) {
  parallel(n) i in 0..n { y[i] = x[i] + 1.0f32 }
}"""


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cores, and pieces of a few kernels."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(helpers, "PIECE", 4000)


def kernels(count: int) -> str:
    return "\n".join(print_kernel(parse_kernel(KERNEL.replace("NAME", f"k{n}"))) for n in range(count))


def test_pieces_are_whole_kernels() -> None:
    text = kernels(20)
    parts = list(helpers.pieces(text))
    assert "".join(parts) == text
    assert len(parts) > 2
    for part in parts:
        assert part.count("define i32 ") >= 1
        assert part.count("\ndefine ") + part.startswith("define ") == part.count("\n}\n")
        assert part.lstrip().startswith('define internal void @"k.k'), "the parts of a kernel's loops come before it"


@pytest.mark.parametrize("text", ["", kernels(1), "define i64 @tlc.clock()\n" * 0 + kernels(20).replace("ret i32 0", "call i64 @tlc.clock()\n  ret i32 0")])
def test_what_stays_whole(text: str) -> None:
    assert list(helpers.pieces(text)) == [text]


def test_machine_code_does_not_depend_on_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(0) or fork())
    texts = [(kernels(20), jit.Level.KERNEL), ("define i32 @main() {\n  ret i32 0\n}\n", jit.Level.HOST)]
    together = jit.compile_objects(texts, {})
    assert len(forks) == 2
    monkeypatch.setattr(helpers, "MOST", 1)
    assert jit.compile_objects(texts, {}) == together
    assert len(forks) == 2
    loaded = jit.load(together.values())
    assert all(loaded.address(f"k.k{n}") for n in range(20))


def test_what_is_kept_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store: dict[str, bytes] = {}
    texts = [(kernels(20), jit.Level.KERNEL)]
    first = jit.compile_objects(texts, store)
    monkeypatch.setattr(jit, "_machine_code", None)
    assert jit.compile_objects(texts, store) == first


def parent_only(death: str) -> bytes:
    """What this process does; a helper dies of it."""
    if os.getpid() == PARENT:
        return b"done"
    match death:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raises":
            raise ValueError
        case "leaves":
            os._exit(0)
    raise AssertionError


PARENT = os.getpid()


@pytest.mark.parametrize("death", ["killed", "raises", "leaves"])
def test_a_helper_that_dies(death: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert helpers.shared_out([death] * 5, [5000] * 5, parent_only) == [b"done"] * 5
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # none is left
    assert capfd.readouterr() == ("", "")


def test_an_error_is_raised_here() -> None:
    def fails(_: int) -> bytes:
        raise KeyError

    with pytest.raises(KeyError):
        helpers.shared_out([1, 2, 3], [5000] * 3, fails)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_where_other_threads_run_there_are_no_helpers() -> None:
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    try:
        assert helpers._parts([5000] * 5) == [[0, 1, 2, 3, 4]]
    finally:
        wait.set()
        thread.join()
    assert [len(part) for part in helpers._parts([5000] * 5)] == [2, 2, 1]
    assert helpers._parts([]) == [[]]
    assert helpers._parts([100]) == [[0]]


ORPHANS = """
import os
from tlc.backends.llvm import helpers
os.sched_getaffinity, helpers.PIECE = lambda _: {0, 1, 2}, 4000
parent = os.getpid()
helpers.shared_out("abc", [40_000] * 3, lambda _: os._exit(3) if os.getpid() == parent else bytes(1 << 20))
"""


def test_helpers_whose_parent_is_gone_end() -> None:
    """Though nobody reads the megabyte that each has made: what they share with the parent is closed then."""
    ended = subprocess.run([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False)
    assert ended.returncode == 3

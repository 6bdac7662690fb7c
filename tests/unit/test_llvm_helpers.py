"""LLVM work by forked helpers: the same machine code, whatever becomes of a helper."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tlc.backends.llvm import ahead, helpers, jit
from tlc.backends.llvm.ahead import Ahead
from tlc.backends.llvm.helpers import Work
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.text import parse_kernel

KERNEL = """
kernel NAME(y: out f32[n], x: f32[n], n: i64) {
  parallel(n) i in 0..n { y[i] = x[i] + 1.0f32 }
}"""
PARENT = os.getpid()


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Three cores, and pieces of a few kernels. Gives what counts forks."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr(ahead, "PIECE", 12)
    monkeypatch.setattr(ahead, "COST", 0.01)
    forks: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(0) or fork())
    return forks


def kernels(count: int) -> list[Kernel]:
    return [parse_kernel(KERNEL.replace("NAME", f"k{n}")) for n in range(count)]


def none_is_left() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


# ---------------------------------------------------------------- kernels


def test_machine_code_does_not_depend_on_helpers(monkeypatch: pytest.MonkeyPatch, cores: list[int]) -> None:
    with Ahead({}) as begun:
        for kernel in kernels(20):
            begun.add(kernel)
        begun.share()
        assert 2 <= len(cores) <= 10
        together = begun.objects(kernels(20))
    assert none_is_left()
    assert 3 < len(together) < 20
    monkeypatch.setattr(helpers, "MOST", 1)
    before = len(cores)
    assert Ahead({}).objects(kernels(20)) == together
    assert len(cores) == before
    loaded = jit.load(together.values())
    assert all(loaded.address(f"k.k{n}") for n in range(20))


def test_what_is_kept_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store: dict[str, bytes] = {}
    first = Ahead(store).objects(kernels(20))
    assert store == first
    monkeypatch.setattr(jit, "_machine_code", None)
    assert Ahead(store).objects(kernels(20)) == first


def test_what_nobody_asks_for_is_dropped(cores: list[int]) -> None:
    with pytest.raises(KeyError), Ahead({}) as begun:
        for kernel in kernels(20):
            begun.add(kernel)
        raise KeyError
    assert cores and none_is_left()


def test_nothing_is_made_of_nothing(cores: list[int]) -> None:
    assert Ahead({}, [lambda _: ("support", b"")]).objects([]) == {}
    assert Ahead({}, [lambda _: ("support", b"")]).objects(kernels(1))["support"] == b""


def test_texts_are_compiled_together(cores: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [(f"define i32 @f{k}() {{\n  ret i32 {k}\n}}\n", jit.Level.HOST) for k in range(4)]
    alone = jit.compile_objects(texts, {})
    assert not cores  # too little for a helper
    monkeypatch.setattr(helpers, "WORTH", 1e-5)
    assert jit.compile_objects(texts, {}) == alone
    assert cores and none_is_left()


# ---------------------------------------------------------------- helpers


def in_a_helper(death: str) -> bytes:
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


@pytest.mark.parametrize("death", ["killed", "raises", "leaves"])
def test_a_helper_that_dies(death: str, capfd: pytest.CaptureFixture[str], cores: list[int]) -> None:
    work = Work[bytes]()
    for _ in range(5):
        work.add(partial(in_a_helper, death), 1)
    assert work.results() == [b"done"] * 5
    assert cores and none_is_left()
    assert capfd.readouterr() == ("", "")


def test_an_error_is_raised_here() -> None:
    def fails() -> bytes:
        raise KeyError

    work = Work[bytes]([fails] * 3, {0: 1, 1: 1, 2: 1})
    with pytest.raises(KeyError):
        work.results()
    assert none_is_left()


def test_where_other_threads_run_there_are_no_helpers(cores: list[int]) -> None:
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    try:
        work = Work[int]()
        for k in range(5):
            work.add(partial(int, k), 1)
        assert work.results() == [0, 1, 2, 3, 4]
        assert not cores
    finally:
        wait.set()
        thread.join()


@pytest.mark.parametrize("name", ["pipe", "fork"])
@pytest.mark.parametrize("good", [0, 1, 2])
def test_where_the_system_has_no_more(name: str, good: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first few calls go well."""
    real, calls = getattr(os, name), []

    def refused() -> object:
        calls.append(name)
        if len(calls) > good:
            raise OSError(errno.EMFILE if name == "pipe" else errno.EAGAIN, "no more")
        return real()

    monkeypatch.setattr(os, name, refused)
    files = os.listdir("/proc/self/fd")
    work = Work[int]()
    for k in range(9):
        work.add(partial(int, k), 1)
    assert work.results() == list(range(9))
    assert none_is_left()
    assert len(os.listdir("/proc/self/fd")) == len(files)


def test_no_more_are_at_work_than_cores(tmp_path: Path) -> None:
    """A helper begins when one before it has ended: of eight there are never three at work."""

    def job(k: int) -> int:
        if os.getpid() != PARENT:
            path = tmp_path / f"{os.getpid()}"
            path.touch()
            most[0] = max(most[0], len(list(tmp_path.iterdir())))
            time.sleep(0.01)
            path.unlink()
        return most[0]

    most = [0]
    with Work[int]() as work:
        for k in range(8):
            work.waiting[k] = 1
            work.jobs.append(partial(job, k))
            work._start(1)
        assert len(work.helpers) == 8
        found = work.results()
    assert max(found) <= 2


def test_what_this_process_does_first_is_not_waited_for(cores: list[int]) -> None:
    """Helpers have done all when it comes for the results."""
    work = Work[int]()
    for _ in range(4):
        work.add(os.getpid, 1)
    work.share()
    for _, pipe in work.helpers:
        helpers.select.select([pipe], [], [])
    assert PARENT not in work.results()


ORPHANS = """
import os, time
from tlc.backends.llvm import helpers
os.sched_getaffinity = lambda _: {0, 1, 2}
parent = os.getpid()
def job():
    if os.getpid() == parent:
        os._exit(3)
    while os.getppid() == parent:
        time.sleep(0.01)
    return bytes(1 << 20)
helpers.Work([job] * 6, dict.fromkeys(range(6), 1)).results()
"""


def test_helpers_whose_parent_is_gone_end() -> None:
    """Though nobody reads the megabytes that each has made: what they share with the parent is closed then."""
    ended = subprocess.run([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False)
    assert ended.returncode == 3

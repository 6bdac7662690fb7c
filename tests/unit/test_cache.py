"""The cache of compiled programs: it changes how long a run takes and nothing else, whatever happens to its files."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tlc.backends import cpu
from tlc.backends.llvm import jit
from tlc.driver import cache, cli, pipeline
from tlc.driver.cache import Cache
from tlc.frontend import disk_cache, modules, tables

ROOT = Path(__file__).resolve().parents[2]

HELLO = """use ./other

fn main(n: i64 = 3, label: str = "n") {
  print("{label} {n}: {other.twice(n)}")
}
"""
OTHER = "fn twice(n: i64) -> i64 = 2 * n\n"


class Work:
    """How often the compiler was asked: whole programs, and texts given to LLVM."""

    def __init__(self) -> None:
        self.programs = self.texts = 0

    def take(self) -> tuple[int, int]:
        done = self.programs, self.texts
        self.programs = self.texts = 0
        return done


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """An empty cache, and a count of what is compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = Work()
    front, optimized = pipeline.front, jit._optimized

    def counting_front(source):
        done.programs += 1
        return front(source)

    def counting_optimized(text, level):
        done.texts += 1
        return optimized(text, level)

    monkeypatch.setattr(pipeline, "front", counting_front)
    monkeypatch.setattr(jit, "_optimized", counting_optimized)
    yield done


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    (tmp_path / "other.tl").write_text(OTHER)
    path = tmp_path / "hello.tl"
    path.write_text(HELLO)
    return path


def files() -> list[Path]:
    folder = disk_cache.folder() / "compiled"
    return sorted(folder.iterdir()) if folder.is_dir() else []


# ---------------------------------------------------------------- hits and misses

PROGRAMS = [
    ("print", "fn main() {\n  print([1.5, 2.5], (1, true), norm([3.0, 4.0]))\n}\n", 0),
    ("loop", 'fn main() {\n  for i in progress(0..3, "steps") {\n    print("{i}")\n  }\n}\n', 0),
    ("string", 'fn name(n: i64) -> str = if n > 1 { "many" } else { "one" }\n\nfn main(n: i64 = 2) {\n  print(name(n))\n}\n', 0),
    ("index", "fn main(n: i64 = 7, k: i64 = 7) {\n  let x = for[i < n] f32(i)\n  print(x[k])\n}\n", 1),
    ("assert", 'fn main(n: i64 = 7) {\n  assert n < 5, "found {n}"\n}\n', 1),
    ("recursion", "fn deep(n: i64) -> i64 = if n == -1 { 0 } else { 1 - deep(n + 1) }\n\nfn main() {\n  print(deep(0))\n}\n", 1),
    ("library", "fn main(n: i64 = 0) {\n  print(max(for[i < n] f32(i)))\n}\n", 1),
]


@pytest.mark.parametrize(("name", "text", "status"), PROGRAMS, ids=[name for name, _, _ in PROGRAMS])
def test_a_warm_run_says_and_does_the_same(
    name: str, text: str, status: int, work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{name}.tl"
    path.write_text(text)
    for form in ("text", "json"):
        command = ["--error-format", form, str(path)]
        assert cli.main(command) == status
        cold = capsys.readouterr()
        work.take()
        assert cli.main(command) == status
        assert work.take() == (0, 0)
        assert capsys.readouterr() == cold


def test_what_a_program_is_made_from_counts(
    work: Work, hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def runs(output: str, compiled: bool, *words: str) -> None:
        work.take()
        assert cli.main(list(words)) == 0
        assert capsys.readouterr().out == output
        assert (work.take()[0] > 0) is compiled

    runs("n 3: 6\n", True, str(hello))
    runs("n 3: 6\n", False, str(hello))
    # arguments and options
    runs("n 4: 8\n", True, str(hello), "--n", "4")
    runs("x 4: 8\n", True, str(hello), "--n", "4", "--label", "x")
    runs("n 3: 6\n", True, "-O0", str(hello))
    runs("n 3: 6\n", True, "--disable", "cse", str(hello))
    runs("n 3: 6\n", False, "-O2", str(hello))
    # another path: it stands in messages, and `use ./other` begins there
    monkeypatch.chdir(tmp_path)
    runs("n 3: 6\n", True, "hello.tl")
    # a used file
    (tmp_path / "other.tl").write_text(OTHER.replace("2", "5"))
    runs("n 3: 15\n", True, str(hello))
    runs("n 3: 15\n", False, str(hello))
    (tmp_path / "other.tl").write_text(OTHER)
    runs("n 3: 6\n", True, str(hello))
    # the program
    hello.write_text(HELLO.replace("i64 = 3", "i64 = 5"))
    runs("n 5: 10\n", True, str(hello))
    hello.write_text(HELLO)
    # the compiler and the machine
    runs("n 3: 6\n", False, str(hello))
    monkeypatch.setattr(cache, "compiler", lambda: "another one")
    runs("n 3: 6\n", True, str(hello))
    runs("n 3: 6\n", False, str(hello))
    monkeypatch.setattr(jit, "machine_name", lambda: "another one")
    monkeypatch.setattr(cpu, "name", lambda: "another one")
    runs("n 3: 6\n", True, str(hello))


def test_a_used_file_that_is_gone_is_an_error_again(work: Work, hello: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([str(hello)]) == 0
    (tmp_path / "other.tl").unlink()
    assert cli.main([str(hello)]) == 3
    assert "E0203" in capsys.readouterr().err


def test_help_and_wrong_flags_after_a_run(work: Work, hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([str(hello)]) == 0
    assert cli.main([str(hello), "--m", "3"]) == 2
    assert cli.main([str(hello), "--help"]) == 0
    assert "--label TEXT" in capsys.readouterr().out


def test_equal_machine_code_is_made_once(work: Work, hello: Path) -> None:
    """A comment changes the program and not the LLVM text of its kernels."""
    program = "fn main(n: i64 = 5) {\n  print(for[i < n] 2 * i)\n}\n"
    hello.write_text(program)
    assert cli.main([str(hello)]) == 0
    assert work.take()[1] > 0
    hello.write_text(program + "# the end\n")
    assert cli.main([str(hello)]) == 0
    assert work.take() == (1, 0)


BATCHES = """use data

fn layer(x: f32[n, 8], w: f32[8, 4]) -> f32[n, 4] = relu(x @ w)

fn main() {
  let text = data.text("FILE")
  let n = text.shape[0] // 8
  let w = for[i < 8, j < 4] f32(i - j)
  for size in 1..n + 1 {
    let x = for[i < size, j < 8] f32(text[i * 8 + j])
    print("{size}: {sum(layer(x, w))}")
  }
}
"""


def test_another_size_at_run_time_compiles_nothing(work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file read says how large the batches are: every size, in one run and in the next, goes through the same machine code."""
    path, file = tmp_path / "batches.tl", tmp_path / "text"
    path.write_text(BATCHES.replace("FILE", str(file)))
    w = np.arange(8)[:, None] - np.arange(4)
    compiled = []
    for size in (3, 5, 1, 21, 0):
        data = np.random.default_rng(size).integers(32, 127, (size, 8))
        file.write_bytes(data.astype(np.uint8).tobytes())
        assert cli.main([str(path)]) == 0
        totals = [np.maximum(data[:n] @ w, 0).sum() for n in range(1, size + 1)]  # small enough to be exact in f32
        assert capsys.readouterr().out == "".join(f"{n}: {float(total)}\n" for n, total in enumerate(totals, 1))
        compiled.append(work.take())
    assert compiled[0] > (0, 0)
    assert compiled[1:] == [(0, 0)] * 4


def test_the_compiler_is_named_by_all_of_its_files() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"}
    assert packages <= set(cache.PARTS)
    command = [sys.executable, "-c", "from tlc.driver.cache import compiler; print(compiler())"]
    again = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert again == cache.compiler.__wrapped__()  # no order of a set or folder gets into it


@pytest.mark.parametrize("flag", ["--no-cache", "--verify", "--interp"])
def test_runs_that_keep_nothing(flag: str, work: Work, hello: Path) -> None:
    for _ in range(2):
        assert cli.main([flag, str(hello)]) == 0
        assert work.take()[0] == 1
    assert files() == []


# ---------------------------------------------------------------- trouble


def garbage(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest() + payload


DAMAGES = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[:-5] + bytes([data[-5] ^ 4]) + data[-4:],
    "another digest": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "longer": lambda data: data + b"x",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again(damage: str, work: Work, hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([str(hello)]) == 0
    for path in files():
        whole = path.read_bytes()
        path.write_bytes(DAMAGES[damage](whole))
        work.take()
        capsys.readouterr()
        assert cli.main([str(hello)]) == 0
        assert capsys.readouterr().out == "n 3: 6\n"
        assert work.take()[0] == 1
        assert disk_cache.read(path) is not None
        assert cli.main([str(hello)]) == 0
        assert work.take() == (0, 0)


@pytest.mark.parametrize(
    "payload", [b"", b"not a pickle", b"\x80\x04N.", b"\x80\x04cnowhere\nnothing\n."], ids=["empty", "text", "None", "class"]
)
def test_an_entry_of_another_form_is_none(payload: bytes, work: Work, hello: Path) -> None:
    assert cli.main([str(hello)]) == 0
    (entry,) = (path for path in files() if path.suffix == ".program")
    entry.write_bytes(garbage(payload))
    work.take()
    assert cli.main([str(hello)]) == 0
    assert work.take() == (1, 0)


def test_an_entry_without_its_objects_is_none(work: Work, hello: Path) -> None:
    assert cli.main([str(hello)]) == 0
    for path in files():
        if path.suffix == ".object":
            path.unlink()
    work.take()
    assert cli.main([str(hello)]) == 0
    assert work.take()[0] == 1
    assert cli.main([str(hello)]) == 0
    assert work.take() == (0, 0)


@pytest.mark.parametrize("folder", ["a file", "/proc/tlc-cannot-be-here", "/dev/null", "relative", ""])
def test_a_folder_that_cannot_be_written(
    folder: str, hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if folder == "a file":
        (tmp_path / "file").write_text("")
        folder = str(tmp_path / "file")
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert cli.main([str(hello)]) == 0
        assert capsys.readouterr() == ("n 3: 6\n", "")
    for words in ("cache", "clear"), ("cache",):
        assert cli.main([words[0], *words[1:]]) == 0
    assert not (tmp_path / "relative").exists()


def test_a_full_disk(work: Work, hello: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert cli.main([str(hello)]) == 0
    assert files() == []


def test_a_crash_in_the_middle_of_a_write(work: Work, hello: Path, tmp_path: Path) -> None:
    """The process dies with its file unfinished: nobody reads that, and it goes when it is old."""
    code = "import os, sys; os.replace = lambda a, b: os._exit(9); from tlc.driver import cli; cli.main(sys.argv[1:])"
    assert subprocess.run([sys.executable, "-c", code, str(hello)], check=False).returncode == 9
    # the first thing written are the parser's tables
    (unfinished,) = disk_cache.folder().iterdir()
    assert unfinished.name.startswith(disk_cache.TEMPORARY)
    left = disk_cache.folder() / "compiled" / unfinished.name
    left.parent.mkdir()
    unfinished.rename(left)
    assert cli.main([str(hello)]) == 0
    assert left.exists()  # its writer may be alive
    os.utime(left, (0, time.time() - 2 * cache.PATIENCE))
    hello.write_text(HELLO + "\n")
    assert cli.main([str(hello)]) == 0
    assert not left.exists()


KILLED = """
import os, signal, sys
from tlc.driver import cli

left = [int(sys.argv[1])]

def dies(f):
    def call(*args):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return f(*args)
    return call

class Slow:  # writes in two halves
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        half()
        self.file.write(data[len(data) // 2 :])

open_file, half = os.fdopen, dies(lambda: None)
os.fdopen = lambda handle, mode: Slow(open_file(handle, mode))
os.replace = dies(os.replace)
cli.main(sys.argv[2:])
"""


def test_killed_at_every_moment_of_every_write(hello: Path, tmp_path: Path) -> None:
    """Between the halves of a file's content and before its renaming, for each file in turn, while another run goes on. Whoever comes later finds
    whole files or none.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    other = hello.with_name("beside.tl")
    other.write_text(HELLO)
    beside = subprocess.Popen([sys.executable, "-m", "tlc", str(other)], env=environment, stdout=subprocess.PIPE, text=True)
    moments = 0
    while True:
        moments += 1
        hello.write_text(HELLO + "\n" * moments)  # another program, so that it is kept anew
        command = [sys.executable, "-c", KILLED, str(moments), str(hello)]
        status = subprocess.run(command, env=environment, capture_output=True, check=False).returncode
        kept = [path for path in (tmp_path / "cache").rglob("*.*") if path.is_file() and not path.name.startswith(disk_cache.TEMPORARY)]
        assert all(disk_cache.read(path) is not None for path in kept)
        if status == 0:
            break
        assert status == -9
    assert moments > 2
    assert beside.communicate()[0] == "n 3: 6\n"
    again = subprocess.run([sys.executable, "-m", "tlc", str(hello)], env=environment, capture_output=True, text=True, check=True)
    assert (again.stdout, again.stderr) == ("n 3: 6\n", "")


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: str, target: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path / "c")["key"] = b"data"
    assert list((tmp_path / "c").iterdir()) == []


# ---------------------------------------------------------------- many at once


def test_runs_at_the_same_time(hello: Path, tmp_path: Path) -> None:
    """They start with an empty cache, or with one whose files are damaged while they run."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tlc", str(hello)]
    for damaged in (False, True):
        if damaged:
            for path in (tmp_path / "cache").rglob("*.*"):
                if path.is_file():
                    path.write_bytes(path.read_bytes()[:-1])
        running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        assert [process.communicate()[0] for process in running] == ["n 3: 6\n"] * 3
        assert all(disk_cache.read(path) is not None for path in (tmp_path / "cache").rglob("*.*"))


def test_readers_and_writers_and_a_small_limit(tmp_path: Path) -> None:
    """What is read is whole, while others write the same keys and remove what is oldest."""
    wrong: list[str] = []

    def play(seed: int) -> None:
        own = Cache(tmp_path / "c", limit=20_000)
        for k in range(150):
            key = str((k * (seed + 3)) % 7)
            own[key] = key.encode() * 5000
            got = own.get(str(k % 7))
            if got not in (None, str(k % 7).encode() * 5000):
                wrong.append(key)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(path.stat().st_size for path in (tmp_path / "c").iterdir()) <= 20_000 + 4 * 5_032


# ---------------------------------------------------------------- size


def test_what_was_not_used_for_the_longest_time_goes(tmp_path: Path) -> None:
    kept = Cache(tmp_path, limit=1000)
    for k in range(4):
        kept[str(k)] = bytes(200)
        os.utime(kept._path(str(k), "object"), (0, 1000 + k))
    assert kept.get("0") is not None  # now it is the youngest
    kept["4"] = bytes(200)  # 5 * 232 > 1000
    assert [k for k in range(5) if kept.get(str(k)) is not None] == [0, 3, 4]


def test_tlc_cache(work: Work, hello: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown() -> list[list[str]]:
        assert cli.main(["cache"]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    tables.load.cache_clear()
    modules.library.cache_clear()
    assert shown()[:2] == [["folder", str(tmp_path / "cache" / "tlc")], ["compiled", "programs", "0", "0.0", "kB"]]
    assert cli.main([str(hello)]) == 0
    data = tmp_path / "cache" / "tlc" / "data" / "mnist"
    data.mkdir(parents=True)
    (data / "mine").write_text("x")
    capsys.readouterr()
    counts = ["compiled programs 1", "machine code 1", "tuned kernels 0", "kernels of GPUs 0", "parser tables 1", "library trees 1"]
    assert [" ".join(line[:-2]) for line in shown()[1:]] == counts
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 4 files, ")
    assert [line[-3:] for line in shown()[1:]] == [["0", "0.0", "kB"]] * 6
    assert (data / "mine").exists()
    assert cli.main(["cache", "claer"]) == 2
    assert "found `claer`" in capsys.readouterr().err


# ---------------------------------------------------------------- what a start must not load

LOADED = "import sys; from tlc.driver import cli; cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
HEAVY = {"numba", "networkx", "matplotlib", "scipy", "tqdm", "pandas", "torch", "jax"}
COMPILER = {"ply", "tlc.driver.pipeline"} | {
    f"tlc.{m}" for m in ("frontend.parser", "frontend.check", "opt", "tensor", "ssa.interp", "backends.llvm.host")
}


def loaded(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_a_start_loads_what_it_needs(hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cold = loaded(str(hello))
    assert not HEAVY & cold
    assert cold >= COMPILER
    assert not (HEAVY | COMPILER) & loaded(str(hello))
    assert not (HEAVY | COMPILER | {"llvmlite"}) & loaded("--help")
    assert not (HEAVY | COMPILER | {"llvmlite"}) & loaded("cache")

"""`io`: files and the terminal, natively and in the interpreter; what fails says the path, the cause and the line of the program."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tlc.backends.runtime import files
from tlc.backends.runtime.services import WorldServices
from tlc.driver import cli, pipeline
from tlc.ssa.world import RuntimeStop

MODES = [["--host", host] for host in pipeline.hosts()] + [["--interp"]]
TLC = [sys.executable, "-m", "tlc"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(program: str, *flags: str, mode: list[str] = MODES[0]) -> int:
    Path("program.tl").write_text(program, encoding="utf-8")
    return cli.main([*mode, "program.tl", *flags])


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_text_and_bytes(mode: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "in.txt").write_bytes("größe\r\n".encode())
    program = """
use io
fn main() {
  let text = io.read("in.txt")
  print(len(io.read_bytes("in.txt")), io.encode("ß"), text == "größe\\r\\n")
  io.write("out.txt", "[{text}]")
  io.append("out.txt", "more")
  io.write_bytes("out.bin", u8(for[i < 300] i))
  io.write("out.bin", io.decode(io.read_bytes("out.bin")[65..70]))
  print(io.exists("out.txt"), io.exists("nothing"), io.exists("."), io.read("out.bin"))
}
"""
    assert run(program, mode=mode) == 0
    assert capfd.readouterr().out == "9 [195 159] true\ntrue false true ABCDE\n"
    assert (folder / "out.txt").read_bytes() == "[größe\r\n]more".encode()
    assert sorted(path.name for path in folder.iterdir()) == ["in.txt", "out.bin", "out.txt", "program.tl"]


FAULTS = {
    'io.read("none.txt")': "cannot read none.txt: no such file or directory",
    'io.read(".")': "cannot read .: is a directory",
    'io.read("bad.txt")': "bad.txt is no text in UTF-8: byte 2 is 0xff",
    'io.read("a\\0b")': "cannot read 'a\\x00b': the name has a zero byte",
    'io.read_bytes("none.txt")': "cannot read none.txt: no such file or directory",
    'io.write("none/a.txt", "")': "cannot write none/a.txt: no such file or directory",
    'io.write(".", "")': "cannot write .: is a directory",
    'io.append("none/a.txt", "")': "cannot write none/a.txt: no such file or directory",
    'io.save(1, "none/a")': "cannot write none/a: no such file or directory",
    'io.load("none", like = 1)': "cannot read none: no such file or directory",
}


@pytest.mark.parametrize("mode", [MODES[0], MODES[-1]], ids=" ".join)
@pytest.mark.parametrize("call", FAULTS)
def test_a_fault_has_its_place_and_cause(call: str, mode: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.txt").write_bytes(b"ok\xff")
    prints = call.startswith(("io.read", "io.load"))
    assert run(f"use io\nfn main() {{\n  {f'print({call})' if prints else call}\n}}\n", mode=mode) == 1
    error = capfd.readouterr().err.splitlines()
    assert error[0] == f"error[R0014]: {FAULTS[call]}"
    assert error[1] == f" --> program.tl:3:{9 if prints else 3}"


def test_what_may_not_be_written_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.txt").write_text("old")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RuntimeStop, match=r"cannot write a\.txt: permission denied"):
        files.write("a.txt", "new")
    assert (folder / "a.txt").read_text() == "old"


def test_what_is_no_file_is_written_as_it_goes(folder: Path) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write("pipe", "through")
        assert os.read(reader, 100) == b"through"
        assert (folder / "pipe").is_fifo()
    finally:
        os.close(reader)


def test_who_may_read_a_file_is_what_the_user_says(folder: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_bytes("a", np.array([1], np.uint8))
    finally:
        os.umask(before)
    assert (folder / "a").stat().st_mode & 0o777 == 0o640


# ---------------------------------------------------------------- what comes between


@contextmanager
def hangups_end() -> Iterator[None]:
    """What is started here ends at a hang-up: tests may run under `nohup`, which has it ignored by all below, and `tlc` keeps to that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("ends", "status"),
    [([signal.SIGINT], 130), ([signal.SIGINT] * 3, 130), ([signal.SIGTERM], 143), ([signal.SIGHUP], 129), ([signal.SIGKILL], -9)],
    ids=["Ctrl-C", "Ctrl-C again", "term", "hangup", "kill"],
)
def test_an_end_in_the_middle_leaves_a_whole_file(ends: list[signal.Signals], status: int, folder: Path) -> None:
    program = """
use io
fn main() {
  var x = zeros(2_000_000)
  while true { x = x + 1.0; io.save(x, "m.safetensors") }
}
"""
    Path("program.tl").write_text(program)
    with hangups_end():
        process = subprocess.Popen([*TLC, "program.tl"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "m.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        for end in ends:
            process.send_signal(end)
            time.sleep(0.02)
        assert process.wait(60) == status
    finally:
        process.kill()
        process.wait()
    x = safetensors.numpy.load_file("m.safetensors")["value"]
    assert x.shape == (2_000_000,)
    assert (x == x[0]).all()
    assert x[0] >= 1
    if end != signal.SIGKILL:
        assert sorted(path.name for path in folder.iterdir()) == ["m.safetensors", "program.tl"]


# ---------------------------------------------------------------- the terminal

ECHO = """
use io
fn main() {
  var going = true
  while going {
    let (line, found) = io.read_line("> ")
    if found { print("[{line}]") }
    going = found
  }
}
"""


@pytest.mark.parametrize("mode", [MODES[0], MODES[-1]], ids=" ".join)
def test_lines_of_standard_input(mode: list[str]) -> None:
    Path("program.tl").write_text(ECHO)
    done = subprocess.run([*TLC, *mode, "program.tl"], input="eins\r\n\nzwei ß\nthe last".encode(), capture_output=True, timeout=60, check=True)
    assert done.stdout.decode() == "> [eins]\n> []\n> [zwei ß]\n> [the last]\n> "


@pytest.mark.parametrize("mode", [MODES[0], MODES[-1]], ids=" ".join)
def test_ctrl_c_while_it_waits(mode: list[str]) -> None:
    Path("program.tl").write_text(ECHO)
    process = subprocess.Popen([*TLC, *mode, "program.tl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(2) == b"> "  # it waits now
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == b"error: stopped by Ctrl-C\n"
    assert process.returncode == 130


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
def test_print_with_an_end(mode: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    program = """
fn main() {
  print(1, 2.5, end = "")
  print("", end = "")
  let n = 3
  print("a", end = " {n}\\n")
  print(end = "!")
  print()
}
"""
    assert run(program, mode=mode) == 0
    assert capfd.readouterr().out == "1 2.5a 3\n!\n"


def test_a_piece_of_a_line_is_seen_at_once_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        flushed = 0

        def isatty(self) -> bool:
            return True

        def flush(self) -> None:
            self.flushed += 1

    terminal = Terminal()
    services = WorldServices(terminal)
    services.put("a")
    assert terminal.flushed == 1
    services.print("b")
    assert (terminal.flushed, terminal.getvalue()) == (1, "ab\n")

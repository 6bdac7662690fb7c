"""`tlc data`: fetching data sets from a server on this machine, and what happens when that server fails. No other machine is asked."""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tlc.backends.runtime import datasets
from tlc.backends.runtime.datasets import DataFile, DataSet
from tlc.backends.runtime.texts import read_text
from tlc.driver import cli, fetch
from tlc.frontend import disk_cache
from tlc.ssa.world import RuntimeStop

CONTENT = {"toy/one": bytes(range(256)) * 3000, "toy/two": b"two", "play.txt": b"Exeunt.\n"}


def row(path: str, remote: str) -> DataFile:
    return DataFile(path, remote, len(CONTENT[path]), hashlib.sha256(CONTENT[path]).hexdigest())


TOY = DataSet("toy", "two files", "free", ("http://127.0.0.1:1/a/",), (row("toy/one", "one.gz"), row("toy/two", "two.gz")))
PLAY = DataSet("play", "a play", "free", ("http://127.0.0.1:1/b/",), (row("play.txt", "input.txt"),))

Answer = tuple[int, bytes, int]  # status, body, the length that the header claims


class Server:
    """A mirror. `files` are what it has; `asked` the paths it was asked for, in order."""

    def __init__(self) -> None:
        self.files: dict[str, Callable[[], Answer]] = {}
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                status, body, length = server.files.get(self.path, lambda: (404, b"", 0))()
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # type: ignore[method-assign] # a client may go away
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/"

    def has(self, path: str, body: bytes, length: int | None = None, status: int = 200) -> None:
        self.files[path] = lambda: (status, body, len(body) if length is None else length)

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A mirror with everything whole, an empty cache, and the two small sets in place of the real ones."""
    server = Server()
    server.has("/one.gz", gzip.compress(CONTENT["toy/one"]))
    server.has("/two.gz", gzip.compress(CONTENT["toy/two"]))
    server.has("/input.txt", CONTENT["play.txt"])
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("TLC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TLC_DATA_MIRROR", server.address)
    monkeypatch.setitem(datasets.DATA_SETS, "toy", TOY)
    monkeypatch.setitem(datasets.DATA_SETS, "play", PLAY)
    yield server
    server.close()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def data() -> Path:
    return datasets.cache_folder()


def test_the_rows_say_what_the_readers_read() -> None:
    from tlc.backends.runtime import mnist, texts

    names = {Path(file.path).name for file in datasets.DATA_SETS["mnist"].files}
    assert names == {name.format(prefix) for prefix in mnist.PREFIX.values() for name in (mnist.IMAGES, mnist.LABELS)}
    assert list(texts.TEXTS) == ["tinyshakespeare"]
    for row in datasets.DATA_SETS.values():
        assert all(mirror.startswith("https://") for mirror in row.mirrors)


def test_get(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "get", "toy", "play"]) == 0
    assert files(data()) == CONTENT
    assert capsys.readouterr().out == f"toy: 0.8 MB in {data()} (free)\nplay: 0.0 MB in {data()} (free)\n"
    assert server.asked == ["/one.gz", "/two.gz", "/input.txt"]
    assert (data() / "play.txt").stat().st_mode & 0o777 == 0o666 & ~disk_cache.umask()
    assert cli.main(["data", "get", "toy"]) == 0  # all is there
    assert len(server.asked) == 3
    assert capsys.readouterr().out == f"toy: already in {data()}\n"


def test_only_what_is_missing_or_wrong_is_fetched(server: Server) -> None:
    assert cli.main(["data", "get", "toy"]) == 0
    (data() / "toy/two").write_bytes(b"owt")  # as long, but another
    assert cli.main(["data", "get", "toy"]) == 0
    assert server.asked[2:] == ["/two.gz"]
    assert files(data())["toy/two"] == b"two"


@pytest.mark.parametrize(
    ("body", "length", "status", "message"),
    [
        (b"", 0, 404, "the server answers 404 Not Found"),
        (b"", 0, 503, "the server answers 503 Service Unavailable"),
        (gzip.compress(CONTENT["toy/one"])[:900], None, 200, "it ends after "),
        (gzip.compress(CONTENT["toy/one"])[:900], 5000, 200, "it ends after "),  # the connection breaks
        (gzip.compress(CONTENT["toy/one"][::-1]), None, 200, "this is another file: its SHA-256 is "),
        (gzip.compress(CONTENT["toy/one"] + b"!"), None, 200, "this is another file: it is longer than 768000 bytes"),
        (gzip.compress(bytes(10_000_000)), None, 200, "this is another file: it is longer than 768000 bytes"),
        (b"<html>log in to this network</html>", None, 200, "it is damaged, or not compressed by gzip"),
    ],
)
def test_a_mirror_that_fails(
    server: Server, body: bytes, length: int | None, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.has("/one.gz", body, length, status)
    assert cli.main(["data", "get", "toy"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: cannot fetch toy/one:\n  {server.address}one.gz: {message}")
    assert files(data()) == {}


def test_a_failure_keeps_what_is_there(server: Server) -> None:
    server.has("/two.gz", b"", status=500)
    assert cli.main(["data", "get", "toy"]) == 1
    assert files(data()) == {"toy/one": CONTENT["toy/one"]}
    (data() / "toy/one").write_bytes(b"mine")
    server.has("/one.gz", b"", status=500)
    assert cli.main(["data", "get", "toy"]) == 1
    assert files(data()) == {"toy/one": b"mine"}


def test_no_network(server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TLC_DATA_MIRROR", "http://127.0.0.1:1/")
    assert cli.main(["data", "get", "play"]) == 1
    assert capsys.readouterr().err == "error: cannot fetch play.txt:\n  http://127.0.0.1:1/input.txt: connection refused\n"


def test_a_server_that_says_nothing(server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done = threading.Event()
    server.files["/input.txt"] = lambda: (200, b"x" * done.wait(10), 0)
    monkeypatch.setattr(fetch, "TIMEOUT", 0.1)
    try:
        assert cli.main(["data", "get", "play"]) == 1
    finally:
        done.set()
    assert "no answer for 0 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("mirror", ["nonsense", "ftp:", "gopher://127.0.0.1/"])
def test_an_address_that_is_none(mirror: str, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TLC_DATA_MIRROR", mirror)
    assert cli.main(["data", "get", "play"]) == 1
    assert capsys.readouterr().err.startswith("error: cannot fetch play.txt:\n")


def test_the_next_mirror(server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TLC_DATA_MIRROR")
    two = DataSet("toy", "two files", "free", ("http://127.0.0.1:1/", server.address + "x", server.address), TOY.files)
    monkeypatch.setitem(datasets.DATA_SETS, "toy", two)
    assert cli.main(["data", "get", "toy"]) == 0
    assert server.asked == ["/x/one.gz", "/one.gz", "/x/two.gz", "/two.gz"]
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cli.main(["data", "get", "play"]) == 1
    assert capsys.readouterr().err == f"error: cannot write {data() / 'play.txt'}: not a directory\n"

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "replace", full)
    assert cli.main(["data", "get", "play"]) == 1
    assert "no space left on device" in capsys.readouterr().err
    assert files(data()) == {}


def test_ctrl_c_leaves_nothing(server: Server, tmp_path: Path) -> None:
    """The real command, stopped while a file is on its way."""
    begun, done = threading.Event(), threading.Event()

    def slow() -> Answer:
        begun.set()
        done.wait(30)
        return 200, b"", 0

    server.files["/input.txt"] = slow
    process = subprocess.Popen([sys.executable, "-m", "tlc", "data", "get", "tinyshakespeare"], stderr=subprocess.PIPE, text=True)
    try:
        assert begun.wait(30)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        done.set()
        process.kill()
    assert process.returncode == 130
    assert err == "error: stopped by Ctrl-C\n"
    assert files(tmp_path) == {}


@pytest.mark.parametrize("words", [["fetch"], ["get"], ["get", "mist"], ["get", "nothing"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", *words]) == 2
    assert ("did you mean `mnist`?" in capsys.readouterr().err) == (words[-1] == "mist")


def test_the_list(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "get", "toy"]) == 0
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "play.txt").write_bytes(CONTENT["play.txt"])
    capsys.readouterr()
    assert cli.main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["folder", str(data())]
    assert f"two files (free): in {data()}" in lines[3]
    assert "not here, `tlc data get play` fetches 0.0 MB" in lines[4]
    monkeypatch.setenv("TLC_DATA", str(mine))
    assert cli.main(["data"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"in {mine}" in lines[4]
    assert "70,000 handwritten digits (CC BY-SA 3.0, as stated by its authors): not here, `tlc data get mnist` fetches 55.0 MB" in lines[1]


# ---------------------------------------------------------------- reading texts


def read(name: str) -> bytes:
    (text,) = read_text(name)
    assert text.dtype == np.uint8
    return text.tobytes()


def test_a_text_by_name(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeStop) as stop:
        read("tinyshakespeare")
    assert stop.value.message == f"there is no tinyshakespeare.txt in {data()}; `tlc data get tinyshakespeare` fetches it"
    data().mkdir(parents=True)
    (data() / "tinyshakespeare.txt").write_bytes(b"cached")
    assert read("tinyshakespeare") == b"cached"
    monkeypatch.setenv("TLC_DATA", str(tmp_path / "mine"))
    assert read("tinyshakespeare") == b"cached"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tinyshakespeare.txt").write_bytes(b"mine")
    assert read("tinyshakespeare") == b"mine"


def test_a_text_by_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x00\xffa")
    assert read(str(tmp_path / "a.txt")) == b"\x00\xffa"
    with pytest.raises(RuntimeStop, match="is a directory"):
        read(str(tmp_path))
    with pytest.raises(RuntimeStop, match=r'there is no text "b\.txt": it is no file, and by name there is "tinyshakespeare"'):
        read("b.txt")


def test_a_program_reads_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_bytes(b"banana")
    program = tmp_path / "count.tl"
    program.write_text('use data\nfn main(path: str) {\n  let text = data.text(path)\n  print(sum(i64(text == 97)), "of {len(text)}")\n}\n')
    assert cli.main([str(program), "--path", str(tmp_path / "a.txt")]) == 0
    assert capsys.readouterr().out == "3 of 6\n"
    assert cli.main([str(program), "--path", "no"]) == 1
    assert 'there is no text "no"' in capsys.readouterr().err

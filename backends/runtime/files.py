"""Files of programs: reading them whole, and writing them so that a reader sees the old content or the new one, whatever comes between.

What the system refuses is a `RuntimeStop` with the path and the cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tlc.frontend import disk_cache
from tlc.ssa.world import RuntimeStop

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@contextmanager
def failing(what: str, path: str) -> Iterator[None]:
    """Say in the words of the program what the system refuses inside: "cannot read runs/a.txt: no such file or directory"."""
    if not path:
        raise RuntimeStop(f"cannot {what} a file without a name: the path is empty", "file")
    if "\0" in path:
        raise RuntimeStop(f"cannot {what} {path!r}: the name has a zero byte", "file")
    try:
        yield
    except OSError as error:
        raise RuntimeStop(f"cannot {what} {path}: {(error.strerror or str(error)).lower()}", "file") from error


@contextmanager
def whole(path: str) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` when all of it is on the disk. Until then, and after a failure, the old one stays.

    A link keeps leading to its file. What is no file (a terminal, a pipe, a device) is written as it goes. Raises OSError.
    """
    if _is_no_file(path):
        with open(path, "wb") as stream:
            yield stream
        return
    real = Path(os.path.realpath(path))
    if real.exists() and not os.access(real, os.W_OK):
        raise PermissionError(13, os.strerror(13))
    with disk_cache.replacing(real, _prefix(real), public=True) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def try_whole(path: str) -> None:
    """Raise the OSError that `whole` would raise before anything is written, and change nothing: a file is begun, and given up."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise IsADirectoryError(21, os.strerror(21))
    if not _is_no_file(path) and not real.parent.is_dir():
        code = 20 if real.parent.exists() else 2
        raise OSError(code, os.strerror(code))
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13))
    if not _is_no_file(path):
        disk_cache.try_replacing(real, _prefix(real))


def _is_no_file(path: str) -> bool:
    """Whether something else has this name. The path itself is asked: `/dev/stdout` may lead to a pipe, which has none."""
    return os.path.exists(path) and not os.path.isfile(path)


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """`whole` for a program."""
    with failing("write", path), whole(path) as stream:
        yield stream


def _prefix(real: Path) -> str:
    """How the name of a file begins that is to take the place of another."""
    return f".{real.name[:100]}."


# ---------------------------------------------------------------- the services of `io`


def read_bytes(path: str) -> tuple[Bytes]:
    """The content of a file, `u8[n]`."""
    with failing("read", path):
        return (np.frombuffer(Path(path).read_bytes(), np.uint8),)


def read(path: str) -> tuple[str]:
    """The text of a file."""
    (content,) = read_bytes(path)
    try:
        return (content.tobytes().decode(),)
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is 0x{content[error.start]:02x}"
        raise RuntimeStop(f"{path} is no text in UTF-8: {found}", "file", ("`io.read_bytes` reads what is no text",)) from None


def write_bytes(path: str, content: Bytes) -> tuple[()]:
    """Make the file, or put the content in place of what was there."""
    with replacing(path) as stream:
        stream.write(np.ascontiguousarray(content).data)
    return ()


def write(path: str, text: str) -> tuple[()]:
    """The same of a text."""
    return write_bytes(path, *encode(text))


def append(path: str, text: str) -> tuple[()]:
    """Add to the end of a file, in one piece; make it if there is none."""
    with failing("write", path), open(path, "ab", buffering=0) as stream:
        stream.write(text.encode())
    return ()


def ensure_writable(path: str) -> tuple[()]:
    """Fail as writing the file would, and change nothing."""
    with failing("write", path):
        try_whole(path)
    return ()


def exists(path: str) -> tuple[bool]:
    """Whether there is a file or folder of this name."""
    return (os.path.exists(path),)


def encode(text: str) -> tuple[Bytes]:
    """The bytes of a text in UTF-8."""
    return (np.frombuffer(text.encode(), np.uint8),)


def decode(content: Bytes) -> tuple[str]:
    """The text of bytes; a sign of its own stands for what is no UTF-8."""
    return (content.tobytes().decode(errors="replace"),)

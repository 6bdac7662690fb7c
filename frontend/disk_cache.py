"""Files that `tlc` can make again, kept in the user's cache folder: `$XDG_CACHE_HOME/tlc`, by default `~/.cache/tlc`.

A file begins with a hash of the rest, so one that is damaged or cut short reads as none. It is written under another
name first and then renamed: whoever reads or writes at the same time sees all of it or nothing, and a crash in the
middle leaves at most a file with a temporary name. A folder that cannot be read or written is never an error.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

TEMPORARY = ".tmp-"  # how the names of unfinished files begin
NOWHERE = Path(os.devnull)  # a folder in which nothing can be kept
_DIGEST = 32


def folder() -> Path:
    """The cache folder, whether it exists or not. Only an absolute path counts: that is the standard's rule."""
    for root in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(root):
            return Path(root) / "tlc"
    return NOWHERE  # a user without a home


def read(path: Path) -> bytes | None:
    """What was written there, or None if that is not there whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST], content[_DIGEST:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def write(path: Path, payload: bytes) -> None:
    """Keep `payload` there, in place of what was there before."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, TEMPORARY) as file:
            file.write(hashlib.sha256(payload).digest() + payload)


def stamps(paths: Iterable[Path | str]) -> list[tuple[str, int, int]]:
    """The files of a program with their sizes and times: so Python itself knows when to compile a module anew."""
    return sorted((str(path), status.st_size, status.st_mtime_ns) for path in paths for status in (os.stat(path),))


def umask() -> int:
    """What files of this process are not to allow."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


_unfinished: set[str] = set()  # temporary files of this process
_may_begin = threading.Lock()  # held while one is made, and for good when the process ends


@atexit.register
def _drop_unfinished() -> None:
    """Where the process ends in the middle of writing: a thread left behind neither comes back to clean up nor may begin again."""
    _may_begin.acquire()
    for path in tuple(_unfinished):
        with suppress(OSError):
            os.unlink(path)


@contextmanager
def _temporary(folder: Path, prefix: str) -> Iterator[tuple[IO[bytes], str]]:
    """A new file to write, and its path. Behind that it is gone, unless it has another name by then."""
    import tempfile

    path = ""
    try:
        with _may_begin:
            handle, path = tempfile.mkstemp(dir=folder, prefix=prefix)
            _unfinished.add(path)
        with os.fdopen(handle, "wb") as file:
            yield file, path
    finally:
        if path in _unfinished:
            with suppress(OSError):
                os.unlink(path)
            _unfinished.discard(path)


@contextmanager
def replacing(path: Path, prefix: str, public: bool = False) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` when all is written; if anything comes between, nothing there has changed.
    `public`: others may read it, as they may what programs write. Raises OSError.
    """
    with _temporary(path.parent, prefix) as (file, temporary):
        with file:
            yield file
        if public:
            os.chmod(temporary, 0o666 & ~umask())  # `mkstemp` lets nobody else read
        os.replace(temporary, path)
        _unfinished.discard(temporary)


def try_replacing(path: Path, prefix: str) -> None:
    """Begin to replace a file, and leave it at that. Raises OSError."""
    with _temporary(path.parent, prefix):
        pass

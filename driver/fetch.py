"""Fetching one file from where it is published: all of it, checked, or nothing.

The bytes go into a file with a temporary name in the same folder, which gets its name when its SHA-256 is right; so
nobody ever reads half a file, whatever ends the work. Mirrors are tried in order; if none has the right file, the error
says what was wrong with each.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tlc.backends.runtime.datasets import DataFile
from tlc.frontend import disk_cache

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without a byte
GZIP = 31  # zlib's name of the format

Tick = Callable[[int], None]  # gets the number of unpacked bytes that are there


class FetchError(Exception):
    """The file could not be had; the message is for the user."""


class _Wrong(Exception):
    """What is wrong with one mirror's answer."""


def is_whole(path: Path, file: DataFile) -> bool:
    """Whether the file is there and is what it should be."""
    try:
        if path.stat().st_size != file.size:
            return False
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def fetch(file: DataFile, mirrors: Sequence[str], path: Path, tick: Tick) -> None:
    """Put the file at `path`, in place of what was there. Raises FetchError; then nothing there has changed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk_cache.replacing(path, disk_cache.TEMPORARY, public=True) as out:
            _from_a_mirror(file, mirrors, out, tick)
    except OSError as error:
        raise FetchError(f"cannot write {path}: {_reason(error)}") from error


def _from_a_mirror(file: DataFile, mirrors: Sequence[str], out: IO[bytes], tick: Tick) -> None:
    wrong = []
    for mirror in mirrors:
        address = f"{mirror.rstrip('/')}/{file.remote}"
        out.seek(0)
        out.truncate()
        try:
            _copy(file, _unpacked(_body(address), file), out, tick)
            return
        except _Wrong as error:
            wrong.append(f"  {address}: {error}")
    raise FetchError(f"cannot fetch {file.path}:\n" + "\n".join(wrong))


def _copy(file: DataFile, pieces: Iterator[bytes], out: IO[bytes], tick: Tick) -> None:
    digest = hashlib.sha256()
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > file.size:
            raise _Wrong(f"this is another file: it is longer than {file.size} bytes")
        digest.update(piece)
        out.write(piece)
        tick(size)
    if size < file.size:
        raise _Wrong(f"it ends after {size} of {file.size} bytes")
    if digest.hexdigest() != file.sha256:
        raise _Wrong(f"this is another file: its SHA-256 is {digest.hexdigest()}, not {file.sha256}")
    out.flush()


def _body(address: str) -> Iterator[bytes]:
    """What an address gives, in pieces. An answer that ends early ends without an error here: its length is checked later."""
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "tlc"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            while piece := response.read(CHUNK):
                yield piece
    except urllib.error.HTTPError as error:
        raise _Wrong(f"the server answers {error.code} {error.reason}".rstrip()) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _Wrong(_reason(error)) from error


def _unpacked(pieces: Iterator[bytes], file: DataFile) -> Iterator[bytes]:
    """The bytes inside, where the mirror has the file compressed; never much more at once than a piece holds."""
    if not file.remote.endswith(".gz"):
        yield from pieces
        return
    unpack = zlib.decompressobj(GZIP)
    try:
        for piece in pieces:
            rest = piece
            while rest and not unpack.eof:
                yield unpack.decompress(rest, 16 * CHUNK)
                rest = unpack.unconsumed_tail
    except zlib.error as error:
        raise _Wrong("it is damaged, or not compressed by gzip") from error


def _reason(error: Any) -> str:
    """What an error of the system or of the connection says, in one line."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, TimeoutError):
        return f"no answer for {TIMEOUT:.0f} seconds"
    return str(getattr(inner, "strerror", None) or inner or type(inner).__name__).lower()

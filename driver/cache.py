"""Compiled programs kept on disk: a warm start finds the machine code of the same program and does no work of a compiler.

Two kinds of files lie in the folder `compiled` of the cache (`frontend/disk_cache.py` keeps each of them whole):

    KEY.object    machine code; the key is what it was made from: the LLVM text, LLVM's version, the CPU with its features; of own
                  code, the code itself
    KEY.program   the keys of its objects, its tables, and its other source files with a hash of each; the key is the
                  command: the program's path and text, the options, the arguments of `main`

Both keys take in the compiler itself. The other files of a program are not known before it is parsed, so an entry names
them and counts only while they are what they were. Machine code of another command that gave the same LLVM text is shared.

An entry that is damaged, or whose objects are gone, is no entry. When the folder grows beyond its limit, what was not
used for the longest time goes.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from tlc.backends import cpu
from tlc.backends.program import Executable, Tables
from tlc.driver.options import Options
from tlc.frontend import disk_cache, pickled
from tlc.frontend.records import dataclass
from tlc.frontend.source import Source

LIMIT = 256 << 20  # bytes of all files together
CHOICE = ".choice"  # how files of `tlc tune` end
PATIENCE = 3600  # seconds after which an unfinished file has no writer any more
PARTS = ("frontend", "ssa", "opt", "regalloc", "tensor", "backends", "driver", "stdlib")  # what the compiler is made of


@dataclass(frozen=True)
class Entry:
    """The content of a `.program` file."""

    files: tuple[tuple[str, bytes], ...]  # the program's other source files: path and hash of the text
    objects: tuple[str, ...]  # keys
    tables: Tables
    host: str


class Cache:
    """The folder of compiled programs. For `jit` it is the store of objects."""

    def __init__(self, folder: Path | None = None, limit: int = LIMIT) -> None:
        self.folder = folder or disk_cache.folder() / "compiled"
        self.limit = limit

    # ------------------------------------------------------------ objects

    def get(self, key: str, /) -> bytes | None:
        return self._read(self._path(key, "object"))

    def __setitem__(self, key: str, data: bytes, /) -> None:
        self._write(self._path(key, "object"), data)

    # ------------------------------------------------------------ programs

    def find(self, command: str) -> Executable | None:
        """The program of a `command_key`, compiled before from the same files, or None."""
        payload = self._read(self._path(command, "program"))
        entry = pickled.unpack(payload, Entry) if payload is not None else None
        if entry is None or not all(_hash_of(path) == digest for path, digest in entry.files):
            return None
        objects: dict[str, bytes] = {}
        for key in entry.objects:
            data = self.get(key)
            if data is None:
                return None
            objects[key] = data
        return Executable(objects, entry.tables, entry.host)

    def keep(self, command: str, executable: Executable, sources: Sequence[Source]) -> None:
        """Remember what a command gave. `sources` are the program's own files, the one of the command first."""
        files = tuple((_absolute(s.path), _hash(s.text)) for s in sources[1:])
        for key, data in executable.objects.items():
            if not self._path(key, "object").exists():  # it may have come from elsewhere, or be gone by now
                self[key] = data
        entry = Entry(files, tuple(executable.objects), executable.tables, executable.host)
        self._write(self._path(command, "program"), pickled.pack(entry))

    # ------------------------------------------------------------ the folder

    def files(self) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
        """All files, the unfinished too."""
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):  # another process was faster
                    yield entry, entry.stat()

    def trim(self) -> None:
        """If the files are larger than the limit, remove the oldest until a quarter is free; and what a crash left unfinished."""
        files = sorted(self.files(), key=lambda f: f[1].st_mtime_ns)
        before = time.time() - PATIENCE
        total = sum(status.st_size for _, status in files)
        goal = self.limit * 3 // 4 if total > self.limit else total
        for entry, status in files:
            if total > goal or (entry.name.startswith(disk_cache.TEMPORARY) and status.st_mtime < before):
                _remove(entry.path)
                total -= status.st_size

    def _path(self, key: str, kind: str) -> Path:
        return self.folder / f"{_hash(f'{compiler()} {key}').hex()[:32]}.{kind}"

    def _read(self, path: Path) -> bytes | None:
        data = disk_cache.read(path)
        if data is not None:
            with suppress(OSError):
                os.utime(path)  # used just now
        return data

    def _write(self, path: Path, data: bytes) -> None:
        disk_cache.write(path, data)
        self.trim()


def command_key(source: Source, options: Options, args: Sequence[str]) -> str:
    """What a run is made from, as far as it is known before the program is parsed."""
    choices = choices_stamp() if options.tuned else None
    return repr((_machine(options.host), _absolute(source.path), source.path, source.text, options, choices, tuple(args)))


def choices_folder() -> Path:
    """Where what `tlc tune` found lies (`driver/tuned.py`)."""
    return disk_cache.folder() / "tuned"


def choices_stamp() -> int | None:
    """A number that changes with every choice that is kept; None where there is none."""
    try:
        any_there = any(name.endswith(CHOICE) for name in os.listdir(choices_folder()))
        return os.stat(choices_folder()).st_mtime_ns if any_there else None
    except OSError:
        return None


def _machine(host: str) -> str:
    """What machine code depends on besides the text. Kernels are LLVM's with any host, so its version counts with any."""
    if host == "llvm":
        from tlc.backends.llvm import jit

        return jit.machine_name()
    import llvmlite  # only its version

    return f"llvmlite {llvmlite.__version__}, {cpu.name()}"


@cache
def compiler() -> str:
    """Names this compiler."""
    root = Path(__file__).resolve().parent.parent
    files = disk_cache.stamps(
        os.path.join(folder, name)
        for part in PARTS
        for folder, _, names in os.walk(root / part)
        for name in names
        if name.endswith((".py", ".tl"))
    )
    return _hash(repr((files, sys.version, np.__version__))).hex()


# ---------------------------------------------------------------- helpers


def _absolute(path: str) -> str:
    """Not normalized: where a folder on the way is a link, it may lead elsewhere the next time."""
    return os.path.join(os.getcwd(), path)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _hash_of(path: str) -> bytes | None:
    try:
        return _hash(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)

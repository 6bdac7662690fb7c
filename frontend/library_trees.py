"""The parsed files of the standard library, kept in the user's cache: to read a tree takes a fifth of the time that parsing does.

A tree's file is named by what it depends on: the text, its path, the files of the front end with their sizes and times, and the
version of Python. `disk_cache.py` says how files are kept. One of another text or compiler is removed when the new one is written.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tlc.frontend import ast, disk_cache
from tlc.frontend.parser import parse
from tlc.frontend.source import NOWHERE, Source


def tree(source: Source) -> ast.Module:
    """The tree of a library's file. Raises CompileError if it does not parse."""
    name = Path(source.path).stem
    key = hashlib.sha256(repr((source.path, source.text, _front_end())).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = disk_cache.folder() / f"library-{name}-{key}.tree"
    kept = disk_cache.read(path)
    found = _unpack(kept, source) if kept is not None else None
    if found is None:
        found = parse(source)
        _remove_others(path, f"library-{name}-*.tree")
        disk_cache.write(path, _pack(found, source))
    return found


@cache
def _front_end() -> str:
    """Names this front end, as Python itself knows when to compile a module anew."""
    files = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in os.scandir(Path(__file__).parent) if e.name.endswith(".py"))
    return repr((files, sys.version_info[:3]))


def _remove_others(path: Path, pattern: str) -> None:
    with suppress(OSError):
        for other in path.parent.glob(pattern):
            if other != path:
                other.unlink(missing_ok=True)


class _Pickler(pickle.Pickler):
    """Sources are compared by identity, so they are named, not copied."""

    def __init__(self, buffer: io.BytesIO, source: Source) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.names = {id(NOWHERE.source): "nowhere", id(source): "source"}

    def persistent_id(self, obj: Any) -> str | None:
        return self.names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, source: Source) -> None:
        super().__init__(buffer)
        self.sources = {"nowhere": NOWHERE.source, "source": source}

    def persistent_load(self, pid: str) -> Source:
        return self.sources[pid]


def _pack(module: ast.Module, source: Source) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, source).dump(module)
    return buffer.getvalue()


def _unpack(payload: bytes, source: Source) -> ast.Module | None:
    """None for what no front end like this one wrote."""
    try:
        module = _Unpickler(io.BytesIO(payload), source).load()
    except Exception:
        return None
    return module if isinstance(module, ast.Module) else None

"""The parsed files of the standard library, kept in the user's cache: to read a tree takes a fifth of the time that parsing does.

A tree's file is named by what it depends on: the text, its path, the files of the front end with their sizes and times, and the
version of Python. `disk_cache.py` says how files are kept. One of another text or compiler is removed when the new one is written.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from tlc.frontend import ast, disk_cache, pickled
from tlc.frontend.parser import parse
from tlc.frontend.source import Source


def tree(source: Source) -> ast.Module:
    """The tree of a library's file. Raises CompileError if it does not parse."""
    name = Path(source.path).stem
    key = hashlib.sha256(repr((source.path, source.text, _front_end())).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = disk_cache.folder() / f"library-{name}-{key}.tree"
    kept = disk_cache.read(path)
    found = pickled.unpack(kept, ast.Module, source=source) if kept is not None else None
    if found is None:
        found = parse(source)
        _remove_others(path, f"library-{name}-*.tree")
        disk_cache.write(path, pickled.pack(found, source=source))
    return found


@cache
def _front_end() -> str:
    """Names this front end."""
    return repr((disk_cache.stamps(Path(__file__).parent.glob("*.py")), sys.version_info[:3]))


def _remove_others(path: Path, pattern: str) -> None:
    with suppress(OSError):
        for other in path.parent.glob(pattern):
            if other != path:
                other.unlink(missing_ok=True)

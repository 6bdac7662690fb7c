"""Finding and reading the files that `use` names: the standard library's, and those beside the file.

A library file is read and parsed once a process; the checker keeps one `ModuleScope` a file a program.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tlc.frontend import ast
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

STDLIB = Path(__file__).resolve().parent.parent / "stdlib"
REEXPORTED = {"permutation": "random"}  # names of other modules that are always there, as those of the prelude are


@cache
def library(name: str) -> ast.Module | None:
    """A module of the standard library, or None. Raises CompileError if it does not parse."""
    path = STDLIB / f"{name}.tl"
    return parse(Source(str(path), path.read_text(encoding="utf-8"))) if path.is_file() else None


def library_names() -> list[str]:
    """The modules that `use name` finds, for near names."""
    return sorted(p.stem for p in STDLIB.glob("*.tl"))


def beside(source: Source, path: str) -> Path:
    """The file that `use ./model` in this source means."""
    return (Path(source.path).parent / f"{path}.tl").resolve()


def read(path: Path, shown: str) -> ast.Module:
    """Parse a user's file. `shown` is its path in messages. Raises CompileError or OSError."""
    return parse(Source(shown, path.read_text(encoding="utf-8")))

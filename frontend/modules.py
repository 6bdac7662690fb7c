"""Finding and reading the files that `use` names: the standard library's, and those beside the file.

A library file is read and parsed once a process; the checker keeps one `ModuleScope` a file a program. Some functions of the library need
no `use` though they are not in the prelude, so that a program pays for them only if it names one: those of the modules `OFFERED`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tlc.frontend import ast, library_trees
from tlc.frontend.parser import parse
from tlc.frontend.source import Source

STDLIB = Path(__file__).resolve().parent.parent / "stdlib"
OFFERED = ("activations", "arrays")

_FUNCTION = re.compile(r"^##.*\nfn (\w+)", re.MULTILINE)  # one with documentation


@cache
def reexported() -> dict[str, str]:
    """The names that are always there, as those of the prelude are, and the modules that have them. No file is parsed for that."""
    names = {"permutation": "random"}
    for module in OFFERED:
        text = (STDLIB / f"{module}.tl").read_text(encoding="utf-8")
        names |= dict.fromkeys(_FUNCTION.findall(text), module)
    return names


@cache
def library(name: str) -> ast.Module | None:
    """A module of the standard library, or None. Raises CompileError if it does not parse."""
    path = STDLIB / f"{name}.tl"
    return library_trees.tree(Source(str(path), path.read_text(encoding="utf-8"), library=True)) if path.is_file() else None


def library_names() -> list[str]:
    """The modules that `use name` finds, for near names."""
    return sorted(p.stem for p in STDLIB.glob("*.tl"))


def beside(source: Source, path: str) -> Path:
    """The file that `use ./model` in this source means."""
    return (Path(source.path).parent / f"{path}.tl").resolve()


def read(path: Path, shown: str) -> ast.Module:
    """Parse a user's file. `shown` is its path in messages. Raises CompileError or OSError."""
    return parse(Source(shown, path.read_text(encoding="utf-8")))

"""A failure inside the compiler: say where, save what is needed to see it again, ask for a report.

It is never shown as the user's mistake, and never as a traceback: that goes into the saved file.
"""

from __future__ import annotations

import hashlib
import platform
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tlc.frontend import disk_cache
from tlc.frontend.diagnostics import InternalError

PACKAGES = ("tlc", "numpy", "llvmlite", "ply")


def versions() -> str:
    """The versions that a report needs, in one line."""
    return ", ".join([f"{name} {version(name)}" for name in PACKAGES] + [f"Python {platform.python_version()}", platform.platform()])


def describe(error: BaseException, arguments: Sequence[str], program: Path | None) -> str:
    """The message for the user, after saving a reproduction if the disk lets us."""
    where = _where(error)
    lines = [
        f"internal error in {where}: {_one_line(error)}",
        "  this is a fault of the compiler, not of the program",
    ]
    saved = _save(error, arguments, program, where)
    if saved is not None:
        lines.append(f"  please report it with the folder {saved}")
    return "\n".join(lines)


def _where(error: BaseException) -> str:
    """The pass and what it worked on, or the innermost module of the compiler on the way to the failure."""
    if isinstance(error, InternalError) and error.where:
        return error.where
    root = Path(__file__).resolve().parent.parent
    places = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    inside = [place.relative_to(root) for place in places if place.is_relative_to(root)]
    return str(inside[-1].with_suffix("")) if inside else "the compiler"


def _one_line(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    if isinstance(error, InternalError):
        return first.removeprefix(f"{error.where}: ")
    return f"{type(error).__name__}: {first}".removesuffix(": ")


def _save(error: BaseException, arguments: Sequence[str], program: Path | None, where: str) -> Path | None:
    """A folder with the program, the command, the versions and the traceback. None if it cannot be written."""
    try:
        source = program.read_bytes() if program is not None else b""
        name = hashlib.sha256(source + where.encode() + _one_line(error).encode()).hexdigest()[:12]
        folder = disk_cache.folder() / "reports" / name
        folder.mkdir(parents=True, exist_ok=True)
        if program is not None:
            (folder / program.name).write_bytes(source)
        report = f"tlc {' '.join(arguments)}\n{versions()}\n\n{''.join(traceback.format_exception(error))}"
        (folder / "report.txt").write_text(report, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return None
    return folder


def version(name: str) -> str:
    """That of an installed package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"

"""Writing a file for the user: all of it or nothing, whatever ends the work. A device or a pipe is written as it goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tlc.driver.flags import UsageError
from tlc.driver.output import unwritten


def check_writable(path: str) -> None:
    """Complain before long work about a file that could not be written after it."""
    from tlc.backends.runtime import files

    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write `{path}`: there is no folder `{folder}`")
    if Path(path).is_dir():
        raise UsageError(f"cannot write `{path}`: it is a folder")
    try:
        files.try_whole(path)
    except OSError as error:
        raise UsageError(str(unwritten(f"`{path}`", error))) from None


def write(path: str, text: str) -> None:
    """Put the text there, in place of what was there. Raises `OutputError` where that cannot be done; then no file has changed."""
    from tlc.backends.runtime import files

    try:
        with files.whole(path) as out:
            out.write(text.encode())
    except OSError as error:
        raise unwritten(f"`{path}`", error) from None


def write_json(path: str, found: Any) -> None:
    """Put plain data there as JSON. Raises as `write` does."""
    write(path, json.dumps(found, indent=2, ensure_ascii=False) + "\n")

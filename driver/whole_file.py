"""Writing a file for the user: all of it or nothing, whatever ends the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tlc.driver.flags import UsageError
from tlc.frontend import disk_cache


def check_writable(path: str) -> None:
    """Complain before long work about a file that could not be written after it."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"cannot write `{path}`: there is no folder `{folder}`")
    if Path(path).is_dir():
        raise UsageError(f"cannot write `{path}`: it is a folder")
    try:
        disk_cache.try_replacing(Path(path), _prefix(path))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write `{path}`: the folder `{folder}` may not be written ({why})") from None


def _prefix(path: str) -> str:
    return f".{Path(path).name[:100]}."


def write(path: str, text: str) -> None:
    """Put the text there, in place of what was there. Raises `UsageError` where that cannot be done; then nothing has changed."""
    try:
        with disk_cache.replacing(Path(path), _prefix(path), public=True) as out:
            out.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {(error.strerror or str(error)).lower()}") from None


def write_json(path: str, found: Any) -> None:
    """Put plain data there as JSON. Raises as `write` does."""
    write(path, json.dumps(found, indent=2, ensure_ascii=False) + "\n")

"""Files that `tlc` can make again, kept in the user's cache folder: `$XDG_CACHE_HOME/tlc`, by default `~/.cache/tlc`.

A file begins with a hash of the rest, so one that is damaged or cut short reads as none. It is written under another
name first and then renamed: whoever reads or writes at the same time sees all of it or nothing, and a crash in the
middle leaves at most a file with a temporary name. A folder that cannot be read or written is never an error.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

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
    import tempfile

    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, path)
        temporary = ""
    except OSError:
        pass
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)

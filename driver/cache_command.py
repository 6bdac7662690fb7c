"""`tlc cache`: what lies in the cache folder, and emptying it of what `tlc` can make again.

Data (`data/`, except what a crash left unfinished) and reproductions of failures (`reports/`) are neither counted nor removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tlc.frontend import disk_cache

# what a line counts, and the patterns of its files
KINDS = (
    ("compiled programs", ("compiled/*.program",)),
    ("machine code", ("compiled/*.object",)),
    ("tuned kernels", ("tuned/*.choice",)),
    ("kernels of GPUs", tuple(f"{place}/[0-9a-f]*" for place in ("ptx", "cubin"))),
    ("parser tables", ("*.tables",)),
    ("library trees", ("*.tree",)),
    ("unfinished", tuple(f"{place}{disk_cache.TEMPORARY}*" for place in ("compiled/", "tuned/", "ptx/", "cubin/", "", "data/**/"))),
)


def show() -> str:
    """The folder, and how many files of each kind there are and how large they are together."""
    lines = [f"{'folder':17}  {disk_cache.folder()}"]
    for kind, patterns in KINDS:
        sizes = [size for _, size in _files(patterns)]
        if sizes or kind != "unfinished":
            lines.append(f"{kind:17}  {len(sizes):5}  {_shown(sum(sizes)):>9}")
    return "\n".join(lines)


def clear() -> str:
    """Empty the cache; says what went."""
    count = total = 0
    for _, patterns in KINDS:
        for path, size in _files(patterns):
            with suppress(OSError):
                os.unlink(path)
                count, total = count + 1, total + size
    return f"removed {count} file{'' if count == 1 else 's'}, {_shown(total)}, from {disk_cache.folder()}"


def _files(patterns: tuple[str, ...]) -> Iterator[tuple[Path, int]]:
    for pattern in patterns:
        for path in sorted(disk_cache.folder().glob(pattern)):
            with suppress(OSError):  # another process was faster
                yield path, path.stat().st_size


def _shown(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"

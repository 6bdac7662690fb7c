"""`tlc data`: which data sets there are and where they lie, and fetching those that are not there.

Fetching may be repeated: a file that is there and right is kept, the others are fetched. `$TLC_DATA_MIRROR` is an address
to fetch from in place of the published ones; it has the files under the same names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tlc.backends.runtime.datasets import DATA_SETS, DataFile, DataSet, cache_folder, folders
from tlc.backends.runtime.progress import ProgressBar
from tlc.driver.fetch import fetch, is_whole

UNIT = 1000  # progress is shown in kilobytes


def show() -> str:
    """A line for each set: what it is, and where it lies or how to get it."""
    width = max(map(len, DATA_SETS))
    lines = [f"{'folder':{width}}  {cache_folder()}"]
    for row in DATA_SETS.values():
        found = next((folder for folder in folders() if all(_is_there(row, file, folder) for file in row.files)), None)
        state = f"in {found}" if found is not None else f"not here, `tlc data get {row.name}` fetches {_shown(row.size)}"
        lines.append(f"{row.name:{width}}  {row.doc} ({row.terms}): {state}")
    return "\n".join(lines)


def get(names: Sequence[str]) -> Iterator[str]:
    """Fetch what is not there of the sets, one by one; says where each lies. Raises `FetchError`."""
    return (_get(DATA_SETS[name]) for name in names)


def _get(row: DataSet) -> str:
    mirror = os.environ.get("TLC_DATA_MIRROR")
    folder = cache_folder()
    missing = [file for file in row.files if not is_whole(folder / file.path, file)]
    if not missing:
        return f"{row.name}: already in {folder}"
    total = sum(file.size for file in missing)
    bar = ProgressBar(row.name, total // UNIT, unit="kB")
    before = 0
    try:
        for file in missing:
            fetch(file, [mirror] if mirror else row.mirrors, folder / file.path, _tick(bar, before))
            before += file.size
    finally:
        bar.close()
    return f"{row.name}: {_shown(total)} in {folder} ({row.terms})"


def _tick(bar: ProgressBar, before: int) -> Callable[[int], None]:
    return lambda size: bar.update((before + size) // UNIT)


def _is_there(row: DataSet, file: DataFile, folder: Path) -> bool:
    """By its size: a look must be quick. A set in several files may also be compressed, as MNIST's reader takes it."""
    path = folder / file.path
    if path.is_file():
        return path.stat().st_size == file.size
    return len(row.files) > 1 and path.with_name(f"{path.name}.gz").is_file()


def _shown(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

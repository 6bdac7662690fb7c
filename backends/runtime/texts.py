"""Reading a text as bytes: one of the data sets by name, or a file by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tlc.backends.runtime import datasets
from tlc.ssa.world import RuntimeStop

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

TEXTS = {name: row.files[0] for name, row in datasets.DATA_SETS.items() if row.files[0].path == f"{name}.txt"}


def read_text(name: str) -> tuple[Bytes]:
    """The bytes `u8[n]` of the text that `name` means."""
    return (np.frombuffer(_read(_path(name)), np.uint8),)


def _path(name: str) -> Path:
    row = TEXTS.get(name)
    if row is None:
        if not Path(name).exists():
            names = " and ".join(f'"{known}"' for known in TEXTS)
            raise RuntimeStop(f'there is no text "{name}": it is no file, and by name there is {names}')
        return Path(name)
    found = next((path for folder in datasets.folders() if (path := folder / row.path).is_file()), None)
    if found is None:
        where = " or ".join(map(str, datasets.folders()))
        raise RuntimeStop(f"there is no {row.path} in {where}; `tlc data get {name}` fetches it")
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RuntimeStop(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error

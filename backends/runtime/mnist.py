"""Reading MNIST: the full set where the user has it, else the sample that comes with the compiler.

Looked for, in order: the folder `$TLC_DATA` or its subfolder `mnist`, the cache (`$XDG_CACHE_HOME/tlc/data/mnist`, by
default `~/.cache/tlc/data/mnist`), the sample. A folder counts if it has all four idx files, plain or compressed by gzip.

An idx file is two zero bytes, the element type (8: bytes), the rank, the extents as big-endian 32-bit words, then the
elements. A file is never trusted: what its header says is compared with what it holds.
"""

from __future__ import annotations

import gzip
import os
import struct
import sys
import zlib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tlc.backends.runtime import datasets
from tlc.ssa.world import RuntimeStop

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

PREFIX = {"train": "train", "test": "t10k"}
IMAGES, LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
SIDE = 28
CHUNK = 1 << 20


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_mnist(split: str) -> tuple[Bytes, Bytes]:
    """Pixels `u8[n, 784]` and digits `u8[n]` of the split `train` or `test`."""
    if split not in PREFIX:
        raise RuntimeStop(f'MNIST has no split "{split}", only "train" and "test"')
    folder, notice = find_folder()
    _say_once(notice)
    images = _read_idx(_present(folder, IMAGES.format(PREFIX[split])), 3)
    labels_path = _present(folder, LABELS.format(PREFIX[split]))
    labels = _read_idx(labels_path, 1)
    if images.shape[1:] != (SIDE, SIDE):
        raise RuntimeStop(f"the images in {folder} have {images.shape[1]} by {images.shape[2]} pixels, those of MNIST {SIDE} by {SIDE}")
    if len(images) != len(labels):
        raise RuntimeStop(f"{folder} has {len(images)} images but {len(labels)} labels of the split `{split}`")
    if len(labels) and labels.max() > 9:
        at = int(np.argmax(labels > 9))
        raise RuntimeStop(f"{labels_path} is damaged: label {at} is {labels[at]}, not a digit")
    return images.reshape(len(images), SIDE * SIDE), labels


def find_folder() -> tuple[Path, str]:
    """The folder to read, and a line for the user that says which."""
    asked = datasets.asked_folder()
    for folder in ([asked] if asked else []) + [folder / "mnist" for folder in datasets.folders()]:
        if _complete(folder):
            return folder, f"data: MNIST from {folder}"
    missing = f" ($TLC_DATA has none: {asked})" if asked else ""
    sample = Path(str(files("tlc.stdlib"))) / "mnist"
    notice = f"data: the sample of MNIST that comes with tlc, 8,000 of 60,000 training images{missing}"
    return sample, f"{notice}; `tlc data get mnist` fetches all"


@cache
def _say_once(notice: str) -> None:
    print(notice, file=sys.stderr, flush=True)


def _complete(folder: Path) -> bool:
    return all(_find(folder, name.format(prefix)) for prefix in PREFIX.values() for name in (IMAGES, LABELS))


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if os.path.exists(path)), None)


def _present(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise RuntimeStop(f"{folder} has no file {name}")
    return path


def _read_idx(path: Path, rank: int) -> Bytes:
    """The array in an idx file of bytes with `rank` dimensions."""
    try:
        with open(path, "rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if compressed:
                with gzip.open(raw, "rb") as unpacked:
                    return _parse_idx(path, unpacked, rank)
            return _parse_idx(path, raw, rank)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RuntimeStop(f"{path} is damaged: {str(error).lower().rstrip('.')}") from error
    except OSError as error:
        raise RuntimeStop(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error


def _parse_idx(path: Path, stream: Readable, rank: int) -> Bytes:
    header = _read(stream, 4 + 4 * rank)
    if len(header) < 4 + 4 * rank:
        raise RuntimeStop(f"{path} is damaged: it ends inside its header")
    magic = bytes([0, 0, 8, rank])
    if header[:4] != magic:
        raise RuntimeStop(f"{path} is no idx file of bytes with {rank} dimensions: it begins with {header[:4].hex()}, not {magic.hex()}")
    shape = struct.unpack(f">{rank}I", header[4:])
    size = 1
    for extent in shape:
        size *= extent
    body = _read(stream, size)
    claim = " by ".join(map(str, shape))
    if len(body) < size:
        raise RuntimeStop(f"{path} is damaged: its header says {claim} bytes, but only {len(body)} follow")
    if stream.read(1):
        raise RuntimeStop(f"{path} is damaged: its header says {claim} bytes, but more follow")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _read(stream: Readable, size: int) -> bytes:
    """Up to `size` bytes, in pieces: a header that lies must not reserve memory."""
    pieces = []
    while size > 0 and (piece := stream.read(min(size, CHUNK))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)

"""The data sets that `tlc data get` fetches and programs read by name: what each consists of, where it is published, where it lies.

A set lies in the folder that `$TLC_DATA` names, or in the folder `data` of the cache; in both under the same names:

    mnist/train-images-idx3-ubyte    a set of several files has a folder
    tinyshakespeare.txt              a set of one file has none
"""

from __future__ import annotations

import os
from pathlib import Path

from tlc.frontend import disk_cache
from tlc.frontend.records import dataclass


@dataclass(frozen=True)
class DataFile:
    """`path` below the folder of data; `remote` is the name at a mirror, compressed by gzip if it ends in `.gz`.

    `size` and `sha256` are those of the file as it lies here, unpacked.
    """

    path: str
    remote: str
    size: int
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """`mirrors` are addresses to which the name of a file is added, tried in this order. `terms` says under which terms it is published."""

    name: str
    doc: str
    terms: str
    mirrors: tuple[str, ...]
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def _mnist(name: str, size: int, sha256: str) -> DataFile:
    return DataFile(f"mnist/{name}", f"{name}.gz", size, sha256)


# fmt: off
DATA_SETS = {
    row.name: row
    for row in (
        DataSet(
            "mnist", "70,000 handwritten digits", "CC BY-SA 3.0, as stated by its authors",
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            (
                _mnist("train-images-idx3-ubyte", 47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
                _mnist("train-labels-idx1-ubyte",     60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
                _mnist("t10k-images-idx3-ubyte",   7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
                _mnist("t10k-labels-idx1-ubyte",      10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
            ),
        ),
        DataSet(
            "tinyshakespeare", "the plays of Shakespeare, 1.1 MB of text", "public domain",
            ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
            (DataFile("tinyshakespeare.txt", "input.txt", 1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),),
        ),
    )
}
# fmt: on


def cache_folder() -> Path:
    """Where `tlc data get` puts data."""
    return disk_cache.folder() / "data"


def asked_folder() -> Path | None:
    """The folder that `$TLC_DATA` names."""
    asked = os.environ.get("TLC_DATA")
    return Path(asked) if asked else None


def folders() -> list[Path]:
    """Where data is looked for, in order."""
    asked = asked_folder()
    return [cache_folder()] if asked is None else [asked, cache_folder()]

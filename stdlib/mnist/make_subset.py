"""Draw the sample of MNIST that ships with the compiler: `python make_subset.py FOLDER_WITH_THE_FOUR_IDX_FILES`.

800 training and 200 test images of each digit, without replacement, by NumPy's PCG64 with seed 1, in the order of the
original. The files are gzip with a zero time stamp, so the same source gives the same bytes (with the same zlib).
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PER_DIGIT = {"train": 800, "t10k": 200}


def read(folder: Path, name: str) -> np.ndarray:
    """The array in an idx file of bytes."""
    data = gzip.decompress((folder / f"{name}.gz").read_bytes())
    rank = data[3]
    shape = struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def write(name: str, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    (HERE / f"{name}.gz").write_bytes(gzip.compress(header + array.tobytes(), compresslevel=9, mtime=0))


def main() -> None:
    folder = Path(sys.argv[1])
    random = np.random.default_rng(1)
    for split, count in PER_DIGIT.items():
        labels = read(folder, f"{split}-labels-idx1-ubyte")
        images = read(folder, f"{split}-images-idx3-ubyte")
        pick = np.sort(np.concatenate([random.choice(np.flatnonzero(labels == digit), count, replace=False) for digit in range(10)]))
        write(f"{split}-labels-idx1-ubyte", labels[pick])
        write(f"{split}-images-idx3-ubyte", images[pick])


if __name__ == "__main__":
    main()

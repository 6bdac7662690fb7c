"""Reading MNIST: the sample, where the full set is looked for, and what damaged files say."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from tlc.backends.runtime import mnist
from tlc.backends.runtime.mnist import read_mnist
from tlc.ssa.world import RuntimeStop

TINY = {
    "train-images-idx3-ubyte": np.arange(3 * 784).reshape(3, 28, 28) % 251,
    "train-labels-idx1-ubyte": np.array([7, 0, 9]),
    "t10k-images-idx3-ubyte": np.zeros((1, 28, 28)),
    "t10k-labels-idx1-ubyte": np.array([4]),
}


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture(autouse=True)
def no_data_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TLC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    mnist._say_once.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small whole set in $TLC_DATA/mnist, plain for training and compressed for test."""
    where = tmp_path / "data" / "mnist"
    where.mkdir(parents=True)
    for name, array in TINY.items():
        if name.startswith("train"):
            (where / name).write_bytes(idx(array))
        else:
            (where / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    monkeypatch.setenv("TLC_DATA", str(tmp_path / "data"))
    return where


def test_the_sample_has_as_many_of_each_digit(capsys: pytest.CaptureFixture[str]) -> None:
    for split, count in (("train", 800), ("test", 200)):
        images, labels = read_mnist(split)
        assert images.dtype == labels.dtype == np.uint8
        assert images.shape == (10 * count, 784)
        assert np.bincount(labels).tolist() == [count] * 10
    out, err = capsys.readouterr()
    assert out == ""
    sample = "the sample of MNIST that comes with tlc, 8,000 of 60,000 training images"
    assert err == f"data: {sample}; `tlc data get mnist` fetches all\n"  # once


def test_the_sample_is_the_one_its_readme_describes() -> None:
    sample = Path(mnist.__file__).parents[2] / "stdlib" / "mnist"
    readme = (sample / "README.md").read_text()
    packed = sorted(sample.glob("*.gz"))
    assert len(packed) == 4
    assert sum(path.stat().st_size for path in packed) < 2_000_000
    for path in packed:
        assert f"`{path.name}`" in readme
        assert hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest() in readme


def test_full_set_in_a_subfolder_and_in_the_folder_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = mnist.read_mnist("train")
    assert images.tolist() == TINY["train-images-idx3-ubyte"].reshape(3, 784).tolist()
    assert labels.tolist() == [7, 0, 9]
    assert capsys.readouterr().err == f"data: MNIST from {folder}\n"
    monkeypatch.setenv("TLC_DATA", str(folder))
    assert mnist.read_mnist("test")[1].tolist() == [4]


def test_full_set_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "tlc" / "data"
    cache.mkdir(parents=True)
    folder.rename(cache / "mnist")
    monkeypatch.delenv("TLC_DATA")
    assert mnist.read_mnist("train")[1].tolist() == [7, 0, 9]


def test_an_incomplete_folder_is_passed_over_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train-labels-idx1-ubyte").unlink()
    assert len(mnist.read_mnist("test")[1]) == 2000
    assert f"($TLC_DATA has none: {folder.parent})" in capsys.readouterr().err


def test_wrong_split() -> None:
    with pytest.raises(RuntimeStop, match='MNIST has no split "valid", only "train" and "test"'):
        mnist.read_mnist("valid")


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GOOD = idx(TINY[IMAGES])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, b"", "ends inside its header"),
        (IMAGES, GOOD[:9], "ends inside its header"),
        (IMAGES, GOOD[:-1], "its header says 3 by 28 by 28 bytes, but only 2351 follow"),
        (IMAGES, GOOD + b"\0", "its header says 3 by 28 by 28 bytes, but more follow"),
        (IMAGES, GOOD[:4] + b"\xff" * 12 + GOOD[16:], "its header says 4294967295 by 4294967295 by 4294967295 bytes, but only 2352 follow"),
        (IMAGES, b"\x89PNG" + GOOD[4:], "no idx file of bytes with 3 dimensions: it begins with 89504e47, not 00000803"),
        (IMAGES, GOOD[:2] + b"\x0d" + GOOD[3:], "no idx file of bytes with 3 dimensions"),
        (IMAGES, gzip.compress(GOOD)[:-9], "is damaged: compressed file ended before"),
        (IMAGES, gzip.compress(GOOD)[:40] + b"\xff" * 60, "is damaged"),
        (IMAGES, gzip.compress(GOOD)[:-8] + bytes(8), "is damaged: crc check failed"),
        (IMAGES, idx(np.zeros((3, 28, 27))), "28 by 27 pixels, those of MNIST 28 by 28"),
        (IMAGES, idx(np.zeros((2, 28, 28))), "has 2 images but 3 labels"),
        (LABELS, idx(np.array([7, 10, 11])), "label 1 is 10, not a digit"),
        (LABELS, idx(np.zeros((3, 1))), "no idx file of bytes with 1 dimensions"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "bytes",
)
def test_damage_is_a_clear_error(folder: Path, name: str, content: bytes, message: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(RuntimeStop) as caught:
        mnist.read_mnist("train")
    assert message in caught.value.message
    assert str(folder) in caught.value.message


def test_a_folder_in_place_of_a_file(folder: Path) -> None:
    (folder / IMAGES).unlink()
    (folder / IMAGES).mkdir()
    with pytest.raises(RuntimeStop, match=r"cannot read .*: is a directory"):
        mnist.read_mnist("train")

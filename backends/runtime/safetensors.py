"""The file format safetensors: named tensors, readable by many programs, and nothing in it can be executed.

    8 bytes     the length of the header, little-endian
    header      JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {..}}, blanks behind it
    bytes       of the tensors, row by row, one behind the other without gaps; the offsets count from their beginning

A file is never trusted: before any byte of a tensor is read, or memory reserved for it, the header is compared with itself and with the
size of the file. The package of the same name is not used: its door for NumPy has no bf16, holds a file several times in memory, and
lets the second of two tensors of one name win. The tests compare with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import IO, Any

import numpy as np

from tlc.backends.runtime.leaves import printable
from tlc.frontend.narrow_reals import from_memory, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

HEADER_LIMIT = 10 << 20  # bytes: some 100,000 tensors
METADATA = "__metadata__"

# The name of an element type in a file. A key is stored as its 64 bits.
NAMES = {
    Elem.BOOL: "BOOL", Elem.I8: "I8", Elem.I32: "I32", Elem.I64: "I64", Elem.U8: "U8", Elem.U32: "U32",
    Elem.F16: "F16", Elem.BF16: "BF16", Elem.F32: "F32", Elem.F64: "F64", Elem.KEY: "U64",
}  # fmt: skip
# The bits of an element of every type that a file may have, those that no value of a program has included.
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class DamagedError(Exception):
    """The file is no safetensors file; the message says where it breaks the rules."""


@dataclass(frozen=True)
class Entry:
    """A tensor in a file; `start` and `end` count from the beginning of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


# ---------------------------------------------------------------- writing


def write(stream: IO[bytes], tensors: Sequence[tuple[str, Elem, Any]]) -> None:
    """Write named tensors: scalars and arrays, bf16 as its values in f32. Those of wide elements come first, so each lies aligned."""
    ordered = sorted(tensors, key=lambda row: -row[1].bytes)
    header: dict[str, Any] = {}
    at = 0
    for name, elem, value in ordered:
        size = np.size(value) * elem.bytes
        header[name] = {"dtype": NAMES[elem], "shape": list(np.shape(value)), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    stream.write(len(text).to_bytes(8, "little") + text)
    for _, elem, value in ordered:
        array = to_memory(value) if elem is Elem.BF16 else np.ascontiguousarray(value, DTYPES[elem])
        stream.write(array.reshape(-1).view(np.uint8).data)


# ---------------------------------------------------------------- reading


def read_header(stream: IO[bytes]) -> dict[str, Entry]:
    """The tensors of a file, in the order of the header. Raises DamagedError."""
    size = os.fstat(stream.fileno()).st_size
    if size < 8:
        raise DamagedError(f"it has {size} bytes, and the length of its header alone takes 8")
    length = int.from_bytes(stream.read(8), "little")
    if length > size - 8:
        raise DamagedError(f"its header should have {length} bytes, but only {size - 8} follow")
    if length > HEADER_LIMIT:
        raise DamagedError(f"its header has {length} bytes, more than the {HEADER_LIMIT} that are read")
    header = _parsed(stream.read(length))
    said = header.pop(METADATA, {})
    if not isinstance(said, dict) or not all(isinstance(text, str) for text in said.values()):
        raise DamagedError(f"its `{METADATA}` is no object of texts")
    entries = {name: _entry(name, row, 8 + length, size) for name, row in header.items()}
    at = 8 + length
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != at:
            what = "overlaps another tensor" if entry.start < at else f"leaves {entry.start - at} bytes before it unused"
            raise DamagedError(f"`{printable(name)}` {what}")
        at = entry.end
    if at != size:
        raise DamagedError(f"{size - at} bytes behind the last tensor belong to none")
    return entries


def _parsed(text: bytes) -> dict[str, Any]:
    """The JSON of the header: an object without a name that occurs twice."""

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise DamagedError(f"its header has `{printable(name)}` twice")
            found[name] = value
        return found

    try:
        header = json.loads(text.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise DamagedError("its header is no JSON") from None
    if not isinstance(header, dict):
        raise DamagedError("its header is no JSON object")
    return header


def _entry(name: str, row: Any, base: int, size: int) -> Entry:
    """One row of the header, if it is what its file can hold."""
    name = printable(name)
    if not isinstance(row, dict) or row.keys() != {"dtype", "shape", "data_offsets"}:
        raise DamagedError(f"`{name}` should have a `dtype`, a `shape` and `data_offsets`")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise DamagedError(f"`{name}` has the unknown element type {printable(json.dumps(dtype), 40)}")
    if not _naturals(shape):
        raise DamagedError(f"the shape of `{name}` is no list of numbers from 0 on")
    if not _naturals(offsets) or len(offsets) != 2:
        raise DamagedError(f"the offsets of `{name}` are no two numbers from 0 on")
    start, end = offsets
    if not start <= end <= size - base:
        raise DamagedError(f"`{name}` lies at {start}..{end}, and the file has {size - base} bytes of tensors")
    count = 0 if 0 in shape else 1
    for extent in shape:
        count *= extent
        if count > size:
            break
    if count * BITS[dtype] != 8 * (end - start):
        raise DamagedError(f"`{name}` has {end - start} bytes, which are no {dtype} of its shape")
    return Entry(dtype, tuple(shape), base + start, base + end)


def _naturals(value: Any) -> bool:
    """Whether this is a list of numbers that can be extents or offsets."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def read_tensor(stream: IO[bytes], name: str, entry: Entry, elem: Elem) -> Any:
    """The values of a tensor, whose element type is `elem`: an array, for bf16 in f32. Raises DamagedError."""
    data = np.empty(entry.end - entry.start, np.uint8)
    stream.seek(entry.start)
    if stream.readinto(data.data) != len(data):  # type: ignore[attr-defined] # another process made it shorter
        raise DamagedError(f"it ends inside `{name}`")
    if elem is Elem.BOOL and len(data) and data.max() > 1:
        raise DamagedError(f"`{name}` has bools that are neither 0 nor 1")
    array = from_memory(data.view(np.uint16)) if elem is Elem.BF16 else data.view(DTYPES[elem])
    return array.reshape(entry.shape)

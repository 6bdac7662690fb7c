"""Arrays from files: NumPy's `.npy`, and tables of numbers as text.

A file is never trusted: what its header says is compared with what it holds, and nothing in it is executed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from tokenize import TokenError
from typing import IO, Any
from zipfile import BadZipFile as ZipError

import numpy as np

from tlc.backends.runtime.files import failing
from tlc.backends.runtime.leaves import leaves, printable, shown
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.ssa.world import RuntimeStop

Reals = np.ndarray[Any, np.dtype[np.float64]]

_OWN = (Elem.BF16, Elem.KEY, Elem.STR)  # element types that NumPy does not have
_ELEMS = {dtype: elem for elem, dtype in DTYPES.items() if elem not in _OWN}


def npy(layout: str, path: str) -> tuple[Any]:
    """`data.npy(path)`: the array in a file of NumPy, if it has the element type and the rank that are wanted."""
    (wanted,) = leaves(layout)
    with failing("read", path):
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, SyntaxError, TypeError, TokenError, ZipError) as error:  # what NumPy raises for bytes of all kinds
            cause = str(error).split("\n", 1)[0].rstrip(".").lower() or "its header cannot be read"
            raise RuntimeStop(f"{path} is damaged, or no .npy file: {printable(cause)}", "file") from None
    if not isinstance(found, np.ndarray):
        found.close()
        raise RuntimeStop(f"{path} is an archive of several arrays, no .npy file", "file")
    elem = _ELEMS.get(found.dtype.newbyteorder("="))
    if elem is not wanted.elem or found.ndim != wanted.rank:
        has = printable(shown(elem.value if elem is not None else str(found.dtype), found.shape))
        note = "conversions take whole tensors: `f32(data.npy(path) as f64[n])`"
        raise RuntimeStop(f"{path} has {has}, and the program says {wanted.asked}", "file", (note,) if elem is not wanted.elem else ())
    return (np.array(found, DTYPES[wanted.elem], order="C")[()],)


# ---------------------------------------------------------------- tables as text


def table(path: str, separator: str) -> tuple[Reals]:
    """`data.csv(path)`: the numbers of a table, `f64[rows, columns]`; a first row that has a word is a header and left out."""
    with failing("read", path), open(path, encoding="utf-8", newline="") as stream:
        rows = _rows(stream, path, separator)
        width = 0
        numbers: list[list[float]] = []
        for line, row in rows:
            if not width:
                width = len(row)
                if not all(map(_is_number, row)):
                    continue
            if len(row) != width:
                raise _wrong(path, line, f"it has {len(row)} fields, the first row has {width}")
            numbers.append([_number(field, path, line) for field in row])
    return (np.array(numbers, np.float64).reshape(len(numbers), width),)


def column(path: str, name: str, separator: str) -> tuple[Reals]:
    """`data.column(path, name)`: the column `f64[rows]` under this word of the header; the other columns may hold anything."""
    with failing("read", path), open(path, encoding="utf-8", newline="") as stream:
        rows = _rows(stream, path, separator)
        header = [word.strip() for word in next(rows, (0, []))[1]]
        if name not in header:
            has = ", ".join(f"`{printable(word)}`" for word in header)
            raise RuntimeStop(f"{path} has no column `{name}`", "file", (f"its columns are {has}",) if has else ())
        at = header.index(name)
        numbers = []
        for line, row in rows:
            if len(row) <= at:
                raise _wrong(path, line, f"it has {len(row)} fields, and `{name}` is field {at + 1}")
            numbers.append(_number(row[at], path, line))
    return (np.array(numbers, np.float64),)


def _rows(stream: IO[str], path: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, with their lines."""
    if len(separator) != 1 or separator in '"\r\n':
        raise RuntimeStop(f'a separator is one sign, found "{separator}"', "file")
    reader = csv.reader(stream, delimiter=separator, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _wrong(path, reader.line_num, str(error).lower()) from None
        except UnicodeDecodeError:
            raise RuntimeStop(f"{path} is no text in UTF-8", "file") from None
        if row is None:
            return
        if row:
            yield reader.line_num, row


def _is_number(field: str) -> bool:
    try:
        float(field or "nan")
    except ValueError:
        return False
    return True


def _number(field: str, path: str, line: int) -> float:
    """The number in a field; a field without anything is NaN."""
    try:
        return float(field.strip() or "nan")
    except ValueError:
        raise _wrong(path, line, f'"{printable(field, 40)}" is no number') from None


def _wrong(path: str, line: int, what: str) -> RuntimeStop:
    return RuntimeStop(f"{path}, line {line}: {what}", "file")

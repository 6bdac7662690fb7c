"""Checkpoints: a value of any type as a file of named tensors, and back.

A file fits a value if it has the same names, and for each the same element type and shape; all that differs is said at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import IO, Any

from tlc.backends.runtime import files, safetensors
from tlc.backends.runtime.leaves import Leaf, leaves, printable, shown
from tlc.backends.runtime.safetensors import NAMES, DamagedError, Entry
from tlc.frontend.types import Elem
from tlc.ssa.world import RuntimeStop

_ELEMS = {name: elem.value for elem, name in NAMES.items() if elem is not Elem.KEY}


def save(layout: str, *args: Any) -> tuple[()]:
    """`io.save(value, path)`: the leaves of the value, then the path."""
    *values, path = args
    named = [(leaf.name, leaf.elem, leaf.value) for leaf in leaves(layout, values) if leaf.name]
    with files.replacing(path) as stream:
        safetensors.write(stream, named)
    return ()


def load(layout: str, path: str, *values: Any) -> Iterator[Any]:
    """`io.load(path, like)`: the path, then the leaves of `like`; gives the leaves that the file has, one in memory at a time."""
    like = leaves(layout, values)
    with files.failing("read", path), open(path, "rb") as stream, _damage(path):
        entries = safetensors.read_header(stream)
        wrong = list(_differences(like, entries))
        if wrong:
            count = f"{len(wrong)} differences" if len(wrong) > 1 else "one difference"
            raise RuntimeStop(f"the checkpoint {path} does not fit: {count}", "checkpoint", tuple(wrong))
        for leaf in like:
            yield _loaded(stream, leaf, entries)


def load_tensor(layout: str, path: str, name: str) -> tuple[Any]:
    """`io.load_tensor(path, name)`: one tensor of a file, if it has the element type and the rank that the program says."""
    (wanted,) = leaves(layout)
    with files.failing("read", path), open(path, "rb") as stream, _damage(path):
        entries = safetensors.read_header(stream)
        entry = entries.get(name)
        if entry is None:
            near = ", ".join(f"`{printable(other)}`" for other in get_close_matches(name, entries, 5, 0.5))
            raise RuntimeStop(f"{path} has no tensor `{name}`", "checkpoint", (f"it has {near}",) if near else ())
        if entry.dtype != NAMES[wanted.elem] or len(entry.shape) != wanted.rank:
            found = _type(entry, wanted)
            said = f"say what it is, `as {found}`, and convert: `{wanted.elem}(x)`" if len(entry.shape) == wanted.rank else f"`as {found}`"
            raise RuntimeStop(f"`{name}` of {path} is {found}, and the program says {wanted.asked}", "checkpoint", (said,))
        return (_loaded(stream, replace(wanted, name=name), entries),)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Say of what file it is that it is damaged."""
    try:
        yield
    except DamagedError as error:
        raise RuntimeStop(f"the checkpoint {path} is damaged, or no safetensors file: {error}", "checkpoint") from None


def _loaded(stream: IO[bytes], leaf: Leaf, entries: dict[str, Entry]) -> Any:
    if not leaf.name:
        return leaf.value
    array = safetensors.read_tensor(stream, leaf.name, entries[leaf.name], leaf.elem)
    return array if leaf.rank else array[()]


def _differences(like: list[Leaf], entries: dict[str, Entry]) -> Iterator[str]:
    """What differs between the program's value and the file, in the order of the value's leaves, then by the file's names."""
    for leaf in like:
        entry = entries.get(leaf.name)
        if entry is None and leaf.name:
            yield f"`{leaf.name}`, {leaf.type} here, is not in the file"
        elif entry is not None and (entry.dtype != NAMES[leaf.elem] or entry.shape != _shape(leaf)):
            yield f"`{leaf.name}` is {leaf.type} here, and {_type(entry, leaf)} in the file"
    names = {leaf.name for leaf in like}
    for name, entry in sorted(entries.items()):
        if name not in names:
            yield f"`{printable(name)}`, {_type(entry)} in the file, is not in the program's value"


def _shape(leaf: Leaf) -> tuple[int, ...]:
    return getattr(leaf.value, "shape", ())


def _type(entry: Entry, leaf: Leaf | None = None) -> str:
    """The type of a tensor in a file, in the words of programs where they have one."""
    elem = "key" if leaf is not None and leaf.elem is Elem.KEY and entry.dtype == NAMES[Elem.KEY] else _ELEMS.get(entry.dtype, entry.dtype)
    return printable(shown(elem, entry.shape))

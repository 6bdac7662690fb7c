"""Objects of the compiler as bytes, for files of the cache. Sources are compared by identity, so they are named, not copied."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, TypeVar

from tlc.frontend.source import NOWHERE, Source

T = TypeVar("T")


def pack(value: object, **sources: Source) -> bytes:
    """The bytes of an object that speaks of these sources, and of `NOWHERE`, alone."""
    buffer = io.BytesIO()
    _Pickler(buffer, {id(source): name for name, source in _named(sources).items()}).dump(value)
    return buffer.getvalue()


def unpack(payload: bytes, kind: type[T], **sources: Source) -> T | None:
    """The object, with these sources under the names that they were packed with. None for what no compiler like this one wrote."""
    try:
        value = _Unpickler(io.BytesIO(payload), _named(sources)).load()
    except Exception:
        return None
    return value if isinstance(value, kind) else None


def _named(sources: Mapping[str, Source]) -> dict[str, Source]:
    return {"nowhere": NOWHERE.source, **sources}


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self.names = names

    def persistent_id(self, obj: Any) -> str | None:
        return self.names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, sources: Mapping[str, Source]) -> None:
        super().__init__(buffer)
        self.sources = sources

    def persistent_load(self, pid: str) -> Source:
        return self.sources[pid]

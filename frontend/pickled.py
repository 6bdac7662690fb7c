"""Objects of the compiler as bytes, for files of the cache. Sources are compared by identity, so they are named, not copied."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from tlc.frontend.source import NOWHERE, Source

T = TypeVar("T")


def pack(value: object, **sources: Source) -> bytes:
    """The bytes of an object. Of these sources, and of `NOWHERE`, it has the names; others are copied."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    names = {id(source): name for name, source in _named(sources).items()}
    # It is asked about sources alone, where `persistent_id` is asked about every object.
    pickler.dispatch_table = {**copyreg.dispatch_table, Source: partial(_reduced, names)}
    pickler.dump(value)
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


def _reduced(names: Mapping[int, str], source: Source) -> Any:
    """A source in a pickle: the call that gives it (see `object.__reduce__`)."""
    name = names.get(id(source))
    return source.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if name is None else (_source_named, (name,))


def _source_named(name: str) -> Source:
    """What stands in a pickle for a source with a name; who reads it knows the sources."""
    raise NotImplementedError(name)


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, sources: Mapping[str, Source]) -> None:
        super().__init__(buffer)
        self.sources = sources

    def find_class(self, module: str, name: str) -> Any:
        named = module == __name__ and name == _source_named.__name__
        return self.sources.__getitem__ if named else super().find_class(module, name)

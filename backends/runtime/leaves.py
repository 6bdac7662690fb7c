"""What a service is told of a value that consists of several tensors: its leaves by name (`frontend/check/leaves.py` makes the text)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem


@dataclass(frozen=True)
class Leaf:
    """`name` is empty for a leaf that only carries a dimension. `value` is a scalar or an array; of bf16, values in f32."""

    name: str
    elem: Elem
    rank: int
    value: Any = None

    @property
    def type(self) -> str:
        return shown(self.elem.value, getattr(self.value, "shape", ()))

    @property
    def asked(self) -> str:
        """The type where only element and rank are known: `f32[?, ?]`."""
        return shown(self.elem.value, "?" * self.rank)


def leaves(layout: str, values: Sequence[Any] = ()) -> list[Leaf]:
    """The leaves that a layout names, with their values where these are given."""
    rows = [line.split(" ") for line in layout.split("\n")] if layout else []
    found = values or [None] * len(rows)
    return [Leaf(name, Elem(elem), int(rank), value) for (name, elem, rank), value in zip(rows, found, strict=True)]


def printable(text: str, limit: int = 100) -> str:
    """A text of a file for a message: short, and without signs that a terminal obeys."""
    text = text if len(text) <= limit else f"{text[:limit]}..."
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def shown(elem: str, shape: Sequence[int | str]) -> str:
    """A type as programs write it: `f32[784, 10]`."""
    return f"{elem}[{', '.join(map(str, shape))}]" if shape else elem

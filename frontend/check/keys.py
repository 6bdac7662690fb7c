"""A key is used once: two calls with one key would draw the same numbers.

The checker keeps, along the code, which keys are used up. A key is a place: a variable, or a part of one (`ks[0]`, `ks[i]`); a `let` of
a key is another name of it. Where branches meet, a key used in one is used. A loop must not end with a key of the
outside used up, and a comprehension must not use one. `fold` uses nothing up. The standard library's own functions are not checked:
there a key is a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tlc.frontend import typed
from tlc.frontend.check.cells import NEVER, elem_of
from tlc.frontend.check.dimension import dim_of
from tlc.frontend.check.report import fail
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.source import Span
from tlc.frontend.types import UNIT, Elem, TensorType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.body import Body


@dataclass(frozen=True)
class Place:
    """A variable and the way to a key in it: numbers of parts, terms of indices."""

    local: typed.Local
    path: tuple[int | Dim, ...] = ()

    def overlaps(self, other: Place) -> bool:
        """Whether one is the other or a part of it."""
        n = min(len(self.path), len(other.path))
        return self.local == other.local and self.path[:n] == other.path[:n]


@dataclass
class Keys:
    """`used` says where; `alias` is what a `let` of a key stands for."""

    used: dict[Place, Span] = field(default_factory=dict)
    alias: dict[int, Place] = field(default_factory=dict)


def place_of(body: Body, e: typed.Expr) -> Place | None:
    """The place that an expression reads, if it can be told."""
    match e:
        case typed.Read():
            return body.keys.alias.get(e.local.uid, Place(e.local))
        case typed.Part():
            base = place_of(body, e.base)
            return Place(base.local, (*base.path, e.index)) if base is not None else None
        case typed.Index():
            base = place_of(body, e.base)
            terms = [t for i in e.indices if (t := dim_of(i)) is not None]
            return Place(base.local, (*base.path, *terms)) if base is not None and len(terms) == len(e.indices) else None
        case _:
            return None


def is_key(type: Type) -> bool:
    return isinstance(type, TensorType) and elem_of(type) is Elem.KEY


def use(body: Body, e: typed.Expr, span: Span) -> None:
    """A call takes this key. Raises Failed if it was used before."""
    if body.module.trusted or not is_key(e.type):
        return
    place = place_of(body, e)
    if place is None:
        return
    for other, before in body.keys.used.items():
        if place.overlaps(other):
            name = _text(span)
            help = f"split it: `let (a, b) = split({name})`, or derive one: `fold({name}, 1)`"
            raise fail("E0702", f"the key `{name}` is used twice", span, "used again", (Label(before, "used here first"),), help)
    body.keys.used[place] = span


def bound(body: Body, local: typed.Local, value: typed.Expr) -> None:
    """A `let` or `var` gets a value: of a key, it is a new name."""
    place = place_of(body, value) if is_key(value.type) and not local.mutable else None
    if place is not None:
        body.keys.alias[local.uid] = place


def assigned(body: Body, local: typed.Local, whole: bool) -> None:
    """A variable gets a new value: its keys are new. (Of a part, the old keys stay used up.)"""
    if whole:
        body.keys.used = {p: s for p, s in body.keys.used.items() if p.local != local}


@contextmanager
def branch(body: Body, merged: dict[Place, Span], values: list[typed.Expr]) -> Iterator[None]:
    """One of several branches: it starts with what was used before; what it uses goes into `merged`, unless it never ends.

    The caller appends the branch's value to `values`.
    """
    before = dict(body.keys.used)
    try:
        yield
        if values[-1].type is not NEVER:
            merged.update(body.keys.used)
    finally:
        body.keys.used = before


@dataclass(frozen=True)
class Mark:
    """A moment: variables and atoms made later have greater numbers."""

    local: int = field(default_factory=lambda: typed.Local("", UNIT).uid)
    atom: int = field(default_factory=lambda: DimVar("").uid)

    def before(self, place: Place) -> bool:
        """Whether the place was there at this moment."""
        atoms = [a for d in place.path if isinstance(d, Dim) for a in d.atoms()]
        return place.local.uid < self.local and all(a.uid < self.atom for a in atoms)


@contextmanager
def repeated(body: Body, what: str, index: str, mark: Mark) -> Iterator[None]:
    """The inside of a loop or comprehension, which runs many times: at its end no key of the outside may be used up.

    The mark was made before the index.
    """
    before = dict(body.keys.used)
    yield
    outside = {p: s for p, s in body.keys.used.items() if mark.before(p)}
    body.keys.used = before | outside
    for place, span in outside.items():
        if place not in before:
            name = _text(span)
            message = f"the key `{name}` is used again in every round of the {what}"
            help = f"derive one for each round: `fold({name}, {index or 'i'})`"
            body.session.report(fail("E0703", message, span, "it comes from outside", (), help))


def _text(span: Span) -> str:
    return span.source.text[span.start : span.end]

"""A key is used once: two calls with one key would draw the same numbers.

The checker keeps, along the code, which keys are used up. A key is a place: a variable, or a part of one (`ks[0]`, `ks[i]`); a `let` of
a key is another name of it. A `var`, or a tuple or struct with a key in it, gets a copy: until the variable is assigned anew, who
uses it uses the first key too. Where branches meet, a key used in one is used. A loop must not end with a key of the
outside used up, and a comprehension must not use one. `fold` uses nothing up. The standard library's own functions are not checked:
there a key is a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from tlc.frontend import typed
from tlc.frontend.check.cells import NEVER, elem_of
from tlc.frontend.check.dimension import dim_of
from tlc.frontend.check.report import fail
from tlc.frontend.diagnostics import Label
from tlc.frontend.dims import Dim, DimVar
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import UNIT, Elem, TensorType, Type

if TYPE_CHECKING:
    from tlc.frontend.check.body import Body


@dataclass(frozen=True)
class Place:
    """A variable and the way to a key in it: numbers of parts, terms of indices. As a use through a copy: when that was made."""

    local: typed.Local
    path: tuple[int | Dim, ...] = ()
    copied: int | None = None

    def overlaps(self, other: Place) -> bool:
        """Whether one is the other or a part of it."""
        return self.within(other) or other.within(self)

    def within(self, other: Place) -> bool:
        """Whether this is the other or a part of it."""
        return self.local == other.local and self.path[: len(other.path)] == other.path


@dataclass(frozen=True)
class Copy:
    """A place has the value of another since a moment."""

    at: Place
    of: Place
    made: int

    def uses(self, place: Place) -> Iterator[Place]:
        """What is used through this copy when a place is."""
        if place.within(self.at):
            yield Place(self.of.local, (*self.of.path, *place.path[len(self.at.path) :]), self.made)


@dataclass
class Keys:
    """`used` says where; `alias` is what a `let` of a key stands for; `copies` hold until one of their two variables is assigned.

    `since` is when a place surely got a new value; `exposed` is for every use in a loop the `since` of the value that it used.
    `going_on` and `leaving` are what was used where the loop's rounds end by `continue` and `break`.
    """

    used: dict[Place, Span] = field(default_factory=dict)
    alias: dict[int, Place] = field(default_factory=dict)
    copies: set[Copy] = field(default_factory=set)
    since: dict[Place, int] = field(default_factory=dict)
    exposed: dict[Place, int] = field(default_factory=dict)
    going_on: dict[Place, Span] = field(default_factory=dict)
    leaving: dict[Place, Span] = field(default_factory=dict)

    def expose(self, place: Place, since: int) -> None:
        self.exposed[place] = min(since, self.exposed.get(place, since))


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
    places = [place, *_copied(body, place)]
    for other, before in body.keys.used.items():
        if any(p.overlaps(other) for p in places):
            name = _text(span)
            help = f"split it: `let (a, b) = split({name})`, or derive one: `fold({name}, 1)`"
            raise fail("E0702", f"the key `{name}` is used twice", span, "used again", (Label(before, "used here first"),), help)
    for p in places:
        body.keys.used.setdefault(p, span)
        body.keys.expose(p, max((since for q, since in body.keys.since.items() if p.within(q)), default=-1))


def _copied(body: Body, place: Place) -> Iterator[Place]:
    for c in body.keys.copies:
        yield from c.uses(place)


def _copies(body: Body, at: Place, value: typed.Expr, made: int) -> Iterator[Copy]:
    """The copies of keys that a place gets with a value."""
    match value:
        case typed.Tuple():
            for k, item in enumerate(value.items):
                yield from _copies(body, Place(at.local, (*at.path, k)), item, made)
        case typed.Struct():
            for k, item in enumerate(value.fields):
                yield from _copies(body, Place(at.local, (*at.path, k)), item, made)
        case _ if is_key(value.type) and (place := place_of(body, value)) is not None:
            yield Copy(at, place, made)
            for p in _copied(body, place):
                yield Copy(at, Place(p.local, p.path), made)


def bound(body: Body, local: typed.Local, value: typed.Expr) -> None:
    """A `let` or `var` gets a value: of a key that stays, a `let` is a new name, else it is a copy."""
    place = place_of(body, value) if is_key(value.type) and not local.mutable else None
    if place is not None and not place.local.mutable:
        body.keys.alias[local.uid] = place
    else:
        body.keys.copies.update(_copies(body, Place(local), value, _now()))


def assigned(body: Body, local: typed.Local, path: tuple[typed.PartStep | typed.IndexStep, ...], value: typed.Expr) -> None:
    """A variable or a field gets a new value: its keys are new, or those that it is a copy of. (Of an index, the old keys stay used up.)"""
    place = Place(local, tuple(s.index for s in path if isinstance(s, typed.PartStep)))
    if len(place.path) < len(path):
        return
    copies = set(_copies(body, place, value, _now()))
    if any(c.of.overlaps(place) for c in copies):
        return
    body.keys.since[place] = _now()
    body.keys.used = {p: s for p, s in body.keys.used.items() if not p.within(place)}
    body.keys.copies = {c for c in body.keys.copies if not c.at.within(place) and not c.of.overlaps(place)} | copies


def _now() -> int:
    """A moment: variables made later have greater numbers."""
    return typed.Local("", UNIT).uid


@contextmanager
def branch(body: Body, ends: list[Keys], values: list[typed.Expr]) -> Iterator[None]:
    """One of several branches: it starts with what was known before; what is known behind it goes to `ends`, unless it never ends.

    The caller appends the branch's value to `values`.
    """
    k = body.keys
    used, copies, since = dict(k.used), set(k.copies), dict(k.since)
    try:
        yield
        if values[-1].type is not NEVER:
            ends.append(Keys(k.used, {}, k.copies, k.since))
    finally:
        k.used, k.copies, k.since = used, copies, since


def join(body: Body, ends: list[Keys]) -> None:
    """Where branches meet, what one of them used is used, and a variable has a new value if each gave it one."""
    k = body.keys
    k.used = {p: s for end in ends for p, s in end.used.items()}
    k.copies = {c for end in ends for c in end.copies}
    k.since = {p: min(end.since[p] for end in ends) for p in (ends[0].since if ends else {}) if all(p in end.since for end in ends)}


@dataclass(frozen=True)
class Mark:
    """A moment: variables and atoms made later have greater numbers."""

    local: int = field(default_factory=_now)
    atom: int = field(default_factory=lambda: DimVar("").uid)

    def before(self, place: Place) -> bool:
        """Whether the place was there at this moment."""
        atoms = [a for d in place.path if isinstance(d, Dim) for a in d.atoms()]
        return place.local.uid < self.local and all(a.uid < self.atom for a in atoms)


@contextmanager
def repeated(body: Body, what: str, index: str, mark: Mark) -> Iterator[None]:
    """The inside of a loop or comprehension, which runs many times: at its end no key of the outside may be used up.

    The mark was made before the index. A key that its round made may be used up, and so may what a variable was a copy of before
    the loop, if the variable is assigned anew: its own place tells.
    """
    k = body.keys
    before, copies, since, exposed = dict(k.used), set(k.copies), dict(k.since), k.exposed
    jumps = k.going_on, k.leaving
    k.exposed, k.going_on, k.leaving = {}, {}, {}
    yield
    outside = {p: s for p, s in (k.going_on | k.used).items() if mark.before(p)}
    left = {p: s for p, s in k.leaving.items() if mark.before(p)}
    k.going_on, k.leaving = jumps
    again = {p for p, since in k.exposed.items() if since < mark.local and not (p.copied is not None and p.copied < mark.local)}
    inner, k.exposed = k.exposed, exposed
    for p, moment in inner.items():
        k.expose(p, moment)
    k.used, k.copies, k.since = before | left | outside, k.copies | copies, since
    for span in dict.fromkeys(s for p, s in outside.items() if p not in before and p in again):
        name = _text(span)
        message = f"the key `{name}` is used again in every round of the {what}"
        help = f"derive one for each round: `fold({name}, {index or 'i'})`"
        body.session.report(fail("E0703", message, span, "it comes from outside", (), help))


def _text(span: Span) -> str:
    return span.source.text[span.start : span.end]

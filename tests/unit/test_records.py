"""The compiler's own `@dataclass` does what that of the standard library does, but for the refusal of assignments."""

from __future__ import annotations

import pickle
from dataclasses import field, fields, replace

import pytest

from tlc.frontend.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Node:
    place: int = field(compare=False, repr=False)


@dataclass(frozen=True)
class Leaf(Node):
    name: str
    tags: list[str] = field(default_factory=list, compare=False)
    depth: int = 1


@dataclass
class Counter:
    count: int
    twice: int = field(init=False)
    seen: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.twice = 2 * self.count


@dataclass(eq=False)
class Entity:
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass
class Ring:
    parts: list[Ring] = field(default_factory=list)


def test_fields_are_set_by_place_by_name_and_by_default() -> None:
    leaf = Leaf("a", depth=3, place=7)
    assert (leaf.name, leaf.tags, leaf.depth, leaf.place) == ("a", [], 3, 7)
    assert Leaf("a", place=0).tags is not Leaf("a", place=0).tags
    assert [f.name for f in fields(Leaf)] == ["place", "name", "tags", "depth"]
    assert (Counter(4).twice, Counter(4).seen) == (8, [])


def test_wrong_arguments_are_refused_on_the_first_call_too() -> None:
    @dataclass
    class Fresh:
        x: int

    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            Fresh()  # type: ignore[call-arg]


def test_what_is_compared() -> None:
    assert Leaf("a", place=1) == Leaf("a", ["tag"], place=2)
    assert Leaf("a", place=1) != Leaf("b", place=1)
    assert Leaf("a", place=1) != Node(place=1)
    assert hash(Leaf("a", place=1)) == hash(Leaf("a", place=2)) == hash(("a", 1))
    assert Entity("x") != Entity("x")
    assert len({Entity("x"), Entity("x")}) == 2
    assert Counter(1) == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter(1))


def test_what_is_printed() -> None:
    assert repr(Leaf("a", place=1)) == "Leaf(name='a', tags=[], depth=1)"
    assert repr(Entity("x")) == "<x>"
    ring = Ring()
    ring.parts.append(ring)
    assert repr(ring) == "Ring(parts=[...])"


def test_replacing_matching_and_pickling() -> None:
    leaf = replace(Leaf("a", place=1), name="b")
    match leaf:
        case Leaf(name, tags, 1):
            assert (name, tags) == ("b", [])
        case _:
            pytest.fail("no match")
    assert pickle.loads(pickle.dumps(leaf)) == leaf

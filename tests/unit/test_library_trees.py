"""The kept trees of the standard library are what parsing gives, and a file that is damaged or old does no harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tlc.frontend import library_trees
from tlc.frontend.ast_text import dump
from tlc.frontend.modules import STDLIB
from tlc.frontend.parser import parse
from tlc.frontend.source import Source


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tlc"


def source(name: str, more: str = "") -> Source:
    return Source(str(STDLIB / f"{name}.tl"), (STDLIB / f"{name}.tl").read_text(encoding="utf-8") + more, library=True)


def test_a_kept_tree_is_the_parsed_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library_trees.tree(source("math"))
    monkeypatch.setattr(library_trees, "parse", None)  # the second time it is read
    again = source("math")
    kept = library_trees.tree(again)
    assert kept.definitions == parse(again).definitions and dump(kept) == dump(parse(again))
    assert [d.span for d in kept.definitions] == [d.span for d in parse(again).definitions]
    assert all(d.span.source is again for d in kept.definitions)


def test_damaged_files_are_made_again(folder: Path) -> None:
    library_trees.tree(source("math"))
    (path,) = folder.glob("*.tree")
    whole = path.read_bytes()
    for damage in (b"", whole[:100], whole[:-1] + b"x"):
        path.write_bytes(damage)
        assert dump(library_trees.tree(source("math"))) == dump(parse(source("math")))
        assert path.read_bytes() == whole


def test_the_tree_of_an_older_text_goes(folder: Path) -> None:
    library_trees.tree(source("math"))
    library_trees.tree(source("nn"))
    library_trees.tree(source("math", "\nfn more() -> i64 = 1\n"))
    assert sorted(p.name.split("-")[1] for p in folder.glob("*.tree")) == ["math", "nn"]
    assert "fn more" not in library_trees.tree(source("math")).source.text

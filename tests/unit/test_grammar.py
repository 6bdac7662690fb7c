"""The grammar is unambiguous, and its tables survive every state of the cache."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ply import yacc

from tlc.frontend import grammar, tables
from tlc.frontend.tokens import TERMINALS


@pytest.fixture(scope="module")
def generated() -> Iterator[tuple[Any, str]]:
    """PLY's table generator after its work, and what it complained about. No table is read or written."""
    kept: list[Any] = []

    class Kept(yacc.LRGeneratedTable):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            kept.append(self)

    log, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yacc, "LRGeneratedTable", Kept)
        yacc.yacc(
            module=grammar,
            debug=True,
            write_tables=False,
            tabmodule="tlc.frontend.no_such_table",
            outputdir="",
            debuglog=yacc.PlyLogger(log),
            errorlog=yacc.PlyLogger(errors),
        )
    assert "Grammar" in log.getvalue(), "the tables came from a cache"
    yield kept[0], errors.getvalue()


def test_no_conflicts(generated: tuple[Any, str]) -> None:
    table, complaints = generated
    assert table.sr_conflicts == []
    assert table.rr_conflicts == []
    assert complaints.splitlines() == ["WARNING: no p_error() function is defined", "Generating LALR tables"]


def test_no_conflict_is_resolved_in_silence(generated: tuple[Any, str]) -> None:
    """PLY takes a missing precedence for the loosest one. Wherever it had to choose, both sides must have said theirs."""
    table, _ = generated
    levels = table.grammar.Precedence
    silent, chosen = [], 0
    table.lr0_cidhash = {}  # so that PLY lists its states again
    for state, items in enumerate(table.lr0_items()):
        shifts = {item.prod[item.lr_index + 1] for item in items if item.lr_index + 1 < len(item.prod)}
        for item in items:
            if item.lr_index + 1 < len(item.prod) or item.name == "S'":
                continue
            for token in set(item.lookaheads[state]) & shifts:
                chosen += 1
                rule = table.grammar.Productions[item.number].prec
                if token not in levels or rule[1] == 0:
                    silent.append(f"{item} before {token}")
    assert silent == []
    assert chosen > 500, "the grammar is ambiguous on purpose: did the test look at it?"


def test_every_terminal_is_used(generated: tuple[Any, str]) -> None:
    table, _ = generated
    assert [t for t in TERMINALS if not table.grammar.Terminals[t]] == []


# ---------------------------------------------------------------- the cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tables.load.cache_clear()
    yield tmp_path / "tlc"
    tables.load.cache_clear()


def test_tables_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tables.load()
    assert [p.suffix for p in folder.iterdir()] == [".tables"]
    tables.load.cache_clear()
    monkeypatch.setattr(tables, "make", lambda: pytest.fail("made again"))
    second = tables.load()
    assert (first.lr_action, first.lr_goto) == (second.lr_action, second.lr_goto)
    assert [(p.name, p.len, p.callable) for p in first.lr_productions] == [(p.name, p.len, p.callable) for p in second.lr_productions]


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b[:100], lambda b: b[:-1], lambda b: b[:500] + b"x" + b[501:], lambda b: b + b"x"]
)
def test_a_damaged_file_is_made_anew(folder: Path, damage: Any) -> None:
    tables.load()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    tables.load.cache_clear()
    assert tables.load().lr_productions[1].callable
    assert path.read_bytes() == whole
    assert list(folder.iterdir()) == [path]


def test_a_cache_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    assert tables.load().lr_productions[1].callable


def test_docstrings_are_needed() -> None:
    run = subprocess.run([sys.executable, "-OO", "-c", "import tlc.frontend.parser"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "run Python without -OO" in run.stderr.splitlines()[-1]

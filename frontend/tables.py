"""The parser's tables: made from `grammar` once, then read from the user's cache (making them takes half a second).

The cache is `$XDG_CACHE_HOME/tlc` or `~/.cache/tlc`. A file's name is a hash of all that the tables depend on; its content
begins with a hash of the rest, so a damaged file is noticed, and made anew. A cache that cannot be written is no error.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import ply
from ply import yacc

from tlc.frontend import grammar

_DIGEST = 32


@cache
def load() -> Any:
    """The tables, with the grammar's actions bound: what `yacc.LRParser` wants."""
    path = cache_folder() / f"grammar-{_key()}.tables"
    table = _read(path)
    if table is None:
        table = make()
        _write(path, table)
    table.bind_callables(vars(grammar))
    return table


def make() -> Any:
    """The tables, computed. PLY is told to write nothing."""
    parser = yacc.yacc(
        module=grammar, debug=False, write_tables=False, tabmodule="tlc.frontend.no_such_table", outputdir="", errorlog=yacc.NullLogger()
    )
    table = yacc.LRTable()
    table.lr_action, table.lr_goto, table.lr_productions = parser.action, parser.goto, parser.productions
    return table


def cache_folder() -> Path:
    """Where `tlc` keeps what it can make again."""
    root = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "tlc"


def _key() -> str:
    rules = sorted((name, rule.__doc__) for name, rule in vars(grammar).items() if name.startswith("p_"))
    parts = (rules, grammar.tokens, grammar.precedence, grammar.start, ply.__version__, sys.version_info[:3], marshal.version)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> Any:
    """The tables in a file, or None if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    table = yacc.LRTable()
    table.lr_action, table.lr_goto, productions = marshal.loads(payload)
    table.lr_productions = [yacc.MiniProduction(*row) for row in productions]
    return table


def _write(path: Path, table: Any) -> None:
    """Under another name first: whoever reads at the same time sees all of it or nothing."""
    import tempfile

    productions = [(str(p), p.name, p.len, p.func, "", 0) for p in table.lr_productions]
    payload = marshal.dumps((table.lr_action, table.lr_goto, productions))
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)

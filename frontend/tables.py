"""The parser's tables: made from `grammar` once, then read from the user's cache (making them takes half a second).

A file's name is a hash of all that the tables depend on (`disk_cache.py` says where files lie and how they are kept).
"""

from __future__ import annotations

import hashlib
import marshal
import sys
from functools import cache
from typing import Any

import ply
from ply import yacc

from tlc.frontend import disk_cache, grammar


@cache
def load() -> Any:
    """The tables, with the grammar's actions bound: what `yacc.LRParser` wants."""
    path = disk_cache.folder() / f"grammar-{_key()}.tables"
    kept = disk_cache.read(path)
    table = make() if kept is None else _unpack(kept)
    if kept is None:
        disk_cache.write(path, _pack(table))
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


def _key() -> str:
    rules = sorted((name, rule.__doc__) for name, rule in vars(grammar).items() if name.startswith("p_"))
    parts = (rules, grammar.tokens, grammar.precedence, grammar.start, ply.__version__, sys.version_info[:3], marshal.version)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _pack(table: Any) -> bytes:
    productions = [(str(p), p.name, p.len, p.func, "", 0) for p in table.lr_productions]
    return marshal.dumps((table.lr_action, table.lr_goto, productions))


def _unpack(payload: bytes) -> Any:
    table = yacc.LRTable()
    table.lr_action, table.lr_goto, productions = marshal.loads(payload)
    table.lr_productions = [yacc.MiniProduction(*row) for row in productions]
    return table

"""The text form of what code refers to by number: it stands before the functions of a `.mir` file, a line a row.

    string 0 = "sum"
    template 0 = ("sum ", ("hole", "", "leaf")) : i64
    site 0 = "index" "index {0} is out of range for {1}" : i64, i64
    extern 0 = "clock" () -> f64
    foreign "labs" (i64) -> i64

Rows of one kind are numbered from 0, in order. A site that was read stands where its line stands.
"""

from __future__ import annotations

import ast
import json
import re
from typing import NoReturn

from tlc.backends.program import Extern, Foreign, Site, Tables, Template
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.source import Source, Span
from tlc.frontend.types import Elem
from tlc.ssa.ir import Type

_STRING = r'("(?:[^"\\]|\\.)*")'
_LINE = re.compile(r"(?:string|template|site|extern|foreign)\b")
_FORMS = {
    "string": re.compile(rf"string (\d+) = {_STRING}"),
    "template": re.compile(r"template (\d+) = (\(.*\)) : (.*)"),
    "site": re.compile(rf"site (\d+) = {_STRING} {_STRING} : (.*)"),
    "extern": re.compile(rf"extern (\d+) = {_STRING} \((.*?)\) -> (.*)"),
    "foreign": re.compile(rf"foreign {_STRING} \((.*?)\) -> (.*)"),
}


def print_tables(tables: Tables) -> str:
    """A line a row."""
    lines = [f"string {number} = {json.dumps(text)}" for text, number in tables.strings.items()]
    lines += [f"template {k} = {row.template!r} : {_types(row.leaves)}" for k, row in enumerate(tables.templates)]
    lines += [f"site {k} = {json.dumps(s.kind)} {json.dumps(s.message)} : {_types(s.values)}" for k, s in enumerate(tables.sites)]
    lines += [f"extern {k} = {json.dumps(e.name)} ({_types(e.args)}) -> {_types(e.results)}" for k, e in enumerate(tables.externs)]
    lines += [f"foreign {json.dumps(f.symbol)} ({_types(f.params)}) -> {f.result or ''}" for f in tables.foreign]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _types(types: tuple[Type, ...] | tuple[Elem, ...]) -> str:
    return ", ".join(map(str, types))


def take_tables(source: Source) -> tuple[Tables, Source]:
    """The tables of a text, and the text without them: their lines are blank, so places stay. Raises `CompileError`."""
    tables, rest, at = Tables(), [], 0
    for line in source.text.splitlines(keepends=True):
        if _LINE.match(line):
            _row(tables, line.strip(), Span(source, at, at + len(line.rstrip())))
            line = "\n" if line.endswith("\n") else ""  # noqa: PLW2901
            rest.append(" " * (len(source.text[at:].splitlines(keepends=True)[0]) - len(line)) + line)
        else:
            rest.append(line)
        at += len(rest[-1])
    return tables, Source(source.path, "".join(rest))

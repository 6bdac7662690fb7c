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

from tlc.backends.program import Extern, Foreign, Site, Tables, Template
from tlc.frontend.source import Source, Span
from tlc.frontend.types import Elem
from tlc.ssa.ir import Type
from tlc.ssa.tokens import fail

_STRING = r'("(?:[^"\\]|\\.)*")'
_LINE = re.compile(r"(?:string|template|site|extern|foreign)\b")
_EXAMPLES = {
    "string": 'string 0 = "sum"',
    "template": 'template 0 = ("sum ", ("hole", "", "leaf")) : i64',
    "site": 'site 0 = "index" "index {0} is out of range for {1}" : i64, i64',
    "extern": 'extern 0 = "clock" () -> f64',
    "foreign": 'foreign "labs" (i64) -> i64',
}
_FORMS = {
    "string": re.compile(rf"string (\d+) = {_STRING}"),
    "template": re.compile(r"template (\d+) = (\(.*\)) :(?: (.*))?"),
    "site": re.compile(rf"site (\d+) = {_STRING} {_STRING} :(?: (.*))?"),
    "extern": re.compile(rf"extern (\d+) = {_STRING} \((.*?)\) ->(?: (.*))?"),
    "foreign": re.compile(rf"foreign {_STRING} \((.*?)\) ->(?: (.*))?"),
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
    """The tables of a text, and the text with blanks in their place, so that what follows stands where it stood. Raises `CompileError`."""
    tables = Tables()
    rest: list[str] = []
    at = 0
    for line in source.text.split("\n"):
        is_row = _LINE.match(line)
        if is_row:
            _row(tables, line.rstrip(), Span(source, at, at + len(line.rstrip())))
        rest.append(" " * len(line) if is_row else line)
        at += len(line) + 1
    return tables, Source(source.path, "\n".join(rest))


def _row(tables: Tables, line: str, span: Span) -> None:
    kind = line.partition(" ")[0]
    found = _FORMS[kind].fullmatch(line)
    if found is None:
        fail(span, f"this is no row of {kind}s; one reads `{_EXAMPLES[kind]}`")
    words = found.groups("")
    try:
        match kind:
            case "string":
                _numbered(words[0], len(tables.strings), span)
                tables.string(json.loads(words[1]))
            case "template":
                _numbered(words[0], len(tables.templates), span)
                tables.templates.append(Template(ast.literal_eval(words[1]), _parsed(words[2])))
            case "site":
                _numbered(words[0], len(tables.sites), span)
                values = tuple(Elem(word) for word in _list(words[3]))
                tables.sites.append(Site(json.loads(words[1]), json.loads(words[2]), values, span))
            case "extern":
                _numbered(words[0], len(tables.externs), span)
                tables.externs.append(Extern(json.loads(words[1]), _parsed(words[2]), _parsed(words[3]), span))
            case _:
                params = tuple(Elem(word) for word in _list(words[1]))
                tables.foreign[Foreign(json.loads(words[0]), params, Elem(words[2]) if words[2] else None)] = None
    except (ValueError, SyntaxError) as error:
        fail(span, f"this row cannot be read: {str(error).splitlines()[0]}")


def _numbered(text: str, expected: int, span: Span) -> None:
    if int(text) != expected:
        fail(span, f"row {text} stands where row {expected} belongs")


def _list(text: str) -> list[str]:
    return [word for word in text.split(", ") if word]


def _parsed(text: str) -> tuple[Type, ...]:
    """Types such as `i64, f32[_,_]`."""
    out = []
    for word in _list(text):
        elem, _, rank = word.partition("[")
        if rank and not re.fullmatch(r"_(,_)*\]", rank):
            raise ValueError(f"`{word}` is no type")
        out.append(Type(Elem(elem), rank.count("_")))
    return tuple(out)

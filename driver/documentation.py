"""What `##` comments say, of the standard library and of programs: a page a file, an entry a definition.

    page("nn")                  the library's module; what is not documented is not for programs, and is left out
    page_of(ast, text, name)    a program's file, with all its definitions
    entry.head, entry.about     how it is written, without its body; the first sentence of its documentation
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tlc.driver import builtin_docs
from tlc.frontend import ast, modules
from tlc.frontend.records import dataclass

BUILTINS = "builtins"  # the page of what the compiler itself knows
ALWAYS = ("prelude", *modules.OFFERED)  # modules whose functions need no `use`

_SECTION = re.compile(r"^# -{8,} (.+)$")
_SENTENCE = re.compile(r"^(.*?\.)(?:\s+[A-Z`]|$)")  # not behind `et al.`


@dataclass(frozen=True)
class Entry:
    """A definition. `name` is that behind its module's; `section` is the heading that it stands under, or empty."""

    name: str
    head: str
    doc: str
    section: str = ""

    @property
    def line(self) -> str:
        """The head in one line: of a struct, without its fields."""
        return self.head.split("\n")[0].rstrip().removesuffix("{").rstrip()

    @property
    def prose(self) -> str:
        """The documentation without its examples."""
        return "\n".join(line for line in self.doc.split("\n>>> ")[0].split("\n") if not line.startswith(">>> ")).strip()

    @property
    def about(self) -> str:
        """The first sentence."""
        text = " ".join(self.prose.split())
        found = _SENTENCE.match(text)
        return found[1] if found else text

    @property
    def examples(self) -> list[tuple[str, str]]:
        """Expressions, and what `print` writes for them."""
        parts = re.split(r"^>>> ", self.doc, flags=re.MULTILINE)[1:]
        return [(text.partition("\n")[0], text.partition("\n")[2].rstrip()) for text in parts]


@dataclass(frozen=True)
class Page:
    """A file: what it begins with, and its entries in their order."""

    name: str
    about: str
    entries: tuple[Entry, ...]

    def find(self, name: str) -> Entry | None:
        return next((e for e in self.entries if e.name == name), None)


def names() -> list[str]:
    """The pages of the library, first what needs no `use`."""
    return [BUILTINS, *ALWAYS, *(m for m in modules.library_names() if m not in ALWAYS)]


def page(name: str) -> Page | None:
    """A page of the library, or None."""
    if name == BUILTINS:
        rows = [Entry(row.name, row.form, row.doc, section) for section, group in builtin_docs.GROUPS.items() for row in group]
        about = "What the compiler itself knows: functions that take any rank or read types. They need no `use`."
        return Page(BUILTINS, about, tuple(rows))
    tree = modules.library(name)
    return page_of(tree, name, documented=True) if tree is not None else None


def page_of(tree: ast.Module, name: str, documented: bool = False) -> Page:
    """The page of a parsed file, of all its definitions or of the documented ones."""
    text = tree.source.text
    entries = [
        Entry(d.name, head(d), d.doc.strip(), _section(text, d.span.start))
        for d in tree.definitions
        if not isinstance(d, ast.Use) and (d.doc.strip() or not documented)
    ]
    return Page(name, tree.doc.strip() or _opening(text), tuple(entries))


def head(d: ast.Function | ast.StructDef | ast.ConstDef) -> str:
    """A definition as it is written: of a function no body, and nothing before `fn`."""
    source = d.span.source.text
    end = d.body.span.start if isinstance(d, ast.Function) and d.body is not None else d.span.end
    word = {ast.StructDef: "struct", ast.ConstDef: "const"}.get(type(d), "fn")
    start = source.rfind(word, d.span.start, d.name_span.start)
    text = source[start:end].rstrip().removesuffix("=").rstrip()
    if isinstance(d, ast.StructDef):
        return text
    text = " ".join(text.split())
    return text.replace("( ", "(").replace(" )", ")")


def _section(text: str, offset: int) -> str:
    """The heading above a place, `# ---- linear layers`."""
    found = ""
    for line in text[:offset].split("\n"):
        match = _SECTION.match(line)
        if match:
            found = match[1]
    return found


def _opening(text: str) -> str:
    """The comment at the top of a file, its first paragraph."""
    lines: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("# ") or _SECTION.match(line):
            break
        lines.append(line[2:])
    return " ".join(lines)


def everywhere() -> Iterator[tuple[Page, Entry]]:
    """All entries of the library."""
    for name in names():
        found = page(name)
        assert found is not None
        for entry in found.entries:
            yield found, entry

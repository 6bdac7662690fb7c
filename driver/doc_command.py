"""`tlc doc`: the documentation of a module, of a definition, of a program's file.

    tlc doc                 the modules of the library
    tlc doc nn              what a module has
    tlc doc nn.linear       one definition; `tlc doc linear` finds it too
    tlc doc prog.tl f       the same of a file
"""

from __future__ import annotations

import os
import re
import sys
import textwrap

from tlc.driver import documentation as docs
from tlc.driver import flags as flag
from tlc.driver.documentation import Entry, Page
from tlc.driver.flags import UsageError
from tlc.driver.request import OK, Request, read_source

WIDTH = 100


def doc(request: Request) -> int:
    """The command. Raises UsageError for a name that nothing has."""
    print(_answer(request.words))
    return OK


def _answer(words: list[str]) -> str:
    if not words:
        return _modules()
    first, *rest = words
    if first.endswith(".tl"):
        from tlc.frontend.parser import parse

        page = docs.page_of(parse(read_source(first)), first)
        return _in_page(page, rest)
    if rest:
        raise UsageError(f"`tlc doc` takes one name, or a file and a name in it: `tlc doc {first}`")
    module, _, name = first.partition(".")
    page_found = docs.page(module)
    if page_found is not None and page_found.name == module:
        return _in_page(page_found, [name] if name else [])
    found = [(page, entry) for page, entry in docs.everywhere() if entry.name == first]
    if found:
        return "\n\n".join(_entry(entry, page.name) for page, entry in found)
    raise UsageError(f"nothing is called `{first}`{_near(first)}")


def _near(word: str) -> str:
    known: list[str] = list(docs.names())
    for page, entry in docs.everywhere():
        known.append(entry.name)
        if _needs_use(page.name):
            known.append(f"{page.name}.{entry.name}")
    return flag.near(word, known) or "; `tlc doc` lists the modules"


def _in_page(page: Page, rest: list[str]) -> str:
    """The page, or what one name in it means."""
    if not rest:
        return _page(page)
    if len(rest) > 1:
        raise UsageError(f"`tlc doc` takes one name in a file, found `{' '.join(rest)}`")
    entry = page.find(rest[0])
    if entry is None:
        hint = flag.near(rest[0], [e.name for e in page.entries])
        raise UsageError(f"`{page.name}` has no `{rest[0]}`{hint}")
    return _entry(entry, page.name)


# ---------------------------------------------------------------- pages


def _modules() -> str:
    pages = [page for name in docs.names() if (page := docs.page(name)) is not None]
    width = max(len(page.name) for page in pages)
    lines = ["The standard library; `tlc doc NAME` says what a module has, `tlc doc nn.linear` what one function does.", ""]
    for page in pages:
        text = Entry("", "", page.about).about
        lines += _hanging(f"  {_bold(page.name)}{' ' * (width - len(page.name))}  ", width + 4, text)
    return "\n".join(lines)


def _page(page: Page) -> str:
    lines = [_bold(page.name)]
    if page.about:
        lines += ["", *(_code(line) for line in textwrap.wrap(" ".join(page.about.split()), WIDTH))]
    section = ""
    for entry in page.entries:
        if entry.section != section:
            section = entry.section
            lines += ["", _dim(section.upper())]
        lines += ["", *(_bold(line) for line in _short(entry).split("\n"))]
        lines += [_code(line) for line in textwrap.wrap(entry.about, WIDTH, initial_indent="    ", subsequent_indent="    ")]
    return "\n".join(lines)


def _short(entry: Entry) -> str:
    """The first line of a struct; a function's head, broken where it is long."""
    return "\n".join(_wrapped_head(entry.line))


def _wrapped_head(head: str) -> list[str]:
    """A head in lines that end behind a parameter, or before the result."""
    params, arrow, result = head.rpartition(" -> ") if " -> " in head else (head, "", "")
    pieces = params.split(", ")
    words = [f"{piece}," for piece in pieces[:-1]] + [pieces[-1]] + ([f"-> {result}"] if arrow else [])
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"      {word}")
    return lines


def _entry(entry: Entry, module: str) -> str:
    """One definition with its documentation and examples."""
    heads = entry.head.split("\n") if entry.head.startswith("struct") else _short(entry).split("\n")
    where = f"in {module}, with `use {module}`" if _needs_use(module) else ""
    lines = [*(_bold(line) for line in heads), *([_dim(where)] if where else [])]
    for paragraph in re.split(r"\n\s*\n", entry.prose):
        if paragraph:
            lines += ["", *(_code(line) for line in textwrap.wrap(" ".join(paragraph.split()), WIDTH))]
    for expression, value in entry.examples:
        lines += ["", f"    {_dim('>>>')} {expression}", *(f"    {line}".rstrip() for line in value.split("\n"))]
    return "\n".join(lines)


def _needs_use(module: str) -> bool:
    """Whether programs say `use` for it; a program's own file is shown as it is."""
    return module in docs.names() and module not in (docs.BUILTINS, *docs.ALWAYS)


def _hanging(start: str, indent: int, text: str) -> list[str]:
    """Text behind a start whose visible width is `indent`."""
    first, *rest = textwrap.wrap(text, WIDTH - indent) or [""]
    return [f"{start}{_code(first)}".rstrip(), *(" " * indent + _code(line) for line in rest)]


# ---------------------------------------------------------------- a terminal


def _terminal() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _terminal() else text


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _terminal() else text


def _code(text: str) -> str:
    """Words in backticks in another colour; elsewhere they keep their backticks."""
    return re.sub(r"`([^`]+)`", "\x1b[36m\\1\x1b[0m", text) if _terminal() else text
